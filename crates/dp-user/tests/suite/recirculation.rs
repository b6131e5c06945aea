//! Recirculated packets.

use crate::common::{Bench, FakeSwitch, credited, number, output, packet, tag, translation};
use dp::{Action, Change, Dep, DropCause, FlowHash, MAX_RECIRCULATIONS, PortNo, SetField};
use dp_user::pipeline::{Budget, Pipeline};
use flow::{Field, RecircId};
use netdev::Netdev;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn dropped(bench: &Bench, cause: DropCause) -> u64 {
    let drops = bench.pipeline.drops();
    drops.iter().find(|(other, _)| *other == cause).unwrap().1
}

/// Pops the tag, matches the header behind it, and sends by its destination.
fn behind_the_tag() -> Arc<FakeSwitch> {
    FakeSwitch::new(|key| match key.get(Field::RecircId) {
        0 => credited(
            translation(&[Action::PopVlan, Action::Recirc(5)], &[Field::InPort, Field::RecircId]),
            &[1],
        ),
        5 => {
            assert_eq!((key.tag(0), key.get(Field::EthType)), (None, 0x88b5));
            let port = 1 + key.get(Field::EthDst) as u32 % 2;
            credited(
                translation(&[output(port)], &[Field::RecircId, Field::EthDst, Field::EthType]),
                &[2],
            )
        }
        other => panic!("recirculation {other}"),
    })
}

fn tagged(dst: u32, n: u32) -> Vec<u8> {
    let mut packet = packet(dst, 9, n);
    packet.splice(12..12, tag(7).to_bytes());
    packet
}

#[test]
fn a_recirculated_packet_is_looked_up_as_it_is_by_then() {
    let mut bench = Bench::new(3, behind_the_tag());
    let packets: Vec<_> = (0..200).map(|n| tagged(4 + n % 2, n)).collect();
    bench.receive(0, &packets);
    let (even, odd): (Vec<u32>, Vec<u32>) = (0..200).partition(|n| n % 2 == 0);
    assert_eq!((bench.numbers(1), bench.numbers(2)), (even, odd));
    // One for the tag, one for each destination behind it.
    assert_eq!(bench.switch.upcalls(), 3);
    bench.pipeline.push_stats(bench.now);
    assert_eq!(bench.switch.credited(1).0, 200);
    assert_eq!(bench.switch.credited(2), (200, 12_000, bench.now));
}

/// Packets recirculate by a hash, changed before or not; those of a slot leave by one port.
fn by_hash(changes: bool) -> Arc<FakeSwitch> {
    FakeSwitch::new(move |key| {
        let id = RecircId(key.get(Field::RecircId) as u32);
        let (hash, set) = (FlowHash::L4 { basis: 0 }, SetField::new(Field::EthSrc, 0x77, 0xff));
        let set = set.filter(|_| changes).map(Action::SetField);
        let id = match id.hash() {
            None => RecircId::hashed(3),
            Some(slot) => {
                assert_eq!((id.number(), slot), (3, hash.short(key)));
                let mut answer = translation(&[output(1 + u32::from(slot % 2))], &[Field::InPort]);
                answer
                    .mask
                    .add_bits(Field::RecircId, u128::from(!RecircId::HASH_BITS | 1));
                return answer;
            }
        };
        let actions: Vec<Action> = set.into_iter().chain([Action::RecircByHash { id, hash }]).collect();
        translation(&actions, &[Field::InPort, Field::RecircId])
    })
}

#[test]
fn packets_that_recirculate_by_a_hash_share_a_megaflow_for_each_slot() {
    for changes in [false, true] {
        let mut bench = Bench::new(3, by_hash(changes));
        let packets: Vec<_> = (0..400).map(|n| packet(n % 50, n % 7, n)).collect();
        bench.receive(0, &packets);
        // One before the choice, and one for each slot.
        assert_eq!(bench.switch.upcalls(), 3);
        let slot = |packet: &Vec<u8>| {
            let mut packet = packet.clone();
            packet[11] = if changes { 0x77 } else { packet[11] };
            FlowHash::L4 { basis: 0 }.short(&flow::extract(&packet, &PortNo(0).into()).unwrap()) % 2
        };
        for port in [0, 1] {
            let own = packets.iter().filter(|packet| slot(packet) == port);
            let expected: Vec<u32> = own.map(|packet| number(packet)).collect();
            assert!(expected.len() > 50);
            assert_eq!(bench.numbers(1 + usize::from(port)), expected);
        }
    }
}

#[test]
fn order_on_a_port_is_kept_between_recirculated_packets_and_others() {
    let switch = FakeSwitch::new(|key| match (key.get(Field::RecircId), key.get(Field::EthDst) & 1) {
        (0, 0) => translation(&[Action::Recirc(1)], &[Field::EthDst, Field::RecircId]),
        _ => translation(&[output(1)], &[Field::EthDst, Field::RecircId]),
    });
    let mut bench = Bench::new(2, switch);
    let packets: Vec<_> = (0..300).map(|n| packet(n * n % 7, 9, n)).collect();
    bench.receive(0, &packets);
    assert_eq!(bench.numbers(1), (0..300).collect::<Vec<_>>());
}

