//! The queue of packet-ins of a connection: fair between ports, and bounded.

use crate::memory::OVERHEAD;
use nanos::Nanos;
use openflow::model::{PacketIn, Port};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The limit on the rate of packet-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets a second (`controller_rate_limit`), not 0.
    pub rate: u32,
    /// The burst after a pause, and the most queued packets (`controller_burst_limit`), not 0.
    pub burst: u32,
}

/// A token bucket of packets.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    limit: Limit,
    /// Tokens in nanoseconds, up to a burst's.
    filled: Duration,
    at: Nanos,
}

impl Bucket {
    fn new(limit: Limit, now: Nanos) -> Bucket {
        let limit = Limit {
            rate: limit.rate.max(1),
            burst: limit.burst.max(1),
        };
        let mut bucket = Bucket {
            limit,
            filled: Duration::ZERO,
            at: now,
        };
        bucket.filled = bucket.price() * limit.burst;
        bucket
    }

    fn price(&self) -> Duration {
        Duration::from_secs(1) / self.limit.rate
    }

    fn fill(&mut self, now: Nanos) {
        self.filled = (self.filled + now.since(self.at)).min(self.price() * self.limit.burst);
        self.at = self.at.max(now);
    }

    fn take(&mut self, now: Nanos) -> bool {
        self.fill(now);
        match self.filled.checked_sub(self.price()) {
            Some(rest) => {
                self.filled = rest;
                true
            }
            None => false,
        }
    }

    fn next(&self) -> Nanos {
        self.at + self.price().saturating_sub(self.filled)
    }
}

/// Counters of one kind of rate-limited packets (`packet-in-TYPE-…` of `Controller.status`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitStats {
    /// Packets sent at once.
    pub bypassed: u64,
    /// Packets that were queued.
    pub queued: u64,
    /// Packets dropped from the queue.
    pub dropped: u64,
    /// Packets in the queue.
    pub backlog: usize,
}

/// The queue of packet-ins. A limit holds for each of two kinds: packets that matched no rule, and
/// packets that actions send.
#[derive(Debug)]
pub(crate) struct PacketIns {
    kinds: Vec<Waiting<PacketIn>>,
    /// The kind whose turn it is.
    turn: usize,
}

impl PacketIns {
    /// A queue for `most` packets; with a limit, for a burst of each kind.
    pub(crate) fn new(most: usize, limit: Option<Limit>, now: Nanos) -> PacketIns {
        let kinds = if limit.is_some() { 2 } else { 1 };
        PacketIns {
            kinds: (0..kinds).map(|_| Waiting::new(most, limit, now)).collect(),
            turn: 0,
        }
    }

    /// Queues a packet, or returns it if it may be sent at once; `may_send` says whether there is
    /// room for one.
    pub(crate) fn offer(&mut self, port: Port, packet: PacketIn, may_send: bool, now: Nanos) -> Option<PacketIn> {
        let kind = usize::from(packet.reason != 0).min(self.kinds.len() - 1);
        self.kinds[kind].offer(port, packet, may_send, now)
    }

    /// Takes the next packet that may be sent now.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<PacketIn> {
        for _ in 0..self.kinds.len() {
            let kind = self.turn;
            self.turn = (kind + 1) % self.kinds.len();
            if let Some(packet) = self.kinds[kind].pop(now) {
                return Some(packet);
            }
        }
        None
    }

    /// When a queued packet may be sent; `None` if the queue is empty or a packet may be sent now.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.kinds.iter().filter_map(Waiting::next_event).min()
    }

    /// About how many bytes are queued.
    pub(crate) fn bytes(&self) -> usize {
        let packets = self.kinds.iter().flat_map(|kind| kind.ports.values().flatten());
        packets.map(|packet| packet.data.len() + OVERHEAD).sum()
    }

    /// Counts a packet that was dropped instead of queued.
    pub(crate) fn refuse(&mut self, reason: u8) {
        let kind = usize::from(reason != 0).min(self.kinds.len() - 1);
        self.kinds[kind].stats.dropped += 1;
    }

    /// Dropped packets.
    pub(crate) fn dropped(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.stats.dropped).sum()
    }

    /// The counters of packets that matched no rule and of packets that actions sent; `None`
    /// without a limit.
    pub(crate) fn limited(&self) -> Option<[LimitStats; 2]> {
        match &self.kinds[..] {
            [miss, action] => Some([miss.stats(), action.stats()]),
            _ => None,
        }
    }
}

/// Queued packets by port.
#[derive(Debug)]
struct Waiting<T> {
    ports: BTreeMap<Port, VecDeque<T>>,
    /// Ports with packets, in the order of their turns.
    turns: VecDeque<Port>,
    len: usize,
    most: usize,
    bucket: Option<Bucket>,
    stats: LimitStats,
}

impl<T> Waiting<T> {
    /// A queue for `most` packets; with a limit, for a burst.
    fn new(most: usize, limit: Option<Limit>, now: Nanos) -> Waiting<T> {
        Waiting {
            ports: BTreeMap::new(),
            turns: VecDeque::new(),
            len: 0,
            most: limit.map_or(most, |limit| limit.burst as usize).max(1),
            bucket: limit.map(|limit| Bucket::new(limit, now)),
            stats: LimitStats::default(),
        }
    }

    fn stats(&self) -> LimitStats {
        LimitStats {
            backlog: self.len,
            ..self.stats
        }
    }

