//! The classifier's knowledge of its keys: the ends of stages, and the fields with prefix tracking.

use std::ops::Range;

use thiserror::Error;

/// Keys have fewer words than this.
pub const MAX_WORDS: usize = 128;
/// Maximum number of fields with prefix tracking.
pub const MAX_PREFIX_FIELDS: usize = 16;

/// A field that rules match by prefix: an address, or a port.
///
/// The same convention as the registry of fields: `word` has its lowest bits, a field wider than 64
/// bits has its highest in the word before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixField {
    /// The word that has its lowest bits.
    pub word: u8,
    /// The position of its lowest bit in that word; 0 where the field is wider than a word.
    pub shift: u8,
    /// Its width, 1 to 64, or 128.
    pub bits: u8,
}

/// An error in a [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// Keys of no words or of more than 127.
    #[error("a key has 1 to 127 words, not {0}")]
    Words(usize),
    /// Stage ends that do not ascend to the number of words.
    #[error("stages must end at ascending words, the last at {0}")]
    Stages(usize),
    /// A field outside the key, of an impossible width, or across stages.
    #[error("prefix field {0} does not lie in one stage of the key")]
    Field(usize),
    /// More than [`MAX_PREFIX_FIELDS`].
    #[error("more than {MAX_PREFIX_FIELDS} prefix fields")]
    Fields,
}

/// Stages and prefix fields of keys of a number of words.
#[derive(Clone, Debug)]
pub struct Layout {
    words: usize,
    stage_ends: Vec<usize>,
    fields: Vec<PrefixField>,
    merging_from: usize,
    /// By word, the bits that are in no prefix field.
    untracked: Vec<u64>,
}

/// Number of subtables before masks are merged. That many are cheap to try, and unmerged ones give
/// the widest masks.
const MERGING_FROM: usize = 16;

impl Layout {
    /// A layout of keys of `words` words.
    ///
    /// `stage_ends` are the words at which stages end, ascending, the last being `words`: if a
    /// packet differs from all rules of a mask in an early stage, the lookup reads no further. Put
    /// fields with the fewest values first: metadata, then L2, L3, L4.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn new(words: usize, stage_ends: &[usize], fields: &[PrefixField]) -> Result<Layout, LayoutError> {
        if words == 0 || words >= MAX_WORDS {
            return Err(LayoutError::Words(words));
        }
        let ascending = stage_ends.windows(2).all(|two| two[0] < two[1]);
        if !ascending || stage_ends.last() != Some(&words) || stage_ends[0] == 0 {
            return Err(LayoutError::Stages(words));
        }
        if fields.len() > MAX_PREFIX_FIELDS {
            return Err(LayoutError::Fields);
        }
        let mut layout = Layout {
            words,
            stage_ends: stage_ends.to_vec(),
            fields: fields.to_vec(),
            merging_from: MERGING_FROM,
            untracked: vec![u64::MAX; words],
        };
        match fields.iter().position(|field| !layout.has(field)) {
            Some(wrong) => Err(LayoutError::Field(wrong)),
            None => {
                for field in fields {
                    field.narrow(&mut layout.untracked, 0);
                }
                Ok(layout)
            }
        }
    }

    /// One stage and no prefix tracking: every mask is consulted whole.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn plain(words: usize) -> Result<Layout, LayoutError> {
        Layout::new(words, &[words], &[])
    }

    /// Has rules of new masks share subtables once there are `subtables` of them (16 unless told):
    /// 0 for always, `usize::MAX` for never.
    pub fn merge_from(mut self, subtables: usize) -> Layout {
        self.merging_from = subtables;
        self
    }

    pub(crate) fn merging_from(&self) -> usize {
        self.merging_from
    }

    /// The mask of a merged subtable for rules of `mask`: prefixes are cut to whole quarters of
    /// their field, other bits stay.
    pub(crate) fn relaxed<const N: usize>(&self, mask: &[u64; N]) -> [u64; N] {
        let mut relaxed = *mask;
        for field in &self.fields {
            if let Some(len) = field.prefix_len(mask) {
                let quarter = (field.bits / 4).max(1);
                field.narrow(&mut relaxed, len / quarter * quarter);
            }
        }
        relaxed
    }

    pub(crate) fn words(&self) -> usize {
        self.words
    }

    pub(crate) fn fields(&self) -> &[PrefixField] {
        &self.fields
    }

    #[inline]
    pub(crate) fn untracked(&self, word: usize) -> u64 {
        self.untracked[word]
    }

    pub(crate) fn stages(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let starts = std::iter::once(0).chain(self.stage_ends.iter().copied());
        starts.zip(&self.stage_ends).map(|(start, end)| start..*end)
    }

    fn has(&self, field: &PrefixField) -> bool {
        let word = usize::from(field.word);
        let in_words = match field.bits {
            128 => word >= 1 && field.shift == 0,
            bits => (1..=64).contains(&bits) && u32::from(field.shift) + u32::from(bits) <= 64,
        };
        in_words
            && word < self.words
            && self
                .stages()
                .any(|stage| stage.contains(&field.first_word()) && stage.contains(&word))
    }
}

impl PrefixField {
    /// The field's value in `words`.
    #[inline]
    pub(crate) fn get(&self, words: &[u64]) -> u128 {
        let word = usize::from(self.word);
        if self.bits == 128 {
            u128::from(words[word - 1]) << 64 | u128::from(words[word])
        } else {
            u128::from(words[word] >> self.shift & u64::MAX >> (64 - self.bits))
        }
    }

    /// How many bits `mask` has of the field, if they are its leading ones and at least one.
    pub(crate) fn prefix_len(&self, mask: &[u64]) -> Option<u8> {
        let bits = self.get(mask);
        let len = bits.count_ones();
        (len > 0 && bits == self.leading(len as u8)).then_some(len as u8)
    }

