//! Whether two series differ, and by how much.

use super::{Ratio, Series};
use distrs::{Normal, StudentsT};

/// The comparison of two series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Mean of the first over mean of the second, if both are positive.
    pub ratio: Option<Ratio>,
    /// Probability of a difference of means as large where there is none, by Welch's test.
    pub welch: f64,
    /// Probability of ranks as uneven where there is no difference, by Mann and Whitney's test.
    pub ranks: f64,
    /// Cliff's delta, -1 to 1: how much more often a value of the first is the larger of two than
    /// the smaller. To 0.147 negligible, to 0.33 small, to 0.474 medium.
    pub delta: f64,
}

/// Compares two series; each needs two values for the tests to say anything.
pub fn compare(a: &Series, b: &Series) -> Comparison {
    Comparison {
        ratio: Ratio::new(a.estimate(), b.estimate()),
        welch: welch(a, b),
        ranks: ranks(a, b),
        delta: delta(a, b),
    }
}

fn welch(a: &Series, b: &Series) -> f64 {
    if a.n() < 2 || b.n() < 2 {
        return 1.0;
    }
    let part = |s: &Series| s.deviation().powi(2) / s.n() as f64;
    let (va, vb) = (part(a), part(b));
    if va + vb == 0.0 {
        return if a.mean() == b.mean() { 1.0 } else { 0.0 };
    }
    let t = (a.mean() - b.mean()).abs() / (va + vb).sqrt();
    let freedom = (va + vb).powi(2) / (va * va / (a.n() - 1) as f64 + vb * vb / (b.n() - 1) as f64);
    2.0 * (1.0 - StudentsT::cdf(t, freedom))
}

/// Pairs in which the first is larger, less those in which it is smaller.
fn dominance(a: &Series, b: &Series) -> i64 {
    let pairs = a
        .values()
        .iter()
        .flat_map(|x| b.values().iter().map(move |y| x.total_cmp(y) as i64));
    pairs.sum()
}

fn delta(a: &Series, b: &Series) -> f64 {
    dominance(a, b) as f64 / (a.n() * b.n()).max(1) as f64
}

/// By the normal approximation, with the correction for ties.
fn ranks(a: &Series, b: &Series) -> f64 {
    let (n, m) = (a.n() as f64, b.n() as f64);
    let total = n + m;
    let mut all: Vec<f64> = a.values().iter().chain(b.values()).copied().collect();
    all.sort_by(f64::total_cmp);
    let ties: f64 = all
        .chunk_by(|x, y| x == y)
        .map(|tie| (tie.len() as f64).powi(3) - tie.len() as f64)
        .sum();
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if n < 2.0 || m < 2.0 || variance <= 0.0 {
        return 1.0;
    }
    // U less its mean is half the dominance.
    let z = (dominance(a, b).abs() as f64 / 2.0 - 0.5).max(0.0) / variance.sqrt();
    2.0 * (1.0 - Normal::cdf(z, 0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_apart_differ_by_both_tests() {
        let a = Series::new((0..10).map(|n| 10.0 + f64::from(n)));
        let b = Series::new((0..10).map(|n| 20.0 + f64::from(n)));
        let comparison = compare(&a, &b);
        assert!(comparison.welch < 1e-4 && comparison.ranks < 1e-3, "{comparison:?}");
        assert_eq!(comparison.delta, -1.0);
        assert_eq!(compare(&b, &a).delta, 1.0);
    }

    #[test]
    fn the_same_series_does_not_differ_from_itself() {
        let a = Series::new([1.0, 2.0, 3.0, 3.0]);
        let comparison = compare(&a, &a);
        assert_eq!((comparison.welch, comparison.ranks, comparison.delta), (1.0, 1.0, 0.0));
        assert_eq!(compare(&Series::default(), &a).welch, 1.0);
    }

    #[test]
    fn one_wild_value_fools_the_means_and_not_the_ranks() {
        let a = Series::new([1.0, 1.1, 1.2, 1.3, 1.4, 1000.0]);
        let b = Series::new([2.0, 2.1, 2.2, 2.3, 2.4, 2.5]);
        let comparison = compare(&a, &b);
        assert!(comparison.welch > 0.3 && comparison.delta < -0.6, "{comparison:?}");
    }
}
