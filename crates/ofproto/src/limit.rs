//! Packets that wait for a controller: fair between ports, and no more of them than there is room for.

use openflow::model::Port;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::Nanos;

/// How many packets a controller is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets a second (`controller_rate_limit`), not 0.
    pub rate: u32,
    /// Packets at once after a pause, and packets that may wait (`controller_burst_limit`), not 0.
    pub burst: u32,
}

/// Packets a second, as tokens that come with time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    limit: Limit,
    /// Nanoseconds' worth of tokens, up to a burst's.
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

/// Packets that wait, port by port.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    ports: BTreeMap<Port, VecDeque<T>>,
    /// Ports that have packets, the next one first.
    turns: VecDeque<Port>,
    len: usize,
    most: usize,
    bucket: Option<Bucket>,
    pub(crate) dropped: u64,
}

impl<T> Waiting<T> {
    /// Room for `most` packets, and with a limit for as many as a burst.
    pub(crate) fn new(most: usize, limit: Option<Limit>, now: Nanos) -> Waiting<T> {
        Waiting {
            ports: BTreeMap::new(),
            turns: VecDeque::new(),
            len: 0,
            most: limit.map_or(most, |limit| limit.burst as usize).max(1),
            bucket: limit.map(|limit| Bucket::new(limit, now)),
            dropped: 0,
        }
    }

    /// Adds a packet. Where there is no room, the port that has most waiting loses its oldest.
    pub(crate) fn push(&mut self, port: Port, packet: T) {
        if self.len >= self.most {
            let longest = self.ports.iter().max_by_key(|(_, queue)| queue.len());
            if let Some(longest) = longest.map(|(port, _)| *port) {
                self.pop_of(longest);
                self.dropped += 1;
            }
        }
        let queue = self.ports.entry(port).or_default();
        if queue.is_empty() {
            self.turns.push_back(port);
        }
        queue.push_back(packet);
        self.len += 1;
    }

    /// The next packet that may go now.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<T> {
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

    /// When a packet that waits may go; `None` where none waits, or some may go at once.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
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
        assert_eq!((waiting.len, waiting.dropped), (4, 8));
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
}
