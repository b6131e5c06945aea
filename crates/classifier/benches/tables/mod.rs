//! Keys and rules as a switch has them, for benchmarks.

use classifier::{Classifier, Layout, Match, PrefixField};

/// Words of a key: metadata 0, L2 1 to 3, L3 4 to 9, L4 10, the rest unused here.
pub(crate) const WORDS: usize = 18;
pub(crate) type Words = [u64; WORDS];
pub(crate) type Table = Classifier<u64, WORDS>;

const ADDRESSES: usize = 5;
const PORTS: usize = 10;
const ETH_TYPE: u64 = 0xffff << 48;

pub(crate) fn layout() -> Layout {
    let fields = [
        (5, 0, 32),
        (5, 32, 32),
        (7, 0, 128),
        (9, 0, 128),
        (10, 0, 16),
        (10, 16, 16),
    ];
    let fields = fields.map(|(word, shift, bits)| PrefixField { word, shift, bits });
    match Layout::new(WORDS, &[1, 4, 10, WORDS], &fields) {
        Ok(layout) => layout,
        Err(error) => unreachable!("the layout is legal: {error}"),
    }
}

/// SplitMix64.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }
}

/// A key of an IPv4 packet with these addresses.
pub(crate) fn key(addresses: u64, ports: u64) -> Words {
    let mut key = [0; WORDS];
    key[0] = 1;
    key[1] = 0x0800 << 48 | 0x0200_0000_0001;
    key[2] = 0x0200_0000_0002;
    key[4] = 6;
    key[ADDRESSES] = addresses;
    key[PORTS] = ports & 0xffff_ffff;
    key
}

/// Source and destination address exactly.
pub(crate) fn two_addresses(addresses: u64) -> Match<WORDS> {
    let mut mask = [0; WORDS];
    mask[1] = ETH_TYPE;
    mask[ADDRESSES] = u64::MAX;
    Match::new(&key(addresses, 0), &mask)
}

/// Prefixes of source and destination.
pub(crate) fn two_prefixes(addresses: u64, src: u32, dst: u32) -> Match<WORDS> {
    let prefix = |len: u32| u64::from(u32::MAX.checked_shl(32 - len).unwrap_or(0));
    let mut mask = [0; WORDS];
    mask[1] = ETH_TYPE;
    mask[ADDRESSES] = prefix(src) | prefix(dst) << 32;
    Match::new(&key(addresses, 0), &mask)
}

/// Port, addresses, protocol and ports exactly.
pub(crate) fn exact(addresses: u64, ports: u64) -> Match<WORDS> {
    let mut mask = [0; WORDS];
    mask[..3].fill(u64::MAX);
    mask[4] = 0xff;
    mask[ADDRESSES] = u64::MAX;
    mask[PORTS] = 0xffff_ffff;
    Match::new(&key(addresses, ports), &mask)
}

/// The nth pair of addresses, ascending as generated configurations are, or scattered.
pub(crate) fn nth_addresses(n: u64, scattered: bool) -> u64 {
    if scattered {
        Random(n).number()
    } else {
        (0x0a00_0000 + n) | (0x0b00_0000 + n) << 32
    }
}

/// `rules` of two exact addresses.
pub(crate) fn addresses_table(rules: u64, scattered: bool) -> Table {
    let mut table = Table::new(layout(), 1);
    for n in 0..rules {
        let inserted = table.insert(&two_addresses(nth_addresses(n, scattered)), 100, n);
        assert!(inserted.is_ok() || scattered);
    }
    table
}

/// `rules` of prefixes of two addresses with `masks` distinct pairs of lengths, longer ones with
/// higher priority; and keys, each of which matches one of the rules and has random bits elsewhere.
pub(crate) fn prefixes_table(layout: Layout, rules: usize, masks: usize) -> (Table, Vec<Words>) {
    let mut table = Table::new(layout, 1);
    let mut random = Random(3);
    // Pairs of lengths from 32, 32 downwards, 31, 32 before 31, 31.
    let mut pairs: Vec<(u32, u32)> = (1..=32).flat_map(|src| (1..=32).map(move |dst| (src, dst))).collect();
    pairs.sort_by_key(|(src, dst)| std::cmp::Reverse(src + dst));
    let mut keys = Vec::new();
    for n in 0..rules {
        let (src, dst) = pairs[n % masks];
        let matching = two_prefixes(random.number(), src, dst);
        let inserted = table.insert(&matching, 100 + src + dst, n as u64);
        if inserted.is_ok() && keys.len() < 4096 {
            let noise = key(random.number(), random.number());
            let fill = |word: usize| matching.value()[word] | noise[word] & !matching.mask()[word];
            keys.push(std::array::from_fn(fill));
        }
    }
    (table, keys)
}

/// `rules` like those of access lists, with up to `masks` distinct random masks: prefixes of two
/// addresses, mostly 0, 8, 16, 24 to 32 long, and of two ports; the protocol or not. Priorities are
/// random. And keys, each of which matches one of the rules.
pub(crate) fn acl_table(layout: Layout, rules: usize, masks: usize) -> (Table, Vec<Words>) {
    let mut table = Table::new(layout, 1);
    let mut random = Random(11);
    let prefix = |len: u32, bits: u32| ((1u64 << bits) - 1) & !((1u64 << (bits - len)) - 1);
    let masks: Vec<Words> = (0..masks)
        .map(|_| {
            let mut address = || match random.below(8) {
                0 => 0,
                1 => 8,
                2 => 16,
                3 => random.below(33) as u32,
                _ => 24 + random.below(9) as u32,
            };
            let (src, dst) = (address(), address());
            let mut port = || match random.below(8) {
                0..5 => 0,
                5..7 => 16,
                _ => random.below(17) as u32,
            };
            let (sport, dport) = (port(), port());
            let mut mask = [0; WORDS];
            mask[1] = ETH_TYPE;
            mask[4] = if sport + dport > 0 { 0xff } else { 0 };
            mask[ADDRESSES] = prefix(src, 32) | prefix(dst, 32) << 32;
            mask[PORTS] = prefix(sport, 16) | prefix(dport, 16) << 16;
            mask
        })
        .collect();
    let mut keys = Vec::new();
    for n in 0..rules {
        // Networks are few: addresses agree in leading bits.
        let network = Random(random.below(500) as u64).number() & 0xffff_0000_ffff_0000;
        let value = key(network | random.number() & 0x0000_ffff_0000_ffff, random.number());
        let matching = Match::new(&value, &masks[n % masks.len()]);
        let inserted = table.insert(&matching, random.below(1000) as u32, n as u64);
        if inserted.is_ok() && keys.len() < 4096 {
            keys.push(value);
        }
    }
    (table, keys)
}
