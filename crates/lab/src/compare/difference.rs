//! Whether two series differ, and by how much.
//!
//! With two testbeds or more on each side the testbeds' means are compared by Welch's test. Of
//! quick runs, whose repetitions share one testbed, nobody knows how testbeds differ. But most
//! pairs of cells differ by nothing else, so their spread shows it: the differences of a system's
//! other cells are the yardstick (Efron's empirical null, by the median deviation, so that a
//! few cells that really differ do not matter).

use crate::stats::{Contrast, Ratio, Repeated, Series, student};
use distrs::StudentsT;

/// How two cells differ.
#[derive(Clone, Debug)]
pub(super) enum Difference {
    /// By the testbeds' means: the probabilities of chance that the second is as much larger, and
    /// as much smaller.
    Tested {
        above: f64,
        below: f64,
        interval: Option<[f64; 2]>,
    },
    /// One testbed each: the logarithm of the ratio; none where one is not positive.
    Standing(Option<f64>),
}

/// Fewer of a system's cells show no spread.
pub(super) const LEAST: usize = 8;
/// The same of cells that are alike, whose spread only replaces a smaller one.
pub(super) const LEAST_ALIKE: usize = 2;
/// Heavier tails than those of a normal distribution: noise differs between cells.
const FREEDOM: f64 = 6.0;
/// The standard deviation of a normal distribution, in median deviations.
const NORMAL: f64 = 1.4826;

impl Difference {
    /// Of the second to the first. Only what goes beyond a factor of `1 + threshold` counts.
    pub(super) fn new(a: &Repeated, b: &Repeated, threshold: f64) -> Difference {
        if a.beds.n() < 2 || b.beds.n() < 2 {
            let (first, second) = (a.all.mean(), b.all.mean());
            return Difference::Standing((first > 0.0 && second > 0.0).then(|| (second / first).ln()));
        }
        let (a, b) = (&a.beds, &b.beds);
        let (first, second) = (a.estimate(), b.estimate());
        let factor = 1.0 + threshold;
        let test = |bound: f64| Contrast::sum([(1.0, second), (-bound, first)]);
        let (up, down) = (test(factor), test(1.0 / factor));
        let (above, below) = if up.is_constant() || down.is_constant() {
            // Welch's test takes values without spread for certainty.
            let p = permutations(a.n(), b.n()) / 2.0;
            let one = |is_beyond: bool| if is_beyond { p } else { 1.0 };
            (one(up.value > 0.0), one(down.value < 0.0))
        } else {
            (up.above(0.0), down.below(0.0))
        };
        let interval = Ratio::new(second, first).and_then(|ratio| ratio.interval(0.95));
        Difference::Tested {
            above,
            below,
            interval: interval.map(|interval| [interval.low, interval.high]),
        }
    }

    /// The probability of such a difference by chance, in either direction, and the 95 % interval
    /// of the ratio. `spread` is that of the system's cells with one testbed.
    pub(super) fn judged(&self, spread: Option<f64>, threshold: f64) -> (f64, Option<[f64; 2]>) {
        match self {
            Difference::Tested { above, below, interval } => ((2.0 * above.min(*below)).min(1.0), *interval),
            Difference::Standing(Some(difference)) => match spread {
                Some(spread) => {
                    let beyond = (difference.abs() - (1.0 + threshold).ln()).max(0.0);
                    let p = if spread > 0.0 {
                        2.0 * student(-beyond / spread, FREEDOM)
                    } else {
                        1.0
                    };
                    let half = StudentsT::ppf(0.975, FREEDOM) * spread;
                    (p, Some([(difference - half).exp(), (difference + half).exp()]))
                }
                None => (1.0, None),
            },
            Difference::Standing(None) => (1.0, None),
        }
    }
}

/// The spread of the differences between cells with one testbed each; none if there are fewer than
/// `least`.
pub(super) fn spread<'a>(differences: impl Iterator<Item = &'a Difference>, least: usize) -> Option<f64> {
    let standing = differences.filter_map(|one| match one {
        Difference::Standing(difference) => *difference,
        Difference::Tested { .. } => None,
    });
    let standing = Series::new(standing);
    let middle = standing.quantile(0.5);
    let deviations = Series::new(standing.values().iter().map(|value| (value - middle).abs()));
    (standing.n() >= least).then(|| NORMAL * deviations.quantile(0.5))
}

/// The probability that all values of two series are on their own sides by chance.
fn permutations(n: usize, m: usize) -> f64 {
    let (n, m) = (n as f64, m as f64);
    let mut ways = 1.0;
    let mut k = 1.0;
    while k <= m {
        ways *= (n + k) / k;
        k += 1.0;
    }
    (2.0 / ways).min(1.0)
}

/// Cliff's delta, -1 to 1: how much more often a value of the second is the larger of two than the
/// smaller.
pub(super) fn delta(a: &Series, b: &Series) -> f64 {
    let pairs = b
        .values()
        .iter()
        .flat_map(|x| a.values().iter().map(move |y| x.total_cmp(y) as i64));
    pairs.sum::<i64>() as f64 / (a.n() * b.n()).max(1) as f64
}
