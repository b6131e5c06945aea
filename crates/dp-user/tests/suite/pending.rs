//! Packets whose translation takes long.

use crate::common::{Bench, FakeSwitch, credited, mac, output, packet, translation};
use dp::{Action, Answer, DropCause, PortNo};
use dp_user::pipeline::{Budget, OtherQueues, Pipeline};
use flow::Field;
use netdev::Netdev;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use testkit::Rng;

/// Longer than until the worker asks again.
const A_WHILE: Duration = Duration::from_millis(1);

fn switch() -> Arc<FakeSwitch> {
    FakeSwitch::new(|key| {
        let again = key.get(Field::EthDst) % 5 == 0 && key.get(Field::RecircId) == 0;
        let action = if again { Action::Recirc(1) } else { output(1) };
        let answer = translation(&[action], &[Field::InPort, Field::EthDst, Field::RecircId]);
        credited(answer, &[key.get(Field::EthDst)])
    })
}

fn station(number: u32) -> u128 {
    mac(number).to_u64().into()
}

fn dropped(bench: &Bench, cause: DropCause) -> u64 {
    bench
        .pipeline
        .drops()
        .iter()
        .find(|(other, _)| *other == cause)
        .unwrap()
        .1
}

#[test]
fn a_packet_whose_translation_takes_long_holds_up_no_other_and_goes_when_it_is_there() {
    let mut bench = Bench::new(2, switch());
    bench.switch.late.lock().insert(station(1), 4);
    bench.receive(0, &[packet(1, 0, 1), packet(2, 0, 2), packet(1, 0, 3), packet(2, 0, 4)]);
    assert_eq!(bench.numbers(1), [2, 4]);
    assert!(bench.rx_queues[0].has_pending() && !bench.rx_queues[0].waits());
    let asked = bench.pipeline.cache_stats().upcalls;
    let mut sent = Vec::new();
    for _ in 0..10 {
        bench.now += A_WHILE;
        bench.receive(0, &[packet(2, 0, 5)]);
        sent.extend(bench.numbers(1).into_iter().filter(|number| *number != 5));
    }
    // In order, with the megaflow, and counted as one upcall: of the packet that got the answer.
    assert_eq!(sent, [1, 3]);
    assert!(!bench.rx_queues[0].has_pending());
    assert_eq!(bench.pipeline.cache_stats().upcalls, asked + 1);
    bench.receive(0, &[packet(1, 0, 6)]);
    assert_eq!(
        (bench.numbers(1), bench.pipeline.cache_stats().upcalls),
        (vec![6], asked + 1)
    );
}

#[test]
fn packets_that_wait_already_keep_their_places_when_others_recirculate() {
    // Two copies of each packet recirculate, and their translations take long, too.
    let itself = Arc::new(OnceLock::<Weak<FakeSwitch>>::new());
    let switch = {
        let itself = itself.clone();
        FakeSwitch::new(move |key| {
            let fields = [Field::InPort, Field::EthDst, Field::RecircId];
            let dst = key.get(Field::EthDst);
            if key.get(Field::RecircId) != 0 || dst > station(32) {
                return translation(&[output(1)], &fields);
            }
            let switch = itself.get().and_then(Weak::upgrade).unwrap();
            switch.late.lock().insert(dst, u32::MAX);
            translation(&[Action::Recirc(1), Action::Recirc(2)], &fields)
        })
    };
    itself.set(Arc::downgrade(&switch)).unwrap();
    let mut bench = Bench::new(2, switch);
    for flow in 1..=64 {
        let late = if flow <= 32 { 2 } else { u32::MAX };
        bench.switch.late.lock().insert(station(flow), late);
    }
    bench.receive(0, &(1..=64).map(|flow| packet(flow, 0, flow)).collect::<Vec<_>>());
    bench.now += A_WHILE;
    bench.drain(0);
    // There are 32 places for 64 copies.
    assert_eq!(dropped(&bench, DropCause::UpcallBudget), 32);
    let stats = bench.pipeline.cache_stats();
    assert_eq!((stats.upcalls, stats.lost), (32, 32));
    bench.switch.late.lock().clear();
    bench.now += A_WHILE;
    bench.drain(0);
    let (copies, mut sent): (Vec<_>, Vec<_>) = bench.numbers(1).into_iter().partition(|number| *number <= 32);
    assert_eq!(copies.len(), 32);
    sent.sort_unstable();
    assert_eq!(sent, (33..=64).collect::<Vec<_>>());
}

