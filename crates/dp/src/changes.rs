//! The changes that make megaflows stale, from the control plane to the workers.
//!
//! Writers (the control plane, an upcall that learned an address) append to a bounded log and
//! advance the epoch. A worker compares the epoch with the last one it saw once a batch: one load,
//! no lock. It reads the log only if the epochs differ. A worker that has not read for long gets
//! merged changes, which may cover more packets: when a controller adds a million rules, a worker
//! must not lose the megaflows that none of the rules affects.
//!
//! No thread does long work while it holds the lock of the log. The scheduler can preempt a thread
//! at any time, and a thread that adds a million rules is preempted often; a worker that needs the
//! lock, and its packets, would wait until that thread runs again. So merging changes and freeing
//! memory happen outside the lock. A reader that is nearly up to date does not take this lock at
//! all: it finds the last changes in a ring, by their epochs.

use flow::{Key, Mask};
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Something in the tables that a translation read, by a number that the switch chose (a hash of
/// bridge, VLAN and address, for example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dep(pub u64);

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Anything may have changed: no megaflow is valid any more.
    All,
    /// All translations that recorded this dependency are stale.
    Dep(Dep),
    /// Translations that recorded this dependency are stale for packets in a region: a rule was
    /// added or removed that other packets do not match. The region describes packets as they were
    /// received. So only translations that looked at unchanged packets may record the dependency;
    /// those that looked at packets after changing them record another one.
    Overlap(Dep, Arc<Region>),
}

/// Packets whose keys equal one in the bits of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The values.
    pub key: Key,
    /// The bits to compare.
    pub mask: Mask,
}

/// Number of changes in one batch that are kept separate.
const MOST_SEPARATE: usize = 32;

/// Merges changes into fewer ones that cover at least the same packets: one region for each
/// dependency, which covers all its regions. The order does not matter.
pub fn merged(changes: &[Change]) -> Vec<Change> {
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

/// Changes that are kept as they were published; briefly more, while some are merged.
const RECENT: usize = 1024;
/// Changes in the ring. A reader that is behind by at most half of them takes no lock: a writer
/// then does not write to the entries that it reads.
const RING: usize = 2048;
/// From this many recent changes on, writers wait until they are merged.
const MOST_RECENT: usize = 16 * RECENT;
/// Number of recent changes that are merged into a part at once.
const PART: usize = 512;
/// Number of parts at which the older half is merged into one.
const PARTS: usize = 64;
/// The largest part. A larger one is replaced by [`Change::All`].
const MOST_MERGED: usize = 1024;

/// A change and its epoch.
type Numbered = (u64, Change);

/// A log of changes with many readers. See the module's page.
pub struct Changes {
    epoch: AtomicU64,
    /// The last changes with their epochs. The index of a change is its epoch modulo [`RING`].
    ring: Box<[RwLock<Option<Numbered>>]>,
    log: Mutex<Log>,
    /// Called with changes before [`Changes::publish`] returns.
    told: OnceLock<Callback>,
    /// Held while changes are merged: only its holder removes changes from the log.
    merging: Mutex<()>,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes {
            epoch: AtomicU64::new(0),
            ring: iter::repeat_with(RwLock::default).take(RING).collect(),
            log: Mutex::default(),
            told: OnceLock::new(),
            merging: Mutex::default(),
        }
    }
}

/// A function that receives changes.
type Callback = Box<dyn Fn(&[Change]) + Send + Sync>;

#[derive(Debug, Default)]
struct Log {
    recent: VecDeque<Change>,
    /// Older changes, merged, the oldest first.
    parts: VecDeque<Arc<Part>>,
}

/// Merged changes.
#[derive(Debug)]
struct Part {
    changes: Vec<Change>,
    /// The epoch after the last of them.
    end: u64,
}

