//! The laboratory: experiments as data, testbeds on this machine, results, published findings, and
//! whether the results confirm them.
//!
//! - [`scenario`]: an experiment from a file, and its cells: every combination of its dimensions'
//!   values.
//! - [`topology`]: the testbed of a cell, every number given; [`bed`] makes its hosts and cables,
//!   [`systems`] its switches.
//! - [`traffic`]: the traffic across it and its measurement.
//! - [`controller`]: rules before a run, and measurements of a switch's OpenFlow; [`guest`]:
//!   virtual machines.
//! - [`calibration`]: checks the instruments against known rates and delays.
//! - [`results`]: the files of a run.
//! - [`run`]: cells, systems and repetitions in a random order, and their results.
//! - [`report`]: a page that reads like a paper's results, and every sample beside it.
//! - [`stats`]: estimates with their uncertainty, ratios, comparisons of two series, fairness of
//!   shares.
//! - [`compare`]: the differences between a run and a reference.
//! - [`bench`]: the speed of a datapath from memory to a sink, beside Open vSwitch with DPDK.
//! - [`cli`]: the command line.
//! - [`table`]: results of an experiment by its dimensions, of a publication or of a run.
//! - [`findings`]: a study's conclusions as checks on such a table, and the verdicts.
#![warn(clippy::print_stdout)]
#![forbid(unsafe_code)]

pub mod awake;
pub mod bed;
pub mod bench;
pub mod calibration;
pub mod cli;
pub mod compare;
pub mod controller;
pub mod findings;
pub mod guest;
pub mod report;
pub mod results;
pub mod run;
pub mod scenario;
pub mod stats;
pub mod systems;
pub mod table;
pub mod topology;
pub mod traffic;

/// Version of this laboratory, which is that of oxvs.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
