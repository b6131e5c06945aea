//! A worker's offloaded flows. A megaflow can have offloaded flows if a [`dp::offload`] supports
//! its actions: [`dp::offload::Outputs::of`].
//!
//! Workers do not see the packets of offloaded flows. They read the offload's counters instead, and
//! add them to the megaflow before it is aged, dumped or reported. If the megaflow has gone, the
//! counts go to its rules directly.
//!
//! The offloaded flows of one megaflow are a *group*. They depend on the same epochs: one of the
//! worker, one of the group, and one for each [`Dep`] of the megaflow. To suspend the offloaded
//! flows of a megaflow, or of a worker, the worker advances one epoch. It closes them later, in
//! slices (`slices`).
//!
//! An offloaded flow out of a tunnel belongs to two groups: that of the megaflow for what is
//! inside, and that of the megaflow that removes the outer headers. It depends on the epochs of
//! both, and both count its packets.
//!
//! Packets of established connections meet several megaflows, and the tracker between ([`Way`]).
//! Their offloaded flow belongs to the groups of all of these megaflows, and depends on the epochs
//! of the connections too. A connection is open for the offload until its last offloaded flow is
//! closed.
//!
//! Invariants
//! - An offloaded flow is in force only while its megaflow is cached, and while nothing has changed
//!   that the megaflow depends on.
//! - A worker resumes a suspended offloaded flow when one of its packets has matched the megaflow
//!   after the change.
//! - Each packet of an offloaded flow is counted once. The worker reads the counters for the last
//!   time when it closes the offloaded flow, `slices::GRACE` after it stopped it.
//! - Packets do not overtake others of their flow: an offloaded flow carries none until the worker
//!   has sent all that it got before ([`FlowTable::settle`]). Where packets come so fast that this
//!   moment never is, the worker gives up waiting for it, and some may be overtaken.

use super::FlowTable;
use super::storage::{Flow, Storage};
use crate::bonds;
use crate::dep_epochs::DepEpochs;
use dp::offload::{Epoch, OWNER_EPOCHS, OffloadedFlow, Outputs, PacketKind};
use dp::{Carried, Credit, Dep};
use flow::PortNo;
use hashbrown::HashMap;
use nanos::Nanos;
use ports::Port;
use slices::{Closing, Review};
use smallvec::{SmallVec, smallvec};
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

mod offer;
mod ports;
mod slices;
mod way;

pub(crate) use offer::{Candidate, Loads};
pub(crate) use way::{Way, as_bypass};

/// The next offloaded flow after so long is opened for the first packet that there is; sooner, for
/// the second of a kind, because to open one costs as much as to forward some packets.
const PAUSE: Duration = Duration::from_millis(1);

/// Kinds of packets that are remembered until the second comes, and those of packets that could not
/// be followed.
const SEEN: usize = 1024;

/// A worker's offloaded flows. See the module's page.
pub(super) struct OffloadedFlows {
    ports: HashMap<PortNo, Port>,
    /// By place.
    open: Vec<Option<Open>>,
    vacant: Vec<u32>,
    /// Places of the open ones; `None` for those that are being closed.
    by_kind: HashMap<PacketKind, Option<u32>>,
    /// Places by the port that packets come in by.
    by_port: HashMap<PortNo, Vec<u32>>,
    groups: Vec<Option<Group>>,
    vacant_groups: Vec<u32>,
    /// Groups of megaflows that are there.
    by_flow: HashMap<u32, u32>,
    /// Known from the first port on.
    deps: Option<Arc<DepEpochs>>,
    /// Suspends all of this worker.
    epoch: Option<Epoch>,
    /// Number of times that all were suspended: groups of an earlier generation belong to megaflows
    /// that may have gone.
    generation: u64,
    /// Grows with each port that comes, or whose offloaded flows are stopped.
    stamps: u64,
    /// Groups whose megaflows have gone and that still have offloaded flows.
    retired: Vec<u32>,
    /// Dependencies of groups that have gone, which still have epochs: another thread had the table
    /// locked.
    released: Vec<SmallVec<[Dep; 4]>>,
    review: Review,
    closing: VecDeque<Closing>,
    /// The next place to look at, while ageing is under way.
    ageing: Option<u32>,
    /// When a port last gave way to others.
    gave_way: Nanos,
    /// Of kinds of packets that came and got none, a number.
    seen: Box<[u32]>,
    /// Of kinds of packets that could not be followed, a number, and when.
    unfit: Box<[(u32, Nanos)]>,
    /// When the last one was opened.
    opened: Nanos,
    /// Whether flows are offloaded at all.
    enabled: bool,
    tally: OffloadTally,
}

