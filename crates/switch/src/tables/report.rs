//! The report of a translation for `ofproto/trace`: its rules and what their actions did, in Open
//! vSwitch's words.
//!
//! Without a trace, nothing is written: closures make the texts, and they are not called.

use super::RuleRef;
use super::pipeline::Pipeline;
use crate::bridge::Bridge;
use conntrack::Nat;
use dp::{DropCause, Key};
use flow::{Field, FlowState, MatchField, TAG_PRESENT};
use openflow::Version;
use openflow::model::{Action, FlowFlags, FlowMod, Instructions, Port, Subfield};
use openflow::text::{self, Names, Style};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The packet enters a bridge.
    Bridge,
    /// A table lookup, or the action set.
    Table,
    /// The packet continues from a recirculation context.
    Thaw,
    /// A bucket of a group.
    Bucket,
    /// An action.
    Action,
    /// A result of the action.
    Detail,
    /// A reason why the action did nothing.
    Warning,
    /// A reason why the whole packet is dropped.
    Error,
}

/// A line, and the lines under it.
#[derive(Debug)]
pub(crate) struct Node {
    kind: Kind,
    text: String,
    within: Vec<Node>,
}

/// The lines of a translation.
#[derive(Debug, Default)]
pub(crate) struct Report {
    done: Vec<Node>,
    /// Parts that are still open, the outermost first.
    open: Vec<Node>,
    /// Names of ports by bridge; empty where numbers are wanted.
    names: BTreeMap<u32, Names>,
    /// The last error.
    error: Option<String>,
    /// The packet at the end of its first bridge.
    last: Option<FlowState>,
    /// Whether the caller will apply the packet's effects.
    effective: bool,
    /// The number of open parts where a frozen packet continues.
    restoring: Option<usize>,
    /// Bits of the key that Open vSwitch would have in the megaflow.
    shown: Vec<(Field, u128)>,
    /// Whether an action asked for Open vSwitch's slow path.
    slow_path: bool,
    /// The fields of the tunnel that the packet was not sent through, which Open vSwitch leaves in
    /// the packet.
    left_tunnel: Option<Key>,
    /// Copies that were recirculated through the connection tracker.
    forked: Vec<Forked>,
    /// Bytes of the lines, with their indentation.
    bytes: usize,
}

/// A copy of a packet that passes the connection tracker and continues.
#[derive(Debug)]
pub(crate) struct Forked {
    /// The bridge, by its number in the switch.
    pub(crate) bridge: u32,
    /// The handle that it continues by.
    pub(crate) handle: u32,
    /// The packet before.
    pub(crate) state: FlowState,
    /// The zone.
    pub(crate) zone: u16,
    /// The translation of addresses that was asked for.
    pub(crate) nat: Option<Nat>,
}

/// The size of a report in bytes. Later lines are left out; the result is still reported.
const MOST: usize = 4 << 20;
/// Bytes counted for the indentation of a level and for a line besides its text.
const INDENT: usize = 8;

impl Report {
    /// A report that names ports, where `names` has any.
    pub(crate) fn new(names: BTreeMap<u32, Names>, effective: bool) -> Report {
        Report {
            names,
            effective,
            ..Report::default()
        }
    }

    /// The error for which the whole packet is dropped.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Bits of the key that Open vSwitch has in a megaflow, and this translation need not.
    pub(crate) fn shown(&self) -> &[(Field, u128)] {
        &self.shown
    }

    /// Whether an action asked for Open vSwitch's slow path.
    pub(crate) fn slow_path(&self) -> bool {
        self.slow_path
    }

    /// A packet with the tunnel that Open vSwitch has left in it; whether there is one.
    pub(crate) fn leave_tunnel(&self, state: &mut FlowState) -> bool {
        let Some(left) = &self.left_tunnel else { return false };
        state.key.copy_tunnel(left);
        true
    }

    /// The copies that were recirculated through the connection tracker.
    pub(crate) fn take_forked(&mut self) -> Vec<Forked> {
        std::mem::take(&mut self.forked)
    }

    /// The names of a bridge's ports.
    pub(crate) fn names(&self, bridge: u32) -> Option<&Names> {
        self.names.get(&bridge)
    }

    /// Whether there is room for another line. The line that says that the report ends is the last.
    fn has_room(&mut self) -> bool {
        let had = self.bytes <= MOST;
        self.bytes += INDENT * (1 + self.open.len());
        if had && self.bytes > MOST {
            self.add(Node {
                kind: Kind::Warning,
                text: format!("the report ends here: it is over {MOST} bytes long"),
                within: Vec::new(),
            });
        }
        self.bytes <= MOST
    }

