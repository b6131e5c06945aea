//! Table-mods, and descriptions of tables (OpenFlow 1.5.1 §7.3.4.3, §7.3.5.17).

use super::table::Watch;
use super::update::Log;
use super::{FlowTables, TABLES, TableMiss};
use openflow::model::{TableDesc, TableMod, eviction, table_config};
use openflow::{OfError, Version};

/// All tables, in a table-mod.
const ALL: u8 = 255;

/// What eviction goes by: other criteria (the largest group), importance, lifetime. It cannot be
/// changed.
const EVICTION_FLAGS: u32 = eviction::OTHER | eviction::IMPORTANCE | eviction::LIFETIME;

impl FlowTables {
    /// Carries out a table-mod. Returns the tables whose miss behaviour may change.
    pub(crate) fn table_mod(&mut self, change: &TableMod, version: Version, log: &mut Log) -> Result<Vec<u8>, OfError> {
        let numbers = match change.table {
            ALL => 0..TABLES,
            // The switch's hidden table.
            TABLES => return Err(OfError::TmfcEperm),
            table if table < TABLES => table..table + 1,
            _ => return Err(OfError::TmfcBadTable),
        };
        if version < Version::V14 {
            return self.set_misses(numbers, change.config, version);
        }
        let known = table_config::MISS_MASK | table_config::EVICTION | table_config::VACANCY;
        if change.config & !known != 0 {
            return Err(OfError::TmfcBadConfig);
        }
        let evicts = change.config & table_config::EVICTION != 0;
        if change.eviction.is_some_and(|flags| flags != EVICTION_FLAGS) {
            return Err(OfError::TmfcBadConfig);
        }
        let thresholds = change.vacancy.map(|vacancy| (vacancy.down, vacancy.up));
        if thresholds.is_some_and(|(down, up)| down > up || up > 100) {
            return Err(OfError::BpcBadValue);
        }
        let watches = change.config & table_config::VACANCY != 0;
        for number in numbers {
            // A table without any setting does not exist, and this table-mod does not make one
            // either.
            if self.table(number).is_none() && !evicts && !watches {
                continue;
            }
            let table = self.table_mut(number);
            table.evicts = evicts;
            self.prepare_eviction(number);
            let table = self.table_mut(number);
            let room = table.room();
            table.watch = watches.then(|| {
                let (down, up) = thresholds.or(table.watch.map(|w| (w.down, w.up))).unwrap_or((0, 0));
                let before = table.watch.map(|watch| watch.awaits_down);
                Watch {
                    down,
                    up,
                    awaits_down: before.unwrap_or(room >= up),
                }
            });
            self.watch_room(number, log);
        }
        Ok(Vec::new())
    }

    fn set_misses(&mut self, numbers: std::ops::Range<u8>, config: u32, version: Version) -> Result<Vec<u8>, OfError> {
        let miss = match config {
            // Since OpenFlow 1.3, table-miss rules decide this.
            _ if version >= Version::V13 => return Ok(Vec::new()),
            0 => TableMiss::Controller,
            1 => TableMiss::Continue,
            2 => TableMiss::Drop,
            _ => return Err(OfError::TmfcBadConfig),
        };
        let mut changed = Vec::new();
        for number in numbers {
            if self.miss(number) != miss {
                self.table_mut(number).set_miss(miss);
                changed.push(number);
            }
        }
        self.builtin &= changed.is_empty();
        Ok(changed)
    }

    /// A table's configuration for messages of a version: miss behaviour up to OpenFlow 1.2,
    /// eviction and vacancy events since OpenFlow 1.4.
    pub fn table_config(&self, table: u8, version: Version) -> u32 {
        if version < Version::V13 {
            return match self.miss(table) {
                TableMiss::Default | TableMiss::Controller => 0,
                TableMiss::Continue => 1,
                TableMiss::Drop => 2,
            };
        }
        if version < Version::V14 {
            return 0;
        }
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        bit(self.evicts(table), table_config::EVICTION) | bit(self.vacancy(table).is_some(), table_config::VACANCY)
    }

    /// A table's description (OpenFlow 1.4 and later).
    pub fn table_desc(&self, table: u8) -> TableDesc {
        TableDesc {
            table,
            config: self.table_config(table, Version::V14),
            eviction: Some(EVICTION_FLAGS),
            vacancy: self.vacancy(table),
        }
    }
}
