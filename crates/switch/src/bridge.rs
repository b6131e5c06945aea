//! A bridge: its ports, tables and MAC learning table.

use crate::dep::Read;
use crate::export::{ExportConfig, Flows};
use crate::fdb::{Fdb, FdbStats, Kind, Learned, Outlook, Station};
use crate::mirror::{MirrorCounts, Mirrors};
use crate::multicast::{Multicast, SnoopingConfig};
use crate::port::{Ingress, Port};
use crate::security::Security;
use crate::storm::StormMeters;
use crate::tables::{FlowTables, Hidden, Removed, TableEvent};
use crate::{FailMode, FragMode, PortFlags, PortGuard, Punts, VlanSet};
use dp::PortNo;
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::{MacAddr, Vid};

/// The settings of a bridge that translations read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) fail_mode: FailMode,
    pub(crate) flood_vlans: VlanSet,
    pub(crate) forward_bpdu: bool,
    pub(crate) rstp: bool,
    pub(crate) snooping: Option<SnoopingConfig>,
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
    /// The sticky stations of ports, as configured.
    pub(crate) sticky: BTreeMap<u32, BTreeSet<Station>>,
    /// The meters of its ports' limits.
    pub(crate) storms: StormMeters,
    pub(crate) multicast: Multicast,
    pub(crate) tables: FlowTables,
    pub(crate) hidden: Hidden,
    /// Whether control protocols take frames of its ports, or a port does not forward or has
    /// guards or limits.
    pub(crate) controlled: bool,
    pub(crate) mirrors: Mirrors,
    /// What each mirror has copied, by [`MirrorConfig::id`](crate::MirrorConfig::id).
    pub(crate) mirror_counts: BTreeMap<u128, MirrorCounts>,
    /// The number of the last mirror.
    pub(crate) last_mirror: u32,
    /// What it exports, if anything.
    pub(crate) export: Option<ExportConfig>,
    /// The flows that NetFlow is told of.
    pub(crate) flows: Flows,
    /// Port and interface by OpenFlow port number.
    pub(crate) of_ports: BTreeMap<u32, (u32, usize)>,
    /// How tables treat fragments.
    pub(crate) frags: FragMode,
    /// The flags that controllers have set (port-mod), by OpenFlow port number.
    pub(crate) port_flags: BTreeMap<u32, PortFlags>,
    /// Whether controllers get table misses (OpenFlow 1.0 §4.4).
    pub(crate) misses_to_controller: bool,
    /// Removed rules, until [`Switch::take_removed`](crate::Switch::take_removed).
    pub(crate) removed: Vec<Removed>,
    /// Other events of the tables.
    pub(crate) events: Vec<TableEvent>,
}

/// An entry of a bridge's MAC learning table.
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
    /// Time since the station was last seen; `None` for a static entry.
    pub age: Option<Duration>,
}

impl Bridge {
    /// The MAC learning table: static entries, then learned ones, the oldest first.
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

    /// The name of the port that has this OpenFlow port number, which a bond has for each member.
    pub fn port_of(&self, number: u32) -> Option<&str> {
        let (port, _) = self.of_ports.get(&number)?;
        Some(&self.ports.get(port)?.name)
    }

    /// The OpenFlow tables.
    pub fn tables(&self) -> &FlowTables {
        &self.tables
    }

    /// Statistics of the MAC learning table.
    pub fn fdb_stats(&self) -> FdbStats {
        self.fdb.stats()
    }

    /// Notes whether control protocols or guards have a part in the bridge, after its ports have
    /// changed.
    pub(crate) fn note_control(&mut self, stale: &mut Vec<Read>) {
        let mut members = self.ports.values().flat_map(|port| &port.members);
        let controlled = members.any(|member| {
            let link = member.link;
            member.punts != Punts::default() || !link.learn || !link.forward
        });
        let mut ports = self.ports.values();
        let guarded =
            |port: &Port| port.guard != PortGuard::default() || port.shut.is_some() || port.storm != [None; 3];
        let controlled = controlled || ports.any(guarded);
        if controlled != self.controlled {
            self.controlled = controlled;
            stale.push(Read::Bridge(self.id));
        }
    }

    /// Whether packets must go through the tables. If not, the tables do only what the fail mode
    /// says, and neither hidden rules, mirrors, exports, control protocols nor port flags come
    /// before them. NORMAL itself respects the flags of egress ports.
    pub(crate) fn needs_tables(&self) -> bool {
        let refuses = |flags: &PortFlags| flags.no_recv || flags.no_recv_stp;
        !self.tables.is_builtin()
            || !self.hidden.is_empty()
            || self.controlled
            || !self.mirrors.is_empty()
            || self.export.is_some()
            || self.misses_to_controller
            || self.frags == FragMode::Drop
            || self.port_flags.values().any(refuses)
    }

