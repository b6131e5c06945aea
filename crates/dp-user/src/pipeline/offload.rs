//! Which packets are offered a shortcut, and what ends shortcuts beside their megaflows.

use super::Pipeline;
use crate::batch::BATCH;
use crate::batch::{Batch, MALFORMED};
use crate::dep_epochs::PortOffload;
use crate::device_facts::DeviceFacts;
use crate::megaflow::Candidate;
use crate::options::OffloadUse;
use crate::rx_queue::RxQueue;
use crate::signature::NONE;
use dp::offload::PacketKind;
use flow::PortNo;
use netdev::State;
use wire::Nanos;

/// The last packet of a batch, before it goes its way.
pub(super) struct Last {
    key: PacketKind,
    /// As long as this stands still, numbers of megaflows mean what they did.
    removals: u64,
}

impl Pipeline {
    /// The last packet of a batch, where packets like it can have a shortcut.
    #[cold]
    pub(super) fn candidate(&self, batch: &Batch, from: &RxQueue) -> Option<Last> {
        // Where the batch is full, others of its flow may wait behind it, and would be overtaken.
        if batch.frames.len() >= BATCH || from.has_ingress() || from.waits() || from.has_pending() {
            return None;
        }
        Some(Last {
            key: from.entrance.as_ref()?.kind(batch.frames.last()?.data())?,
            removals: self.flows.removals(),
        })
    }

    /// Offers a shortcut to packets like the last of a batch that has gone its way.
    #[cold]
    pub(super) fn offer_shortcut(&mut self, last: &Last, batch: &Batch, from: &RxQueue, now: Nanos) {
        // A shortcut can be put in force only where all changes have been applied; in a storm of
        // them there may be new ones already.
        self.apply_changes();
        let Some(flow) = self.flow_of(last, batch, from, now) else {
            return;
        };
        if let Some(to) = self.flows.flow_mut(flow).ending.port()
            && self.actor.egress.is_direct(to)
        {
            let candidate = Candidate {
                key: last.key,
                from: from.port,
                flow,
                to,
            };
            let (changes, applied) = (&self.changes, self.epoch);
            self.flows
                .offer_shortcut(&candidate, || changes.epoch() == applied, now);
        }
    }

    /// The megaflow of the last packet of a batch.
    fn flow_of(&mut self, last: &Last, batch: &Batch, from: &RxQueue, now: Nanos) -> Option<u32> {
        // The packet may wait behind others of its flow, whether its megaflow is known or not.
        if from.waits() || from.has_pending() {
            return None;
        }
        if let Some(all) = self.flows.of_all(from.port) {
            return Some(all);
        }
        let run = batch.runs().last()?;
        match run.flow {
            MALFORMED => None,
            // It has made one. Where many do, others do not wait for this.
            NONE if !self.flows.has_time_for_shortcuts(now) => None,
            NONE => self.flows.lookup(&run.key),
            flow if self.flows.removals() == last.removals => Some(flow),
            // Numbers may mean others. A key that was read as far as megaflows looked then may not
            // be enough.
            flow => {
                let is_read = !batch.is_ethernet || self.flows.is_ethernet();
                (is_read && self.flows.covers(flow, &run.key)).then_some(flow)
            }
        }
    }

    /// Lets shortcuts lead to a port, where they can.
    pub(crate) fn add_exit(&mut self, port: PortNo, exit: Option<PortOffload>) {
        if let Some(exit) = exit {
            self.flows.add_exit(port, exit);
        }
    }

    /// Lets all packets that come in or go out by a port come here, at once.
    pub(crate) fn stop_shortcuts(&mut self, port: PortNo) {
        self.flows.stop_shortcuts_of(port);
    }

    /// Changes how shortcuts are used.
    pub(crate) fn use_shortcuts(&mut self, usage: OffloadUse) {
        self.flows.use_shortcuts(usage);
    }

    /// Suspends the shortcuts from and to a port, whose device has this state now; `None` where it
    /// has gone. Sends at the speed of its link from now on.
    pub(crate) fn link_changed(&mut self, port: PortNo, device: Option<State>) {
        if let Some(state) = &device {
            self.actor.egress.set_speed(port, DeviceFacts::speed_of(state));
        }
        self.flows.link_changed(port, device);
    }

    /// Packets that have taken shortcuts, of whatever workers; `None` where this one has none open.
    pub(crate) fn carried_by_shortcuts(&self) -> Option<u64> {
        self.flows.carried_by_shortcuts()
    }

    /// Tells megaflows what some shortcuts have carried for them, from a place on; returns the
    /// place to go on from.
    pub(crate) fn tell_carried(&mut self, first: u32) -> Option<u32> {
        self.flows.tell_carried(first)
    }
}
