//! The scheduler of a port, whatever its discipline, and changing from one to another.

mod common;

use common::{Parcel, fifo, nothing_dropped};
use proptest::prelude::*;
use qos::police::{EgressPolicerConfig, TrTcmConfig};
use qos::{
    Cause, Discipline, Enqueued, FifoConfig, FqCodelConfig, HfscClass, HfscConfig, HtbClass, HtbConfig, LeafConfig,
    Nanos, NetemConfig, Port, PortConfig, PortSpeed, Scheduler, SfqConfig, TrTcmPortConfig,
};

const NOW: Nanos = Nanos::from_secs(1);

fn disciplines() -> Vec<Discipline> {
    let htb = |n| HtbClass::new(n).unwrap();
    let hfsc = |n| HfscClass::new(n).unwrap().rates(1_000_000, None).unwrap();
    vec![
        Discipline::Noop,
        Discipline::Leaf(fifo(1_000)),
        Discipline::Leaf(LeafConfig::Sfq(SfqConfig::default())),
        Discipline::Leaf(LeafConfig::FqCodel(FqCodelConfig::default())),
        Discipline::Htb(HtbConfig::new(10_000_000, vec![htb(1), htb(2)]).unwrap()),
        Discipline::Htb(HtbConfig::new(10_000_000, vec![htb(2), htb(7)]).unwrap()),
        Discipline::Hfsc(HfscConfig::new(10_000_000, vec![hfsc(1), hfsc(2)]).unwrap()),
        Discipline::Netem(NetemConfig::new(1_000, 0, 0.0, 1_000, 1).unwrap()),
        Discipline::EgressPolicer(EgressPolicerConfig::new(1 << 30, 1 << 30).unwrap()),
        Discipline::TrTcm(TrTcmPortConfig {
            port: TrTcmConfig::new(1 << 30, 1 << 30, 0, 0).unwrap(),
            queues: vec![(1, TrTcmConfig::new(1 << 30, 1 << 30, 0, 0).unwrap())],
        }),
    ]
}

fn empty(port: &mut Port<Parcel>) -> Vec<Parcel> {
    let mut now = NOW;
    let mut out = Vec::new();
    while let Some(next) = port.next_event(now) {
        now = next;
        out.extend(port.dequeue(now, &mut nothing_dropped));
    }
    out
}

/// Those under which nothing waits without a speed, with rates that few packets keep to.
fn open_disciplines() -> Vec<Discipline> {
    let meter = |cir, cbs| TrTcmConfig::new(cir, cbs, 0, 0).unwrap();
    vec![
        Discipline::Noop,
        Discipline::Leaf(fifo(1)),
        Discipline::Leaf(LeafConfig::PfifoFast(FifoConfig::new(1).unwrap())),
        Discipline::EgressPolicer(EgressPolicerConfig::new(1_000_000, 3_000).unwrap()),
        Discipline::TrTcm(TrTcmPortConfig {
            port: meter(1_000_000, 5_000),
            queues: vec![(1, meter(500_000, 3_000)), (2, meter(100_000, 2_000))],
        }),
    ]
}

#[test]
fn a_port_is_open_while_nothing_waits_and_nothing_has_to() {
    for (at, discipline) in disciplines().into_iter().enumerate() {
        let mut config = PortConfig::new(discipline);
        let mut port = Port::new(&config).unwrap();
        assert_eq!(port.is_open(), [0, 1, 8, 9].contains(&at), "{at}");
        let _ = port.enqueue(Parcel::new(0, 100), NOW, &mut nothing_dropped);
        assert!(!port.is_open(), "{at}");
        config.speed = Some(PortSpeed::new(10_000_000).unwrap());
        assert!(!Port::<Parcel>::new(&config).unwrap().is_open(), "{at}");
    }
}

