//! The outer UDP header (RFC 768).

use super::ip::OuterIp;
use super::{Checksums, Refusal, be16};

/// Length of the header.
pub(super) const LEN: usize = 8;
/// The protocol's number.
pub(super) const PROTOCOL: u8 = 17;

/// An outer datagram.
pub(super) struct Datagram<'a> {
    pub(super) src: u16,
    pub(super) dst: u16,
    /// It has a checksum, which is right.
    pub(super) csum: bool,
    pub(super) data: &'a [u8],
}

/// Reads a datagram. A checksum of zero is none: over IPv4 by RFC 768, and over IPv6 for tunnels by
/// RFC 6935 §5 (VXLAN must accept it: RFC 7348 §5).
#[inline]
pub(super) fn parse<'a>(ip: &OuterIp<'a>, checksums: Checksums) -> Result<Datagram<'a>, Refusal> {
    if ip.protocol != PROTOCOL || !ip.final_destination {
        return Err(Refusal::Protocol);
    }
    if ip.data.len() < LEN {
        return Err(Refusal::Truncated);
    }
    let len = usize::from(be16(ip.data, 4));
    if len < LEN || len > ip.data.len() {
        return Err(Refusal::UdpLength);
    }
    let csum = be16(ip.data, 6) != 0;
    if csum && checksums == Checksums::Verify {
        let pseudo = super::ip::pseudo(ip.src, ip.dst, PROTOCOL, len);
        if pseudo.bytes(&ip.data[..len]).finish() != 0 {
            return Err(Refusal::UdpChecksum);
        }
    }
    Ok(Datagram {
        src: be16(ip.data, 0),
        dst: be16(ip.data, 2),
        csum,
        data: &ip.data[LEN..len],
    })
}
