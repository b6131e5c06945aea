//! HFSC on virtual time: rates, deadlines, sharing, limits.

mod common;

use common::{Greedy, Parcel, near, nothing_dropped, time, warm};
use proptest::prelude::*;
use qos::{ConfigError, Curve, Hfsc, HfscClass, HfscConfig, LinkLayer, Nanos, PortSpeed, Scheduler, Shaper};

const SECOND: Nanos = Nanos::from_secs(1);

fn class(number: u32) -> HfscClass {
    HfscClass::new(number).unwrap()
}

fn ls(rate: u64) -> Curve {
    Curve::linear("ls", rate).unwrap()
}

fn hfsc(rate: u64, classes: Vec<HfscClass>) -> Hfsc<Parcel> {
    Hfsc::new(&HfscConfig::new(rate, classes).unwrap()).unwrap()
}

#[test]
fn a_class_sends_at_its_upper_limit_and_a_port_at_its_rate_from_64_kbits_to_10_gbits() {
    for rate in [64_000u64, 1_000_000, 99_999_999, 1_000_000_000, 10_000_000_000] {
        let size = (rate / 8 / 400).clamp(20, 1_514) as u32;
        for (port, limit) in [(rate * 2, rate), (rate, rate * 2)] {
            let mut hfsc = hfsc(port, vec![class(1).rates(rate / 2, Some(limit)).unwrap()]);
            let mut sources = Greedy::new(&[(1, size)]);
            sources.run(&mut hfsc, warm(rate));
            sources.run(&mut hfsc, time(rate));
            near("rate", sources.rate(1, time(rate)), rate as f64, 0.01);
        }
    }
}

#[test]
fn a_class_with_a_real_time_curve_alone_sends_at_its_rate() {
    for rate in [64_000u64, 10_000_000, 10_000_000_000] {
        let size = (rate / 8 / 400).clamp(20, 1_514) as u32;
        let mut hfsc = hfsc(rate * 10, vec![class(1).rt(Curve::linear("rt", rate).unwrap())]);
        let mut sources = Greedy::new(&[(1, size)]);
        sources.run(&mut hfsc, warm(rate));
        sources.run(&mut hfsc, time(rate));
        near("rate", sources.rate(1, time(rate)), rate as f64, 0.01);
    }
}

#[test]
fn what_is_left_is_shared_by_the_link_share_curves_at_every_height() {
    // 1 (3) over 2 (1) and 3 (over 4 (2) and 5 (1)) (2); 6 (1) beside: of 12 Mbit/s.
    let classes = vec![
        class(1).ls(ls(3_000_000)),
        class(2).parent(1).ls(ls(1_000_000)),
        class(3).parent(1).ls(ls(2_000_000)),
        class(4).parent(3).ls(ls(2_000_000)),
        class(5).parent(3).ls(ls(1_000_000)),
        class(6).ls(ls(1_000_000)),
    ];
    let mut hfsc = hfsc(12_000_000, classes);
    let time = Nanos::from_secs(4);
    let mut sources = Greedy::new(&[(6, 800)]);
    for (queues, wanted) in [
        (vec![6], vec![12e6]),
        (vec![2, 4, 5, 6], vec![3e6, 4e6, 2e6, 3e6]),
        (vec![4, 5], vec![8e6, 4e6]),
        (vec![2, 5, 6], vec![3e6, 6e6, 3e6]),
    ] {
        sources.queues = queues.iter().map(|queue| (*queue, 800)).collect();
        sources.run(&mut hfsc, SECOND);
        sources.run(&mut hfsc, time);
        for (queue, wanted) in queues.iter().zip(wanted) {
            near(
                &format!("{queue} of {queues:?}"),
                sources.rate(*queue, time),
                wanted,
                0.02,
            );
        }
    }
}

#[test]
fn a_class_at_its_limit_leaves_the_rest_to_others_and_its_parents_limit_holds() {
    let classes = vec![
        class(1).ls(ls(5_000_000)).ul(Curve::linear("ul", 4_000_000).unwrap()),
        class(2)
            .parent(1)
            .ls(ls(1_000_000))
            .ul(Curve::linear("ul", 1_000_000).unwrap()),
        class(3).parent(1).ls(ls(1_000_000)),
        class(4).ls(ls(1_000_000)),
    ];
    let mut hfsc = hfsc(10_000_000, classes);
    let time = Nanos::from_secs(4);
    let mut sources = Greedy::new(&[(2, 500), (3, 500), (4, 500)]);
    sources.run(&mut hfsc, SECOND);
    sources.run(&mut hfsc, time);
    near("limited", sources.rate(2, time), 1e6, 0.02);
    near("the rest of the parent's limit", sources.rate(3, time), 3e6, 0.02);
    near("the rest", sources.rate(4, time), 6e6, 0.02);
}

