//! Stages 2 to 4: which megaflow covers each packet of a batch.
//!
//! Each step is done for the whole batch before the next, and asks for the memory that the next one
//! reads: what one packet waits for comes while the others are seen to.

use super::Pipeline;
use crate::batch::{Batch, MALFORMED, Run};
use crate::signature::NONE;
use flow::{Key, PortNo};

impl Pipeline {
    /// Stage 2.
    #[inline]
    pub(super) fn extract(&mut self, batch: &mut Batch) {
        match batch.received {
            Some(port) => self.read::<true>(batch, port),
            None => self.read::<false>(batch, PortNo(0)),
        }
    }

    #[inline(never)]
    fn read<const RECEIVED: bool>(&self, batch: &mut Batch, port: PortNo) {
        batch.read::<RECEIVED>(port, |key| {
            let hash = self.hasher.whole(key);
            sys::memory::prefetch(self.signatures.line(hash));
            hash
        });
    }

    /// Stages 3 and 4. Returns whether all have their megaflow.
    #[inline]
    pub(super) fn find(&mut self, batch: &mut Batch) -> bool {
        let unknown = self.guess(batch.runs_mut());
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

    /// Remembers the megaflows that were found for these of the runs, a bit each.
    fn remember_found(&mut self, mut found: u32, runs: &[Run]) {
        while found != 0 {
            let run = &runs[found.trailing_zeros() as usize];
            found &= found - 1;
            self.signatures.remember(run.hash, run.flow);
        }
    }

    /// Remembers the megaflow of one packet.
    pub(super) fn remember(&mut self, key: &Key, flow: u32) {
        self.signatures.remember(self.hasher.whole(key), flow);
    }
}
