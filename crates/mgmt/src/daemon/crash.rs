//! A crash by a signal is in the log before the process ends: what the signal is, and the stack of
//! the thread that crashed.

use std::ffi::c_void;
use std::fmt::Write;

use signal_hook::low_level::signal_name;
use sys::crash::{Crash, Frame};
use telemetry::vlog;

/// Has crashes of this process logged from now on. Call it when the process runs as the user that
/// it serves as.
pub(super) fn log_crashes() {
    if let Err(error) = sys::crash::report(|crash| log(&crash)) {
        tracing::warn!(target: "fatal_signal", "crashes will not be logged ({error})");
    }
}

fn log(crash: &Crash) {
    let name = signal_name(crash.signal).unwrap_or("signal");
    vlog::emergency("fatal_signal", &format!("{name} detected, backtrace:"));
    for frame in &crash.frames {
        for line in lines(frame) {
            vlog::emergency("backtrace", &line);
        }
    }
}

/// A frame as Open vSwitch writes it, `0x000055d0a1b2c3d4 <function+0x1f>`, with the place in the
/// source if it is known. The compiler may have put several functions into one frame.
fn lines(frame: &Frame) -> Vec<String> {
    let offset = match frame.function {
        0 => 0,
        start => frame.ip.saturating_sub(start),
    };
    let mut lines = Vec::new();
    backtrace::resolve(frame.ip as *mut c_void, |symbol| {
        let mut line = format!("0x{:016x} <", frame.ip);
        // Without the hash that tells two compilations of a function apart.
        let _ = match symbol.name() {
            Some(name) => write!(line, "{name:#}+{offset:#x}>"),
            None => write!(line, "+{offset:#x}>"),
        };
        if let (Some(file), Some(number)) = (symbol.filename(), symbol.lineno()) {
            let _ = write!(line, " at {}:{number}", file.display());
        }
        lines.push(line);
    });
    if lines.is_empty() {
        lines.push(format!("0x{:016x} <+{offset:#x}>", frame.ip));
    }
    lines
}
