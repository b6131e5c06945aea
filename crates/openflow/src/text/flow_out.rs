//! Flows in text: changes as `ovs-ofctl` prints messages, statistics as `dump-flows` does.

use super::action_out::put_instructions;
use super::match_out::put_match;
use super::number::put_decimal;
use super::{Style, port, table};
use crate::Version;
use crate::model::*;
use std::fmt::Write;

/// Typical length of a flow's text.
const USUAL: usize = 192;

/// A flow-mod: command, table, match, properties, actions.
pub fn flow_mod(m: &FlowMod, style: Style<'_>) -> String {
    let mut out = String::with_capacity(USUAL);
    put_flow_mod(&mut out, m, None, style);
    out
}

/// As [`flow_mod`], but appends to `out`. `encoded` is the text of the match as a message has it;
/// the priority is behind it then.
pub(crate) fn put_flow_mod(out: &mut String, m: &FlowMod, encoded: Option<&str>, style: Style<'_>) {
    out.push_str(match m.command {
        FlowCommand::Add => "ADD",
        FlowCommand::Modify => "MOD",
        FlowCommand::ModifyStrict => "MOD_STRICT",
        FlowCommand::Delete => "DEL",
        FlowCommand::DeleteStrict => "DEL_STRICT",
    });
    if let Some(number) = m.table.filter(|n| *n != 0) {
        let _ = write!(out, " table:{}", table(number, style));
    }
    out.push(' ');
    let before = out.len();
    match encoded {
        Some(text) => out.push_str(text),
        None => {
            if m.priority != 0x8000 {
                let _ = write!(out, "priority={},", m.priority);
            }
            let after = out.len();
            put_match(out, &m.matching, style);
            if out.len() == after && after > before {
                out.pop();
            }
        }
    }
    if out.len() > before {
        out.push(' ');
    }
    if let Some(cookie) = m.new_cookie.filter(|c| ![0, u64::MAX].contains(c)) {
        let _ = write!(out, "cookie:{cookie:#x} ");
    }
    if m.cookie_mask != 0 {
        let _ = write!(out, "cookie:{:#x}/{:#x} ", m.cookie, m.cookie_mask);
    }
    if m.idle_timeout != 0 {
        let _ = write!(out, "idle:{} ", m.idle_timeout);
    }
    if m.hard_timeout != 0 {
        let _ = write!(out, "hard:{} ", m.hard_timeout);
    }
    // Only an added rule has one.
    if m.importance != 0 && m.command == FlowCommand::Add {
        let _ = write!(out, "importance:{} ", m.importance);
    }
    if encoded.is_some() && m.priority != 0x8000 {
        let _ = write!(out, "pri:{} ", m.priority);
    }
    if let Some(buffer) = m.buffer_id {
        let _ = write!(out, "buf:{buffer:#x} ");
    }
    if m.out_port != Port::ANY {
        let _ = write!(out, "out_port:{} ", port(m.out_port, style));
    }
    for name in flag_names(m.flags) {
        let _ = write!(out, "{name} ");
    }
    out.push_str("actions=");
    put_instructions(out, &m.instructions, style);
}

const FLAGS: [(FlowFlags, &str); 5] = [
    (FlowFlags::SEND_FLOW_REM, "send_flow_rem"),
    (FlowFlags::CHECK_OVERLAP, "check_overlap"),
    (FlowFlags::RESET_COUNTS, "reset_counts"),
    (FlowFlags::NO_PACKET_COUNTS, "no_packet_counts"),
    (FlowFlags::NO_BYTE_COUNTS, "no_byte_counts"),
];

fn flag_names(flags: FlowFlags) -> impl Iterator<Item = &'static str> {
    FLAGS.iter().filter(move |(f, _)| flags.has(*f)).map(|(_, name)| *name)
}

/// The flag with a name.
pub(super) fn flag(name: &str) -> Option<FlowFlags> {
    FLAGS.iter().find(|(_, n)| *n == name).map(|(f, _)| *f)
}

