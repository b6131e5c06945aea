//! Offload: something below the workers forwards packets of known flows by itself.
//!
//! A worker that has decided where packets of one kind go can *offload* that flow. From then on
//! the [`FlowOffload`] takes such packets out of what the port's receive queue gets, forwards and
//! counts them. Packets are of one kind if a switch reads the same of each of them, except TCP's
//! flags ([`PacketKind`]). So an offloaded flow is never wider than the decision behind it.
//!
//! Epochs
//! - An offloaded flow depends on [epochs](Epoch): numbers that only grow. One is the datapath's,
//!   one is that of each of its ports, and its owner names others: a table, a connection, a
//!   tunnel's route.
//! - The flow is in force while the sum of its epochs is the one that its owner gave.
//! - To advance an epoch suspends every flow that depends on it, at once and without a system call.
//!   Its packets go to their worker, which resumes it.
//!
//! All ports share one pool of offloaded flows, fairly: see [`Refused`].
//!
//! Tunnels: a flow may put [`OuterHeaders`] before its packets. A flow out of a tunnel depends on
//! two decisions, that about the outer headers and that about what is inside; both are its owner's.
//! Its kind has all headers ([`InnerKind`]).
//!
//! Connections: a flow may have connections that are established in both directions, and new
//! headers for its packets ([`Steps`]). The flow depends on the connection's epoch, which advances
//! when that changes. A packet that could change it goes to the worker (the module `connection`).
//!
//! An implementation that cannot do something answers [`Refused::Unsupported`].
//!
//! A flow has up to [`MAX_OUTPUTS`] outputs, so that a mirrored flow stays offloaded.

use crate::Carried;
use conntrack::{Numbers, Passed};
use netdev::{Kept, Rx};
use parking_lot::Mutex;
use pool::Pool;
use smallvec::SmallVec;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tunnel::format::Format;

mod connection;
mod kind;
mod outer;
mod pool;
mod rewrite;

pub use connection::{FlowConnection, NewHeaders, epoch as connection_epoch};
pub use kind::PacketKind;
pub use outer::{InnerKind, MAX_OUTER, OuterHeaders, TunnelHeader};
pub use rewrite::{Outputs, PortOutput, Rewrite, is_decided, is_hash_decided};

/// Most offloaded flows of a datapath.
pub const MAX_FLOWS: u32 = 8192;
/// Number of ports, from 0. Number 0 is not used by any port.
pub const MAX_PORTS: u32 = 1024;
/// Most connections with offloaded flows: as many as all flows can have, so that the ports' shares
/// of flows bound them too.
pub const MAX_CONNECTIONS: u32 = MAX_FLOWS * FLOW_CONNECTIONS as u32;
/// Most epochs. Number 0 is for all flows; those from 1 to [`MAX_PORTS`] are the ports', the next
/// [`MAX_CONNECTIONS`] the connections'.
pub const MAX_EPOCHS: u32 = 1 << 16;
/// The last epoch is never used and never advances: an implementation can fill a list with it.
pub const NO_EPOCH: u32 = MAX_EPOCHS - 1;
/// For [`FlowOffload::settle`]: no count, so that nothing is forwarded.
pub const NONE_GIVEN: u64 = 0;
/// For [`FlowOffload::settle`]: whatever its worker has got.
pub const ANY_GIVEN: u64 = u64::MAX;
/// Most outputs of one flow.
pub const MAX_OUTPUTS: usize = 4;
/// Most connections of one flow.
pub const FLOW_CONNECTIONS: usize = 2;
/// Most epochs of one flow, not counting number 0.
pub const FLOW_EPOCHS: usize = 96;
/// Most epochs that the owner of a flow can name for it.
pub const OWNER_EPOCHS: usize = FLOW_EPOCHS - 1 - MAX_OUTPUTS;

