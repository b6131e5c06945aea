//! The pool of queued packets: slots of one array, linked into lists by index.
//!
//! A list never allocates; the array grows to the maximum number of packets ever queued and is
//! reused. All queues of a scheduler share one pool, so that a packet can go from queue to queue
//! when the configuration changes.

use crate::stats::{Cause, Counters};
use crate::units::{LinkLayer, Nanos};
use crate::{Dropped, Packet};

/// No slot, class or flow.
pub(crate) const NIL: u32 = u32::MAX;

/// The data that a queue needs of a packet before dequeue is in its first cache line.
#[repr(C, align(64))]
struct Slot<P> {
    next: u32,
    bytes: u32,
    cost: u32,
    memory: u32,
    since: Nanos,
    packet: Option<P>,
}

pub(crate) struct Pool<P> {
    slots: Vec<Slot<P>>,
    free: u32,
}

impl<P: Packet> Pool<P> {
    pub(crate) fn new() -> Pool<P> {
        Pool {
            slots: Vec::new(),
            free: NIL,
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, packet: P, link: LinkLayer, since: Nanos) -> u32 {
        loop {
            let id = self.free;
            if let Some(slot) = self.slots.get_mut(id as usize) {
                self.free = slot.next;
                slot.bytes = packet.bytes();
                slot.cost = link.cost(slot.bytes, packet.segments());
                slot.memory = packet.memory();
                slot.since = since;
                // A free slot has no packet, so nothing has to be dropped.
                std::mem::forget(slot.packet.replace(packet));
                return id;
            }
            self.grow();
        }
    }

    /// Another free slot, where there was none.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.free = self.slots.len() as u32;
        self.slots.push(Slot {
            next: NIL,
            bytes: 0,
            cost: 0,
            memory: 0,
            since: Nanos(0),
            packet: None,
        });
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u32) -> Option<P> {
        self.take(id).0
    }

    /// Removes a packet. Returns it with its bytes and its arrival time.
    #[inline]
    pub(crate) fn take(&mut self, id: u32) -> (Option<P>, u32, Nanos) {
        let slot = &mut self.slots[id as usize];
        let taken = (slot.packet.take(), slot.bytes, slot.since);
        slot.next = self.free;
        self.free = id;
        taken
    }

    /// The packet, and its memory.
    #[inline]
    pub(crate) fn look(&self, id: u32) -> (Option<&P>, u32) {
        let slot = &self.slots[id as usize];
        (slot.packet.as_ref(), slot.memory)
    }

    #[inline]
    pub(crate) fn bytes(&self, id: u32) -> u32 {
        self.slots[id as usize].bytes
    }

    /// Bytes on the link.
    #[inline]
    pub(crate) fn cost(&self, id: u32) -> u32 {
        self.slots[id as usize].cost
    }

    #[inline]
    pub(crate) fn since(&self, id: u32) -> Nanos {
        self.slots[id as usize].since
    }

    /// Prefetches the packet with this number, if it exists.
    #[inline]
    pub(crate) fn expect(&self, id: u32) {
        if let Some(slot) = self.slots.get(id as usize) {
            sys::memory::prefetch(slot);
        }
    }

    pub(crate) fn packet(&mut self, id: u32) -> Option<&mut P> {
        self.slots[id as usize].packet.as_mut()
    }

    /// Recomputes the packets' size on the link.
    pub(crate) fn recount(&mut self, link: LinkLayer) {
        for slot in &mut self.slots {
            if let Some(packet) = &slot.packet {
                slot.cost = link.cost(slot.bytes, packet.segments());
            }
        }
    }
}

/// Packets in the order in which they came, uncounted.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    head: u32,
    tail: u32,
}

impl Chain {
    pub(crate) const fn new() -> Chain {
        Chain { head: NIL, tail: NIL }
    }

    #[inline]
    pub(crate) fn push<P>(&mut self, pool: &mut Pool<P>, id: u32) {
        let slots = pool.slots.as_mut_slice();
        // A branch on emptiness would be unpredictable, so an empty list writes the same slot
        // twice.
        let is_empty = self.is_empty();
        let last = if is_empty { id } else { self.tail };
        slots[last as usize].next = id;
        slots[id as usize].next = NIL;
        self.head = if is_empty { id } else { self.head };
        self.tail = id;
    }

    #[inline]
    pub(crate) fn pop<P>(&mut self, pool: &Pool<P>) -> Option<u32> {
        let id = self.head;
        self.head = pool.slots.get(id as usize)?.next;
        Some(id)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// The first; [`NIL`] if there is none.
    #[inline]
    pub(crate) fn first(&self) -> u32 {
        self.head
    }
}

/// The head of a list: the data that its discipline needs before dequeue.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) id: u32,
    next: u32,
    pub(crate) bytes: u32,
    pub(crate) memory: u32,
    pub(crate) since: Nanos,
}

/// Packets in the order in which they came.
#[derive(Clone, Debug)]
pub(crate) struct List {
    chain: Chain,
    packets: u32,
    bytes: u64,
}

impl List {
    pub(crate) const fn new() -> List {
        List {
            chain: Chain::new(),
            packets: 0,
            bytes: 0,
        }
    }

    #[inline]
    pub(crate) fn push<P>(&mut self, pool: &mut Pool<P>, id: u32) {
        self.bytes += u64::from(pool.slots[id as usize].bytes);
        self.packets += 1;
        self.chain.push(pool, id);
    }

    #[inline]
    pub(crate) fn pop<P>(&mut self, pool: &Pool<P>) -> Option<u32> {
        let head = self.head(pool)?;
        Some(self.pop_head(&head))
    }

    /// The first, if there is one.
    #[inline]
    pub(crate) fn head<P>(&self, pool: &Pool<P>) -> Option<Head> {
        let id = self.chain.head;
        let slot = pool.slots.get(id as usize)?;
        Some(Head {
            id,
            next: slot.next,
            bytes: slot.bytes,
            memory: slot.memory,
            since: slot.since,
        })
    }

    /// Removes the head, which was just read.
    #[inline]
    pub(crate) fn pop_head(&mut self, head: &Head) -> u32 {
        self.chain.head = head.next;
        self.packets -= 1;
        self.bytes -= u64::from(head.bytes);
        head.id
    }

    #[inline]
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }
}

/// The context of a discipline's call.
pub(crate) struct Cx<'a, 'b, P> {
    pub(crate) pool: &'a mut Pool<P>,
    pub(crate) counters: &'a mut Counters,
    pub(crate) dropped: &'a mut Dropped<'b, P>,
    pub(crate) now: Nanos,
}

impl<'b, P: Packet> Cx<'_, 'b, P> {
    /// The same for a rare call, so that values that are not borrowed can stay in registers.
    #[inline]
    pub(crate) fn again(&mut self) -> Cx<'_, 'b, P> {
        Cx {
            pool: self.pool,
            counters: self.counters,
            dropped: self.dropped,
            now: self.now,
        }
    }

    /// Counts a packet of the backlog as dropped and returns it.
    pub(crate) fn drop(&mut self, id: u32, cause: Cause) {
        let (packet, bytes, _) = self.pool.take(id);
        self.counters.lost(bytes, cause);
        if let Some(packet) = packet {
            (self.dropped)(packet, cause);
        }
    }
}
