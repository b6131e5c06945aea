//! A process that removes a bed when the process that made it ends in whatever way.
//!
//! It waits for the end of its standard input, whose other end nobody but the bed's process holds.

use super::program;
use super::record::Record;
use anyhow::{Context, Result};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};

/// A bed's warden. When it is dropped the warden ends, and removes what is left of the bed.
pub(crate) struct Warden {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Warden {
    pub(crate) fn start(id: &str) -> Result<Warden> {
        let mut command = program::command(&["warden", id])?;
        // In a process group of its own, so that ^C at the terminal does not end the warden.
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start the testbed's warden")?;
        let stdin = child.stdin.take();
        Ok(Warden { child, stdin })
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// `oxvs lab warden ID`.
///
/// # Errors
/// A part of the bed cannot be removed.
pub fn watch(id: &str) -> Result<()> {
    let mut input = Vec::new();
    // An error is an end too.
    let _ = std::io::stdin().lock().read_to_end(&mut input);
    Record::find(id).map_or(Ok(()), |record| record.remove())
}
