//! The OpenFlow tables of a bridge: rules, groups and meters, how they change, how they end.
//!
//! The input of [`FlowTables`] is messages of controllers ([`FlowTables::flow_mod`], others through
//! [`Switch`](crate::Switch)), the packets and bytes that datapaths have carried
//! ([`FlowTables::credit`]) and the time ([`FlowTables::tick`], due at [`FlowTables::next_event`]).
//! Each call returns its results as values: what became stale, and events for controllers that
//! asked for them.
//!
//! Flow-mods are in `change`, those of very many rules in `bulk`, group-mods in `group_mod`,
//! table-mods in `table_mod`, meters in `meter`; bundles in `journal`, and their versions of the
//! rules in `rules`; timeouts in `expiry`, eviction in `evict`; the packets that a change affects
//! in `invalidation`; the events of flow monitors in `update`.
//!
//! Invariants
//! - A flow-mod is done as a whole or refused as a whole; a bundle too, and packets see all of it
//!   at one moment.
//! - Each rule with a timeout has one place in the queue of ends, never later than its end. A
//!   packet leaves the queue alone: a rule that is found used when its place is due gets another.
//! - A rule's handle is not used again, so what a datapath credits to a rule that is gone is lost,
//!   not given to another.
//! - No call takes longer than in proportion to the rules that it changes, and those that may
//!   change many rules can be made in steps: bundles, ends, walks.
//! - Until the first change, [`FlowTables::is_builtin`] holds: the tables do what the fail mode
//!   says, and nobody needs to look into them.
#![deny(missing_docs)]

pub mod abilities;
mod act;
mod action_set;
mod additions;
mod bond;
mod buckets;
pub(crate) mod budget;
mod bulk;
mod capture;
mod change;
mod check;
mod commit;
mod condition;
mod conjunction;
pub(crate) mod contexts;
mod control;
mod credit;
mod ct;
mod evict;
mod expiry;
mod export;
mod fields;
mod freeze;
mod group;
mod group_mod;
mod guard;
mod hidden;
mod invalidation;
mod journal;
mod labels;
mod learn;
mod limits;
mod liveness;
mod look_up;
mod meter;
mod mirrors;
mod multicast;
mod multipath;
mod normal;
mod options;
mod output;
mod packet;
mod page;
mod pipeline;
mod report;
mod rule;
mod rules;
mod selection;
mod shared;
mod storm;
mod table;
mod table_mod;
pub(crate) mod tags;
mod translated;
mod tunnels;
mod types;
mod update;
pub(crate) mod words;

#[cfg(test)]
mod tests;

pub use additions::Additions;
pub use budget::{Limit, Patience, RanOut};
pub use capture::Captured;
pub use change::Changed;
pub use condition::Condition;
pub use control::ControlPort;
pub use credit::Credited;
pub use expiry::Reason;
pub use export::{OuterHeaders, Sampled, SampledTunnel};
pub use freeze::RecircContext;
pub(crate) use hidden::Hidden;
pub use hidden::HiddenRule;
pub use learn::Learned;
pub use options::{TunnelOptions, names_tunnel_options};
pub use page::{Cursor, Found};
pub use rule::{Removed, Rule, RuleRef};
pub use translated::{BridgeRule, Context, ForController, NewFlowRecord, Translated};

pub use group::{Group, GroupTable, MAX_GROUP, group_features};
pub(crate) use meter::MeterNumbers;
pub use meter::{Meter, MeterChange, MeterTable, meter_features, meter_stats};
pub use table::{Overflow, TableMiss, TableSettings};
pub(crate) use update::Log;
pub use update::{RuleImage, RuleUpdate, TableEvent};

use crate::FailMode;
use classifier::{Classifier, Entry, Match};
pub(crate) use invalidation::Stale;
use journal::Journal;
use nanos::Nanos;
use openflow::{OfError, model};
pub(crate) use pipeline::{Pipeline, Start};
pub(crate) use report::{Forked, Report};
use rules::{Rules, Span};
pub(crate) use selection::GroupChange;
use shared::Shared;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use table::Table;
use words::WORDS;

