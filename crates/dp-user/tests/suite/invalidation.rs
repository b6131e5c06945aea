//! Megaflows and the tables they were made from.

use crate::common::{Bench, FakeSwitch, depending, mac, output, packet, translation};
use dp::{Change, Changes, Dep, Effect, Limits, Region};
use flow::{Field, Key, Mask, PortNo};
use nanos::Nanos;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use wire::Vid;

/// A switch that sends to the port in `table`, for any destination; the destination is the
/// dependency.
fn one_port(table: &Arc<AtomicU32>) -> Arc<FakeSwitch> {
    let table = table.clone();
    FakeSwitch::new(move |key| {
        let dst = key.get(Field::EthDst) as u64;
        let port = table.load(Ordering::Relaxed);
        depending(translation(&[output(port)], &[Field::EthDst]), &[dst, 1])
    })
}

fn dep(station: u32) -> Change {
    Change::Dep(Dep(mac(station).to_u64()))
}

#[test]
fn a_change_removes_the_megaflows_that_depend_on_it_and_no_others() {
    let table = Arc::new(AtomicU32::new(1));
    let mut bench = Bench::new(3, one_port(&table));
    bench.receive(0, &[packet(5, 9, 0), packet(6, 9, 1)]);
    table.store(2, Ordering::Relaxed);
    bench.receive(0, &[packet(5, 9, 2), packet(6, 9, 3)]);
    assert_eq!(bench.numbers(1), [0, 1, 2, 3]);

    bench.changes.publish(&[dep(5)]);
    bench.receive(0, &[packet(5, 9, 4), packet(6, 9, 5)]);
    assert_eq!(bench.numbers(2), [4]);
    assert_eq!(bench.numbers(1), [5]);
    assert_eq!(bench.switch.upcalls(), 3);

    bench.changes.publish(&[Change::Dep(Dep(1))]);
    bench.receive(0, &[packet(5, 9, 6), packet(6, 9, 7)]);
    assert_eq!(bench.numbers(2), [6, 7]);
    assert_eq!(bench.switch.upcalls(), 5);

    bench.changes.publish(&[Change::All]);
    bench.receive(0, &[packet(5, 9, 8), packet(6, 9, 9)]);
    assert_eq!(bench.switch.upcalls(), 7);
}

#[test]
fn a_change_that_races_with_a_translation_is_applied_before_its_megaflow_is_used() {
    // The table changes, and the change is published, after the answer was read from the table and
    // before the worker has it.
    let changes = Arc::new(Changes::new());
    let raced = AtomicBool::new(false);
    let switch = {
        let changes = changes.clone();
        FakeSwitch::new(move |_| {
            let port = if raced.swap(true, Ordering::Relaxed) {
                2
            } else {
                changes.publish(&[Change::Dep(Dep(7))]);
                1
            };
            depending(translation(&[output(port)], &[Field::InPort]), &[7])
        })
    };
    let mut bench = Bench::with(3, switch, changes, 1000);
    bench.receive(0, &(0..4).map(|n| packet(5, 9, n)).collect::<Vec<_>>());
    assert_eq!(bench.numbers(1), [0]);
    assert_eq!(bench.numbers(2), [1, 2, 3]);
    assert_eq!(bench.switch.upcalls(), 2);
}

#[test]
fn an_upcall_that_outdates_megaflows_found_for_its_batch_has_them_looked_up_again() {
    let changes = Arc::new(Changes::new());
    let moved = Arc::new(AtomicBool::new(false));
    let switch = {
        let changes = changes.clone();
        let moved = moved.clone();
        FakeSwitch::new(move |key| {
            if key.get(Field::EthSrc) == u128::from(mac(9).to_u64()) {
                moved.store(true, Ordering::Relaxed);
                changes.publish(&[dep(5)]);
            }
            let port = 1 + u32::from(moved.load(Ordering::Relaxed));
            let fields = [Field::EthDst, Field::EthSrc];
            depending(translation(&[output(port)], &fields), &[key.get(Field::EthDst) as u64])
        })
    };
    let mut bench = Bench::with(3, switch, changes, 1000);
    bench.receive(0, &[packet(5, 1, 0)]);
    // In one batch: a hit, the packet that changes the tables, and one whose megaflow was found
    // before the change.
    bench.receive(0, &[packet(5, 1, 1), packet(6, 9, 2), packet(5, 1, 3)]);
    assert_eq!(bench.numbers(1), [0, 1]);
    assert_eq!(bench.numbers(2), [2, 3]);
}

