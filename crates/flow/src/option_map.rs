//! Tunnel options between packets and metadata.
//!
//! An [`OptionMap`] has the place of each option that a controller has mapped to a field.
//! [`OptionMap::receive`] reads the options of a packet, [`OptionMap::send`] gives those to write.
//! Neither allocates.

use crate::FlowState;
use crate::options::{OPTION_UNITS, OPTIONS, option_present, option_unit};

/// Bytes of a unit.
const UNIT: usize = 4;
/// The bit of an option's type that tells receivers to drop packets if they do not know the option
/// (RFC 8926 §3.5).
const CRITICAL: u8 = 0x80;

/// The mapped options of a packet: which are present, and their bytes.
///
/// Units of absent options are zero, so that values can be compared and hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OptionWords {
    present: u64,
    units: [u32; OPTION_UNITS],
}

impl OptionWords {
    /// No options.
    pub const NONE: OptionWords = OptionWords {
        present: 0,
        units: [0; OPTION_UNITS],
    };

    /// Whether no option is present.
    pub const fn is_empty(&self) -> bool {
        self.present == 0
    }
}

impl FlowState {
    /// The tunnel options of a state.
    pub fn tunnel_options(&self) -> OptionWords {
        let mut words = OptionWords::NONE;
        for option in 0..OPTIONS {
            let (word, bit) = option_present(option);
            words.present |= (self.meta()[word] >> bit & 1) << option;
        }
        for (unit, value) in words.units.iter_mut().enumerate() {
            let (word, shift) = option_unit(unit);
            *value = (self.meta()[word] >> shift) as u32;
        }
        words
    }

    /// Replaces the tunnel options of a state.
    pub fn set_tunnel_options(&mut self, options: &OptionWords) {
        let meta = self.meta_mut();
        for option in 0..OPTIONS {
            let (word, bit) = option_present(option);
            meta[word] = meta[word] & !(1 << bit) | (options.present >> option & 1) << bit;
        }
        for (unit, value) in options.units.iter().enumerate() {
            let (word, shift) = option_unit(unit);
            meta[word] = meta[word] & !(0xffff_ffff << shift) | u64::from(*value) << shift;
        }
    }
}

/// An option that is mapped to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedOption {
    /// The option's class.
    pub class: u16,
    /// The option's type, with the bit that says whether it is critical.
    pub kind: u8,
    /// The bit of its presence, less than [`OPTIONS`].
    pub present: usize,
    /// The units of its data, each less than [`OPTION_UNITS`]. The first has the first bytes.
    pub units: Vec<usize>,
}

/// Why the options of a packet cannot be read: the packet has to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BadOption {
    /// A critical option that is mapped to no field (RFC 8926 §3.5).
    Critical,
    /// An option that is longer or shorter than its field.
    Length,
}

/// The options that are mapped to fields. No two have the same class and type, bit, or unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionMap {
    options: Vec<MappedOption>,
}

impl OptionMap {
    /// These options, in the order in which packets get them. An option whose place is out of range
    /// or that of one before it is left out.
    pub fn new(options: impl IntoIterator<Item = MappedOption>) -> OptionMap {
        let mut map = OptionMap::default();
        let mut free = OptionWords {
            present: u64::MAX,
            units: [1; OPTION_UNITS],
        };
        for option in options {
            let same = |other: &MappedOption| (other.class, other.kind) == (option.class, option.kind);
            let has_bit = option.present < OPTIONS && free.present >> option.present & 1 != 0;
            let has_units = option.units.iter().all(|unit| free.units.get(*unit) == Some(&1));
            if has_bit && has_units && !map.options.iter().any(same) {
                free.present &= !(1 << option.present);
                option.units.iter().for_each(|unit| free.units[*unit] = 0);
                map.options.push(option);
            }
        }
        map
    }

    /// Whether no option is mapped.
    pub fn is_empty(&self) -> bool {
        self.options.is_empty()
    }

    /// Reads the options of a packet: their classes, types and data. Options that are mapped to no
    /// field are left out; of several with the same class and type, the last one counts.
    ///
    /// # Errors
    /// [`BadOption`].
    pub fn receive<'a>(&self, options: impl Iterator<Item = (u16, u8, &'a [u8])>) -> Result<OptionWords, BadOption> {
        let mut words = OptionWords::NONE;
        for (class, kind, data) in options {
            let of_kind = |own: &&MappedOption| (own.class, own.kind) == (class, kind);
            match self.options.iter().find(of_kind) {
                Some(own) if data.len() == own.units.len() * UNIT => own.read(data, &mut words),
                Some(_) => return Err(BadOption::Length),
                None if kind & CRITICAL != 0 => return Err(BadOption::Critical),
                None => {}
            }
        }
        Ok(words)
    }

    /// Gives each present option to `push` in the order of the map: its class, type and data.
    ///
    /// # Errors
    /// That of `push`, which is not called again.
    pub fn send<E>(&self, words: &OptionWords, mut push: impl FnMut(u16, u8, &[u8]) -> Result<(), E>) -> Result<(), E> {
        for option in &self.options {
            if words.present >> option.present & 1 != 0 {
                let mut data = [0; OPTION_UNITS * UNIT];
                for (bytes, unit) in data.chunks_exact_mut(UNIT).zip(&option.units) {
                    bytes.copy_from_slice(&words.units[*unit].to_be_bytes());
                }
                push(option.class, option.kind, &data[..option.units.len() * UNIT])?;
            }
        }
        Ok(())
    }
}

