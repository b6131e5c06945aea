//! The programs that the laboratory starts: `oxvs-lab` for its own processes, and `oxvs`, the
//! switch.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::guest::find;
use telemetry::version::OXVS;

/// The laboratory's program.
const LAB: &str = "oxvs-lab";

/// The switch's program.
const SWITCH: &str = "oxvs";

static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Uses this `oxvs-lab`, and the `oxvs` in its directory, from now on. A program that is not
/// `oxvs-lab`, such as a test, calls this first. The first call counts.
pub fn use_program(lab: &Path) {
    let _ = CHOSEN.set(lab.to_owned());
}

/// A command of the laboratory, `oxvs-lab ARGS…`, in a namespace.
///
/// # Errors
/// This process is not `oxvs-lab`, and [`use_program`] was not called.
pub(super) fn in_namespace(namespace: &str, args: &[impl AsRef<OsStr>]) -> Result<Command> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(path()?).args(args);
    Ok(command)
}

/// A command of the laboratory, `oxvs-lab ARGS…`.
///
/// # Errors
/// As `in_namespace`.
pub(super) fn command(args: &[&str]) -> Result<Command> {
    let mut command = Command::new(path()?);
    command.args(args);
    Ok(command)
}

/// The laboratory's program file.
///
/// # Errors
/// As `in_namespace`.
pub(crate) fn lab() -> Result<PathBuf> {
    path().map(PathBuf::from)
}

/// The switch's program file: the `oxvs` in the laboratory's directory, or the first one in `PATH`.
///
/// # Errors
/// There is none, or its version is not the laboratory's.
pub(crate) fn switch() -> Result<PathBuf> {
    static FILE: OnceLock<File> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(opened(file));
    }
    let own = CHOSEN.get().cloned().map_or_else(std::env::current_exe, Ok)?;
    let beside = own.with_file_name(SWITCH);
    let found = Some(beside.clone())
        .filter(|file| file.is_file())
        .or_else(|| find(SWITCH))
        .with_context(|| format!("the switch's program {} does not exist", beside.display()))?;
    let file = File::open(&found).with_context(|| found.display().to_string())?;
    check_version(&found, &opened(&file))?;
    // The open file stays the same program when another version replaces it during a run.
    Ok(opened(FILE.get_or_init(|| file)))
}

/// The path of an open file, for processes that this one starts.
fn opened(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

fn check_version(name: &Path, program: &Path) -> Result<()> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .with_context(|| name.display().to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let version = said.strip_prefix("oxvs ").and_then(|rest| rest.split(',').next());
    ensure!(
        version == Some(OXVS),
        "{} is version {}, and this {LAB} is version {OXVS}: install both from one build",
        name.display(),
        version.unwrap_or("unknown")
    );
    Ok(())
}

fn path() -> Result<OsString> {
    if let Some(path) = CHOSEN.get() {
        return Ok(path.clone().into());
    }
    let own = std::env::current_exe()?;
    let name = own.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // The kernel adds a word to the name of a program whose file was replaced while it runs.
    if name.trim_end_matches(" (deleted)") != LAB {
        bail!(
            "{} is not {LAB}, and no {LAB} was named for the laboratory's processes",
            own.display()
        );
    }
    // Another version may replace the file during a run; this path stays the same program.
    Ok(format!("/proc/{}/exe", std::process::id()).into())
}
