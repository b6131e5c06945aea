//! `ovs-vsctl`: bridges, ports and every other row of the switch's database, from the command line.
//!
//! All commands of one invocation are one transaction. What happens, in order:
//!
//! 1. [`options`] and [`grammar`] cut the command line into global options and commands, and find
//!    each command's [`grammar::Spec`].
//! 2. Each command *prepares*: it names the tables and columns it will look at, and refuses names
//!    that do not exist. No connection yet.
//! 3. [`run`] connects, waits for the replica, and lets each command *run* against it and the
//!    transaction under construction: a later command sees what an earlier one did
//!    ([`context::Context`]).
//! 4. [`run`] sends the transaction, and starts again if the data it relied on has changed
//!    meanwhile. Then it prints the outputs and, without `--no-wait`, waits for the switch.
//!
//! Outputs, exit codes and errors are those of ovs-vsctl(8), whose users have scripts;
//! `tests/vsctl_oracle.rs` compares them.

mod bridge;
mod commands;
mod comment;
mod complaints;
mod context;
mod controller;
mod grammar;
mod help;
mod model;
mod modify;
mod names;
mod options;
mod port;
mod query;
mod run;
mod show;
mod values;
mod zone;

use std::ffi::OsString;
use std::process::ExitCode;

use options::Action;

/// The program's name in its messages: what scripts look for.
const PROGRAM: &str = "ovs-vsctl";

/// Why no more commands are run.
#[derive(Debug)]
enum Stop {
    /// Prints the text and exits with 1.
    Fatal(String),
    /// Exits with that code, printing nothing.
    Exit(u8),
    /// The condition of `wait-until` is not met yet.
    Again,
}

impl Stop {
    fn fatal<T>(text: impl Into<String>) -> Result<T, Stop> {
        Err(Stop::Fatal(text.into()))
    }
}

impl From<ovsdb::Error> for Stop {
    /// A value that its column cannot hold: the user mistyped it.
    fn from(error: ovsdb::Error) -> Stop {
        match (error.kind(), error.details()) {
            (ovsdb::ErrorKind::Syntax, Some(details)) => Stop::Fatal(details.to_owned()),
            _ => Stop::Fatal(error.to_string()),
        }
    }
}

/// Runs `ovs-vsctl` with `args` (without the program's name).
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let result = match options::parse(&args) {
        Ok(Action::Print(text)) => {
            mgmt::out!("{text}");
            Ok(())
        }
        Ok(Action::Run(options, commands)) => run::run(&args, &options, &commands),
        Err(stop) => Err(stop),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Fatal(text)) => {
            eprintln!("{PROGRAM}: {text}");
            ExitCode::FAILURE
        }
        Err(Stop::Exit(code)) => ExitCode::from(code),
        Err(Stop::Again) => ExitCode::FAILURE,
    }
}
