//! What becomes of packets.

use crate::common::{Bench, FakeSwitch, output, packet, tag, translation};
use dp::{Action, DropCause, PuntReason};
use flow::Field;
use netdev::Netdev;

#[test]
fn packets_of_a_flow_are_forwarded_in_order_and_only_the_first_goes_up() {
    let mut bench = Bench::new(2, FakeSwitch::new(|_| translation(&[output(1)], &[Field::InPort])));
    let packets: Vec<_> = (0..100).map(|n| packet(2, 1, n)).collect();
    bench.receive(0, &packets);
    assert_eq!(bench.numbers(1), (0..100).collect::<Vec<_>>());
    assert_eq!(bench.switch.upcalls(), 1);
    let stats = bench.pipeline.cache_stats();
    assert_eq!(stats.upcalls, 1);
    assert_eq!(stats.exact_hits + stats.megaflow_hits, 99);
}

#[test]
fn both_caches_are_counted() {
    let looks_at = [Field::InPort, Field::EthType];
    let mut bench = Bench::new(2, FakeSwitch::new(move |_| translation(&[output(1)], &looks_at)));
    bench.receive(0, &[packet(2, 1, 0)]);
    bench.receive(0, &[packet(3, 1, 0)]);
    bench.receive(0, &[packet(3, 1, 0), packet(2, 1, 0)]);
    let stats = bench.pipeline.cache_stats();
    assert_eq!((stats.upcalls, stats.megaflow_hits, stats.exact_hits), (1, 1, 2));
    bench.housekeep();
    let stats = bench.pipeline.cache_stats();
    assert_eq!((stats.flows, stats.masks), (1, 1));
}

#[test]
fn where_a_megaflow_covers_all_of_a_port_packets_without_a_key_are_dropped_all_the_same() {
    let mut bench = Bench::new(2, FakeSwitch::new(|_| translation(&[output(1)], &[Field::InPort])));
    bench.receive(0, &[packet(2, 1, 0)]);
    bench.receive(0, &[packet(3, 1, 1), packet(2, 1, 2)]);
    bench.receive(0, &[packet(3, 1, 3), packet(2, 1, 4)[..13].to_vec(), packet(2, 1, 5)]);
    assert_eq!(bench.numbers(1), [0, 1, 2, 3, 5]);
    let stats = bench.pipeline.cache_stats();
    assert_eq!((stats.upcalls, stats.megaflow_hits + stats.exact_hits), (1, 4));
    let malformed = bench.pipeline.drops();
    assert!(malformed.contains(&(DropCause::Malformed, 1)));
}

#[test]
fn a_flood_sends_a_copy_to_each_port() {
    let actions = [output(1), output(2), output(3)];
    let mut bench = Bench::new(4, FakeSwitch::new(move |_| translation(&actions, &[Field::InPort])));
    let packets = [packet(9, 1, 7), packet(9, 1, 8)];
    bench.receive(0, &packets);
    for port in 1..4 {
        assert_eq!(bench.sent(port), packets);
    }
}

#[test]
fn tags_are_pushed_and_popped_between_outputs() {
    let actions = [
        output(1),
        Action::PushVlan(tag(10)),
        output(2),
        Action::PushVlan(tag(20)),
        output(3),
        Action::PopVlan,
        Action::PopVlan,
        output(1),
    ];
    let mut bench = Bench::new(4, FakeSwitch::new(move |_| translation(&actions, &[Field::InPort])));
    let plain = packet(2, 1, 5);
    let tagged = |tags: &[u16]| {
        let mut packet = plain.clone();
        for vid in tags {
            packet.splice(12..12, [0x81, 0, 0, *vid as u8]);
        }
        packet
    };
    bench.receive(0, std::slice::from_ref(&plain));
    assert_eq!(bench.sent(1), [plain.clone(), plain.clone()]);
    assert_eq!(bench.sent(2), [tagged(&[10])]);
    assert_eq!(bench.sent(3), [tagged(&[10, 20])]);
}

#[test]
fn every_dropped_packet_is_counted_under_its_cause() {
    let mut bench = Bench::new(
        2,
        FakeSwitch::new(|key| {
            let (actions, drop) = match key.get(Field::EthSrc) & 0xff {
                1 => (vec![], Some(DropCause::VlanFiltered)),
                2 => (vec![], None),
                3 => (vec![Action::PushVlan(tag(1))], None),
                4 => (vec![output(77)], None),
                5 => (vec![output(77), output(1)], None),
                _ => (vec![output(1)], None),
            };
            let mut answer = translation(&actions, &[Field::EthSrc]);
            answer.drop = drop;
            answer
        }),
    );
    for _ in 0..3 {
        bench.receive(0, &[vec![0; 13]]);
        bench.receive(0, &(1..=5).map(|src| packet(9, src, 0)).collect::<Vec<_>>());
    }
    bench.devices[1].set_up(false).unwrap();
    bench.receive(0, &[packet(9, 6, 0)]);
    let drops = bench.pipeline.drops();
    let dropped = |cause| drops.iter().find(|(c, _)| *c == cause).unwrap().1;
    assert_eq!(dropped(DropCause::Malformed), 3);
    assert_eq!(dropped(DropCause::VlanFiltered), 3);
    assert_eq!(dropped(DropCause::NoDestination), 6);
    assert_eq!(dropped(DropCause::PortDown), 7);
    assert_eq!(bench.sent(1).len(), 3);
}

