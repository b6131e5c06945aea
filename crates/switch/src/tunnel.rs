//! What the switch knows of tunnels: their ports, and the networks that lead to their other ends.

use crate::Switch;
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::Ingress;
use dp::{Change, Key, PortNo, Sequence};
use flow::{Field, Tunnel};
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use tunnel::format::{Format, SourcePorts};
use tunnel::neighbour::{self, BridgeName, Heard, Request, Resolution};
use tunnel::path_mtu::{self, NotTooBig, TooBig};
use tunnel::route;
use tunnel::vport::{IpsecPeer, Listener, Received, Table, Vport};
use wire::MacAddr;

/// The networks that lead to the other ends of tunnels.
#[derive(Clone, Debug, Default)]
pub struct Underlay {
    /// The routes.
    pub routes: Arc<route::Table>,
    /// The bridges whose local port has an address, by name.
    pub bridges: BTreeMap<String, UnderlayBridge>,
    /// The datapath ports of tunnels whose packets the host's stack carries where no bridge of ours
    /// leads to the other end.
    pub host: BTreeSet<PortNo>,
    /// The longest packets that devices of routes take, in bytes from the IP header on, by name.
    pub mtus: BTreeMap<String, u16>,
    /// The other ends of tunnels with IPsec that the host's stack exchanges no unencrypted packets
    /// with: these tunnels may forward, others with IPsec not.
    pub encrypted: BTreeSet<IpsecPeer>,
}

/// How packets get to the other end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way<'a> {
    /// Through a bridge of this switch, which has this name.
    Native(&'a str, &'a UnderlayBridge),
    /// By the host's stack.
    Host,
}

/// What tunnels learn of their underlay, and users may set.
#[derive(Debug, Default)]
pub struct TunnelTables {
    /// The Ethernet addresses of neighbours behind bridges.
    pub neighbours: neighbour::Table,
    /// The largest packets that reach a destination.
    pub path_mtus: path_mtu::Table,
    /// The UDP source ports of packets that tunnels send.
    pub source_ports: SourcePorts,
}

impl TunnelTables {
    /// What grows or differs with every change of what translations read.
    fn version(&self) -> (u64, SourcePorts) {
        (self.neighbours.neighbours().version(), self.source_ports)
    }
}

impl Underlay {
    /// The way to the other end of a tunnel, and the next hop; `source` is the outer source address
    /// if it does not depend on the way. With IPsec it is always the host's stack, which alone
    /// encrypts; where the route leads through a bridge, so do its packets.
    pub fn way(
        &self,
        vport: &Vport,
        remote: IpAddr,
        mark: u32,
        source: Option<IpAddr>,
    ) -> Option<(Way<'_>, &route::Hop)> {
        let device = PortNo(vport.datapath_port);
        let route = self.routes.way(remote, mark, source)?;
        let hop = &route.hop;
        let bridge = self.bridges.get_key_value(&hop.device);
        let way = match bridge.filter(|_| !vport.config.ipsec) {
            Some((name, bridge)) => Way::Native(name, bridge),
            // Packets to this host itself would come back.
            None if matches!(route.origin, route::Origin::Cached { local: true }) => return None,
            None if self.host.contains(&device) => Way::Host,
            None => return None,
        };
        // As of the host's stack, no packet has another's address.
        let is_own = |source: IpAddr| match way {
            Way::Native(_, bridge) => bridge.addresses.contains(&source) || self.routes.is_local(source),
            // Of IPv6 the host's stack takes any (`netdev::HostTunnel`).
            Way::Host => source.is_ipv4() || self.routes.is_local(source),
        };
        if !source.is_none_or(is_own) {
            return None;
        }
        Some((way, hop))
    }

    /// Whether the tunnel may forward: it has no IPsec, or no packet of it is unencrypted.
    pub fn permits(&self, vport: &Vport) -> bool {
        let config = &vport.config;
        let is_encrypted = |peer| self.encrypted.contains(&peer);
        !config.ipsec || config.ipsec_peer().is_some_and(is_encrypted)
    }

