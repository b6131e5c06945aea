//! Packets of new flows that wait for their turn.

use crate::common::{Bench, FakeSwitch, number, output, packet, translation};
use dp::{Action, Change, DropCause, PortNo};
use dp_user::pipeline::{Budget, OtherQueues, Pipeline};
use flow::Field;
use netdev::Netdev;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use testkit::Rng;

/// To port 1, every third flow after another look at the packet.
fn switch() -> std::sync::Arc<FakeSwitch> {
    FakeSwitch::new(|key| {
        let again = key.get(Field::EthDst) % 3 == 0 && key.get(Field::RecircId) == 0;
        let action = if again { Action::Recirc(1) } else { output(1) };
        translation(&[action], &[Field::InPort, Field::EthDst, Field::RecircId])
    })
}

/// A bench whose first queue asks eight times a turn.
fn bench() -> Bench {
    let mut bench = Bench::new(2, switch());
    let rx = bench.devices[0].open_rx().unwrap().remove(0);
    bench.rx_queues[0] = Pipeline::rx_queue(PortNo(0), rx, Budget::new(8, 256));
    bench
}

#[test]
fn packets_that_wait_keep_the_order_of_their_flow_and_all_are_accounted_for() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut bench = bench();
        let (mut sent, mut injected) = (Vec::new(), 0);
        let mut flow_of = Vec::new();
        for _ in 0..60 {
            for _ in 0..rng.below(90) {
                // Some flows are known, some were known, some are new.
                let flow = 1 + rng.below(40 + injected as usize / 2) as u32;
                assert!(bench.devices[0].inject(&packet(flow, 0, injected)));
                flow_of.push(flow);
                injected += 1;
            }
            let contended = rng.chance(50);
            let others = [OtherQueues::Ready, OtherQueues::Lately, OtherQueues::Silent][rng.below(3)];
            bench.pipeline.share(1 + usize::from(contended), others);
            let rx_queue = &mut bench.rx_queues[0];
            bench.pipeline.receive(rx_queue, contended, bench.now).unwrap();
            if rng.chance(5) {
                bench.changes.publish(&[Change::All]);
            }
            sent.extend(bench.numbers(1));
        }
        bench.drain(0);
        assert!(!bench.rx_queues[0].waits());
        sent.extend(bench.numbers(1));
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
fn a_queue_that_is_alone_loses_nothing_however_many_flows_are_new() {
    let mut bench = bench();
    let packets: Vec<_> = (0..4000).map(|n| packet(1 + n, 0, n)).collect();
    for packets in packets.chunks(1000) {
        bench.receive(0, packets);
    }
    let mut sent = bench.numbers(1);
    sent.sort_unstable();
    assert_eq!(sent, (0..4000).collect::<Vec<_>>());
    assert_eq!(bench.pipeline.cache_stats().lost, 0);
}

#[test]
fn known_flows_go_on_while_somebody_has_the_tables_and_new_ones_wait_for_that() {
    let mut bench = bench();
    bench.receive(0, &[packet(1, 0, 0)]);
    bench.sent(1);
    bench.switch.locked.store(true, Ordering::Relaxed);
    let (known, new): (Vec<_>, Vec<_>) = (1..200).partition(|n| n % 2 == 0);
    for n in 1..200 {
        let flow = if n % 2 == 0 { 1 } else { 1000 + n };
        assert!(bench.devices[0].inject(&packet(flow, 0, n)));
        bench
            .pipeline
            .receive(&mut bench.rx_queues[0], false, bench.now)
            .unwrap();
        bench.now += Duration::from_micros(100);
    }
    assert_eq!(bench.numbers(1), known);
    assert!(bench.rx_queues[0].waits());
    bench.switch.locked.store(false, Ordering::Relaxed);
    bench.now += Duration::from_millis(1);
    bench.drain(0);
    let mut sent = bench.numbers(1);
    sent.sort_unstable();
    assert_eq!(sent, new);
    assert_eq!(bench.pipeline.cache_stats().lost, 0);
}

