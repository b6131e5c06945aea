//! Where a packet's headers lie, for actions that change them.
//!
//! The walk is that of [`flow::extract`], with the same idea of what is whole, so that a field that
//! a key has is found here and one that it does not have is not. It differs in that it passes any
//! number of VLAN tags, since actions may have pushed some.

use wire::EtherType;

/// See the module's page. Offsets are within the packet.
///
/// It is found out when it is first needed, in place: moving it would cost as much as finding it.
#[derive(Debug)]
pub(crate) struct Layers {
    /// What follows the Ethernet header, its tags, and a SNAP header.
    pub(crate) network: Network,
    /// Where that begins.
    pub(crate) start: usize,
    /// Behind IPv4 or IPv6, where there is one of known kind that is whole.
    pub(crate) transport: Option<Transport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Nobody has looked, or something has changed since.
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
    Arp,
    Ipv4,
    Ipv6,
    /// IPv6 whose extension headers are cut short: of such a packet a key has the addresses and
    /// nothing else.
    Ipv6Cut,
}

/// A transport header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport {
    pub(crate) protocol: u8,
    pub(crate) start: usize,
    /// Where the IP packet ends.
    pub(crate) end: usize,
    /// Whether there are other fragments of the packet.
    pub(crate) fragment: bool,
    /// Whether the pseudo header has the destination that the IP header has: not where a routing
    /// header still has segments to go.
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
        self.start = 14;
        let mut kind = word(data, 12)?;
        while EtherType(kind).is_vlan() {
            kind = word(data, self.start + 2)?;
            self.start += 4;
        }
        if kind < EtherType::MIN.0 {
            let Some(snapped) = snap(&data[self.start..]) else {
                return Some(Network::Untyped);
            };
            kind = snapped;
            self.start += 8;
        }
        let rest = &data[self.start..];
        let network = match EtherType(kind) {
            EtherType::MPLS | EtherType::MPLS_MULTICAST if rest.len() >= 4 => Some(Network::Mpls),
            EtherType::PBB if rest.len() >= 4 => Some(Network::Pbb),
            EtherType::ARP | EtherType::RARP => arp(rest),
            EtherType::IPV4 => self.ipv4(rest),
            EtherType::IPV6 => self.ipv6(rest),
            _ => None,
        };
        Some(network.unwrap_or(Network::Other))
    }

    #[inline(always)]
    fn ipv4(&mut self, data: &[u8]) -> Option<Network> {
        let header: &[u8; 20] = data.first_chunk()?;
        let len = usize::from(header[0] & 0xf) * 4;
        let end = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if len < 20 || end < len || end > data.len() {
            return None;
        }
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        if fragment & 0x1fff == 0 && is_whole(header[9], false, &data[len..end]) {
            self.transport = Some(Transport {
                protocol: header[9],
                start: self.start + len,
                end: self.start + end,
                fragment: fragment & 0x2000 != 0,
                final_destination: true,
            });
        }
        Some(Network::Ipv4)
    }

    fn ipv6(&mut self, data: &[u8]) -> Option<Network> {
        let header: &[u8; 40] = data.first_chunk()?;
        let end = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        if end > data.len() {
            return None;
        }
        let (mut protocol, mut at) = (header[6], 40);
        let (mut fragment, mut final_destination) = (false, true);
        loop {
            let rest = &data[at..end];
            if !matches!(protocol, 0 | 43 | 44 | 51 | 60) {
                break;
            }
            let Some(extension) = rest.first_chunk::<8>() else {
                return Some(Network::Ipv6Cut);
            };
            let len = match protocol {
                44 => {
                    let offset = u16::from_be_bytes([extension[2], extension[3]]);
                    if offset & !7 != 0 {
                        return Some(Network::Ipv6);
                    }
                    fragment |= offset != 0;
                    8
                }
                51 => (usize::from(extension[1]) + 2) * 4,
                _ => (usize::from(extension[1]) + 1) * 8,
            };
            if rest.len() < len {
                return Some(Network::Ipv6Cut);
            }
            if protocol == 43 && extension[3] > 0 {
                final_destination = false;
            }
            protocol = extension[0];
            at += len;
        }
        if is_whole(protocol, true, &data[at..end]) {
            self.transport = Some(Transport {
                protocol,
                start: self.start + at,
                end: self.start + end,
                fragment,
                final_destination,
            });
        }
        Some(Network::Ipv6)
    }
}

impl Transport {
    /// Where the Internet checksum stands, from `start`; `None` for a protocol that has none, or
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

fn snap(data: &[u8]) -> Option<u16> {
    let kind = word(data, 6)?;
    (data[..6] == [0xaa, 0xaa, 3, 0, 0, 0] && kind >= EtherType::MIN.0).then_some(kind)
}

fn arp(data: &[u8]) -> Option<Network> {
    let packet: &[u8; 28] = data.first_chunk()?;
    (packet[..6] == [0, 1, 8, 0, 6, 4]).then_some(Network::Arp)
}

/// Whether a transport header is of a protocol that is known, and all there.
fn is_whole(protocol: u8, ipv6: bool, data: &[u8]) -> bool {
    match (protocol, ipv6) {
        (6, _) => data.len() >= 20 && (20..=data.len()).contains(&(usize::from(data[12] >> 4) * 4)),
        (17 | 33 | 136, _) | (1, false) | (58, true) => data.len() >= 8,
        (132, _) => data.len() >= 12,
        _ => false,
    }
}

#[inline(always)]
fn word(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]))
}
