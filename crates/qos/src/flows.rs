//! Assigns packets to a fixed number of flow queues, for SFQ and FQ-CoDel.
//!
//! Both papers hash a flow to a queue and accept that some flows share one. Here a flow gets its
//! own queue while a queue is idle, found by its whole hash in a small open-addressing table; only
//! when all are busy it shares the one chosen by hash and seed. So queueing is fair up to the
//! configured number of flows, and stochastic beyond.
//!
//! Invariant: all queued packets of a flow are in one queue. A flow that shares a queue stays in it
//! until the queue is empty.

use crate::pool::NIL;

/// An empty place of the table.
const FREE: (u32, u32) = (0, NIL);

#[derive(Debug)]
pub(crate) struct Flows {
    /// Queues by the hashes of their flows, with the part of the hash that the position does not
    /// imply: linear probing, at most half full.
    table: Vec<(u32, u32)>,
    /// The flow that a queue was last given to.
    tags: Vec<u64>,
    tagged: Vec<bool>,
    /// Queues that can have packets of several flows.
    shared: Vec<bool>,
    idle: Bits,
    identity: u64,
    sharing: u64,
}

impl Flows {
    /// Of 1 to 65 536 flows.
    pub(crate) fn new(flows: u32, seed: u64) -> Flows {
        let flows = flows as usize;
        Flows {
            table: vec![FREE; (2 * flows).next_power_of_two()],
            tags: vec![0; flows],
            tagged: vec![false; flows],
            shared: vec![false; flows],
            idle: Bits::full(flows),
            identity: seed,
            sharing: mix(seed),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.tags.len()
    }

    /// The queue for a packet of a flow. The caller calls [`Flows::busy`] when it has enqueued the
    /// packet.
    #[inline]
    pub(crate) fn place(&mut self, hash: u64) -> u32 {
        let tag = fold(hash ^ self.identity);
        let mut at = self.home(tag);
        loop {
            let (print, flow) = self.table[at];
            if flow == NIL {
                return self.settle(tag, at);
            }
            if print == tag as u32 {
                return flow;
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }

    #[cold]
    fn settle(&mut self, tag: u64, at: usize) -> u32 {
        let choice = ((u128::from(mix(tag ^ self.sharing)) * self.tags.len() as u128) >> 64) as u32;
        if self.shared[choice as usize] {
            return choice;
        }
        let Some(flow) = self.idle.find() else {
            self.shared[choice as usize] = true;
            return choice;
        };
        let mut at = at;
        if self.tagged[flow as usize] {
            self.forget(flow);
            at = self.home(tag);
            while self.table[at] != FREE {
                at = (at + 1) & (self.table.len() - 1);
            }
        }
        self.table[at] = (tag as u32, flow);
        self.tags[flow as usize] = tag;
        self.tagged[flow as usize] = true;
        flow
    }

    /// A queue has packets now.
    #[inline]
    pub(crate) fn busy(&mut self, flow: u32) {
        self.idle.clear(flow as usize);
    }

    /// A queue is empty and out of its round.
    #[inline]
    pub(crate) fn idle(&mut self, flow: u32) {
        self.shared[flow as usize] = false;
        self.idle.set(flow as usize);
    }

    pub(crate) fn is_shared(&self, flow: u32) -> bool {
        self.shared[flow as usize]
    }

    /// Changes which flows share queues. The caller reassigns the packets of shared queues, queue
    /// by queue after [`Flows::unshare`], in their order, so that none overtakes another of its
    /// flow.
    pub(crate) fn perturb(&mut self) {
        self.sharing = mix(self.sharing.wrapping_add(1));
    }

    pub(crate) fn unshare(&mut self, flow: u32) {
        self.shared[flow as usize] = false;
    }

    fn home(&self, tag: u64) -> usize {
        (tag >> 32) as usize & (self.table.len() - 1)
    }

    fn forget(&mut self, flow: u32) {
        let mask = self.table.len() - 1;
        let mut gap = self.home(self.tags[flow as usize]);
        while self.table[gap].1 != flow {
            gap = (gap + 1) & mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let other = self.table[at];
            if other == FREE {
                break;
            }
            let home = self.home(self.tags[other.1 as usize]);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.table[gap] = other;
                gap = at;
            }
        }
        self.table[gap] = FREE;
        self.tagged[flow as usize] = false;
    }
}

/// 64 bits in which every bit of the argument counts: the halves of one long product, which costs
/// half of [`mix`].
#[inline]
fn fold(n: u64) -> u64 {
    let product = u128::from(n ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
    product as u64 ^ (product >> 64) as u64
}

/// A bijection of 64 bits in which every bit of the result depends on every bit of the argument.
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let n = (n ^ (n >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    n ^ (n >> 32)
}

/// A set of small numbers that finds a member fast, starting from the last one found.
#[derive(Debug)]
struct Bits {
    words: Vec<u64>,
    summary: Vec<u64>,
    from: usize,
}

impl Bits {
    fn full(bits: usize) -> Bits {
        let words = bits.div_ceil(64);
        let mut set = Bits {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
            from: 0,
        };
        (0..bits).for_each(|bit| set.set(bit));
        set
    }

    #[inline]
    fn set(&mut self, bit: usize) {
        self.words[bit / 64] |= 1 << (bit % 64);
        self.summary[bit / 4096] |= 1 << (bit / 64 % 64);
    }

    #[inline]
    fn clear(&mut self, bit: usize) {
        self.words[bit / 64] &= !(1 << (bit % 64));
        if self.words[bit / 64] == 0 {
            self.summary[bit / 4096] &= !(1 << (bit / 64 % 64));
        }
    }

    fn find(&mut self) -> Option<u32> {
        let rest = self.words[self.from / 64] & (u64::MAX << (self.from % 64));
        let bit = if rest != 0 {
            self.from / 64 * 64 + rest.trailing_zeros() as usize
        } else {
            let part = self.from / 4096;
            let later = |n: usize| {
                if n == part {
                    u64::MAX << (self.from / 64 % 64)
                } else {
                    u64::MAX
                }
            };
            let (n, found) = (part..self.summary.len())
                .map(|n| (n, self.summary[n] & later(n)))
                .find(|(_, word)| *word != 0)
                .or_else(|| {
                    (0..self.summary.len())
                        .map(|n| (n, self.summary[n]))
                        .find(|(_, word)| *word != 0)
                })?;
            let word = n * 64 + found.trailing_zeros() as usize;
            word * 64 + self.words[word].trailing_zeros() as usize
        };
        self.from = if bit + 1 < self.words.len() * 64 { bit + 1 } else { 0 };
        Some(bit as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn as_many_flows_as_there_are_queues_have_one_each_and_further_ones_share() {
        let mut flows = Flows::new(1_000, 7);
        let mut queues = HashSet::new();
        for flow in 0..1_000 {
            let queue = flows.place(flow);
            flows.busy(queue);
            assert!(queues.insert(queue));
            assert!(!flows.is_shared(queue));
        }
        let queue = flows.place(5_000);
        assert!(flows.is_shared(queue));
        assert_eq!(flows.place(5_000), queue);
    }

    #[test]
    fn the_table_agrees_with_a_map_when_flows_come_and_go() {
        let mut flows = Flows::new(64, 3);
        let mut model: HashMap<u64, u32> = HashMap::new();
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = mix(random.wrapping_add(99));
            let flow = random % 80;
            if let Some(queue) = model.get(&flow) {
                assert_eq!(flows.place(flow), *queue);
                if random & (1 << 40) != 0 {
                    flows.idle(*queue);
                    model.remove(&flow);
                }
            } else if model.len() < 64 {
                let queue = flows.place(flow);
                assert!(
                    !model.values().any(|other| *other == queue),
                    "a queue that another flow has"
                );
                flows.busy(queue);
                model.insert(flow, queue);
            }
        }
    }
}
