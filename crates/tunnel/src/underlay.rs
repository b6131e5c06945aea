//! What tunnels read of the underlay when they encapsulate packets.

use crate::format::SourcePorts;
use crate::neighbour::Neighbours;
use crate::path_mtu::PathMtus;
use std::sync::Arc;

/// The underlay at one time. Whoever changes one of its parts publishes a new one.
#[derive(Clone, Debug, Default)]
pub struct Underlay {
    /// The Ethernet addresses of neighbours behind bridges.
    pub neighbours: Arc<Neighbours>,
    /// The largest packets that reach a destination.
    pub path_mtus: Arc<PathMtus>,
    /// The UDP source ports of outer packets.
    pub ports: SourcePorts,
}
