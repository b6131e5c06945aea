//! Applies a configuration, and returns what became stale.
//!
//! Bridges and ports keep their numbers while their names are in the configuration. Numbers are
//! never reused, so an effect from before a change finds either the same port or none.

use crate::bridge::{Bridge, Settings};
use crate::dep::Read;
use crate::export::{ExportConfig, Flows};
use crate::fdb::Fdb;
use crate::mirror::{MirrorCounts, Mirrors};
use crate::multicast::Multicast;
use crate::port::{Egress, Ingress, Member, Port};
use crate::storm::StormMeters;
use crate::switch::Switch;
use crate::tables::tags::PortVlans;
use crate::tables::{FlowTables, Hidden};
use crate::tunnel::PortCounts;
use crate::{Attach, BridgeConfig, FragMode, InterfaceConfig, LinkState, MirrorConfig, PortConfig, SwitchConfig};
use conntrack::PolicyId;
use dp::{Change, PortNo};
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Legal values of `mac-aging-time`.
const AGING: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(3600));
/// Legal values of `mac-table-size`.
const TABLE_SIZE: (usize, usize) = (10, 1_000_000);

impl Switch {
    /// Applies `config`. Stations on ports that stay and keep their VLANs stay learned. Returns
    /// what became stale: nothing if nothing changed.
    pub fn configure(&mut self, config: SwitchConfig, now: Nanos) -> Vec<Change> {
        let mut stale = Vec::new();
        self.remove_bridges(&config, &mut stale);
        self.number(&config, now);
        let interfaces = Interfaces::new(self, &config);

        let mut attachments = BTreeMap::new();
        self.marks.clear();
        for (name, bridge_config) in &config.bridges {
            let id = self.bridge_ids[name];
            let Some(bridge) = self.bridges.get_mut(&id) else {
                continue;
            };
            let numbered = bridge_config
                .ports
                .iter()
                .map(|(name, port)| (bridge.port_ids[name], port));
            bridge.storms.follow(
                numbered,
                &mut self.port_meter_numbers,
                &mut self.new_meters,
                &mut self.dead_meters,
            );
            let mut ports = BTreeMap::new();
            for (port_name, port_config) in &bridge_config.ports {
                let port = bridge.port_ids[port_name];
                let storm = bridge.storms.of_port(port);
                ports.insert(port, interfaces.port(port_name, port_config, storm));
                for (interface, attach) in port_config.interfaces.iter().map(|i| &i.attach).enumerate() {
                    if let Attach::Device(device) = attach {
                        if !port_config.dscp.is_empty() {
                            self.marks.insert(*device, port_config.dscp.clone());
                        }
                        attachments.insert(
                            *device,
                            Ingress {
                                bridge: id,
                                port,
                                interface,
                            },
                        );
                    }
                }
            }
            bridge.set_ports(ports, &mut stale);
            bridge.set_sticky(bridge_config, &mut stale);
            bridge.set_settings(bridge_config, now, &mut stale);
            bridge.set_mirrors(&bridge_config.mirrors, &mut stale);
            bridge.set_export(&bridge_config.export, &mut stale);
        }

        let devices = self.attachments.keys().chain(attachments.keys());
        let changed: Vec<PortNo> = devices
            .copied()
            .filter(|device| self.attachments.get(device) != attachments.get(device))
            .collect();
        stale.extend(changed.into_iter().map(Read::Attachment));
        self.attachments = attachments;
        self.tunnels.set_ports(&self.bridges, &self.attachments, &mut stale);
        let before = std::mem::take(&mut self.patches);
        let counts = |at, name: &str| match before.get(&at) {
            Some((old, counts)) if old == name => *counts,
            _ => PortCounts::default(),
        };
        let patches = interfaces.patches();
        self.patches = patches
            .map(|(at, name)| (at, (name.to_owned(), counts(at, name))))
            .collect();

        self.set_timeout_policies(config.timeout_policies, &mut stale);

        let vlan_limit = config.vlan_limit.clamp(1, 2);
        if vlan_limit != self.vlan_limit {
            self.vlan_limit = vlan_limit;
            return vec![Change::All];
        }
        self.changes(stale)
    }

