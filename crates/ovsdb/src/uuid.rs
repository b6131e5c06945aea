//! UUIDs: the name of a row, of a row's version and of a transaction.

use std::fmt;
use std::str::FromStr;

/// A 128-bit UUID (RFC 4122), compared byte by byte, most significant first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

/// The text is not a UUID of the form `8-4-4-4-12` hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid UUID")]
pub struct ParseUuidError;

/// Where the hyphens stand in the text of a UUID.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Where the pairs of digits begin.
const PAIRS: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/// The values of hexadecimal digits; 255 for what is none.
const DIGIT_VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        values[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

impl Uuid {
    /// The UUID of 128 zero bits: "no transaction", the default of a `uuid` column.
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// The UUID whose bits are `bits`, most significant first.
    pub const fn from_u128(bits: u128) -> Uuid {
        Uuid(bits.to_be_bytes())
    }

    /// The 128 bits, most significant first.
    pub const fn as_u128(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// Whether all bits are zero.
    pub fn is_zero(self) -> bool {
        self == Uuid::ZERO
    }

    /// The lower-case text form in a fixed buffer, for writers that want no allocation.
    pub fn to_text(self) -> UuidText {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; 36];
        for (byte, at) in self.0.into_iter().zip(PAIRS) {
            text[at] = DIGITS[usize::from(byte >> 4)];
            text[at + 1] = DIGITS[usize::from(byte & 15)];
        }
        UuidText(text)
    }
}

/// The 36 characters of a UUID.
#[derive(Clone, Copy)]
pub struct UuidText([u8; 36]);

impl UuidText {
    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_text().as_str())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_text().as_str())
    }
}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Uuid, ParseUuidError> {
        let text: &[u8; 36] = text.as_bytes().try_into().map_err(|_| ParseUuidError)?;
        if HYPHENS.iter().any(|&at| text[at] != b'-') {
            return Err(ParseUuidError);
        }
        let mut bytes = [0; 16];
        let mut bad = 0;
        for (byte, at) in bytes.iter_mut().zip(PAIRS) {
            let (high, low) = (
                DIGIT_VALUES[usize::from(text[at])],
                DIGIT_VALUES[usize::from(text[at + 1])],
            );
            *byte = high << 4 | low;
            bad |= high | low;
        }
        if bad > 15 {
            return Err(ParseUuidError);
        }
        Ok(Uuid(bytes))
    }
}

/// A source of version-4 UUIDs: deterministic for a seed, so that a test can be repeated.
///
/// A process seeds it with 128 random bits. The UUIDs are unique, not secret.
#[derive(Debug, Clone)]
pub struct UuidGen {
    state: [u64; 4],
}

impl UuidGen {
    /// A generator whose sequence depends on `seed` alone.
    pub fn new(seed: u128) -> UuidGen {
        let mut low = seed as u64;
        let mut high = (seed >> 64) as u64 ^ 0x6a09_e667_f3bc_c908;
        let state = [
            splitmix(&mut low),
            splitmix(&mut high),
            splitmix(&mut low),
            splitmix(&mut high) | 1,
        ];
        UuidGen { state }
    }

    /// The next UUID, version 4, variant 1.
    pub fn next_uuid(&mut self) -> Uuid {
        let bits = u128::from(self.next_u64()) << 64 | u128::from(self.next_u64());
        let bits = bits & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
        Uuid::from_u128(bits)
    }

    /// The next 64 bits of xoshiro256++.
    fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }
}

/// SplitMix64, which spreads a seed's bits over the generator's state.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bits_agree() {
        let text = "550e8400-e29b-41d4-a716-446655440000";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.to_string(), text);
        assert_eq!(uuid.as_u128(), 0x550e8400_e29b_41d4_a716_446655440000);
        assert_eq!("550E8400-E29B-41D4-A716-446655440000".parse(), Ok(uuid));
    }

    #[test]
    fn what_is_not_a_uuid_is_refused() {
        for text in [
            "",
            "550e8400",
            "550e8400-e29b-41d4-a716-44665544000g",
            "550e8400+e29b-41d4-a716-446655440000",
            "é",
        ] {
            assert_eq!(text.parse::<Uuid>(), Err(ParseUuidError), "{text}");
        }
    }

    #[test]
    fn generated_uuids_are_version_4_and_repeat_with_their_seed() {
        let (mut a, mut b) = (UuidGen::new(7), UuidGen::new(7));
        for _ in 0..100 {
            let uuid = a.next_uuid();
            assert_eq!(uuid, b.next_uuid());
            assert_eq!(uuid.0[6] >> 4, 4);
            assert_eq!(uuid.0[8] >> 6, 0b10);
        }
        assert_ne!(a.next_uuid(), UuidGen::new(8).next_uuid());
    }
}
