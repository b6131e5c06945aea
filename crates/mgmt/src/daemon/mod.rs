//! Becoming a daemon: detaching, the pidfile, the monitor that restarts what crashes.
//!
//! A detached daemon is not forked: Rust cannot fork safely. Instead the program starts itself
//! again from `/proc/self/exe` with the same arguments. The variable [`STAGE`] makes the new
//! process the daemon (or its monitor). Its standard input is a pipe to the process that waits for
//! it; the daemon writes one byte there when it serves.
//!
//! ```text
//! ovs-vswitchd --detach --monitor
//!  ├ foreground: waits for the byte, exits 0 (or with the daemon's own status)
//!  └ monitor: setsid, passes the byte on, starts the daemon again after a crash
//!     └ daemon: pidfile, serves, ready()
//! ```
//!
//! Order in a daemon's `main`: parse [`Options`], [`start`], then the runtime and everything that
//! can fail, then [`Daemon::ready`]. To end: [`Daemon::announce_end`], then drop sockets, devices
//! and files, the [`Daemon`] last. A successor waits until the process has ended.

mod crash;
mod monitor;
mod options;
mod signals;
mod user;

use std::env;
use std::ffi::{CString, OsString};
use std::fs::OpenOptions;
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::process::{Child, Command, ExitStatus, Stdio};

use telemetry::vlog::{self, Destination, Level};

pub use monitor::describe_exit;
pub use options::{LOG_OPTIONS, OPTIONS, Options, accept_tool_log, help, log_help};
pub use signals::{Signals, exit_by_signal, terminated};

use crate::pidfile::{Pidfile, PidfileError};
use crate::{paths, predecessor};

/// The variable with a process's part in a detached daemon: `PART:PID`, where PID is its parent, so
/// that programs started by the daemon ignore it.
const STAGE: &str = "OXVS_DAEMON_STAGE";

