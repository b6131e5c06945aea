//! Prefix tracking: one set of prefixes for each field and length that a subtable matches.
//!
//! The sets are shared by all subtables with that length of that field, so that a lookup queries
//! each at most once and skips most subtables of a table with many masks by earlier results.

use smallvec::SmallVec;

use crate::layout::PrefixField;
use crate::prefix_set::{Prefix, PrefixSet};

/// A set that a subtable uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracked {
    pub(crate) field: PrefixField,
    /// The leading bits of the field that the subtable's mask has.
    pub(crate) len: u8,
    pub(crate) set: u16,
}

#[derive(Debug)]
enum Values {
    Short(PrefixSet<u32>),
    Word(PrefixSet<u64>),
    Long(PrefixSet<u128>),
}

#[derive(Debug)]
struct TrackedSet {
    field: PrefixField,
    len: u8,
    /// Subtables that use it.
    users: u32,
    values: Values,
}

#[derive(Debug)]
pub(crate) struct Prefixes {
    fields: Vec<PrefixField>,
    sets: Vec<Option<TrackedSet>>,
}

/// A lookup's results for its packet's prefixes, by set: 0 not queried, 255 present, else 1 + the
/// leading bits that prove it absent.
pub(crate) struct PrefixResults([u8; PrefixResults::SETS]);

const PRESENT: u8 = u8::MAX;

impl PrefixResults {
    /// Sets with higher numbers are queried each time.
    const SETS: usize = 128;

    #[inline]
    pub(crate) fn new() -> PrefixResults {
        PrefixResults([0; PrefixResults::SETS])
    }

    /// The leading bits that prove that the set lacks the packet's prefix, if a result is stored.
    #[inline]
    pub(crate) fn known_absent(&self, set: u16) -> Option<u8> {
        match self.0.get(usize::from(set)) {
            None | Some(0 | &PRESENT) => None,
            Some(found) => Some(found - 1),
        }
    }
}

impl Prefixes {
    pub(crate) fn new(fields: &[PrefixField]) -> Prefixes {
        Prefixes {
            fields: fields.to_vec(),
            sets: Vec::new(),
        }
    }

    /// The sets for a subtable that matches `mask`; release them by [`Prefixes::release`].
    pub(crate) fn acquire(&mut self, mask: &[u64]) -> SmallVec<[Tracked; 4]> {
        let wanted: SmallVec<[(PrefixField, u8); 4]> = self
            .fields
            .iter()
            .filter_map(|field| Some((*field, field.prefix_len(mask)?)))
            .collect();
        wanted
            .into_iter()
            .map(|(field, len)| Tracked {
                field,
                len,
                set: self.acquire_set(field, len),
            })
            .collect()
    }

    pub(crate) fn release(&mut self, tracked: &[Tracked]) {
        for tracked in tracked {
            let place = &mut self.sets[usize::from(tracked.set)];
            if let Some(set) = place {
                set.users -= 1;
                if set.users == 0 {
                    *place = None;
                }
            }
        }
    }

    pub(crate) fn add(&mut self, tracked: &[Tracked], words: &[u64]) {
        for tracked in tracked {
            if let Some(set) = &mut self.sets[usize::from(tracked.set)] {
                let value = set.prefix_of(words);
                match &mut set.values {
                    Values::Short(values) => values.add(Prefix::truncated_from(value)),
                    Values::Word(values) => values.add(Prefix::truncated_from(value)),
                    Values::Long(values) => values.add(value),
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, tracked: &[Tracked], words: &[u64]) {
        for tracked in tracked {
            if let Some(set) = &mut self.sets[usize::from(tracked.set)] {
                let value = set.prefix_of(words);
                match &mut set.values {
                    Values::Short(values) => values.remove(Prefix::truncated_from(value)),
                    Values::Word(values) => values.remove(Prefix::truncated_from(value)),
                    Values::Long(values) => values.remove(value),
                }
            }
        }
    }

    /// The leading bits of the field that prove that the set lacks the packet's prefix; `None` if
    /// it has the prefix.
    pub(crate) fn absent(&self, tracked: Tracked, words: &[u64], results: &mut PrefixResults) -> Option<u8> {
        let number = usize::from(tracked.set);
        match results.0.get(number) {
            Some(&PRESENT) => return None,
            None | Some(0) => {}
            Some(found) => return Some(found - 1),
        }
        let set = self.sets[number].as_ref()?;
        let value = set.prefix_of(words);
        let absent = match &set.values {
            Values::Short(values) => values.absent(Prefix::truncated_from(value)),
            Values::Word(values) => values.absent(Prefix::truncated_from(value)),
            Values::Long(values) => values.absent(value),
        };
        let absent = absent.map(|bits| bits as u8);
        if let Some(found) = results.0.get_mut(number) {
            *found = absent.map_or(PRESENT, |bits| bits + 1);
        }
        absent
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let values: usize = self
            .sets
            .iter()
            .flatten()
            .map(|set| match &set.values {
                Values::Short(values) => values.memory_bytes(),
                Values::Word(values) => values.memory_bytes(),
                Values::Long(values) => values.memory_bytes(),
            })
            .sum();
        values + self.sets.capacity() * size_of::<Option<TrackedSet>>()
    }

    fn acquire_set(&mut self, field: PrefixField, len: u8) -> u16 {
        let same = |set: &Option<TrackedSet>| set.as_ref().is_some_and(|set| set.field == field && set.len == len);
        if let Some(number) = self.sets.iter().position(same) {
            if let Some(set) = &mut self.sets[number] {
                set.users += 1;
            }
            return number as u16;
        }
        let bits = u32::from(len);
        let set = TrackedSet {
            field,
            len,
            users: 1,
            values: match bits {
                0..=32 => Values::Short(PrefixSet::new(bits)),
                33..=64 => Values::Word(PrefixSet::new(bits)),
                _ => Values::Long(PrefixSet::new(bits)),
            },
        };
        let number = self.sets.iter().position(Option::is_none).unwrap_or(self.sets.len());
        if number == self.sets.len() {
            self.sets.push(Some(set));
        } else {
            self.sets[number] = Some(set);
        }
        number as u16
    }
}

impl TrackedSet {
    #[inline]
    fn prefix_of(&self, words: &[u64]) -> u128 {
        self.field.get(words) >> (self.field.bits - self.len)
    }
}
