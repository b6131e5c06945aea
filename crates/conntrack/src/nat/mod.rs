//! NAT: which tuple a connection gets, and writing it into packets.
//!
//! A connection has its translation from its first packet on, as the difference between its reply
//! tuple and the reverse of its original one. A packet of one direction becomes the reverse of the
//! other direction's tuple, so a reply undoes what the request's translation did, whatever that
//! was.

mod rewrite;
mod select;

pub(crate) use rewrite::translate;
pub(crate) use select::Candidates;

use std::net::IpAddr;

/// What `nat` of the action `ct` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nat {
    /// Translate packets of translated connections; new connections have no translation.
    Existing,
    /// New connections get another source.
    Source(Range),
    /// New connections get another destination.
    Destination(Range),
}

/// Addresses and ports to choose from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Range {
    /// First and last address; `None`, or the unspecified address alone, keeps the packet's address
    /// and changes the source port where the tuple is taken.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// First and last port. Without it, the port is kept where that is possible.
    pub ports: Option<(u16, u16)>,
    /// How the first port to try is chosen.
    pub ports_by: PortsBy,
    /// Whether all connections of a source get the same address.
    pub persistent: bool,
}

/// How the first port to try is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PortsBy {
    /// The action does not say: as `Hash`.
    #[default]
    Default,
    /// By a hash of the tuple, the same for the same tuple.
    Hash,
    /// At random.
    Random,
}