#[test]
fn a_worker_far_behind_the_log_forgets_everything() {
    let table = Arc::new(AtomicU32::new(1));
    let mut bench = Bench::new(3, one_port(&table));
    bench.receive(0, &[packet(5, 9, 0)]);
    bench.changes.publish(&[dep(5)]);
    for station in 0..10_000 {
        bench.changes.publish(&[dep(100_000 + station)]);
    }
    bench.receive(0, &[packet(5, 9, 1)]);
    assert_eq!(bench.switch.upcalls(), 2);
}

#[test]
fn a_hundred_thousand_idle_megaflows_age_out_and_nothing_wakes_the_worker_afterwards() {
    let table = Arc::new(AtomicU32::new(1));
    let mut bench = Bench::new(2, one_port(&table));
    for first in (0..100_000).step_by(1000) {
        let packets: Vec<_> = (first..first + 1000).map(|n| packet(n, 9, n)).collect();
        bench.receive(0, &packets);
    }
    let next = bench.housekeep();
    assert_eq!(bench.pipeline.cache_stats().flows, 100_000);
    assert!(next.is_some());
    // One stays in use.
    for _ in 0..11 {
        bench.now += Duration::from_secs(1);
        bench.receive(0, &[packet(77, 9, 0)]);
        bench.housekeep();
    }
    assert_eq!(bench.pipeline.cache_stats().flows, 1);
    // Without packets the next thing that can happen is that it is idle for 10 s.
    bench.now += Duration::from_secs(1);
    let next = bench.housekeep().unwrap();
    assert_eq!(next, bench.now + Duration::from_secs(9));
    bench.now = next;
    assert_eq!(bench.housekeep(), None);
    assert_eq!(bench.pipeline.cache_stats().flows, 0);
    assert_eq!(bench.pipeline.cache_stats().masks, 0);
}

#[test]
fn effects_of_megaflows_in_use_are_reported_once_a_pass() {
    let learn = |station: u32| Effect::Learn {
        bridge: 0,
        vlan: Vid::try_from(1u16).unwrap(),
        mac: mac(station),
        port: 1,
    };
    let switch = FakeSwitch::new(move |key| {
        let mut answer = translation(&[output(1)], &[Field::EthSrc]);
        answer.effects.push(learn(key.get(Field::EthSrc) as u32));
        answer
    });
    let mut bench = Bench::new(2, switch);
    bench.receive(0, &[packet(5, 1, 0), packet(5, 2, 0)]);
    bench.housekeep();
    let refreshed = |bench: &Bench| std::mem::take(&mut *bench.switch.refreshed.lock());
    assert_eq!(refreshed(&bench), []);
    bench.receive(0, &vec![packet(5, 1, 0); 50]);
    bench.now += Duration::from_secs(1);
    bench.housekeep();
    assert_eq!(refreshed(&bench), [learn(1)]);
    bench.now += Duration::from_secs(1);
    bench.housekeep();
    assert_eq!(refreshed(&bench), []);
}

#[test]
fn beyond_the_limit_the_port_that_holds_most_loses_megaflows() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let switch = {
        let seen = seen.clone();
        FakeSwitch::new(move |key| {
            seen.lock().push(key.in_port().0);
            translation(&[output(2)], &[Field::InPort, Field::EthDst])
        })
    };
    let mut bench = Bench::with(3, switch, Arc::default(), 100);
    let quiet: Vec<_> = (0..10).map(|n| packet(n, 9, n)).collect();
    bench.receive(1, &quiet);
    for first in (0..10_000).step_by(1000) {
        let flood: Vec<_> = (first..first + 1000).map(|n| packet(n, 9, n)).collect();
        bench.receive(0, &flood);
    }
    bench.housekeep();
    assert_eq!(bench.pipeline.cache_stats().flows, 100);
    seen.lock().clear();
    bench.receive(1, &quiet);
    assert!(seen.lock().is_empty(), "the quiet port's megaflows are there");
}

