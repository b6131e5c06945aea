//! A hash table of indices that readers search without a lock. One writer at a time.
//!
//! A slot is a tag (32 bits of the hash) and an index. Linear probing; a slot of 0 ends the search.
//! A removal moves later slots back, so a search during a change may miss an entry: the caller
//! repeats an unsuccessful search under the lock if a change was under way.

use std::sync::atomic::{AtomicU64, Ordering};

/// Slots of one shard.
pub(crate) struct Buckets {
    slots: Box<[AtomicU64]>,
}

/// What a slot has for this hash and index.
#[inline]
fn slot(tag: u32, index: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(index)
}

impl Buckets {
    /// An empty table of this many slots, a power of two.
    pub(crate) fn new(len: usize) -> Buckets {
        debug_assert!(len.is_power_of_two());
        Buckets {
            slots: (0..len).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline(always)]
    fn home(&self, tag: u32) -> usize {
        tag as usize & (self.slots.len() - 1)
    }

    #[inline(always)]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// The first index that `wanted` takes.
    #[inline(always)]
    pub(crate) fn find<T>(&self, tag: u32, mut wanted: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let mut at = self.home(tag);
        for _ in 0..self.slots.len() {
            let slot = self.slots[at].load(Ordering::Acquire);
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == tag
                && let Some(found) = wanted(slot as u32)
            {
                return Some(found);
            }
            at = self.next(at);
        }
        None
    }

    /// Loads the first slots of a search, also for the effect on the cache, and returns the first
    /// index with this tag.
    #[inline(always)]
    pub(crate) fn touch(&self, tag: u32) -> Option<u32> {
        let mut at = self.home(tag);
        for _ in 0..4 {
            let slot = self.slots[at].load(Ordering::Acquire);
            if (slot >> 32) as u32 == tag {
                return Some(slot as u32).filter(|index| *index != 0);
            }
            at = self.next(at);
        }
        None
    }

    /// Adds an index. There is a free slot.
    pub(crate) fn insert(&self, tag: u32, index: u32) {
        let mut at = self.home(tag);
        while self.slots[at].load(Ordering::Relaxed) != 0 {
            at = self.next(at);
        }
        self.slots[at].store(slot(tag, index), Ordering::Release);
    }

    /// Removes an index; false if it is not here.
    pub(crate) fn remove(&self, tag: u32, index: u32) -> bool {
        let mut hole = self.home(tag);
        loop {
            match self.slots[hole].load(Ordering::Relaxed) {
                0 => return false,
                found if found == slot(tag, index) => break,
                _ => hole = self.next(hole),
            }
        }
        // Move back what would no longer be found behind the hole.
        let mask = self.slots.len() - 1;
        let mut at = self.next(hole);
        loop {
            let found = self.slots[at].load(Ordering::Relaxed);
            if found == 0 {
                break;
            }
            let home = self.home((found >> 32) as u32);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole].store(found, Ordering::Release);
                hole = at;
            }
            at = self.next(at);
        }
        self.slots[hole].store(0, Ordering::Release);
        true
    }

    /// The same indices in a table of another size.
    pub(crate) fn resized(&self, len: usize) -> Buckets {
        let new = Buckets::new(len);
        for slot in &self.slots {
            let slot = slot.load(Ordering::Relaxed);
            if slot != 0 {
                new.insert((slot >> 32) as u32, slot as u32);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn what_was_inserted_is_found_until_it_is_removed(steps in proptest::collection::vec((any::<bool>(), 0u32..40, 1u32..6), 0..200)) {
            // Tags with few low bits make long chains that wrap around.
            let mut buckets = Buckets::new(64);
            let mut model = BTreeSet::new();
            for (insert, tag, index) in steps {
                let tag = tag << 2 | 3;
                if insert && model.len() < 48 && model.insert((tag, index)) {
                    buckets.insert(tag, index);
                } else if !insert {
                    prop_assert_eq!(buckets.remove(tag, index), model.remove(&(tag, index)));
                }
                for tag in (0..40u32).map(|tag| tag << 2 | 3) {
                    let mut found = BTreeSet::new();
                    buckets.find(tag, |index| -> Option<()> { found.insert((tag, index)); None });
                    let expected: BTreeSet<_> = model.iter().copied().filter(|(own, _)| *own == tag).collect();
                    prop_assert_eq!(found, expected);
                }
            }
            buckets = buckets.resized(256);
            for (tag, index) in model {
                prop_assert_eq!(buckets.find(tag, |found| (found == index).then_some(())), Some(()));
            }
        }
    }
}
