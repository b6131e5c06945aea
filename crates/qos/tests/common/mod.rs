//! Packets and links on virtual time.
#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod load;

use qos::{Cause, Enqueued, LeafConfig, Nanos, Packet, Priority, Scheduler};
use std::collections::HashMap;

/// A packet that knows who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    pub id: u64,
    pub bytes: u32,
    pub flow: u64,
    pub queue: u32,
    pub priority: u8,
    pub ecn: bool,
    pub marked: bool,
    pub born: Nanos,
}

impl Parcel {
    pub fn new(id: u64, bytes: u32) -> Parcel {
        Parcel {
            id,
            bytes,
            flow: 0,
            queue: 0,
            priority: 0,
            ecn: false,
            marked: false,
            born: Nanos(0),
        }
    }

    pub fn flow(self, flow: u64) -> Parcel {
        Parcel { flow, ..self }
    }

    pub fn queue(self, queue: u32) -> Parcel {
        Parcel { queue, ..self }
    }
}

impl Packet for Parcel {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow_hash(&self) -> u64 {
        self.flow
    }
    fn queue(&self) -> u32 {
        self.queue
    }
    fn priority(&self) -> Priority {
        Priority::new(self.priority)
    }
    fn mark_ecn(&mut self) -> bool {
        self.marked = self.ecn;
        self.ecn
    }
}

/// Sources that keep a number of packets of one size in each queue, and the packets sent.
pub struct Greedy {
    pub queues: Vec<(u32, u32)>,
    pub depth: u64,
    pub now: Nanos,
    pub sent: HashMap<u32, u64>,
    waiting: HashMap<u32, u64>,
    next: u64,
}

impl Greedy {
    pub fn new(queues: &[(u32, u32)]) -> Greedy {
        Greedy {
            queues: queues.to_vec(),
            depth: 4,
            now: Nanos::from_secs(1),
            sent: HashMap::new(),
            waiting: HashMap::new(),
            next: 0,
        }
    }

    /// Runs for a time; bytes sent are counted by queue, from the beginning of this run.
    pub fn run(&mut self, scheduler: &mut impl Scheduler<Parcel>, time: Nanos) {
        self.sent.clear();
        let end = self.now + time;
        loop {
            for &(queue, bytes) in &self.queues {
                while *self.waiting.entry(queue).or_default() < self.depth {
                    self.next += 1;
                    let parcel = Parcel::new(self.next, bytes).queue(queue).flow(u64::from(queue));
                    assert_eq!(
                        scheduler.enqueue(parcel, self.now, &mut nothing_dropped),
                        Enqueued::Queued
                    );
                    *self.waiting.entry(queue).or_default() += 1;
                }
            }
            match scheduler.dequeue(self.now, &mut nothing_dropped) {
                Some(parcel) => {
                    *self.sent.entry(parcel.queue).or_default() += u64::from(parcel.bytes);
                    *self.waiting.entry(parcel.queue).or_default() -= 1;
                }
                None => {
                    let next = scheduler.next_event(self.now).expect("there is a backlog");
                    assert!(next > self.now, "an event that is due gave nothing");
                    if next > end {
                        self.now = end;
                        return;
                    }
                    self.now = next;
                }
            }
        }
    }

    /// Bit/s of a queue in the last run, that took so long.
    pub fn rate(&self, queue: u32, time: Nanos) -> f64 {
        self.sent.get(&queue).copied().unwrap_or(0) as f64 * 8e9 / time.0 as f64
    }
}

pub fn nothing_dropped(parcel: Parcel, cause: Cause) {
    panic!("{parcel:?} was dropped: {cause:?}");
}

pub fn near(what: &str, value: f64, wanted: f64, part: f64) {
    assert!(
        (value - wanted).abs() <= wanted * part,
        "{what}: {value} is not within {part} of {wanted}"
    );
}

/// Jain's index of fairness.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

pub fn fifo(limit: u64) -> LeafConfig {
    LeafConfig::Fifo(qos::FifoConfig::new(limit).unwrap())
}

/// How long to measure a rate: a second, or of the fastest ones some ten thousand packets.
pub fn time(rate: u64) -> Nanos {
    Nanos::from_millis(if rate > 200_000_000 { 50 } else { 1_000 })
}

/// How long to run before that, until bursts are over.
pub fn warm(rate: u64) -> Nanos {
    Nanos::from_millis(if rate > 200_000_000 { 10 } else { 300 })
}
