//! Offloading flows, and resuming suspended ones.

use super::super::{FlowTable, begins_way};
use super::ports::Port;
use super::{Member, OffloadedFlows, Open, PAUSE, SEEN, Way, put};
use crate::bonds::{self, BondView};
use dp::Action;
use dp::offload::{ANY_GIVEN, Egress, MAX_OUTPUTS, NONE_GIVEN, OWNER_EPOCHS, OffloadPort, OuterHeaders, Outputs};
use dp::offload::{FlowConnection, PacketKind, Refused, Steps};
use flow::{Key, PortNo};
use nanos::Nanos;
use smallvec::SmallVec;
use std::sync::Arc;
use tunnel::format::Format;

/// Ports that packets leave by, with how they do.
type Ends<'a> = SmallVec<[(&'a Port, Egress); MAX_OUTPUTS]>;

/// Numbers of epochs.
type Epochs = SmallVec<[u32; 32]>;

/// Times that an offloaded flow is put in force until it carries packets although it does not
/// settle. It costs a fast flow the time of as many batches.
const PATIENCE: u32 = 64;
/// The same where it carried packets and has left one to the worker, as it may do again soon: a
/// flow that is as fast as the kernel would stay with the worker.
const PATIENCE_AGAIN: u32 = 1;

/// Bytes of a VLAN tag.
const TAG: u32 = 4;

/// Packets that could be offloaded.
pub(crate) struct Candidate {
    pub(crate) kind: PacketKind,
    pub(crate) from: PortNo,
    /// The megaflow that outputs them.
    pub(crate) flow: u32,
    /// The megaflow that removes their outer headers, of packets of a tunnel.
    pub(crate) outer: Option<u32>,
    /// What is between their first megaflow and the one that outputs them, of packets of
    /// connections and of those that a hash distributes.
    pub(crate) way: Option<Arc<Way>>,
    /// Outer headers that they get.
    pub(crate) push: Option<OuterHeaders>,
    /// Where they leave.
    pub(crate) outputs: Outputs,
    /// Where bytes of buckets of bonds are counted.
    pub(crate) loads: Loads,
}

/// Counters of bonds, and the buckets in them.
pub(crate) type Loads = SmallVec<[(Arc<bonds::Counters>, u8); 1]>;

impl Candidate {
    /// Their megaflows, that which outputs them first, and how many bytes of each packet these do
    /// not count.
    fn flows(&self) -> impl Iterator<Item = (u32, u32)> {
        let outer = self.outer.map(|outer| (outer, 0));
        let way = self.way.iter().flat_map(|way| &way.flows);
        let inner = std::iter::once(&self.flow).chain(way);
        inner.map(|flow| (*flow, self.kind.outer_len())).chain(outer)
    }

    /// The connections that they belong to.
    fn connections(&self) -> &[FlowConnection] {
        connections_of(&self.way)
    }
}

fn connections_of(way: &Option<Arc<Way>>) -> &[FlowConnection] {
    way.as_ref().map_or(&[], |way| &way.connections)
}

impl FlowTable {
    /// Whether packets of a kind have an offloaded flow, or might get one now.
    pub(crate) fn may_offload(&mut self, kind: &PacketKind, now: Nanos) -> bool {
        let offloaded = &mut self.offloaded;
        let (at, number) = offloaded.memory(kind);
        let unfit = offloaded.unfit.get(at);
        if !offloaded.enabled || unfit.is_some_and(|(kind, since)| *kind == number && now.since(*since) < PAUSE) {
            return false;
        }
        match offloaded.by_kind.get(kind) {
            Some(place) => place.is_some(),
            None => offloaded.has_time(now) || offloaded.seen_before(kind),
        }
    }

    /// Notes that packets of a kind belong to a connection and cannot be offloaded: the next ones
    /// are not followed for a while, because that takes as long as to process one.
    pub(crate) fn did_not_arrive(&mut self, kind: &PacketKind, now: Nanos) {
        let offloaded = &mut self.offloaded;
        if offloaded.unfit.is_empty() {
            offloaded.unfit = vec![(0, Nanos::ZERO); SEEN].into();
        }
        let (at, number) = offloaded.memory(kind);
        offloaded.unfit[at] = (number, now);
    }

