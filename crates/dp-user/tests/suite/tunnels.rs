//! Packets that a tunnel has received: each goes where its own key and endpoint say, whatever the
//! packets before it were.

use crate::common::{Bench, FakeSwitch, output, packet, translation};
use dp::{Action, Key, PortNo};
use flow::Field;
use proptest::prelude::*;
use tunnel::format::Format;

/// The datapath port of the tunnels.
const TUNNEL: PortNo = PortNo(9);
const PORTS: u32 = 4;

/// A packet of Geneve from an endpoint.
fn outer(id: u8, endpoint: u8, inner: &[u8]) -> Vec<u8> {
    let body = [&[0, 0, 0x65, 0x58, 0, 0, id, 0][..], inner].concat();
    let packet = testkit::Packet::new(testkit::mac(1), testkit::mac(2));
    let packet = packet.ipv4([10, 0, 0, endpoint].into(), [10, 0, 0, 9].into());
    packet.udp(1000, 6081, &body).bytes()
}

/// Where a packet goes.
fn port(id: u32, endpoint: u32, dst: u32) -> u32 {
    1 + (id + 2 * endpoint + 3 * dst) % (PORTS - 1)
}

fn answer(key: &Key) -> dp::Translation {
    if key.in_port() != TUNNEL {
        let pop = Action::TunnelPop {
            port: TUNNEL,
            format: Format::Geneve,
        };
        return translation(&[pop], &[Field::EthType]);
    }
    let get = |field| key.get(field) as u32 & 0xff;
    let port = port(get(Field::TunId), get(Field::TunSrc), get(Field::EthDst));
    translation(&[output(port)], &[Field::TunId, Field::TunSrc, Field::EthDst])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_packet_goes_where_its_own_key_and_endpoint_say(
        packets in prop::collection::vec((0u8..3, 1u8..4, 0u8..2), 1..200),
        limit in prop_oneof![Just(8usize), Just(1000)],
    ) {
        let mut bench = Bench::with(PORTS, FakeSwitch::new(answer), Default::default(), limit);
        let mut expected = vec![Vec::new(); PORTS as usize];
        let mut frames = Vec::new();
        for (number, (id, endpoint, dst)) in (0..).zip(packets) {
            frames.push(outer(id, endpoint, &packet(dst.into(), 7, number)));
            expected[port(id.into(), endpoint.into(), dst.into()) as usize].push(number);
        }
        bench.receive(0, &frames);
        for (port, expected) in expected.iter().enumerate().skip(1) {
            prop_assert_eq!(&bench.numbers(port), expected);
        }
    }
}
