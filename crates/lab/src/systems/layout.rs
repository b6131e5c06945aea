//! The part of a topology that a switch implements, with the bed's devices.

use super::kernel::{Part, lacks};
use crate::bed::Bed;
use crate::topology::{
    Address, Bond, Class, Control, Port, Stateful, TUNNEL_KEY, Topology, Tree, Tunnel, TunnelEnds, Underlay, ipsec,
};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The longest name of a network device.
const LONGEST: usize = 15;

/// All bridges of a testbed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) bridges: Vec<BridgeLayout>,
    /// Addresses of hosts.
    pub(crate) hosts: BTreeMap<String, Vec<Ipv4Addr>>,
}

/// A bridge with its ports.
#[derive(Clone, Debug)]
pub(crate) struct BridgeLayout {
    pub(crate) name: String,
    pub(crate) control: Control,
    /// Its spanning tree, with its priority: the first bridge is the root.
    pub(crate) tree: Option<(Tree, u16)>,
    pub(crate) stateful: Option<Stateful>,
    pub(crate) offload: bool,
    pub(crate) ports: Vec<PortLayout>,
    pub(crate) svis: Vec<Svi>,
    /// Of a chassis: the other one, and the device at the cable to it.
    pub(crate) other_chassis: Option<(String, String)>,
}

/// A port with a cable in it.
#[derive(Clone, Debug)]
pub(crate) struct PortLayout {
    /// The other end of the cable.
    pub(crate) to: String,
    /// The device: of a port with a tunnel, its end.
    pub(crate) device: String,
    pub(crate) port: Port,
    /// The tunnel that the other end is behind.
    pub(crate) tunnel: Option<TunnelLayout>,
}

/// A port's tunnel.
#[derive(Clone, Debug)]
pub(crate) struct TunnelLayout {
    pub(crate) tunnel: Tunnel,
    pub(crate) ends: TunnelEnds,
    /// The device at the cable.
    pub(crate) cable: String,
    /// The device that has the switch's address: the cable's, or that of the bridge whose port the
    /// cable's is.
    pub(crate) device: String,
}

impl TunnelLayout {
    /// Arguments of `ip` that encrypt the switch's end, each with those that undo it.
    pub(crate) fn protect(&self) -> Vec<[String; 2]> {
        match self.tunnel.ipsec {
            true => ipsec::protect(self.tunnel.kind, self.ends.switch, self.ends.host),
            false => Vec::new(),
        }
    }

    /// The devices and the keys of the tunnels that the host does not use.
    pub(crate) fn others(&self) -> impl Iterator<Item = (String, u32)> {
        let (first, number) = (self.first(), self.tunnel.number);
        (TUNNEL_KEY + 1..TUNNEL_KEY + number).map(move |key| (format!("{first}.{key}"), key))
    }

    /// The device of the tunnel that the host uses.
    fn first(&self) -> String {
        format!("{}{}", self.tunnel.kind.name(), self.ends.number)
    }
}

/// An interface of the switch itself in a VLAN.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Svi {
    /// None: without a VLAN.
    pub(crate) vlan: Option<u16>,
    /// Its device.
    pub(crate) device: String,
    pub(crate) addresses: Vec<Address>,
}

impl Layout {
    pub(crate) fn new(topology: &Topology, bed: &Bed) -> Result<Layout> {
        Layout::of(topology, &|bridge, to| {
            bed.port_devices(bridge, to).into_iter().map(str::to_owned).collect()
        })
    }