    fn add(&mut self, node: Node) {
        self.bytes += node.text.len();
        let list = self.open.last_mut().map_or(&mut self.done, |part| &mut part.within);
        list.push(node);
    }

    /// Opens the part again that was closed last.
    fn reopen(&mut self) {
        let list = self.open.last_mut().map_or(&mut self.done, |part| &mut part.within);
        if let Some(part) = list.pop_if(|node| node.kind == Kind::Table) {
            self.open.push(part);
        }
    }

    fn close(&mut self) {
        // A part that there was no room for has no text and no lines.
        if let Some(part) = self.open.pop().filter(|part| !part.text.is_empty()) {
            self.bytes -= part.text.len();
            self.add(part);
        }
    }

    /// The text. Nested parts are indented, except the last one of a list.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        print(&mut out, &self.done, 0);
        out
    }
}

fn print(out: &mut String, nodes: &[Node], level: usize) {
    for (at, node) in nodes.iter().enumerate() {
        let is_part = matches!(node.kind, Kind::Bridge | Kind::Table | Kind::Thaw);
        let more = usize::from(at + 1 < nodes.len() || !is_part);
        if node.kind == Kind::Bridge {
            out.push('\n');
        }
        let indent = " ".repeat((level + more) * 4);
        let text = &node.text;
        let _ = match node.kind {
            Kind::Bridge => writeln!(out, "{indent}{text}\n{indent}{}", "-".repeat(text.len())),
            Kind::Table | Kind::Thaw | Kind::Action | Kind::Bucket => writeln!(out, "{indent}{text}"),
            Kind::Detail => writeln!(out, "{indent} -> {text}"),
            Kind::Warning => writeln!(out, "{indent} >> {text}"),
            Kind::Error => writeln!(out, "{indent} >>>> {text} <<<<"),
        };
        print(out, &node.within, level + 2 * more);
    }
}

