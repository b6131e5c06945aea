//! Machines at the edge of a testbed.

use super::namespace;
use super::program;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A host of a testbed.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) mac: [u8; 6],
}

/// The device of a host.
pub const DEVICE: &str = "eth0";

impl Host {
    /// Its name in the topology.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its network namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Address of its device, [`DEVICE`].
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// A command that runs on it, the program first.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).args(words);
        command
    }

    /// Runs `work` in this process on a thread that is in the host's namespace.
    ///
    /// # Errors
    /// Those of `work`; the namespace is gone.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        namespace::enter(&self.namespace, work)
    }

    /// Starts a command of the laboratory on the host (`oxvs lab ARGS…`), its standard input and output here.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, args: &[&str]) -> Result<Wire> {
        let mut command = program::in_namespace(&self.namespace, args)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("host {}: cannot start {args:?}", self.name))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        Ok(Wire {
            to: Box::new(to.context("no standard input")?),
            from: Box::new(BufReader::new(from.context("no standard output")?)),
            child: Some(child),
        })
    }
}

/// Both directions to a process on a host. Dropping it closes them; a process that does not end then is ended.
pub struct Wire {
    /// What the process reads.
    pub to: Box<dyn Write + Send>,
    /// What the process writes.
    pub from: Box<dyn BufRead + Send>,
    child: Option<Child>,
}

impl Wire {
    /// The process's number, where it runs on this machine.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.to = Box::new(std::io::sink());
        self.from = Box::new(std::io::empty());
        let Some(mut child) = self.child.take() else {
            return;
        };
        let end = Instant::now() + Duration::from_secs(1);
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
