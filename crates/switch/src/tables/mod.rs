//! The OpenFlow tables of a bridge: rules, how they change, how they end.
//!
//! [`FlowTables`] is told what controllers ask ([`FlowTables::flow_mod`]), what datapaths have carried ([`FlowTables::credit`]) and that time
//! passed ([`FlowTables::tick`], due at [`FlowTables::next_event`]). What each of these changed comes back as values.
//!
//! Invariants
//! - A flow-mod is done as a whole or refused as a whole.
//! - Each rule with a timeout has one place in the queue of ends, never later than its end. A packet leaves the queue alone: a rule that is
//!   found used when its place is due gets another.
//! - A rule's handle is not used again, so what a datapath credits to a rule that is gone is lost, not given to another.
//! - Until the first change, [`FlowTables::is_builtin`] holds: the tables do what the fail mode says, and nobody needs to look into them.
#![deny(missing_docs)]

mod act;
mod action_set;
mod buckets;
mod change;
mod check;
mod commit;
mod conjunction;
mod ends;
mod fields;
mod freeze;
mod learn;
mod memos;
mod output;
mod page;
mod pipeline;
mod report;
mod rule;
mod spread;
mod translated;
mod words;

#[cfg(test)]
mod tests;

pub use change::{Changed, Condition};
pub use ends::Reason;
pub use freeze::Frozen;
pub use learn::Learned;
pub use page::{Cursor, Found};
pub use rule::{Removed, Rule, RuleRef};
pub use translated::{BridgeRule, ForController, Memo, Translated};

use crate::FailMode;
use classifier::{Classifier, Entry, Match, RuleId};
pub(crate) use memos::Memos;
use openflow::model;
pub(crate) use pipeline::Pipeline;
pub(crate) use report::Report;
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::Nanos;
use words::WORDS;

/// Tables that a bridge has, numbered from 0.
pub const TABLES: u8 = 254;

/// What a table does when it has as many rules as it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// It refuses more.
    #[default]
    Refuse,
    /// The rule of least importance goes; of those, the one that ends first.
    Evict,
}

/// The rules of a table.
type Rules = Classifier<Rule, WORDS>;

/// One table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) rules: Rules,
    /// Most rules; any number without it.
    limit: Option<usize>,
    overflow: Overflow,
    /// Of a table that evicts: importance, end (never last), rule.
    evictable: BTreeSet<(u16, Nanos, RuleId)>,
}

/// The tables of a bridge. See the module's page.
#[derive(Debug)]
pub struct FlowTables {
    seed: u64,
    /// By number; a table without rules, of which nobody has set anything, is not there.
    tables: Vec<Option<Box<Table>>>,
    /// When rules have to be looked at.
    queue: BTreeSet<(Nanos, RuleRef)>,
    builtin: bool,
}

impl FlowTables {
    /// The tables of a bridge without controller: as standalone it has one rule, to do as a switch without OpenFlow does. Who chooses packets
    /// must not know the seed.
    pub fn new(mode: FailMode, seed: u64, now: Nanos) -> FlowTables {
        let mut tables = FlowTables {
            seed,
            tables: Vec::new(),
            queue: BTreeSet::new(),
            builtin: true,
        };
        tables.tables.resize_with(usize::from(TABLES), || None);
        if mode == FailMode::Standalone {
            let output = model::Action::Output {
                port: model::Port::NORMAL,
                max_len: 0,
            };
            let rule = Rule::builtin(model::Instructions::apply(vec![output]), now);
            // The only rule there is: nothing can be in its way.
            let _ = tables.table_mut(0).rules.insert(&Match::ANY, 0, rule);
        }
        tables
    }

    /// Tables as [`FlowTables::new`] makes them, in which no handle of these means a rule.
    pub(crate) fn renewed(&self, mode: FailMode, now: Nanos) -> FlowTables {
        FlowTables::new(mode, flow::mix(self.seed, 1), now)
    }

    /// Whether nothing was changed since the tables were made.
    pub fn is_builtin(&self) -> bool {
        self.builtin
    }

