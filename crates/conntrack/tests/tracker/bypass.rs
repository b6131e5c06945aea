//! Connections with packets that pass by the tracker.

use crate::packets::*;
use conntrack::{Bypass, Bypassing, Established, Filter, Helper, Nanos, Nat, Numbers, Passed};
use conntrack::{PolicyId, Protocol, Range, Request, State, TcpState, Timeout, Tuple};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A bypass that a test moves packets through.
#[derive(Default)]
struct Path(Mutex<Vec<Open>>);

#[derive(Clone, Default)]
struct Open {
    passed: Passed,
    suspended: u32,
    freed: bool,
}

impl Bypass for Path {
    fn passed(&self, number: u32) -> Passed {
        self.0.lock().unwrap()[number as usize].passed
    }

    fn note(&self, number: u32, numbers: [Numbers; 2]) {
        let own = &mut self.0.lock().unwrap()[number as usize].passed.numbers;
        *own = [0, 1].map(|n| match own[n] == Numbers::default() {
            true => numbers[n],
            false => own[n].later(numbers[n]),
        });
    }

    fn suspend(&self, number: u32) {
        self.0.lock().unwrap()[number as usize].suspended += 1;
    }

    fn free(&self, number: u32) {
        let open = &mut self.0.lock().unwrap()[number as usize];
        assert!(!std::mem::replace(&mut open.freed, true));
    }
}

impl Path {
    fn of(&self, number: u32) -> Open {
        self.0.lock().unwrap()[number as usize].clone()
    }

    /// Lets a packet pass.
    fn pass(&self, number: u32, reply: bool, bytes: u64, now: Nanos) {
        let passed = &mut self.0.lock().unwrap()[number as usize].passed;
        passed.packets[usize::from(reply)] += 1;
        passed.bytes[usize::from(reply)] += bytes;
        passed.used = now;
    }

    fn set_numbers(&self, number: u32, change: impl FnOnce(&mut [Numbers; 2])) {
        change(&mut self.0.lock().unwrap()[number as usize].passed.numbers);
    }
}

const A: fn() -> (IpAddr, u16) = || (host(false, 1), 1000);
const B: fn() -> (IpAddr, u16) = || (host(false, 2), 80);

fn tuple(protocol: u8, src: (IpAddr, u16), dst: (IpAddr, u16)) -> Tuple {
    Tuple::new(src.0, dst.0, protocol, src.1, dst.1).unwrap()
}

/// A connection with the next numbers 100 and 500, and windows of 1000.
fn established(bench: &mut Bench) {
    bench.state(&commit(0), tcp(A(), B(), Tcp::new(SYN, 99, 0)));
    bench.state(&look(0), tcp(B(), A(), Tcp::new(SYN | ACK, 499, 100)));
    assert_eq!(bench.state(&look(0), tcp(A(), B(), Tcp::new(ACK, 100, 500))), EST);
}

fn told(bench: &mut Bench, request: &Request, tuple: Tuple) -> Option<Established> {
    let now = bench.now;
    bench.tracker.established(request, &tuple, None, now)
}

fn open(bench: &mut Bench, path: &Arc<Path>) -> Option<Bypassing> {
    let id = bench.all().first()?.id;
    let path = path.clone();
    bench.tracker.bypass(id, || {
        let mut all = path.0.lock().unwrap();
        all.push(Open::default());
        let number = all.len() as u32 - 1;
        drop(all);
        Some((path as Arc<dyn Bypass>, number))
    })
}

fn data(seq: u32, ack: u32, len: usize) -> Tcp {
    Tcp {
        len,
        ..Tcp::new(ACK, seq, ack)
    }
}

