//! The hash tables of the tuple space, one for each mask.

use super::index::Index;
use super::storage::Storage;
use crate::batch::{BATCH, Run};
use crate::hash::{KeyHasher, MaskPairs};
use crate::signature::NONE;
use dp::Region;
use flow::{Key, Mask};
use hashbrown::HashMap;

/// Number of megaflows whose keys are prefetched at once.
const AT_ONCE: usize = 16;

/// All subtables of a table of megaflows.
#[derive(Default)]
pub(super) struct Subtables {
    /// By number; one without entries is free for another mask.
    tables: Vec<Subtable>,
    by_mask: HashMap<Mask, u32>,
    /// Numbers of the subtables in use, most hits first.
    order: Vec<u32>,
    free: Vec<u32>,
    /// Megaflows put in, ever.
    made: u64,
    /// Subtables searched for the keys that matched a megaflow.
    pub(super) asked: u64,
}

struct Subtable {
    mask: Mask,
    pairs: MaskPairs,
    index: Index,
    /// Hits, halved at each sweep.
    hits: u64,
    /// Which of the megaflows put in, ever, was the last here.
    newest: u64,
}

impl Subtables {
    /// No subtables, of a table from which all megaflows have gone.
    pub(super) fn emptied(&self) -> Subtables {
        Subtables {
            made: self.made,
            ..Subtables::default()
        }
    }

