//! How a datapath learns that megaflows went stale.
//!
//! Writers (the control plane, an upcall that learned an address) append to a bounded log and advance the epoch. A worker compares the epoch
//! with the last one it saw, once a batch: a load, no lock. Only when they differ does it take the lock and read what is new. A worker that
//! fell behind further than the log reaches is told that everything changed.

use flow::{Key, Mask};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something in the tables that a translation read, by a number that the switch chose (a hash of bridge, VLAN and address, for example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dep(pub u64);

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Anything may have changed: no megaflow is valid any more.
    All,
    /// What translations recorded under this dependency.
    Dep(Dep),
    /// Of what translations recorded under this dependency, that of packets in a region: a rule came or went that other packets do not
    /// match. The region is of packets as they came in, so the dependency must be one of translations that looked at them as they were then;
    /// what looked after it had changed them needs another one.
    Overlap(Dep, Arc<Region>),
}

/// Packets whose keys equal one in the bits of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The values.
    pub key: Key,
    /// The bits that count.
    pub mask: Mask,
}

/// Changes of one batch that are told apart.
const APART: usize = 32;

/// The same changes, or more, in fewer words: of many regions of one dependency, one that has them all. The order does not matter.
fn merged(changes: &[Change]) -> Vec<Change> {
    let mut regions: Vec<(Dep, Region)> = Vec::new();
    let mut deps = Vec::new();
    for change in changes {
        match change {
            Change::All => return vec![Change::All],
            Change::Dep(dep) => deps.push(*dep),
            Change::Overlap(dep, region) => match regions.iter_mut().find(|(known, _)| known == dep) {
                Some((_, known)) => known.mask = known.mask.common(&known.key, &region.mask, &region.key),
                None => regions.push((*dep, **region)),
            },
        }
    }
    deps.sort_unstable();
    deps.dedup();
    let regions = regions
        .into_iter()
        .map(|(dep, region)| Change::Overlap(dep, Arc::new(region)));
    deps.into_iter().map(Change::Dep).chain(regions).collect()
}

/// Longest history kept; a reader further behind gets [`Change::All`].
const HISTORY: usize = 4096;

/// A log of changes with many readers. See the module's page.
#[derive(Debug, Default)]
pub struct Changes {
    epoch: AtomicU64,
    recent: Mutex<VecDeque<Change>>,
}

impl Changes {
    /// An empty log at epoch 0.
    pub fn new() -> Changes {
        Changes::default()
    }

    /// The number of changes published so far.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Appends changes. They are visible to every reader that asks for the epoch after this returns.
    pub fn publish(&self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let few;
        let changes = if changes.len() > APART {
            few = merged(changes);
            &few
        } else {
            changes
        };
        let mut recent = self.recent.lock();
        for change in changes {
            if recent.len() == HISTORY {
                recent.pop_front();
            }
            recent.push_back(change.clone());
        }
        self.epoch.fetch_add(changes.len() as u64, Ordering::Release);
    }

    /// Appends to `out` what was published after `epoch`, and returns the epoch that `out` brings the reader to.
    pub fn since(&self, epoch: u64, out: &mut Vec<Change>) -> u64 {
        let recent = self.recent.lock();
        let current = self.epoch.load(Ordering::Acquire);
        let behind = current.saturating_sub(epoch);
        if behind > recent.len() as u64 {
            out.push(Change::All);
        } else {
            let first = out.len();
            out.extend(recent.iter().skip(recent.len() - behind as usize).cloned());
            drop(recent);
            if out.len() - first > APART {
                let few = merged(&out[first..]);
                out.splice(first.., few);
            }
        }
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_each_change_once_and_in_order() {
        let changes = Changes::new();
        let mut out = Vec::new();
        changes.publish(&[Change::Dep(Dep(1)), Change::Dep(Dep(2))]);
        let epoch = changes.since(0, &mut out);
        assert_eq!(out, [Change::Dep(Dep(1)), Change::Dep(Dep(2))]);
        out.clear();
        changes.publish(&[Change::Dep(Dep(3))]);
        let epoch = changes.since(epoch, &mut out);
        assert_eq!(out, [Change::Dep(Dep(3))]);
        out.clear();
        assert_eq!(changes.since(epoch, &mut out), changes.epoch());
        assert!(out.is_empty());
    }

    #[test]
    fn many_regions_become_one_that_has_all_their_packets() {
        let on = |address: u128| {
            let (mut key, mut mask) = (Key::ZERO, Mask::EMPTY);
            key.set(flow::Field::Ipv4Dst, address);
            mask.add(flow::Field::Ipv4Dst);
            Region { key, mask }
        };
        let changes = Changes::new();
        for address in 0..100 {
            let region = Arc::new(on(0x0a00_0000 | address));
            changes.publish(&[Change::Overlap(Dep(1), region), Change::Dep(Dep(2))]);
        }
        let mut out = Vec::new();
        changes.since(0, &mut out);
        let [Change::Dep(Dep(2)), Change::Overlap(Dep(1), all)] = &out[..] else {
            panic!("{out:?}")
        };
        let touches = |one: Region| all.mask.overlaps(&all.key, &one.mask, &one.key);
        for address in 0..100 {
            assert!(touches(on(0x0a00_0000 | address)));
        }
        assert!(!touches(on(0x0b00_0000)));
        assert!(touches(Region {
            key: Key::ZERO,
            mask: Mask::EMPTY
        }));
    }

    #[test]
    fn a_reader_that_fell_behind_is_told_that_everything_changed() {
        let changes = Changes::new();
        for n in 0..=HISTORY as u64 {
            changes.publish(&[Change::Dep(Dep(n))]);
        }
        let mut out = Vec::new();
        changes.since(0, &mut out);
        assert_eq!(out, [Change::All]);
    }
}
