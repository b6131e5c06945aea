//! Packets directly behind UDP: the kernel's `bareudp`, for MPLS RFC 7510.

use super::inner::Inner;
use super::template::EncapsulateError;
use super::{Found, Kind, Refusal};
use std::net::IpAddr;
use wire::EtherType;

/// What the tunnel carries: nothing in a packet says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Payload {
    /// IPv4 and IPv6.
    Ip,
    /// MPLS, unicast and multicast.
    Mpls,
    /// One EtherType.
    Type(EtherType),
}

impl Payload {
    /// The inner packet of a datagram to `dst`.
    fn of(self, data: &[u8], dst: IpAddr) -> Option<Inner> {
        match self {
            Payload::Ip => Inner::of_ip(data),
            // The kind of label says what the sender does with it (RFC 5332 §3).
            Payload::Mpls if dst.is_multicast() => Some(Inner::Packet(EtherType::MPLS_MULTICAST)),
            Payload::Mpls => Some(Inner::Packet(EtherType::MPLS)),
            Payload::Type(kind) => Inner::of_protocol_type(kind.0),
        }
    }

    /// Whether the tunnel carries the packet.
    pub(super) fn check(self, inner: Inner) -> Result<(), EncapsulateError> {
        let good = match self {
            Payload::Ip => matches!(inner, Inner::Packet(EtherType::IPV4 | EtherType::IPV6)),
            Payload::Mpls => matches!(inner, Inner::Packet(EtherType::MPLS | EtherType::MPLS_MULTICAST)),
            Payload::Type(kind) => inner.protocol_type() == Some(kind.0),
        };
        if good { Ok(()) } else { Err(EncapsulateError::Inner) }
    }
}

pub(super) fn parse(payload: Payload, data: &[u8], dst: IpAddr) -> Result<Found<'_>, Refusal> {
    let inner = payload.of(data, dst).ok_or(Refusal::InnerPacket)?;
    Ok(Found::new(Kind::Bareudp, None, inner, 0, data.len()))
}
