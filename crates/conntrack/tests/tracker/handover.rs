//! Connections that a process leaves to the next one.

use crate::packets::*;
use conntrack::{Connection, Conntrack, Helper, Nanos, Nat, PolicyId, Range, Request, State, TakenOver};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const CLIENT: fn(bool) -> (IpAddr, u16) = |v6| (host(v6, 1), 4000);
const SERVER: fn(bool) -> (IpAddr, u16) = |v6| (host(v6, 2), 80);
const OUTSIDE: fn(bool) -> IpAddr = |v6| host(v6, 200);

fn translated(zone: u16, v6: bool) -> Request {
    let range = Range {
        addresses: Some((OUTSIDE(v6), OUTSIDE(v6))),
        ..Range::default()
    };
    Request {
        nat: Some(Nat::Source(range)),
        mark: Some((7, u32::MAX)),
        label: Some((1 << 100 | 5, u128::MAX)),
        ..commit(zone)
    }
}

fn existing(zone: u16) -> Request {
    Request {
        nat: Some(Nat::Existing),
        ..look(zone)
    }
}

/// A tracker without connections.
fn empty() -> (Arc<Conntrack>, Bench) {
    let shared = Conntrack::new(9);
    let tracker = shared.tracker();
    let now = Nanos::from_secs(3);
    (shared, Bench { tracker, now })
}

/// Connections of all protocols and of both families, translated in zone 1, in several states.
fn busy() -> Bench {
    let mut bench = Bench::new();
    for v6 in [false, true] {
        let (a, b, outside) = (CLIENT(v6), SERVER(v6), (OUTSIDE(v6), 4000));
        bench.state(&translated(1, v6), tcp(a, b, Tcp::new(SYN, 99, 0)));
        bench.state(&existing(1), tcp(b, outside, Tcp::new(SYN | ACK, 499, 100)));
        let last = bench.state(&existing(1), tcp(a, b, Tcp::new(ACK, 100, 500)));
        assert_eq!(last, EST | State::SNAT);
        bench.state(&translated(1, v6), udp(a, b, b"there"));
        bench.state(&existing(1), udp(b, outside, b"back"));
        bench.state(&commit(2), udp(a, b, b"not answered"));
        bench.state(&commit(2), echo(a.0, b.0, false, 9));
        bench.state(&commit(2), sctp(a, b, 0, 1, 7));
        bench.state(&commit(2), ip(a.0, b.0, 47, vec![0; 8], None));
        let control = Request {
            helper: Some(Helper::Ftp),
            ..commit(3)
        };
        bench.state(&control, tcp(a, (b.0, 21), Tcp::new(SYN, 99, 0)));
    }
    bench
}

fn records(bench: &mut Bench) -> Vec<u8> {
    let mut all = Vec::new();
    let number = bench.tracker.hand_over(false, bench.now, |record| {
        all.extend_from_slice(record);
        Ok::<(), ()>(())
    });
    assert_eq!(number, Ok(bench.all().len()));
    all
}

fn take_over(bench: &mut Bench, records: &[u8], ago: u64) -> TakenOver {
    let ago = Duration::from_secs(ago);
    bench
        .tracker
        .take_over(records, false, ago, bench.now, |zone| PolicyId(zone % 5000 * 10))
}

/// What does not depend on where connections are in memory, in an order of its own.
fn told(bench: &mut Bench) -> Vec<String> {
    let tell = |c: &Connection| {
        let rest = (
            c.mark,
            c.label,
            c.protocol,
            c.expires_in,
            c.in_port,
            c.assured,
            c.helper,
        );
        let counts = (c.packets, c.bytes, c.parent);
        format!("{} {:?} {:?} {rest:?} {counts:?}", c.zone, c.original, c.reply)
    };
    let mut all: Vec<String> = bench.all().iter().map(tell).collect();
    all.sort();
    all
}

#[test]
fn connections_of_every_protocol_go_on_as_they_were() {
    let mut before = busy();
    let all = records(&mut before);
    let (_, mut after) = empty();
    let done = take_over(&mut after, &all, 0);
    assert_eq!((done.connections, done.refused), (before.all().len(), 0));
    assert_eq!(told(&mut after), told(&mut before));
    let policies = after.all().iter().all(|c| c.policy == PolicyId(c.zone * 10));
    assert!(policies);
    for v6 in [false, true] {
        let (a, b, outside) = (CLIENT(v6), SERVER(v6), (OUTSIDE(v6), 4000));
        // The translation is undone, numbers are still checked, and labels are there.
        let mut answer = tcp(b, outside, Tcp::new(ACK, 500, 100));
        let outcome = after.pass(&existing(1), &mut answer);
        assert_eq!((outcome.state, outcome.label), (EST_REPLY | State::SNAT, 1 << 100 | 5));
        assert_eq!(ends(&answer), (b, a));
        let far = tcp(b, outside, Tcp::new(RST, 1 << 30, 100));
        assert_eq!(after.state(&existing(1), far), INVALID);
        let mut datagram = udp(a, b, b"again");
        assert_eq!(after.pass(&existing(1), &mut datagram).state, EST | State::SNAT);
        assert_eq!(ends(&datagram), (outside, b));
        // Who was not answered is still new.
        assert_eq!(after.state(&look(2), udp(a, b, b"not answered")), NEW);
        assert_eq!(after.state(&look(2), echo(b.0, a.0, true, 9)), EST_REPLY);
    }
}

#[test]
fn time_passes_between_two_processes_and_limits_are_those_of_the_second_one() {
    let mut before = busy();
    let all = records(&mut before);
    let number = before.all().len();
    let (_, mut after) = empty();
    // TCP that is established lasts for a day, nothing else for more than some minutes.
    let done = take_over(&mut after, &all, 3600);
    assert_eq!((done.connections, done.refused), (2, number - 2));
    let in_hours: Vec<_> = after.all().iter().map(|c| c.expires_in.as_secs() / 3600).collect();
    assert_eq!(in_hours, [23; 2]);

    let (shared, mut small) = empty();
    shared.set_max(3);
    assert_eq!(take_over(&mut small, &all, 0).connections, 3);
    assert_eq!(shared.len(), 3);
    // Nothing is there twice.
    let (shared, mut twice) = empty();
    take_over(&mut twice, &all, 0);
    let again = take_over(&mut twice, &all, 0);
    assert_eq!((again.connections, again.refused), (0, number));
    assert_eq!(shared.len(), number);
}

#[test]
fn records_that_are_cut_off_or_changed_are_left_out() {
    let mut before = busy();
    let all = records(&mut before);
    let mut last = 0;
    for len in 0..=all.len() {
        let (_, mut after) = empty();
        let done = take_over(&mut after, &all[..len], 0);
        assert!(done.refused == 0 && done.connections >= last && done.connections <= last + 1);
        last = done.connections;
    }
    assert_eq!(last, before.all().len());
    for at in 0..all.len() {
        let mut wrong = all.clone();
        wrong[at] ^= 0x81;
        let (shared, mut after) = empty();
        let done = take_over(&mut after, &wrong, 0);
        assert_eq!(shared.len(), done.connections);
        assert_eq!(after.all().len(), done.connections);
    }
}
