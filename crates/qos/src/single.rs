//! A scheduler of one discipline without classes.

use crate::leaf::{Leaf, LeafConfig};
use crate::pool::{Cx, Pool};
use crate::scheduler::{Dropped, Enqueued, Scheduler};
use crate::stats::Counters;
use crate::{Cause, LinkLayer, Nanos, Packet, Stats};

/// A port's queue without classes: FIFO, `pfifo_fast`, SFQ, CoDel or FQ-CoDel.
pub struct Single<P> {
    pool: Pool<P>,
    leaf: Leaf,
    counters: Counters,
}

impl<P: Packet> Single<P> {
    /// An empty one.
    pub fn new(config: &LeafConfig) -> Single<P> {
        Single {
            pool: Pool::new(),
            leaf: Leaf::new(config),
            counters: Counters::default(),
        }
    }

    /// Takes other parameters or another discipline. Queued packets stay as far as they fit into
    /// it.
    pub fn change(&mut self, config: &LeafConfig, now: Nanos, dropped: &mut Dropped<'_, P>) {
        let (leaf, cx) = self.parts(now, dropped);
        leaf.change(config, cx);
    }

    /// Resets all counters except the backlog.
    pub(crate) fn reset_counters(&mut self) {
        self.counters = self.counters.backlog();
    }

    /// Whether it is empty and would give out an enqueued packet at once without changing its
    /// state.
    pub(crate) fn is_open(&self) -> bool {
        self.counters.is_empty() && matches!(self.leaf, Leaf::Fifo(_) | Leaf::PfifoFast(_))
    }

    /// Counts a packet as sent without queueing it; only while [`Single::is_open`].
    #[inline]
    pub(crate) fn passed(&mut self, bytes: u32) {
        self.counters.queued(bytes);
        self.counters.sent(bytes, Nanos(0));
    }

    fn parts<'a, 'b>(&'a mut self, now: Nanos, dropped: &'a mut Dropped<'b, P>) -> (&'a mut Leaf, Cx<'a, 'b, P>) {
        let cx = Cx {
            pool: &mut self.pool,
            counters: &mut self.counters,
            dropped,
            now,
        };
        (&mut self.leaf, cx)
    }

    /// Enqueues a packet that is in the pool into any discipline. A function of its own, so that
    /// the caller is small enough to be inlined.
    #[inline(never)]
    fn enqueue_beyond(&mut self, id: u32, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<Cause> {
        let (leaf, cx) = self.parts(now, dropped);
        leaf.enqueue(id, cx)
    }

    /// Dequeues the next packet of any discipline.
    #[inline(never)]
    fn dequeue_beyond(&mut self, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<u32> {
        let (leaf, cx) = self.parts(now, dropped);
        leaf.dequeue(cx)
    }
}

// `packets` and `bytes` of a scheduler are those queued, of its counters those sent.
#[allow(clippy::misnamed_getters)]
impl<P: Packet> Scheduler<P> for Single<P> {
    #[inline]
    fn enqueue(&mut self, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Enqueued {
        self.counters.queued(packet.bytes());
        let id = self.pool.insert(packet, LinkLayer::FRAME, now);
        match &mut self.leaf {
            Leaf::Fifo(fifo) if !fifo.is_full() => {
                fifo.push(&mut self.pool, id);
                Enqueued::Queued
            }
            _ => self.enqueue_beyond(id, now, dropped).into(),
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<P> {
        let id = match &mut self.leaf {
            Leaf::Fifo(fifo) => fifo.pop(&self.pool)?,
            _ => self.dequeue_beyond(now, dropped)?,
        };
        let (packet, bytes, since) = self.pool.take(id);
        self.counters.sent(bytes, now.since(since));
        packet
    }

    fn next_event(&self, now: Nanos) -> Option<Nanos> {
        (!self.counters.is_empty()).then_some(now)
    }

    fn packets(&self) -> u64 {
        self.counters.backlog_packets()
    }

    fn bytes(&self) -> u64 {
        self.counters.backlog_bytes()
    }

    fn each_queue(&self, each: &mut dyn FnMut(u32, &Stats)) {
        each(0, &self.counters.stats());
    }

    fn drain(&mut self, each: &mut dyn FnMut(P)) {
        while let Some(id) = self.leaf.pop(&self.pool) {
            self.counters.unqueued(self.pool.bytes(id));
            if let Some(packet) = self.pool.remove(id) {
                each(packet);
            }
        }
    }
}
