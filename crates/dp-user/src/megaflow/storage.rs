//! Storage of megaflows: chunks that are allocated when needed and freed when empty, so that growth
//! moves no entry.
//!
//! The fast path needs two cache lines of a megaflow: the first is compared, the second has
//! counters and the action. The other parts, for insertion, removal and inspection, are stored
//! apart.

use crate::edit::{Before, Ending};
use crate::hash::{Front, MaskPairs};
use dp::{Action, Carried, Credit, Dep, DropCause, Effect};
use flow::{Key, PortNo};
use nanos::Nanos;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

/// Megaflows in a chunk.
const CHUNK: usize = 256;

/// The `subtable` of a place without a megaflow.
pub(crate) const DEAD: u32 = u32::MAX;

/// The part of a megaflow that the fast path needs.
#[repr(C, align(64))]
pub(crate) struct Flow {
    /// The first words of its key.
    pub(super) front: Front,
    pub(super) actions: Arc<[Action]>,
    /// The output of its packets, and whether actions change them before.
    pub(crate) ending: Ending,
    pub(crate) before: Before,
    pub(crate) drop: Option<DropCause>,
    /// Whether it recirculates packets.
    pub(crate) recirculates: bool,
    /// Used since the last sweep.
    pub(super) touched: bool,
    /// Its first packet is still to be reported.
    pub(super) fresh: bool,
    pub(super) subtable: u32,
    pub(super) hash: u32,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) used: Nanos,
}

/// The part of a megaflow for insertion and removal, and for a packet that has more than the first
/// words of a key.
pub(super) struct Origin {
    pub(super) key: Key,
    pub(super) deps: SmallVec<[Dep; 4]>,
    pub(super) effects: SmallVec<[Effect; 2]>,
    pub(super) credits: Box<[Credit]>,
    /// Packets and bytes already reported. Starts at one packet less than zero: the megaflow does
    /// not count the packet of the upcall.
    pub(super) reported: (u64, u64),
    pub(super) owner: PortNo,
    /// Place in the owner's list.
    pub(super) position: u32,
    /// Tells this megaflow from others that had its number.
    pub(super) ticket: u32,
}

/// The fast path's part of a run of places.
type Flows = Box<[Flow; CHUNK]>;

/// Megaflows by number.
pub(super) struct Storage {
    /// Of each chunk, what packets need; none where all its megaflows have gone.
    flows: Vec<Option<Flows>>,
    /// Of each chunk, the rest.
    chunks: Vec<Origins>,
    /// Free places, lowest first, so that chunks at the end run empty.
    free: BinaryHeap<Reverse<u32>>,
    live: usize,
    tickets: u32,
    no_actions: Arc<[Action]>,
}

/// The rest of a run of places; none where all its megaflows have gone.
#[derive(Default)]
struct Origins {
    origins: Box<[Origin]>,
    live: usize,
}

/// A run of places.
pub(super) struct Chunk {
    flows: Option<Flows>,
    origins: Box<[Origin]>,
}

