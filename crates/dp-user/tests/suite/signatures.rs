//! The signature cache when megaflows begin, or end, to match fields behind the Ethernet header.

use crate::common::{Bench, FakeSwitch, depending, mac, number, output, packet, translation};
use dp::{Change, Dep};
use flow::Field;

/// Stations that send to each other.
const FLOWS: u32 = 500;

/// The station to which packets are looked at as far as their IPv4 header.
const DEEP: u32 = 9_999;

/// A bench that looks at addresses, and at the IPv4 header of packets to [`DEEP`].
fn bench() -> Bench {
    let switch = FakeSwitch::new(|key| {
        if key.eth_dst() == mac(DEEP) {
            let fields = [Field::InPort, Field::EthDst, Field::IpProto];
            depending(translation(&[output(1)], &fields), &[7])
        } else {
            translation(&[output(1)], &[Field::InPort, Field::EthDst])
        }
    });
    let mut bench = Bench::new(2, switch);
    let packets: Vec<_> = (1..=FLOWS).map(|flow| packet(flow, 0, flow)).collect();
    bench.receive(0, &packets);
    bench.sent(1);
    bench
}

/// Sends a packet of each flow; of how many the signature cache knew the megaflow.
fn hits(bench: &mut Bench) -> u64 {
    let before = bench.pipeline.cache_stats();
    let packets: Vec<_> = (1..=FLOWS).map(|flow| packet(flow, 0, flow)).collect();
    bench.receive(0, &packets);
    let numbers: Vec<_> = bench.sent(1).iter().map(|packet| number(packet)).collect();
    assert_eq!(numbers, (1..=FLOWS).collect::<Vec<_>>());
    let after = bench.pipeline.cache_stats();
    assert_eq!(before.upcalls, after.upcalls);
    after.exact_hits - before.exact_hits
}

#[test]
fn known_flows_stay_known_when_the_first_megaflow_looks_deeper_and_when_the_last_such_ends() {
    let mut bench = bench();
    let known = hits(&mut bench);
    assert!(known > u64::from(FLOWS) * 9 / 10, "{known}");
    for _ in 0..3 {
        bench.receive(0, &[packet(DEEP, 0, 0)]);
        bench.sent(1);
        assert!(hits(&mut bench) >= known);
        assert!(hits(&mut bench) >= known);
        bench.changes.publish(&[Change::Dep(Dep(7))]);
        bench.pipeline.housekeep(bench.now);
        assert!(hits(&mut bench) >= known);
    }
}

#[test]
fn flows_that_begin_beside_deeper_ones_are_known_when_those_end() {
    let mut bench = bench();
    bench.changes.publish(&[Change::All]);
    bench.receive(0, &[packet(DEEP, 0, 0)]);
    let packets: Vec<_> = (1..=FLOWS).map(|flow| packet(flow, 0, flow)).collect();
    bench.receive(0, &packets);
    bench.sent(1);
    let known = hits(&mut bench);
    assert!(known > u64::from(FLOWS) * 9 / 10, "{known}");
    bench.changes.publish(&[Change::Dep(Dep(7))]);
    bench.pipeline.housekeep(bench.now);
    assert!(hits(&mut bench) >= known);
}