    fn set_timeout_policies(&mut self, policies: BTreeMap<u16, PolicyId>, stale: &mut Vec<Read>) {
        let zones = self.timeout_policies.keys().chain(policies.keys());
        let changed = zones.filter(|zone| self.timeout_policies.get(zone) != policies.get(zone));
        stale.extend(changed.copied().map(Read::TimeoutPolicy));
        self.timeout_policies = policies;
    }

    fn remove_bridges(&mut self, config: &SwitchConfig, stale: &mut Vec<Read>) {
        self.bridge_ids.retain(|name, id| {
            let stays = config.bridges.contains_key(name);
            if !stays {
                if let Some(mut bridge) = self.bridges.remove(id) {
                    self.dead_meters.extend(bridge.tables.forget_meters());
                    self.dead_meters.extend(bridge.storms.forget());
                }
                stale.push(Read::Bridge(*id));
                if self.tunnels.forget_bridge(name) {
                    stale.push(Read::Underlay);
                }
            }
            stays
        });
    }

    /// Gives numbers to new bridges and ports. Removed ports keep theirs until
    /// [`Bridge::set_ports`].
    fn number(&mut self, config: &SwitchConfig, now: Nanos) {
        for (name, bridge_config) in &config.bridges {
            let id = *self.bridge_ids.entry(name.clone()).or_insert_with(|| {
                self.next_bridge += 1;
                self.next_bridge
            });
            let seed = flow::mix(self.seed, id.into());
            let bridge = self.bridges.entry(id).or_insert_with(|| Bridge {
                id,
                settings: Settings::new(bridge_config),
                ports: BTreeMap::new(),
                port_ids: BTreeMap::new(),
                next_port: 0,
                fdb: Fdb::new(seed),
                sticky: BTreeMap::new(),
                storms: StormMeters::default(),
                multicast: Multicast::default(),
                tables: FlowTables::new(bridge_config.fail_mode, flow::mix(seed, 1), now),
                hidden: Hidden::default(),
                controlled: false,
                mirrors: Mirrors::default(),
                mirror_counts: BTreeMap::new(),
                last_mirror: 0,
                export: None,
                flows: Flows::default(),
                of_ports: BTreeMap::new(),
                frags: FragMode::Normal,
                port_flags: BTreeMap::new(),
                misses_to_controller: false,
                removed: Vec::new(),
                events: Vec::new(),
            });
            for port in bridge_config.ports.keys() {
                if !bridge.port_ids.contains_key(port) {
                    bridge.next_port += 1;
                    bridge.port_ids.insert(port.clone(), bridge.next_port);
                }
            }
        }
    }
}

impl Settings {
    fn new(config: &BridgeConfig) -> Settings {
        Settings {
            fail_mode: config.fail_mode,
            flood_vlans: config.flood_vlans.clone(),
            forward_bpdu: config.forward_bpdu,
            rstp: config.rstp,
            snooping: config.snooping,
        }
    }
}