#[test]
fn packets_that_find_no_room_to_wait_for_the_tables_are_counted() {
    let mut bench = bench();
    bench.switch.locked.store(true, Ordering::Relaxed);
    for n in 1..1000 {
        assert!(bench.devices[0].inject(&packet(1000 + n, 0, n)));
        bench
            .pipeline
            .receive(&mut bench.rx_queues[0], false, bench.now)
            .unwrap();
    }
    assert_eq!(bench.pipeline.cache_stats().lost, 999 - 256);
    bench.switch.locked.store(false, Ordering::Relaxed);
    bench.now += Duration::from_millis(1);
    bench.drain(0);
    let mut sent = bench.numbers(1);
    sent.sort_unstable();
    assert_eq!(sent, (1..257).collect::<Vec<_>>());
}

#[test]
fn known_flows_of_a_port_go_on_beside_its_own_storm() {
    let mut bench = bench();
    bench.receive(0, &[packet(1, 0, 0)]);
    assert_eq!(bench.numbers(1), [0]);
    let mut next = 1000;
    for turn in 1..100 {
        for n in 0..32 {
            let known = n == 31;
            let (flow, number) = if known { (1, turn) } else { (next, next) };
            next += 1;
            assert!(bench.devices[0].inject(&packet(flow, 0, number)));
        }
        bench.pipeline.share(2, OtherQueues::Ready);
        bench
            .pipeline
            .receive(&mut bench.rx_queues[0], true, bench.now)
            .unwrap();
        let known: Vec<_> = bench
            .sent(1)
            .iter()
            .map(|packet| number(packet))
            .filter(|n| *n < 1000)
            .collect();
        assert_eq!(known, [turn]);
    }
    let drops = bench.pipeline.drops();
    let (_, lost) = drops
        .iter()
        .find(|(cause, _)| *cause == DropCause::UpcallBudget)
        .unwrap();
    assert_eq!(*lost, bench.pipeline.cache_stats().lost);
    assert!(*lost > 2000, "{lost}");
}

/// A UDP packet over IPv6 whose source is the victim's address with both halves changed by `other`.
fn over_ipv6(other: u64, number: u32) -> Vec<u8> {
    const VICTIM: [u64; 2] = [0x2001_0db8_0000_0001, 0x0200_00ff_fe00_0001];
    let mut packet = packet(1, 2, 0);
    packet[12..14].copy_from_slice(&[0x86, 0xdd]);
    packet[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 12, 17, 64]);
    for (at, half) in [
        (22, VICTIM[0] ^ other),
        (30, VICTIM[1] ^ other),
        (38, VICTIM[0]),
        (46, 7),
    ] {
        packet.resize(packet.len().max(at + 8), 0);
        packet[at..at + 8].copy_from_slice(&half.to_be_bytes());
    }
    packet.resize(54, 0);
    packet.extend([0, 7, 0, 53, 0, 12, 0, 0]);
    packet.extend(number.to_be_bytes());
    packet
}

#[test]
fn a_sender_that_chooses_addresses_cannot_put_a_known_flow_behind_its_own() {
    let switch = FakeSwitch::new(|_| translation(&[output(1)], &[Field::InPort, Field::Ipv6Src]));
    let mut bench = Bench::new(2, switch);
    let rx = bench.devices[0].open_rx().unwrap().remove(0);
    bench.rx_queues[0] = Pipeline::rx_queue(PortNo(0), rx, Budget::new(8, 256));
    bench.receive(0, &[over_ipv6(0, 0)]);
    assert_eq!(bench.sent(1).len(), 1);
    let mut known = 0;
    for turn in 1..100 {
        for n in 0..32 {
            // The exclusive or of both halves of an address is the victim's in all of them.
            let other = if n == 31 { 0 } else { u64::from(turn * 32 + n) };
            assert!(bench.devices[0].inject(&over_ipv6(other, turn)));
        }
        bench.pipeline.share(2, OtherQueues::Ready);
        bench
            .pipeline
            .receive(&mut bench.rx_queues[0], true, bench.now)
            .unwrap();
        let victims = over_ipv6(0, turn);
        known += bench.sent(1).iter().filter(|packet| **packet == victims).count();
    }
    assert_eq!(known, 99);
}
