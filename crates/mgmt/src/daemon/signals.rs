//! What signals do.
//!
//! SIGTERM, SIGINT and SIGALRM end a daemon in order, with a line in the log. SIGHUP reopens the
//! log file. SIGPIPE is ignored, as Rust programs do. Others have the system's default action:
//! SIGQUIT, SIGUSR1 and SIGUSR2 end the process at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use telemetry::vlog;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::os_text;

/// The signals that a daemon handles.
#[derive(Debug)]
pub struct Signals {
    ends: Ends,
    alarm: Signal,
    hangup: Signal,
}

impl Signals {
    /// Begins to receive them. Call it inside the runtime, before
    /// [`Daemon::ready`](super::Daemon::ready).
    ///
    /// # Errors
    /// The system's.
    pub fn receive() -> io::Result<Signals> {
        Ok(Signals {
            ends: Ends::receive()?,
            alarm: signal(SignalKind::alarm())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal that ends the daemon and logs it; reopens the log file meanwhile when
    /// asked to. Then stop serving, and end by [`exit_by_signal`] with what this returned.
    pub async fn end(mut self) -> i32 {
        loop {
            tokio::select! {
                number = self.ends.next() => return number,
                _ = self.alarm.recv() => return logged(14),
                _ = self.hangup.recv() => reopen_log(),
            }
        }
    }
}

/// As [`Signals::end`], for programs that are no daemons: SIGHUP ends them too, and SIGALRM kills
/// them (`--timeout`).
///
/// # Errors
/// The system's, when signals cannot be received.
pub async fn terminated() -> io::Result<i32> {
    let mut ends = Ends::receive()?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(tokio::select! {
        number = ends.next() => number,
        _ = hangup.recv() => logged(1),
    })
}

/// Ends the process by signal `number`, which was caught, so that its parent (a shell, a service
/// manager) sees what ended it. Drop the [`Daemon`](super::Daemon), listeners and files
/// first: nothing is dropped here.
pub fn exit_by_signal(number: i32) -> ! {
    let _ = signal_hook::low_level::emulate_default_handler(number);
    std::process::exit(128 + number)
}

/// Keeps SIGHUP from ending this process.
pub(super) fn survive_hangup() -> io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::new(AtomicBool::new(false))).map(drop)
}

/// What the system calls a signal (strsignal(3)).
pub(super) fn name(number: i32) -> String {
    let name = match number {
        1 => "Hangup",
        2 => "Interrupt",
        3 => "Quit",
        4 => "Illegal instruction",
        5 => "Trace/breakpoint trap",
        6 => "Aborted",
        7 => "Bus error",
        8 => "Floating point exception",
        9 => "Killed",
        10 => "User defined signal 1",
        11 => "Segmentation fault",
        12 => "User defined signal 2",
        13 => "Broken pipe",
        14 => "Alarm clock",
        15 => "Terminated",
        _ => return format!("signal {number}"),
    };
    name.to_owned()
}

#[derive(Debug)]
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn receive() -> io::Result<Ends> {
        Ok(Ends {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> i32 {
        logged(tokio::select! {
            _ = self.terminate.recv() => 15,
            _ = self.interrupt.recv() => 2,
        })
    }
}

fn logged(number: i32) -> i32 {
    tracing::warn!(target: "fatal_signal", "terminating with signal {number} ({})", name(number));
    number
}

fn reopen_log() {
    if let Err(error) = vlog::reopen() {
        tracing::warn!(target: "vlog", "reopening the log file failed ({})", os_text(&error));
    }
}
