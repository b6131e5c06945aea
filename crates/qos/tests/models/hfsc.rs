//! The paper's algorithm for curves that are lines, by their definition, with rates that give whole
//! bytes and nanoseconds.
//!
//! With lines a real-time curve is a virtual clock (L. Zhang, 1990): a class is eligible when its
//! clock is not ahead of the time, and its deadline is when the clock will have passed the next
//! packet. A class that wakes up sets its clock to the time, if it is behind. The virtual time of a
//! class that always has packets is its service over its rate, and the least at each height is
//! next. `../hfsc.rs` checks the guarantees of curves of two pieces and of classes that become
//! idle.

use crate::common::{Parcel, nothing_dropped};
use proptest::prelude::*;
use qos::{Curve, Hfsc, HfscClass, HfscConfig, Nanos, Scheduler};
use std::collections::VecDeque;

/// Nanoseconds a byte: 800 kbit/s to 8 Mbit/s. All together stay below the 100 Mbit/s of the port.
const RATES: [u64; 4] = [1_000, 2_000, 4_000, 10_000];

fn line(key: &'static str, nanos: u64) -> Curve {
    Curve::linear(key, 8_000_000_000 / nanos).unwrap()
}

fn hfsc(classes: Vec<HfscClass>) -> Hfsc<Parcel> {
    Hfsc::new(&HfscConfig::new(100_000_000, classes).unwrap()).unwrap()
}

/// A class with a real-time line.
struct Clock {
    nanos: u64,
    clock: u64,
    packets: VecDeque<(u64, u32)>,
}

impl Clock {
    fn deadline(&self) -> u64 {
        let next = self.packets.front().map_or(0, |(_, bytes)| u64::from(*bytes));
        self.clock + next * self.nanos
    }
}

