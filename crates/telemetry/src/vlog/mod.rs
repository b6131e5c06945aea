//! The log: modules × destinations → level.
//!
//! The code logs with `tracing`'s macros; the target is the module: `info!(target: "bridge", …)`,
//! or by default the crate. Each message goes to the destinations (console, syslog, file) whose
//! level for that module admits it, as a line such as
//! `2026-01-31T12:00:00.000Z|00001|bridge|INFO|…`.
//!
//! Invariant: whether a call site is enabled is cached by `tracing`; whatever changes a level or
//! opens the file rebuilds that cache.

mod layer;
mod pattern;
mod registry;
mod sink;

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use registry::{Module, REGISTRY};
use sink::SINKS;
pub use sink::SyslogMethod;

/// How bad it is. Ordered: a destination at a level takes messages of that level and of all before
/// it but `Off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Nothing is logged.
    Off = 0,
    /// The process has to stop.
    Emer = 1,
    /// A whole operation failed.
    Err = 2,
    /// Something failed that others can recover from.
    Warn = 3,
    /// Useful in retrospect.
    Info = 4,
    /// For those who know the code.
    Dbg = 5,
}

impl Level {
    const ALL: [Level; 6] = [
        Level::Off,
        Level::Emer,
        Level::Err,
        Level::Warn,
        Level::Info,
        Level::Dbg,
    ];

    /// `OFF`, `EMER`, `ERR`, `WARN`, `INFO` or `DBG`.
    pub fn as_str(self) -> &'static str {
        ["OFF", "EMER", "ERR", "WARN", "INFO", "DBG"][self as usize]
    }

    fn from_u8(n: u8) -> Level {
        Level::ALL[usize::from(n).min(5)]
    }

    /// The severity of RFC 5424.
    fn severity(self) -> u8 {
        [7, 1, 3, 4, 6, 7][self as usize]
    }
}

impl FromStr for Level {
    type Err = ();

    fn from_str(s: &str) -> Result<Level, ()> {
        Level::ALL
            .into_iter()
            .find(|l| l.as_str().eq_ignore_ascii_case(s))
            .ok_or(())
    }
}

/// Where messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Standard error.
    Console = 0,
    /// The system's log.
    Syslog = 1,
    /// The file of `--log-file`.
    File = 2,
}

impl Destination {
    const ALL: [Destination; 3] = [Destination::Console, Destination::Syslog, Destination::File];

    /// `console`, `syslog` or `file`.
    pub fn as_str(self) -> &'static str {
        ["console", "syslog", "file"][self as usize]
    }
}

impl FromStr for Destination {
    type Err = ();

    fn from_str(s: &str) -> Result<Destination, ()> {
        Destination::ALL
            .into_iter()
            .find(|d| d.as_str().eq_ignore_ascii_case(s))
            .ok_or(())
    }
}

/// What is wrong with a specification of levels. Prints as Open vSwitch words it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A word is none of the three.
    #[error("no destination, level, or module \"{0}\"")]
    UnknownWord(String),
    /// `PATTERN:` names no destination.
    #[error("unknown destination \"{0}\"")]
    UnknownDestination(String),
    /// `PATTERN:` has no pattern.
    #[error("missing destination or pattern")]
    NoPattern,
    /// `FACILITY:` names none of RFC 5424's.
    #[error("invalid facility")]
    InvalidFacility,
    /// `--syslog-method` names none.
    #[error("unsupported syslog method '{0}'")]
    UnknownSyslogMethod(String),
    /// There is no such module.
    #[error("unknown module")]
    UnknownModule,
}

/// Starts logging for `program`, whose name is in syslog lines: messages at `INFO` and worse go to
/// the console and to syslog, and to the file once there is one. Levels [`set`] before stay.
pub fn init(program: &str) {
    SINKS.lock().set_program(program);
    // A second call, as tests make, finds the subscriber in place.
    let _ = tracing_subscriber::registry().with(layer::VlogLayer).try_init();
    log_panics();
}

/// Applies a specification: words separated by spaces, commas or colons, at most one module, one
/// destination and one level, in any order and case; nothing means `dbg` for all.
/// `PATTERN:destination:pattern` sets a pattern, `FACILITY:name` the syslog facility.
///
/// # Errors
/// [`SpecError`]; nothing is changed then.
pub fn set(spec: &str) -> Result<(), SpecError> {
    if let Some(rest) = strip_word(spec, "PATTERN") {
        let (destination, pattern) = rest.split_once(':').ok_or(SpecError::NoPattern)?;
        let destination: Destination = destination
            .parse()
            .map_err(|()| SpecError::UnknownDestination(destination.to_owned()))?;
        SINKS.lock().set_pattern(destination, pattern);
        return Ok(());
    }
    if let Some(name) = strip_word(spec, "FACILITY") {
        let facility = sink::facility(name).ok_or(SpecError::InvalidFacility)?;
        SINKS.lock().set_facility(facility);
        return Ok(());
    }
    let (mut module, mut destination, mut level) = (None, None, Level::Dbg);
    for word in spec.split([' ', ',', ':', '\t']).filter(|w| !w.is_empty()) {
        if let Ok(l) = word.parse() {
            level = l;
        } else if let Ok(d) = word.parse() {
            destination = Some(d);
        } else if let Some(m) = REGISTRY.find_to_set(word) {
            module = Some(m);
        } else if !word.eq_ignore_ascii_case("any") {
            return Err(SpecError::UnknownWord(word.to_owned()));
        }
    }
    set_level(module.as_deref(), destination, level);
    Ok(())
}