proptest! {
    #[test]
    fn what_passes_an_open_port_is_what_its_queue_would_let_through(
        packets in prop::collection::vec((60_u32..1_600, 0_u32..4, 0_u64..2_000_000), 1..200),
    ) {
        for discipline in open_disciplines() {
            let config = PortConfig::new(discipline);
            let (mut open, mut queue) = (Port::<Parcel>::new(&config).unwrap(), Port::new(&config).unwrap());
            let mut now = NOW;
            for (bytes, number, wait) in &packets {
                now = now + Nanos(*wait);
                prop_assert!(open.is_open());
                let mut dropped = None;
                let parcel = Parcel::new(0, *bytes).queue(*number);
                let _ = queue.enqueue(parcel, now, &mut |_, cause| dropped = Some(cause));
                let left = queue.dequeue(now, &mut nothing_dropped).is_some();
                prop_assert_eq!(left, dropped.is_none());
                prop_assert_eq!(open.pass(*bytes, *number, now).err(), dropped);
            }
            let (mut counted, mut expected) = (Vec::new(), Vec::new());
            open.each_queue(&mut |number, stats| counted.push((number, stats.clone())));
            queue.each_queue(&mut |number, stats| expected.push((number, stats.clone())));
            prop_assert_eq!(counted, expected);
        }
    }

    #[test]
    fn what_is_queued_survives_any_change_of_discipline_and_keeps_the_order_of_its_flow(
        changes in prop::collection::vec((0usize..10, 0usize..2), 1..6),
        packets in prop::collection::vec((0u32..4, 0u64..5), 1..60),
    ) {
        let speeds = [None, Some(PortSpeed::new(10_000_000).unwrap())];
        let all = disciplines();
        let config = |&(discipline, speed): &(usize, usize)| PortConfig {
            discipline: all[discipline].clone(),
            speed: speeds[speed],
        };
        let mut port = Port::new(&config(&changes[0])).unwrap();
        for (id, (queue, flow)) in packets.iter().enumerate() {
            let parcel = Parcel::new(id as u64, 1_000).queue(*queue).flow(*flow * 1_000 + u64::from(*queue));
            prop_assert_eq!(port.enqueue(parcel, NOW, &mut nothing_dropped), Enqueued::Queued);
        }
        for change in &changes[1..] {
            port.reconfigure(&config(change), NOW, &mut nothing_dropped).unwrap();
            prop_assert_eq!(port.packets(), packets.len() as u64);
            prop_assert_eq!(port.bytes(), packets.len() as u64 * 1_000);
        }
        let out = empty(&mut port);
        prop_assert_eq!(out.len(), packets.len());
        for (at, parcel) in out.iter().enumerate() {
            prop_assert!(out[..at].iter().all(|before| before.flow != parcel.flow || before.id < parcel.id));
        }
        prop_assert_eq!((port.packets(), port.bytes()), (0, 0));
    }
}

#[test]
fn another_kind_of_discipline_counts_from_nothing_and_other_parameters_go_on_counting() {
    let all = disciplines();
    let limited = Discipline::Leaf(fifo(500));
    for (at, before) in all.iter().enumerate() {
        for (other, after) in all.iter().chain([&limited]).enumerate() {
            let mut port = Port::new(&PortConfig::new(before.clone())).unwrap();
            for id in 0..9 {
                let _ = port.enqueue(Parcel::new(id, 100), NOW, &mut nothing_dropped);
            }
            let now = NOW + Nanos::from_secs(1);
            assert!(port.dequeue(now, &mut nothing_dropped).is_some());
            port.reconfigure(&PortConfig::new(after.clone()), now, &mut nothing_dropped)
                .unwrap();
            let same = at == other || [(4, 5), (5, 4), (1, 10)].contains(&(at, other));
            let stats = port.stats();
            let counted = (stats.packets, stats.sojourn.counts().iter().sum::<u64>());
            // trTCM counts what passes its meters.
            let wanted = match after {
                Discipline::TrTcm(_) if same => (9, 1),
                _ if same => (1, 1),
                _ => (0, 0),
            };
            assert_eq!((counted, stats.backlog_packets), (wanted, 8), "{before:?} to {after:?}");
        }
    }
}

