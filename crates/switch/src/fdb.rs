//! The filtering database of a bridge (IEEE 802.1Q §8.8): the port of each station.
//!
//! Each learned entry is in two doubly linked lists, ordered by the time it was last seen: the list
//! of all entries, whose head expires next, and the list of its port. When the table is full, the
//! port with the most entries loses its oldest one, so a port that invents addresses displaces its
//! own entries. Learning, refreshing, expiring and evicting take constant time, except that
//! ordering the ports by their number of entries takes logarithmic time. A [`budget`] limits how
//! much the packets of a port may change the table.

mod budget;
mod list;
mod security;

pub(crate) use budget::Kind;

use crate::MacLimit;
use budget::Budget;
use hashbrown::HashTable;
use list::{Link, List, NIL};
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::{MacAddr, Vid};

/// Statistics of a table since it was made or its statistics were cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdbStats {
    /// Entries now.
    pub current: usize,
    /// Most entries.
    pub max: usize,
    /// Static entries now.
    pub static_current: usize,
    /// Entries learned.
    pub learned: u64,
    /// Entries that expired.
    pub expired: u64,
    /// Entries that were evicted.
    pub evicted: u64,
    /// Times that a station changed its port.
    pub moved: u64,
}

/// A station in a VLAN.
pub(crate) type Station = (Vid, MacAddr);

/// The result of learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    /// The station was known on this port, or may not be learned on it.
    Nothing,
    /// The station is new. It may have evicted another.
    New { evicted: Option<Station> },
    /// The station was on another port.
    Moved,
    /// The port has spent its budget: nothing has changed.
    Ignored(Kind),
    /// Port security refuses the station at the port: nothing has changed.
    Refused,
}

/// The result that learning would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// It would refresh a known station.
    Seen,
    /// It would add or move a station.
    Learns,
    /// It would add or move a station, but the port has spent its budget.
    Ignored(Kind),
    /// Port security would refuse the station.
    Refused,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    vlan: Vid,
    mac: MacAddr,
    port: u32,
    fixed: bool,
    seen: Nanos,
    by_age: Link,
    by_port: Link,
}

/// The learned entries of one port.
#[derive(Debug, Default)]
struct PortEntries {
    list: List,
    count: u32,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Fdb {
    seed: u64,
    index: HashTable<u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_age: List,
    ports: BTreeMap<u32, PortEntries>,
    /// Ports with learned entries, by their number.
    busiest: BTreeSet<(u32, u32)>,
    /// Static entries.
    fixed: BTreeSet<(u32, Vid, MacAddr)>,
    /// Which static entries are sticky.
    sticky: BTreeSet<Station>,
    /// The limits of ports.
    limits: BTreeMap<u32, MacLimit>,
    /// The budgets of ports. A port that is not in the map has its full budget.
    budgets: BTreeMap<u32, Budget>,
    aging: Duration,
    stats: FdbStats,
}

impl Fdb {
    /// An empty table. A secret seed keeps senders, who choose addresses, from making hashes
    /// collide.
    pub(crate) fn new(seed: u64) -> Fdb {
        Fdb {
            seed,
            index: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            by_age: List::default(),
            ports: BTreeMap::new(),
            busiest: BTreeSet::new(),
            fixed: BTreeSet::new(),
            sticky: BTreeSet::new(),
            limits: BTreeMap::new(),
            budgets: BTreeMap::new(),
            aging: Duration::from_secs(300),
            stats: FdbStats {
                max: 8192,
                ..FdbStats::default()
            },
        }
    }

    /// The port of a station, and whether it is a static entry.
    pub(crate) fn lookup(&self, vlan: Vid, mac: MacAddr) -> Option<(u32, bool)> {
        self.find(vlan, mac).map(|at| {
            let entry = &self.entries[at as usize];
            (entry.port, entry.fixed)
        })
    }

    /// The result that [`Fdb::learn`] would have.
    pub(crate) fn outlook(&self, vlan: Vid, mac: MacAddr, port: u32, now: Nanos) -> Outlook {
        if self.has_security() && !self.admits(vlan, mac, port) {
            return Outlook::Refused;
        }
        let kind = match self.lookup(vlan, mac) {
            Some((known, fixed)) if fixed || known == port => return Outlook::Seen,
            Some(_) => Kind::Move,
            None => Kind::New,
        };
        let budget = self.budgets.get(&port).copied().unwrap_or_default();
        if budget.allows(kind, self.stats.max, now) {
            Outlook::Learns
        } else {
            Outlook::Ignored(kind)
        }
    }

