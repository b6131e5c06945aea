//! Patterns of log lines (ovs-appctl(8), `vlog/set PATTERN:…`).

use std::time::Instant;

use super::Level;
use crate::utc::Utc;

/// What a pattern's escapes expand to.
pub(super) struct Record<'a> {
    pub(super) program: String,
    pub(super) subprogram: String,
    pub(super) module: &'a str,
    pub(super) level: Level,
    pub(super) message: &'a str,
    pub(super) serial: u64,
    pub(super) priority: u8,
    pub(super) started: Option<Instant>,
    pub(super) now: Utc,
}

/// The line that `pattern` makes of `record`. Unknown escapes stay as they are. `%d`, the local
/// time, is the UTC like `%D`.
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
            'd' | 'D' => record.now.format(template(&mut rest)),
            'E' => hostname(),
            'm' => record.message.to_owned(),
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
