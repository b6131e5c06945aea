//! Eviction: which rules are removed to make room for others.

use super::update::{Log, TableEvent};
use super::{FlowTables, Overflow, Reason, Rule, RuleRef, Span, TABLES, TableSettings, WORDS, words};
use classifier::{Match, RuleId};
use nanos::Nanos;
use openflow::OfError;
use openflow::model::{Subfield, TableStatus};
use std::collections::{BTreeMap, BTreeSet};

/// Reasons of a table status message (OpenFlow 1.5.1 §7.4.5).
const VACANCY_DOWN: u8 = 3;
/// See [`VACANCY_DOWN`].
const VACANCY_UP: u8 = 4;

/// Importance, known expiry, rule: the lowest rank is evicted first.
type Rank = (u16, Nanos, RuleId);

/// The rules of a table that may be evicted, which are those with timeouts, in groups.
#[derive(Debug)]
pub(super) struct Eviction {
    seed: u64,
    groups: BTreeMap<u64, BTreeSet<Rank>>,
    /// Sizes and groups.
    by_size: BTreeSet<(usize, u64)>,
}

impl Eviction {
    fn new(seed: u64) -> Eviction {
        Eviction {
            seed,
            groups: BTreeMap::new(),
            by_size: BTreeSet::new(),
        }
    }

    fn change(&mut self, group: u64, change: impl FnOnce(&mut BTreeSet<Rank>)) {
        let rules = self.groups.entry(group).or_default();
        let before = rules.len();
        change(rules);
        let after = rules.len();
        if after == 0 {
            self.groups.remove(&group);
        }
        if before != after {
            self.by_size.remove(&(before, group));
            if after > 0 {
                self.by_size.insert((after, group));
            }
        }
    }

    /// The next rule to evict, if any: in the largest group, the one of the lowest importance that
    /// expires first.
    fn first(&self) -> Option<RuleId> {
        let (largest, _) = self.by_size.last()?;
        let groups = self.by_size.range((*largest, 0)..);
        let firsts = groups.filter_map(|(_, group)| self.groups.get(group)?.first());
        firsts.min().map(|(_, _, id)| *id)
    }
}

/// The group of a rule as a number: two groups share it only if their 64-bit hashes collide. With a
/// secret seed, senders whose packets make rules by `learn` cannot choose rules that fall into
/// another group.
fn group_of(seed: u64, fields: &[Subfield], matching: &Match<WORDS>) -> u64 {
    fields.iter().fold(seed, |hash, part| {
        let bits = words::get(matching.value(), part.field()) >> part.ofs();
        let bits = bits & (u128::MAX >> (128 - u32::from(part.n_bits()).clamp(1, 128)));
        flow::mix(flow::mix(hash, bits as u64), (bits >> 64) as u64)
    })
}

fn rank(rule: &Rule, id: RuleId) -> Option<Rank> {
    Some((rule.importance, rule.queued?, id))
}

impl FlowTables {
    /// Applies the database's settings of a table. If the table then has too many rules and allows
    /// eviction, rules are evicted.
    pub fn set_table(&mut self, table: u8, settings: TableSettings, now: Nanos) -> Vec<super::Removed> {
        let mut log = Log {
            everything: true,
            ..self.log()
        };
        self.configure_table(table, settings, now, &mut log);
        let removed = log.events.into_iter().filter_map(|event| match event {
            TableEvent::Removed(removed) => Some(removed),
            _ => None,
        });
        removed.collect()
    }

    pub(crate) fn configure_table(&mut self, number: u8, settings: TableSettings, now: Nanos, log: &mut Log) {
        if number >= TABLES || self.table(number).is_none() && settings == TableSettings::default() {
            return;
        }
        let table = self.table_mut(number);
        if table.settings == settings {
            return;
        }
        table.settings = settings;
        table.eviction = None;
        self.prepare_eviction(number);
        while self.is_full(number, 0) && self.evict_one(number, now, log) {}
        self.watch_room(number, log);
    }

