//! HTB and port speed on virtual time: rates, borrowing, priorities, trees.

mod common;

use common::{Greedy, Parcel, fifo, near, nothing_dropped, time, warm};
use qos::{ConfigError, Htb, HtbClass, HtbConfig, LinkLayer, Nanos, PortSpeed, Scheduler, Shaper, Single};

fn class(number: u32, min: u64, max: u64) -> HtbClass {
    HtbClass::new(number)
        .unwrap()
        .min_rate(min)
        .unwrap()
        .max_rate(max)
        .unwrap()
}

fn htb(rate: u64, classes: Vec<HtbClass>) -> Htb<Parcel> {
    Htb::new(&HtbConfig::new(rate, classes).unwrap()).unwrap()
}

const SECOND: Nanos = Nanos::from_secs(1);

/// Sizes at which a few hundred packets pass in a second.
fn size(rate: u64) -> u32 {
    (rate / 8 / 400).clamp(20, 1_514) as u32
}

const RATES: [u64; 7] = [
    64_000,
    1_000_000,
    10_000_000,
    99_999_999,
    1_000_000_000,
    2_500_000_000,
    10_000_000_000,
];

#[test]
fn a_class_sends_at_its_rate_from_64_kbits_to_10_gbits() {
    for rate in RATES {
        let mut htb = htb(rate * 2, vec![class(1, rate, rate)]);
        let mut sources = Greedy::new(&[(1, size(rate))]);
        sources.run(&mut htb, warm(rate));
        sources.run(&mut htb, time(rate));
        near("rate", sources.rate(1, time(rate)), rate as f64, 0.01);
    }
}

#[test]
fn a_port_sends_at_its_speed_from_64_kbits_to_10_gbits() {
    for rate in RATES {
        let size = size(rate);
        let mut port = Shaper::new(Single::new(&fifo(100)), Some(PortSpeed::new(rate).unwrap()));
        let mut sources = Greedy::new(&[(0, size)]);
        sources.run(&mut port, warm(rate));
        sources.run(&mut port, time(rate));
        let cost = LinkLayer::ETHERNET.cost(size, 1);
        near(
            "speed",
            sources.rate(0, time(rate)) / f64::from(size) * f64::from(cost),
            rate as f64,
            0.01,
        );
    }
}

#[test]
fn a_port_whose_speed_changes_keeps_its_queue() {
    let mut port = Shaper::new(Single::new(&fifo(100)), Some(PortSpeed::new(64_000).unwrap()));
    for id in 0..50 {
        let _ = port.enqueue(Parcel::new(id, 1_500), SECOND, &mut nothing_dropped);
    }
    port.set_speed(None);
    for id in 0..50 {
        assert_eq!(
            port.dequeue(SECOND, &mut nothing_dropped).map(|parcel| parcel.id),
            Some(id)
        );
    }
}

#[test]
fn what_a_sibling_leaves_is_borrowed_up_to_the_ceiling() {
    let mut htb = htb(
        10_000_000,
        vec![
            class(1, 2_000_000, 10_000_000),
            class(2, 3_000_000, 8_000_000),
            class(3, 5_000_000, 10_000_000),
        ],
    );
    let mut sources = Greedy::new(&[(1, 1_000)]);
    for (queues, wanted) in [
        (vec![1], vec![10e6]),
        (vec![2], vec![8e6]),
        (vec![1, 2], vec![4e6, 6e6]),
        (vec![1, 3], vec![2e6 + 3e6 * 2.0 / 7.0, 5e6 + 3e6 * 5.0 / 7.0]),
        (vec![1, 2, 3], vec![2e6, 3e6, 5e6]),
    ] {
        sources.queues = queues.iter().map(|queue| (*queue, 1_000)).collect();
        sources.run(&mut htb, Nanos::from_secs(2));
        sources.run(&mut htb, Nanos::from_secs(4));
        for (queue, wanted) in queues.iter().zip(wanted) {
            near(
                &format!("{queue} of {queues:?}"),
                sources.rate(*queue, Nanos::from_secs(4)),
                wanted,
                0.02,
            );
        }
    }
}

#[test]
fn a_class_at_its_ceiling_leaves_the_rest_to_others() {
    let mut htb = htb(
        10_000_000,
        vec![class(1, 2_000_000, 10_000_000), class(2, 3_000_000, 4_000_000)],
    );
    let mut sources = Greedy::new(&[(1, 1_000), (2, 1_000)]);
    sources.run(&mut htb, SECOND);
    sources.run(&mut htb, Nanos::from_secs(4));
    near("the rest", sources.rate(1, Nanos::from_secs(4)), 6e6, 0.02);
    near("ceiling", sources.rate(2, Nanos::from_secs(4)), 4e6, 0.02);
}

#[test]
fn what_is_lent_goes_to_the_first_priority_and_is_shared_by_quanta_within_it() {
    let classes = vec![
        class(1, 1_000_000, 10_000_000).priority(1).quantum(3_000).unwrap(),
        class(2, 1_000_000, 10_000_000).priority(1).quantum(6_000).unwrap(),
        class(3, 1_000_000, 4_000_000).priority(0),
    ];
    let mut htb = htb(10_000_000, classes);
    let time = Nanos::from_secs(4);
    let mut sources = Greedy::new(&[(1, 500), (2, 500), (3, 500)]);
    sources.run(&mut htb, SECOND);
    sources.run(&mut htb, time);
    near("first priority", sources.rate(3, time), 4e6, 0.02);
    near("one part", sources.rate(1, time), 1e6 + 4e6 / 3.0, 0.02);
    near("two parts", sources.rate(2, time), 1e6 + 8e6 / 3.0, 0.02);
}

