//! Numbers with their uncertainty.
//!
//! - [`Series`]: repetitions of one measurement. [`Repeated`]: the same by testbed.
//! - [`Estimate`]: a mean with its uncertainty, from a series or from print. [`Observed`]: one that
//!   knows its testbeds.
//! - [`Contrast`]: a weighted sum of them, [`Ratio`]: of two, each with tests and intervals.
//! - [`jain`], [`proportional`]: how evenly something is shared.

mod estimate;
mod observed;
mod series;
mod share;

pub use estimate::{Contrast, Estimate, Interval, Ratio};
pub(crate) use estimate::{quantile, student};
pub use observed::Observed;
pub(crate) use series::SplitMix;
pub use series::{Repeated, Series};
pub use share::{jain, proportional};
