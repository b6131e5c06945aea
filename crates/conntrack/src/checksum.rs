//! Whether a packet's checksums are right.

use crate::tuple::{ICMP, ICMPV6, SCTP, TCP, UDP};
use wire::checksum::{Sum, checksum, pseudo_ipv4, pseudo_ipv6};
use wire::crc32c;

/// What is known of the transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing: the tracker verifies it.
    #[default]
    Verify,
    /// The device has verified it, or it was verified before.
    Good,
    /// It is still to be completed: the field has the sum of the pseudo header.
    Partial,
}

/// The pseudo header's sum of the packet whose IP header is at the beginning of `data`.
fn pseudo(data: &[u8], v6: bool, protocol: u8, len: usize) -> Option<Sum> {
    let len = len as u32;
    Some(match v6 {
        false => {
            let addresses: &[u8; 8] = data.get(12..20)?.first_chunk()?;
            let [a, b, c, d, e, f, g, h] = *addresses;
            pseudo_ipv4([a, b, c, d].into(), [e, f, g, h].into(), protocol, len)
        }
        true => {
            let src: [u8; 16] = *data.get(8..24)?.first_chunk()?;
            let dst: [u8; 16] = *data.get(24..40)?.first_chunk()?;
            pseudo_ipv6(src.into(), dst.into(), protocol, len)
        }
    })
}

/// Whether the transport checksum is right. The transport header and data are in `l4..end`.
pub(crate) fn is_right(data: &[u8], v6: bool, protocol: u8, l4: usize, end: usize) -> bool {
    let Some(body) = data.get(l4..end) else { return false };
    match (protocol, v6) {
        (ICMP, false) => checksum(body) == 0,
        (UDP, _) if body.get(6..8) == Some(&[0, 0]) => !v6,
        (TCP | UDP, _) | (ICMPV6, true) => {
            pseudo(data, v6, protocol, body.len()).is_some_and(|sum| sum.bytes(body).finish() == 0)
        }
        // The least significant byte comes first (RFC 9260 §6.8).
        (SCTP, _) => crc32c::sctp(body).is_some_and(|sum| body[8..12] == sum.to_le_bytes()),
        _ => true,
    }
}

/// Writes the header checksum of IPv4. `start` is the header's length.
pub(crate) fn write_header(data: &mut [u8], start: usize) {
    if let Some(header) = data.get_mut(..start) {
        header[10..12].fill(0);
        let sum = checksum(header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
    }
}

/// Writes the checksum of a TCP segment that begins at `l4` and ends with the data; where a device
/// completes it, the pseudo header's sum.
pub(crate) fn write_tcp(data: &mut [u8], v6: bool, l4: usize, sum: Checksum) {
    let len = data.len().saturating_sub(l4);
    let Some(pseudo) = pseudo(data, v6, TCP, len) else {
        return;
    };
    let Some(body) = data.get_mut(l4..).filter(|body| body.len() >= 20) else {
        return;
    };
    body[16..18].fill(0);
    let sum = match sum {
        Checksum::Partial => pseudo.fold(),
        Checksum::Verify | Checksum::Good => pseudo.bytes(body).finish(),
    };
    body[16..18].copy_from_slice(&sum.to_be_bytes());
}
