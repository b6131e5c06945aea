//! The table of neighbours.

use super::heard::is_host;
use super::{BridgeName, Heard, HeardBy, Request};
use crate::shards::Shards;
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use wire::MacAddr;

/// How long entries may be kept without being used (`tnl/neigh/aging`): whole seconds.
pub const AGING: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// How long entries are kept if nothing else is configured, as in Open vSwitch.
const DEFAULT_AGING: Duration = Duration::from_secs(900);
/// The shortest time between two requests for an address (RFC 1122 §2.3.2.1, RFC 4861 §10).
const BETWEEN_REQUESTS: Duration = Duration::from_secs(1);
/// How long an address stays in the table after a request that nobody has answered.
const UNANSWERED: Duration = Duration::from_secs(5);

/// How many entries there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of one bridge.
    pub bridge: usize,
    /// In all.
    pub total: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bridge: 16_384,
            total: 65_536,
        }
    }
}

/// Counters of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that the caller was asked to send.
    pub requests: u64,
    /// Requests that were not sent because the last one for the address was less than a second
    /// before.
    pub requests_limited: u64,
    /// Neighbours that were not added because there were too many.
    pub full: u64,
    /// Packets about neighbours that changed nothing because they were not for the bridge, or said
    /// something about the bridge itself.
    pub ignored: u64,
}

/// Why a neighbour is not learned. Each counts in [`Counters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The packet is for another host.
    NotForUs,
    /// The packet says that somebody else has the bridge's own address.
    Own,
    /// The packet may not replace the address that is known.
    Kept,
    /// There are too many neighbours: [`Limits`].
    Full,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ignored::NotForUs => "the packet is for another host",
            Ignored::Own => "another host claims the bridge's address",
            Ignored::Kept => "the packet may not replace the known address",
            Ignored::Full => "too many neighbours",
        })
    }
}

impl std::error::Error for Ignored {}

/// A value that is no time of [`AGING`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAging;

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Its Ethernet address.
    Known(MacAddr),
    /// Nothing: this request has to be sent.
    Ask(Request),
    /// Nothing, and the last request was less than a second before.
    Wait,
    /// Nothing, and it is not asked for: no host can have the address, or there are too many
    /// neighbours.
    Never,
}

/// A line of `tnl/neigh/show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The neighbour.
    pub address: IpAddr,
    /// The bridge that it is behind.
    pub bridge: BridgeName,
    /// Its Ethernet address.
    pub mac: MacAddr,
}

impl Entry {
    /// The lines above the entries.
    pub const HEADER: &str = concat!(
        "IP                                            MAC                 Bridge\n",
        "==========================================================================\n",
    );
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<46}{}   {}", self.address.to_string(), self.mac, self.bridge)
    }
}

type Key = (BridgeName, IpAddr);

/// The Ethernet addresses of all neighbours at one time.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    macs: Shards<Key, MacAddr>,
    version: u64,
}

impl Neighbours {
    /// The Ethernet address of a neighbour.
    pub fn get(&self, bridge: BridgeName, address: IpAddr) -> Option<MacAddr> {
        self.macs.get(&(bridge, address)).copied()
    }

    /// A number that grows with every change: what was decided with another number may be wrong.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// The table.
#[derive(Debug)]
pub struct Table {
    entries: HashMap<Key, State>,
    /// When entries expire.
    expiry: BTreeSet<(Nanos, Key)>,
    held: BTreeMap<BridgeName, Held>,
    total: Held,
    known: Arc<Neighbours>,
    limits: Limits,
    aging: Duration,
    counters: Counters,
}

#[derive(Debug)]
struct State {
    /// `None` until somebody has answered.
    mac: Option<MacAddr>,
    expires: Nanos,
    /// When it was last asked for, learned, or set.
    checked: Nanos,
    /// A tunnel or a user needs it.
    wanted: bool,
    /// A user has set it.
    by_command: bool,
}

/// Number of entries.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    all: usize,
    /// Those that nobody needs so far.
    unwanted: usize,
}

impl Held {
    fn has_room(self, most: usize, wanted: bool) -> bool {
        self.all < most && (wanted || self.unwanted < most / 2)
    }
}

impl Default for Table {
    fn default() -> Table {
        Table::new(Limits::default())
    }
}

impl Table {
    /// An empty table.
    pub fn new(limits: Limits) -> Table {
        Table {
            entries: HashMap::new(),
            expiry: BTreeSet::new(),
            held: BTreeMap::new(),
            total: Held::default(),
            known: Arc::default(),
            limits,
            aging: DEFAULT_AGING,
            counters: Counters::default(),
        }
    }

