//! Segment routing over IPv6: IP packets behind a segment routing header (RFC 8754 §2).

use super::inner::Inner;
use super::ip::{IPV6_LEN, OuterIp};
use super::template::EncapsulateError;
use super::{Found, Kind, MAX_SEGMENTS, Refusal};
use std::net::Ipv6Addr;
use wire::EtherType;

/// Length of the header before the segments.
const LEN: usize = 8;
/// The longest header.
pub(super) const MAX_LEN: usize = LEN + 16 * MAX_SEGMENTS;

/// IPv6 routing headers, and the type of segment routing.
pub(super) const ROUTING: u8 = 43;
const TYPE: u8 = 4;
/// Protocols of what follows.
const IPV4: u8 = 4;
const IPV6: u8 = 41;

pub(super) fn parse<'a>(packet: &'a [u8], ip: &OuterIp<'a>) -> Result<Found<'a>, Refusal> {
    if packet[0] >> 4 != 6 {
        return Err(Refusal::Srv6Missing);
    }
    let chain = &packet[IPV6_LEN..ip.start];
    let header = routing_header(packet[6], chain).ok_or(Refusal::Srv6Missing)?;
    // Type, segments left and the index of the last segment.
    let &[_, _, TYPE, left, last, ..] = header else {
        return Err(Refusal::Srv6Missing);
    };
    if left != 0 {
        return Err(Refusal::Srv6SegmentsLeft);
    }
    if LEN + 16 * (usize::from(last) + 1) > header.len() {
        return Err(Refusal::Srv6Length);
    }
    let inner = match ip.protocol {
        IPV4 => Inner::Packet(EtherType::IPV4),
        IPV6 => Inner::Packet(EtherType::IPV6),
        _ => return Err(Refusal::Srv6NextHeader),
    };
    Ok(Found::new(Kind::Srv6, None, inner, 0, ip.data.len()))
}

/// The first routing header in a chain of whole extension headers.
fn routing_header(first: u8, mut chain: &[u8]) -> Option<&[u8]> {
    let mut kind = first;
    while let [next, len, ..] = *chain {
        let (header, behind) = chain.split_at_checked((usize::from(len) + 1) * 8)?;
        match kind {
            ROUTING => return Some(header),
            // Hop-by-hop options and destination options.
            0 | 60 => (kind, chain) = (next, behind),
            _ => return None,
        }
    }
    None
}

/// A segment routing header and its length. The first segment is the outer destination.
pub(super) fn build(segments: &[Ipv6Addr], inner: Inner) -> Result<([u8; MAX_LEN], usize), EncapsulateError> {
    if segments.is_empty() || segments.len() > MAX_SEGMENTS {
        return Err(EncapsulateError::Segments);
    }
    let mut header = [0; MAX_LEN];
    header[0] = match inner {
        Inner::Packet(EtherType::IPV4) => IPV4,
        Inner::Packet(EtherType::IPV6) => IPV6,
        _ => return Err(EncapsulateError::Inner),
    };
    let last = (segments.len() - 1) as u8;
    header[1] = 2 * segments.len() as u8;
    header[2] = TYPE;
    header[3] = last;
    header[4] = last;
    // The list begins with the last segment.
    for (place, segment) in header[LEN..].chunks_exact_mut(16).zip(segments.iter().rev()) {
        place.copy_from_slice(&segment.octets());
    }
    Ok((header, LEN + 16 * segments.len()))
}
