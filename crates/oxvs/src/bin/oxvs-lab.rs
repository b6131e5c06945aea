//! `oxvs-lab`: the laboratory, a program of its own so that the switch's program carries none of
//! it.
//!
//! `oxvs lab` starts it.

#![warn(clippy::print_stdout)]

use std::process::ExitCode;

fn main() -> ExitCode {
    mgmt::out::run(|| lab::cli::main(&mut std::env::args_os().skip(1)))
}