/// A rule with its statistics, or without them.
pub fn flow_stats(s: &FlowStats, with_stats: bool, style: Style<'_>) -> String {
    let mut out = String::with_capacity(USUAL);
    put_flow_stats(&mut out, s, with_stats, style);
    out
}

/// As [`flow_stats`], but appends to `out`: a dump has a million of them.
pub fn put_flow_stats(out: &mut String, s: &FlowStats, with_stats: bool, style: Style<'_>) {
    let put = |out: &mut String, name: &str, value: u64| {
        out.push_str(name);
        put_decimal(out, value.into());
    };
    if with_stats || s.cookie != 0 {
        out.push_str("cookie=0x");
        put_digits(out, s.cookie);
        out.push_str(", ");
    }
    if with_stats {
        out.push_str("duration=");
        put_duration(out, s.duration);
        out.push_str(", ");
    }
    if with_stats || s.table != 0 {
        out.push_str("table=");
        match style.names {
            Some(_) => out.push_str(&table(s.table, style)),
            None => put_decimal(out, s.table.into()),
        }
        out.push_str(", ");
    }
    if with_stats {
        for (name, count) in [("n_packets=", s.packets), (", n_bytes=", s.bytes)] {
            match count {
                u64::MAX => {
                    out.push_str(name);
                    out.push('?');
                }
                count => put(out, name, count),
            }
        }
        out.push_str(", ");
    }
    for (name, timeout) in [("idle_timeout=", s.idle_timeout), ("hard_timeout=", s.hard_timeout)] {
        if timeout != 0 {
            put(out, name, timeout.into());
            out.push_str(", ");
        }
    }
    for name in flag_names(s.flags) {
        out.push_str(name);
        out.push(' ');
    }
    if s.importance != 0 {
        put(out, "importance=", s.importance.into());
        out.push_str(", ");
    }
    if let Some(age) = s.idle_age.filter(|_| with_stats) {
        put(out, "idle_age=", age.into());
        out.push_str(", ");
    }
    if let Some(age) = s.hard_age.filter(|age| with_stats && u32::from(*age) != s.duration.sec) {
        put(out, "hard_age=", age.into());
        out.push_str(", ");
    }
    let before = out.len();
    if s.priority != 0x8000 {
        put(out, "priority=", s.priority.into());
        out.push(',');
    }
    let after = out.len();
    put_match(out, &s.matching, style);
    if out.len() == after && after > before {
        out.pop();
    }
    if out.len() > before {
        out.push(' ');
    }
    out.push_str("actions=");
    put_instructions(out, &s.instructions, style);
}

/// Seconds with as many decimals as they need; if there are any, at least three.
fn put_duration(out: &mut String, d: Duration) {
    put_decimal(out, d.sec.into());
    let (mut decimals, mut unit) = match (d.nsec, d.nsec % 1_000_000) {
        (0, _) => (0, 0),
        (nsec, 0) => (nsec / 1_000_000, 100),
        (nsec, _) => (nsec, 100_000_000),
    };
    if unit > 0 {
        out.push('.');
    }
    if d.nsec >= 1_000_000_000 {
        // More than a second has more digits.
        put_decimal(out, decimals.into());
        unit = 0;
    }
    while unit > 0 {
        let digit = (decimals / unit).min(9) as u8;
        out.push(char::from(b'0' + digit));
        decimals %= unit;
        unit /= 10;
    }
    out.push('s');
}

/// Hexadecimal digits, as many as are needed.
fn put_digits(out: &mut String, number: u64) {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for n in (0..digits).rev() {
        let digit = (number >> (4 * n) & 0xf) as usize;
        out.push(char::from(b"0123456789abcdef"[digit]));
    }
}

/// The style in which a version's messages are printed.
impl Style<'static> {
    /// Numbers only, in the words of a version.
    pub const fn of(version: Version) -> Style<'static> {
        Style { version, names: None }
    }
}
