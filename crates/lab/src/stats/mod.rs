//! Numbers with their uncertainty.
//!
//! - [`Series`]: repetitions of one measurement. [`Estimate`]: its mean with its uncertainty, from
//!   a series or from print.
//! - [`Contrast`]: a weighted sum of estimates, [`Ratio`]: of two, each with tests and intervals.
//! - [`jain`], [`proportional`]: how evenly something is shared.

mod estimate;
mod series;
mod share;

pub use estimate::{Contrast, Estimate, Interval, Ratio};
pub use series::Series;
pub(crate) use series::SplitMix;
pub use share::{jain, proportional};
