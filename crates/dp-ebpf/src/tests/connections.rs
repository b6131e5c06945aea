//! The program decides about packets of connections as the tracker does.

use super::tunnels::{outer_headers, udp_sum};
use super::*;
use conntrack::{Bypassing, Conntrack, Cursor, Protocol, Request, State, TcpState, Tracker};
use dp::offload::{FlowConnection, NewHeaders};

const SYN: u8 = 2;
const ACK: u8 = 16;

/// A packet of TCP between two hosts; `shift` is an option of the window scale.
#[derive(Clone, Copy, Debug)]
struct Segment {
    reply: bool,
    flags: u8,
    seq: u32,
    ack: u32,
    window: u16,
    len: usize,
    shift: Option<u8>,
}

impl Segment {
    fn packet(&self, v6: bool) -> Vec<u8> {
        let (src, dst) = if self.reply { (2, 1) } else { (1, 2) };
        let (from, to) = if self.reply { (80, 1000) } else { (1000, 80) };
        let options = self.shift.map_or(vec![], |shift| vec![1, 3, 3, shift]);
        let mut body = [u16::to_be_bytes(from), u16::to_be_bytes(to)].concat();
        body.extend(self.seq.to_be_bytes());
        body.extend(self.ack.to_be_bytes());
        body.extend([(5 + options.len() as u8 / 4) << 4, self.flags]);
        body.extend(self.window.to_be_bytes());
        body.extend([0; 4]);
        body.extend(options);
        body.resize(body.len() + self.len, 0x55);
        let packet = Packet::new(mac(src), mac(dst));
        match v6 {
            false => packet.ipv4([10, 0, 0, src as u8].into(), [10, 0, 0, dst as u8].into()),
            true => packet.ipv6(u128::from(src).into(), u128::from(dst).into()),
        }
        .protocol(6, &body)
        .bytes()
    }
}

const START: Nanos = Nanos(1 << 62);

fn track(tracker: &mut Tracker, request: &Request, segment: &Segment, v6: bool) -> State {
    let mut packet = segment.packet(v6);
    let mut packet = conntrack::Packet {
        checksum: conntrack::Checksum::Good,
        ..conntrack::Packet::new(&mut packet[14..], v6)
    };
    tracker.track(request, &mut packet, START).state
}

