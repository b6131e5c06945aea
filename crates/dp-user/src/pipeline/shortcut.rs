//! Which packets are offered a shortcut, and what ends shortcuts beside their megaflows.

use super::batch::{Batch, MALFORMED};
use super::{BATCH, Inlet, Pipeline};
use crate::megaflow::Candidate;
use crate::options::ShortcutUse;
use crate::signature::NONE;
use flow::PortNo;
use netdev::Netdev;
use netdev::shortcut::{ShortcutKey, ShortcutPort};
use std::sync::Arc;
use wire::Nanos;

/// The last packet of a batch, before it goes its way.
pub(super) struct Last {
    key: ShortcutKey,
    /// As long as this stands still, numbers of megaflows mean what they did.
    removals: u64,
}

impl Pipeline {
    /// The last packet of a batch, where packets like it can have a shortcut.
    #[cold]
    pub(super) fn candidate(&self, batch: &Batch, from: &Inlet) -> Option<Last> {
        // Where the batch is full, others of its flow may wait behind it, and would be overtaken.
        if batch.frames.len() >= BATCH || from.is_gated() || from.waits() {
            return None;
        }
        Some(Last {
            key: from.entrance.as_ref()?.key(batch.frames.last()?.data())?,
            removals: self.flows.removals(),
        })
    }

    /// Offers a shortcut to packets like the last of a batch that has gone its way.
    #[cold]
    pub(super) fn offer_shortcut(&mut self, last: &Last, batch: &Batch, from: &Inlet, now: Nanos) {
        let Some(flow) = self.flow_of(last, batch, from, now) else {
            return;
        };
        if let Some(to) = self.flows.flow_mut(flow).direct
            && self.actor.egress.is_direct(to)
        {
            let candidate = Candidate {
                key: last.key,
                from: from.port,
                flow,
                to,
            };
            self.flows.offer_shortcut(&candidate, self.epoch, now);
        }
    }

    /// The megaflow of the last packet of a batch.
    fn flow_of(&mut self, last: &Last, batch: &Batch, from: &Inlet, now: Nanos) -> Option<u32> {
        if let Some(all) = self.flows.of_all(from.port) {
            return Some(all);
        }
        let run = batch.runs().last()?;
        match run.flow {
            MALFORMED => None,
            // It has made one, or waits; where many do, others do not wait for this.
            NONE if from.waits() || !self.flows.has_time_for_shortcuts(now) => None,
            NONE => self.flows.lookup(&run.key),
            flow => (self.flows.removals() == last.removals).then_some(flow),
        }
    }

    /// Lets shortcuts lead to a port, where they can.
    pub(crate) fn add_exit(&mut self, port: PortNo, exit: Option<Arc<ShortcutPort>>, device: &Arc<dyn Netdev>) {
        if let Some(exit) = exit {
            self.flows.add_exit(port, exit, device.clone());
        }
    }

    /// Lets all packets that come in or go out by a port come here, at once.
    pub(crate) fn stop_shortcuts(&mut self, port: PortNo) {
        self.flows.stop_shortcuts_of(port);
    }

    /// The same, and leaves nothing to be done later: another worker may open the same shortcuts.
    pub(crate) fn close_shortcuts(&mut self, port: PortNo) {
        self.flows.stop_shortcuts_of(port);
        self.flows.close_shortcuts();
    }

    /// Changes how shortcuts are used.
    pub(crate) fn use_shortcuts(&mut self, usage: ShortcutUse) {
        self.flows.use_shortcuts(usage);
    }

    /// Lets all packets come here, and asks devices anew what they take.
    pub(crate) fn forget_devices(&mut self) {
        self.flows.forget_devices();
    }

    /// Packets that have taken shortcuts, of whatever workers; `None` where this one has none open.
    pub(crate) fn carried_by_shortcuts(&self) -> Option<u64> {
        self.flows.carried_by_shortcuts()
    }

    /// Tells megaflows what shortcuts have carried for them.
    pub(crate) fn tell_carried(&mut self) {
        self.flows.tell_carried();
    }
}
