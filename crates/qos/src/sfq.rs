//! Stochastic fairness queueing: flows are served round robin, and the longest queue loses a packet
//! when the limit is exceeded.
//!
//! Source: P. E. McKenney, "Stochastic Fairness Queueing", Proc. INFOCOM 1990; turns are of bytes
//! as in Shreedhar and Varghese, "Efficient Fair Queuing using Deficit Round Robin", SIGCOMM 1995.
//!
//! - A flow may send `quantum` bytes in its turn; bytes beyond it are subtracted from its next
//!   turns.
//! - When the limit is passed, the head of a longest queue (in packets) is dropped: lists of queues
//!   by length find it at once. They are built when the limit is first exceeded and kept until half
//!   as many packets are left. Below that packets do not pay for them, and building them scans no
//!   more flows than packets have arrived since.
//! - A queue holds at most `depth` packets; further ones of its flows are dropped.
//! - Every `perturb` seconds flows that share a queue (see the module `flows`) are redistributed.
//!   Their packets move along, so that none overtakes another of its own flow.

use crate::codel::MTU;
use crate::flows::Flows;
use crate::pool::{Cx, List, NIL, Pool};
use crate::ring::{Ring, Turns};
use crate::{Cause, ConfigError, Nanos, Packet};

/// SFQ's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SfqConfig {
    perturb: Nanos,
    quantum: u32,
    limit: u32,
    depth: u32,
    flows: u32,
    seed: u64,
}

impl Default for SfqConfig {
    fn default() -> SfqConfig {
        SfqConfig {
            perturb: Nanos::from_secs(10),
            quantum: MTU,
            limit: 1_024,
            depth: 127,
            flows: 1_024,
            seed: 0,
        }
    }
}

impl SfqConfig {
    /// With seconds between perturbations, 0 (never) to 86 400 (default 10), and a quantum of 64 to
    /// 1 048 576 bytes (1514).
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `perturb` or `quantum`.
    pub fn new(perturb: u64, quantum: u64) -> Result<SfqConfig, ConfigError> {
        Ok(SfqConfig {
            perturb: Nanos::from_secs(ConfigError::range("perturb", perturb, 0, 86_400)?),
            quantum: ConfigError::range("quantum", quantum, 64, 1 << 20)? as u32,
            ..SfqConfig::default()
        })
    }

    /// With limits: packets in all, 1 to 1 000 000 (default 1024); packets a queue, 1 to 65 535
    /// (127); queues, 1 to 65 536 (1024).
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `limit`, `depth` or `flows`.
    pub fn limits(self, limit: u64, depth: u64, flows: u64) -> Result<SfqConfig, ConfigError> {
        Ok(SfqConfig {
            limit: ConfigError::range("limit", limit, 1, 1_000_000)? as u32,
            depth: ConfigError::range("depth", depth, 1, 65_535)? as u32,
            flows: ConfigError::range("flows", flows, 1, 65_536)? as u32,
            ..self
        })
    }

    /// With a seed for the assignment of flows that share queues.
    pub fn seed(self, seed: u64) -> SfqConfig {
        SfqConfig { seed, ..self }
    }

    /// When a perturbation is due.
    fn perturb_after(&self, last: Nanos) -> Nanos {
        if self.perturb == Nanos(0) {
            Nanos(u64::MAX)
        } else {
            last + self.perturb
        }
    }
}

/// One cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Flow {
    list: List,
    allotment: i32,
    /// The next in the round; [`NIL`] if it is not in it.
    next: u32,
    /// Neighbours in the list of queues of the same length.
    longer: (u32, u32),
}

const _: () = assert!(size_of::<Flow>() == 64);

impl Turns for Flow {
    #[inline]
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

#[derive(Debug)]
pub(crate) struct Sfq {
    config: SfqConfig,
    flows: Flows,
    queues: Vec<Flow>,
    packets: u32,
    round: Ring,
    /// Whether the lists by length are kept.
    crowded: bool,
    /// The first of the queues of each length.
    by_length: Vec<u32>,
    longest: usize,
    /// Times of the last and the next perturbation.
    perturbed: Nanos,
    perturb_at: Nanos,
}

impl Sfq {
    pub(crate) fn new(config: SfqConfig) -> Sfq {
        let flow = Flow {
            list: List::new(),
            allotment: 0,
            next: NIL,
            longer: (NIL, NIL),
        };
        Sfq {
            flows: Flows::new(config.flows, config.seed),
            queues: vec![flow; config.flows as usize],
            packets: 0,
            round: Ring::new(),
            crowded: false,
            by_length: vec![NIL; config.depth as usize + 2],
            longest: 0,
            perturbed: Nanos(0),
            perturb_at: config.perturb_after(Nanos(0)),
            config,
        }
    }

    #[inline]
    pub(crate) fn enqueue<P: Packet>(&mut self, id: u32, mut cx: Cx<'_, '_, P>) -> Option<Cause> {
        if cx.now >= self.perturb_at {
            self.perturb(cx.again());
        }
        let (packet, _) = cx.pool.look(id);
        let queue = self.flows.place(packet.map_or(0, P::flow_hash));
        if self.queues[queue as usize].list.packets() >= self.config.depth {
            cx.again().drop(id, Cause::FlowFull);
            return Some(Cause::FlowFull);
        }
        self.append(queue, id, cx.pool);
        if self.packets <= self.config.limit {
            return None;
        }
        self.relieve(id, cx)
    }