/// What forwards packets of known flows below the workers. Every method may be called from any
/// thread, and none waits but for a system call.
///
/// Flows, ports, connections and epochs have numbers, below [`MAX_FLOWS`], [`MAX_PORTS`],
/// [`MAX_CONNECTIONS`] and [`MAX_EPOCHS`], which [`OffloadTable`] gives out. It calls `resume`,
/// `suspend` and `carried` for open flows only.
pub trait FlowOffload: Send + Sync {
    /// Takes packets of offloaded flows out of what a receive queue gets. To be called by a thread
    /// of the device's network namespace. `false` if the queue's device cannot be offloaded.
    ///
    /// # Errors
    /// The kernel's.
    fn attach(&self, queue: &mut dyn Rx) -> io::Result<bool>;

    /// Ends the control of this process: no call after it changes a flow, so that those in force
    /// stay so. Returns descriptors of what another process needs to take over, in an order of its
    /// own; `None` if that cannot be.
    ///
    /// # Errors
    /// `EMFILE`.
    fn leave(&self) -> io::Result<Option<Vec<OwnedFd>>> {
        Ok(None)
    }

    /// Keeps flows from an attached queue in force without it, as long as the result is there.
    ///
    /// # Errors
    /// The kernel's.
    fn keep(&self, _queue: &dyn Rx) -> io::Result<Option<Kept>> {
        Ok(None)
    }

    /// Whether it can remove outer headers around packets of another version of IP.
    fn removes_mixed(&self) -> bool;

    /// Opens a flow that is not [settled](FlowOffload::settle); its counters are zero.
    ///
    /// # Errors
    /// [`Refused::Taken`] if a flow of the kind is open; [`Refused::Unsupported`] with the reason;
    /// [`Refused::Kernel`].
    fn open(&self, flow: &NewFlow<'_>) -> Result<(), Refused>;

    /// Puts a flow in force while the sum of its epochs is `sum`, as soon as it is
    /// [settled](FlowOffload::settle).
    fn resume(&self, flow: u32, sum: u64);

    /// A count of the packets of an open flow that lie in its worker's queue, or did. It grows
    /// before the next packet of the flow is looked at, and is never [`NONE_GIVEN`].
    fn given(&self, flow: u32) -> u64;

    /// Says that the worker has sent all packets of a flow that it got up to this
    /// [count](FlowOffload::given): if it gets no other one before, the next is forwarded here.
    /// [`ANY_GIVEN`] to forward at once, and overtake what the worker has.
    fn settle(&self, flow: u32, given: u64);

    /// Gives a flow's packets back to their worker, at once. A packet that is on its way at this
    /// moment may be counted up to a millisecond later.
    fn suspend(&self, flow: u32);

    /// Forgets a flow that was suspended.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` if there is none of the kind.
    fn close(&self, flow: u32, kind: &PacketKind) -> io::Result<()>;

    /// What a flow has carried since it was opened, by the monotonic clock. Exact from a
    /// millisecond after it was suspended until another flow gets its number; the time of the last
    /// packet may be some milliseconds early.
    fn carried(&self, flow: u32) -> Carried;

    /// What offloaded flows have carried for a port since [`FlowOffload::reset_port`].
    fn port_carried(&self, port: u32) -> PortCarried;

    /// Sets a port's counters to zero.
    fn reset_port(&self, port: u32);

    /// Begins a connection of which nothing is known and nothing has passed.
    fn reset_connection(&self, number: u32);

    /// What has passed of a connection since it began.
    fn passed(&self, number: u32) -> Passed;

    /// Notes the numbers of both sides of a connection of TCP. The first ones are where it begins;
    /// others count if they are later.
    fn note(&self, number: u32, numbers: [Numbers; 2]);

    /// Suspends all flows that depend on an epoch.
    fn advance(&self, epoch: u32);

    /// An epoch's value.
    fn epoch(&self, epoch: u32) -> u64;
}

/// A flow that is to be offloaded.
#[derive(Clone, Copy, Debug)]
pub struct NewFlow<'a> {
    /// The flow's number.
    pub number: u32,
    /// Which packets. Their outer headers are removed if they are a tunnel's.
    pub kind: &'a PacketKind,
    /// The number of the port that they come in by.
    pub from: u32,
    /// What is done with them before they leave.
    pub steps: Steps<'a>,
    /// Where they leave, in this order: 1 to [`MAX_OUTPUTS`].
    pub outputs: &'a [NewOutput],
    /// The epochs that the flow depends on, besides number 0; at most [`FLOW_EPOCHS`].
    pub epochs: &'a [u32],
    /// The flow is in force while the sum of its epochs is this, once it is settled.
    pub sum: u64,
}