    /// The source address of a request for a neighbour of a bridge: that of the route to it, or one
    /// of the same family.
    pub fn source_for(&self, bridge: &UnderlayBridge, neighbour: IpAddr) -> Option<IpAddr> {
        let of_route = self.routes.way(neighbour, 0, None).map(|route| route.hop.source);
        let own = |address: &IpAddr| bridge.addresses.contains(address);
        let first = || {
            let mut own = bridge.addresses.iter();
            own.find(|own| own.is_ipv4() == neighbour.is_ipv4()).copied()
        };
        of_route.filter(own).or_else(first)
    }
}

/// A bridge that packets of tunnels leave by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderlayBridge {
    /// The datapath port of its local port.
    pub local: PortNo,
    /// The Ethernet address of its local port.
    pub mac: MacAddr,
    /// The addresses of its local port.
    pub addresses: Vec<IpAddr>,
}

/// What a tunnel, without outer headers, or an end of a patch has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Packets received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
}

impl PortCounts {
    /// Counts packets that were sent, or received.
    pub(crate) fn add(&mut self, sent: bool, packets: u64, bytes: u64) {
        let (all_packets, all_bytes) = match sent {
            true => (&mut self.tx_packets, &mut self.tx_bytes),
            false => (&mut self.rx_packets, &mut self.rx_bytes),
        };
        *all_packets += packets;
        *all_bytes += bytes;
    }
}

/// Tunnels of a switch.
#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    ports: Table<Ingress>,
    /// What receives tunnels' packets, by datapath port.
    listeners: BTreeMap<PortNo, Listener>,
    /// The sequence numbers of tunnels that have them.
    sequences: BTreeMap<Ingress, Sequence>,
    counts: BTreeMap<Ingress, PortCounts>,
    /// Tunnels that are refused because another one has the same configuration, and why.
    refused: BTreeMap<Ingress, String>,
    /// The other ends of tunnels with IPsec.
    ipsec_peers: BTreeSet<IpsecPeer>,
    pub(crate) underlay: Underlay,
    /// The bridge of an underlay by the datapath port of its local port.
    locals: BTreeMap<PortNo, String>,
    pub(crate) tables: TunnelTables,
    requests: Vec<Request>,
}

impl Tunnels {
    /// Takes over the tunnels of all bridges.
    pub(crate) fn set_ports(
        &mut self,
        bridges: &BTreeMap<u32, Bridge>,
        attachments: &BTreeMap<PortNo, Ingress>,
        stale: &mut Vec<Read>,
    ) {
        let mut ports = Table::default();
        let mut refused = BTreeMap::new();
        for bridge in bridges.values() {
            for (id, port) in &bridge.ports {
                for (interface, member) in port.members.iter().enumerate() {
                    let Some(vport) = &member.tunnel else { continue };
                    let at = Ingress {
                        bridge: bridge.id,
                        port: *id,
                        interface,
                    };
                    if let Err(why) = ports.set(at, Vport::clone(vport)) {
                        refused.insert(at, why.to_string());
                    }
                }
            }
        }
        self.refused = refused;
        if ports.ports().eq(self.ports.ports()) {
            return;
        }
        let devices =
            |table: &Table<Ingress>| -> BTreeSet<u32> { table.ports().map(|(_, vport)| vport.datapath_port).collect() };
        let devices: BTreeSet<u32> = devices(&ports).union(&devices(&self.ports)).copied().collect();
        stale.extend(devices.into_iter().map(|device| Read::Attachment(PortNo(device))));
        // Packets to the switch itself may be a tunnel's now, or not any more.
        stale.push(Read::Underlay);
        let ends = self
            .underlay
            .bridges
            .values()
            .filter_map(|own| attachments.get(&own.local));
        stale.extend(ends.map(|at| Read::Bridge(at.bridge)));
        self.sequences.retain(|at, _| ports.get(*at).is_some());
        self.counts.retain(|at, _| ports.get(*at).is_some());
        for (at, vport) in ports.ports() {
            if vport.config.has_sequence() {
                self.sequences.entry(at).or_default();
            }
        }
        let listeners = ports.listeners().into_iter();
        self.listeners = listeners.map(|own| (PortNo(own.datapath_port), own)).collect();
        let peers = ports.ports().filter_map(|(_, vport)| vport.config.ipsec_peer());
        self.ipsec_peers = peers.collect();
        self.ports = ports;
    }

