//! The walk from the Ethernet header to the transport header.
//!
//! Each step believes a length only where the bytes are there, and takes for whole what Open
//! vSwitch takes for whole: the version in an IP header, for example, is the EtherType's business.
//! Nothing here panics, whatever the bytes. Offsets are within the slice that a function gets, but
//! for [`ipv4_header`] and [`ipv6_header`].

use crate::EtherType;
use crate::extensions::Chain;

/// Length of an Ethernet header without tags.
const ETHERNET: usize = 14;
/// Length of a VLAN tag.
const TAG: usize = 4;

/// Which part of a packet an IP packet is; the values are those of a flow key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Frag {
    /// The whole.
    No = 0,
    /// The first fragment: it has the transport header.
    First = 1,
    /// A later fragment.
    Later = 3,
}

/// What an IP header says of what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Protocol (IPv4) or last next header (IPv6); of a later fragment of IPv6, 44.
    pub protocol: u8,
    /// Where what it carries begins.
    pub start: usize,
    /// Where the packet ends; what lies behind is padding.
    pub end: usize,
    /// Which fragment it is.
    pub frag: Frag,
    /// The extension headers: the value of OpenFlow's `ipv6_exthdr`.
    pub extensions: u16,
    /// Whether the destination in the header is the last one: not where a routing header still has
    /// segments to go.
    pub final_destination: bool,
}

/// An IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6 {
    /// The whole chain of extension headers is there.
    Whole(Ip),
    /// An extension header is cut short.
    Cut,
}

/// The type behind at most `most` VLAN tags, and the offset of what it introduces; `None` where a
/// tag is cut short. The type may be a length ([`EtherType::MIN`]).
#[inline(always)]
pub fn behind_tags(data: &[u8], most: usize) -> Option<(EtherType, usize)> {
    let mut at = ETHERNET;
    let mut kind = type_at(data, at - 2)?;
    for _ in 0..most {
        if !kind.is_vlan() {
            break;
        }
        at += TAG;
        kind = type_at(data, at - 2)?;
    }
    Some((kind, at))
}

/// The type in an LLC SNAP header with a zero organization (RFC 1042), which is 8 bytes long.
#[inline]
pub fn snap(data: &[u8]) -> Option<EtherType> {
    let kind = type_at(data, 6)?;
    (data[..6] == [0xaa, 0xaa, 3, 0, 0, 0] && kind >= EtherType::MIN).then_some(kind)
}

/// IPv4 (RFC 791); `None` if a length in the header contradicts the bytes.
#[inline(always)]
pub fn ipv4(data: &[u8]) -> Option<(&[u8; 20], Ip)> {
    let (header, ip) = ipv4_header(data)?;
    (20 <= ip.start && ip.start <= ip.end && ip.end <= data.len()).then_some((header, ip))
}

/// The IPv4 header of a packet that may be cut, or wrong: `start` and `end` are what it says, and
/// may lie anywhere.
#[inline(always)]
pub fn ipv4_header(data: &[u8]) -> Option<(&[u8; 20], Ip)> {
    let header: &[u8; 20] = data.first_chunk()?;
    let start = usize::from(header[0] & 0xf) * 4;
    let end = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    let ip = Ip {
        protocol: header[9],
        start,
        end,
        frag: match (fragment & 0x1fff, fragment & 0x2000) {
            (0, 0) => Frag::No,
            (0, _) => Frag::First,
            _ => Frag::Later,
        },
        extensions: 0,
        final_destination: true,
    };
    Some((header, ip))
}

/// IPv6 and its extension headers (RFC 8200 §4); `None` if the length in the header is beyond the
/// bytes.
#[inline]
pub fn ipv6(data: &[u8]) -> Option<(&[u8; 40], Ipv6)> {
    let header: &[u8; 40] = data.first_chunk()?;
    ipv6_until(data, ipv6_end(header))
}

/// The same for a packet that may be cut, or wrong: `end` is what the header says, and may lie
/// beyond the bytes or before `start`.
#[inline]
pub fn ipv6_header(data: &[u8]) -> Option<(&[u8; 40], Ipv6)> {
    ipv6_until(data, data.len())
}

#[inline]
fn ipv6_end(header: &[u8; 40]) -> usize {
    header.len() + usize::from(u16::from_be_bytes([header[4], header[5]]))
}

