//! Hash index that grows in small steps.
//!
//! Extendible hashing: a directory, addressed by the high bits of the hash, of segments of at most
//! 2048 entries. A full segment is split in two. So the maximum cost of growth for an insertion is
//! the rehashing of one segment and, rarely, the doubling of the directory (8 KB at a million
//! entries). An entry is a 32-bit hash and a 32-bit payload; splitting needs nothing else. Eight
//! entries fill a cache line: a probe is mostly one line.
//!
//! Invariant: an entry lies in its home bucket or in a later one (cyclically) with only full
//! buckets between; no entry is all ones.

const EMPTY: u64 = u64::MAX;
const BUCKET: usize = 8;
/// Buckets of a full-grown segment.
const SEGMENT: usize = 256;
/// With more directory bits a split cannot help, because the hashes are equal; then segments grow.
const MAX_DEPTH: u32 = 20;

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Bucket([u64; BUCKET]);

#[derive(Debug)]
struct Segment {
    /// A power of two of them.
    buckets: Box<[Bucket]>,
    len: u32,
    /// How many high bits of the hash its entries share.
    depth: u32,
}

/// Payloads by hash. Several payloads may have the same hash.
#[derive(Debug)]
pub(crate) struct Index {
    segments: Vec<Segment>,
    /// Segment numbers, by the `depth` high bits of the hash; empty while there is one segment.
    directory: Vec<u32>,
    depth: u32,
}

impl Index {
    pub(crate) fn new() -> Index {
        Index {
            segments: vec![Segment::new(1, 0)],
            directory: Vec::new(),
            depth: 0,
        }
    }

    /// The first payload with this hash that `is_it` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let segment = &self.segments[self.segment_of(hash)];
        let mut at = segment.home(hash);
        loop {
            let bucket = &segment.buckets[at].0;
            for entry in bucket {
                if (entry >> 32) as u32 == hash && *entry != EMPTY && is_it(*entry as u32) {
                    return Some(*entry as u32);
                }
            }
            if bucket[BUCKET - 1] == EMPTY {
                return None;
            }
            at = (at + 1) & (segment.buckets.len() - 1);
        }
    }

    /// Prefetches the bucket of this hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        let segment = &self.segments[self.segment_of(hash)];
        sys::memory::prefetch(&segment.buckets[segment.home(hash)]);
    }

    /// Adds a payload, which is not `u32::MAX`.
    pub(crate) fn insert(&mut self, hash: u32, payload: u32) {
        loop {
            let number = self.segment_of(hash);
            let segment = &mut self.segments[number];
            if !segment.is_full() {
                segment.insert(entry(hash, payload));
                return;
            }
            if segment.buckets.len() < SEGMENT || segment.depth >= MAX_DEPTH {
                segment.rebuild(segment.buckets.len() * 2);
            } else {
                self.split(number);
            }
        }
    }

    /// Replaces a present payload by another.
    pub(crate) fn replace(&mut self, hash: u32, old: u32, new: u32) {
        let number = self.segment_of(hash);
        if let Some((bucket, slot)) = self.segments[number].position(entry(hash, old)) {
            self.segments[number].buckets[bucket].0[slot] = entry(hash, new);
        }
    }

    pub(crate) fn remove(&mut self, hash: u32, payload: u32) {
        let number = self.segment_of(hash);
        let segment = &mut self.segments[number];
        let Some((bucket, slot)) = segment.position(entry(hash, payload)) else {
            return;
        };
        segment.remove(bucket, slot);
        let slots = segment.buckets.len() * BUCKET;
        if slots > BUCKET && (segment.len as usize) < slots / 8 {
            segment.rebuild(segment.buckets.len() / 4);
        }
    }

    pub(crate) fn payloads(&self) -> impl Iterator<Item = u32> + '_ {
        self.segments
            .iter()
            .flat_map(|segment| &segment.buckets)
            .flat_map(|bucket| &bucket.0)
            .filter(|entry| **entry != EMPTY)
            .map(|entry| *entry as u32)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.directory.capacity() * size_of::<u32>()
            + self.segments.capacity() * size_of::<Segment>()
            + self
                .segments
                .iter()
                .map(|segment| segment.buckets.len() * size_of::<Bucket>())
                .sum::<usize>()
    }

    #[inline]
    fn segment_of(&self, hash: u32) -> usize {
        if self.depth == 0 {
            0
        } else {
            self.directory[(hash >> (32 - self.depth)) as usize] as usize
        }
    }

    /// Splits the entries of a segment by their next bit.
    fn split(&mut self, number: usize) {
        let depth = self.segments[number].depth;
        if depth == self.depth {
            self.directory = if depth == 0 {
                vec![0, 0]
            } else {
                self.directory.iter().flat_map(|segment| [*segment; 2]).collect()
            };
            self.depth += 1;
        }
        let new = self.segments.len();
        let segment = &mut self.segments[number];
        let bit = 1 << (63 - depth);
        let mut halves = [Segment::new(SEGMENT, depth + 1), Segment::new(SEGMENT, depth + 1)];
        let mut of_them = 0;
        for entry in segment.entries() {
            halves[usize::from(entry & bit != 0)].insert(entry);
            of_them = entry;
        }
        let [low, high] = halves;
        *segment = low;
        self.segments.push(high);
        // The directory's run for the old segment: all slots that share its `depth` bits; the upper
        // half is the new one's.
        let run = 1usize << (self.depth - depth);
        let start = if depth == 0 {
            0
        } else {
            ((of_them >> (64 - depth)) as usize) * run
        };
        self.directory[start + run / 2..start + run].fill(new as u32);
    }
}

