//! Keys of six words like those of a switch, random matches that overlap each other, and a
//! reference table that is a list.

#![allow(dead_code, reason = "each test uses its part")]

use classifier::{Layout, Match, PrefixField, RuleId};
use proptest::prelude::*;

/// Metadata, L2, IPv4 source and destination, two words of an IPv6 address, ports and flags.
pub(crate) const WORDS: usize = 6;
pub(crate) type Words = [u64; WORDS];

const FIELDS: [PrefixField; 5] = [
    field(2, 0, 32),
    field(2, 32, 32),
    field(4, 0, 128),
    field(5, 0, 16),
    field(5, 16, 16),
];

const fn field(word: u8, shift: u8, bits: u8) -> PrefixField {
    PrefixField { word, shift, bits }
}

pub(crate) fn layout(staged: bool, tracked: bool, merge_from: usize) -> Layout {
    let stages: &[usize] = if staged { &[1, 2, 5, 6] } else { &[6] };
    let fields: &[PrefixField] = if tracked { &FIELDS } else { &[] };
    Layout::new(WORDS, stages, fields).unwrap().merge_from(merge_from)
}

pub(crate) fn layouts() -> impl Strategy<Value = Layout> {
    let merge_from = prop_oneof![Just(0), Just(2), Just(16), Just(usize::MAX)];
    (any::<bool>(), prop::bool::weighted(0.8), merge_from)
        .prop_map(|(staged, tracked, merge_from)| layout(staged, tracked, merge_from))
}

/// How a match looks at a field of so many bits.
fn mask_of(bits: u32) -> impl Strategy<Value = u128> {
    let all = u128::MAX >> (128 - bits);
    prop_oneof![
        5 => Just(0),
        3 => Just(all),
        4 => (0..=bits).prop_map(move |len| all & !all.checked_shr(len).unwrap_or(0)),
        1 => any::<u128>().prop_map(move |mask| mask & all),
    ]
}

/// Few values, some alike in their leading bits, some in their trailing ones.
fn value_of(bits: u32) -> impl Strategy<Value = u128> {
    let all = u128::MAX >> (128 - bits);
    prop_oneof![
        3 => (0u128..3).prop_map(move |value| value & all),
        2 => (0u128..3).prop_map(move |value| (value << (bits - 2)) & all),
        2 => (0..bits).prop_map(|bit| 1u128 << bit),
        1 => any::<u128>().prop_map(move |value| value & all),
    ]
}

/// Puts the values of the eight fields into words.
fn words([meta, l2, src, dst, v6, sport, dport, flags]: [u128; 8]) -> Words {
    [
        meta as u64,
        l2 as u64,
        (src | dst << 32) as u64,
        (v6 >> 64) as u64,
        v6 as u64,
        (sport | dport << 16 | flags << 32) as u64,
    ]
}

const WIDTHS: [u32; 8] = [64, 64, 32, 32, 128, 16, 16, 12];

fn all_masks() -> impl Strategy<Value = Words> {
    let masks = (
        mask_of(64),
        mask_of(64),
        mask_of(32),
        mask_of(32),
        mask_of(128),
        mask_of(16),
        mask_of(16),
        mask_of(12),
    );
    let mixed = masks.prop_map(|(a, b, c, d, e, f, g, h)| words([a, b, c, d, e, f, g, h]));
    let addresses = (0u32..=32, 0u32..=32).prop_map(|(src, dst)| {
        let prefix = |len: u32| u128::from(u32::MAX.checked_shl(32 - len).unwrap_or(0));
        words([0, 0, prefix(src), prefix(dst), 0, 0, 0, 0])
    });
    prop_oneof![4 => mixed, 3 => addresses, 1 => Just([u64::MAX; WORDS]), 1 => Just([0; WORDS])]
}

pub(crate) fn keys() -> impl Strategy<Value = Words> {
    WIDTHS.map(value_of).prop_map(words)
}

pub(crate) fn matches() -> impl Strategy<Value = Match<WORDS>> {
    (keys(), all_masks()).prop_map(|(value, mask)| Match::new(&value, &mask))
}

/// The list.
#[derive(Default)]
pub(crate) struct Reference {
    pub(crate) rules: Vec<Listed>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) id: RuleId,
    pub(crate) matching: Match<WORDS>,
    pub(crate) priority: u32,
    pub(crate) rule: u64,
}

impl Reference {
    /// The highest priority of a rule that matches and is accepted.
    pub(crate) fn lookup(&self, key: &Words, accept: impl Fn(&Listed) -> bool) -> Option<u32> {
        let matching = self
            .rules
            .iter()
            .filter(|listed| listed.matching.matches(key) && accept(listed));
        matching.map(|listed| listed.priority).max()
    }

    pub(crate) fn find(&self, matching: &Match<WORDS>, priority: u32) -> Option<RuleId> {
        let same = |listed: &&Listed| listed.matching == *matching && listed.priority == priority;
        self.rules.iter().find(same).map(|listed| listed.id)
    }

    pub(crate) fn ids(&self, wanted: impl Fn(&Listed) -> bool) -> Vec<RuleId> {
        let mut ids: Vec<RuleId> = self
            .rules
            .iter()
            .filter(|listed| wanted(listed))
            .map(|listed| listed.id)
            .collect();
        ids.sort();
        ids
    }
}
