//! Packets that are held back until their time: those that wait at a scheduler, and those that wait
//! at the ingress shaper of their port.
//!
//! Goal: right to some ten microseconds, and a processor that sleeps in between. A sleeping thread
//! wakes some ten microseconds late, so it wakes [`EARLY`] and looks from there on.

use super::{Queue, TX_PORTS, Worker, clock};
use nanos::Nanos;
use std::time::Duration;

/// How long before a packet's time its worker is awake.
const EARLY: Duration = Duration::from_micros(40);

impl Worker {
    /// Whether packets have just come by a queue where to look for more costs no system call.
    pub(super) fn goes_on(&self) -> bool {
        let has_more = |queue: &Queue| queue.active == Some(self.turn.now) && queue.rx_queue.rx.is_free_to_ask();
        self.turn.packets > 0 && self.queues.iter().flatten().any(has_more)
    }

    /// Lets go on what is due now.
    #[inline]
    pub(super) fn pace(&mut self, now: Nanos) {
        self.pipeline.pace(now);
        if self.backlog.shaped {
            self.release_ingress(now);
        }
        self.pipeline.watch(&self.poller, TX_PORTS);
    }

    #[cold]
    fn release_ingress(&mut self, now: Nanos) {
        for queue in self.queues.iter_mut().flatten() {
            if queue.rx_queue.is_due(now) {
                self.pipeline.release_ingress(&mut queue.rx_queue, now);
                self.backlog.waiting |= queue.rx_queue.waits();
                self.backlog.pending |= queue.rx_queue.has_pending();
            }
        }
        self.backlog.shaped = self.queues.iter().flatten().any(|queue| queue.rx_queue.has_ingress());
    }

    /// How long it may sleep for the sake of what is held back; `None` where nothing is.
    #[inline]
    pub(super) fn until_due(&self) -> Option<Duration> {
        let ingresses = self.queues.iter().flatten().filter_map(|queue| queue.rx_queue.due());
        let next = match self.backlog.shaped {
            true => ingresses.chain(self.pipeline.due()).min()?,
            false => self.pipeline.due()?,
        };
        // The turn has taken its time.
        Some(next.since(clock()).saturating_sub(EARLY))
    }
}
