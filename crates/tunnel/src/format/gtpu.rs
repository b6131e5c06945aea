//! GTP-U (3GPP TS 29.281 §5).

use super::inner::Inner;
use super::{Details, Found, Kind, Refusal, be16, be32};

/// Length of the mandatory header.
pub(super) const LEN: usize = 8;
/// Length of the optional fields, which are there if one of E, S and PN is set.
pub(super) const OPTIONAL: usize = 4;
/// The message that carries a user's packet.
pub(super) const G_PDU: u8 = 255;

/// Version 1, GTP and not GTP'.
pub(super) const VERSION: u8 = 0x30;
/// The version and the protocol type.
const VERSION_MASK: u8 = 0xf0;
/// Extension headers follow.
pub(super) const E: u8 = 4;
/// There is a sequence number.
pub(super) const S: u8 = 2;
/// There is an N-PDU number.
pub(super) const PN: u8 = 1;

/// What a GTP-U header has beside the tunnel endpoint id (`tun_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gtpu {
    /// `gtpu_flags`: the first byte of the header.
    pub flags: u8,
    /// `gtpu_msgtype`: 255 for a user's packet.
    pub message: u8,
}

pub(super) fn parse(data: &[u8]) -> Result<Found<'_>, Refusal> {
    let header: &[u8; LEN] = data.first_chunk().ok_or(Refusal::Truncated)?;
    let (flags, message) = (header[0], header[1]);
    if flags & VERSION_MASK != VERSION {
        return Err(Refusal::GtpuVersion);
    }
    let end = LEN + usize::from(be16(header, 2));
    let behind = data.get(LEN..end).ok_or(Refusal::GtpuLength)?;
    let id = Some(u64::from(be32(header, 4)));
    let (inner, start) = if message == G_PDU {
        let start = skip_options(behind, flags)?;
        let inner = Inner::of_ip(&behind[start..]).ok_or(Refusal::InnerPacket)?;
        (inner, LEN + start)
    } else {
        (Inner::Message, LEN)
    };
    let details = Details::Gtpu(Gtpu { flags, message });
    let found = Found::new(Kind::Gtpu, id, inner, start, end);
    Ok(Found { details, ..found })
}

/// The length of the optional fields and extension headers, which is within the bytes.
fn skip_options(bytes: &[u8], flags: u8) -> Result<usize, Refusal> {
    if flags & (E | S | PN) == 0 {
        return Ok(0);
    }
    let mut at = OPTIONAL;
    let mut next = *bytes.get(at - 1).ok_or(Refusal::GtpuLength)?;
    // The type of the next extension header counts only if E is set (§5.1).
    while flags & E != 0 && next != 0 {
        let len = usize::from(*bytes.get(at).ok_or(Refusal::GtpuLength)?) * 4;
        if len == 0 {
            return Err(Refusal::GtpuLength);
        }
        at += len;
        next = *bytes.get(at - 1).ok_or(Refusal::GtpuLength)?;
    }
    Ok(at)
}