    /// Forgets the neighbours of a bridge that is gone; whether there were any.
    pub(crate) fn forget_bridge(&mut self, name: &str) -> bool {
        !self.tables.neighbours.flush_bridge(BridgeName::new(name)).is_empty()
    }

    /// Whether a datapath port is one of tunnels.
    pub(crate) fn is_device(&self, device: PortNo) -> bool {
        self.listeners.contains_key(&device)
    }

    /// The place of a packet that a tunnel's datapath port has decapsulated.
    pub(crate) fn find(&self, key: &Key) -> Option<Ingress> {
        let (src, dst) = key.tunnel_addresses()?;
        self.ports.find(&Received {
            datapath_port: key.in_port().0,
            src,
            dst,
            id: key.get(Field::TunId) as u64,
            ethernet: key.get(Field::TunFlags) as u16 & Tunnel::NO_ETHERNET == 0,
        })
    }

    /// When [`Switch::age_tunnel_tables`] is due.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        let (neighbours, path_mtus) = (&self.tables.neighbours, &self.tables.path_mtus);
        [neighbours.next_event(), path_mtus.next_event()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn ports(&self) -> &Table<Ingress> {
        &self.ports
    }

    pub(crate) fn sequence(&self, at: Ingress) -> Option<Sequence> {
        self.sequences.get(&at).cloned()
    }

    /// Counts packets of a tunnel.
    pub(crate) fn credit(&mut self, at: Ingress, sent: bool, packets: u64, bytes: u64) {
        if self.ports.get(at).is_none() {
            return;
        }
        self.counts.entry(at).or_default().add(sent, packets, bytes);
    }

    /// The bridge of an underlay whose local port a datapath port is, if tunnels may end there.
    pub(crate) fn ends_at(&self, local: PortNo) -> Option<&UnderlayBridge> {
        if self.listeners.is_empty() {
            return None;
        }
        self.underlay.bridges.get(self.locals.get(&local)?)
    }

    /// What receives packets of an IP protocol, and of UDP to a port.
    pub(crate) fn listener(&self, protocol: u8, port: u16) -> Option<(PortNo, Format)> {
        let found = self
            .listeners
            .iter()
            .find(|(_, own)| own.takes(protocol) && own.port == port);
        found.map(|(device, own)| (*device, own.format))
    }

    /// Whether there are tunnels with IPsec that have a fixed other end.
    pub(crate) fn have_ipsec(&self) -> bool {
        !self.ipsec_peers.is_empty()
    }

    /// Whether packets of an IP protocol, and of UDP to a port, have to be encrypted if they come
    /// from this address.
    pub(crate) fn must_be_encrypted(&self, address: IpAddr, protocol: u8, port: u16) -> bool {
        self.ipsec_peers.contains(&IpsecPeer {
            address,
            protocol,
            port,
        })
    }

    /// Whether there is something that receives packets of an IP protocol, and whether it needs the
    /// UDP port.
    pub(crate) fn receives_protocol(&self, protocol: u8) -> Option<bool> {
        let mut own = self.listeners.values().filter(|own| own.takes(protocol));
        own.next().map(|own| own.port != 0)
    }

    /// The Ethernet address of a neighbour.
    pub(crate) fn mac_of(&self, bridge: BridgeName, address: IpAddr) -> Option<MacAddr> {
        self.tables.neighbours.neighbours().get(bridge, address)
    }
}

impl Switch {
    /// Sets the networks that lead to tunnels' other ends. Returns what became stale.
    pub fn set_underlay(&mut self, underlay: Underlay) -> Vec<Change> {
        let tunnels = &mut self.tunnels;
        let same_routes = underlay.routes.generation() == tunnels.underlay.routes.generation();
        let same_bridges = underlay.bridges == tunnels.underlay.bridges;
        let before = &tunnels.underlay;
        let same_host =
            underlay.host == before.host && underlay.mtus == before.mtus && underlay.encrypted == before.encrypted;
        if same_routes && same_bridges && same_host {
            return Vec::new();
        }
        let mut stale = vec![Read::Underlay];
        if !same_bridges {
            // Packets to these bridges may end tunnels now, or not any more.
            let names = underlay.bridges.keys().chain(tunnels.underlay.bridges.keys());
            let ids = names.filter_map(|name| self.bridge_ids.get(name));
            stale.extend(ids.map(|id| Read::Bridge(*id)));
        }
        let bridges = underlay.bridges.iter();
        tunnels.locals = bridges.map(|(name, own)| (own.local, name.clone())).collect();
        tunnels.underlay = underlay;
        self.changes(stale)
    }

