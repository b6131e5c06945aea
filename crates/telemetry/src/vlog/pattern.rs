//! Patterns of log lines (ovs-appctl(8), `vlog/set PATTERN:…`).

use std::borrow::Cow;
use std::time::{Duration, Instant};

use super::Level;
use crate::calendar;

/// What a pattern's escapes expand to.
pub(super) struct Record<'a> {
    pub(super) program: String,
    pub(super) subprogram: String,
    pub(super) module: &'a str,
    pub(super) level: Level,
    pub(super) message: &'a str,
    /// The message may have lines.
    pub(super) lines: bool,
    pub(super) serial: u64,
    pub(super) priority: u8,
    pub(super) started: Option<Instant>,
    /// Since the epoch.
    pub(super) now: Duration,
}

/// Formats `record` by `pattern`. Unknown escapes stay as they are. Control characters of the
/// message are escaped, so that input from outside can neither forge lines nor control a terminal.
/// Only newlines of a message with lines are not.
pub(super) fn expand(pattern: &str, record: &Record<'_>) -> String {
    let mut out = String::with_capacity(pattern.len() + record.message.len() + 32);
    let mut rest = pattern;
    while let Some(percent) = rest.find('%') {
        out.push_str(&rest[..percent]);
        rest = &rest[percent + 1..];
        let left = take(&mut rest, '-');
        let zero = take(&mut rest, '0');
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let width: usize = rest[..digits].parse().unwrap_or(0).min(256);
        rest = &rest[digits..];
        let Some(escape) = rest.chars().next() else { break };
        rest = &rest[escape.len_utf8()..];
        let value = match escape {
            'A' => record.program.clone(),
            'B' => record.priority.to_string(),
            'c' => record.module.to_owned(),
            'd' => calendar::local(record.now, template(&mut rest)),
            'D' => calendar::utc(record.now, template(&mut rest)),
            'E' => hostname(),
            'm' if record.lines => printable_lines(record.message),
            'm' => printable(record.message).into_owned(),
            'N' => record.serial.to_string(),
            'n' => "\n".to_owned(),
            'p' => record.level.as_str().to_owned(),
            'P' => std::process::id().to_string(),
            'r' => record.started.map_or(0, |s| s.elapsed().as_millis()).to_string(),
            't' if record.subprogram.is_empty() => "main".to_owned(),
            't' => record.subprogram.clone(),
            'T' if record.subprogram.is_empty() => String::new(),
            'T' => format!("({})", record.subprogram),
            '%' => "%".to_owned(),
            other => format!("%{other}"),
        };
        let padding = width.saturating_sub(value.chars().count());
        let fill = if zero { '0' } else { ' ' };
        if !left {
            out.extend(std::iter::repeat_n(fill, padding));
        }
        out.push_str(&value);
        if left {
            out.extend(std::iter::repeat_n(' ', padding));
        }
    }
    out.push_str(rest);
    out
}

/// The text with its control characters escaped: `\\n`, `\\t`, `\\x1b`.
fn printable(text: &str) -> Cow<'_, str> {
    // These two end a line, or not, depending on who reads it.
    let is_special = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if !text.contains(is_special) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => out.extend(c.escape_default()),
            c if is_special(c) && c.is_ascii() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if is_special(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The same for each line. A line that begins as the log's own do, with a digit, stays on the line
/// before it, unless it is one of a dump of bytes.
fn printable_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            let of_dump = |c: char| c.is_ascii_hexdigit() || c == ' ' || c == '-';
            let forged = line.starts_with(|c: char| c.is_ascii_digit()) && !line.chars().all(of_dump);
            out.push_str(if forged { "\\n" } else { "\n" });
        }
        out.push_str(&printable(line));
    }
    out
}

fn take(rest: &mut &str, c: char) -> bool {
    match rest.strip_prefix(c) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    }
}

/// The `{…}` after a date's escape.
fn template<'a>(rest: &mut &'a str) -> &'a str {
    let Some((inside, after)) = rest.strip_prefix('{').and_then(|r| r.split_once('}')) else {
        return "%Y-%m-%d %H:%M:%S";
    };
    *rest = after;
    inside
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .unwrap_or_else(|_| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_message_are_escaped_in_every_pattern() {
        let message = "tcp:a\n2026|00001|x|EMER|forged\r\t\u{1b}[2J\u{7f}\u{85}\u{2028}é\\";
        let record = Record {
            program: "p".to_owned(),
            subprogram: String::new(),
            module: "m",
            level: Level::Info,
            message,
            lines: false,
            serial: 1,
            priority: 0,
            started: None,
            now: Duration::ZERO,
        };
        assert_eq!(
            expand("%D{%Y}|%m%n", &record),
            "1970|tcp:a\\n2026|00001|x|EMER|forged\\r\\t\\x1b[2J\\x7f\\u{85}\\u{2028}é\\\n"
        );
    }

    #[test]
    fn lines_are_kept_where_the_message_may_have_them_but_none_that_looks_like_the_logs_own() {
        let text = "received:\n00000000  ff 0a-00\n cookie=0\x1b\n\n2026-11-23T00:00:00Z|00001|x|EMER|forged\nend";
        let expected =
            "received:\n00000000  ff 0a-00\n cookie=0\\x1b\n\\n2026-11-23T00:00:00Z|00001|x|EMER|forged\nend";
        assert_eq!(printable_lines(text), expected);
    }
}
