//! Flows in text: changes as `ovs-ofctl` prints messages, statistics as `dump-flows` does.

use super::action_out::put_instructions;
use super::match_out::put_match;
use super::{Style, port, table};
use crate::Version;
use crate::model::*;
use std::fmt::Write;

/// How long most flows are.
const USUAL: usize = 192;

/// A flow-mod: command, table, match, properties, actions.
pub fn flow_mod(m: &FlowMod, style: Style<'_>) -> String {
    let mut out = String::with_capacity(USUAL);
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
    if m.priority != 0x8000 {
        let _ = write!(out, "priority={},", m.priority);
    }
    let after = out.len();
    put_match(&mut out, &m.matching, style);
    if out.len() == after && after > before {
        out.pop();
    }
    if out.len() > before {
        out.push(' ');
    }
    if let Some(cookie) = m.new_cookie.filter(|c| *c != 0) {
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
    if m.importance != 0 {
        let _ = write!(out, "importance:{} ", m.importance);
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
    put_instructions(&mut out, &m.instructions, style);
    out
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
    if with_stats || s.cookie != 0 {
        let _ = match s.cookie {
            0 => write!(out, "cookie=0x0, "),
            cookie => write!(out, "cookie={cookie:#x}, "),
        };
    }
    if with_stats {
        let _ = write!(out, "duration={}, ", duration(s.duration));
    }
    if with_stats || s.table != 0 {
        let _ = write!(out, "table={}, ", table(s.table, style));
    }
    if with_stats {
        let count = |n: u64| if n == u64::MAX { "?".into() } else { n.to_string() };
        let _ = write!(out, "n_packets={}, n_bytes={}, ", count(s.packets), count(s.bytes));
    }
    if s.idle_timeout != 0 {
        let _ = write!(out, "idle_timeout={}, ", s.idle_timeout);
    }
    if s.hard_timeout != 0 {
        let _ = write!(out, "hard_timeout={}, ", s.hard_timeout);
    }
    for name in flag_names(s.flags) {
        let _ = write!(out, "{name} ");
    }
    if s.importance != 0 {
        let _ = write!(out, "importance={}, ", s.importance);
    }
    if let Some(age) = s.idle_age.filter(|_| with_stats) {
        let _ = write!(out, "idle_age={age}, ");
    }
    if let Some(age) = s.hard_age.filter(|age| with_stats && u32::from(*age) != s.duration.sec) {
        let _ = write!(out, "hard_age={age}, ");
    }
    let before = out.len();
    if s.priority != 0x8000 {
        let _ = write!(out, "priority={},", s.priority);
    }
    let after = out.len();
    put_match(&mut out, &s.matching, style);
    if out.len() == after && after > before {
        out.pop();
    }
    if out.len() > before {
        out.push(' ');
    }
    out.push_str("actions=");
    put_instructions(&mut out, &s.instructions, style);
    out
}

/// Seconds with as many decimals as they need, three at least where there are any.
fn duration(d: Duration) -> String {
    match (d.nsec, d.nsec % 1_000_000) {
        (0, _) => format!("{}s", d.sec),
        (_, 0) => format!("{}.{:03}s", d.sec, d.nsec / 1_000_000),
        _ => format!("{}.{:09}s", d.sec, d.nsec),
    }
}

/// The style in which a version's messages are printed.
impl Style<'static> {
    /// Numbers only, in the words of a version.
    pub const fn of(version: Version) -> Style<'static> {
        Style { version, names: None }
    }
}
