//! States of single connections.

use crate::packets::*;
use conntrack::{Checksum, Filter, Invalid, Packet, Part, PolicyId, Protocol, Request, State, TcpState, Timeout};
use std::time::Duration;

#[test]
fn a_udp_connection_is_new_until_the_answer_and_known_in_its_zone_only() {
    for v6 in [false, true] {
        let mut bench = Bench::new();
        let (a, b) = ((host(v6, 1), 1000), (host(v6, 2), 53));
        assert_eq!(bench.state(&look(1), udp(a, b, b"x")), NEW);
        assert_eq!(bench.tracker.conntrack().len(), 0);
        assert_eq!(bench.state(&look(1), udp(b, a, b"x")), NEW, "nothing was committed");
        assert_eq!(bench.state(&commit(1), udp(a, b, b"x")), NEW);
        assert_eq!(bench.state(&look(1), udp(a, b, b"x")), NEW);
        assert_eq!(bench.state(&look(1), udp(b, a, b"xy")), EST_REPLY);
        assert_eq!(bench.state(&look(1), udp(a, b, b"x")), EST);
        assert_eq!(bench.state(&look(2), udp(a, b, b"x")), NEW);
        assert_eq!(bench.state(&look(2), udp(b, a, b"x")), NEW);
        let all = bench.all();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].packets, all[0].zone, all[0].assured), ([3, 1], 1, true));
        assert_eq!(all[0].bytes[1], if v6 { 50 } else { 30 });
        assert_eq!(all[0].reply, all[0].original.reverse());
    }
}

#[test]
fn mark_and_label_stay_with_the_connection_and_a_second_commit_changes_them() {
    let mut bench = Bench::new();
    let (a, b) = ((host(false, 1), 1000), (host(false, 2), 53));
    let first = Request {
        mark: Some((0x1234, 0xff)),
        label: Some((5 << 100 | 7, u128::MAX)),
        ..commit(0)
    };
    let outcome = bench.pass(&first, &mut udp(a, b, b""));
    assert_eq!((outcome.mark, outcome.label), (0x34, 5 << 100 | 7));
    let outcome = bench.pass(&look(0), &mut udp(b, a, b""));
    assert_eq!((outcome.mark, outcome.label), (0x34, 5 << 100 | 7));
    assert_eq!(outcome.original.map(|t| t.src()), Some(a.0));
    let second = Request {
        mark: Some((0xab00, 0xff00)),
        label: Some((0, 0xf)),
        ..commit(0)
    };
    let outcome = bench.pass(&second, &mut udp(a, b, b""));
    assert_eq!((outcome.mark, outcome.label), (0xab34, 5 << 100));
    assert_eq!(bench.tracker.conntrack().len(), 1);
}

#[test]
fn force_begins_a_new_connection_in_the_packets_direction() {
    let mut bench = Bench::new();
    let (a, b) = ((host(false, 1), 1000), (host(false, 2), 53));
    bench.state(&commit(0), udp(a, b, b""));
    let force = Request {
        force: true,
        ..commit(0)
    };
    assert_eq!(bench.state(&force, udp(a, b, b"")), NEW);
    assert_eq!(bench.all()[0].original.src(), a.0);
    assert_eq!(bench.state(&force, udp(b, a, b"")), NEW);
    let all = bench.all();
    assert_eq!((all.len(), all[0].original.src()), (1, b.0));
    assert_eq!(bench.tracker.conntrack().statistics().replaced, 1);
}

#[test]
fn echo_requests_make_connections_and_replies_do_not() {
    for v6 in [false, true] {
        let mut bench = Bench::new();
        let (a, b) = (host(v6, 1), host(v6, 2));
        assert_eq!(bench.state(&commit(0), echo(b, a, true, 7)), INVALID);
        assert_eq!(bench.state(&commit(0), echo(a, b, false, 7)), NEW);
        assert_eq!(
            bench.state(&look(0), echo(b, a, true, 8)),
            INVALID,
            "another identifier"
        );
        assert_eq!(bench.state(&look(0), echo(b, a, true, 7)), EST_REPLY);
        // A request with the same identifier in the other direction is a connection of its own.
        assert_eq!(bench.state(&commit(0), echo(b, a, false, 7)), NEW);
        assert_eq!(bench.tracker.conntrack().len(), 2);
    }
}

