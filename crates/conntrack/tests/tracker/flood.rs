//! Floods: the limit holds, established connections stay, other ports' connections still begin.

use crate::packets::*;
use conntrack::{Packet, Request};
use std::net::IpAddr;

/// A SYN from one of many addresses, on a port of the switch.
fn syn(bench: &mut Bench, n: u32, in_port: u32) -> conntrack::Outcome {
    let [a, b, c, d] = n.to_be_bytes();
    let src = IpAddr::from([100 + a, b, c, d]);
    let mut bytes = tcp((src, 1), (host(false, 1), 80), Tcp::new(SYN, n, 0));
    let mut packet = Packet::new(&mut bytes, false);
    packet.in_port = in_port;
    bench.tracker.track(&commit(0), &mut packet, bench.now)
}

fn establish(bench: &mut Bench, n: u16) {
    let (a, b) = ((host(false, n), 1000), (host(false, 1), 80));
    bench.state(&commit(0), tcp(a, b, Tcp::new(SYN, 100, 0)));
    bench.state(&commit(0), tcp(b, a, Tcp::new(SYN | ACK, 500, 101)));
    assert_eq!(bench.state(&commit(0), tcp(a, b, Tcp::new(ACK, 101, 501))), EST);
}

#[test]
fn a_flood_ends_no_established_connection_and_other_ports_connections_begin() {
    let mut bench = Bench::new();
    let conntrack = bench.tracker.conntrack().clone();
    conntrack.set_max(2000);
    for n in 0..500 {
        establish(&mut bench, 100 + n);
    }
    for n in 0..20_000 {
        assert_eq!(syn(&mut bench, n, 1).refused, None);
        assert!(conntrack.len() <= 2000);
    }
    let before = conntrack.bytes();
    // A connection of another port opens slowly, while the flood goes on.
    let (a, b) = ((host(false, 9000), 7), (host(false, 1), 80));
    let handshake = [
        tcp(a, b, Tcp::new(SYN, 100, 0)),
        tcp(b, a, Tcp::new(SYN | ACK, 500, 101)),
        tcp(a, b, Tcp::new(ACK, 101, 501)),
    ];
    let mut states = Vec::new();
    for (step, mut bytes) in handshake.into_iter().enumerate() {
        let mut packet = Packet::new(&mut bytes, false);
        packet.in_port = 2;
        states.push(bench.tracker.track(&commit(0), &mut packet, bench.now).state);
        for n in 0..50_000 {
            syn(&mut bench, 1_000_000 * (step as u32 + 1) + n, 1);
        }
    }
    assert_eq!(states, [NEW, EST_REPLY, EST]);
    for n in 0..500 {
        let (a, b) = ((host(false, 100 + n), 1000), (host(false, 1), 80));
        assert_eq!(
            bench.state(&Request::default(), tcp(a, b, Tcp::new(ACK, 101, 501))),
            EST
        );
    }
    assert_eq!(conntrack.len(), 2000);
    assert!(
        conntrack.bytes() <= before + 64 * 256 * 128,
        "memory stays at its limit"
    );
    let counted = conntrack.statistics();
    assert_eq!(counted.created - counted.evicted, 2000);
    assert_eq!(counted.full, 0);
}

#[test]
fn where_all_are_established_new_ones_are_refused() {
    let mut bench = Bench::new();
    let conntrack = bench.tracker.conntrack().clone();
    conntrack.set_max(300);
    for n in 0..300 {
        establish(&mut bench, 100 + n);
    }
    for n in 0..100 {
        assert_eq!(syn(&mut bench, n, 1).refused, Some(conntrack::Refusal::Full));
    }
    assert_eq!((conntrack.len(), conntrack.statistics().full), (300, 100));
}

#[test]
fn a_zones_limit_is_fair_between_ports() {
    let mut bench = Bench::new();
    let conntrack = bench.tracker.conntrack().clone();
    conntrack.set_zone_limit(0, Some(100));
    for n in 0..1000 {
        assert_eq!(
            syn(&mut bench, n, 1).refused.is_none(),
            n < 100,
            "one port: first come, first served"
        );
    }
    let others: usize = (0..1000)
        .map(|n| usize::from(syn(&mut bench, 5000 + n, 2).refused.is_none()))
        .sum();
    assert_eq!(others, 50, "another port gets half");
    assert_eq!(conntrack.len(), 100);
}
