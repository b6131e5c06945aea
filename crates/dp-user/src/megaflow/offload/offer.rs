//! Opening and renewing shortcuts.

use super::super::FlowTable;
use super::ports::Exit;
use super::{Open, Shortcuts, put};
use crate::options::OffloadUse;
use dp::offload::{Egress, PacketKind, Refused, Rewrite};
use flow::PortNo;
use wire::Nanos;

/// Packets that could have a shortcut.
pub(crate) struct Candidate {
    pub(crate) key: PacketKind,
    pub(crate) from: PortNo,
    /// Their megaflow.
    pub(crate) flow: u32,
    /// Where that sends them.
    pub(crate) to: PortNo,
}

impl FlowTable {
    /// Opens a shortcut, or renews it. `is_current` says whether all changes have been applied that
    /// were published until it is asked.
    pub(crate) fn offer_shortcut(&mut self, candidate: &Candidate, is_current: impl Fn() -> bool, now: Nanos) {
        if self.shortcuts.usage == OffloadUse::Off {
            return;
        }
        let Some(rewrite) = self.rewrite(candidate) else {
            return;
        };
        let shortcuts = &mut self.shortcuts;
        match shortcuts.by_key.get(&candidate.key) {
            Some(Some(place)) => {
                let place = *place;
                if shortcuts.can_renew(place, candidate) {
                    shortcuts.renew(place, is_current);
                } else {
                    // Two megaflows can cover it; this one is as right.
                    self.stop_shortcut(place, now);
                }
            }
            // To be closed first.
            Some(None) => {}
            None => {
                if shortcuts.has_time(now) || shortcuts.seen_before(&candidate.key) {
                    self.open_shortcut(candidate, rewrite, is_current, now);
                }
            }
        }
    }

    fn open_shortcut(
        &mut self,
        candidate: &Candidate,
        rewrite: Option<Rewrite>,
        is_current: impl Fn() -> bool,
        now: Nanos,
    ) {
        let shortcuts = &mut self.shortcuts;
        let usage = shortcuts.usage;
        let Some(way) = shortcuts.exits.get_mut(&candidate.to).and_then(|exit| exit.way(usage)) else {
            return;
        };
        let way = Egress { rewrite, ..way };
        shortcuts.opened = now;
        // A group for nothing costs as much as one that is used.
        if shortcuts.deps.as_ref().is_none_or(|deps| deps.table().left() == 0) {
            shortcuts.tally.full += 1;
            return;
        }
        if let Some(group) = shortcuts.group_for(candidate.flow, &self.storage) {
            shortcuts.open(group, candidate, way, is_current, now);
            if shortcuts.group(group).is_some_and(|group| group.places.is_empty()) {
                shortcuts.forget_group(group);
            }
        }
    }

    /// What becomes of packets' tags; `None` where they cannot have a shortcut.
    fn rewrite(&self, candidate: &Candidate) -> Option<Option<Rewrite>> {
        let flow = self.storage.get(candidate.flow)?;
        let mask = self.subtables.mask(flow.subtable);
        Rewrite::of(flow.actions().0, mask, candidate.key.is_tagged()).ok()
    }
}

impl Shortcuts {
    /// Whether the shortcut at a place is still right, and what a candidate needs.
    fn can_renew(&self, place: u32, candidate: &Candidate) -> bool {
        let open = self.open[place as usize].as_ref();
        open.is_some_and(|open| {
            let flow = self.group(open.group).map(|group| group.flow);
            (flow, open.to) == (Some(candidate.flow), candidate.to) && !self.is_stale(open)
        })
    }

    /// Puts the shortcut at a place in force, where all changes have been applied.
    fn renew(&mut self, place: u32, is_current: impl Fn() -> bool) {
        let Some(open) = &self.open[place as usize] else { return };
        let Some(group) = self.group(open.group) else { return };
        let Some([from, to]) = self.ends(open.from, open.to) else {
            return;
        };
        let sum = to.port.sum(&from.port, &group.epochs);
        if is_current() {
            open.shortcut.resume(sum);
            self.tally.renewed += 1;
        }
    }

    fn ends(&self, from: PortNo, to: PortNo) -> Option<[&Exit; 2]> {
        Some([self.exits.get(&from)?, self.exits.get(&to)?])
    }

    /// Opens a shortcut, where all changes have been applied.
    fn open(&mut self, number: u32, candidate: &Candidate, way: Egress, is_current: impl Fn() -> bool, now: Nanos) {
        let (Some(group), Some([from, to])) = (self.group(number), self.ends(candidate.from, candidate.to)) else {
            return;
        };
        let stamps = [from.stamp, to.stamp];
        let sum = to.port.sum(&from.port, &group.epochs);
        if !is_current() {
            return;
        }
        let opened = to.port.open(&from.port, candidate.key, way, &group.epochs, sum);
        let shortcut = match opened {
            Ok(shortcut) => shortcut,
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
            shortcut,
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
        self.by_key.insert(candidate.key, Some(place));
    }
}
