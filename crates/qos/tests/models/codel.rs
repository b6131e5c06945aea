//! The state machine of RFC 8289, section 5, with its names.

use crate::common::Parcel;
use crate::common::load::{TRIP, simulate};
use crate::{Model, agree, steps};
use proptest::prelude::*;
use qos::{Cause, CodelConfig, Dropped, Enqueued, LeafConfig, Nanos, Scheduler, Single, Stats};
use std::collections::VecDeque;

/// MAXPACKET of the RFC: of Ethernet, with its header.
const MAXPACKET: u64 = 1_514;

/// One queue with the state that CoDel has of it. Times in nanoseconds.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) packets: VecDeque<Parcel>,
    target: u64,
    interval: u64,
    ecn: bool,
    first_above_time: u64,
    drop_next: u64,
    count: u64,
    lastcount: u64,
    dropping: bool,
}

impl Queue {
    pub(crate) fn new(target: u64, interval: u64, ecn: bool) -> Queue {
        Queue {
            target,
            interval,
            ecn,
            ..Queue::default()
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.packets.iter().map(|parcel| u64::from(parcel.bytes)).sum()
    }

    /// `t + interval / sqrt(count)` in whole nanoseconds.
    fn control_law(&self, t: u64) -> u64 {
        t + (u128::from(self.interval).pow(2) / u128::from(self.count)).isqrt() as u64
    }

    fn dodequeue(&mut self, now: u64) -> (Option<Parcel>, bool) {
        let Some(parcel) = self.packets.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        let sojourn = now - parcel.born.0;
        let mut ok_to_drop = false;
        if sojourn < self.target || self.bytes() <= MAXPACKET {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + self.interval;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (Some(parcel), ok_to_drop)
    }

    /// Section 5 says "drop"; section 3 lets it mark instead, and then this is the packet that
    /// leaves.
    fn marks(&self, parcel: &mut Option<Parcel>) -> bool {
        let able = parcel.as_mut().filter(|parcel| self.ecn && parcel.ecn);
        able.map(|parcel| parcel.marked = true).is_some()
    }

    pub(crate) fn dequeue(&mut self, now: u64, dropped: &mut Vec<Parcel>) -> Option<Parcel> {
        let (mut parcel, mut ok_to_drop) = self.dodequeue(now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.count += 1;
                let marked = self.marks(&mut parcel);
                if !marked {
                    dropped.extend(parcel.take());
                    (parcel, ok_to_drop) = self.dodequeue(now);
                }
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
                if marked {
                    break;
                }
            }
        } else if ok_to_drop {
            if !self.marks(&mut parcel) {
                dropped.extend(parcel.take());
                parcel = self.dodequeue(now).0;
            }
            self.dropping = true;
            let delta = self.count - self.lastcount;
            self.count = 1;
            if delta > 1 && now.saturating_sub(self.drop_next) < 16 * self.interval {
                self.count = delta;
            }
            self.drop_next = self.control_law(now);
            self.lastcount = self.count;
        }
        parcel
    }
}

struct Limited {
    queue: Queue,
    limit: usize,
}

impl Model for Limited {
    fn enqueue(&mut self, parcel: Parcel, _: Nanos, _: &[Parcel]) -> Vec<Parcel> {
        if self.queue.packets.len() == self.limit {
            return vec![parcel];
        }
        self.queue.packets.push_back(parcel);
        Vec::new()
    }

    fn dequeue(&mut self, now: Nanos) -> (Option<Parcel>, Vec<Parcel>) {
        let mut dropped = Vec::new();
        (self.queue.dequeue(now.0, &mut dropped), dropped)
    }
}

proptest! {
    #[test]
    fn codel_drops_and_marks_as_the_state_machine_of_its_rfc(
        target in 1u64..3_000, more in 0u64..12_000, limit in 20usize..120, ecn: bool,
        steps in steps(3, 3_000_000, 900),
    ) {
        let interval = target + more;
        let config = CodelConfig::new(target, interval, limit as u64, ecn).unwrap();
        let queue = Queue::new(target * 1_000, interval * 1_000, ecn);
        agree(&mut Single::new(&LeafConfig::Codel(config)), &mut Limited { queue, limit }, &steps)?;
    }
}

/// The state machine before a link, to be compared under load that answers to it.
struct Alone {
    queue: Queue,
    stats: Stats,
}

impl Scheduler<Parcel> for Alone {
    fn enqueue(&mut self, parcel: Parcel, _: Nanos, _: &mut Dropped<'_, Parcel>) -> Enqueued {
        self.queue.packets.push_back(parcel);
        Enqueued::Queued
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, Parcel>) -> Option<Parcel> {
        let mut lost = Vec::new();
        let parcel = self.queue.dequeue(now.0, &mut lost);
        self.stats.drops[Cause::Sojourn as usize] += lost.len() as u64;
        lost.into_iter().for_each(|parcel| dropped(parcel, Cause::Sojourn));
        parcel
    }

    fn next_event(&self, now: Nanos) -> Option<Nanos> {
        (!self.queue.packets.is_empty()).then_some(now)
    }

    fn packets(&self) -> u64 {
        self.queue.packets.len() as u64
    }

    fn bytes(&self) -> u64 {
        self.queue.bytes()
    }

    fn each_queue(&self, each: &mut dyn FnMut(u32, &Stats)) {
        each(0, &self.stats);
    }

    fn drain(&mut self, each: &mut dyn FnMut(Parcel)) {
        self.queue.packets.drain(..).for_each(each);
    }
}

#[test]
fn the_standing_queue_of_responsive_sources_is_that_of_the_state_machine_of_its_rfc() {
    for (sources, rate, trip) in [
        (2, 100_000_000, TRIP),
        (16, 100_000_000, TRIP),
        (64, 200_000_000, TRIP),
        (16, 100_000_000, Nanos::from_millis(50)),
    ] {
        let ours = Single::new(&LeafConfig::Codel(CodelConfig::default()));
        let theirs = Alone {
            queue: Queue::new(5_000_000, 100_000_000, false),
            stats: Stats::default(),
        };
        let ours = simulate(ours, rate, sources, false, (trip, 6));
        let theirs = simulate(theirs, rate, sources, false, (trip, 6));
        assert_eq!(ours.drops, theirs.drops, "{sources} sources");
        assert_eq!(ours.standing, theirs.standing, "{sources} sources");
        assert_eq!(ours.bulk, theirs.bulk, "{sources} sources");
        assert!(ours.drops > 0, "{sources} sources fill no queue");
    }
}