    /// Number of megaflows ever inserted.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// Number of masks in use.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn has(&self, mask: &Mask) -> bool {
        self.by_mask.contains_key(mask)
    }

    pub(super) fn mask(&self, subtable: u32) -> &Mask {
        &self.tables[subtable as usize].mask
    }

    pub(super) fn pairs(&self, subtable: u32) -> &MaskPairs {
        &self.tables[subtable as usize].pairs
    }

    /// The same where there may be no subtable of this number.
    #[inline(always)]
    pub(super) fn get_pairs(&self, subtable: u32) -> Option<&MaskPairs> {
        Some(&self.tables.get(subtable as usize)?.pairs)
    }

    /// The first megaflow found that covers a key, if none did when `since` megaflows had been
    /// inserted.
    #[inline]
    pub(super) fn lookup(&mut self, hasher: &KeyHasher, key: &Key, since: u64, storage: &Storage) -> Option<u32> {
        if since == self.made {
            return None;
        }
        for (before, &number) in (0..).zip(&self.order) {
            let table = &mut self.tables[number as usize];
            if table.newest <= since {
                continue;
            }
            let hash = hasher.masked(key, &table.pairs) as u32;
            if let Some(found) = table.find(hash, key, storage) {
                table.hits += 1;
                self.asked += before + 1;
                return Some(found);
            }
        }
        None
    }

    /// See [`FlowTable::lookup_batch`](super::FlowTable::lookup_batch). Searches each subtable for
    /// all keys at once, so that memory accesses of one key overlap with work on the others.
    #[inline]
    pub(super) fn lookup_batch(&mut self, hasher: &KeyHasher, runs: &mut [Run], storage: &Storage) -> u32 {
        // Of each key that is left: which it is, its hash under the mask, the first megaflow that
        // may be it.
        let mut open = [(0u8, 0u32, NONE); BATCH];
        let mut left = 0;
        for (n, flow) in runs.iter().map(|run| run.flow).enumerate().take(BATCH) {
            open[left].0 = n as u8;
            left += usize::from(flow == NONE);
        }
        let bits = |open: &[(u8, u32, u32)]| open.iter().fold(0, |bits, (n, ..)| bits | 1 << n);
        let all: u32 = bits(&open[..left]);
        for &number in &self.order {
            if left == 0 {
                break;
            }
            let table = &mut self.tables[number as usize];
            let asked = left;
            for (n, hash, _) in &mut open[..asked] {
                *hash = hasher.masked(&runs[usize::from(*n)].key, &table.pairs) as u32;
                sys::memory::prefetch(table.index.home(*hash));
            }
            for (_, hash, candidate) in &mut open[..asked] {
                *candidate = table.index.candidate(*hash);
                storage.prefetch(*candidate);
            }
            left = 0;
            for at in 0..asked {
                let (n, hash, candidate) = open[at];
                let Run { key, flow, .. } = &mut runs[usize::from(n)];
                if table.is_it(candidate, key, storage) {
                    *flow = candidate;
                } else if let Some(found) = table.find(hash, key, storage) {
                    *flow = found;
                } else {
                    open[left].0 = n;
                    left += 1;
                }
            }
            table.hits += (asked - left) as u64;
        }
        all & !bits(&open[..left])
    }

    /// The megaflow of exactly this masked key.
    pub(super) fn find(&self, subtable: u32, hash: u64, masked: &Key, storage: &Storage) -> Option<u32> {
        self.tables[subtable as usize]
            .index
            .find(hash as u32, |flow| storage.origin(flow).key == *masked)
    }

    /// Adds the megaflows that cover a packet of a region to `found`; returns how many it checked,
    /// or `None` if that would be more than `most`.
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
            looked_at += table.index.len();
            if looked_at > most {
                break;
            }
            let covers = |flow: &u32| both.eq_key(&storage.origin(*flow).key, &region.key);
            let words: Vec<usize> = (0..)
                .zip(both.words())
                .filter(|(_, bits)| **bits != 0)
                .map(|(n, _)| n)
                .collect();
            let mut flows = table.index.flows();
            let mut block = [NONE; AT_ONCE];
            loop {
                let mut len = 0;
                for (place, flow) in block.iter_mut().zip(&mut flows) {
                    let key = storage.origin(flow).key.words();
                    words.iter().for_each(|word| sys::memory::prefetch(&key[*word]));
                    *place = flow;
                    len += 1;
                }
                if len == 0 {
                    break;
                }
                found.extend(block[..len].iter().copied().filter(covers));
            }
        }
        (looked_at <= most).then_some(looked_at)
    }

    /// The subtable of a mask; creates it if needed.
    pub(super) fn of(&mut self, mask: &Mask) -> u32 {
        if let Some(number) = self.by_mask.get(mask) {
            return *number;
        }
        let table = Subtable {
            mask: *mask,
            pairs: MaskPairs::new(mask),
            index: Index::new(),
            hits: 0,
            newest: 0,
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
        self.made += 1;
        let table = &mut self.tables[subtable as usize];
        table.newest = self.made;
        table.index.insert(hash as u32, flow);
    }

    /// Removes a megaflow, and its subtable if it was the last one there.
    pub(super) fn remove(&mut self, subtable: u32, hash: u32, flow: u32) {
        let table = &mut self.tables[subtable as usize];
        table.index.remove(hash, flow);
        if table.index.len() == 0 {
            table.index = Index::new();
            self.by_mask.remove(&table.mask);
            self.order.retain(|number| *number != subtable);
            self.free.push(subtable);
        }
    }

    /// Sorts by hits, and halves the hit counts.
    pub(super) fn rank(&mut self) {
        let tables = &mut self.tables;
        self.order
            .sort_unstable_by_key(|number| std::cmp::Reverse(tables[*number as usize].hits));
        for table in tables {
            table.hits /= 2;
        }
    }
}

impl Subtable {
    #[inline(always)]
    fn find(&self, hash: u32, key: &Key, storage: &Storage) -> Option<u32> {
        self.index.find(hash, |number| self.is_it(number, key, storage))
    }

    /// Whether a megaflow of this mask and number exists, and covers a key.
    #[inline(always)]
    fn is_it(&self, number: u32, key: &Key, storage: &Storage) -> bool {
        storage
            .get(number)
            .is_some_and(|flow| storage.matches(number, flow, key, &self.pairs))
    }
}
