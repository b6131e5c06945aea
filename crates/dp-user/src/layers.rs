//! Where a packet's headers lie, for actions that change them.
//!
//! The walk is that of [`flow::extract`], with the same idea of what is whole, so that a field that a key has is found here and one that it
//! does not have is not. It differs in that it passes any number of VLAN tags, since actions may have pushed some.

use wire::EtherType;

/// See the module's page. Offsets are within the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    /// What follows the Ethernet header, its tags, and a SNAP header.
    pub(crate) network: Network,
    /// Where it begins.
    pub(crate) start: usize,
    /// Behind IPv4 or IPv6, where there is one of known kind that is whole.
    pub(crate) transport: Option<Transport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// There is no EtherType: the frame has a length and no SNAP header.
    Untyped,
    /// Some other type, or a header that is not whole.
    Other,
    Mpls,
    Arp,
    Ipv4,
    Ipv6,
}

/// A transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    pub(crate) protocol: u8,
    pub(crate) start: usize,
    /// Where the IP packet ends.
    pub(crate) end: usize,
    /// Whether there are other fragments of the packet.
    pub(crate) fragment: bool,
    /// Whether the pseudo header has the destination that the IP header has: not where a routing header still has segments to go.
    pub(crate) final_destination: bool,
}

impl Layers {
    /// Finds the headers; `None` where the packet is shorter than an Ethernet header with its tags.
    pub(crate) fn find(data: &[u8]) -> Option<Layers> {
        let mut start = 14;
        let mut kind = word(data, 12)?;
        while matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
            kind = word(data, start + 2)?;
            start += 4;
        }
        if kind < EtherType::MIN.0 {
            let Some(snapped) = snap(&data[start..]) else {
                return Some(Layers {
                    network: Network::Untyped,
                    start,
                    transport: None,
                });
            };
            kind = snapped;
            start += 8;
        }
        let rest = &data[start..];
        let found = match EtherType(kind) {
            EtherType::MPLS | EtherType::MPLS_MULTICAST if rest.len() >= 4 => Some((Network::Mpls, None)),
            EtherType::ARP | EtherType::RARP => arp(rest),
            EtherType::IPV4 => ipv4(rest),
            EtherType::IPV6 => ipv6(rest),
            _ => None,
        };
        let (network, transport) = found.unwrap_or((Network::Other, None));
        let transport = transport.map(|transport| Transport {
            start: transport.start + start,
            end: transport.end + start,
            ..transport
        });
        Some(Layers {
            network,
            start,
            transport,
        })
    }
}

impl Transport {
    /// Where the Internet checksum stands, from `start`; `None` for a protocol that has none, or another kind.
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

/// A header and where, from its beginning, the transport lies.
type Found = Option<(Network, Option<Transport>)>;

fn snap(data: &[u8]) -> Option<u16> {
    let kind = word(data, 6)?;
    (data[..6] == [0xaa, 0xaa, 3, 0, 0, 0] && kind >= EtherType::MIN.0).then_some(kind)
}

fn arp(data: &[u8]) -> Found {
    let packet: &[u8; 28] = data.first_chunk()?;
    (packet[..6] == [0, 1, 8, 0, 6, 4]).then_some((Network::Arp, None))
}

fn ipv4(data: &[u8]) -> Found {
    let header: &[u8; 20] = data.first_chunk()?;
    let start = usize::from(header[0] & 0xf) * 4;
    let end = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] >> 4 != 4 || start < 20 || end < start || end > data.len() {
        return None;
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    let transport = Transport {
        protocol: header[9],
        start,
        end,
        fragment: fragment & 0x2000 != 0,
        final_destination: true,
    };
    let first = fragment & 0x1fff == 0;
    Some((Network::Ipv4, transport.is_whole(false).filter(|_| first)))
}

fn ipv6(data: &[u8]) -> Found {
    let header: &[u8; 40] = data.first_chunk()?;
    let end = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if header[0] >> 4 != 6 || end > data.len() {
        return None;
    }
    let mut transport = Transport {
        protocol: header[6],
        start: 40,
        end,
        fragment: false,
        final_destination: true,
    };
    loop {
        let rest = &data[transport.start..end];
        let extension: &[u8; 8] = match (transport.protocol, rest.first_chunk()) {
            (0 | 43 | 44 | 51 | 60, Some(extension)) => extension,
            _ => break,
        };
        let len = match transport.protocol {
            44 => {
                let offset = u16::from_be_bytes([extension[2], extension[3]]);
                if offset & !7 != 0 {
                    return Some((Network::Ipv6, None));
                }
                transport.fragment |= offset & 1 != 0;
                8
            }
            51 => (usize::from(extension[1]) + 2) * 4,
            _ => (usize::from(extension[1]) + 1) * 8,
        };
        if rest.len() < len {
            break;
        }
        if transport.protocol == 43 && extension[3] > 0 {
            transport.final_destination = false;
        }
        transport.protocol = extension[0];
        transport.start += len;
    }
    Some((Network::Ipv6, transport.is_whole(true)))
}

impl Transport {
    /// The same, where it is of a known kind and as long as that is at least.
    fn is_whole(self, ipv6: bool) -> Option<Transport> {
        let least = match (self.protocol, ipv6) {
            (6, _) => 20,
            (17 | 33 | 136, _) | (1, false) => 8,
            (132, _) => 12,
            (58, true) => 4,
            _ => return None,
        };
        (self.end - self.start >= least).then_some(self)
    }
}

fn word(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]))
}
