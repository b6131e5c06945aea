//! Estimates that know which testbeds their repetitions are of.
//!
//! What is measured on one testbed shares its peculiarities: a sum of two such results varies more
//! than one of independent results, their difference less. So the variance of a weighted sum is
//! that of its testbeds' parts (the cluster-robust variance), where testbeds are shared.

use super::Estimate;
use super::series::of_testbeds;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An estimate, with the results of its testbeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The estimate.
    pub estimate: Estimate,
    /// The mean of each testbed's repetitions, by the testbeds' numbers, in their order; empty of
    /// print.
    beds: Arc<[(u32, f64)]>,
}

impl From<Estimate> for Observed {
    fn from(estimate: Estimate) -> Observed {
        Observed {
            estimate,
            beds: Arc::new([]),
        }
    }
}

impl Observed {
    /// Of repetitions with the numbers of their testbeds; none without a finite value.
    pub fn new(values: impl IntoIterator<Item = (u32, f64)>) -> Option<Observed> {
        let beds = of_testbeds(values);
        let means = super::Series::new(beds.values().copied());
        (means.n() > 0).then(|| Observed {
            estimate: means.estimate(),
            beds: beds.into_iter().collect(),
        })
    }

    /// The best guess.
    pub fn mean(&self) -> f64 {
        self.estimate.mean()
    }

    /// Whether both have repetitions on one testbed.
    fn shares(&self, other: &Observed) -> bool {
        let (mut own, mut others) = (self.beds.iter().peekable(), other.beds.iter().peekable());
        while let (Some((bed, _)), Some((of_other, _))) = (own.peek(), others.peek()) {
            match bed.cmp(of_other) {
                std::cmp::Ordering::Less => own.next(),
                std::cmp::Ordering::Greater => others.next(),
                std::cmp::Ordering::Equal => return true,
            };
        }
        false
    }
}

/// The variance of a weighted sum, infinite if unknown, and its degrees of freedom, those of Welch
/// and Satterthwaite.
pub(super) fn spread(terms: &[(f64, Observed)]) -> (f64, f64) {
    let mut left: Vec<&(f64, Observed)> = terms.iter().filter(|(weight, _)| *weight != 0.0).collect();
    let (mut variance, mut squares) = (0.0, 0.0);
    while let Some(first) = left.pop() {
        // With all that share testbeds with it, or with one that does.
        let (mut together, mut n) = (vec![first], 0);
        while n < together.len() {
            let of = together[n];
            let (shares, others) = left.into_iter().partition(|(_, one)| of.1.shares(one));
            together.extend::<Vec<_>>(shares);
            left = others;
            n += 1;
        }
        let (own, freedom) = spread_together(&together);
        variance += own;
        squares += own * own / freedom;
    }
    let freedom = if squares > 0.0 && variance.is_finite() {
        variance * variance / squares
    } else {
        f64::INFINITY
    };
    (variance, freedom)
}

/// The same of terms that share testbeds.
fn spread_together(terms: &[&(f64, Observed)]) -> (f64, f64) {
    let (mut apart, mut freedom) = (0.0, f64::INFINITY);
    let mut beds: BTreeMap<u32, f64> = BTreeMap::new();
    for (weight, of) in terms {
        let (error, own) = of.estimate.error();
        apart += (weight * error).powi(2);
        freedom = own.min(freedom);
        let n = of.beds.len() as f64;
        let scale = weight / (n * (n - 1.0)).sqrt();
        for (bed, value) in of.beds.iter() {
            *beds.entry(*bed).or_default() += scale * (value - of.mean());
        }
    }
    if terms.len() == 1 || !apart.is_finite() {
        return (apart, freedom);
    }
    let variance: f64 = beds.values().map(|part| part * part).sum();
    // What is left of rounding is no spread.
    (if variance < 1e-20 * apart { 0.0 } else { variance }, freedom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Contrast, Ratio};

    /// Ten testbeds from this number on.
    fn observed(first: u32, value: impl Fn(f64) -> f64) -> Observed {
        let peculiarity = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0, -2.0, -6.0, 5.0, 3.0];
        Observed::new((first..).zip(peculiarity.map(value))).unwrap()
    }

    #[test]
    fn what_shifts_two_results_of_one_testbed_together_widens_their_sum_and_not_their_ratio() {
        let (one, other) = (observed(1, |p| 100.0 + p), observed(1, |p| 200.0 + 2.0 * p));
        let apart = observed(11, |p| 200.0 + 2.0 * p);
        let sum = |other: &Observed| Contrast::sum([(1.0, one.clone()), (1.0, other.clone())]);
        let tripled = Contrast::sum([(3.0, one.clone())]).interval(0.95).unwrap();
        let together = sum(&other).interval(0.95).unwrap();
        assert!((together.high - tripled.high).abs() < 0.5, "{together:?} {tripled:?}");
        let independent = sum(&apart).interval(0.95).unwrap();
        assert!(independent.high - independent.low < 0.8 * (together.high - together.low));

        let ratio = |other: &Observed| Ratio::new(other.clone(), one.clone()).unwrap();
        assert!(ratio(&other).above(1.999) < 0.02, "it is 2 on each testbed");
        assert!(ratio(&apart).above(1.999) > 0.4);
    }

    #[test]
    fn of_testbeds_that_only_some_results_share_the_others_stay_independent() {
        let one = observed(1, |p| 100.0 + p);
        let half = spread(&[(1.0, one.clone()), (1.0, observed(6, |p| 100.0 + p))]);
        let none = spread(&[(1.0, one.clone()), (1.0, observed(11, |p| 100.0 + p))]);
        let all = spread(&[(1.0, one.clone()), (1.0, one.clone())]);
        assert!((none.0 * 2.0 - all.0).abs() < 1e-9 && (none.1 - 18.0).abs() < 1e-9);
        assert_eq!(all.1, 9.0);
        assert!(half.0 != none.0 && half.1 == 9.0, "{half:?}");
        let single = Observed::new([(1, 7.0)]).unwrap();
        assert_eq!(spread(&[(1.0, one), (1.0, single)]).0, f64::INFINITY);
    }
}