#[test]
fn only_connections_that_are_established_in_both_directions_can_be_bypassed() {
    let mut bench = Bench::new();
    let path = Arc::new(Path::default());
    let there = tuple(6, A(), B());
    assert_eq!(told(&mut bench, &look(0), there), None);
    bench.state(&commit(0), tcp(A(), B(), Tcp::new(SYN, 99, 0)));
    assert!(told(&mut bench, &look(0), there).is_none() && open(&mut bench, &path).is_none());
    bench.state(&look(0), tcp(B(), A(), Tcp::new(SYN | ACK, 499, 100)));
    assert!(told(&mut bench, &look(0), there).is_none() && open(&mut bench, &path).is_none());
    bench.state(&look(0), tcp(A(), B(), Tcp::new(ACK, 100, 500)));
    let one = told(&mut bench, &look(0), there).unwrap();
    assert_eq!((one.state, one.reply, one.to), (EST, false, there));
    let other = told(&mut bench, &look(0), there.reverse()).unwrap();
    assert_eq!((other.state, other.reply, other.original), (EST_REPLY, true, there));
    assert_eq!(told(&mut bench, &look(1), there), None, "another zone");
    let force = Request {
        force: true,
        ..commit(0)
    };
    assert_eq!(told(&mut bench, &force, there), None);
    let both = [open(&mut bench, &path).unwrap(), open(&mut bench, &path).unwrap()];
    assert_eq!(both[0].number(), both[1].number());
    assert_eq!(bench.tracker.conntrack().bypassed(), 1);
    drop(both);
    assert!(path.of(0).freed && bench.tracker.conntrack().bypassed() == 0);
    bench.state(&look(0), tcp(A(), B(), Tcp::new(ACK | FIN, 100, 500)));
    assert!(told(&mut bench, &look(0), there).is_none() && open(&mut bench, &path).is_none());

    // One with a helper.
    let mut bench = Bench::new();
    let ftp = Request {
        helper: Some(Helper::Ftp),
        ..commit(0)
    };
    let server = (host(false, 2), 21);
    bench.state(&ftp, tcp(A(), server, Tcp::new(SYN, 99, 0)));
    bench.state(&look(0), tcp(server, A(), Tcp::new(SYN | ACK, 499, 100)));
    bench.state(&look(0), tcp(A(), server, Tcp::new(ACK, 100, 500)));
    assert_eq!(told(&mut bench, &look(0), tuple(6, A(), server)), None);
}

#[test]
fn a_commit_that_changes_the_mark_or_the_label_is_not_bypassed_and_one_that_does_not_is() {
    let mut bench = Bench::new();
    established(&mut bench);
    let there = tuple(6, A(), B());
    let mark = Request {
        mark: Some((5, 0xf)),
        label: Some((1 << 100, 1 << 100)),
        ..commit(0)
    };
    assert_eq!(told(&mut bench, &mark, there), None);
    bench.state(&mark, tcp(A(), B(), Tcp::new(ACK, 100, 500)));
    let told = told(&mut bench, &mark, there).unwrap();
    assert_eq!((told.mark, told.label), (5, 1 << 100));
}

#[test]
fn what_passes_by_keeps_the_connection_and_is_counted() {
    let mut bench = Bench::new();
    let path = Arc::new(Path::default());
    bench.state(&commit(0), udp(A(), B(), b""));
    assert!(open(&mut bench, &path).is_none(), "without an answer");
    bench.state(&look(0), udp(B(), A(), b""));
    let bypassing = open(&mut bench, &path).unwrap();
    for _ in 0..10 {
        bench.now += Duration::from_secs(29);
        path.pass(0, false, 100, bench.now);
        bench.now += Duration::from_secs(29);
        path.pass(0, true, 200, bench.now);
    }
    bench.now += Duration::from_secs(20);
    assert_eq!(bench.sweep(), 0);
    let shown = bench.all();
    assert_eq!(shown[0].expires_in, Duration::from_secs(10));
    assert_eq!((shown[0].packets, shown[0].bytes), ([11, 11], [1028, 2028]));
    bench.now += Duration::from_secs(20);
    path.pass(0, true, 200, bench.now);
    assert_eq!(bench.state(&look(0), udp(A(), B(), b"")), EST, "a lookup sees it too");
    drop(bypassing);
    assert_eq!(bench.all()[0].packets, [12, 12]);
    let bypassing = open(&mut bench, &path).unwrap();
    bench.now += Duration::from_secs(31);
    assert_eq!((bench.sweep(), path.of(1).suspended), (1, 1));
    drop(bypassing);
    assert!(path.of(1).freed);
}