#[derive(Clone, Debug)]
enum Step {
    In(usize, u32),
    Out,
    Wait(u64),
    Next,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<usize>(), 60..1_514u32).prop_map(|(class, bytes)| Step::In(class, bytes)),
        4 => Just(Step::Out),
        1 => (0..3_000_000u64).prop_map(Step::Wait),
        2 => Just(Step::Next),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    /// Classes with nothing but real time come and go as they like.
    #[test]
    fn real_time_classes_leave_when_eligible_by_the_earliest_deadline(
        rates in prop::collection::vec(prop::sample::select(&RATES[..]), 1..7), steps in steps(),
    ) {
        let classes = rates.iter().enumerate().map(|(n, nanos)| HfscClass::new(n as u32 + 1).unwrap().rt(line("rt", *nanos)));
        let mut hfsc = hfsc(classes.collect());
        let mut clocks: Vec<Clock> = rates
            .iter()
            .map(|nanos| Clock { nanos: *nanos, clock: 0, packets: VecDeque::new() })
            .collect();
        let mut now = 1_000_000_000u64;
        for (id, step) in steps.iter().enumerate() {
            match *step {
                Step::In(class, bytes) => {
                    let class = class % clocks.len();
                    let parcel = Parcel::new(id as u64, bytes).queue(class as u32 + 1);
                    let _ = hfsc.enqueue(parcel, Nanos(now), &mut nothing_dropped);
                    let clock = &mut clocks[class];
                    if clock.packets.is_empty() {
                        clock.clock = clock.clock.max(now);
                    }
                    clock.packets.push_back((id as u64, bytes));
                }
                Step::Out => {
                    let eligible = clocks.iter().filter(|clock| !clock.packets.is_empty() && clock.clock <= now);
                    let earliest = eligible.map(Clock::deadline).min();
                    let found = hfsc.dequeue(Nanos(now), &mut nothing_dropped);
                    let deadline = found.as_ref().map(|parcel| clocks[parcel.queue as usize - 1].deadline());
                    prop_assert_eq!(deadline, earliest, "{:?} at {}", &found, now);
                    if let Some(parcel) = found {
                        let clock = &mut clocks[parcel.queue as usize - 1];
                        clock.clock = clock.deadline();
                        prop_assert_eq!(clock.packets.pop_front(), Some((parcel.id, parcel.bytes)));
                    }
                }
                Step::Wait(pause) => now += pause,
                Step::Next => {
                    let waiting = clocks.iter().filter(|clock| !clock.packets.is_empty());
                    let wanted = waiting.map(|clock| clock.clock.max(now)).min();
                    prop_assert_eq!(hfsc.next_event(Nanos(now)).map(|next| next.0), wanted);
                    now = wanted.unwrap_or(now);
                }
            }
        }
    }

    /// A tree whose leaves always have packets, some of them with real-time lines too.
    #[test]
    fn what_real_time_leaves_goes_to_the_least_virtual_time_at_each_height(
        specs in prop::collection::vec((any::<usize>(), prop::sample::select(&RATES[..]), prop::option::of(prop::sample::select(&RATES[..]))), 2..9),
        sizes in prop::collection::vec(60..1_514u32, 200),
        gaps in prop::collection::vec(1_000..400_000u64, 300),
    ) {
        let parents: Vec<usize> = specs.iter().enumerate().map(|(n, spec)| spec.0 % (n + 1)).collect();
        let is_leaf = |class: usize| !parents.contains(&class);
        let classes = specs.iter().enumerate().map(|(n, (_, nanos, rt))| {
            let mut class = HfscClass::new(n as u32 + 1).unwrap().ls(line("ls", *nanos));
            if let Some(rt) = rt.filter(|_| is_leaf(n + 1)) {
                class = class.rt(line("rt", rt));
            }
            match parents[n] {
                0 => class,
                parent => class.parent(parent as u32),
            }
        });
        let mut hfsc = hfsc(classes.collect());
        let mut now = 1_000_000_000u64;
        // What each class was served, in the nanoseconds of its line.
        let mut virtual_times = vec![0u64; specs.len() + 1];
        let mut clocks: Vec<Option<Clock>> = std::iter::once(None)
            .chain(specs.iter().enumerate().map(|(n, (_, _, rt))| {
                rt.filter(|_| is_leaf(n + 1)).map(|nanos| Clock { nanos, clock: now, packets: VecDeque::new() })
            }))
            .collect();
        let mut sizes = sizes.iter().cycle();
        let mut put = |hfsc: &mut Hfsc<Parcel>, class: usize, clocks: &mut [Option<Clock>], now: u64| {
            let bytes = *sizes.next().unwrap();
            let _ = hfsc.enqueue(Parcel::new(0, bytes).queue(class as u32), Nanos(now), &mut nothing_dropped);
            if let Some(clock) = &mut clocks[class] {
                clock.packets.push_back((0, bytes));
            }
        };
        for class in (1..=specs.len()).filter(|class| is_leaf(*class)) {
            for _ in 0..3 {
                put(&mut hfsc, class, &mut clocks, now);
            }
        }
        for gap in gaps {
            now += gap;
            let earliest = clocks.iter().flatten().filter(|clock| clock.clock <= now).map(Clock::deadline).min();
            // The port's own limit may say no: then there is nothing in real time either.
            let Some(parcel) = hfsc.dequeue(Nanos(now), &mut nothing_dropped) else {
                prop_assert_eq!(earliest, None);
                continue;
            };
            let leaf = parcel.queue as usize;
            if let Some(earliest) = earliest {
                let clock = clocks[leaf].as_mut().expect("one of real time is eligible");
                prop_assert_eq!(clock.deadline(), earliest);
                prop_assert!(clock.clock <= now);
                clock.clock = earliest;
            } else {
                let mut at = leaf;
                while at != 0 {
                    let siblings = (1..=specs.len()).filter(|class| parents[class - 1] == parents[at - 1]);
                    let least = siblings.map(|class| virtual_times[class]).min();
                    prop_assert_eq!(Some(virtual_times[at]), least, "{} of {:?}", at, &virtual_times);
                    at = parents[at - 1];
                }
            }
            let mut at = leaf;
            while at != 0 {
                virtual_times[at] += u64::from(parcel.bytes) * specs[at - 1].1;
                at = parents[at - 1];
            }
            if let Some(clock) = &mut clocks[leaf] {
                clock.packets.pop_front();
            }
            put(&mut hfsc, leaf, &mut clocks, now);
        }
    }
}
