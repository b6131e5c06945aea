//! What the ports of a datapath are offloaded to.

use super::DpUser;
use crate::dep_epochs::{DepEpochs, PortOffload};
use dp::offload::{FlowOffload, OffloadTable};
use dp::{DropCause, PortCounters};
use flow::PortNo;
use netdev::{Kept, Kind, Netdev, Rx};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl DpUser {
    /// Offloads flows to what `load` makes, once, for the first port that can be offloaded. To be
    /// called before ports are added.
    pub fn offload_to(&self, load: impl Fn() -> io::Result<Arc<dyn FlowOffload>> + Send + Sync + 'static) {
        // The first stays.
        let _ = self.load_offload.set(Box::new(load));
    }

    /// Leaves the offloaded flows as they are: nothing that this process does changes them any
    /// more. To be called when it ends, before [`DpUser::keep_offloaded`]. `None` where there is no
    /// offload.
    ///
    /// # Errors
    /// The kernel's. The flows have been left all the same.
    pub fn leave_offloaded(&self) -> io::Result<Option<Vec<OwnedFd>>> {
        let left = self.offload_table().map(OffloadTable::leave);
        Ok(left.transpose()?.flatten())
    }

    /// Keeps the flows that were left in force, as long as the result is there and until another
    /// process ends them. Devices that have gone are left out.
    pub fn keep_offloaded(&self, programs: Vec<OwnedFd>) -> LeftFlows {
        let mut devices = Vec::new();
        self.with_offloaded_queues(|port, queue| devices.extend(port.keep(queue).ok().flatten()));
        LeftFlows { programs, devices }
    }

    /// Attaches the receive queues to the offload once more, when the flows of a process before
    /// have ended.
    pub fn attach_again(&self) {
        self.with_offloaded_queues(|port, queue| {
            // Flows that are open already have not counted what lies in the queue.
            port.suspend();
            if let Err(error) = port.attach(queue) {
                *self.unattached.lock() = Some(sys::strerror(&error));
            }
        });
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

/// Offloaded flows without the process that made them.
pub struct LeftFlows {
    /// What [`FlowOffload::leave`] has returned.
    pub programs: Vec<OwnedFd>,
    /// The devices that they come in by.
    pub devices: Vec<Kept>,
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
