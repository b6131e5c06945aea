//! Stages 2 to 4: which megaflow covers each packet of a batch.
//!
//! Each step is done for the whole batch before the next, and asks for the memory that the next one reads: what one packet waits for comes while
//! the others are seen to.

use super::Pipeline;
use super::batch::{Batch, MALFORMED, Run};
use crate::signature::NONE;
use flow::{Key, KeySlot, PortNo};

impl Pipeline {
    /// Stage 2.
    #[inline(never)]
    pub(super) fn extract(&mut self, batch: &mut Batch, port: PortNo) {
        let ask = |hash| {
            sys::memory::prefetch(self.signatures.line(hash));
            hash
        };
        batch.is_ethernet = self.flows.is_ethernet();
        if batch.is_ethernet {
            batch.read(port, KeySlot::read_ethernet, |key| ask(self.hasher.ethernet(key)));
        } else {
            batch.read(port, KeySlot::read, |key| ask(self.hasher.whole(key)));
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
        let mut unknown = self.guess(batch.runs_mut());
        if unknown != 0 && !batch.is_ethernet && self.flows.has_ethernet() {
            unknown = self.guess_by_ethernet(unknown, batch.runs_mut());
        }
        let (packets, runs) = (batch.frames.len() as u32, batch.runs().len() as u32);
        if unknown == 0 {
            self.signatures.learn(runs, 0);
            self.stats.exact_hits.add(packets.into());
            return true;
        }
        let found = self.flows.lookup_batch(batch.runs_mut());
        batch.asked_at = self.flows.made();
        self.signatures.learn(runs - unknown.count_ones(), found.count_ones());
        self.remember_found(found, batch.runs());
        self.stats.exact_hits.add((packets - batch.packets_in(unknown)).into());
        self.stats.megaflow_hits.add(batch.packets_in(found).into());
        found == unknown
    }

    /// Stage 3. Returns those of the runs, a bit each, of which no megaflow is remembered.
    #[inline(never)]
    fn guess(&self, runs: &mut [Run]) -> u32 {
        for run in &mut *runs {
            if run.flow == NONE {
                run.flow = self.signatures.guess(run.hash);
                self.flows.prefetch(run.flow);
            }
        }
        let mut unknown = 0;
        for (n, run) in runs.iter_mut().enumerate() {
            if !self.flows.covers(run.flow, &run.key) {
                unknown |= 1 << n;
                if run.flow != MALFORMED {
                    run.flow = NONE;
                }
            }
        }
        unknown
    }

    /// Stage 3 again for those of the runs, a bit each, of which no megaflow is remembered by the whole key, while some
    /// megaflows look behind the Ethernet header and others do not: the latter are remembered by the Ethernet header too.
    /// Returns those that are left.
    #[cold]
    fn guess_by_ethernet(&mut self, unknown: u32, runs: &mut [Run]) -> u32 {
        let (mut left, mut rest) = (unknown, unknown);
        while rest != 0 {
            let bit = rest & rest.wrapping_neg();
            rest ^= bit;
            let run = &mut runs[bit.trailing_zeros() as usize];
            if run.flow == MALFORMED {
                continue;
            }
            let hash = self.hasher.ethernet(&run.key);
            let flow = self.signatures.guess(hash);
            if self.flows.covers(flow, &run.key) {
                run.flow = flow;
                left ^= bit;
                self.signatures.remember(run.hash, flow);
                self.signatures.remember_also(hash, flow);
            }
        }
        left
    }

    /// The megaflow of one packet, if it is remembered.
    pub(super) fn recall(&self, key: &Key) -> Option<u32> {
        let covering = |hash| Some(self.signatures.guess(hash)).filter(|guess| self.flows.covers(*guess, key));
        let also_by_ethernet = !self.flows.is_ethernet() && self.flows.has_ethernet();
        let by_ethernet = || also_by_ethernet.then(|| covering(self.hasher.ethernet(key))).flatten();
        covering(self.hash(key)).or_else(by_ethernet)
    }

    /// Remembers the megaflows that were found for these of the runs, a bit each.
    fn remember_found(&mut self, mut found: u32, runs: &[Run]) {
        while found != 0 {
            let run = &runs[found.trailing_zeros() as usize];
            found &= found - 1;
            self.remember_as(run.hash, &run.key, run.flow);
        }
    }

    /// Remembers the megaflow of one packet.
    pub(super) fn remember(&mut self, key: &Key, flow: u32) {
        self.remember_as(self.hash(key), key, flow);
    }

    /// Remembers the megaflow of a key of this hash. One that does not look behind the Ethernet header is remembered by that
    /// as well, so that it stays known when the last megaflow that looks deeper ends.
    fn remember_as(&mut self, hash: u64, key: &Key, flow: u32) {
        self.signatures.remember(hash, flow);
        if !self.flows.is_ethernet() && self.flows.is_ethernet_flow(flow) {
            self.signatures.remember_also(self.hasher.ethernet(key), flow);
        }
    }
}