/// Results of attempts to offload flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OffloadTally {
    /// Flows offloaded.
    pub(crate) opened: u64,
    /// Flows resumed after they were suspended.
    pub(crate) resumed: u64,
    /// Not opened: the port has its share, and few are left.
    pub(crate) over_share: u64,
    /// Not opened: none is left.
    pub(crate) full: u64,
    /// Closed to leave some to other ports.
    pub(crate) gave_way: u64,
}

/// The offloaded flows of a megaflow.
struct Group {
    flow: u32,
    generation: u64,
    /// Its megaflow is there, unless all have gone.
    is_alive: bool,
    /// Suspends them.
    epoch: Epoch,
    /// The numbers of all epochs that they depend on, except those of ports.
    epochs: SmallVec<[u32; 16]>,
    deps: SmallVec<[Dep; 4]>,
    /// Those of its megaflow.
    credits: Arc<[Credit]>,
    places: Vec<u32>,
}

struct Open {
    flow: OffloadedFlow,
    /// That of the megaflow that outputs its packets is the first.
    groups: SmallVec<[Member; 1]>,
    from: PortNo,
    outputs: Outputs,
    /// Of packets of connections.
    way: Option<Arc<Way>>,
    loads: Loads,
    /// The stamps of its ports, the ingress port's first.
    stamps: SmallVec<[u64; 3]>,
    /// Its position in the list of its ingress port.
    position: u32,
    /// Packets and bytes already added to its megaflow.
    told: (u64, u64),
    /// When it was opened or last carried packets.
    used: Nanos,
    /// Times that it was put in force and did not settle, since it last did.
    unsettled: u32,
    /// How often that may be.
    patience: u32,
    /// The sum of epochs with which it was last put in force, and the count of packets that the
    /// worker had got when it settled since, if it has.
    sum: u64,
    settled: Option<u64>,
}

/// An offloaded flow in a group.
#[derive(Clone, Copy)]
struct Member {
    group: u32,
    /// In the group's list.
    position: u32,
    /// Bytes of each packet that the group's megaflow does not count: outer headers.
    uncounted: u32,
}

impl Member {
    /// What its megaflow counts of what the offloaded flow has carried.
    fn counts(self, carried: Carried) -> Carried {
        counted(carried, self.uncounted)
    }
}

/// What is left of packets without so many bytes of each.
fn counted(carried: Carried, uncounted: u32) -> Carried {
    let outer = carried.packets.wrapping_mul(uncounted.into());
    Carried {
        bytes: carried.bytes.saturating_sub(outer),
        ..carried
    }
}

/// Where the counters of offloaded flows are added.
struct Books<'a> {
    storage: &'a mut Storage,
    credits: &'a mut Vec<(Credit, Carried)>,
}

impl Books<'_> {
    fn credit(&mut self, credits: &[Credit], carried: Carried) {
        self.credits.extend(credits.iter().map(|credit| (*credit, carried)));
    }
}

impl OffloadedFlows {
    pub(super) fn new() -> OffloadedFlows {
        OffloadedFlows {
            ports: HashMap::new(),
            open: Vec::new(),
            vacant: Vec::new(),
            by_kind: HashMap::new(),
            by_port: HashMap::new(),
            groups: Vec::new(),
            vacant_groups: Vec::new(),
            by_flow: HashMap::new(),
            deps: None,
            epoch: None,
            generation: 0,
            stamps: 0,
            retired: Vec::new(),
            released: Vec::new(),
            review: Review::default(),
            closing: VecDeque::new(),
            ageing: None,
            gave_way: Nanos::ZERO,
            seen: Box::default(),
            unfit: Box::default(),
            opened: Nanos::ZERO,
            enabled: true,
            tally: OffloadTally::default(),
        }
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.open.len() > self.vacant.len()
    }

    /// Whether enough time has passed since the last one was opened.
    fn has_time(&self, now: Nanos) -> bool {
        now.since(self.opened) >= PAUSE
    }

