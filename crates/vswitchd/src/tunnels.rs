//! Counters of what tunnels learn of their underlay.

use switch::TunnelCounters;

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

/// Counts what a change of the switch's tables has done.
pub(crate) fn count(before: TunnelCounters, after: TunnelCounters) {
    FULL.add(after.neighbours.full - before.neighbours.full);
    IGNORED.add(after.neighbours.ignored - before.neighbours.ignored);
    REQUESTS.add(after.neighbours.requests - before.neighbours.requests);
    REQUESTS_LIMITED.add(after.neighbours.requests_limited - before.neighbours.requests_limited);
    PATH_MTUS.add(after.path_mtus.learned - before.path_mtus.learned);
    PATH_MTUS_EVICTED.add(after.path_mtus.evicted - before.path_mtus.evicted);
}