#[test]
fn an_answer_that_is_out_of_date_is_for_one_packet_and_counted() {
    let mut bench = Bench::new(2, switch());
    bench.switch.once.store(true, Ordering::Relaxed);
    bench.switch.late.lock().insert(station(1), 2);
    bench.receive(0, &[packet(1, 0, 1)]);
    bench.now += A_WHILE;
    bench.drain(0);
    assert_eq!(bench.numbers(1), [1]);
    assert_eq!(bench.switch.credited(station(1)).0, 1);
    bench.switch.late.lock().clear();
    let asked = bench.pipeline.cache_stats().upcalls;
    bench.receive(0, &[packet(1, 0, 2), packet(1, 0, 3)]);
    assert_eq!(
        (bench.numbers(1), bench.pipeline.cache_stats().upcalls),
        (vec![2, 3], asked + 1)
    );
}

#[test]
fn a_port_whose_long_translations_are_too_many_loses_packets_under_its_budget() {
    let mut bench = Bench::new(2, switch());
    bench.switch.late.lock().insert(station(1), u32::MAX);
    let packets: Vec<_> = (0..100).map(|number| packet(1, 0, number)).collect();
    bench.receive(0, &packets);
    assert_eq!(dropped(&bench, DropCause::UpcallBudget), 36);
    bench.switch.refuses.store(true, Ordering::Relaxed);
    bench.now += A_WHILE;
    bench.drain(0);
    assert_eq!(dropped(&bench, DropCause::UpcallBudget), 100);
    assert!(!bench.rx_queues[0].has_pending());
    let stats = bench.pipeline.cache_stats();
    assert_eq!((stats.upcalls, stats.lost), (0, 100));
}

#[test]
fn packets_that_wait_for_long_translations_keep_the_order_of_their_flow() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut bench = Bench::new(2, switch());
        let rx = bench.devices[0].open_rx().unwrap().remove(0);
        bench.rx_queues[0] = Pipeline::rx_queue(PortNo(0), rx, Budget::new(8, 256));
        let (mut sent, mut flow_of, mut injected) = (Vec::new(), Vec::new(), 0);
        for _ in 0..60 {
            for _ in 0..rng.below(20) {
                let flow = 1 + rng.below(40 + injected as usize / 2) as u32;
                if rng.chance(20) {
                    bench.switch.late.lock().insert(station(flow), rng.below(6) as u32);
                }
                assert!(bench.devices[0].inject(&packet(flow, 0, injected)));
                flow_of.push(flow);
                injected += 1;
            }
            bench.now += Duration::from_micros(200);
            bench.switch.once.store(rng.chance(20), Ordering::Relaxed);
            let contended = rng.chance(50);
            bench.pipeline.share(1 + usize::from(contended), OtherQueues::Ready);
            bench
                .pipeline
                .receive(&mut bench.rx_queues[0], contended, bench.now)
                .unwrap();
            if rng.chance(5) {
                bench.changes.publish(&[dp::Change::All]);
            }
            sent.extend(bench.numbers(1));
        }
        bench.switch.late.lock().clear();
        bench.now += A_WHILE;
        bench.drain(0);
        bench.now += A_WHILE;
        bench.drain(0);
        sent.extend(bench.numbers(1));
        assert!(!bench.rx_queues[0].has_pending() && !bench.rx_queues[0].waits());
        let lost: u64 = bench.pipeline.drops().iter().map(|(_, packets)| packets).sum();
        assert_eq!(sent.len() as u64 + lost, u64::from(injected));
        let mut last = BTreeMap::new();
        for number in sent {
            let before = last.insert(flow_of[number as usize], number);
            assert!(before < Some(number), "seed {seed}: {number} behind {before:?}");
        }
    }
}

#[test]
fn an_answer_says_for_how_many_packets_it_is() {
    // The default of who can wait: at once, and for all packets like it.
    struct Quick;
    impl dp::Slowpath for Quick {
        fn upcall(&self, _: &dp::Upcall<'_>, _: nanos::Nanos) -> dp::Translation {
            translation(&[output(1)], &[Field::InPort])
        }
        fn refresh(&self, _: &[dp::Effect], _: nanos::Nanos) {}
        fn port_failed(&self, _: PortNo) {}
    }
    let key = flow::Key::ZERO;
    let upcall = dp::Upcall::new(&key, &[]);
    assert!(matches!(
        dp::Slowpath::try_upcall(&Quick, &upcall, nanos::Nanos::ZERO),
        Answer::Cache(_)
    ));
}
