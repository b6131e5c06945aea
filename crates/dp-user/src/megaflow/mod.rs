//! The second cache: megaflows in a tuple space.
//!
//! A megaflow is a masked key and the actions for every packet that equals it under the mask.
//! Megaflows of one mask share a *subtable*, a hash table of masked keys; a lookup searches the
//! subtables one after another, those with the most hits first. Megaflows may overlap: they come
//! from translations, so if two cover a packet both are right, and the lookup takes the first.
//!
//! Invariants
//! - A megaflow that depends on anything a [`Change`] names is gone when [`FlowTable::apply`]
//!   returns.
//! - No call that workers make between batches takes long: sweeps, dumps and the freeing of a
//!   flushed table go in steps, and storage grows by chunks without moving entries.
//! - At most [`MAX_MASKS`] subtables: beyond them megaflows get the mask of all bits, which is
//!   always correct. A sender that causes ever new masks thereby causes itself upcalls, and slows
//!   down no other sender's lookups.
//! - At most `limit` megaflows, which is less than configured if a pass over all of them takes
//!   long: beyond it each new one replaces one of the port that holds most, so that a flood of new
//!   flows on a port evicts its own.

mod by_hand;
mod deps;
mod index;
mod offload;
mod storage;
mod subtable;
mod sweep;

pub(crate) use offload::{Candidate, OffloadTally, Way, as_bypass};
pub(crate) use storage::Flow;

use crate::batch::Run;
use crate::edit::Ending;
use crate::hash::{KeyHasher, front};
use deps::DepIndex;
use dp::Limits;
use dp::{Action, Carried, Change, Credit, Dep, DropCause, Region, Translation};
use flow::{Field, Key, Mask, PortNo};
use hashbrown::HashMap;
use nanos::Nanos;
use offload::OffloadedFlows;
use std::sync::Arc;
use std::time::Duration;
use storage::{Chunk, DEAD, Origin, Storage};
use subtable::Subtables;
use sweep::Sweep;

/// Most subtables with masks of their own.
const MAX_MASKS: usize = 128;

/// Maximum number of megaflows that are checked one by one to apply the changes of a batch.
const OVERLAP: usize = 32_768;

/// Megaflows beyond the limit, or of ports that have gone, that are removed in one step.
const TRIM: usize = 256;

/// Number of megaflows sampled for an eviction.
const EVICTION_SAMPLES: usize = 8;

/// How many packets the megaflows of a batch recirculate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recirculation {
    None,
    Some,
    /// Every packet; apart from changes, the megaflows do nothing else with them.
    All,
}
/// The tables that find megaflows.
type Rest = (Subtables, DepIndex, HashMap<PortNo, Vec<u32>>);

/// The megaflows of one worker. See the module's page.
pub(crate) struct FlowTable {
    hasher: Arc<KeyHasher>,
    storage: Storage,
    subtables: Subtables,
    deps: DepIndex,
    /// The megaflows that packets from each port made.
    owners: HashMap<PortNo, Vec<u32>>,
    /// The limit that is configured.
    most: usize,
    /// The limit that is in force: fewer, where ageing takes long.
    limit: usize,
    removals: u64,
    random: u64,
    sweep: Sweep,
    graveyard: Vec<Chunk>,
    /// The rest of the table before the last flush: to free it takes long.
    rest: Option<Rest>,
    /// Ports that have gone, whose megaflows are still to be removed. Their packets come no more.
    gone: Vec<PortNo>,
    /// Megaflows that cover all packets of a port. Packets of such a port need no key. Between
    /// devices in memory this doubles the packets a second; where system calls send and receive,
    /// no difference was measured.
    wide: HashMap<PortNo, u32>,
    /// Number of megaflows that recirculate packets.
    recirculating: usize,
    /// Whether megaflows have removed outer headers since the last flush.
    ends_tunnels: bool,
    /// Whether megaflows have tracked packets, or recirculated them by a hash, since the last
    /// flush.
    has_ways: bool,
    /// Megaflows checked to apply changes.
    looked_at: usize,
    found: Vec<u32>,
    /// Counters of megaflows to report.
    credits: Vec<(Credit, Carried)>,
    offloaded: OffloadedFlows,
}

