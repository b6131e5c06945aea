//! Estimates of a mean, sums of them, and the ratio of two.
//!
//! Every question is a test of one side: [`Contrast::above`] and [`Contrast::below`] give the
//! probability of such values, or of values further on that side, if the truth were at the bound.
//! An interval at a level of `1 - 2 a` contains the bounds that neither test rejects at `a`.

use super::observed::{Observed, spread};
use distrs::{Normal, StudentsT};
use statrs::function::beta::beta_reg;

/// An estimate of the mean of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimate {
    /// From repetitions.
    Mean {
        /// Their mean.
        mean: f64,
        /// Their standard deviation.
        deviation: f64,
        /// How many, at least 2.
        n: u64,
        /// Their skewness: the mean cube of what they are above the mean, in standard deviations. 0
        /// if unknown.
        skew: f64,
    },
    /// From print, as an interval.
    Interval {
        /// Where the mean lies.
        interval: Interval,
        /// With this probability.
        level: f64,
    },
    /// A number without its uncertainty, taken for exact.
    Point(f64),
    /// One repetition, or several on one testbed: its spread is unknown, so it decides nothing.
    Single(f64),
}

/// From `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The share of repetitions that may differ from all those seen, if these are equal.
///
/// Values without spread have no standard error. That `n` of them are equal has at most the
/// probability `(1 - RARE)^n` if a repetition gives another value more often than this.
const RARE: f64 = 1.0 / 3.0;

impl Estimate {
    /// The best guess.
    pub fn mean(self) -> f64 {
        match self {
            Estimate::Mean { mean, .. } | Estimate::Point(mean) | Estimate::Single(mean) => mean,
            Estimate::Interval { interval, .. } => (interval.low + interval.high) / 2.0,
        }
    }

    /// The standard error of the best guess and its degrees of freedom.
    pub(super) fn error(self) -> (f64, f64) {
        match self {
            Estimate::Mean { deviation, n, .. } => (deviation / (n as f64).sqrt(), n.saturating_sub(1).max(1) as f64),
            Estimate::Interval { interval, level } => {
                let factor = Normal::ppf((1.0 + level) / 2.0, 0.0, 1.0);
                ((interval.high - interval.low) / (2.0 * factor), f64::INFINITY)
            }
            Estimate::Point(_) => (0.0, f64::INFINITY),
            Estimate::Single(_) => (f64::INFINITY, f64::INFINITY),
        }
    }

    /// The same in another unit.
    pub fn times(self, factor: f64) -> Estimate {
        match self {
            Estimate::Mean {
                mean,
                deviation,
                n,
                skew,
            } => Estimate::Mean {
                mean: mean * factor,
                deviation: deviation * factor.abs(),
                n,
                skew: skew * factor.signum(),
            },
            Estimate::Interval { interval, level } => {
                let ends = [interval.low * factor, interval.high * factor];
                let interval = Interval {
                    low: ends[0].min(ends[1]),
                    high: ends[0].max(ends[1]),
                };
                Estimate::Interval { interval, level }
            }
            Estimate::Point(value) => Estimate::Point(value * factor),
            Estimate::Single(value) => Estimate::Single(value * factor),
        }
    }

    /// The confidence interval of the mean at this level; for one repetition, its value.
    pub fn interval(self, level: f64) -> Interval {
        let alone = Contrast::sum([(1.0, self)]);
        alone.interval(level).unwrap_or(Interval {
            low: self.mean(),
            high: self.mean(),
        })
    }
}

/// A weighted sum of estimates, independent except for the testbeds that they share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrast {
    /// The best guess.
    pub value: f64,
    /// Of the best guess; infinite if unknown.
    variance: f64,
    freedom: f64,
    /// The probability of values without any spread, if the truth were elsewhere.
    unlikely: f64,
    /// Repetitions of the estimate with the most.
    n: u64,
    /// Of a single mean; 0 of others, whose skewness cancels where it is alike.
    skew: f64,
}

/// Noise is a share of the level: if the truth is higher than the mean, by so much is the noise
/// higher too. No more than this, so that one value in many zeros does not hinder every decision.
const MOST_NOISE: f64 = 2.0;

