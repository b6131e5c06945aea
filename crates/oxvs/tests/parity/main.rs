//! The same command lines through Debian's Open vSwitch and oxvs: their outputs must be the same.
//!
//! `run.rs` says how to add a row. `PARITY=TEXT` runs the rows that contain TEXT, and the set-up
//! steps of their groups. `exceptions.rs` has the allowed differences.

mod appctl;
mod dpctl;
mod dummy;
mod exceptions;
mod logs;
mod noise;
mod ofctl;
mod ofctl_answers;
mod ofctl_mutations;
mod ofctl_switch;
mod ovsdb;
mod run;
mod trace;
mod vsctl;
