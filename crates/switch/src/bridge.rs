//! A bridge: its ports, what it has learned.

use crate::dep::Read;
use crate::fdb::{Fdb, FdbStats, Kind, Learned, Outlook};
use crate::port::{Ingress, Port};
use crate::tables::{FlowTables, Hidden, Removed, TableEvent};
use crate::{FailMode, FragMode, PortFlags, VlanSet};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{MacAddr, Nanos, Vid};

/// A bridge's own settings, as far as translations read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) fail_mode: FailMode,
    pub(crate) flood_vlans: VlanSet,
    pub(crate) forward_bpdu: bool,
}

/// A bridge.
#[derive(Debug)]
pub struct Bridge {
    pub(crate) id: u32,
    pub(crate) settings: Settings,
    pub(crate) ports: BTreeMap<u32, Port>,
    pub(crate) port_ids: BTreeMap<String, u32>,
    pub(crate) next_port: u32,
    pub(crate) fdb: Fdb,
    pub(crate) tables: FlowTables,
    pub(crate) hidden: Hidden,
    /// Port and interface by OpenFlow port number.
    pub(crate) of_ports: BTreeMap<u32, (u32, usize)>,
    /// What becomes of fragments.
    pub(crate) frags: FragMode,
    /// What controllers have said of ports, by OpenFlow port number.
    pub(crate) port_flags: BTreeMap<u32, PortFlags>,
    /// Whether controllers get the packets that tables have no rules for (OpenFlow 1.0 §4.4).
    pub(crate) misses_to_controller: bool,
    /// Rules that went and that nobody has asked about.
    pub(crate) removed: Vec<Removed>,
    /// What else happened in the tables.
    pub(crate) events: Vec<TableEvent>,
}

/// An entry of a bridge's table of stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry<'a> {
    /// The port's name.
    pub port: &'a str,
    /// The OpenFlow port number of the port's first interface; `None` where it has none.
    pub ofport: Option<u16>,
    /// The VLAN.
    pub vlan: Vid,
    /// The station.
    pub mac: MacAddr,
    /// How long ago it was last seen; `None` for a static entry.
    pub age: Option<Duration>,
}

impl Bridge {
    /// The table of stations: static entries, then learned ones, the oldest first.
    pub fn entries(&self, now: Nanos) -> impl Iterator<Item = FdbEntry<'_>> {
        self.fdb.entries().filter_map(move |((vlan, mac), port, seen)| {
            let port = self.ports.get(&port)?;
            let age = seen.map(|seen| now.since(seen));
            Some(FdbEntry {
                port: &port.name,
                ofport: port.ofport,
                vlan,
                mac,
                age,
            })
        })
    }

    /// The OpenFlow tables.
    pub fn tables(&self) -> &FlowTables {
        &self.tables
    }

    /// What happened to the table of stations.
    pub fn fdb_stats(&self) -> FdbStats {
        self.fdb.stats()
    }

    /// Whether packets have to go through the tables. Where they need not, the tables would do no
    /// more than the fail mode says, and nothing that stands before them has a say: `NORMAL` itself
    /// sees to what is said of the ports that packets leave by.
    pub(crate) fn needs_tables(&self) -> bool {
        let refuses = |flags: &PortFlags| flags.no_recv || flags.no_recv_stp;
        !self.tables.is_builtin()
            || !self.hidden.is_empty()
            || self.misses_to_controller
            || self.frags == FragMode::Drop
            || self.port_flags.values().any(refuses)
    }

    /// The OpenFlow port number of an interface.
    pub(crate) fn number_of(&self, at: Ingress) -> Option<u32> {
        let port = self.ports.get(&at.port)?;
        Some(port.members.get(at.interface)?.number)
    }

    /// What controllers have said of a port.
    pub fn flags_of(&self, port: u32) -> PortFlags {
        self.port_flags.get(&port).copied().unwrap_or_default()
    }

    /// Whether a controller has said something of an interface of a port.
    pub(crate) fn is_flagged(&self, port: &Port, flag: impl Fn(PortFlags) -> bool) -> bool {
        let mut members = port.members.iter();
        !self.port_flags.is_empty() && members.any(|member| flag(self.flags_of(member.number)))
    }

    /// Whether the station may be learned there: otherwise the translation is older than the
    /// configuration.
    fn learns(&self, vlan: Vid, port: u32) -> bool {
        self.ports.contains_key(&port) && !self.settings.flood_vlans.contains(vlan)
    }

    /// What [`Bridge::learn`] would do; `None` where it would do nothing.
    pub(crate) fn outlook(&self, vlan: Vid, mac: MacAddr, port: u32, now: Nanos) -> Option<Outlook> {
        self.learns(vlan, port).then(|| self.fdb.outlook(vlan, mac, port, now))
    }

    /// Learns a station and appends what became stale. Returns what was ignored because the port
    /// has spent its budget.
    pub(crate) fn learn(
        &mut self,
        vlan: Vid,
        mac: MacAddr,
        port: u32,
        now: Nanos,
        stale: &mut Vec<Read>,
    ) -> Option<Kind> {
        if !self.learns(vlan, port) {
            return None;
        }
        match self.fdb.learn(vlan, mac, port, now) {
            Learned::Nothing => {}
            Learned::Ignored(kind) => return Some(kind),
            Learned::Moved => stale.extend(Read::moved(self.id, vlan, mac)),
            Learned::New { evicted } => {
                // The packets of one that made room need not come here again to teach its place:
                // with more stations than there is room for, all packets would. Their megaflows do
                // so as long as they carry any.
                let stations = [Some((vlan, mac)), evicted].into_iter().flatten();
                stale.extend(stations.map(|(vlan, mac)| Read::Station(self.id, vlan, mac)));
            }
        }
        None
    }
}
