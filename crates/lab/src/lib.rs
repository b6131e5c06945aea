//! The laboratory: what was measured, what was published, and whether one bears out the other.
//!
//! - [`stats`]: estimates with their uncertainty, ratios of them, what two series have in common, shares.
//! - [`table`]: results of an experiment, by the values of what was varied; of a publication or of a run.
//! - [`findings`]: what a study concluded, as checks on such a table, and the verdict.
//!
//! Nothing here measures: it has no clock, socket or file, but for the published tables that are part of the program.
#![forbid(unsafe_code)]

pub mod findings;
pub mod stats;
pub mod table;
