//! What the log tells of connections: messages at debug level, and how many flow mods each peer
//! sent. The words and modules are Open vSwitch's, since test benches search for them.

use crate::conn::{Kind, Options};
use nanos::Nanos;
use openflow::model::FlowCommand;
use openflow::text::{Notice, print};
use openflow::{Hello, OfError, Versions};
use std::fmt::Write;
use std::time::Duration;
use telemetry::ratelimit::RateLimit;
use tracing::Level;

/// The module of messages.
const VCONN: &str = "vconn";

/// Messages that are logged per minute, and at once. Benches count on each of a few hundred.
static LIMIT: RateLimit = RateLimit::new(600, 600);

/// The name of a connection's socket: the part of its name after the bridge.
pub(crate) fn socket(name: &str) -> &str {
    name.split_once("<->").map_or(name, |(_, socket)| socket)
}

/// A connection's name in its bridge's lines.
pub(crate) fn full_name(bridge: &str, name: &str) -> String {
    format!("{bridge}<->{}", socket(name))
}

/// Logs states of a connection that its peer has opened.
pub(crate) fn state(bridge: &str, options: &Options, states: &[&str]) {
    if options.kind != Kind::Primary && tracing::enabled!(target: "rconn", Level::DEBUG) {
        for state in states {
            tracing::debug!(target: "rconn", "{}: {state}", full_name(bridge, &options.name));
        }
    }
}

/// Logs a received message.
pub(crate) fn received(name: &str, message: &[u8]) {
    log(name, "received", message);
}

/// Logs a message that is going to be sent.
pub(crate) fn sent(name: &str, message: &[u8]) {
    log(name, "sent (Success)", message);
}

fn log(name: &str, what: &str, message: &[u8]) {
    if !tracing::enabled!(target: VCONN, Level::DEBUG) {
        return;
    }
    let Some(dropped) = LIMIT.admit(VCONN) else { return };
    if let Some(dropped) = dropped {
        tracing::debug!(target: VCONN, "{dropped}");
    }
    let text = print::message(message, None, 1);
    tracing::debug!(target: VCONN, lines = true, "{}: {what}: {}", socket(name), text.trim_end_matches('\n'));
}

/// Logs that a request is refused, and what is wrong with its actions if they are why.
pub(crate) fn refused(bridge: &str, name: &str, error: OfError, request: &[u8]) {
    const ACTIONS: &str = "ofp_actions";
    static OF_ACTIONS: RateLimit = RateLimit::new(1, 5);
    static ERRORS: RateLimit = RateLimit::new(10, 10);
    if error.name().contains("BAC_")
        && let Some(dropped) = OF_ACTIONS.admit(ACTIONS)
    {
        if let Some(dropped) = dropped {
            tracing::warn!(target: ACTIONS, "{dropped}");
        }
        for notice in print::warnings(request) {
            if let Notice::Warning { text, .. } = notice {
                tracing::warn!(target: ACTIONS, lines = true, "{text}");
            }
        }
    }
    let Some(dropped) = ERRORS.admit("connmgr") else { return };
    if let Some(dropped) = dropped {
        tracing::info!(target: "connmgr", "{dropped}");
    }
    let (name, error) = (full_name(bridge, name), error.name());
    let kind = print::name(request).unwrap_or("invalid");
    tracing::info!(target: "connmgr", "{name}: sending {error} error reply to {kind} message");
}

/// Logs the version that both sides agreed on.
pub(crate) fn negotiated(name: &str, agreed: u8, ours: Versions, theirs: Hello) {
    if tracing::enabled!(target: VCONN, Level::DEBUG) {
        let theirs = theirs
            .bitmap
            .map_or_else(|| up_to(theirs.version), |bitmap| words(bitmap.bitmap()));
        let name = socket(name);
        tracing::debug!(
            target: VCONN,
            "{name}: negotiated OpenFlow version 0x{agreed:02x} (we support {}, peer supports {theirs})",
            words(ours.bitmap())
        );
    }
}

/// Versions in words. Bit n stands for version n.
fn words(bitmap: u32) -> String {
    let newest = 31 - (bitmap | 1).leading_zeros();
    let all_up_to_it = (1 << newest | ((1 << newest) - 1)) & !1;
    if bitmap == all_up_to_it {
        return up_to(newest as u8);
    }
    let numbers: Vec<String> = (0..32)
        .filter(|n| bitmap >> n & 1 != 0)
        .map(|n| format!("0x{n:02x}"))
        .collect();
    match &numbers[..] {
        [.., _, _] => format!("versions {}", numbers.join(", ")),
        _ => format!("version {}", numbers.concat()),
    }
}

