//! The contract of a scheduler.

use crate::{Cause, Nanos, Packet, Stats};

/// Gets dropped packets: the arriving one, or others dropped for it or for their sojourn time.
pub type Dropped<'a, P> = dyn FnMut(P, Cause) + 'a;

/// The result of an enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Enqueued {
    /// It is queued. Others may have been dropped for it.
    Queued,
    /// It was dropped, and handed back.
    Dropped(Cause),
}

impl From<Option<Cause>> for Enqueued {
    fn from(lost: Option<Cause>) -> Enqueued {
        lost.map_or(Enqueued::Queued, Enqueued::Dropped)
    }
}

/// Decides which packet leaves next, and when.
///
/// - `now` never goes back from call to call.
/// - Every enqueued packet comes out exactly once: from [`Scheduler::dequeue`], to `dropped`, or
///   from [`Scheduler::drain`].
/// - Allocates only while the maximum backlog grows, which the configuration bounds.
pub trait Scheduler<P: Packet> {
    /// Enqueues a packet.
    fn enqueue(&mut self, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Enqueued;

    /// Dequeues the next packet, if one may leave now.
    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<P>;

    /// When to call [`Scheduler::dequeue`] next: never later than when it will give a packet, and
    /// not before `now`. It can give none then (a class has tokens that its parent lacks); then
    /// this returns a later time. `None`: nothing is queued.
    fn next_event(&self, now: Nanos) -> Option<Nanos>;

    /// Packets queued.
    fn packets(&self) -> u64;

    /// Bytes queued, of frames.
    fn bytes(&self) -> u64;

    /// The counters of each queue, by its number.
    fn each_queue(&self, each: &mut dyn FnMut(u32, &Stats));

    /// Removes all packets at once and keeps each flow's order.
    fn drain(&mut self, each: &mut dyn FnMut(P));

    /// The counters of all queues together.
    fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        self.each_queue(&mut |_, stats| sum.add(stats));
        sum
    }

    /// The counters of one queue.
    fn queue_stats(&self, queue: u32) -> Option<Stats> {
        let mut found = None;
        self.each_queue(&mut |number, stats| {
            if number == queue {
                found = Some(stats.clone());
            }
        });
        found
    }

    /// Bytes that a queue sends in a millisecond at most: larger packets should be segmented before
    /// they are queued. `None` where no rate is set.
    fn segment_above(&self, _queue: u32) -> Option<u64> {
        None
    }
}
