//! The routing table: the kernel's routes and those that users added with `ovs/route/add`.
//!
//! A lookup takes the route of the highest rank whose prefix contains the address and whose packet
//! mark is the packet's. Ranks follow Open vSwitch: the length of the prefix counts, and users'
//! routes and routes to the host itself (the kernel's table `local`) are 64 bits better. So a
//! user's /16 is better than a kernel's /32 of IPv4, and worse than the host's own address.
//!
//! Packets of tunnels take the routes that the kernel's rules choose for them, by their mark,
//! destination, and configured source; a route to a VRF's device leads on by the routes of that
//! VRF ([`Table::way`]).

pub mod policy;
mod prefix;

pub use policy::Rule;
pub use prefix::{ParsePrefixError, Prefix};

use policy::Policy;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;

/// The length that users' routes and local routes gain.
const PREFERRED: u16 = 64;

/// Who made a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The kernel has it.
    Cached {
        /// It is a route to an address of this host.
        local: bool,
    },
    /// A user added it.
    User,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The addresses that it leads to.
    pub to: Prefix,
    /// The mark of the packets that it is for (`pkt_mark`); 0 for unmarked packets.
    pub mark: u32,
    /// Where it leads.
    pub hop: Hop,
    /// Who made it.
    pub origin: Origin,
}

/// The next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The device that packets leave by.
    pub device: String,
    /// The router; `None` if the destination is a neighbour.
    pub gateway: Option<IpAddr>,
    /// The source address of packets that the switch makes.
    pub source: IpAddr,
}

impl Route {
    /// Its priority: of the routes that lead to an address, the one with the highest is taken.
    pub fn rank(&self) -> u16 {
        let preferred = matches!(self.origin, Origin::User | Origin::Cached { local: true });
        u16::from(self.to.mapped_len()) + if preferred { PREFERRED } else { 0 }
    }

    fn level(&self) -> Level {
        Reverse((self.rank(), self.to.mapped_len()))
    }
}

/// A line of `ovs/route/show`.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.origin == Origin::User;
        write!(f, "{}: {}", if user { "User" } else { "Cached" }, self.to)?;
        if self.mark != 0 {
            write!(f, " MARK {}", self.mark)?;
        }
        write!(f, " dev {}", self.hop.device)?;
        if let Some(gateway) = self.hop.gateway {
            write!(f, " GW {gateway}")?;
        }
        write!(f, " SRC {}", self.hop.source)?;
        match self.origin {
            Origin::Cached { local: true } => f.write_str(" local"),
            _ => Ok(()),
        }
    }
}

/// Routes with the same rank and length, best first.
type Level = Reverse<(u16, u8)>;

/// The key of a route within a level: its masked address and its mark.
type Key = (IpAddr, u32);

/// The routing table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    levels: Levels,
    policy: Policy,
    generation: u64,
}

/// Routes by rank.
#[derive(Clone, Debug, Default)]
struct Levels(BTreeMap<Level, HashMap<Key, Route>>);

impl Levels {
    fn lookup(&self, to: IpAddr, mark: u32) -> Option<&Route> {
        self.0.iter().find_map(|(Reverse((_, len)), routes)| {
            let prefix = Prefix::of_mapped(to, *len)?;
            routes.get(&(prefix.address(), mark))
        })
    }

    fn insert(&mut self, route: Route) {
        let level = self.0.entry(route.level()).or_default();
        level.insert((route.to.address(), route.mark), route);
    }

    fn routes(&self) -> impl Iterator<Item = &Route> {
        self.0.values().flat_map(HashMap::values)
    }
}

impl Table {
    /// A number that changes with the routes: what was decided with another number has to be
    /// decided again.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The route to `to` of this mark, whatever the kernel's rules say (`ovs/route/lookup`).
    pub fn lookup(&self, to: IpAddr, mark: u32) -> Option<&Route> {
        self.levels.lookup(to, mark)
    }

