//! States as the words that a classifier looks at: metadata, then the key.

use classifier::{Layout, Match, PrefixField};
use flow::{ETHERNET_WORDS, EXTRA_WORDS, Field, FlowState, Home, KEY_WORDS, Key, META_WORDS, Mask, MatchField};
use openflow::model;

/// Words of a state.
pub(crate) const WORDS: usize = META_WORDS + KEY_WORDS;

/// A state, or bits of one, in words.
pub(crate) type StateWords = [u64; WORDS];

/// Where stages end: metadata with tunnels and connections, Ethernet and VLAN, IP, the rest.
const STAGES: [usize; 4] = [
    META_WORDS + EXTRA_WORDS,
    META_WORDS + ETHERNET_WORDS,
    META_WORDS + Field::TpSrc.word(),
    WORDS,
];

/// Fields that rules match by prefix.
const PREFIXES: [Field; 6] = [
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::TpSrc,
    Field::TpDst,
];

/// The layout of states for the classifiers of all tables.
pub(crate) fn layout() -> Layout {
    let fields = PREFIXES.map(|field| {
        let info = field.info();
        PrefixField {
            word: META_WORDS as u8 + info.word,
            shift: info.shift,
            bits: info.bits,
        }
    });
    match Layout::new(WORDS, &STAGES, &fields).or_else(|_| Layout::plain(WORDS)) {
        Ok(layout) => layout,
        Err(_) => unreachable!("{WORDS} words are a layout"),
    }
}

/// A state's words.
pub(crate) fn words_of(state: &FlowState) -> StateWords {
    join(state.meta(), state.key.words())
}

/// The words of a match whose conditions are all on fields that are in states.
pub(crate) fn match_words(matching: &model::Match) -> Match<WORDS> {
    let mut words = Match::ANY;
    for condition in matching.entries() {
        let (word, shift, wide) = match condition.field.info().home {
            Home::Key { field, shift } => {
                let info = field.info();
                (META_WORDS + usize::from(info.word), info.shift + shift, info.bits > 64)
            }
            Home::Meta { word, shift } => (usize::from(word), shift, condition.field.info().valid > u64::MAX.into()),
            Home::Elsewhere => continue,
        };
        // If a field is wider than a word, the word before has its highest bits.
        let (value, mask) = (condition.value << shift, condition.mask << shift);
        words.require(word, value as u64, mask as u64);
        if wide {
            words.require(word - 1, (value >> 64) as u64, (mask >> 64) as u64);
        }
    }
    words
}

/// By field, in the order of [`MatchField::ALL`]: the words that hold it, one bit each; 0 for
/// fields that are not canonical.
static WORDS_OF: [u128; MatchField::ALL.len()] = {
    assert!(WORDS <= 128);
    let mut all = [0; MatchField::ALL.len()];
    let mut at = 0;
    while at < all.len() {
        let info = MatchField::ALL[at].info();
        let (word, wide) = match info.home {
            Home::Key { field, .. } => (META_WORDS + field.info().word as usize, field.info().bits > 64),
            Home::Meta { word, .. } => (word as usize, info.valid > u64::MAX as u128),
            Home::Elsewhere => (0, false),
        };
        if info.canonical && !matches!(info.home, Home::Elsewhere) {
            all[at] = if wide { 3 << (word - 1) } else { 1 << word };
        }
        at += 1;
    }
    all
};

/// A rule's match, from its words.
pub(crate) fn match_of(matching: &Match<WORDS>) -> model::Match {
    let used = matching.mask().iter().enumerate();
    let used = used.fold(0, |used, (n, word)| used | u128::from(*word != 0) << n);
    let fields = MatchField::ALL.iter().zip(&WORDS_OF);
    let fields = fields.filter(|(_, words)| used & **words != 0).map(|(field, _)| {
        let mask = get(matching.mask(), *field);
        (*field, get(matching.value(), *field) & mask, mask)
    });
    model::Match::from_fields(fields)
}

/// The bits of a packet's key in a mask of words.
pub(crate) fn mask_of(words: &StateWords) -> Mask {
    Mask::from_words(key_words(words))
}

/// Whether the words have bits of the key that a mask does not have.
pub(crate) fn has_bits_beyond(words: &StateWords, mask: &Mask) -> bool {
    let pairs = key_words(words).iter().zip(mask.words());
    pairs.fold(0, |beyond, (word, bits)| beyond | word & !bits) != 0
}

/// The key in the words of a state.
pub(crate) fn key_of(words: &StateWords) -> Key {
    Key::from_words(key_words(words))
}

/// The words of the key.
fn key_words(words: &StateWords) -> &[u64; KEY_WORDS] {
    match words.last_chunk() {
        Some(key) => key,
        None => unreachable!("a state's words end with its key's"),
    }
}

/// Whether the words have bits of metadata.
pub(crate) fn has_metadata(words: &StateWords) -> bool {
    words[..META_WORDS].iter().any(|word| *word != 0)
}

/// The words of metadata.
pub(crate) fn metadata(words: &mut StateWords) -> &mut [u64] {
    &mut words[..META_WORDS]
}

