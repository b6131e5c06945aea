//! Sources of packets: receive queues, and the control plane.

use crate::batch::BATCH;
use crate::ingress::Ingress;
use crate::stats::PortStats;
use crate::upcall_queue::UpcallQueue;
use dp::offload::OffloadPort;
use dp::{PortCounters, PuntReason};
use flow::PortNo;
use nanos::Nanos;
use netdev::Rx;
use parking_lot::Mutex;
use std::sync::Arc;
use tunnel::format::Format;

/// Number of punts a receive queue may send to the control plane: copies for controllers, or
/// upcalls, per batch and in reserve.
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

    /// Begins a batch. A port without contention delays no other port: it gets its whole budget.
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

/// The copies that a receive queue may punt to the control plane.
pub(crate) struct PuntBudgets {
    /// Packets for controllers.
    controllers: Budget,
    /// Samples for collectors.
    samples: Budget,
    /// Packets of control protocols.
    protocols: Budget,
}

impl PuntBudgets {
    fn new(budget: Budget) -> PuntBudgets {
        PuntBudgets {
            protocols: budget.clone(),
            samples: budget.clone(),
            controllers: budget,
        }
    }

    /// Begins a batch, as [`Budget::begin`].
    pub(crate) fn begin(&mut self, contended: bool) {
        self.controllers.begin(contended);
        self.samples.begin(contended);
        self.protocols.begin(contended);
    }

    pub(crate) fn of(&mut self, reason: PuntReason) -> &mut Budget {
        match reason {
            PuntReason::Controller => &mut self.controllers,
            PuntReason::Sample => &mut self.samples,
            _ => &mut self.protocols,
        }
    }
}

/// The source of packets, for lookups, upcalls and actions.
pub(crate) struct Source {
    /// The counters of the receive queue's port; `None` for the control plane.
    pub(crate) stats: Option<Arc<PortStats>>,
    /// Packets of new flows that wait for a translation.
    pub(crate) upcalls: UpcallQueue,
    /// Copies that may be punted to the control plane; `None` for any number.
    pub(crate) punts: Option<PuntBudgets>,
}

/// Pending packets of a receive queue.
const PENDING: usize = 64;

/// Packets of the control plane that wait, queued or pending.
const CONTROL: u32 = 256;

impl Source {
    /// The packets that the control plane sends through actions.
    pub(crate) fn control() -> Source {
        Source {
            stats: None,
            upcalls: UpcallQueue::new(u32::MAX, CONTROL, CONTROL as usize),
            punts: None,
        }
    }

    /// Whether packets wait for their upcall.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.upcalls.len() > 0
    }

    /// Whether packets wait for their upcall or for a long translation.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.waits() || self.upcalls.has_pending()
    }
}

/// A receive queue and what belongs to its port.
pub struct RxQueue {
    pub(crate) port: PortNo,
    pub(crate) rx: Box<dyn Rx>,
    pub(crate) source: Source,
    /// The port's ingress shaper and policer, if it has any.
    pub(crate) ingress: Option<Arc<Mutex<Ingress>>>,
    /// Time at which the ingress shaper releases more packets.
    pub(crate) due: Option<Nanos>,
    /// Its port in the offload, where flows can be offloaded.
    pub(crate) offload_port: Option<Arc<OffloadPort>>,
    /// What its packets are, if the host's stack receives them for tunnels.
    pub(crate) tunnel: Option<Format>,
}

impl RxQueue {
    pub(crate) fn new(port: PortNo, rx: Box<dyn Rx>, stats: Arc<PortStats>, budget: Budget) -> RxQueue {
        RxQueue {
            port,
            rx,
            source: Source {
                stats: Some(stats),
                upcalls: UpcallQueue::new(budget.per_batch, budget.burst, PENDING),
                punts: Some(PuntBudgets::new(budget)),
            },
            ingress: None,
            due: None,
            offload_port: None,
            tunnel: None,
        }
    }

    /// Packets that the queue's worker has received from its port, and lost of these.
    pub fn counters(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        if let Some(stats) = &self.source.stats {
            stats.add_to(&mut sum);
        }
        sum
    }

    /// Puts an ingress shaper and policer before it, and looks at it soon: its configuration may
    /// have changed.
    pub(crate) fn set_ingress(&mut self, ingress: Arc<Mutex<Ingress>>) {
        self.ingress = Some(ingress);
        self.due = Some(Nanos::ZERO);
    }

    /// Whether packets wait for their upcall.
    #[inline]
    pub fn waits(&self) -> bool {
        self.source.waits()
    }

    /// Whether packets wait for their upcall, or did in one of the last turns.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.source.upcalls.has_backlog()
    }

    /// Whether packets wait for a long translation.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.source.upcalls.has_pending()
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
