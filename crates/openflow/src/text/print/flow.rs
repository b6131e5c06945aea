//! Rules: their statistics, ends and changes.

use super::Printer;
use super::meter::duration;
use crate::Version;
use crate::model::{ANY_GROUP, FlowMonitorRequest, FlowRemoved, FlowStats, FlowStatsRequest, FlowUpdate, Port};
use crate::text::{instructions, matching, put_flow_stats};
use std::fmt::Write;

/// The event of a rule that exists when its monitor begins.
const INITIAL: u16 = 3;

/// The names of the reasons for which rules end.
const REASONS: [&str; 6] = ["idle", "hard", "delete", "group_delete", "meter_delete", "eviction"];

impl Printer<'_> {
    pub(super) fn flow_request(&mut self, request: &FlowStatsRequest) {
        if let Some(table) = request.table {
            self.out.push_str(" table=");
            self.out.push_str(&crate::text::table(table, self.style));
        }
        if request.out_port != Port::ANY {
            self.out.push_str(" out_port=");
            self.port(request.out_port);
        }
        let text = matching(&request.matching, self.style);
        if !text.is_empty() {
            self.out.push(' ');
            self.out.push_str(&text);
        }
    }

    pub(super) fn flows(&mut self, flows: &[FlowStats]) {
        for flow in flows {
            self.out.push_str("\n ");
            put_flow_stats(self.out, flow, true, self.style);
        }
    }

    pub(super) fn flow_removed(&mut self, removed: &FlowRemoved) {
        self.out.push(' ');
        self.match_with_priority(&removed.matching, removed.priority);
        self.out.push_str(" reason=");
        self.reason(removed.reason.into());
        if let Some(table) = removed.table.filter(|t| *t != 255) {
            self.out.push_str(" table_id=");
            self.out.push_str(&crate::text::table(table, self.style));
        }
        if removed.cookie != 0 {
            let _ = write!(self.out, " cookie:{:#x}", removed.cookie);
        }
        let _ = write!(
            self.out,
            " duration{} idle{}",
            duration(removed.duration),
            removed.idle_timeout
        );
        if removed.hard_timeout != 0 {
            let _ = write!(self.out, " hard{}", removed.hard_timeout);
        }
        let _ = writeln!(self.out, " pkts{} bytes{}", removed.packets, removed.bytes);
    }

    /// The match behind the priority, if that is not the usual one.
    fn match_with_priority(&mut self, m: &crate::model::Match, priority: u16) {
        let text = matching(m, self.style);
        if priority != 0x8000 {
            let _ = write!(self.out, "priority={priority}");
            if !text.is_empty() {
                self.out.push(',');
            }
        }
        self.out.push_str(&text);
    }

    fn reason(&mut self, reason: u16) {
        match REASONS.get(usize::from(reason)) {
            Some(name) => self.out.push_str(name),
            None => {
                let _ = write!(self.out, "{reason}");
            }
        }
    }

    pub(super) fn monitor_requests(&mut self, requests: &[FlowMonitorRequest]) {
        const FLAGS: [&str; 6] = ["initial", "add", "delete", "modify", "actions", "own"];
        const FLAGS14: [&str; 7] = ["initial", "add", "delete", "modify", "actions", "no_abbrev", "own"];
        let flags = if self.version < Version::V14 {
            &FLAGS[..]
        } else {
            &FLAGS14
        };
        for request in requests {
            let _ = write!(self.out, "\n id={} flags=", request.id);
            super::bits(self.out, request.flags.into(), ',', |n| flags.get(n as usize).copied());
            if request.out_port != Port::ANY {
                self.out.push_str(" out_port=");
                self.port(request.out_port);
            }
            if request.out_group != ANY_GROUP {
                let _ = write!(self.out, " out_group={}", request.out_group);
            }
            if let Some(table) = request.table {
                self.out.push_str(" table=");
                self.out.push_str(&crate::text::table(table, self.style));
            }
            let text = matching(&request.matching, self.style);
            if !text.is_empty() {
                self.out.push(' ');
                self.out.push_str(&text);
            }
        }
    }

    pub(super) fn flow_updates(&mut self, updates: &[FlowUpdate]) {
        for update in updates {
            self.out.push_str("\n event=");
            match update {
                FlowUpdate::Abbrev { xid } => {
                    let _ = write!(self.out, "ABBREV xid={xid:#x}");
                }
                FlowUpdate::Paused => self.out.push_str("PAUSED"),
                FlowUpdate::Resumed => self.out.push_str("RESUMED"),
                FlowUpdate::Full {
                    event,
                    reason,
                    idle_timeout,
                    hard_timeout,
                    table,
                    cookie,
                    matching: covers,
                    instructions: does,
                    ..
                } => {
                    match *event {
                        0 => self.out.push_str("ADDED"),
                        1 => {
                            self.out.push_str("DELETED reason=");
                            self.reason(*reason);
                        }
                        INITIAL => self.out.push_str("INITIAL"),
                        _ => self.out.push_str("MODIFIED"),
                    }
                    let _ = write!(self.out, " table={}", crate::text::table(*table, self.style));
                    if *idle_timeout != 0 {
                        let _ = write!(self.out, " idle_timeout={idle_timeout}");
                    }
                    if *hard_timeout != 0 {
                        let _ = write!(self.out, " hard_timeout={hard_timeout}");
                    }
                    let _ = write!(self.out, " cookie={} ", hash_hex64(*cookie));
                    let text = matching(covers, self.style);
                    self.out.push_str(&text);
                    if *does != Default::default() {
                        if !text.is_empty() {
                            self.out.push(' ');
                        }
                        let _ = write!(self.out, "actions={}", instructions(does, self.style));
                    }
                }
            }
        }
        // Only the last event loses the space of an empty match.
        if self.out.ends_with(' ') {
            self.out.pop();
        }
    }
}

/// As C's `%#x`: a zero has no `0x`.
fn hash_hex64(n: u64) -> String {
    match n {
        0 => "0".into(),
        n => format!("{n:#x}"),
    }
}
