//! The largest packets to each destination.

use nanos::Nanos;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// The smallest size that is learned from ICMP errors over IPv4, in bytes from the IP header on:
/// every host takes that much (RFC 791 §3.1). RFC 1191 allows 68, but links with less than 576 are
/// rare, and a forged error with 68 would leave a tunnel no room.
pub const MIN_IPV4: u16 = 576;
/// The smallest size over IPv6 (RFC 8200 §5).
pub const MIN_IPV6: u16 = 1280;
/// Destinations at most. The size that would be forgotten first makes room for a new one.
pub const LIMIT: usize = 16_384;
/// How long a size is kept after the last error (RFC 1191 §6.3, RFC 8201 §5.3).
const AGING: Duration = Duration::from_secs(600);

/// Counters of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Errors that made a size smaller.
    pub learned: u64,
    /// Sizes that were forgotten early because there were too many.
    pub evicted: u64,
}

/// The largest packets to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The destination.
    pub destination: IpAddr,
    /// In bytes from the outer IP header on.
    pub mtu: u16,
    /// For how long it is kept.
    pub left: Duration,
}

impl Entry {
    /// The lines above the entries.
    pub const HEADER: &str = concat!(
        "IP                                            MTU    Expires\n",
        "=============================================================\n",
    );
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (destination, left) = (self.destination.to_string(), self.left.as_secs());
        write!(f, "{destination:<46}{:<7}{left} s", self.mtu)
    }
}

/// The table.
#[derive(Debug)]
pub struct Table {
    sizes: HashMap<IpAddr, (u16, Nanos)>,
    expiry: BTreeSet<(Nanos, IpAddr)>,
    limit: usize,
    counters: Counters,
}

impl Default for Table {
    fn default() -> Table {
        Table::new(LIMIT)
    }
}

impl Table {
    /// An empty table for this many destinations.
    pub fn new(limit: usize) -> Table {
        Table {
            sizes: HashMap::new(),
            expiry: BTreeSet::new(),
            limit,
            counters: Counters::default(),
        }
    }

    /// The largest packet that reaches a destination, in bytes from the outer IP header on; `None`
    /// if only the device that it leaves by sets a limit.
    pub fn get(&self, destination: IpAddr) -> Option<u16> {
        self.sizes.get(&destination).map(|(size, _)| *size)
    }

    /// The sizes that are known, by destination.
    pub fn entries(&self, now: Nanos) -> impl Iterator<Item = Entry> {
        let entry = |(destination, (mtu, expires)): (&IpAddr, &(u16, Nanos))| Entry {
            destination: *destination,
            mtu: *mtu,
            left: expires.since(now),
        };
        let mut all: Vec<Entry> = self.sizes.iter().map(entry).collect();
        all.sort_unstable();
        all.into_iter()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Learns that packets to `destination` must not be longer than `mtu`. Of an ICMP error the
    /// caller has checked the quoted packet with [`sent`](super::sent). The destinations whose size
    /// has changed.
    pub fn learn(&mut self, destination: IpAddr, mtu: u16, now: Nanos) -> Vec<IpAddr> {
        let before = self.get(destination);
        if before.is_some_and(|size| size < mtu) {
            return Vec::new();
        }
        let mut changed = Vec::new();
        if before.is_none() {
            changed.extend(self.make_room());
        }
        if before != Some(mtu) {
            self.counters.learned += 1;
            changed.push(destination);
        }
        let expires = now + AGING;
        if let Some((_, before)) = self.sizes.insert(destination, (mtu, expires)) {
            self.expiry.remove(&(before, destination));
        }
        self.expiry.insert((expires, destination));
        changed
    }

    /// When the next size is forgotten.
    pub fn next_event(&self) -> Option<Nanos> {
        self.expiry.first().map(|(expires, _)| *expires)
    }

    /// Forgets old sizes. The destinations whose size was forgotten.
    pub fn tick(&mut self, now: Nanos) -> Vec<IpAddr> {
        let mut gone = Vec::new();
        while self.next_event().is_some_and(|next| next <= now) {
            gone.extend(self.remove_first());
        }
        gone
    }

    /// Forgets all sizes. The destinations whose size was forgotten.
    pub fn flush(&mut self) -> Vec<IpAddr> {
        self.expiry.clear();
        self.sizes.drain().map(|(destination, _)| destination).collect()
    }

    /// Forgets a size if there are too many.
    fn make_room(&mut self) -> Option<IpAddr> {
        if self.sizes.len() < self.limit {
            return None;
        }
        self.counters.evicted += 1;
        self.remove_first()
    }

    fn remove_first(&mut self) -> Option<IpAddr> {
        let (_, destination) = self.expiry.pop_first()?;
        self.sizes.remove(&destination);
        Some(destination)
    }
}
