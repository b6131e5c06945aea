//! FQ-CoDel: a queue for each flow, new flows first, CoDel in each.
//!
//! Source: RFC 8290, sections 4.1 (enqueue) and 4.2 (dequeue). A flow that comes to life joins the list of new flows, which is served before that of old
//! ones; once it has sent a quantum, or been found empty, it is an old one. So a flow that sends less than a quantum a round never waits for the bulk.
//! When the limit of packets or memory is passed, half of the fattest flow's bytes, but no more than 64 packets, go from its head: the search for it is
//! paid once for all of them.
//!
//! Flows share a queue only when more than `flows` are active at once (module `flows`), where the RFC's hash has them collide from the beginning.

use crate::codel::{CodelConfig, Control, MTU};
use crate::flows::Flows;
use crate::pool::{Cx, List, NIL, Pool};
use crate::{Cause, ConfigError, Packet};

/// How many packets go at once when there is no room (RFC 8290, section 4.1.3).
const BATCH: u32 = 64;

/// FQ-CoDel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodelConfig {
    codel: CodelConfig,
    flows: u32,
    quantum: u32,
    memory: u64,
    seed: u64,
}

impl Default for FqCodelConfig {
    fn default() -> FqCodelConfig {
        FqCodelConfig {
            codel: CodelConfig {
                ecn: true,
                ..CodelConfig::default()
            },
            flows: 1_024,
            quantum: MTU,
            memory: 32 << 20,
            seed: 0,
        }
    }
}

impl FqCodelConfig {
    /// With CoDel's parameters for each flow (its limit is that of all packets), 1 to 65 536 flows (default 1024), and a quantum of 64 to 1 048 576
    /// bytes (1514).
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `flows` or `quantum`.
    pub fn new(codel: CodelConfig, flows: u64, quantum: u64) -> Result<FqCodelConfig, ConfigError> {
        Ok(FqCodelConfig {
            codel,
            flows: ConfigError::range("flows", flows, 1, 65_536)? as u32,
            quantum: ConfigError::range("quantum", quantum, 64, 1 << 20)? as u32,
            ..FqCodelConfig::default()
        })
    }

    /// With a limit of memory, 65 536 to 2^32 bytes (default 32 MiB).
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `memory_limit`.
    pub fn memory(self, bytes: u64) -> Result<FqCodelConfig, ConfigError> {
        Ok(FqCodelConfig {
            memory: ConfigError::range("memory_limit", bytes, 65_536, 1 << 32)?,
            ..self
        })
    }

    /// With a seed for the ways in which flows share queues.
    pub fn seed(self, seed: u64) -> FqCodelConfig {
        FqCodelConfig { seed, ..self }
    }
}

/// One cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Flow {
    list: List,
    deficit: i32,
    next: u32,
    in_round: bool,
    control: Control,
}

/// Flows in the order of their turns.
#[derive(Debug)]
struct Round {
    head: u32,
    tail: u32,
}

impl Round {
    #[inline]
    fn join(&mut self, flows: &mut [Flow], flow: u32) {
        flows[flow as usize].next = NIL;
        if self.head == NIL {
            self.head = flow;
        } else {
            flows[self.tail as usize].next = flow;
        }
        self.tail = flow;
    }

    #[inline]
    fn leave(&mut self, flows: &[Flow]) -> u32 {
        let flow = self.head;
        self.head = flows[flow as usize].next;
        flow
    }
}

#[derive(Debug)]
pub(crate) struct FqCodel {
    config: FqCodelConfig,
    flows: Flows,
    queues: Vec<Flow>,
    new: Round,
    old: Round,
    packets: u32,
    memory: u64,
}

impl FqCodel {
    pub(crate) fn new(config: FqCodelConfig) -> FqCodel {
        let flow = Flow {
            list: List::new(),
            deficit: 0,
            next: NIL,
            in_round: false,
            control: Control::default(),
        };
        FqCodel {
            flows: Flows::new(config.flows, config.seed),
            queues: vec![flow; config.flows as usize],
            new: Round { head: NIL, tail: NIL },
            old: Round { head: NIL, tail: NIL },
            packets: 0,
            memory: 0,
            config,
        }
    }

    #[inline]
    pub(crate) fn enqueue<P: Packet>(&mut self, id: u32, cx: &mut Cx<'_, '_, P>) -> Option<Cause> {
        let hash = cx.pool.packet(id).map_or(0, |packet| packet.flow_hash());
        let queue = self.flows.place(hash);
        self.memory += u64::from(cx.pool.memory(id));
        self.packets += 1;
        let flow = &mut self.queues[queue as usize];
        flow.list.push(cx.pool, id);
        if !flow.in_round {
            flow.in_round = true;
            flow.deficit = self.config.quantum as i32;
            self.flows.busy(queue);
            self.new.join(&mut self.queues, queue);
        }
        let mut lost = None;
        while self.packets > self.config.codel.limit || self.memory > self.config.memory {
            let cause = if self.packets > self.config.codel.limit {
                Cause::Full
            } else {
                Cause::Memory
            };
            if !self.relieve(cause, id, &mut lost, cx) {
                break;
            }
        }
        lost
    }

