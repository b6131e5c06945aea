//! The Internet checksum (RFC 1071) and the pseudo headers of IPv4 and IPv6.
//!
//! Sums are [`Sum`]s until the end, so that headers, pseudo headers and payloads in several pieces
//! can be added in any order. Every piece but the last must have an even length.

use core::net::{Ipv4Addr, Ipv6Addr};

/// An unfinished one's-complement sum of big-endian 16-bit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Sum = Sum(0);

    /// Adds bytes; an odd last byte counts as followed by a zero.
    #[must_use]
    pub fn bytes(self, data: &[u8]) -> Sum {
        // One's-complement addition does not care for the width of the words added (RFC 1071 §2
        // (C)): eight bytes a step, the carry put back.
        let mut sum = self.0;
        let mut chunks = data.chunks_exact(8);
        for chunk in &mut chunks {
            let word = chunk.try_into().map_or(0, u64::from_be_bytes);
            let (added, carry) = sum.overflowing_add(word);
            sum = added + u64::from(carry);
        }
        let rest = chunks.remainder();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let (added, carry) = sum.overflowing_add(u64::from_be_bytes(last));
        Sum(added + u64::from(carry))
    }

    /// Adds a 16-bit word.
    #[must_use]
    #[inline]
    pub fn word(self, word: u16) -> Sum {
        let (added, carry) = self.0.overflowing_add(u64::from(word));
        Sum(added + u64::from(carry))
    }

    /// Adds four 16-bit words, the first in the highest bits.
    #[must_use]
    #[inline]
    pub const fn words(self, words: u64) -> Sum {
        let (added, carry) = self.0.overflowing_add(words);
        Sum(added + carry as u64)
    }

    /// Adds another sum.
    #[must_use]
    #[inline]
    pub const fn and(self, other: Sum) -> Sum {
        self.words(other.0)
    }

    /// The sum folded to 16 bits, not complemented: what belongs in the field of a packet whose
    /// checksum the device is still to complete.
    #[inline]
    pub const fn fold(self) -> u16 {
        let mut sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum as u16
    }

    /// The checksum: the complement of the folded sum. Over data that contains its own checksum it
    /// is 0 where the checksum is right.
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }

    /// The checksum as UDP carries it, where 0 means "none" and 0xffff stands for zero (RFC 768).
    pub const fn finish_udp(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            sum => sum,
        }
    }
}

/// The checksum of some bytes.
pub fn checksum(data: &[u8]) -> u16 {
    Sum::ZERO.bytes(data).finish()
}

/// Whether the header checksum of IPv4 is right. `start` is the header's length.
#[inline]
pub fn is_ipv4_header_right(data: &[u8], start: usize) -> bool {
    match data.first_chunk() {
        // Without options.
        Some(header) if start == 20 => of_ipv4_header(header) == 0,
        _ => data.get(..start).is_some_and(|header| checksum(header) == 0),
    }
}

/// The checksum of an IPv4 header without options.
#[inline]
fn of_ipv4_header(header: &[u8; 20]) -> u16 {
    let [a, b, c, d, e] = [0, 4, 8, 12, 16].map(|at| {
        let word = header[at..].first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        u64::from(word)
    });
    Sum::ZERO.words(a + b + c + d + e).finish()
}

/// The pseudo header of TCP, UDP and others over IPv4 (RFC 9293 §3.1). `len` counts the header and
/// data of the upper layer.
pub fn pseudo_ipv4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u32) -> Sum {
    Sum::ZERO
        .bytes(&src.octets())
        .bytes(&dst.octets())
        .word(u16::from(protocol))
        .bytes(&len.to_be_bytes())
}

/// The pseudo header over IPv6 (RFC 8200 §8.1).
pub fn pseudo_ipv6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, len: u32) -> Sum {
    Sum::ZERO
        .bytes(&src.octets())
        .bytes(&dst.octets())
        .bytes(&len.to_be_bytes())
        .word(u16::from(next_header))
}

/// The checksum after a 16-bit word of the data changed (RFC 1624 equation 3).
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = (!checksum) as u32 + (!old) as u32 + new as u32;
    let sum = (sum >> 16) + (sum & 0xffff);
    !(((sum >> 16) + (sum & 0xffff)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// RFC 1071 word by word.
    fn plain(data: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in data.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    proptest! {
        #[test]
        fn wide_additions_give_the_checksum_of_the_rfc(data in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..100) {
            prop_assert_eq!(checksum(&data), plain(&data));
            let cut = (cut * 2).min(data.len() & !1);
            prop_assert_eq!(Sum::ZERO.bytes(&data[..cut]).bytes(&data[cut..]).finish(), plain(&data));
            if let Some((words, rest)) = data.split_first_chunk() {
                prop_assert_eq!(Sum::ZERO.words(u64::from_be_bytes(*words)).bytes(rest).finish(), plain(&data));
            }
        }

        #[test]
        fn an_updated_checksum_is_the_checksum_of_the_updated_data(mut data in proptest::collection::vec(any::<u8>(), 4..40), new: u16) {
            data[0] = 1; // all-zero data has two representations of zero
            let old = u16::from_be_bytes([data[2], data[3]]);
            let before = checksum(&data);
            data[2..4].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update(before, old, new), checksum(&data));
        }

        #[test]
        fn pseudo_headers_are_the_ones_etherparse_adds(src: [u8; 4], dst: [u8; 4], payload in proptest::collection::vec(any::<u8>(), 0..60)) {
            let udp = etherparse::UdpHeader { source_port: 7, destination_port: 9, length: 8 + payload.len() as u16, checksum: 0 };
            let mut bytes: Vec<u8> = udp.to_bytes().to_vec();
            bytes.extend(&payload);
            let sum = pseudo_ipv4(src.into(), dst.into(), 17, bytes.len() as u32).bytes(&bytes).finish_udp();
            prop_assert_eq!(Ok(sum), udp.calc_checksum_ipv4_raw(src, dst, &payload));
            let (src6, dst6) = ([src[0]; 16], [dst[1]; 16]);
            let sum = pseudo_ipv6(src6.into(), dst6.into(), 17, bytes.len() as u32).bytes(&bytes).finish_udp();
            prop_assert_eq!(Ok(sum), udp.calc_checksum_ipv6_raw(src6, dst6, &payload));
        }
    }
}
