//! Processes of the laboratory in namespaces of a testbed, with a line to them.

use super::command::cannot_start;
use super::program;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to end when its input has ended, before it is ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts `oxvs lab ARGS…` in a namespace.
pub(crate) fn start(namespace: &str, args: &[impl AsRef<OsStr>]) -> Result<(Input, ChildStdout)> {
    spawn(program::in_namespace(namespace, args)?).with_context(|| format!("namespace {namespace}"))
}

/// Starts a command.
pub(crate) fn spawn(mut command: Command) -> Result<(Input, ChildStdout)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_start(&command, &error))?;
    let (to, from) = (child.stdin.take(), child.stdout.take());
    Ok((Input { to, child }, from.context("no standard output")?))
}

/// The input of a process. Dropping it closes the input, waits for the process to end, and kills it
/// if it does not.
pub(crate) struct Input {
    to: Option<ChildStdin>,
    child: Child,
}

impl Input {
    /// The process's number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.as_mut().map_or(Ok(0), |to| to.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        drop(self.to.take());
        let end = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
