//! Upcall queues: packets of new flows that wait for a translation, and how many upcalls their
//! source may make.
//!
//! Goal: a source that opens new flows as fast as it can delays others by a few translations, and
//! loses nothing as long as it is slower.
//! - A source may make a few upcalls a turn, fewer if several sources have packets. Its other
//!   packets of new flows are *queued*, in the order of arrival, and make theirs in its next turns.
//!   While sources without a backlog have packets, or had lately, a source with one makes hardly
//!   any in a turn: the poll of the others costs it time, and gives them short turns.
//! - While packets are queued and no other source has packets, or all others have a backlog too,
//!   the worker does not receive from the queue: packets wait in the device. It does receive while
//!   the control plane changes the switch's tables, see below.
//! - If other sources without a backlog have packets, packets of known flows go on. If the queue is
//!   full, the worker drops packets of new flows:
//!   [`DropCause::UpcallBudget`](dp::DropCause::UpcallBudget).
//! - While the control plane changes the switch's tables there are no translations. Packets of new
//!   flows are queued for that time, and packets of known flows go on.
//! - The switch makes a long translation on a thread of its own. Its packet is *pending* meanwhile:
//!   it does not hold up the queued packets. The worker asks for it every [`RETRY_PENDING`].
//! - A queue that has become empty counts as a backlog for some turns more, so that sources with
//!   equally many new flows do not lose their backlog in the same turn.
//! - Order within a flow is kept: a packet goes behind waiting packets of its flow (by addresses
//!   and ports), even if its megaflow exists by now. When the first of them has its translation,
//!   the others follow, so that a known flow leaves the queue.

use crate::batch::BATCH;
use crate::hash::{KeyHasher, MaskPairs};
use dp::Upcall;
use flow::{Field, Key, Mask};
use nanos::Nanos;
use netdev::Frame;
use std::collections::VecDeque;
use std::time::Duration;

/// Time until the worker asks again for a pending translation.
pub(crate) const RETRY_PENDING: Duration = Duration::from_micros(500);

/// Buckets that count a queue's packets by flow: an empty one says without a search that no packet
/// of a flow is queued.
const BUCKETS: usize = 1024;

/// Turns with an empty queue after which it is no backlog any more.
const BACKLOG_TURNS: u8 = 16;

/// A source with a backlog gets this many times fewer upcalls a turn while others without one have
/// packets, or had lately.
const SPARING: u32 = 4;

/// Factor for a source if those without a backlog had no packets for long: longer turns leave more
/// time for translations.
const ALONE: u32 = 2;

/// State of a worker's receive queues without a backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherQueues {
    /// Some have packets in this turn.
    Ready,
    /// None has, but some had lately.
    Lately,
    /// None has had any for long.
    Silent,
}

/// See the module's page.
pub(crate) struct UpcallQueue {
    queued: VecDeque<WaitingPacket>,
    hasher: Box<FlowHasher>,
    /// The flow hash of each queued packet.
    hashes: VecDeque<u32>,
    /// Number of queued packets by flow hash; empty until the first packet is queued.
    buckets: Vec<u16>,
    per_turn: u32,
    room: usize,
    /// Upcalls left in this turn.
    left: u32,
    /// Turns for which it still counts as a backlog.
    backlog_turns: u8,
    /// Packets whose translation takes long, with their flow hashes, in the order of arrival.
    pending: VecDeque<(u32, WaitingPacket)>,
    pending_room: usize,
    /// Number of packets that [`UpcallQueue::take_pending`] has taken out and the caller has not
    /// looked at yet.
    taken: usize,
    /// When to ask again for pending translations.
    due: Nanos,
}

/// A packet that waits.
pub(crate) struct WaitingPacket {
    pub(crate) frame: Frame,
    pub(crate) key: Key,
    /// Number of its recirculations.
    pub(crate) depth: u32,
    /// The megaflow generation to resume the search from.
    pub(crate) searched: u64,
}

impl WaitingPacket {
    pub(crate) fn new(frame: Frame, key: &Key, depth: u32, searched: u64) -> WaitingPacket {
        WaitingPacket {
            frame,
            key: *key,
            depth,
            searched,
        }
    }