/// One packet of a class with a real-time curve: when it came, and when it has to be out.
struct Arrival {
    at: u64,
    queue: u32,
    bytes: u32,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    /// Against the definition of a service curve (section 2 of the paper): for each packet, the
    /// least over all starts of periods of backlog of the curve from there, computed by its own
    /// means.
    #[test]
    fn no_deadline_is_missed_by_more_than_a_maximum_packet(
        specs in prop::collection::vec((0u64..2_000_000, 0u64..30_000, 20_000u64..1_500_000), 1..5),
        places in prop::collection::vec((0u32..4, any::<bool>()), 4),
        gaps in prop::collection::vec((0u32..5, 0u64..12_000_000, 60u32..1_500), 20..300),
    ) {
        const LINK: u64 = 20_000_000;
        // Below 10, 11 and 12, whose parts of the link and limits would be too little for what is
        // promised.
        let little = Curve::linear("ul", 100_000).unwrap();
        let mut classes = vec![
            class(9).ls(ls(LINK)),
            class(10).ls(ls(50_000)).ul(little),
            class(11).parent(10).ls(ls(50_000)),
            class(12).parent(11).ls(ls(50_000)).ul(little),
        ];
        for (n, (m1, d, m2)) in specs.iter().enumerate() {
            let (parent, shares) = places[n];
            let mut leaf = class(n as u32 + 1).rt(Curve::new("rt", *m1, *d, *m2).unwrap());
            if shares {
                leaf = leaf.ls(ls(200_000));
            }
            classes.push(if parent == 0 { leaf } else { leaf.parent(9 + parent) });
        }
        let speed = PortSpeed::new(LINK).unwrap().link(LinkLayer::FRAME).slack(Nanos(0));
        let mut port = Shaper::new(hfsc(LINK, classes), Some(speed));
        let mut arrivals = Vec::new();
        let mut at = 1_000_000_000;
        for (queue, gap, bytes) in gaps {
            at += gap;
            arrivals.push(Arrival { at, queue: queue % specs.len() as u32, bytes });
        }
        let due = |queue: u32, nanos: f64| {
            let (m1, d, m2) = specs[queue as usize];
            let (m1, d) = if d == 0 { (m2, 0.0) } else { (m1, d as f64 * 1e3) };
            nanos.min(d) * m1 as f64 / 8e9 + (nanos - d).max(0.0) * m2 as f64 / 8e9
        };
        // Served amounts at the beginnings of each class's periods of backlog.
        let mut begins: Vec<Vec<(u64, f64)>> = vec![Vec::new(); specs.len()];
        let (mut came, mut went) = (vec![0f64; specs.len()], vec![0f64; specs.len()]);
        let mut now = Nanos(1_000_000_000);
        let mut arrivals = arrivals.iter().peekable();
        let mut id = 0;
        // Bulk that would take the whole link keeps it busy.
        let mut bulk = 0;
        loop {
            while let Some(arrival) = arrivals.next_if(|arrival| arrival.at <= now.0) {
                let queue = arrival.queue as usize;
                if came[queue] == went[queue] {
                    begins[queue].push((now.0, came[queue]));
                }
                came[queue] += f64::from(arrival.bytes);
                id += 1;
                let parcel = Parcel::new(id, arrival.bytes).queue(arrival.queue + 1);
                let _ = port.enqueue(parcel, now, &mut nothing_dropped);
            }
            while bulk < 4 && arrivals.peek().is_some() {
                bulk += 1;
                let _ = port.enqueue(Parcel::new(0, 1_500).queue(9), now, &mut nothing_dropped);
            }
            if let Some(parcel) = port.dequeue(now, &mut nothing_dropped) {
                if parcel.queue == 9 {
                    bulk -= 1;
                    continue;
                }
                let queue = parcel.queue as usize - 1;
                went[queue] += f64::from(parcel.bytes);
                let out = now.0 as f64 + f64::from(parcel.bytes) * 8e9 / LINK as f64;
                // A maximum packet's time of grace, and some nanoseconds for rounding.
                let grace = 1_500.0 * 8e9 / LINK as f64 + 3_000.0;
                let promised = begins[queue].iter()
                    .map(|(begin, amount)| amount + due(queue as u32, (out - grace - *begin as f64).max(0.0)))
                    .fold(f64::MAX, f64::min);
                prop_assert!(went[queue] + 2.0 >= promised, "{} of {promised} bytes of class {queue}", went[queue]);
                continue;
            }
            let next = [port.next_event(now).map(|next| next.0), arrivals.peek().map(|arrival| arrival.at)];
            match next.into_iter().flatten().min() {
                Some(next) => now = Nanos(next),
                None => break,
            }
        }
        prop_assert_eq!(came, went);
    }
}

