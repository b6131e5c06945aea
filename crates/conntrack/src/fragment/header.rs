//! The header of a fragment.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use wire::checksum::checksum;

/// Length of the fragment header of IPv6.
pub(super) const FRAGMENT: usize = 8;
/// The longest packet.
const LONGEST: usize = 65535;

/// What identifies a datagram (RFC 791, RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Datagram {
    zone: u16,
    v6: bool,
    src: u128,
    dst: u128,
    /// Of IPv4 only.
    protocol: u8,
    id: u32,
}

/// A fragment's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) datagram: Datagram,
    /// Where its data belongs.
    pub(super) offset: usize,
    /// Where its data is in the packet.
    pub(super) data: Range<usize>,
    /// Whether others follow.
    pub(super) more: bool,
    v6: bool,
    /// IPv6: where the number stands that says that a fragment header follows.
    pointer: usize,
}

impl Header {
    /// The header of a fragment; `None` if it is none, or contradicts itself.
    pub(super) fn read(packet: &[u8], v6: bool, zone: u16) -> Option<Header> {
        let header = if v6 {
            read_v6(packet, zone)?
        } else {
            read_v4(packet, zone)?
        };
        let whole = header.data.start + header.offset + header.data.len();
        let fragment = header.more || header.offset > 0;
        let even = !header.more || header.data.len() % 8 == 0;
        (fragment && even && !header.data.is_empty() && whole <= LONGEST).then_some(header)
    }

    /// The IP header of the whole packet, `len` bytes of data following. `packet` is this fragment.
    pub(super) fn whole(&self, packet: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut head = packet.get(..self.data.start)?.to_vec();
        match self.v6 {
            false => {
                let total = u16::try_from(head.len() + len).ok()?;
                head.get_mut(2..4)?.copy_from_slice(&total.to_be_bytes());
                // Only "don't fragment" stays.
                *head.get_mut(6)? &= 0x40;
                *head.get_mut(7)? = 0;
                fix_checksum(&mut head);
            }
            true => {
                let fragment = self.data.start.checked_sub(FRAGMENT)?;
                *head.get_mut(self.pointer)? = *packet.get(fragment)?;
                head.truncate(fragment);
                let payload = u16::try_from((head.len() + len).checked_sub(40)?).ok()?;
                head.get_mut(4..6)?.copy_from_slice(&payload.to_be_bytes());
            }
        }
        head.reserve(len);
        Some(head)
    }
}

/// Computes the checksum of an IPv4 header, which is all of `header`.
pub(super) fn fix_checksum(header: &mut [u8]) {
    if let Some(field) = header.get_mut(10..12) {
        field.fill(0);
        let sum = checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn read_v4(packet: &[u8], zone: u16) -> Option<Header> {
    let fixed: &[u8; 20] = packet.first_chunk()?;
    let start = usize::from(fixed[0] & 0xf) * 4;
    let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let end = usize::from(word(2));
    let right = fixed[0] >> 4 == 4 && start >= 20 && start <= end && end <= packet.len();
    (right && checksum(&packet[..start]) == 0).then_some(())?;
    let address = |at: usize| packet[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    Some(Header {
        datagram: Datagram {
            zone,
            v6: false,
            src: address(12).into(),
            dst: address(16).into(),
            protocol: fixed[9],
            id: word(4).into(),
        },
        offset: usize::from(word(6) & 0x1fff) * 8,
        data: start..end,
        more: word(6) & 0x2000 != 0,
        v6: false,
        pointer: 0,
    })
}

fn read_v6(packet: &[u8], zone: u16) -> Option<Header> {
    let fixed: &[u8; 40] = packet.first_chunk()?;
    let end = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    (fixed[0] >> 4 == 6 && end <= packet.len()).then_some(())?;
    // The headers before the fragment header (RFC 8200 §4.5: the per-fragment headers).
    let (mut pointer, mut at, mut next) = (6, 40, fixed[6]);
    while matches!(next, 0 | 43 | 60) {
        let header: &[u8; 2] = packet.get(at..end)?.first_chunk()?;
        next = header[0];
        pointer = at;
        at += (usize::from(header[1]) + 1) * 8;
    }
    let header: &[u8; FRAGMENT] = packet.get(at..end)?.first_chunk()?;
    (next == 44).then_some(())?;
    let word = u16::from_be_bytes([header[2], header[3]]);
    let address = |at: usize| {
        packet[at..]
            .first_chunk()
            .map_or(0, |bytes| u128::from_be_bytes(*bytes))
    };
    Some(Header {
        datagram: Datagram {
            zone,
            v6: true,
            src: address(8),
            dst: address(24),
            protocol: 0,
            id: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        },
        offset: usize::from(word & !7),
        data: at + FRAGMENT..end,
        more: word & 1 != 0,
        v6: true,
        pointer,
    })
}

impl Datagram {
    /// Its source and destination.
    pub(super) fn addresses(&self) -> (std::net::IpAddr, std::net::IpAddr) {
        let address = |bits: u128| match self.v6 {
            false => Ipv4Addr::from_bits(bits as u32).into(),
            true => Ipv6Addr::from_bits(bits).into(),
        };
        (address(self.src), address(self.dst))
    }

    pub(super) fn is_v6(&self) -> bool {
        self.v6
    }
}