    /// `devices` gives the devices of a bridge's ports to a neighbour, in the order of the
    /// topology.
    pub(crate) fn of(topology: &Topology, devices: &dyn Fn(&str, &str) -> Vec<String>) -> Result<Layout> {
        let addresses = |host: &crate::topology::Host| host.addresses.iter().map(|address| address.ip).collect();
        let hosts = topology.hosts.iter().map(|host| (host.name.clone(), addresses(host)));
        let mut layout = Layout {
            hosts: hosts.collect(),
            ..Layout::default()
        };
        // Of the 16 priorities of the standards, beginning with the best.
        let priorities = (0..16).map(|number| 4096 * number).chain(std::iter::repeat(61_440));
        for (bridge, priority) in topology.bridges.iter().zip(priorities) {
            let mut ports: Vec<PortLayout> = Vec::new();
            let mut other_chassis = None;
            for link in &topology.links {
                for (end, other) in [(&link.a, &link.b), (&link.b, &link.a)] {
                    if end.at != bridge.name {
                        continue;
                    }
                    let nth = ports.iter().filter(|port| port.to == other.at).count();
                    let device = devices(&bridge.name, &other.at).into_iter().nth(nth);
                    let device = device
                        .with_context(|| format!("the testbed has no device for {} at {}", other.at, bridge.name))?;
                    if bridge.control == Control::Ovn && topology.host(&other.at).is_none() {
                        other_chassis = Some((other.at.clone(), device));
                        continue;
                    }
                    let tunnel = tunnel(topology, &other.at, &device);
                    ports.push(PortLayout {
                        to: other.at.clone(),
                        device: tunnel.as_ref().map_or(device, TunnelLayout::first),
                        port: end.port.clone(),
                        tunnel,
                    });
                }
            }
            layout.bridges.push(BridgeLayout {
                name: bridge.name.clone(),
                control: bridge.control,
                tree: bridge.tree.map(|tree| (tree, priority)),
                stateful: bridge.stateful.clone(),
                offload: bridge.offload,
                ports,
                svis: svis(&bridge.name, &bridge.svis),
                other_chassis,
            });
        }
        Ok(layout)
    }

    /// Whether the switch routes.
    pub(crate) fn routes(&self) -> bool {
        self.bridges.iter().any(|bridge| !bridge.svis.is_empty())
    }

    /// The device of the bond that a bridge's device is a member of.
    pub(crate) fn bond_of(&self, bridge: &str, device: &str) -> Result<String> {
        let bridge = self.bridges.iter().find(|known| known.name == bridge);
        let mut bonds = bridge.into_iter().flat_map(BridgeLayout::bonds);
        let bond = bonds.find(|(_, _, members)| members.iter().any(|member| member.device == device));
        let (name, ..) = bond.with_context(|| format!("{device} is no member of a bond"))?;
        Ok(name)
    }

    /// Every port, with its bridge.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (&BridgeLayout, &PortLayout)> {
        self.bridges
            .iter()
            .flat_map(|bridge| bridge.ports.iter().map(move |port| (bridge, port)))
    }

    /// The port to a neighbour.
    pub(crate) fn port(&self, bridge: &str, to: &str) -> Result<&PortLayout> {
        let mut ports = self.ports().filter(|(b, _)| b.name == bridge);
        let port = ports.find(|(_, port)| port.to == to).map(|(_, port)| port);
        port.with_context(|| format!("bridge {bridge} has no port to {to}"))
    }

    /// The place in results that a device stands for; none if it is neither a port nor the underlay
    /// of one.
    pub(crate) fn places(&self) -> BTreeMap<String, String> {
        let of_port = |(bridge, port): (&BridgeLayout, &PortLayout)| {
            let place = format!("{}:{}", bridge.name, port.to);
            let tunnel = port.tunnel.as_ref();
            let below = tunnel.map(|tunnel| [tunnel.cable.clone(), tunnel.device.clone()]);
            let devices = below.into_iter().flatten().chain([port.device.clone()]);
            devices.map(|device| (device, place.clone())).collect::<Vec<_>>()
        };
        let of_chassis = |bridge: &BridgeLayout| {
            let (other, device) = bridge.other_chassis.clone()?;
            Some((device, format!("{}:{other}", bridge.name)))
        };
        let chassis = self.bridges.iter().filter_map(of_chassis);
        self.ports().flat_map(of_port).chain(chassis).collect()
    }

    /// A layout of each bridge alone.
    pub(crate) fn of_each_bridge(&self) -> impl Iterator<Item = Layout> {
        self.bridges.iter().map(|bridge| Layout {
            bridges: vec![bridge.clone()],
            hosts: self.hosts.clone(),
        })
    }

    /// Ports with a tunnel.
    pub(crate) fn tunnels(&self) -> impl Iterator<Item = (&BridgeLayout, &PortLayout, &TunnelLayout)> {
        self.ports()
            .filter_map(|(bridge, port)| Some((bridge, port, port.tunnel.as_ref()?)))
    }

    /// Devices of the switch itself that packets pass.
    pub(crate) fn internal(&self) -> impl Iterator<Item = &str> {
        self.bridges
            .iter()
            .flat_map(|bridge| bridge.svis.iter().map(|svi| svi.device.as_str()))
    }
}

