//! One table: rules, settings, counters.

use super::evict::Eviction;
use super::rules::Rules;
use super::{FlowTables, TABLES};
use openflow::model::{self, Subfield};
use openflow::{OfError, Version};

/// What a full table does with a new rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// It refuses the rule.
    #[default]
    Refuse,
    /// It evicts a rule with a timeout: in the largest group, the one of the lowest importance that
    /// expires first.
    Evict,
}

/// The database's settings of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableSettings {
    /// Its name in OpenFlow messages; if empty, its number.
    pub name: String,
    /// Maximum number of rules; `None` for no limit.
    pub limit: Option<usize>,
    /// What it does when it is full.
    pub overflow: Overflow,
    /// The fields that define its eviction groups; the largest group loses a rule first.
    pub groups: Vec<Subfield>,
}

/// What a table does with a packet that matches no rule (OpenFlow 1.1 and 1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableMiss {
    /// The default of the OpenFlow version of the bridge's controllers.
    #[default]
    Default,
    /// It sends the packet to the controllers.
    Controller,
    /// The packet continues with the next table.
    Continue,
    /// It drops the packet.
    Drop,
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) rules: Rules,
    pub(super) settings: TableSettings,
    /// The name that a controller has set. A name in the database overrides it.
    given_name: String,
    /// Whether a controller has enabled eviction.
    pub(super) evicts: bool,
    /// The rules that may be evicted, if the table evicts.
    pub(super) eviction: Option<Eviction>,
    pub(super) watch: Option<Watch>,
    miss: TableMiss,
    lookups: u64,
    matched: u64,
}

/// The thresholds of vacancy events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    pub(super) down: u8,
    pub(super) up: u8,
    /// Whether the next event reports a lack of room.
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

    /// The vacancy: free room in percent of the limit.
    pub(super) fn room(&self) -> u8 {
        let rules = self.rules.len();
        // OpenFlow counts rules in 32 bits.
        let limit = self.settings.limit.unwrap_or(u32::MAX as usize);
        if limit == 0 {
            return 100;
        }
        (limit.saturating_sub(rules) as u128 * 100 / limit as u128) as u8
    }
}

/// The maximum that messages report for a table without a limit.
const NOMINAL_LIMIT: u32 = 1_000_000;

impl FlowTables {
    /// What a table does with packets that match no rule.
    pub fn miss(&self, table: u8) -> TableMiss {
        self.table(table).map_or(TableMiss::Default, |table| table.miss)
    }

    /// Whether the table evicts rules for new ones, by any setting.
    pub fn evicts(&self, table: u8) -> bool {
        self.table(table)
            .is_some_and(|table| table.evicts || table.settings.overflow == Overflow::Evict)
    }

    /// The vacancy, while a controller has enabled vacancy events.
    pub fn vacancy(&self, table: u8) -> Option<model::Vacancy> {
        let table = self.table(table)?;
        let watch = table.watch?;
        Some(model::Vacancy {
            down: watch.down,
            up: watch.up,
            now: table.room(),
        })
    }

    /// A table's name: the database's, otherwise a controller's; may be empty.
    pub fn table_name(&self, table: u8) -> &str {
        let Some(table) = self.table(table) else { return "" };
        match table.settings.name.as_str() {
            "" => &table.given_name,
            name => name,
        }
    }

    /// Sets or removes names of tables: all of them, or none.
    ///
    /// # Errors
    /// [`OfError::TffcEperm`] if the database has another name for a table.
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

    /// The maximum number of rules that messages report: 1 000 000 if there is no limit, though the
    /// table takes more.
    pub fn max_entries(&self, table: u8) -> u32 {
        let limit = self.table(table).and_then(|table| table.settings.limit);
        limit.map_or(NOMINAL_LIMIT, |limit| u32::try_from(limit).unwrap_or(u32::MAX))
    }

    /// The counters of every table for messages. `wildcards` is OpenFlow 1.0's.
    pub fn table_stats(&self) -> Vec<model::TableStats> {
        /// All wildcards of OpenFlow 1.0.
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
