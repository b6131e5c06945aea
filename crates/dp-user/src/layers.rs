//! Offsets of a packet's headers, for actions that change them.
//!
//! The walk is that of [`wire::headers`], as for [`flow::extract`], so that both find the same
//! fields. It differs in one point: it passes any number of VLAN tags, since actions may have
//! pushed some.

use wire::EtherType;
use wire::headers::{self, Frag, Ip, Ipv6};
use wire::nsh::Nsh;

/// See the module's page. Offsets are within the packet.
///
/// It is found out when it is first needed, in place: moving it would cost as much as finding it.
#[derive(Debug)]
pub(crate) struct Layers {
    /// The network header, after the Ethernet header, its tags, and a SNAP header.
    pub(crate) network: Network,
    /// Offset of the network header.
    pub(crate) start: usize,
    /// The transport header behind IPv4 or IPv6, if its kind is known and it is whole.
    pub(crate) transport: Option<Transport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Not parsed yet, or not since the last change.
    Unknown,
    /// The packet is shorter than an Ethernet header with its tags.
    Short,
    /// There is no EtherType: the frame has a length and no SNAP header.
    Untyped,
    /// Some other type, or a header that is not whole.
    Other,
    Mpls,
    /// A backbone service instance tag, and the packet behind it.
    Pbb,
    /// A network service header.
    Nsh,
    Arp,
    Ipv4,
    Ipv6,
    /// IPv6 whose extension headers are cut short: the key of such a packet has its addresses and
    /// no other field of the network layer.
    Ipv6Cut,
}

/// A transport header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport {
    pub(crate) protocol: u8,
    pub(crate) start: usize,
    /// Offset of the end of the IP packet.
    pub(crate) end: usize,
    /// Whether there are other fragments of the packet.
    pub(crate) fragment: bool,
    /// Whether the pseudo header has the destination that the IP header has: not if a routing
    /// header has segments left.
    pub(crate) final_destination: bool,
}

impl Layers {
    pub(crate) const UNKNOWN: Layers = Layers {
        network: Network::Unknown,
        start: 0,
        transport: None,
    };

    /// Something has been put in or taken out.
    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        self.network = Network::Unknown;
    }

    /// Finds the headers of the packet, unless that is done.
    #[inline(always)]
    pub(crate) fn locate(&mut self, data: &[u8]) -> &Layers {
        if self.network == Network::Unknown {
            self.walk(data);
        }
        self
    }

    fn walk(&mut self, data: &[u8]) {
        self.transport = None;
        self.network = self.ethernet(data).unwrap_or(Network::Short);
    }

    fn ethernet(&mut self, data: &[u8]) -> Option<Network> {
        let (mut kind, start) = headers::behind_tags(data, usize::MAX)?;
        self.start = start;
        if kind < EtherType::MIN {
            let Some(snap) = headers::snap(&data[start..]) else {
                return Some(Network::Untyped);
            };
            kind = snap;
            self.start += 8;
        }
        let rest = &data[self.start..];
        let network = match kind {
            EtherType::MPLS | EtherType::MPLS_MULTICAST if rest.len() >= 4 => Some(Network::Mpls),
            EtherType::PBB if rest.len() >= 4 => Some(Network::Pbb),
            EtherType::NSH if Nsh::parse(rest).is_some() => Some(Network::Nsh),
            EtherType::ARP | EtherType::RARP if headers::is_arp(rest) => Some(Network::Arp),
            EtherType::IPV4 => self.ipv4(rest),
            EtherType::IPV6 => self.ipv6(rest),
            _ => None,
        };
        Some(network.unwrap_or(Network::Other))
    }

    #[inline(always)]
    fn ipv4(&mut self, data: &[u8]) -> Option<Network> {
        let (_, ip) = headers::ipv4(data)?;
        self.transport = self.behind(&ip, false, data);
        Some(Network::Ipv4)
    }

    fn ipv6(&mut self, data: &[u8]) -> Option<Network> {
        let (_, Ipv6::Whole(ip)) = headers::ipv6(data)? else {
            return Some(Network::Ipv6Cut);
        };
        self.transport = self.behind(&ip, true, data);
        Some(Network::Ipv6)
    }

    #[inline(always)]
    fn behind(&self, ip: &Ip, ipv6: bool, data: &[u8]) -> Option<Transport> {
        let is_there = ip.frag != Frag::Later && headers::is_whole(ip.protocol, ipv6, &data[ip.start..ip.end]);
        is_there.then(|| Transport {
            protocol: ip.protocol,
            start: self.start + ip.start,
            end: self.start + ip.end,
            fragment: ip.frag != Frag::No,
            final_destination: ip.final_destination,
        })
    }
}

impl Transport {
    /// Offset of the Internet checksum from `start`; `None` for a protocol without one, or with
    /// another kind.
    pub(crate) fn checksum(&self) -> Option<usize> {
        match self.protocol {
            6 => Some(16),
            // UDP, DCCP, UDP-Lite.
            17 | 33 | 136 => Some(6),
            1 | 58 => Some(2),
            _ => None,
        }
    }
}