    /// The tunnels that are refused because another one has the same configuration, by the name of
    /// the interface, and why.
    pub fn refused_tunnels(&self) -> Vec<(String, String)> {
        let refused = self.tunnels.refused.iter().filter_map(|(at, why)| {
            let port = self.bridges.get(&at.bridge)?.ports.get(&at.port)?;
            let name = port.members.get(at.interface)?.tunnel.as_ref()?.name.clone();
            Some((name, why.clone()))
        });
        refused.collect()
    }

    /// What each tunnel and each end of a patch has carried, by the name of its interface; tunnels
    /// that have carried nothing may be missing.
    pub fn port_counts(&self) -> BTreeMap<&str, PortCounts> {
        let tunnels = self.tunnels.counts.iter();
        let tunnels = tunnels.filter_map(|(at, counts)| Some((&*self.tunnels.ports.get(*at)?.name, *counts)));
        let patches = self.patches.values().map(|(name, counts)| (name.as_str(), *counts));
        tunnels.chain(patches).collect()
    }

    /// What the tunnel or the end of a patch has carried that is this interface.
    pub fn counts_of_port(&self, interface: &str) -> PortCounts {
        let mut patches = self.patches.values();
        if let Some((_, counts)) = patches.find(|(name, _)| name == interface) {
            return *counts;
        }
        let ports = &self.tunnels.ports;
        let has_name = |at: &Ingress| ports.get(*at).is_some_and(|port| *port.name == *interface);
        let found = self.tunnels.counts.iter().find(|(at, _)| has_name(at));
        found.map(|(_, counts)| *counts).unwrap_or_default()
    }

    /// The lines of `ofproto/list-tunnels`.
    pub fn list_tunnels(&self) -> Vec<String> {
        self.tunnels.ports.list()
    }

    /// The datapath ports that receive tunnels' packets, by number.
    pub fn tunnel_listeners(&self) -> impl Iterator<Item = &Listener> {
        self.tunnels.listeners.values()
    }

    /// The networks that lead to tunnels' other ends.
    pub fn underlay(&self) -> &Underlay {
        &self.tunnels.underlay
    }

    /// What tunnels have learned of their underlay.
    pub fn tunnel_tables(&self) -> &TunnelTables {
        &self.tunnels.tables
    }

    /// Changes what tunnels know of their underlay. Returns what became stale.
    pub fn change_tunnel_tables<T>(&mut self, change: impl FnOnce(&mut TunnelTables) -> T) -> (T, Vec<Change>) {
        let before = self.tunnels.tables.version();
        let done = change(&mut self.tunnels.tables);
        let changed = self.tunnels.tables.version() != before;
        (done, self.changes(changed.then_some(Read::Underlay)))
    }

