//! The actions `learn`, which adds a rule, and `fin_timeout`, which shortens a rule's timeouts when
//! a TCP connection ends.
//!
//! A translation changes nothing. A rule to add is an effect: the caller applies it, and applies it
//! again while the megaflow carries packets. The packet itself sees the tables without the rule.

use super::budget::cost;
use super::pipeline::Pipeline;
use super::translated::Context;
use super::words;
use super::{FlowTables, Log};
use crate::dep::Read;
use classifier::Match;
use flow::{Field, Home, MatchField};
use nanos::Nanos;
use openflow::model::{
    self, Action, FlowCommand, FlowFlags, FlowMod, Instructions, Learn, LearnDst, LearnSpec, LearnSrc, Port, Value,
};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// A rule that a `learn` action adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    /// Its bridge, by its number in the switch.
    pub bridge: u32,
    /// The rule: a change of the rule of the same match and priority, or a new one.
    pub change: FlowMod,
    /// How many rules of its table may have its cookie; 0 for any number.
    pub limit: u32,
}

impl Hash for Learned {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let change = &self.change;
        (self.bridge, self.limit, change.table, change.new_cookie).hash(state);
        (change.priority, change.idle_timeout, change.hard_timeout, change.flags).hash(state);
        (&change.matching, &change.instructions).hash(state);
    }
}

/// The rules with `learn` actions that delete what they have learned (`delete_learned`).
#[derive(Debug, Default)]
pub(super) struct Makers {
    /// Their number, by table and cookie of the rules that they add.
    count: BTreeMap<(u8, u64), usize>,
    /// Tables and cookies whose last such rule was deleted.
    orphans: Vec<(u8, u64)>,
}

impl Makers {
    /// Notes that a rule with such an action is added or deleted.
    pub(super) fn note(&mut self, learn: &Learn, comes: bool) {
        if !learn.delete_learned {
            return;
        }
        let made = (learn.table, learn.cookie);
        let count = self.count.entry(made).or_default();
        if comes {
            *count += 1;
            return;
        }
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.count.remove(&made);
            self.orphans.push(made);
        }
    }

    /// Whether there are rules to be deleted.
    pub(super) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }
}

impl FlowTables {
    /// Deletes the rules whose learning rules have all been deleted.
    pub(crate) fn delete_orphans(&mut self, now: Nanos, log: &mut Log) {
        while let Some((table, cookie)) = self.makers.orphans.pop() {
            // A changed rule learns with the same table and cookie again.
            if self.makers.count.contains_key(&(table, cookie)) {
                continue;
            }
            let delete = FlowMod {
                command: FlowCommand::Delete,
                table: Some(table),
                cookie,
                cookie_mask: u64::MAX,
                ..FlowMod::default()
            };
            // A deletion cannot be refused.
            let _ = self.change(&delete, now, log);
        }
    }
}

/// A rule that this translation learns, in the words of the tables; `limit` counts it.
pub(super) struct Overlay {
    bridge: u32,
    table: u8,
    priority: u32,
    matching: Match<{ words::WORDS }>,
    cookie: u64,
}

