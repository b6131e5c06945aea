//! Several threads at once: packets of the same connections, commits, removals.

use crate::packets::*;
use conntrack::{Conntrack, Filter, Nanos, Packet, Part, Request, State};
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::Rng;

/// Connections come and go in zones 1 to 4, each with its zone as mark and label; whoever looks
/// sees those of the zone or none.
#[test]
fn no_thread_sees_a_connection_of_another_zone_while_others_come_and_go() {
    let conntrack = Conntrack::new(7);
    conntrack.set_max(300);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|seed| {
                let mut tracker = conntrack.tracker();
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    let mut established = 0;
                    for step in 0..60_000 {
                        let zone = 1 + rng.below(4) as u16;
                        let v6 = rng.chance(30);
                        let (a, b) = (
                            (host(v6, rng.below(40) as u16), zone),
                            (host(v6, 100), rng.below(4) as u16),
                        );
                        let mut bytes = if rng.chance(50) { udp(a, b, b"") } else { udp(b, a, b"") };
                        let mark = u32::from(zone);
                        let request = Request {
                            mark: Some((mark, u32::MAX)),
                            label: Some((u128::from(zone) << 64 | u128::from(zone), u128::MAX)),
                            ..commit(zone)
                        };
                        let request = if rng.chance(60) { request } else { look(zone) };
                        let now = Nanos::from_millis(step * 2);
                        let outcome = tracker.track(&request, &mut Packet::new(&mut bytes, v6), now);
                        if outcome.state.has(State::EST) {
                            established += 1;
                            assert_eq!(outcome.mark, mark);
                            assert_eq!(outcome.label, u128::from(zone) << 64 | u128::from(zone));
                            let original = outcome.original.unwrap();
                            assert!([original.src(), original.dst()].contains(&a.0), "{original:?}");
                        }
                        if step % 64 == 0 {
                            tracker.sweep(100, now);
                        }
                    }
                    established
                })
            })
            .collect();
        let mut tracker = conntrack.tracker();
        let over = &over;
        scope.spawn(move || {
            let mut port = 0;
            while !over.load(Ordering::Relaxed) {
                port = (port + 1) % 4;
                let original = Part {
                    dst_port: Some(port),
                    ..Part::default()
                };
                tracker.flush(&Filter {
                    original,
                    ..Filter::default()
                });
                std::thread::yield_now();
            }
        });
        let established: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        over.store(true, Ordering::Relaxed);
        assert!(established > 1000, "{established}");
    });
    assert!(conntrack.len() <= 300);
    conntrack.tracker().flush(&Filter::default());
    assert_eq!(conntrack.len(), 0);
    let counted = conntrack.statistics();
    let ended = counted.expired + counted.evicted + counted.flushed + counted.replaced;
    assert_eq!(counted.created, ended);
}

/// Both directions of connections on two threads: all packets are counted.
#[test]
fn packets_of_both_directions_on_two_threads_are_all_counted_and_valid() {
    const PACKETS: u32 = 20_000;
    let conntrack = Conntrack::new(7);
    let (a, b) = ((host(false, 1), 1000), (host(false, 2), 80));
    let now = Nanos::from_secs(1);
    let mut first = conntrack.tracker();
    for mut bytes in [
        tcp(a, b, Tcp::new(SYN, 0, 0)),
        tcp(b, a, Tcp::new(SYN | ACK, 0, 1)),
        tcp(a, b, Tcp::new(ACK, 1, 1)),
    ] {
        assert!(
            !first
                .track(&commit(0), &mut Packet::new(&mut bytes, false), now)
                .state
                .has(State::INV)
        );
    }
    std::thread::scope(|scope| {
        for (src, dst) in [(a, b), (b, a)] {
            let mut tracker = conntrack.tracker();
            scope.spawn(move || {
                for n in 0..PACKETS {
                    // Within the first window, whatever the order of the threads.
                    let mut fields = Tcp::new(ACK, 1 + n / 40, 1 + n / 40);
                    fields.len = 1;
                    let mut bytes = tcp(src, dst, fields);
                    let outcome = tracker.track(&look(0), &mut Packet::new(&mut bytes, false), now);
                    assert!(outcome.state.has(State::EST), "{n} {:?}", outcome);
                }
            });
        }
    });
    let mut found = Vec::new();
    first.connections(Default::default(), 100_000, now, &mut found);
    assert_eq!(found[0].packets, [2 + u64::from(PACKETS), 1 + u64::from(PACKETS)]);
    assert_eq!(found[0].bytes[1], 40 + u64::from(PACKETS) * 41);
}

/// Threads make connections through one small range: each has a tuple of its own.
#[test]
fn threads_that_share_a_range_of_ports_never_share_a_tuple() {
    let conntrack = Conntrack::new(9);
    let outside = host(false, 200);
    let request = Request {
        nat: Some(conntrack::Nat::Source(conntrack::Range {
            addresses: Some((outside, outside)),
            ports: Some((1000, 1299)),
            ..Default::default()
        })),
        ..commit(0)
    };
    let now = Nanos::from_secs(1);
    let server = (host(false, 2), 53);
    std::thread::scope(|scope| {
        for seed in 0..3u16 {
            let mut tracker = conntrack.tracker();
            scope.spawn(move || {
                for n in 0..200 {
                    // Every second client is the same for all threads.
                    let client = (host(false, if n % 2 == 0 { n } else { 1000 * (seed + 1) + n }), 7);
                    let mut bytes = udp(client, server, b"");
                    let outcome = tracker.track(&request, &mut Packet::new(&mut bytes, false), now);
                    assert_eq!(outcome.translated, outcome.refused.is_none());
                    if outcome.refused.is_some() {
                        continue;
                    }
                    let mut answer = udp(server, ends(&bytes).0, b"");
                    let back = Request {
                        nat: Some(conntrack::Nat::Existing),
                        ..look(0)
                    };
                    let outcome = tracker.track(&back, &mut Packet::new(&mut answer, false), now);
                    assert!(outcome.state.has(EST_REPLY));
                    assert_eq!(ends(&answer).1, client);
                }
            });
        }
    });
    // 100 clients of all threads, and 100 of each: more than there are ports.
    assert_eq!(conntrack.len(), 300);
    assert!(conntrack.statistics().nat_exhausted >= 100);
    let mut found = Vec::new();
    conntrack
        .tracker()
        .connections(Default::default(), 100_000, now, &mut found);
    found.sort_by_key(|c| c.reply.dst_port());
    let ports: Vec<u16> = found.iter().map(|c| c.reply.dst_port()).collect();
    assert_eq!(ports, (1000..1300).collect::<Vec<u16>>());
}