#[test]
fn a_discipline_with_less_room_hands_back_what_it_has_none_for() {
    let config = |limit| PortConfig::new(Discipline::Leaf(fifo(limit)));
    let netem = Discipline::Netem(NetemConfig::new(1, 0, 0.0, 5, 1).unwrap());
    let mut port = Port::new(&config(20)).unwrap();
    for id in 0..20 {
        assert_eq!(
            port.enqueue(Parcel::new(id, 100), NOW, &mut nothing_dropped),
            Enqueued::Queued
        );
    }
    let mut lost = Vec::new();
    port.reconfigure(&PortConfig::new(netem), NOW, &mut |parcel, cause| {
        lost.push((parcel.id, cause))
    })
    .unwrap();
    assert_eq!(lost.len(), 15);
    assert!(lost.iter().all(|(_, cause)| *cause == Cause::Full));
    assert_eq!(
        empty(&mut port).iter().map(|parcel| parcel.id).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
}

#[test]
fn a_port_with_a_speed_and_no_discipline_sends_at_that_speed() {
    let config = PortConfig {
        discipline: Discipline::Noop,
        speed: Some(PortSpeed::new(1_000_000).unwrap()),
    };
    assert!(!config.is_direct() && PortConfig::new(Discipline::Noop).is_direct());
    let mut port = Port::new(&config).unwrap();
    for id in 0..10 {
        // With the 24 bytes of Ethernet, 10 ms each.
        let _ = port.enqueue(Parcel::new(id, 1_226), NOW, &mut nothing_dropped);
    }
    let mut now = NOW;
    while let Some(next) = port.next_event(now) {
        now = next;
        port.dequeue(now, &mut nothing_dropped);
    }
    assert!((89_000_000..=90_000_000).contains(&now.since(NOW).0), "{now:?}");
    assert_eq!(port.segment_above(0), Some(125));
}

#[test]
fn policers_count_from_the_ip_header_on_and_by_queue() {
    // Ten packets of 986 bytes after the Ethernet header; the eleventh finds nothing.
    let policer = Discipline::EgressPolicer(EgressPolicerConfig::new(1, 9_860).unwrap());
    let mut port = Port::new(&PortConfig::new(policer)).unwrap();
    let offer = |port: &mut Port<Parcel>, queue, packets: u64| {
        let parcel = |id| Parcel::new(id, 1_000).queue(queue);
        (0..packets)
            .filter(|id| {
                port.enqueue(parcel(*id), NOW, &mut |_, cause| assert_eq!(cause, Cause::Policed)) == Enqueued::Queued
            })
            .count()
    };
    assert_eq!(offer(&mut port, 0, 15), 10);
    assert_eq!(empty(&mut port).len(), 10);
    assert_eq!(port.segment_above(0), Some(2_465));
    let stats = port.queue_stats(0).unwrap();
    assert_eq!((stats.packets, stats.dropped(Cause::Policed)), (10, 5));

    let meter = |packets: u64| TrTcmConfig::new(0, 986 * packets, 0, 0).unwrap();
    let config = TrTcmPortConfig {
        port: meter(10),
        queues: vec![(3, meter(4))],
    };
    let mut port = Port::new(&PortConfig::new(Discipline::TrTcm(config))).unwrap();
    assert_eq!(offer(&mut port, 3, 6), 4);
    assert_eq!(offer(&mut port, 9, 20), 6);
    let of = |queue| {
        port.queue_stats(queue)
            .map(|stats| (stats.packets, stats.dropped(Cause::Policed)))
    };
    assert_eq!((of(3), of(0), of(9)), (Some((4, 2)), Some((6, 14)), None));
    assert_eq!(port.stats().backlog_packets, 10);
}
