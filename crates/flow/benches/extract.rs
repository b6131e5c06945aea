//! How long the key of a packet takes.

use criterion::{Criterion, criterion_group, criterion_main};
use flow::{Field, KeySlot, Mask, PacketMeta, PortNo, extract};
use std::hint::black_box;
use std::time::Duration;

fn bench(c: &mut Criterion) {
    let mut tcp = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    tcp.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    tcp.extend([0, 80, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    let mut tagged = tcp[..12].to_vec();
    tagged.extend([0x81, 0, 0, 10]);
    tagged.extend(&tcp[12..]);
    let meta = PacketMeta::received(PortNo(1));
    for (name, packet) in [("extract/tcp", &tcp), ("extract/vlan-tcp", &tagged)] {
        let mut key = KeySlot::default();
        c.bench_function(name, |b| {
            b.iter(|| {
                let good = black_box(&mut key).read(black_box(packet), &meta, None);
                (good, black_box(&key).in_port())
            });
        });
    }

    let (mut key, mut before) = (KeySlot::default(), KeySlot::default());
    before.read(&tcp, &meta, None);
    c.bench_function("extract/tcp again", |b| {
        b.iter(|| key.read(black_box(&tcp), &meta, Some(black_box(&before))));
    });

    let key = extract(&tcp, &meta).unwrap_or_default();
    let mut mask = Mask::exact(Field::InPort);
    for field in [Field::EthDst, Field::EthSrc, Field::VlanTci0] {
        mask.add(field);
    }
    c.bench_function("mask/hash", |b| {
        b.iter(|| black_box(&mask).hash_key(black_box(&key), 1))
    });
    c.bench_function("mask/eq", |b| {
        b.iter(|| black_box(&mask).eq_key(black_box(&key), black_box(&key)))
    });
    c.bench_function("key/hash", |b| b.iter(|| black_box(&key).hash64(1)));
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(300));
    targets = bench
}
criterion_main!(benches);
