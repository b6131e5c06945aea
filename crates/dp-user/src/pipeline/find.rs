//! Stages 2 to 4: which megaflow covers each packet of a batch.
//!
//! Each step is done for the whole batch before the next, and asks for the memory that the next one reads: what one packet waits for comes while
//! the others are seen to.

use super::{Batch, MALFORMED, Pipeline};
use crate::signature::NONE;
use flow::{Key, KeySlot, PortNo, Reading};

impl Batch {
    /// Reads the keys of the packets; of those that visibly have the key of the one before, one key.
    #[inline(always)]
    fn read(&mut self, port: PortNo, read: impl Fn(&mut KeySlot, &[u8], PortNo, Option<&KeySlot>) -> Reading) {
        let packets = self.frames.len();
        self.keys.resize_with(self.keys.len().max(packets), KeySlot::default);
        refill(&mut self.flows, packets, NONE);
        refill(&mut self.runs, packets, 1);
        let mut runs = 0;
        for frame in &self.frames {
            let (before, next) = self.keys.split_at_mut(runs);
            match read(&mut next[0], frame.data(), port, before.last()) {
                Reading::Same => {
                    self.runs[runs - 1] += 1;
                    continue;
                }
                Reading::Key => {}
                Reading::Malformed => self.flows[runs] = MALFORMED,
            }
            runs += 1;
        }
        self.flows.truncate(runs);
        self.runs.truncate(runs);
    }

    /// All packets are of this megaflow.
    pub(super) fn run_of(&mut self, number: u32) {
        refill(&mut self.flows, 1, number);
        refill(&mut self.runs, 1, self.frames.len() as u32);
    }

    /// How many packets are in the runs that have a bit here.
    fn packets_in(&self, mut runs: u32) -> u32 {
        let mut packets = 0;
        while runs != 0 {
            packets += self.runs[runs.trailing_zeros() as usize];
            runs &= runs - 1;
        }
        packets
    }
}

impl Pipeline {
    /// Stage 2.
    #[inline]
    pub(super) fn extract(&mut self, batch: &mut Batch, port: PortNo) {
        batch.is_ethernet = self.flows.is_ethernet();
        if batch.is_ethernet {
            batch.read(port, KeySlot::read_ethernet);
        } else {
            batch.read(port, KeySlot::read);
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
        let packets = batch.frames.len() as u32;
        if unknown == 0 {
            self.signatures.learn(keys.len() as u32, 0);
            self.stats.exact_hits.add(packets.into());
            return true;
        }
        let found = self.flows.lookup_batch(keys, &mut batch.flows);
        batch.asked_at = self.flows.made();
        self.signatures
            .learn(keys.len() as u32 - unknown.count_ones(), found.count_ones());
        self.remember_found(found, batch);
        self.stats.exact_hits.add((packets - batch.packets_in(unknown)).into());
        self.stats.megaflow_hits.add(batch.packets_in(found).into());
        found == unknown
    }

    /// Stage 3. Returns those of the keys, a bit each, of which no megaflow is remembered.
    #[inline]
    fn guess(&self, keys: &[KeySlot], hashes: &mut Vec<u64>, flows: &mut [u32]) -> u32 {
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

    /// Remembers the megaflows that were found for these of a batch's keys, a bit each.
    fn remember_found(&mut self, mut keys: u32, batch: &Batch) {
        while keys != 0 {
            let n = keys.trailing_zeros() as usize;
            keys &= keys - 1;
            self.signatures.remember(batch.hashes[n], batch.flows[n]);
        }
    }

    /// Remembers the megaflow of one packet.
    pub(super) fn remember(&mut self, key: &Key, flow: u32) {
        self.signatures.remember(self.hash(key), flow);
    }
}

#[inline(always)]
fn refill(list: &mut Vec<u32>, len: usize, value: u32) {
    list.clear();
    list.resize(len, value);
}