/// Number of tables of a bridge, from 0.
pub const TABLES: u8 = 254;

/// The tables of a bridge. See the module's page.
#[derive(Debug)]
pub struct FlowTables {
    seed: u64,
    /// By number; `None` for a table without rules and settings.
    tables: Vec<Option<Box<Table>>>,
    /// When to examine which rule for its timeouts.
    queue: BTreeSet<(Nanos, RuleRef)>,
    builtin: bool,
    builtin_rule: Option<RuleRef>,
    groups: GroupTable,
    meters: MeterTable,
    /// The rules that send to a group, by group.
    by_group: BTreeSet<(u32, RuleRef)>,
    /// The rules that use a meter, by meter.
    by_meter: BTreeSet<(u32, RuleRef)>,
    makers: learn::Makers,
    instructions: Shared,
    journal: Journal,
    /// Whether events have full images of the rules.
    monitored: bool,
    /// The mapping of tunnel options to fields.
    options: Arc<TunnelOptions>,
}

impl FlowTables {
    /// The tables of a bridge without a controller. In standalone mode they have one rule, with the
    /// action NORMAL. Senders of packets must not know the seed.
    pub fn new(mode: FailMode, seed: u64, now: Nanos) -> FlowTables {
        let mut tables = FlowTables {
            seed,
            tables: Vec::new(),
            queue: BTreeSet::new(),
            builtin: true,
            builtin_rule: None,
            groups: GroupTable::default(),
            meters: MeterTable::default(),
            by_group: BTreeSet::new(),
            by_meter: BTreeSet::new(),
            makers: learn::Makers::default(),
            instructions: Shared::new(seed),
            journal: Journal::default(),
            monitored: false,
            options: Arc::default(),
        };
        tables.tables.resize_with(usize::from(TABLES), || None);
        if mode == FailMode::Standalone {
            let output = model::Action::Output {
                port: model::Port::NORMAL,
                max_len: 0,
            };
            let rule = Rule::builtin(model::Instructions::apply(vec![output]), now);
            // The table has no other rule, so none conflicts.
            let id = tables.table_mut(0).rules.put(&Match::ANY, 0, rule);
            tables.builtin_rule = id.map(|id| RuleRef { table: 0, id });
        }
        tables
    }

    /// New tables as by [`FlowTables::new`], in which the handles of the old ones are invalid. They
    /// take over groups, meters and settings.
    pub(crate) fn renewed(&mut self, mode: FailMode, now: Nanos) -> FlowTables {
        let mut tables = FlowTables::new(mode, flow::mix(self.seed, 1), now);
        tables.groups = std::mem::take(&mut self.groups);
        tables.groups.abort();
        tables.meters = std::mem::take(&mut self.meters);
        tables.monitored = self.monitored;
        tables.options = self.options.clone();
        let mut log = Log::default();
        for (number, table) in (0..).zip(self.tables.iter_mut().map(Option::as_deref_mut)) {
            if let Some(table) = table {
                tables.configure_table(number, std::mem::take(&mut table.settings), now, &mut log);
            }
        }
        tables
    }

    /// Whether nothing has changed since the tables were made.
    pub fn is_builtin(&self) -> bool {
        self.builtin
    }

    /// The rule of new tables, while [`FlowTables::is_builtin`] holds; `None` if they have none.
    pub(crate) fn builtin_rule(&self) -> Option<RuleRef> {
        self.builtin_rule
    }

    /// The group with a number.
    pub fn group(&self, id: u32) -> Option<&Group> {
        self.groups.get(id)
    }

    /// The groups.
    pub fn groups(&self) -> &GroupTable {
        &self.groups
    }

    /// The meter with a number.
    pub fn meter(&self, id: u32) -> Option<&Meter> {
        self.meters.get(id)
    }

    /// The meters.
    pub fn meters(&self) -> &MeterTable {
        &self.meters
    }