    /// Ends the offloaded flow of packets of a kind that cannot be offloaded any more.
    pub(crate) fn forsake(&mut self, kind: &PacketKind, now: Nanos) {
        if let Some(Some(place)) = self.offloaded.by_kind.get(kind) {
            self.stop_offloaded_flow(*place, now);
        }
    }

    /// The actions of a megaflow, if they are the same for all packets of a kind.
    pub(crate) fn decided_actions(&self, flow: u32) -> Option<Arc<[Action]>> {
        let flow = self.storage.get(flow)?;
        dp::offload::is_decided(self.subtables.mask(flow.subtable)).then(|| flow.actions.clone())
    }

    /// Whether a megaflow tracks its packets, or chooses the next megaflow by their hash.
    pub(crate) fn begins_way(&self, flow: u32) -> bool {
        let flow = self.storage.get(flow);
        flow.is_some_and(|flow| flow.actions.iter().any(begins_way))
    }
}

impl FlowTable {
    /// Offloads a flow, or resumes it. `is_current` says whether all changes have been
    /// applied that were published until it is asked. Returns its place, where it is to be
    /// [settled](FlowTable::settle).
    pub(crate) fn offload(&mut self, candidate: &Candidate, is_current: impl Fn() -> bool, now: Nanos) -> Option<u32> {
        if !self.offloaded.enabled {
            return None;
        }
        let offloaded = &mut self.offloaded;
        match offloaded.by_kind.get(&candidate.kind) {
            Some(Some(place)) => {
                let place = *place;
                if offloaded.can_resume(place, candidate) {
                    return offloaded.resume(place, is_current).then_some(place);
                }
                // Two megaflows can cover it; this one is as right.
                self.stop_offloaded_flow(place, now);
                None
            }
            // To be closed first.
            Some(None) => None,
            None => {
                let opens = offloaded.has_time(now) || offloaded.seen_before(&candidate.kind);
                opens.then(|| self.open_flow(candidate, is_current, now))?
            }
        }
    }

    /// The count of packets of an offloaded flow that the worker gets.
    pub(crate) fn given(&self, place: u32) -> Option<u64> {
        let open = self.offloaded.open.get(place as usize)?.as_ref()?;
        Some(open.flow.given())
    }

    /// Lets an offloaded flow carry packets, if no other than those up to this count have come
    /// here; all of these have been sent. Returns whether it does.
    pub(crate) fn settle(&mut self, place: u32, given: u64) -> bool {
        let Some(Some(open)) = self.offloaded.open.get_mut(place as usize) else {
            return false;
        };
        open.flow.settle(given);
        let settled = open.flow.given() == given;
        if settled {
            open.unsettled = 0;
            open.settled = Some(given);
        }
        settled
    }

    /// Notes that the packets of an offloaded flow come too fast to be settled; at last it carries
    /// packets nevertheless.
    pub(crate) fn did_not_settle(&mut self, place: u32) {
        let Some(Some(open)) = self.offloaded.open.get_mut(place as usize) else {
            return;
        };
        open.unsettled += 1;
        if open.unsettled >= open.patience {
            open.unsettled = 0;
            open.flow.settle(ANY_GIVEN);
        }
    }

    fn open_flow(&mut self, candidate: &Candidate, is_current: impl Fn() -> bool, now: Nanos) -> Option<u32> {
        let offloaded = &mut self.offloaded;
        if !offloaded.can_send(&candidate.outputs) {
            return None;
        }
        offloaded.opened = now;
        // An unused group costs as much as a used one.
        if offloaded.deps.as_ref().is_none_or(|deps| deps.table().left() == 0) {
            offloaded.tally.full += 1;
            return None;
        }
        let mut members: SmallVec<[Member; 2]> = SmallVec::new();
        for (flow, uncounted) in candidate.flows() {
            members.extend(offloaded.group_for(flow, &self.storage).map(|group| Member {
                group,
                position: 0,
                uncounted,
            }));
        }
        let place = match members.len() == candidate.flows().count() {
            true => offloaded.open(&members, candidate, is_current, now),
            false => None,
        };
        for Member { group, .. } in members {
            if offloaded.group(group).is_some_and(|group| group.places.is_empty()) {
                offloaded.forget_group(group);
            }
        }
        place
    }

