//! Estimates of a mean, and of the ratio of two.

use super::series::student;
use distrs::Normal;

/// Probability that a normal value lies within one standard deviation of the mean.
const ONE_DEVIATION: f64 = 0.682_689_492_137_085_9;

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
    /// One repetition: its spread is unknown, so it does not differ from anything.
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

impl Interval {
    /// Whether a value lies in it.
    pub fn contains(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Whether all of it lies in another.
    pub fn within(self, other: Interval) -> bool {
        other.low <= self.low && self.high <= other.high
    }
}

impl Estimate {
    /// The best guess.
    pub fn mean(self) -> f64 {
        match self {
            Estimate::Mean { mean, .. } | Estimate::Point(mean) | Estimate::Single(mean) => mean,
            Estimate::Interval { interval, .. } => (interval.low + interval.high) / 2.0,
        }
    }

    /// The standard error of the best guess, 0 if unknown, and its degrees of freedom.
    fn error(self) -> (f64, f64) {
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

    /// Of the average of several means; `None` of none.
    pub fn average(estimates: &[Estimate]) -> Option<Estimate> {
        if let [one] = estimates {
            return Some(*one);
        }
        let n = estimates.len() as f64;
        let mean = estimates.iter().map(|estimate| estimate.mean()).sum::<f64>() / n;
        let error = estimates
            .iter()
            .map(|estimate| estimate.error().0.powi(2))
            .sum::<f64>()
            .sqrt()
            / n;
        let interval = Interval {
            low: mean - error,
            high: mean + error,
        };
        match error {
            _ if estimates.is_empty() => None,
            f64::INFINITY => Some(Estimate::Single(mean)),
            0.0 => Some(Estimate::Point(mean)),
            _ => Some(Estimate::Interval {
                interval,
                level: ONE_DEVIATION,
            }),
        }
    }

    /// The same in another unit.
    pub fn times(self, factor: f64) -> Estimate {
        match self {
            Estimate::Mean { mean, deviation, n } => Estimate::Mean {
                mean: mean * factor,
                deviation: deviation * factor.abs(),
                n,
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
        let (error, freedom) = match self {
            Estimate::Single(value) => Estimate::Point(value).error(),
            other => other.error(),
        };
        let half = factor(level, freedom) * error;
        Interval {
            low: self.mean() - half,
            high: self.mean() + half,
        }
    }
}

fn factor(level: f64, freedom: f64) -> f64 {
    if freedom.is_finite() {
        student(level, freedom)
    } else {
        Normal::ppf((1.0 + level) / 2.0, 0.0, 1.0)
    }
}

/// One mean over another, both positive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The ratio of the best guesses.
    pub value: f64,
    /// Standard error of its logarithm.
    error: f64,
    /// Degrees of freedom, by Welch and Satterthwaite.
    freedom: f64,
}

/// How one mean stands to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The 99 % interval of the ratio lies above 1.
    Above,
    /// It lies below 1.
    Below,
    /// Neither, and the 90 % interval lies within the tolerance of 1.
    Similar,
    /// The numbers do not tell.
    Undecided,
}

impl Ratio {
    /// Of two means; `None` where one is not positive.
    pub fn new(over: Estimate, under: Estimate) -> Option<Ratio> {
        let relative = |estimate: Estimate| {
            let (error, freedom) = estimate.error();
            ((error / estimate.mean()).powi(2), freedom)
        };
        if !(over.mean() > 0.0 && under.mean() > 0.0) {
            return None;
        }
        let ((a, a_freedom), (b, b_freedom)) = (relative(over), relative(under));
        let freedom = (a + b).powi(2) / (a * a / a_freedom + b * b / b_freedom);
        Some(Ratio {
            value: over.mean() / under.mean(),
            error: (a + b).sqrt(),
            freedom: if freedom.is_nan() { f64::INFINITY } else { freedom },
        })
    }

    /// Whether anything is known of how far it may be off.
    pub fn is_known(self) -> bool {
        self.error.is_finite()
    }

    /// Its confidence interval at this level.
    pub fn interval(self, level: f64) -> Interval {
        let half = factor(level, self.freedom) * self.error;
        Interval {
            low: self.value * (-half).exp(),
            high: self.value * half.exp(),
        }
    }