impl Pipeline<'_> {
    /// Writes a report from here on.
    pub(crate) fn watch(&mut self, report: Report) {
        self.report = Some(Box::new(report));
    }

    /// The report, and the packet at the end of its first bridge.
    pub(crate) fn take_report(&mut self) -> (Report, Option<FlowState>) {
        let report = self.report.take().map_or_else(Report::default, |report| *report);
        let last = report.last;
        (report, last)
    }

    /// Notes a copy that passes the connection tracker.
    pub(super) fn note_fork(&mut self, handle: u32, zone: u16, nat: Option<Nat>) {
        let state = self.packet.state;
        let bridge = self.packet.place.bridge.map_or(0, |bridge| bridge.id);
        if let Some(report) = &mut self.report {
            report.forked.push(Forked {
                bridge,
                handle,
                state,
                zone,
                nat,
            });
        }
    }

    /// Notes the fields of a tunnel that the packet was not sent through.
    pub(super) fn note_left_tunnel(&mut self, fields: impl FnOnce(&Self) -> Key) {
        if self.report.is_some() {
            let fields = fields(self);
            if let Some(report) = &mut self.report {
                report.left_tunnel = Some(fields);
            }
        }
    }

    /// Does something with another packet, whose fields are not in the megaflow.
    pub(super) fn with_other_packet(&mut self, run: impl FnOnce(&mut Self)) {
        let shown = self.report.as_ref().map_or(0, |report| report.shown.len());
        run(self);
        if let Some(report) = &mut self.report {
            report.shown.truncate(shown);
        }
    }

    /// Notes the packet at the end of its first bridge.
    pub(super) fn note_last(&mut self) {
        let state = self.packet.state;
        if let Some(report) = self.report.as_mut().filter(|report| report.open.len() == 1) {
            report.last = Some(state);
        }
    }

    /// Opens the lookup of the bridge's first table again: later lines of the bridge stand under
    /// it. Returns the number of parts to close.
    pub(super) fn reopen(&mut self) -> usize {
        let Some(report) = &mut self.report else { return 0 };
        let before = report.open.len();
        report.reopen();
        report.open.len() - before
    }

    /// Whether the caller will not apply the packet's effects.
    pub(super) fn suppressed(&self) -> bool {
        self.report.as_ref().is_some_and(|report| !report.effective)
    }

    /// Notes that a frozen packet continues here, or has ended.
    pub(super) fn restoring(&mut self, on: bool) {
        if let Some(report) = &mut self.report {
            report.restoring = on.then_some(report.open.len());
        }
    }

    /// Has bits of a field in the megaflow that the report shows.
    pub(super) fn show(&mut self, field: Field, bits: u128) {
        if let Some(report) = &mut self.report {
            report.shown.push((field, bits));
        }
    }

    /// Adds bits to the mask that Open vSwitch does not have in a megaflow, so that a trace shows
    /// what it would have.
    pub(super) fn consult_unshown(&mut self, field: Field, bits: u128) {
        if self.report.is_none() {
            self.consult(field, bits);
        }
    }

    /// Does something whose reading of the packet Open vSwitch does not have in a megaflow.
    pub(super) fn unshown<R>(&mut self, read: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.report.is_some().then_some(self.consulted);
        let result = read(self);
        self.consulted = before.unwrap_or(self.consulted);
        result
    }

    /// Whether a trace leaves a field as it is: to Open vSwitch, a packet of protocol 0 has no IP
    /// header.
    pub(super) fn lacks(&self, field: Field) -> bool {
        let of_ip = matches!(
            field,
            Field::Ipv4Src
                | Field::Ipv4Dst
                | Field::Ipv6Src
                | Field::Ipv6Dst
                | Field::IpTos
                | Field::IpTtl
                | Field::Ipv6Label
        );
        of_ip && self.report.is_some() && self.packet.state.key.get(Field::IpProto) == 0
    }

    /// Shows that an action which gives a field a value looks at the protocol of the IP packet.
    pub(super) fn show_protocol(&mut self, field: MatchField) {
        use MatchField as F;
        if matches!(
            field,
            F::IpSrc | F::IpDst | F::Ipv6Src | F::Ipv6Dst | F::Ipv6Label | F::NwTtl
        ) {
            self.show(Field::IpProto, u128::MAX);
        }
    }

    /// Shows what NORMAL looks at in Open vSwitch.
    pub(super) fn show_normal(&mut self) {
        self.show(Field::EthSrc, u128::MAX);
        self.show(Field::EthDst, u128::MAX);
        self.show(Field::VlanTci0, (0xfff | TAG_PRESENT).into());
    }

    /// Adds a line.
    #[inline]
    pub(super) fn line(&mut self, kind: Kind, text: impl FnOnce(&Self) -> String) {
        if self.report.as_mut().is_some_and(|report| report.has_room()) {
            let text = text(self);
            if let Some(report) = &mut self.report {
                report.add(Node {
                    kind,
                    text,
                    within: Vec::new(),
                });
            }
        }
    }

    /// Adds a line and opens a part under it.
    #[inline]
    pub(super) fn open(&mut self, kind: Kind, text: impl FnOnce(&Self) -> String) {
        if let Some(report) = &mut self.report {
            let room = report.has_room();
            let text = if room { text(self) } else { String::new() };
            if let Some(report) = &mut self.report {
                report.bytes += text.len();
                report.open.push(Node {
                    kind,
                    text,
                    within: Vec::new(),
                });
            }
        }
    }

    /// Closes parts.
    #[inline]
    pub(super) fn close(&mut self, parts: usize) {
        if let Some(report) = &mut self.report {
            (0..parts).for_each(|_| report.close());
        }
    }

    #[inline]
    pub(super) fn detail(&mut self, text: impl FnOnce(&Self) -> String) {
        self.line(Kind::Detail, text);
    }

    #[inline]
    pub(super) fn warning(&mut self, text: impl FnOnce(&Self) -> String) {
        self.line(Kind::Warning, text);
    }

    /// Drops the whole packet and reports why.
    pub(super) fn fatal(&mut self, text: impl FnOnce(&Self) -> String) {
        self.fail(DropCause::TranslationLimit);
        if self.report.is_some() {
            let text = text(self);
            self.error(|_| text.clone());
            if let Some(report) = &mut self.report {
                report.error = Some(text);
            }
        }
    }

    /// Drops the whole packet; a trace ends with why.
    pub(super) fn failed_for(&mut self, cause: DropCause, why: &str) {
        self.fail(cause);
        if let Some(report) = &mut self.report {
            report.error = Some(why.to_owned());
        }
    }

    /// Continues after a fatal error, unless the budget has ended.
    pub(super) fn forgive(&mut self) {
        if self.budget.has_ended() {
            return;
        }
        self.failed = false;
        if let Some(report) = &mut self.report {
            report.error = None;
        }
    }

    /// Reports that an action asks for Open vSwitch's slow path, which this switch does not need.
    pub(super) fn ask_for_slow_path(&mut self) {
        if let Some(report) = &mut self.report {
            report.slow_path = true;
        }
    }

    pub(super) fn error(&mut self, text: impl FnOnce(&Self) -> String) {
        self.line(Kind::Error, text);
    }

    /// Reports the new value of bits of a field.
    pub(super) fn detail_of_bits(&mut self, bits: &Subfield) {
        self.detail(|p| {
            let value = match p.options() {
                Some(options) if bits.field().info().home == flow::Home::Elsewhere => {
                    options.read_bits(&p.packet.state, bits)
                }
                _ => {
                    p.packet.state.get(bits.field()) >> bits.ofs()
                        & (u128::MAX >> (128 - u32::from(bits.n_bits()).min(128)))
                }
            };
            let value = match bits.is_whole() {
                true => text::field_value(bits.field(), value, p.style()),
                false if value == 0 => String::from("0"),
                false => format!("{value:#x}"),
            };
            format!("{bits} is now {value}")
        });
    }

    fn style(&self) -> Style<'_> {
        let bridge = self.packet.place.bridge.map_or(0, |bridge| bridge.id);
        Style {
            version: Version::V13,
            names: self.report.as_ref().and_then(|report| report.names(bridge)),
        }
    }

    pub(super) fn text_of_action(&self, action: &Action) -> String {
        text::actions(std::slice::from_ref(action), self.style())
    }

    pub(super) fn text_of_actions(&self, list: &[Action]) -> String {
        text::actions(list, self.style())
    }

    /// An action set, which has numbers of ports always.
    pub(super) fn text_of_set(&self, list: &[Action]) -> String {
        text::actions(
            list,
            Style {
                names: None,
                ..self.style()
            },
        )
    }

    pub(super) fn text_of_port(&self, port: Port) -> String {
        text::port(port, self.style())
    }

    pub(super) fn text_of_goto(&self, table: u8) -> String {
        let restoring = |report: &Report| report.restoring == Some(report.open.len());
        if self.report.as_deref().is_some_and(restoring) {
            return format!("resubmit(,{table})");
        }
        let goto = Instructions {
            goto: Some(table),
            ..Instructions::default()
        };
        text::instructions(&goto, self.style())
    }

    pub(super) fn text_of_bridge(&self, bridge: &Bridge) -> String {
        let ids = &self.switch.bridge_ids;
        let name = ids.iter().find(|(_, id)| **id == bridge.id);
        format!("bridge(\"{}\")", name.map_or("", |(name, _)| name))
    }

    pub(super) fn text_of_table(&self, bridge: &Bridge, at: RuleRef, cookie: u64) -> String {
        let (priority, matching) = bridge.tables.describe(at).unwrap_or_default();
        self.text_of_entry(at.table, &matching, priority, cookie)
    }

    fn text_of_entry(&self, table: u8, matching: &openflow::model::Match, priority: u16, cookie: u64) -> String {
        let mut out = format!("{table:2}. {}", text::matching(matching, self.style()));
        if !matching.is_any() {
            out.push_str(", ");
        }
        let _ = write!(out, "priority {priority}");
        if cookie != 0 {
            let _ = write!(out, ", cookie {cookie:#x}");
        }
        out
    }

    /// A rule that is being learned.
    pub(super) fn text_of_rule(&self, change: &FlowMod) -> String {
        let matching = text::matching(&change.matching, self.style());
        let actions = text::actions(&change.instructions.apply, self.style());
        let separator = if matching.is_empty() { "" } else { " " };
        let mut out = format!("{matching}{separator}priority={}", change.priority);
        if let Some(cookie) = change.new_cookie.filter(|cookie| *cookie != 0) {
            let _ = write!(out, " cookie={cookie:#x}");
        }
        for (name, seconds) in [("idle", change.idle_timeout), ("hard", change.hard_timeout)] {
            if seconds != 0 {
                let _ = write!(out, " {name}={seconds}");
            }
        }
        if change.flags.has(FlowFlags::SEND_FLOW_REM) {
            out.push_str(" send_flow_rem");
        }
        out + " actions=" + &actions
    }
}

/// The instruction as text.
pub(super) fn write_metadata(value: u64, mask: u64) -> String {
    let field = MatchField::Metadata;
    let value = if value == 0 {
        String::from("0")
    } else {
        format!("{value:#x}")
    };
    match u128::from(mask) == field.info().valid {
        true => format!("write_metadata:{value}"),
        false => format!("write_metadata:{value}/{mask:#x}"),
    }
}
