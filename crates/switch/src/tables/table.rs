//! One table: its rules, its settings, its counters.

use super::evict::Eviction;
use super::rules::Rules;
use super::{FlowTables, TABLES};
use openflow::model::{self, Subfield};
use openflow::{OfError, Version};

/// What a table does when it has as many rules as it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// It refuses more.
    #[default]
    Refuse,
    /// A rule with a timeout goes: of the largest group, of the least importance, the one that ends
    /// first.
    Evict,
}

/// What the database says of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableSettings {
    /// What controllers see as its name; empty for the number.
    pub name: String,
    /// Most rules; any number for `None`.
    pub limit: Option<usize>,
    /// What it does beyond.
    pub overflow: Overflow,
    /// What rules have to have in common to be of one group, of which the largest has to make room.
    pub groups: Vec<Subfield>,
}

/// What becomes of a packet for which a table has no rule (OpenFlow 1.1 and 1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableMiss {
    /// What controllers of the packet's bridge expect.
    #[default]
    Default,
    /// It goes to the controllers.
    Controller,
    /// It goes on to the next table.
    Continue,
    /// It is dropped.
    Drop,
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) rules: Rules,
    pub(super) settings: TableSettings,
    /// The name that a controller gave it, which counts where the database has none.
    given_name: String,
    /// Whether a controller has asked for eviction.
    pub(super) evicts: bool,
    /// The rules that may be evicted, where some may.
    pub(super) eviction: Option<Eviction>,
    pub(super) watch: Option<Watch>,
    miss: TableMiss,
    lookups: u64,
    matched: u64,
}

/// What is told of a table's room next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    pub(super) down: u8,
    pub(super) up: u8,
    /// Whether it is a lack of room that is told next.
    pub(super) awaits_down: bool,
}

impl Table {
    pub(super) fn new(rules: Rules) -> Table {
        Table {
            rules,
            settings: TableSettings::default(),
            given_name: String::new(),
            evicts: false,
            eviction: None,
            watch: None,
            miss: TableMiss::Default,
            lookups: 0,
            matched: 0,
        }
    }

    pub(super) fn count(&mut self, matched: bool, packets: u64) {
        self.lookups += packets;
        self.matched += if matched { packets } else { 0 };
    }

    pub(super) fn set_miss(&mut self, miss: TableMiss) {
        self.miss = miss;
    }

    /// The room that there is, in percent of the limit.
    pub(super) fn room(&self) -> u8 {
        let rules = self.rules.len();
        // OpenFlow's numbers of rules have 32 bits.
        let limit = self.settings.limit.unwrap_or(u32::MAX as usize);
        if limit == 0 {
            return 100;
        }
        (limit.saturating_sub(rules) as u128 * 100 / limit as u128) as u8
    }
}

/// What the database would have to say for more rules to be refused; what messages tell.
const NOMINAL_LIMIT: u32 = 1_000_000;

impl FlowTables {
    /// What becomes of packets for which a table has no rule.
    pub fn miss(&self, table: u8) -> TableMiss {
        self.table(table).map_or(TableMiss::Default, |table| table.miss)
    }

    /// Whether the table gives rules up for others, whoever wants it.
    pub fn evicts(&self, table: u8) -> bool {
        self.table(table)
            .is_some_and(|table| table.evicts || table.settings.overflow == Overflow::Evict)
    }

    /// The table's vacancy, while somebody wants to hear of it.
    pub fn vacancy(&self, table: u8) -> Option<model::Vacancy> {
        let table = self.table(table)?;
        let watch = table.watch?;
        Some(model::Vacancy {
            down: watch.down,
            up: watch.up,
            now: table.room(),
        })
    }

    /// A table's name: the database's, or else a controller's, or none.
    pub fn table_name(&self, table: u8) -> &str {
        let Some(table) = self.table(table) else { return "" };
        match table.settings.name.as_str() {
            "" => &table.given_name,
            name => name,
        }
    }

    /// Gives tables names, or takes them away: all of them, or none.
    ///
    /// # Errors
    /// [`OfError::TffcEperm`] where the database has another name for a table.
    pub fn name_tables(&mut self, names: &[(u8, &str)]) -> Result<(), OfError> {
        let changed = names.iter().filter(|(table, name)| self.table_name(*table) != *name);
        let changed: Vec<(u8, &str)> = changed.copied().collect();
        let of_database = |table| self.table(table).is_some_and(|table| !table.settings.name.is_empty());
        if changed.iter().any(|(table, _)| of_database(*table)) {
            return Err(OfError::TffcEperm);
        }
        for (table, name) in changed {
            self.table_mut(table).given_name = name.to_owned();
        }
        Ok(())
    }

    /// How many rules a table may have, as messages tell: 1 000 000 where there is no limit, though
    /// more may come.
    pub fn max_entries(&self, table: u8) -> u32 {
        let limit = self.table(table).and_then(|table| table.settings.limit);
        limit.map_or(NOMINAL_LIMIT, |limit| u32::try_from(limit).unwrap_or(u32::MAX))
    }

    /// The counters of every table, as messages tell them. `wildcards` is OpenFlow 1.0's.
    pub fn table_stats(&self) -> Vec<model::TableStats> {
        /// All that OpenFlow 1.0's match has.
        const WILDCARDS: u32 = (1 << 22) - 1;
        let stats = |number: u8| {
            let there = self.table(number);
            model::TableStats {
                table: number,
                name: self.table_name(number).to_owned(),
                wildcards: WILDCARDS,
                max_entries: self.max_entries(number),
                miss: self.table_config(number, Version::V12),
                active: there.map_or(0, |table| table.rules.committed_len() as u32),
                lookups: there.map_or(0, |table| table.lookups),
                matched: there.map_or(0, |table| table.matched),
            }
        };
        (0..TABLES).map(stats).collect()
    }
}
