//! The routes of the underlay: the kernel's, read when they are needed and have changed, and those
//! of users.

use netdev::{KernelRoute, KernelRule, RouteMonitor};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tunnel::route::policy::{DEFAULT, LOCAL};
use tunnel::route::{Hop, Origin, Prefix, Route, Rule, Table, source};

/// The routing table and how it follows the kernel's.
pub(crate) struct Routes {
    table: Table,
    kernel: Kernel,
    /// The table as somebody else has it, until it changes.
    shared: Arc<Table>,
}

/// Whether the kernel's routes are in the table.
enum Kernel {
    /// They are left out.
    Off,
    /// Nobody has needed them so far.
    Unwatched,
    /// Read when the monitor tells of changes; `stale` asks for it earlier.
    Watched { monitor: RouteMonitor, stale: bool },
}

impl Routes {
    /// Routes of users, and of the kernel if `kernel` says so.
    pub(crate) fn new(kernel: bool) -> Routes {
        Routes {
            table: Table::default(),
            shared: Arc::default(),
            kernel: if kernel { Kernel::Unwatched } else { Kernel::Off },
        }
    }

    /// Whether the kernel's routes belong to it.
    pub(crate) fn follows_kernel(&self) -> bool {
        !matches!(self.kernel, Kernel::Off)
    }

    /// The table, up to date with the kernel.
    pub(crate) fn table(&mut self) -> &Table {
        self.follow_kernel();
        &self.table
    }

    /// A copy of the table, up to date with the kernel; the same one until it changes.
    pub(crate) fn shared(&mut self) -> Arc<Table> {
        self.follow_kernel();
        if self.table.generation() != self.shared.generation() {
            self.shared = Arc::new(self.table.clone());
        }
        self.shared.clone()
    }

    /// Becomes readable when the kernel's routes may have changed; `None` if nobody has needed them
    /// so far.
    pub(crate) fn events(&self) -> Option<BorrowedFd<'_>> {
        match &self.kernel {
            Kernel::Watched { monitor, .. } => Some(monitor.fd()),
            Kernel::Off | Kernel::Unwatched => None,
        }
    }

    /// Adds a user's route by a device that has these addresses. `None` if no address is in the
    /// network of the gateway or of the destination: packets would have no source.
    pub(crate) fn add(
        &mut self,
        to: Prefix,
        mark: u32,
        device: &str,
        gateway: Option<IpAddr>,
        addresses: &[Prefix],
    ) -> Option<()> {
        let hop = Hop {
            device: device.to_owned(),
            gateway,
            source: source(addresses, to.address(), gateway)?,
        };
        self.table.add(to, mark, hop);
        Some(())
    }

    /// Removes a user's route; whether there was one.
    pub(crate) fn remove(&mut self, to: Prefix, mark: u32) -> bool {
        let removed = self.table.remove(to, mark);
        if let Kernel::Watched { stale, .. } = &mut self.kernel {
            // The user's route may have displaced one of the kernel's.
            *stale |= removed;
        }
        removed
    }

    fn follow_kernel(&mut self) {
        if matches!(self.kernel, Kernel::Unwatched) {
            self.kernel = match RouteMonitor::open() {
                Ok(monitor) => Kernel::Watched { monitor, stale: true },
                Err(error) => return complain(&error),
            };
        }
        let Kernel::Watched { monitor, stale } = &mut self.kernel else {
            return;
        };
        // The notifications are taken before the routes are read, so that no change is missed.
        if monitor.has_changed() || *stale {
            match netdev::routes().and_then(|routes| Ok((routes, netdev::rules()?, vrfs()?))) {
                Ok((routes, rules, vrfs)) => {
                    *stale = false;
                    let routes = with_sources(routes, &vrfs);
                    let usual = routes.iter().filter(|(table, route)| {
                        (DEFAULT..=LOCAL).contains(table) && !route.hop.source.is_unspecified()
                    });
                    self.table.cache(usual.map(|(_, route)| route.clone()));
                    let rules = rules.iter().filter_map(rule).collect();
                    self.table.follow(rules, routes, vrfs);
                }
                Err(error) => {
                    *stale = true;
                    complain(&error);
                }
            }
        }
    }
}

/// The tables of VRFs by the names of their devices.
fn vrfs() -> io::Result<HashMap<String, u32>> {
    let links = netdev::list_links()?.into_iter();
    Ok(links.filter_map(|link| Some((link.name, link.vrf_table?))).collect())
}

fn complain(error: &io::Error) {
    tracing::warn!(target: "route_table", "cannot read the kernel's routes: {error}");
}

fn rule(rule: &KernelRule) -> Option<Rule> {
    Some(Rule {
        invert: rule.invert,
        mark: rule.mark,
        to: Prefix::new(rule.to.0, rule.to.1)?,
        from: Prefix::new(rule.from.0, rule.from.1)?,
        table: rule.table,
        suppress: rule.suppress,
    })
}

/// The kernel's routes whose packets have a source address, each with the number of its table. A
/// route to a VRF has an unspecified one if no address is known: packets get that of the VRF's
/// route.
fn with_sources(routes: Vec<KernelRoute>, vrfs: &HashMap<String, u32>) -> Vec<(u32, Route)> {
    let mut addresses = HashMap::new();
    let with_source = |route: KernelRoute| {
        let to = Prefix::new(route.to, route.len)?;
        let named = route.source.filter(|address| address.is_ipv4() == route.to.is_ipv4());
        let source = named.or_else(|| {
            let of_device = addresses
                .entry(route.device.clone())
                .or_insert_with(|| addresses_of(&route.device));
            source(of_device, to.address(), route.gateway)
        });
        let of_vrf = || vrfs.contains_key(&route.device).then(|| unspecified(route.to));
        let source = source.or_else(of_vrf);
        let table = route.table;
        let route = Route {
            to,
            mark: route.mark,
            hop: Hop {
                gateway: route.gateway,
                source: source?,
                device: route.device,
            },
            origin: Origin::Cached { local: route.local },
        };
        Some((table, route))
    };
    routes.into_iter().filter_map(with_source).collect()
}

/// The unspecified address of the family of another.
fn unspecified(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The addresses of a kernel's device; none if there is no such device.
pub(crate) fn addresses_of(device: &str) -> Vec<Prefix> {
    let found = netdev::addresses_of(device).unwrap_or_default();
    found
        .into_iter()
        .filter_map(|(address, len)| Prefix::new(address, len))
        .collect()
}
