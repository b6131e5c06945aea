//! Processes of a switch.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a switch may take to serve its clients.
const READY: Duration = Duration::from_secs(20);

/// Lines of a log that an error quotes.
const LINES: usize = 5;

/// A process in the background. It is ended when its value is dropped; should this process be
/// killed, it goes with the namespace that it is in.
pub(crate) struct Daemon {
    name: &'static str,
    child: Child,
    /// Its output, then its own log.
    logs: Vec<PathBuf>,
}

impl Daemon {
    /// Starts a command. Its output goes to the file `NAME.out` in `directory`, which also has its
    /// log `log`.
    pub(crate) fn start(name: &'static str, mut command: Command, directory: &Path, log: &str) -> Result<Daemon> {
        let out = directory.join(format!("{name}.out"));
        let file = File::create(&out).with_context(|| out.display().to_string())?;
        let error = file.try_clone().with_context(|| out.display().to_string())?;
        command.stdin(Stdio::null()).stdout(file).stderr(error);
        Daemon::spawn(name, command, vec![out, directory.join(log)])
    }

    /// Starts a command whose standard input and output are the caller's business.
    pub(crate) fn spawn(name: &'static str, mut command: Command, logs: Vec<PathBuf>) -> Result<Daemon> {
        let child = command
            .spawn()
            .map_err(|error| crate::bed::command::cannot_start(&command, &error))?;
        Ok(Daemon { name, child, logs })
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` holds.
    pub(crate) fn wait_until(&mut self, what: &str, ready: impl Fn() -> bool) -> Result<()> {
        let end = Instant::now() + READY;
        while !ready() {
            self.check()?;
            if Instant::now() > end {
                bail!(
                    "{}: {what} is not there after {} s{}",
                    self.name,
                    READY.as_secs(),
                    self.said()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Whether it runs.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait().with_context(|| self.name.to_owned())? {
            None => Ok(()),
            Some(status) => bail!("{} has ended ({status}){}", self.name, self.said()),
        }
    }

    /// Waits for it to end by itself, at most so long.
    pub(crate) fn wait_for_end(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Seconds of CPU of all its threads.
    pub(crate) fn cpu(&self) -> f64 {
        crate::bed::process_cpu(self.pid()).unwrap_or(0.0)
    }

    /// Bytes of its memory that are in RAM (`VmRSS`); none if it has ended.
    pub(crate) fn memory(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kilobytes * 1024)
    }

    /// The last lines of its logs.
    fn said(&self) -> String {
        let logs = self.logs.iter().filter_map(|log| fs::read_to_string(log).ok());
        let mut lines: Vec<String> = Vec::new();
        for log in logs {
            let all: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
            lines.extend(all.iter().rev().take(LINES).rev().map(|line| (*line).to_owned()));
        }
        if lines.is_empty() {
            "; it said nothing".to_owned()
        } else {
            format!("; it said last:\n{}", lines.join("\n"))
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            // It may end by itself meanwhile.
            let _ = kill_process(pid, Signal::TERM);
        }
        self.wait_for_end(Duration::from_secs(5));
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_told_with_the_last_it_said() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo out of memory >&2; echo fatal > own.log; exit 3"])
            .current_dir(directory.path());
        let mut daemon = Daemon::start("switch", command, directory.path(), "own.log").unwrap();
        let error = daemon.wait_until("its socket", || false).unwrap_err().to_string();
        assert!(error.contains("switch has ended (exit status: 3)"), "{error}");
        assert!(error.contains("out of memory") && error.contains("fatal"), "{error}");
    }

    #[test]
    fn a_process_is_gone_when_its_value_is() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        command.arg("60");
        let mut daemon = Daemon::start("switch", command, directory.path(), "own.log").unwrap();
        daemon.check().unwrap();
        assert!(daemon.memory().unwrap() > 0);
        let pid = daemon.pid();
        drop(daemon);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
