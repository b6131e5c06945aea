//! The interface of a datapath to the control plane.

use crate::{Action, BOND_BUCKETS, BondTable, DropCause, MeterConfig, MeterStats, WorkerControl};
use conntrack::Conntrack;
use flow::{Key, Mask, PortNo};
use nanos::Nanos;
use netdev::Netdev;
use qos::police::IngressPolicerConfig;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A datapath: ports, caches, and the workers that move packets between them.
///
/// All calls may be made from any thread; they are control-plane calls and may wait for a worker to
/// finish its batch.
pub trait Datapath: Send + Sync {
    /// Starts to receive from and to be able to send to a device.
    ///
    /// # Errors
    /// [`DpError::PortExists`] where the number is taken; [`DpError::Device`] where the device
    /// cannot be opened.
    fn add_port(&self, port: PortNo, device: Arc<dyn Netdev>) -> Result<(), DpError>;

    /// Stops to use a port. When this returns no worker holds its device any more.
    ///
    /// # Errors
    /// [`DpError::NoPort`].
    fn del_port(&self, port: PortNo) -> Result<(), DpError>;

    /// A port's counters, summed over workers.
    fn port_counters(&self, port: PortNo) -> Option<PortCounters>;

    /// Sends a packet through actions as if it had just been received on `in_port`.
    fn execute(&self, in_port: PortNo, packet: &[u8], actions: &[Action]);

    /// Sends a frame of a control protocol out of a port as it is, ahead of all that is queued
    /// there. The port's scheduler and speed do not hold it up.
    fn send_ahead(&self, port: PortNo, packet: &[u8]);

    /// The cached megaflows of all workers.
    fn dump_flows(&self) -> Vec<FlowDump>;

    /// Adds or changes a megaflow by hand (`dpctl/add-flow`). It is on the workers that receive
    /// from its port now, and ages as others do. No change of the switch removes it. Where it
    /// overlaps other megaflows, either may serve a packet.
    ///
    /// # Errors
    /// [`PutFlowError`]; then nothing has changed.
    fn put_flow(&self, key: &Key, mask: &Mask, actions: &[Action], how: PutFlow) -> Result<(), PutFlowError>;

    /// Removes the megaflows of exactly this key and mask; returns whether there was one.
    fn del_flow(&self, key: &Key, mask: &Mask) -> bool;

    /// Reports the packets and bytes of megaflows that are not yet reported to
    /// [`Slowpath::credit`](crate::Slowpath::credit). Returns when that is done.
    fn push_stats(&self);

    /// Removes all cached megaflows.
    fn flush_flows(&self);

    /// Hits and misses of the caches, summed over workers.
    fn cache_stats(&self) -> CacheStats;

    /// Adds or replaces a meter: the packet count of a replaced one goes on, those of its bands
    /// start at zero (OpenFlow 1.5 §7.3.4.5).
    ///
    /// # Errors
    /// [`DpError::BadMeter`] if the number is beyond those of rules and ports
    /// ([`MAX_METERS`](crate::MAX_METERS), [`MAX_PORT_METERS`](crate::MAX_PORT_METERS)), or the
    /// meter has no band or more than [`MAX_BANDS`](crate::MAX_BANDS).
    fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), DpError>;

    /// Removes a meter; [`Action::Meter`] with its number then passes packets. Returns its
    /// counters, if it existed.
    fn del_meter(&self, id: u32) -> Option<MeterStats>;

    /// A meter's counters.
    fn meter_stats(&self, id: u32) -> Option<MeterStats>;

    /// Adds or changes a bond; `None` removes it. Packets of [`Action::OutputBond`] leave by the
    /// new members at once; cached megaflows stay.
    fn set_bond(&self, id: u32, table: Option<BondTable>);

    /// The bytes that each bucket of a bond has sent since the last call; `None` if the bond does
    /// not exist.
    fn take_bond_loads(&self, id: u32) -> Option<[u64; BOND_BUCKETS]>;

    /// The time at which the datapath handles packets now. It is that of [`Datapath::conntrack`].
    fn now(&self) -> Nanos;

    /// The tracked connections and their settings.
    fn conntrack(&self) -> &Arc<Conntrack>;

    /// Sets the egress scheduler of a port and its link speed, in both directions; `None` sends
    /// packets as they come. Packets in queues of the previous configuration stay queued, in each
    /// flow's order, as far as the new one has room. Removing the port removes this.
    ///
    /// # Errors
    /// [`DpError::NoPort`]; [`DpError::BadQos`] if the discipline is refused. The previous
    /// configuration then stays in force.
    fn set_qos(&self, port: PortNo, config: Option<&qos::PortConfig>) -> Result<(), DpError>;

    /// Polices packets received on a port, before the lookup. Removing the port removes this.
    ///
    /// # Errors
    /// [`DpError::NoPort`].
    fn set_policing(&self, port: PortNo, config: Option<&IngressPolicerConfig>) -> Result<(), DpError>;

    /// The queues of a port that has a scheduler.
    fn qos(&self, port: PortNo) -> Option<QosReport>;

    /// The limits of the caches until others are set.
    fn default_limits(&self) -> Limits;

    /// Changes how many megaflows are cached in all, and for how long. What is beyond the limit
    /// goes little by little.
    fn set_limits(&self, limits: Limits);

    /// How many megaflows are cached at most now: [`Limits::flows`], or fewer where it takes long
    /// to age them.
    fn flow_limit(&self) -> usize;

    /// How long it last took to look at all megaflows, packets that were carried between included.
    fn ageing_took(&self) -> Duration;

    /// Says whether flows are offloaded. When this returns after `false`, none is.
    fn set_offload(&self, enabled: bool);

    /// Why flows are not offloaded that could be.
    fn offload_error(&self) -> Option<String>;

    /// Counters of offloaded flows, with their names in `coverage/show`.
    fn offload_events(&self) -> Vec<(&'static str, u64)>;

    /// The devices with these names have changed: link, administrative state, speed or MTU.
    fn links_changed(&self, devices: &BTreeSet<&str>);

    /// The threads that move packets; `None` where the datapath has none of its own.
    fn workers(&self) -> Option<&dyn WorkerControl>;

    /// Packets dropped by cause, summed over workers, in the order of [`DropCause::ALL`].
    fn drops(&self) -> Vec<(DropCause, u64)>;
}

