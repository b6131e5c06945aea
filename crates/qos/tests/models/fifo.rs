//! One queue and a limit.

use crate::common::{Parcel, fifo};
use crate::{Model, agree, steps};
use proptest::prelude::*;
use qos::{Nanos, Single};
use std::collections::VecDeque;

struct Queue {
    packets: VecDeque<Parcel>,
    limit: usize,
}

impl Model for Queue {
    fn enqueue(&mut self, parcel: Parcel, _: Nanos, _: &[Parcel]) -> Vec<Parcel> {
        if self.packets.len() == self.limit {
            return vec![parcel];
        }
        self.packets.push_back(parcel);
        Vec::new()
    }

    fn dequeue(&mut self, _: Nanos) -> (Option<Parcel>, Vec<Parcel>) {
        (self.packets.pop_front(), Vec::new())
    }
}

proptest! {
    #[test]
    fn a_fifo_is_a_queue_that_takes_no_more_than_its_limit(limit in 1usize..30, steps in steps(4, 1_000, 300)) {
        let packets = VecDeque::new();
        agree(&mut Single::new(&fifo(limit as u64)), &mut Queue { packets, limit }, &steps)?;
    }
}