impl Layout {
    /// Addresses of a class's hosts.
    pub(crate) fn addresses(&self, class: &Class) -> Vec<Ipv4Addr> {
        let hosts = class.hosts.iter().filter_map(|host| self.hosts.get(host));
        hosts.flatten().copied().collect()
    }
}

impl BridgeLayout {
    /// Ports of several cables: the name, which no other bridge's has, and the members.
    pub(crate) fn bonds(&self) -> Vec<(String, &Bond, Vec<&PortLayout>)> {
        let mut bonds: Vec<(String, &Bond, Vec<&PortLayout>)> = Vec::new();
        for port in &self.ports {
            let Some(bond) = &port.port.bond else { continue };
            match bonds.iter_mut().find(|(_, other, _)| other.name == bond.name) {
                Some((_, _, members)) => members.push(port),
                None => bonds.push((fitting(&format!("{}-{}", self.name, bond.name)), bond, vec![port])),
            }
        }
        bonds
    }
}

/// The tunnel to a host; `cable`: the device at the switch's end of its cable.
fn tunnel(topology: &Topology, host: &str, cable: &str) -> Option<TunnelLayout> {
    let tunnel = topology.host(host)?.tunnel?;
    let ends = topology.tunnel_ends(host)?;
    Some(TunnelLayout {
        tunnel,
        ends,
        cable: cable.to_owned(),
        device: match tunnel.underlay {
            Underlay::Host => cable.to_owned(),
            Underlay::Native => format!("underlay{}", ends.number),
        },
    })
}

/// A device's name; the beginning of one that is too long.
fn fitting(name: &str) -> String {
    name.chars().take(LONGEST).collect()
}

/// Why no switch can be set up so in one namespace.
pub(crate) fn unfit(topology: &Topology) -> Option<String> {
    if topology.bridges.is_empty() {
        return None;
    }
    if let Some(bridge) = topology.bridges.iter().find(|bridge| bridge.name.len() > LONGEST) {
        return Some(format!(
            "the name of bridge {} is too long for a device: Linux allows {LONGEST} letters",
            bridge.name
        ));
    }
    let routers: Vec<&str> = topology
        .bridges
        .iter()
        .filter(|b| !b.svis.is_empty())
        .map(|b| b.name.as_str())
        .collect();
    if routers.len() > 1 {
        return Some(format!(
            "bridges {} would be one router: all bridges of a testbed share a network stack",
            routers.join(" and ")
        ));
    }
    tunnels(topology).or_else(|| classes(topology))
}

/// The ends of tunnels are devices of the kernel: of each host, and of some switches. The kernel
/// encrypts them.
fn tunnels(topology: &Topology) -> Option<String> {
    topology.hosts.iter().find_map(|host| {
        let tunnel = host.tunnel?;
        if let Some(reason) = lacks(Part::Tunnel(tunnel.kind)) {
            return Some(format!("host {} has a tunnel's device, and {reason}", host.name));
        }
        let reason = lacks(Part::Esp).filter(|_| tunnel.ipsec)?;
        Some(format!("the tunnel of host {} is encrypted, and {reason}", host.name))
    })
}