    /// The route of a packet to `to` that has the mark `mark`, and the source `from` if that does
    /// not depend on the route: one of users with that mark, or else that which the kernel takes by
    /// its rules.
    pub fn way(&self, to: IpAddr, mark: u32, from: Option<IpAddr>) -> Option<&Route> {
        let found = self.levels.lookup(to, mark);
        let of_user = found.is_some_and(|route| route.origin == Origin::User);
        if of_user || mark == 0 && self.policy.is_usual() {
            return found;
        }
        self.policy.lookup(to, mark, from)
    }

    /// Whether an address is the host's own, in a VRF or not.
    pub fn is_local(&self, address: IpAddr) -> bool {
        let is_local = |route: &Route| route.origin == Origin::Cached { local: true };
        let found = self.levels.lookup(address, 0);
        found.is_some_and(is_local) || self.policy.in_vrfs(address).any(is_local)
    }

    /// The devices that [`way`](Table::way) leads by.
    pub fn devices(&self) -> BTreeSet<&str> {
        let own = self.levels.routes().map(|route| &route.hop);
        own.chain(self.policy.hops()).map(|hop| hop.device.as_str()).collect()
    }

    /// All routes: those that a lookup prefers first, then by address and mark.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.levels.0.values().flat_map(|level| {
            let mut routes: Vec<&Route> = level.values().collect();
            routes.sort_unstable_by_key(|route| (route.to.address(), route.mark));
            routes
        })
    }

    /// Adds a user's route; it takes the place of the user's route with the same prefix and mark.
    pub fn add(&mut self, to: Prefix, mark: u32, hop: Hop) {
        let origin = Origin::User;
        let route = Route { to, mark, hop, origin };
        self.levels.insert(route);
        self.generation += 1;
    }

    /// Removes a user's route; whether there was one.
    pub fn remove(&mut self, to: Prefix, mark: u32) -> bool {
        let level = Reverse((u16::from(to.mapped_len()) + PREFERRED, to.mapped_len()));
        let Some(routes) = self.levels.0.get_mut(&level) else {
            return false;
        };
        let key = (to.address(), mark);
        let is_user = routes.get(&key).is_some_and(|route| route.origin == Origin::User);
        if is_user {
            routes.remove(&key);
            self.levels.0.retain(|_, routes| !routes.is_empty());
            self.generation += 1;
        }
        is_user
    }

    /// Replaces the kernel's routes. Of several with the same prefix and mark, the last one counts.
    /// A user's route stays if the kernel has a local one with the same prefix and mark.
    pub fn cache(&mut self, routes: impl IntoIterator<Item = Route>) {
        for level in self.levels.0.values_mut() {
            level.retain(|_, route| route.origin == Origin::User);
        }
        for route in routes {
            let user = |level: &HashMap<Key, Route>| {
                let found = level.get(&(route.to.address(), route.mark));
                found.is_some_and(|found| found.origin == Origin::User)
            };
            if !self.levels.0.get(&route.level()).is_some_and(user) {
                self.levels.insert(route);
            }
        }
        self.levels.0.retain(|_, routes| !routes.is_empty());
        self.generation += 1;
    }

    /// Replaces the kernel's rules, in their order, the routes of the tables that they name, and
    /// the tables of VRFs by the names of their devices.
    pub fn follow(
        &mut self,
        rules: Vec<Rule>,
        routes: impl IntoIterator<Item = (u32, Route)>,
        vrfs: HashMap<String, u32>,
    ) {
        self.policy = Policy::new(rules, routes, vrfs);
        self.generation += 1;
    }
}

/// The source address for packets that leave by a device with these addresses: one in the network
/// of the gateway, or else in that of the destination; the longest prefix wins, and of equal ones
/// the first address.
pub fn source(addresses: &[Prefix], to: IpAddr, gateway: Option<IpAddr>) -> Option<IpAddr> {
    let beside = |neighbour: IpAddr| {
        // The last of several maxima is taken.
        let near = addresses.iter().rev().filter(|address| address.contains(neighbour));
        near.max_by_key(|address| address.len()).map(Prefix::host)
    };
    gateway.and_then(beside).or_else(|| beside(to))
}

#[cfg(test)]
mod tests;
