//! Examples of how few bits a lookup consults, and corner cases of the table.

mod common;

use classifier::{Classifier, InsertError, Match};
use common::{WORDS, Words, layout};

type Table = Classifier<&'static str, WORDS>;

const META: usize = 0;
const L2: usize = 1;
const ADDRESSES: usize = 2;
const PORTS: usize = 5;

fn table() -> Table {
    Table::new(layout(true, true, 16), 1)
}

/// A match of the given words under the given masks.
fn on(words: &[(usize, u64, u64)]) -> Match<WORDS> {
    let (mut value, mut mask) = ([0; WORDS], [0; WORDS]);
    for (word, bits, of) in words {
        value[*word] = *bits;
        mask[*word] = *of;
    }
    Match::new(&value, &mask)
}

fn dst(address: u32, len: u32) -> (usize, u64, u64) {
    let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
    (ADDRESSES, u64::from(address) << 32, u64::from(mask) << 32)
}

fn packet(meta: u64, l2: u64, dst: u32, ports: u64) -> Words {
    let mut key = [0; WORDS];
    key[META] = meta;
    key[L2] = l2;
    key[ADDRESSES] = u64::from(dst) << 32;
    key[PORTS] = ports;
    key
}

#[track_caller]
fn expect(table: &Table, key: &Words, rule: Option<&str>, consulted: &[(usize, u64)]) {
    let mut expected = [0; WORDS];
    for (word, bits) in consulted {
        expected[*word] = *bits;
    }
    let mut mask = [0; WORDS];
    let found = table.lookup(key, &mut mask);
    assert_eq!(found.map(|found| *found.rule), rule);
    assert_eq!(mask, expected, "{mask:x?}");
}

#[test]
fn an_empty_table_looks_at_nothing() {
    expect(&table(), &packet(1, 2, 3, 4), None, &[]);
}

#[test]
fn a_rule_for_everything_looks_at_nothing() {
    let mut table = table();
    table.insert(&Match::ANY, 0, "any").unwrap();
    expect(&table, &packet(1, 2, 3, 4), Some("any"), &[]);
}

#[test]
fn a_packet_that_differs_in_the_first_stage_is_not_looked_at_further() {
    let mut table = table();
    table
        .insert(
            &on(&[(META, 1, u64::MAX), (L2, 2, u64::MAX), (PORTS, 80, 0xffff)]),
            5,
            "web",
        )
        .unwrap();
    table
        .insert(
            &on(&[(META, 3, u64::MAX), (L2, 2, u64::MAX), (PORTS, 81, 0xffff)]),
            5,
            "other",
        )
        .unwrap();
    expect(&table, &packet(7, 2, 0, 80), None, &[(META, u64::MAX)]);
    expect(&table, &packet(1, 9, 0, 80), None, &[(META, u64::MAX), (L2, u64::MAX)]);
    let all = [(META, u64::MAX), (L2, u64::MAX), (PORTS, 0xffff)];
    expect(&table, &packet(1, 2, 0, 80), Some("web"), &all);
    // Each part is some rule's, the whole is none's.
    expect(&table, &packet(1, 2, 0, 81), None, &all);
}

#[test]
fn only_as_many_leading_bits_of_an_address_are_looked_at_as_tell_it_from_the_rules() {
    let mut table = table();
    table.insert(&on(&[dst(0x0a01_0203, 32)]), 9, "host").unwrap();
    table.insert(&on(&[dst(0x0a01_0000, 16)]), 5, "network").unwrap();
    table.insert(&Match::ANY, 0, "any").unwrap();
    let bits = |len: u32| [(ADDRESSES, u64::from(u32::MAX << (32 - len)) << 32)];
    expect(&table, &packet(0, 0, 0x0a01_0203, 0), Some("host"), &bits(32));
    // 2 and 3 differ in the last of eight bits: 24 are alike.
    expect(&table, &packet(0, 0, 0x0a01_0303, 0), Some("network"), &bits(24));
    expect(&table, &packet(0, 0, 0x8a01_0203, 0), Some("any"), &bits(1));
    expect(&table, &packet(0, 0, 0x0a02_0000, 0), Some("any"), &bits(15));
}

#[test]
fn only_as_many_leading_bits_of_a_port_are_looked_at_as_tell_it_from_the_rules() {
    let mut table = table();
    table.insert(&on(&[(PORTS, 80 << 16, 0xffff << 16)]), 9, "web").unwrap();
    // 80 is 0000 0000 0101 0000, 1024 is 0000 0100 …
    expect(&table, &packet(0, 0, 0, 1024 << 16), None, &[(PORTS, 0xfc00 << 16)]);
}

