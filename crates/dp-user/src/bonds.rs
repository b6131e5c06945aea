//! Bonds whose member a hash selects, and what their buckets have sent.
//!
//! A worker looks bonds up in a copy of its own ([`BondView`]), which it discards when the version
//! of [`Bonds`] advances, and only then takes a lock. Each worker counts in counters of its own.

use crate::egress::{Egress, NO_PLACE};
use dp::{BOND_BUCKETS, BondTable};
use flow::{Key, PortNo};
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The bonds of a datapath.
#[derive(Default)]
pub(crate) struct Bonds {
    version: AtomicU64,
    bonds: RwLock<HashMap<u32, Arc<Bond>>>,
}

struct Bond {
    table: BondTable,
    /// Shared with earlier tables of the same number, so that a change loses no count.
    loads: Arc<Mutex<Loads>>,
}

/// Bytes by bucket, which one worker counts.
pub(crate) type Counters = [AtomicU64; BOND_BUCKETS];

/// The counters of each worker, and what was taken of them.
type Loads = Vec<(Arc<Counters>, Box<[u64; BOND_BUCKETS]>)>;

/// A worker's copy.
pub(crate) struct BondView {
    bonds: Arc<Bonds>,
    version: u64,
    known: Vec<(u32, Option<Known>)>,
}

struct Known {
    bond: Arc<Bond>,
    sent: Arc<Counters>,
    /// The place of each bucket's member in the worker's egress, or [`NO_PLACE`].
    places: Box<[u32; BOND_BUCKETS]>,
    /// The layout of the egress that has these places.
    resolved: Option<u64>,
}

/// The members of a bond by bucket, for a batch.
pub(crate) struct Places<'a> {
    table: &'a BondTable,
    sent: &'a Counters,
    places: &'a [u32; BOND_BUCKETS],
}

impl Bonds {
    /// Adds, changes or removes a bond. Returns the members that it had, and those that it has.
    pub(crate) fn set(&self, id: u32, table: Option<BondTable>) -> Vec<PortNo> {
        let mut bonds = self.bonds.write();
        let before = bonds.remove(&id);
        let mut members: Vec<PortNo> = [before.as_ref().map(|bond| &bond.table), table.as_ref()]
            .into_iter()
            .flatten()
            .flat_map(|table| table.members.iter().flatten().copied())
            .collect();
        members.sort();
        members.dedup();
        if let Some(table) = table {
            let loads = before.map(|bond| bond.loads.clone()).unwrap_or_default();
            bonds.insert(id, Arc::new(Bond { table, loads }));
        }
        // Whoever sees the version sees the table.
        self.version.fetch_add(1, Release);
        members
    }

    /// Advances with each change.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// The bytes of each bucket since the last call.
    pub(crate) fn take_loads(&self, id: u32) -> Option<[u64; BOND_BUCKETS]> {
        let loads = self.bonds.read().get(&id)?.loads.clone();
        let mut sum = [0; BOND_BUCKETS];
        loads.lock().retain_mut(|(counters, taken)| {
            // A worker that has ended counts no more.
            let ended = Arc::strong_count(counters) == 1;
            for ((counter, taken), sum) in counters.iter().zip(&mut **taken).zip(&mut sum) {
                let now = counter.load(Relaxed);
                *sum += now.wrapping_sub(std::mem::replace(taken, now));
            }
            !ended
        });
        Some(sum)
    }
}

impl BondView {
    pub(crate) fn new(bonds: Arc<Bonds>) -> BondView {
        BondView {
            version: bonds.version(),
            known: Vec::new(),
            bonds,
        }
    }

    /// As [`Bonds::set`], for all who share them.
    pub(crate) fn set(&self, id: u32, table: Option<BondTable>) {
        self.bonds.set(id, table);
    }

    /// Advances with each change of a bond.
    pub(crate) fn version(&self) -> u64 {
        self.bonds.version()
    }

    /// The member for a packet of `len` bytes, which are counted for its bucket; `None` where the
    /// bond or the member does not exist.
    #[inline]
    pub(crate) fn member(&mut self, id: u32, key: &Key, len: usize) -> Option<PortNo> {
        let known = self.bond(id)?;
        let bucket = usize::from(known.bond.table.bucket(key));
        let member = known.bond.table.members[bucket]?;
        add(&known.sent[bucket], len as u64);
        Some(member)
    }