/// Walks over the extension headers before this offset.
#[inline(always)]
fn ipv6_until(data: &[u8], until: usize) -> Option<(&[u8; 40], Ipv6)> {
    let header: &[u8; 40] = data.first_chunk()?;
    let mut rest = data.get(header.len()..until)?;
    let mut chain = Chain::new(header[6]);
    if chain.is_extension() && chain.walk(&mut rest).is_none() {
        return Some((header, Ipv6::Cut));
    }
    let ip = Ip {
        protocol: chain.next,
        start: until - rest.len(),
        end: ipv6_end(header),
        frag: chain.frag,
        extensions: chain.seen,
        final_destination: chain.final_destination,
    };
    Some((header, Ipv6::Whole(ip)))
}

/// Whether a transport header is of a protocol that is known here, and whole: TCP (RFC 9293), UDP
/// (RFC 768), DCCP, UDP-Lite, SCTP (RFC 9260), ICMP (RFC 792), ICMPv6 (RFC 4443).
#[inline(always)]
pub fn is_whole(protocol: u8, ipv6: bool, data: &[u8]) -> bool {
    match (protocol, ipv6) {
        // A header that is longer than the packet, or shorter than itself, is none.
        (6, _) => data.len() >= 20 && (20..=data.len()).contains(&(usize::from(data[12] >> 4) * 4)),
        (17 | 33 | 136, _) | (1, false) | (58, true) => data.len() >= 8,
        (132, _) => data.len() >= 12,
        _ => false,
    }
}

/// Whether ARP or reverse ARP is for IPv4 over Ethernet (RFC 826), and whole.
#[inline]
pub fn is_arp(data: &[u8]) -> bool {
    data.len() >= 28 && data[..6] == [0, 1, 8, 0, 6, 4]
}

#[inline(always)]
fn type_at(data: &[u8], at: usize) -> Option<EtherType> {
    Some(EtherType(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket};
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn it_finds_what_etherparse_finds(
            tags in 0usize..3, v6: bool, tcp: bool, cut in 0usize..100,
            damage in proptest::collection::vec((0usize..60, any::<u8>()), 0..2),
        ) {
            let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let network = if v6 { link.ipv6([1; 16], [9; 16], 64) } else { link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) };
            let mut packet = Vec::new();
            match tcp {
                true => network.tcp(1, 2, 3, 4).write(&mut packet, b"data"),
                false => network.udp(1, 2).write(&mut packet, b"data"),
            }.unwrap();
            for _ in 0..tags {
                packet.splice(12..12, [0x81, 0, 0, 7]);
            }
            // Etherparse reads jumbograms, and extension headers in their order only.
            for (at, byte) in damage.into_iter().filter(|_| !v6) {
                packet.get_mut(14 + 4 * tags + at).into_iter().for_each(|own| *own = byte);
            }
            packet.truncate(packet.len() - cut.saturating_sub(60).min(packet.len()));
            let ours = behind_tags(&packet, tags).and_then(|(kind, at)| {
                let ip = match kind {
                    EtherType::IPV4 => ipv4(&packet[at..])?.1,
                    EtherType::IPV6 => match ipv6(&packet[at..])?.1 {
                        Ipv6::Whole(ip) => ip,
                        Ipv6::Cut => return None,
                    },
                    _ => return None,
                };
                let payload = packet[at + ip.start..at + ip.end].to_vec();
                Some((ip.protocol, ip.frag != Frag::No, payload))
            });
            // Etherparse also refuses what this does not look at, the version for example.
            if let Ok(theirs) = SlicedPacket::from_ethernet(&packet) && theirs.link_exts.len() == tags {
                let payload = match &theirs.net {
                    Some(NetSlice::Ipv4(ip)) => Some(ip.payload()),
                    Some(NetSlice::Ipv6(ip)) => Some(ip.payload()),
                    _ => None,
                };
                if let Some(payload) = payload {
                    let (protocol, fragment, bytes) = ours.unwrap();
                    prop_assert_eq!(fragment, payload.fragmented);
                    if !fragment && protocol != 51 {
                        prop_assert_eq!(protocol, payload.ip_number.0);
                        prop_assert_eq!(&bytes[..], payload.payload);
                    }
                }
            }
        }
    }

    #[test]
    fn a_tag_cut_short_ends_the_walk_and_so_does_the_number_of_tags() {
        let packet = [&[0; 12][..], &[0x81, 0, 0, 1, 0x88, 0xa8, 0, 2, 8, 0]].concat();
        assert_eq!(behind_tags(&packet, 1), Some((EtherType::QINQ, 18)));
        assert_eq!(behind_tags(&packet, usize::MAX), Some((EtherType::IPV4, 22)));
        assert_eq!(behind_tags(&packet[..21], 2), None);
        assert_eq!(behind_tags(&packet[..13], 0), None);
    }
}
