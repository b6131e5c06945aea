//! What translations depend on, as the numbers that megaflows record.
//!
//! Two different things can have the same number only by a collision of 64-bit hashes, which costs
//! a needless upcall.

use dp::Dep;
use flow::PortNo;
use wire::{MacAddr, Vid};

/// Something that a translation read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Which bridge's port a datapath port is.
    Attachment(PortNo),
    /// A bridge's own settings, or everything that it has learned.
    Bridge(u32),
    /// A port's settings.
    Port(u32, u32),
    /// Which ports a bridge floods to, and their settings.
    Flood(u32),
    /// Where a bridge believes a station to be.
    Station(u32, Vid, MacAddr),
    /// The rules of a bridge's table.
    Table(u32, u8),
    /// The same, by packets that are there as they came from outside, so that they are those that
    /// rules' matches speak of.
    UntouchedIn(u32, u8),
    /// What a bridge's group does.
    Group(u32, u32),
    /// That the packets of a station keep it where it is: when it moves, or is forgotten for
    /// another reason than to make room, they have to teach its place again.
    Source(u32, Vid, MacAddr),
    /// What a handle means.
    Context(u32),
    /// That a bridge has no room for more handles.
    Handles(u32),
}

impl Read {
    /// What is stale when a station that was known moves or is forgotten, but to make room.
    pub(crate) fn moved(bridge: u32, vlan: Vid, mac: MacAddr) -> [Read; 2] {
        [Read::Station(bridge, vlan, mac), Read::Source(bridge, vlan, mac)]
    }

    /// Its number.
    pub(crate) fn dep(self, seed: u64) -> Dep {
        let station = |vlan: Vid, mac: MacAddr| u64::from(vlan.get()) << 48 | mac.to_u64();
        let (kind, a, b) = match self {
            Read::Attachment(port) => (1, port.0, 0),
            Read::Bridge(bridge) => (2, bridge, 0),
            Read::Port(bridge, port) => (3, bridge, u64::from(port)),
            Read::Flood(bridge) => (4, bridge, 0),
            Read::Station(bridge, vlan, mac) => (5, bridge, station(vlan, mac)),
            Read::Table(bridge, table) => (7, bridge, u64::from(table)),
            Read::UntouchedIn(bridge, table) => (21, bridge, u64::from(table)),
            Read::Group(bridge, group) => (20, bridge, u64::from(group)),
            Read::Source(bridge, vlan, mac) => (6, bridge, station(vlan, mac)),
            Read::Context(handle) => (8, handle, 0),
            Read::Handles(bridge) => (22, bridge, 0),
        };
        Dep(flow::mix(flow::mix(seed, kind << 32 | u64::from(a)), b))
    }
}
