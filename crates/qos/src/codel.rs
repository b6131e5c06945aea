//! CoDel: drops from the head of a queue whose sojourn time exceeds a target for a whole interval.
//!
//! Source: RFC 8289, section 5 (the state machine) and 3 (the parameters). The queue is measured by
//! each packet's sojourn time at dequeue. After an interval above the target one packet is dropped,
//! the next ones after interval/√count, until a sojourn time is below the target or at most one
//! maximum packet is left. With ECN, ECN-capable packets are marked instead.

use crate::pool::{Cx, Head, List, Pool};
use crate::{Cause, ConfigError, Nanos, Packet};

/// The largest packet of an Ethernet without jumbo frames, with its header.
pub(crate) const MTU: u32 = 1_514;

/// CoDel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    pub(crate) target: Nanos,
    pub(crate) interval: Nanos,
    pub(crate) limit: u32,
    pub(crate) ecn: bool,
}

impl Default for CodelConfig {
    fn default() -> CodelConfig {
        CodelConfig {
            target: Nanos::from_micros(5_000),
            interval: Nanos::from_micros(100_000),
            limit: 10_240,
            ecn: false,
        }
    }
}

impl CodelConfig {
    /// With a target of 1 to 10 000 000 µs (default 5000), an interval of the same range that is
    /// not below it (100 000), and a limit of 1 to 1 000 000 packets (10 240).
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `target`, `interval` or `limit`.
    pub fn new(target: u64, interval: u64, limit: u64, ecn: bool) -> Result<CodelConfig, ConfigError> {
        ConfigError::range("target", target, 1, 10_000_000)?;
        ConfigError::range("interval", interval, target, 10_000_000)?;
        ConfigError::range("limit", limit, 1, 1_000_000)?;
        Ok(CodelConfig {
            target: Nanos::from_micros(target),
            interval: Nanos::from_micros(interval),
            limit: limit as u32,
            ecn,
        })
    }
}

/// CoDel's state of one queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Control {
    /// When the sojourn time will have been above the target for an interval; 0 if it is not above.
    first_above: Nanos,
    drop_next: Nanos,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Control {
    /// Dequeues the head of `list` if nothing has to be dropped, as for nearly every packet. Else
    /// returns `None` and leaves the list unchanged.
    #[inline]
    pub(crate) fn quick<P: Packet>(
        &mut self,
        config: &CodelConfig,
        list: &mut List,
        pool: &Pool<P>,
        now: Nanos,
    ) -> Option<Head> {
        if self.dropping {
            return None;
        }
        let head = list.head(pool)?;
        if now.since(head.since) >= config.target && list.bytes() > u64::from(MTU) + u64::from(head.bytes) {
            return None;
        }
        self.first_above = Nanos(0);
        list.pop_head(&head);
        Some(head)
    }

    /// The next packet of `list` that is not dropped.
    #[inline(never)]
    pub(crate) fn dequeue<P: Packet>(
        &mut self,
        config: &CodelConfig,
        list: &mut List,
        mut cx: Cx<'_, '_, P>,
    ) -> Option<u32> {
        let cx = &mut cx;
        let (mut id, mut late) = self.take(config, list, cx)?;
        if self.dropping {
            if !late {
                self.dropping = false;
            }
            while self.dropping && cx.now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                let marked = self.signal(config, id, cx);
                if !marked {
                    let Some(next) = self.take(config, list, cx) else {
                        self.dropping = false;
                        return None;
                    };
                    (id, late) = next;
                }
                if late {
                    self.drop_next = self.law(config, self.drop_next);
                } else {
                    self.dropping = false;
                }
                if marked {
                    break;
                }
            }
        } else if late {
            let marked = self.signal(config, id, cx);
            if !marked {
                id = self
                    .take(config, list, cx)
                    .map(|(id, _)| id)
                    .unwrap_or(crate::pool::NIL);
            }
            self.dropping = true;
            let since = self.count.saturating_sub(self.last_count);
            let recent = cx.now.since(self.drop_next).0 < config.interval.0.saturating_mul(16);
            self.count = if since > 1 && recent { since } else { 1 };
            self.last_count = self.count;
            self.drop_next = self.law(config, cx.now);
            if id == crate::pool::NIL {
                return None;
            }
        }
        Some(id)
    }

    /// The head of the queue, and whether it is to be dropped (`dodequeue` of the RFC).
    #[inline]
    fn take<P: Packet>(
        &mut self,
        config: &CodelConfig,
        list: &mut List,
        cx: &mut Cx<'_, '_, P>,
    ) -> Option<(u32, bool)> {
        let Some(id) = list.pop(cx.pool) else {
            self.first_above = Nanos(0);
            return None;
        };
        let sojourn = cx.now.since(cx.pool.since(id));
        if sojourn < config.target || list.bytes() <= u64::from(MTU) {
            self.first_above = Nanos(0);
            return Some((id, false));
        }
        if self.first_above == Nanos(0) {
            self.first_above = cx.now + config.interval;
            return Some((id, false));
        }
        Some((id, cx.now >= self.first_above))
    }

    /// Marks the packet or else drops it.
    fn signal<P: Packet>(&mut self, config: &CodelConfig, id: u32, cx: &mut Cx<'_, '_, P>) -> bool {
        let marked = config.ecn && cx.pool.packet(id).is_some_and(Packet::mark_ecn);
        if marked {
            cx.counters.marks += 1;
        } else {
            cx.drop(id, Cause::Sojourn);
        }
        marked
    }

    fn law(&self, config: &CodelConfig, from: Nanos) -> Nanos {
        from + Nanos((config.interval.0 as f64 / f64::from(self.count.max(1)).sqrt()) as u64)
    }
}

/// One queue under CoDel.
#[derive(Debug)]
pub(crate) struct Codel {
    config: CodelConfig,
    list: List,
    control: Control,
}

impl Codel {
    pub(crate) fn new(config: CodelConfig) -> Codel {
        Codel {
            config,
            list: List::new(),
            control: Control::default(),
        }
    }

    #[inline]
    pub(crate) fn enqueue<P: Packet>(&mut self, id: u32, mut cx: Cx<'_, '_, P>) -> Option<Cause> {
        if self.list.packets() >= self.config.limit {
            cx.drop(id, Cause::Full);
            return Some(Cause::Full);
        }
        self.list.push(cx.pool, id);
        None
    }

    #[inline]
    pub(crate) fn dequeue<P: Packet>(&mut self, cx: Cx<'_, '_, P>) -> Option<u32> {
        match self.control.quick(&self.config, &mut self.list, cx.pool, cx.now) {
            Some(head) => Some(head.id),
            None => self.control.dequeue(&self.config, &mut self.list, cx),
        }
    }

    pub(crate) fn pop<P>(&mut self, pool: &Pool<P>) -> Option<u32> {
        self.list.pop(pool)
    }

    pub(crate) fn change(&mut self, config: CodelConfig) {
        self.config = config;
    }
}
