//! The contract of a scheduler.

use crate::{Cause, Nanos, Packet, Stats};

/// Where dropped packets go: the arriving one, or others that made room for it or stood too long.
pub type Dropped<'a, P> = dyn FnMut(P, Cause) + 'a;

/// What became of an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Enqueued {
    /// It is in a queue. Others may have been dropped for it.
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
/// - Every packet that goes in comes out once: from [`Scheduler::dequeue`], to `dropped`, or from
///   [`Scheduler::drain`].
/// - Nothing is allocated once as many packets have been queued as ever will be; how many can be is
///   bounded by the configuration.
pub trait Scheduler<P: Packet> {
    /// Takes a packet in.
    fn enqueue(&mut self, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Enqueued;

    /// Gives out the next packet, if one may leave now.
    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<P>;

    /// When to call [`Scheduler::dequeue`] next: never later than when it will give a packet, and
    /// not before `now`. It can be that it gives none then (a class got tokens that its parent has
    /// not); then this tells a later time. `None`: nothing is queued.
    fn next_event(&self, now: Nanos) -> Option<Nanos>;

    /// Packets queued.
    fn packets(&self) -> u64;

    /// Bytes queued, of frames.
    fn bytes(&self) -> u64;

    /// The counters of each queue, by its number.
    fn each_queue(&self, each: &mut dyn FnMut(u32, &Stats));

    /// Takes out everything, at once, in an order that keeps each flow's.
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