    /// The neighbours as they are now. It costs little, also after each change.
    pub fn neighbours(&self) -> Arc<Neighbours> {
        self.known.clone()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The known neighbours in the order of their addresses.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let known = self.entries.iter().filter_map(|((bridge, address), state)| {
            Some(Entry {
                address: *address,
                bridge: *bridge,
                mac: state.mac?,
            })
        });
        let mut all: Vec<Entry> = known.collect();
        all.sort_unstable();
        all.into_iter()
    }

    /// Sets the Ethernet address of a neighbour (`tnl/neigh/set`). It ages like one that was
    /// learned.
    ///
    /// # Errors
    /// [`Ignored::Full`].
    pub fn set(&mut self, bridge: BridgeName, address: IpAddr, mac: MacAddr, now: Nanos) -> Result<(), Ignored> {
        let key = (bridge, address);
        self.put(key, Some(mac), true, now + self.aging, now)?;
        if let Some(state) = self.entries.get_mut(&key) {
            state.by_command = true;
        }
        Ok(())
    }

    /// Learns from a packet to the LOCAL port of a bridge with these addresses. Whether it changed
    /// an Ethernet address, so that cached flows to the neighbour have to end.
    ///
    /// # Errors
    /// [`Ignored`]: nothing has changed.
    pub fn learn(&mut self, bridge: BridgeName, heard: &Heard, own: &[IpAddr], now: Nanos) -> Result<bool, Ignored> {
        let key = (bridge, heard.address);
        let before = self.entries.get(&key);
        let checked = if own.contains(&heard.address) {
            Err(Ignored::Own)
        } else if matches!(heard.by, HeardBy::Host(host) if !own.contains(&host)) {
            Err(Ignored::NotForUs)
        } else {
            match before.and_then(|state| state.mac) {
                Some(mac) if mac != heard.mac && !heard.replaces => Err(Ignored::Kept),
                _ => Ok(before.is_some_and(|state| state.wanted)),
            }
        };
        match checked {
            Ok(wanted) => self.put(key, Some(heard.mac), wanted, now + self.aging, now),
            Err(why) => {
                self.counters.ignored += 1;
                Err(why)
            }
        }
    }

    /// Looks for a neighbour that a tunnel sends to.
    pub fn resolve(&mut self, bridge: BridgeName, address: IpAddr, now: Nanos) -> Resolution {
        let key = (bridge, address);
        match self.entries.get(&key) {
            Some(State { mac: Some(mac), .. }) => {
                let mac = *mac;
                self.want(key);
                return Resolution::Known(mac);
            }
            Some(state) if now < state.checked + BETWEEN_REQUESTS => {
                self.counters.requests_limited += 1;
                return Resolution::Wait;
            }
            _ if !is_host(address) => return Resolution::Never,
            _ => {}
        }
        match self.put(key, None, true, now + UNANSWERED, now) {
            Ok(_) => {
                self.counters.requests += 1;
                Resolution::Ask(Request { bridge, address })
            }
            Err(_) => Resolution::Never,
        }
    }

    /// Notes that cached flows have sent packets to a neighbour: it does not expire then.
    ///
    /// If nobody has confirmed the neighbour for half of the aging time, a request has to be sent,
    /// which finds out whether another station has the address now. Neighbours that were set by
    /// command are not asked for.
    pub fn used(&mut self, bridge: BridgeName, address: IpAddr, now: Nanos) -> Option<Request> {
        let key = (bridge, address);
        self.want(key);
        let state = self.entries.get_mut(&key)?;
        let between = (self.aging / 2).max(BETWEEN_REQUESTS);
        let (expires, due) = (now + self.aging, state.checked + between);
        state.mac?;
        let asks = now >= due && !state.by_command;
        if asks {
            state.checked = now;
            self.counters.requests += 1;
        }
        self.expire_at(key, expires);
        asks.then_some(Request { bridge, address })
    }

    /// How long entries are kept without being used.
    pub fn aging(&self) -> Duration {
        self.aging
    }

    /// Sets how long entries are kept without being used. It counts for entries that are added or
    /// used from now on; those that would be kept longer expire earlier.
    ///
    /// # Errors
    /// [`BadAging`] if the time is not one of [`AGING`].
    pub fn set_aging(&mut self, aging: Duration, now: Nanos) -> Result<(), BadAging> {
        if !AGING.contains(&aging) {
            return Err(BadAging);
        }
        self.aging = aging;
        let latest = now + aging;
        let later = |(expires, _): &&(Nanos, Key)| *expires > latest;
        let keys: Vec<Key> = self
            .expiry
            .iter()
            .rev()
            .take_while(later)
            .map(|(_, key)| *key)
            .collect();
        for key in keys {
            self.expire_at(key, latest);
        }
        Ok(())
    }

    /// When the next entry expires.
    pub fn next_event(&self) -> Option<Nanos> {
        self.expiry.first().map(|(expires, _)| *expires)
    }

