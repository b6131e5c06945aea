//! The command line tools, in the manner of Open vSwitch's: `appctl`, `ovsdb-client`, `ovsdb-tool`,
//! `vsctl`, `ofctl`. Each is a module with `main(args)`; they share [`table`], which prints what
//! they find.
//!
//! Goal: a script written for Open vSwitch's tools does not notice the difference. Outputs, exit
//! codes and the words of errors are compared with theirs in `tests/`.

#![warn(clippy::print_stdout)]

pub mod appctl;
mod common;
pub mod ofctl;
pub mod ovsdb_client;
pub mod ovsdb_tool;
pub mod table;
pub mod vsctl;