    /// What [`learn_path_mtu`](Switch::learn_path_mtu) is to learn from an ICMP error, from its IP
    /// header on, if a tunnel can have sent the packet that it is about.
    ///
    /// # Errors
    /// [`NotTooBig`]; the error is to be ignored.
    pub fn path_mtu_told(&self, packet: &[u8]) -> Result<(IpAddr, u16), NotTooBig> {
        let error = TooBig::parse(packet)?;
        let ports = self.tunnels.tables.source_ports;
        let sent = |(_, vport): (Ingress, &Vport)| path_mtu::sent(&vport.config, ports, &error.quoted);
        let destination = self.tunnels.ports.ports().find_map(sent);
        Ok((destination.ok_or(NotTooBig::NotOurs)?, error.mtu))
    }

    /// Learns that packets to `destination` must not be longer than `mtu`. Returns what became
    /// stale.
    pub fn learn_path_mtu(&mut self, destination: IpAddr, mtu: u16, now: Nanos) -> Vec<Change> {
        let changed = self.tunnels.tables.path_mtus.learn(destination, mtu, now);
        self.changes(changed.into_iter().map(Read::PathMtu))
    }

    /// Forgets the largest packets to all destinations. Returns what became stale.
    pub fn flush_path_mtus(&mut self) -> Vec<Change> {
        let changed = self.tunnels.tables.path_mtus.flush();
        self.changes(changed.into_iter().map(Read::PathMtu))
    }

    /// Requests for the addresses of neighbours that are to be sent.
    pub fn take_neighbour_requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.tunnels.requests)
    }

    /// The name of a bridge, as neighbours know it.
    fn name_of(&self, bridge: u32) -> Option<BridgeName> {
        let mut names = self.bridge_ids.iter().filter(|(_, id)| **id == bridge);
        names.next().map(|(name, _)| BridgeName::new(name))
    }

    /// Learns the address of a neighbour.
    pub(crate) fn hear(&mut self, bridge: u32, heard: &Heard, now: Nanos, stale: &mut Vec<Read>) {
        let Some(name) = self.name_of(bridge) else { return };
        let tunnels = &mut self.tunnels;
        let Some(own) = tunnels.underlay.bridges.get(name.as_str()) else {
            return;
        };
        if tunnels.tables.neighbours.learn(name, heard, &own.addresses, now) == Ok(true) {
            stale.push(Read::Neighbour(bridge, heard.address));
        }
    }

    /// Whether [`Switch::hear`] would change nothing that translations depend on.
    pub(crate) fn has_heard(&self, bridge: u32, heard: &Heard) -> bool {
        let name = self.name_of(bridge);
        name.is_none_or(|name| self.tunnels.mac_of(name, heard.address) == Some(heard.mac))
    }

    /// Notes that a tunnel needs a neighbour, or has sent packets to it.
    pub(crate) fn resolve(&mut self, bridge: u32, address: IpAddr, now: Nanos) {
        let Some(name) = self.name_of(bridge) else { return };
        let tunnels = &mut self.tunnels;
        let request = match tunnels.tables.neighbours.resolve(name, address, now) {
            Resolution::Known(_) => tunnels.tables.neighbours.used(name, address, now),
            Resolution::Ask(request) => Some(request),
            Resolution::Wait | Resolution::Never => None,
        };
        tunnels.requests.extend(request);
    }

    /// Whether [`Switch::resolve`] would not ask for the neighbour.
    pub(crate) fn is_resolved(&self, bridge: u32, address: IpAddr) -> bool {
        let name = self.name_of(bridge);
        name.is_none_or(|name| self.tunnels.mac_of(name, address).is_some())
    }

    /// Removes neighbours and path MTUs that are too old.
    pub(crate) fn age_tunnel_tables(&mut self, now: Nanos, stale: &mut Vec<Read>) {
        let forgotten = self.tunnels.tables.path_mtus.tick(now);
        stale.extend(forgotten.into_iter().map(Read::PathMtu));
        for (bridge, address) in self.tunnels.tables.neighbours.tick(now) {
            let ids = self.bridge_ids.iter();
            let ids = ids.filter(|(name, _)| BridgeName::new(name) == bridge);
            stale.extend(ids.map(|(_, id)| Read::Neighbour(*id, address)));
        }
    }
}
