//! Subtables: rules by the hash of their values under one mask.
//!
//! A bucket holds the matches that are equal under the subtable's mask, chained; where the rules'
//! mask is the subtable's own, that is one match. Rules of the same match are linked by falling
//! priority behind the highest.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::index::{HashCounts, Index};
use crate::layout::Layout;
use crate::prefixes::{Prefixes, Tracked};
use crate::words::Hash;

/// A stage of a subtable's mask, consulted before the next stage.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Where its words end in the subtable's.
    pub(crate) words_end: usize,
    /// Where its tracked fields end in the subtable's.
    pub(crate) tracked_end: usize,
    /// Hashes, up to the end of this stage, of all buckets; not kept for the last stage.
    pub(crate) seen: Option<HashCounts>,
}

#[derive(Debug)]
pub(crate) struct Subtable {
    /// The nonzero words of the mask.
    pub(crate) words: SmallVec<[(u8, u64); 3]>,
    pub(crate) tracked: SmallVec<[Tracked; 4]>,
    /// The first match of each bucket, by hash.
    pub(crate) index: Index,
    /// The shape with exactly this mask, if any.
    pub(crate) own_shape: Option<u32>,
    /// Rules of other shapes.
    pub(crate) foreign: usize,
    pub(crate) rules: usize,
    pub(crate) stages: Vec<Stage>,
    /// How many rules have each priority.
    pub(crate) priorities: BTreeMap<u32, u32>,
}

impl Subtable {
    pub(crate) fn new(mask: &[u64], layout: &Layout, prefixes: &mut Prefixes) -> Subtable {
        let words: SmallVec<[(u8, u64); 3]> = (0u8..)
            .zip(mask)
            .filter(|(_, bits)| **bits != 0)
            .map(|(word, bits)| (word, *bits))
            .collect();
        let mut tracked = prefixes.acquire(mask);
        tracked.sort_by_key(|tracked| tracked.field.word);
        let mut stages = Vec::new();
        for stage in layout.stages() {
            let words_end = words.partition_point(|(word, _)| usize::from(*word) < stage.end);
            let tracked_end = tracked.partition_point(|tracked| usize::from(tracked.field.word) < stage.end);
            let words_start = stages.last().map_or(0, |stage: &Stage| stage.words_end);
            if words_end > words_start {
                stages.push(Stage {
                    words_end,
                    tracked_end,
                    seen: (words_end < words.len()).then(HashCounts::new),
                });
            }
        }
        Subtable {
            words,
            tracked,
            index: Index::new(),
            own_shape: None,
            foreign: 0,
            rules: 0,
            stages,
            priorities: BTreeMap::new(),
        }
    }

    /// The hash of a key's bits under the mask.
    #[inline]
    pub(crate) fn hash(&self, key: &[u64], hash: Hash) -> u32 {
        let step = |state, (word, bits): &(u8, u64)| hash.step(state, key[usize::from(*word)] & bits);
        hash.finish(self.words.iter().fold(hash.start(), step))
    }

    /// The hashes at the ends of all stages but the last.
    pub(crate) fn stage_hashes(&self, key: &[u64], hash: Hash) -> SmallVec<[u32; 8]> {
        let mut state = hash.start();
        let mut start = 0;
        let inner = self.stages.iter().filter(|stage| stage.seen.is_some());
        inner
            .map(|stage| {
                for (word, bits) in &self.words[start..stage.words_end] {
                    state = hash.step(state, key[usize::from(*word)] & bits);
                }
                start = stage.words_end;
                hash.finish(state)
            })
            .collect()
    }

    /// Records the new bucket for `words`.
    pub(crate) fn bucket_added(&mut self, words: &[u64], hash: Hash, prefixes: &mut Prefixes) {
        prefixes.add(&self.tracked, words);
        for (at, hash) in self.stage_hashes(words, hash).into_iter().enumerate() {
            if let Some(seen) = &mut self.stages[at].seen {
                seen.add(hash);
            }
        }
    }

    /// Records the removal of the bucket for `words`.
    pub(crate) fn bucket_removed(&mut self, words: &[u64], hash: Hash, prefixes: &mut Prefixes) {
        prefixes.remove(&self.tracked, words);
        for (at, hash) in self.stage_hashes(words, hash).into_iter().enumerate() {
            if let Some(seen) = &mut self.stages[at].seen {
                seen.remove(hash);
            }
        }
    }

    /// Whether the subtable's mask has no bit that `mask` lacks.
    pub(crate) fn fits(&self, mask: &[u64]) -> bool {
        self.words
            .iter()
            .all(|(word, bits)| bits & !mask[usize::from(*word)] == 0)
    }

    /// Whether the mask is exactly `mask`.
    pub(crate) fn has_mask(&self, mask: &[u64]) -> bool {
        self.fits(mask) && mask.iter().filter(|bits| **bits != 0).count() == self.words.len() && {
            let bits: u32 = mask.iter().map(|bits| bits.count_ones()).sum();
            bits == self.count_bits()
        }
    }

    pub(crate) fn count_bits(&self) -> u32 {
        self.words.iter().map(|(_, bits)| bits.count_ones()).sum()
    }

    /// Adds the words up to `end`, of the subtable's, to `mask`.
    #[inline]
    pub(crate) fn widen(&self, mask: &mut [u64], end: usize) {
        for (word, bits) in &self.words[..end] {
            mask[usize::from(*word)] |= bits;
        }
    }

    pub(crate) fn priority_added(&mut self, priority: u32) {
        *self.priorities.entry(priority).or_insert(0) += 1;
    }

    pub(crate) fn priority_removed(&mut self, priority: u32) {
        if let Some(count) = self.priorities.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&priority);
            }
        }
    }

    pub(crate) fn max_priority(&self) -> Option<u32> {
        self.priorities.last_key_value().map(|(priority, _)| *priority)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let stages: usize = self
            .stages
            .iter()
            .map(|stage| size_of::<Stage>() + stage.seen.as_ref().map_or(0, HashCounts::memory_bytes))
            .sum();
        // A node of the map has room for eleven.
        let priorities = self.priorities.len().div_ceil(6) * 112;
        size_of::<Subtable>() + self.index.memory_bytes() + stages + priorities
    }
}