impl Segment {
    fn new(buckets: usize, depth: u32) -> Segment {
        Segment {
            buckets: vec![Bucket([EMPTY; BUCKET]); buckets].into(),
            len: 0,
            depth,
        }
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn is_full(&self) -> bool {
        self.len as usize >= self.buckets.len() * BUCKET * 7 / 8
    }

    /// There is room.
    fn insert(&mut self, entry: u64) {
        let mut at = self.home((entry >> 32) as u32);
        loop {
            let bucket = &mut self.buckets[at].0;
            if let Some(slot) = bucket.iter().position(|slot| *slot == EMPTY) {
                bucket[slot] = entry;
                self.len += 1;
                return;
            }
            at = (at + 1) & (self.buckets.len() - 1);
        }
    }

    fn position(&self, entry: u64) -> Option<(usize, usize)> {
        let mut at = self.home((entry >> 32) as u32);
        loop {
            let bucket = &self.buckets[at].0;
            if let Some(slot) = bucket.iter().position(|slot| *slot == entry) {
                return Some((at, slot));
            }
            if bucket[BUCKET - 1] == EMPTY {
                return None;
            }
            at = (at + 1) & (self.buckets.len() - 1);
        }
    }

    fn remove(&mut self, mut at: usize, mut slot: usize) {
        self.len -= 1;
        let around = self.buckets.len() - 1;
        loop {
            let was_full = self.buckets[at].0[BUCKET - 1] != EMPTY;
            // Entries of a bucket lie at its start, so that its last slot tells whether it is full.
            let last = self.buckets[at]
                .0
                .iter()
                .rposition(|entry| *entry != EMPTY)
                .unwrap_or(slot);
            self.buckets[at].0.swap(slot, last);
            self.buckets[at].0[last] = EMPTY;
            if !was_full {
                return;
            }
            // Moves back the first entry that passed this bucket when it was full.
            let mut probe = (at + 1) & around;
            let found = loop {
                if probe == at {
                    return;
                }
                let bucket = &self.buckets[probe].0;
                let passed = bucket.iter().position(|entry| {
                    let home = self.home((*entry >> 32) as u32);
                    *entry != EMPTY && (probe.wrapping_sub(home) & around) >= (probe.wrapping_sub(at) & around)
                });
                if let Some(passed) = passed {
                    break passed;
                }
                if bucket[BUCKET - 1] == EMPTY {
                    return;
                }
                probe = (probe + 1) & around;
            };
            self.buckets[at].0[BUCKET - 1] = self.buckets[probe].0[found];
            (at, slot) = (probe, found);
        }
    }

    fn rebuild(&mut self, buckets: usize) {
        let mut new = Segment::new(buckets.max(1), self.depth);
        for entry in self.entries() {
            new.insert(entry);
        }
        *self = new;
    }

    fn entries(&self) -> impl Iterator<Item = u64> + '_ {
        self.buckets
            .iter()
            .flat_map(|bucket| bucket.0)
            .filter(|entry| *entry != EMPTY)
    }
}

