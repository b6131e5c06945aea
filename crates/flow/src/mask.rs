//! Which bits of a key count.

use crate::field::{self, Field, KEY_WORDS};
use crate::key::Key;

/// The bits of a key's words that belong to fields.
pub(crate) const FIELD_BITS: [u64; KEY_WORDS] = Mask::full().words;

/// A set of bits of a [`Key`].
///
/// It knows which words have bits, so that hashing and comparing under a mask read only those: a
/// switching decision touches three or four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mask {
    words: [u64; KEY_WORDS],
    /// Bit n is set exactly where `words[n]` is not zero.
    used: u64,
}

impl Default for Mask {
    fn default() -> Mask {
        Mask::EMPTY
    }
}

impl Mask {
    /// No bits: matches everything.
    pub const EMPTY: Mask = Mask {
        words: [0; KEY_WORDS],
        used: 0,
    };

    /// The mask of these words, in the order of the layout; bits that belong to no field are left
    /// out.
    pub fn from_words(words: &[u64; KEY_WORDS]) -> Mask {
        let mut mask = Mask::EMPTY;
        for n in 0..KEY_WORDS {
            mask.words[n] = words[n] & FIELD_BITS[n];
            mask.used |= u64::from(mask.words[n] != 0) << n;
        }
        mask
    }

    /// All bits of one field.
    pub const fn exact(field: Field) -> Mask {
        let mut mask = Mask::EMPTY;
        mask.add(field);
        mask
    }

    /// All bits of all fields.
    pub const fn full() -> Mask {
        let mut mask = Mask::EMPTY;
        let mut n = 0;
        while n < Field::ALL.len() {
            mask.add(Field::ALL[n]);
            n += 1;
        }
        mask
    }

    /// Adds all bits of a field.
    #[inline]
    pub const fn add(&mut self, field: Field) {
        self.add_bits(field, field.max_value());
    }

    /// Adds some bits of a field; those above its width are ignored.
    #[inline]
    pub const fn add_bits(&mut self, field: Field, bits: u128) {
        let now = field::get(&self.words, field);
        field::set(&mut self.words, field, now | bits);
        let word = field.word();
        if self.words[word] != 0 {
            self.used |= 1 << word;
        }
        if field.info().bits > 64 && self.words[word - 1] != 0 {
            self.used |= 1 << (word - 1);
        }
    }

    /// The bits of a field that are in the mask.
    #[inline]
    pub const fn get(&self, field: Field) -> u128 {
        field::get(&self.words, field)
    }

    /// The bits of both.
    #[must_use]
    pub fn union(&self, other: &Mask) -> Mask {
        let mut mask = *self;
        for (word, bits) in mask.words.iter_mut().zip(&other.words) {
            *word |= bits;
        }
        mask.used |= other.used;
        mask
    }

    /// The bits that both have.
    #[must_use]
    pub fn intersection(&self, other: &Mask) -> Mask {
        self.common(&Key::ZERO, other, &Key::ZERO)
    }

    /// The bits of both in which two keys, each masked by its own, are equal: a packet that agrees
    /// with either of them agrees with both there.
    #[must_use]
    pub fn common(&self, key: &Key, other: &Mask, other_key: &Key) -> Mask {
        let mut mask = Mask::EMPTY;
        for n in 0..KEY_WORDS {
            mask.words[n] = self.words[n] & other.words[n] & !(key.words[n] ^ other_key.words[n]);
            mask.used |= u64::from(mask.words[n] != 0) << n;
        }
        mask
    }

    /// Whether some packet is for two keys, each under its own mask.
    pub fn overlaps(&self, key: &Key, other: &Mask, other_key: &Key) -> bool {
        self.used_words()
            .all(|n| (key.words[n] ^ other_key.words[n]) & self.words[n] & other.words[n] == 0)
    }

    /// Whether every bit of `other` is in this mask.
    pub fn covers(&self, other: &Mask) -> bool {
        self.words
            .iter()
            .zip(&other.words)
            .all(|(own, bits)| own & bits == *bits)
    }