impl Bridge {
    fn set_ports(&mut self, ports: BTreeMap<u32, Port>, stale: &mut Vec<Read>) {
        let before = stale.len();
        let old = std::mem::replace(&mut self.ports, ports);
        for (id, port) in &mut self.ports {
            if let Some(old) = old.get(id)
                && port.interfaces > 1
            {
                // The control plane looks at the bond next.
                port.bond.clone_from(&old.bond);
                port.loads.clone_from(&old.loads);
                port.settle();
            }
        }
        for (id, port) in &mut self.ports {
            let old = old.get(id).filter(|old| old.mac_limit == port.mac_limit);
            if let Some(old) = old.filter(|old| old.shut.is_some()) {
                port.shut = old.shut;
                port.settle();
            }
        }
        self.set_limits(&old, stale);
        for (id, port) in &old {
            match self.ports.get(id) {
                Some(new) if new == port => {}
                Some(new) => {
                    stale.push(Read::Port(self.id, *id));
                    if new.vlans != port.vlans || new.egress == Egress::None {
                        self.fdb.flush(Some(*id));
                    }
                }
                None => {
                    stale.push(Read::Port(self.id, *id));
                    self.fdb.forget_port(*id);
                }
            }
        }
        let added = self.ports.keys().any(|id| !old.contains_key(id));
        if added || stale.len() > before {
            stale.push(Read::Flood(self.id));
        }
        self.of_ports.clear();
        for (id, port) in &self.ports {
            let members = port.members.iter().enumerate();
            self.of_ports
                .extend(members.map(|(at, member)| (member.number, (*id, at))));
        }
        self.note_control(stale);
        let ports = &self.ports;
        self.port_ids.retain(|_, id| ports.contains_key(id));
    }

    /// Applies new links of interfaces, by their OpenFlow port numbers.
    pub(crate) fn set_links(&mut self, links: &[(u32, LinkState)], stale: &mut Vec<Read>) {
        let mut changed = BTreeSet::new();
        for (number, link) in links {
            let Some((port, interface)) = self.of_ports.get(number) else {
                continue;
            };
            let member = self
                .ports
                .get_mut(port)
                .and_then(|port| port.members.get_mut(*interface));
            let Some(member) = member else { continue };
            // A patch port has its link by its peer.
            let link = match member.wired {
                Egress::Device(_) | Egress::Bond { .. } | Egress::Tunnel(_) => *link,
                Egress::Patch(_) | Egress::None => LinkState { up: true, ..*link },
            };
            if member.link != link {
                member.link = link;
                changed.insert(*port);
            }
        }
        for id in &changed {
            if let Some(port) = self.ports.get_mut(id) {
                port.settle();
                if port.egress == Egress::None {
                    self.fdb.flush(Some(*id));
                }
            }
            stale.push(Read::Port(self.id, *id));
        }
        if !changed.is_empty() {
            stale.push(Read::Flood(self.id));
            self.note_control(stale);
        }
    }

    /// A port that becomes a mirror's output has no stations any more.
    fn set_mirrors(&mut self, configs: &[MirrorConfig], stale: &mut Vec<Read>) {
        let (counts, last, ids) = (&mut self.mirror_counts, &mut self.last_mirror, &self.port_ids);
        counts.retain(|id, _| configs.iter().any(|config| config.id == *id));
        let number = |id| {
            let counts = counts.entry(id).or_insert_with(|| {
                *last += 1;
                MirrorCounts {
                    number: *last,
                    ..MirrorCounts::default()
                }
            });
            counts.number
        };
        let mirrors = Mirrors::new(configs, &self.ports, |name| ids.get(name).copied(), number);
        if mirrors != self.mirrors {
            let new = mirrors.outputs().filter(|port| !self.mirrors.is_output(*port));
            new.for_each(|port| _ = self.fdb.flush(Some(port)));
            self.mirrors = mirrors;
            stale.push(Read::Bridge(self.id));
        }
    }

    fn set_export(&mut self, config: &ExportConfig, stale: &mut Vec<Read>) {
        let export = (!config.is_none()).then(|| config.clone());
        if export != self.export {
            self.export = export;
            stale.push(Read::Bridge(self.id));
        }
    }

    fn set_settings(&mut self, config: &BridgeConfig, now: Nanos, stale: &mut Vec<Read>) {
        let settings = Settings::new(config);
        let mut changed = settings != self.settings;
        if settings.flood_vlans != self.settings.flood_vlans {
            self.fdb.flush(None);
        }
        if settings.fail_mode != self.settings.fail_mode {
            // As Open vSwitch: a change of the fail mode deletes the rules.
            self.tables = self.tables.renewed(settings.fail_mode, now);
        }
        self.settings = settings;
        self.fdb.set_aging(config.mac_aging.clamp(AGING.0, AGING.1));
        changed |= self
            .fdb
            .set_max(config.mac_table_size.clamp(TABLE_SIZE.0, TABLE_SIZE.1));
        if changed {
            stale.push(Read::Bridge(self.id));
        }
    }
}

