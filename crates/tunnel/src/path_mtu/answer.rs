//! ICMP errors to the senders of inner packets that are too big for the path of a tunnel.

use super::table::MIN_IPV6;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::EtherType;
use wire::checksum::{checksum, pseudo_ipv6};
use wire::headers::{Frag, Ipv6, ipv4, ipv6};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
/// Length of the header of an ICMP error, before the quoted packet.
const HEADER: usize = 8;
/// The smallest size that an error over IPv4 says (RFC 1191 §3).
const LEAST_IPV4: usize = 68;
/// The longest error over IPv4 (RFC 1812 §4.3.2.3).
const LONGEST_IPV4: usize = 576;
/// The longest error over IPv6 (RFC 4443 §2.4).
const LONGEST_IPV6: usize = MIN_IPV6 as usize;
/// The type of service of errors: internetwork control (RFC 1812 §4.3.2.5).
const TOS: u8 = 0xc0;
const TTL: u8 = 64;
/// The bit "don't fragment", in its byte.
const DF: u8 = 0x40;

/// The error about an inner packet, as its destination would send it if the link to it took packets
/// of `mtu` bytes. `packet` begins with its IP header. `None` if no error may be sent about it: it
/// could have been fragmented, is an error itself, or its addresses do not name two hosts
/// (RFC 1812 §4.3.2.7, RFC 4443 §2.4).
pub fn answer(kind: EtherType, packet: &[u8], mtu: usize) -> Option<Vec<u8>> {
    match kind {
        EtherType::IPV4 => icmp(packet, mtu),
        EtherType::IPV6 => icmpv6(packet, mtu),
        _ => None,
    }
}

/// Whether a tunnel has to carry an inner packet even if its own packet must be fragmented: every
/// link carries IPv6 packets of this length (RFC 4213 §3.2.2, RFC 8200 §5).
pub fn must_be_carried(kind: EtherType, packet: &[u8]) -> bool {
    kind == EtherType::IPV6 && packet.len() <= LONGEST_IPV6
}

fn icmp(packet: &[u8], mtu: usize) -> Option<Vec<u8>> {
    let (header, ip) = ipv4(packet)?;
    let address = |at: usize| {
        header[at..]
            .first_chunk()
            .map_or(Ipv4Addr::UNSPECIFIED, |b: &[u8; 4]| (*b).into())
    };
    let (src, dst) = (address(12), address(16));
    let is_error = ip.protocol == ICMP && packet.get(ip.start).is_none_or(|kind| matches!(kind, 3..=5 | 11 | 12));
    if header[0] >> 4 != 4 || header[6] & DF == 0 || ip.frag != Frag::No || is_error {
        return None;
    }
    let is_host = |address: Ipv4Addr| {
        let first = address.octets()[0];
        // 0/8 and 127/8 are no hosts of others, 224/4 and 240/4 no single ones.
        !matches!(first, 0 | 127 | 224..)
    };
    if !is_host(src) || !is_host(dst) {
        return None;
    }
    let quoted = &packet[..ip.end.min(LONGEST_IPV4 - IPV4_LEN - HEADER)];
    let len = (IPV4_LEN + HEADER + quoted.len()) as u16;
    let mut answer = vec![0x45, TOS];
    answer.extend(len.to_be_bytes());
    answer.extend([0, 0, 0, 0, TTL, ICMP, 0, 0]);
    answer.extend(dst.octets());
    answer.extend(src.octets());
    let sum = checksum(&answer);
    answer[10..12].copy_from_slice(&sum.to_be_bytes());
    answer.extend([3, 4, 0, 0, 0, 0]);
    answer.extend(u16::try_from(mtu.max(LEAST_IPV4)).unwrap_or(u16::MAX).to_be_bytes());
    answer.extend(quoted);
    let sum = checksum(&answer[IPV4_LEN..]);
    answer[IPV4_LEN + 2..][..2].copy_from_slice(&sum.to_be_bytes());
    Some(answer)
}

fn icmpv6(packet: &[u8], mtu: usize) -> Option<Vec<u8>> {
    let (header, Ipv6::Whole(ip)) = ipv6(packet)? else {
        return None;
    };
    let address = |at: usize| {
        header[at..]
            .first_chunk()
            .map_or(Ipv6Addr::UNSPECIFIED, |b: &[u8; 16]| (*b).into())
    };
    let (src, dst) = (address(8), address(24));
    // Errors have types below 128; 137 is a redirect.
    let is_error = ip.protocol == ICMPV6 && packet.get(ip.start).is_none_or(|kind| matches!(kind, ..128 | 137));
    if header[0] >> 4 != 6 || ip.end <= LONGEST_IPV6 || is_error {
        return None;
    }
    let is_host = |address: Ipv6Addr| !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
    if !is_host(src) || !is_host(dst) {
        return None;
    }
    let quoted = &packet[..ip.end.min(LONGEST_IPV6 - IPV6_LEN - HEADER)];
    let len = HEADER + quoted.len();
    let mut answer = vec![0x60 | TOS >> 4, TOS << 4, 0, 0];
    answer.extend((len as u16).to_be_bytes());
    answer.extend([ICMPV6, TTL]);
    answer.extend(dst.octets());
    answer.extend(src.octets());
    answer.extend([2, 0, 0, 0]);
    answer.extend(u32::try_from(mtu.max(LONGEST_IPV6)).unwrap_or(u32::MAX).to_be_bytes());
    answer.extend(quoted);
    let sum = pseudo_ipv6(dst, src, ICMPV6, len as u32).bytes(&answer[IPV6_LEN..]);
    answer[IPV6_LEN + 2..][..2].copy_from_slice(&sum.finish().to_be_bytes());
    Some(answer)
}
