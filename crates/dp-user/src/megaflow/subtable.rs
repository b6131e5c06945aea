//! The hash tables of the tuple space, one for each mask.

use super::storage::Storage;
use crate::hash::{KeyHasher, MaskPairs};
use dp::Region;
use flow::{Key, Mask};
use hashbrown::{HashMap, HashTable};

/// All subtables of a table of megaflows.
#[derive(Default)]
pub(super) struct Subtables {
    /// By number; one without entries is free for another mask.
    tables: Vec<Subtable>,
    by_mask: HashMap<Mask, u32>,
    /// Numbers of those in use, most hits first.
    order: Vec<u32>,
    free: Vec<u32>,
}

struct Subtable {
    mask: Mask,
    pairs: MaskPairs,
    entries: HashTable<Entry>,
    /// Hits, halved at each sweep.
    hits: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    flow: u32,
}

impl Subtables {
    /// How many masks are in use.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn has(&self, mask: &Mask) -> bool {
        self.by_mask.contains_key(mask)
    }

    pub(super) fn mask(&self, subtable: u32) -> &Mask {
        &self.tables[subtable as usize].mask
    }

    #[inline]
    pub(super) fn pairs(&self, subtable: u32) -> &MaskPairs {
        &self.tables[subtable as usize].pairs
    }

    /// The first megaflow found that covers a key.
    #[inline]
    pub(super) fn lookup(&mut self, hasher: &KeyHasher, key: &Key, storage: &Storage) -> Option<u32> {
        for &number in &self.order {
            let table = &mut self.tables[number as usize];
            let hash = hasher.masked(key, &table.pairs) as u32;
            let found = table.entries.find(spread(hash), |entry| {
                entry.hash == hash
                    && storage
                        .get(entry.flow)
                        .is_some_and(|flow| table.pairs.matches(key, &flow.key))
            });
            if let Some(entry) = found {
                table.hits += 1;
                return Some(entry.flow);
            }
        }
        None
    }

    /// The megaflow of exactly this masked key.
    pub(super) fn find(&self, subtable: u32, hash: u64, masked: &Key, storage: &Storage) -> Option<u32> {
        let table = &self.tables[subtable as usize];
        let hash = hash as u32;
        let found = table.entries.find(spread(hash), |entry| {
            entry.hash == hash && storage.get(entry.flow).is_some_and(|flow| flow.key == *masked)
        });
        found.map(|entry| entry.flow)
    }

    /// Adds the megaflows that cover a packet of a region to `found`; returns how many it looked at, or `None` where that would be more than
    /// `most`.
    pub(super) fn overlapping(
        &self,
        hasher: &KeyHasher,
        region: &Region,
        storage: &Storage,
        most: usize,
        found: &mut Vec<u32>,
    ) -> Option<usize> {
        let mut looked_at = 0;
        for &number in &self.order {
            let table = &self.tables[number as usize];
            let both = table.mask.intersection(&region.mask);
            if both == table.mask {
                // The region says all that the mask looks at: there is one such megaflow at most.
                let masked = region.key.masked(&table.mask);
                found.extend(self.find(number, hasher.masked(&masked, &table.pairs), &masked, storage));
                looked_at += 1;
                continue;
            }
            looked_at += table.entries.len();
            if looked_at > most {
                break;
            }
            let covers = |entry: &&Entry| {
                storage
                    .get(entry.flow)
                    .is_some_and(|flow| both.eq_key(&flow.key, &region.key))
            };
            found.extend(table.entries.iter().filter(covers).map(|entry| entry.flow));
        }
        (looked_at <= most).then_some(looked_at)
    }

    /// The subtable of a mask, made where there is none.
    pub(super) fn of(&mut self, mask: &Mask) -> u32 {
        if let Some(number) = self.by_mask.get(mask) {
            return *number;
        }
        let table = Subtable {
            mask: *mask,
            pairs: MaskPairs::new(mask),
            entries: HashTable::new(),
            hits: 0,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.tables[number as usize] = table;
                number
            }
            None => {
                self.tables.push(table);
                self.tables.len() as u32 - 1
            }
        };
        self.by_mask.insert(*mask, number);
        self.order.push(number);
        number
    }

    pub(super) fn insert(&mut self, subtable: u32, hash: u64, flow: u32) {
        let entry = Entry {
            hash: hash as u32,
            flow,
        };
        let entries = &mut self.tables[subtable as usize].entries;
        entries.insert_unique(spread(entry.hash), entry, |entry| spread(entry.hash));
    }

    /// Removes a megaflow, and its subtable where it was the last.
    pub(super) fn remove(&mut self, subtable: u32, hash: u32, flow: u32) {
        let table = &mut self.tables[subtable as usize];
        if let Ok(entry) = table.entries.find_entry(spread(hash), |entry| entry.flow == flow) {
            entry.remove();
        }
        if table.entries.is_empty() {
            table.entries = HashTable::new();
            self.by_mask.remove(&table.mask);
            self.order.retain(|number| *number != subtable);
            self.free.push(subtable);
        }
    }

    /// Sorts by hits, and lets the past count half.
    pub(super) fn rank(&mut self) {
        let tables = &mut self.tables;
        self.order
            .sort_unstable_by_key(|number| std::cmp::Reverse(tables[*number as usize].hits));
        for table in tables {
            table.hits /= 2;
        }
    }
}

/// The hash as the hash table wants it: it takes its index from the low bits and seven bits of tag from the top.
#[inline(always)]
fn spread(hash: u32) -> u64 {
    u64::from(hash) | u64::from(hash) << 32
}
