//! A packet that missed the caches, and the answer.

use crate::{Action, Change, Dep, DropCause, Punt};
use flow::{Key, Mask, PortNo};
use nanos::Nanos;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;
use tunnel::neighbour::Heard;
use wire::{MacAddr, Vid};

/// A packet that no cached megaflow covers.
#[derive(Clone, Copy, Debug)]
pub struct Upcall<'a> {
    /// The packet's key, as the datapath extracted it.
    pub key: &'a Key,
    /// The packet's bytes from the Ethernet header on.
    pub packet: &'a [u8],
    /// The options of the tunnel that it came from: the key has a hash of them only.
    pub tunnel_options: &'a [u8],
}

impl<'a> Upcall<'a> {
    /// A packet without tunnel options.
    pub const fn new(key: &'a Key, packet: &'a [u8]) -> Upcall<'a> {
        Upcall {
            key,
            packet,
            tunnel_options: &[],
        }
    }
}

/// The answer to an upcall: what happens to the packet and to all packets like it.
#[derive(Clone, Debug)]
pub struct Translation {
    /// The actions; an empty list drops.
    pub actions: Arc<[Action]>,
    /// The bits of the key that the decision read: the megaflow.
    pub mask: Mask,
    /// The other dependencies of the decision: a [`Change`] of any of these makes the megaflow
    /// stale.
    pub deps: SmallVec<[Dep; 4]>,
    /// What the packet changes in the tables. The caller applies the effects. The datapath keeps
    /// them with the megaflow and reports them again while it carries traffic, so that learned
    /// stations do not age out.
    pub effects: SmallVec<[Effect; 2]>,
    /// The counters of this packet and of later packets of the megaflow: [`Slowpath::credit`].
    pub credits: SmallVec<[Credit; 4]>,
    /// Why `actions` is empty, where it is.
    pub drop: Option<DropCause>,
}

/// The answer to an upcall that must not wait.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The translation, for this packet and those like it.
    Cache(Translation),
    /// The translation for this packet only. It is stale already, it is too large to cache, or it
    /// drops the packet for lack of handles.
    Once(Translation),
    /// The translation takes long. The caller gets it by asking again within some milliseconds;
    /// later, the switch may have to translate again.
    Later,
    /// The translation takes long, and the port waits for too many such translations. The caller
    /// drops the packet under [`DropCause::UpcallBudget`].
    Refused,
    /// The tables are being changed and were locked for about 100 µs. Nothing has happened; the
    /// caller asks again.
    Busy,
}

/// A counter in the tables, by a number that the switch has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Credit(pub u128);

/// The packets that a megaflow has carried since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on.
    pub bytes: u64,
    /// When the last one came, by the clock of the datapath's calls.
    pub used: Nanos,
}

impl Carried {
    /// The sum of both.
    pub fn and(self, other: Carried) -> Carried {
        Carried {
            packets: self.packets.wrapping_add(other.packets),
            bytes: self.bytes.wrapping_add(other.bytes),
            used: self.used.max(other.used),
        }
    }
}

/// A change of the tables by a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The station `mac` was seen in `vlan` on a port of a bridge (IEEE 802.1Q §8.7).
    Learn {
        /// The bridge, by its number in the switch.
        bridge: u32,
        /// The VLAN of the learning table.
        vlan: Vid,
        /// The station.
        mac: MacAddr,
        /// The bridge's port, by its number in the bridge.
        port: u32,
    },
    /// A context of the switch, by its handle: a rule to add, say.
    Context(u32),
    /// A neighbour of a bridge that tunnels lead through has told its address.
    Heard {
        /// The bridge, by its number in the switch.
        bridge: u32,
        /// What it told.
        heard: Heard,
    },
    /// A tunnel needs the address of a neighbour of a bridge that it leads through.
    Resolve {
        /// The bridge, by its number in the switch.
        bridge: u32,
        /// The neighbour.
        address: IpAddr,
    },
}

/// The switch as datapaths see it. Workers call it in parallel.
pub trait Slowpath: Send + Sync {
    /// Translates a packet and applies its effects. Publishes the changes that these cause before
    /// it returns.
    fn upcall(&self, upcall: &Upcall<'_>, now: Nanos) -> Translation;

    /// As [`Slowpath::upcall`], for a worker, which must not wait because it has packets of other
    /// ports too. Another thread makes a translation that takes longer than a fraction of a
    /// millisecond. The default answers at once.
    fn try_upcall(&self, upcall: &Upcall<'_>, now: Nanos) -> Answer {
        Answer::Cache(self.upcall(upcall, now))
    }

    /// Effects of megaflows that carried packets since the last report.
    fn refresh(&self, effects: &[Effect], now: Nanos);

    /// What megaflows have carried since the last report, for each of their
    /// [`Translation::credits`]. The packet of an upcall is reported too. Reports come about once a
    /// second while there is traffic, when a megaflow is removed, and when [`Datapath::push_stats`]
    /// asks for them: code that expires rules asks first. The counter of a credit may be gone. The
    /// default counts nothing.
    ///
    /// [`Datapath::push_stats`]: crate::Datapath::push_stats
    fn credit(&self, credits: &[(Credit, Carried)], now: Nanos) {
        let _ = (credits, now);
    }

    /// A port's device has failed for good (the kernel removed it).
    fn port_failed(&self, port: PortNo);

    /// Takes a copy of a packet that an [`Action::Punt`] hands to the control plane. Must not wait.
    /// Returns `false` to refuse the packet for lack of room or of a receiver; the caller then
    /// counts it as dropped. The default refuses all.
    fn punt(&self, punt: &Punt<'_>, now: Nanos) -> bool {
        let _ = (punt, now);
        false
    }
}

impl Translation {
    /// Whether `change` may make this translation stale; of a region, whatever the packet.
    pub fn depends_on(&self, change: &Change) -> bool {
        match change {
            Change::All => true,
            Change::Dep(dep) | Change::Overlap(dep, _) => self.deps.contains(dep),
        }
    }

    /// Whether `change` makes this translation, of packets like `key`, stale.
    pub fn is_stale_for(&self, key: &Key, change: &Change) -> bool {
        let touched = match change {
            Change::Overlap(_, region) => region.mask.overlaps(&region.key, &self.mask, key),
            _ => true,
        };
        touched && self.depends_on(change)
    }
}