fn entry(hash: u32, payload: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(payload)
}

/// Counts how often each hash was added: an item is surely absent or possibly present.
#[derive(Debug)]
pub(crate) struct HashCounts(Index);

impl HashCounts {
    pub(crate) fn new() -> HashCounts {
        HashCounts(Index::new())
    }

    pub(crate) fn contains(&self, hash: u32) -> bool {
        self.0.find(hash, |_| true).is_some()
    }

    pub(crate) fn add(&mut self, hash: u32) {
        match self.0.find(hash, |_| true) {
            Some(count) => self.0.replace(hash, count, count + 1),
            None => self.0.insert(hash, 1),
        }
    }

    pub(crate) fn remove(&mut self, hash: u32) {
        match self.0.find(hash, |_| true) {
            Some(1) => self.0.remove(hash, 1),
            Some(count) => self.0.replace(hash, count, count - 1),
            None => debug_assert!(false, "a hash is removed that was not added"),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn scatter(n: u32) -> u32 {
        (u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    #[test]
    fn finds_a_hundred_thousand_entries_through_splits_and_after_removing_half() {
        let mut index = Index::new();
        for n in 0..100_000 {
            index.insert(scatter(n), n);
        }
        for n in 0..100_000 {
            assert_eq!(index.find(scatter(n), |payload| payload == n), Some(n));
        }
        for n in (0..100_000).step_by(2) {
            index.remove(scatter(n), n);
        }
        for n in 0..100_000 {
            let there = index.find(scatter(n), |payload| payload == n).is_some();
            assert_eq!(there, n % 2 == 1);
        }
        assert_eq!(index.payloads().count(), 50_000);
    }

    #[test]
    fn equal_hashes_do_not_split_without_end() {
        let mut index = Index::new();
        for n in 0..5000 {
            index.insert(7, n);
        }
        assert_eq!(index.find(7, |payload| payload == 4999), Some(4999));
    }

    #[test]
    fn shrinks_when_emptied() {
        let mut index = Index::new();
        for n in 0..50_000 {
            index.insert(scatter(n), n);
        }
        let full = index.memory_bytes();
        for n in 0..50_000 {
            index.remove(scatter(n), n);
        }
        assert!(index.memory_bytes() < full / 20);
    }

    proptest! {
        #[test]
        fn counts_like_a_map(operations in prop::collection::vec((any::<bool>(), 0u32..40, 0u32..4), 0..400)) {
            let mut counts = HashCounts::new();
            let mut map = BTreeMap::<u32, u32>::new();
            for (add, low, high) in operations {
                // Few low bits differ, so many entries share a bucket.
                let hash = high << 30 | (low & 3) | (low << 10);
                if add {
                    counts.add(hash);
                    *map.entry(hash).or_default() += 1;
                } else if let Some(count) = map.get_mut(&hash) {
                    counts.remove(hash);
                    *count -= 1;
                    if *count == 0 {
                        map.remove(&hash);
                    }
                }
                for low in 0..40u32 {
                    for high in 0..4u32 {
                        let hash = high << 30 | (low & 3) | (low << 10);
                        prop_assert_eq!(counts.contains(hash), map.contains_key(&hash));
                    }
                }
            }
        }
    }
}
