//! UUIDs: the names of rows, row versions and transactions.

use std::fmt;
use std::str::FromStr;

/// A UUID (RFC 9562), ordered by its bytes.
///
/// Its text has one form only, `8-4-4-4-12` hexadecimal digits: clients may name other things by 32
/// digits without hyphens, which `uuid::Uuid` reads too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(uuid::Uuid);

/// The text is not a UUID of the form `8-4-4-4-12` hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid UUID")]
pub struct ParseUuidError;

impl Uuid {
    /// The UUID of 128 zero bits: "no transaction", the default of a `uuid` column.
    pub const ZERO: Uuid = Uuid(uuid::Uuid::nil());

    /// The UUID whose bits are `bits`, most significant first.
    pub const fn from_u128(bits: u128) -> Uuid {
        Uuid(uuid::Uuid::from_u128(bits))
    }

    /// The 128 bits, most significant first.
    pub const fn as_u128(self) -> u128 {
        self.0.as_u128()
    }

    /// Whether all bits are zero.
    pub fn is_zero(self) -> bool {
        self.0.is_nil()
    }

    /// The lower-case text in a fixed buffer, for writers that do not allocate.
    pub fn to_text(self) -> UuidText {
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        self.0.hyphenated().encode_lower(&mut text);
        UuidText(text)
    }
}

/// The text of a UUID.
#[derive(Clone, Copy)]
pub struct UuidText([u8; uuid::fmt::Hyphenated::LENGTH]);

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
        let text: uuid::fmt::Hyphenated = text.parse().map_err(|_| ParseUuidError)?;
        Ok(Uuid(text.into_uuid()))
    }
}

/// A generator of version-4 UUIDs. The same seed gives the same UUIDs, so that tests are
/// repeatable.
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
        Uuid(uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid())
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
    fn text_of_another_form_is_refused() {
        for text in [
            "",
            "550e8400",
            "550e8400-e29b-41d4-a716-44665544000g",
            "550e8400+e29b-41d4-a716-446655440000",
            "550e8400e29b41d4a716446655440000",
            "{550e8400-e29b-41d4-a716-446655440000}",
            "urn:uuid:550e8400-e29b-41d4-a716-446655440000",
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
            assert_eq!(uuid.0.get_version_num(), 4);
            assert_eq!(uuid.0.get_variant(), uuid::Variant::RFC4122);
        }
        assert_ne!(a.next_uuid(), UuidGen::new(8).next_uuid());
    }
}
