//! The laboratory: experiments as data, testbeds on this machine, results, published findings, and
//! whether the results confirm them.
//!
//! - [`scenario`]: an experiment from a file, and its cells: every combination of its dimensions'
//!   values.
//! - [`topology`]: the testbed of a cell, every number given; [`bed`] makes its hosts and cables,
//!   [`systems`] its switches.
//! - [`traffic`]: what is sent across it and measured of it.
//! - [`controller`]: rules before a run, and what a switch's OpenFlow costs; [`guest`]: virtual
//!   machines.
//! - [`calibration`]: checks the instruments against known rates and delays.
//! - [`results`]: what a run leaves.
//! - [`run`]: cells, systems and repetitions in an order drawn by lot, and what each brings.
//! - [`report`]: a page that reads like a paper's results, and every sample beside it.
//! - [`stats`]: estimates with their uncertainty, ratios of them, what two series have in common,
//!   shares.
//! - [`compare`]: what differs between two runs.
//! - [`bench`]: how fast a datapath forwards from memory to nowhere, beside Open vSwitch with DPDK.
//! - [`cli`]: the command line.
//! - [`table`]: results of an experiment, by the values of what was varied; of a publication or of
//!   a run.
//! - [`findings`]: what a study concluded, as checks on such a table, and the verdict.
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
