//! Packets of new flows that wait until their queue may ask the switch again.
//!
//! Goal: whoever opens new flows as fast as they can delays others by a few translations, and loses
//! nothing as long as they are slower.
//! - A queue may ask a few times a turn, fewer where several have packets. The rest of its packets
//!   of new flows stand in its line, in the order of arrival, and ask in its next turns. While
//!   others without a line have packets, or had lately, one with a line asks hardly at all in a
//!   turn: what it loses by that is the time to look at the others in between, and what they gain
//!   is that this is soon.
//! - While some stand there and nobody else has packets, or only queues with lines of their own,
//!   the queue receives no packets: they wait in the device. It does receive while somebody changes
//!   the switch's tables: see below.
//! - Where others have packets and no line, those of flows that are known go on; for new ones that
//!   find the line full there is [`DropCause::UpcallBudget`](dp::DropCause::UpcallBudget).
//! - While somebody changes the switch's tables nobody can ask. Packets of new flows stand in the
//!   line for that time, and those of known flows go on.
//! - A line that has run empty counts as one for some turns more: queues with as many new flows
//!   each do not run empty in the same turn.
//! - Order within a flow is kept: a packet of a flow, by its addresses and ports, of which others
//!   stand in the line goes to its end, known or not. When the first of them has asked, the others
//!   go on with it, so that a flow that has become known is out of the line.

use super::batch::Batch;
use super::{BATCH, Pipeline, RxQueue};
use crate::hash::{KeyHasher, MaskPairs};
use flow::{Field, Key, Mask};
use netdev::Frame;
use std::collections::VecDeque;
use wire::Nanos;

/// Places of the table of flows in a line: of most flows that are not in a full line, it tells that
/// without a look at the line.
const PLACES: usize = 1024;

/// Turns without a line after which a queue counts as one that has none.
const BACKLOG_TURNS: u8 = 16;

/// A queue with a line asks that many times less in a turn while others without one have packets,
/// or had lately.
const SPARING: u32 = 4;

/// And that many times more where none of those had packets for long: what is not done for packets
/// is less of a longer turn.
const ALONE: u32 = 2;

/// What is known of the queues that have no packets of new flows that wait, nor had in the last
/// turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherQueues {
    /// Some have packets in this turn.
    Ready,
    /// None has, but some had lately.
    Lately,
    /// None has had any for long.
    Silent,
}

/// A queue's line, and how often it may ask.
pub(super) struct UpcallQueue {
    held: VecDeque<Held>,
    hasher: Box<FlowHasher>,
    /// Of each packet in the line, the hash of its flow.
    hashes: VecDeque<u32>,
    /// How many of them are at a place; empty where there never was a line.
    places: Vec<u16>,
    per_turn: u32,
    room: usize,
    /// What is left of this turn.
    left: u32,
    /// Turns for which it still counts as a line.
    backlog_turns: u8,
}

/// A packet that waits.
pub(super) struct Held {
    pub(super) frame: Frame,
    pub(super) key: Key,
    /// Number of its recirculations.
    pub(super) depth: u32,
    /// How many megaflows had been made when none of them covered it.
    pub(super) asked_at: u64,
}

impl Held {
    pub(super) fn new(frame: Frame, key: &Key, depth: u32, asked_at: u64) -> Held {
        Held {
            frame,
            key: *key,
            depth,
            asked_at,
        }
    }
}

impl UpcallQueue {
    /// A line that has room for a batch at least.
    pub(super) fn new(per_turn: u32, room: u32) -> UpcallQueue {
        UpcallQueue {
            held: VecDeque::new(),
            hasher: Box::new(FlowHasher::new()),
            hashes: VecDeque::new(),
            places: Vec::new(),
            per_turn,
            room: (room as usize).clamp(BATCH, usize::from(u16::MAX)),
            left: 0,
            backlog_turns: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Begins a turn in which so many queues have packets.
    #[inline]
    pub(super) fn begin(&mut self, queues: u32, others: OtherQueues) {
        let share = self.per_turn / queues.max(1);
        let share = match others {
            _ if !self.has_backlog() => share,
            OtherQueues::Silent => share * ALONE,
            OtherQueues::Ready | OtherQueues::Lately => share.min(self.per_turn / SPARING),
        };
        self.left = share.max(1);
    }

    /// Ends a turn.
    #[inline]
    pub(super) fn end(&mut self) {
        self.backlog_turns = if self.held.is_empty() {
            self.backlog_turns.saturating_sub(1)
        } else {
            BACKLOG_TURNS
        };
    }

    /// Whether there is a line, or was in one of the last turns.
    #[inline]
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog_turns > 0
    }

    fn push(&mut self, held: Held) {
        let hash = self.hash(&held.key);
        self.places.resize(PLACES, 0);
        self.places[hash as usize % PLACES] += 1;
        self.hashes.push_back(hash);
        self.held.push_back(held);
    }

    /// What packets of a flow have in common.
    pub(super) fn hash(&self, key: &Key) -> u32 {
        self.hasher.hash(key)
    }

    /// Puts back what was just taken from the front.
    fn put_back(&mut self, held: Held, hash: u32) {
        self.places[hash as usize % PLACES] += 1;
        self.hashes.push_front(hash);
        self.held.push_front(held);
    }

    fn pop(&mut self) -> Option<(Held, u32)> {
        self.remove(0)
    }

    fn remove(&mut self, at: usize) -> Option<(Held, u32)> {
        let (held, hash) = (self.held.remove(at)?, self.hashes.remove(at)?);
        self.places[hash as usize % PLACES] -= 1;
        Some((held, hash))
    }

    /// Whether packets of the same flow stand in it.
    fn has(&self, key: &Key) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let hash = self.hash(key);
        self.places[hash as usize % PLACES] > 0 && self.hashes.contains(&hash)
    }