    /// Notes that a station was seen on a port.
    pub(crate) fn learn(&mut self, vlan: Vid, mac: MacAddr, port: u32, now: Nanos) -> Learned {
        if self.has_security() && !self.admits(vlan, mac, port) {
            return Learned::Refused;
        }
        if let Some(at) = self.find(vlan, mac) {
            let entry = &mut self.entries[at as usize];
            if entry.fixed {
                return Learned::Nothing;
            }
            if entry.port == port {
                entry.seen = entry.seen.max(now);
                self.rejuvenate(at);
                return Learned::Nothing;
            }
            if !self.within_budget(Kind::Move, port, now) {
                return Learned::Ignored(Kind::Move);
            }
            let entry = &mut self.entries[at as usize];
            entry.seen = entry.seen.max(now);
            self.unlink(at);
            self.entries[at as usize].port = port;
            self.link(at);
            self.stats.moved += 1;
            self.stick(vlan, mac, port);
            return Learned::Moved;
        }
        if !self.within_budget(Kind::New, port, now) {
            return Learned::Ignored(Kind::New);
        }
        let mut evicted = None;
        if self.index.len() >= self.stats.max {
            evicted = self.evict();
            if evicted.is_none() {
                return Learned::Nothing;
            }
        }
        self.insert(vlan, mac, port, false, now);
        self.stats.learned += 1;
        self.stick(vlan, mac, port);
        Learned::New { evicted }
    }

    /// Spends one token of a port's budget; `false` if it has none.
    fn within_budget(&mut self, kind: Kind, port: u32, now: Nanos) -> bool {
        let budget = self.budgets.entry(port).or_default();
        budget.take(kind, self.stats.max, now)
    }

    /// Adds a static entry in place of any other entry of the station. Returns the station that was
    /// evicted. Static entries may exceed the maximum size.
    pub(crate) fn add_static(&mut self, vlan: Vid, mac: MacAddr, port: u32) -> Option<Station> {
        self.remove(vlan, mac);
        let evicted = if self.index.len() >= self.stats.max {
            self.evict()
        } else {
            None
        };
        self.insert(vlan, mac, port, true, Nanos::ZERO);
        evicted
    }

    /// Removes a static entry; `false` if there is none.
    pub(crate) fn del_static(&mut self, vlan: Vid, mac: MacAddr) -> bool {
        match self.lookup(vlan, mac) {
            Some((_, true)) => self.remove(vlan, mac),
            _ => false,
        }
    }

    /// Removes learned entries: all, or those of one port. Static entries stay. Returns whether
    /// there were any.
    pub(crate) fn flush(&mut self, port: Option<u32>) -> bool {
        let mut any = false;
        loop {
            let oldest = match port {
                None => self.by_age.head(),
                Some(port) => self.ports.get(&port).map_or(NIL, |entries| entries.list.head()),
            };
            if oldest == NIL {
                return any;
            }
            self.remove_at(oldest);
            any = true;
        }
    }

    /// Removes all entries of a port that no longer exists, static entries too.
    pub(crate) fn forget_port(&mut self, port: u32) {
        self.flush(Some(port));
        let fixed: Vec<Station> = self.fixed_at(port).collect();
        for (vlan, mac) in fixed {
            self.remove(vlan, mac);
        }
        self.budgets.remove(&port);
        self.limits.remove(&port);
    }

    /// Removes one expired entry. Call it until it returns `None`.
    pub(crate) fn expire(&mut self, now: Nanos) -> Option<Station> {
        if self.next_expiry()? > now {
            return None;
        }
        let station = self.remove_at(self.by_age.head());
        self.stats.expired += 1;
        Some(station)
    }

    /// When the next entry expires.
    pub(crate) fn next_expiry(&self) -> Option<Nanos> {
        let oldest = self.entries.get(self.by_age.head() as usize)?;
        Some(oldest.seen + self.aging)
    }

    pub(crate) fn set_aging(&mut self, aging: Duration) {
        self.aging = aging;
    }

    /// Sets the maximum size. Returns whether entries were evicted.
    pub(crate) fn set_max(&mut self, max: usize) -> bool {
        self.stats.max = max;
        let mut any = false;
        while self.index.len() > max && self.evict().is_some() {
            any = true;
        }
        any
    }

    pub(crate) fn stats(&self) -> FdbStats {
        FdbStats {
            current: self.index.len(),
            static_current: self.fixed.len(),
            ..self.stats
        }
    }

    pub(crate) fn clear_stats(&mut self) {
        self.stats = FdbStats {
            max: self.stats.max,
            ..FdbStats::default()
        };
    }