#[test]
fn errors_are_related_to_the_connection_inside_them() {
    for v6 in [false, true] {
        let mut bench = Bench::new();
        let (a, b, router) = ((host(v6, 1), 1000), (host(v6, 2), 53), host(v6, 99));
        let (kind, code) = if v6 { (1, 4) } else { (3, 3) };
        let sent = udp(a, b, b"payload");
        let error = |from, to, inner: &[u8]| icmp(from, to, kind, code, 0, inner);
        assert_eq!(bench.state(&look(0), error(router, a.0, &sent)), INVALID);
        bench.state(&commit(0), sent.clone());
        let related = State::REL | State::TRK | State::RPL;
        assert_eq!(bench.state(&look(0), error(router, a.0, &sent)), related);
        let header = if v6 { 40 } else { 20 };
        assert_eq!(
            bench.state(&look(0), error(b.0, a.0, &sent[..header + 8])),
            related,
            "cut as RFC 792 allows"
        );
        assert_eq!(bench.state(&look(0), error(b.0, a.0, &sent[..header + 7])), INVALID);
        assert_eq!(
            bench.state(&look(0), error(router, host(v6, 5), &sent)),
            INVALID,
            "to somebody else"
        );
        assert_eq!(
            bench.state(&look(1), error(router, a.0, &sent)),
            INVALID,
            "another zone"
        );
        assert_eq!(
            bench.state(&look(0), error(a.0, b.0, &udp(b, a, b""))),
            State::REL | State::TRK
        );
        let inside = error(a.0, router, &sent);
        assert_eq!(
            bench.state(&look(0), error(router, a.0, &inside)),
            INVALID,
            "an error about an error"
        );
        // An error does not answer: the connection is still new.
        assert_eq!(bench.state(&look(0), sent), NEW);
    }
}

#[test]
fn tcp_goes_through_its_states_and_the_tuple_can_be_used_again() {
    for v6 in [false, true] {
        let mut bench = Bench::new();
        let (a, b) = ((host(v6, 1), 1000), (host(v6, 2), 80));
        let states = |bench: &mut Bench| match bench.all()[0].protocol {
            Protocol::Tcp { states, .. } => states,
            other => panic!("{other:?}"),
        };
        assert_eq!(bench.state(&commit(0), tcp(b, a, Tcp::new(SYN | ACK, 9, 9))), INVALID);
        assert_eq!(bench.state(&commit(0), tcp(a, b, Tcp::new(SYN, 100, 0))), NEW);
        assert_eq!(
            bench.state(&look(0), tcp(b, a, Tcp::new(SYN | ACK, 500, 101))),
            EST_REPLY
        );
        assert_eq!(bench.state(&look(0), tcp(a, b, Tcp::new(ACK, 101, 501))), EST);
        assert_eq!(states(&mut bench), [TcpState::Established; 2]);
        assert_eq!(bench.all()[0].expires_in, Duration::from_secs(24 * 60 * 60));
        assert_eq!(
            bench.state(&look(0), tcp(a, b, Tcp::new(RST, 700, 0))),
            INVALID,
            "a blind reset"
        );
        assert_eq!(states(&mut bench), [TcpState::Established; 2]);
        bench.state(&look(0), tcp(a, b, Tcp::new(FIN | ACK, 101, 501)));
        bench.state(&look(0), tcp(b, a, Tcp::new(FIN | ACK, 501, 102)));
        bench.state(&look(0), tcp(a, b, Tcp::new(ACK, 102, 502)));
        assert_eq!(states(&mut bench), [TcpState::FinWait2; 2]);
        assert_eq!(bench.state(&commit(0), tcp(a, b, Tcp::new(SYN, 90_000, 0))), NEW);
        assert_eq!(states(&mut bench), [TcpState::SynSent, TcpState::Closed]);
        assert_eq!(bench.tracker.conntrack().len(), 1);
    }
}

