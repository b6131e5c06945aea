//! Which packets are offered a shortcut, and what ends shortcuts beside their megaflows.

use super::batch::{Batch, MALFORMED};
use super::{BATCH, Inlet, Pipeline};
use crate::megaflow::Candidate;
use crate::options::ShortcutUse;
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
        let of_batch = || batch.runs().last().map(|run| run.flow);
        let Some(flow) = self.flows.of_all(from.port).or_else(of_batch) else {
            return;
        };
        if flow >= MALFORMED || self.flows.removals() != last.removals {
            return;
        }
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

    /// Tells megaflows what shortcuts have carried for them.
    pub(crate) fn tell_carried(&mut self) {
        self.flows.tell_carried();
    }
}