impl Contrast {
    /// Of estimates with their weights.
    pub fn sum<T: Into<Observed>>(terms: impl IntoIterator<Item = (f64, T)>) -> Contrast {
        let terms: Vec<(f64, Observed)> = terms.into_iter().map(|(weight, one)| (weight, one.into())).collect();
        let value = terms.iter().map(|(weight, one)| weight * one.mean()).sum();
        Contrast::of(value, &terms)
    }

    /// Of the logarithms of estimates, with their weights; none if one is not positive.
    pub fn logarithms<T: Into<Observed>>(terms: impl IntoIterator<Item = (f64, T)>) -> Option<Contrast> {
        let mut value = 0.0;
        let mut all = Vec::new();
        for (weight, one) in terms {
            let one: Observed = one.into();
            let mean = Some(one.mean()).filter(|mean| *mean > 0.0)?;
            value += weight * mean.ln();
            // The logarithm changes by so much of a change of the mean.
            all.push((weight / mean, one));
        }
        Some(Contrast::of(value, &all))
    }

    fn of(value: f64, terms: &[(f64, Observed)]) -> Contrast {
        let (variance, freedom) = spread(terms);
        let mut all = Contrast {
            value,
            variance,
            freedom,
            unlikely: 0.0,
            n: 0,
            skew: 0.0,
        };
        for (_, one) in terms {
            if let Estimate::Mean { n, skew, .. } = one.estimate {
                all.skew = if terms.len() == 1 { skew } else { 0.0 };
                all.unlikely = all.unlikely.max((1.0 - RARE).powf(n as f64));
                all.n = all.n.max(n);
            }
        }
        all
    }

    /// Whether anything is known of how far it may be off.
    pub fn is_known(self) -> bool {
        self.variance.is_finite()
    }

    /// Whether no value differs from another.
    pub(crate) fn is_constant(self) -> bool {
        self.variance == 0.0
    }

    /// The same with the other sign.
    pub(crate) fn negative(self) -> Contrast {
        Contrast {
            value: -self.value,
            ..self
        }
    }

    /// The probability of such a value or a higher one, if the truth were at most `bound`.
    pub fn above(self, bound: f64) -> f64 {
        self.beyond(self.value - bound, 1.0)
    }

    /// The probability of such a value or a lower one, if the truth were at least `bound`.
    pub fn below(self, bound: f64) -> f64 {
        self.beyond(bound - self.value, -1.0)
    }

    fn beyond(self, distance: f64, side: f64) -> f64 {
        if !self.variance.is_finite() || distance.is_nan() {
            return 1.0;
        }
        if self.variance == 0.0 {
            return if distance >= 0.0 { self.unlikely } else { 1.0 };
        }
        let t = self.statistic(distance, side);
        if self.freedom.is_finite() {
            student(-t, self.freedom)
        } else {
            Normal::cdf(-t, 0.0, 1.0)
        }
    }

    /// Student's statistic of a bound at this distance, below the best guess if `side` is 1, above
    /// it if it is -1. It grows with the distance.
    fn statistic(self, distance: f64, side: f64) -> f64 {
        let t = distance / self.variance.sqrt();
        let t = t.min(self.unskewed(t, side * self.skew));
        // Where the distribution is not known, it is taken for the normal one.
        if self.skew != 0.0 && side < 0.0 && distance > 0.0 && self.value > 0.0 {
            t / (1.0 + distance / self.value).min(MOST_NOISE)
        } else {
            t
        }
    }

    /// Hall's transformation (1992), after which Student's statistic of skewed values is closer to
    /// Student's distribution. Without it a long tail that did not show up in a few repetitions
    /// makes "at most" hold three times as often as it may. Far from the mean the transformation is
    /// wrong; there the correction stays as it is.
    fn unskewed(self, t: f64, skew: f64) -> f64 {
        let root = (self.n as f64).sqrt();
        if skew == 0.0 {
            return t;
        }
        let near = (t / root).clamp(-1.0 / skew.abs(), 1.0 / skew.abs());
        root * self.hall(near, skew) + (t - root * near)
    }

    fn hall(self, w: f64, skew: f64) -> f64 {
        w + skew * w * w / 3.0 + skew * skew * w.powi(3) / 27.0 + skew / (6.0 * self.n as f64)
    }

