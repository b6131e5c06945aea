//! Stages 2 to 4: which megaflow covers each packet of a batch.
//!
//! Each step is done for the whole batch before the next, and asks for the memory that the next one
//! reads: what one packet waits for comes while the others are seen to.

use super::Pipeline;
use crate::batch::{Batch, MALFORMED, Run};
use crate::signature::NONE;
use flow::{Key, KeySlot, PortNo};

impl Pipeline {
    /// Stage 2.
    #[inline]
    pub(super) fn extract(&mut self, batch: &mut Batch) {
        if self.ethernet != self.flows.is_ethernet() {
            self.look_further();
        }
        batch.is_ethernet = self.hashes_ethernet();
        match batch.received {
            Some(port) => self.read::<true>(batch, port),
            None => self.read::<false>(batch, PortNo(0)),
        }
    }

    #[inline(never)]
    fn read<const RECEIVED: bool>(&self, batch: &mut Batch, port: PortNo) {
        let ask = |hash| {
            sys::memory::prefetch(self.signatures.line(hash));
            hash
        };
        if batch.is_ethernet {
            // Closures of this function alone, so that they are inlined.
            let read =
                |key: &mut KeySlot, data: &_, meta: &_, before: Option<&_>| key.read_ethernet(data, meta, before);
            batch.read::<RECEIVED>(port, read, |key| ask(self.hasher.ethernet(key)));
        } else {
            let read = |key: &mut KeySlot, data: &_, meta: &_, before: Option<&_>| key.read(data, meta, before);
            batch.read::<RECEIVED>(port, read, |key| ask(self.hasher.whole(key)));
        }
    }

    /// The first megaflow has begun to look behind the Ethernet header, or the last that did has
    /// ended. The next keys, as many as the signature cache has places, are read whole and looked
    /// for both ways, so that their megaflows stay known.
    #[cold]
    fn look_further(&mut self) {
        self.ethernet = self.flows.is_ethernet();
        self.by_both = self.signatures.places();
    }

    /// Whether keys are read, and megaflows remembered, by the Ethernet header alone.
    #[inline(always)]
    pub(super) fn hashes_ethernet(&self) -> bool {
        self.ethernet && self.by_both == 0 && self.flows.is_ethernet()
    }

    /// The hash by which a key's megaflow is remembered: of as much of it as megaflows look at,
    /// which is all that is read of packets.
    #[inline]
    pub(super) fn hash(&self, key: &Key) -> u64 {
        if self.hashes_ethernet() {
            self.hasher.ethernet(key)
        } else {
            self.hasher.whole(key)
        }
    }

    /// Stages 3 and 4. Returns whether all have their megaflow.
    #[inline]
    pub(super) fn find(&mut self, batch: &mut Batch) -> bool {
        let mut unknown = self.guess(batch.runs_mut());
        if self.by_both > 0 {
            unknown = self.guess_by_both(unknown, batch.runs_mut());
        }
        let (packets, runs) = (batch.frames.len() as u32, batch.runs().len() as u32);
        if unknown == 0 {
            self.signatures.learn(runs, 0);
            self.stats.exact_hits.add(packets.into());
            return true;
        }
        let found = self.flows.lookup_batch(batch.runs_mut());
        batch.searched = self.flows.made();
        self.signatures.learn(runs - unknown.count_ones(), found.count_ones());
        self.remember_found(found, batch.runs());
        self.stats.exact_hits.add((packets - batch.packets_in(unknown)).into());
        self.stats.megaflow_hits.add(batch.packets_in(found).into());
        found == unknown
    }

    /// Stage 3. Returns a bit for each run whose key is not in the signature cache.
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

    /// Stage 3: for the runs with a bit in `unknown`, no megaflow is remembered by the whole key.
    /// Searches for one by the Ethernet header too. Returns the runs that are left.
    #[cold]
    fn guess_by_both(&mut self, mut unknown: u32, runs: &mut [Run]) -> u32 {
        for (n, run) in runs.iter_mut().enumerate() {
            let is_unknown = unknown >> n & 1 != 0;
            if is_unknown
                && run.flow != MALFORMED
                && let Some(flow) = self.recall_by_ethernet(&run.key)
            {
                run.flow = flow;
                unknown ^= 1 << n;
                self.signatures.remember(run.hash, flow);
            } else if !is_unknown && self.ethernet {
                self.signatures.remember(self.hasher.ethernet(&run.key), run.flow);
            }
        }
        self.by_both = self.by_both.saturating_sub(runs.len() as u32);
        unknown
    }

    #[cold]
    #[inline(never)]
    fn recall_by_ethernet(&self, key: &Key) -> Option<u32> {
        let guess = self.signatures.guess(self.hasher.ethernet(key));
        self.flows.covers(guess, key).then_some(guess)
    }

    /// Remembers the megaflows that were found for these of the runs, a bit each.
    fn remember_found(&mut self, mut found: u32, runs: &[Run]) {
        while found != 0 {
            let run = &runs[found.trailing_zeros() as usize];
            found &= found - 1;
            self.signatures.remember(run.hash, run.flow);
            self.remember_for_later(&run.key, run.flow);
        }
    }

    /// Remembers the megaflow of one packet.
    pub(super) fn remember(&mut self, key: &Key, flow: u32) {
        self.signatures.remember(self.hash(key), flow);
        self.remember_for_later(key, flow);
    }

    /// Remembers a megaflow by the Ethernet header as well, where keys are soon read no further.
    #[inline]
    fn remember_for_later(&mut self, key: &Key, flow: u32) {
        if self.by_both > 0 && self.ethernet {
            self.signatures.remember(self.hasher.ethernet(key), flow);
        }
    }
}
