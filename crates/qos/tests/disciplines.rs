//! Compares disciplines without classes with models, and checks for all that no packet is lost or
//! duplicated.

mod common;

use common::{Parcel, fifo, nothing_dropped};
use proptest::prelude::*;
use qos::{
    Cause, CodelConfig, Enqueued, FifoConfig, FqCodelConfig, Hfsc, HfscClass, HfscConfig, Htb, HtbClass, HtbConfig,
    LeafConfig, Nanos, Netem, NetemConfig, Scheduler, SfqConfig, Single,
};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

const SECOND: Nanos = Nanos::from_secs(1);

#[derive(Clone, Debug)]
enum Step {
    In {
        flow: u64,
        queue: u32,
        priority: u8,
        bytes: u32,
    },
    Out,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..12u64, 0..6u32, 0..16u8, 60..1_514u32)
            .prop_map(|(flow, queue, priority, bytes)| Step::In { flow, queue, priority, bytes }),
        3 => Just(Step::Out),
        1 => (0..20_000_000u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..500)
}

/// Every scheduler, small enough to reach all limits.
fn all() -> Vec<(&'static str, Box<dyn Scheduler<Parcel>>, u64)> {
    let codel = CodelConfig::new(2_000, 20_000, 40, true).unwrap();
    let sfq = SfqConfig::new(1, 1_514).unwrap().limits(40, 10, 4).unwrap();
    let fq_codel = FqCodelConfig::new(codel, 4, 500).unwrap().memory(65_536).unwrap();
    let leaves = [
        fifo(40),
        LeafConfig::PfifoFast(FifoConfig::new(40).unwrap()),
        LeafConfig::Codel(codel),
        LeafConfig::Sfq(sfq),
        LeafConfig::FqCodel(fq_codel),
    ];
    let mut all: Vec<(&'static str, Box<dyn Scheduler<Parcel>>, u64)> = Vec::new();
    for leaf in leaves {
        all.push(("single", Box::new(Single::new(&leaf)), 40));
        let htb = |n: u32| {
            HtbClass::new(n)
                .unwrap()
                .min_rate(500_000)
                .unwrap()
                .priority(u64::from(n))
                .leaf(leaf)
        };
        let classes = vec![htb(0), htb(1), htb(2).parent(1), htb(3).parent(1), htb(4)];
        all.push((
            "htb",
            Box::new(Htb::new(&HtbConfig::new(4_000_000, classes).unwrap()).unwrap()),
            160,
        ));
        let hfsc = |n: u32| {
            HfscClass::new(n)
                .unwrap()
                .rates(500_000, Some(2_000_000))
                .unwrap()
                .leaf(leaf)
        };
        let top = HfscClass::new(1)
            .unwrap()
            .ls(qos::Curve::linear("ls", 1_000_000).unwrap());
        let classes = vec![hfsc(0), top, hfsc(2).parent(1), hfsc(3).parent(1), hfsc(4)];
        all.push((
            "hfsc",
            Box::new(Hfsc::new(&HfscConfig::new(4_000_000, classes).unwrap()).unwrap()),
            164,
        ));
    }
    all.push((
        "netem",
        Box::new(Netem::new(NetemConfig::new(500, 400, 10.0, 40, 3).unwrap())),
        40,
    ));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 5))]

    #[test]
    fn every_packet_comes_out_once_and_the_counters_agree(steps in steps()) {
        for (name, mut scheduler, most) in all() {
            let mut now = SECOND;
            let mut inside: HashSet<u64> = HashSet::new();
            let (mut id, mut out, mut lost) = (0u64, 0u64, 0u64);
            for step in &steps {
                let mut dropped = Vec::new();
                match *step {
                    Step::In { flow, queue, priority, bytes } => {
                        id += 1;
                        let mut parcel = Parcel::new(id, bytes).flow(flow).queue(queue);
                        (parcel.priority, parcel.ecn) = (priority, flow % 3 == 0);
                        inside.insert(id);
                        let verdict = scheduler.enqueue(parcel, now, &mut |parcel, cause| dropped.push((parcel, cause)));
                        let own = dropped.iter().find(|(parcel, _)| parcel.id == id).map(|(_, cause)| *cause);
                        prop_assert_eq!(verdict, own.map_or(Enqueued::Queued, Enqueued::Dropped));
                    }
                    Step::Out => {
                        if let Some(parcel) = scheduler.dequeue(now, &mut |parcel, cause| dropped.push((parcel, cause))) {
                            prop_assert!(inside.remove(&parcel.id), "{} came out of {name} twice", parcel.id);
                            out += 1;
                        }
                    }
                    Step::Wait(time) => now = now + Nanos(time),
                }
                for (parcel, _) in dropped {
                    prop_assert!(inside.remove(&parcel.id), "{} was dropped by {name} twice", parcel.id);
                    lost += 1;
                }
                prop_assert_eq!(scheduler.packets(), inside.len() as u64, "{}", name);
                prop_assert!(scheduler.packets() <= most, "{name} holds {}", scheduler.packets());
                prop_assert_eq!(scheduler.next_event(now).is_some(), !inside.is_empty(), "{}", name);
            }
            let stats = scheduler.stats();
            prop_assert_eq!((stats.packets, stats.all_dropped()), (out, lost), "{}", name);
            prop_assert_eq!((stats.backlog_packets, stats.backlog_bytes), (scheduler.packets(), scheduler.bytes()));
            // All others leave at their time, and newly enqueued packets are drained.
            let mut idle = 0;
            while let Some(next) = scheduler.next_event(now) {
                prop_assert!(next >= now);
                idle = if next > now { 0 } else { idle + 1 };
                prop_assert!(idle < 1_000, "{name} does nothing at {now:?}");
                now = next;
                let mut dropped = Vec::new();
                let parcel = scheduler.dequeue(now, &mut |parcel, _| dropped.push(parcel));
                for parcel in dropped.into_iter().chain(parcel) {
                    prop_assert!(inside.remove(&parcel.id));
                }
            }
            prop_assert!(inside.is_empty(), "{name} kept {inside:?}");
            for flow in 0..5 {
                let _ = scheduler.enqueue(Parcel::new(flow, 100).flow(flow), now, &mut |_, _| ());
            }
            let (held, mut drained) = (scheduler.packets(), 0);
            scheduler.drain(&mut |_| drained += 1);
            prop_assert_eq!((held, scheduler.packets(), scheduler.next_event(now)), (drained, 0, None));
        }
    }

    /// The model: three queues.
    #[test]
    fn pfifo_fast_serves_bands_in_order(steps in steps()) {
        let mut model = [const { VecDeque::new() }; 3];
        let mut scheduler = Single::new(&LeafConfig::PfifoFast(FifoConfig::new(20).unwrap()));
        for (id, step) in steps.iter().enumerate() {
            match *step {
                Step::In { priority, bytes, .. } => {
                    let mut parcel = Parcel::new(id as u64, bytes);
                    parcel.priority = priority;
                    let room = model.iter().map(VecDeque::len).sum::<usize>() < 20;
                    let queued = scheduler.enqueue(parcel, SECOND, &mut |_, _| ()) == Enqueued::Queued;
                    prop_assert_eq!(queued, room);
                    if room {
                        let band = match priority { 6 | 7 => 0, 1 | 2 | 3 | 5 => 2, _ => 1 };
                        model[band].push_back(id as u64);
                    }
                }
                _ => {
                    let wanted = model.iter_mut().find_map(VecDeque::pop_front);
                    let found = scheduler.dequeue(SECOND, &mut nothing_dropped).map(|parcel| parcel.id);
                    prop_assert_eq!(found, wanted);
                }
            }
        }
    }

    /// The model: a map of queues and a list of turns; the longest by a search.
    #[test]
    fn sfq_takes_turns_and_drops_from_a_longest_queue(steps in steps()) {
        let config = SfqConfig::new(0, 700).unwrap().limits(15, 6, 64).unwrap();
        let mut scheduler = Single::new(&LeafConfig::Sfq(config));
        let mut queues: BTreeMap<u64, (VecDeque<(u64, u32)>, i64)> = BTreeMap::new();
        let mut turns: VecDeque<u64> = VecDeque::new();
        for (id, step) in steps.iter().enumerate() {
            match *step {
                Step::In { flow, bytes, .. } => {
                    let mut dropped = Vec::new();
                    let parcel = Parcel::new(id as u64, bytes).flow(flow);
                    let _ = scheduler.enqueue(parcel, SECOND, &mut |parcel, cause| dropped.push((parcel, cause)));
                    let queue = queues.entry(flow).or_default();
                    if queue.0.len() >= 6 {
                        prop_assert!(matches!(&dropped[..], [(parcel, Cause::FlowFull)] if parcel.id == id as u64));
                        continue;
                    }
                    if !turns.contains(&flow) {
                        queue.1 = 700;
                        turns.push_back(flow);
                    }
                    queue.0.push_back((id as u64, bytes));
                    let all: usize = queues.values().map(|queue| queue.0.len()).sum();
                    if all <= 15 {
                        prop_assert!(dropped.is_empty());
                        continue;
                    }
                    let longest = queues.values().map(|queue| queue.0.len()).max().unwrap();
                    prop_assert_eq!(dropped.len(), 1);
                    let victim = queues.get_mut(&dropped[0].0.flow).unwrap();
                    prop_assert_eq!(victim.0.len(), longest);
                    prop_assert_eq!(victim.0.pop_front().unwrap().0, dropped[0].0.id);
                }
                _ => {
                    let mut wanted = None;
                    while let Some(&flow) = turns.front() {
                        let queue = queues.get_mut(&flow).unwrap();
                        if queue.0.is_empty() {
                            turns.pop_front();
                        } else if queue.1 <= 0 {
                            queue.1 += 700;
                            turns.rotate_left(1);
                        } else {
                            let (id, bytes) = queue.0.pop_front().unwrap();
                            queue.1 -= i64::from(bytes);
                            if queue.0.is_empty() {
                                turns.pop_front();
                            }
                            wanted = Some(id);
                            break;
                        }
                    }
                    let found = scheduler.dequeue(SECOND, &mut nothing_dropped).map(|parcel| parcel.id);
                    prop_assert_eq!(found, wanted);
                }
            }
        }
    }

    #[test]
    fn no_flow_is_reordered_whatever_is_shared_perturbed_or_changed(steps in steps()) {
        let sfq = |flows| SfqConfig::new(1, 300).unwrap().limits(1_000, 1_000, flows).unwrap();
        let configs = [LeafConfig::Sfq(sfq(4)), LeafConfig::Sfq(sfq(8)), fifo(1_000), LeafConfig::Codel(CodelConfig::default())];
        let mut scheduler = Single::new(&configs[0]);
        let mut last: HashMap<u64, u64> = HashMap::new();
        let mut now = SECOND;
        let mut check = |parcel: Option<Parcel>| parcel.is_none_or(|parcel| last.insert(parcel.flow, parcel.id) < Some(parcel.id));
        for (id, step) in steps.iter().enumerate() {
            match *step {
                Step::In { flow, bytes, .. } => {
                    let _ = scheduler.enqueue(Parcel::new(id as u64, bytes).flow(flow), now, &mut nothing_dropped);
                }
                Step::Out => prop_assert!(check(scheduler.dequeue(now, &mut |_, _| ()))),
                Step::Wait(time) if time % 5 == 0 => scheduler.change(&configs[id % 4], now, &mut nothing_dropped),
                Step::Wait(_) => now = now + SECOND + Nanos(1),
            }
        }
        while let Some(parcel) = scheduler.dequeue(now, &mut |_, _| ()) {
            prop_assert!(check(Some(parcel)));
        }
    }
}