    /// The datapath port and the format of a megaflow that removes outer headers, with a tag of
    /// theirs or without, and does nothing else with its packets.
    pub(crate) fn tunnel_end(&self, flow: u32) -> Option<(PortNo, Format)> {
        match self.storage.get(flow)?.actions().0[..] {
            [Action::TunnelPop { port, format }] | [Action::PopVlan, Action::TunnelPop { port, format }] => {
                Some((port, format))
            }
            _ => None,
        }
    }

    /// Where packets of a kind leave whose megaflow is `flow`, by its actions from the one with the
    /// number `done` on, and with this key; `None` if it cannot be offloaded.
    pub(crate) fn outputs(
        &self,
        (flow, done): (u32, usize),
        kind: &PacketKind,
        key: &Key,
        bonds: &mut BondView,
    ) -> Option<(Outputs, Loads)> {
        let flow = self.storage.get(flow)?;
        let mask = self.subtables.mask(flow.subtable);
        let mut loads = Loads::new();
        let member = |bond| {
            let (member, counters, bucket) = bonds.look(bond, key)?;
            loads.push((counters, bucket));
            Some(member)
        };
        let actions = flow.actions().0.get(done..)?;
        let outputs = Outputs::of(actions, mask, kind.tag().is_some(), member).ok()?;
        if outputs.push().is_some() && kind.inner().is_some() {
            // The kernel removes no outer headers from a packet that gets others.
            return None;
        }
        Some((outputs, loads))
    }
}

impl OffloadedFlows {
    /// Whether the offloaded flow at a place is still right, and fits a candidate.
    fn can_resume(&self, place: u32, candidate: &Candidate) -> bool {
        let open = self.open[place as usize].as_ref();
        open.is_some_and(|open| {
            let flows = open
                .groups
                .iter()
                .map(|member| self.group(member.group).map(|group| group.flow));
            flows.eq(candidate.flows().map(|(flow, _)| Some(flow)))
                && open.outputs == candidate.outputs
                && match (&open.way, &candidate.way) {
                    (Some(open), Some(candidate)) => open.is_same(candidate),
                    (open, candidate) => open.is_none() && candidate.is_none(),
                }
                && !self.is_stale(open)
        })
    }

    /// Puts the offloaded flow at a place in force, where all changes have been applied. Returns
    /// whether it did so: where the flow carries packets, one that it leaves to the worker does not
    /// keep the others from it, unless it is one that they must not overtake.
    fn resume(&mut self, place: u32, is_current: impl Fn() -> bool) -> bool {
        let Some(open) = &self.open[place as usize] else {
            return false;
        };
        let Some(epochs) = self.epochs_of(&open.groups, connections_of(&open.way)) else {
            return false;
        };
        let Some((from, to)) = self.ends(open.from, &open.outputs) else {
            return false;
        };
        let sum = from.port.sum(to.iter().map(|(port, _)| &port.port), &epochs);
        drop(to);
        if !is_current() || open.sum == sum && open.settled == Some(open.flow.given()) {
            return false;
        }
        open.flow.settle(NONE_GIVEN);
        open.flow.resume(sum);
        self.tally.resumed += 1;
        if let Some(open) = &mut self.open[place as usize] {
            if open.sum != sum {
                open.patience = PATIENCE;
            } else if open.settled.is_some() {
                open.patience = PATIENCE_AGAIN;
            }
            (open.sum, open.settled) = (sum, None);
        }
        true
    }

