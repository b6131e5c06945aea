//! What the control plane asks of a datapath.

use crate::offload::OffloadUse;
use crate::{Action, DropCause, MeterConfig, MeterStats, WorkerControl};
use flow::{Key, Mask, PortNo};
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
    /// The kind of datapath, as in `Bridge.datapath_type`: `netdev` or `system`.
    fn kind(&self) -> &'static str;

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

    /// What a port has carried, summed over workers.
    fn port_counters(&self, port: PortNo) -> Option<PortCounters>;

    /// Sends a packet through actions as if it had just been received on `in_port`.
    fn execute(&self, in_port: PortNo, packet: &[u8], actions: &[Action]);

    /// The cached megaflows of all workers.
    fn dump_flows(&self) -> Vec<FlowDump>;

    /// Reports to [`Slowpath::credit`](crate::Slowpath::credit) what megaflows have carried until
    /// now and have not reported. When this returns, that is done.
    fn push_stats(&self);

    /// Forgets every cached megaflow.
    fn flush_flows(&self);

    /// How well the caches work, summed over workers.
    fn cache_stats(&self) -> CacheStats;

    /// Makes a meter, or another of one that is there: it goes on to count its packets, those of
    /// its bands begin anew (OpenFlow 1.5 §7.3.4.5).
    ///
    /// # Errors
    /// [`DpError::BadMeter`] where the number is not less than [`MAX_METERS`](crate::MAX_METERS),
    /// or the bands are more than [`MAX_BANDS`](crate::MAX_BANDS) or none.
    fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), DpError>;

    /// Forgets a meter; [`Action::Meter`] of its number lets packets pass. Returns what it has
    /// measured, where there was one.
    fn del_meter(&self, id: u32) -> Option<MeterStats>;

    /// What a meter has measured.
    fn meter_stats(&self, id: u32) -> Option<MeterStats>;

    /// Schedules what leaves a port, and gives its link a speed, in both directions; `None` sends
    /// packets as they come. Packets that are queued under another configuration stay queued, in
    /// each flow's order, as far as the new one has room. Forgotten with the port.
    ///
    /// # Errors
    /// [`DpError::NoPort`]; [`DpError::BadQos`] where the discipline is refused, and then what was
    /// before goes on.
    fn set_qos(&self, port: PortNo, config: Option<&qos::PortConfig>) -> Result<(), DpError>;

    /// Polices what comes in by a port, before it is looked up. Forgotten with the port.
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

    /// As [`Datapath::set_limits`], without a change of how long megaflows stay.
    fn set_flow_limit(&self, flows: usize);

    /// How many megaflows are cached at most now: [`Limits::flows`], or fewer where it takes long
    /// to age them.
    fn flow_limit(&self) -> usize;

    /// How long it last took to look at all megaflows, packets that were carried between included.
    fn ageing_took(&self) -> Duration;

    /// Changes how flows are offloaded. When this returns, none is offloaded in another way.
    fn set_offload(&self, usage: OffloadUse);

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
    /// A discipline cannot be as it is configured.
    #[error(transparent)]
    BadQos(#[from] qos::ConfigError),
    /// The device could not be opened for packets.
    #[error("{device}: {source}")]
    Device {
        /// The device's name.
        device: String,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// What the queues of a port count and hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosReport {
    /// Each queue's counters and backlog, by its number.
    pub queues: Vec<(u32, qos::Stats)>,
    /// Packets that the scheduler has given out and the device has not taken yet.
    pub held_packets: u64,
    /// Their bytes.
    pub held_bytes: u64,
}

/// Packets and bytes through one port. Bytes count from the Ethernet header, without FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received and dropped, by the device's queue or by the datapath (budget, malformed,
    /// policed).
    pub rx_dropped: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that the device did not take, or that the port's scheduler dropped.
    pub tx_dropped: u64,
    /// Send errors.
    pub tx_errors: u64,
    /// Packets dropped by the datapath, by cause, in the order of [`DropCause::ALL`]: those
    /// received here, and, for what an egress device can be the cause of, copies that were to be
    /// sent here.
    pub drops: [u64; DropCause::ALL.len()],
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
    /// Time since the last packet; `None` where it has carried none but the one that made it.
    pub idle: Option<Duration>,
}

/// A cached megaflow as `dpctl/dump-flows` shows it.
#[derive(Clone, Debug)]
pub struct FlowDump {
    /// The key, with bits outside the mask zero.
    pub key: Key,
    /// The bits that count.
    pub mask: Mask,
    /// What it does; empty drops.
    pub actions: Arc<[Action]>,
    /// Why it drops, where it does.
    pub drop: Option<DropCause>,
    /// Its use.
    pub stats: FlowStats,
    /// How many offloaded flows it has.
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
    /// Packets that would have gone up and were dropped because their port's budget was spent.
    pub lost: u64,
}
