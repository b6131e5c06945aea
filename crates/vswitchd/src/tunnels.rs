//! Counters of what tunnels learn of their underlay.

use tunnel::neighbour::Counters;

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
}

/// Counts what a change of the switch's tables has done.
pub(crate) fn count(before: Counters, after: Counters) {
    FULL.add(after.full - before.full);
    IGNORED.add(after.ignored - before.ignored);
    REQUESTS.add(after.requests - before.requests);
    REQUESTS_LIMITED.add(after.requests_limited - before.requests_limited);
}