/// The connection of a tracker.
fn only(tracker: &mut Tracker) -> conntrack::Connection {
    let mut found = Vec::new();
    tracker.connections(Cursor::default(), usize::MAX >> 1, START, &mut found);
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// A tracker with an established connection, whose next numbers are 100 and 500.
fn established(shifts: [Option<u8>; 2], check: bool, v6: bool) -> Tracker {
    let mut tracker = Conntrack::new(1).tracker();
    tracker.conntrack().set_check_sequence(check);
    let commit = Request {
        commit: true,
        ..Request::default()
    };
    let first = Segment {
        reply: false,
        flags: SYN,
        seq: 99,
        ack: 0,
        window: 1000,
        len: 0,
        shift: shifts[0],
    };
    track(&mut tracker, &commit, &first, v6);
    let second = Segment {
        reply: true,
        flags: SYN | ACK,
        seq: 499,
        ack: 100,
        shift: shifts[1],
        ..first
    };
    track(&mut tracker, &Request::default(), &second, v6);
    let third = Segment {
        flags: ACK,
        seq: 100,
        ack: 500,
        shift: None,
        ..first
    };
    track(&mut tracker, &Request::default(), &third, v6);
    tracker
}

fn bypass(tracker: &mut Tracker, table: &Arc<OffloadTable>) -> Bypassing {
    let id = only(tracker).id;
    let open = || Some((table.clone() as Arc<dyn conntrack::Bypass>, table.connection()?));
    tracker.bypass(id, open).unwrap()
}

/// The flow of a direction of the connection.
fn open(
    port: &Arc<OffloadPort>,
    exit: &Arc<OffloadPort>,
    tracker: &mut Tracker,
    bypassing: &Bypassing,
    packet: &[u8],
) -> OffloadedFlow {
    let kind = port.kind(packet).unwrap();
    let tuple = NewHeaders::of(&kind).tuple().unwrap();
    let known = tracker.established(&Request::default(), &tuple, None, START).unwrap();
    let connection = FlowConnection {
        number: bypassing.number(),
        reply: known.reply,
        tcp: known.tcp,
    };
    let connections = [connection];
    let steps = Steps {
        connections: &connections,
        ..Steps::default()
    };
    let epochs = [connection.epoch()];
    let sum = port.sum([exit].into_iter(), &epochs);
    let flow = port.open(&[(exit, LONG)], kind, steps, &epochs, sum).unwrap();
    settle(&flow);
    flow
}

fn segments() -> impl Strategy<Value = (bool, u8, i64, i64, u16, usize)> {
    let flags = prop_oneof![
        20 => Just(ACK),
        4 => Just(ACK | 8),
        2 => Just(ACK | 4),
        1 => Just(4),
        1 => Just(ACK | 1),
        1 => Just(SYN),
        1 => Just(SYN | ACK),
        1 => any::<u8>(),
    ];
    let offset = || {
        prop_oneof![
            6 => -2..3_i64,
            3 => -1500..1500_i64,
            2 => -70_000..70_000_i64,
            1 => any::<i32>().prop_map(i64::from),
        ]
    };
    let len = prop_oneof![2 => Just(0_usize), 2 => 1..1400_usize];
    let window = prop_oneof![1000..1100_u16, any::<u16>()];
    (any::<bool>(), flags, offset(), offset(), window, len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// Of two trackers one sees all packets, the other one those that the program does not take.
    /// The program takes those that the first one takes for packets of the connection, and that
    /// change no state. In the end both know the same.
    #[test]
    fn packets_pass_by_as_they_would_pass_the_tracker(
        packets in prop::collection::vec(segments(), 1..60),
        shifts in prop_oneof![
            Just([None; 2]),
            Just([Some(0), Some(7)]),
            Just([Some(14), Some(3)]),
            Just([Some(2), None]),
        ],
        check in any::<bool>(),
        v6 in any::<bool>(),
    ) {
        static LOADED: LazyLock<Option<(Arc<OffloadTable>, Arc<Ebpf>)>> = LazyLock::new(table);
        let Some((table, ebpf)) = &*LOADED else {
            testkit::say_skipped(module_path!(), "needs the right to load BPF programs");
            return Ok(());
        };
        let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
        let [mut all, mut rest] = [established(shifts, check, v6), established(shifts, check, v6)];
        let bypassing = bypass(&mut rest, table);
        let segment = |reply| Segment { reply, flags: ACK, seq: 0, ack: 0, window: 0, len: 0, shift: None };
        let flows = [false, true].map(|reply| {
            open(&port, &exit, &mut rest, &bypassing, &segment(reply).packet(v6))
        });
        // The next numbers of both sides, as long as all is well.
        let mut next = [100_u32, 500];
        let mut taken = 0;
        for (reply, flags, seq, ack, window, len) in packets {
            let (own, peer) = (usize::from(reply), usize::from(!reply));
            let segment = Segment {
                reply,
                flags,
                seq: next[own].wrapping_add(seq as u32),
                ack: next[peer].wrapping_add(ack as u32),
                window,
                len,
                shift: None,
            };
            let is_established = |tracker: &mut Tracker| matches!(
                only(tracker).protocol,
                Protocol::Tcp { states, .. } if states == [TcpState::Established; 2]
            );
            let before = is_established(&mut all);
            if !before {
                prop_assert_eq!(ebpf.takes(&segment.packet(v6)), Some(false));
                break;
            }
            let state = track(&mut all, &Request::default(), &segment, v6);
            let plain = flags & 0x17 == ACK;
            let expected = plain && state.has(State::EST) && !state.has(State::INV);
            let takes = ebpf.takes(&segment.packet(v6)).unwrap();
            prop_assert_eq!(takes, expected, "{:?} {:?}", segment, state);
            taken += u64::from(takes);
            if !takes {
                let same = track(&mut rest, &Request::default(), &segment, v6);
                prop_assert_eq!(same, state, "{:?}", segment);
            }
            if state.has(State::EST) && !state.has(State::INV) && seq == 0 {
                next[own] = next[own].wrapping_add(len as u32);
            }
            let both = [&mut all, &mut rest].map(only);
            prop_assert_eq!(&both[0].protocol, &both[1].protocol);
            prop_assert_eq!((both[0].packets, both[0].bytes), (both[1].packets, both[1].bytes));
        }
        prop_assert_eq!(flows.iter().map(|flow| flow.carried().packets).sum::<u64>(), taken);
        drop(flows);
        drop(bypassing);
        prop_assert_eq!(only(&mut all).packets, only(&mut rest).packets);
    }
}

#[test]
fn a_change_of_the_connection_gives_its_packets_back_at_once() {
    let Some((table, ebpf)) = table() else {
        skip!("needs the right to load BPF programs");
    };
    let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
    let mut tracker = established([None; 2], true, false);
    let bypassing = bypass(&mut tracker, &table);
    let data = Segment {
        reply: false,
        flags: ACK,
        seq: 100,
        ack: 500,
        window: 1000,
        len: 10,
        shift: None,
    };
    let flow = open(&port, &exit, &mut tracker, &bypassing, &data.packet(false));
    assert_eq!(ebpf.takes(&data.packet(false)), Some(true));
    let before = table.connection_epoch(bypassing.number());
    tracker.flush(&conntrack::Filter::default());
    assert_eq!(table.connection_epoch(bypassing.number()), before + 1);
    assert_eq!(ebpf.takes(&data.packet(false)), Some(false));
    drop((flow, bypassing));
    assert_eq!(tracker.conntrack().bypassed(), 0);
}

/// An address of a host.
fn host(v6: bool, n: u8) -> std::net::IpAddr {
    match v6 {
        false => [10, 0, 0, n].into(),
        true => Ipv6Addr::from(u128::from(n)).into(),
    }
}

/// A packet between two addresses and ports, with right checksums, and without one where that is
/// possible and `sum` is false.
fn packet(v6: bool, protocol: u8, tuple: &conntrack::Tuple, body: &[u8], sum: bool) -> Vec<u8> {
    let packet = Packet::new(mac(1), mac(2));
    let packet = match (tuple.src(), tuple.dst()) {
        (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => packet.ipv4(src, dst),
        (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => packet.ipv6(src, dst),
        _ => unreachable!(),
    };
    let (from, to) = (tuple.src_port(), tuple.dst_port());
    let mut packet = match protocol {
        6 => packet.tcp(from, to, ACK, body),
        _ => packet.udp(from, to, body),
    }
    .bytes();
    let at = (if v6 { 54 } else { 34 }) + if protocol == 6 { 16 } else { 6 };
    packet[at..at + 2].fill(0);
    if sum {
        let sum = transport_sum(&packet, v6);
        packet[at..at + 2].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
    }
    packet
}

/// The checksum of a transport header with its pseudo header: 0 of one with the right checksum.
fn transport_sum(packet: &[u8], v6: bool) -> u16 {
    let (l4, addresses, protocol) = match v6 {
        false => (34, 26..34, packet[23]),
        true => (54, 22..54, packet[20]),
    };
    let len = (packet.len() - l4) as u16;
    let pseudo = [&packet[addresses], &[0, protocol], &len.to_be_bytes(), &packet[l4..]];
    testkit::checksum(&pseudo.concat())
}

#[test]
fn packets_leave_with_new_headers_and_right_checksums() {
    let Some((table, ebpf)) = table() else {
        skip!("needs the right to load BPF programs");
    };
    let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
    let outers = [false, true].map(|csum| outer_headers(csum, None));
    let pushes = [None, Some(&outers[0]), Some(&outers[1])].map(|push| push.filter(|_| ebpf.adds_outer));
    for (v6, protocol) in [(false, 6), (false, 17), (true, 6), (true, 17)] {
        let tuple = |a, b, from, to| conntrack::Tuple::new(host(v6, a), host(v6, b), protocol, from, to).unwrap();
        let old = tuple(1, 2, 1000, 80);
        for new in [
            old,
            tuple(9, 2, 1000, 80),
            tuple(1, 2, 7, 80),
            tuple(200, 201, 65_535, 1),
        ] {
            for (router, push) in [false, true]
                .into_iter()
                .flat_map(|router| pushes.map(|push| (router, push)))
            {
                let first = packet(v6, protocol, &old, b"", true);
                let mut headers = NewHeaders::of(&port.kind(&first).unwrap());
                headers.set_tuple(&new);
                if router {
                    for (field, value) in [
                        (flow::Field::IpTtl, 63),
                        (flow::Field::EthSrc, 7),
                        (flow::Field::EthDst, 8),
                    ] {
                        headers
                            .set(&dp::SetField::new(field, value, u128::MAX).unwrap())
                            .unwrap();
                    }
                }
                if !headers.differ() {
                    continue;
                }
                let steps = Steps {
                    headers: Some(&headers),
                    push,
                    ..Steps::default()
                };
                let outer = push.map_or(0, |push| push.bytes().len());
                let kind = port.kind(&first).unwrap();
                let flow = port.open(&[(&exit, LONG)], kind, steps, &[], port.sum([&exit].into_iter(), &[]));
                let flow = flow.unwrap();
                settle(&flow);
                for body in [vec![], vec![0; 1], vec![0xff; 999], (0..=255).collect()] {
                    let sent = packet(v6, protocol, &old, &body, true);
                    let mut expected = packet(v6, protocol, &new, &body, true);
                    if router {
                        expected[..12].copy_from_slice(&headers.after()[..12]);
                        expected[if v6 { 21 } else { 22 }] = 63;
                        if !v6 {
                            expected[24..26].fill(0);
                            let sum = testkit::checksum(&expected[14..34]);
                            expected[24..26].copy_from_slice(&sum.to_be_bytes());
                        }
                    }
                    let case = format!("{v6} {protocol} {new:?} {router} {outer} {}", body.len());
                    let mut whole = ebpf.forwards(&sent).expect(&case);
                    if push.is_some_and(|push| push.has_checksum()) {
                        assert_eq!(udp_sum(&whole), 0, "{case}");
                    }
                    let forwarded = whole.split_off(outer);
                    assert_eq!(transport_sum(&forwarded, v6), 0, "{case}");
                    assert_eq!(forwarded, expected, "{case}");
                }
                if protocol == 17 && !v6 {
                    let sent = packet(v6, protocol, &old, b"no checksum", false);
                    assert_eq!(ebpf.forwards(&sent).unwrap().split_off(outer)[40..42], [0, 0]);
                }
                drop(flow);
            }
        }
    }
}

#[test]
fn datagrams_that_the_tracker_does_not_take_come_to_the_worker() {
    let Some((table, ebpf)) = table() else {
        skip!("needs the right to load BPF programs");
    };
    let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
    for v6 in [false, true] {
        let there = conntrack::Tuple::new(host(v6, 1), host(v6, 2), 17, 1000, 53).unwrap();
        let mut tracker = Conntrack::new(1).tracker();
        let commit = Request {
            commit: true,
            ..Request::default()
        };
        let mut track = |mut packet: Vec<u8>| {
            let mut packet = conntrack::Packet::new(&mut packet[14..], v6);
            tracker.track(&commit, &mut packet, START).state
        };
        track(packet(v6, 17, &there, b"there", true));
        track(packet(v6, 17, &there.reverse(), b"back", true));
        let sent = packet(v6, 17, &there, b"there", true);
        let len_at = if v6 { 58 } else { 38 };
        let with_len = |len: u16| {
            let mut packet = packet(v6, 17, &there, b"there", true);
            packet[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
            packet
        };
        let lens = [0, 7, 8, 13, 14, 65_535];
        let invalid = lens.map(|len| {
            let mut packet = with_len(len);
            let mut packet = conntrack::Packet {
                checksum: conntrack::Checksum::Good,
                ..conntrack::Packet::new(&mut packet[14..], v6)
            };
            tracker.track(&commit, &mut packet, START).state.has(State::INV)
        });
        let bypassing = bypass(&mut tracker, &table);
        let flow = open(&port, &exit, &mut tracker, &bypassing, &sent);
        assert_eq!(ebpf.takes(&sent), Some(true));
        for (len, invalid) in lens.into_iter().zip(invalid) {
            assert_eq!(ebpf.takes(&with_len(len)), Some(!invalid), "{v6} {len}");
        }
        drop((flow, bypassing));
    }
}
