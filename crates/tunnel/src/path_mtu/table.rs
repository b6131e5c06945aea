//! The largest packets to each destination.

use super::error::TooBig;
use crate::shards::Shards;
use nanos::Nanos;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The smallest size over IPv4, in bytes from the IP header on (RFC 1191 §3).
pub const MIN_IPV4: u16 = 68;
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

/// The largest packets to all destinations at one time.
#[derive(Clone, Debug, Default)]
pub struct PathMtus {
    sizes: Shards<IpAddr, u16>,
    version: u64,
}

impl PathMtus {
    /// The largest packet that reaches a destination, in bytes from the outer IP header on; `None`
    /// if only the device that it leaves by sets a limit.
    pub fn get(&self, destination: IpAddr) -> Option<u16> {
        self.sizes.get(&destination).copied()
    }

    /// A number that grows with every change: what was decided with another number may be wrong.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// The table.
#[derive(Debug)]
pub struct Table {
    expires: HashMap<IpAddr, Nanos>,
    expiry: BTreeSet<(Nanos, IpAddr)>,
    known: Arc<PathMtus>,
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
            expires: HashMap::new(),
            expiry: BTreeSet::new(),
            known: Arc::default(),
            limit,
            counters: Counters::default(),
        }
    }

    /// The sizes as they are now. It costs little, also after each change.
    pub fn path_mtus(&self) -> Arc<PathMtus> {
        self.known.clone()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Learns from an error about a packet to `destination`, which the caller has checked with
    /// [`sent`](super::sent). The destinations whose size has changed.
    pub fn learn(&mut self, destination: IpAddr, error: &TooBig<'_>, now: Nanos) -> Vec<IpAddr> {
        let before = self.known.get(destination);
        if before.is_some_and(|size| size < error.mtu) {
            return Vec::new();
        }
        let mut changed = Vec::new();
        if before.is_none() {
            changed.extend(self.make_room());
        }
        if before != Some(error.mtu) {
            let known = Arc::make_mut(&mut self.known);
            known.sizes.insert(destination, error.mtu);
            known.version += 1;
            self.counters.learned += 1;
            changed.push(destination);
        }
        let expires = now + AGING;
        if let Some(before) = self.expires.insert(destination, expires) {
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

    /// Forgets a size if there are too many.
    fn make_room(&mut self) -> Option<IpAddr> {
        if self.expires.len() < self.limit {
            return None;
        }
        self.counters.evicted += 1;
        self.remove_first()
    }

    fn remove_first(&mut self) -> Option<IpAddr> {
        let (_, destination) = self.expiry.pop_first()?;
        self.expires.remove(&destination);
        let known = Arc::make_mut(&mut self.known);
        known.sizes.remove(&destination);
        known.version += 1;
        Some(destination)
    }
}
