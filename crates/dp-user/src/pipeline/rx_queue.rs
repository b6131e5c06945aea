//! Where packets come from, and what belongs to that.

use super::BATCH;
use super::ask::Pending;
use super::upcall_queue::UpcallQueue;
use crate::ingress::Ingress;
use crate::stats::PortStats;
use dp::PortCounters;
use dp::offload::OffloadPort;
use flow::PortNo;
use netdev::Rx;
use parking_lot::Mutex;
use std::sync::Arc;
use wire::Nanos;

/// What a queue may ask of others: so many copies for controllers, or upcalls, a batch, and some
/// more.
#[derive(Clone, Debug)]
pub struct Budget {
    left: u32,
    per_batch: u32,
    burst: u32,
}

impl Budget {
    /// `per_batch` copies for each batch while other ports wait too, and `burst` in reserve;
    /// `per_batch` upcalls a turn, and room for `burst` packets that wait for theirs.
    pub fn new(per_batch: u32, burst: u32) -> Budget {
        Budget {
            left: burst,
            per_batch,
            burst,
        }
    }

    /// Begins a batch. A port that is alone delays nobody: its budget is whole.
    pub(crate) fn begin(&mut self, contended: bool) {
        self.left = if contended {
            self.left.saturating_add(self.per_batch).min(self.burst)
        } else {
            self.burst.max(BATCH as u32)
        };
    }

    pub(crate) fn take(&mut self) -> bool {
        let some = self.left > 0;
        self.left -= u32::from(some);
        some
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }
}

/// A receive queue and what belongs to its port.
pub struct RxQueue {
    pub(crate) port: PortNo,
    pub(crate) rx: Box<dyn Rx>,
    pub(crate) stats: Arc<PortStats>,
    /// Packets of new flows that wait, and what may ask.
    pub(super) upcalls: UpcallQueue,
    /// Packets of new flows whose answer takes long.
    pub(super) pending: Pending,
    pub(crate) packet_ins: Budget,
    /// What packets pass before the lookup, where that is not nothing.
    pub(super) ingress: Option<Arc<Mutex<Ingress>>>,
    /// When more of them come through it.
    pub(super) due: Option<Nanos>,
    /// Its port in the eyes of the kernel, where packets can take shortcuts.
    pub(crate) entrance: Option<Arc<OffloadPort>>,
}

impl RxQueue {
    pub(crate) fn new(port: PortNo, rx: Box<dyn Rx>, stats: Arc<PortStats>, budget: Budget) -> RxQueue {
        RxQueue {
            port,
            rx,
            stats,
            upcalls: UpcallQueue::new(budget.per_batch, budget.burst),
            pending: Pending::default(),
            packet_ins: budget,
            ingress: None,
            due: None,
            entrance: None,
        }
    }

    /// What the worker that has it has received from its port, and lost of that.
    pub fn counters(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        self.stats.add_to(&mut sum);
        sum
    }

    /// Lets packets pass an ingress shaper; it is visited soon, since it may have changed.
    pub(crate) fn set_ingress(&mut self, ingress: Arc<Mutex<Ingress>>) {
        self.ingress = Some(ingress);
        self.due = Some(Nanos::ZERO);
    }

    /// Whether packets of its wait to ask the switch.
    #[inline]
    pub fn waits(&self) -> bool {
        self.upcalls.len() > 0
    }

    /// Whether packets of its wait, or did in one of its last turns.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.upcalls.has_backlog()
    }

    pub(crate) fn has_ingress(&self) -> bool {
        self.ingress.is_some()
    }

    pub(crate) fn due(&self) -> Option<Nanos> {
        self.due
    }

    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.due.is_some_and(|due| due <= now)
    }
}
