//! Stages 2 to 4: which megaflow covers each packet of a batch.
//!
//! Each step is done for the whole batch before the next, and asks for the memory that the next one reads: what one packet waits for comes while
//! the others are seen to.

use super::{Batch, MALFORMED, Pipeline};
use crate::signature::NONE;
use flow::{Key, PortNo};

impl Pipeline {
    /// Stage 2.
    #[inline]
    pub(super) fn extract(&mut self, batch: &mut Batch, port: PortNo) {
        let frames = batch.frames.len();
        batch.keys.resize(batch.keys.len().max(frames), Key::ZERO);
        batch.flows.clear();
        let keys = batch.frames.iter().zip(&mut batch.keys);
        let verdict = |good| if good { NONE } else { MALFORMED };
        batch.is_ethernet = self.flows.is_ethernet();
        if batch.is_ethernet {
            let good = keys.map(|(frame, key)| flow::extract_ethernet_into(key, frame.data(), port));
            batch.flows.extend(good.map(verdict));
        } else {
            let good = keys.map(|(frame, key)| flow::extract_into(key, frame.data(), port));
            batch.flows.extend(good.map(verdict));
        }
    }

    /// The hash by which a key's megaflow is remembered: of as much of it as megaflows look at, which is all that is read of packets.
    #[inline]
    pub(super) fn hash(&self, key: &Key) -> u64 {
        if self.flows.is_ethernet() {
            self.hasher.ethernet(key)
        } else {
            self.hasher.whole(key)
        }
    }

    /// Stages 3 and 4. Returns whether all have their megaflow.
    #[inline]
    pub(super) fn find(&mut self, batch: &mut Batch) -> bool {
        let keys = &batch.keys[..batch.flows.len()];
        let unknown = self.guess(keys, &mut batch.hashes, &mut batch.flows);
        let all = keys.len() as u32;
        let known = all - unknown.count_ones();
        let mut found = 0;
        if unknown != 0 {
            found = self.flows.lookup_batch(keys, &mut batch.flows);
            self.remember_found(unknown, batch);
        }
        self.signatures.learn(known, found);
        self.stats.exact_hits.add(known.into());
        self.stats.megaflow_hits.add(found.into());
        known + found == all
    }

    /// Stage 3. Returns those of the keys, a bit each, of which no megaflow is remembered.
    #[inline]
    fn guess(&self, keys: &[Key], hashes: &mut Vec<u64>, flows: &mut [u32]) -> u32 {
        hashes.clear();
        for key in keys {
            let hash = self.hash(key);
            sys::memory::prefetch(self.signatures.line(hash));
            hashes.push(hash);
        }
        for (hash, flow) in hashes.iter().zip(&mut *flows) {
            if *flow == NONE {
                *flow = self.signatures.guess(*hash);
                self.flows.prefetch(*flow);
            }
        }
        let mut unknown = 0;
        for (n, (key, flow)) in keys.iter().zip(flows).enumerate() {
            if !self.flows.covers(*flow, key) {
                unknown |= 1 << n;
                if *flow != MALFORMED {
                    *flow = NONE;
                }
            }
        }
        unknown
    }

    /// Remembers the megaflows that were found for these of a batch's packets, a bit each.
    fn remember_found(&mut self, mut packets: u32, batch: &Batch) {
        while packets != 0 {
            let n = packets.trailing_zeros() as usize;
            packets &= packets - 1;
            if batch.flows[n] < MALFORMED {
                self.signatures.remember(batch.hashes[n], batch.flows[n]);
            }
        }
    }

    /// Remembers the megaflow of one packet.
    pub(super) fn remember(&mut self, key: &Key, flow: u32) {
        self.signatures.remember(self.hash(key), flow);
    }
}
