//! A scheduler of one discipline without classes.

use crate::leaf::{Leaf, LeafConfig};
use crate::pool::{Cx, Pool};
use crate::scheduler::{Dropped, Enqueued, Scheduler};
use crate::{LinkLayer, Nanos, Packet, Stats};

/// A port's queue without classes: FIFO, `pfifo_fast`, SFQ, CoDel or FQ-CoDel.
pub struct Single<P> {
    pool: Pool<P>,
    leaf: Leaf,
    stats: Stats,
}

impl<P: Packet> Single<P> {
    /// An empty one.
    pub fn new(config: &LeafConfig) -> Single<P> {
        Single {
            pool: Pool::new(),
            leaf: Leaf::new(config),
            stats: Stats::default(),
        }
    }

    /// Takes other parameters or another discipline. What is queued stays, but for what another discipline has no room for.
    pub fn change(&mut self, config: &LeafConfig, now: Nanos, dropped: &mut Dropped<'_, P>) {
        let mut cx = Cx {
            pool: &mut self.pool,
            stats: &mut self.stats,
            dropped,
            now,
        };
        self.leaf.change(config, &mut cx);
    }
}

// `packets` and `bytes` of a scheduler are those queued, of its counters those sent.
#[allow(clippy::misnamed_getters)]
impl<P: Packet> Scheduler<P> for Single<P> {
    #[inline]
    fn enqueue(&mut self, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Enqueued {
        let id = self.pool.insert(packet, LinkLayer::FRAME, now);
        self.stats.queued(self.pool.bytes(id));
        let mut cx = Cx {
            pool: &mut self.pool,
            stats: &mut self.stats,
            dropped,
            now,
        };
        self.leaf.enqueue(id, &mut cx).into()
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<P> {
        let mut cx = Cx {
            pool: &mut self.pool,
            stats: &mut self.stats,
            dropped,
            now,
        };
        let id = self.leaf.dequeue(&mut cx)?;
        self.stats.sent(self.pool.bytes(id), now.since(self.pool.since(id)));
        self.pool.remove(id)
    }

    fn next_event(&self, now: Nanos) -> Option<Nanos> {
        (self.stats.backlog_packets > 0).then_some(now)
    }

    fn packets(&self) -> u64 {
        self.stats.backlog_packets
    }

    fn bytes(&self) -> u64 {
        self.stats.backlog_bytes
    }

    fn each_queue(&self, each: &mut dyn FnMut(u32, &Stats)) {
        each(0, &self.stats);
    }

    fn drain(&mut self, each: &mut dyn FnMut(P)) {
        while let Some(id) = self.leaf.pop(&mut self.pool) {
            self.stats.unqueued(self.pool.bytes(id));
            if let Some(packet) = self.pool.remove(id) {
                each(packet);
            }
        }
    }
}
