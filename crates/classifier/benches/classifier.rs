//! Insertion, lookup and removal.

mod tables;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tables::{
    Random, Table, WORDS, Words, acl_table, addresses_table, exact, key, layout, nth_addresses, prefixes_table,
    two_addresses,
};

const SIZES: [u64; 3] = [1_000, 100_000, 1_000_000];

/// Each iteration inserts one rule into a filled table and removes it.
fn change(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("insert and remove one rule");
    for rules in SIZES {
        let mut table = addresses_table(rules, true);
        let mut n = rules;
        group.bench_function(BenchmarkId::from_parameter(rules), |bencher| {
            bencher.iter(|| {
                n += 1;
                if let Ok(id) = table.insert(&two_addresses(nth_addresses(n, true)), 100, n) {
                    black_box(table.remove(id));
                }
            });
        });
    }
    group.finish();
}

/// Each iteration is a whole table.
fn fill(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fill a table");
    group.sample_size(10);
    for rules in SIZES {
        group.throughput(Throughput::Elements(rules));
        for (name, scattered) in [("ascending", false), ("scattered", true)] {
            group.bench_function(BenchmarkId::new(name, rules), |bencher| {
                bencher.iter_with_large_drop(|| addresses_table(rules, scattered));
            });
        }
        group.bench_function(BenchmarkId::new("exact and prefixes", rules), |bencher| {
            bencher.iter_with_large_drop(|| {
                let (mut table, _) = prefixes_table(layout(), rules as usize / 2, 40);
                for n in 0..rules / 2 {
                    let _ = table.insert(&exact(nth_addresses(n, true), n), 200, n);
                }
                table
            });
        });
    }
    group.finish();
}

fn look(bencher: &mut criterion::Bencher<'_>, table: &Table, keys: &[Words]) {
    let mut next = 0;
    bencher.iter_custom(|times| {
        let start = Instant::now();
        for _ in 0..times {
            let mut consulted = [0; WORDS];
            black_box(table.lookup(&keys[next], &mut consulted));
            black_box(consulted);
            next = (next + 1) % keys.len();
        }
        start.elapsed().max(Duration::from_nanos(1))
    });
}

fn lookup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lookup");
    let mut random = Random(5);
    for rules in SIZES {
        let table = addresses_table(rules, true);
        let hits: Vec<Words> = (0..16_384)
            .map(|_| key(nth_addresses(random.number() % rules, true), 0))
            .collect();
        let others: Vec<Words> = (0..16_384).map(|_| key(random.number(), 0)).collect();
        group.bench_function(BenchmarkId::new("hit", rules), |bencher| look(bencher, &table, &hits));
        group.bench_function(BenchmarkId::new("miss", rules), |bencher| {
            look(bencher, &table, &others)
        });
    }
    for masks in [1, 10, 100, 1000] {
        let (table, keys) = prefixes_table(layout(), 10_000, masks);
        let name = BenchmarkId::new("hit among masks of prefixes", masks);
        group.bench_function(name, |bencher| look(bencher, &table, &keys));
        let (table, keys) = acl_table(layout(), 10_000, masks);
        let name = BenchmarkId::new("hit among masks of permissions", masks);
        group.bench_function(name, |bencher| look(bencher, &table, &keys));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = change, fill, lookup
}
criterion_main!(benches);
