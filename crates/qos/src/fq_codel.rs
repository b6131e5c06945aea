//! FQ-CoDel: a queue for each flow, new flows first, CoDel in each.
//!
//! Source: RFC 8290, sections 4.1 (enqueue) and 4.2 (dequeue). A flow that becomes active joins the
//! list of new flows, which is served before that of old ones; after it has sent a quantum, or is
//! found empty, it moves to the old ones. So a flow that sends less than a quantum a round never
//! waits for bulk flows. When the limit of packets or memory is exceeded, half of the fattest
//! flow's bytes, at most 64 packets, are dropped from its head, so that one search pays for all of
//! them.
//!
//! Flows share a queue only when more than `flows` are active at once (module `flows`), while the
//! RFC's hash lets them collide at any number.

use crate::codel::{CodelConfig, Control, MTU};
use crate::flows::Flows;
use crate::pool::{Cx, List, NIL, Pool};
use crate::ring::{Ring, Turns};
use crate::{Cause, ConfigError, Packet};

/// How many packets are dropped at once when the limit is exceeded (RFC 8290, section 4.1.3).
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
    /// With CoDel's parameters for each flow (its limit is that of all packets), 1 to 65 536 flows
    /// (default 1024), and a quantum of 64 to 1 048 576 bytes (1514).
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

    /// With a seed for the assignment of flows that share queues.
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
    /// The next in its round; [`NIL`] if it is in none.
    next: u32,
    control: Control,
}

const _: () = assert!(size_of::<Flow>() == 64);

impl Turns for Flow {
    #[inline]
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

#[derive(Debug)]
pub(crate) struct FqCodel {
    config: FqCodelConfig,
    flows: Flows,
    queues: Vec<Flow>,
    new: Ring,
    old: Ring,
    packets: u32,
    memory: u64,
}

impl FqCodel {
    pub(crate) fn new(config: FqCodelConfig) -> FqCodel {
        let flow = Flow {
            list: List::new(),
            deficit: 0,
            next: NIL,
            control: Control::default(),
        };
        FqCodel {
            flows: Flows::new(config.flows, config.seed),
            queues: vec![flow; config.flows as usize],
            new: Ring::new(),
            old: Ring::new(),
            packets: 0,
            memory: 0,
            config,
        }
    }

    #[inline]
    pub(crate) fn enqueue<P: Packet>(&mut self, id: u32, mut cx: Cx<'_, '_, P>) -> Option<Cause> {
        let (packet, memory) = cx.pool.look(id);
        let queue = self.flows.place(packet.map_or(0, P::flow_hash));
        self.memory += u64::from(memory);
        self.packets += 1;
        let flow = &mut self.queues[queue as usize];
        flow.list.push(cx.pool, id);
        if flow.next == NIL {
            flow.deficit = self.config.quantum as i32;
            self.flows.busy(queue);
            self.new.join(&mut self.queues, queue);
        }
        let mut lost = None;
        while let Some(cause) = self.lacks() {
            if !self.relieve(cause, id, &mut lost, cx.again()) {
                break;
            }
        }
        lost
    }

    /// The exceeded limit.
    #[inline]
    fn lacks(&self) -> Option<Cause> {
        if self.packets > self.config.codel.limit {
            Some(Cause::Full)
        } else if self.memory > self.config.memory {
            Some(Cause::Memory)
        } else {
            None
        }
    }