#[test]
fn packets_that_come_here_meet_the_numbers_of_those_that_passed_by() {
    let mut bench = Bench::new();
    let path = Arc::new(Path::default());
    established(&mut bench);
    let _bypassing = open(&mut bench, &path).unwrap();
    // Both have sent much, and acknowledged it.
    path.set_numbers(0, |sides| {
        sides[0] = Numbers {
            low: 1_000_100,
            high: 1_001_100,
            window: 1000,
        };
        sides[1] = Numbers {
            low: 2_000_500,
            high: 2_001_500,
            window: 1000,
        };
    });
    path.pass(0, false, 1_000_000, bench.now);
    for flags in [RST, RST | ACK] {
        for seq in [100, 1_000_050, 1_000_102, 1_001_101] {
            let state = bench.state(&look(0), tcp(A(), B(), Tcp::new(flags, seq, 2_000_500)));
            assert_eq!(state, INVALID, "{seq}");
        }
    }
    assert_eq!(
        bench.state(&look(0), tcp(A(), B(), data(100, 500, 10))),
        INVALID,
        "data from before"
    );
    assert_eq!(
        bench.state(&look(0), tcp(A(), B(), data(1_001_100, 2_000_500, 1))),
        INVALID
    );
    assert_eq!(path.of(0).suspended, 0, "none of them had an effect");
    assert_eq!(
        bench.state(&look(0), tcp(A(), B(), data(1_000_100, 2_000_600, 50))),
        EST
    );
    let numbers = path.of(0).passed.numbers;
    assert_eq!(
        (numbers[0].low, numbers[1].high),
        (1_000_150, 2_001_600),
        "it is told of that packet"
    );
    assert_eq!(path.of(0).suspended, 0);
    let state = bench.state(&look(0), tcp(A(), B(), Tcp::new(ACK | FIN, 1_000_150, 2_000_600)));
    assert_eq!((state, path.of(0).suspended), (EST, 1));
}

#[test]
fn the_tracker_catches_up_with_any_number_of_bytes() {
    for gib in [1, 2, 3, 5, 6, 7] {
        let mut bench = Bench::new();
        let path = Arc::new(Path::default());
        established(&mut bench);
        let _bypassing = open(&mut bench, &path).unwrap();
        let far = (gib << 30) as u32;
        path.set_numbers(0, |sides| {
            sides[0].low = sides[0].low.wrapping_add(far);
            sides[0].high = sides[0].high.wrapping_add(far);
        });
        path.pass(0, false, gib << 30, bench.now);
        let next = 100_u32.wrapping_add(far);
        let before = data(next.wrapping_sub(far / 2), 500, 10);
        assert_eq!(bench.state(&look(0), tcp(A(), B(), before)), INVALID, "{gib}");
        assert_eq!(bench.state(&look(0), tcp(A(), B(), data(next, 500, 10))), EST, "{gib}");
        let next = next.wrapping_add(10);
        assert_eq!(path.of(0).passed.numbers[0].low, next, "{gib}");
        let fin = Tcp::new(ACK | FIN, next, 500);
        assert_eq!(
            (bench.state(&look(0), tcp(A(), B(), fin)), path.of(0).suspended),
            (EST, 1),
            "{gib}"
        );
    }
}

#[test]
fn a_packet_that_passed_by_while_the_connection_ended_does_not_keep_it() {
    let mut bench = Bench::new();
    let path = Arc::new(Path::default());
    established(&mut bench);
    let bypassing = open(&mut bench, &path).unwrap();
    bench.now += Duration::from_secs(1);
    assert_eq!(bench.state(&look(0), tcp(B(), A(), Tcp::new(RST, 500, 0))), EST_REPLY);
    path.pass(0, false, 100, bench.now);
    let ends_in = |bench: &mut Bench| bench.all()[0].expires_in;
    assert_eq!(ends_in(&mut bench), Duration::from_secs(30));
    drop(bypassing);
    assert_eq!(ends_in(&mut bench), Duration::from_secs(30));
    assert_eq!(bench.all()[0].packets, [3, 2]);
}

