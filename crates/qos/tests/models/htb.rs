//! Devera's theory: tokens of rate and ceiling at every class; computes each time from scratch who
//! may send.
//!
//! A leaf with packets may send if it is green, or if it is yellow and so are all above it up to
//! one that is green, which lends. The lowest lender comes first, among its borrowers the first
//! priority; whose turn it is among equals the model leaves open. Times of bytes are whole
//! picoseconds here, so that there is nothing to round.

use crate::common::{Parcel, fifo, nothing_dropped};
use proptest::prelude::*;
use qos::{Htb, HtbClass, HtbConfig, Nanos, Scheduler};
use std::collections::VecDeque;

/// Picoseconds a byte, of 200 kbit/s to 16 Mbit/s.
const RATES: [i128; 6] = [500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 40_000_000];

/// What a bucket of the lower rates holds at least: two packets of Ethernet.
const BURST: i128 = 2 * 1_514;

fn bits(picos: i128) -> u64 {
    (8_000_000_000_000 / picos) as u64
}

struct Class {
    parent: Option<usize>,
    height: u32,
    priority: u8,
    rate: i128,
    ceil: i128,
    tokens: i128,
    ceil_tokens: i128,
    packets: VecDeque<u64>,
}

#[derive(Debug, PartialEq)]
enum Color {
    Green,
    Yellow,
    Red,
}

/// Class 0 is the root; class n is queue n.
struct Model {
    classes: Vec<Class>,
    at: u64,
}

impl Model {
    fn new(root: i128, specs: &[Spec]) -> Model {
        let class = |parent, priority, rate, ceil: i128| Class {
            parent,
            height: 0,
            priority,
            rate,
            ceil,
            tokens: BURST * rate,
            ceil_tokens: BURST * ceil,
            packets: VecDeque::new(),
        };
        let mut classes = vec![class(None, 0, root, root)];
        classes.extend(specs.iter().enumerate().map(|(n, spec)| {
            let parent = spec.parent(n).map_or(0, |parent| parent as usize);
            class(Some(parent), spec.priority, spec.rate, spec.ceil.min(spec.rate))
        }));
        for n in (1..classes.len()).rev() {
            let (parent, height) = (classes[n].parent.unwrap(), classes[n].height + 1);
            classes[parent].height = classes[parent].height.max(height);
        }
        // The queue 0 that every port has makes the root no higher.
        Model { classes, at: 0 }
    }

    fn go(&mut self, now: u64) {
        let passed = i128::from(now - self.at) * 1_000;
        self.at = now;
        for class in &mut self.classes {
            class.tokens = (class.tokens + passed).min(BURST * class.rate);
            class.ceil_tokens = (class.ceil_tokens + passed).min(BURST * class.ceil);
        }
    }

    fn color(&self, class: usize) -> Color {
        match &self.classes[class] {
            class if class.ceil_tokens < 0 => Color::Red,
            class if class.tokens < 0 => Color::Yellow,
            _ => Color::Green,
        }
    }

    fn lender(&self, leaf: usize) -> Option<usize> {
        let mut at = leaf;
        loop {
            match self.color(at) {
                Color::Green => return Some(at),
                Color::Yellow => at = self.classes[at].parent?,
                Color::Red => return None,
            }
        }
    }

    /// The height of its lender and its priority, if a leaf may send.
    fn rank(&self, leaf: usize) -> Option<(u32, u8)> {
        let class = &self.classes[leaf];
        let lender = self.lender(leaf).filter(|_| !class.packets.is_empty())?;
        Some((self.classes[lender].height, class.priority))
    }

    fn best(&self) -> Option<(u32, u8)> {
        (1..self.classes.len()).filter_map(|leaf| self.rank(leaf)).min()
    }

    fn send(&mut self, leaf: usize, bytes: u32) -> Option<u64> {
        let lender = self.lender(leaf)?;
        let (mut at, mut lent) = (Some(leaf), true);
        while let Some(n) = at {
            lent &= n != lender;
            let class = &mut self.classes[n];
            class.ceil_tokens -= i128::from(bytes) * class.ceil;
            if !lent {
                class.tokens -= i128::from(bytes) * class.rate;
            }
            at = class.parent;
        }
        self.classes[leaf].packets.pop_front()
    }
}

#[derive(Clone, Debug)]
struct Spec {
    /// Of the classes before it, or the root.
    parent: u32,
    rate: i128,
    ceil: i128,
    priority: u8,
}

impl Spec {
    fn parent(&self, n: usize) -> Option<u32> {
        Some(self.parent % (n as u32 + 1)).filter(|parent| *parent != 0)
    }
}

#[derive(Clone, Debug)]
enum Step {
    In(usize, u32),
    Out,
    Wait(u64),
    Next,
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let rate = || prop::sample::select(&RATES[..]);
    let spec = (any::<u32>(), rate(), rate(), 0..3u8).prop_map(|(parent, rate, ceil, priority)| Spec {
        parent,
        rate,
        ceil,
        priority,
    });
    prop::collection::vec(spec, 1..9)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<usize>(), 60..1_514u32).prop_map(|(queue, bytes)| Step::In(queue, bytes)),
        5 => Just(Step::Out),
        1 => (0..2_000_000u64).prop_map(Step::Wait),
        3 => Just(Step::Next),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn htb_lets_a_class_send_when_and_on_whose_account_the_theory_says(
        root in prop::sample::select(&RATES[..]), specs in specs(), steps in steps(),
    ) {
        let mut model = Model::new(root, &specs);
        let classes = specs.iter().enumerate().map(|(n, spec)| {
            let class = HtbClass::new(n as u32 + 1).unwrap().priority(u64::from(spec.priority)).leaf(fifo(1_000));
            let class = class.min_rate(bits(spec.rate)).unwrap().max_rate(bits(spec.ceil)).unwrap();
            spec.parent(n).map_or(class.clone(), |parent| class.parent(parent))
        });
        let config = HtbConfig::new(bits(root), classes.collect()).unwrap();
        let mut htb = Htb::new(&config).unwrap();
        let leaves: Vec<usize> = (1..model.classes.len()).filter(|n| model.classes[*n].height == 0).collect();
        let mut now = 1_000_000_000u64;
        model.go(now);
        for (id, step) in steps.iter().enumerate() {
            match *step {
                Step::In(queue, bytes) => {
                    let queue = leaves[queue % leaves.len()];
                    let parcel = Parcel::new(id as u64, bytes).queue(queue as u32);
                    let _ = htb.enqueue(parcel, Nanos(now), &mut nothing_dropped);
                    model.classes[queue].packets.push_back(id as u64);
                }
                Step::Out => {
                    let found = htb.dequeue(Nanos(now), &mut nothing_dropped);
                    let rank = found.as_ref().and_then(|parcel| model.rank(parcel.queue as usize));
                    prop_assert_eq!(rank, model.best(), "{:?} leaves at {}", &found, now);
                    if let Some(parcel) = found {
                        prop_assert_eq!(model.send(parcel.queue as usize, parcel.bytes), Some(parcel.id));
                    }
                }
                Step::Wait(pause) => {
                    now += pause;
                    model.go(now);
                }
                Step::Next => match htb.next_event(Nanos(now)) {
                    Some(next) if next.0 > now => {
                        // Nothing could have been sent before.
                        model.go(next.0 - 1);
                        prop_assert_eq!(model.best(), None, "before {:?}", next);
                        now = next.0;
                        model.go(now);
                    }
                    Some(_) => {}
                    None => prop_assert!(model.classes.iter().all(|class| class.packets.is_empty())),
                },
            }
        }
    }
}
