//! The table of connections, shared by all workers.
//!
//! A connection is an [`Entry`] with one slot in the [`Buckets`] for both directions, or with two
//! slots if NAT gives the directions different hashes. The table has [`SHARDS`] parts by hash, each
//! with a lock for those who add and remove connections.
//!
//! Invariants
//! - Who finds a connection takes no lock. The words that identify it do not change while it is in
//!   the table, nor before the reader's batch ends (`epoch`).
//! - Whoever locks two shards locks the lower one first. No lock of another kind is taken while a
//!   shard is locked, but for those of [`Epochs`] and [`Bypasses`].
//! - A connection belongs to the shard of its original tuple: memory, removal, half-open queue.

pub(crate) mod arena;
mod buckets;
pub(crate) mod entry;
mod epoch;
pub(crate) mod halfopen;

pub(crate) use epoch::{Epochs, Pin};

use crate::bypass::{Bypasses, is_bypassed};
use crate::tuple::Tuple;
use arena::Arena;
use buckets::Buckets;
use entry::{Birth, Entry, Extension, Kind};
use halfopen::HalfOpen;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Parts of the table.
pub(crate) const SHARDS: usize = 64;
/// Slots of a new shard.
const SLOTS: usize = 64;

/// All connections.
pub(crate) struct Table {
    shards: Box<[Shard]>,
    entries: Arena<Entry>,
    extensions: Arena<Extension>,
    pub(crate) epochs: Epochs,
    pub(crate) bypasses: Bypasses,
    seeds: [u64; 3],
}

#[repr(align(128))]
struct Shard {
    /// Number of the present buckets.
    version: AtomicU32,
    /// Odd while slots change.
    changes: AtomicU64,
    inner: Mutex<Inner>,
}

/// What a shard's lock protects.
pub(crate) struct Inner {
    buckets: Arc<Buckets>,
    used: usize,
    free: Vec<u32>,
    free_extensions: Vec<u32>,
    /// Removed entries with the epoch of their removal.
    limbo: VecDeque<(u64, u32)>,
    pub(crate) half_open: HalfOpen,
}

/// A connection that a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) index: u32,
    /// Whether the packet goes in the reply direction.
    pub(crate) reply: bool,
}

/// A connection by index, and the number of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub(crate) index: u32,
    pub(crate) life: u32,
}

/// The buckets that a reader knows, by shard.
pub(crate) struct Views(Vec<(u32, Arc<Buckets>)>);

/// One or two locked shards.
pub(crate) struct Locked<'a> {
    first: (usize, MutexGuard<'a, Inner>),
    second: Option<(usize, MutexGuard<'a, Inner>)>,
}

#[inline]
fn shard_of(hash: u64) -> usize {
    (hash >> 58) as usize
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 20) as u32
}