    /// The members of a bond, by their places in the worker's egress.
    #[inline]
    pub(crate) fn places(&mut self, id: u32, egress: &Egress) -> Option<Places<'_>> {
        let known = self.bond(id)?;
        if known.resolved != Some(egress.layout()) {
            known.resolve(egress);
        }
        Some(Places {
            table: &known.bond.table,
            sent: &known.sent,
            places: &known.places,
        })
    }

    /// The member for packets of a flow, and where their bytes are to be counted ([`add`]).
    pub(crate) fn look(&mut self, id: u32, key: &Key) -> Option<(PortNo, Arc<Counters>, u8)> {
        let known = self.bond(id)?;
        let bucket = known.bond.table.bucket(key);
        let member = known.bond.table.members[usize::from(bucket)]?;
        Some((member, known.sent.clone(), bucket))
    }

    #[inline]
    fn bond(&mut self, id: u32) -> Option<&mut Known> {
        let version = self.bonds.version();
        if version != self.version {
            self.forget(version);
        }
        let at = match self.known.iter().position(|(number, _)| *number == id) {
            Some(at) => at,
            None => self.ask(id),
        };
        self.known[at].1.as_mut()
    }

    #[cold]
    fn forget(&mut self, version: u64) {
        self.version = version;
        self.known.clear();
    }

    /// Looks a bond up.
    #[cold]
    fn ask(&mut self, id: u32) -> usize {
        let bond = self.bonds.bonds.read().get(&id).cloned();
        let known = bond.map(|bond| {
            let sent = Arc::new([const { AtomicU64::new(0) }; BOND_BUCKETS]);
            bond.loads.lock().push((sent.clone(), Box::new([0; BOND_BUCKETS])));
            Known {
                bond,
                sent,
                places: Box::new([NO_PLACE; BOND_BUCKETS]),
                resolved: None,
            }
        });
        self.known.push((id, known));
        self.known.len() - 1
    }
}

impl Known {
    #[cold]
    fn resolve(&mut self, egress: &Egress) {
        for (place, member) in self.places.iter_mut().zip(&self.bond.table.members) {
            *place = member.and_then(|member| egress.place(member)).unwrap_or(NO_PLACE);
        }
        self.resolved = Some(egress.layout());
    }
}

impl Places<'_> {
    /// The place for packets of a flow, whose bytes are counted; [`NO_PLACE`] if the bucket has no
    /// member.
    #[inline(always)]
    pub(crate) fn choose(&self, key: &Key, bytes: u64) -> u32 {
        let bucket = usize::from(self.table.bucket(key));
        let place = self.places[bucket];
        if place != NO_PLACE {
            add(&self.sent[bucket], bytes);
        }
        place
    }
}

/// Counts bytes of a bucket. One thread counts in these counters: no other addition is lost.
#[inline]
pub(crate) fn add(counter: &AtomicU64, bytes: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(bytes), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Field;

    fn table(members: impl Fn(usize) -> Option<u32>) -> BondTable {
        BondTable {
            basis: 0,
            members: std::array::from_fn(|bucket| members(bucket).map(PortNo)),
        }
    }

    fn key(n: u32) -> Key {
        let mut key = Key::ZERO;
        key.set(Field::EthSrc, n.into());
        key
    }

    #[test]
    fn a_change_moves_buckets_at_once_and_loses_no_count() {
        let bonds = Arc::new(Bonds::default());
        let (mut one, mut other) = (BondView::new(bonds.clone()), BondView::new(bonds.clone()));
        assert_eq!(one.member(1, &key(1), 100), None);
        assert_eq!(bonds.take_loads(1), None);
        assert_eq!(bonds.set(1, Some(table(|_| Some(5)))), [PortNo(5)]);
        for n in 0..1000 {
            assert_eq!(one.member(1, &key(n), 100), Some(PortNo(5)));
            assert_eq!(other.member(1, &key(n), 10), Some(PortNo(5)));
        }
        let moved = bonds.set(1, Some(table(|bucket| (bucket < 128).then_some(6))));
        assert_eq!(moved, [PortNo(5), PortNo(6)]);
        let sent = (0..1000).filter_map(|n| one.member(1, &key(n), 100)).count() as u64;
        assert!((400..600).contains(&sent));
        drop(other);
        let loads = bonds.take_loads(1).unwrap();
        assert_eq!(loads.iter().sum::<u64>(), 110_000 + 100 * sent);
        assert_eq!(bonds.take_loads(1).unwrap(), [0; BOND_BUCKETS]);
        one.member(1, &key(1), 0);
        bonds.set(1, None);
        assert_eq!(one.member(1, &key(1), 100), None);
    }
}
