//! The options that daemons share, and those about logging that tools have too.

use std::path::PathBuf;

use telemetry::vlog;

use super::user::User;
use crate::cli::{Error, Opt};
use crate::{os_text, paths};

/// Options of every daemon.
pub const OPTIONS: &[Opt] = &[
    Opt::flag("detach", None),
    Opt::flag("monitor", None),
    Opt::flag("no-self-confinement", None),
    Opt::flag("no-chdir", None),
    Opt::flag("overwrite-pidfile", None),
    Opt::maybe("pidfile", None),
    Opt::value("user", None),
    Opt::flag("mlockall", None),
    Opt::value("unixctl", None),
];

/// Options about logging, of every program.
pub const LOG_OPTIONS: &[Opt] = &[
    Opt::maybe("verbose", Some('v')),
    Opt::maybe("log-file", None),
    Opt::value("syslog-target", None),
    Opt::value("syslog-method", None),
];

/// The help text of [`OPTIONS`] and [`LOG_OPTIONS`] for `program`.
pub fn help(program: &str) -> String {
    format!(
        "
Daemon options:
  --detach                run in the background
  --monitor               keep a process that starts the daemon again if it crashes
  --pidfile[=FILE]        write the process id to FILE
                          (default: {pidfile})
  --overwrite-pidfile     with --pidfile, start even if one is running already
  --no-chdir              stay in this directory instead of '/'
  --user=USER[:GROUP]     run the daemon as this user and group (only root can)
  --unixctl=SOCKET        control socket for `appctl`, `none` for no socket
                          (default: {rundir}/{program}.PID.ctl)
  --mlockall              lock the process's memory
{log}",
        pidfile = default_pidfile(program).display(),
        rundir = paths::rundir().display(),
        log = log_help(program),
    )
}

/// The help text of [`LOG_OPTIONS`] for `program`.
pub fn log_help(program: &str) -> String {
    format!(
        "
Logging options:
  -vSPEC, --verbose=SPEC  set levels: MODULE:DESTINATION:LEVEL, each may be left out;
                          destinations: console, syslog, file;
                          levels: off, emer, err, warn, info, dbg
  -v, --verbose           log everything
  --log-file[=FILE]       log to FILE too (default: {log})
  --syslog-method=(libc|unix:FILE|udp:IP:PORT|null)
                          how to send messages to the system's log
  --syslog-target=HOST:PORT  send them to HOST:PORT by UDP as well
",
        log = default_log_file(program).display(),
    )
}

/// The options on a daemon's command line.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The program's name; default file names begin with it.
    pub program: String,
    /// Run in the background.
    pub detach: bool,
    /// Start the daemon again when it crashes.
    pub monitor: bool,
    /// Where to write the process id, if anywhere.
    pub pidfile: Option<PathBuf>,
    /// Ignore another daemon that has the pidfile.
    pub overwrite_pidfile: bool,
    /// Stay in the current directory.
    pub no_chdir: bool,
    /// The control socket: `None` for the default, `none` for no socket.
    pub unixctl: Option<String>,
    /// Lock all memory.
    pub mlockall: bool,
    /// Log to this file.
    pub log_file: Option<PathBuf>,
    /// The user to run as, if not the one that starts the program.
    pub(super) user: Option<User>,
    /// Keep the capabilities for network devices when changing the user.
    pub(super) devices: bool,
    /// Keep standard output when detached, for tools that print results.
    pub keep_stdout: bool,
}

impl Options {
    /// No options.
    pub fn new(program: &str) -> Options {
        Options {
            program: program.to_owned(),
            ..Options::default()
        }
    }

    /// No options, for a daemon that serves network devices: it keeps the capabilities for them
    /// when it changes its user.
    pub fn with_devices(program: &str) -> Options {
        Options {
            devices: true,
            ..Options::new(program)
        }
    }

    /// Takes an option if it is in [`OPTIONS`] or [`LOG_OPTIONS`]; false if it is not. Levels
    /// apply at once, the log file when the daemon [starts](super::start).
    ///
    /// # Errors
    /// A value that is not one.
    pub fn accept(&mut self, name: &str, value: Option<&str>) -> Result<bool, Error> {
        match name {
            "detach" => self.detach = true,
            "monitor" => self.monitor = true,
            "no-chdir" => self.no_chdir = true,
            "no-self-confinement" => {}
            "overwrite-pidfile" => self.overwrite_pidfile = true,
            "pidfile" => {
                self.pidfile = Some(match value {
                    Some(file) if !file.is_empty() => paths::in_rundir(file),
                    _ => default_pidfile(&self.program),
                });
            }
            "user" => self.user = Some(User::parse(value.unwrap_or_default())?),
            "mlockall" => self.mlockall = true,
            "unixctl" => self.unixctl = value.map(str::to_owned),
            "log-file" => {
                self.log_file = Some(match value {
                    Some(file) if !file.is_empty() => PathBuf::from(file),
                    _ => default_log_file(&self.program),
                });
            }
            _ => return accept_log(name, value),
        }
        Ok(true)
    }

    /// The path of the control socket, `None` for no socket.
    pub fn unixctl_path(&self) -> Option<PathBuf> {
        match self.unixctl.as_deref() {
            Some("none") => None,
            Some(file) => Some(paths::in_rundir(file)),
            None => Some(paths::in_rundir(format!("{}.{}.ctl", self.program, std::process::id()))),
        }
    }

    /// Opens the log file, if there is to be one; false, with a warning, if that fails.
    pub(super) fn open_log_file(&self) -> bool {
        if let Some(file) = &self.log_file
            && let Err(e) = vlog::set_file(file)
        {
            let why = os_text(&e);
            tracing::warn!(target: "vlog", "failed to open {} for logging: {why}", file.display());
            return false;
        }
        true
    }
}

/// Takes a logging option of a tool, whose log file is opened at once; false if it is none.
///
/// # Errors
/// A value that is not one.
pub fn accept_tool_log(program: &str, name: &str, value: Option<&str>) -> Result<bool, Error> {
    if name == "log-file" {
        let mut options = Options::new(program);
        options.accept(name, value)?;
        // The warning is all that a tool says.
        return match options.open_log_file() {
            true => Ok(true),
            false => Err(Error(String::new())),
        };
    }
    accept_log(name, value)
}

fn accept_log(name: &str, value: Option<&str>) -> Result<bool, Error> {
    match name {
        "verbose" => {
            let spec = value.unwrap_or_default();
            vlog::set(spec).map_err(|e| Error(format!("processing \"{spec}\": {e}")))?;
        }
        "syslog-method" => {
            let method = value.unwrap_or_default().parse();
            vlog::set_syslog_method(method.map_err(|e: vlog::SpecError| Error(e.to_string()))?);
        }
        "syslog-target" => {
            let value = value.unwrap_or_default();
            vlog::set_syslog_target(value).map_err(|e| Error(format!("{value}: {}", os_text(&e))))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn default_pidfile(program: &str) -> PathBuf {
    paths::in_rundir(format!("{program}.pid"))
}

fn default_log_file(program: &str) -> PathBuf {
    paths::logdir().join(format!("{program}.log"))
}
