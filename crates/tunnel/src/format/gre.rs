//! GRE (RFC 2784) with keys and sequence numbers (RFC 2890).

use super::inner::Inner;
use super::ip::OuterIp;
use super::{Checksums, Found, Kind, Refusal, be16, be32, erspan};
use wire::checksum::checksum;

/// The protocol's number.
pub(super) const PROTOCOL: u8 = 47;
/// Length of the header without optional fields.
pub(super) const LEN: usize = 4;

/// A checksum and a reserved word follow.
pub(super) const C: u16 = 0x8000;
/// A key follows.
pub(super) const K: u16 = 0x2000;
/// A sequence number follows.
pub(super) const S: u16 = 0x1000;

pub(super) fn parse<'a>(ip: &OuterIp<'a>, checksums: Checksums) -> Result<Found<'a>, Refusal> {
    if ip.protocol != PROTOCOL || !ip.final_destination {
        return Err(Refusal::Protocol);
    }
    let data = ip.data;
    let header: &[u8; LEN] = data.first_chunk().ok_or(Refusal::Truncated)?;
    let (flags, kind) = (be16(header, 0), be16(header, 2));
    if matches!(kind, erspan::TYPE_II | erspan::TYPE_III) {
        return erspan::parse(data, flags, kind);
    }
    if flags & !(C | K | S) != 0 {
        return Err(Refusal::GreFlags);
    }
    let start = header_len(flags);
    if data.len() < start {
        return Err(Refusal::Truncated);
    }
    let mut at = LEN;
    if flags & C != 0 {
        if checksums == Checksums::Verify && checksum(data) != 0 {
            return Err(Refusal::GreChecksum);
        }
        at += 4;
    }
    let id = (flags & K != 0).then(|| u64::from(be32(data, at)));
    let inner = Inner::of_protocol_type(kind).ok_or(Refusal::GreProtocol)?;
    let found = Found::new(Kind::Gre, id, inner, start, data.len());
    let csum = flags & C != 0;
    Ok(Found { csum, ..found })
}

/// The length of a header with these flags.
pub(super) const fn header_len(flags: u16) -> usize {
    LEN + 4 * (flags & (C | K | S)).count_ones() as usize
}
