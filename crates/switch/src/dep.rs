//! Dependencies of translations, as the numbers that megaflows record.
//!
//! Two dependencies have the same number only if their 64-bit hashes collide; that costs a needless
//! upcall.

use crate::tables::GroupChange;
use dp::Dep;
use flow::PortNo;
use std::net::IpAddr;
use wire::{MacAddr, Vid};

/// A part of the configuration or state that a translation has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The bridge and port that a datapath port is attached to.
    Attachment(PortNo),
    /// A bridge's settings, or its whole MAC learning table.
    Bridge(u32),
    /// A port's settings.
    Port(u32, u32),
    /// Which ports a bridge floods to, and their settings.
    Flood(u32),
    /// The port of a station in the MAC learning table.
    Station(u32, Vid, MacAddr),
    /// The rules of a bridge's table.
    Table(u32, u8),
    /// As [`Read::Table`], for packets that no action has changed: a changed rule affects only
    /// those that its match covers.
    UntouchedIn(u32, u8),
    /// The definition of a bridge's group.
    Group(u32, u32),
    /// By which hash, if by any, a bridge's group distributes packets.
    GroupHash(u32, u32),
    /// The bucket of a slot of a bridge's group; the number of slots, and the slot.
    GroupSlot(u32, u32, (u16, u8)),
    /// That packets refresh their source station. When the station moves, or is removed for another
    /// reason than to make room, its packets must be translated again to learn it.
    Source(u32, Vid, MacAddr),
    /// The members of a multicast group.
    Members(u32, Vid, IpAddr),
    /// The ports of multicast routers in a VLAN.
    Routers(u32, Vid),
    /// The context of a handle.
    Context(u32),
    /// That a bridge has no free handles.
    Handles(u32),
    /// The routes, the addresses of the switch, or who receives packets of tunnels.
    Underlay,
    /// The Ethernet address of a neighbour of a bridge.
    Neighbour(u32, IpAddr),
    /// The largest packets that reach a destination of tunnels.
    PathMtu(IpAddr),
    /// The timeout policy of a zone.
    TimeoutPolicy(u16),
}

impl Read {
    /// What becomes stale when a bridge's group changes.
    pub(crate) fn changed_group(bridge: u32, change: GroupChange) -> impl Iterator<Item = Read> {
        let group = change.group;
        let hash = change.hash.then_some(Read::GroupHash(bridge, group));
        let slots = change
            .slots
            .into_iter()
            .map(move |slot| Read::GroupSlot(bridge, group, slot));
        std::iter::once(Read::Group(bridge, group)).chain(hash).chain(slots)
    }

    /// What becomes stale when a known station moves or is removed, except to make room.
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
            Read::GroupHash(bridge, group) => (29, bridge, u64::from(group)),
            Read::GroupSlot(bridge, group, (slots, slot)) => {
                let slot = u64::from(slots) << 8 | u64::from(slot);
                (30, bridge, slot << 32 | u64::from(group))
            }
            Read::Source(bridge, vlan, mac) => (6, bridge, station(vlan, mac)),
            Read::Members(bridge, vlan, group) => (23, bridge, hash_of_group(vlan, group)),
            Read::Routers(bridge, vlan) => (24, bridge, vlan.get().into()),
            Read::Context(handle) => (8, handle, 0),
            Read::Handles(bridge) => (22, bridge, 0),
            Read::Underlay => (25, 0, 0),
            Read::Neighbour(bridge, address) => (26, bridge, hash_of(address)),
            Read::PathMtu(destination) => (28, 0, hash_of(destination)),
            Read::TimeoutPolicy(zone) => (27, zone.into(), 0),
        };
        Dep(flow::mix(flow::mix(seed, kind << 32 | u64::from(a)), b))
    }
}

fn hash_of_group(vlan: Vid, group: IpAddr) -> u64 {
    flow::mix(vlan.get().into(), hash_of(group))
}

fn hash_of(address: IpAddr) -> u64 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    flow::mix((bits >> 64) as u64, bits as u64)
}