    pub(crate) fn upcall(&self) -> Upcall<'_> {
        Upcall {
            key: &self.key,
            packet: self.frame.data(),
            tunnel_options: self.frame.meta.tunnel().map_or(&[], |tunnel| tunnel.options.bytes()),
        }
    }
}

impl UpcallQueue {
    /// A queue for `room` packets, one batch at least, and for `pending_room` pending ones.
    pub(crate) fn new(per_turn: u32, room: u32, pending_room: usize) -> UpcallQueue {
        UpcallQueue {
            queued: VecDeque::new(),
            hasher: Box::new(FlowHasher::new()),
            hashes: VecDeque::new(),
            buckets: Vec::new(),
            per_turn,
            room: (room as usize).clamp(BATCH, usize::from(u16::MAX)),
            left: 0,
            backlog_turns: 0,
            pending: VecDeque::new(),
            pending_room,
            taken: 0,
            due: Nanos::ZERO,
        }
    }

    /// Number of queued packets.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }

    /// Begins a turn in which this number of sources has packets.
    #[inline]
    pub(crate) fn begin(&mut self, sources: u32, others: OtherQueues) {
        let share = self.per_turn / sources.max(1);
        let share = match others {
            _ if !self.has_backlog() => share,
            OtherQueues::Silent => share.saturating_mul(ALONE),
            OtherQueues::Ready | OtherQueues::Lately => share.min(self.per_turn / SPARING),
        };
        self.left = share.max(1);
    }

    /// Ends a turn.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.backlog_turns = if self.queued.is_empty() {
            self.backlog_turns.saturating_sub(1)
        } else {
            BACKLOG_TURNS
        };
    }

    /// Whether packets are queued, or were in one of the last turns.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog_turns > 0
    }

    /// Queues a packet; returns `false`, and drops it, if the queue is full.
    pub(crate) fn push(&mut self, mut packet: WaitingPacket) -> bool {
        let has_room = self.queued.len() < self.room;
        if has_room {
            packet.frame.compact();
            let hash = self.hasher.hash(&packet.key);
            self.buckets.resize(BUCKETS, 0);
            self.buckets[hash as usize % BUCKETS] += 1;
            self.hashes.push_back(hash);
            self.queued.push_back(packet);
        }
        has_room
    }

    pub(crate) fn first_mut(&mut self) -> Option<&mut WaitingPacket> {
        self.queued.front_mut()
    }

    /// Puts back the packet that was just taken from the front.
    pub(crate) fn put_back(&mut self, packet: WaitingPacket, hash: u32) {
        self.buckets[hash as usize % BUCKETS] += 1;
        self.hashes.push_front(hash);
        self.queued.push_front(packet);
    }

    pub(crate) fn pop(&mut self) -> Option<(WaitingPacket, u32)> {
        self.remove(0)
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<(WaitingPacket, u32)> {
        let (packet, hash) = (self.queued.remove(at)?, self.hashes.remove(at)?);
        self.buckets[hash as usize % BUCKETS] -= 1;
        Some((packet, hash))
    }

    /// The next queued packet of a flow, from a place on.
    pub(crate) fn next_of(&self, hash: u32, from: usize) -> Option<(usize, &WaitingPacket)> {
        let after = self.hashes.iter().skip(from).position(|other| *other == hash)?;
        Some((from + after, &self.queued[from + after]))
    }

    /// Whether packets of the same flow are queued.
    pub(crate) fn has_queued(&self, key: &Key) -> bool {
        if self.queued.is_empty() {
            return false;
        }
        let hash = self.hasher.hash(key);
        self.buckets[hash as usize % BUCKETS] > 0 && self.hashes.contains(&hash)
    }

    /// Takes one of the turn's upcalls, if any are left.
    pub(crate) fn take_turn(&mut self) -> bool {
        let some = self.left > 0;
        self.left -= u32::from(some);
        some
    }

    /// Whether translations are pending.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the translation for a packet of the same flow is pending.
    pub(crate) fn is_pending(&self, key: &Key) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let hash = self.hasher.hash(key);
        self.pending.iter().any(|(other, _)| *other == hash)
    }

    /// Whether packets of the same flow wait.
    #[inline]
    pub(crate) fn is_behind(&self, key: &Key) -> bool {
        self.has_queued(key) || self.is_pending(key)
    }

    /// Holds a packet until its pending translation is there; returns `false`, and drops it, if
    /// there is no room.
    pub(crate) fn hold_pending(&mut self, mut packet: WaitingPacket, now: Nanos) -> bool {
        let has_room = self.pending.len() + self.taken < self.pending_room;
        if has_room {
            if self.pending.is_empty() {
                self.due = now + RETRY_PENDING;
            }
            packet.frame.compact();
            let hash = self.hasher.hash(&packet.key);
            self.pending.push_back((hash, packet));
        }
        has_room
    }

    /// Takes out all pending packets, if it is time to ask for their translations. The caller calls
    /// [`UpcallQueue::look_at_taken`] for each of them; their places stay reserved until then.
    pub(crate) fn take_pending(&mut self, now: Nanos) -> VecDeque<(u32, WaitingPacket)> {
        if now < self.due {
            return VecDeque::new();
        }
        self.due = now + RETRY_PENDING;
        self.taken = self.pending.len();
        std::mem::take(&mut self.pending)
    }

    pub(crate) fn look_at_taken(&mut self) {
        self.taken -= 1;
    }

    /// Puts back a packet whose translation is still pending.
    pub(crate) fn still_pending(&mut self, hash: u32, packet: WaitingPacket) {
        self.pending.push_back((hash, packet));
    }

    /// Drops the packets that came in on some ports; returns how many.
    pub(crate) fn drop_of(&mut self, is_dropped: impl Fn(&Key) -> bool) -> u64 {
        let before = self.queued.len() + self.pending.len();
        self.pending.retain(|(_, packet)| !is_dropped(&packet.key));
        for at in (0..self.queued.len()).rev() {
            if is_dropped(&self.queued[at].key) {
                self.remove(at);
            }
        }
        (before - self.queued.len() - self.pending.len()) as u64
    }
}

