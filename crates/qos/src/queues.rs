//! The disciplines at the ends of a scheduler's classes, and the packets in them, shared by all
//! schedulers with classes.

use crate::leaf::{Leaf, LeafConfig};
use crate::pool::{Cx, List, NIL, Pool};
use crate::scheduler::Dropped;
use crate::stats::Counters;
use crate::tree::Tree;
use crate::{Cause, LinkLayer, Nanos, Packet, Stats};

/// The discipline at the end of a class. With thousands of classes a queue is in no near cache, so
/// a packet touches only one cache line of it at enqueue, and at dequeue another one with the
/// histogram.
#[repr(C, align(64))]
pub(crate) struct Queue {
    leaf: Leaf,
    /// A packet taken out of the discipline to know its length.
    staged: u32,
    counters: Counters,
}

const _: () = assert!(std::mem::offset_of!(Queue, counters) + std::mem::offset_of!(Counters, sojourn) == 64);

impl Queue {
    fn new(config: &LeafConfig) -> Queue {
        Queue {
            leaf: Leaf::new(config),
            counters: Counters::default(),
            staged: NIL,
        }
    }

    fn pop<P: Packet>(&mut self, pool: &Pool<P>) -> Option<u32> {
        match std::mem::replace(&mut self.staged, NIL) {
            NIL => self.leaf.pop(pool),
            id => Some(id),
        }
    }
}

/// Queues by class and by number.
pub(crate) struct Queues<P> {
    pool: Pool<P>,
    link: LinkLayer,
    /// In all of them. Narrower than the bytes; otherwise the compiler loads both at once just
    /// after separate stores, which stalls the processor.
    pub(crate) packets: u32,
    pub(crate) bytes: u64,
    /// By class.
    pub(crate) numbers: Vec<u32>,
    by_number: Vec<u32>,
    /// By number, the class of the leaf that takes its packets.
    leaf_by_number: Vec<u32>,
    is_leaf: Vec<bool>,
    /// By class. Those of inner classes stay empty.
    queues: Vec<Queue>,
    /// A bit for each class with packets: small enough to stay in a near cache.
    busy: Vec<u64>,
    /// The histogram bucket of the last packet, as a guess for the next ones.
    bucket: usize,
}

impl<P: Packet> Queues<P> {
    /// Empty queues for the leaves of a tree, by the numbers and disciplines of its classes except
    /// the root.
    pub(crate) fn new<'a>(
        tree: &Tree,
        link: LinkLayer,
        classes: impl Iterator<Item = (u32, &'a LeafConfig)>,
    ) -> Queues<P> {
        let mut queues = Queues {
            pool: Pool::new(),
            link,
            packets: 0,
            bytes: 0,
            numbers: vec![NIL],
            by_number: tree.by_number.clone(),
            leaf_by_number: Vec::new(),
            is_leaf: (0..tree.parents.len()).map(|class| tree.is_leaf(class)).collect(),
            queues: vec![Queue::new(&LeafConfig::default())],
            busy: vec![0; tree.parents.len().div_ceil(64)],
            bucket: 0,
        };
        for (number, leaf) in classes {
            let leaf = Some(leaf).filter(|_| tree.is_leaf(queues.numbers.len()));
            queues.numbers.push(number);
            queues.queues.push(Queue::new(leaf.unwrap_or(&LeafConfig::default())));
        }
        let is_leaf = |class: u32| class != NIL && tree.is_leaf(class as usize);
        let leaf_of = |class: &u32| if is_leaf(*class) { *class } else { tree.by_number[0] };
        queues.leaf_by_number = tree.by_number.iter().map(leaf_of).collect();
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
        match self.leaf_by_number.get(number as usize) {
            Some(class) => *class,
            None => self.leaf_by_number[0],
        }
    }

    /// The queue of a class if it is a leaf.
    fn get(&self, class: u32) -> Option<&Queue> {
        self.queues.get(class as usize).filter(|_| self.is_leaf[class as usize])
    }

    fn get_mut(&mut self, class: u32) -> Option<&mut Queue> {
        self.queues
            .get_mut(class as usize)
            .filter(|_| self.is_leaf[class as usize])
    }