impl Part {
    fn of(changes: &[Change], end: u64) -> Part {
        let mut changes = merged(changes);
        if changes.len() > MOST_MERGED {
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

    /// Calls `told` with each change from now on, or with a change that covers more, before
    /// [`Changes::publish`] returns. This is for forwarding that does not check the epoch.
    ///
    /// A change is in the log before `told` is called with it. So a reader that sees an effect of
    /// the call, and then finds that it has read the log up to the [epoch](Changes::epoch), has
    /// read the change too. `told` must not take long. Returns `false` and does nothing if there is
    /// a callback already.
    pub fn tell(&self, told: impl Fn(&[Change]) + Send + Sync + 'static) -> bool {
        // Calls of `publish` after this see the callback.
        let _log = self.log.lock();
        self.told.set(Box::new(told)).is_ok()
    }

    /// Appends changes. Every reader that checks the epoch after this returns sees them.
    pub fn publish(&self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let few;
        let changes = if changes.len() > MOST_SEPARATE {
            few = merged(changes);
            &few
        } else {
            changes
        };
        let mut forgotten = Vec::with_capacity(changes.len());
        let recent = {
            let mut log = self.log.lock();
            log.recent.extend(changes.iter().cloned());
            for (epoch, change) in (self.epoch()..).zip(changes) {
                let mut place = self.place(epoch).write();
                forgotten.extend(place.replace((epoch, change.clone())));
            }
            self.epoch.fetch_add(changes.len() as u64, Ordering::Release);
            log.recent.len()
        };
        drop(forgotten);
        if let Some(told) = self.told.get() {
            told(changes);
        }
        if recent >= RECENT {
            let turn = if recent < MOST_RECENT {
                self.merging.try_lock()
            } else {
                Some(self.merging.lock())
            };
            if turn.is_some() {
                self.merge_oldest();
            }
        }
    }

    /// Merges the oldest changes while there are many. The caller holds `merging`.
    fn merge_oldest(&self) {
        let mut oldest = Vec::with_capacity(PART);
        loop {
            let end = {
                let log = self.log.lock();
                let recent = log.recent.len();
                if recent < RECENT {
                    return;
                }
                oldest.extend(log.recent.range(..PART).cloned());
                self.epoch.load(Ordering::Relaxed) - (recent - PART) as u64
            };
            let part = Arc::new(Part::of(&oldest, end));
            oldest.clear();
            let parts = {
                let mut log = self.log.lock();
                oldest.extend(log.recent.drain(..PART));
                log.parts.push_back(part);
                log.parts.len()
            };
            // This frees the changes outside the lock.
            oldest.clear();
            if parts >= PARTS {
                self.merge_parts();
            }
        }
    }

    /// Merges the older half of the parts.
    fn merge_parts(&self) {
        let older: Vec<Arc<Part>> = self.log.lock().parts.range(..PARTS / 2).cloned().collect();
        let end = older.last().map_or(0, |part| part.end);
        let all: Vec<Change> = older.iter().flat_map(|part| part.changes.iter().cloned()).collect();
        let one = Arc::new(Part::of(&all, end));
        let mut log = self.log.lock();
        log.parts.drain(..PARTS / 2);
        log.parts.push_front(one);
    }

    /// Appends to `out` the changes published after `epoch`, possibly merged with others. Returns
    /// the epoch up to which the reader has now read.
    pub fn since(&self, epoch: u64, out: &mut Vec<Change>) -> u64 {
        let behind = |current: u64| usize::try_from(current.saturating_sub(epoch)).unwrap_or(usize::MAX);
        let first = out.len();
        let current = self.epoch();
        out.reserve(behind(current).min(2 * RECENT));
        if behind(current) <= RING / 2 {
            let change = |epoch| {
                let place = self.place(epoch).try_read()?;
                let (_, change) = place.as_ref().filter(|(found, _)| *found == epoch)?;
                Some(change.clone())
            };
            out.extend((epoch..current).map_while(change));
            if out.len() - first == behind(current) {
                merge_if_many(out, first);
                return current;
            }
            out.truncate(first);
        }
        let (parts, current) = {
            let log = self.log.lock();
            let current = self.epoch.load(Ordering::Acquire);
            let recent = log.recent.len();
            out.extend(log.recent.range(recent.saturating_sub(behind(current))..).cloned());
            let parts = log.parts.iter().rev().take_while(|part| part.end > epoch);
            (parts.cloned().collect::<Vec<_>>(), current)
        };
        out.extend(parts.iter().flat_map(|part| part.changes.iter().cloned()));
        merge_if_many(out, first);
        current
    }

    /// The ring's entry for the change of an epoch.
    fn place(&self, epoch: u64) -> &RwLock<Option<(u64, Change)>> {
        &self.ring[epoch as usize % RING]
    }
}

/// Merges the changes from `first` on, if there are many.
fn merge_if_many(changes: &mut Vec<Change>, first: usize) {
    if changes.len() - first > MOST_SEPARATE {
        let few = merged(&changes[first..]);
        changes.splice(first.., few);
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
    fn a_reader_that_is_nearly_up_to_date_takes_no_lock() {
        let changes = Changes::new();
        let (mut out, mut read) = (Vec::new(), 0);
        for n in 0..4 * RING as u64 {
            changes.publish(&[Change::Dep(Dep(n))]);
            if n % 20 == 19 {
                // A thread was preempted while it held the lock.
                let _log = changes.log.lock();
                read = changes.since(read, &mut out);
                assert!(out.drain(..).eq((n - 19..=n).map(|n| Change::Dep(Dep(n)))));
            }
        }
        let behind = changes.epoch() - RING as u64;
        changes.since(behind, &mut out);
        assert!(out.contains(&Change::Dep(Dep(behind))) && !out.contains(&Change::All));
    }

    #[test]
    fn a_change_is_in_the_log_before_the_callback_runs() {
        let changes = Arc::new(Changes::new());
        changes.publish(&[Change::Dep(Dep(1))]);
        let (log, told) = (Arc::downgrade(&changes), Arc::new(Mutex::new(Vec::new())));
        let seen = told.clone();
        let first = changes.tell(move |changes| {
            let mut out = Vec::new();
            let log = log.upgrade().unwrap();
            log.since(log.epoch() - changes.len() as u64, &mut out);
            assert_eq!(out, changes);
            seen.lock().extend_from_slice(changes);
        });
        assert!(first && !changes.tell(|_| ()));
        changes.publish(&[Change::Dep(Dep(2)), Change::All]);
        assert_eq!(*told.lock(), [Change::Dep(Dep(2)), Change::All]);
        told.lock().clear();
        let many: Vec<Change> = (0..100).map(|n| Change::Dep(Dep(n % 50))).collect();
        changes.publish(&many);
        assert!(many.iter().all(|change| told.lock().contains(change)));
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
    fn what_one_of_many_has_published_is_there_for_all_from_then_on() {
        let changes = Changes::new();
        let publish = |from: u64| {
            for n in 0..4 * RECENT as u64 {
                let (before, own) = (changes.epoch(), Change::Dep(Dep(from + n % 300)));
                changes.publish(std::slice::from_ref(&own));
                let mut out = Vec::new();
                let epoch = changes.since(before, &mut out);
                assert!(epoch > before);
                assert!(out.contains(&own) || out == [Change::All], "{own:?} is not in {out:?}");
            }
        };
        std::thread::scope(|scope| {
            let publishers = [0, 1_000, 2_000].map(|from| scope.spawn(move || publish(from)));
            let (mut epoch, mut seen) = (0, std::collections::BTreeSet::new());
            loop {
                let ended = publishers.iter().all(std::thread::ScopedJoinHandle::is_finished);
                let mut out = Vec::new();
                epoch = changes.since(epoch, &mut out);
                assert!(!out.contains(&Change::All));
                seen.extend(out.into_iter().map(|change| match change {
                    Change::Dep(dep) => dep,
                    other => panic!("nobody published {other:?}"),
                }));
                if ended {
                    break;
                }
            }
            assert_eq!(seen.len(), 900);
        });
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
