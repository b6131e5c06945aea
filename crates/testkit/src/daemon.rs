//! Processes that run beside a test and end with it.

use crate::Sandbox;
use crate::command::display;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process in the background. It is killed when its value is dropped, and by the kernel when the
/// thread that started it ends, so that not even a killed test leaves it behind.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    name: String,
    log: String,
}

impl Daemon {
    /// Starts `command` with the sandbox's environment; what it prints goes to `NAME.out` in the
    /// sandbox.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start(name: &str, command: &[String], sandbox: &Sandbox) -> Daemon {
        let log = format!("{name}.out");
        let out = File::options().create(true).append(true).open(sandbox.path(&log));
        let out = out.unwrap_or_else(|e| panic!("{log}: {e}"));
        let err = out.try_clone().unwrap_or_else(|e| panic!("{log}: {e}"));
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .args(command)
            .envs(sandbox.env())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn();
        let child = child.unwrap_or_else(|e| panic!("{}: {e}", display(command)));
        Daemon {
            child,
            name: name.to_owned(),
            log: sandbox.arg(&log),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until `ready` holds.
    ///
    /// # Panics
    /// If the process ends first or 20 s pass; the message has its output.
    #[track_caller]
    pub fn wait_until(&mut self, ready: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !ready() {
            let running = self.is_running();
            if !running || Instant::now() > end {
                let why = if running { "is not ready after 20 s" } else { "ended" };
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                panic!("{} {why}; it said:\n{said}", self.name);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end (SIGTERM) and waits for that; its exit status, `None` if it had to be killed
    /// after 10 s.
    pub fn terminate(&mut self) -> Option<i32> {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw)
            && self.is_running()
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        self.wait(Duration::from_secs(10))
    }

    /// Waits for it to end by itself; `None` if it had to be killed after `limit`, or a signal
    /// ended it.
    pub fn wait(&mut self, limit: Duration) -> Option<i32> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.code(),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(_) => break,
            }
        }
        self.kill();
        None
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok())
            .unwrap_or(0)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Calls `probe` every 20 ms until it returns something, for at most 10 s.
///
/// # Panics
/// If it never does; `what` names the awaited condition.
#[track_caller]
pub fn eventually<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    eventually_within(Duration::from_secs(10), what, probe)
}

/// The same for another time.
#[track_caller]
pub fn eventually_within<T>(limit: Duration, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "waited {limit:?} in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
