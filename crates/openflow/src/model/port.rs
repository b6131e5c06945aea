//! Ports and queues in messages.

use super::{Duration, Port, Property};
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
    /// Its configuration: see [`config`].
    pub config: u32,
    /// Its state: see [`state`].
    pub state: u32,
    /// Features now, as OpenFlow 1.1 and later number them.
    pub current: u32,
    /// Features it advertises.
    pub advertised: u32,
    /// Features it supports.
    pub supported: u32,
    /// Features of its peer.
    pub peer: u32,
    /// Speed in kbit/s; OpenFlow 1.1 and later.
    pub current_speed: u32,
    /// Highest speed in kbit/s; OpenFlow 1.1 and later.
    pub max_speed: u32,
    /// The features of an optical port; OpenFlow 1.4 and later.
    pub optical: Option<OpticalPort>,
    /// Other properties as received; OpenFlow 1.4 and later.
    pub others: Vec<Property>,
}

impl Default for PortDesc {
    /// Port number none, without name and features.
    fn default() -> PortDesc {
        PortDesc {
            port: Port::ANY,
            hw_addr: MacAddr([0; 6]),
            name: String::new(),
            config: 0,
            state: 0,
            current: 0,
            advertised: 0,
            supported: 0,
            peer: 0,
            current_speed: 0,
            max_speed: 0,
            optical: None,
            others: Vec::new(),
        }
    }
}

/// The features of an optical port (OpenFlow 1.4 §7.2.1). Frequencies in MHz or wavelengths in
/// hundredths of a nanometre, power in tenths of dBm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpticalPort {
    /// 1 receiver tunable, 2 transmitter tunable, 4 power configurable, 8 frequencies rather than
    /// wavelengths.
    pub supported: u32,
    /// The minimum, the maximum and the grid of transmission.
    pub tx: [u32; 3],
    /// The minimum, the maximum and the grid of reception.
    pub rx: [u32; 3],
    /// The minimum and maximum power.
    pub power: [u16; 2],
}

/// An optical port's measurements (OpenFlow 1.4 §7.3.5.6), in the units of [`OpticalPort`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpticalStats {
    /// 1 receiver tuned, 2 transmitter tuned, 4 transmit power, 16 receive power, 32 bias, 64
    /// temperature.
    pub flags: u32,
    /// Transmission: frequency, offset, grid.
    pub tx: [u32; 3],
    /// Reception: frequency, offset, grid.
    pub rx: [u32; 3],
    /// Transmit and receive power.
    pub power: [u16; 2],
    /// Current of the laser, in tenths of mA.
    pub bias: u16,
    /// Temperature of the laser, in tenths of a degree Celsius.
    pub temperature: u16,
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
    /// Sends no packets to controllers.
    pub const NO_PACKET_IN: u32 = 64;
}

/// Bits of [`PortDesc::state`].
pub mod state {
    /// No link.
    pub const LINK_DOWN: u32 = 1;
    /// Live for fast failover; OpenFlow 1.1 and later.
    pub const LIVE: u32 = 4;
    /// The spanning tree state in two bits; OpenFlow 1.0 only. Listening, or no state, is 0.
    pub const STP_MASK: u32 = 3 << 8;
    /// The port learns and does not forward yet.
    pub const STP_LEARN: u32 = 1 << 8;
    /// The port learns and forwards.
    pub const STP_FORWARD: u32 = 2 << 8;
    /// The port is not part of the tree.
    pub const STP_BLOCK: u32 = 3 << 8;
}

/// A port status message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// The reason: 0 added, 1 deleted, 2 modified.
    pub reason: u8,
    /// The port's description.
    pub desc: PortDesc,
}

/// A port mod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// The port.
    pub port: Port,
    /// Its hardware address, as a check.
    pub hw_addr: MacAddr,
    /// New bits of its configuration.
    pub config: u32,
    /// The bits to change.
    pub mask: u32,
    /// Features to advertise; 0 for no change.
    pub advertise: u32,
}

/// A port's counters; `u64::MAX` for unknown ones.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The port's age; OpenFlow 1.3 and later.
    pub duration: Duration,
    /// Counters of RFC 2819 in the order of [`RFC2819`]; Intel's, OpenFlow 1.4 and later.
    pub rfc2819: Option<Box<[u64; RFC2819.len()]>>,
    /// Driver-specific counters with their names; Intel's, OpenFlow 1.4 and later.
    pub custom: Vec<(String, u64)>,
    /// An optical port's measurements; OpenFlow 1.4 and later.
    pub optical: Option<OpticalStats>,
}

impl Default for PortStats {
    /// Port number none, with all counters unknown.
    fn default() -> PortStats {
        const UNKNOWN: u64 = u64::MAX;
        PortStats {
            port: Port::ANY,
            rx_packets: UNKNOWN,
            tx_packets: UNKNOWN,
            rx_bytes: UNKNOWN,
            tx_bytes: UNKNOWN,
            rx_dropped: UNKNOWN,
            tx_dropped: UNKNOWN,
            rx_errors: UNKNOWN,
            tx_errors: UNKNOWN,
            rx_frame_errors: UNKNOWN,
            rx_over_errors: UNKNOWN,
            rx_crc_errors: UNKNOWN,
            collisions: UNKNOWN,
            duration: Duration::default(),
            rfc2819: None,
            custom: Vec::new(),
            optical: None,
        }
    }
}

/// The names of the counters in [`PortStats::rfc2819`], as Open vSwitch has them in
/// `Interface.statistics`.
pub const RFC2819: [&str; 21] = [
    "rx_1_to_64_packets",
    "rx_65_to_127_packets",
    "rx_128_to_255_packets",
    "rx_256_to_511_packets",
    "rx_512_to_1023_packets",
    "rx_1024_to_1522_packets",
    "rx_1523_to_max_packets",
    "tx_1_to_64_packets",
    "tx_65_to_127_packets",
    "tx_128_to_255_packets",
    "tx_256_to_511_packets",
    "tx_512_to_1023_packets",
    "tx_1024_to_1522_packets",
    "tx_1523_to_max_packets",
    "tx_multicast_packets",
    "rx_broadcast_packets",
    "tx_broadcast_packets",
    "rx_undersized_errors",
    "rx_oversize_errors",
    "rx_fragmented_errors",
    "rx_jabber_errors",
];

/// A queue's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct QueueStats {
    pub port: Port,
    pub queue: u32,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    /// The queue's age; OpenFlow 1.3 and later.
    pub duration: Duration,
}

/// A queue's rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Its number.
    pub queue: u32,
    /// The guaranteed rate, in tenths of a percent.
    pub min_rate: Option<u16>,
    /// The maximum rate, in tenths of a percent.
    pub max_rate: Option<u16>,
}

/// All queues.
pub const ALL_QUEUES: u32 = 0xffff_ffff;