    /// Number of rules that use a meter.
    pub fn metered(&self, id: u32) -> usize {
        users(&self.by_meter, id).count()
    }

    /// The descriptions of the first groups in this range of numbers, up to `most`; ascending.
    pub fn group_descriptions(&self, numbers: RangeInclusive<u32>, most: usize) -> Vec<model::GroupDesc> {
        self.groups.descriptions(numbers, most)
    }

    /// The counters of the first groups in this range of numbers, up to `most`; ascending.
    pub fn group_stats(&self, numbers: RangeInclusive<u32>, most: usize, now: Nanos) -> Vec<model::GroupStats> {
        let references = |id| users(&self.by_group, id).count();
        self.groups.stats(numbers, most, now, references)
    }

    /// Number of rules in all tables.
    pub fn len(&self) -> usize {
        self.tables
            .iter()
            .flatten()
            .map(|table| table.rules.committed_len())
            .sum()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of rules in a table.
    pub fn rules_in(&self, table: u8) -> usize {
        self.table(table).map_or(0, |table| table.rules.committed_len())
    }

    /// The rule, unless it was removed.
    pub fn rule(&self, at: RuleRef) -> Option<&Rule> {
        self.table(at.table)?.rules.get(at.id)
    }

    /// A rule's priority and match, unless it was removed.
    pub fn describe(&self, at: RuleRef) -> Option<(u16, model::Match)> {
        let entry = self.table(at.table)?.rules.entry(at.id)?;
        Some((entry.priority as u16, self.options.match_of(&entry.matching())))
    }

    /// Calls `show` for all rules of one or all tables that meet a condition, table by table.
    pub fn for_each(&self, table: Option<u8>, condition: &Condition, mut show: impl FnMut(RuleRef, u16, &Rule)) {
        for (number, table) in self.chosen(table) {
            let mut visit = |entry: Entry<'_, Rule, WORDS>| {
                if condition.accepts(entry.rule) {
                    let at = RuleRef {
                        table: number,
                        id: entry.id,
                    };
                    show(at, entry.priority as u16, entry.rule);
                }
            };
            if condition.is_any_match() {
                table.rules.iter().for_each(&mut visit);
            } else {
                let covered = classifier_covered(&table.rules, &condition.matching);
                covered.filter_map(|id| table.rules.entry(id)).for_each(visit);
            }
        }
    }

    /// Adds packets and bytes that a datapath has carried by a rule since the last time; `used` is
    /// when the last packet came.
    pub fn credit(&mut self, at: RuleRef, packets: u64, bytes: u64, used: Nanos) {
        if let Some(rule) = self.there(at.table).and_then(|table| table.rules.get_mut(at.id)) {
            rule.credit(packets, bytes, used);
        }
    }

    /// Number of rules of a table with a cookie, counted up to `most`.
    pub(crate) fn count_cookie(&self, table: u8, cookie: u64, most: usize) -> usize {
        let Some(table) = self.table(table) else { return 0 };
        let own = table.rules.iter().filter(|entry| entry.rule.cookie == cookie);
        own.take(most).count()
    }

    /// Adds packets and bytes that a datapath has carried through a bucket of a group. See
    /// [`Credited::Bucket`].
    pub fn credit_bucket(&mut self, group: u32, serial: u32, bucket: Option<u16>, packets: u64, bytes: u64) {
        self.groups.credit(group, serial, bucket, packets, bytes);
    }

    /// Adds packets that were looked up in a table to its counters.
    pub fn credit_lookups(&mut self, table: u8, matched: bool, packets: u64) {
        if table < TABLES {
            self.table_mut(table).count(matched, packets);
        }
    }

    /// Sets whether events have full images of the rules, for flow monitors.
    pub fn set_monitored(&mut self, monitored: bool) {
        self.monitored = monitored;
    }

    pub(crate) fn table(&self, number: u8) -> Option<&Table> {
        self.tables.get(usize::from(number))?.as_deref()
    }

    fn there(&mut self, number: u8) -> Option<&mut Table> {
        self.tables.get_mut(usize::from(number))?.as_deref_mut()
    }