    /// Enqueues a packet into a leaf's queue. Returns whether it was dropped.
    #[inline(always)]
    pub(crate) fn put(&mut self, class: u32, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<Cause> {
        let queue = &mut self.queues[class as usize];
        let bytes = packet.bytes();
        let id = self.pool.insert(packet, self.link, now);
        // Most leaves of large trees.
        if let Leaf::Fifo(fifo) = &mut queue.leaf
            && !fifo.is_full()
        {
            fifo.push(&mut self.pool, id);
            queue.counters.queued(bytes);
            self.packets += 1;
            self.bytes += u64::from(bytes);
            self.busy[class as usize / 64] |= 1 << (class % 64);
            return None;
        }
        self.put_beyond(class, id, now, dropped)
    }

    /// As [`Queues::put`], for a packet in the pool and any discipline.
    #[inline(never)]
    fn put_beyond(&mut self, class: u32, id: u32, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<Cause> {
        let queue = &mut self.queues[class as usize];
        let before = (queue.counters.backlog_packets(), queue.counters.backlog_bytes());
        queue.counters.queued(self.pool.bytes(id));
        let cx = Cx {
            pool: &mut self.pool,
            counters: &mut queue.counters,
            dropped,
            now,
        };
        let lost = queue.leaf.enqueue(id, cx);
        self.packets = (u64::from(self.packets) + queue.counters.backlog_packets() - before.0) as u32;
        self.bytes = self.bytes + queue.counters.backlog_bytes() - before.1;
        self.note(class);
        lost
    }

    /// Stages the next packet of a leaf's discipline for sending. Returns its size on the link.
    #[inline]
    pub(crate) fn stage(&mut self, class: u32, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<u32> {
        let queue = &mut self.queues[class as usize];
        if queue.staged == NIL {
            match &mut queue.leaf {
                Leaf::Fifo(fifo) => queue.staged = fifo.pop(&self.pool)?,
                _ => return self.stage_beyond(class, now, dropped),
            }
        }
        Some(self.pool.cost(queue.staged))
    }

    /// As [`Queues::stage`], for any discipline, which may drop packets.
    #[inline(never)]
    fn stage_beyond(&mut self, class: u32, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<u32> {
        let queue = &mut self.queues[class as usize];
        let before = (queue.counters.backlog_packets(), queue.counters.backlog_bytes());
        let cx = Cx {
            pool: &mut self.pool,
            counters: &mut queue.counters,
            dropped,
            now,
        };
        let found = queue.leaf.dequeue(cx);
        self.packets -= (before.0 - queue.counters.backlog_packets()) as u32;
        self.bytes -= before.1 - queue.counters.backlog_bytes();
        queue.staged = found.unwrap_or(NIL);
        self.note(class);
        Some(self.pool.cost(found?))
    }

    /// Updates the bit of a class.
    #[inline]
    fn note(&mut self, class: u32) {
        let is_busy = !self.queues[class as usize].counters.is_empty();
        let word = &mut self.busy[class as usize / 64];
        *word = *word & !(1 << (class % 64)) | u64::from(is_busy) << (class % 64);
    }

    /// Dequeues the next packet of a leaf's discipline, with its size on the link.
    #[inline]
    pub(crate) fn pop(&mut self, class: u32, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<(P, u32)> {
        let queue = &mut self.queues[class as usize];
        let id = match &mut queue.leaf {
            Leaf::Fifo(fifo) if queue.staged == NIL => fifo.pop(&self.pool)?,
            _ => {
                self.stage(class, now, dropped)?;
                std::mem::replace(&mut self.queues[class as usize].staged, NIL)
            }
        };
        let cost = self.pool.cost(id);
        Some((self.leave(class, id, now)?, cost))
    }

    /// The packet staged leaves, if there is one.
    #[inline]
    pub(crate) fn take(&mut self, class: u32, now: Nanos) -> Option<P> {
        let queue = &mut self.queues[class as usize];
        let id = std::mem::replace(&mut queue.staged, NIL);
        if id == NIL {
            return None;
        }
        self.leave(class, id, now)
    }

    /// A packet taken out of its discipline leaves.
    #[inline]
    fn leave(&mut self, class: u32, id: u32, now: Nanos) -> Option<P> {
        let queue = &mut self.queues[class as usize];
        let (packet, bytes, since) = self.pool.take(id);
        self.bucket = queue.counters.sent(bytes, now.since(since));
        self.packets -= 1;
        self.bytes -= u64::from(bytes);
        self.note(class);
        packet
    }

    /// Prefetches the data of a leaf whose packet leaves soon.
    #[inline]
    pub(crate) fn expect(&self, class: u32) {
        if let Some(queue) = self.queues.get(class as usize) {
            sys::memory::prefetch(queue);
            queue.counters.sojourn.expect(self.bucket);
        }
    }

    /// As [`Queues::expect`] for the packet itself, after its queue has been prefetched.
    #[inline]
    pub(crate) fn expect_packet(&self, class: u32) {
        if let Some(queue) = self.queues.get(class as usize) {
            self.pool.expect(queue.staged);
            queue.leaf.expect(&self.pool);
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self, class: u32) -> bool {
        self.busy[class as usize / 64] >> (class % 64) & 1 == 0
    }

    /// The leaves that have packets.
    pub(crate) fn backlogged(&self) -> Vec<u32> {
        let has = |class: &u32| self.get(*class).is_some_and(|queue| !queue.counters.is_empty());
        (0..self.numbers.len() as u32).filter(has).collect()
    }

    /// Removes all packets.
    pub(crate) fn drain(&mut self, each: &mut dyn FnMut(P)) {
        for queue in &mut self.queues {
            while let Some(id) = queue.pop(&self.pool) {
                queue.counters.unqueued(self.pool.bytes(id));
                if let Some(packet) = self.pool.remove(id) {
                    each(packet);
                }
            }
        }
        (self.packets, self.bytes) = (0, 0);
        self.busy.fill(0);
    }

    /// Takes over the queues of others with their packets and counters: those of the same number
    /// change their parameters, the packets of the rest go to queue 0.
    pub(crate) fn inherit<'c>(
        &mut self,
        old: &mut Queues<P>,
        config: impl Fn(u32) -> &'c LeafConfig,
        now: Nanos,
        dropped: &mut Dropped<'_, P>,
    ) {
        std::mem::swap(&mut self.pool, &mut old.pool);
        self.pool.recount(self.link);
        let mut orphans = List::new();
        for class in 0..old.numbers.len() as u32 {
            let number = old.numbers[class as usize];
            let Some(queue) = old.get_mut(class) else { continue };
            let to = self.class_of(number).unwrap_or(0);
            if self.is_leaf[to as usize] {
                let kept = &mut self.queues[to as usize];
                std::mem::swap(kept, queue);
                let cx = Cx {
                    pool: &mut self.pool,
                    counters: &mut kept.counters,
                    dropped: &mut *dropped,
                    now,
                };
                kept.leaf.change(config(to), cx);
            } else {
                while let Some(id) = queue.pop(&self.pool) {
                    orphans.push(&mut self.pool, id);
                }
            }
        }
        let default = self.by_number[0];
        let queue = &mut self.queues[default as usize];
        while let Some(id) = orphans.pop(&self.pool) {
            queue.counters.queued(self.pool.bytes(id));
            let cx = Cx {
                pool: &mut self.pool,
                counters: &mut queue.counters,
                dropped: &mut *dropped,
                now,
            };
            queue.leaf.enqueue(id, cx);
        }
        (self.packets, self.bytes) = self.queues.iter().fold((0, 0), |(packets, bytes), queue| {
            (
                packets + queue.counters.backlog_packets() as u32,
                bytes + queue.counters.backlog_bytes(),
            )
        });
        (0..self.queues.len() as u32).for_each(|class| self.note(class));
    }

    pub(crate) fn each(&self, each: &mut dyn FnMut(u32, &Stats)) {
        for class in 0..self.numbers.len() as u32 {
            if let Some(queue) = self.get(class) {
                each(self.numbers[class as usize], &queue.counters.stats());
            }
        }
    }
}
