//! Packets that a datapath hands to the control plane.

use flow::{PortNo, Tunnel};

/// Why a packet is handed to the control plane ([`Action::Punt`](crate::Action::Punt)).
///
/// The reason decides which part of the control plane takes the packet, and which budget it uses.
/// Control protocols have a budget of their own, so packets for controllers never keep them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PuntReason {
    /// For OpenFlow controllers: an action, a table miss, an expired time to live.
    Controller,
    /// Link aggregation (IEEE 802.1AX).
    Lacp,
    /// Spanning tree (IEEE 802.1D, 802.1w).
    Stp,
    /// Multicast group membership (RFC 3376, RFC 3810).
    Igmp,
    /// Bidirectional forwarding detection (RFC 5880).
    Bfd,
    /// Connectivity fault management (IEEE 802.1ag).
    Cfm,
    /// Link layer discovery (IEEE 802.1AB).
    Lldp,
    /// An ICMP error which says that a packet was too big: for the path MTUs of tunnels. The packet
    /// goes on to the host.
    PathMtu,
    /// A sample of the traffic.
    Sample,
    /// For a person who watches a port.
    Capture,
}

impl PuntReason {
    /// Whether the copy goes to somebody for whom the packet is. Those who only watch do not count.
    pub const fn delivers(self) -> bool {
        !matches!(self, PuntReason::Sample | PuntReason::Capture)
    }

    /// The name in `dump-flows`.
    pub const fn name(self) -> &'static str {
        match self {
            PuntReason::Controller => "controller",
            PuntReason::Lacp => "lacp",
            PuntReason::Stp => "stp",
            PuntReason::Igmp => "igmp",
            PuntReason::Bfd => "bfd",
            PuntReason::Cfm => "cfm",
            PuntReason::Lldp => "lldp",
            PuntReason::PathMtu => "path_mtu",
            PuntReason::Sample => "sample",
            PuntReason::Capture => "capture",
        }
    }
}

/// A packet that a datapath hands to the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Punt<'a> {
    /// Why.
    pub reason: PuntReason,
    /// The handle of the action.
    pub handle: u32,
    /// The datapath port that the packet came in on.
    pub in_port: PortNo,
    /// The packet's bytes from the Ethernet header on, no more than the action wants, checksums
    /// filled in.
    pub packet: &'a [u8],
    /// The length of the whole packet.
    pub total_len: usize,
    /// The packet's mark.
    pub mark: u32,
    /// The outer headers that it came with.
    pub tunnel: Option<&'a Tunnel>,
}
