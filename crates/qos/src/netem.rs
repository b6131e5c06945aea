//! Delay, jitter and loss, to emulate networks.
//!
//! Source: the manual page tc-netem(8). A packet is lost with a given chance; else it leaves after
//! the latency, give or take a jitter that is evenly distributed. With jitter packets overtake each
//! other, as in Linux. The random numbers come from a seed.

use crate::flows::mix;
use crate::heap::Heap;
use crate::pool::{Cx, NIL, Pool};
use crate::scheduler::{Dropped, Enqueued, Scheduler};
use crate::stats::Counters;
use crate::{Cause, ConfigError, LinkLayer, Nanos, Packet, Stats};

/// netem's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetemConfig {
    latency: Nanos,
    jitter: Nanos,
    /// Of 2^32 packets.
    loss: u64,
    limit: u32,
    seed: u64,
}

impl NetemConfig {
    /// With a latency and a jitter of 0 to 60 000 000 µs, a loss of 0 to 100 percent, and a limit
    /// of 1 to 1 000 000 packets (default 1000).
    ///
    /// # Errors
    /// [`ConfigError`] naming `latency`, `jitter`, `loss` or `limit`.
    pub fn new(latency: u64, jitter: u64, loss: f64, limit: u64, seed: u64) -> Result<NetemConfig, ConfigError> {
        if !(0.0..=100.0).contains(&loss) {
            return Err(ConfigError::Form {
                key: "loss",
                value: loss.to_string(),
                wanted: "a percentage between 0 and 100",
            });
        }
        Ok(NetemConfig {
            latency: Nanos::from_micros(ConfigError::range("latency", latency, 0, 60_000_000)?),
            jitter: Nanos::from_micros(ConfigError::range("jitter", jitter, 0, 60_000_000)?),
            loss: (loss / 100.0 * 4_294_967_296.0) as u64,
            limit: ConfigError::range("limit", limit, 1, 1_000_000)? as u32,
            seed,
        })
    }
}

/// Packets on a network that delays and loses them.
pub struct Netem<P> {
    config: NetemConfig,
    pool: Pool<P>,
    counters: Counters,
    /// Slots of this discipline's own.
    due: Heap,
    ids: Vec<u32>,
    sequence: u32,
    /// When the last packet to come is due.
    last: u64,
    random: u64,
}

/// Packets that arrive at almost the same time are due a nanosecond apart; without jitter this
/// keeps their order.
const ALMOST: u64 = 1_000_000;

impl<P: Packet> Netem<P> {
    /// An empty network.
    pub fn new(config: NetemConfig) -> Netem<P> {
        Netem {
            pool: Pool::new(),
            counters: Counters::default(),
            due: Heap::new(config.limit as usize),
            ids: vec![NIL; config.limit as usize],
            sequence: 0,
            last: 0,
            random: mix(config.seed),
            config,
        }
    }

    /// Takes other parameters. Packets held already keep their times.
    pub fn change(&mut self, config: NetemConfig) {
        if config.limit as usize > self.ids.len() {
            let mut wider = Netem {
                pool: std::mem::replace(&mut self.pool, Pool::new()),
                counters: std::mem::take(&mut self.counters),
                last: self.last,
                random: self.random,
                ..Netem::new(config)
            };
            while let Some((time, at)) = self.due.first() {
                self.due.remove(at);
                wider.hold(self.ids[at as usize], time);
            }
            *self = wider;
        }
        self.config = config;
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }

    fn hold(&mut self, id: u32, time: u64) {
        let mut at = self.sequence;
        while self.due.contains(at) {
            at = (at + 1) % self.ids.len() as u32;
        }
        self.sequence = (at + 1) % self.ids.len() as u32;
        self.ids[at as usize] = id;
        self.due.set(at, time);
    }
}

// `packets` and `bytes` of a scheduler are those queued, of its counters those sent.
#[allow(clippy::misnamed_getters)]
impl<P: Packet> Scheduler<P> for Netem<P> {
    fn enqueue(&mut self, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Enqueued {
        let chance = self.random() >> 32;
        let cause = if chance < self.config.loss {
            Some(Cause::Loss)
        } else if self.counters.backlog_packets() >= u64::from(self.config.limit) {
            Some(Cause::Full)
        } else {
            None
        };
        let id = self.pool.insert(packet, LinkLayer::FRAME, now);
        self.counters.queued(self.pool.bytes(id));
        if let Some(cause) = cause {
            let mut cx = Cx {
                pool: &mut self.pool,
                counters: &mut self.counters,
                dropped,
                now,
            };
            cx.drop(id, cause);
            return Enqueued::Dropped(cause);
        }
        let swing = 2 * self.config.jitter.0 + 1;
        let shift = ((u128::from(self.random()) * u128::from(swing)) >> 64) as u64;
        let delay = (self.config.latency.0 + shift).saturating_sub(self.config.jitter.0);
        let mut due = now.0.saturating_add(delay);
        if self.config.jitter.0 == 0 && (due..due.saturating_add(ALMOST)).contains(&self.last) {
            due = self.last + 1;
        }
        self.last = due;
        self.hold(id, due);
        Enqueued::Queued
    }

    fn dequeue(&mut self, now: Nanos, _: &mut Dropped<'_, P>) -> Option<P> {
        let (time, at) = self.due.first()?;
        if time > now.0 {
            return None;
        }
        self.due.remove(at);
        let id = self.ids[at as usize];
        self.counters.sent(self.pool.bytes(id), now.since(self.pool.since(id)));
        self.pool.remove(id)
    }

    fn next_event(&self, now: Nanos) -> Option<Nanos> {
        self.due.first().map(|(time, _)| Nanos(time).max(now))
    }

    fn packets(&self) -> u64 {
        self.counters.backlog_packets()
    }

    fn bytes(&self) -> u64 {
        self.counters.backlog_bytes()
    }

    fn each_queue(&self, each: &mut dyn FnMut(u32, &Stats)) {
        each(0, &self.counters.stats());
    }

    fn drain(&mut self, each: &mut dyn FnMut(P)) {
        while let Some((_, at)) = self.due.first() {
            self.due.remove(at);
            let id = self.ids[at as usize];
            self.counters.unqueued(self.pool.bytes(id));
            if let Some(packet) = self.pool.remove(id) {
                each(packet);
            }
        }
    }
}
