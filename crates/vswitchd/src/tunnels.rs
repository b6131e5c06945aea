//! Counters of what tunnels learn of their underlay.

use switch::TunnelTables;
use tunnel::{neighbour, path_mtu};

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
    LEARNED = "tunnel_path_mtus_learned";
    /// Path MTUs that were forgotten early because there were too many.
    EVICTED = "tunnel_path_mtus_evicted";
}

/// The counters of the switch's tables before a change.
pub(crate) struct Counters(neighbour::Counters, path_mtu::Counters);

impl Counters {
    /// Those of now.
    pub(crate) fn of(tables: &TunnelTables) -> Counters {
        Counters(tables.neighbours.counters(), tables.path_mtus.counters())
    }

    /// Counts what the change has done.
    pub(crate) fn count(&self, tables: &TunnelTables) {
        let after = Counters::of(tables);
        let (neighbours, path_mtus) = (after.0, after.1);
        FULL.add(neighbours.full - self.0.full);
        IGNORED.add(neighbours.ignored - self.0.ignored);
        REQUESTS.add(neighbours.requests - self.0.requests);
        REQUESTS_LIMITED.add(neighbours.requests_limited - self.0.requests_limited);
        LEARNED.add(path_mtus.learned - self.1.learned);
        EVICTED.add(path_mtus.evicted - self.1.evicted);
    }
}