/// Sets the level of a destination, or of all, for every module.
pub fn set_all(destination: Option<Destination>, level: Level) {
    set_level(None, destination, level);
}

/// Whether a message of that module and level would go anywhere.
pub fn enabled(module: &str, level: Level) -> bool {
    REGISTRY.module(module).admits_any(level)
}

/// The table that `vlog/list` prints.
pub fn list() -> String {
    let mut out = String::from("                 console    syslog    file\n");
    out.push_str("                 -------    ------    ------\n");
    for module in REGISTRY.modules() {
        let level = |d| module.level(d).as_str();
        out.push_str(&format!(
            "{:<16}  {:>4}       {:>4}       {:>4}\n",
            module.name(),
            level(Destination::Console),
            level(Destination::Syslog),
            level(Destination::File),
        ));
    }
    out
}

/// The table that `vlog/list-pattern` prints.
pub fn list_pattern() -> String {
    SINKS.lock().list_pattern()
}

/// Begins to log to `path` too, from its end on.
///
/// # Errors
/// The system's, when it cannot be opened.
pub fn set_file(path: &Path) -> io::Result<()> {
    SINKS.lock().open_file(path)?;
    tracing::callsite::rebuild_interest_cache();
    tracing::info!(target: "vlog", "opened log file {}", path.display());
    Ok(())
}

/// Closes the log file and opens it again, because it was renamed. Without a file, nothing.
///
/// # Errors
/// The system's.
pub fn reopen() -> io::Result<()> {
    let Some(path) = file() else { return Ok(()) };
    tracing::info!(target: "vlog", "closing log file");
    SINKS.lock().close_file();
    set_file(&path)
}

/// Closes the log file until [`reopen`].
pub fn close() {
    if SINKS.lock().file_is_open() {
        tracing::info!(target: "vlog", "closing log file");
        SINKS.lock().close_file();
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Logs at `EMER`, the level of what ends the process.
pub fn emergency(module: &str, message: &str) {
    layer::write(module, Level::Emer, message);
}

/// The same, but not to the console: for a program that prints there by itself why it ends.
pub fn fatal(module: &str, message: &str) {
    layer::write_beside_console(module, Level::Emer, message);
}

/// The log file, if one was set.
pub fn file() -> Option<PathBuf> {
    SINKS.lock().file_path()
}

/// How messages get to the system's log.
pub fn set_syslog_method(method: SyslogMethod) {
    SINKS.lock().set_syslog_method(method);
}

/// Sends messages for syslog to this UDP address (`HOST:PORT`) as well.
///
/// # Errors
/// The system's, when it cannot be resolved or reached.
pub fn set_syslog_target(target: &str) -> io::Result<()> {
    SINKS.lock().set_syslog_target(target)
}

/// Names this process in its lines, e.g. `monitor`; the main one has no such name.
pub fn set_subprogram(name: &str) {
    SINKS.lock().set_subprogram(name);
}

/// Switches the rate limits of these modules on or off, of all if none is named.
///
/// # Errors
/// [`SpecError::UnknownModule`]
pub fn limit_rates(modules: &[String], limited: bool) -> Result<(), SpecError> {
    let found: Option<Vec<_>> = modules.iter().map(|m| REGISTRY.find_to_set(m)).collect();
    let found = found.ok_or(SpecError::UnknownModule)?;
    let found = if modules.is_empty() { REGISTRY.modules() } else { found };
    found.iter().for_each(|m| m.set_limited(limited));
    Ok(())
}

pub(crate) fn rate_limited(target: &str) -> bool {
    REGISTRY.module(registry::module_of(target)).is_limited()
}

fn set_level(module: Option<&Module>, destination: Option<Destination>, level: Level) {
    for d in Destination::ALL {
        if destination.is_none_or(|wanted| wanted == d) {
            match module {
                Some(module) => module.set_level(d, level),
                None => REGISTRY.set_all(d, level),
            }
        }
    }
    tracing::callsite::rebuild_interest_cache();
}

/// What follows `WORD:` at the beginning, in any case.
fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (first, rest) = text.split_once(':')?;
    first.eq_ignore_ascii_case(word).then_some(rest)
}

/// A panic is logged with its backtrace before it is printed: a daemon's standard error is nowhere.
fn log_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.to_string().replace('\n', " ");
            emergency("util", &text);
            let trace = std::backtrace::Backtrace::force_capture().to_string();
            for line in trace.lines() {
                emergency("backtrace", line.trim_start());
            }
            before(info);
        }));
    });
}

#[cfg(test)]
mod tests;
