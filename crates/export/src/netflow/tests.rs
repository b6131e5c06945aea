use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const FLOW: Flow = Flow {
    input: 3,
    src: Ipv4Addr::new(10, 0, 0, 1),
    dst: Ipv4Addr::new(10, 0, 0, 2),
    protocol: 6,
    tos: 0x28,
    src_port: 1000,
    dst_port: 80,
};

fn counts(output: u16, packets: u64, bytes: u64, used: u64) -> Counts {
    Counts {
        output,
        packets,
        bytes,
        tcp_flags: 0x12,
        used: Nanos::from_secs(used),
    }
}

/// A number of a datagram, read as the published layout has it.
fn number(datagram: &[u8], at: usize, len: usize) -> u64 {
    datagram[at..at + len]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Of each record: output, packets, bytes, first and last time in seconds.
fn records(datagrams: &[Vec<u8>]) -> Vec<[u64; 5]> {
    let of = |datagram: &Vec<u8>| -> Vec<[u64; 5]> {
        let count = number(datagram, 2, 2) as usize;
        assert_eq!(datagram.len(), 24 + 48 * count);
        let places = [(14, 2), (16, 4), (20, 4), (24, 4), (28, 4)];
        (0..count)
            .map(|n| {
                let mut record = places.map(|(at, len)| number(datagram, 24 + 48 * n + at, len));
                (record[3], record[4]) = (record[3] / 1000, record[4] / 1000);
                record
            })
            .collect()
    };
    datagrams.iter().flat_map(of).collect()
}

fn at(secs: u64) -> (Nanos, Duration) {
    (Nanos::from_secs(secs), Duration::from_secs(1_700_000_000 + secs))
}

fn run(exporter: &mut Exporter, secs: u64) -> Vec<Vec<u8>> {
    let (now, wall) = at(secs);
    exporter.run(now, wall)
}

#[test]
fn a_datagram_has_the_published_layout() {
    let settings = Settings {
        engine_type: 7,
        engine_id: 0x85,
        add_id_to_interface: true,
        ..Settings::default()
    };
    let mut exporter = Exporter::new(settings, Nanos::from_secs(1));
    exporter.update(FLOW, &counts(0x3ff, 5, 500, 2), Nanos::from_secs(2));
    let icmp = Flow {
        protocol: 1,
        src_port: 8,
        dst_port: 4,
        ..FLOW
    };
    assert!(run(&mut exporter, 3).is_empty());
    let datagrams = run(&mut exporter, 12);
    let expected = [
        &[0, 5, 0, 1][..],
        &11_000u32.to_be_bytes(),
        &1_700_000_012u32.to_be_bytes(),
        &[0; 8],
        &[7, 0x85, 0, 0],
        &[10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0],
        &[0x0a, 3, 0x0b, 0xff],
        &[0, 0, 0, 5, 0, 0, 1, 0xf4],
        &1_000u32.to_be_bytes(),
        &1_000u32.to_be_bytes(),
        &[3, 0xe8, 0, 80, 0, 0x12, 6, 0x28],
        &[0; 8],
    ];
    assert_eq!(datagrams, [expected.concat()]);
    exporter.update(icmp, &counts(1, 1, 100, 13), Nanos::from_secs(13));
    let datagram = &exporter.flush(Nanos::from_secs(13), Duration::ZERO)[0];
    assert_eq!(number(datagram, 16, 4), 1, "one record came before");
    assert_eq!(datagram[24 + 32..24 + 36], [0, 0, 8, 4]);
    assert_eq!(exporter.next(), Nanos::MAX);
}

#[test]
fn a_flow_is_told_when_it_is_old_when_it_turns_and_when_it_ends() {
    let settings = Settings {
        active_timeout: Some(Duration::from_secs(60)),
        ..Settings::default()
    };
    let mut exporter = Exporter::new(settings, Nanos::ZERO);
    for second in 0..100 {
        exporter.update(FLOW, &counts(2, 1, 100, second), Nanos::from_secs(second));
        let told = records(&run(&mut exporter, second));
        match second {
            61 => assert_eq!(told, [[2, 62, 6200, 0, 61]]),
            _ => assert!(told.is_empty(), "{second}: {told:?}"),
        }
    }
    exporter.update(FLOW, &counts(Counts::FLOODED, 1, 100, 100), Nanos::from_secs(100));
    assert_eq!(records(&run(&mut exporter, 100)), [[2, 38, 3800, 0, 99]]);
    assert!(records(&run(&mut exporter, 109)).is_empty());
    assert_eq!(records(&run(&mut exporter, 111)), [[0xffff, 1, 100, 100, 100]]);
    // Without a timeout, at its end only.
    exporter.set(Settings {
        active_timeout: None,
        ..settings
    });
    for second in 200..2000 {
        exporter.update(FLOW, &counts(2, 1, 100, second), Nanos::from_secs(second));
        assert!(run(&mut exporter, second).is_empty());
    }
    assert_eq!(records(&run(&mut exporter, 2010)), [[2, 1800, 180_000, 200, 1999]]);
}

#[test]
fn counts_of_more_than_32_bits_take_several_records() {
    let mut exporter = Exporter::new(Settings::default(), Nanos::ZERO);
    let (packets, bytes) = (10_000_000_019, 10_000_000_000_123);
    exporter.update(FLOW, &counts(2, packets, bytes, 0), Nanos::ZERO);
    let told = records(&run(&mut exporter, 20));
    assert_eq!(told.len(), 2329);
    assert_eq!(told.iter().map(|record| record[1]).sum::<u64>(), packets);
    assert_eq!(told.iter().map(|record| record[2]).sum::<u64>(), bytes);
}

#[test]
fn a_count_that_no_link_reaches_is_lost_and_an_old_flow_is_told_before_it_is_too_large() {
    let settings = Settings {
        active_timeout: None,
        ..Settings::default()
    };
    let mut exporter = Exporter::new(settings, Nanos::ZERO);
    exporter.update(FLOW, &counts(2, 1, 100, 0), Nanos::ZERO);
    exporter.update(FLOW, &counts(2, 1, u64::MAX, 0), Nanos::ZERO);
    exporter.update(FLOW, &counts(2, u64::MAX, 1, 0), Nanos::ZERO);
    assert!(run(&mut exporter, 1).is_empty());
    exporter.update(FLOW, &counts(2, 2, MOST_COUNTED, 2), Nanos::from_secs(2));
    let early = run(&mut exporter, 2);
    assert_eq!(records(&early), [[2, 1, 100, 0, 0]]);
    assert_eq!(number(&early[0], 16, 4), 2, "two updates were lost");
    let rest = exporter.flush(Nanos::from_secs(3), Duration::ZERO);
    let bytes = records(&rest).iter().map(|record| record[2]).sum::<u64>();
    assert_eq!((records(&rest).len(), bytes), (8193, MOST_COUNTED));
}

#[test]
fn records_that_nobody_fetches_are_bounded_and_leave_a_gap() {
    let mut exporter = Exporter::new(Settings::default(), Nanos::ZERO);
    let all = MOST_RECORDS as u64 + 7;
    for n in 0..=all {
        // Each update turns the flow, and so exports what it had.
        exporter.update(FLOW, &counts(n as u16 & 1, 1, 100, 0), Nanos::ZERO);
    }
    assert_eq!(records(&run(&mut exporter, 0)).len(), MOST_RECORDS);
    let last = exporter.flush(Nanos::ZERO, Duration::ZERO);
    assert_eq!(number(&last[0], 16, 4), all);
}

#[test]
fn one_flow_too_many_ends_those_that_were_used_longest_ago() {
    let mut exporter = Exporter::new(Settings::default(), Nanos::ZERO);
    for n in 0..70_000u64 {
        let flow = Flow {
            src: Ipv4Addr::from_bits(n as u32),
            ..FLOW
        };
        let used = Nanos(n);
        exporter.update(
            flow,
            &Counts {
                used,
                ..counts(2, 1, 100, 0)
            },
            used,
        );
    }
    assert!(exporter.flows.len() <= MOST_FLOWS);
    let told = exporter.run(Nanos(70_000), Duration::ZERO);
    let mut all = records(&told).len();
    assert_eq!(all, 70_000 - exporter.flows.len());
    // The first of them is the oldest one or among them.
    let oldest = exporter.flows.values().map(|entry| entry.used).min();
    assert!(oldest >= Some(Nanos(70_000 - MOST_FLOWS as u64)));
    all += records(&exporter.flush(Nanos(70_000), Duration::ZERO)).len();
    assert_eq!(all, 70_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, each packet is told once, and sequence numbers have no gaps.
    #[test]
    fn nothing_is_lost_and_nothing_told_twice(
        steps in prop::collection::vec(
            (0..5u16, 0..4u16, 0..3_000_000_000u64, 0..6_000_000_000u64, 0..40u64, any::<bool>()), 1..60),
        active in prop::option::of(1..50u64),
    ) {
        let settings = Settings { active_timeout: active.map(Duration::from_secs), ..Settings::default() };
        let mut exporter = Exporter::new(settings, Nanos::ZERO);
        let (mut now, mut told) = (0, Vec::new());
        let mut sent = BTreeMap::<u64, (u64, u64)>::new();
        for (port, output, packets, bytes, later, run_now) in steps {
            now += later;
            exporter.update(Flow { src_port: port, ..FLOW }, &counts(output, packets, bytes, now), Nanos::from_secs(now));
            let all = sent.entry(output.into()).or_default();
            (all.0, all.1) = (all.0 + packets, all.1 + bytes);
            if run_now {
                told.extend(run(&mut exporter, now));
            }
        }
        told.extend(exporter.flush(Nanos::from_secs(now), Duration::ZERO));
        let mut sequence = 0;
        for datagram in &told {
            prop_assert_eq!(number(datagram, 16, 4), sequence);
            sequence += number(datagram, 2, 2);
            prop_assert!(number(datagram, 2, 2) <= 30);
        }
        let mut counted = BTreeMap::<u64, (u64, u64)>::new();
        for [output, packets, bytes, first, last] in records(&told) {
            prop_assert!(first <= last && last <= now);
            let all = counted.entry(output).or_default();
            (all.0, all.1) = (all.0 + packets, all.1 + bytes);
        }
        sent.retain(|_, counts| *counts != (0, 0));
        prop_assert_eq!(counted, sent);
    }
}
