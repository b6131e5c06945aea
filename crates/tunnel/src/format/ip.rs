//! The outer IP header.

use super::{Checksums, Refusal, be32};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::checksum::{Sum, is_ipv4_header_right, pseudo_ipv4, pseudo_ipv6};
use wire::headers::{self, Frag, Ipv6};

/// Length of an IPv4 header without options.
pub(super) const IPV4_LEN: usize = 20;
/// Length of an IPv6 header without extension headers.
pub(super) const IPV6_LEN: usize = 40;

/// The outer IP header of a received packet.
pub(super) struct OuterIp<'a> {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) tos: u8,
    pub(super) ttl: u8,
    pub(super) protocol: u8,
    /// Where what it carries begins, and where the packet ends.
    pub(super) start: usize,
    pub(super) end: usize,
    /// No routing header has segments left.
    pub(super) final_destination: bool,
    /// The bytes between.
    pub(super) data: &'a [u8],
}

/// The pseudo header of a packet with `len` bytes behind the IP header. `src` and `dst` are of one
/// family.
pub(super) fn pseudo(src: IpAddr, dst: IpAddr, protocol: u8, len: usize) -> Sum {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo_ipv4(src, dst, protocol, len as u32),
        (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo_ipv6(src, dst, protocol, len as u32),
        _ => Sum::ZERO,
    }
}

#[inline]
pub(super) fn parse(packet: &[u8], checksums: Checksums) -> Result<OuterIp<'_>, Refusal> {
    let ip = match packet.first().ok_or(Refusal::Truncated)? >> 4 {
        4 => ipv4(packet, checksums)?,
        6 => ipv6(packet)?,
        _ => return Err(Refusal::IpVersion),
    };
    if is_unicast(ip.src) {
        Ok(ip)
    } else {
        Err(Refusal::Source)
    }
}

#[inline]
fn ipv4(packet: &[u8], checksums: Checksums) -> Result<OuterIp<'_>, Refusal> {
    if packet.len() < IPV4_LEN {
        return Err(Refusal::Truncated);
    }
    let (header, ip) = headers::ipv4(packet).ok_or(Refusal::IpLength)?;
    if checksums == Checksums::Verify && !is_ipv4_header_right(packet, ip.start) {
        return Err(Refusal::IpChecksum);
    }
    if ip.frag != Frag::No {
        return Err(Refusal::Fragment);
    }
    let address = |at: usize| Ipv4Addr::from_bits(be32(header, at));
    Ok(OuterIp {
        src: address(12).into(),
        dst: address(16).into(),
        tos: header[1],
        ttl: header[8],
        protocol: ip.protocol,
        start: ip.start,
        end: ip.end,
        final_destination: true,
        data: &packet[ip.start..ip.end],
    })
}

fn ipv6(packet: &[u8]) -> Result<OuterIp<'_>, Refusal> {
    if packet.len() < IPV6_LEN {
        return Err(Refusal::Truncated);
    }
    let (header, chain) = headers::ipv6(packet).ok_or(Refusal::IpLength)?;
    let Ipv6::Whole(ip) = chain else {
        return Err(Refusal::Truncated);
    };
    if ip.frag != Frag::No {
        return Err(Refusal::Fragment);
    }
    let address = |at: usize| {
        let octets: [u8; 16] = header[at..at + 16].try_into().unwrap_or_default();
        Ipv6Addr::from(octets)
    };
    Ok(OuterIp {
        src: address(8).into(),
        dst: address(24).into(),
        tos: header[0] << 4 | header[1] >> 4,
        ttl: header[7],
        protocol: ip.protocol,
        start: ip.start,
        end: ip.end,
        final_destination: ip.final_destination,
        data: &packet[ip.start..ip.end],
    })
}

/// Whether a packet may come from this address. A host may send to itself by a loopback address.
#[inline]
pub(super) fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_multicast() && !address.is_broadcast() && !address.is_unspecified(),
        IpAddr::V6(address) => !address.is_multicast() && !address.is_unspecified(),
    }
}
