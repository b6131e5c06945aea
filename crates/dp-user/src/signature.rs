//! The first cache: which megaflow did a packet like this one use last?
//!
//! A fixed number of slots, found by the hash of the whole key, each with a signature of that hash and the megaflow's number. An answer is a
//! guess: the caller compares the key with that megaflow under its mask, all of it, before it is used. That makes a stale slot harmless (the
//! megaflow that has the number now either covers the packet, and then is right, or does not), so nothing has to be removed from here; and the
//! cache is a tenth of the size of one that holds keys, so that it stays in the processor's.

/// Sets of two slots: 8192 × 16 bytes.
const SETS: usize = 8192;

/// No megaflow.
pub(crate) const NONE: u32 = u32::MAX;

/// See the module's page.
pub(crate) struct SignatureCache {
    sets: Box<[[Slot; 2]]>,
}

#[derive(Clone, Copy)]
struct Slot {
    signature: u32,
    flow: u32,
}

impl SignatureCache {
    pub(crate) fn new() -> SignatureCache {
        let empty = Slot {
            signature: 0,
            flow: NONE,
        };
        SignatureCache {
            sets: vec![[empty; 2]; SETS].into_boxed_slice(),
        }
    }

    /// The megaflow that may cover a key of this hash, or [`NONE`].
    #[inline]
    pub(crate) fn guess(&self, hash: u64) -> u32 {
        let set = &self.sets[index(hash)];
        let signature = signature(hash);
        if set[0].signature == signature {
            set[0].flow
        } else if set[1].signature == signature {
            set[1].flow
        } else {
            NONE
        }
    }

    /// Remembers the megaflow that covered a key of this hash, in place of the older of its set.
    #[inline]
    pub(crate) fn remember(&mut self, hash: u64, flow: u32) {
        let set = &mut self.sets[index(hash)];
        let slot = Slot {
            signature: signature(hash),
            flow,
        };
        if set[0].signature != slot.signature {
            set[1] = set[0];
        }
        set[0] = slot;
    }
}

#[inline(always)]
fn index(hash: u64) -> usize {
    hash as usize % SETS
}

#[inline(always)]
fn signature(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_latest_of_a_set_are_remembered() {
        let mut cache = SignatureCache::new();
        let hash = |n: u64| n << 32 | 5;
        assert_eq!(cache.guess(hash(1)), NONE);
        for n in 1..=3 {
            cache.remember(hash(n), n as u32);
        }
        assert_eq!(cache.guess(hash(3)), 3);
        assert_eq!(cache.guess(hash(2)), 2);
        assert_eq!(cache.guess(hash(1)), NONE);
        cache.remember(hash(3), 30);
        assert_eq!(cache.guess(hash(3)), 30);
        assert_eq!(cache.guess(hash(2)), 2);
    }
}