    /// Removes expired entries. The neighbours that are not known any more.
    pub fn tick(&mut self, now: Nanos) -> Vec<(BridgeName, IpAddr)> {
        let due = |(expires, _): &&(Nanos, Key)| *expires <= now;
        let keys: Vec<Key> = self.expiry.iter().take_while(due).map(|(_, key)| *key).collect();
        self.remove_all(keys)
    }

    /// Removes all entries (`tnl/neigh/flush`). The neighbours that are not known any more.
    pub fn flush(&mut self) -> Vec<(BridgeName, IpAddr)> {
        let keys = self.entries.keys().copied().collect();
        self.remove_all(keys)
    }

    /// Removes the entries of a bridge. The neighbours that are not known any more.
    pub fn flush_bridge(&mut self, bridge: BridgeName) -> Vec<(BridgeName, IpAddr)> {
        let keys = self.entries.keys().copied().filter(|(own, _)| *own == bridge).collect();
        self.remove_all(keys)
    }

    /// Adds an entry or changes it; whether its Ethernet address is another one than before.
    fn put(
        &mut self,
        key: Key,
        mac: Option<MacAddr>,
        wanted: bool,
        expires: Nanos,
        now: Nanos,
    ) -> Result<bool, Ignored> {
        if !self.entries.contains_key(&key) {
            let of_bridge = self.held.get(&key.0).copied().unwrap_or_default();
            if !of_bridge.has_room(self.limits.bridge, wanted) || !self.total.has_room(self.limits.total, wanted) {
                self.counters.full += 1;
                return Err(Ignored::Full);
            }
            let state = State {
                mac: None,
                expires,
                checked: now,
                wanted,
                by_command: false,
            };
            self.entries.insert(key, state);
            self.expiry.insert((expires, key));
            self.count(key.0, |held| {
                held.all += 1;
                held.unwanted += usize::from(!wanted);
            });
        } else if wanted {
            self.want(key);
        }
        self.expire_at(key, expires);
        let Some(state) = self.entries.get_mut(&key) else {
            return Ok(false);
        };
        (state.checked, state.by_command) = (now, false);
        let changes = state.mac != mac;
        state.mac = mac;
        if let (true, Some(mac)) = (changes, mac) {
            let known = Arc::make_mut(&mut self.known);
            known.macs.insert(key, mac);
            known.version += 1;
        }
        Ok(changes)
    }

    /// Notes that an entry is needed.
    fn want(&mut self, key: Key) {
        let Some(state) = self.entries.get_mut(&key) else {
            return;
        };
        if !std::mem::replace(&mut state.wanted, true) {
            self.count(key.0, |held| held.unwanted -= 1);
        }
    }

    fn expire_at(&mut self, key: Key, expires: Nanos) {
        if let Some(state) = self.entries.get_mut(&key) {
            let before = std::mem::replace(&mut state.expires, expires);
            if before != expires {
                self.expiry.remove(&(before, key));
                self.expiry.insert((expires, key));
            }
        }
    }

    fn remove_all(&mut self, keys: Vec<Key>) -> Vec<Key> {
        let gone: Vec<Key> = keys.into_iter().filter(|key| self.remove(*key)).collect();
        if !gone.is_empty() {
            let known = Arc::make_mut(&mut self.known);
            for key in &gone {
                known.macs.remove(key);
            }
            known.version += 1;
        }
        gone
    }

    /// Removes an entry; whether its Ethernet address was known.
    fn remove(&mut self, key: Key) -> bool {
        let Some(state) = self.entries.remove(&key) else {
            return false;
        };
        self.expiry.remove(&(state.expires, key));
        self.count(key.0, |held| {
            held.all -= 1;
            held.unwanted -= usize::from(!state.wanted);
        });
        state.mac.is_some()
    }

    /// Changes the numbers of entries.
    fn count(&mut self, bridge: BridgeName, change: impl Fn(&mut Held)) {
        let held = self.held.entry(bridge).or_default();
        change(held);
        if held.all == 0 {
            self.held.remove(&bridge);
        }
        change(&mut self.total);
    }
}

#[cfg(test)]
impl Table {
    /// Number of entries, also of those that nobody has answered for.
    pub(super) fn check(&self) -> usize {
        assert_eq!(self.entries.len(), self.expiry.len());
        assert_eq!(self.entries.len(), self.total.all);
        assert_eq!(self.held.values().map(|held| held.all).sum::<usize>(), self.total.all);
        let unwanted = self.entries.values().filter(|state| !state.wanted).count();
        assert_eq!(unwanted, self.total.unwanted);
        assert_eq!(self.known.macs.len(), self.entries().count());
        for entry in self.entries() {
            assert_eq!(self.known.get(entry.bridge, entry.address), Some(entry.mac));
        }
        self.total.all
    }
}