/// What is done with packets of a flow, in this order, when outer headers have been removed and
/// before they leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps<'a> {
    /// The connections that they belong to; at most [`FLOW_CONNECTIONS`].
    pub connections: &'a [FlowConnection],
    /// Their new headers.
    pub headers: Option<&'a NewHeaders>,
    /// Outer headers to put before them, which are untagged then; they leave by one output, which
    /// may push a tag.
    pub push: Option<&'a OuterHeaders>,
}

/// Where packets of a flow leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOutput {
    /// The number of the port.
    pub to: u32,
    /// The kernel's number of that port's device.
    pub ifindex: u32,
    /// How they leave.
    pub egress: Egress,
}

/// How packets of an offloaded flow leave by a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The longest packet, in bytes from the Ethernet header on without a VLAN tag, with outer
    /// headers. Longer ones go to their worker, except segments that the device cuts.
    pub longest: u32,
    /// What is changed in them before, since the output before.
    pub rewrite: Option<Rewrite>,
}

/// Packets that offloaded flows have carried for a port. Bytes count from the Ethernet header, with
/// tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCarried {
    /// Packets that came in.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets that went out.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets of flows with several outputs that the device did not accept, and of flows with
    /// outer headers that the kernel could not change.
    pub tx_dropped: u64,
}

/// Why a flow was not offloaded.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The pool is nearly empty, and the port that the packets come in by has its share of it: an
    /// equal part for each port that has offloaded flows, and one for a port that has none yet.
    #[error("the port has its share of offloaded flows, and few are left")]
    OverShare,
    /// The pool is empty.
    #[error("there are {MAX_FLOWS} offloaded flows")]
    Full,
    /// Another worker has one for packets of this kind and has not closed it yet.
    #[error("packets of this kind have an offloaded flow")]
    Taken,
    /// The offload cannot do it, for this reason.
    #[error("offload has no {0}")]
    Unsupported(&'static str),
    /// The kernel's answer, as `ENOMEM`.
    #[error(transparent)]
    Kernel(#[from] io::Error),
}

/// The offloaded flows, ports and epochs of a datapath.
pub struct OffloadTable {
    offload: Arc<dyn FlowOffload>,
    pool: Pool,
    /// Unused numbers of ports, those unused for longest first.
    free_ports: Mutex<VecDeque<u32>>,
    /// Unused numbers of connections.
    free_connections: Mutex<Vec<u32>>,
    /// Whether [`OffloadTable::leave`] was called.
    is_left: AtomicBool,
    /// Unused numbers of epochs.
    free_epochs: Mutex<Vec<u32>>,
    /// [`PortCarried::tx_dropped`] of ports that have gone.
    dropped: AtomicU64,
}

/// A port that offloaded flows lead from and to. All ports of a table are devices of one network
/// namespace.
pub struct OffloadPort {
    table: Arc<OffloadTable>,
    number: u32,
    ifindex: u32,
}

/// A number that offloaded flows depend on: they are suspended when it [advances](Epoch::advance).
pub struct Epoch {
    table: Arc<OffloadTable>,
    number: u32,
}

/// An offloaded flow. Dropped, it is closed, by a system call.
pub struct OffloadedFlow {
    from: Arc<OffloadPort>,
    /// They keep their numbers as long as the flow is there.
    _outputs: SmallVec<[Arc<OffloadPort>; 2]>,
    number: u32,
    kind: PacketKind,
    is_suspended: bool,
}

impl OffloadTable {
    /// A table without flows.
    pub fn new(offload: Arc<dyn FlowOffload>) -> Arc<OffloadTable> {
        Arc::new(OffloadTable {
            offload,
            pool: Pool::new(MAX_FLOWS, MAX_PORTS),
            free_ports: Mutex::new((1..MAX_PORTS).collect()),
            free_connections: Mutex::new((0..MAX_CONNECTIONS).rev().collect()),
            is_left: AtomicBool::new(false),
            free_epochs: Mutex::new((connection::FREE_EPOCHS..NO_EPOCH).rev().collect()),
            dropped: AtomicU64::new(0),
        })
    }

    /// A port that sends by a device of the kernel, and receives by it if its queues are
    /// [attached](OffloadPort::attach); `None` if there are too many.
    pub fn port(self: &Arc<OffloadTable>, ifindex: u32) -> Option<Arc<OffloadPort>> {
        let number = {
            let mut free = self.free_ports.lock();
            let number = free.pop_front()?;
            self.offload.reset_port(number);
            number
        };
        Some(Arc::new(OffloadPort {
            table: self.clone(),
            number,
            ifindex,
        }))
    }

    /// A new epoch; `None` if there are too many.
    pub fn epoch(self: &Arc<OffloadTable>) -> Option<Epoch> {
        let number = self.free_epochs.lock().pop()?;
        Some(Epoch {
            table: self.clone(),
            number,
        })
    }

    /// Suspends all flows.
    pub fn suspend_all(&self) {
        self.offload.advance(0);
    }

    /// Packets that devices did not accept ([`PortCarried::tx_dropped`]), of all ports that are or
    /// were.
    pub fn dropped(&self) -> u64 {
        let free = self.free_ports.lock();
        let gone: HashSet<u32> = free.iter().copied().collect();
        let present = (1..MAX_PORTS).filter(|port| !gone.contains(port));
        let dropped = present.map(|port| self.offload.port_carried(port).tx_dropped);
        self.dropped.load(Relaxed) + dropped.sum::<u64>()
    }

    /// As [`FlowOffload::leave`].
    ///
    /// # Errors
    /// As those of [`FlowOffload::leave`].
    pub fn leave(&self) -> io::Result<Option<Vec<OwnedFd>>> {
        self.is_left.store(true, Relaxed);
        self.offload.leave()
    }

    /// How many more flows can be offloaded.
    pub fn left(&self) -> u32 {
        self.pool.left()
    }

    /// Whether so few are left that ports with more than their share have to close some: see
    /// [`OffloadPort::surplus`].
    pub fn is_short(&self) -> bool {
        self.pool.is_short()
    }
}

impl Epoch {
    /// Suspends every flow that depends on it.
    pub fn advance(&self) {
        self.table.offload.advance(self.number);
    }

    /// Its number, for [`OffloadPort::open`].
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.table.free_epochs.lock().push(self.number);
    }
}