    /// Whether both means are the same within a tolerance (0.1: 0.9 to 1.1): the 90 % interval lies
    /// within; `None` if only partly.
    pub fn similar(self, tolerance: f64) -> Option<bool> {
        let interval = self.interval(0.9);
        let allowed = Interval {
            low: 1.0 - tolerance,
            high: 1.0 + tolerance,
        };
        if interval.within(allowed) {
            Some(true)
        } else if interval.high < allowed.low || interval.low > allowed.high {
            Some(false)
        } else {
            None
        }
    }

    /// Whether it is above a number: the 99 % interval lies on one side of it; `None` if the number
    /// is inside.
    pub fn above(self, number: f64) -> Option<bool> {
        let interval = self.interval(0.99);
        if interval.low > number {
            Some(true)
        } else if interval.high < number || self.error == 0.0 {
            Some(false)
        } else {
            None
        }
    }

    /// In one word, with a tolerance of a tenth.
    pub fn relation(self) -> Relation {
        let interval = self.interval(0.99);
        if interval.low > 1.0 {
            Relation::Above
        } else if interval.high < 1.0 {
            Relation::Below
        } else if self.similar(0.1) == Some(true) {
            Relation::Similar
        } else {
            Relation::Undecided
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Series;

    fn mean(mean: f64, deviation: f64, n: u64) -> Estimate {
        Estimate::Mean { mean, deviation, n }
    }

    #[test]
    fn a_printed_interval_is_told_back_at_its_own_level() {
        let interval = Interval { low: 0.5, high: 0.6 };
        let estimate = Estimate::Interval { interval, level: 0.99 };
        let back = estimate.interval(0.99);
        assert!((back.low - 0.5).abs() < 1e-9 && (back.high - 0.6).abs() < 1e-9);
        assert!(estimate.interval(0.9).within(interval));
    }

    #[test]
    fn relations_are_those_of_the_rule() {
        let relation = |a, b| Ratio::new(a, b).unwrap().relation();
        assert_eq!(relation(mean(120.0, 3.0, 10), mean(100.0, 3.0, 10)), Relation::Above);
        assert_eq!(relation(mean(100.0, 3.0, 10), mean(120.0, 3.0, 10)), Relation::Below);
        assert_eq!(relation(mean(101.0, 3.0, 10), mean(100.0, 3.0, 10)), Relation::Similar);
        assert_eq!(
            relation(mean(110.0, 60.0, 5), mean(100.0, 60.0, 5)),
            Relation::Undecided
        );
        assert_eq!(relation(Estimate::Point(2.0), Estimate::Point(1.0)), Relation::Above);
        assert!(Ratio::new(mean(1.0, 0.0, 2), Estimate::Point(0.0)).is_none());
    }

    #[test]
    fn one_repetition_decides_nothing_about_another() {
        let single = Series::new([9.0]).estimate();
        assert_eq!(single, Estimate::Single(9.0));
        for other in [single, Estimate::Point(1.0), mean(1.0, 0.1, 10)] {
            let ratio = Ratio::new(single, other).unwrap();
            assert_eq!(
                (ratio.relation(), ratio.above(1.0), ratio.similar(0.1)),
                (Relation::Undecided, None, None)
            );
            assert!(!ratio.is_known());
        }
        let average = Estimate::average(&[single, mean(1.0, 0.1, 10)]).unwrap();
        assert_eq!(average, Estimate::Single(5.0));
        assert_eq!(single.interval(0.95), Interval { low: 9.0, high: 9.0 });
    }

    #[test]
    fn two_series_of_the_same_thing_are_rarely_called_different() {
        let mut random = testkit::Rng::new(5);
        let mut series =
            || Series::new((0..10).map(|_| 100.0 + (0..12).map(|_| random.below(100) as f64).sum::<f64>() / 60.0));
        let different = (0..1000).filter(|_| {
            let ratio = Ratio::new(series().estimate(), series().estimate()).unwrap();
            matches!(ratio.relation(), Relation::Above | Relation::Below)
        });
        let different = different.count();
        assert!(different <= 20, "{different} of 1000 at a level of 1 %");
    }
}