    /// Queues a packet, or returns it if it may be sent at once.
    fn offer(&mut self, port: Port, packet: T, may_send: bool, now: Nanos) -> Option<T> {
        let may_send = may_send && self.len == 0 && self.bucket.as_mut().is_none_or(|bucket| bucket.take(now));
        if may_send {
            self.stats.bypassed += 1;
            return Some(packet);
        }
        self.stats.queued += 1;
        self.push(port, packet);
        None
    }

    /// Queues a packet. If the queue is full, the port with the most packets loses its oldest.
    fn push(&mut self, port: Port, packet: T) {
        if self.len >= self.most {
            let longest = self.ports.iter().max_by_key(|(_, queue)| queue.len());
            if let Some(longest) = longest.map(|(port, _)| *port) {
                self.pop_of(longest);
                self.stats.dropped += 1;
            }
        }
        let queue = self.ports.entry(port).or_default();
        if queue.is_empty() {
            self.turns.push_back(port);
        }
        queue.push_back(packet);
        self.len += 1;
    }

    /// Takes the next packet that may be sent now.
    fn pop(&mut self, now: Nanos) -> Option<T> {
        let port = *self.turns.front()?;
        if self.bucket.as_mut().is_some_and(|bucket| !bucket.take(now)) {
            return None;
        }
        let packet = self.pop_of(port);
        if self.turns.front() == Some(&port) {
            self.turns.rotate_left(1);
        }
        packet
    }

    fn pop_of(&mut self, port: Port) -> Option<T> {
        let queue = self.ports.get_mut(&port)?;
        let packet = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            self.ports.remove(&port);
            self.turns.retain(|other| *other != port);
        }
        Some(packet)
    }

    /// When a queued packet may be sent; `None` if the queue is empty or a packet may be sent now.
    fn next_event(&self) -> Option<Nanos> {
        let bucket = self.bucket.as_ref().filter(|_| self.len > 0)?;
        Some(bucket.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Nanos {
        Nanos(n * 1_000_000_000)
    }

    #[test]
    fn ports_have_their_turns_however_much_one_of_them_sends() {
        let mut waiting = Waiting::new(4, None, second(0));
        for n in 0..10 {
            waiting.push(Port(1), n);
        }
        waiting.push(Port(2), 100);
        waiting.push(Port(2), 101);
        assert_eq!((waiting.len, waiting.stats.dropped), (4, 8));
        let order: Vec<i32> = std::iter::from_fn(|| waiting.pop(second(0))).collect();
        assert_eq!(order, [8, 100, 9, 101]);
    }

    #[test]
    fn a_rate_lets_a_burst_pass_and_then_so_many_a_second() {
        let limit = Limit { rate: 10, burst: 3 };
        let mut waiting = Waiting::new(100, Some(limit), second(0));
        let passed = |waiting: &mut Waiting<u32>, now: Nanos| {
            (0..5).for_each(|n| waiting.push(Port(1), n));
            std::iter::from_fn(|| waiting.pop(now)).count()
        };
        assert_eq!(passed(&mut waiting, second(0)), 3);
        assert_eq!(passed(&mut waiting, second(0)), 0);
        let next = waiting.next_event().unwrap();
        assert!(next > second(0) && next <= second(0) + Duration::from_millis(100));
        assert_eq!(passed(&mut waiting, second(0) + Duration::from_millis(200)), 2);
        assert_eq!(passed(&mut waiting, second(100)), 3);
    }

    #[test]
    fn packets_without_rules_and_those_of_actions_are_limited_apart_and_counted() {
        let limit = Limit { rate: 100, burst: 25 };
        let mut packets = PacketIns::new(100, Some(limit), second(0));
        let packet = |reason| PacketIn {
            reason,
            ..PacketIn::new(Port(1), Vec::new())
        };
        let offer = |packets: &mut PacketIns, reason, many: usize| {
            let gone = |packets: &mut PacketIns| packets.offer(Port(1), packet(reason), true, second(0)).is_some();
            (0..many).filter(|_| gone(packets)).count()
        };
        assert_eq!((offer(&mut packets, 0, 30), offer(&mut packets, 1, 60)), (25, 25));
        let [miss, action] = packets.limited().unwrap();
        let shown = |stats: LimitStats| [stats.bypassed, stats.queued, stats.dropped, stats.backlog as u64];
        assert_eq!((shown(miss), shown(action)), ([25, 5, 0, 5], [25, 35, 10, 25]));
        assert_eq!(packets.dropped(), 10);
        // Both at the rate: 10 tokens each. One kind needs 5.
        let later = second(0) + Duration::from_millis(100);
        let reasons: Vec<u8> = std::iter::from_fn(|| packets.pop(later))
            .map(|packet| packet.reason)
            .collect();
        assert_eq!(reasons.iter().filter(|reason| **reason == 0).count(), 5);
        assert_eq!(reasons.len(), 15);
        assert_eq!(reasons[..4], [0, 1, 0, 1]);
        assert_eq!(packets.limited().unwrap().map(|stats| stats.backlog), [0, 15]);

        let mut packets = PacketIns::new(2, None, second(0));
        assert!(packets.offer(Port(1), packet(0), true, second(0)).is_some());
        assert!(packets.offer(Port(1), packet(0), false, second(0)).is_none());
        assert!(packets.offer(Port(1), packet(1), true, second(0)).is_none());
        assert_eq!(packets.limited(), None);
        assert_eq!(std::iter::from_fn(|| packets.pop(second(0))).count(), 2);
    }
}
