//! Turns in which packets of new flows wait: which queue comes first, and how little the others
//! leave to them.
//!
//! Goal: a queue whose packets are all of new flows costs the other queues next to nothing, however
//! long that lasts.
//! - A worker that spins asks epoll in such a turn, as any other worker does: one system call for
//!   all queues, where looking into each takes one a queue.
//! - Queues without a backlog are served first.
//! - A queue without a backlog that had packets lately is likely to have more of them soon. Then
//!   queues with a backlog make few upcalls in a turn, so that the next turn comes soon. Otherwise
//!   turns are longer, and more of the time goes into translations.

use super::{Queue, Worker};
use crate::pipeline::OtherQueues;
use nanos::Nanos;
use std::time::Duration;

/// Longer than `ping` waits between two packets.
const LATELY: Duration = Duration::from_secs(2);

/// What waits at a worker's queues.
pub(super) struct Backlog {
    /// Some port has an ingress shaper or policer.
    pub(super) shaped: bool,
    /// Packets of new flows wait at some queue.
    pub(super) waiting: bool,
    /// Packets wait for answers that take long.
    pub(super) pending: bool,
    /// How long a queue's last packets count as those of a queue that will have more.
    pub(super) lately: Duration,
}

impl Default for Backlog {
    fn default() -> Backlog {
        Backlog {
            shaped: false,
            waiting: false,
            pending: false,
            lately: LATELY,
        }
    }
}

impl Worker {
    /// Adds the queues at which packets of new flows wait to those that are ready, puts those that
    /// have none first, and says what is known of the latter.
    #[cold]
    pub(super) fn join_waiting(&mut self, ready: &mut Vec<u64>, now: Nanos) -> OtherQueues {
        self.backlog.waiting = false;
        let mut others = OtherQueues::Silent;
        for (place, queue) in (0..).zip(&self.queues) {
            let Some(queue) = queue.as_ref().filter(|queue| !queue.gone && queue.parked.is_none()) else {
                continue;
            };
            if queue.rx_queue.waits() && !ready.contains(&place) {
                ready.push(place);
            }
            let had_packets = queue.active.is_some_and(|then| now.since(then) < self.backlog.lately);
            if had_packets && !queue.rx_queue.has_backlog() {
                others = OtherQueues::Lately;
            }
        }
        let mut first = 0;
        for n in 0..ready.len() {
            if !self.queue(ready[n]).is_some_and(|queue| queue.rx_queue.has_backlog()) {
                ready.swap(first, n);
                first += 1;
            }
        }
        let has_packets = |place: &u64| self.queue(*place).is_some();
        if ready[..first].iter().any(has_packets) {
            OtherQueues::Ready
        } else {
            others
        }
    }

    /// Lets packets go on whose answers took long and have come.
    #[cold]
    pub(super) fn retry_pending(&mut self, now: Nanos) {
        self.backlog.pending = self.pipeline.resume_control(now);
        for queue in self.queues.iter_mut().flatten() {
            if queue.rx_queue.has_pending() {
                self.pipeline.retry_pending(&mut queue.rx_queue, now);
                self.backlog.waiting |= queue.rx_queue.waits();
                self.backlog.pending |= queue.rx_queue.has_pending();
            }
        }
    }

    /// The queue in a place; none where the number is of something else.
    fn queue(&self, place: u64) -> Option<&Queue> {
        self.queues.get(place as usize)?.as_ref()
    }
}
