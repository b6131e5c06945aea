//! The process of `--monitor`: starts the daemon, and starts it again when it crashes.

use std::env;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use super::{Options, leave_terminal, notify_waiter, set_name, signals, spawn};

/// Shortest time between restarts, except before the first.
const INTERVAL: Duration = Duration::from_secs(10);

/// Restarts the daemon after each crash, until one ends for another reason; returns the exit
/// status. `awaited`: a process waits until the first daemon serves.
pub(super) fn run(options: &Options, awaited: bool) -> io::Result<i32> {
    let directory = env::current_dir()?;
    let mut crashes = 0u32;
    let mut last_restart: Option<Instant> = None;
    loop {
        let mut spawned = spawn("daemon", options, Some(&directory))?;
        let pid = spawned.child.id();
        let early = spawned.wait_ready()?;
        if early.is_none() && crashes == 0 {
            if awaited {
                notify_waiter();
            }
            if options.detach {
                leave_terminal(options.no_chdir, false);
            }
            set_name("monitor");
        }
        let status = match early {
            Some(status) => status,
            None => spawned.child.wait()?,
        };
        let how = describe_exit(status);
        // Opened only now: the daemon's file may have been renamed since it began.
        options.open_log_file();
        if !is_crash(status) || (early.is_some() && crashes == 0) {
            tracing::info!(target: "daemon", "pid {pid} died, {how}, exiting");
            return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        }
        crashes += 1;
        tracing::error!(target: "daemon", "{crashes} crashes: pid {pid} died, {how}, restarting");
        if let Some(wait) = last_restart.and_then(|at| INTERVAL.checked_sub(at.elapsed())) {
            tracing::warn!(target: "daemon", "waiting until 10 seconds since last restart");
            thread::sleep(wait);
        }
        last_restart = Some(Instant::now());
    }
}

/// Whether the daemon crashed: by one of the signals of faults, or by a panic.
fn is_crash(status: ExitStatus) -> bool {
    // SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGPIPE, SIGALRM, SIGXCPU, SIGXFSZ
    const FAULTS: [i32; 9] = [4, 6, 7, 8, 11, 13, 14, 24, 25];
    const PANIC: i32 = 101;
    match status.signal() {
        Some(signal) => FAULTS.contains(&signal),
        None => status.code() == Some(PANIC),
    }
}

/// How a process ended: `exit status 1`, `killed (Aborted), core dumped`.
pub fn describe_exit(status: ExitStatus) -> String {
    let core = if status.core_dumped() { ", core dumped" } else { "" };
    match status.signal() {
        Some(signal) => format!("killed ({}){core}", signals::name(signal)),
        None => format!("exit status {}", status.code().unwrap_or(-1)),
    }
}