fn up_to(newest: u8) -> String {
    match newest {
        ..=1 => format!("version 0x{newest:02x}"),
        _ => format!("version 0x{newest:02x} and earlier"),
    }
}

/// Time from a peer's first flow mod to the line about its flow mods.
const FIRST_REPORT: Duration = Duration::from_secs(10);
/// Time between that line and the next.
const REPORTS: Duration = Duration::from_secs(60);

/// A peer's flow mods since the last line about them.
#[derive(Debug, Default)]
pub(crate) struct FlowMods {
    adds: u64,
    deletes: u64,
    modifications: u64,
    /// When the first and the last of them came.
    first: Nanos,
    last: Nanos,
    /// When the line is due.
    due: Option<Nanos>,
    /// The earliest time of the next line.
    not_before: Nanos,
}

impl FlowMods {
    /// Counts some.
    pub(crate) fn count(&mut self, command: FlowCommand, count: u64, now: Nanos) {
        match command {
            FlowCommand::Add => self.adds += count,
            FlowCommand::Delete | FlowCommand::DeleteStrict => self.deletes += count,
            FlowCommand::Modify | FlowCommand::ModifyStrict => self.modifications += count,
        }
        if self.due.is_none() {
            self.first = now;
            let due = (now + FIRST_REPORT).max(self.not_before);
            self.not_before = due + REPORTS;
            self.due = Some(due);
        }
        self.last = now;
    }

    /// When the line is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// The line, if there were any; the next one begins.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<String> {
        self.due.take()?;
        let counts = [
            (std::mem::take(&mut self.adds), "adds"),
            (std::mem::take(&mut self.deletes), "deletes"),
            (std::mem::take(&mut self.modifications), "modifications"),
        ];
        let all: u64 = counts.iter().map(|(count, _)| count).sum();
        let ago = now.since(self.first).as_secs();
        let interval = self.last.since(self.first).as_secs();
        let mut line = format!("{all} flow_mods ");
        let _ = match interval {
            _ if interval == ago => write!(line, "in the last {ago} s"),
            0 => write!(line, "{ago} s ago"),
            _ => write!(line, "in the {interval} s starting {ago} s ago"),
        };
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
        let _ = write!(line, " ({})", counts.join(", "));
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Nanos {
        Nanos::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn flow_mods_are_summed_up_ten_seconds_after_the_first() {
        let mut mods = FlowMods::default();
        assert_eq!((mods.due(), mods.take(at(1))), (None, None));
        mods.count(FlowCommand::Add, 1, at(5));
        mods.count(FlowCommand::Add, 1, at(5));
        mods.count(FlowCommand::DeleteStrict, 1, at(5));
        assert_eq!(mods.due(), Some(at(15)));
        assert_eq!(
            mods.take(at(5)).as_deref(),
            Some("3 flow_mods in the last 0 s (2 adds, 1 deletes)")
        );
        mods.count(FlowCommand::Modify, 1, at(16));
        assert_eq!(mods.due(), Some(at(75)), "a minute after the line before");
        assert_eq!(
            mods.take(at(75)).as_deref(),
            Some("1 flow_mods 59 s ago (1 modifications)")
        );
        mods.count(FlowCommand::Add, 1, at(80));
        mods.count(FlowCommand::Add, 1, at(90));
        let line = mods.take(at(140));
        assert_eq!(
            line.as_deref(),
            Some("2 flow_mods in the 10 s starting 60 s ago (2 adds)")
        );
    }

    #[test]
    fn versions_are_named_as_in_open_vswitch() {
        assert_eq!(words(1 << 1), "version 0x01");
        assert_eq!(words(0b111_1110), "version 0x06 and earlier");
        assert_eq!(words(1 << 4), "version 0x04");
        assert_eq!(words(1 << 4 | 1 << 1), "versions 0x01, 0x04");
        assert_eq!(socket("br0<->tcp:192.0.2.1:6653"), "tcp:192.0.2.1:6653");
        assert_eq!(socket("unix#3"), "unix#3");
    }
}
