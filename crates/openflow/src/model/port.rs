//! Ports and queues in messages.

use super::{Duration, Port};
use wire::MacAddr;

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDesc {
    /// Its number.
    pub port: Port,
    /// Its address.
    pub hw_addr: MacAddr,
    /// Its name, 15 bytes at most.
    pub name: String,
    /// What it is told: see [`config`].
    pub config: u32,
    /// How it is: see [`state`].
    pub state: u32,
    /// Features now, as OpenFlow 1.1 and later number them.
    pub current: u32,
    /// Features it advertises.
    pub advertised: u32,
    /// Features it could have.
    pub supported: u32,
    /// Features of its peer.
    pub peer: u32,
    /// Speed in kbit/s; OpenFlow 1.1 and later.
    pub current_speed: u32,
    /// Highest speed in kbit/s; OpenFlow 1.1 and later.
    pub max_speed: u32,
}

/// Bits of [`PortDesc::config`].
pub mod config {
    /// Administratively down.
    pub const PORT_DOWN: u32 = 1;
    /// No spanning tree; OpenFlow 1.0 only.
    pub const NO_STP: u32 = 2;
    /// Drops what it receives.
    pub const NO_RECV: u32 = 4;
    /// Drops spanning tree frames it receives; OpenFlow 1.0 only.
    pub const NO_RECV_STP: u32 = 8;
    /// Not flooded to; OpenFlow 1.0 only.
    pub const NO_FLOOD: u32 = 16;
    /// Drops what is sent to it.
    pub const NO_FWD: u32 = 32;
    /// No packets to controllers.
    pub const NO_PACKET_IN: u32 = 64;
}

/// Bits of [`PortDesc::state`].
pub mod state {
    /// No link.
    pub const LINK_DOWN: u32 = 1;
    /// Blocked by a protocol; OpenFlow 1.1 and later.
    pub const BLOCKED: u32 = 2;
    /// Live for fast failover; OpenFlow 1.1 and later.
    pub const LIVE: u32 = 4;
    /// The spanning tree state, from listen (0) to block (3) in two bits; OpenFlow 1.0.
    pub const STP_MASK: u32 = 3 << 8;
}

/// A port that came, went or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// 0 came, 1 went, 2 changed.
    pub reason: u8,
    /// How it is.
    pub desc: PortDesc,
}

/// A change of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// Which.
    pub port: Port,
    /// Its address, to be sure.
    pub hw_addr: MacAddr,
    /// New bits of its configuration.
    pub config: u32,
    /// Which bits.
    pub mask: u32,
    /// Features to advertise; 0 leaves them.
    pub advertise: u32,
}

/// A port's counters; `u64::MAX` where one is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PortStats {
    pub port: Port,
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_frame_errors: u64,
    pub rx_over_errors: u64,
    pub rx_crc_errors: u64,
    pub collisions: u64,
    /// How long the port is there; OpenFlow 1.3 and later.
    pub duration: Duration,
}

/// A queue's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct QueueStats {
    pub port: Port,
    pub queue: u32,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    /// How long the queue is there; OpenFlow 1.3 and later.
    pub duration: Duration,
}

/// A queue's rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Its number.
    pub queue: u32,
    /// The rate it is sure of, in tenths of a percent.
    pub min_rate: Option<u16>,
    /// The rate it never exceeds, in tenths of a percent.
    pub max_rate: Option<u16>,
}

/// All queues.
pub const ALL_QUEUES: u32 = 0xffff_ffff;