    /// Drops from the head of the fattest flow.
    fn relieve<P: Packet>(
        &mut self,
        cause: Cause,
        newcomer: u32,
        lost: &mut Option<Cause>,
        mut cx: Cx<'_, '_, P>,
    ) -> bool {
        let mut fattest = (0, NIL);
        for round in [&self.new, &self.old] {
            let mut at = round.first();
            while let Some(flow) = self.queues.get(at as usize) {
                fattest = fattest.max((flow.list.bytes(), at));
                at = round.after(at, flow.next);
            }
        }
        let (bytes, at) = fattest;
        let Some(flow) = self.queues.get_mut(at as usize) else {
            return false;
        };
        let mut dropped = 0;
        for _ in 0..BATCH {
            let Some(head) = flow.list.head(cx.pool) else { break };
            let id = flow.list.pop_head(&head);
            dropped += u64::from(head.bytes);
            self.memory -= u64::from(head.memory);
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
    pub(crate) fn dequeue<P: Packet>(&mut self, mut cx: Cx<'_, '_, P>) -> Option<u32> {
        loop {
            let is_new = !self.new.is_empty();
            let queue = self.first();
            let flow = self.queues.get_mut(queue as usize)?;
            if flow.deficit <= 0 {
                flow.deficit += self.config.quantum as i32;
                let next = flow.next;
                self.grow_old(is_new, queue, next);
                continue;
            }
            if let Some(head) = flow.control.quick(&self.config.codel, &mut flow.list, cx.pool, cx.now) {
                flow.deficit -= head.bytes as i32;
                self.memory -= u64::from(head.memory);
                self.packets -= 1;
                return Some(head.id);
            }
            if !flow.list.is_empty()
                && let Some(id) = self.control(queue, cx.again())
            {
                let (_, memory) = cx.pool.look(id);
                self.queues[queue as usize].deficit -= cx.pool.bytes(id) as i32;
                self.memory -= u64::from(memory);
                self.packets -= 1;
                return Some(id);
            }
            if is_new {
                // Else a flow that sends one packet at a time would always be new (section 4.2).
                self.grow_old(true, queue, NIL);
            } else {
                self.old.leave(&mut self.queues);
                self.flows.idle(queue);
            }
        }
    }

    /// Whose turn it is; [`NIL`] if there is none.
    #[inline]
    fn first(&self) -> u32 {
        if self.new.is_empty() {
            self.old.first()
        } else {
            self.new.first()
        }
    }

    /// Moves the current flow to the end of the old ones. `next` is the flow after an old one.
    #[inline]
    fn grow_old(&mut self, is_new: bool, queue: u32, next: u32) {
        if is_new {
            self.new.leave(&mut self.queues);
            self.old.join(&mut self.queues, queue);
        } else {
            self.old.turn(next);
        }
    }

    /// The next packet of a flow that CoDel may have to drop from.
    #[inline(never)]
    fn control<P: Packet>(&mut self, queue: u32, cx: Cx<'_, '_, P>) -> Option<u32> {
        let flow = self.queues.get_mut(queue as usize)?;
        let before = flow.list.packets();
        let (memory, inner) = (&mut self.memory, cx.dropped);
        let mut sink = |packet: P, cause| {
            *memory -= u64::from(packet.memory());
            inner(packet, cause);
        };
        let cx = Cx {
            pool: cx.pool,
            counters: cx.counters,
            dropped: &mut sink,
            now: cx.now,
        };
        let found = flow.control.dequeue(&self.config.codel, &mut flow.list, cx);
        self.packets -= before - flow.list.packets() - u32::from(found.is_some());
        found
    }

    /// The next packet, whatever its sojourn time.
    pub(crate) fn pop<P: Packet>(&mut self, pool: &Pool<P>) -> Option<u32> {
        loop {
            let queue = self.first();
            let flow = self.queues.get_mut(queue as usize)?;
            if let Some(head) = flow.list.head(pool) {
                self.packets -= 1;
                self.memory -= u64::from(head.memory);
                return Some(flow.list.pop_head(&head));
            }
            let round = if self.new.is_empty() {
                &mut self.old
            } else {
                &mut self.new
            };
            round.leave(&mut self.queues);
            self.flows.idle(queue);
        }
    }

    /// All parameters except the number of flows apply to queued packets; for another number the
    /// caller makes a new one.
    pub(crate) fn change(&mut self, config: FqCodelConfig) -> bool {
        if (config.flows, config.seed) != (self.config.flows, self.config.seed) {
            return false;
        }
        self.config = config;
        true
    }
}