    fn take(&mut self) -> bool {
        let some = self.left > 0;
        self.left -= u32::from(some);
        some
    }
}

impl Pipeline {
    /// Number of receive queues with packets in this poll round: they share the translations of one
    /// round. Queues with waiting packets get fewer of them while others have none that wait.
    #[inline]
    pub fn share(&mut self, queues: usize, others: OtherQueues) {
        self.sharing = queues as u32;
        self.others = others;
    }

    /// Goes on with what stands in a queue's line.
    #[cold]
    pub(super) fn go_on(&mut self, from: &mut RxQueue, now: Nanos) {
        self.flows.traffic();
        for _ in 0..BATCH {
            let Some(first) = from.upcalls.held.front_mut() else {
                break;
            };
            let known = self.flows.lookup_newer(&first.key, first.asked_at);
            if known.is_none() {
                first.asked_at = self.flows.made();
            }
            if known.is_none() && !from.upcalls.take() {
                break;
            }
            let Some((held, hash)) = from.upcalls.pop() else { break };
            match known {
                Some(number) => self.run_held(number, held, from, now),
                None => {
                    if let Some(busy) = self.ask_for(held, from, now) {
                        from.upcalls.put_back(busy, hash);
                        break;
                    }
                }
            }
            self.follow(hash, from, now);
        }
        self.actor.flush(now);
    }

    /// Lets those of a flow that stand in the line go on, now that one of them has.
    fn follow(&mut self, hash: u32, from: &mut RxQueue, now: Nanos) {
        let mut at = 0;
        while let Some(next) = from.upcalls.hashes.iter().skip(at).position(|other| *other == hash) {
            at += next;
            let held = &from.upcalls.held[at];
            let Some(number) = self.flows.lookup_newer(&held.key, held.asked_at) else {
                break;
            };
            if let Some((held, _)) = from.upcalls.remove(at) {
                self.run_held(number, held, from, now);
            }
        }
    }

    pub(super) fn run_held(&mut self, number: u32, held: Held, from: &mut RxQueue, now: Nanos) {
        if from.is_pending(&held.key) {
            return self.hold_pending(held, from, now);
        }
        self.stats.megaflow_hits.add(1);
        self.remember(&held.key, number);
        self.run_flow(number, held.frame, held.depth, from, now);
    }

    /// Stages 2 to 7 for a batch behind packets that wait.
    #[cold]
    pub(super) fn forward_behind(&mut self, batch: &mut Batch, from: &mut RxQueue, now: Nanos) {
        self.extract(batch);
        self.find(batch);
        self.act_in_order(batch, from, now);
    }

    /// Lets a packet without a megaflow ask, or wait where its queue has asked enough or others of
    /// its wait.
    pub(super) fn ask_or_wait(&mut self, mut held: Held, from: &mut RxQueue, now: Nanos) {
        if from.is_pending(&held.key) && !from.upcalls.has(&held.key) {
            return self.hold_pending(held, from, now);
        }
        if !from.waits() && from.upcalls.take() {
            match self.ask_for(held, from, now) {
                None => return,
                Some(busy) => held = busy,
            }
        }
        if from.upcalls.held.len() < from.upcalls.room {
            held.frame.compact();
            return from.upcalls.push(held);
        }
        self.refuse_new(from, 1);
    }

    /// Counts what waits at a queue that is given up.
    pub(crate) fn give_up(&mut self, from: &mut RxQueue) {
        let waiting = (from.upcalls.len() + from.pending.len()) as u64;
        while from.upcalls.pop().is_some() {}
        from.pending.clear();
        self.refuse_new(from, waiting);
    }
}

impl RxQueue {
    /// Whether a packet has to stand behind others of its flow.
    #[inline]
    pub(super) fn is_behind(&self, key: &Key) -> bool {
        self.upcalls.has(key) || self.is_pending(key)
    }
}

/// Hashes packets by what those of one connection and direction have in common.
///
/// The secrets are each line's own. A sender that could choose packets with the hash of another
/// flow would put that flow's packets behind its own, and have them dropped when the line is full.
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

    fn held(key: &Key) -> Held {
        Held::new(Frame::from_slice(&[0; 60]), key, 0, 0)
    }

    #[test]
    fn each_line_hashes_flows_in_its_own_way() {
        let lines = [UpcallQueue::new(8, 256), UpcallQueue::new(8, 256)];
        let places = lines
            .each_ref()
            .map(|line| (0..64).map(|src| line.hasher.hash(&key(src)) as usize % PLACES));
        let [one, other] = places.map(Iterator::collect::<Vec<_>>);
        assert_ne!(one, other);
    }

    #[test]
    fn packets_of_a_connection_stand_behind_each_other_and_chosen_addresses_behind_none() {
        let mut line = UpcallQueue::new(8, 256);
        let victim = key(1 << 64 | 2);
        line.push(held(&victim));
        let mut next = victim;
        next.set(Field::IpTtl, 9);
        assert!(line.has(&next));
        // As far as the exclusive or of their halves goes these addresses are the victim's.
        let crafted = (1..1000).map(|n| key((1 ^ n) << 64 | 2 ^ n));
        assert!(!crafted.into_iter().any(|key| line.has(&key)));
    }
}
