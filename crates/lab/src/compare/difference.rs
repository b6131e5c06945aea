//! Whether two series differ, and by how much.
//!
//! With two testbeds or more on each side the testbeds' means are compared by Welch's test. One
//! testbed tells nothing of others: see [`Yardstick`].

use super::yardstick::Yardstick;
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
    /// One testbed on at least one side.
    Standing(Option<Standing>),
}

/// A testbed beside one or more, all with positive values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// The mean of the logarithms of the first's testbeds.
    pub first: f64,
    /// The logarithm of the second, less that.
    pub difference: f64,
    /// The variance of those logarithms; 0 of one.
    pub variance: f64,
    /// How many testbeds the first has.
    pub testbeds: f64,
}

impl Standing {
    /// None where a value is not positive.
    fn new(a: &Repeated, b: &Repeated) -> Option<Standing> {
        let logarithm = |value: f64| (value > 0.0).then(|| value.ln());
        let first: Option<Vec<f64>> = a.beds.values().iter().map(|value| logarithm(*value)).collect();
        let (first, second) = (Series::new(first?), logarithm(b.all.mean())?);
        Some(Standing {
            first: first.mean(),
            difference: second - first.mean(),
            variance: first.deviation().powi(2),
            testbeds: first.n() as f64,
        })
    }
}

impl Difference {
    /// Of the second to the first. Only what goes beyond a factor of `1 + threshold` counts.
    pub(super) fn new(a: &Repeated, b: &Repeated, threshold: f64) -> Difference {
        if a.beds.n() < 2 || b.beds.n() < 2 {
            return Difference::Standing(Standing::new(a, b));
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

    /// The first's mean: of its repetitions, or the geometric one of its testbeds.
    pub(super) fn first(&self, a: &Series) -> f64 {
        self.standing().map_or(a.mean(), |standing| standing.first.exp())
    }

    /// The one of [`Difference::Standing`], of positive values.
    pub(super) fn standing(&self) -> Option<Standing> {
        match self {
            Difference::Standing(standing) => *standing,
            Difference::Tested { .. } => None,
        }
    }

    /// The probability of such a difference by chance, in either direction, and the 95 % interval
    /// of the ratio. The yardstick is for [`Difference::Standing`], with an error above 0.
    pub(super) fn judged(&self, yardstick: Option<Yardstick>, threshold: f64) -> (f64, Option<[f64; 2]>) {
        let (standing, yardstick) = match (self, yardstick) {
            (Difference::Tested { above, below, interval }, _) => {
                return ((2.0 * above.min(*below)).min(1.0), *interval);
            }
            (Difference::Standing(Some(standing)), Some(yardstick)) => (standing, yardstick),
            (Difference::Standing(_), _) => return (1.0, None),
        };
        let beyond = (standing.difference.abs() - (1.0 + threshold).ln()).max(0.0);
        let p = 2.0 * student(-beyond / yardstick.error, yardstick.freedom);
        let half = StudentsT::ppf(0.975, yardstick.freedom) * yardstick.error;
        let interval = [standing.difference - half, standing.difference + half];
        (p, Some(interval.map(f64::exp)))
    }
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