#[test]
fn senders_of_ever_new_masks_do_not_make_lookups_longer() {
    let switch = FakeSwitch::new(|key| {
        let mut answer = translation(&[output(1)], &[Field::InPort]);
        // Another mask for each destination.
        answer.mask.add_bits(Field::EthDst, key.get(Field::EthDst));
        answer
    });
    let mut bench = Bench::new(2, switch);
    let packets: Vec<_> = (0..1000).map(|n| packet(n, 9, n)).collect();
    bench.receive(0, &packets);
    bench.housekeep();
    assert!(bench.pipeline.cache_stats().masks <= 129);
    let upcalls = bench.switch.upcalls();
    bench.receive(0, &packets);
    assert_eq!(bench.switch.upcalls(), upcalls);
    assert_eq!(bench.numbers(1).len(), 2000);
    bench.now = Nanos::from_secs(100);
    assert_eq!(bench.housekeep(), None);
    assert_eq!(bench.pipeline.cache_stats().masks, 0);
}

#[test]
fn limits_change_while_megaflows_are_cached() {
    let table = Arc::new(AtomicU32::new(1));
    let mut bench = Bench::new(2, one_port(&table));
    bench.receive(0, &(0..900).map(|n| packet(n, 9, n)).collect::<Vec<_>>());
    bench.housekeep();
    let period = Duration::from_secs(1);
    let limits = |period| Limits {
        flows: 100,
        idle: Duration::from_secs(2),
        period,
    };
    bench.pipeline.set_limits(limits(period));
    bench.housekeep();
    assert_eq!(bench.pipeline.cache_stats().flows, 100);
    bench.receive(0, &(0..900).map(|n| packet(n, 9, n)).collect::<Vec<_>>());
    bench.housekeep();
    assert_eq!(bench.pipeline.cache_stats().flows, 100);
    bench.now += Duration::from_millis(1900);
    bench.housekeep();
    assert_eq!(bench.pipeline.cache_stats().flows, 100);
    bench.now += Duration::from_millis(1200);
    bench.housekeep();
    assert_eq!(bench.pipeline.cache_stats().flows, 0);
    // While packets come, it is looked at megaflows as often as that is asked for.
    for period in [period, period / 5] {
        bench.pipeline.set_limits(limits(period));
        bench.receive(0, &[packet(1, 9, 1)]);
        bench.housekeep();
        bench.receive(0, &[packet(1, 9, 1)]);
        assert_eq!(bench.pipeline.housekeep(bench.now), Some(bench.now + period));
    }
}

