//! Reports of megaflows' counters to the switch.

use crate::common::{Bench, FakeSwitch, credited, depending, dummy, output, packet, translation};
use dp::{Change, Datapath, Dep, PortNo};
use dp_user::{DpUser, Options};
use flow::Field;
use nanos::Nanos;
use std::sync::Arc;
use std::time::Duration;

/// Credits 1 and the station's number to megaflows of a station each.
fn counting() -> Arc<FakeSwitch> {
    FakeSwitch::new(|key| {
        let dst = key.get(Field::EthDst) & 0xffff;
        let answer = depending(translation(&[output(1)], &[Field::EthDst]), &[dst as u64]);
        credited(answer, &[1, dst])
    })
}

#[test]
fn every_packet_is_reported_once_that_of_the_upcall_too() {
    let mut bench = Bench::new(2, counting());
    let packets: Vec<_> = (0..100).map(|n| packet(10 + n % 10, 9, n)).collect();
    bench.receive(0, &packets);
    let begun = bench.now;
    bench.pipeline.push_stats(bench.now);
    assert_eq!(bench.switch.credited(1), (100, 6000, begun));
    assert_eq!(bench.switch.credited(10), (10, 600, begun));
    bench.pipeline.push_stats(bench.now);
    assert_eq!(bench.switch.credited(1), (100, 6000, begun));

    bench.now += Duration::from_millis(300);
    bench.receive(0, &packets[..25]);
    bench.pipeline.push_stats(bench.now);
    assert_eq!(bench.switch.credited(1), (125, 7500, bench.now));
    assert_eq!(bench.switch.credited(14), (13, 780, bench.now));
    assert_eq!(bench.switch.credited(15), (12, 720, bench.now));
}

#[test]
fn reports_come_by_themselves_within_a_second_or_so() {
    let mut bench = Bench::new(2, counting());
    bench.receive(0, &[packet(10, 9, 0)]);
    bench.housekeep();
    for n in 1..50 {
        bench.now += Duration::from_millis(100);
        bench.receive(0, &[packet(10, 9, n)]);
        bench.housekeep();
        let (_, _, used) = bench.switch.credited(10);
        assert!(
            bench.now.since(used) <= Duration::from_millis(1100),
            "{used:?} at {:?}",
            bench.now
        );
    }
}

#[test]
fn a_megaflow_that_goes_reports_first() {
    let mut bench = Bench::new(2, counting());
    bench.receive(0, &[packet(10, 9, 0), packet(10, 9, 1), packet(11, 9, 2)]);
    bench.changes.publish(&[Change::Dep(Dep(10))]);
    bench.receive(0, &[packet(10, 9, 3)]);
    bench.changes.publish(&[Change::All]);
    bench.now += Duration::from_secs(2);
    bench.housekeep();
    assert_eq!(bench.switch.credited(1), (4, 240, Nanos::from_secs(1)));
    assert_eq!(bench.switch.credited(10).0, 3);

    // Through eviction, too.
    let mut bench = Bench::with(2, counting(), Arc::default(), 8);
    let packets: Vec<_> = (0..1000).map(|n| packet(10 + n / 2, 9, n)).collect();
    bench.receive(0, &packets);
    bench.pipeline.push_stats(bench.now);
    assert_eq!(bench.switch.credited(1), (1000, 60_000, bench.now));
    assert_eq!(bench.switch.credited(11).0, 2);
}

#[test]
fn what_a_flush_of_many_megaflows_held_is_reported_before_statistics_are_answered() {
    let mut bench = Bench::new(2, counting());
    for first in (0..20_000).step_by(1000) {
        bench.receive(
            0,
            &(first..first + 1000).map(|n| packet(10 + n, 9, n)).collect::<Vec<_>>(),
        );
    }
    bench.changes.publish(&[Change::All]);
    bench.receive(0, &[packet(10, 9, 0)]);
    bench.pipeline.push_stats(bench.now);
    assert_eq!(bench.switch.credited(1).0, 20_001);
}

#[test]
fn statistics_are_exact_when_workers_have_pushed_them() {
    let switch = counting();
    let options = Options {
        workers: 2,
        ..Options::default()
    };
    let datapath = DpUser::new(options, switch.clone(), Arc::default()).unwrap();
    let devices: Vec<_> = (0..2).map(|n| dummy(&format!("p{n}"))).collect();
    for (n, device) in (0..).zip(&devices) {
        datapath.add_port(PortNo(n), device.clone()).unwrap();
    }
    let mut sent = 0;
    for round in 1..=20 {
        for n in 0..round {
            assert!(devices[0].inject(&packet(10 + n % 7, 9, n)));
        }
        sent += u64::from(round);
        crate::common::eventually("all are forwarded", || {
            datapath.port_counters(PortNo(1)).unwrap().tx_packets == sent
        });
        datapath.push_stats();
        assert_eq!(switch.credited(1).0, sent);
    }
}