    /// Drops the head of a longest queue. Returns whether that was the arriving packet.
    #[inline(never)]
    fn relieve<P: Packet>(&mut self, newcomer: u32, mut cx: Cx<'_, '_, P>) -> Option<Cause> {
        if !self.crowded {
            self.crowded = true;
            let mut at = self.round.first();
            while let Some(flow) = self.queues.get(at as usize) {
                let (packets, next) = (flow.list.packets(), flow.next);
                self.relist(at, 0, packets);
                at = self.round.after(at, next);
            }
        }
        let longest = self.by_length[self.longest];
        let victim = self.remove(longest, cx.pool)?;
        cx.drop(victim, Cause::Full);
        (victim == newcomer).then_some(Cause::Full)
    }

    /// Far enough below the limit: stops keeping queues by length.
    #[cold]
    fn relax(&mut self) {
        self.crowded = false;
        self.longest = 0;
        let mut at = self.round.first();
        while let Some(flow) = self.queues.get(at as usize) {
            let place = self.place_of(flow.list.packets());
            self.by_length[place] = NIL;
            at = self.round.after(at, flow.next);
        }
    }

    #[inline]
    pub(crate) fn dequeue<P: Packet>(&mut self, mut cx: Cx<'_, '_, P>) -> Option<u32> {
        if cx.now >= self.perturb_at {
            self.perturb(cx.again());
        }
        self.pop(cx.pool)
    }

    #[inline]
    pub(crate) fn pop<P: Packet>(&mut self, pool: &Pool<P>) -> Option<u32> {
        loop {
            let queue = self.round.first();
            let flow = self.queues.get_mut(queue as usize)?;
            let Some(head) = flow.list.head(pool) else {
                self.leave_round(queue);
                continue;
            };
            if flow.allotment <= 0 {
                flow.allotment += self.config.quantum as i32;
                self.round.turn(flow.next);
                continue;
            }
            let id = flow.list.pop_head(&head);
            flow.allotment -= head.bytes as i32;
            let left = flow.list.packets();
            self.removed(queue, left);
            if left == 0 {
                self.leave_round(queue);
            }
            return Some(id);
        }
    }

    /// All parameters except sizes apply to queued packets; for another number of flows or depth
    /// the caller makes a new one.
    pub(crate) fn change(&mut self, config: SfqConfig) -> bool {
        if (config.flows, config.depth, config.seed) != (self.config.flows, self.config.depth, self.config.seed) {
            return false;
        }
        self.config = config;
        self.perturb_at = config.perturb_after(self.perturbed);
        true
    }

    #[inline]
    fn append<P>(&mut self, queue: u32, id: u32, pool: &mut Pool<P>) {
        let flow = &mut self.queues[queue as usize];
        let before = flow.list.packets();
        flow.list.push(pool, id);
        self.packets += 1;
        if flow.next == NIL {
            flow.allotment = self.config.quantum as i32;
            self.flows.busy(queue);
            self.round.join(&mut self.queues, queue);
        }
        if self.crowded {
            self.relist(queue, before, before + 1);
        }
    }

    fn remove<P>(&mut self, queue: u32, pool: &Pool<P>) -> Option<u32> {
        let list = &mut self.queues.get_mut(queue as usize)?.list;
        let id = list.pop(pool)?;
        let left = list.packets();
        self.removed(queue, left);
        Some(id)
    }

    /// A queue has lost a packet.
    #[inline]
    fn removed(&mut self, queue: u32, left: u32) {
        self.packets -= 1;
        if self.crowded {
            self.relist(queue, left + 1, left);
            if self.packets <= self.config.limit / 2 {
                self.relax();
            }
        }
    }

    /// The place in `by_length` of a length. A perturbation can fill a queue beyond its depth.
    #[inline]
    fn place_of(&self, packets: u32) -> usize {
        (packets as usize).min(self.by_length.len() - 1)
    }

    fn relist(&mut self, queue: u32, before: u32, after: u32) {
        let (before, after) = (self.place_of(before), self.place_of(after));
        if before == after {
            return;
        }
        if before != 0 {
            let (previous, next) = self.queues[queue as usize].longer;
            match previous {
                NIL => self.by_length[before] = next,
                previous => self.queues[previous as usize].longer.1 = next,
            }
            if next != NIL {
                self.queues[next as usize].longer.0 = previous;
            }
        }
        if after != 0 {
            let next = self.by_length[after];
            self.queues[queue as usize].longer = (NIL, next);
            if next != NIL {
                self.queues[next as usize].longer.0 = queue;
            }
            self.by_length[after] = queue;
        }
        // A queue that shortens from the greatest length leaves at least itself one below.
        if after > self.longest || (before == self.longest && self.by_length[before] == NIL) {
            self.longest = after;
        }
    }

    /// The first of the round leaves it.
    #[inline]
    fn leave_round(&mut self, queue: u32) {
        self.round.leave(&mut self.queues);
        self.flows.idle(queue);
    }

    #[cold]
    #[inline(never)]
    fn perturb<P: Packet>(&mut self, cx: Cx<'_, '_, P>) {
        let first = self.perturbed == Nanos(0);
        self.perturbed = cx.now;
        self.perturb_at = self.config.perturb_after(cx.now);
        if !first {
            self.distribute(cx);
        }
    }

    #[cold]
    fn distribute<P: Packet>(&mut self, cx: Cx<'_, '_, P>) {
        self.flows.perturb();
        for queue in 0..self.flows.len() as u32 {
            if !self.flows.is_shared(queue) {
                continue;
            }
            self.flows.unshare(queue);
            let mut moving = List::new();
            while let Some(id) = self.remove(queue, cx.pool) {
                moving.push(cx.pool, id);
            }
            while let Some(id) = moving.pop(cx.pool) {
                let (packet, _) = cx.pool.look(id);
                let to = self.flows.place(packet.map_or(0, P::flow_hash));
                self.append(to, id, cx.pool);
            }
        }
    }
}