impl Storage {
    pub(super) fn new() -> Storage {
        Storage {
            flows: Vec::new(),
            chunks: Vec::new(),
            free: BinaryHeap::new(),
            live: 0,
            tickets: 0,
            no_actions: Arc::from([]),
        }
    }

    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Places, live or not, as of the next sweep: numbers are below.
    pub(super) fn places(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    #[inline(always)]
    pub(super) fn get(&self, number: u32) -> Option<&Flow> {
        let (chunk, place) = split(number);
        Some(&self.flows.get(chunk)?.as_ref()?[place])
    }

    #[inline(always)]
    pub(super) fn flow_mut(&mut self, number: u32) -> &mut Flow {
        let (chunk, place) = split(number);
        match &mut self.flows[chunk] {
            Some(flows) => &mut flows[place],
            None => unreachable!("a megaflow is in a chunk that has some"),
        }
    }

    /// Prefetches both lines of a megaflow; the number need not exist.
    #[inline(always)]
    pub(super) fn prefetch(&self, number: u32) {
        if let Some(flow) = self.get(number) {
            sys::memory::prefetch(&flow.front);
            sys::memory::prefetch(&flow.actions);
        }
    }

    /// Whether a megaflow covers a key, by its mask.
    #[inline(always)]
    pub(super) fn matches(&self, number: u32, flow: &Flow, key: &Key, pairs: &MaskPairs) -> bool {
        pairs.front_matches(key, &flow.front) && (pairs.is_front() || pairs.rest_matches(key, &self.origin(number).key))
    }

    pub(super) fn origin(&self, number: u32) -> &Origin {
        let (chunk, place) = split(number);
        &self.chunks[chunk].origins[place]
    }

    pub(super) fn origin_mut(&mut self, number: u32) -> &mut Origin {
        let (chunk, place) = split(number);
        &mut self.chunks[chunk].origins[place]
    }

    /// Whether the megaflow of that number still has that ticket.
    pub(super) fn holds(&self, number: u32, ticket: u32) -> bool {
        self.get(number).is_some_and(|flow| flow.subtable != DEAD) && self.origin(number).ticket == ticket
    }

    /// Puts a megaflow into a free place; returns its number and ticket.
    pub(super) fn insert(&mut self, flow: Flow, mut origin: Origin) -> (u32, u32) {
        self.tickets = self.tickets.wrapping_add(1);
        origin.ticket = self.tickets;
        let number = self.free.pop().map_or_else(|| self.grow(), |Reverse(n)| n);
        let (chunk, place) = split(number);
        if self.flows[chunk].is_none() {
            self.fill(chunk);
        }
        *self.flow_mut(number) = flow;
        self.chunks[chunk].origins[place] = origin;
        self.chunks[chunk].live += 1;
        self.live += 1;
        (number, self.tickets)
    }

    /// Takes a megaflow out.
    pub(super) fn remove(&mut self, number: u32) -> (Flow, Origin) {
        let (chunk, place) = split(number);
        let (dead_flow, dead_origin) = self.dead();
        self.chunks[chunk].live -= 1;
        self.live -= 1;
        self.free.push(Reverse(number));
        (
            std::mem::replace(self.flow_mut(number), dead_flow),
            std::mem::replace(&mut self.chunks[chunk].origins[place], dead_origin),
        )
    }

    /// Numbers of the chunk that `first` is in, from there on, and where the next begins.
    pub(super) fn chunk_from(&self, first: u32) -> (Range<u32>, Option<u32>) {
        let (chunk, _) = split(first);
        let next = ((chunk + 1) * CHUNK) as u32;
        let end = self
            .flows
            .get(chunk)
            .map_or(first, |flows| if flows.is_none() { first } else { next });
        (first..end, (chunk + 1 < self.chunks.len()).then_some(next))
    }

    /// Notes the counters of the megaflows in the chunk of `first`, and returns the start of the
    /// next.
    pub(super) fn note_chunk(&mut self, first: u32, credits: &mut Vec<(Credit, Carried)>) -> Option<u32> {
        let (chunk, _) = split(first);
        if let Some((Some(flows), chunk)) = self.flows.get(chunk).zip(self.chunks.get_mut(chunk)) {
            note(&flows[..], &mut chunk.origins, credits);
        }
        (chunk + 1 < self.chunks.len()).then(|| ((chunk + 1) * CHUNK) as u32)
    }

    /// Notes the counters of a megaflow.
    pub(super) fn note(&mut self, number: u32, credits: &mut Vec<(Credit, Carried)>) {
        let (chunk, place) = split(number);
        if let Some(flows) = &self.flows[chunk] {
            self.chunks[chunk].origins[place].note(&flows[place], credits);
        }
    }

    /// Frees the chunk of `number` if it is empty.
    pub(super) fn release(&mut self, number: u32) {
        let (chunk, _) = split(number);
        if let Some(origins) = self.chunks.get_mut(chunk)
            && origins.live == 0
        {
            *origins = Origins::default();
            self.flows[chunk] = None;
        }
    }

    /// Takes everything away, as it is.
    pub(super) fn take_chunks(&mut self) -> Vec<Chunk> {
        self.free = BinaryHeap::new();
        self.live = 0;
        let flows = std::mem::take(&mut self.flows).into_iter();
        let origins = std::mem::take(&mut self.chunks).into_iter();
        flows
            .zip(origins)
            .map(|(flows, Origins { origins, .. })| Chunk { flows, origins })
            .collect()
    }

    /// Adds a chunk and returns its first place.
    fn grow(&mut self) -> u32 {
        let first = self.places();
        self.chunks.push(Origins::default());
        self.flows.push(None);
        self.free.extend((first + 1..first + CHUNK as u32).map(Reverse));
        first
    }

    fn fill(&mut self, chunk: usize) {
        let (flows, origins): (Vec<_>, Vec<_>) = (0..CHUNK).map(|_| self.dead()).unzip();
        // There are as many as that.
        self.flows[chunk] = flows.into_boxed_slice().try_into().ok();
        self.chunks[chunk] = Origins {
            origins: origins.into_boxed_slice(),
            live: 0,
        };
    }

    fn dead(&self) -> (Flow, Origin) {
        let flow = Flow {
            front: Front::default(),
            actions: self.no_actions.clone(),
            ending: Ending::Other,
            before: Before::Nothing,
            drop: None,
            recirculates: false,
            touched: false,
            fresh: false,
            subtable: DEAD,
            hash: 0,
            packets: 0,
            bytes: 0,
            used: Nanos::ZERO,
        };
        let origin = Origin {
            key: Key::ZERO,
            deps: SmallVec::new(),
            effects: SmallVec::new(),
            credits: Box::default(),
            reported: (0, 0),
            owner: PortNo(0),
            position: 0,
            ticket: 0,
        };
        (flow, origin)
    }
}

impl Chunk {
    /// Notes the counters of its megaflows.
    pub(super) fn note(&mut self, credits: &mut Vec<(Credit, Carried)>) {
        if let Some(flows) = &self.flows {
            note(&flows[..], &mut self.origins, credits);
        }
    }
}

/// Notes the counters of a chunk's megaflows.
fn note(flows: &[Flow], origins: &mut [Origin], credits: &mut Vec<(Credit, Carried)>) {
    for (flow, origin) in flows.iter().zip(origins) {
        if flow.subtable != DEAD {
            origin.note(flow, credits);
        }
    }
}

impl Origin {
    /// Notes what its megaflow has carried since the last call.
    pub(super) fn note(&mut self, flow: &Flow, credits: &mut Vec<(Credit, Carried)>) {
        let total = (flow.packets, flow.bytes);
        if self.reported == total || self.credits.is_empty() {
            return;
        }
        let carried = Carried {
            packets: total.0.wrapping_sub(self.reported.0),
            bytes: total.1.wrapping_sub(self.reported.1),
            used: flow.used,
        };
        self.reported = total;
        // Neighbours often come of the same rules.
        let own = &self.credits;
        let before = credits.len().checked_sub(own.len()).map(|at| &mut credits[at..]);
        match before {
            Some(last) if last.iter().map(|(credit, _)| credit).eq(own.iter()) => {
                last.iter_mut().for_each(|(_, sum)| *sum = sum.and(carried));
            }
            _ => credits.extend(own.iter().map(|credit| (*credit, carried))),
        }
    }
}

#[inline(always)]
fn split(number: u32) -> (usize, usize) {
    (number as usize / CHUNK, number as usize % CHUNK)
}