    /// Whether it has mirrors. Captures are mirrors too.
    pub fn has_mirrors(&self) -> bool {
        !self.mirrors.is_empty()
    }

    /// What a mirror has copied since the configuration has it.
    pub fn mirror_counts(&self, id: u128) -> Option<MirrorCounts> {
        self.mirror_counts.get(&id).copied()
    }

    pub(crate) fn credit_mirror(&mut self, mirror: u32, packets: u64, bytes: u64) {
        if let Some(counts) = self.mirror_counts.values_mut().find(|counts| counts.number == mirror) {
            counts.packets += packets;
            counts.bytes += bytes;
        }
    }

    /// The datapath port of an OpenFlow port.
    pub(crate) fn device_of(&self, number: u32) -> Option<PortNo> {
        let (port, interface) = self.of_ports.get(&number)?;
        let member = self.ports.get(port)?.members.get(*interface)?;
        let tunnel = member.tunnel.as_ref().map(|tunnel| PortNo(tunnel.datapath_port));
        tunnel.or_else(|| member.egress.device())
    }

    /// The OpenFlow port number of an interface.
    pub(crate) fn number_of(&self, at: Ingress) -> Option<u32> {
        let port = self.ports.get(&at.port)?;
        Some(port.members.get(at.interface)?.number)
    }

    /// The flags that controllers have set for a port.
    pub fn flags_of(&self, port: u32) -> PortFlags {
        self.port_flags.get(&port).copied().unwrap_or_default()
    }

    /// Whether a controller has set a flag for an interface of a port.
    pub(crate) fn is_flagged(&self, port: &Port, flag: impl Fn(PortFlags) -> bool) -> bool {
        let mut members = port.members.iter();
        !self.port_flags.is_empty() && members.any(|member| flag(self.flags_of(member.number)))
    }

    /// Whether a station may be learned there. If not, the translation is older than the
    /// configuration.
    fn learns(&self, vlan: Vid, port: u32) -> bool {
        self.ports.contains_key(&port) && !self.settings.flood_vlans.contains(vlan)
    }

    /// What [`Bridge::learn`] would do; `None` where it would do nothing.
    pub(crate) fn outlook(&self, vlan: Vid, mac: MacAddr, port: u32, now: Nanos) -> Option<Outlook> {
        let outlook = self.learns(vlan, port).then(|| self.fdb.outlook(vlan, mac, port, now));
        match outlook {
            // That changes the port.
            Some(Outlook::Refused) if self.would_shut(port) => Some(Outlook::Learns),
            outlook => outlook,
        }
    }

    /// Learns a station and appends what became stale, and what port security has done. Returns
    /// what was not learned because the port has spent its budget.
    pub(crate) fn learn(
        &mut self,
        vlan: Vid,
        mac: MacAddr,
        port: u32,
        now: Nanos,
        stale: &mut Vec<Read>,
        secured: &mut Vec<(u32, u32, Station, Security)>,
    ) -> Option<Kind> {
        if !self.learns(vlan, port) {
            return None;
        }
        let learned = self.fdb.learn(vlan, mac, port, now);
        if matches!(learned, Learned::New { .. } | Learned::Moved) && self.fdb.is_sticky(vlan, mac) {
            secured.push((self.id, port, (vlan, mac), Security::Sticky));
            // At other ports it is refused from now on.
            stale.extend(Read::moved(self.id, vlan, mac));
        }
        match learned {
            Learned::Nothing => {}
            Learned::Refused => {
                // Two translations may have seen room for one station.
                stale.push(Read::Source(self.id, vlan, mac));
                if self.would_shut(port) {
                    self.set_shut(port, Some((vlan, mac)), stale);
                    secured.push((self.id, port, (vlan, mac), Security::Shut));
                }
            }
            Learned::Ignored(kind) => return Some(kind),
            Learned::Moved => stale.extend(Read::moved(self.id, vlan, mac)),
            Learned::New { evicted } => {
                // The megaflows of an evicted station stay, and learn it again while they carry
                // packets. With more stations than entries, all packets would be translated
                // otherwise.
                let stations = [Some((vlan, mac)), evicted].into_iter().flatten();
                stale.extend(stations.map(|(vlan, mac)| Read::Station(self.id, vlan, mac)));
            }
        }
        None
    }
}