    /// Whether there are no bits.
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// How many bits there are.
    pub fn count_bits(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// The words, in the order of the layout.
    pub const fn words(&self) -> &[u64; KEY_WORDS] {
        &self.words
    }

    /// The indices of the words that have bits, ascending.
    #[inline]
    pub fn used_words(&self) -> impl Iterator<Item = usize> + use<> {
        let mut used = self.used;
        std::iter::from_fn(move || {
            if used == 0 {
                return None;
            }
            let word = used.trailing_zeros() as usize;
            used &= used - 1;
            Some(word)
        })
    }

    /// A hash of the bits of `key` that are in the mask. Without the seed nobody can
    /// choose keys that collide.
    #[inline]
    pub fn hash_key(&self, key: &Key, seed: u64) -> u64 {
        let mut hash = seed;
        for word in self.used_words() {
            hash = mix(hash, key.words[word] & self.words[word]);
        }
        hash
    }

    /// Whether two keys are equal in the bits of the mask.
    #[inline]
    pub fn eq_key(&self, a: &Key, b: &Key) -> bool {
        self.used_words()
            .all(|word| (a.words[word] ^ b.words[word]) & self.words[word] == 0)
    }
}

/// One step of a hash: adds a word to it. Without the hash so far nobody can choose two words with
/// the same result.
#[inline(always)]
pub const fn mix(hash: u64, word: u64) -> u64 {
    // A 64×64→128-bit product, folded. The added constants keep a word that equals the hash from
    // making the product, and all that follows, zero.
    let product = (hash ^ word ^ 0x9e37_79b9_7f4a_7c15) as u128
        * (word.rotate_left(32) ^ hash.rotate_left(17) ^ 0xd6e8_feb8_6659_fd93) as u128;
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn any_key() -> impl Strategy<Value = Key> {
        proptest::collection::vec(any::<u64>(), KEY_WORDS)
            .prop_map(|words| Key::from_words(&std::array::from_fn(|n| words[n])))
    }

    fn any_mask() -> impl Strategy<Value = Mask> {
        proptest::collection::vec((0..Field::ALL.len(), any::<u128>()), 0..6).prop_map(|bits| {
            let mut mask = Mask::EMPTY;
            for (field, bits) in bits {
                mask.add_bits(Field::ALL[field], bits);
            }
            mask
        })
    }

    proptest! {
        #[test]
        fn keys_equal_under_a_mask_hash_alike_under_it(a in any_key(), b in any_key(), mask in any_mask(), seed: u64) {
            let mut mixed = b;
            for n in 0..KEY_WORDS {
                mixed.words[n] = a.words[n] & mask.words[n] | b.words[n] & !mask.words[n];
            }
            prop_assert!(mask.eq_key(&a, &mixed));
            prop_assert_eq!(mask.hash_key(&a, seed), mask.hash_key(&mixed, seed));
            prop_assert_eq!(a.masked(&mask), mixed.masked(&mask));
            prop_assert_eq!(mask.eq_key(&a, &b), a.masked(&mask) == b.masked(&mask));
        }

        #[test]
        fn a_union_covers_both_and_nothing_more(a in any_mask(), b in any_mask()) {
            let both = a.union(&b);
            prop_assert!(both.covers(&a) && both.covers(&b));
            for field in Field::ALL {
                prop_assert_eq!(both.get(*field), a.get(*field) | b.get(*field));
            }
            prop_assert_eq!(both.used_words().collect::<Vec<_>>(), (0..KEY_WORDS).filter(|n| both.words[*n] != 0).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_hash_spreads_neighbouring_addresses_in_its_low_and_high_bits() {
        let mask = Mask::exact(Field::EthDst);
        let (mut low, mut high) = (HashSet::new(), HashSet::new());
        for mac in 0..1u128 << 16 {
            let mut key = Key::ZERO;
            key.set(Field::EthDst, 0x0200_0000_0000 | mac);
            let hash = mask.hash_key(&key, 7);
            low.insert(hash as u16);
            high.insert((hash >> 48) as u16);
        }
        // 65 536 balls in as many bins leave 63 % of the bins filled, if thrown at random.
        assert!(
            low.len() > 40_000 && high.len() > 40_000,
            "{} {}",
            low.len(),
            high.len()
        );
    }
}
