//! RFC 8290, section 4: a list of new flows, one of old flows, CoDel in each.

use crate::codel::Queue;
use crate::common::Parcel;
use crate::{Model, agree, steps};
use proptest::prelude::*;
use qos::{CodelConfig, FqCodelConfig, LeafConfig, Nanos, Single};
use std::collections::{BTreeMap, VecDeque};

struct Flows {
    config: (u64, u64, bool),
    quantum: i64,
    limit: usize,
    memory: u64,
    /// Queue and credits of each flow: there are enough queues that none is shared.
    flows: BTreeMap<u64, (Queue, i64)>,
    new: VecDeque<u64>,
    old: VecDeque<u64>,
}

impl Flows {
    fn packets(&self) -> usize {
        self.flows.values().map(|(queue, _)| queue.packets.len()).sum()
    }

    fn bytes(&self) -> u64 {
        self.flows.values().map(|(queue, _)| queue.bytes()).sum()
    }
}

impl Model for Flows {
    fn enqueue(&mut self, parcel: Parcel, _: Nanos, seen: &[Parcel]) -> Vec<Parcel> {
        let flow = parcel.flow;
        let (target, interval, ecn) = self.config;
        let entry = self.flows.entry(flow);
        let (queue, credits) = entry.or_insert_with(|| (Queue::new(target, interval, ecn), 0));
        queue.packets.push_back(parcel);
        if !self.new.contains(&flow) && !self.old.contains(&flow) {
            *credits = self.quantum;
            self.new.push_back(flow);
        }
        let mut dropped = Vec::new();
        while self.packets() > self.limit || self.bytes() > self.memory {
            let most = self.flows.values().map(|(queue, _)| queue.bytes()).max().unwrap();
            let chosen = seen.get(dropped.len()).map(|parcel| parcel.flow);
            let fattest = |flow: &u64| self.flows[flow].0.bytes() == most;
            let flow = chosen
                .filter(|flow| self.flows.contains_key(flow) && fattest(flow))
                .or_else(|| self.flows.keys().copied().find(fattest));
            let queue = &mut self.flows.get_mut(&flow.unwrap()).unwrap().0;
            // Half of it from its head, 64 packets at most.
            for _ in 0..64 {
                dropped.extend(queue.packets.pop_front());
                if queue.bytes() * 2 <= most {
                    break;
                }
            }
        }
        dropped
    }

    fn dequeue(&mut self, now: Nanos) -> (Option<Parcel>, Vec<Parcel>) {
        let mut dropped = Vec::new();
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let Some(&flow) = list.front() else {
                return (None, dropped);
            };
            let (queue, credits) = self.flows.get_mut(&flow).unwrap();
            if *credits <= 0 {
                *credits += self.quantum;
                list.pop_front();
                self.old.push_back(flow);
                continue;
            }
            if let Some(parcel) = queue.dequeue(now.0, &mut dropped) {
                *credits -= i64::from(parcel.bytes);
                return (Some(parcel), dropped);
            }
            list.pop_front();
            if is_new {
                self.old.push_back(flow);
            }
        }
    }
}

proptest! {
    #[test]
    fn fq_codel_serves_marks_and_drops_as_its_rfc(
        target in 1u64..3_000, more in 0u64..12_000, limit in 20usize..90, ecn: bool,
        quantum in 200u32..2_000, memory in 65_536u64..100_000, flows in 1u64..20,
        steps in steps(20, 2_000_000, 900),
    ) {
        let interval = target + more;
        let codel = CodelConfig::new(target, interval, limit as u64, ecn).unwrap();
        let config = FqCodelConfig::new(codel, 64, u64::from(quantum)).unwrap().memory(memory).unwrap();
        let mut model = Flows {
            config: (target * 1_000, interval * 1_000, ecn),
            quantum: i64::from(quantum),
            limit,
            memory,
            flows: BTreeMap::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
        };
        let steps: Vec<_> = steps.into_iter().map(|step| match step {
            crate::Step::In { flow, bytes, ecn } => crate::Step::In { flow: flow % flows, bytes, ecn },
            other => other,
        }).collect();
        agree(&mut Single::new(&LeafConfig::FqCodel(config)), &mut model, &steps)?;
    }
}