/// Why a datapath refused a call.
#[derive(Debug, thiserror::Error)]
pub enum DpError {
    /// The port number is in use.
    #[error("datapath port {} exists already", .0.0)]
    PortExists(PortNo),
    /// There is no such port.
    #[error("no datapath port {}", .0.0)]
    NoPort(PortNo),
    /// The number or the bands of a meter are out of range.
    #[error("meter {0} has a number or bands out of range")]
    BadMeter(u32),
    /// The configuration of a discipline is not valid.
    #[error(transparent)]
    BadQos(#[from] qos::ConfigError),
    /// The device could not be opened for packets.
    #[error("{device}: {source}")]
    Device {
        /// The device's name.
        device: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Counters and backlog of a port's queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosReport {
    /// Each queue's counters and backlog, by its number.
    pub queues: Vec<(u32, qos::Stats)>,
    /// Packets that the scheduler has released and the device has not yet accepted.
    pub held_packets: u64,
    /// Their bytes.
    pub held_bytes: u64,
}

/// Packets and bytes through one port. Bytes count from the Ethernet header, without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received and dropped by the device's queue or by the datapath (budget, malformed,
    /// policed).
    pub rx_dropped: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that the device did not accept, or that the port's scheduler dropped.
    pub tx_dropped: u64,
    /// Send errors.
    pub tx_errors: u64,
    /// Packets dropped by the datapath, by cause, in the order of [`DropCause::ALL`]. A packet
    /// counts at its ingress port; if the egress device caused the drop, the copy counts at the
    /// egress port.
    pub drops: [u64; DropCause::ALL.len()],
}

impl Default for PortCounters {
    fn default() -> PortCounters {
        PortCounters {
            rx_packets: 0,
            rx_bytes: 0,
            rx_dropped: 0,
            rx_errors: 0,
            tx_packets: 0,
            tx_bytes: 0,
            tx_dropped: 0,
            tx_errors: 0,
            drops: [0; DropCause::ALL.len()],
        }
    }
}

/// How many megaflows are cached, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At most so many.
    pub flows: usize,
    /// One that carries nothing stays for so long.
    pub idle: Duration,
    /// All of them are looked at so often at most: to let go those that carry nothing, and to
    /// report what the others have carried.
    pub period: Duration,
}

/// Use of one megaflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Packets that it carried.
    pub packets: u64,
    /// Bytes that it carried.
    pub bytes: u64,
    /// Time since the last packet; `None` if it has carried only the packet of its upcall.
    pub idle: Option<Duration>,
}

/// Whether a megaflow by hand has to be new or known, by key and mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutFlow {
    /// It has to be new.
    Add,
    /// It has to be known.
    Modify,
}

/// Why a megaflow was not added or changed. Prints as the system's errors do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutFlowError {
    /// There is one of this key and mask.
    #[error("File exists")]
    Exists,
    /// There is none of this key and mask.
    #[error("No such file or directory")]
    Missing,
    /// A worker has as many different masks as it can have.
    #[error("No space left on device")]
    NoRoom,
}

/// A cached megaflow as `dpctl/dump-flows` shows it.
#[derive(Clone, Debug)]
pub struct FlowDump {
    /// The key, with bits outside the mask zero.
    pub key: Key,
    /// The bits to compare.
    pub mask: Mask,
    /// Its actions; an empty list drops.
    pub actions: Arc<[Action]>,
    /// Why it drops, if it does.
    pub drop: Option<DropCause>,
    /// Its use.
    pub stats: FlowStats,
    /// Number of its offloaded flows.
    pub offloaded: usize,
    /// The worker that holds it.
    pub worker: usize,
}

/// Lookups by the cache that answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Megaflows cached now.
    pub flows: u64,
    /// Distinct masks among them.
    pub masks: u64,
    /// Packets answered by an exact-match cache.
    pub exact_hits: u64,
    /// Packets answered by a megaflow.
    pub megaflow_hits: u64,
    /// Packets that went up to the switch.
    pub upcalls: u64,
    /// Upcalls dropped because their port's budget was spent.
    pub lost: u64,
}