#[test]
fn policy_decides_about_numbers_and_about_connections_from_the_middle() {
    let mut bench = Bench::new();
    let (a, b) = ((host(false, 1), 1000), (host(false, 2), 80));
    let conntrack = bench.tracker.conntrack().clone();
    conntrack.set_pickup(false);
    assert_eq!(bench.state(&commit(0), tcp(a, b, Tcp::new(ACK, 5, 5))), INVALID);
    conntrack.set_pickup(true);
    assert_eq!(bench.state(&commit(0), tcp(a, b, Tcp::new(ACK, 5, 5))), NEW);
    assert_eq!(bench.state(&look(0), tcp(b, a, Tcp::new(ACK, 5, 5))), EST_REPLY);
    let mut far = Tcp::new(ACK, 1 << 30, 5);
    far.len = 100;
    assert_eq!(bench.state(&look(0), tcp(a, b, far)), INVALID);
    conntrack.set_check_sequence(false);
    assert_eq!(bench.state(&look(0), tcp(a, b, far)), EST);
}

#[test]
fn broken_packets_are_invalid_and_counted_by_cause() {
    let mut bench = Bench::new();
    let (a, b) = ((host(false, 1), 1000), (host(false, 2), 53));
    let good = udp(a, b, b"data");
    let cases: Vec<(Vec<u8>, Invalid)> = vec![
        (good[..19].to_vec(), Invalid::Malformed),
        (good[..27].to_vec(), Invalid::Malformed),
        (change(&good, 9, 200 ^ 17), Invalid::Checksum),
        (change(&good, 31, 1), Invalid::Checksum),
        (change(&good, 10, 1), Invalid::Checksum),
        (icmp(a.0, b.0, 42, 0, 0, b""), Invalid::Icmp),
    ];
    for (mut packet, why) in cases {
        let outcome = bench.pass(&commit(0), &mut packet);
        assert_eq!((outcome.state, outcome.invalid), (INVALID, Some(why)));
    }
    let mut trusted = change(&good, 31, 1);
    let mut packet = Packet::new(&mut trusted, false);
    packet.checksum = Checksum::Good;
    assert_eq!(bench.tracker.track(&commit(0), &mut packet, bench.now).state, NEW);
    let counted = bench.tracker.conntrack().statistics();
    assert_eq!((counted.malformed, counted.bad_checksum, counted.icmp_other), (2, 3, 1));
}

fn change(packet: &[u8], at: usize, bits: u8) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[at] ^= bits;
    packet
}

#[test]
fn connections_time_out_by_their_policy_and_sweeps_remove_them() {
    let mut bench = Bench::new();
    let (a, b) = ((host(false, 1), 1000), (host(false, 2), 53));
    let conntrack = bench.tracker.conntrack().clone();
    conntrack.set_policy(PolicyId(9), &[(Timeout::UdpFirst, 5), (Timeout::UdpMultiple, 7)]);
    let request = Request {
        policy: PolicyId(9),
        ..commit(0)
    };
    bench.state(&request, udp(a, b, b""));
    bench.now += Duration::from_secs(4);
    assert_eq!(bench.state(&look(0), udp(b, a, b"")), EST_REPLY);
    bench.now += Duration::from_millis(6999);
    assert_eq!(bench.sweep(), 0);
    bench.now += Duration::from_millis(1);
    assert_eq!(
        bench.state(&look(0), udp(b, a, b"")),
        NEW,
        "over, though no sweep came by"
    );
    assert_eq!(bench.all().len(), 0);
    assert_eq!(conntrack.len(), 1);
    assert_eq!(bench.sweep(), 1);
    assert_eq!((conntrack.len(), conntrack.statistics().expired), (0, 1));
    // A connection that is over gives way to a new one without a sweep.
    bench.state(&request, udp(a, b, b""));
    bench.now += Duration::from_secs(100);
    bench.state(&request, udp(b, a, b""));
    assert_eq!((conntrack.len(), bench.all()[0].original.src()), (1, b.0));
}