/// Why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The pidfile.
    #[error(transparent)]
    Pidfile(#[from] PidfileError),
    /// A system call.
    #[error("{what} failed ({})", crate::os_text(source))]
    Io {
        /// Which.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// The running daemon. Dropping it removes the pidfile.
#[derive(Debug)]
pub struct Daemon {
    options: Options,
    /// Whether another process waits for our byte on standard input.
    awaited: bool,
    is_ready: bool,
    pidfile: Option<Pidfile>,
}

/// Starts the daemon that `options` ask for, after [`vlog::init`] and before any thread or
/// runtime. Returns in the process that is to serve; the others end here.
///
/// # Errors
/// [`StartError`]; print it and exit 1.
pub fn start(options: Options) -> Result<Daemon, StartError> {
    let stage = Stage::of_this_process();
    if let Some(user) = options.user {
        let done = user.take_over(options.log_file.as_deref(), options.devices);
        done.map_err(io_error("changing the user"))?;
    }
    match (stage, options.detach, options.monitor) {
        (Stage::First, true, monitor) => {
            let child = spawn(if monitor { "monitor" } else { "daemon" }, &options, None)
                .map_err(io_error("starting the daemon"))?;
            std::process::exit(wait_until_ready(child));
        }
        (Stage::First, false, true) | (Stage::Monitor, _, _) => {
            if stage == Stage::Monitor {
                let _ = rustix::process::setsid();
            }
            signals::survive_hangup().map_err(io_error("catching SIGHUP"))?;
            vlog::set_subprogram("monitor");
            let status = monitor::run(&options, stage == Stage::Monitor);
            std::process::exit(status.map_err(io_error("starting the daemon"))?);
        }
        (Stage::First, false, false) | (Stage::Daemon, _, _) => {}
    }
    if stage == Stage::Daemon && !options.monitor {
        let _ = rustix::process::setsid();
    }
    if options.user.is_some() {
        user::keep_capabilities_here().map_err(io_error("giving up capabilities"))?;
    }
    crash::log_crashes();
    // Until `Signals` is there, a SIGHUP has nothing to do: the log file is new.
    signals::survive_hangup().map_err(io_error("catching SIGHUP"))?;
    set_name(&options.program);
    if !options.open_log_file() && !options.monitor {
        // The warning is all that the program says, as in Open vSwitch. A monitor's daemon serves
        // without a log file, rather than not at all after a crash.
        std::process::exit(1);
    }
    raise_descriptor_limit();
    if options.mlockall {
        use rustix::mm::{MlockAllFlags, mlockall};
        if let Err(e) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
            tracing::warn!(target: "daemon", "mlockall failed: {}", crate::os_text(&e.into()));
        }
    }
    if let Some(path) = options.pidfile.as_ref().filter(|_| !options.overwrite_pidfile) {
        predecessor::wait(path).map_err(|pid| PidfileError::Running {
            path: path.clone(),
            pid,
        })?;
    }
    predecessor::remove_leftovers(&paths::rundir(), &options.program);
    let pidfile = match &options.pidfile {
        Some(path) => Some(Pidfile::create(path, options.overwrite_pidfile)?),
        None => None,
    };
    Ok(Daemon {
        options,
        awaited: stage != Stage::First,
        is_ready: false,
        pidfile,
    })
}

impl Daemon {
    /// The daemon serves; the process that started it goes on. A detached daemon now leaves its
    /// directory and closes its standard streams. Further calls do nothing.
    pub fn ready(&mut self) {
        if std::mem::replace(&mut self.is_ready, true) {
            return;
        }
        if self.awaited {
            notify_waiter();
        }
        if self.options.detach {
            leave_terminal(self.options.no_chdir, self.options.keep_stdout);
        }
    }

    /// The daemon begins to end: a successor waits until it has ended. Further calls do nothing.
    pub fn announce_end(&self) {
        if let Some(pidfile) = &self.pidfile {
            pidfile.announce_end();
        }
    }

    /// The options it was started with.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// As the user started it.
    First,
    Monitor,
    Daemon,
}

impl Stage {
    fn of_this_process() -> Stage {
        let value = env::var(STAGE).unwrap_or_default();
        match value.split_once(':') {
            Some((part, parent)) if parent.parse() == Ok(parent_id()) => match part {
                "monitor" => Stage::Monitor,
                _ => Stage::Daemon,
            },
            _ => Stage::First,
        }
    }
}

/// A part of the daemon and the pipe on which it will say that it serves.
struct Spawned {
    child: Child,
    ready: PipeReader,
}

/// Starts this program again as `part`, in `directory` if not in the current one.
fn spawn(part: &str, options: &Options, directory: Option<&std::path::Path>) -> io::Result<Spawned> {
    let (ready, writer) = io::pipe()?;
    let mut args = env::args_os();
    let arg0 = args.next().unwrap_or_else(|| OsString::from(&options.program));
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(arg0)
        .args(args)
        .env(STAGE, format!("{part}:{}", std::process::id()))
        .stdin(Stdio::from(OwnedFd::from(writer)));
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    Ok(Spawned {
        child: command.spawn()?,
        ready,
    })
}

impl Spawned {
    /// Waits until the part serves (`None`) or ends.
    fn wait_ready(&mut self) -> io::Result<Option<ExitStatus>> {
        loop {
            match self.ready.read(&mut [0]) {
                Ok(0) => return self.child.wait().map(Some),
                Ok(_) => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// The status to exit with once the detached daemon serves or failed to.
fn wait_until_ready(mut spawned: Spawned) -> i32 {
    match spawned.wait_ready() {
        Ok(None) => 0,
        Ok(Some(status)) => {
            if let Some(signal) = status.signal() {
                eprintln!("fork child died before signaling startup (killed by signal {signal})");
            }
            status.code().unwrap_or(1).max(1)
        }
        Err(e) => {
            eprintln!("waiting for the daemon failed ({e})");
            1
        }
    }
}

/// Writes the byte that means that the daemon serves, and closes the pipe.
fn notify_waiter() {
    let _ = rustix::io::write(rustix::stdio::stdin(), &[0]);
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
    }
}

/// A detached process has no terminal and, by default, keeps no directory busy.
fn leave_terminal(no_chdir: bool, keep_stdout: bool) {
    if !no_chdir {
        let _ = env::set_current_dir("/");
    }
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        if !keep_stdout {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    vlog::set_all(Some(Destination::Console), Level::Off);
}

/// Raises the limit on descriptors to the system's maximum: each client and device needs one.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(target: "daemon", "cannot raise the limit of descriptors: {error}");
    }
}

/// The name by which `pidof` and `top` know the process: started from `/proc/self/exe`, it would
/// be `exe`.
fn set_name(program: &str) {
    if let Ok(name) = CString::new(program) {
        let _ = rustix::thread::set_name(&name);
    }
}

fn io_error(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::Io { what, source }
}
