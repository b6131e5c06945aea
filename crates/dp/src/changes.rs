//! How a datapath learns that megaflows went stale.
//!
//! Writers (the control plane, an upcall that learned an address) append to a bounded log and advance the epoch. A worker compares the epoch
//! with the last one it saw, once a batch: a load, no lock. Only when they differ does it take the lock and read what is new. What a worker
//! has not read for long is told it in fewer words, which may be about more packets: a controller that adds a million rules must not cost it the
//! megaflows that none of them is about.

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

/// Changes that are kept as they were published.
const RECENT: usize = 1024;
/// Of those, as many are put together when there are more.
const PART: usize = 512;
/// Parts that are kept; then half of them are put together.
const PARTS: usize = 64;
/// What is still not said in so many words is that everything changed.
const WORDS: usize = 1024;

/// A log of changes with many readers. See the module's page.
#[derive(Debug, Default)]
pub struct Changes {
    epoch: AtomicU64,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    recent: VecDeque<Change>,
    /// What came before, the oldest first.
    parts: VecDeque<Part>,
}

/// Changes that were put together.
#[derive(Debug)]
struct Part {
    changes: Vec<Change>,
    /// The epoch behind the last of them.
    end: u64,
}

impl Log {
    fn push(&mut self, change: Change, epoch: u64) {
        if self.recent.len() == RECENT {
            let end = epoch - (RECENT - PART) as u64;
            let changes: Vec<Change> = self.recent.drain(..PART).collect();
            self.parts.push_back(Part::of(&changes, end));
        }
        if self.parts.len() == PARTS {
            let mut all = Vec::new();
            let mut end = 0;
            for part in self.parts.drain(..PARTS / 2) {
                all.extend(part.changes);
                end = part.end;
            }
            self.parts.push_front(Part::of(&all, end));
        }
        self.recent.push_back(change);
    }
}

impl Part {
    fn of(changes: &[Change], end: u64) -> Part {
        let mut changes = merged(changes);
        if changes.len() > WORDS {
            changes = vec![Change::All];
        }
        Part { changes, end }
    }
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
        let mut log = self.log.lock();
        let epoch = self.epoch.load(Ordering::Relaxed);
        for (change, epoch) in changes.iter().zip(epoch..) {
            log.push(change.clone(), epoch);
        }
        self.epoch.fetch_add(changes.len() as u64, Ordering::Release);
    }

    /// Appends to `out` what was published after `epoch`, or more, and returns the epoch that `out` brings the reader to.
    pub fn since(&self, epoch: u64, out: &mut Vec<Change>) -> u64 {
        let log = self.log.lock();
        let current = self.epoch.load(Ordering::Acquire);
        let behind = usize::try_from(current.saturating_sub(epoch)).unwrap_or(usize::MAX);
        let first = out.len();
        for part in log.parts.iter().filter(|part| part.end > epoch) {
            out.extend_from_slice(&part.changes);
        }
        let recent = log.recent.len();
        out.extend(log.recent.iter().skip(recent.saturating_sub(behind)).cloned());
        drop(log);
        if out.len() - first > APART {
            let few = merged(&out[first..]);
            out.splice(first.., few);
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
    fn a_reader_that_fell_far_behind_misses_nothing_and_keeps_what_no_change_was_about() {
        let on = |address: u128| {
            let (mut key, mut mask) = (Key::ZERO, Mask::EMPTY);
            key.set(flow::Field::Ipv4Dst, address);
            mask.add(flow::Field::Ipv4Dst);
            Region { key, mask }
        };
        let changes = Changes::new();
        let many = (PART * PARTS * 3) as u64;
        let mut middle = 0;
        for n in 0..many {
            if n == many / 2 {
                middle = changes.epoch();
            }
            let region = Arc::new(on(0x0a00_0000 | u128::from(n & 0xffff)));
            changes.publish(&[Change::Dep(Dep(n % 7)), Change::Overlap(Dep(100), region)]);
            assert!(changes.log.lock().parts.len() <= PARTS);
        }
        for from in [0, middle] {
            let mut out = Vec::new();
            assert_eq!(changes.since(from, &mut out), 2 * many);
            let touches = |one: Region| {
                out.iter().any(|change| match change {
                    Change::Overlap(Dep(100), all) => all.mask.overlaps(&all.key, &one.mask, &one.key),
                    other => *other == Change::All,
                })
            };
            assert!((0..0xffff).step_by(77).all(|n| touches(on(0x0a00_0000 | n))));
            assert!(!touches(on(0x0b00_0000)));
            assert!((0..7).all(|dep| out.contains(&Change::Dep(Dep(dep)))));
        }
    }

    #[test]
    fn changes_that_have_nothing_in_common_become_one_of_everything() {
        let changes = Changes::new();
        for n in 0..(2 * PART * PARTS) as u64 {
            changes.publish(&[Change::Dep(Dep(n))]);
        }
        let mut out = Vec::new();
        changes.since(0, &mut out);
        assert_eq!(out, [Change::All]);
        out.clear();
        let last = changes.epoch() - 1;
        changes.since(last, &mut out);
        assert_eq!(out, [Change::Dep(Dep(last))]);
    }
}