/// Hashes the fields that the packets of one connection and direction share.
///
/// The secrets are each queue's own. A sender that could choose packets with the hash of another
/// flow would put that flow's packets behind its own, and have them dropped when the queue is full.
struct FlowHasher {
    secrets: KeyHasher,
    fields: MaskPairs,
}

impl FlowHasher {
    fn new() -> FlowHasher {
        const FIELDS: [Field; 10] = [
            Field::RecircId,
            Field::EthDst,
            Field::EthSrc,
            Field::Ipv4Src,
            Field::Ipv4Dst,
            Field::Ipv6Src,
            Field::Ipv6Dst,
            Field::IpProto,
            Field::TpSrc,
            Field::TpDst,
        ];
        let mut mask = Mask::EMPTY;
        FIELDS.into_iter().for_each(|field| mask.add(field));
        FlowHasher {
            secrets: KeyHasher::new(),
            fields: MaskPairs::new(&mask),
        }
    }

    fn hash(&self, key: &Key) -> u32 {
        self.secrets.masked(key, &self.fields) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(src: u128) -> Key {
        let mut key = Key::default();
        key.set(Field::EthType, 0x86dd);
        key.set(Field::Ipv6Src, src);
        key.set(Field::TpSrc, 7);
        key
    }

    fn packet(key: &Key) -> WaitingPacket {
        WaitingPacket::new(Frame::from_slice(&[0; 60]), key, 0, 0)
    }

    #[test]
    fn each_queue_hashes_flows_in_its_own_way() {
        let queues = [UpcallQueue::new(8, 256, 64), UpcallQueue::new(8, 256, 64)];
        let places = queues
            .each_ref()
            .map(|queue| (0..64).map(|src| queue.hasher.hash(&key(src)) as usize % BUCKETS));
        let [one, other] = places.map(Iterator::collect::<Vec<_>>);
        assert_ne!(one, other);
    }

    #[test]
    fn packets_of_a_connection_wait_behind_each_other_and_chosen_addresses_behind_none() {
        let mut queue = UpcallQueue::new(8, 256, 64);
        let victim = key(1 << 64 | 2);
        assert!(queue.push(packet(&victim)));
        let mut next = victim;
        next.set(Field::IpTtl, 9);
        assert!(queue.has_queued(&next));
        // As far as the exclusive or of their halves goes these addresses are the victim's.
        let crafted = (1..1000).map(|n| key((1 ^ n) << 64 | 2 ^ n));
        assert!(!crafted.into_iter().any(|key| queue.has_queued(&key)));
    }
}
