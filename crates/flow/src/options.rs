//! Where metadata keeps tunnel options, whatever fields they are mapped to: in units of four bytes,
//! and one bit for each option that is present. Their words are the last ones.

use crate::{Home, MatchField};

/// Units that there is room for.
pub const OPTION_UNITS: usize = 64;

/// Options that have a bit for their presence.
pub const OPTIONS: usize = 64;

/// The word whose bits say which options are there: the one behind those of fields.
const PRESENT: usize = {
    let (mut first, mut n) = (0, 0);
    while n < MatchField::ALL.len() {
        if let Home::Meta { word, .. } = MatchField::ALL[n].info().home {
            let end = word as usize + 1;
            first = if end > first { end } else { first };
        }
        n += 1;
    }
    first
};

/// The first word that has units.
pub(crate) const FIRST: usize = PRESENT + 1;

/// A unit's word and its lowest bit. Of two units in a word the first is the high one.
pub const fn option_unit(unit: usize) -> (usize, u32) {
    (FIRST + unit / 2, 32 - 32 * (unit as u32 % 2))
}

/// The word and the bit that say whether an option is present.
pub const fn option_present(option: usize) -> (usize, u32) {
    (PRESENT, option as u32)
}

/// The words and the bits of them that are of options.
pub fn option_bits() -> impl Iterator<Item = (usize, u64)> {
    let units = (FIRST..FIRST + OPTION_UNITS / 2).map(|word| (word, u64::MAX));
    units.chain([(PRESENT, u64::MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::META_WORDS;

    #[test]
    fn options_share_no_bits_with_fields_and_with_each_other() {
        let mut used = [0u64; META_WORDS];
        for field in MatchField::ALL.iter().filter(|field| field.info().canonical) {
            if let Home::Meta { word, shift } = field.info().home {
                used[usize::from(word)] |= (field.info().valid as u64) << shift;
                if field.info().valid > u64::MAX.into() {
                    used[usize::from(word) - 1] |= (field.info().valid >> 64) as u64;
                }
            }
        }
        let units = (0..OPTION_UNITS).map(|unit| (option_unit(unit), 0xffff_ffff));
        let bits = (0..OPTIONS).map(|option| (option_present(option), 1));
        for ((word, shift), bits) in units.chain(bits) {
            assert_eq!(used[word] & bits << shift, 0, "{word} {shift}");
            used[word] |= bits << shift;
        }
    }
}
