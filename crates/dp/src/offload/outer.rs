//! Outer headers that an offload adds and removes.
//!
//! They are those of VXLAN and Geneve over IPv4 and IPv6 around an Ethernet frame without a tag. A
//! flow into a tunnel has one template of them, because packets of one kind have one source port.
//! Of a flow out of a tunnel all outer headers are matched, so that ECN marks, group policies and
//! options decide as they did for its first packet.
//!
//! An outer UDP checksum is computed and verified. Where that of the inner packet is still to be
//! filled in, the outer one is that of the packet which has it ("local checksum offload"). That of
//! a segment is for whoever cuts it.

use super::Refused;
use super::kind::{self, PacketKind, READ};
use crate::TunnelPush;
use smallvec::SmallVec;
use tunnel::format::{Format, Inner, Kind, Packet};
use wire::EtherType;
use wire::checksum::{Sum, checksum};
use wire::headers::behind_tags;

/// Most bytes of outer headers.
pub const MAX_OUTER: usize = 128;

/// Bytes of a tunnel's header with options, in an [`InnerKind`].
const TUNNEL: usize = 40;
const ETHERNET: usize = 14;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
/// Most bytes of options in outer headers that are added.
const ADDED_OPTIONS: usize = 56;
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
    /// device is to cut. Behind at most one tag it is IPv4 without options and with the right
    /// checksum or IPv6 without extension headers, whole, UDP with the right checksum or without
    /// one, a header of the tunnel with at most 32 bytes of options, and an Ethernet frame that has
    /// a kind and no tag; `None` for others.
    ///
    /// A segment has to be one of the inner TCP. Others are several packets of the tunnel, or
    /// datagrams that the kernel would cut as if they still had outer headers.
    ///
    /// A UDP checksum must not be still to be filled in.
    pub fn of_tunnel(device: u32, packet: &[u8], format: Format, is_segment: bool) -> Option<PacketKind> {
        let header = match format {
            Format::Vxlan { .. } => TunnelHeader::Fixed,
            Format::Geneve => TunnelHeader::Options,
            Format::Gre | Format::Gtpu | Format::Bareudp(_) | Format::Srv6 => return None,
        };
        let mut outer = PacketKind::of(device, packet)?;
        let (kind, at) = behind_tags(packet, 1)?;
        let ip = Ip::of(packet.get(at..)?, kind)?;
        if ip.protocol != UDP || ip.rest != 0 || kind == EtherType::IPV4 && checksum(ip.header) != 0 {
            return None;
        }
        let (udp, data) = ip.payload.split_first_chunk::<UDP_LEN>()?;
        if usize::from(u16::from_be_bytes([udp[4], udp[5]])) != ip.payload.len() {
            return None;
        }
        let has_sum = udp[6..] != [0, 0];
        if has_sum {
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
        kind::read(bytes[TUNNEL..].first_chunk_mut()?, inner, inner_type, ETHERNET)?;
        let inner_ip = Ip::of(inner.get(ETHERNET..)?, inner_type)?;
        let is_right = match is_segment {
            true => inner_ip.protocol == TCP && inner_ip.rest == 0,
            false => !has_sum || is_sum_right(&ip, UDP_LEN + len + ETHERNET, &inner_ip),
        };
        is_right.then(|| {
            outer.with(InnerKind {
                bytes,
                start: (ETHERNET + ip.header.len() + UDP_LEN + len) as u8,
                header,
            })
        })
    }
}

/// An IP packet without options or extension headers.
struct Ip<'a> {
    header: &'a [u8],
    protocol: u8,
    /// Both addresses.
    addresses: &'a [u8],
    payload: &'a [u8],
    /// Number of bytes behind it.
    rest: usize,
}