impl MappedOption {
    fn read(&self, data: &[u8], words: &mut OptionWords) {
        words.present |= 1 << self.present;
        for (bytes, unit) in data.chunks_exact(UNIT).zip(&self.units) {
            words.units[*unit] = bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Sent = Vec<(u16, u8, Vec<u8>)>;

    fn sent(map: &OptionMap, words: &OptionWords) -> Sent {
        let mut all = Vec::new();
        let push = |class, kind, data: &[u8]| {
            all.push((class, kind, data.to_vec()));
            Ok::<(), ()>(())
        };
        map.send(words, push).unwrap();
        all
    }

    fn received(map: &OptionMap, options: &[(u16, u8, Vec<u8>)]) -> Result<OptionWords, BadOption> {
        map.receive(options.iter().map(|(class, kind, data)| (*class, *kind, &data[..])))
    }

    /// A map with options of these lengths in units, whose units are in a random order.
    fn map() -> impl Strategy<Value = OptionMap> {
        let lengths = proptest::collection::vec((0usize..4, 0u16..3, any::<u8>(), 0..OPTIONS), 0..6);
        let units: Vec<usize> = (0..OPTION_UNITS).collect();
        (lengths, Just(units).prop_shuffle()).prop_map(|(lengths, units)| {
            let mut free = units.into_iter();
            let option = |(len, class, kind, present)| MappedOption {
                class,
                kind,
                present,
                units: free.by_ref().take(len).collect(),
            };
            OptionMap::new(lengths.into_iter().map(option).collect::<Vec<_>>())
        })
    }

    proptest! {
        #[test]
        fn what_is_sent_is_received(map in map(), which: u64, bytes in proptest::collection::vec(any::<u8>(), 32)) {
            let chosen: Sent = map.options.iter().filter(|option| which >> option.present & 1 != 0)
                .map(|option| (option.class, option.kind, bytes[..option.units.len() * UNIT].to_vec()))
                .collect();
            let words = received(&map, &chosen).unwrap();
            prop_assert_eq!(words.is_empty(), chosen.is_empty());
            prop_assert_eq!(sent(&map, &words), chosen.clone());
            let reversed: Sent = chosen.into_iter().rev().collect();
            prop_assert_eq!(received(&map, &reversed), Ok(words));
        }

        #[test]
        fn a_state_keeps_options_apart_from_its_other_metadata(
            map in map(), bytes in proptest::collection::vec(any::<u8>(), 32), fill: u64,
        ) {
            let all: Sent = map.options.iter()
                .map(|option| (option.class, option.kind, bytes[..option.units.len() * UNIT].to_vec()))
                .collect();
            let words = received(&map, &all).unwrap();
            let mut state = FlowState::ZERO;
            state.meta_mut().fill(fill);
            let others = |state: &FlowState| {
                let mut meta = *state.meta();
                crate::option_bits().for_each(|(word, bits)| meta[word] &= !bits);
                meta
            };
            let before = others(&state);
            state.set_tunnel_options(&words);
            prop_assert_eq!(state.tunnel_options(), words);
            prop_assert_eq!(others(&state), before);
            state.set_tunnel_options(&OptionWords::NONE);
            prop_assert!(state.tunnel_options().is_empty());
        }

        #[test]
        fn unknown_options_are_left_out_unless_they_are_critical(map in map(), class in 3u16.., kind: u8) {
            let unknown = [(class, kind, vec![0; 4])];
            let expected = if kind & 0x80 == 0 { Ok(OptionWords::NONE) } else { Err(BadOption::Critical) };
            prop_assert_eq!(received(&map, &unknown), expected);
        }

        #[test]
        fn an_option_has_the_length_of_its_field(map in map(), len in 0usize..40) {
            for option in &map.options {
                let fits = len == option.units.len() * UNIT;
                let result = received(&map, &[(option.class, option.kind, vec![7; len])]);
                prop_assert_eq!(result.is_ok(), fits);
                prop_assert!(fits || result == Err(BadOption::Length));
            }
        }
    }

    #[test]
    fn the_last_one_of_equal_options_counts() {
        let map = OptionMap::new([MappedOption {
            class: 1,
            kind: 2,
            present: 3,
            units: vec![5],
        }]);
        let options = [(1, 2, vec![1; 4]), (1, 2, vec![2; 4])];
        let words = received(&map, &options).unwrap();
        assert_eq!(sent(&map, &words), [(1, 2, vec![2; 4])]);
    }

    #[test]
    fn an_option_without_a_place_of_its_own_is_left_out() {
        let option = |kind, present, units: &[usize]| MappedOption {
            class: 1,
            kind,
            present,
            units: units.to_vec(),
        };
        let map = OptionMap::new([
            option(1, 0, &[0, 1]),
            option(1, 1, &[2]),
            option(2, 0, &[2]),
            option(3, 1, &[1]),
            option(4, OPTIONS, &[2]),
            option(5, 1, &[OPTION_UNITS]),
            option(6, 1, &[2]),
        ]);
        let kinds: Vec<u8> = map.options.iter().map(|option| option.kind).collect();
        assert_eq!(kinds, [1, 6]);
        assert!(!map.is_empty() && OptionMap::default().is_empty());
    }
}
