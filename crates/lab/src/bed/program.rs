//! The program that the laboratory's own processes are run from: itself.

use anyhow::{Result, bail};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Uses this `oxvs` for agents, cables and wardens from now on: for programs that are none themselves, as tests. The first call counts.
pub fn use_program(path: &Path) {
    let _ = CHOSEN.set(path.to_owned());
}

/// A command of the laboratory, `oxvs lab ARGS…`, in a namespace.
///
/// # Errors
/// This process is not `oxvs`, and [`use_program`] was not called.
pub(super) fn in_namespace(namespace: &str, args: &[impl AsRef<OsStr>]) -> Result<Command> {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", namespace])
        .arg(path()?)
        .arg("lab")
        .args(args);
    Ok(command)
}

/// A command of the laboratory, `oxvs lab ARGS…`.
///
/// # Errors
/// As `in_namespace`.
pub(super) fn command(args: &[&str]) -> Result<Command> {
    let mut command = Command::new(path()?);
    command.arg("lab").args(args);
    Ok(command)
}

/// The program's file.
///
/// # Errors
/// As `in_namespace`.
pub(crate) fn file() -> Result<PathBuf> {
    path().map(PathBuf::from)
}

fn path() -> Result<OsString> {
    if let Some(path) = CHOSEN.get() {
        return Ok(path.clone().into());
    }
    let own = std::env::current_exe()?;
    let name = own.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // The kernel adds a word to the name of a program whose file was replaced while it runs.
    if name.trim_end_matches(" (deleted)") != "oxvs" {
        bail!(
            "{} is not oxvs and has none for the laboratory's processes",
            own.display()
        );
    }
    // Not by name, which may be another version's by now.
    Ok(format!("/proc/{}/exe", std::process::id()).into())
}
