//! Instructions that several rules have in common, stored once.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use openflow::model::Instructions;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The different instructions of the rules of a bridge.
///
/// Instructions are freed with their last rule. If another holder still has them then, they stay
/// until they are used and released again, or until the limit is reached.
#[derive(Debug)]
pub(super) struct Shared {
    known: HashTable<Arc<Instructions>>,
    hash: FixedState,
    /// The number of instructions at which the unused ones are removed.
    limit: usize,
}

const FEW: usize = 1024;

impl Shared {
    pub(super) fn new(seed: u64) -> Shared {
        Shared {
            known: HashTable::new(),
            hash: FixedState::with_seed(seed),
            limit: FEW,
        }
    }

    /// These instructions, as the copy that other rules share if there is one.
    pub(super) fn share(&mut self, instructions: &Instructions) -> Arc<Instructions> {
        let hash = self.hash.hash_one(instructions);
        if let Some(known) = self.known.find(hash, |known| **known == *instructions) {
            return known.clone();
        }
        if self.known.len() >= self.limit {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.limit = FEW.max(self.known.len() * 2);
        }
        let new = Arc::new(instructions.clone());
        let hasher = |known: &Arc<Instructions>| self.hash.hash_one(&**known);
        self.known.insert_unique(hash, new.clone(), hasher);
        new
    }

    /// Notes that a rule with these instructions is removed. The caller holds them for the last
    /// time.
    pub(super) fn release(&mut self, instructions: &Arc<Instructions>) {
        // One reference here and the rule's.
        if Arc::strong_count(instructions) > 2 {
            return;
        }
        let hash = self.hash.hash_one(&**instructions);
        if let Ok(known) = self.known.find_entry(hash, |known| Arc::ptr_eq(known, instructions)) {
            known.remove();
        }
    }
}
