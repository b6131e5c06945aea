//! The settings of a session.

use super::datagram::{DEFAULT_DESTINATION, DEFAULT_DESTINATION_MAC, DEFAULT_SOURCE};
use core::net::Ipv4Addr;
use core::time::Duration;
use wire::MacAddr;

/// Settings of a session: those of `Interface.bfd` in `ovs-vswitchd.conf.db(5)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The shortest interval at which it sends, at least 1 ms.
    pub min_tx: Duration,
    /// The shortest interval at which it wants to receive, at least 1 ms.
    pub min_rx: Duration,
    /// The interval at which it wants to receive while the interface is idle; at least `min_rx`.
    pub decay_min_rx: Option<Duration>,
    /// Received data shows that the other end is there, too.
    pub forwarding_if_rx: bool,
    /// Tells the other end that the path behind this end is down.
    pub cpath_down: bool,
    /// Intervals without a packet after which the other end counts this one as lost; not 0.
    pub multiplier: u8,
    /// Ethernet source of its packets.
    pub src_mac: MacAddr,
    /// Ethernet destination of its packets.
    pub dst_mac: MacAddr,
    /// IP source of its packets.
    pub src: Ipv4Addr,
    /// IP destination of its packets.
    pub dst: Ipv4Addr,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            min_tx: Duration::from_millis(100),
            min_rx: Duration::from_secs(1),
            decay_min_rx: None,
            forwarding_if_rx: false,
            cpath_down: false,
            multiplier: 3,
            src_mac: MacAddr::ZERO,
            dst_mac: DEFAULT_DESTINATION_MAC,
            src: DEFAULT_SOURCE,
            dst: DEFAULT_DESTINATION,
        }
    }
}