impl Table {
    pub(crate) fn new(seed: u64) -> Table {
        let shard = |_| Shard {
            version: AtomicU32::new(0),
            changes: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                buckets: Arc::new(Buckets::new(SLOTS)),
                used: 0,
                free: Vec::new(),
                free_extensions: Vec::new(),
                limbo: VecDeque::new(),
                half_open: HalfOpen::default(),
            }),
        };
        Table {
            shards: (0..SHARDS).map(shard).collect(),
            entries: Arena::new(),
            extensions: Arena::new(),
            epochs: Epochs::new(),
            bypasses: Bypasses::default(),
            seeds: crate::random::seeds(seed),
        }
    }

    #[inline]
    pub(crate) fn hash(&self, tuple: &Tuple, zone: u16) -> u64 {
        tuple.hash(zone, &self.seeds)
    }

    #[inline(always)]
    pub(crate) fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index)
    }

    pub(crate) fn extension(&self, entry: &Entry) -> Option<&Extension> {
        match entry.extension() {
            0 => None,
            index => self.extensions.get(index),
        }
    }

    pub(crate) fn tuples(&self, entry: &Entry) -> (Tuple, Tuple) {
        entry.tuples(self.extension(entry))
    }

    pub(crate) fn parent(&self, entry: &Entry) -> Option<Tuple> {
        entry.parent(self.extension(entry))
    }

    /// The index behind that of the last entry.
    pub(crate) fn end(&self) -> u32 {
        self.entries.end()
    }

    /// Bytes of connections and buckets.
    pub(crate) fn bytes(&self) -> usize {
        let slots: usize = self.shards.iter().map(|s| s.inner.lock().buckets.len()).sum();
        self.entries.bytes() + self.extensions.bytes() + slots * 8
    }

    /// The first half of a lookup in a batch: loads what [`Table::find`] will read, and returns the
    /// index to [try](Table::try_index) before. The caller is in a batch.
    #[inline(always)]
    pub(crate) fn touch_slots(&self, views: &mut Views, hash: u64) -> Option<u32> {
        self.view(views, shard_of(hash)).touch(tag_of(hash))
    }

    /// The second half: loads both cache lines of an entry.
    #[inline(always)]
    pub(crate) fn touch_entry(&self, index: u32) {
        if let Some(entry) = self.entry(index) {
            entry.expires.load(Ordering::Relaxed);
            entry.stage.load(Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn view<'v>(&self, views: &'v mut Views, shard: usize) -> &'v Buckets {
        let view = &mut views.0[shard];
        if view.0 != self.shards[shard].version.load(Ordering::Acquire) {
            self.renew(view, shard);
        }
        &view.1
    }

    #[cold]
    fn renew(&self, view: &mut (u32, Arc<Buckets>), shard: usize) {
        let inner = self.shards[shard].inner.lock();
        *view = (
            self.shards[shard].version.load(Ordering::Relaxed),
            inner.buckets.clone(),
        );
    }

    pub(crate) fn views(&self) -> Views {
        let view = |shard: &Shard| {
            let inner = shard.inner.lock();
            (shard.version.load(Ordering::Relaxed), inner.buckets.clone())
        };
        Views(self.shards.iter().map(view).collect())
    }

    /// The connection of a packet, if it is not over at `now`. The caller is in a batch.
    #[inline(always)]
    pub(crate) fn find(&self, views: &mut Views, hash: u64, tuple: &Tuple, kind: Kind, now: u64) -> Option<Found> {
        let shard = shard_of(hash);
        let changes = self.shards[shard].changes.load(Ordering::Acquire);
        let found = self.search(self.view(views, shard), hash, tuple, kind, now);
        if found.is_some() {
            return found;
        }
        fence(Ordering::Acquire);
        let undisturbed = changes & 1 == 0 && changes == self.shards[shard].changes.load(Ordering::Relaxed);
        match undisturbed && views.0[shard].0 == self.shards[shard].version.load(Ordering::Relaxed) {
            true => None,
            false => self.find_in(&self.shards[shard].inner.lock(), hash, tuple, kind, now),
        }
    }

    /// The same with the hash's shard locked.
    pub(crate) fn find_in(&self, inner: &Inner, hash: u64, tuple: &Tuple, kind: Kind, now: u64) -> Option<Found> {
        self.search(&inner.buckets, hash, tuple, kind, now)
    }

    #[inline(always)]
    fn search(&self, buckets: &Buckets, hash: u64, tuple: &Tuple, kind: Kind, now: u64) -> Option<Found> {
        buckets.find(tag_of(hash), |index| self.try_index(index, tuple, kind, now))
    }

    /// The connection of this index, if it is the packet's and not over at `now`. Whoever has read
    /// the index from a slot in this batch, finds the same with [`Table::find`].
    #[inline(always)]
    pub(crate) fn try_index(&self, index: u32, tuple: &Tuple, kind: Kind, now: u64) -> Option<Found> {
        let entry = self.entries.get(index)?;
        let reply = entry.matches(tuple, kind, |extension| {
            Some(self.extensions.get(extension)?.difference(tuple.words().0))
        })?;
        let lives = entry.is_live() && !self.has_expired(index, entry, now);
        lives.then_some(Found { index, reply })
    }

    /// Locks the shards of two hashes.
    pub(crate) fn lock(&self, a: u64, b: u64) -> Locked<'_> {
        let (low, high) = (shard_of(a).min(shard_of(b)), shard_of(a).max(shard_of(b)));
        let lock = |shard: usize| (shard, self.shards[shard].inner.lock());
        Locked {
            first: lock(low),
            second: (low != high).then(|| lock(high)),
        }
    }

    /// Locks a shard by number.
    pub(crate) fn lock_shard(&self, shard: usize) -> MutexGuard<'_, Inner> {
        self.shards[shard].inner.lock()
    }

    /// The shard of a hash.
    pub(crate) fn shard(&self, hash: u64) -> usize {
        shard_of(hash)
    }

    /// Adds a connection; `None` if there is no memory for it. The shards of both hashes are
    /// locked, and neither tuple is in the table.
    pub(crate) fn insert(&self, locked: &mut Locked<'_>, hashes: (u64, u64), birth: &Birth) -> Option<Id> {
        let inner = locked.get(hashes.0);
        let index = self.allocate(inner)?;
        let extension = match birth.is_wide() {
            false => None,
            true => match self.allocate_extension(inner) {
                Some(extension) => Some(extension),
                None => {
                    inner.free.push(index);
                    return None;
                }
            },
        };
        let entry = self.entries.get(index)?;
        let rest = extension.and_then(|index| Some((index, self.extensions.get(index)?)));
        entry.begin(rest, birth);
        self.link(locked, hashes.0, index);
        if hashes.0 != hashes.1 {
            self.link(locked, hashes.1, index);
        }
        Some(Id {
            index,
            life: entry.life(),
        })
    }

    /// Whether a connection has timed out. The caller is in a batch, or has its shard locked.
    #[inline(always)]
    pub(crate) fn has_expired(&self, index: u32, entry: &Entry, now: u64) -> bool {
        entry.expires.load(Ordering::Relaxed) <= now && !self.bypasses.keeps(index, entry, now)
    }

    /// Removes a connection, and returns what it was, and whether packets bypassed it; `None` if it
    /// is gone already. The caller is in a batch, or has it from a queue.
    pub(crate) fn remove(&self, id: Id) -> Option<(Kind, bool)> {
        let entry = self.entries.get(id.index)?;
        if entry.life() != id.life || id.life & 1 == 0 {
            return None;
        }
        let (original, reply) = self.tuples(entry);
        let zone = entry.kind().zone();
        fence(Ordering::Acquire);
        let hashes = (self.hash(&original, zone), self.hash(&reply, zone));
        let mut locked = self.lock(hashes.0, hashes.1);
        // Between the look and the lock the entry may have ended its life, and even begun another.
        if entry.life() != id.life {
            return None;
        }
        self.unlink(&mut locked, hashes.0, id.index);
        if hashes.0 != hashes.1 {
            self.unlink(&mut locked, hashes.1, id.index);
        }
        let (kind, bypassed) = (entry.kind(), is_bypassed(entry));
        entry.end();
        let stamp = self.epochs.stamp();
        locked.get(hashes.0).limbo.push_back((stamp, id.index));
        Some((kind, bypassed))
    }

    fn link(&self, locked: &mut Locked<'_>, hash: u64, index: u32) {
        let shard = &self.shards[shard_of(hash)];
        let inner = locked.get(hash);
        inner.used += 1;
        // Three quarters at most are in use.
        if inner.used * 4 > inner.buckets.len() * 3 {
            inner.buckets = Arc::new(inner.buckets.resized(inner.buckets.len() * 2));
            shard.version.fetch_add(1, Ordering::Release);
        }
        shard.begin_change();
        inner.buckets.insert(tag_of(hash), index);
        shard.end_change();
    }

    fn unlink(&self, locked: &mut Locked<'_>, hash: u64, index: u32) {
        let shard = &self.shards[shard_of(hash)];
        let inner = locked.get(hash);
        shard.begin_change();
        let removed = inner.buckets.remove(tag_of(hash), index);
        shard.end_change();
        debug_assert!(removed, "a live entry is in the table");
        inner.used -= usize::from(removed);
        if inner.buckets.len() > SLOTS && inner.used * 8 < inner.buckets.len() {
            inner.buckets = Arc::new(inner.buckets.resized(inner.buckets.len() / 2));
            shard.version.fetch_add(1, Ordering::Release);
        }
    }

    fn allocate(&self, inner: &mut Inner) -> Option<u32> {
        if let Some(index) = inner.free.pop() {
            return Some(index);
        }
        if !inner.limbo.is_empty() {
            let oldest = self.epochs.oldest();
            while let Some((stamp, index)) = inner.limbo.front().copied()
                && stamp < oldest
            {
                inner.limbo.pop_front();
                if let Some(entry) = self.entries.get(index)
                    && entry.extension() != 0
                {
                    inner.free_extensions.push(entry.extension());
                }
                inner.free.push(index);
            }
            if let Some(index) = inner.free.pop() {
                return Some(index);
            }
        }
        let first = self.entries.claim()?;
        inner.free.extend((first + 1..first + arena::SEGMENT as u32).rev());
        Some(first)
    }

    fn allocate_extension(&self, inner: &mut Inner) -> Option<u32> {
        if let Some(index) = inner.free_extensions.pop() {
            return Some(index);
        }
        let first = self.extensions.claim()?;
        inner
            .free_extensions
            .extend((first + 1..first + arena::SEGMENT as u32).rev());
        Some(first)
    }
}

impl Shard {
    fn begin_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    fn end_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }
}

impl Locked<'_> {
    /// The shard of this hash, which is one of the two.
    pub(crate) fn get(&mut self, hash: u64) -> &mut Inner {
        let shard = shard_of(hash);
        match &mut self.second {
            Some((number, inner)) if *number == shard => inner,
            _ => {
                debug_assert_eq!(self.first.0, shard);
                &mut self.first.1
            }
        }
    }
}
