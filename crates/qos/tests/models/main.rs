//! Compares each discipline with an independent model: slow, obvious, written from the primary
//! source and not from the crate.
//!
//! The discipline must send, mark and drop the same packets at the same times as the model. If the
//! source leaves a choice (the fattest of equal flows, the order of equals), the model accepts
//! each. `pfifo_fast` and SFQ have theirs in `disciplines.rs`, the trTCM in `police.rs`.

#[path = "../common/mod.rs"]
mod common;

mod codel;
mod fifo;
mod fq_codel;
mod hfsc;
mod htb;
mod netem;
mod police;

use common::Parcel;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use qos::{Nanos, Scheduler};

#[derive(Clone, Debug)]
enum Step {
    In {
        flow: u64,
        bytes: u32,
        ecn: bool,
    },
    Out,
    /// Nanoseconds.
    Wait(u64),
}

/// Up to `most` steps with pauses of up to `pause` nanoseconds.
fn steps(flows: u64, pause: u64, most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..flows, prop_oneof![Just(1_514u32), 60..1_514u32], any::<bool>())
            .prop_map(|(flow, bytes, ecn)| Step::In { flow, bytes, ecn }),
        3 => Just(Step::Out),
        2 => (0..pause).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..most)
}

/// A model of a discipline without classes.
trait Model {
    /// Enqueues a packet. `seen` are the discipline's drops, which resolve choices that the source
    /// leaves open. Returns the model's drops.
    fn enqueue(&mut self, parcel: Parcel, now: Nanos, seen: &[Parcel]) -> Vec<Parcel>;
    /// The next packet, with its mark, and the packets dropped before it.
    fn dequeue(&mut self, now: Nanos) -> (Option<Parcel>, Vec<Parcel>);
}

/// The same packets in and out of both.
fn agree(scheduler: &mut impl Scheduler<Parcel>, model: &mut impl Model, steps: &[Step]) -> TestCaseResult {
    let mut now = Nanos::from_secs(1);
    for (id, step) in steps.iter().enumerate() {
        let mut dropped = Vec::new();
        match *step {
            Step::In { flow, bytes, ecn } => {
                let mut parcel = Parcel::new(id as u64, bytes).flow(flow);
                (parcel.ecn, parcel.born) = (ecn, now);
                let _ = scheduler.enqueue(parcel.clone(), now, &mut |parcel, _| dropped.push(parcel));
                let wanted = model.enqueue(parcel, now, &dropped);
                prop_assert_eq!(dropped, wanted, "on arrival of {}", id);
            }
            Step::Out => {
                let found = scheduler.dequeue(now, &mut |parcel, _| dropped.push(parcel));
                let wanted = model.dequeue(now);
                prop_assert_eq!((found, dropped), wanted, "at step {}", id);
            }
            Step::Wait(pause) => now = now + Nanos(pause),
        }
    }
    Ok(())
}