impl OffloadPort {
    /// As [`FlowOffload::attach`].
    ///
    /// # Errors
    /// As those of [`FlowOffload::attach`].
    pub fn attach(&self, queue: &mut dyn Rx) -> io::Result<bool> {
        self.table.offload.attach(queue)
    }

    /// As [`FlowOffload::keep`].
    ///
    /// # Errors
    /// As those of [`FlowOffload::keep`].
    pub fn keep(&self, queue: &dyn Rx) -> io::Result<Option<Kept>> {
        self.table.offload.keep(queue)
    }

    /// The sum of the epochs of a flow from this port to others whose owner names `epochs`. The
    /// owner reads it before it checks that its decision still holds.
    pub fn sum<'a>(&self, to: impl Iterator<Item = &'a Arc<OffloadPort>>, epochs: &[u32]) -> u64 {
        let offload = &self.table.offload;
        let all = self.epochs(to, epochs).chain([0]);
        all.fold(0, |sum, number| sum.wrapping_add(offload.epoch(number)))
    }

    fn epochs<'a>(&self, to: impl Iterator<Item = &'a Arc<OffloadPort>>, epochs: &[u32]) -> impl Iterator<Item = u32> {
        let ports = to.map(|port| port.number);
        [self.number].into_iter().chain(ports).chain(epochs.iter().copied())
    }

    /// Offloads the flow of packets of a kind, which come in by this port and leave by others after
    /// some steps. It is in force while the sum of its epochs is [`sum`](Self::sum), once it is
    /// [settled](OffloadedFlow::settle). `epochs` has those of connections.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open(
        self: &Arc<OffloadPort>,
        outputs: &[(&Arc<OffloadPort>, Egress)],
        kind: PacketKind,
        steps: Steps<'_>,
        epochs: &[u32],
        sum: u64,
    ) -> Result<OffloadedFlow, Refused> {
        let OffloadTable { offload, pool, .. } = &*self.table;
        if !(1..=MAX_OUTPUTS).contains(&outputs.len()) {
            return Err(Refused::Unsupported("list of so many outputs"));
        }
        let number = pool.take(self.number)?;
        let ports = || outputs.iter().map(|(port, _)| *port);
        let new = |(port, egress): &(&Arc<OffloadPort>, Egress)| NewOutput {
            to: port.number,
            ifindex: port.ifindex,
            egress: *egress,
        };
        let flow = NewFlow {
            number,
            kind: &kind,
            from: self.number,
            steps,
            outputs: &outputs.iter().map(new).collect::<SmallVec<[NewOutput; MAX_OUTPUTS]>>(),
            epochs: &self.epochs(ports(), epochs).collect::<SmallVec<[u32; FLOW_EPOCHS]>>(),
            sum,
        };
        if let Err(refused) = offload.open(&flow) {
            pool.leave(self.number);
            pool.give_back(number);
            return Err(refused);
        }
        Ok(OffloadedFlow {
            from: self.clone(),
            _outputs: ports().cloned().collect(),
            number,
            kind,
            is_suspended: false,
        })
    }

    /// Suspends every flow from and to this port, of every worker.
    pub fn suspend(&self) {
        self.table.offload.advance(self.number);
    }

    /// Number of flows from this port that its workers have to close, because few are left and it
    /// has more than its share.
    pub fn surplus(&self) -> u32 {
        self.table.pool.surplus(self.number)
    }

    /// The table it belongs to.
    pub fn table(&self) -> &Arc<OffloadTable> {
        &self.table
    }

    /// What offloaded flows have carried for it.
    pub fn carried(&self) -> PortCarried {
        self.table.offload.port_carried(self.number)
    }

    /// The kind of a packet that came in by this port; `None` if such packets cannot be offloaded.
    pub fn kind(&self, packet: &[u8]) -> Option<PacketKind> {
        PacketKind::of(self.ifindex, packet)
    }

    /// The kind of a tunnel's packet that came in by this port, as [`PacketKind::of_tunnel`];
    /// `None` if the outer headers of such packets cannot be removed.
    pub fn kind_of_tunnel(&self, packet: &[u8], format: Format, is_segment: bool) -> Option<PacketKind> {
        let kind = PacketKind::of_tunnel(self.ifindex, packet, format, is_segment)?;
        (!kind.is_mixed() || self.table.offload.removes_mixed()).then_some(kind)
    }
}