    /// The confidence interval at this level; none if nothing is known of the spread.
    pub fn interval(self, level: f64) -> Option<Interval> {
        let error = self.variance.sqrt();
        let half = |side: f64| {
            if error == 0.0 {
                return 0.0;
            }
            let t = quantile((1.0 + level) / 2.0, self.freedom);
            let (mut within, mut beyond) = (0.0, t * error);
            while self.statistic(beyond, side) < t {
                (within, beyond) = (beyond, 2.0 * beyond);
            }
            for _ in 0..50 {
                let middle = (within + beyond) / 2.0;
                if self.statistic(middle, side) < t {
                    within = middle;
                } else {
                    beyond = middle;
                }
            }
            beyond
        };
        self.is_known().then(|| Interval {
            low: self.value - half(1.0),
            high: self.value + half(-1.0),
        })
    }

    /// About how many repetitions tell it from `bound` at a level of `level`, with a probability of
    /// 80 %, if the truth is the best guess; none if nothing is known, or the best guess is the
    /// bound.
    pub(crate) fn needs(self, bound: f64, level: f64) -> Option<u64> {
        let distance = (self.value - bound).abs();
        if self.n == 0 || !self.is_known() {
            return None;
        }
        if self.variance == 0.0 {
            return Some((level.ln() / (1.0 - RARE).ln()).ceil() as u64);
        }
        if distance == 0.0 {
            return None;
        }
        let level = Normal::ppf(1.0 - level, 0.0, 1.0);
        let factor = level + Normal::ppf(0.8, 0.0, 1.0);
        let n = self.n as f64 * self.variance * (factor / distance).powi(2);
        // Student's factor is larger than the normal one.
        Some((n + level * level / 2.0).ceil().max(self.n as f64 + 1.0) as u64)
    }
}

/// The probability that Student's statistic with so many degrees of freedom is at most `t`.
pub(crate) fn student(t: f64, freedom: f64) -> f64 {
    // Not `StudentsT::cdf` of `distrs`: its series ends too early, so that chances are up to tens
    // of times too small with few degrees of freedom.
    let tail = beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t * t)) / 2.0;
    if t < 0.0 { tail } else { 1.0 - tail }
}

pub(crate) fn quantile(probability: f64, freedom: f64) -> f64 {
    if freedom.is_finite() {
        StudentsT::ppf(probability, freedom)
    } else {
        Normal::ppf(probability, 0.0, 1.0)
    }
}

/// A sum of means over another one.
///
/// That the ratio is above `b` is the question whether `over - b * under` is above 0, which needs
/// no logarithm, so results may be 0, and no approximation, so few repetitions are no trouble. The
/// interval is Fieller's.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    over: Vec<Observed>,
    under: Vec<Observed>,
}

impl Ratio {
    /// Of two means; `None` where one is not positive.
    pub fn new(over: impl Into<Observed>, under: impl Into<Observed>) -> Option<Ratio> {
        let ratio = Ratio::of_sums(vec![over.into()], vec![under.into()])?;
        let (over, under) = ratio.sums();
        (over > 0.0 && under > 0.0).then_some(ratio)
    }

    /// Of two sums; `None` where one is negative or both are 0.
    pub fn of_sums(over: Vec<Observed>, under: Vec<Observed>) -> Option<Ratio> {
        let ratio = Ratio { over, under };
        let (over, under) = ratio.sums();
        (over >= 0.0 && under >= 0.0 && over + under > 0.0).then_some(ratio)
    }

    /// The two sums.
    pub fn sums(&self) -> (f64, f64) {
        let sum = |all: &[Observed]| all.iter().map(Observed::mean).sum();
        (sum(&self.over), sum(&self.under))
    }

    /// The ratio of the best guesses.
    pub fn value(&self) -> f64 {
        let (over, under) = self.sums();
        over / under
    }

    /// The first sum less `bound` times the second.
    pub(crate) fn at(&self, bound: f64) -> Contrast {
        let (over, under) = self.sums();
        let value = over - bound * under;
        let terms = |more_over: f64, more_under: f64| -> Vec<(f64, Observed)> {
            let over = self.over.iter().map(|one| (more_over, one.clone()));
            let under = self.under.iter().map(|one| (-bound * more_under, one.clone()));
            over.chain(under).collect()
        };
        // If the bound is the truth, one of the sums should be higher, and its noise with it.
        let more = |high: f64, low: f64| {
            if low > 0.0 {
                (high / low).clamp(1.0, MOST_NOISE)
            } else {
                1.0
            }
        };
        let noisier = terms(more(bound * under, over), more(over, bound * under));
        let (one, other) = (Contrast::of(value, &terms(1.0, 1.0)), Contrast::of(value, &noisier));
        if other.variance > one.variance { other } else { one }
    }

