//! Housekeeping of a worker: it ages megaflows, frees memory, and reports statistics of flows to
//! the switch.

use super::Pipeline;
use crate::megaflow::OffloadTally;
use dp::Limits;
use nanos::Nanos;

/// Effects reported in one call of [`Slowpath::refresh`](dp::Slowpath::refresh).
const EFFECTS: usize = 256;

/// Credits reported in one call of [`Slowpath::credit`](dp::Slowpath::credit).
const CREDITS: usize = 512;

/// How far the reporting of statistics is.
pub(crate) struct Push {
    /// The next offloaded flow to look at.
    offloaded: Option<u32>,
    /// The next megaflow to look at.
    next: Option<u32>,
}

impl Default for Push {
    fn default() -> Push {
        Push {
            offloaded: Some(0),
            next: Some(0),
        }
    }
}

impl Pipeline {
    /// Does a step of what is done aside from packets: ageing, freeing. Returns when it wants to be
    /// called again, if ever.
    pub fn housekeep(&mut self, now: Nanos) -> Option<Nanos> {
        self.apply_changes();
        self.flows.sweep(now, &mut self.effects);
        let more_to_free = self.flows.reap() | self.flows.trim() | self.flows.remove_gone();
        let tidy = self.flows.tidy_offloaded(now);
        self.report(now);
        if self.flows.len() == 0 {
            self.signatures.clear();
        }
        let next = self.flows.next_sweep();
        let pass_done = next != Some(Nanos::ZERO);
        if self.effects.len() >= EFFECTS || (pass_done && !self.effects.is_empty()) {
            // Megaflows that a change has outdated meanwhile must not teach what is no longer so;
            // what races with this is for the switch to tell apart, as it is with two packets.
            for effects in self.effects.chunks(EFFECTS) {
                self.slowpath.refresh(effects, now);
            }
            self.effects.clear();
        }
        self.stats.flows.set(self.flows.len() as u64);
        self.stats.limit.set(self.flows.limit() as u64);
        self.stats.pass.set(self.flows.pass_took().as_millis() as u64);
        self.stats.masks.set(self.flows.masks() as u64);
        self.stats.subtables.add(self.flows.take_asked());
        self.count_offload();
        if more_to_free {
            return Some(Nanos::ZERO);
        }
        [next, tidy, self.actor.connections.sweep(now)]
            .into_iter()
            .flatten()
            .min()
    }

    fn count_offload(&mut self) {
        let OffloadTally {
            opened,
            resumed,
            over_share,
            full,
            gave_way,
        } = self.flows.take_offload_tally();
        let counts = [opened, resumed, over_share, full, gave_way];
        for (counter, count) in self.stats.offloaded.iter().zip(counts) {
            counter.add(count);
        }
    }

    /// Changes how many megaflows are cached, and for how long.
    pub fn set_limits(&mut self, limits: Limits) {
        self.flows.set_limits(limits);
    }

    /// Most megaflows that are cached now: what was said, or fewer where a pass over them takes
    /// longer than a second or so.
    pub fn flow_limit(&self) -> usize {
        self.flows.limit()
    }

    /// Tells the switch what is noted of what megaflows have carried.
    fn report(&mut self, now: Nanos) {
        for credits in self.flows.credits().chunks(CREDITS) {
            self.slowpath.credit(credits, now);
        }
        self.flows.credits().clear();
    }

    /// Reports what megaflows have carried until now.
    pub fn push_stats(&mut self, now: Nanos) {
        let mut push = Push::default();
        while self.push_step(&mut push, now) {}
    }

    /// Does a step of reporting what megaflows have carried; `false` when all is reported.
    pub(crate) fn push_step(&mut self, push: &mut Push, now: Nanos) -> bool {
        if !self.flows.reap() {
            match (push.offloaded, push.next) {
                (Some(first), _) => push.offloaded = self.flows.tell_carried(first),
                (None, Some(first)) => push.next = self.flows.note_chunk(first),
                (None, None) => {
                    self.report(now);
                    return false;
                }
            }
        }
        self.report(now);
        true
    }
}
