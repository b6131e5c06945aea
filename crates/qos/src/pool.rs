//! Where queued packets are: slots of one array, strung into lists by their indices.
//!
//! A list never allocates; the array grows to the most packets that were ever queued at once and is reused from then on. All queues of a scheduler
//! share one pool, so that a packet can go from queue to queue when the configuration changes.

use crate::stats::{Cause, Stats};
use crate::units::{LinkLayer, Nanos};
use crate::{Dropped, Packet};

/// No slot, class or flow.
pub(crate) const NIL: u32 = u32::MAX;

/// What a queue asks of a packet before it leaves is in its first cache line.
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
        let bytes = packet.bytes();
        let slot = Slot {
            next: NIL,
            bytes,
            cost: link.cost(bytes, packet.segments()),
            memory: packet.memory(),
            since,
            packet: Some(packet),
        };
        let id = self.free;
        match self.slots.get_mut(id as usize) {
            Some(free) => {
                self.free = free.next;
                *free = slot;
                id
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u32) -> Option<P> {
        let slot = &mut self.slots[id as usize];
        let packet = slot.packet.take();
        slot.next = self.free;
        self.free = id;
        packet
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
    pub(crate) fn memory(&self, id: u32) -> u32 {
        self.slots[id as usize].memory
    }

    #[inline]
    pub(crate) fn since(&self, id: u32) -> Nanos {
        self.slots[id as usize].since
    }

    /// A packet will be asked for soon, if there is one with this number.
    #[inline]
    pub(crate) fn expect(&self, id: u32) {
        if let Some(slot) = self.slots.get(id as usize) {
            sys::memory::prefetch(slot);
        }
    }

    pub(crate) fn packet(&mut self, id: u32) -> Option<&mut P> {
        self.slots[id as usize].packet.as_mut()
    }

    /// Counts anew what packets take on the link.
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
        // Whether it is empty no branch would foresee: for an empty one the same slot is written twice.
        let is_empty = self.is_empty();
        let last = if is_empty { id } else { self.tail };
        pool.slots[last as usize].next = id;
        pool.slots[id as usize].next = NIL;
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
        self.chain.push(pool, id);
        self.packets += 1;
        self.bytes += u64::from(pool.slots[id as usize].bytes);
    }

    #[inline]
    pub(crate) fn pop<P>(&mut self, pool: &mut Pool<P>) -> Option<u32> {
        let id = self.chain.pop(pool)?;
        self.packets -= 1;
        self.bytes -= u64::from(pool.slots[id as usize].bytes);
        Some(id)
    }

    /// When the first came, and its bytes.
    #[inline]
    pub(crate) fn head<P>(&self, pool: &Pool<P>) -> Option<(Nanos, u32)> {
        let slot = pool.slots.get(self.chain.head as usize)?;
        Some((slot.since, slot.bytes))
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

/// What a discipline works with during one call.
pub(crate) struct Cx<'a, 'b, P> {
    pub(crate) pool: &'a mut Pool<P>,
    pub(crate) stats: &'a mut Stats,
    pub(crate) dropped: &'a mut Dropped<'b, P>,
    pub(crate) now: Nanos,
}

impl<P: Packet> Cx<'_, '_, P> {
    /// Counts a packet of the backlog as dropped and hands it back.
    pub(crate) fn drop(&mut self, id: u32, cause: Cause) {
        self.stats.unqueued(self.pool.bytes(id));
        self.stats.drops[cause as usize] += 1;
        if let Some(packet) = self.pool.remove(id) {
            (self.dropped)(packet, cause);
        }
    }
}
