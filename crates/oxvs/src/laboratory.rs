//! `oxvs lab`: starts `oxvs-lab`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The laboratory's program, installed beside this one.
const PROGRAM: &str = "oxvs-lab";

/// Becomes `oxvs-lab ARGS…`: the one in this program's directory, or else the first one in `PATH`.
pub(crate) fn main(args: &mut dyn Iterator<Item = OsString>) -> ExitCode {
    let beside = std::env::current_exe()
        .map(|own| own.with_file_name(PROGRAM))
        .ok()
        .filter(|file| file.is_file());
    let program = beside.unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program)
        .args(args)
        .env(telemetry::version::CALLER, telemetry::version::OXVS)
        .exec();
    eprintln!(
        "oxvs lab: cannot start {} ({error}); 'make install' installs it beside oxvs",
        program.display()
    );
    ExitCode::FAILURE
}