#[test]
fn the_limit_falls_where_ageing_takes_long_and_grows_again_where_it_does_not() {
    let table = Arc::new(AtomicU32::new(1));
    let changes = Arc::default();
    let mut bench = Bench::with(2, one_port(&table), changes, 20_000);
    let pass = |flows: u32, millis_a_step: u64, bench: &mut Bench| {
        for first in (0..flows).step_by(1000) {
            bench.receive(0, &(first..first + 1000).map(|n| packet(n, 9, n)).collect::<Vec<_>>());
        }
        bench.now += Duration::from_secs(1);
        let before = bench.pipeline.cache_stats().flows;
        while bench.pipeline.housekeep(bench.now) == Some(Nanos::ZERO) {
            bench.now += Duration::from_millis(millis_a_step);
        }
        (before, bench.pipeline.flow_limit())
    };
    assert_eq!(pass(10_000, 1, &mut bench).1, 20_000);
    // A thread that was stopped in the middle was not busy.
    bench.now += Duration::from_secs(1);
    bench.receive(0, &[packet(1, 9, 1)]);
    bench.pipeline.housekeep(bench.now);
    bench.now += Duration::from_secs(5);
    bench.housekeep();
    assert_eq!(bench.pipeline.flow_limit(), 20_000);
    // A worker that comes to it seldom takes larger steps.
    assert_eq!(pass(10_000, 60, &mut bench).1, 20_000);
    // 20 steps of 512 megaflows in 3 s: as many are left as a second is enough for.
    let (_, limit) = pass(10_000, 150, &mut bench);
    assert!((2500..4000).contains(&limit), "{limit}");
    assert!(bench.pipeline.cache_stats().flows <= limit as u64);
    bench.now += Duration::from_secs(11);
    bench.housekeep();
    // The limit grows only while the table is full, and not beyond the configured one.
    assert_eq!(pass(1000, 1, &mut bench).1, limit);
    let mut last = limit;
    for _ in 0..30 {
        let (_, limit) = pass(20_000, 1, &mut bench);
        assert!(limit > last || limit == 20_000, "{limit} after {last}");
        last = limit;
    }
    assert_eq!(last, 20_000);
    // Not as far as a few, however slow.
    let (_, limit) = pass(20_000, 10_000, &mut bench);
    assert!((1000..5000).contains(&limit), "{limit}");
}

#[test]
fn no_step_of_ageing_removes_more_than_a_few_dozen_megaflows() {
    let table = Arc::new(AtomicU32::new(1));
    let mut bench = Bench::new(2, one_port(&table));
    for first in (0..50_000).step_by(1000) {
        bench.receive(0, &(first..first + 1000).map(|n| packet(n, 9, n)).collect::<Vec<_>>());
    }
    bench.now += Duration::from_secs(11);
    let (mut left, mut steps) = (50_000, 0);
    while left > 0 {
        bench.pipeline.housekeep(bench.now);
        let now = bench.pipeline.cache_stats().flows;
        assert!(left - now <= 64, "{left} and then {now}");
        (left, steps) = (now, steps + 1);
        assert!(steps < 1000);
    }
}

#[test]
fn megaflows_of_a_port_that_goes_are_removed_in_slices_and_at_once_where_it_comes_again() {
    let table = Arc::new(AtomicU32::new(2));
    let mut bench = Bench::new(3, one_port(&table));
    let packets = |from: u32| (from..from + 3000).map(|n| packet(n, 9, n)).collect::<Vec<_>>();
    bench.receive(0, &packets(0));
    bench.receive(1, &packets(10_000));
    bench.housekeep();
    assert_eq!(bench.pipeline.cache_stats().flows, 6000);
    drop(bench.pipeline.remove_port(PortNo(0)));
    let (mut left, mut steps) = (6000, 0);
    while left > 3000 {
        bench.pipeline.housekeep(bench.now);
        let flows = bench.pipeline.cache_stats().flows;
        assert!(flows < left && left - flows <= 256, "{left} then {flows}");
        (left, steps) = (flows, steps + 1);
    }
    assert!(left == 3000 && steps >= 3000 / 256, "{left} left after {steps} steps");
    drop(bench.pipeline.remove_port(PortNo(1)));
    bench.pipeline.add_port(PortNo(1), bench.devices[1].clone());
    bench.pipeline.housekeep(bench.now);
    assert_eq!(bench.pipeline.cache_stats().flows, 0);
}

#[test]
fn a_change_of_a_region_that_has_most_megaflows_forgets_all_at_once() {
    let table = Arc::new(AtomicU32::new(1));
    let mut bench = Bench::new(2, one_port(&table));
    let low = |bits: u128| [(Field::EthDst, bits, 0x8000)];
    for (share, left) in [(2999, 3001), (3001, 0)] {
        bench.changes.publish(&[Change::All]);
        let station = |n: u32| if n < share { n } else { n | 0x8000 };
        let packets: Vec<_> = (0..6000).map(|n| packet(station(n), 9, n)).collect();
        bench.receive(0, &packets);
        bench.changes.publish(&[overlap(1, &low(0))]);
        bench.housekeep();
        assert_eq!(bench.pipeline.cache_stats().flows, left);
    }
}

