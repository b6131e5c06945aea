//! Prints a table of figures that criterion does not measure: memory, longest insertion, subtables,
//! bits of masks.

mod tables;

use std::time::Instant;

use classifier::{Layout, Match};
use tables::{
    Random, Table, WORDS, Words, acl_table, addresses_table, exact, key, layout, nth_addresses, prefixes_table,
    two_addresses,
};

fn main() {
    if std::env::args().any(|argument| argument == "masks") {
        return mixed_masks();
    }
    println!("insertion of a million rules one by one: bytes per rule, mean ns, longest µs, later removal mean ns");
    grow("two addresses, ascending", |n| two_addresses(nth_addresses(n, false)));
    grow("two addresses, scattered", |n| two_addresses(nth_addresses(n, true)));
    grow("all fields exact", |n| exact(nth_addresses(n, true), n));
    mixed_masks();
    lookups();
    walks();
}

fn grow(name: &str, matching: impl Fn(u64) -> Match<WORDS>) {
    const RULES: u64 = 1_000_000;
    const ROUNDS: usize = 3;
    let matches: Vec<Match<WORDS>> = (0..RULES).map(matching).collect();
    let mut ids = Vec::with_capacity(matches.len());
    let (mut mean, mut longest, mut removal) = (u128::MAX, u128::MAX, u128::MAX);
    let mut bytes = 0;
    let mut grown = 0;
    // The best of some rounds: others use the machine too.
    for _ in 0..ROUNDS {
        let before = resident();
        let mut table = Table::new(layout(), 1);
        let start = Instant::now();
        let mut last = start;
        let mut pause = 0;
        for (n, matching) in (0..).zip(&matches) {
            ids.extend(table.insert(matching, 100, n));
            let now = Instant::now();
            pause = pause.max((now - last).as_nanos());
            last = now;
        }
        mean = mean.min(start.elapsed().as_nanos() / u128::from(RULES));
        longest = longest.min(pause);
        bytes = table.memory_bytes() / table.len();
        grown = grown.max(resident().saturating_sub(before) / table.len());
        let start = Instant::now();
        for id in ids.drain(..) {
            table.remove(id);
        }
        removal = removal.min(start.elapsed().as_nanos() / u128::from(RULES));
    }
    println!(
        "  {name:28} {bytes} B (process grew by {grown} B), {mean} ns, {} µs, {removal} ns",
        longest / 1000
    );
}

fn mixed_masks() {
    println!(
        "masks: subtables, insertion ns; lookup ns and bits consulted of matching and of random packets; in brackets without merging"
    );
    type Make = fn(Layout, usize, usize) -> (Table, Vec<Words>);
    let kinds: [(&str, Make); 2] = [("two prefixes", prefixes_table), ("acl", acl_table)];
    for (name, make) in kinds {
        for (rules, masks) in [
            (10_000, 1),
            (10_000, 10),
            (10_000, 100),
            (10_000, 1000),
            (100_000, 100),
            (100_000, 1000),
        ] {
            print!("  {name}, {rules} rules, {masks} masks:");
            for merge in [true, false] {
                let layout = if merge {
                    layout()
                } else {
                    layout().merge_from(usize::MAX)
                };
                let start = Instant::now();
                let (table, hits) = make(layout, rules, masks);
                let insertion = start.elapsed().as_nanos() / rules as u128;
                let mut random = Random(9);
                let others: Vec<Words> = (0..4096).map(|_| key(random.number(), random.number())).collect();
                let (hit, hit_bits) = time(&table, &hits);
                let (miss, miss_bits) = time(&table, &others);
                let (open, close) = if merge { (" ", "") } else { (" [", "]") };
                let subtables = table.stats().subtables;
                print!(
                    "{open}{subtables}, {insertion} ns; {hit} ns {hit_bits} bits, {miss} ns {miss_bits} bits{close}"
                );
            }
            println!();
        }
    }
}

fn lookups() {
    println!(
        "lookups in tables of two addresses: hit ns, hit without mask ns, random packet ns, and bits consulted there"
    );
    for rules in [1_000, 100_000, 1_000_000] {
        let table = addresses_table(rules, true);
        let mut random = Random(5);
        let hits: Vec<Words> = (0..65_536)
            .map(|_| key(nth_addresses(random.number() % rules, true), 0))
            .collect();
        let others: Vec<Words> = (0..65_536).map(|_| key(random.number(), 0)).collect();
        let (hit, _) = time(&table, &hits);
        let (miss, bits) = time(&table, &others);
        let start = Instant::now();
        let found = hits.iter().filter(|key| table.find(key).is_some()).count();
        let plain = start.elapsed().as_nanos() / found.max(1) as u128;
        println!("  {rules:8} rules: {hit} ns, {plain} ns, {miss} ns, {bits} bits");
    }
}

fn walks() {
    let table = addresses_table(1_000_000, true);
    let mut mask = [0; WORDS];
    mask[5] = 0xff00_0000;
    for (name, matching) in [
        ("all", Match::ANY),
        ("one of 256 networks", Match::new(&key(0x0a00_0000, 0), &mask)),
        ("one rule", two_addresses(nth_addresses(500, true))),
    ] {
        let start = Instant::now();
        let covered = table.covered_by(&matching).len();
        println!(
            "of a million rules those covered: {name}, {covered}: {} µs",
            start.elapsed().as_micros()
        );
    }
    let start = Instant::now();
    let sum = table
        .iter()
        .map(|entry| entry.matching().value()[5] ^ entry.rule)
        .fold(0, |sum, more| sum ^ more);
    std::hint::black_box(sum);
    println!(
        "a million rules with their matches, one by one: {} µs",
        start.elapsed().as_micros()
    );
}

/// Mean ns of a lookup and mean bits consulted.
fn time(table: &Table, keys: &[Words]) -> (u128, u32) {
    let mut bits = 0;
    let mut best = u128::MAX;
    for _ in 0..3 {
        bits = 0;
        let start = Instant::now();
        for key in keys {
            let mut consulted = [0; WORDS];
            std::hint::black_box(table.lookup(key, &mut consulted));
            bits += consulted.iter().map(|word| word.count_ones()).sum::<u32>();
        }
        best = best.min(start.elapsed().as_nanos() / keys.len() as u128);
    }
    (best, bits / keys.len() as u32)
}

/// Bytes of memory that the process has.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0usize) * 4096
}
