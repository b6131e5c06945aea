//! Numbers with their uncertainty.
//!
//! - [`Series`]: repetitions of one measurement. [`Estimate`]: what is known of its mean, from a
//!   series or from print.
//! - [`Ratio`]: of two estimates, with intervals; [`Relation`] is what follows from it.
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
