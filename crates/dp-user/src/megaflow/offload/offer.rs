//! Offloading flows, and resuming suspended ones.

use super::super::FlowTable;
use super::ports::Port;
use super::{OffloadedFlows, Open, put};
use dp::offload::{Egress, PacketKind, Refused, Rewrite};
use flow::PortNo;
use nanos::Nanos;

/// Packets that could be offloaded.
pub(crate) struct Candidate {
    pub(crate) kind: PacketKind,
    pub(crate) from: PortNo,
    /// Their megaflow.
    pub(crate) flow: u32,
    /// The egress port.
    pub(crate) to: PortNo,
}

impl FlowTable {
    /// Offloads a flow, or resumes it. `is_current` says whether all changes have been
    /// applied that were published until it is asked.
    pub(crate) fn offload(&mut self, candidate: &Candidate, is_current: impl Fn() -> bool, now: Nanos) {
        if !self.offloaded.enabled {
            return;
        }
        let Some(rewrite) = self.rewrite(candidate) else {
            return;
        };
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
                    self.open_flow(candidate, rewrite, is_current, now);
                }
            }
        }
    }

    fn open_flow(
        &mut self,
        candidate: &Candidate,
        rewrite: Option<Rewrite>,
        is_current: impl Fn() -> bool,
        now: Nanos,
    ) {
        let offloaded = &mut self.offloaded;
        let Some(egress) = offloaded.ports.get_mut(&candidate.to).and_then(|port| port.egress()) else {
            return;
        };
        let egress = Egress { rewrite, ..egress };
        offloaded.opened = now;
        // An unused group costs as much as a used one.
        if offloaded.deps.as_ref().is_none_or(|deps| deps.table().left() == 0) {
            offloaded.tally.full += 1;
            return;
        }
        if let Some(group) = offloaded.group_for(candidate.flow, &self.storage) {
            offloaded.open(group, candidate, egress, is_current, now);
            if offloaded.group(group).is_some_and(|group| group.places.is_empty()) {
                offloaded.forget_group(group);
            }
        }
    }

    /// The packet rewrite of an offloaded flow; `None` if it cannot be offloaded.
    fn rewrite(&self, candidate: &Candidate) -> Option<Option<Rewrite>> {
        let flow = self.storage.get(candidate.flow)?;
        let mask = self.subtables.mask(flow.subtable);
        Rewrite::of(flow.actions().0, mask, candidate.kind.is_tagged()).ok()
    }
}

impl OffloadedFlows {
    /// Whether the offloaded flow at a place is still right, and fits a candidate.
    fn can_resume(&self, place: u32, candidate: &Candidate) -> bool {
        let open = self.open[place as usize].as_ref();
        open.is_some_and(|open| {
            let flow = self.group(open.group).map(|group| group.flow);
            (flow, open.to) == (Some(candidate.flow), candidate.to) && !self.is_stale(open)
        })
    }

    /// Puts the offloaded flow at a place in force, where all changes have been applied.
    fn resume(&mut self, place: u32, is_current: impl Fn() -> bool) {
        let Some(open) = &self.open[place as usize] else { return };
        let Some(group) = self.group(open.group) else { return };
        let Some([from, to]) = self.ends(open.from, open.to) else {
            return;
        };
        let sum = to.port.sum(&from.port, &group.epochs);
        if is_current() {
            open.flow.resume(sum);
            self.tally.resumed += 1;
        }
    }

    fn ends(&self, from: PortNo, to: PortNo) -> Option<[&Port; 2]> {
        Some([self.ports.get(&from)?, self.ports.get(&to)?])
    }

    /// Opens an offloaded flow, where all changes have been applied.
    fn open(&mut self, number: u32, candidate: &Candidate, egress: Egress, is_current: impl Fn() -> bool, now: Nanos) {
        let (Some(group), Some([from, to])) = (self.group(number), self.ends(candidate.from, candidate.to)) else {
            return;
        };
        let stamps = [from.stamp, to.stamp];
        let sum = to.port.sum(&from.port, &group.epochs);
        if !is_current() {
            return;
        }
        let opened = to.port.open(&from.port, candidate.kind, egress, &group.epochs, sum);
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
            to: candidate.to,
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