    /// Static entries, then learned ones, the oldest first: station, port and the time it was last
    /// seen.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Station, u32, Option<Nanos>)> + '_ {
        let fixed = self.fixed.iter().map(|(port, vlan, mac)| ((*vlan, *mac), *port, None));
        let mut next = self.by_age.head();
        let learned = std::iter::from_fn(move || {
            let entry = self.entries.get(next as usize)?;
            next = entry.by_age.next;
            Some(((entry.vlan, entry.mac), entry.port, Some(entry.seen)))
        });
        fixed.chain(learned)
    }

    /// The static entries of a port.
    fn fixed_at(&self, port: u32) -> impl Iterator<Item = Station> + '_ {
        let range = (port, Vid::NONE, MacAddr::ZERO)..=(port, Vid::from_tci(0xfff), MacAddr::BROADCAST);
        self.fixed.range(range).map(|(_, vlan, mac)| (*vlan, *mac))
    }

    fn find(&self, vlan: Vid, mac: MacAddr) -> Option<u32> {
        let hash = hash(self.seed, vlan, mac);
        let same = |at: &u32| {
            let entry = &self.entries[*at as usize];
            entry.mac == mac && entry.vlan == vlan
        };
        self.index.find(hash, same).copied()
    }

    fn insert(&mut self, vlan: Vid, mac: MacAddr, port: u32, fixed: bool, seen: Nanos) {
        let entry = Entry {
            vlan,
            mac,
            port,
            fixed,
            seen,
            by_age: Link::default(),
            by_port: Link::default(),
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let (seed, entries) = (self.seed, &self.entries);
        self.index.insert_unique(hash(seed, vlan, mac), at, |at| {
            let entry = &entries[*at as usize];
            hash(seed, entry.vlan, entry.mac)
        });
        if fixed {
            self.fixed.insert((port, vlan, mac));
        } else {
            self.link(at);
        }
    }

    fn remove(&mut self, vlan: Vid, mac: MacAddr) -> bool {
        let found = self.find(vlan, mac);
        if let Some(at) = found {
            self.remove_at(at);
        }
        found.is_some()
    }

    fn remove_at(&mut self, at: u32) -> Station {
        let Entry {
            vlan, mac, port, fixed, ..
        } = self.entries[at as usize];
        if fixed {
            self.fixed.remove(&(port, vlan, mac));
            self.sticky.remove(&(vlan, mac));
        } else {
            self.unlink(at);
        }
        if let Ok(slot) = self.index.find_entry(hash(self.seed, vlan, mac), |found| *found == at) {
            slot.remove();
        }
        self.free.push(at);
        (vlan, mac)
    }

    /// Evicts the oldest entry of the port that has the most; `None` if no entry is learned.
    fn evict(&mut self) -> Option<Station> {
        let (_, port) = self.busiest.last()?;
        let oldest = self.ports.get(port)?.list.head();
        let station = self.remove_at(oldest);
        self.stats.evicted += 1;
        Some(station)
    }

    /// Appends an entry to its lists.
    fn link(&mut self, at: u32) {
        let port = self.entries[at as usize].port;
        let of_port = self.ports.entry(port).or_default();
        self.by_age.push_back(&mut self.entries, at, |entry| &mut entry.by_age);
        of_port
            .list
            .push_back(&mut self.entries, at, |entry| &mut entry.by_port);
        self.busiest.remove(&(of_port.count, port));
        of_port.count += 1;
        self.busiest.insert((of_port.count, port));
    }

    /// Moves an entry to the end of its lists.
    fn rejuvenate(&mut self, at: u32) {
        self.by_age.remove(&mut self.entries, at, |entry| &mut entry.by_age);
        self.by_age.push_back(&mut self.entries, at, |entry| &mut entry.by_age);
        let port = self.entries[at as usize].port;
        if let Some(of_port) = self.ports.get_mut(&port) {
            of_port.list.remove(&mut self.entries, at, |entry| &mut entry.by_port);
            of_port
                .list
                .push_back(&mut self.entries, at, |entry| &mut entry.by_port);
        }
    }

    fn unlink(&mut self, at: u32) {
        let port = self.entries[at as usize].port;
        self.by_age.remove(&mut self.entries, at, |entry| &mut entry.by_age);
        let Some(of_port) = self.ports.get_mut(&port) else {
            return;
        };
        of_port.list.remove(&mut self.entries, at, |entry| &mut entry.by_port);
        self.busiest.remove(&(of_port.count, port));
        of_port.count -= 1;
        if of_port.count == 0 {
            self.ports.remove(&port);
        } else {
            self.busiest.insert((of_port.count, port));
        }
    }
}

fn hash(seed: u64, vlan: Vid, mac: MacAddr) -> u64 {
    flow::mix(seed, u64::from(vlan.get()) << 48 | mac.to_u64())
}

#[cfg(test)]
mod tests;
