//! Recirculation ids that carry a hash of the packet.
//!
//! A packet that recirculates to choose among buckets needs a place for its hash. The key has no
//! field for it: the last byte of the recirculation id has it. A megaflow then matches on as many
//! bits of that byte as the choice reads. Open vSwitch has a field `dp_hash` for the same; text
//! shows these ids so.

/// Marks ids that carry a hash.
const CARRIES: u32 = 1 << 31;

/// Bits of the hash.
const HASH: u32 = 0xff;

/// The value of [`Field::RecircId`](crate::Field::RecircId).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecircId(pub u32);

impl RecircId {
    /// The bits that carry the hash.
    pub const HASH_BITS: u32 = HASH;

    /// The highest number of an id that carries no hash.
    pub const MAX_PLAIN: u32 = CARRIES - 1;

    /// The highest number of an id that carries a hash.
    pub const MAX_HASHED: u32 = (CARRIES - 1) >> 8;

    /// The id of a number, which carries the hash 0.
    #[must_use]
    pub const fn hashed(number: u32) -> RecircId {
        RecircId(CARRIES | (number & RecircId::MAX_HASHED) << 8)
    }

    /// The number, as text shows it.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self.carries_hash() {
            true => (self.0 & !CARRIES) >> 8,
            false => self.0,
        }
    }

    /// Whether the id carries a hash.
    #[must_use]
    pub const fn carries_hash(self) -> bool {
        self.0 & CARRIES != 0
    }

    /// The hash.
    #[must_use]
    pub const fn hash(self) -> Option<u8> {
        match self.carries_hash() {
            true => Some((self.0 & HASH) as u8),
            false => None,
        }
    }

    /// The same id with the hash 0, which stands for all hashes; another id as it is.
    #[must_use]
    pub const fn base(self) -> RecircId {
        match self.carries_hash() {
            true => RecircId(self.0 & !HASH),
            false => self,
        }
    }

    /// The same id with a hash, if it carries one.
    #[inline]
    #[must_use]
    pub const fn with_hash(self, hash: u8) -> RecircId {
        match self.carries_hash() {
            true => RecircId(self.0 & !HASH | hash as u32),
            false => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_its_number_and_its_hash() {
        for number in [1, 5, RecircId::MAX_HASHED] {
            let id = RecircId::hashed(number);
            for hash in [0, 7, 255] {
                let with = id.with_hash(hash);
                assert_eq!((with.number(), with.hash(), with.base()), (number, Some(hash), id));
            }
            let plain = RecircId(number);
            assert_eq!((plain.number(), plain.hash(), plain.base()), (number, None, plain));
            assert_eq!(plain.with_hash(7), plain);
        }
    }
}
