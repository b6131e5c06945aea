//! Looking tables up: the rule that a packet meets, and what runs with it.

use super::freeze::Why;
use super::pipeline::Pipeline;
use super::report::Kind;
use super::translated::BridgeRule;
use super::{Credited, RuleRef, words};
use crate::FragMode;
use crate::dep::Read;
use flow::{Field, MatchField};
use openflow::model::{self, Instructions};
use std::sync::Arc;

/// How a list of actions ended.
pub(super) enum Ran {
    /// At its end, or with the whole translation.
    Through,
    /// Before its end, and the rule with it.
    Stopped,
    /// The packet froze; the list continues with the action of this index.
    Frozen(usize),
}

/// What a table is looked up by, where that is not the packet as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LookUp {
    /// Another ingress port, an OpenFlow number.
    pub(super) in_port: Option<u32>,
    /// The original direction of the packet's connection instead of its own addresses and ports.
    pub(super) ct: bool,
}

/// The result of a table lookup.
pub(super) enum Found {
    Rule(Arc<Instructions>),
    Nothing,
    /// None: the bridge drops fragments.
    Fragment,
}

impl Pipeline<'_> {
    /// Looks a table up, runs the rule found, and continues with the tables that rules go to.
    /// `misses` says whether the table's miss behaviour applies.
    ///
    /// Afterwards the packet is at the first rule again. That is the rule that the action set, a
    /// pause and their packet-ins belong to, as in Open vSwitch.
    pub(super) fn look_up(&mut self, table: u8, by: LookUp, misses: bool) {
        let (mut table, mut by, mut misses) = (table, by, misses);
        let (mut opened, mut first) = (0, None);
        loop {
            if !self.another_lookup(table) {
                break;
            }
            let found = self.rule(table, std::mem::take(&mut by));
            opened += 1;
            if std::mem::take(&mut self.packet.is_new) {
                if !self.mirror_received() {
                    break;
                }
                self.police_received();
            }
            let instructions = match found {
                Found::Rule(instructions) => instructions,
                Found::Nothing if misses => {
                    if !self.miss(table) {
                        break;
                    }
                    table += 1;
                    continue;
                }
                Found::Nothing | Found::Fragment => {
                    self.line(Kind::Action, |_| String::from("drop"));
                    break;
                }
            };
            misses = true;
            self.packet.place.table = table;
            first.get_or_insert(self.at());
            match self.run_rule(&instructions) {
                Some(next) if self.is_running() && self.has_room() => table = next,
                _ => break,
            }
        }
        if let Some(first) = first {
            self.go_to(first);
        }
        self.close(opened);
    }

    /// The table, cookie and rule that the packet is at.
    fn at(&self) -> (u8, u64, Option<BridgeRule>) {
        let place = &self.packet.place;
        (place.table, place.cookie, place.rule)
    }

    /// Puts the packet at a table, cookie and rule.
    pub(super) fn go_to(&mut self, at: (u8, u64, Option<BridgeRule>)) {
        let place = &mut self.packet.place;
        (place.table, place.cookie, place.rule) = at;
    }

    /// The action `resubmit`: looks a table up, then returns to the action list.
    pub(super) fn resubmit(&mut self, table: u8, by: LookUp) {
        let here = self.at();
        if !self.has_room() {
            return;
        }
        let deeper = u32::from(table <= here.0);
        self.budget.sink(deeper);
        if self.nest() {
            self.look_up(table, by, false);
            self.budget.unnest();
        }
        self.shallower(deeper);
        self.go_to(here);
    }

    /// Looks the packet up in a table. Opens a part of the report.
    #[inline(never)]
    pub(super) fn rule(&mut self, table: u8, by: LookUp) -> Found {
        let Some(bridge) = self.packet.place.bridge else {
            return Found::Nothing;
        };
        let untouched = by.in_port.is_none() && !by.ct && self.packet.untouched;
        let whole = Read::Table(bridge.id, table);
        self.depend(if untouched {
            Read::UntouchedIn(bridge.id, table)
        } else {
            whole
        });
        if untouched && self.has_uncounted_tag() {
            self.uncounted.push(whole);
        }
        let original = by.ct.then(|| self.with_original_tuple());
        let key = match by.in_port {
            None => words::words_of(original.as_ref().unwrap_or(&self.packet.state)),
            Some(port) => {
                let mut state = original.unwrap_or(self.packet.state);
                state.set(MatchField::InPortOxm, port.into());
                words::words_of(&state)
            }
        };
        if table == 0
            && let Some(rules) = bridge.hidden.rules()
            && let Some(found) = self.find(rules, &key)
        {
            self.packet.place.cookie = 0;
            self.packet.place.rule = None;
            self.open(Kind::Table, |_| format!("{table:2}. priority {}", found.priority));
            return Found::Rule(found.rule.instructions.clone());
        }
        let mut key = key;
        let fragment = self.packet.state.key.get(Field::IpFrag) != 0;
        if bridge.frags == FragMode::Drop {
            self.consult(Field::IpFrag, u128::MAX);
            if fragment {
                self.open(Kind::Table, |_| {
                    format!(r#"{table:2}. Packets are IP fragments and the fragment handling mode is "drop"."#)
                });
                return Found::Fragment;
            }
        }
        if fragment && bridge.frags == FragMode::Normal {
            words::clear_ports(&mut key);
        }
        if self.is_bare() {
            // `find` skips rules with conditions on Ethernet.
            self.consult(Field::PacketType, u128::MAX);
        }
        let rules = bridge.tables.table(table).map(|table| &table.rules);
        let found = rules.and_then(|rules| self.find(rules, &key));
        if words::has_ports(&self.consulted) {
            // Whether it is a fragment says whether these ports count.
            self.consult(Field::IpFrag, u128::MAX);
        }
        let matched = found.is_some();
        let lookup = Credited::Lookup {
            bridge: bridge.id,
            table,
            matched,
        };
        self.credits.push(lookup.credit());
        let Some(found) = found else {
            self.open(Kind::Table, |_| format!("{table:2}. No match."));
            return Found::Nothing;
        };
        let rule = BridgeRule {
            bridge: bridge.id,
            rule: RuleRef { table, id: found.id },
        };
        self.rules.push(rule);
        let credited = Credited::Rule {
            bridge: rule.bridge,
            rule: rule.rule,
        };
        self.credits.push(credited.credit());
        self.packet.place.cookie = found.rule.cookie;
        self.packet.place.rule = Some(rule);
        self.open(Kind::Table, |p| p.text_of_table(bridge, rule.rule, found.rule.cookie));
        Found::Rule(found.rule.instructions.clone())
    }

    /// Runs a rule. Returns the table that it goes to.
    fn run_rule(&mut self, instructions: &Arc<Instructions>) -> Option<u8> {
        if instructions.is_empty() {
            self.line(Kind::Action, |_| String::from("drop"));
        }
        if let Some(meter) = instructions.meter {
            self.line(Kind::Action, |_| format!("meter:{meter}"));
            self.meter(meter);
        }
        self.run_rest(&instructions.apply, Some(instructions))
    }

    /// Runs actions, then the rule's other instructions. Returns the table that the rule goes to.
    pub(super) fn run_rest(&mut self, actions: &[model::Action], then: Option<&Arc<Instructions>>) -> Option<u8> {
        match self.run_list(actions) {
            Ran::Through if self.exit || self.failed => None,
            Ran::Through => then.and_then(|then| self.run_instructions(then)),
            Ran::Stopped => None,
            Ran::Frozen(next) => {
                self.leave(&actions[next..], then);
                None
            }
        }
    }

    /// Runs the instructions after apply-actions. Returns the table that the rule goes to.
    fn run_instructions(&mut self, instructions: &Arc<Instructions>) -> Option<u8> {
        if self.packet.hidden && instructions.goto.is_some() {
            // The next table may look at anything.
            self.freeze(Why::Recirculate);
            self.leave(&[], Some(instructions));
            return None;
        }
        if instructions.clear {
            self.clear_actions();
        }
        if !instructions.write.is_empty() {
            self.write_actions(&instructions.write);
        }
        if let Some((value, mask)) = instructions.metadata {
            self.line(Kind::Action, |_| super::report::write_metadata(value, mask));
            self.packet.untouched = false;
            let kept = self.packet.state.get(MatchField::Metadata) & !u128::from(mask);
            self.packet
                .state
                .set(MatchField::Metadata, kept | u128::from(value & mask));
        }
        if let Some(table) = instructions.goto {
            self.line(Kind::Action, |p| p.text_of_goto(table));
        }
        instructions.goto
    }
}