#[test]
fn what_the_packet_is_changed_to_before_or_after_does_not_reach_the_other_copy() {
    let set = |dst: u128| Action::SetField(SetField::new(Field::EthDst, dst, 0xff).unwrap());
    let switch = FakeSwitch::new(move |key| match key.get(Field::RecircId) {
        0 => translation(
            &[
                Action::SetQueue(3),
                Action::Clone(2),
                set(0x55),
                Action::Recirc(1),
                set(0x66),
                output(1),
            ],
            &[Field::RecircId],
        ),
        _ => {
            assert_eq!(key.get(Field::SkbPriority), 3);
            assert_eq!(key.get(Field::EthDst) & 0xff, 0x55);
            translation(&[output(2)], &[Field::RecircId])
        }
    });
    let mut bench = Bench::new(3, switch);
    bench.receive(0, &(0..40).map(|n| packet(1, 9, n)).collect::<Vec<_>>());
    let (one, two) = (bench.sent(1), bench.sent(2));
    assert_eq!((one.len(), two.len()), (40, 40));
    assert!(one.iter().all(|packet| packet[5] == 0x66));
    assert!(two.iter().all(|packet| packet[5] == 0x55));
    assert_eq!(
        two.iter().map(|p| number(p)).collect::<Vec<_>>(),
        (0..40).collect::<Vec<_>>()
    );
}

#[test]
fn a_packet_that_recirculates_for_ever_is_dropped_and_counted() {
    let switch = FakeSwitch::new(|key| {
        let next = key.get(Field::RecircId) as u32 % 3 + 1;
        translation(&[Action::Recirc(next)], &[Field::RecircId])
    });
    let mut bench = Bench::new(2, switch);
    bench.receive(0, &(0..10).map(|n| packet(1, 9, n)).collect::<Vec<_>>());
    assert_eq!(dropped(&bench, DropCause::Recirculation), 10);
    assert_eq!(dropped(&bench, DropCause::NoDestination), 0);
    let stats = bench.pipeline.cache_stats();
    let lookups = stats.exact_hits + stats.megaflow_hits + stats.upcalls;
    assert_eq!(lookups, 10 * u64::from(MAX_RECIRCULATIONS + 1));
}

#[test]
fn a_recirculation_that_outdates_the_megaflows_of_its_batch_has_the_others_looked_up_again() {
    // The first packet that recirculates changes where all go.
    let changes = Arc::<dp::Changes>::default();
    let port = Arc::new(AtomicU32::new(1));
    let switch = {
        let (changes, port) = (changes.clone(), port.clone());
        FakeSwitch::new(move |key| {
            let fields = [Field::RecircId, Field::EthDst];
            let again = key.get(Field::EthDst) & 0xff == 7;
            let mut answer = match (key.get(Field::RecircId), again) {
                (0, true) => translation(&[Action::Recirc(1)], &fields),
                (0, false) => translation(&[output(port.load(Ordering::Relaxed))], &fields),
                _ => {
                    port.store(2, Ordering::Relaxed);
                    changes.publish(&[Change::Dep(Dep(1))]);
                    translation(&[output(1)], &fields)
                }
            };
            if !again {
                answer.deps.push(Dep(1));
            }
            credited(answer, &[1])
        })
    };
    let mut bench = Bench::with(3, switch, changes, 1000);
    bench.receive(0, &[packet(5, 9, 0)]);
    // All in one batch.
    bench.receive(0, &[packet(5, 9, 1), packet(7, 9, 2), packet(5, 9, 3), packet(5, 9, 4)]);
    assert_eq!(bench.numbers(1), [0, 1, 2]);
    assert_eq!(bench.numbers(2), [3, 4]);
    bench.pipeline.push_stats(bench.now);
    assert_eq!(bench.switch.credited(1).0, 6, "five packets, one of them twice");
}

#[test]
fn a_branch_is_taken_by_length_and_what_is_behind_it_sees_the_packet_as_before() {
    let set = |dst: u128| Action::SetField(SetField::new(Field::EthDst, dst, 0xff).unwrap());
    let switch = FakeSwitch::new(move |_| {
        let branch = Action::IfLonger {
            len: 100,
            then: 2,
            otherwise: 1,
        };
        translation(&[branch, set(0x77), output(1), output(2), output(1)], &[])
    });
    let mut bench = Bench::new(3, switch);
    let long = |len: usize| {
        let mut long = packet(1, 9, 0);
        long.resize(len, 0);
        long
    };
    bench.receive(0, &[long(60), long(100), long(101), long(1000)]);
    let ends: Vec<_> = bench.sent(1).iter().map(|packet| (packet[5], packet.len())).collect();
    assert_eq!(
        ends,
        [(1, 60), (1, 100), (0x77, 101), (1, 101), (0x77, 1000), (1, 1000)]
    );
    assert_eq!(bench.sent(2).iter().map(Vec::len).collect::<Vec<_>>(), [60, 100]);
}