/// A change of the rules in a region.
fn overlap(dep: u64, fields: &[(Field, u128, u128)]) -> Change {
    let (mut key, mut mask) = (Key::ZERO, Mask::EMPTY);
    for (field, value, bits) in fields {
        key.set(*field, value & bits);
        mask.add_bits(*field, *bits);
    }
    Change::Overlap(Dep(dep), Arc::new(Region { key, mask }))
}

#[test]
fn a_change_of_a_region_removes_what_depends_on_it_and_covers_packets_of_it() {
    // Even stations' megaflows look at the destination, odd ones' at the source too; those from 100
    // on depend on another table.
    let switch = FakeSwitch::new(|key| {
        let dst = key.get(Field::EthDst) & 0xffff;
        let fields = [Field::EthDst, Field::EthSrc];
        let answer = translation(&[output(1)], &fields[..1 + dst as usize % 2]);
        depending(answer, &[if dst < 100 { 1 } else { 2 }, 50])
    });
    let mut bench = Bench::new(2, switch);
    let packets: Vec<_> = (0..200).map(|n| packet(n, n % 3, n)).collect();
    let mut asked = |change: Change| {
        bench.receive(0, &packets);
        let before = bench.switch.upcalls();
        bench.changes.publish(&[change]);
        bench.receive(0, &packets);
        bench.switch.upcalls() - before
    };
    let station = |n: u32| u128::from(mac(n).to_u64());
    let all = u128::MAX;
    // One of each mask, found without looking at others.
    assert_eq!(asked(overlap(1, &[(Field::EthDst, station(6), all)])), 1);
    assert_eq!(asked(overlap(2, &[(Field::EthDst, station(6), all)])), 0);
    assert_eq!(
        asked(overlap(
            1,
            &[(Field::EthDst, station(7), all), (Field::EthSrc, station(1), all)]
        )),
        1
    );
    assert_eq!(
        asked(overlap(
            1,
            &[(Field::EthDst, station(7), all), (Field::EthSrc, station(2), all)]
        )),
        0
    );
    // Whatever says nothing of what a megaflow looks at may be of its packets.
    assert_eq!(asked(overlap(1, &[(Field::EthSrc, station(1), all)])), 50 + 17);
    assert_eq!(asked(overlap(1, &[(Field::TpDst, 80, all)])), 100);
    assert_eq!(asked(overlap(50, &[(Field::EthDst, station(0), 0xff0)])), 16);
    assert_eq!(asked(overlap(3, &[])), 0);
}

#[test]
fn many_changes_of_regions_cost_no_more_than_forgetting_what_depends_on_them() {
    let mut bench = Bench::new(2, one_port(&Arc::new(AtomicU32::new(1))));
    let packets: Vec<_> = (0..3000).map(|n| packet(n, 9, n)).collect();
    bench.receive(0, &packets);
    // Each of them would have all megaflows looked at, and none of them covers a packet of theirs.
    let other = |n: u128| {
        overlap(
            1,
            &[
                (Field::EthDst, 0xffff << 32, 0xffff << 32),
                (Field::TpDst, n, u128::MAX),
            ],
        )
    };
    bench.changes.publish(&[other(1), other(2)]);
    bench.receive(0, &packets);
    assert_eq!(bench.switch.upcalls(), 3000);
    // Together they still cover none.
    bench.changes.publish(&(0..20).map(other).collect::<Vec<_>>());
    bench.receive(0, &packets);
    assert_eq!(bench.switch.upcalls(), 3000);
    // For one region, this many megaflows are too many to check.
    let packets: Vec<_> = (0..33_000).map(|n| packet(n, 9, n)).collect();
    bench.receive(0, &packets);
    bench.changes.publish(&[other(1)]);
    bench.receive(0, &packets);
    assert_eq!(bench.switch.upcalls(), 33_000 + 33_000);
}
