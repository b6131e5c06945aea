//! What becomes of the packets of a batch is what becomes of them one by one, where actions run on
//! whole batches: outer headers are put on and taken off, and connections are tracked.

use crate::common::{Bench, FakeSwitch, output, tag, translation};
use conntrack::Request;
use dp::{Action, DropCause, Key, PathLimit, PortNo, Track, TunnelPush};
use flow::Field;
use proptest::prelude::*;
use std::sync::Arc;
use testkit::{Packet, mac};
use tunnel::format::{Body, Encapsulation, FlowLabel, Format, Inner, Kind, Outer, SourcePorts};
use wire::MacAddr;

const PORTS: u32 = 5;
/// The port of a tunnel's packets, and of the answers to packets that are too big for a tunnel.
const TUNNEL: PortNo = PortNo(9);
const ANSWERS: PortNo = PortNo(10);

/// A tunnel of GRE, whose headers do not depend on a secret.
fn push(fragments: bool) -> Action {
    let outer = Outer {
        ethernet: Some((MacAddr([2; 6]), MacAddr([4; 6]))),
        src: [172, 31, 0, 1].into(),
        dst: [172, 31, 0, 2].into(),
        tos: 0,
        ttl: 64,
        df: !fragments,
        label: FlowLabel::Zero,
        ports: SourcePorts::default(),
    };
    let body = Body::Gre {
        id: Some(42),
        csum: true,
        sequence: false,
    };
    Action::TunnelPush(Arc::new(TunnelPush {
        port: ANSWERS,
        underlay: PortNo(11),
        kind: Kind::Gre,
        headers: Encapsulation::new(&outer, &body, Inner::Ethernet).unwrap(),
        sequence: None,
        limit: Some(PathLimit {
            mtu: 300,
            fragments,
            id: None,
            answers: true,
        }),
    }))
}

fn ct(zone: u16, commit: bool) -> Action {
    let mark = Some((zone.into(), u32::MAX)).filter(|_| commit);
    let request = Request {
        zone,
        commit,
        mark,
        ..Request::default()
    };
    let fragments = false;
    Action::Ct(Arc::new(Track { request, fragments }))
}

/// The destination says what is done with a packet.
fn answer(key: &Key) -> dp::Translation {
    let get = |field| key.get(field) as u32;
    if key.in_port() == ANSWERS {
        return translation(&[output(4)], &[Field::InPort]);
    }
    if key.in_port() == TUNNEL {
        let port = 1 + get(Field::TunId) % 3;
        return translation(&[output(port)], &[Field::InPort, Field::TunId]);
    }
    if get(Field::RecircId) != 0 {
        let port = 1 + (get(Field::CtState) / 2 + get(Field::CtMark) + get(Field::CtZone)) % 3;
        let fields = [Field::RecircId, Field::CtState, Field::CtMark, Field::CtZone];
        return translation(&[output(port)], &fields);
    }
    let actions = match get(Field::EthDst) & 0xff {
        0 => vec![push(false), output(1)],
        1 => vec![push(true), output(1)],
        2 => vec![
            Action::PushVlan(tag(5)),
            push(false),
            Action::PushVlan(tag(6)),
            output(1),
        ],
        3 => vec![ct(1, false), Action::Recirc(1)],
        4 => vec![ct(1, true), Action::Recirc(2)],
        5 => vec![ct(2, true), ct(1, false), Action::Recirc(1)],
        6 => vec![Action::TunnelPop {
            port: TUNNEL,
            format: Format::Geneve,
        }],
        _ => vec![output(1)],
    };
    translation(&actions, &[Field::InPort, Field::RecircId, Field::EthDst])
}

/// A packet for a destination: of some flow, size and tunnel, and perhaps with a wrong checksum.
fn packet((dst, flow, size, id, wrong): (u8, u8, usize, u8, bool)) -> Vec<u8> {
    let address = |last: u8| [10, 0, 0, last].into();
    let inner = |dst: u8| {
        let packet = Packet::new(mac(100), mac(dst.into()));
        let packet = packet.ipv4(address(1 + flow % 2), address(2 - flow % 2));
        packet.udp(1000, 1000, &vec![flow; size]).bytes()
    };
    let mut bytes = match dst {
        6 => {
            let body = [&[0, 0, 0x65, 0x58, 0, 0, id, 0][..], &inner(7)].concat();
            let packet = Packet::new(mac(100), mac(6)).ipv4(address(8), address(9));
            packet.udp(1000, 6081, &body).bytes()
        }
        _ => inner(dst),
    };
    bytes[24] ^= u8::from(wrong);
    bytes
}

fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![4 => 0usize..100, 1 => 200usize..400];
    let wrong = prop::bool::weighted(0.1);
    (0u8..8, 0u8..3, size, 0u8..4, wrong).prop_map(packet)
}

/// What was sent on each port, and what was dropped.
type Fate = (Vec<Vec<Vec<u8>>>, Vec<(DropCause, u64)>);

fn fate(packets: &[Vec<u8>], together: usize) -> Fate {
    let mut bench = Bench::new(PORTS, FakeSwitch::new(answer));
    packets.chunks(together).for_each(|some| bench.receive(0, some));
    let sent = (0..PORTS as usize).map(|port| bench.sent(port)).collect();
    (sent, bench.pipeline.drops())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packets_of_a_batch_fare_as_if_each_came_alone(
        packets in prop::collection::vec((any_packet(), 1usize..4), 1..100),
    ) {
        // Packets of a flow come in bursts.
        let packets: Vec<Vec<u8>> = packets
            .into_iter()
            .flat_map(|(packet, times)| std::iter::repeat_n(packet, times))
            .collect();
        let alone = fate(&packets, 1);
        prop_assert_eq!(&fate(&packets, 1000), &alone);
    }

    #[test]
    fn packets_of_a_batch_with_one_fate_do_too(
        dst in 0u8..7,
        packets in prop::collection::vec((0u8..3, 0usize..300, 0u8..4, prop::bool::weighted(0.03)), 1..100),
    ) {
        let packets: Vec<Vec<u8>> = packets
            .into_iter()
            .map(|(flow, size, id, wrong)| packet((dst, flow, size, id, wrong)))
            .collect();
        let alone = fate(&packets, 1);
        prop_assert_eq!(&fate(&packets, 1000), &alone);
    }
}