impl<'a> Ip<'a> {
    fn of(packet: &'a [u8], kind: EtherType) -> Option<Ip<'a>> {
        let is_ipv4 = kind == EtherType::IPV4;
        let (header, data) = packet.split_at_checked(if is_ipv4 { IPV4_LEN } else { IPV6_LEN })?;
        let word = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let len = match is_ipv4 {
            true => word(2).checked_sub(IPV4_LEN)?,
            false => word(4),
        };
        let (payload, rest) = data.split_at_checked(len)?;
        Some(Ip {
            header,
            protocol: header[if is_ipv4 { 9 } else { 6 }],
            addresses: &header[if is_ipv4 { 12 } else { 8 }..],
            payload,
            rest: rest.len(),
        })
    }

    /// The sum of its pseudo header.
    fn pseudo(&self) -> Sum {
        let sum = Sum::ZERO.bytes(self.addresses).word(self.protocol.into());
        sum.word(self.payload.len() as u16)
    }

    /// The sum of its payload if the checksum of TCP or UDP is still to be filled in: the field has
    /// the sum of the pseudo header.
    fn unfilled(&self) -> Option<Sum> {
        let at = match self.protocol {
            TCP => 16,
            UDP => 6,
            _ => return None,
        };
        let pseudo = self.pseudo().fold();
        let field = self.payload.get(at..)?.first_chunk::<2>()?;
        (u16::from_be_bytes(*field) == pseudo).then(|| Sum::ZERO.word(!pseudo))
    }
}

/// Whether the UDP checksum of a packet is right whose inner packet begins `before` bytes behind
/// the IP header. A checksum that is still to be filled in is not: the kernel would do so after the
/// outer headers have gone.
fn is_sum_right(outer: &Ip<'_>, before: usize, inner: &Ip<'_>) -> bool {
    let is_right = |sum: Sum| outer.pseudo().and(sum).finish() == 0;
    let inner_headers = before + inner.header.len();
    outer.unfilled().is_none()
        && (inner.unfilled().is_some_and(|rest| {
            let headers = Sum::ZERO.bytes(&outer.payload[..inner_headers]);
            is_right(headers.and(rest))
        }) || is_right(Sum::ZERO.bytes(outer.payload)))
}

/// The outer headers of an offloaded flow into a tunnel: Ethernet, IPv4 with "don't fragment" or
/// IPv6, UDP with a checksum of zero, and the tunnel's. Lengths and the checksum of IPv4 are those
/// around nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OuterHeaders {
    bytes: SmallVec<[u8; MAX_OUTER]>,
    longest: u32,
    has_checksum: bool,
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
        let mut bytes = SmallVec::from_slice(headers.bytes());
        let is_ipv4 = bytes.get(12..14) == Some(&EtherType::IPV4.0.to_be_bytes());
        let udp = ETHERNET + if is_ipv4 { IPV4_LEN } else { IPV6_LEN };
        if bytes.len() > udp + UDP_LEN + FIXED + ADDED_OPTIONS {
            return unsupported("outer headers of this length");
        }
        // Without that bit, packets need identifications of their own (RFC 6864 §4.2).
        if is_ipv4 && bytes[ETHERNET + 6] & 0x40 == 0 {
            return unsupported("outer packet that may be fragmented");
        }
        let packet = Packet {
            hash,
            ..Packet::default()
        };
        if headers.write(&mut bytes, &packet).is_err() {
            return unsupported("outer headers of this length");
        }
        bytes[udp + 6..udp + UDP_LEN].fill(0);
        Ok(OuterHeaders {
            bytes,
            longest: push
                .limit
                .map_or(u32::MAX, |limit| u32::from(limit.mtu) + ETHERNET as u32),
            has_checksum: headers.has_checksum(),
        })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether UDP gets a checksum.
    pub fn has_checksum(&self) -> bool {
        self.has_checksum
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
        let mut packet = with_sum(tag, false, header, inner);
        let udp = if tag { 38 } else { 34 };
        packet[udp + 6..udp + 8].fill(0);
        packet
    }

    /// A packet of a tunnel with a UDP checksum, over IPv4 or IPv6.
    fn with_sum(tag: bool, ipv6: bool, header: &[u8], inner: &[u8]) -> Vec<u8> {
        let packet = Bytes::new(mac(1), mac(2));
        let packet = if tag { packet.vlan(7) } else { packet };
        let packet = match ipv6 {
            false => packet.ipv4([172, 31, 0, 1].into(), [172, 31, 0, 2].into()),
            true => packet.ipv6(1.into(), 2.into()),
        };
        packet.udp(0x8000, 4789, &[header, inner].concat()).bytes()
    }

