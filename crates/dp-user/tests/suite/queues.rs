//! Queues that move between workers, and workers that come and go, while packets do.

use crate::common::{FakeSwitch, dummy, eventually, number, output, packet, translation};
use dp::{Assign, AutoBalance, Datapath, PortNo, QueueRules, WorkerControl};
use dp_user::{DpUser, Options};
use flow::Field;
use netdev::{Dummy, Offload};
use qos::{Discipline, PortConfig, PortSpeed};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const QUEUES: u32 = 4;

/// Port 0 has four queues, and everything goes out of port 1.
fn four_queues(workers: usize) -> (Arc<DpUser>, Arc<Dummy>, Arc<Dummy>) {
    let switch = FakeSwitch::new(|_| translation(&[output(1)], &[Field::InPort, Field::EthDst]));
    let options = Options {
        workers,
        ..Options::default()
    };
    let datapath = DpUser::new(options, switch, Arc::default()).unwrap();
    let options = BTreeMap::from([("n_rxq".to_owned(), QUEUES.to_string())]);
    let from = Arc::new(Dummy::open("from", &options).unwrap());
    let to = dummy("to");
    datapath.add_port(PortNo(0), from.clone()).unwrap();
    datapath.add_port(PortNo(1), to.clone()).unwrap();
    (datapath, from, to)
}

/// The workers of the first port's queues, by core.
fn places(datapath: &DpUser) -> Vec<usize> {
    let mut places = vec![usize::MAX; QUEUES as usize];
    for worker in datapath.reports(Duration::from_secs(60)) {
        for queue in worker.queues.iter().filter(|queue| queue.port == PortNo(0)) {
            places[queue.number as usize] = worker.core;
        }
    }
    places
}

fn pinned(queues: &[(u32, usize)]) -> QueueRules {
    QueueRules {
        affinity: BTreeMap::from([(PortNo(0), queues.iter().copied().collect())]),
        ..QueueRules::default()
    }
}

#[test]
fn queues_of_a_port_are_spread_over_workers() {
    let (datapath, ..) = four_queues(2);
    let mut places = places(&datapath);
    places.sort_unstable();
    assert_eq!(places, [0, 0, 1, 1]);
}

#[test]
fn no_packet_is_lost_and_none_overtakes_another_while_queues_move() {
    let (datapath, from, to) = four_queues(3);
    let mut sent: Vec<u32> = Vec::new();
    let mut n = 0;
    for round in 0..60 {
        for _ in 0..50 {
            let queue = n % QUEUES;
            assert!(from.inject_at(queue as usize, &packet(queue, 1, n), Offload::default()));
            n += 1;
        }
        let to_core = |queue: u32| (queue, ((queue + round) % 3) as usize);
        let rules = pinned(&(0..QUEUES).map(to_core).collect::<Vec<_>>());
        assert_eq!(datapath.set_queue_rules(rules), Vec::<String>::new());
        sent.extend(to.take_sent().iter().map(|packet| number(packet)));
    }
    eventually("all packets arrive", || {
        sent.extend(to.take_sent().iter().map(|packet| number(packet)));
        sent.len() == n as usize
    });
    for queue in 0..QUEUES {
        let of_queue: Vec<u32> = sent.iter().copied().filter(|number| number % QUEUES == queue).collect();
        assert!(of_queue.is_sorted(), "queue {queue}: {of_queue:?}");
    }
    eventually("every packet is counted once", || {
        datapath.port_counters(PortNo(0)).unwrap().rx_packets == u64::from(n)
            && datapath.port_counters(PortNo(1)).unwrap().tx_packets == u64::from(n)
    });
    let received: u64 = datapath
        .reports(Duration::from_secs(60))
        .iter()
        .map(|worker| worker.perf.packets)
        .sum();
    assert_eq!(received, u64::from(n));
}

#[test]
fn workers_come_and_go_while_packets_do() {
    let (datapath, from, to) = four_queues(1);
    let core = sys_core();
    let mut sent = 0;
    let mut n = 0;
    for round in 0..12 {
        for _ in 0..40 {
            let queue = n % QUEUES;
            assert!(from.inject_at(queue as usize, &packet(queue, 1, n), Offload::default()));
            n += 1;
        }
        let cores = [core];
        datapath.set_cores((round % 2 == 0).then_some(&cores[..])).unwrap();
        assert_eq!(datapath.count(), 1);
        sent += to.take_sent().len();
    }
    eventually("all packets arrive", || {
        sent += to.take_sent().len();
        sent == n as usize
    });
    eventually("what ended workers counted counts", || {
        let caches = datapath.cache_stats();
        caches.exact_hits + caches.megaflow_hits + caches.upcalls == u64::from(n)
    });
    assert_eq!(datapath.port_counters(PortNo(0)).unwrap().rx_packets, u64::from(n));
    assert_eq!(datapath.dump_flows().len() as u64, datapath.cache_stats().flows);
    datapath.del_port(PortNo(0)).unwrap();
    assert_eq!(places(&datapath), [usize::MAX; QUEUES as usize]);
}

