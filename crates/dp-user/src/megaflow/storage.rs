//! Where megaflows lie: chunks that are made when needed and freed when empty, so that nothing moves when the table grows.

use dp::{Action, Carried, Credit, Dep, DropCause, Effect};
use flow::{Key, PortNo};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use wire::Nanos;

/// Megaflows in a chunk.
const CHUNK: usize = 256;

/// The `subtable` of a place without a megaflow.
pub(crate) const DEAD: u32 = u32::MAX;

/// What a packet needs of a megaflow.
pub(crate) struct Flow {
    pub(crate) key: Key,
    pub(super) actions: Arc<[Action]>,
    /// The port, where all there is to do is to send the packet out of one.
    pub(crate) direct: Option<PortNo>,
    pub(crate) drop: Option<DropCause>,
    /// Whether it lets packets begin anew.
    pub(super) recirculates: bool,
    /// Used since the last sweep.
    pub(super) touched: bool,
    pub(super) subtable: u32,
    pub(super) hash: u32,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) used: Nanos,
}

/// What only its coming and going need.
pub(super) struct Origin {
    pub(super) deps: SmallVec<[Dep; 4]>,
    pub(super) effects: SmallVec<[Effect; 2]>,
    pub(super) credits: Box<[Credit]>,
    /// Packets and bytes that are reported. At first one packet less than none: that of the upcall is not among those that the megaflow
    /// carries.
    pub(super) reported: (u64, u64),
    pub(super) owner: PortNo,
    /// Place in the owner's list.
    pub(super) position: u32,
    /// Tells this megaflow from others that had its number.
    pub(super) ticket: u32,
}

/// Megaflows by number.
pub(super) struct Storage {
    chunks: Vec<Chunk>,
    /// Free places, lowest first, so that chunks at the end run empty.
    free: BinaryHeap<Reverse<u32>>,
    live: usize,
    tickets: u32,
    no_actions: Arc<[Action]>,
}

/// A run of places; without any where all its megaflows have gone.
#[derive(Default)]
pub(super) struct Chunk {
    flows: Vec<Flow>,
    origins: Vec<Origin>,
    live: usize,
}

impl Storage {
    pub(super) fn new() -> Storage {
        Storage {
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

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Flow> {
        let (chunk, place) = split(number);
        self.chunks.get(chunk)?.flows.get(place)
    }

    #[inline]
    pub(super) fn flow_mut(&mut self, number: u32) -> &mut Flow {
        let (chunk, place) = split(number);
        &mut self.chunks[chunk].flows[place]
    }

    pub(super) fn origin(&self, number: u32) -> &Origin {
        let (chunk, place) = split(number);
        &self.chunks[chunk].origins[place]
    }

    pub(super) fn origin_mut(&mut self, number: u32) -> &mut Origin {
        let (chunk, place) = split(number);
        &mut self.chunks[chunk].origins[place]
    }

    /// Whether the megaflow of that number is still the one that got that ticket.
    pub(super) fn holds(&self, number: u32, ticket: u32) -> bool {
        self.get(number).is_some_and(|flow| flow.subtable != DEAD) && self.origin(number).ticket == ticket
    }

    /// Puts a megaflow into a free place; returns its number and ticket.
    pub(super) fn insert(&mut self, flow: Flow, mut origin: Origin) -> (u32, u32) {
        self.tickets = self.tickets.wrapping_add(1);
        origin.ticket = self.tickets;
        let number = self.free.pop().map_or_else(|| self.grow(), |Reverse(n)| n);
        let (chunk, place) = split(number);
        if self.chunks[chunk].flows.is_empty() {
            self.fill(chunk);
        }
        let chunk = &mut self.chunks[chunk];
        chunk.flows[place] = flow;
        chunk.origins[place] = origin;
        chunk.live += 1;
        self.live += 1;
        (number, self.tickets)
    }

    /// Takes a megaflow out.
    pub(super) fn remove(&mut self, number: u32) -> (Flow, Origin) {
        let (chunk, place) = split(number);
        let (dead_flow, dead_origin) = self.dead();
        let chunk = &mut self.chunks[chunk];
        chunk.live -= 1;
        self.live -= 1;
        self.free.push(Reverse(number));
        (
            std::mem::replace(&mut chunk.flows[place], dead_flow),
            std::mem::replace(&mut chunk.origins[place], dead_origin),
        )
    }

    /// The chunk that `first` is in, from there on, and where the next begins.
    pub(super) fn chunk_from(&self, first: u32) -> (&[Flow], Option<u32>) {
        let (chunk, place) = split(first);
        let flows = self
            .chunks
            .get(chunk)
            .and_then(|chunk| chunk.flows.get(place..))
            .unwrap_or(&[]);
        let next = (chunk + 1 < self.chunks.len()).then(|| ((chunk + 1) * CHUNK) as u32);
        (flows, next)
    }

    /// Notes what the megaflows of the chunk that `first` is in have carried, and returns where the next begins.
    pub(super) fn note_chunk(&mut self, first: u32, credits: &mut Vec<(Credit, Carried)>) -> Option<u32> {
        let (chunk, _) = split(first);
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            chunk.note(credits);
        }
        (chunk + 1 < self.chunks.len()).then(|| ((chunk + 1) * CHUNK) as u32)
    }

    /// Notes what a megaflow has carried.
    pub(super) fn note(&mut self, number: u32, credits: &mut Vec<(Credit, Carried)>) {
        let (chunk, place) = split(number);
        let chunk = &mut self.chunks[chunk];
        chunk.origins[place].note(&chunk.flows[place], credits);
    }

    /// Frees the chunk that `number` is in, where nothing lives there.
    pub(super) fn release(&mut self, number: u32) {
        if let Some(chunk) = self.chunks.get_mut(split(number).0)
            && chunk.live == 0
        {
            *chunk = Chunk::default();
        }
    }

    /// Takes everything away, as it is.
    pub(super) fn take_chunks(&mut self) -> Vec<Chunk> {
        self.free = BinaryHeap::new();
        self.live = 0;
        std::mem::take(&mut self.chunks)
    }

    /// Adds a chunk and returns its first place.
    fn grow(&mut self) -> u32 {
        let first = self.places();
        self.chunks.push(Chunk::default());
        self.free.extend((first + 1..first + CHUNK as u32).map(Reverse));
        first
    }

    fn fill(&mut self, chunk: usize) {
        let (flows, origins) = (0..CHUNK).map(|_| self.dead()).unzip();
        self.chunks[chunk] = Chunk {
            flows,
            origins,
            live: 0,
        };
    }

    fn dead(&self) -> (Flow, Origin) {
        let flow = Flow {
            key: Key::default(),
            actions: self.no_actions.clone(),
            direct: None,
            drop: None,
            recirculates: false,
            touched: false,
            subtable: DEAD,
            hash: 0,
            packets: 0,
            bytes: 0,
            used: Nanos::ZERO,
        };
        let origin = Origin {
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
    /// Notes what its megaflows have carried.
    pub(super) fn note(&mut self, credits: &mut Vec<(Credit, Carried)>) {
        for (flow, origin) in self.flows.iter().zip(&mut self.origins) {
            if flow.subtable != DEAD {
                origin.note(flow, credits);
            }
        }
    }
}

impl Origin {
    /// Notes what its megaflow has carried since the last time.
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
        credits.extend(self.credits.iter().map(|credit| (*credit, carried)));
    }
}

#[inline(always)]
fn split(number: u32) -> (usize, usize) {
    (number as usize / CHUNK, number as usize % CHUNK)
}
