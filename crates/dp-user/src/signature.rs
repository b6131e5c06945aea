//! The first cache: the megaflow that a packet like this one used last.
//!
//! A hash of the key selects a line. Each place has a signature of that hash and the megaflow's
//! number. A hit is a guess: the caller compares the whole key with that megaflow under its mask
//! before it uses it. So a stale place does no harm (the megaflow that has the number now either
//! covers the packet, and then is right, or does not), and entries need not be removed. The cache
//! is a tenth of the size of one that holds keys, so that it stays in the processor's cache.
//!
//! The hash covers the part of the key that megaflows match: the Ethernet header, or all. When the
//! first megaflow matches fields behind that header, and when the last such megaflow is removed,
//! both hashes are in use for a while, so that lookups still find the megaflows in use.
//!
//! The cache grows while it misses packets that megaflows cover: to [`MOST`] lines at most. If even
//! that is too small, remembering every packet gains nothing: each entry is replaced before its
//! flow's next packet, and costs two accesses to memory. The cache then remembers one packet in
//! [`THIN`], and so keeps its entries for a while.

use crate::lines::{self, Line, Lines, PLACES};

/// Lines at first: 128 KiB, of 16 384 places.
const LEAST: usize = 2048;

/// Lines at most: 16 MiB, of 2 million places.
const MOST: usize = 1 << 18;

/// Packets for each place between two decisions on the cache's size: by then the cache holds the
/// packets that pass.
const PERIOD: usize = 4;

/// Maximum growth factor in one step.
const GROWTH: u32 = 64;

/// When there are too many packets, the cache remembers one of this many.
const THIN: u32 = 32;

/// No megaflow.
pub(crate) const NONE: u32 = u32::MAX;

/// See the module's page.
pub(crate) struct SignatureCache {
    lines: Lines,
    most: usize,
    known: u32,
    unknown: u32,
    /// Whether the cache remembers only some packets.
    thin: bool,
    turn: u32,
}

impl SignatureCache {
    pub(crate) fn new() -> SignatureCache {
        SignatureCache::with_lines(LEAST, MOST)
    }

    fn with_lines(least: usize, most: usize) -> SignatureCache {
        SignatureCache {
            lines: Lines::new(least),
            most,
            known: 0,
            unknown: 0,
            thin: false,
            turn: 0,
        }
    }

    /// Address of the line that [`SignatureCache::guess`] reads.
    #[inline(always)]
    pub(crate) fn line(&self, hash: u64) -> &Line {
        self.lines.line(hash as u32)
    }

    /// The megaflow that may cover a key of this hash, or [`NONE`].
    #[inline(always)]
    pub(crate) fn guess(&self, hash: u64) -> u32 {
        // A tag is in one taken place of a line, since an entry is replaced in place. Wrapping
        // below zero gives `NONE`.
        lines::only(self.line(hash), signature(hash)).wrapping_sub(1)
    }

    /// Remembers the megaflow that covered a key of this hash, in place of the oldest of its line.
    #[inline]
    pub(crate) fn remember(&mut self, hash: u64, flow: u32) {
        if self.thin {
            self.turn = self.turn.wrapping_add(1);
            if !self.turn.is_multiple_of(THIN) {
                return;
            }
        }
        let line = self.lines.line_mut(hash as u32);
        let own = lines::with_tag(line, signature(hash));
        let place = if own == 0 {
            PLACES - 1
        } else {
            own.trailing_zeros() as usize
        };
        lines::move_on(line, place);
        lines::set(line, 0, (signature(hash), flow));
    }

    /// Of how many packets with a megaflow the cache knew it, and of how many it did not.
    #[inline]
    pub(crate) fn learn(&mut self, known: u32, unknown: u32) {
        self.known += known;
        self.unknown += unknown;
        if (self.known + self.unknown) as usize >= PERIOD * PLACES * self.lines.len() {
            self.adapt();
        }
    }

    #[cold]
    fn adapt(&mut self) {
        let all = self.known + self.unknown;
        if self.unknown > all / 16 && self.lines.len() < self.most {
            // With flows in random order, the cache hits the fraction of them that it has places
            // for. It learns the lost entries again soon.
            let times = (all / self.known.max(1)).clamp(2, GROWTH);
            self.lines = Lines::new((times as usize * self.lines.len()).min(self.most));
        } else {
            self.thin = self.unknown > all / 4 * if self.thin { 2 } else { 3 };
        }
        (self.known, self.unknown) = (0, 0);
    }

    /// Forgets all, and gives the memory back that it grew by.
    pub(crate) fn clear(&mut self) {
        if self.lines.len() > LEAST {
            *self = SignatureCache::with_lines(LEAST, self.most);
        }
    }
}

#[inline(always)]
fn signature(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u32) -> u64 {
        // Multiplication by an odd number: distinct for distinct numbers, and spread over index and
        // signature.
        u64::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn the_eight_latest_of_a_line_are_remembered() {
        let mut cache = SignatureCache::new();
        let hash = |n: u64| n << 32 | 5;
        assert_eq!(cache.guess(hash(1)), NONE);
        for n in 1..=9 {
            cache.remember(hash(n), n as u32);
        }
        assert_eq!(cache.guess(hash(1)), NONE);
        assert!((2..=9).all(|n| cache.guess(hash(n)) == n as u32));
        cache.remember(hash(2), 20);
        cache.remember(hash(10), 10);
        assert_eq!((cache.guess(hash(2)), cache.guess(hash(3))), (20, NONE));
    }

    /// Lets flows pass in turn; of how many of the last round it knew the megaflow.
    fn pass(cache: &mut SignatureCache, flows: u32, rounds: u32) -> u32 {
        let mut known = 0;
        for _ in 0..rounds {
            known = 0;
            for flow in 0..flows {
                if cache.guess(hash(flow)) == flow {
                    known += 1;
                    cache.learn(1, 0);
                } else {
                    cache.remember(hash(flow), flow);
                    cache.learn(0, 1);
                }
            }
        }
        known
    }

    #[test]
    fn it_grows_until_it_knows_what_passes() {
        let mut cache = SignatureCache::new();
        assert!(pass(&mut cache, 100_000, 20) > 94_000);
        assert!(cache.lines.len() > LEAST);
        cache.clear();
        assert_eq!((cache.lines.len(), cache.guess(hash(1))), (LEAST, NONE));
    }

    #[test]
    fn it_soon_has_the_size_for_many_flows_that_come_in_no_order() {
        let mut cache = SignatureCache::new();
        let flows = 1 << 20;
        let mut at = 1_u32;
        let mut known = 0;
        for packet in 0..2 << 20 {
            at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let flow = at >> 12;
            assert!(flow < flows);
            if cache.guess(hash(flow)) == flow {
                known += u32::from(packet >= 1 << 20);
                cache.learn(1, 0);
            } else {
                cache.remember(hash(flow), flow);
                cache.learn(0, 1);
            }
        }
        assert!(known > flows / 10 * 6, "{known}");
    }

    #[test]
    fn where_too_much_passes_it_keeps_some() {
        let mut cache = SignatureCache::with_lines(64, 64);
        pass(&mut cache, 5000, 20);
        assert!(cache.thin);
        let known = pass(&mut cache, 5000, 20);
        assert!(known > 200, "{known}");
        pass(&mut cache, 200, 1000);
        assert!(!cache.thin);
        assert_eq!(pass(&mut cache, 200, 2), 200);
    }
}
