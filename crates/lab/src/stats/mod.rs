//! Numbers with their uncertainty.
//!
//! - [`Series`]: repetitions of one measurement. [`Estimate`]: its mean with its uncertainty, from
//!   a series or from print.
//! - [`Ratio`]: of two estimates, with intervals; [`Relation`] is the conclusion.
//! - [`compare`]: whether two series differ, and by how much.
//! - [`jain`], [`proportional`]: how evenly something is shared.

mod compare;
mod estimate;
mod series;
mod share;

pub use compare::{Comparison, compare};
pub use estimate::{Estimate, Interval, Ratio, Relation};
pub use series::Series;
pub(crate) use series::SplitMix;
pub use share::{jain, proportional};
