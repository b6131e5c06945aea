//! The disciplines at the ends of a scheduler's classes.

use crate::leaf::{Leaf, LeafConfig};
use crate::pool::{Cx, List, NIL, Pool};
use crate::scheduler::Dropped;
use crate::tree::Tree;
use crate::{Nanos, Packet, Stats};

/// The discipline at the end of a class.
pub(crate) struct Queue {
    pub(crate) leaf: Leaf,
    pub(crate) stats: Stats,
    /// A packet taken out of the discipline to know its length.
    pub(crate) staged: u32,
}

impl Queue {
    fn new(config: &LeafConfig) -> Queue {
        Queue {
            leaf: Leaf::new(config),
            stats: Stats::default(),
            staged: NIL,
        }
    }

    pub(crate) fn pop<P: Packet>(&mut self, pool: &mut Pool<P>) -> Option<u32> {
        match std::mem::replace(&mut self.staged, NIL) {
            NIL => self.leaf.pop(pool),
            id => Some(id),
        }
    }
}

/// Queues by class and by number.
pub(crate) struct Queues {
    /// By class.
    pub(crate) numbers: Vec<u32>,
    by_number: Vec<u32>,
    place: Vec<u32>,
    queues: Vec<Queue>,
}

impl Queues {
    /// Empty ones for the leaves of a tree, by the numbers and disciplines of its classes but the root.
    pub(crate) fn new<'a>(tree: &Tree, classes: impl Iterator<Item = (u32, &'a LeafConfig)>) -> Queues {
        let mut queues = Queues {
            numbers: vec![NIL],
            by_number: tree.by_number.clone(),
            place: vec![NIL],
            queues: Vec::new(),
        };
        for (number, leaf) in classes {
            let class = queues.numbers.len();
            queues.numbers.push(number);
            if tree.is_leaf(class) {
                queues.place.push(queues.queues.len() as u32);
                queues.queues.push(Queue::new(leaf));
            } else {
                queues.place.push(NIL);
            }
        }
        queues
    }

    /// The class of a number.
    pub(crate) fn class_of(&self, number: u32) -> Option<u32> {
        self.by_number
            .get(number as usize)
            .copied()
            .filter(|class| *class != NIL)
    }

    /// The leaf for a queue's number: that of queue 0 for numbers that have none.
    #[inline]
    pub(crate) fn leaf_of(&self, number: u32) -> u32 {
        let class = self.by_number.get(number as usize).copied().unwrap_or(NIL);
        match self.place.get(class as usize) {
            Some(&place) if place != NIL => class,
            _ => self.by_number[0],
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, class: u32) -> Option<&mut Queue> {
        self.queues.get_mut(self.place[class as usize] as usize)
    }

    pub(crate) fn get(&self, class: u32) -> Option<&Queue> {
        self.queues.get(self.place[class as usize] as usize)
    }

    /// A leaf's queue. The classes that the schedulers find are leaves.
    #[inline]
    pub(crate) fn leaf_mut(&mut self, class: u32) -> &mut Queue {
        &mut self.queues[self.place[class as usize] as usize]
    }

    /// Takes over the queues of others with their packets and counters: those of the same number change their parameters, the packets of the rest go to
    /// queue 0.
    pub(crate) fn inherit<'c, P: Packet>(
        &mut self,
        old: &mut Queues,
        config: impl Fn(u32) -> &'c LeafConfig,
        pool: &mut Pool<P>,
        now: Nanos,
        dropped: &mut Dropped<'_, P>,
    ) {
        let mut orphans = List::new();
        for class in 0..old.numbers.len() as u32 {
            let number = old.numbers[class as usize];
            let Some(queue) = old.get_mut(class) else { continue };
            let to = self.class_of(number).unwrap_or(0);
            if let Some(kept) = self.get_mut(to) {
                std::mem::swap(kept, queue);
                let mut cx = Cx {
                    pool: &mut *pool,
                    stats: &mut kept.stats,
                    dropped: &mut *dropped,
                    now,
                };
                kept.leaf.change(config(to), &mut cx);
            } else {
                while let Some(id) = queue.pop(pool) {
                    orphans.push(pool, id);
                }
            }
        }
        let default = self.by_number[0];
        let queue = self.leaf_mut(default);
        while let Some(id) = orphans.pop(pool) {
            queue.stats.queued(pool.bytes(id));
            let mut cx = Cx {
                pool: &mut *pool,
                stats: &mut queue.stats,
                dropped: &mut *dropped,
                now,
            };
            queue.leaf.enqueue(id, &mut cx);
        }
    }

    /// Packets and bytes in all of them.
    pub(crate) fn backlog(&self) -> (u64, u64) {
        self.queues.iter().fold((0, 0), |(packets, bytes), queue| {
            (packets + queue.stats.backlog_packets, bytes + queue.stats.backlog_bytes)
        })
    }

    pub(crate) fn each(&self, each: &mut dyn FnMut(u32, &Stats)) {
        for class in 0..self.numbers.len() as u32 {
            if let Some(queue) = self.get(class) {
                each(self.numbers[class as usize], &queue.stats);
            }
        }
    }
}
