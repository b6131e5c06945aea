//! The ports that shortcuts lead from and to, as one worker has them.

use super::super::FlowTable;
use super::Shortcuts;
use crate::dep_epochs::PortOffload;
use crate::options::OffloadUse;
use dp::offload::{Egress, Epoch, OffloadPort};
use flow::PortNo;
use netdev::State;
use std::sync::Arc;

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// A port that shortcuts can lead from and to.
pub(super) struct Exit {
    pub(super) port: Arc<OffloadPort>,
    /// The state of its device; `None` where that has gone.
    device: Option<State>,
    /// Shortcuts that were opened with another one are to be closed.
    pub(super) stamp: u64,
}

impl Exit {
    /// How packets leave by it; `None` where its device takes none.
    pub(super) fn way(&self, shortcuts: OffloadUse) -> Option<Egress> {
        let state = self.device.as_ref()?;
        (state.admin_up && state.carrier).then(|| Egress {
            longest: state.mtu.saturating_add(ETHERNET),
            to_peer: shortcuts == OffloadUse::Peer && state.far_end_elsewhere,
            rewrite: None,
        })
    }
}

impl Shortcuts {
    /// Suspends those from and to a port. They are closed later.
    fn retire_port(&mut self, port: PortNo) {
        self.stamps += 1;
        if let Some(exit) = self.exits.get_mut(&port) {
            exit.port.suspend();
            exit.stamp = self.stamps;
            self.review.begin(self.open.len());
        }
    }
}

impl FlowTable {
    /// Lets shortcuts lead from and to a port.
    pub(crate) fn add_exit(&mut self, to: PortNo, PortOffload { port, deps, device }: PortOffload) {
        let shortcuts = &mut self.shortcuts;
        if shortcuts.epoch.is_none() {
            shortcuts.epoch = deps.table().epoch();
        }
        shortcuts.deps = Some(deps);
        shortcuts.stamps += 1;
        let exit = Exit {
            port,
            device,
            stamp: shortcuts.stamps,
        };
        shortcuts.exits.insert(to, exit);
    }

    /// Lets no shortcuts lead from or to a port any more.
    pub(crate) fn remove_exit(&mut self, to: PortNo) {
        self.shortcuts.retire_port(to);
        self.shortcuts.exits.remove(&to);
    }

    /// Suspends the shortcuts from and to a port, whose device has this state now; `None` where it
    /// has gone.
    pub(crate) fn link_changed(&mut self, port: PortNo, device: Option<State>) {
        self.shortcuts.retire_port(port);
        if let Some(exit) = self.shortcuts.exits.get_mut(&port) {
            exit.device = device;
        }
    }

    /// Suspends all shortcuts, and changes how they are used.
    pub(crate) fn use_shortcuts(&mut self, usage: OffloadUse) {
        let shortcuts = &mut self.shortcuts;
        shortcuts.usage = usage;
        shortcuts.epoch.iter().for_each(Epoch::advance);
        shortcuts.stamps += 1;
        for exit in shortcuts.exits.values_mut() {
            exit.stamp = shortcuts.stamps;
        }
        shortcuts.review.begin(shortcuts.open.len());
    }

    /// Lets packets that come in by a port, or go out by it, come here again.
    pub(crate) fn stop_shortcuts_of(&mut self, port: PortNo) {
        self.shortcuts.retire_port(port);
    }

    /// Packets that shortcuts have let out, while there are some here.
    pub(crate) fn carried_by_shortcuts(&self) -> Option<u64> {
        let exits = self.shortcuts.exits.values();
        let sent = exits.map(|exit| exit.port.carried().tx_packets);
        self.shortcuts.any().then(|| sent.fold(0, u64::wrapping_add))
    }
}
