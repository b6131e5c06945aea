//! Whether two series differ, and by how much.
//!
//! With two testbeds or more on each side the testbeds' means are compared by Welch's test: their
//! logarithms, because noise that is a factor has a long tail, which hides a difference of the
//! means; or the means themselves where one is not positive. One testbed tells nothing of others:
//! see [`Yardstick`].

use super::yardstick::Yardstick;
use crate::stats::{Contrast, Ratio, Repeated, Series, quantile, student};

/// How two cells differ.
#[derive(Clone, Debug)]
pub(super) enum Difference {
    /// By two testbeds or more on each side.
    Tested(Tested),
    /// One testbed on at least one side.
    Standing(Option<Standing>),
}

/// Testbeds beside testbeds.
#[derive(Clone, Debug)]
pub(super) struct Tested {
    /// The probabilities of chance that the second is as much larger, and as much smaller.
    above: f64,
    below: f64,
    spread: Spread,
}

/// What an interval of the ratio is taken from.
#[derive(Clone, Debug)]
enum Spread {
    /// The logarithms of the second less those of the first.
    Logarithms(Contrast),
    /// Of the means; none where one is not positive.
    Means(Option<Ratio>),
}

/// A testbed beside one or more, all with positive values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// The logarithm of the second, less the mean of those of the first's testbeds.
    pub difference: f64,
    /// The variance of the first's logarithms; 0 of one.
    pub variance: f64,
    /// How many testbeds the first has.
    pub testbeds: f64,
}

impl Standing {
    fn new([first, second]: [Series; 2]) -> Standing {
        Standing {
            difference: second.mean() - first.mean(),
            variance: first.deviation().powi(2),
            testbeds: first.n() as f64,
        }
    }
}

/// The logarithms of the testbeds' means; none where one is not positive.
fn logarithms(a: &Repeated, b: &Repeated) -> Option<[Series; 2]> {
    let of = |beds: &Series| {
        let values = beds.values().iter().copied();
        let all: Option<Vec<f64>> = values.map(|value| (value > 0.0).then(|| value.ln())).collect();
        all.map(Series::new)
    };
    Some([of(&a.beds)?, of(&b.beds)?])
}

/// The means that are shown: the geometric ones of the testbeds, where all are positive.
pub(super) fn means(a: &Repeated, b: &Repeated) -> [f64; 2] {
    match logarithms(a, b) {
        Some(both) => both.map(|one| one.mean().exp()),
        None => [a.all.mean(), b.all.mean()],
    }
}

impl Difference {
    /// Of the second to the first. Only what goes beyond a factor of `1 + threshold` counts.
    pub(super) fn new(a: &Repeated, b: &Repeated, threshold: f64) -> Difference {
        let logarithms = logarithms(a, b);
        if a.beds.n() < 2 || b.beds.n() < 2 {
            return Difference::Standing(logarithms.map(Standing::new));
        }
        let factor = 1.0 + threshold;
        let (mut above, mut below, spread) = match logarithms {
            Some([first, second]) => {
                let contrast = Contrast::sum([(1.0, second.estimate()), (-1.0, first.estimate())]);
                let [above, below] = [contrast.above(factor.ln()), contrast.below(-factor.ln())];
                (above, below, Spread::Logarithms(contrast))
            }
            None => {
                let (first, second) = (a.beds.estimate(), b.beds.estimate());
                let beyond = |bound: f64| Contrast::sum([(1.0, second), (-bound, first)]);
                let [above, below] = [beyond(factor).above(0.0), beyond(1.0 / factor).below(0.0)];
                (above, below, Spread::Means(Ratio::new(second, first)))
            }
        };
        if let (Some(first), Some(second)) = (constant(&a.beds), constant(&b.beds)) {
            // Welch's test takes values without spread for certainty.
            let p = permutations(a.beds.n(), b.beds.n()) / 2.0;
            let one = |is_beyond: bool| if is_beyond { p } else { 1.0 };
            (above, below) = (one(second > first * factor), one(second * factor < first));
        }
        Difference::Tested(Tested { above, below, spread })
    }

    /// The one of [`Difference::Standing`], of positive values.
    pub(super) fn standing(&self) -> Option<Standing> {
        match self {
            Difference::Standing(standing) => *standing,
            Difference::Tested(_) => None,
        }
    }

    /// The probability of such a difference by chance, in either direction. The yardstick is for
    /// [`Difference::Standing`], with an error above 0.
    pub(super) fn chance(&self, yardstick: Option<Yardstick>, threshold: f64) -> f64 {
        match (self, yardstick) {
            (Difference::Tested(tested), _) => (2.0 * tested.above.min(tested.below)).min(1.0),
            (Difference::Standing(Some(standing)), Some(yardstick)) => {
                let beyond = (standing.difference.abs() - (1.0 + threshold).ln()).max(0.0);
                2.0 * student(-beyond / yardstick.error, yardstick.freedom)
            }
            (Difference::Standing(_), _) => 1.0,
        }
    }

    /// The interval of the ratio at this level; none where one is not positive, or nothing is known
    /// of the spread.
    pub(super) fn interval(&self, yardstick: Option<Yardstick>, level: f64) -> Option<[f64; 2]> {
        match (self, yardstick) {
            (Difference::Tested(tested), _) => match &tested.spread {
                Spread::Logarithms(contrast) => {
                    let interval = contrast.interval(level)?;
                    Some([interval.low.exp(), interval.high.exp()])
                }
                Spread::Means(ratio) => {
                    let interval = ratio.as_ref()?.interval(level)?;
                    Some([interval.low, interval.high])
                }
            },
            (Difference::Standing(Some(standing)), Some(yardstick)) => {
                let half = quantile((1.0 + level) / 2.0, yardstick.freedom) * yardstick.error;
                Some([standing.difference - half, standing.difference + half].map(f64::exp))
            }
            (Difference::Standing(_), _) => None,
        }
    }
}

/// The value that all are equal to.
fn constant(series: &Series) -> Option<f64> {
    let (first, others) = series.values().split_first()?;
    others.iter().all(|value| value == first).then_some(*first)
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