#[test]
fn every_change_of_a_connection_suspends_its_bypass() {
    type Change = fn(&mut Bench);
    let changes: [(&str, Change); 9] = [
        ("fin", |bench| {
            _ = bench.state(&look(0), tcp(A(), B(), Tcp::new(ACK | FIN, 100, 500)))
        }),
        ("rst", |bench| {
            _ = bench.state(&look(0), tcp(B(), A(), Tcp::new(RST, 500, 0)))
        }),
        ("mark", |bench| {
            let mark = Request {
                mark: Some((5, 5)),
                ..commit(0)
            };
            bench.state(&mark, tcp(A(), B(), Tcp::new(ACK, 100, 500)));
        }),
        ("label", |bench| {
            let label = Request {
                label: Some((5, 5)),
                ..commit(0)
            };
            bench.state(&label, tcp(A(), B(), Tcp::new(ACK, 100, 500)));
        }),
        ("flush", |bench| assert_eq!(bench.tracker.flush(&Filter::default()), 1)),
        ("policy", |bench| bench.tracker.conntrack().set_policy(PolicyId(3), &[])),
        ("no policy", |bench| {
            _ = bench.tracker.conntrack().remove_policy(PolicyId(3))
        }),
        ("checks", |bench| bench.tracker.conntrack().set_check_sequence(false)),
        ("force", |bench| {
            let force = Request {
                force: true,
                ..commit(0)
            };
            bench.state(&force, tcp(B(), A(), Tcp::new(ACK, 500, 100)));
        }),
    ];
    for (name, change) in changes {
        let mut bench = Bench::new();
        let path = Arc::new(Path::default());
        established(&mut bench);
        let _bypassing = open(&mut bench, &path).unwrap();
        bench.state(&look(0), tcp(A(), B(), data(100, 500, 10)));
        let same = Request {
            mark: Some((0, 5)),
            ..commit(0)
        };
        bench.state(&same, tcp(A(), B(), data(110, 500, 10)));
        assert_eq!(path.of(0).suspended, 0, "{name}");
        change(&mut bench);
        assert_eq!(path.of(0).suspended, 1, "{name}");
    }
}

#[test]
fn a_new_timeout_counts_from_the_next_packet_on() {
    let mut bench = Bench::new();
    let path = Arc::new(Path::default());
    bench.state(&commit(0), udp(A(), B(), b""));
    bench.state(&look(0), udp(B(), A(), b""));
    let _bypassing = open(&mut bench, &path).unwrap();
    bench.now += Duration::from_secs(10);
    path.pass(0, false, 100, bench.now);
    bench.now += Duration::from_secs(5);
    bench
        .tracker
        .conntrack()
        .set_policy(PolicyId(0), &[(Timeout::UdpMultiple, 100)]);
    assert_eq!(bench.all()[0].expires_in, Duration::from_secs(25));
    path.pass(0, false, 100, bench.now);
    assert_eq!(bench.all()[0].expires_in, Duration::from_secs(100));
}

#[test]
fn a_translated_connection_is_told_with_the_tuple_that_its_packets_get() {
    let mut bench = Bench::new();
    let new = host(false, 9);
    let nat = Request {
        nat: Some(Nat::Source(Range {
            addresses: Some((new, new)),
            ports: Some((7000, 7000)),
            ..Range::default()
        })),
        ..commit(0)
    };
    let existing = Request {
        nat: Some(Nat::Existing),
        ..look(0)
    };
    bench.state(&nat, udp(A(), B(), b""));
    bench.state(&existing, udp(B(), (new, 7000), b""));
    let there = told(&mut bench, &existing, tuple(17, A(), B())).unwrap();
    assert_eq!(there.to, tuple(17, (new, 7000), B()));
    assert!(there.state.has(State::SNAT));
    let back = told(&mut bench, &nat, tuple(17, B(), (new, 7000))).unwrap();
    assert_eq!((back.to, back.reply), (tuple(17, B(), A()), true));
    let plain = told(&mut bench, &look(0), tuple(17, A(), B())).unwrap();
    assert_eq!(plain.to, tuple(17, A(), B()), "without nat nothing is translated");
}

#[test]
fn a_number_is_not_used_for_a_later_connection_of_the_same_tuple() {
    let mut bench = Bench::new();
    let path = Arc::new(Path::default());
    established(&mut bench);
    let first = open(&mut bench, &path).unwrap();
    bench.tracker.flush(&Filter::default());
    established(&mut bench);
    let second = open(&mut bench, &path).unwrap();
    assert_ne!(first.number(), second.number());
    path.pass(0, false, 100, bench.now);
    drop(first);
    let shown = bench.all();
    assert_eq!(shown[0].packets, [2, 1], "what passed was of the first");
    let both = [TcpState::Established; 2];
    assert!(matches!(shown[0].protocol, Protocol::Tcp { states, .. } if states == both));
    assert_eq!(path.of(1).suspended, 0);
}