    /// How many rules there are in all tables.
    pub fn len(&self) -> usize {
        self.tables.iter().flatten().map(|table| table.rules.len()).sum()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rules a table has.
    pub fn rules_in(&self, table: u8) -> usize {
        self.table(table).map_or(0, |table| table.rules.len())
    }

    /// The rule, unless it is gone.
    pub fn rule(&self, at: RuleRef) -> Option<&Rule> {
        self.table(at.table)?.rules.get(at.id)
    }

    /// A rule's priority and match, unless it is gone.
    pub fn describe(&self, at: RuleRef) -> Option<(u16, model::Match)> {
        let entry = self.table(at.table)?.rules.entry(at.id)?;
        Some((entry.priority as u16, words::match_of(&entry.matching())))
    }

    /// Shows all rules of a table, or of all tables, that meet a condition, table by table.
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
                let covered = table.rules.covered_by(&condition.matching);
                covered.iter().filter_map(|id| table.rules.entry(*id)).for_each(visit);
            }
        }
    }

    /// Adds what a datapath has carried by a rule since the last time, `used` being when the last packet came.
    pub fn credit(&mut self, at: RuleRef, packets: u64, bytes: u64, used: Nanos) {
        let table = self
            .tables
            .get_mut(usize::from(at.table))
            .and_then(Option::as_deref_mut);
        if let Some(rule) = table.and_then(|table| table.rules.get_mut(at.id)) {
            rule.credit(packets, bytes, used);
        }
    }

    /// How many rules of a table have a cookie; not more than `most` are counted.
    pub(crate) fn count_cookie(&self, table: u8, cookie: u64, most: usize) -> usize {
        let Some(table) = self.table(table) else { return 0 };
        let own = table.rules.iter().filter(|entry| entry.rule.cookie == cookie);
        own.take(most).count()
    }

    /// Sets how many rules a table may have (any number for `None`) and what it does beyond. Rules that are too many already stay.
    pub fn set_limit(&mut self, table: u8, limit: Option<usize>, overflow: Overflow) {
        if table >= TABLES {
            return;
        }
        let table = self.table_mut(table);
        table.limit = limit;
        table.overflow = overflow;
        table.evictable = match overflow {
            Overflow::Refuse => BTreeSet::new(),
            Overflow::Evict => table.rules.iter().map(|e| e.rule.rank(e.id)).collect(),
        };
    }

    pub(crate) fn table(&self, number: u8) -> Option<&Table> {
        self.tables.get(usize::from(number))?.as_deref()
    }

    fn table_mut(&mut self, number: u8) -> &mut Table {
        let seed = flow::mix(self.seed, number.into());
        self.tables[usize::from(number)].get_or_insert_with(|| {
            Box::new(Table {
                rules: Classifier::new(words::layout(), seed),
                limit: None,
                overflow: Overflow::Refuse,
                evictable: BTreeSet::new(),
            })
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

    /// Puts a rule in where there is none of its match and priority.
    fn put(
        &mut self,
        table: u8,
        matching: &Match<WORDS>,
        priority: u16,
        rule: Rule,
    ) -> Result<RuleRef, openflow::OfError> {
        let due = rule.end();
        let there = self.table_mut(table);
        let id = there
            .rules
            .insert(matching, priority.into(), rule)
            .map_err(|_| openflow::OfError::FmfcTableFull)?;
        if there.overflow == Overflow::Evict
            && let Some(rule) = there.rules.get(id)
        {
            there.evictable.insert(rule.rank(id));
        }
        let at = RuleRef { table, id };
        if let Some(due) = due {
            self.queue_at(at, due);
        }
        Ok(at)
    }

    /// Takes a rule out.
    fn take(&mut self, at: RuleRef, reason: Reason, now: Nanos) -> Option<Removed> {
        let (priority, matching) = self.describe(at)?;
        let table = self.tables.get_mut(usize::from(at.table))?.as_deref_mut()?;
        let rule = table.rules.remove(at.id)?;
        table.evictable.remove(&rule.rank(at.id));
        if let Some(queued) = rule.queued {
            self.queue.remove(&(queued, at));
        }
        Some(Removed {
            at,
            priority,
            matching,
            reason,
            when: now,
            rule,
        })
    }

    fn share(instructions: model::Instructions) -> Arc<model::Instructions> {
        Arc::new(instructions)
    }
}