/// Adds bits of a field of the key to the words of a mask.
#[inline]
pub(crate) fn consult(words: &mut StateWords, field: Field, bits: u128) {
    let info = field.info();
    let bits = bits & field.max_value();
    let word = META_WORDS + usize::from(info.word);
    if info.bits > 64 {
        words[word - 1] |= (bits >> 64) as u64;
        words[word] |= bits as u64;
    } else {
        words[word] |= (bits as u64) << info.shift;
    }
}

/// Takes a field of the key out of the words of a mask.
pub(crate) fn forget(words: &mut StateWords, field: Field) {
    let info = field.info();
    let word = META_WORDS + usize::from(info.word);
    if info.bits > 64 {
        words[word - 1] = 0;
        words[word] = 0;
    } else {
        words[word] &= !((field.max_value() as u64) << info.shift);
    }
}

/// The fields that OpenFlow 1.0 calls ports; for ICMP they are type and code.
const PORTS: [Field; 4] = [Field::TpSrc, Field::TpDst, Field::IcmpType, Field::IcmpCode];

/// Sets the ports to zero.
pub(crate) fn clear_ports(words: &mut StateWords) {
    PORTS.into_iter().for_each(|field| forget(words, field));
}

/// Whether the words have bits of ports.
pub(crate) fn has_ports(words: &StateWords) -> bool {
    PORTS.into_iter().any(|field| of_key(words, field) != 0)
}

/// Sets a field of metadata of at most 64 bits.
pub(crate) fn put(words: &mut StateWords, field: MatchField, value: u64) {
    let info = field.info();
    if let Home::Meta { word, shift } = info.home {
        let word = &mut words[usize::from(word)];
        *word = *word & !((info.valid as u64) << shift) | value << shift;
    }
}

/// The bits of a canonical field in the words.
pub(crate) fn get(words: &StateWords, field: MatchField) -> u128 {
    let info = field.info();
    let bits = match info.home {
        Home::Key { field, shift } => of_key(words, field) >> shift,
        Home::Meta { word, shift } => part(words, usize::from(word), shift, info.valid > u64::MAX.into()),
        Home::Elsewhere => 0,
    };
    bits & info.valid
}

fn of_key(words: &StateWords, field: Field) -> u128 {
    let info = field.info();
    part(words, META_WORDS + usize::from(info.word), info.shift, info.bits > 64) & field.max_value()
}

fn part(words: &StateWords, word: usize, shift: u8, wide: bool) -> u128 {
    if wide {
        u128::from(words[word - 1]) << 64 | u128::from(words[word])
    } else {
        u128::from(words[word] >> shift)
    }
}

fn join(meta: &[u64; META_WORDS], key: &[u64; KEY_WORDS]) -> StateWords {
    std::array::from_fn(|n| if n < META_WORDS { meta[n] } else { key[n - META_WORDS] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_of_any_field_comes_back_as_the_state_has_it() {
        let (eth, proto) = (MatchField::EthType, MatchField::NwProto);
        for (eth_type, nw_proto) in [
            (0, 0),
            (0x0800, 6),
            (0x0800, 17),
            (0x0800, 1),
            (0x86dd, 58),
            (0x86dd, 132),
            (0x0806, 0),
            (0x8847, 0),
        ] {
            for field in MatchField::ALL.iter().filter(|field| field.info().canonical) {
                for bit in [1, field.info().valid & !(field.info().valid >> 1)] {
                    let mut state = flow::StateMatch::ANY;
                    if eth_type != 0 {
                        state.require(eth, eth_type, 0xffff);
                    }
                    if nw_proto != 0 {
                        state.require(proto, nw_proto, 0xff);
                    }
                    if *field != eth && *field != proto && !matches!(field.info().home, Home::Elsewhere) {
                        state.require(*field, bit, bit);
                    }
                    let mask = join(state.mask().meta(), state.mask().key.words());
                    let words = Match::new(&words_of(state.value()), &mask);
                    assert_eq!(
                        match_of(&words),
                        model::Match::from_state(&state),
                        "{field:?} {eth_type:x}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_match_comes_back_from_its_words() {
        let mut matching = model::Match::ANY;
        matching.set(MatchField::InPortOxm, 3, 0xffff_ffff);
        matching.set(MatchField::Reg3, 0x10, 0xf0);
        matching.set(MatchField::EthType, 0x0800, 0xffff);
        matching.set(MatchField::IpSrc, 0x0a00_0000, 0xff00_0000);
        matching.set(MatchField::NwTos, 0x48, 0xfc);
        matching.set(MatchField::NwProto, 17, 0xff);
        matching.set(MatchField::UdpDst, 53, 0xffff);
        matching.set(MatchField::Xxreg1, 0x1234 << 60, 0xffff << 60);
        matching.set(MatchField::TunIpv6Src, 5 << 70 | 7, u128::MAX);
        let words = match_words(&matching);
        assert_eq!(match_of(&words), matching);
        let state = matching.to_state().unwrap();
        let mask = join(state.mask().meta(), state.mask().key.words());
        assert_eq!(words, Match::new(&words_of(state.value()), &mask));
        assert!(Layout::new(WORDS, &STAGES, &[]).is_ok());
    }
}