#[test]
fn an_address_mask_that_is_no_prefix_is_looked_at_whole() {
    let mut table = table();
    table
        .insert(&on(&[(ADDRESSES, 0x0a00_0001 << 32, 0xff00_00ff << 32)]), 9, "ends")
        .unwrap();
    expect(
        &table,
        &packet(0, 0, 0xffff_ffff, 0),
        None,
        &[(ADDRESSES, 0xff00_00ff << 32)],
    );
}

#[test]
fn bits_looked_at_before_are_used_again() {
    let mut table = table();
    table
        .insert(&on(&[dst(0x8000_0000, 32), (PORTS, 0x8000, 0xffff)]), 9, "both")
        .unwrap();
    let key = packet(0, 0, 0, 0);
    expect(&table, &key, None, &[(ADDRESSES, 1 << 63)]);
    let mut mask = [0; WORDS];
    mask[PORTS] = 0xffff;
    assert!(table.lookup(&key, &mut mask).is_none());
    assert_eq!((mask[ADDRESSES], mask[PORTS]), (0, 0xffff));
}

#[test]
fn rules_that_cannot_win_are_not_looked_at() {
    let mut table = table();
    table.insert(&on(&[dst(0x0a00_0000, 8)]), 9, "network").unwrap();
    table.insert(&on(&[(PORTS, 80, 0xffff)]), 9, "web").unwrap();
    table.insert(&on(&[(L2, 5, u64::MAX)]), 3, "station").unwrap();
    expect(
        &table,
        &packet(0, 5, 0x0a00_0001, 80),
        Some("network"),
        &[(ADDRESSES, 0xff << 56)],
    );
}

#[test]
fn of_one_match_the_highest_priority_wins_and_the_next_when_it_goes() {
    let mut table = table();
    let matching = on(&[(L2, 5, u64::MAX)]);
    let middle = table.insert(&matching, 5, "middle").unwrap();
    let low = table.insert(&matching, 1, "low").unwrap();
    let high = table.insert(&matching, 9, "high").unwrap();
    let win = |table: &Table| {
        table
            .find(&packet(0, 5, 0, 0))
            .map(|found| (*found.rule, found.priority))
    };
    assert_eq!(win(&table), Some(("high", 9)));
    assert_eq!(table.remove(high), Some("high"));
    assert_eq!(win(&table), Some(("middle", 5)));
    assert_eq!(table.remove(low), Some("low"));
    assert_eq!(table.remove(middle), Some("middle"));
    assert_eq!(win(&table), None);
}

#[test]
fn a_rule_of_the_same_match_and_priority_is_refused_and_comes_back() {
    let mut table = table();
    let matching = on(&[(L2, 5, u64::MAX)]);
    let first = table.insert(&matching, 5, "first").unwrap();
    match table.insert(&matching, 5, "second") {
        Err(InsertError::Exists { id, rule }) => assert_eq!((id, rule), (first, "second")),
        other => panic!("{other:?}"),
    }
    *table.get_mut(first).unwrap() = "changed";
    assert_eq!(table.get(first), Some(&"changed"));
}

#[test]
fn the_handle_of_a_removed_rule_is_not_that_of_the_next_in_its_place() {
    let mut table = table();
    let gone = table.insert(&Match::ANY, 1, "gone").unwrap();
    table.remove(gone);
    let next = table.insert(&Match::ANY, 1, "next").unwrap();
    assert_ne!(gone, next);
    assert!(table.get(gone).is_none() && table.remove(gone).is_none());
    table.clear();
    assert!(table.is_empty() && table.get(next).is_none());
    let after = table.insert(&Match::ANY, 1, "after").unwrap();
    assert!(table.get(next).is_none() && table.get(after).is_some());
}

#[test]
fn masks_of_every_pair_of_prefixes_make_few_subtables() {
    let mut table = Classifier::<u64, WORDS>::new(layout(true, true, 16), 1);
    let mut n = 0u64;
    for src in 0..=32 {
        for dst in 0..=32 {
            for _ in 0..10 {
                n += 1;
                let prefix = |len: u32| u64::from(u32::MAX.checked_shl(32 - len).unwrap_or(0));
                let scattered = n
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(29)
                    .wrapping_mul(0xd6e8_feb8_6659_fd93);
                let matching = on(&[(ADDRESSES, scattered, prefix(src) | prefix(dst) << 32)]);
                let _ = table.insert(&matching, src + dst, n);
            }
        }
    }
    let stats = table.stats();
    assert_eq!(stats.masks, 33 * 33);
    assert!(stats.subtables < 150, "{stats:?}");
}

#[test]
fn threads_can_share_a_table() {
    fn shared<T: Send + Sync>() {}
    shared::<Classifier<std::sync::Arc<str>, WORDS>>();
}