#[test]
fn a_tree_of_many_heights_borrows_along_its_branches() {
    // 1 (4 Mbit/s) over 2 (3) over 3 (2) over the queues 4 (1) and 5 (1); 6 (6 Mbit/s) beside.
    let classes = vec![
        class(1, 4_000_000, 10_000_000),
        class(2, 3_000_000, 10_000_000).parent(1),
        class(3, 2_000_000, 8_000_000).parent(2),
        class(4, 1_000_000, 10_000_000).parent(3),
        class(5, 1_000_000, 10_000_000).parent(3),
        class(6, 6_000_000, 10_000_000),
    ];
    let mut htb = htb(10_000_000, classes);
    let time = Nanos::from_secs(4);
    let mut sources = Greedy::new(&[(4, 700)]);
    sources.run(&mut htb, SECOND);
    sources.run(&mut htb, time);
    near("up to the ceiling of a grandparent", sources.rate(4, time), 8e6, 0.02);
    sources.queues = vec![(4, 700), (5, 700), (6, 700)];
    sources.run(&mut htb, SECOND);
    sources.run(&mut htb, time);
    near("half of the branch", sources.rate(4, time), 2e6, 0.02);
    near("other half", sources.rate(5, time), 2e6, 0.02);
    near("beside", sources.rate(6, time), 6e6, 0.02);
}

#[test]
fn a_chain_of_a_hundred_classes_lends_from_end_to_end() {
    let mut classes: Vec<_> = (1..100).map(|n| class(n, 20_000, 5_000_000)).collect();
    for (n, class) in classes.iter_mut().enumerate().skip(1) {
        *class = class.clone().parent(n as u32);
    }
    let mut htb = htb(5_000_000, classes);
    let mut sources = Greedy::new(&[(99, 1_000)]);
    sources.run(&mut htb, SECOND);
    sources.run(&mut htb, SECOND);
    near("rate", sources.rate(99, SECOND), 5e6, 0.02);
}

#[test]
fn packets_of_unknown_queues_and_of_parents_go_to_queue_0() {
    let mut htb = htb(
        10_000_000,
        vec![class(1, 1_000_000, 1_000_000), class(2, 1_000_000, 1_000_000).parent(1)],
    );
    for queue in [0, 1, 7, u32::MAX] {
        let _ = htb.enqueue(Parcel::new(1, 100).queue(queue), SECOND, &mut nothing_dropped);
    }
    assert_eq!(htb.queue_stats(0).unwrap().backlog_packets, 4);
    assert_eq!(htb.queue_stats(2).unwrap().backlog_packets, 0);
    assert!(htb.queue_stats(1).is_none());
}

#[test]
fn other_parameters_keep_every_queued_packet_and_its_order() {
    let mut htb = htb(
        10_000_000,
        vec![class(1, 1_000_000, 1_000_000), class(2, 1_000_000, 1_000_000)],
    );
    for id in 0..300 {
        let parcel = Parcel::new(id, 1_000).queue(id as u32 % 3);
        let _ = htb.enqueue(parcel, SECOND, &mut nothing_dropped);
    }
    let _ = htb.dequeue(SECOND, &mut nothing_dropped);
    let config = HtbConfig::new(
        1_000_000_000,
        vec![
            class(3, 1_000_000, 1_000_000),
            class(2, 5_000_000, 900_000_000).parent(3),
        ],
    );
    htb.change(&config.unwrap(), SECOND, &mut nothing_dropped).unwrap();
    assert_eq!(htb.packets(), 299);
    let mut last = [0; 3];
    let (mut now, mut seen) = (SECOND, 0);
    while let Some(next) = htb.next_event(now) {
        now = next;
        while let Some(parcel) = htb.dequeue(now, &mut nothing_dropped) {
            let last = &mut last[parcel.queue as usize];
            assert!(parcel.id >= *last);
            *last = parcel.id;
            seen += 1;
        }
    }
    assert_eq!(seen, 299);
    let looped = HtbConfig::new(1_000_000, vec![class(3, 1, 1).parent(4), class(4, 1, 1).parent(3)]);
    assert!(matches!(looped, Err(ConfigError::Loop { .. })));
}

#[test]
fn ten_thousand_classes_share_as_few_do() {
    let classes = (1..=10_000).map(|n| class(n, 100_000, 10_000_000_000)).collect();
    let mut htb = htb(1_000_000_000, classes);
    let queues: Vec<_> = (1..=10_000).map(|n| (n, 1_250)).collect();
    let mut sources = Greedy::new(&queues[..]);
    sources.depth = 1;
    // A round at a time, for the sources look at all their queues each time.
    for &(queue, bytes) in &queues {
        for id in 0..16 {
            let _ = htb.enqueue(Parcel::new(id, bytes).queue(queue), SECOND, &mut nothing_dropped);
        }
    }
    let (mut now, mut counts) = (SECOND, vec![0u32; 10_001]);
    while now < Nanos::from_millis(1_900) {
        match htb.dequeue(now, &mut nothing_dropped) {
            Some(parcel) => counts[parcel.queue as usize] += 1,
            None => now = htb.next_event(now).unwrap(),
        }
    }
    let shares: Vec<f64> = counts[1..].iter().map(|count| f64::from(*count)).collect();
    assert!(common::jain(&shares) > 0.99, "{}", common::jain(&shares));
}