#[test]
fn limits_of_zones_refuse_and_are_counted() {
    let mut bench = Bench::new();
    let conntrack = bench.tracker.conntrack().clone();
    conntrack.set_default_zone_limit(2);
    conntrack.set_zone_limit(7, Some(3));
    conntrack.set_zone_limit(8, Some(0));
    for (zone, limit) in [(6, 2), (7, 3), (8, 10)] {
        for n in 0..10 {
            let mut packet = udp((host(false, 1), n), (host(false, 2), 53), b"");
            let outcome = bench.pass(&commit(zone), &mut packet);
            assert_eq!(outcome.refused.is_none(), n < limit, "zone {zone}, {n}");
            assert_eq!(outcome.state, NEW);
        }
        assert_eq!(conntrack.zone_limit(zone).count, u32::from(limit));
        assert_eq!(conntrack.zone_limit(zone).refused, 10 - u64::from(limit));
    }
    assert_eq!(
        conntrack.zone_limits().iter().map(|z| z.zone).collect::<Vec<_>>(),
        [7, 8]
    );
    assert_eq!(conntrack.zones(), [(6, 2), (7, 3), (8, 10)]);
    conntrack.set_zone_limit(7, None);
    assert_eq!(conntrack.zone_limit(7).limit, 2);
}

#[test]
fn flushes_remove_what_fits_and_nothing_else() {
    let mut bench = Bench::new();
    let count = |bench: &Bench| bench.tracker.conntrack().len();
    let fill = |bench: &mut Bench| {
        bench.tracker.flush(&Filter::default());
        assert_eq!(count(bench), 0);
        for zone in 0..3 {
            for n in 0..5 {
                let request = Request {
                    mark: Some((u32::from(n), u32::MAX)),
                    label: Some((u128::from(n) << 64, u128::MAX)),
                    ..commit(zone)
                };
                bench.state(&request, udp((host(false, n), 100 + n), (host(false, 100), 53), b""));
                bench.state(&request, echo(host(true, n), host(true, 100), false, n));
            }
        }
    };
    let of = |part: Part| Filter {
        original: part,
        ..Filter::default()
    };
    let cases = [
        (Filter::default(), 30),
        (
            Filter {
                zone: Some(1),
                ..Filter::default()
            },
            10,
        ),
        (
            of(Part {
                src: Some(host(false, 2)),
                ..Part::default()
            }),
            3,
        ),
        (
            of(Part {
                src_port: Some(103),
                protocol: Some(17),
                ..Part::default()
            }),
            3,
        ),
        (
            of(Part {
                dst: Some(host(true, 100)),
                ..Part::default()
            }),
            15,
        ),
        (
            of(Part {
                icmp_type: Some(128),
                ..Part::default()
            }),
            15,
        ),
        (
            of(Part {
                icmp_type: Some(129),
                ..Part::default()
            }),
            0,
        ),
        (
            Filter {
                reply: Part {
                    src_port: Some(53),
                    dst: Some(host(false, 4)),
                    ..Part::default()
                },
                zone: Some(0),
                ..Filter::default()
            },
            1,
        ),
        (
            Filter {
                mark: Some((3, 0xff)),
                ..Filter::default()
            },
            6,
        ),
        (
            Filter {
                label: Some((1 << 64, 1 << 64)),
                zone: Some(2),
                ..Filter::default()
            },
            4,
        ),
    ];
    for (filter, expected) in cases {
        fill(&mut bench);
        assert_eq!(bench.tracker.flush(&filter), expected, "{filter:?}");
        assert_eq!(count(&bench), 30 - expected);
    }
    fill(&mut bench);
    let first = bench.all()[0].id;
    assert!(bench.tracker.remove(first));
    assert!(!bench.tracker.remove(first));
    assert_eq!(bench.tracker.connection(first, bench.now), None);
    assert_eq!(count(&bench), 29);
}

#[test]
fn a_flush_by_tuple_finds_a_connection_by_both_directions_in_its_zone() {
    let mut bench = Bench::new();
    let (a, b) = ((host(false, 1), 1000), (host(false, 2), 53));
    for reply in [false, true] {
        bench.state(&commit(1), udp(a, b, b"x"));
        let known = bench.all()[0].original;
        let tuple = if reply { known.reverse() } else { known };
        assert!(!bench.tracker.flush_tuple(2, &tuple, bench.now));
        assert!(bench.tracker.flush_tuple(1, &tuple, bench.now));
        assert!(!bench.tracker.flush_tuple(1, &tuple, bench.now));
        assert!(bench.tracker.conntrack().is_empty());
    }
}
