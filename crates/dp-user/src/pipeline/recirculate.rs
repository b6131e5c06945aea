//! Recirculated packets: they go through stages 2 to 7 again, as batches.
//!
//! Where the megaflows of a batch do nothing else than to change every packet and to recirculate
//! it, or to take its outer headers off, the batch goes on as it is. Other recirculated packets are
//! collected, and go on as a batch before the packet that follows the last of them. Recirculation
//! numbers need not be the same: a number is part of a packet's metadata, and thereby of its key.
//!
//! Invariants
//! - What becomes of packets, and in which order, is the same as if each packet went all its way
//!   before the next.
//! - All packets of a batch have recirculated equally often, at most [`MAX_RECIRCULATIONS`] times.

use super::Pipeline;
use crate::actions::id_of;
use crate::batch::{Batch, Run};
use crate::edit::Before;
use crate::rx_queue::Source;
use crate::signature::NONE;
use crate::stats::DropSink;
use dp::{Action, DropCause, MAX_RECIRCULATIONS};
use nanos::Nanos;

impl Pipeline {
    /// Recirculates what packets that have recirculated `depth` times have collected.
    #[inline]
    pub(super) fn recirculate(&mut self, depth: u32, from: &mut Source, now: Nanos) {
        if !self.actor.recirculated.is_empty() {
            self.recirculate_collected(depth + 1, from, now);
        }
    }

    #[inline(never)]
    fn recirculate_collected(&mut self, depth: u32, from: &mut Source, now: Nanos) {
        // These packets may collect others.
        let mut batch = self.spare_batches.pop().unwrap_or_default();
        std::mem::swap(&mut batch.frames, &mut self.actor.recirculated);
        let mut rest = batch.split_rest();
        while !batch.frames.is_empty() {
            batch.has_keys = false;
            self.pass_again(&mut batch, depth, from, now);
            batch.refill(&mut rest);
        }
        self.spare_batches.push(batch);
    }

    /// Stages 2 to 7 for a batch of packets that have recirculated `depth` times.
    pub(super) fn pass_again(&mut self, batch: &mut Batch, mut depth: u32, from: &mut Source, now: Nanos) {
        loop {
            self.stats.recirculations.add(batch.frames.len() as u64);
            batch.received = None;
            if !batch.has_keys {
                self.extract(batch);
            }
            if !self.find(batch) || from.has_waiting() {
                return self.act_in_order(batch, depth, from, now);
            }
            if !self.act(batch, depth, from, now) {
                return;
            }
            depth += 1;
        }
    }

    /// Gives every packet of a batch the number of the recirculation that its megaflow wants, `id`
    /// where they all want the same one; where they have recirculated often enough, drops them
    /// instead, and returns `false`. Where no packet was changed, the keys that were read stay,
    /// with the new number and what the connection tracker says.
    pub(super) fn recirculate_all(
        &mut self,
        batch: &mut Batch,
        id: Option<u32>,
        before: Before,
        depth: u32,
        from: &Source,
    ) -> bool {
        if depth >= MAX_RECIRCULATIONS {
            let packets = batch.frames.len() as u64;
            self.sink(from).count(DropCause::Recirculation, packets);
            batch.frames.clear();
            return false;
        }
        batch.has_keys &= match before {
            Before::Nothing => true,
            Before::TracksOnly => id.is_some(),
            _ => false,
        };
        let has_keys = batch.has_keys;
        let Some(id) = id else {
            self.recirculate_each(batch, from);
            return !batch.frames.is_empty();
        };
        let (runs, frames) = batch.parts_mut();
        frames.iter_mut().for_each(|frame| frame.meta.recirc_id = id);
        if has_keys && before == Before::Nothing {
            runs.iter_mut().for_each(|run| self.renumber(run, id));
        } else if has_keys {
            batch.has_keys = self.renumber_tracked(batch, id);
        }
        true
    }

    /// Gives the packets of all runs, which were only tracked, a number and what the tracker says
    /// in their keys. Returns `false` if it does not say the same of all packets of a run.
    #[inline(never)]
    fn renumber_tracked(&self, batch: &mut Batch, id: u32) -> bool {
        let (runs, frames) = batch.parts_mut();
        let mut rest = &frames[..];
        for run in runs {
            let (own, others) = rest.split_at(run.packets as usize);
            rest = others;
            let [first, same @ ..] = own else { continue };
            if same
                .iter()
                .any(|frame| frame.meta.connection() != first.meta.connection())
            {
                return false;
            }
            match first.meta.connection() {
                Some(connection) => run.key.recirculate_tracked(id, connection),
                None => run.key.recirculate(id),
            }
            run.hash = self.hasher.recirculated_tracked(run.hash, &run.key, id);
            run.flow = NONE;
            sys::memory::prefetch(self.signatures.line(run.hash));
        }
        true
    }

    /// As [`Pipeline::recirculate_all`], where the numbers differ or carry hashes, or packets lose
    /// outer headers.
    #[inline(never)]
    fn recirculate_each(&mut self, batch: &mut Batch, from: &Source) {
        let has_keys = batch.has_keys;
        let (mut pops, mut lost) = (false, false);
        let (runs, frames) = batch.parts_mut();
        let mut rest = &mut frames[..];
        for run in runs {
            let (own, others) = rest.split_at_mut(run.packets as usize);
            rest = others;
            let flow = self.flows.flow_mut(run.flow);
            let id = match (flow.ending.recirculation(), flow.actions().0.last()) {
                (Some(id), _) => id,
                (None, Some(Action::TunnelPop { port, format })) => {
                    pops = true;
                    let drops = DropSink {
                        worker: &self.stats,
                        port: from.stats.as_deref(),
                    };
                    lost |= self.actor.pop_tunnels(own, *port, *format, drops);
                    continue;
                }
                (None, Some(Action::RecircByHash { id, hash })) if has_keys => id.with_hash(hash.short(&run.key)).0,
                (None, Some(Action::RecircByHash { id, hash })) => {
                    // The packets were changed: a run can have several hashes.
                    for frame in own {
                        frame.meta.recirc_id = id_of(*id, hash, frame).0;
                    }
                    continue;
                }
                _ => continue,
            };
            own.iter_mut().for_each(|frame| frame.meta.recirc_id = id);
            if has_keys {
                self.renumber(run, id);
            }
        }
        batch.has_keys &= !pops;
        if lost {
            batch.frames.retain(|frame| !frame.is_empty());
        }
    }

    /// Gives the packets of a run, whose key stays, a number.
    #[inline(always)]
    fn renumber(&self, run: &mut Run, id: u32) {
        run.key.recirculate(id);
        run.hash = self.hasher.recirculated(run.hash, id);
        run.flow = NONE;
        sys::memory::prefetch(self.signatures.line(run.hash));
    }
}
