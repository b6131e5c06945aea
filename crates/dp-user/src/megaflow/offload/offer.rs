//! Offloading flows, and resuming suspended ones.

use super::super::FlowTable;
use super::ports::Port;
use super::{OffloadedFlows, Open, put};
use crate::bonds::{self, BondView};
use dp::offload::{Egress, MAX_OUTPUTS, OffloadPort, Outputs, PacketKind, Refused};
use flow::PortNo;
use nanos::Nanos;
use smallvec::SmallVec;
use std::sync::Arc;

/// Ports that packets leave by, with how they do.
type Ends<'a> = SmallVec<[(&'a Port, Egress); MAX_OUTPUTS]>;

/// Bytes of a VLAN tag.
const TAG: u32 = 4;

/// Packets that could be offloaded.
pub(crate) struct Candidate {
    pub(crate) kind: PacketKind,
    pub(crate) from: PortNo,
    /// Their megaflow.
    pub(crate) flow: u32,
    /// Where they leave.
    pub(crate) outputs: Outputs,
    /// Where bytes of buckets of bonds are counted.
    pub(crate) loads: Loads,
}

/// Counters of bonds, and the buckets in them.
pub(crate) type Loads = SmallVec<[(Arc<bonds::Counters>, u8); 1]>;

impl FlowTable {
    /// Offloads a flow, or resumes it. `is_current` says whether all changes have been
    /// applied that were published until it is asked.
    pub(crate) fn offload(&mut self, candidate: &Candidate, is_current: impl Fn() -> bool, now: Nanos) {
        if !self.offloaded.enabled {
            return;
        }
        let offloaded = &mut self.offloaded;
        match offloaded.by_kind.get(&candidate.kind) {
            Some(Some(place)) => {
                let place = *place;
                if offloaded.can_resume(place, candidate) {
                    offloaded.resume(place, is_current);
                } else {
                    // Two megaflows can cover it; this one is as right.
                    self.stop_offloaded_flow(place, now);
                }
            }
            // To be closed first.
            Some(None) => {}
            None => {
                if offloaded.has_time(now) || offloaded.seen_before(&candidate.kind) {
                    self.open_flow(candidate, is_current, now);
                }
            }
        }
    }

    fn open_flow(&mut self, candidate: &Candidate, is_current: impl Fn() -> bool, now: Nanos) {
        let offloaded = &mut self.offloaded;
        if !offloaded.can_send(&candidate.outputs) {
            return;
        }
        offloaded.opened = now;
        // An unused group costs as much as a used one.
        if offloaded.deps.as_ref().is_none_or(|deps| deps.table().left() == 0) {
            offloaded.tally.full += 1;
            return;
        }
        if let Some(group) = offloaded.group_for(candidate.flow, &self.storage) {
            offloaded.open(group, candidate, is_current, now);
            if offloaded.group(group).is_some_and(|group| group.places.is_empty()) {
                offloaded.forget_group(group);
            }
        }
    }

    /// Where packets of a kind leave whose megaflow is `flow`; `None` if it cannot be offloaded.
    pub(crate) fn outputs(&self, flow: u32, kind: &PacketKind, bonds: &mut BondView) -> Option<(Outputs, Loads)> {
        let flow = self.storage.get(flow)?;
        let mask = self.subtables.mask(flow.subtable);
        let mut loads = Loads::new();
        let member = |bond| {
            let (member, counters, bucket) = bonds.look(bond, &kind.flow_key())?;
            loads.push((counters, bucket));
            Some(member)
        };
        let outputs = Outputs::of(flow.actions().0, mask, kind.is_tagged(), member).ok()?;
        Some((outputs, loads))
    }
}

impl OffloadedFlows {
    /// Whether the offloaded flow at a place is still right, and fits a candidate.
    fn can_resume(&self, place: u32, candidate: &Candidate) -> bool {
        let open = self.open[place as usize].as_ref();
        open.is_some_and(|open| {
            let flow = self.group(open.group).map(|group| group.flow);
            (flow, &open.outputs) == (Some(candidate.flow), &candidate.outputs) && !self.is_stale(open)
        })
    }

    /// Puts the offloaded flow at a place in force, where all changes have been applied.
    fn resume(&mut self, place: u32, is_current: impl Fn() -> bool) {
        let Some(open) = &self.open[place as usize] else { return };
        let Some(group) = self.group(open.group) else { return };
        let Some((from, to)) = self.ends(open.from, &open.outputs) else {
            return;
        };
        let sum = from.port.sum(to.iter().map(|(port, _)| &port.port), &group.epochs);
        drop(to);
        if is_current() {
            open.flow.resume(sum);
            self.tally.resumed += 1;
        }
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

    /// Opens an offloaded flow, where all changes have been applied.
    fn open(&mut self, number: u32, candidate: &Candidate, is_current: impl Fn() -> bool, now: Nanos) {
        let ends = self.ends(candidate.from, &candidate.outputs);
        let (Some(group), Some((from, to))) = (self.group(number), ends) else {
            return;
        };
        let stamps = [from.stamp].into_iter().chain(to.iter().map(|(port, _)| port.stamp));
        let stamps: SmallVec<[u64; 3]> = stamps.collect();
        let sum = from.port.sum(to.iter().map(|(port, _)| &port.port), &group.epochs);
        if !is_current() {
            return;
        }
        let outputs: SmallVec<[(&Arc<OffloadPort>, Egress); MAX_OUTPUTS]> =
            to.iter().map(|(port, egress)| (&port.port, *egress)).collect();
        let opened = from.port.open(&outputs, candidate.kind, &group.epochs, sum);
        drop((outputs, to));
        let flow = match opened {
            Ok(flow) => flow,
            Err(Refused::OverShare) => return self.tally.over_share += 1,
            Err(Refused::Full) => return self.tally.full += 1,
            // It is tried again with the next packet.
            Err(Refused::Taken | Refused::Unsupported(_) | Refused::Kernel(_)) => return,
        };
        self.tally.opened += 1;
        let in_port = self.by_port.entry(candidate.from).or_default();
        let Some(group) = &mut self.groups[number as usize] else {
            return;
        };
        let positions = (group.places.len() as u32, in_port.len() as u32);
        let open = Open {
            flow,
            group: number,
            from: candidate.from,
            outputs: candidate.outputs.clone(),
            loads: candidate.loads.clone(),
            stamps,
            positions,
            told: (0, 0),
            used: now,
        };
        let place = put(&mut self.open, &mut self.vacant, open);
        group.places.push(place);
        in_port.push(place);
        self.by_kind.insert(candidate.kind, Some(place));
    }
}
