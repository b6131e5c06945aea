//! What the switch knows of a packet.

use crate::field::{self, Field, KEY_WORDS};
use crate::mask::{FIELD_BITS, Mask};
use crate::meta::PortNo;
use crate::{Masked, mask::mix};
use wire::{MacAddr, VlanTag};

/// Set in [`Field::VlanTci0`] and [`Field::VlanTci1`] where there is a tag, so that VLAN 0 differs
/// from no tag. It replaces the drop eligible indicator, which keys do not contain: a rewritten tag
/// has 0 there (IEEE 802.1Q §6.9.3, Use_DEI off).
pub const TAG_PRESENT: u16 = 0x1000;

/// The values of all fields of one packet; zero where the packet does not have the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub(crate) words: [u64; KEY_WORDS],
}

impl Default for Key {
    fn default() -> Key {
        Key::ZERO
    }
}

impl Key {
    /// All fields zero.
    pub const ZERO: Key = Key { words: [0; KEY_WORDS] };

    /// The key of these words, in the order of the layout; bits that belong to no field are left
    /// out.
    pub fn from_words(words: &[u64; KEY_WORDS]) -> Key {
        Key {
            words: std::array::from_fn(|n| words[n] & FIELD_BITS[n]),
        }
    }

    /// The value of a field.
    #[inline(always)]
    pub const fn get(&self, field: Field) -> u128 {
        field::get(&self.words, field)
    }

    /// Sets the value of a field; bits above its width are ignored.
    #[inline(always)]
    pub const fn set(&mut self, field: Field, value: u128) {
        field::set(&mut self.words, field, value);
    }

    /// The words, in the order of the layout.
    pub const fn words(&self) -> &[u64; KEY_WORDS] {
        &self.words
    }

    /// The key with all bits outside the mask zero.
    #[inline]
    #[must_use]
    pub fn masked(&self, mask: &Mask) -> Key {
        let mut key = *self;
        for (word, bits) in key.words.iter_mut().zip(mask.words()) {
            *word &= bits;
        }
        key
    }

    /// A hash of the whole key. Without the seed nobody can choose keys that collide.
    #[inline]
    pub fn hash64(&self, seed: u64) -> u64 {
        let mut hash = seed;
        for word in &self.words {
            hash = mix(hash, *word);
        }
        hash
    }

    /// For printing the fields that a mask covers.
    pub fn display<'a>(&'a self, mask: &'a Mask) -> Masked<'a> {
        Masked::new(self, mask)
    }

    /// The port that the packet came in on.
    pub const fn in_port(&self) -> PortNo {
        PortNo(self.get(Field::InPort) as u32)
    }

    /// Source address.
    pub const fn eth_src(&self) -> MacAddr {
        MacAddr::from_u64(self.get(Field::EthSrc) as u64)
    }

    /// Destination address.
    pub const fn eth_dst(&self) -> MacAddr {
        MacAddr::from_u64(self.get(Field::EthDst) as u64)
    }

    /// The tag at a level (0 is the outermost), with [`TAG_PRESENT`] cleared; `None` where there is
    /// none or the level is not parsed.
    pub const fn tag(&self, level: usize) -> Option<VlanTag> {
        let (tpid, tci) = match level {
            0 => (self.get(Field::VlanTpid0) as u16, self.get(Field::VlanTci0) as u16),
            1 => (self.get(Field::VlanTpid1) as u16, self.get(Field::VlanTci1) as u16),
            _ => (0, 0),
        };
        if tci & TAG_PRESENT == 0 {
            None
        } else {
            Some(VlanTag {
                tpid,
                tci: tci & !TAG_PRESENT,
            })
        }
    }

    /// Sets or removes the tag at a level, 0 or 1; nothing happens at others.
    pub const fn set_tag(&mut self, level: usize, tag: Option<VlanTag>) {
        let (tpid, tci) = match tag {
            Some(tag) => (tag.tpid as u128, (tag.tci | TAG_PRESENT) as u128),
            None => (0, 0),
        };
        match level {
            0 => {
                self.set(Field::VlanTpid0, tpid);
                self.set(Field::VlanTci0, tci);
            }
            1 => {
                self.set(Field::VlanTpid1, tpid);
                self.set(Field::VlanTci1, tci);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_field_reads_as_it_was_set_and_leaves_the_others_alone(index in 0..Field::ALL.len(), a: u128, b: u128) {
            let mut key = Key::ZERO;
            for field in Field::ALL {
                key.set(*field, a);
            }
            let field = Field::ALL[index];
            key.set(field, b);
            for other in Field::ALL {
                let expected = if *other == field { b } else { a };
                prop_assert_eq!(key.get(*other), expected & other.max_value());
            }
        }
    }

    #[test]
    fn a_priority_tag_differs_from_no_tag() {
        let mut key = Key::ZERO;
        assert_eq!(key.tag(0), None);
        key.set_tag(0, Some(VlanTag { tpid: 0x8100, tci: 0 }));
        assert_eq!(key.tag(0), Some(VlanTag { tpid: 0x8100, tci: 0 }));
        key.set_tag(0, None);
        assert_eq!(key, Key::ZERO);
    }
}