#[test]
fn what_waits_at_a_scheduler_goes_on_when_the_worker_that_was_to_see_to_it_has_ended() {
    let (datapath, from, to) = four_queues(1);
    let slow = PortConfig {
        discipline: Discipline::Noop,
        speed: Some(PortSpeed::new(16_000).unwrap()),
    };
    datapath.set_qos(PortNo(1), Some(&slow)).unwrap();
    for n in 0..100 {
        assert!(from.inject_at(n as usize % 4, &packet(5, 1, n), Offload::default()));
    }
    eventually("some wait", || {
        datapath
            .qos(PortNo(1))
            .is_some_and(|qos| qos.queues.iter().map(|(_, stats)| stats.backlog_packets).sum::<u64>() > 10)
    });
    datapath.set_cores(Some(&[sys_core()])).unwrap();
    to.take_sent();
    let mut sent = 0;
    eventually("others leave", || {
        sent += to.take_sent().len();
        sent >= 3
    });
}

/// A core that this process may use.
fn sys_core() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    list.trim().split([',', '-']).next().unwrap().parse().unwrap()
}

#[test]
fn a_queue_that_is_pinned_has_its_worker_for_itself_and_others_make_room() {
    let (datapath, ..) = four_queues(2);
    assert_eq!(datapath.set_queue_rules(pinned(&[(2, 1)])), Vec::<String>::new());
    assert_eq!(places(&datapath), [0, 0, 1, 0]);
    let isolated = |datapath: &DpUser| -> Vec<bool> {
        let reports = datapath.reports(Duration::from_secs(60));
        reports.iter().map(|worker| worker.isolated).collect()
    };
    assert_eq!(isolated(&datapath), [false, true]);
    let unknown = datapath.set_queue_rules(pinned(&[(2, 1), (1, 99), (7, 0)]));
    assert_eq!(unknown.len(), 2);
    assert!(
        unknown[0].contains("core 99 has no worker for receive queue 1 of from"),
        "{unknown:?}"
    );
    assert!(unknown[1].contains("from has no receive queue 7"), "{unknown:?}");
    let rules = QueueRules {
        assign: Assign::RoundRobin,
        ..QueueRules::default()
    };
    datapath.set_queue_rules(rules);
    assert_eq!(places(&datapath), [0, 1, 0, 1]);
    assert_eq!(isolated(&datapath), [false, false]);
}

#[test]
fn queues_are_placed_anew_by_what_they_cost_when_that_is_asked_for() {
    let (datapath, from, to) = four_queues(2);
    let rules = |balance| QueueRules {
        assign: Assign::Group,
        balance,
        ..QueueRules::default()
    };
    datapath.set_queue_rules(pinned(&[(0, 0), (1, 0), (2, 1), (3, 1)]));
    // Queues that are no longer pinned stay on their workers.
    let mut only = rules(None);
    only.assign = Assign::Cycles;
    datapath.set_queue_rules(only.clone());
    assert_eq!(places(&datapath), [0, 0, 1, 1]);
    let mut arrived = 0;
    let mut injected = 0;
    for n in 0..3000 {
        let queue = n % 2;
        assert!(from.inject_at(queue, &packet(5, 1, 0), Offload::default()));
        injected += 1;
    }
    eventually("all packets arrive", || {
        arrived += to.take_sent().len();
        arrived == injected
    });
    assert!(!datapath.sample(), "nobody asked for it");
    only.balance = Some(AutoBalance {
        interval: Duration::ZERO,
        load_percent: 0,
        improvement_percent: 10,
    });
    datapath.set_queue_rules(only);
    assert!(datapath.sample(), "one worker did everything");
    let places = places(&datapath);
    assert_ne!(places[0], places[1], "{places:?}");
}

#[test]
fn what_workers_have_done_is_told_and_begins_anew_when_it_is_cleared() {
    let (datapath, from, to) = four_queues(1);
    for n in 0..10 {
        assert!(from.inject_at(n as usize % 4, &packet(5, 1, n), Offload::default()));
    }
    let mut arrived = 0;
    eventually("all packets arrive", || {
        arrived += to.take_sent().len();
        arrived == 10
    });
    let report = || datapath.reports(Duration::from_secs(60)).remove(0);
    eventually("the turn is over", || report().perf.packets == 10);
    let perf = report().perf;
    assert_eq!((perf.upcalls, perf.exact_hits + perf.megaflow_hits), (1, 9));
    assert_eq!(perf.subtables, perf.megaflow_hits, "there is one mask");
    assert_eq!(perf.tx_packets, 10);
    assert!(perf.tx_batches >= 1 && perf.busy_turns >= 1 && perf.turns >= perf.busy_turns);
    assert!(perf.busy_cycles > 0 && perf.sleeps > 0);
    datapath.clear_perf(Some(7));
    assert_eq!(report().perf.packets, 10, "that is another's");
    datapath.clear_perf(None);
    assert_eq!(report().perf.packets, 0);
    assert_eq!(datapath.cache_stats().upcalls, 1, "the datapath's own counters stay");
}
