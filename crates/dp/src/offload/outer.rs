//! Outer headers that an offload adds and removes.
//!
//! They are those of VXLAN and Geneve over IPv4 around an Ethernet frame without a tag; those that
//! are added have no UDP checksum. A flow into a tunnel has one template of them, because packets
//! of one kind have one source port. Of a flow out of a tunnel all outer headers are matched, so
//! that ECN marks, group policies and options decide as they did for its first packet.

use super::Refused;
use super::kind::{self, PacketKind, READ};
use crate::TunnelPush;
use smallvec::SmallVec;
use tunnel::format::{Format, Inner, Kind, Packet};
use wire::EtherType;
use wire::checksum::{Sum, checksum};
use wire::headers::behind_tags;

/// Most bytes of outer headers.
pub const MAX_OUTER: usize = 96;

/// Bytes of a tunnel's header with options, in an [`InnerKind`].
const TUNNEL: usize = 40;
const ETHERNET: usize = 14;
const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const TCP: u8 = 6;
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
    /// The kind of a tunnel's packet that came in by a device; `is_segment` if it is one that a
    /// device is to cut. Behind at most one tag it is IPv4 without options, whole and with the
    /// right checksum, UDP, a header of the tunnel with at most 32 bytes of options, and an
    /// Ethernet frame with IPv4 that has a kind and no tag; `None` for others.
    ///
    /// A segment has to be one of the inner TCP. Others are several packets of the tunnel, or
    /// datagrams that the kernel would cut as if they still had outer headers.
    ///
    /// Of VXLAN, UDP may have a checksum that is not still to be filled in. It is not verified,
    /// which is the receiver's choice (RFC 7348 §5); that of Geneve must be (RFC 8926 §3.3).
    pub fn of_tunnel(device: u32, packet: &[u8], format: Format, is_segment: bool) -> Option<PacketKind> {
        let header = match format {
            Format::Vxlan { .. } => TunnelHeader::Fixed,
            Format::Geneve => TunnelHeader::Options,
            Format::Gre | Format::Gtpu | Format::Bareudp(_) | Format::Srv6 => return None,
        };
        let mut outer = PacketKind::of(device, packet)?;
        let (kind, at) = behind_tags(packet, 1)?;
        let (ip, payload) = packet.get(at..)?.split_first_chunk::<IPV4_LEN>()?;
        if kind != EtherType::IPV4 || ip[9] != UDP || checksum(ip) != 0 {
            return None;
        }
        let (udp, data) = payload.split_first_chunk::<UDP_LEN>()?;
        let [_, _, _, _, len_high, len_low, sum_high, sum_low] = *udp;
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let len = u16::from_be_bytes([len_high, len_low]);
        if total != IPV4_LEN + payload.len() || usize::from(len) != payload.len() {
            return None;
        }
        let sum = u16::from_be_bytes([sum_high, sum_low]);
        if sum != 0 {
            let unfilled = Sum::ZERO.bytes(&ip[12..]).word(UDP.into()).word(len).fold();
            if header != TunnelHeader::Fixed || !is_segment && sum == unfilled {
                return None;
            }
            outer.set_checksum();
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
        let ip = inner.get(ETHERNET..)?.first_chunk::<IPV4_LEN>()?;
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        if is_segment && (ip[9] != TCP || total != inner.len() - ETHERNET) {
            return None;
        }
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
pub struct OuterHeaders {
    bytes: SmallVec<[u8; MAX_OUTER]>,
    longest: u32,
}

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
            Ok(()) => Ok(OuterHeaders {
                bytes,
                longest: push
                    .limit
                    .map_or(u32::MAX, |limit| u32::from(limit.mtu) + ETHERNET as u32),
            }),
            Err(_) => unsupported("outer headers of this length"),
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The longest packet that the tunnel's path takes, in bytes with these headers; longer ones,
    /// and segments that get longer, go to their worker.
    pub fn longest(&self) -> u32 {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::PortNo;
    use std::net::IpAddr;
    use testkit::{Packet as Bytes, mac};
    use tunnel::format::{Body, Encapsulation, FlowLabel, Outer, SourcePorts, geneve};
    use wire::MacAddr;

    const VXLAN: Format = Format::Vxlan { gbp: false, gpe: false };

    fn inner() -> Bytes {
        Bytes::new(mac(3), mac(4)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
    }

    /// A packet of a tunnel, without a UDP checksum.
    fn outer(tag: bool, header: &[u8], inner: &[u8]) -> Vec<u8> {
        let len = (UDP_LEN + header.len() + inner.len()) as u16;
        let udp = [&[0x80, 0, 0x12, 0xb5][..], &len.to_be_bytes(), &[0, 0], header, inner].concat();
        let packet = Bytes::new(mac(1), mac(2));
        let packet = if tag { packet.vlan(7) } else { packet };
        packet
            .ipv4([172, 31, 0, 1].into(), [172, 31, 0, 2].into())
            .protocol(UDP, &udp)
            .bytes()
    }

    fn vxlan(vni: u8) -> [u8; 8] {
        [8, 0, 0, 0, 0, 0, vni, 0]
    }

    #[test]
    fn the_kind_of_a_tunnels_packet_has_all_headers_and_not_what_differs_within_a_flow() {
        let of = |packet: &[u8]| PacketKind::of_tunnel(1, packet, VXLAN, false);
        let packet = |payload: &[u8]| inner().udp(1, 2, payload).bytes();
        let kind = of(&outer(false, &vxlan(42), &packet(b"x"))).unwrap();
        assert_eq!(Some(kind), of(&outer(false, &vxlan(42), &packet(b"longer"))));
        assert_eq!((kind.outer_len(), kind.outer_port()), (50, [0x12, 0xb5]));
        assert_eq!(kind.headers()[..12], packet(b"")[..12]);
        let tagged = of(&outer(true, &vxlan(42), &packet(b"x"))).unwrap();
        assert_eq!((tagged.outer_len(), tagged.inner().unwrap().start()), (54, 50));
        assert_eq!(tagged.tag(), None, "what is inside has none");
        let others = [
            Some(tagged),
            of(&outer(false, &vxlan(43), &packet(b"x"))),
            of(&outer(false, &vxlan(42), &inner().udp(1, 3, b"x").bytes())),
            PacketKind::of(1, &outer(false, &vxlan(42), &packet(b"x"))),
            PacketKind::of_tunnel(2, &outer(false, &vxlan(42), &packet(b"x")), VXLAN, false),
        ];
        for other in others {
            assert!(other.is_some() && other != Some(kind), "{other:?}");
        }
    }

    #[test]
    fn options_of_geneve_are_part_of_the_kind_as_far_as_they_fit() {
        let packet = inner().udp(1, 2, b"x").bytes();
        let of = |options: &[u8]| {
            let header = [&[(options.len() / 4) as u8, 0, 0x65, 0x58, 0, 0, 42, 0], options].concat();
            PacketKind::of_tunnel(1, &outer(false, &header, &packet), Format::Geneve, false)
        };
        assert_eq!(of(&[]).unwrap().outer_len(), 50);
        assert_eq!(of(&[1; 32]).unwrap().outer_len(), 82);
        assert_ne!(of(&[1; 32]), of(&[2; 32]));
        assert_eq!(of(&[1; 36]), None);
    }

    #[test]
    fn what_the_kernel_cannot_decapsulate_has_no_kind() {
        let good = outer(false, &vxlan(42), &inner().udp(1, 2, b"x").bytes());
        let of = |packet: &[u8], format| PacketKind::of_tunnel(1, packet, format, false);
        assert!(of(&good, VXLAN).is_some());
        let changed = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] ^= value;
            packet
        };
        let padded = [&good[..], &[0]].concat();
        let v6 = Bytes::new(mac(3), mac(4)).ipv6(1.into(), 2.into()).udp(1, 2, b"x");
        let tagged = Bytes::new(mac(3), mac(4)).vlan(5);
        let tagged = tagged.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).udp(1, 2, b"x");
        for (why, packet) in [
            ("a wrong checksum of IPv4", changed(24, 1)),
            ("another length of UDP", changed(39, 1)),
            ("padding", padded),
            ("cut short", good[..good.len() - 1].to_vec()),
            ("IPv6 inside", outer(false, &vxlan(42), &v6.bytes())),
            ("a tag inside", outer(false, &vxlan(42), &tagged.bytes())),
            ("nothing inside", outer(false, &vxlan(42), &[])),
        ] {
            assert_eq!(of(&packet, VXLAN), None, "{why}");
        }
        assert_eq!(of(&good, Format::Gre), None);
    }

    #[test]
    fn only_whole_segments_of_the_inner_tcp_have_a_kind() {
        let of = |inner: &[u8], is_segment| {
            PacketKind::of_tunnel(1, &outer(false, &vxlan(42), inner), VXLAN, is_segment).is_some()
        };
        let (tcp, udp) = (inner().tcp(1, 2, 0x10, b"x").bytes(), inner().udp(1, 2, b"x").bytes());
        assert!(of(&tcp, false) && of(&tcp, true));
        assert!(of(&udp, false) && !of(&udp, true));
        // Two packets of the tunnel that a sender leaves to its device as one.
        let two = [&tcp[..], &vxlan(42), &tcp].concat();
        assert!(of(&two, false) && !of(&two, true));
    }

    #[test]
    fn a_checksum_of_vxlan_that_is_filled_in_is_part_of_the_kind() {
        let mut packet = outer(false, &vxlan(42), &inner().tcp(1, 2, 0x10, b"x").bytes());
        let of = |packet: &[u8], is_segment| PacketKind::of_tunnel(1, packet, VXLAN, is_segment);
        let without = of(&packet, false);
        packet[40] = 7;
        let with = of(&packet, false);
        packet[40] = 8;
        assert!(with.is_some() && with != without && with == of(&packet, false));
        let len = (packet.len() - 34) as u16;
        let unfilled = Sum::ZERO.bytes(&packet[26..34]).word(17).word(len).fold();
        packet[40..42].copy_from_slice(&unfilled.to_be_bytes());
        assert_eq!((of(&packet, false), of(&packet, true)), (None, with));
        let mut geneve = outer(
            false,
            &[0, 0, 0x65, 0x58, 0, 0, 42, 0],
            &inner().udp(1, 2, b"x").bytes(),
        );
        assert!(PacketKind::of_tunnel(1, &geneve, Format::Geneve, false).is_some());
        geneve[40] = 7;
        assert_eq!(PacketKind::of_tunnel(1, &geneve, Format::Geneve, false), None);
    }

    fn push(df: bool, body: &Body<'_>, v6: bool) -> TunnelPush {
        let address = |n: u8| match v6 {
            false => IpAddr::from([172, 31, 0, n]),
            true => IpAddr::from([0, 0, 0, 0, 0, 0, 0, u16::from(n)]),
        };
        let outer = Outer {
            ethernet: Some((MacAddr(mac(1)), MacAddr(mac(2)))),
            src: address(1),
            dst: address(2),
            tos: 0,
            ttl: 64,
            df,
            label: FlowLabel::Zero,
            ports: SourcePorts::default(),
        };
        let kind = match body {
            Body::Geneve { .. } => Kind::Geneve,
            Body::Gre { .. } => Kind::Gre,
            _ => Kind::Vxlan,
        };
        TunnelPush {
            port: PortNo(4),
            underlay: PortNo(5),
            kind,
            headers: Encapsulation::new(&outer, body, Inner::Ethernet).unwrap(),
            sequence: None,
            limit: None,
        }
    }

    #[test]
    fn headers_without_checksums_around_ethernet_are_added_and_no_others() {
        let vxlan = |csum| Body::Vxlan {
            port: 4789,
            csum,
            id: 42,
            gbp: None,
            gpe: false,
        };
        let headers = OuterHeaders::of(&push(true, &vxlan(false), false), 7).unwrap();
        let bytes = headers.bytes();
        assert_eq!(bytes.len(), 50);
        assert_eq!(
            (&bytes[16..18], &bytes[38..40]),
            (&[0, 36][..], &[0, 16][..]),
            "around nothing"
        );
        assert_eq!(checksum(&bytes[14..34]), 0);
        assert_ne!(bytes[34..36], [0, 0], "the source port");
        let options = [0; 52];
        let geneve = Body::Geneve {
            port: 6081,
            csum: false,
            id: 42,
            oam: false,
            options: geneve::Options::new(&options).unwrap(),
        };
        let gre = Body::Gre {
            id: None,
            csum: false,
            sequence: false,
        };
        for other in [
            push(false, &vxlan(false), false),
            push(true, &vxlan(true), false),
            push(true, &vxlan(false), true),
            push(true, &geneve, false),
            push(true, &gre, false),
        ] {
            assert!(OuterHeaders::of(&other, 7).is_err(), "{other}");
        }
    }
}
