//! The kernel's rules, and the tables that they choose.

use super::{Hop, Levels, Prefix, Route};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kernel's tables `default` and `main`, and that of the host's own addresses.
pub const DEFAULT: u32 = 253;
/// See [`DEFAULT`].
pub const MAIN: u32 = 254;
/// See [`DEFAULT`].
pub const LOCAL: u32 = 255;

/// A rule that chooses a table (`ip rule`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// It is about all packets but those that it describes.
    pub invert: bool,
    /// Bits of a packet's mark, and those that it looks at.
    pub mark: (u32, u32),
    /// The network of the destination; of the other family, no packet meets the rule.
    pub to: Prefix,
    /// The network of the source; a packet whose source is not chosen yet has the address of zeros.
    pub from: Prefix,
    /// The table; `None` ends the lookup without a route.
    pub table: Option<u32>,
    /// Routes of the table whose prefix is not longer than this do not count.
    pub suppress: Option<u8>,
}

impl Rule {
    fn meets(&self, to: IpAddr, mark: u32, from: IpAddr) -> bool {
        let (wanted, mask) = self.mark;
        let meets = mark & mask == wanted & mask && self.to.contains(to) && self.from.contains(from);
        to.is_ipv4() == self.to.host().is_ipv4() && meets != self.invert
    }
}

/// A route of a VRF may lead into another one; the kernel drops a packet that does so for ever.
const MOST_VRFS: usize = 4;

/// Rules in their order, and the tables that they name.
#[derive(Clone, Debug, Default)]
pub(super) struct Policy {
    rules: Vec<Rule>,
    tables: HashMap<u32, Levels>,
    /// The tables of VRFs, by the names of their devices.
    vrfs: HashMap<String, u32>,
}

impl Policy {
    pub(super) fn new(
        rules: Vec<Rule>,
        routes: impl IntoIterator<Item = (u32, Route)>,
        vrfs: HashMap<String, u32>,
    ) -> Policy {
        let mut tables: HashMap<u32, Levels> = HashMap::new();
        for (table, route) in routes {
            tables.entry(table).or_default().insert(route);
        }
        Policy { rules, tables, vrfs }
    }

    /// Whether it is the kernel's without VRFs and any rule of users, or none.
    pub(super) fn is_usual(&self) -> bool {
        let usual = |rule: &Rule| {
            let any = rule.mark.1 == 0 && rule.to.len() == 0 && rule.from.len() == 0;
            any && !rule.invert && matches!(rule.table, Some(DEFAULT..=LOCAL))
        };
        self.vrfs.is_empty() && self.rules.iter().all(|rule| usual(rule) && rule.suppress.is_none())
    }

    /// The route of a packet whose source is `from`, or is not chosen yet.
    pub(super) fn lookup(&self, to: IpAddr, mark: u32, from: Option<IpAddr>) -> Option<&Route> {
        let none: IpAddr = match to {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let from = from.filter(|from| from.is_ipv4() == to.is_ipv4()).unwrap_or(none);
        for rule in self.rules.iter().filter(|rule| rule.meets(to, mark, from)) {
            let table = self.tables.get(&rule.table?);
            // The kernel's routes have no marks.
            let found = table.and_then(|table| table.lookup(to, 0));
            let counts = |route: &&Route| rule.suppress.is_none_or(|len| route.to.len() > len);
            if let Some(route) = found.filter(counts) {
                return self.through_vrfs(to, route);
            }
        }
        None
    }

    /// A packet that leaves by a VRF's device takes the route of that VRF.
    fn through_vrfs<'a>(&'a self, to: IpAddr, mut route: &'a Route) -> Option<&'a Route> {
        for _ in 0..MOST_VRFS {
            let Some(table) = self.vrfs.get(&route.hop.device) else {
                return Some(route);
            };
            route = self.tables.get(table)?.lookup(to, 0)?;
        }
        None
    }

    /// The routes to an address in each VRF.
    pub(super) fn in_vrfs(&self, to: IpAddr) -> impl Iterator<Item = &Route> {
        let tables = self.vrfs.values().filter_map(|table| self.tables.get(table));
        tables.filter_map(move |table| table.lookup(to, 0))
    }

    /// The next hops of all tables.
    pub(super) fn hops(&self) -> impl Iterator<Item = &Hop> {
        self.tables.values().flat_map(Levels::routes).map(|route| &route.hop)
    }
}