impl FlowTable {
    pub(crate) fn new(hasher: Arc<KeyHasher>, limit: usize, idle: Duration) -> FlowTable {
        FlowTable {
            random: hasher.whole(&Key::default()) | 1,
            hasher,
            storage: Storage::new(),
            subtables: Subtables::default(),
            deps: DepIndex::default(),
            owners: HashMap::new(),
            most: limit.max(1),
            limit: limit.max(1),
            removals: 0,
            sweep: Sweep::new(idle),
            graveyard: Vec::new(),
            rest: None,
            gone: Vec::new(),
            wide: HashMap::new(),
            recirculating: 0,
            ends_tunnels: false,
            has_ways: false,
            looked_at: 0,
            found: Vec::new(),
            credits: Vec::new(),
            offloaded: OffloadedFlows::new(),
        }
    }

    /// Changes the limits.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.most = limits.flows.max(1);
        self.limit = self.most;
        self.sweep.set_times(limits.idle, limits.period);
    }

    /// The most megaflows that are cached now.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Removes a few of the megaflows beyond the limit; returns whether there are more.
    pub(crate) fn trim(&mut self) -> bool {
        let surplus = self.len().saturating_sub(self.limit);
        for _ in 0..surplus.min(TRIM) {
            self.evict();
        }
        surplus > TRIM
    }

    /// Number of megaflows.
    pub(crate) fn len(&self) -> usize {
        self.storage.live()
    }

    /// Number of masks.
    pub(crate) fn masks(&self) -> usize {
        self.subtables.len()
    }

    /// Advances with every removal: while it stays the same, the numbers that lookups returned are
    /// valid.
    #[inline]
    pub(crate) fn removals(&self) -> u64 {
        self.removals
    }

    /// The megaflow of a number that a lookup returned.
    #[inline]
    pub(crate) fn flow_mut(&mut self, number: u32) -> &mut Flow {
        self.storage.flow_mut(number)
    }

    /// Whether a megaflow of this number exists, and covers `key`.
    #[inline(always)]
    pub(crate) fn covers(&self, number: u32, key: &Key) -> bool {
        match self.storage.get(number) {
            // A place without a megaflow has no subtable.
            Some(flow) => match self.subtables.get_pairs(flow.subtable) {
                Some(pairs) => self.storage.matches(number, flow, key, pairs),
                None => false,
            },
            None => false,
        }
    }

    /// Asks for what [`FlowTable::covers`] and [`FlowTable::flow_mut`] will read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, number: u32) {
        self.storage.prefetch(number);
    }

    /// The megaflow that covers all packets of a port, if there is one; not one that recirculates
    /// packets and does more than change them.
    #[inline]
    pub(crate) fn of_all(&self, port: PortNo) -> Option<u32> {
        if self.wide.is_empty() {
            return None;
        }
        let number = *self.wide.get(&port)?;
        let flow = self.storage.get(number)?;
        (!flow.recirculates || flow.ending != Ending::Other).then_some(number)
    }

    /// Whether there may be megaflows that remove outer headers.
    pub(crate) fn ends_tunnels(&self) -> bool {
        self.ends_tunnels
    }

    /// Whether there may be megaflows that lead packets to others, by a way that an offload
    /// follows.
    pub(crate) fn has_ways(&self) -> bool {
        self.has_ways
    }

    /// Finds a megaflow that covers `key`.
    #[inline]
    pub(crate) fn lookup(&mut self, key: &Key) -> Option<u32> {
        self.lookup_newer(key, 0)
    }

    /// The same for a key that no megaflow covered when [`FlowTable::made`] was `since`: searches
    /// only if megaflows were added since then.
    #[inline]
    pub(crate) fn lookup_newer(&mut self, key: &Key, since: u64) -> Option<u32> {
        self.subtables.lookup(&self.hasher, key, since, &self.storage)
    }

    /// Number of megaflows ever cached.
    #[inline]
    pub(crate) fn made(&self) -> u64 {
        self.subtables.made()
    }

    /// Looks up those of up to [`BATCH`] runs that have [`NONE`](crate::signature::NONE), and sets
    /// their megaflows' numbers. Returns a bit for each run that it found a megaflow for.
    #[inline]
    pub(crate) fn lookup_batch(&mut self, runs: &mut [Run]) -> u32 {
        self.subtables.lookup_batch(&self.hasher, runs, &self.storage)
    }

    /// Returns and clears the number of subtables searched for the keys that matched a megaflow.
    pub(crate) fn take_asked(&mut self) -> u64 {
        std::mem::take(&mut self.subtables.asked)
    }

    /// Caches a translation of `key`, for a packet of so many bytes from `owner`; the megaflow's
    /// counters include that packet. Replaces a megaflow of the same key and mask.
    pub(crate) fn insert(
        &mut self,
        key: &Key,
        owner: PortNo,
        translation: &Translation,
        bytes: u64,
        now: Nanos,
    ) -> u32 {
        if self.len() >= self.limit {
            self.evict();
        }
        let mut mask = translation.mask;
        if self.subtables.len() >= MAX_MASKS && !self.subtables.has(&mask) {
            mask = Mask::full();
        }
        let subtable = self.subtables.of(&mask);
        let masked = key.masked(&mask);
        let hash = self.hasher.masked(&masked, self.subtables.pairs(subtable));
        if let Some(old) = self.subtables.find(subtable, hash, &masked, &self.storage) {
            self.remove(old);
            // The last megaflow of a subtable takes it along.
            return self.insert(key, owner, translation, bytes, now);
        }
        let owned = self.owners.entry(owner).or_default();
        let (ending, before) = Ending::of(&translation.actions);
        let flow = Flow {
            front: front(masked.words()),
            actions: translation.actions.clone(),
            ending,
            before,
            drop: translation.drop,
            recirculates: translation.actions.iter().any(recirculates),
            packets: 0,
            bytes: 0,
            used: now,
            touched: false,
            fresh: true,
            subtable,
            hash: hash as u32,
        };
        let origin = Origin {
            key: masked,
            deps: translation.deps.clone(),
            effects: translation.effects.clone(),
            credits: translation.credits[..].into(),
            reported: (0u64.wrapping_sub(1), 0u64.wrapping_sub(bytes)),
            owner,
            position: owned.len() as u32,
            ticket: 0,
        };
        let (number, ticket) = self.storage.insert(flow, origin);
        owned.push(number);
        for action in translation.actions.iter() {
            self.ends_tunnels |= matches!(action, Action::TunnelPop { .. });
            self.has_ways |= begins_way(action);
        }
        self.recirculating += usize::from(self.storage.flow_mut(number).recirculates);
        self.subtables.insert(subtable, hash, number);
        self.deps.insert(&translation.deps, number, ticket);
        let needs_keys = ending == Ending::RecirculateByHash;
        if is_wide(&mask) && key.get(Field::RecircId) == 0 && !needs_keys {
            self.wide.insert(key.in_port(), number);
        }
        self.sweep.traffic();
        number
    }

    /// Removes the megaflows that a change made stale.
    pub(crate) fn apply(&mut self, change: &Change) {
        let dep = match change {
            Change::All => return self.clear(),
            Change::Dep(dep) => dep,
            Change::Overlap(dep, region) if self.remove_overlap(*dep, region) => return,
            // That took too long: more goes than has to.
            Change::Overlap(dep, _) => dep,
        };
        if self.is_most(self.deps.live(*dep)) {
            self.clear();
            return;
        }
        for (number, ticket) in self.deps.take(*dep) {
            if self.storage.holds(number, ticket) {
                self.remove(number);
            }
        }
    }

    /// Begins to apply changes, with a new budget of megaflows to check. If it takes long to check
    /// all megaflows for each of their regions, the regions of each dependency become one.
    pub(crate) fn begin_changes(&mut self, changes: &mut Vec<Change>) {
        self.looked_at = 0;
        let regions = changes.iter().filter(|change| matches!(change, Change::Overlap(..)));
        if regions.count() * self.len() > OVERLAP / 2 {
            *changes = dp::merged(changes);
        }
    }

    /// Removes the megaflows that depend on `dep` and cover a packet of the region; returns
    /// `false`, with some of them left, if that takes long.
    fn remove_overlap(&mut self, dep: Dep, region: &Region) -> bool {
        if self.deps.live(dep) == 0 {
            return true;
        }
        let mut found = std::mem::take(&mut self.found);
        let looked_at = self.subtables.overlapping(
            &self.hasher,
            region,
            &self.storage,
            OVERLAP - self.looked_at,
            &mut found,
        );
        let done = looked_at.is_some();
        self.looked_at += looked_at.unwrap_or(OVERLAP - self.looked_at);
        found.retain(|number| self.storage.origin(*number).deps.contains(&dep));
        if self.is_most(found.len()) {
            self.clear();
            found.clear();
        }
        found.drain(..).for_each(|number| self.remove(number));
        self.found = found;
        done
    }

    /// Forgets all megaflows. The memory is freed by [`FlowTable::reap`].
    pub(crate) fn clear(&mut self) {
        self.removals += 1;
        self.offloaded.retire_all();
        self.graveyard.append(&mut self.storage.take_chunks());
        let none = self.subtables.emptied();
        self.rest = Some((
            std::mem::replace(&mut self.subtables, none),
            std::mem::take(&mut self.deps),
            std::mem::take(&mut self.owners),
        ));
        self.wide.clear();
        self.recirculating = 0;
        self.ends_tunnels = false;
        self.has_ways = false;
        self.sweep.restart();
    }

    /// Takes the remains of a flush, for another thread to free.
    #[inline]
    pub(crate) fn take_rest(&mut self) -> Option<impl Send + use<>> {
        self.rest.take()
    }

    /// Frees some of the flushed megaflows, and notes their counters; returns whether there are
    /// more.
    pub(crate) fn reap(&mut self) -> bool {
        if let Some(mut chunk) = self.graveyard.pop() {
            chunk.note(&mut self.credits);
        }
        !self.graveyard.is_empty()
    }

    /// Notes the counters of megaflows, of numbers from `first` on, at most a chunk of them;
    /// returns the number to go on from.
    pub(crate) fn note_chunk(&mut self, first: u32) -> Option<u32> {
        self.storage.note_chunk(first, &mut self.credits)
    }

    /// The noted counters of megaflows.
    pub(crate) fn credits(&mut self) -> &mut Vec<(Credit, Carried)> {
        &mut self.credits
    }

    /// How many packets the megaflows of these runs recirculate; each run must have a megaflow.
    #[inline]
    pub(crate) fn recirculation(&mut self, runs: &[Run]) -> Recirculation {
        if self.recirculating == 0 {
            return Recirculation::None;
        }
        let (mut some, mut all) = (false, true);
        for run in runs {
            let flow = self.storage.flow_mut(run.flow);
            some |= flow.recirculates;
            all &= flow.ending.recirculates();
        }
        match (some, all) {
            (false, _) => Recirculation::None,
            (true, true) => Recirculation::All,
            (true, false) => Recirculation::Some,
        }
    }

    /// Removes the megaflows made for packets of a removed port: a few at a time, by
    /// [`FlowTable::remove_gone`].
    pub(crate) fn remove_owner(&mut self, owner: PortNo) {
        if self.owners.contains_key(&owner) {
            self.gone.push(owner);
        }
    }

    /// Removes a few megaflows of ports that have gone; returns whether there are more.
    pub(crate) fn remove_gone(&mut self) -> bool {
        for _ in 0..TRIM {
            let Some(owner) = self.gone.last() else { return false };
            match self.owners.get(owner).and_then(|owned| owned.last()) {
                Some(&number) => self.remove(number),
                None => drop(self.gone.pop()),
            }
        }
        !self.gone.is_empty()
    }

    /// Removes the megaflows of a port that has gone and comes again.
    pub(crate) fn add_owner(&mut self, owner: PortNo) {
        if self.gone.contains(&owner) {
            if self.is_most(self.owners.get(&owner).map_or(0, Vec::len)) {
                self.clear();
            }
            while self.remove_gone() {}
        }
    }

    /// The megaflows of numbers from `first` on, at most a chunk of them, and the number to go on
    /// from; `None` at the end.
    pub(crate) fn walk(&self, first: u32, mut visit: impl FnMut(u32, &Flow, &Key, &Mask)) -> Option<u32> {
        let (numbers, next) = self.storage.chunk_from(first);
        for number in numbers {
            if let Some(flow) = self.storage.get(number).filter(|flow| flow.subtable != DEAD) {
                visit(
                    number,
                    flow,
                    &self.storage.origin(number).key,
                    self.subtables.mask(flow.subtable),
                );
            }
        }
        next
    }

    fn remove(&mut self, number: u32) {
        self.removals += 1;
        if self.offloaded.any() {
            self.offloaded.retire(number);
        }
        let (flow, mut origin) = self.storage.remove(number);
        origin.note(&flow, &mut self.credits);
        if tracing::enabled!(target: "dpif", tracing::Level::DEBUG) {
            log_removed(&flow, &origin, self.subtables.mask(flow.subtable));
        }
        self.recirculating -= usize::from(flow.recirculates);
        self.subtables.remove(flow.subtable, flow.hash, number);
        self.deps
            .removed(&origin.deps, |number, ticket| self.storage.holds(number, ticket));
        let port = origin.key.in_port();
        if self.wide.get(&port) == Some(&number) {
            self.wide.remove(&port);
        }
        if let Some(owned) = self.owners.get_mut(&origin.owner) {
            owned.swap_remove(origin.position as usize);
            if let Some(&moved) = owned.get(origin.position as usize) {
                self.storage.origin_mut(moved).position = origin.position;
            } else if owned.is_empty() {
                self.owners.remove(&origin.owner);
            }
        }
    }

    /// Whether to flush the whole table instead of removing so many megaflows one by one, which
    /// would take long. New upcalls for the others take longer in all, but not at once.
    fn is_most(&self, flows: usize) -> bool {
        flows > 2048 && flows > self.len() / 2
    }

    /// Evicts a megaflow of the port that holds most: of a few random ones, the one used longest
    /// ago.
    fn evict(&mut self) {
        let Some(owner) = self
            .owners
            .iter()
            .max_by_key(|(_, owned)| owned.len())
            .map(|(owner, _)| *owner)
        else {
            return;
        };
        let mut victim = None;
        for _ in 0..EVICTION_SAMPLES {
            let random = self.next_random();
            let owned = &self.owners[&owner];
            let number = owned[(random % owned.len() as u64) as usize];
            let used = self.storage.get(number).map_or(Nanos::ZERO, |f| f.used);
            if victim.is_none_or(|(_, oldest)| used < oldest) {
                victim = Some((number, used));
            }
        }
        if let Some((number, _)) = victim {
            self.remove(number);
        }
    }

    fn next_random(&mut self) -> u64 {
        // xorshift64: cheap, and its quality does not matter.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Logs a megaflow that is being removed, at debug level and in Open vSwitch's words.
#[cold]
fn log_removed(flow: &Flow, origin: &Origin, mask: &Mask) {
    let (key, packets, bytes) = (&origin.key, flow.packets, flow.bytes);
    tracing::debug!(
        target: "dpif",
        "flow_del ufid:{} {}, packets:{packets}, bytes:{bytes}",
        dp::ufid(key, mask),
        key.display(mask)
    );
}

/// Whether an action leads packets to another megaflow by a way that an offload follows.
fn begins_way(action: &Action) -> bool {
    matches!(action, Action::Ct(_) | Action::RecircByHash { .. })
}

fn recirculates(action: &Action) -> bool {
    matches!(
        action,
        Action::Recirc(_) | Action::RecircByHash { .. } | Action::TunnelPop { .. }
    )
}

/// Whether a mask covers the packet's source only.
fn is_wide(mask: &Mask) -> bool {
    let mut origin = Mask::exact(Field::InPort);
    let port = mask.covers(&origin);
    origin.add(Field::RecircId);
    port && origin.covers(mask)
}

impl Flow {
    /// Counts packets that the megaflow carried.
    #[inline]
    pub(crate) fn carried(&mut self, packets: u64, bytes: u64, now: Nanos) {
        self.packets += packets;
        self.bytes += bytes;
        self.used = now;
        self.touched = true;
    }

    /// The action of a megaflow for its packets.
    #[inline]
    pub(crate) fn actions(&self) -> (&Arc<[Action]>, Option<DropCause>) {
        (&self.actions, self.drop)
    }
}
