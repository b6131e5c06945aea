//! `oxvs lab guest`: a command in a virtual machine.

use crate::guest::{Finished, Guest as Machine, Kernel, Output};
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The guest's files and its command.
#[derive(Args, Debug)]
#[command(
    after_help = "The guest has busybox, ip, tc and the given programs, but no disk and no network. The exit status is the command's, or 125 if the guest failed."
)]
pub(super) struct Guest {
    /// A program for the guest, with its libraries (repeat for several)
    #[arg(long = "program", value_name = "NAME|FILE")]
    programs: Vec<String>,
    /// A kernel module to load before the command, with its dependencies (repeat for several)
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// Directory for the files that the command leaves in the guest's /out
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Count the guest's time by its instructions, so that a busy machine gives the same results
    #[arg(long)]
    virtual_time: bool,
    /// In MiB
    #[arg(long, value_name = "MB", default_value_t = 512)]
    memory: u32,
    /// Time limit in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Guest {
    pub(super) fn run(self) -> ExitCode {
        match self.finish() {
            Ok(Finished { status }) => ExitCode::from(u8::try_from(status).unwrap_or(1)),
            Err(error) => {
                eprintln!("oxvs lab: {error:#}");
                ExitCode::from(125)
            }
        }
    }

    fn finish(self) -> Result<Finished> {
        let machine = Machine {
            programs: self.programs,
            modules: self.modules,
            memory: self.memory,
            virtual_time: self.virtual_time,
            ..Machine::default()
        };
        let out = self.out.as_deref().map_or(Output::None, Output::Archive);
        let limit = Duration::from_secs(self.timeout);
        machine.run(&Kernel::fetch()?, &self.command, out, limit, &mut mgmt::out::Stdout)
    }
}
