//! Repetitions of one measurement.

use super::{Estimate, Interval};
use std::collections::BTreeMap;

/// Repetitions of one measurement, in the order they were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series(Vec<f64>);

impl Series {
    /// Of finite numbers; others are left out.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Series {
        Series(values.into_iter().filter(|value| value.is_finite()).collect())
    }

    /// The mean of each testbed's repetitions, by the testbeds' numbers: repetitions on one testbed
    /// share its peculiarities, so only testbeds are independent.
    pub fn of_testbeds<B: Ord>(values: impl IntoIterator<Item = (B, f64)>) -> Series {
        Series(of_testbeds(values).into_values().collect())
    }

    /// The values, in the order they were made.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// How many.
    pub fn n(&self) -> usize {
        self.0.len()
    }

    /// The arithmetic mean; 0 of none.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }

    /// The standard deviation of the population that these are drawn from (divisor n - 1); 0 of
    /// fewer than two.
    pub fn deviation(&self) -> f64 {
        if self.0.len() < 2 {
            return 0.0;
        }
        let mean = self.mean();
        let squares: f64 = self.0.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / (self.0.len() - 1) as f64).sqrt()
    }

    /// The skewness of the population that these are drawn from; 0 of fewer than three, or of
    /// values without spread.
    fn skew(&self) -> f64 {
        let (n, mean, deviation) = (self.0.len() as f64, self.mean(), self.deviation());
        if self.0.len() < 3 || deviation == 0.0 {
            return 0.0;
        }
        let cubes: f64 = self.0.iter().map(|value| ((value - mean) / deviation).powi(3)).sum();
        cubes * n / ((n - 1.0) * (n - 2.0))
    }

    /// The value below which a share of 0 to 1 of them lies, between neighbours in proportion; 0 of
    /// none.
    pub fn quantile(&self, share: f64) -> f64 {
        let sorted = self.sorted();
        let Some(last) = sorted.len().checked_sub(1) else {
            return 0.0;
        };
        let place = share.clamp(0.0, 1.0) * last as f64;
        let (below, part) = (place as usize, place.fract());
        let above = sorted[(below + 1).min(last)];
        sorted[below] + (above - sorted[below]) * part
    }

    /// Values outside of Tukey's fences, one and a half times the distance of the quartiles beyond
    /// them: kept, but marked.
    pub fn outliers(&self) -> Vec<f64> {
        let (low, high) = (self.quantile(0.25), self.quantile(0.75));
        let fence = 1.5 * (high - low);
        let outside = |value: &&f64| **value < low - fence || **value > high + fence;
        self.0.iter().filter(outside).copied().collect()
    }

    /// Its cumulative distribution: each value, and the share of values up to it.
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        let n = self.0.len() as f64;
        let share = |(place, value): (usize, f64)| (value, (place + 1) as f64 / n);
        self.sorted().into_iter().enumerate().map(share).collect()
    }

    /// Student's interval that the mean lies in with this probability; of fewer than two values,
    /// that one.
    pub fn interval(&self, level: f64) -> Interval {
        self.estimate().interval(level)
    }

    /// Its estimate of the mean.
    pub fn estimate(&self) -> Estimate {
        match self.0.len() {
            0 | 1 => Estimate::Single(self.mean()),
            n => Estimate::Mean {
                mean: self.mean(),
                deviation: self.deviation(),
                n: n as u64,
                skew: self.skew(),
            },
        }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// Repetitions of one measurement, and what of them is independent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repeated {
    /// All of them.
    pub all: Series,
    /// The means of the testbeds, which alone show how far the truth may be.
    pub beds: Series,
}

impl Repeated {
    /// Of repetitions with the numbers of their testbeds.
    pub fn new<B: Copy + Ord>(values: impl IntoIterator<Item = (B, f64)>) -> Repeated {
        let values: Vec<(B, f64)> = values.into_iter().collect();
        Repeated {
            all: Series::new(values.iter().map(|(_, value)| *value)),
            beds: Series::of_testbeds(values),
        }
    }
}

/// The mean of each testbed's repetitions, by the testbeds' numbers.
pub(super) fn of_testbeds<B: Ord>(values: impl IntoIterator<Item = (B, f64)>) -> BTreeMap<B, f64> {
    let mut beds: BTreeMap<B, Vec<f64>> = BTreeMap::new();
    for (bed, value) in values.into_iter().filter(|(_, value)| value.is_finite()) {
        beds.entry(bed).or_default().push(value);
    }
    let mean = |(bed, values)| (bed, Series(values).mean());
    beds.into_iter().map(mean).collect()
}

/// A generator of numbers that are the same for the same seed.
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    /// A number below `n`, 0 of 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_quantiles_are_those_of_the_textbook() {
        let series = Series::new([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, f64::NAN]);
        assert_eq!(series.n(), 8);
        assert_eq!(series.mean(), 5.0);
        assert!((series.deviation() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(series.quantile(0.5), 4.5);
        assert_eq!(series.quantile(0.0), 2.0);
        assert_eq!(series.quantile(1.0), 9.0);
        assert_eq!(series.distribution().last(), Some(&(9.0, 1.0)));
    }

    #[test]
    fn an_interval_of_five_values_uses_students_factor() {
        let interval = Series::new([1.0, 2.0, 3.0, 4.0, 5.0]).interval(0.95);
        let half = 2.776_445 * (2.5f64 / 5.0).sqrt();
        assert!((interval.low - (3.0 - half)).abs() < 1e-5 && (interval.high - (3.0 + half)).abs() < 1e-5);
    }

    #[test]
    fn repetitions_of_one_testbed_count_as_one() {
        let series = Series::of_testbeds([(1, 10.0), (1, 12.0), (2, 20.0), (1, 11.0), (2, f64::NAN)]);
        assert_eq!(series.values(), [11.0, 20.0]);
        assert_eq!(
            Series::of_testbeds([(0, 1.0), (0, 2.0)]).estimate(),
            Estimate::Single(1.5)
        );
    }

    #[test]
    fn outliers_are_told_and_kept() {
        let series = Series::new([10.0, 11.0, 10.5, 9.5, 10.2, 50.0]);
        assert_eq!(series.outliers(), [50.0]);
        assert_eq!(series.n(), 6);
    }

    #[test]
    fn nothing_and_one_value_have_an_answer_too() {
        assert_eq!(Series::default().interval(0.95), Interval { low: 0.0, high: 0.0 });
        assert_eq!(Series::new([3.0]).interval(0.95), Interval { low: 3.0, high: 3.0 });
        assert!(Series::default().distribution().is_empty());
    }
}
