//! The checksum of SCTP (RFC 9260 §6.8, appendix A): the CRC of Castagnoli's polynomial, bits
//! reflected.
//!
//! In the packet it stands with its least significant byte first. A CRC is linear: changing some
//! bytes of the data changes it by something that depends on the change and on how many bytes
//! follow, not on the rest; [`delta`] computes that.

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// By byte: what remains of it.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = (rest >> 1) ^ ((rest & 1) * POLYNOMIAL);
            bit += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
};

/// By k: x to the power 2^k, modulo the polynomial.
const POWERS: [u32; 32] = {
    let mut powers = [0; 32];
    let mut power = 1 << 30;
    let mut k = 0;
    while k < 32 {
        powers[k] = power;
        power = product(power, power);
        k += 1;
    }
    powers
};

/// The checksum of some bytes.
pub fn crc32c(data: &[u8]) -> u32 {
    !remainder(!0, data)
}

/// The checksum of an SCTP packet, which its own field at byte 8 has no part in; `None` where that
/// field is not there.
pub fn sctp(packet: &[u8]) -> Option<u32> {
    let (head, behind) = packet.split_at_checked(12)?;
    let state = remainder(!0, &head[..8]);
    Some(!remainder(remainder(state, &[0; 4]), behind))
}

/// What the checksum is to be XORed with when data changes by `change` (old XOR new) in a place
/// that `behind` bytes follow.
pub fn delta(change: &[u8], behind: usize) -> u32 {
    let mut shift = 1 << 31;
    let (mut bytes, mut k) = (behind, 3);
    while bytes > 0 {
        if bytes & 1 != 0 {
            shift = product(POWERS[k & 31], shift);
        }
        bytes >>= 1;
        k += 1;
    }
    product(remainder(0, change), shift)
}

fn remainder(state: u32, data: &[u8]) -> u32 {
    data.iter()
        .fold(state, |state, byte| (state >> 8) ^ TABLE[(state as u8 ^ byte) as usize])
}

/// The product of two polynomials modulo the polynomial. Bit 31 is the coefficient of 1.
const fn product(mut a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    while a != 0 {
        if a >> 31 != 0 {
            sum ^= b;
        }
        a <<= 1;
        b = (b >> 1) ^ ((b & 1) * POLYNOMIAL);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn it_gives_the_published_check_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // RFC 3720 §B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(sctp(&[0; 11]), None);
    }

    proptest! {
        #[test]
        fn a_change_of_data_changes_the_checksum_by_its_delta(
            old in proptest::collection::vec(any::<u8>(), 1..3000), change in proptest::collection::vec(any::<u8>(), 1..20), at: usize,
        ) {
            let at = at % old.len();
            let len = change.len().min(old.len() - at);
            let mut new: Vec<u8> = old.clone();
            for (byte, change) in new[at..].iter_mut().zip(&change) {
                *byte ^= change;
            }
            prop_assert_eq!(crc32c(&old) ^ delta(&change[..len], old.len() - at - len), crc32c(&new));
        }

        #[test]
        fn the_checksum_of_a_packet_ignores_its_field(mut packet in proptest::collection::vec(any::<u8>(), 12..100)) {
            let sum = sctp(&packet);
            packet[8..12].fill(0);
            prop_assert_eq!(sum, Some(crc32c(&packet)));
        }
    }
}
