//! The state machine of RFC 8289, section 5, with its names.

use crate::common::Parcel;
use crate::{Model, agree, steps};
use proptest::prelude::*;
use qos::{CodelConfig, LeafConfig, Nanos, Single};
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

    /// Section 5 says "drop"; section 3 lets it mark instead, and then this is the packet that leaves.
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