/// The place of each interface, to find the peers of patch ports.
struct Interfaces<'a>(HashMap<&'a str, (Ingress, &'a Attach)>);

impl<'a> Interfaces<'a> {
    fn new(switch: &Switch, config: &'a SwitchConfig) -> Interfaces<'a> {
        let mut interfaces = HashMap::new();
        for (name, bridge_config) in &config.bridges {
            let bridge = switch.bridge_ids[name];
            for (port_name, port_config) in &bridge_config.ports {
                let port = switch.bridges[&bridge].port_ids[port_name];
                for (interface, config) in port_config.interfaces.iter().enumerate() {
                    let at = Ingress {
                        bridge,
                        port,
                        interface,
                    };
                    interfaces.insert(config.name.as_str(), (at, &config.attach));
                }
            }
        }
        Interfaces(interfaces)
    }

    /// The ends of patches with another end.
    fn patches(&self) -> impl Iterator<Item = (Ingress, &str)> {
        let is_patch = |name: &&str, attach: &Attach| match attach {
            Attach::Patch { peer } => self.peer(name, peer).is_some(),
            Attach::Device(_) | Attach::Tunnel(_) => false,
        };
        let all = self.0.iter().filter(move |(name, (_, attach))| is_patch(name, attach));
        all.map(|(name, (at, _))| (*at, *name))
    }

    /// The other end of a patch, if each end names the other.
    fn peer(&self, name: &str, peer: &str) -> Option<Ingress> {
        match self.0.get(peer)? {
            (at, Attach::Patch { peer: back }) if back == name && peer != name => Some(*at),
            _ => None,
        }
    }

    fn port(&self, name: &str, config: &PortConfig, storm: [Option<u32>; 3]) -> Port {
        let member = |interface: &InterfaceConfig| {
            let (wired, up) = match &interface.attach {
                Attach::Device(device) => (Egress::Device(*device), interface.link.up),
                Attach::Patch { peer } => {
                    let peer = self.peer(&interface.name, peer);
                    (peer.map_or(Egress::None, Egress::Patch), true)
                }
                Attach::Tunnel(_) => {
                    let own = self.0.get(interface.name.as_str());
                    (
                        own.map_or(Egress::None, |(at, _)| Egress::Tunnel(*at)),
                        interface.link.up,
                    )
                }
            };
            let tunnel = match &interface.attach {
                Attach::Tunnel(vport) => Some(vport.clone()),
                Attach::Device(_) | Attach::Patch { .. } => None,
            };
            Member {
                number: flow::port_from_of10(interface.ofport),
                wired,
                link: LinkState { up, ..interface.link },
                punts: interface.punts,
                egress: Egress::None,
                live: false,
                tunnel,
            }
        };
        let members: Vec<Member> = config.interfaces.iter().map(member).collect();
        let mut port = Port {
            name: name.to_owned(),
            ofport: config.interfaces.first().map(|interface| interface.ofport),
            vlans: PortVlans::new(config),
            protected: config.protected,
            no_flood: config.no_flood,
            no_normal: config.no_normal,
            mcast_flood: config.mcast_flood,
            mcast_flood_reports: config.mcast_flood_reports,
            guard: config.guard.clone(),
            mac_limit: config.mac_limit,
            shut: None,
            storm,
            dscp: config.dscp.clone(),
            egress: Egress::None,
            active: 0,
            interfaces: members.len(),
            members,
            bond: None,
            loads: Vec::new(),
        };
        port.settle();
        port
    }
}
