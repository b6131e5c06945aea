//! What the ports of a datapath are offloaded to.

use super::DpUser;
use crate::dep_epochs::{DepEpochs, PortOffload};
use dp::offload::{FlowOffload, OffloadTable};
use dp::{DropCause, PortCounters};
use flow::PortNo;
use netdev::{Kind, Netdev, Rx};
use std::io;
use std::sync::Arc;

impl DpUser {
    /// Offloads flows to what `load` makes, once, for the first port that can be offloaded. To be
    /// called before ports are added.
    pub fn offload_to(&self, load: impl Fn() -> io::Result<Arc<dyn FlowOffload>> + Send + Sync + 'static) {
        // The first stays.
        let _ = self.load_offload.set(Box::new(load));
    }

    fn make_offload(&self) -> io::Result<Arc<DepEpochs>> {
        let load = self.load_offload.get().ok_or(io::ErrorKind::Unsupported)?;
        let deps = DepEpochs::new(OffloadTable::new(load()?));
        let told = deps.clone();
        let first = self.changes.tell(move |changes| told.changed(changes));
        first.then_some(deps).ok_or(io::ErrorKind::AlreadyExists.into())
    }

    /// The offloaded flows, if there is an offload.
    pub(super) fn offload_table(&self) -> Option<&OffloadTable> {
        Some(self.offload.get()?.as_ref().ok()?.table())
    }

    /// Suspends the offloaded flows from and to ports.
    pub(super) fn suspend_offloaded(&self, ports: &[PortNo]) {
        let all = self.ports.read();
        let offloads = ports.iter().filter_map(|port| all.get(port)?.offload.as_ref());
        offloads.for_each(|offload| offload.port.suspend());
    }

    /// The port as the offload has it, if packets from all its receive queues can be offloaded.
    pub(super) fn offload_port(&self, device: &dyn Netdev, queues: &mut [Box<dyn Rx>]) -> Option<PortOffload> {
        if !is_eligible(device.kind()) {
            return None;
        }
        let deps = self.offload.get_or_init(|| self.make_offload()).as_ref().ok()?;
        let state = device.state().ok()?;
        let port = deps.table().port(state.ifindex)?;
        let attached: io::Result<Vec<bool>> = queues.iter_mut().map(|queue| port.attach(&mut **queue)).collect();
        if let Err(error) = &attached {
            *self.unattached.lock() = Some(format!("{}: {}", device.name(), sys::strerror(error)));
        }
        attached
            .is_ok_and(|all| all.into_iter().all(|attached| attached))
            .then(|| PortOffload {
                port,
                deps: deps.clone(),
                device: Some(state),
            })
    }
}

/// Adds what offloaded flows have carried for a port.
pub(super) fn add_carried(sum: &mut PortCounters, offload: &PortOffload) {
    let carried = offload.port.carried();
    sum.rx_packets += carried.rx_packets;
    sum.rx_bytes += carried.rx_bytes;
    sum.tx_packets += carried.tx_packets;
    sum.tx_bytes += carried.tx_bytes;
    sum.tx_dropped += carried.tx_dropped;
    sum.drops[DropCause::DeviceFull as usize] += carried.tx_dropped;
}

/// Whether ports of this kind can have offloaded flows. The programs need the ingress of a kernel
/// device.
fn is_eligible(kind: Kind) -> bool {
    match kind {
        Kind::System => true,
        Kind::Afxdp | Kind::Internal | Kind::Tap | Kind::Dummy | Kind::Pcap | Kind::Null | Kind::Tunnel => false,
    }
}
