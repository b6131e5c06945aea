//! Many values, kept in little room.

use super::clock::micros;
use crate::results::Distribution;
use hdrhistogram::Histogram;

/// Durations up to an hour, each kept within 0.1 % of its value; their number, sum and squares
/// exactly.
#[derive(Clone, Debug)]
pub(crate) struct Durations {
    values: Histogram<u64>,
    sum: f64,
    squares: f64,
}

/// Longer values count as this: an hour.
const LONGEST: u64 = 3_600_000_000_000;

impl Durations {
    pub(crate) fn new() -> Durations {
        #[allow(clippy::expect_used, reason = "the arguments are constants that the function allows")]
        let values = Histogram::new_with_bounds(1, LONGEST, 3).expect("legal bounds");
        Durations {
            values,
            sum: 0.0,
            squares: 0.0,
        }
    }

    /// Takes a duration in nanoseconds.
    pub(crate) fn record(&mut self, nanos: u64) {
        self.values.saturating_record(nanos.min(LONGEST));
        let nanos = nanos as f64;
        self.sum += nanos;
        self.squares += nanos * nanos;
    }

    /// Takes all of another's.
    pub(crate) fn add(&mut self, other: &Durations) {
        // Both have the same bounds, so none of its values is refused.
        let _ = self.values.add(&other.values);
        self.sum += other.sum;
        self.squares += other.squares;
    }

    pub(crate) fn count(&self) -> u64 {
        self.values.len()
    }

    /// In microseconds; none of none.
    pub(crate) fn mean(&self) -> Option<f64> {
        let n = self.count();
        (n > 0).then(|| self.sum / n as f64 / 1e3)
    }

    /// Standard deviation of a sample, in microseconds; none of fewer than two.
    pub(crate) fn deviation(&self) -> Option<f64> {
        let n = self.count() as f64;
        if n < 2.0 {
            return None;
        }
        let mean = self.sum / n;
        let variance = (self.squares - n * mean * mean) / (n - 1.0);
        Some(variance.max(0.0).sqrt() / 1e3)
    }

    /// The value that this share (0 to 1) does not exceed, in microseconds; none of none.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        if self.count() == 0 {
            return None;
        }
        let value = match share {
            s if s <= 0.0 => self.values.min(),
            s if s >= 1.0 => self.values.max(),
            s => self.values.value_at_quantile(s).min(self.values.max()),
        };
        Some(micros(value))
    }

    /// Percents and the tails, in microseconds; none of none.
    pub(crate) fn distribution(&self) -> Option<Distribution> {
        let tails = [0.9925, 0.995, 0.9975, 0.999, 0.9995, 0.9999, 0.999_95, 0.999_99, 1.0];
        let shares = (0..100).map(|percent| f64::from(percent) / 100.0).chain(tails);
        let quantiles = shares.map(|share| Some((share, self.quantile(share)?)));
        Some(Distribution {
            count: self.count(),
            quantiles: quantiles.collect::<Option<Vec<_>>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_are_exact_and_quantiles_within_a_thousandth() {
        let mut durations = Durations::new();
        for us in 1..=1000_u64 {
            durations.record(us * 1000);
        }
        assert!((durations.mean().unwrap() - 500.5).abs() < 1e-9);
        assert!((durations.deviation().unwrap() - 288.819_436).abs() < 1e-5);
        assert!((durations.quantile(0.5).unwrap() / 500.0 - 1.0).abs() < 0.001);
        assert_eq!(durations.quantile(0.0), Some(1.0));
        let distribution = durations.distribution().unwrap();
        assert_eq!(distribution.count, 1000);
        assert!(distribution.quantiles.len() <= 200);
        assert!(distribution.quantiles.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        assert!((distribution.quantiles.last().unwrap().1 / 1000.0 - 1.0).abs() < 0.001);
    }

    #[test]
    fn nothing_has_no_mean_and_no_distribution() {
        let none = Durations::new();
        assert_eq!((none.mean(), none.deviation(), none.distribution()), (None, None, None));
    }

    #[test]
    fn what_two_have_taken_is_the_same_as_what_one_would_have() {
        let (mut a, mut b, mut both) = (Durations::new(), Durations::new(), Durations::new());
        for i in 1..500_u64 {
            let value = i * i * 37;
            if i % 3 == 0 {
                a.record(value)
            } else {
                b.record(value)
            };
            both.record(value);
        }
        a.add(&b);
        assert_eq!(a.distribution(), both.distribution());
        assert!((a.mean().unwrap() - both.mean().unwrap()).abs() < 1e-6);
    }

    #[test]
    fn a_duration_beyond_the_longest_counts_as_the_longest() {
        let mut durations = Durations::new();
        durations.record(u64::MAX);
        assert!(durations.quantile(1.0).unwrap() >= 3.6e9);
    }
}