impl Drop for OffloadPort {
    fn drop(&mut self) {
        let mut free = self.table.free_ports.lock();
        self.table.dropped.fetch_add(self.carried().tx_dropped, Relaxed);
        free.push_back(self.number);
    }
}

impl OffloadedFlow {
    /// Puts it in force while its epochs have this [sum](OffloadPort::sum).
    pub fn resume(&self, sum: u64) {
        self.from.table.offload.resume(self.number, sum);
    }

    /// As [`FlowOffload::given`].
    pub fn given(&self) -> u64 {
        self.from.table.offload.given(self.number)
    }

    /// As [`FlowOffload::settle`].
    pub fn settle(&self, given: u64) {
        self.from.table.offload.settle(self.number, given);
    }

    /// Gives its packets back to their worker, for good. It no longer counts for its port's share.
    pub fn suspend(&mut self) {
        if !std::mem::replace(&mut self.is_suspended, true) {
            self.from.table.offload.suspend(self.number);
            self.from.table.pool.leave(self.from.number);
        }
    }

    /// What it has carried: see [`FlowOffload::carried`].
    pub fn carried(&self) -> Carried {
        self.from.table.offload.carried(self.number)
    }

    /// Which packets it carries.
    pub fn kind(&self) -> &PacketKind {
        &self.kind
    }
}

impl Drop for OffloadedFlow {
    fn drop(&mut self) {
        self.suspend();
        let OffloadTable { offload, pool, .. } = &*self.from.table;
        // It is open.
        let _ = offload.close(self.number, &self.kind);
        pool.give_back(self.number);
    }
}