    /// Whether packets of a kind were seen before, as far as it remembers.
    fn seen_before(&mut self, kind: &PacketKind) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![0; SEEN].into();
        }
        let (at, number) = self.memory(kind);
        std::mem::replace(&mut self.seen[at], number) == number
    }

    /// Where a kind of packets is remembered, and its number there.
    fn memory(&self, kind: &PacketKind) -> (usize, u32) {
        let hash = self.by_kind.hasher().hash_one(kind);
        (hash as usize % SEEN, (hash >> 32) as u32 | 1)
    }

    fn group(&self, number: u32) -> Option<&Group> {
        self.groups.get(number as usize)?.as_ref()
    }

    /// The group of a megaflow that is there.
    fn group_of(&self, flow: u32) -> Option<u32> {
        self.by_flow.get(&flow).copied()
    }

    /// Whether the megaflow of a group still exists.
    fn is_current(&self, group: &Group) -> bool {
        group.is_alive && group.generation == self.generation
    }

    /// Whether an offloaded flow can no longer be resumed, and has to be closed.
    fn is_stale(&self, open: &Open) -> bool {
        let stamp = |port: &PortNo| self.ports.get(port).map(|port| port.stamp);
        let is_current = |member: &Member| self.group(member.group).is_some_and(|group| self.is_current(group));
        !open.groups.iter().all(is_current)
            || !iter::once(open.from)
                .chain(open.outputs.ports())
                .map(|port| stamp(&port))
                .eq(open.stamps.iter().copied().map(Some))
    }

    /// The group of a megaflow, a new one if need be; `None` where its dependencies cannot be
    /// watched now.
    fn group_for(&mut self, flow: u32, storage: &Storage) -> Option<u32> {
        if let Some(number) = self.group_of(flow) {
            return Some(number);
        }
        let deps = self.deps.as_ref()?;
        let origin = storage.origin(flow);
        let epoch = deps.table().epoch()?;
        let mut epochs = smallvec![self.epoch.as_ref()?.number(), epoch.number()];
        if epochs.len() + origin.deps.len() > OWNER_EPOCHS || !deps.try_watch(&origin.deps, &mut epochs) {
            return None;
        }
        let group = Group {
            flow,
            generation: self.generation,
            is_alive: true,
            epoch,
            epochs,
            deps: origin.deps.clone(),
            credits: origin.credits[..].into(),
            places: Vec::new(),
        };
        let number = put(&mut self.groups, &mut self.vacant_groups, group);
        self.by_flow.insert(flow, number);
        Some(number)
    }

    /// Forgets a group without offloaded flows.
    fn forget_group(&mut self, number: u32) {
        let Some(group) = self.groups[number as usize].take() else {
            return;
        };
        self.vacant_groups.push(number);
        if self.group_of(group.flow) == Some(number) {
            self.by_flow.remove(&group.flow);
        }
        if !self.deps.as_ref().is_some_and(|deps| deps.try_unwatch(&group.deps)) {
            self.released.push(group.deps);
        }
    }

    /// Suspends the offloaded flows of a megaflow that is being removed. They are closed later.
    pub(super) fn retire(&mut self, flow: u32) {
        if let Some(number) = self.by_flow.remove(&flow)
            && let Some(group) = &mut self.groups[number as usize]
        {
            group.epoch.advance();
            group.is_alive = false;
            self.retired.push(number);
        }
    }

    /// Suspends all, since all megaflows go. They are closed later.
    pub(super) fn retire_all(&mut self) {
        if self.any() {
            self.epoch.iter().for_each(Epoch::advance);
            self.generation += 1;
            self.by_flow = HashMap::new();
            self.review.begin(self.open.len());
        }
    }

    /// Stops the one at a place, and adds its counters to its megaflow. It is closed later.
    fn stop(&mut self, place: u32, books: &mut Books<'_>, now: Nanos) {
        let Some(open) = &mut self.open[place as usize] else {
            return;
        };
        open.flow.suspend();
        self.tell(place, books);
        let Some(open) = self.open[place as usize].take() else {
            return;
        };
        self.vacant.push(place);
        self.by_kind.insert(*open.flow.kind(), None);
        if let Some(places) = self.by_port.get_mut(&open.from) {
            if let Some(moved) = take_from(places, open.position).and_then(|moved| self.open[moved as usize].as_mut()) {
                moved.position = open.position;
            }
            if places.is_empty() {
                self.by_port.remove(&open.from);
            }
        }
        let credits = open.groups.iter().filter_map(|member| self.leave(*member)).collect();
        self.closing
            .push_back(Closing::new(open.flow, open.told, credits, now, open.way));
    }

    /// Takes an offloaded flow out of a group. Returns where its packets are still to be counted,
    /// and how many bytes of each are not.
    fn leave(&mut self, member: Member) -> Option<(Arc<[Credit]>, u32)> {
        let group = self.groups[member.group as usize].as_mut()?;
        let moved = take_from(&mut group.places, member.position);
        if let Some(moved) = moved.and_then(|moved| self.open[moved as usize].as_mut()) {
            let same = moved.groups.iter_mut().find(|other| other.group == member.group);
            same.into_iter().for_each(|other| other.position = member.position);
        }
        let credits = group.credits.clone();
        // A retired group is on a list: it is forgotten there.
        if group.places.is_empty() && group.is_alive {
            self.forget_group(member.group);
        }
        Some((credits, member.uncounted))
    }

    /// Adds the new counts of the one at a place to its megaflow, or to its rules if that has gone.
    fn tell(&mut self, place: u32, books: &mut Books<'_>) {
        let Some(open) = &mut self.open[place as usize] else {
            return;
        };
        let Some(news) = news(&open.flow, &mut open.told) else {
            return;
        };
        open.used = open.used.max(news.used);
        let of_output = open.groups.first().map_or(news, |member| member.counts(news));
        for (counters, bucket) in &open.loads {
            bonds::add(&counters[usize::from(*bucket)], of_output.bytes);
        }
        let groups = open.groups.clone();
        for member in groups {
            let news = member.counts(news);
            let Some(group) = &self.groups[member.group as usize] else {
                continue;
            };
            if self.is_current(group) {
                let flow: &mut Flow = books.storage.flow_mut(group.flow);
                flow.carried(news.packets, news.bytes, news.used.max(flow.used));
            } else {
                books.credit(&group.credits, news);
            }
        }
    }
}

