//! The command line tools, compatible with Open vSwitch's: `appctl`, `ovsdb-client`, `ovsdb-tool`,
//! `vsctl`, `ofctl`, `dpctl`. Each is a module with `main(args)`; [`table`] prints tables for them.
//!
//! Goal: a script written for Open vSwitch's tools works unchanged. Tests in `tests/` compare
//! outputs, exit codes and error texts with Open vSwitch's.

#![warn(clippy::print_stdout)]

pub mod appctl;
mod common;
pub mod dpctl;
pub mod ofctl;
pub mod ovsdb_client;
pub mod ovsdb_tool;
pub mod table;
pub mod tcpdump;
pub mod vsctl;
