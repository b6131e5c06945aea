//! Instructions that rules have in common, kept once.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use openflow::model::Instructions;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The different instructions of the rules of a bridge.
///
/// One is forgotten when its last rule goes. Where somebody else holds it at that moment it stays,
/// until it is used again and let go or there are as many that nobody uses as others.
#[derive(Debug)]
pub(super) struct Shared {
    known: HashTable<Arc<Instructions>>,
    hash: FixedState,
    /// How many there may be until the unused are looked for.
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

    /// These instructions, as others have them already if they do.
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

    /// Notes that a rule that has these goes, and holds them for the last time.
    pub(super) fn release(&mut self, instructions: &Arc<Instructions>) {
        // The one here and the rule's own.
        if Arc::strong_count(instructions) > 2 {
            return;
        }
        let hash = self.hash.hash_one(&**instructions);
        if let Ok(known) = self.known.find_entry(hash, |known| Arc::ptr_eq(known, instructions)) {
            known.remove();
        }
    }

    /// As [`Shared::release`], of those that a rule had until now.
    pub(super) fn release_held(&mut self, instructions: Arc<Instructions>) {
        self.release(&instructions);
    }
}