    fn v6() -> Bytes {
        Bytes::new(mac(3), mac(4)).ipv6(3.into(), 4.into())
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
        let tagged = Bytes::new(mac(3), mac(4)).vlan(5);
        let tagged = tagged.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).udp(1, 2, b"x");
        for (why, packet) in [
            ("a wrong checksum of IPv4", changed(24, 1)),
            ("another length of UDP", changed(39, 1)),
            ("padding", padded),
            ("cut short", good[..good.len() - 1].to_vec()),
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
    fn both_versions_of_ip_are_outside_and_inside() {
        let v4 = || inner().udp(1, 2, b"x").bytes();
        let v6 = || v6().udp(1, 2, b"x").bytes();
        for (ipv6, inside, len, is_mixed) in [
            (false, v4(), 50, false),
            (false, v6(), 50, true),
            (true, v4(), 70, true),
            (true, v6(), 70, false),
        ] {
            let packet = with_sum(false, ipv6, &vxlan(42), &inside);
            let kind = PacketKind::of_tunnel(1, &packet, VXLAN, false).unwrap();
            assert_eq!((kind.outer_len(), kind.outer_port()), (len, [0x12, 0xb5]));
            assert_eq!((kind.is_mixed(), &kind.headers()[..14]), (is_mixed, &inside[..14]));
            assert!(!PacketKind::of(1, &inside).unwrap().is_mixed());
        }
    }

    #[test]
    fn a_right_checksum_is_part_of_the_kind_also_where_the_inner_one_is_to_be_filled_in() {
        let geneve = [0, 0, 0x65, 0x58, 0, 0, 42, 0];
        for (ipv6, format, header) in [
            (false, VXLAN, vxlan(42)),
            (true, VXLAN, vxlan(42)),
            (false, Format::Geneve, geneve),
            (true, Format::Geneve, geneve),
        ] {
            let of = |packet: &[u8], is_segment| PacketKind::of_tunnel(1, packet, format, is_segment);
            let udp = if ipv6 { 54 } else { 34 };
            for inside in [inner(), v6()].map(|ip| ip.tcp(1, 2, 0x10, b"odd").bytes()) {
                let packet = with_sum(false, ipv6, &header, &inside);
                let kind = of(&packet, false);
                assert!(kind.is_some() && of(&packet, true) == kind);
                let wrong = |at: usize| {
                    let mut packet = packet.clone();
                    packet[at] ^= 1;
                    of(&packet, false)
                };
                assert_eq!((wrong(udp + 6), wrong(packet.len() - 1)), (None, None));
                let mut without = packet.clone();
                without[udp + 6..udp + 8].fill(0);
                assert!(of(&without, false).is_some() && of(&without, false) != kind);
                // A sender on the same machine leaves the inner checksum to its device.
                let mut unfilled = packet.clone();
                let own = packet.len() - inside.len() + ETHERNET;
                let (transport, addresses) = match inside[12] {
                    8 => (own + 20, own + 12..own + 20),
                    _ => (own + 40, own + 8..own + 40),
                };
                let sum = |addresses: &[u8], protocol: u16, len: usize| {
                    Sum::ZERO
                        .bytes(addresses)
                        .word(protocol)
                        .word(len as u16)
                        .fold()
                        .to_be_bytes()
                };
                let pseudo = sum(&packet[addresses], 6, packet.len() - transport);
                unfilled[transport + 16..transport + 18].copy_from_slice(&pseudo);
                assert_eq!(of(&unfilled, false), kind);
                unfilled[transport - 1] ^= 1;
                assert_eq!(of(&unfilled, false), None);
                // Or the outer one.
                let mut outside = packet.clone();
                let addresses = if ipv6 { 22..54 } else { 26..34 };
                let pseudo = sum(&packet[addresses], 17, packet.len() - udp);
                outside[udp + 6..udp + 8].copy_from_slice(&pseudo);
                assert_eq!((of(&outside, false), of(&outside, true)), (None, kind));
            }
        }
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
    fn headers_of_vxlan_and_geneve_around_ethernet_are_added_and_no_others() {
        let vxlan = |csum| Body::Vxlan {
            port: 4789,
            csum,
            id: 42,
            gbp: None,
            gpe: false,
        };
        for (v6, csum, has_checksum) in [(false, false, false), (false, true, true), (true, false, true)] {
            let headers = OuterHeaders::of(&push(true, &vxlan(csum), v6), 7).unwrap();
            let bytes = headers.bytes();
            let (length, udp) = if v6 { (18, 54) } else { (16, 34) };
            assert_eq!(bytes.len(), udp + 16);
            let length = u16::from_be_bytes([bytes[length], bytes[length + 1]]);
            assert_eq!(length, if v6 { 16 } else { 36 }, "around nothing");
            assert_eq!(bytes[udp + 4..udp + 8], [0, 16, 0, 0]);
            assert!(v6 || checksum(&bytes[14..34]) == 0);
            assert_ne!(bytes[udp..udp + 2], [0, 0], "the source port");
            assert_eq!(headers.has_checksum(), has_checksum);
        }
        let options = [0; 60];
        let geneve = |len| Body::Geneve {
            port: 6081,
            csum: true,
            id: 42,
            oam: false,
            options: geneve::Options::new(&options[..len]).unwrap(),
        };
        for v6 in [false, true] {
            let headers = OuterHeaders::of(&push(true, &geneve(56), v6), 7).unwrap();
            assert!(headers.bytes().len() <= MAX_OUTER);
        }
        let gre = Body::Gre {
            id: None,
            csum: false,
            sequence: false,
        };
        for other in [
            push(false, &vxlan(false), false),
            push(true, &geneve(60), false),
            push(true, &geneve(60), true),
            push(true, &gre, false),
        ] {
            assert!(OuterHeaders::of(&other, 7).is_err(), "{other}");
        }
    }
}
