//! How busy workers and queues are, in cycles of the processor's clock.

use crate::stats::Counter;

/// What a worker has done since it began. A *turn* is one look at everything that may be ready.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct WorkerLoad {
    pub(crate) packets: Counter,
    pub(crate) turns: Counter,
    /// Turns that received packets, and what they cost.
    pub(crate) busy_turns: Counter,
    pub(crate) busy_cycles: Counter,
    /// Turns that waited first, and for how long.
    pub(crate) sleeps: Counter,
    pub(crate) sleep_cycles: Counter,
}

impl WorkerLoad {
    /// Counts a turn that received so many packets.
    #[inline]
    pub(crate) fn turn(&self, packets: usize, cycles: u64) {
        self.turns.add(1);
        if packets > 0 {
            self.packets.add(packets as u64);
            self.busy_turns.add(1);
            self.busy_cycles.add(cycles);
        }
    }

    /// Counts a wait.
    #[inline]
    pub(crate) fn slept(&self, cycles: u64) {
        self.sleeps.add(1);
        self.sleep_cycles.add(cycles);
    }
}

/// What a receive queue has cost since it was opened: the whole way of its packets. Written by the
/// worker that has it.
#[derive(Default)]
pub(crate) struct QueueLoad {
    pub(crate) cycles: Counter,
}