    fn table_mut(&mut self, number: u8) -> &mut Table {
        let seed = flow::mix(self.seed, number.into());
        let (committed, latest) = self.journal.versions();
        self.tables[usize::from(number)].get_or_insert_with(|| {
            let rules = Classifier::new(words::layout(), seed);
            Box::new(Table::new(Rules::new(rules, committed, latest)))
        })
    }

    fn chosen(&self, table: Option<u8>) -> impl Iterator<Item = (u8, &Table)> {
        let all = self.tables.iter().enumerate();
        all.filter_map(move |(number, there)| {
            let number = number as u8;
            let wanted = table.is_none_or(|table| table == number);
            Some((number, there.as_deref().filter(|_| wanted)?))
        })
    }

    /// Adds a rule. There is none of its match and priority.
    fn put(&mut self, table: u8, matching: &Match<WORDS>, priority: u16, rule: Rule) -> Result<RuleRef, OfError> {
        let (due, instructions) = (rule.end(), rule.instructions.clone());
        let there = self.table_mut(table);
        let id = there
            .rules
            .put(matching, priority.into(), rule)
            .ok_or(OfError::FmfcTableFull)?;
        let at = RuleRef { table, id };
        self.refer(at, &instructions, true);
        if let Some(due) = due {
            self.queue_at(at, due);
        }
        Ok(at)
    }

    /// Removes a rule for good.
    fn take(&mut self, at: RuleRef) -> Option<Rule> {
        self.note_evictable(at, false);
        let rule = self.there(at.table)?.rules.take(at.id)?;
        if let Some(queued) = rule.queued {
            self.queue.remove(&(queued, at));
        }
        self.refer(at, &rule.instructions, false);
        self.instructions.release(&rule.instructions);
        Some(rule)
    }

    /// Notes that a rule refers to groups and meters, or that it no longer does.
    fn refer(&mut self, at: RuleRef, instructions: &model::Instructions, refers: bool) {
        let note = |set: &mut BTreeSet<(u32, RuleRef)>, id: u32| {
            if refers {
                set.insert((id, at));
            } else {
                set.remove(&(id, at));
            }
        };
        let (groups, meters, makers) = (&mut self.by_group, &mut self.by_meter, &mut self.makers);
        if let Some(meter) = instructions.meter {
            note(meters, meter);
        }
        for list in [&instructions.apply, &instructions.write] {
            condition::each_action(list, &mut |action| match action {
                model::Action::Group(group) => note(groups, *group),
                model::Action::Meter(meter) => note(meters, *meter),
                model::Action::Learn(learn) => makers.note(learn, refers),
                model::Action::Controller(model::Controller { meter: Some(meter), .. }) => note(meters, *meter),
                _ => {}
            });
        }
    }
}

/// The committed rules whose matches `matching` covers.
fn classifier_covered<'a>(rules: &'a Rules, matching: &Match<WORDS>) -> impl Iterator<Item = classifier::RuleId> + 'a {
    let all: &Classifier<Rule, WORDS> = rules;
    let committed = |id: &_| all.get(*id).is_some_and(|rule| rules.is_committed(rule));
    all.covered_by(matching).into_iter().filter(committed)
}

/// The rules that use a group or a meter.
fn users(index: &BTreeSet<(u32, RuleRef)>, id: u32) -> impl Iterator<Item = RuleRef> + '_ {
    let first = RuleRef {
        table: 0,
        id: classifier::RuleId::from_bits(0),
    };
    let used = index.range((id, first)..).take_while(move |(used, _)| *used == id);
    used.map(|(_, at)| *at)
}

/// The time since something was added, in whole milliseconds as Open vSwitch sends it.
fn duration(now: Nanos, since: Nanos) -> model::Duration {
    let age = now.since(since);
    model::Duration {
        sec: u32::try_from(age.as_secs()).unwrap_or(u32::MAX),
        nsec: age.subsec_millis() * 1_000_000,
    }
}