#[test]
fn a_concave_curve_gives_a_thin_class_less_delay_than_its_rate_would() {
    // 160 bytes every 20 ms (64 kbit/s), due within 5 ms beside bulk on 2 Mbit/s.
    let rt = Curve::new("rt", 256_000, 5_000, 64_000).unwrap();
    let classes = vec![class(1).rt(rt).ls(ls(64_000)), class(2).ls(ls(1_900_000))];
    let speed = PortSpeed::new(2_000_000)
        .unwrap()
        .link(LinkLayer::FRAME)
        .slack(Nanos(0));
    let mut port = Shaper::new(hfsc(2_000_000, classes), Some(speed));
    let mut now = SECOND;
    let mut worst = 0;
    for id in 0..1_000 {
        let mut parcel = Parcel::new(id, 160).queue(1);
        parcel.born = now;
        let _ = port.enqueue(parcel, now, &mut nothing_dropped);
        let until = now + Nanos::from_millis(20);
        while now < until {
            while port.inner().queue_stats(2).unwrap().backlog_packets < 10 {
                let _ = port.enqueue(Parcel::new(0, 1_500).queue(2), now, &mut nothing_dropped);
            }
            match port.dequeue(now, &mut nothing_dropped) {
                Some(parcel) if parcel.queue == 1 => worst = worst.max(now.since(parcel.born).0),
                Some(_) => {}
                None => now = port.next_event(now).unwrap().min(until),
            }
        }
    }
    assert!(worst <= 5_000_000 + 6_000_000, "{worst}");
    assert_eq!(port.inner().queue_stats(1).unwrap().packets, 1_000);
}

#[test]
fn curves_that_could_never_send_are_refused_and_other_curves_keep_the_queues() {
    let refused = |classes| match HfscConfig::new(1_000_000, classes) {
        Err(ConfigError::Unsuitable { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(vec![class(1)]), "ls");
    let flat = Curve::new("rt", 100_000, 1_000, 0).unwrap();
    assert_eq!(refused(vec![class(1).rt(flat)]), "ls");
    assert_eq!(refused(vec![class(1).ls(flat)]), "ls");
    assert_eq!(refused(vec![class(1).rt(ls(5)).ul(ls(5))]), "ul");
    assert_eq!(
        refused(vec![class(1).rt(ls(5)).ls(ls(5)), class(2).parent(1).ls(ls(5))]),
        "rt"
    );

    let mut hfsc = hfsc(
        10_000_000,
        vec![class(1).rates(500_000, None).unwrap(), class(2).ls(ls(5_000))],
    );
    for id in 0..300 {
        let _ = hfsc.enqueue(
            Parcel::new(id, 1_000).queue(id as u32 % 3),
            SECOND,
            &mut nothing_dropped,
        );
    }
    let _ = hfsc.dequeue(SECOND, &mut nothing_dropped);
    let classes = vec![
        class(3).ls(ls(5_000)),
        class(2).parent(3).ls(ls(7_000)).ul(ls(9_000_000)),
    ];
    hfsc.change(
        &HfscConfig::new(20_000_000, classes).unwrap(),
        SECOND,
        &mut nothing_dropped,
    )
    .unwrap();
    assert_eq!(hfsc.packets(), 299);
    let (mut now, mut seen) = (SECOND, 0);
    while let Some(next) = hfsc.next_event(now) {
        now = next;
        seen += u32::from(hfsc.dequeue(now, &mut nothing_dropped).is_some());
    }
    assert_eq!(seen, 299);
}