    /// As [`Contrast::above`].
    pub fn above(&self, bound: f64) -> f64 {
        self.at(bound).above(0.0)
    }

    /// As [`Contrast::below`].
    pub fn below(&self, bound: f64) -> f64 {
        self.at(bound).below(0.0)
    }

    /// Its confidence interval at this level, from 0 to infinity; none if nothing is known of the
    /// spread.
    pub fn interval(&self, level: f64) -> Option<Interval> {
        const FURTHEST: f64 = 1e6;
        let value = self.value();
        let at = self.at(1.0);
        if !at.is_known() {
            return None;
        }
        if at.is_constant() || !value.is_finite() || value == 0.0 {
            return Some(Interval {
                low: value,
                high: value,
            });
        }
        let level = (1.0 - level) / 2.0;
        // Bisection between the best guess, which no test rejects, and a bound that it rejects.
        let end = |rejects: &dyn Fn(f64) -> bool, far: f64| {
            if !rejects(far) {
                return None;
            }
            let (mut kept, mut rejected) = (value.ln(), far.ln());
            for _ in 0..50 {
                let middle = (kept + rejected) / 2.0;
                if rejects(middle.exp()) {
                    rejected = middle;
                } else {
                    kept = middle;
                }
            }
            Some(kept.exp())
        };
        Some(Interval {
            low: end(&|bound| self.above(bound) <= level, value / FURTHEST).unwrap_or(0.0),
            high: end(&|bound| self.below(bound) <= level, value * FURTHEST).unwrap_or(f64::INFINITY),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Series;

    fn mean(mean: f64, deviation: f64, n: u64) -> Estimate {
        Estimate::Mean {
            mean,
            deviation,
            n,
            skew: 0.0,
        }
    }

    #[test]
    fn students_distribution_is_right_for_whole_degrees_of_freedom() {
        // Printed quantiles of 97.5 %.
        let printed = [
            (4.0, 2.776_445),
            (9.0, 2.262_157),
            (10.0, 2.228_139),
            (15.0, 2.131_450),
            (19.0, 2.093_024),
            (30.0, 2.042_272),
            (99.0, 1.984_217),
            (198.0, 1.972_017),
        ];
        for (freedom, t) in printed {
            assert!((student(-t, freedom) - 0.025).abs() < 2e-5, "{freedom}");
        }
        for freedom in 1..=300 {
            let far: Vec<f64> = (4..=60)
                .map(|t| student(-0.5 * f64::from(t), f64::from(freedom)))
                .collect();
            assert!(
                far.is_sorted_by(|near, far| near >= far && *far >= 0.0),
                "{freedom} {far:?}"
            );
        }
    }

    #[test]
    fn quantiles_far_out_are_those_of_the_distribution() {
        // Printed quantiles.
        let printed = [
            (1.0, 1e-3, 318.309),
            (2.0, 1e-3, 22.327),
            (2.0, 1e-4, 70.700),
            (5.0, 1e-4, 9.678),
            (10.0, 1e-4, 5.694),
            (30.0, 5e-4, 3.646),
            (120.0, 5e-4, 3.3735),
        ];
        for (freedom, tail, t) in printed {
            let chance = student(-t, freedom);
            assert!((chance / tail - 1.0).abs() < 2e-3, "{freedom} {tail}: {chance}");
        }
        for freedom in [1.5, 2.1, 5.3, 6.0, 9.0, 10.0, 14.7, 30.0, 62.5, 126.0] {
            for tail in [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7] {
                let back = student(-quantile(1.0 - tail, freedom), freedom);
                assert!((back / tail - 1.0).abs() < 0.03, "{freedom} {tail}: {back}");
            }
        }
    }

    #[test]
    fn a_printed_interval_is_told_back_at_its_own_level() {
        let interval = Interval { low: 0.5, high: 0.6 };
        let estimate = Estimate::Interval { interval, level: 0.99 };
        let back = estimate.interval(0.99);
        assert!((back.low - 0.5).abs() < 1e-9 && (back.high - 0.6).abs() < 1e-9);
        let narrow = estimate.interval(0.9);
        assert!(narrow.low > 0.5 && narrow.high < 0.6);
    }

    #[test]
    fn an_interval_ends_where_the_tests_of_one_side_begin_to_reject() {
        let (over, under) = (mean(120.0, 9.0, 10), mean(100.0, 14.0, 7));
        let ratio = Ratio::new(over, under).unwrap();
        let interval = ratio.interval(0.9).unwrap();
        assert!(interval.low < 1.2 && interval.high > 1.2);
        assert!((ratio.above(interval.low) - 0.05).abs() < 1e-6, "{interval:?}");
        assert!((ratio.below(interval.high) - 0.05).abs() < 1e-6, "{interval:?}");
        let alone = Contrast::sum([(1.0, over)]);
        let interval = over.interval(0.9);
        assert!((alone.above(interval.low) - 0.05).abs() < 1e-6);
        assert!((alone.below(interval.high) - 0.05).abs() < 1e-6);
    }

    #[test]
    fn the_interval_of_skewed_values_is_longer_on_the_side_of_the_tail() {
        let series = Series::new([1.0, 1.1, 1.0, 1.2, 1.1, 1.0, 1.9, 1.1]);
        let alone = Contrast::sum([(1.0, series.estimate())]);
        let interval = alone.interval(0.9).unwrap();
        let mean = series.mean();
        assert!(interval.high - mean > 1.1 * (mean - interval.low), "{interval:?}");
        assert!((alone.above(interval.low) - 0.05).abs() < 1e-6);
        assert!((alone.below(interval.high) - 0.05).abs() < 1e-6);
    }

    #[test]
    fn sums_keep_their_degrees_of_freedom() {
        // Two cells of two repetitions have one or two degrees of freedom, not infinitely many.
        let half = |a: f64, b: f64| Contrast::sum([(0.5, mean(1.0, a, 2)), (0.5, mean(1.0, b, 2))]);
        let two = half(1.0, 1.0).interval(0.99).unwrap();
        assert!((two.high - (1.0 + 9.925 * 0.5)).abs() < 1e-2, "{two:?}");
        let one = half(1.0, 1e-9).interval(0.99).unwrap();
        assert!((one.high - (1.0 + 63.66 * 0.5 / 2f64.sqrt())).abs() < 1e-1, "{one:?}");
    }

    #[test]
    fn one_repetition_decides_nothing_about_another() {
        let single = Series::new([9.0]).estimate();
        assert_eq!(single, Estimate::Single(9.0));
        for other in [single, Estimate::Point(1.0), mean(1.0, 0.1, 10)] {
            let ratio = Ratio::new(single, other).unwrap();
            assert_eq!((ratio.above(0.001), ratio.below(1000.0)), (1.0, 1.0));
            assert_eq!(ratio.interval(0.9), None);
        }
        assert_eq!(single.interval(0.95), Interval { low: 9.0, high: 9.0 });
    }

    #[test]
    fn values_without_spread_are_no_certainty() {
        let never = |n| Contrast::sum([(1.0, mean(0.0, 0.0, n))]);
        assert!(never(2).below(0.0) > 0.4 && never(10).below(0.0) < 0.02);
        assert_eq!(never(10).above(1.0), 1.0);
        // Print is taken for exact.
        assert_eq!(Contrast::sum([(1.0, Estimate::Point(0.0))]).below(0.0), 0.0);
    }

    #[test]
    fn a_ratio_of_nothing_is_none_and_one_over_nothing_is_above_everything() {
        let (none, some) = (mean(0.0, 0.0, 10), mean(3.0, 1.0, 10));
        assert_eq!(Ratio::of_sums(vec![none.into()], vec![none.into()]), None);
        let ratio = Ratio::of_sums(vec![some.into()], vec![none.into()]).unwrap();
        assert!(ratio.above(100.0) < 0.001);
        assert!(Ratio::new(some, Estimate::Point(0.0)).is_none());
    }

    #[test]
    fn as_many_repetitions_as_are_said_to_be_needed_do_decide() {
        // 3 % over a bound, 10 % of noise.
        let needs = Contrast::sum([(1.0, mean(103.0, 10.0, 5))]).needs(100.0, 0.05).unwrap();
        assert!((60..90).contains(&needs), "{needs}");
        let enough = Contrast::sum([(1.0, mean(103.0, 10.0, needs))]);
        assert!(enough.above(100.0) < 0.05);
        assert_eq!(Contrast::sum([(1.0, mean(100.0, 10.0, 5))]).needs(100.0, 0.05), None);
    }
}