    /// Builds the eviction groups of a table, or drops them if the table does not evict.
    pub(super) fn prepare_eviction(&mut self, number: u8) {
        let (evicts, seed) = (self.evicts(number), self.seed);
        let Some(table) = self.there(number) else { return };
        if !evicts {
            table.eviction = None;
        } else if table.eviction.is_none() {
            let mut eviction = Eviction::new(seed);
            for entry in table.rules.iter().filter(|entry| entry.rule.span == Span::Always) {
                if let Some(rank) = rank(entry.rule, entry.id) {
                    let group = group_of(seed, &table.settings.groups, &entry.matching());
                    eviction.change(group, |rules| _ = rules.insert(rank));
                }
            }
            table.eviction = Some(eviction);
        }
    }

    /// Notes whether a rule may be evicted.
    pub(super) fn note_evictable(&mut self, at: RuleRef, may: bool) {
        let Some(table) = self.there(at.table) else { return };
        let Some(eviction) = &mut table.eviction else { return };
        let Some(entry) = table.rules.entry(at.id) else { return };
        let Some(rank) = rank(entry.rule, at.id) else { return };
        if may && matches!(entry.rule.span, Span::Until(_)) {
            return;
        }
        let group = group_of(eviction.seed, &table.settings.groups, &entry.matching());
        eviction.change(group, |rules| {
            if may {
                rules.insert(rank);
            } else {
                rules.remove(&rank);
            }
        });
    }

    /// Makes room in a table for one more rule.
    pub(super) fn make_room(&mut self, table: u8, now: Nanos, log: &mut Log) -> Result<(), OfError> {
        while self.is_full(table, 1) {
            if !self.evict_one(table, now, log) {
                return Err(OfError::FmfcTableFull);
            }
        }
        Ok(())
    }

    /// Whether a table has no room for this many more rules.
    fn is_full(&self, table: u8, more: usize) -> bool {
        let Some(table) = self.table(table) else { return false };
        table
            .settings
            .limit
            .is_some_and(|limit| table.rules.len() + more > limit)
    }

    fn evict_one(&mut self, table: u8, now: Nanos, log: &mut Log) -> bool {
        loop {
            let first = self.table(table).and_then(|table| table.eviction.as_ref()?.first());
            let Some(id) = first else { return false };
            let at = RuleRef { table, id };
            // The rule may have had packets since it was queued.
            match self.rule(at).map(|rule| (rule.queued, rule.end())) {
                Some((Some(queued), Some(end))) if queued < end => self.queue_at(at, end),
                _ => {
                    self.drop_rule(at, Reason::Eviction, now, log);
                    return true;
                }
            }
        }
    }

    /// Reports a vacancy event if the room in a table has crossed a threshold.
    pub(super) fn watch_room(&mut self, number: u8, log: &mut Log) {
        let Some(table) = self.there(number) else { return };
        let room = table.room();
        let Some(watch) = &mut table.watch else { return };
        let awaits_down = watch.awaits_down;
        if !(awaits_down && room < watch.down || !awaits_down && room > watch.up) {
            return;
        }
        watch.awaits_down = !awaits_down;
        log.events.push(TableEvent::Status(TableStatus {
            reason: if awaits_down { VACANCY_DOWN } else { VACANCY_UP },
            desc: self.table_desc(number),
        }));
    }

    /// Sets the maximum number of rules of a table (`None` for no limit) and its overflow policy.
    /// Existing rules beyond the maximum stay.
    pub fn set_limit(&mut self, table: u8, limit: Option<usize>, overflow: Overflow) {
        if table >= TABLES {
            return;
        }
        let there = self.table_mut(table);
        (there.settings.limit, there.settings.overflow) = (limit, overflow);
        self.prepare_eviction(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Field, FlowState, Key, MatchField};

    #[test]
    fn rules_whose_groups_would_collide_without_a_seed_have_groups_of_their_own() {
        let part = Subfield::whole(MatchField::Ipv6Src);
        let group = |seed, high: u64, low: u64| {
            let mut key = Key::default();
            key.set(Field::Ipv6Src, u128::from(high) << 64 | u128::from(low));
            let words = words::words_of(&FlowState::new(key, 0));
            group_of(seed, &[part], &Match::new(&words, &[u64::MAX; WORDS]))
        };
        // With a known seed, a sender knows the input of the last step and can choose the word that
        // makes it zero.
        let crafted = |low: u64| (0x9e37_79b9_7f4a_7c15 ^ flow::mix(0, low), low);
        let of_all = |seed| {
            (1..9)
                .map(crafted)
                .map(|(high, low)| group(seed, high, low))
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(of_all(0).len(), 1);
        assert_eq!(of_all(7).len(), 8);
    }
}