impl Drop for OffloadedFlows {
    fn drop(&mut self) {
        // The kernel has them until they are closed, and from here on no change suspends them.
        self.epoch.iter().for_each(Epoch::advance);
        if let Some(deps) = &self.deps {
            let groups = self.groups.iter().flatten().map(|group| &group.deps);
            groups.chain(&self.released).for_each(|watched| deps.unwatch(watched));
        }
    }
}

/// Packets and bytes that an offloaded flow has carried since the last call.
fn news(flow: &OffloadedFlow, told: &mut (u64, u64)) -> Option<Carried> {
    let carried = flow.carried();
    let (packets, bytes) = std::mem::replace(told, (carried.packets, carried.bytes));
    (*told != (packets, bytes)).then(|| Carried {
        packets: carried.packets.wrapping_sub(packets),
        bytes: carried.bytes.wrapping_sub(bytes),
        used: carried.used,
    })
}

/// Puts something into a place that is free, and returns which.
fn put<T>(places: &mut Vec<Option<T>>, vacant: &mut Vec<u32>, what: T) -> u32 {
    if let Some(place) = vacant.pop() {
        places[place as usize] = Some(what);
        return place;
    }
    places.push(Some(what));
    places.len() as u32 - 1
}

/// Removes the element at a position from a list; returns the one that takes its place.
fn take_from(list: &mut Vec<u32>, position: u32) -> Option<u32> {
    list.swap_remove(position as usize);
    list.get(position as usize).copied()
}

impl FlowTable {
    /// Whether one can be opened for the first packet of a kind.
    pub(crate) fn has_time_to_offload(&self, now: Nanos) -> bool {
        self.offloaded.has_time(now)
    }

    /// Number of offloaded flows of a megaflow.
    pub(crate) fn offloaded_of(&self, flow: u32) -> usize {
        let group = self.offloaded.group_of(flow);
        group
            .and_then(|number| self.offloaded.group(number))
            .map_or(0, |group| group.places.len())
    }

    /// Returns and clears the counts of offers' results.
    pub(crate) fn take_offload_tally(&mut self) -> OffloadTally {
        std::mem::take(&mut self.offloaded.tally)
    }
}

#[cfg(test)]
mod tests;
