//! `oxvs-lab`: the laboratory, a program of its own so that the switch's program carries none of it.
//!
//! `oxvs lab` starts it.

use std::process::ExitCode;

fn main() -> ExitCode {
    lab::cli::main(&mut std::env::args_os().skip(1))
}
