//! How far a run is: a bar with the time left on a terminal, lines elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Interval of lines without a terminal.
const LINES: Duration = Duration::from_secs(15);

/// The progress display.
pub(crate) struct Progress {
    bar: ProgressBar,
    lines: bool,
    last: Option<Instant>,
    what: String,
}

impl Progress {
    /// On the standard error: a bar if that is a terminal that can draw one, lines if not.
    pub(crate) fn new() -> Progress {
        let terminal = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let target = if terminal {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        Progress {
            bar: ProgressBar::with_draw_target(Some(0), target),
            lines: !terminal,
            last: None,
            what: String::new(),
        }
    }

    /// Nothing is shown.
    #[cfg(test)]
    pub(crate) fn none() -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        Progress {
            bar,
            lines: false,
            last: None,
            what: String::new(),
        }
    }

    /// Starts with the numbers of wanted and present samples, and the estimated seconds.
    pub(crate) fn begin(&mut self, wanted: u64, there: u64, left: f64) {
        let style = "{wide_bar} {pos}/{len} {prefix}\n{msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            self.bar.set_style(style);
        }
        self.bar.reset();
        self.bar.set_length(wanted);
        self.bar.set_position(there);
        self.bar.enable_steady_tick(Duration::from_millis(500));
        self.show(left);
    }

    /// Shows the present step.
    pub(crate) fn at(&mut self, scenario: &str, system: &str, at: &BTreeMap<String, String>, repetition: u32) {
        let values: Vec<String> = at.iter().map(|(key, value)| format!("{key} {value}")).collect();
        self.what = format!(
            "{scenario} on {system}, repetition {}: {}",
            repetition + 1,
            values.join(", ")
        );
        self.bar.set_message(self.what.clone());
    }

    /// Advances by one repetition, done or given up, with the estimated remaining seconds.
    pub(crate) fn advance(&mut self, left: f64) {
        self.bar.inc(1);
        self.show(left);
    }

    fn show(&mut self, left: f64) {
        let left = format!("{} left", span(left));
        if self.lines && self.last.is_none_or(|last| last.elapsed() > LINES) {
            self.last = Some(Instant::now());
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
            eprintln!(
                "{done} of {all} samples, {left}{}{}",
                if self.what.is_empty() { "" } else { "; " },
                self.what
            );
        }
        self.bar.set_prefix(left);
    }

    /// Says something between.
    pub(crate) fn say(&self, text: &str) {
        if self.lines {
            eprintln!("{text}");
        } else {
            self.bar.println(text);
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A time for a reader, as `3 h 05 min`.
pub(crate) fn span(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_told_in_two_units_at_most() {
        let spans = [-1.0, 59.4, 61.0, 3599.0, 36_120.0].map(super::span);
        assert_eq!(spans, ["0 s", "59 s", "1 min 01 s", "59 min 59 s", "10 h 02 min"]);
    }
}