#[test]
fn packets_of_a_batch_are_changed_where_they_are_and_those_without_room_for_that_are_lost_and_counted() {
    let tags = |n: usize, port: u32| -> Vec<Action> {
        let tags = std::iter::repeat_n(Action::PushVlan(tag(7)), n);
        tags.chain([output(port)]).collect()
    };
    for field in [Field::EthDst, Field::InPort] {
        let switch = FakeSwitch::new(move |key| match key.get(Field::EthDst) % 4 {
            0 => translation(&tags(200, 1), &[field]),
            1 => translation(&tags(1, 1), &[field]),
            2 => translation(&tags(2, 2), &[field]),
            _ => translation(&[output(1)], &[field]),
        });
        for kinds in [&[0, 1, 2, 3][..], &[1, 3], &[1], &[0], &[0, 2]] {
            let mut bench = Bench::new(3, switch.clone());
            // With the same megaflow for all that is the first one's.
            let kind = |n: u32| match field {
                Field::EthDst => kinds[n as usize % kinds.len()],
                _ => kinds[0],
            };
            let packets: Vec<_> = (0..100)
                .map(|n| packet(4 + kinds[n as usize % kinds.len()], 1, n))
                .collect();
            let expected = |port: u32| -> Vec<Vec<u8>> {
                let tagged = |n: u32| {
                    let mut packet = packets[n as usize].clone();
                    let tags = [(1, 1, 1), (2, 2, 2), (3, 1, 0)]
                        .into_iter()
                        .find(|(of, ..)| *of == kind(n));
                    let (_, _, tags) = tags.filter(|(_, to, _)| *to == port)?;
                    (0..tags).for_each(|_| drop(packet.splice(12..12, tag(7).to_bytes())));
                    Some(packet)
                };
                (0..100).filter_map(tagged).collect()
            };
            for round in 1..4 {
                bench.receive(0, &packets);
                assert_eq!(bench.sent(1), expected(1));
                assert_eq!(bench.sent(2), expected(2));
                let lost = (0..100).filter(|n| kind(*n) == 0).count() as u64;
                assert!(bench.pipeline.drops().contains(&(DropCause::Malformed, round * lost)));
            }
        }
    }
}

#[test]
fn a_batchs_packets_are_sampled_as_they_are_at_each_point_and_forwarded_once() {
    let sample = |handle, probability| {
        let punt = Action::Punt {
            reason: PuntReason::Sample,
            handle,
            max_len: 2000,
        };
        [Action::Sample { probability, steps: 1 }, punt]
    };
    // One megaflow for all packets, and one for each.
    for fields in [&[Field::InPort][..], &[Field::InPort, Field::EthDst]] {
        let fields = fields.to_vec();
        let answer = move |_: &flow::Key| {
            let (first, second, never) = (sample(1, u32::MAX), sample(2, u32::MAX), sample(3, 0));
            let push = [Action::PushVlan(tag(5))];
            let actions = [&first[..], &never, &push, &second, &[output(1)]].concat();
            translation(&actions, &fields)
        };
        let mut bench = Bench::new(2, FakeSwitch::new(answer));
        let packets: Vec<_> = (0..100).map(|n| packet(n % 3, 1, n)).collect();
        bench.receive(0, &packets);
        let sent = bench.sent(1);
        let tagged = |packet: &Vec<u8>| [&packet[..12], &tag(5).to_bytes(), &packet[12..]].concat();
        let expected: Vec<_> = packets.iter().map(tagged).collect();
        assert_eq!(sent, expected);
        let punts = bench.switch.punts.lock();
        for (handle, expected) in [(1, &packets), (2, &expected)] {
            let sampled = punts.iter().filter(|punt| punt.0 == handle).map(|punt| &punt.2);
            assert_eq!(sampled.collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
        }
        assert_eq!(punts.len(), 200);
    }
}

#[test]
fn about_as_many_of_many_packets_are_sampled_as_asked_for() {
    let punt = Action::Punt {
        reason: PuntReason::Sample,
        handle: 1,
        max_len: 64,
    };
    let answer = move |_: &flow::Key| {
        let probability = u32::MAX / 100;
        translation(
            &[Action::Sample { probability, steps: 1 }, punt.clone(), output(1)],
            &[Field::InPort],
        )
    };
    let mut bench = Bench::new(2, FakeSwitch::new(answer));
    let packets: Vec<_> = (0..1000).map(|n| packet(2, 1, n)).collect();
    for _ in 0..200 {
        bench.receive(0, &packets);
        assert_eq!(bench.sent(1).len(), 1000);
    }
    // 2000, with a standard deviation of 44: six of those.
    let sampled = bench.switch.punts.lock().len();
    assert!((1733..=2267).contains(&sampled), "{sampled} of 200000");
}
