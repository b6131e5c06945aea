//! The packet inside.

use super::Refusal;
use wire::EtherType;
use wire::headers::behind_tags;

/// VLAN tags behind which an inner IP header is looked for.
const TAGS: usize = 2;

/// What an inner packet is: its `packet_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inner {
    /// An Ethernet frame.
    Ethernet,
    /// A packet without an Ethernet header.
    Packet(EtherType),
    /// No inner packet: a message to the tunnel's end itself, which keeps its outer headers.
    Message,
}

impl Inner {
    /// The value of `packet_type` (OpenFlow 1.5 §7.2.3.11): namespace 0 is Ethernet, namespace 1
    /// has EtherTypes.
    pub const fn packet_type(self) -> u32 {
        match self {
            Inner::Ethernet | Inner::Message => 0,
            Inner::Packet(kind) => kind.packet_type(),
        }
    }

    /// The reverse of [`Inner::packet_type`]; `None` for namespaces that no tunnel carries.
    pub const fn of_packet_type(packet_type: u32) -> Option<Inner> {
        match (packet_type >> 16, packet_type as u16) {
            (0, 0) => Some(Inner::Ethernet),
            (1, kind) if kind >= EtherType::MIN.0 => Some(Inner::Packet(EtherType(kind))),
            _ => None,
        }
    }

    /// The type of an IP packet, from its version.
    pub(super) fn of_ip(packet: &[u8]) -> Option<Inner> {
        match packet.first()? >> 4 {
            4 => Some(Inner::Packet(EtherType::IPV4)),
            6 => Some(Inner::Packet(EtherType::IPV6)),
            _ => None,
        }
    }

    /// The type that GRE and Geneve say: [`EtherType::BRIDGED`] or another.
    pub(super) const fn of_protocol_type(kind: u16) -> Option<Inner> {
        match EtherType(kind) {
            EtherType::BRIDGED => Some(Inner::Ethernet),
            EtherType(kind) if kind >= EtherType::MIN.0 => Some(Inner::Packet(EtherType(kind))),
            _ => None,
        }
    }

    /// The reverse of `of_protocol_type`.
    pub(super) const fn protocol_type(self) -> Option<u16> {
        match self {
            Inner::Ethernet => Some(EtherType::BRIDGED.0),
            Inner::Packet(kind) => Some(kind.0),
            Inner::Message => None,
        }
    }

    /// Whether the packet has at least its first header, and is of the IP version that the type
    /// says.
    #[inline]
    pub(super) fn check(self, packet: &[u8]) -> Result<(), Refusal> {
        let version = packet.first().map_or(0, |byte| byte >> 4);
        let good = match self {
            Inner::Ethernet => packet.len() >= 14,
            Inner::Packet(EtherType::IPV4) => packet.len() >= 20 && version == 4,
            Inner::Packet(EtherType::IPV6) => packet.len() >= 40 && version == 6,
            Inner::Packet(_) => packet.len() >= 4,
            Inner::Message => true,
        };
        if good { Ok(()) } else { Err(Refusal::InnerPacket) }
    }
}

/// Fields of an inner IP header that outer headers inherit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerIp {
    /// Type of service or traffic class.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// The flow label of IPv6, 20 bits.
    pub label: Option<u32>,
}

/// The IP header of an inner packet; `None` if it has none, or not a whole one.
pub fn inner_ip(packet: &[u8], inner: Inner) -> Option<InnerIp> {
    let (kind, at) = locate(packet, inner)?;
    let header = &packet[at..];
    Some(match kind {
        EtherType::IPV4 => InnerIp {
            tos: header[1],
            ttl: header[8],
            label: None,
        },
        _ => InnerIp {
            tos: header[0] << 4 | header[1] >> 4,
            ttl: header[7],
            label: Some(super::be32(header, 0) & 0xf_ffff),
        },
    })
}

/// The EtherType and the place of a whole inner IP header.
pub(super) fn locate(packet: &[u8], inner: Inner) -> Option<(EtherType, usize)> {
    let (kind, at) = match inner {
        Inner::Ethernet => behind_tags(packet, TAGS)?,
        Inner::Packet(kind) => (kind, 0),
        Inner::Message => return None,
    };
    let header = packet.get(at..)?;
    let len = match kind {
        EtherType::IPV4 => 20,
        EtherType::IPV6 => 40,
        _ => return None,
    };
    (header.len() >= len).then_some((kind, at))
}
