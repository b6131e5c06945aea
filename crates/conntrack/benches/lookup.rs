//! Packets of established connections in batches of 32, in random order, and new connections.
//!
//! The packets of a batch follow each other in memory, as in a receive ring; the connections do
//! not.

use conntrack::{Checksum, Conntrack, Filter, Nanos, Outcome, Packet, Request, Tracker};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;

const BATCH: usize = 32;
const NOW: Nanos = Nanos::from_secs(1);
/// A UDP packet without data.
const LEN: usize = 28;

/// The n-th client's packet, or the answer to it.
fn packet(n: u32, reply: bool) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..4].copy_from_slice(&[0x45, 0, 0, LEN as u8]);
    bytes[8..10].copy_from_slice(&[64, 17]);
    let (client, server) = ((0x0a00_0000 + n).to_be_bytes(), [192, 0, 2, 1]);
    let (src, dst) = if reply { (server, client) } else { (client, server) };
    bytes[12..16].copy_from_slice(&src);
    bytes[16..20].copy_from_slice(&dst);
    let ports: [u8; 4] = if reply { [0, 53, 4, 0] } else { [4, 0, 0, 53] };
    bytes[20..24].copy_from_slice(&ports);
    bytes[25] = 8;
    let sum = wire::checksum::checksum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn track(tracker: &mut Tracker, request: &Request, ring: &mut [[u8; LEN]]) {
    let mut outcomes = [Outcome::default(); BATCH];
    for chunk in ring.chunks_mut(BATCH) {
        let mut packets: Vec<Packet<'_>> = Vec::with_capacity(BATCH);
        packets.extend(chunk.iter_mut().map(|bytes| Packet {
            checksum: Checksum::Good,
            ..Packet::new(bytes, false)
        }));
        tracker.track_batch(request, &mut packets, NOW, &mut outcomes);
        black_box(&outcomes);
    }
}

/// The numbers below `len` in a random order that is the same on every run.
fn shuffled(len: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..len).collect();
    let mut state = 1u64;
    for n in (1..order.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(n, (state >> 33) as usize % (n + 1));
    }
    order
}

/// This many connections with packets in both directions.
fn established(count: u32) -> Arc<Conntrack> {
    let shared = Conntrack::new(3);
    let mut tracker = shared.tracker();
    let commit = Request {
        commit: true,
        ..Request::default()
    };
    for reply in [false, true] {
        let mut ring: Vec<_> = (0..count).map(|n| packet(n, reply)).collect();
        track(&mut tracker, &commit, &mut ring);
    }
    println!("{count} connections: {} bytes each", shared.bytes() / count as usize);
    shared
}

fn lookup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("established");
    for count in [1_000, 100_000, 1_000_000] {
        let shared = established(count);
        let mut tracker = shared.tracker();
        let order = shuffled(count);
        let mut ring: Vec<_> = order
            .iter()
            .enumerate()
            .map(|(at, n)| packet(*n, at % 2 == 1))
            .collect();
        let len = ring.len() / BATCH * BATCH;
        let mut at = 0;
        group.throughput(Throughput::Elements(BATCH as u64));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                track(&mut tracker, &Request::default(), &mut ring[at..at + BATCH]);
                at = (at + BATCH) % len;
            });
        });
    }
    group.finish();
}

fn begin(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("new");
    group.sample_size(10);
    let count = 100_000;
    let shared = Conntrack::new(3);
    let mut tracker = shared.tracker();
    let mut ring: Vec<_> = shuffled(count).into_iter().map(|n| packet(n, false)).collect();
    let commit = Request {
        commit: true,
        ..Request::default()
    };
    group.throughput(Throughput::Elements(u64::from(count)));
    group.bench_function("100000 and their removal", |bencher| {
        bencher.iter(|| {
            track(&mut tracker, &commit, &mut ring);
            tracker.flush(&Filter::default());
        });
    });
    group.finish();
}

criterion_group!(benches, lookup, begin);
criterion_main!(benches);
