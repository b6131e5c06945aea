//! The ports that offloaded flows lead from and to, as one worker has them.

use super::super::FlowTable;
use super::OffloadedFlows;
use crate::dep_epochs::PortOffload;
use dp::offload::{Egress, Epoch, OffloadPort};
use flow::PortNo;
use netdev::State;
use std::sync::Arc;

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// A port that offloaded flows can lead from and to.
pub(super) struct Port {
    pub(super) port: Arc<OffloadPort>,
    /// The state of its device; `None` if that has gone.
    device: Option<State>,
    /// Offloaded flows that were opened with another stamp are to be closed.
    pub(super) stamp: u64,
}

impl Port {
    /// How packets leave by it; `None` if its device takes none.
    pub(super) fn egress(&self) -> Option<Egress> {
        let state = self.device.as_ref()?;
        (state.admin_up && state.carrier).then(|| Egress {
            longest: state.mtu.saturating_add(ETHERNET),
            rewrite: None,
        })
    }
}

impl OffloadedFlows {
    /// Suspends the offloaded flows from and to a port. They are closed later.
    fn retire_port(&mut self, port: PortNo) {
        self.stamps += 1;
        if let Some(ours) = self.ports.get_mut(&port) {
            ours.port.suspend();
            ours.stamp = self.stamps;
            self.review.begin(self.open.len());
        }
    }
}

impl FlowTable {
    /// Lets offloaded flows lead from and to a port.
    pub(crate) fn add_offload_port(&mut self, to: PortNo, PortOffload { port, deps, device }: PortOffload) {
        let offloaded = &mut self.offloaded;
        if offloaded.epoch.is_none() {
            offloaded.epoch = deps.table().epoch();
        }
        offloaded.deps = Some(deps);
        offloaded.stamps += 1;
        let port = Port {
            port,
            device,
            stamp: offloaded.stamps,
        };
        offloaded.ports.insert(to, port);
    }

    /// Lets no offloaded flows lead from or to a port any more.
    pub(crate) fn remove_offload_port(&mut self, to: PortNo) {
        self.offloaded.retire_port(to);
        self.offloaded.ports.remove(&to);
    }

    /// Suspends the offloaded flows from and to a port, and sets its device's state; `None` if that
    /// has gone.
    pub(crate) fn link_changed(&mut self, port: PortNo, device: Option<State>) {
        self.offloaded.retire_port(port);
        if let Some(ours) = self.offloaded.ports.get_mut(&port) {
            ours.device = device;
        }
    }

    /// Suspends all offloaded flows, and says whether flows are offloaded from now on.
    pub(crate) fn set_offload(&mut self, enabled: bool) {
        let offloaded = &mut self.offloaded;
        offloaded.enabled = enabled;
        offloaded.epoch.iter().for_each(Epoch::advance);
        offloaded.stamps += 1;
        for port in offloaded.ports.values_mut() {
            port.stamp = offloaded.stamps;
        }
        offloaded.review.begin(offloaded.open.len());
    }

    /// Lets packets that come in by a port, or go out by it, come here again.
    pub(crate) fn stop_offloaded_of(&mut self, port: PortNo) {
        self.offloaded.retire_port(port);
    }

    /// Packets that offloaded flows have let out, while there are some here.
    pub(crate) fn carried_by_offload(&self) -> Option<u64> {
        let ports = self.offloaded.ports.values();
        let sent = ports.map(|port| port.port.carried().tx_packets);
        self.offloaded.any().then(|| sent.fold(0, u64::wrapping_add))
    }
}
