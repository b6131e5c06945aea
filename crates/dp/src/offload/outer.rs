//! Outer headers that an offload adds and removes.
//!
//! They are those of VXLAN and Geneve over IPv4 without a UDP checksum, around an Ethernet frame
//! without a tag. A flow into a tunnel has one template of them, because packets of one kind have
//! one source port. Of a flow out of a tunnel all outer headers are matched, so that ECN marks,
//! group policies and options decide as they did for its first packet.

use super::kind::{self, PacketKind, READ};
use super::Refused;
use crate::TunnelPush;
use smallvec::SmallVec;
use tunnel::format::{Format, Inner, Kind, Packet};
use wire::EtherType;
use wire::checksum::checksum;
use wire::headers::behind_tags;

/// Most bytes of outer headers.
pub const MAX_OUTER: usize = 96;

/// Bytes of a tunnel's header with options, in an [`InnerKind`].
const TUNNEL: usize = 40;
const ETHERNET: usize = 14;
const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const UDP: u8 = 17;
/// Bytes of the header of VXLAN, and of Geneve without options.
const FIXED: usize = 8;

/// What packets of a flow have in common behind the outer UDP ports.
///
/// It is made of
/// - the header of the tunnel, with its options, and zeros up to byte 40;
/// - headers as in a [`PacketKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InnerKind {
    bytes: [u8; InnerKind::SIZE],
    start: u8,
    header: TunnelHeader,
}

/// How long the header of a tunnel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelHeader {
    /// 8 bytes: VXLAN.
    Fixed,
    /// 8 bytes, and as many words as the low six bits of the first byte say: Geneve.
    Options,
}

impl InnerKind {
    /// Bytes of it.
    pub const SIZE: usize = TUNNEL + READ;

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; InnerKind::SIZE] {
        &self.bytes
    }

    /// Where the inner packet begins, without an outer tag.
    pub fn start(&self) -> u32 {
        self.start.into()
    }

    /// How long the header of the tunnel is.
    pub fn header(&self) -> TunnelHeader {
        self.header
    }

    /// The headers of the inner packet.
    pub(super) fn headers(&self) -> &[u8; READ] {
        self.bytes[TUNNEL..].first_chunk().unwrap_or(&[0; READ])
    }
}

impl PacketKind {
    /// The kind of a tunnel's packet that came in by a device. Behind at most one tag it is IPv4
    /// without options, whole and with the right checksum, UDP without a checksum, a header of the
    /// tunnel with at most 32 bytes of options, and an Ethernet frame with IPv4 that has a kind and
    /// no tag; `None` for others.
    pub fn of_tunnel(device: u32, packet: &[u8], format: Format) -> Option<PacketKind> {
        let header = match format {
            Format::Vxlan { .. } => TunnelHeader::Fixed,
            Format::Geneve => TunnelHeader::Options,
            Format::Gre | Format::Gtpu | Format::Bareudp(_) | Format::Srv6 => return None,
        };
        let outer = PacketKind::of(device, packet)?;
        let (kind, at) = behind_tags(packet, 1)?;
        let (ip, payload) = packet.get(at..)?.split_first_chunk::<IPV4_LEN>()?;
        if kind != EtherType::IPV4 || ip[9] != UDP || checksum(ip) != 0 {
            return None;
        }
        let (udp, data) = payload.split_first_chunk::<UDP_LEN>()?;
        let [_, _, _, _, len_high, len_low, sum_high, sum_low] = *udp;
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        if total != IPV4_LEN + payload.len() || len != payload.len() || [sum_high, sum_low] != [0, 0] {
            return None;
        }
        let options = match header {
            TunnelHeader::Fixed => 0,
            TunnelHeader::Options => usize::from(data.first()? & 0x3f) * 4,
        };
        let len = FIXED + options;
        if len > TUNNEL {
            return None;
        }
        let (own, inner) = data.split_at_checked(len)?;
        let mut bytes = [0; InnerKind::SIZE];
        bytes[..len].copy_from_slice(own);
        let inner_type = EtherType(u16::from_be_bytes(*inner.get(12..)?.first_chunk()?));
        // The kernel would go on to take the packet for one of the outer header's version.
        if inner_type != kind {
            return None;
        }
        kind::read(bytes[TUNNEL..].first_chunk_mut()?, inner, inner_type, ETHERNET)?;
        Some(outer.with(InnerKind {
            bytes,
            start: (ETHERNET + IPV4_LEN + UDP_LEN + len) as u8,
            header,
        }))
    }
}

/// The outer headers of an offloaded flow into a tunnel: Ethernet, IPv4 with "don't fragment", UDP
/// without a checksum, and the tunnel's. Lengths and the checksum of IPv4 are those around nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OuterHeaders(SmallVec<[u8; MAX_OUTER]>);

impl OuterHeaders {
    /// Those of packets whose flow has this hash.
    ///
    /// # Errors
    /// [`Refused::Unsupported`].
    pub fn of(push: &TunnelPush, hash: u32) -> Result<OuterHeaders, Refused> {
        let unsupported = |what| Err(Refused::Unsupported(what));
        let headers = &push.headers;
        if !matches!(push.kind, Kind::Vxlan | Kind::Geneve) || headers.inner() != Inner::Ethernet {
            return unsupported("tunnel of this type");
        }
        if headers.has_checksum() {
            return unsupported("checksum of outer headers");
        }
        let mut bytes = SmallVec::from_slice(headers.bytes());
        if bytes.len() > MAX_OUTER {
            return unsupported("outer headers of this length");
        }
        // Without that bit, packets need identifications of their own (RFC 6864 §4.2).
        if bytes.get(12..14) != Some(&EtherType::IPV4.0.to_be_bytes()) || bytes[ETHERNET + 6] & 0x40 == 0 {
            return unsupported("outer packet that may be fragmented");
        }
        let packet = Packet {
            hash,
            ..Packet::default()
        };
        match headers.write(&mut bytes, &packet) {
            Ok(()) => Ok(OuterHeaders(bytes)),
            Err(_) => unsupported("outer headers of this length"),
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