#[test]
fn fq_codel_drops_from_the_fattest_flow_and_keeps_to_its_memory() {
    let codel = CodelConfig::new(5_000, 100_000, 1_000, false).unwrap();
    let config = FqCodelConfig::new(codel, 64, 1_514).unwrap().memory(100_000).unwrap();
    let mut scheduler = Single::new(&LeafConfig::FqCodel(config));
    let _ = scheduler.enqueue(Parcel::new(0, 100).flow(2), SECOND, &mut nothing_dropped);
    for id in 1..=200 {
        let _ = scheduler.enqueue(Parcel::new(id, 1_000).flow(1), SECOND, &mut |parcel, cause| {
            assert_eq!((parcel.flow, cause), (1, Cause::Memory));
        });
        assert!(scheduler.bytes() <= 100_000);
    }
    assert!(scheduler.stats().dropped(Cause::Memory) > 50);
}

#[test]
fn netem_delays_by_latency_and_jitter_and_loses_its_part() {
    let mut netem = Netem::new(NetemConfig::new(10_000, 2_000, 5.0, 1_000, 9).unwrap());
    let (mut now, mut delays, mut lost) = (SECOND, Vec::new(), 0);
    for id in 0..20_000 {
        let mut parcel = Parcel::new(id, 100);
        parcel.born = now;
        let _ = netem.enqueue(parcel, now, &mut |_, cause| lost += u32::from(cause == Cause::Loss));
        now = now + Nanos::from_micros(50);
        while let Some(parcel) = netem.dequeue(now, &mut nothing_dropped) {
            delays.push(now.since(parcel.born).0 / 1_000);
        }
    }
    assert!((900..1_100).contains(&lost), "{lost}");
    let mean = delays.iter().sum::<u64>() / delays.len() as u64;
    assert!(
        delays.iter().all(|delay| (8_000..=12_050).contains(delay)) && (9_900..10_100).contains(&mean),
        "{mean}"
    );
    let config = NetemConfig::new(1, 0, 0.0, 5_000, 9).unwrap();
    let held = netem.packets();
    netem.change(config);
    assert_eq!(netem.packets(), held);
    assert!(
        NetemConfig::new(0, 0, 101.0, 1, 0)
            .unwrap_err()
            .to_string()
            .starts_with("loss")
    );
}
