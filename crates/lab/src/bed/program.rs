//! The programs that the laboratory starts: `oxvs-lab` for its own processes, and `oxvs`, the
//! switch.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::guest::find;
use crate::results::hex;
use telemetry::version::OXVS;

/// The laboratory's program.
const LAB: &str = "oxvs-lab";

/// The switch's program.
const SWITCH: &str = "oxvs";

static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// The switch's program that is in use. The open file stays the same program when another version
/// replaces it during a run.
static SWITCHES: Mutex<Option<Build>> = Mutex::new(None);

/// An `oxvs` program.
#[derive(Debug)]
pub(crate) struct Build {
    file: File,
    hash: String,
}

impl Build {
    /// Opens a program file.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Build> {
        use sha1::Digest;
        let name = || path.display().to_string();
        let mut file = File::open(path).with_context(name)?;
        ensure!(file.metadata()?.is_file(), "{} is not a file", path.display());
        let mut sha1 = sha1::Sha1::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer).with_context(name)? {
                0 => break,
                n => sha1.update(&buffer[..n]),
            }
        }
        let hash = hex(&sha1.finalize());
        Ok(Build { file, hash })
    }

    /// What identifies it: SHA-1 of the file, in hexadecimal.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// What `oxvs --version` says.
    ///
    /// # Errors
    /// It cannot be run, or is not oxvs.
    pub(crate) fn version(&self) -> Result<String> {
        let output = Command::new(opened(&self.file)).arg("--version").output();
        let said = output.context("oxvs --version")?.stdout;
        let said = String::from_utf8_lossy(&said);
        let version = said.strip_prefix("oxvs ").and_then(|rest| rest.split(',').next());
        Ok(version.context("it is not oxvs")?.trim().to_owned())
    }

    /// Another handle of the same program.
    ///
    /// # Errors
    /// No file descriptor is free.
    pub(crate) fn again(&self) -> Result<Build> {
        Ok(Build {
            file: self.file.try_clone()?,
            hash: self.hash.clone(),
        })
    }
}

/// Uses this program as the switch from now on; running ones stay.
pub(crate) fn use_switch(build: Build) {
    *SWITCHES.lock().unwrap_or_else(PoisonError::into_inner) = Some(build);
}

/// The hash of the switch's program.
///
/// # Errors
/// As [`switch`].
pub(crate) fn switch_build() -> Result<String> {
    switch()?;
    let known = SWITCHES.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(known.as_ref().context("the switch's program")?.hash.clone())
}

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
    let mut known = SWITCHES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(build) = known.as_ref() {
        return Ok(opened(&build.file));
    }
    let own = CHOSEN.get().cloned().map_or_else(std::env::current_exe, Ok)?;
    let beside = own.with_file_name(SWITCH);
    let found = Some(beside.clone())
        .filter(|file| file.is_file())
        .or_else(|| find(SWITCH))
        .with_context(|| format!("the switch's program {} does not exist", beside.display()))?;
    let build = Build::open(&found)?;
    let version = build.version().with_context(|| found.display().to_string())?;
    ensure!(
        version == OXVS,
        "{} is version {version}, and this {LAB} is version {OXVS}: install both from one build",
        found.display()
    );
    Ok(opened(&known.insert(build).file))
}

/// The path of an open file, for processes that this one starts.
fn opened(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_known_by_the_hash_of_its_file_and_stays_when_the_file_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oxvs");
        std::fs::write(&path, "#!/bin/sh\necho oxvs 9.9.9, made for a test\n").unwrap();
        let build = Build::open(&path).unwrap();
        assert_eq!(build.hash(), "49fc489abb6a5f93acebd03c3b77bf25f39c1e3e");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(build.again().unwrap().hash(), build.hash());
        assert!(Build::open(dir.path()).is_err() && Build::open(&path).is_err());
    }
}
