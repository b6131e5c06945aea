//! The disciplines of leaf classes and their configuration.

use crate::codel::{Codel, CodelConfig};
use crate::fifo::{Fifo, FifoConfig};
use crate::fq_codel::{FqCodel, FqCodelConfig};
use crate::pool::{Cx, Pool};
use crate::sfq::{Sfq, SfqConfig};
use crate::{Cause, Packet};

/// A discipline without classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafConfig {
    /// One queue in the order of arrival.
    Fifo(FifoConfig),
    /// Three bands by priority.
    PfifoFast(FifoConfig),
    /// Stochastic fairness queueing.
    Sfq(SfqConfig),
    /// One queue under CoDel.
    Codel(CodelConfig),
    /// A queue under CoDel for each flow.
    FqCodel(FqCodelConfig),
}

impl Default for LeafConfig {
    fn default() -> LeafConfig {
        LeafConfig::Fifo(FifoConfig::default())
    }
}

/// A discipline without classes, as it runs. The large ones are behind a pointer: most leaves of
/// large trees are FIFOs.
#[derive(Debug)]
pub(crate) enum Leaf {
    Fifo(Fifo<1>),
    PfifoFast(Box<Fifo<3>>),
    Sfq(Box<Sfq>),
    Codel(Box<Codel>),
    FqCodel(Box<FqCodel>),
}

impl Leaf {
    pub(crate) fn new(config: &LeafConfig) -> Leaf {
        match *config {
            LeafConfig::Fifo(config) => Leaf::Fifo(Fifo::new(config)),
            LeafConfig::PfifoFast(config) => Leaf::PfifoFast(Box::new(Fifo::new(config))),
            LeafConfig::Sfq(config) => Leaf::Sfq(Box::new(Sfq::new(config))),
            LeafConfig::Codel(config) => Leaf::Codel(Box::new(Codel::new(config))),
            LeafConfig::FqCodel(config) => Leaf::FqCodel(Box::new(FqCodel::new(config))),
        }
    }

    /// Enqueues a packet that is in the pool and counted in the backlog. Returns whether it was
    /// dropped.
    #[inline]
    pub(crate) fn enqueue<P: Packet>(&mut self, id: u32, cx: Cx<'_, '_, P>) -> Option<Cause> {
        match self {
            Leaf::Fifo(leaf) => leaf.enqueue(id, cx),
            Leaf::PfifoFast(leaf) => leaf.enqueue(id, cx),
            Leaf::Sfq(leaf) => leaf.enqueue(id, cx),
            Leaf::Codel(leaf) => leaf.enqueue(id, cx),
            Leaf::FqCodel(leaf) => leaf.enqueue(id, cx),
        }
    }

    /// Takes the next packet out of its queue. It stays in the pool and the backlog.
    #[inline]
    pub(crate) fn dequeue<P: Packet>(&mut self, cx: Cx<'_, '_, P>) -> Option<u32> {
        match self {
            Leaf::Fifo(leaf) => leaf.pop(cx.pool),
            Leaf::PfifoFast(leaf) => leaf.pop(cx.pool),
            Leaf::Sfq(leaf) => leaf.dequeue(cx),
            Leaf::Codel(leaf) => leaf.dequeue(cx),
            Leaf::FqCodel(leaf) => leaf.dequeue(cx),
        }
    }

    /// As [`Leaf::dequeue`], but drops nothing.
    pub(crate) fn pop<P: Packet>(&mut self, pool: &Pool<P>) -> Option<u32> {
        match self {
            Leaf::Fifo(leaf) => leaf.pop(pool),
            Leaf::PfifoFast(leaf) => leaf.pop(pool),
            Leaf::Sfq(leaf) => leaf.pop(pool),
            Leaf::Codel(leaf) => leaf.pop(pool),
            Leaf::FqCodel(leaf) => leaf.pop(pool),
        }
    }

    /// A packet will be taken out soon.
    #[inline]
    pub(crate) fn expect<P: Packet>(&self, pool: &Pool<P>) {
        match self {
            Leaf::Fifo(leaf) => pool.expect(leaf.first()),
            Leaf::PfifoFast(leaf) => sys::memory::prefetch(&**leaf),
            Leaf::Sfq(leaf) => sys::memory::prefetch(&**leaf),
            Leaf::Codel(leaf) => sys::memory::prefetch(&**leaf),
            Leaf::FqCodel(leaf) => sys::memory::prefetch(&**leaf),
        }
    }

    /// Takes other parameters or becomes another discipline; queued packets stay as far as they
    /// fit.
    pub(crate) fn change<P: Packet>(&mut self, config: &LeafConfig, mut cx: Cx<'_, '_, P>) {
        let changed = match (&mut *self, config) {
            (Leaf::Fifo(leaf), LeafConfig::Fifo(config)) => {
                leaf.change(*config);
                true
            }
            (Leaf::PfifoFast(leaf), LeafConfig::PfifoFast(config)) => {
                leaf.change(*config);
                true
            }
            (Leaf::Codel(leaf), LeafConfig::Codel(config)) => {
                leaf.change(*config);
                true
            }
            (Leaf::Sfq(leaf), LeafConfig::Sfq(config)) => leaf.change(*config),
            (Leaf::FqCodel(leaf), LeafConfig::FqCodel(config)) => leaf.change(*config),
            _ => false,
        };
        if !changed {
            let mut new = Leaf::new(config);
            while let Some(id) = self.pop(cx.pool) {
                new.enqueue(id, cx.again());
            }
            *self = new;
        }
    }
}