    /// The epochs that offloaded flows of these groups and connections depend on, each once; `None`
    /// if they are too many.
    fn epochs_of(&self, groups: &[Member], connections: &[FlowConnection]) -> Option<Epochs> {
        let mut all = Epochs::new();
        for member in groups {
            for epoch in &self.group(member.group)?.epochs {
                if !all.contains(epoch) {
                    all.push(*epoch);
                }
            }
        }
        all.extend(connections.iter().map(FlowConnection::epoch));
        (all.len() <= OWNER_EPOCHS).then_some(all)
    }

    /// The port that packets come in by, and those that they leave by with how they do.
    fn ends(&self, from: PortNo, outputs: &Outputs) -> Option<(&Port, Ends<'_>)> {
        let to = outputs.iter().map(|output| {
            let port = self.ports.get(&output.to)?;
            let rewrite = output.rewrite;
            Some((
                port,
                Egress {
                    rewrite,
                    ..port.egress()?
                },
            ))
        });
        Some((self.ports.get(&from)?, to.collect::<Option<_>>()?))
    }

    /// Whether the devices of all outputs take packets, those of one length and whole. If they did
    /// not take the same, packets of one flow would go different ways, and overtake each other.
    fn can_send(&self, outputs: &Outputs) -> bool {
        let mut longest = None;
        outputs.iter().all(|output| {
            let egress = self.ports.get(&output.to).and_then(Port::egress);
            egress.is_some_and(|egress| {
                let is_whole = output.cut.is_none_or(|cut| cut >= egress.longest.saturating_add(TAG));
                is_whole && *longest.get_or_insert(egress.longest) == egress.longest
            })
        })
    }

    /// Opens an offloaded flow, where all changes have been applied. Returns its place.
    fn open(
        &mut self,
        groups: &[Member],
        candidate: &Candidate,
        is_current: impl Fn() -> bool,
        now: Nanos,
    ) -> Option<u32> {
        let (from, to) = self.ends(candidate.from, &candidate.outputs)?;
        let epochs = self.epochs_of(groups, candidate.connections())?;
        let stamps = [from.stamp].into_iter().chain(to.iter().map(|(port, _)| port.stamp));
        let stamps: SmallVec<[u64; 3]> = stamps.collect();
        let sum = from.port.sum(to.iter().map(|(port, _)| &port.port), &epochs);
        if !is_current() {
            return None;
        }
        let outputs: SmallVec<[(&Arc<OffloadPort>, Egress); MAX_OUTPUTS]> =
            to.iter().map(|(port, egress)| (&port.port, *egress)).collect();
        let headers = candidate.way.as_ref().map(|way| &way.headers);
        let steps = Steps {
            connections: candidate.connections(),
            headers: headers.filter(|headers| headers.differ()),
            push: candidate.push.as_ref(),
        };
        let opened = from.port.open(&outputs, candidate.kind, steps, &epochs, sum);
        drop((outputs, to));
        match &opened {
            Ok(_) => self.tally.opened += 1,
            Err(Refused::OverShare) => self.tally.over_share += 1,
            Err(Refused::Full) => self.tally.full += 1,
            // It is tried again with the next packet.
            Err(Refused::Taken | Refused::Unsupported(_) | Refused::Kernel(_)) => {}
        }
        let flow = opened.ok()?;
        let mut groups: SmallVec<[Member; 1]> = groups.into();
        for member in &mut groups {
            member.position = self.group(member.group)?.places.len() as u32;
        }
        let in_port = self.by_port.entry(candidate.from).or_default();
        let open = Open {
            flow,
            groups: groups.clone(),
            from: candidate.from,
            outputs: candidate.outputs.clone(),
            way: candidate.way.clone(),
            loads: candidate.loads.clone(),
            stamps,
            position: in_port.len() as u32,
            told: (0, 0),
            used: now,
            unsettled: 0,
            patience: PATIENCE,
            sum,
            settled: None,
        };
        let place = put(&mut self.open, &mut self.vacant, open);
        in_port.push(place);
        for member in groups {
            if let Some(group) = &mut self.groups[member.group as usize] {
                group.places.push(place);
            }
        }
        self.by_kind.insert(candidate.kind, Some(place));
        Some(place)
    }
}