    /// Adds the field's `len` leading bits to `mask`.
    #[inline]
    pub(crate) fn widen(&self, mask: &mut [u64], len: u8) {
        let word = usize::from(self.word);
        let bits = self.leading(len);
        if self.bits == 128 {
            mask[word - 1] |= (bits >> 64) as u64;
            mask[word] |= bits as u64;
        } else {
            mask[word] |= (bits as u64) << self.shift;
        }
    }

    /// How many of the field's `len` leading bits are not in `mask`.
    #[inline]
    pub(crate) fn lacks(&self, mask: &[u64], len: u8) -> u32 {
        let lacks = self.leading(len) & !self.get(mask);
        lacks.count_ones()
    }

    /// Whether the field's `len` leading bits are all in `mask`.
    #[inline]
    pub(crate) fn is_in(&self, mask: &[u64], len: u8) -> bool {
        if len == 0 {
            return true;
        }
        if self.bits <= 64 {
            let bits = u64::MAX << (64 - len) >> (64 - self.bits) << self.shift;
            return bits & !mask[usize::from(self.word)] == 0;
        }
        self.leading(len) & !self.get(mask) == 0
    }

    /// Takes all but the field's `len` leading bits out of `mask`.
    pub(crate) fn narrow(&self, mask: &mut [u64], len: u8) {
        let word = usize::from(self.word);
        let bits = self.leading(self.bits) & !self.leading(len);
        if self.bits == 128 {
            mask[word - 1] &= !((bits >> 64) as u64);
            mask[word] &= !(bits as u64);
        } else {
            mask[word] &= !((bits as u64) << self.shift);
        }
    }

    /// How many of the field's leading bits reach down to the highest set bit of `difference`;
    /// `None` if it has no bit of the field.
    pub(crate) fn reach(&self, difference: &[u64]) -> Option<u8> {
        let bits = self.get(difference);
        (bits != 0).then(|| self.bits - (bits.ilog2() as u8))
    }

    pub(crate) fn first_word(&self) -> usize {
        usize::from(self.word) - usize::from(self.bits > 64)
    }

    fn leading(&self, len: u8) -> u128 {
        if len == 0 {
            0
        } else {
            u128::MAX << (128 - u32::from(len)) >> (128 - u32::from(self.bits))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PrefixField = PrefixField {
        word: 1,
        shift: 16,
        bits: 16,
    };
    const V6: PrefixField = PrefixField {
        word: 3,
        shift: 0,
        bits: 128,
    };

    #[test]
    fn layouts_that_cannot_be_are_refused() {
        assert_eq!(Layout::new(0, &[0], &[]).unwrap_err(), LayoutError::Words(0));
        assert_eq!(Layout::new(128, &[128], &[]).unwrap_err(), LayoutError::Words(128));
        assert_eq!(Layout::new(4, &[0, 4], &[]).unwrap_err(), LayoutError::Stages(4));
        assert_eq!(Layout::new(4, &[2, 2, 4], &[]).unwrap_err(), LayoutError::Stages(4));
        assert_eq!(Layout::new(4, &[3], &[]).unwrap_err(), LayoutError::Stages(4));
        assert_eq!(Layout::new(4, &[], &[]).unwrap_err(), LayoutError::Stages(4));
        assert_eq!(Layout::new(4, &[3, 4], &[V6]).unwrap_err(), LayoutError::Field(0));
        let outside = PrefixField { word: 4, ..PORT };
        assert_eq!(
            Layout::new(4, &[4], &[PORT, outside]).unwrap_err(),
            LayoutError::Field(1)
        );
        for (shift, bits) in [(60, 5), (0, 0), (0, 65), (1, 128)] {
            let wrong = PrefixField { word: 1, shift, bits };
            assert_eq!(Layout::new(4, &[4], &[wrong]).unwrap_err(), LayoutError::Field(0));
        }
        assert_eq!(Layout::new(4, &[4], &[PORT; 17]).unwrap_err(), LayoutError::Fields);
        assert!(Layout::new(4, &[2, 4], &[PORT, V6]).is_ok());
    }

    #[test]
    fn only_leading_bits_are_a_prefix() {
        let port = |bits: u64| PORT.prefix_len(&[0, bits << 16]);
        assert_eq!(port(0xffff), Some(16));
        assert_eq!(port(0xe000), Some(3));
        assert_eq!(port(0), None);
        assert_eq!(port(0x7000), None);
        assert_eq!(port(0xa000), None);
        assert_eq!(V6.prefix_len(&[0, 0, u64::MAX, 1 << 63]), Some(65));
        assert_eq!(V6.prefix_len(&[0, 0, 0, 1 << 63]), None);
    }

    #[test]
    fn widening_narrowing_and_reach_agree() {
        let mut mask = [0; 4];
        PORT.widen(&mut mask, 5);
        assert_eq!(mask, [0, 0xf800 << 16, 0, 0]);
        V6.widen(&mut mask, 70);
        assert_eq!(mask[2..], [u64::MAX, 0x3f << 58]);
        V6.narrow(&mut mask, 64);
        assert_eq!(mask, [0, 0xf800 << 16, u64::MAX, 0]);
        PORT.narrow(&mut mask, 0);
        assert_eq!(mask, [0, 0, u64::MAX, 0]);
        assert_eq!(PORT.reach(&[0, 0x0800 << 16]), Some(5));
        assert_eq!(PORT.reach(&[0, 1]), None);
        assert_eq!(V6.reach(&[0, 0, 0, 1]), Some(128));
    }
}