    /// Drops from the head of the fattest flow.
    fn relieve<P: Packet>(
        &mut self,
        cause: Cause,
        newcomer: u32,
        lost: &mut Option<Cause>,
        cx: &mut Cx<'_, '_, P>,
    ) -> bool {
        let mut fattest = (0, NIL);
        for start in [self.new.head, self.old.head] {
            let mut at = start;
            while let Some(flow) = self.queues.get(at as usize) {
                fattest = fattest.max((flow.list.bytes(), at));
                at = flow.next;
            }
        }
        let (bytes, at) = fattest;
        let Some(flow) = self.queues.get_mut(at as usize) else {
            return false;
        };
        let mut dropped = 0;
        for _ in 0..BATCH {
            let Some(id) = flow.list.pop(cx.pool) else { break };
            dropped += u64::from(cx.pool.bytes(id));
            self.memory -= u64::from(cx.pool.memory(id));
            self.packets -= 1;
            if id == newcomer {
                *lost = Some(cause);
            }
            cx.drop(id, cause);
            if dropped * 2 >= bytes {
                break;
            }
        }
        true
    }

    #[inline]
    pub(crate) fn dequeue<P: Packet>(&mut self, cx: &mut Cx<'_, '_, P>) -> Option<u32> {
        loop {
            let is_new = self.new.head != NIL;
            let round = if is_new { &mut self.new } else { &mut self.old };
            let queue = round.head;
            let flow = self.queues.get_mut(queue as usize)?;
            if flow.deficit <= 0 {
                flow.deficit += self.config.quantum as i32;
                round.leave(&self.queues);
                self.old.join(&mut self.queues, queue);
                continue;
            }
            let mut found = flow.control.quick(&self.config.codel, &mut flow.list, cx.pool, cx.now);
            if found.is_none() && !flow.list.is_empty() {
                found = self.control(queue, cx);
            }
            let Some(id) = found else {
                let round = if is_new { &mut self.new } else { &mut self.old };
                round.leave(&self.queues);
                if is_new {
                    // Else a flow that sends one packet at a time would always be new (section 4.2).
                    self.old.join(&mut self.queues, queue);
                } else {
                    self.queues[queue as usize].in_round = false;
                    self.flows.idle(queue);
                }
                continue;
            };
            self.queues[queue as usize].deficit -= cx.pool.bytes(id) as i32;
            self.memory -= u64::from(cx.pool.memory(id));
            self.packets -= 1;
            return Some(id);
        }
    }

    /// The next packet of a flow that CoDel may have to drop from.
    fn control<P: Packet>(&mut self, queue: u32, cx: &mut Cx<'_, '_, P>) -> Option<u32> {
        let flow = self.queues.get_mut(queue as usize)?;
        let before = flow.list.packets();
        let (memory, inner) = (&mut self.memory, &mut *cx.dropped);
        let mut sink = |packet: P, cause| {
            *memory -= u64::from(packet.memory());
            inner(packet, cause);
        };
        let mut cx = Cx {
            pool: &mut *cx.pool,
            stats: &mut *cx.stats,
            dropped: &mut sink,
            now: cx.now,
        };
        let found = flow.control.dequeue(&self.config.codel, &mut flow.list, &mut cx);
        self.packets -= before - flow.list.packets() - u32::from(found.is_some());
        found
    }

    /// The next packet, however long it stood.
    pub(crate) fn pop<P: Packet>(&mut self, pool: &mut Pool<P>) -> Option<u32> {
        loop {
            let round = if self.new.head != NIL {
                &mut self.new
            } else {
                &mut self.old
            };
            let queue = round.head;
            let flow = self.queues.get_mut(queue as usize)?;
            if let Some(id) = flow.list.pop(pool) {
                self.packets -= 1;
                self.memory -= u64::from(pool.memory(id));
                return Some(id);
            }
            round.leave(&self.queues);
            self.queues[queue as usize].in_round = false;
            self.flows.idle(queue);
        }
    }

    /// Parameters but the number of flows apply to what is queued; for another number the caller has to make a new one.
    pub(crate) fn change(&mut self, config: FqCodelConfig) -> bool {
        if (config.flows, config.seed) != (self.config.flows, self.config.seed) {
            return false;
        }
        self.config = config;
        true
    }
}