/// A step of a program.
#[derive(Clone, Debug)]
enum Op {
    /// Sets the last byte of the destination.
    Set(u8),
    Output(u32),
    Recirculate(u32),
    Clone(Vec<Op>),
}

/// What becomes of packets, by the number of the recirculation and the destination.
type Program = Vec<Vec<Op>>;

const NUMBERS: u32 = 4;
const CLASSES: u32 = 4;

fn rule(program: &Program, number: u32, dst: u8) -> &[Op] {
    &program[(number * CLASSES + u32::from(dst) % CLASSES) as usize]
}

fn actions(ops: &[Op]) -> Vec<Action> {
    let of = |op: &Op| match op {
        Op::Set(dst) => vec![Action::SetField(
            SetField::new(Field::EthDst, (*dst).into(), 0xff).unwrap(),
        )],
        Op::Output(port) => vec![output(*port)],
        Op::Recirculate(number) => vec![Action::Recirc(*number)],
        Op::Clone(ops) => {
            let actions = actions(ops);
            [vec![Action::Clone(actions.len() as u32)], actions].concat()
        }
    };
    ops.iter().flat_map(of).collect()
}

/// Where a packet goes: all its way, before the next.
fn model(program: &Program, packet: &[u8], number: u32, depth: u32, sent: &mut [Vec<Vec<u8>>]) {
    fn steps(ops: &[Op], packet: &mut [u8], sent: &mut [Vec<Vec<u8>>], again: &mut Vec<(u32, Vec<u8>)>) {
        for op in ops {
            match op {
                Op::Set(dst) => packet[5] = *dst,
                Op::Output(port) => sent[*port as usize].push(packet.to_vec()),
                Op::Recirculate(number) => again.push((*number, packet.to_vec())),
                Op::Clone(ops) => steps(ops, &mut packet.to_vec(), sent, again),
            }
        }
    }
    let mut again = Vec::new();
    steps(rule(program, number, packet[5]), &mut packet.to_vec(), sent, &mut again);
    for (number, packet) in again.iter().filter(|_| depth < MAX_RECIRCULATIONS) {
        model(program, packet, *number, depth + 1, sent);
    }
}

fn any_program() -> impl Strategy<Value = Program> {
    let op = || {
        prop_oneof![
            any::<u8>().prop_map(Op::Set),
            (1..4u32).prop_map(Op::Output),
            (1..NUMBERS).prop_map(Op::Recirculate),
        ]
    };
    let ops = prop_oneof![
        // Connection tracking, and the actions behind it.
        4 => (any::<Option<u8>>(), 1..NUMBERS)
            .prop_map(|(dst, number)| dst.map(Op::Set).into_iter().chain([Op::Recirculate(number)]).collect()),
        4 => (1..4u32).prop_map(|port| vec![Op::Output(port)]),
        2 => prop::collection::vec(op(), 0..4),
        1 => (prop::collection::vec(op(), 0..3), op()).prop_map(|(ops, then)| vec![Op::Clone(ops), then]),
    ];
    prop::collection::vec(ops, (NUMBERS * CLASSES) as usize)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_of_recirculated_packets_go_where_and_in_the_order_that_single_packets_would(
        program in any_program(),
        bursts in prop::collection::vec(prop::collection::vec(0..8u32, 1..80), 1..4),
        limit in prop_oneof![Just(3usize), Just(1000)],
    ) {
        let fields = [Field::InPort, Field::RecircId, Field::EthDst];
        let rules = program.clone();
        let switch = FakeSwitch::new(move |key| {
            let rule = rule(&rules, key.get(Field::RecircId) as u32, key.get(Field::EthDst) as u8);
            translation(&actions(rule), &fields)
        });
        let mut bench = Bench::with(4, switch, Arc::default(), limit);
        // No packet waits for its upcall.
        let rx = bench.devices[0].open_rx().unwrap().remove(0);
        bench.rx_queues[0] = Pipeline::rx_queue(PortNo(0), rx, Budget::new(100_000, 256));
        let mut next = 0;
        for burst in bursts {
            let packets: Vec<_> = (next..).zip(burst).map(|(n, dst)| packet(dst, 9, n)).collect();
            next += packets.len() as u32;
            let mut expected = vec![Vec::new(); 4];
            packets.iter().for_each(|packet| model(&program, packet, 0, 0, &mut expected));
            bench.receive(0, &packets);
            for (port, expected) in expected.iter().enumerate().skip(1) {
                prop_assert_eq!(&bench.sent(port), expected);
            }
        }
    }
}
