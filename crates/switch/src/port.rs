//! A port of a bridge. What it does with VLAN tags is in [`crate::tables::tags`].

use crate::tables::tags::PortVlans;
use flow::PortNo;
use std::collections::BTreeMap;

/// An attachment of a bridge, ready for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// The first interface's OpenFlow port number.
    pub(crate) ofport: Option<u16>,
    pub(crate) vlans: PortVlans,
    pub(crate) protected: bool,
    pub(crate) no_flood: bool,
    pub(crate) dscp: BTreeMap<u32, u8>,
    pub(crate) egress: Egress,
    /// The interface that carries the traffic, where there are several.
    pub(crate) active: usize,
    pub(crate) interfaces: usize,
    pub(crate) members: Vec<Member>,
}

/// An interface of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its port number as OpenFlow 1.1 and later have it.
    pub(crate) number: u32,
    pub(crate) egress: Egress,
    /// Whether what chooses between ports may choose it.
    pub(crate) live: bool,
}

/// Where packets leave to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Egress {
    /// Nowhere: none of several interfaces is up, or a patch port has no peer.
    None,
    Device(PortNo),
    /// Into another bridge.
    Patch(Ingress),
}

/// Where a packet comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ingress {
    pub(crate) bridge: u32,
    pub(crate) port: u32,
    pub(crate) interface: usize,
}
