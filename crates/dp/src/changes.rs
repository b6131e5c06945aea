//! How a datapath learns that megaflows went stale.
//!
//! Writers (the control plane, an upcall that learned an address) append to a bounded log and
//! advance the epoch. A worker compares the epoch with the last one it saw, once a batch: a load,
//! no lock. Only when they differ does it take the lock and read what is new. What a worker has not
//! read for long is told it in fewer words, which may be about more packets: a controller that adds
//! a million rules must not cost it the megaflows that none of them is about.
//!
//! Nobody works while it has the lock. A thread can lose its processor at any moment, and who adds
//! a million rules is busy enough to lose it often: a worker that wants the lock then waits, and
//! its packets with it, until that thread runs again. So what is long, to put changes together and
//! to give their memory back, is done outside. And a reader that has read lately does not take that
//! lock: it finds the last changes in a ring, by their epochs.

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
    /// What translations recorded under this dependency.
    Dep(Dep),
    /// Of what translations recorded under this dependency, that of packets in a region: a rule
    /// came or went that other packets do not match. The region is of packets as they came in, so
    /// the dependency must be one of translations that looked at them as they were then; what
    /// looked after it had changed them needs another one.
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

/// The same changes, or more, in fewer words: of many regions of one dependency, one that has them
/// all. The order does not matter.
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

/// Changes that are kept as they were published; somewhat more for a moment, while some are put
/// together.
const RECENT: usize = 1024;
/// Changes in the ring. A reader that is behind by at most half of them takes no lock: who
/// publishes then does not write what it reads.
const RING: usize = 2048;
/// As many of them that those who publish wait until that is done.
const CROWDED: usize = 16 * RECENT;
/// Of those, as many are put together when there are more.
const PART: usize = 512;
/// Parts that are kept; then half of them are put together.
const PARTS: usize = 64;
/// What is still not said in so many words is that everything changed.
const WORDS: usize = 1024;

/// A change and its epoch.
type Numbered = (u64, Change);

/// A log of changes with many readers. See the module's page.
pub struct Changes {
    epoch: AtomicU64,
    /// The last changes with their epochs, each in the place of its epoch modulo [`RING`].
    ring: Box<[RwLock<Option<Numbered>>]>,
    log: Mutex<Log>,
    /// Who does not read, but is told of changes before [`Changes::publish`] returns.
    told: OnceLock<Told>,
    /// Whoever puts changes together; nobody else takes any out of the log.
    tidying: Mutex<()>,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes {
            epoch: AtomicU64::new(0),
            ring: iter::repeat_with(RwLock::default).take(RING).collect(),
            log: Mutex::default(),
            told: OnceLock::new(),
            tidying: Mutex::default(),
        }
    }
}

/// What is told of changes.
type Told = Box<dyn Fn(&[Change]) + Send + Sync>;

#[derive(Debug, Default)]
struct Log {
    recent: VecDeque<Change>,
    /// What came before, the oldest first.
    parts: VecDeque<Arc<Part>>,
}

/// Changes that were put together.
#[derive(Debug)]
struct Part {
    changes: Vec<Change>,
    /// The epoch behind the last of them.
    end: u64,
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

    /// Calls `told` with each change from now on, or with more than that, before
    /// [`Changes::publish`] returns. This is for forwarding that does not ask for the epoch.
    ///
    /// A change is in the log before `told` is called with it. So a reader that sees an effect of
    /// the call, and then finds that it has read the log up to the [epoch](Changes::epoch), has
    /// read the change too. `told` must not take long. Returns `false`, and does nothing, where
    /// there is one already.
    pub fn tell(&self, told: impl Fn(&[Change]) + Send + Sync + 'static) -> bool {
        // Who publishes after this sees it.
        let _log = self.log.lock();
        self.told.set(Box::new(told)).is_ok()
    }

    /// Appends changes. They are visible to every reader that asks for the epoch after this
    /// returns.
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
            let turn = if recent < CROWDED {
                self.tidying.try_lock()
            } else {
                Some(self.tidying.lock())
            };
            if turn.is_some() {
                self.tidy();
            }
        }
    }

    /// Says the oldest changes in fewer words, as long as there are many. The caller has its turn.
    fn tidy(&self) {
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
            // Their last owner is here.
            oldest.clear();
            if parts >= PARTS {
                self.tidy_parts();
            }
        }
    }

    /// The same for the older half of the parts.
    fn tidy_parts(&self) {
        let older: Vec<Arc<Part>> = self.log.lock().parts.range(..PARTS / 2).cloned().collect();
        let end = older.last().map_or(0, |part| part.end);
        let all: Vec<Change> = older.iter().flat_map(|part| part.changes.iter().cloned()).collect();
        let one = Arc::new(Part::of(&all, end));
        let mut log = self.log.lock();
        log.parts.drain(..PARTS / 2);
        log.parts.push_front(one);
    }

    /// Appends to `out` what was published after `epoch`, or more, and returns the epoch that `out`
    /// brings the reader to.
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
                keep_few(out, first);
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
        keep_few(out, first);
        current
    }

    /// Where the ring has the change of an epoch.
    fn place(&self, epoch: u64) -> &RwLock<Option<(u64, Change)>> {
        &self.ring[epoch as usize % RING]
    }
}

/// Says changes from `first` on in fewer words, where there are many.
fn keep_few(changes: &mut Vec<Change>, first: usize) {
    if changes.len() - first > APART {
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
    fn a_reader_that_has_read_lately_waits_for_nobody_who_has_the_log() {
        let changes = Changes::new();
        let (mut out, mut read) = (Vec::new(), 0);
        for n in 0..4 * RING as u64 {
            changes.publish(&[Change::Dep(Dep(n))]);
            if n % 20 == 19 {
                // Somebody has lost its processor with it.
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
    fn who_is_told_of_a_change_finds_it_in_the_log() {
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