impl Pipeline<'_> {
    /// The action `learn`.
    pub(super) fn learn(&mut self, learn: &Learn) {
        let Some(bridge) = self.packet.place.bridge else { return };
        if self.suppressed() {
            // The megaflow of a packet that learns depends on the fields that the rule gets.
            self.rule_of(learn);
            return self.warning(|_| String::from("suppressing side effects, so learn action ignored"));
        }
        if !self.spend(cost::LEARN + 8 * learn.specs.len() + self.overlays.len()) {
            return;
        }
        let change = self.rule_of(learn);
        let matching = bridge.tables.options().match_words(&change.matching.normalized());
        self.depend(Read::Table(bridge.id, learn.table));
        let priority = u32::from(learn.priority);
        let of_table = |rule: &&Overlay| rule.bridge == bridge.id && rule.table == learn.table;
        let known = bridge
            .tables
            .table(learn.table)
            .is_some_and(|table| table.rules.find_strict(&matching, priority).is_some());
        let made = |rule: &&Overlay| rule.priority == priority && rule.matching == matching;
        let known = known || self.overlays.iter().filter(of_table).any(|rule| made(&rule));
        if learn.limit != 0 && !known {
            let rules = bridge.tables.table(learn.table).map(|table| table.rules.len());
            if !self.spend(rules.unwrap_or_default() / 8) {
                return;
            }
        }
        let room = learn.limit == 0 || known || {
            let own = self
                .overlays
                .iter()
                .filter(of_table)
                .filter(|rule| rule.cookie == learn.cookie);
            let there = bridge
                .tables
                .count_cookie(learn.table, learn.cookie, learn.limit as usize);
            there + own.count() < learn.limit as usize
        };
        self.detail(|pipeline| {
            let table = learn.table;
            match room {
                true => format!("table={table} {}", pipeline.text_of_rule(&change)),
                false => String::from("exceeded limit for learn action"),
            }
        });
        if room {
            self.overlays.push(Overlay {
                bridge: bridge.id,
                table: learn.table,
                priority,
                matching,
                cookie: learn.cookie,
            });
            self.remember(Context::Learned(Box::new(Learned {
                bridge: bridge.id,
                change,
                limit: learn.limit,
            })));
        }
        if let Some(result) = &learn.result {
            self.write_bits(result, room.into());
            self.detail_of_bits(result);
        }
    }

    fn rule_of(&mut self, learn: &Learn) -> FlowMod {
        let mut matching = model::Match::ANY;
        let mut actions = Vec::new();
        if learn.fin_idle_timeout != 0 || learn.fin_hard_timeout != 0 {
            actions.push(Action::FinTimeout {
                idle: learn.fin_idle_timeout,
                hard: learn.fin_hard_timeout,
            });
        }
        for spec in &learn.specs {
            let value = self.value_of(spec);
            match &spec.dst {
                LearnDst::Match(dst) if dst.field() == MatchField::InPort => {
                    matching.set(MatchField::InPort, value, u128::MAX);
                }
                LearnDst::Match(dst) if dst.field().info().home == Home::Elsewhere => {
                    if let Some(options) = self.options() {
                        options.require(&mut matching, dst, value);
                    }
                }
                LearnDst::Match(dst) => {
                    let bits = bits_of(spec) << dst.ofs();
                    matching.set(dst.field(), value << dst.ofs(), bits);
                }
                LearnDst::Load(dst) if dst.field().info().home == Home::Elsewhere => {
                    actions.push(openflow::text::wide_load(*dst, value));
                }
                LearnDst::Load(dst) => {
                    let bits = bits_of(spec) << dst.ofs();
                    let whole = bits == dst.field().info().valid;
                    actions.push(match u64::try_from(value) {
                        Ok(value) if dst.n_bits() <= 64 => Action::Load { dst: *dst, value },
                        _ => Action::SetField {
                            field: dst.field(),
                            value: Value::Word(value << dst.ofs()),
                            mask: (!whole).then_some(Value::Word(bits)),
                        },
                    });
                }
                LearnDst::Output => {
                    let port = match spec.n_bits() {
                        ..=16 => Port(flow::port_from_of10(value as u16)),
                        _ => Port(value as u32),
                    };
                    actions.push(Action::Output { port, max_len: 0xffff });
                }
            }
        }
        FlowMod {
            command: FlowCommand::ModifyStrict,
            table: Some(learn.table),
            new_cookie: Some(learn.cookie),
            idle_timeout: learn.idle_timeout,
            hard_timeout: learn.hard_timeout,
            priority: learn.priority,
            flags: match learn.send_flow_rem {
                true => FlowFlags::SEND_FLOW_REM,
                false => FlowFlags::default(),
            },
            matching,
            instructions: Instructions::apply(actions),
            ..FlowMod::default()
        }
    }

    fn value_of(&mut self, spec: &LearnSpec) -> u128 {
        match &spec.src {
            LearnSrc::Field(src) => self.read_bits(src),
            LearnSrc::Immediate { value, .. } => *value,
        }
    }

    /// The action `fin_timeout`: shortens the rule's timeouts if the packet ends a connection.
    pub(super) fn fin_timeout(&mut self, idle: u16, hard: u16) {
        const FIN_RST: u128 = 0x5;
        let Some(rule) = self.packet.place.rule else { return };
        if !self.meets(flow::MatchPrerequisite::Tcp) {
            return;
        }
        self.consult_unshown(Field::TcpFlags, FIN_RST);
        if self.packet.state.key.get(Field::TcpFlags) & FIN_RST != 0 {
            self.remember(Context::Closing { rule, idle, hard });
        }
    }
}

/// The lowest bits of a specification's value.
fn bits_of(spec: &LearnSpec) -> u128 {
    u128::MAX >> (128 - u32::from(spec.n_bits()).min(128))
}