/// Packets are classified at ingress, once for all ports.
fn classes(topology: &Topology) -> Option<String> {
    for bridge in &topology.bridges {
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        let ends = topology.links.iter().flat_map(|link| [&link.a, &link.b]);
        let of_bridge = ends.filter(|end| end.at == bridge.name);
        for qos in of_bridge.filter_map(|end| end.port.qos.as_ref()) {
            let own = bridge.control == Control::Learning && bridge.stateful.is_none();
            if !qos.classes.is_empty() && !own {
                return Some(format!(
                    "bridge {} has classes, and rules that are not the switch's own",
                    bridge.name
                ));
            }
            for (number, class) in qos.classes.iter().enumerate() {
                for host in &class.hosts {
                    if *known.entry(host).or_insert(number) != number {
                        return Some(format!(
                            "host {host} is in different classes at two ports of bridge {}",
                            bridge.name
                        ));
                    }
                }
            }
        }
    }
    None
}

fn svis(bridge: &str, addresses: &[Address]) -> Vec<Svi> {
    let mut svis: Vec<Svi> = Vec::new();
    for address in addresses {
        match svis.iter_mut().find(|svi| svi.vlan == address.vlan) {
            Some(svi) => svi.addresses.push(address.clone()),
            None => svis.push(Svi {
                vlan: address.vlan,
                device: address
                    .vlan
                    .map_or_else(|| bridge.to_owned(), |vlan| format!("vlan{vlan}")),
                addresses: vec![address.clone()],
            }),
        }
    }
    svis
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two VLANs with a router between them, and a trunk to a second switch.
    pub(crate) const TWO_VLANS: &str = "
        host = [{ name = 'PC1', address = [{ ip = '10.0.0.1', prefix = 24 }] },
                { name = 'PC3', address = [{ ip = '20.0.0.1', prefix = 24 }] }]
        bridge = [{ name = 's1', svi = [{ ip = '10.0.0.254', prefix = 24, vlan = 10 }, { ip = '20.0.0.254', prefix = 24, vlan = 20 }] },
                  { name = 's2', control = 'rules' }]
        link = [{ a = { at = 'PC1' }, b = { at = 's1', port = { access = 10 } } },
                { a = { at = 's1', port = { trunk = [10, 20] } }, b = { at = 's2', port = { trunk = [10, 20] } } },
                { a = { at = 'PC3' }, b = { at = 's2', port = { access = 20, qos = { kind = 'htb', rate = 5000000 }, policing = { rate = 10240, burst = 1024 } } } }]";

    pub(crate) fn layout(text: &str) -> Layout {
        let topology: Topology = toml::from_str(text).unwrap();
        Layout::of(&topology, &|bridge, to| {
            vec![format!("{bridge}-{to}"), format!("{bridge}-{to}.2")]
        })
        .unwrap()
    }

    #[test]
    fn ports_have_the_devices_of_their_cables_and_svis_one_device_for_each_vlan() {
        let layout = layout(TWO_VLANS);
        let devices: Vec<&str> = layout.ports().map(|(_, port)| port.device.as_str()).collect();
        assert_eq!(devices, ["s1-PC1", "s1-s2", "s2-s1", "s2-PC3"]);
        assert_eq!(layout.internal().collect::<Vec<_>>(), ["vlan10", "vlan20"]);
        assert_eq!(layout.places()["s2-PC3"], "s2:PC3");
        assert_eq!(layout.port("s1", "s2").unwrap().port.trunk, [10, 20]);
        assert!(layout.port("s1", "PC3").is_err());
        assert!(layout.routes());
    }

    #[test]
    fn two_cables_between_two_bridges_are_two_ports() {
        let layout = layout(
            "bridge = [{ name = 's1' }, { name = 's2' }]
             link = [{ a = { at = 's1' }, b = { at = 's2' } }, { a = { at = 's2' }, b = { at = 's1' } }]",
        );
        let devices: Vec<&str> = layout.ports().map(|(_, port)| port.device.as_str()).collect();
        assert_eq!(devices, ["s1-s2", "s1-s2.2", "s2-s1", "s2-s1.2"]);
    }

    #[test]
    fn what_one_namespace_cannot_hold_is_told() {
        let reason = |text: &str| unfit(&toml::from_str(text).unwrap());
        assert_eq!(reason(TWO_VLANS), None);
        let svi = "svi = [{ ip = '10.0.0.254', prefix = 24 }]";
        let two = reason(&format!("bridge = [{{ name = 'a', {svi} }}, {{ name = 'b', {svi} }}]")).unwrap();
        assert!(two.contains("a and b"), "{two}");
        assert!(reason("bridge = [{ name = 'sixteen-letters-' }]").is_some());
    }

    #[test]
    fn members_of_a_bond_are_one_port_of_their_bridge() {
        let layout = layout(BONDED);
        let bonds = layout.bridges[0].bonds();
        assert_eq!(bonds.len(), 1);
        assert_eq!(bonds[0].0, "s1-bond0");
        let members: Vec<&str> = bonds[0].2.iter().map(|port| port.device.as_str()).collect();
        assert_eq!(members, ["s1-s2", "s1-s2.2"]);
        assert_eq!(layout.bridges[1].bonds()[0].0, "s2-bond0");
    }

    /// Two switches joined by a bond; two hosts with classes of their own at the port to a third.
    pub(crate) const BONDED: &str = "
        host = [{ name = 'bulk', address = [{ ip = '10.9.0.2', prefix = 24 }] },
                { name = 'voice', address = [{ ip = '10.9.0.1', prefix = 24 }] },
                { name = 'server', address = [{ ip = '10.9.0.9', prefix = 24 }] }]
        bridge = [{ name = 's1' }, { name = 's2' }]
        link = [{ a = { at = 'bulk' }, b = { at = 's1' } }, { a = { at = 'voice' }, b = { at = 's1' } },
                { a = { at = 'server' }, b = { at = 's2', port = { qos = { kind = 'htb', rate = 90000000, class = [
                    { min = 80000000, priority = 1, hosts = ['bulk'] }, { min = 10000000, max = 20000000, priority = 0, hosts = ['voice'] }] } } } },
                { a = { at = 's1', port = { bond = { name = 'bond0', mode = 'balance_slb' } } }, b = { at = 's2', port = { bond = { name = 'bond0', mode = 'balance_slb' } } } },
                { a = { at = 's1', port = { bond = { name = 'bond0', mode = 'balance_slb' } } }, b = { at = 's2', port = { bond = { name = 'bond0', mode = 'balance_slb' } } } }]";

    /// A host behind three VXLAN tunnels.
    pub(crate) const TUNNELLED: &str = "
        host = [{ name = 'near', address = [{ ip = '10.9.0.1', prefix = 24 }] },
                { name = 'far', address = [{ ip = '10.9.0.2', prefix = 24 }], tunnel = { kind = 'vxlan', number = 3 } }]
        bridge = [{ name = 's1' }]
        link = [{ a = { at = 'near' }, b = { at = 's1' } }, { a = { at = 'far' }, b = { at = 's1', port = { access = 7 } } }]";

    #[test]
    fn the_port_of_a_tunnel_is_its_end_and_its_cable_has_the_same_place() {
        let layout = layout(TUNNELLED);
        let devices: Vec<&str> = layout.ports().map(|(_, port)| port.device.as_str()).collect();
        assert_eq!(devices, ["s1-near", "vxlan2"]);
        let places = layout.places();
        assert_eq!(
            (places["vxlan2"].as_str(), places["s1-far"].as_str()),
            ("s1:far", "s1:far")
        );
        assert_eq!(places.len(), 3);
        let native = super::tests::layout(&TUNNELLED.replace("number = 3", "underlay = 'native'"));
        assert_eq!(native.places()["underlay2"], "s1:far");
    }

    #[test]
    fn a_host_has_one_class_at_a_bridge() {
        let reason = |text: &str| unfit(&toml::from_str(text).unwrap());
        assert_eq!(reason(BONDED), None);
        let other = BONDED.replace(
            "b = { at = 's1' } }, {",
            "b = { at = 's2', port = { qos = { kind = 'htb', class = [{ min = 9, hosts = ['voice'] }] } } } }, {",
        );
        assert!(reason(&other).unwrap().contains("host voice"), "{:?}", reason(&other));
    }
}
