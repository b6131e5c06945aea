//! What tunnels know of the underlay: neighbours, path MTUs, and the range of UDP source ports; and
//! the tunnel ports.
//!
//! The tables change under a lock, one change at a time. Each change publishes an [`Underlay`],
//! which translations read.

use dp::PortNo;
use nanos::Nanos;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use tunnel::format::SourcePorts;
use tunnel::neighbour::{self, BridgeName};
use tunnel::path_mtu;
use tunnel::underlay::Underlay;
use tunnel::vport;

telemetry::counters! {
    /// Neighbours that were not added because there were too many.
    FULL = "tunnel_neighbours_full";
    /// ARP packets and neighbour advertisements that were not for the bridge, or not about a
    /// neighbour of it.
    IGNORED = "tunnel_neighbours_ignored";
    /// Requests for neighbours.
    REQUESTS = "tunnel_neighbour_requests";
    /// Requests for neighbours that were not sent, so that each gets at most one in a second.
    REQUESTS_LIMITED = "tunnel_neighbour_requests_limited";
    /// Path MTUs that became smaller.
    PATH_MTUS = "tunnel_path_mtus_learned";
    /// Path MTUs that were forgotten early because there were too many.
    PATH_MTUS_EVICTED = "tunnel_path_mtus_evicted";
}

/// The tables of the underlay.
#[derive(Default)]
pub(crate) struct Tunnels {
    tables: Mutex<Tables>,
    published: RwLock<Arc<Underlay>>,
}

/// What a change may change.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) neighbours: neighbour::Table,
    pub(crate) path_mtus: path_mtu::Table,
    pub(crate) source_ports: SourcePorts,
    /// The tunnel ports of all bridges.
    pub(crate) ports: vport::Table<PortNo>,
}

impl Tunnels {
    /// The underlay as the last change left it.
    pub(crate) fn underlay(&self) -> Arc<Underlay> {
        self.published.read().clone()
    }

    /// Reads the tables.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Tables) -> R) -> R {
        look(&self.tables.lock())
    }

    /// Changes the tables and publishes them.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Tables) -> R) -> R {
        let mut tables = self.tables.lock();
        let before = tables.counters();
        let result = change(&mut tables);
        count(before, tables.counters());
        let underlay = Underlay {
            neighbours: tables.neighbours.neighbours(),
            path_mtus: tables.path_mtus.path_mtus(),
            ports: tables.source_ports,
        };
        *self.published.write() = Arc::new(underlay);
        result
    }

    /// When the next neighbour or path MTU expires.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.look(|tables| {
            let due = [tables.neighbours.next_event(), tables.path_mtus.next_event()];
            due.into_iter().flatten().min()
        })
    }

    /// Forgets what has expired.
    pub(crate) fn tick(&self, now: Nanos) {
        if self.next_event().is_some_and(|due| due <= now) {
            self.change(|tables| {
                tables.neighbours.tick(now);
                tables.path_mtus.tick(now);
            });
        }
    }

    /// Forgets the neighbours of a bridge that is gone.
    pub(crate) fn forget_bridge(&self, name: &str) {
        self.change(|tables| tables.neighbours.flush_bridge(BridgeName::new(name)));
    }
}

impl Tables {
    fn counters(&self) -> (neighbour::Counters, path_mtu::Counters) {
        (self.neighbours.counters(), self.path_mtus.counters())
    }
}

fn count(before: (neighbour::Counters, path_mtu::Counters), after: (neighbour::Counters, path_mtu::Counters)) {
    FULL.add(after.0.full - before.0.full);
    IGNORED.add(after.0.ignored - before.0.ignored);
    REQUESTS.add(after.0.requests - before.0.requests);
    REQUESTS_LIMITED.add(after.0.requests_limited - before.0.requests_limited);
    PATH_MTUS.add(after.1.learned - before.1.learned);
    PATH_MTUS_EVICTED.add(after.1.evicted - before.1.evicted);
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::MacAddr;

    #[test]
    fn each_change_is_published_and_expires() {
        let tunnels = Tunnels::default();
        let (bridge, address) = (BridgeName::new("br0"), "1.1.2.92".parse().unwrap());
        let before = tunnels.underlay();
        let now = Nanos::from_secs(5);
        let set = tunnels.change(|tables| tables.neighbours.set(bridge, address, MacAddr([2; 6]), now));
        assert_eq!(set, Ok(()));
        let known = |underlay: &Underlay| underlay.neighbours.get(bridge, address);
        assert_eq!(
            (known(&before), known(&tunnels.underlay())),
            (None, Some(MacAddr([2; 6])))
        );
        let due = tunnels.next_event().unwrap();
        tunnels.tick(Nanos(due.0 - 1));
        assert!(known(&tunnels.underlay()).is_some());
        tunnels.tick(due);
        assert_eq!((known(&tunnels.underlay()), tunnels.next_event()), (None, None));
    }

    #[test]
    fn a_bridge_takes_its_neighbours_with_it() {
        let tunnels = Tunnels::default();
        let address = "1.1.2.92".parse().unwrap();
        for name in ["br0", "br1"] {
            let bridge = BridgeName::new(name);
            let set = |tables: &mut Tables| tables.neighbours.set(bridge, address, MacAddr([2; 6]), Nanos::ZERO);
            tunnels.change(set).unwrap();
        }
        tunnels.forget_bridge("br0");
        let underlay = tunnels.underlay();
        let known = ["br0", "br1"].map(|name| underlay.neighbours.get(BridgeName::new(name), address).is_some());
        assert_eq!(known, [false, true]);
    }
}
