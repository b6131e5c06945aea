//! The plan of a topology on this machine: names of namespaces, hosts and cables, before they are
//! made.

use super::cable::{Cable, Plug, Rate, inner};
use super::guest::memory;
use super::host::{DEVICE, Host, UNDERLAY};
use super::names::{device, namespace};
use super::wire::{Side, Wire};
use crate::topology::{Control, Topology};
use anyhow::{Result, bail};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Plan {
    /// Where the bridges will be.
    pub(crate) switch: String,
    /// Where each bridge of a cluster will be instead.
    pub(crate) chassis: BTreeMap<String, String>,
    pub(crate) hosts: BTreeMap<String, Host>,
    pub(crate) cables: Vec<Cable>,
}

impl Plan {
    pub(crate) fn of(topology: &Topology, id: &str) -> Result<Plan> {
        let switch = namespace(id, "switch");
        let mut hosts = BTreeMap::new();
        for (i, host) in topology.hosts.iter().enumerate() {
            let made = Host {
                name: host.name.clone(),
                namespace: namespace(id, &format!("host-{}", host.name)),
                mac: address(1, i),
                guest: None,
                container: None,
            };
            if hosts.insert(host.name.clone(), made).is_some() {
                bail!("two hosts are named {}", host.name);
            }
        }
        let ovn = topology.bridges.iter().filter(|bridge| bridge.control == Control::Ovn);
        let chassis = ovn.map(|bridge| (bridge.name.clone(), namespace(id, &format!("chassis-{}", bridge.name))));
        let mut plan = Plan {
            switch,
            chassis: chassis.collect(),
            hosts,
            cables: Vec::new(),
        };
        for (i, link) in topology.links.iter().enumerate() {
            let (a, b) = (&link.a.at, &link.b.at);
            if a == b {
                bail!("a cable joins {a} to itself");
            }
            let ordinal = plan.cables.iter().filter(|other| other.joins(a, b)).count();
            let name = device(a, b, ordinal);
            if link.serial && link.rate.is_none() {
                bail!("the cable between {a} and {b} is serial, and has no rate");
            }
            let bare = link.rate.is_none() && link.delay == 0;
            let cable = Cable {
                namespace: (!bare).then(|| namespace(id, &format!("cable-{name}"))),
                a: plan.plug(topology, a, b, ordinal, 2 * i)?,
                b: plan.plug(topology, b, a, ordinal, 2 * i + 1)?,
                rate: Rate::of(link, topology),
                delay: link.delay,
                serial: link.serial,
                to_wire: None,
                name,
            };
            plan.cables.push(cable);
        }
        for host in &topology.hosts {
            let cables = plan
                .cables
                .iter()
                .filter(|c| c.a.at == host.name || c.b.at == host.name)
                .count();
            if cables > 1 {
                bail!("host {} has {cables} cables; a host can have one", host.name);
            }
        }
        let mut devices: Vec<_> = plan.cables.iter().flat_map(Cable::devices).collect();
        devices.sort_unstable();
        if let Some(twice) = devices.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("two devices would be named {}: choose shorter names", twice[0].1);
        }
        Ok(plan)
    }

    fn plug(&self, topology: &Topology, at: &str, to: &str, ordinal: usize, number: usize) -> Result<Plug> {
        if let Some(host) = self.hosts.get(at) {
            let (device, mac) = match topology.tunnel_ends(at) {
                None => (DEVICE, host.mac),
                Some(_) => (UNDERLAY, address(3, number)),
            };
            return Ok(Plug {
                at: at.to_owned(),
                namespace: host.namespace.clone(),
                device: device.to_owned(),
                mac,
                is_guest: topology
                    .hosts
                    .iter()
                    .any(|host| host.name == at && memory(host).is_some()),
                is_far: false,
                inner: inner(at),
            });
        }
        if !topology.bridges.iter().any(|bridge| bridge.name == at) {
            bail!("a cable leads to {at}, which is no host and no bridge");
        }
        Ok(Plug {
            at: at.to_owned(),
            namespace: self.chassis.get(at).unwrap_or(&self.switch).clone(),
            device: device(at, to, ordinal),
            mac: address(2, number),
            is_guest: false,
            is_far: false,
            inner: inner(at),
        })
    }

    /// Leaves what is on one of two machines. Rates and delays of cables between them are on the
    /// hosts' side.
    pub(crate) fn keep(&mut self, side: Side, wire: &Wire) -> Result<()> {
        let is_far = |at: &str| self.hosts.contains_key(at) == (side == Side::Switch);
        for (number, cable) in self.cables.iter_mut().enumerate() {
            cable.a.is_far = is_far(&cable.a.at);
            cable.b.is_far = is_far(&cable.b.at);
            if cable.a.is_far == cable.b.is_far {
                continue;
            }
            if side == Side::Switch {
                (cable.namespace, cable.rate, cable.delay, cable.serial) = (None, None, 0, false);
            }
            cable.to_wire = Some(wire.link(number, &cable.at_wire())?);
        }
        self.cables.retain(|cable| !(cable.a.is_far && cable.b.is_far));
        if side == Side::Switch {
            self.hosts.clear();
        }
        Ok(())
    }

    /// The namespaces in which switches run.
    pub(crate) fn of_switches(&self) -> impl Iterator<Item = &str> {
        [&self.switch]
            .into_iter()
            .chain(self.chassis.values())
            .map(String::as_str)
    }

    /// All namespaces, the switch's first.
    pub(crate) fn namespaces(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.of_switches().collect();
        all.extend(self.hosts.values().map(|host| host.namespace.as_str()));
        all.extend(self.cables.iter().filter_map(|cable| cable.namespace.as_deref()));
        all
    }
}

impl Cable {
    fn joins(&self, a: &str, b: &str) -> bool {
        (self.a.at == a && self.b.at == b) || (self.a.at == b && self.b.at == a)
    }
}

/// A locally administered address, the same in every run.
fn address(kind: u8, number: usize) -> [u8; 6] {
    let [.., high, low] = number.to_be_bytes();
    [2, 0, 0, kind, high, low.wrapping_add(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan> {
        Plan::of(&toml::from_str(text).unwrap(), "1-0")
    }

    #[test]
    fn names_tell_what_is_where() {
        let plan = plan(
            "host = [{ name = 'PC1', address = [] }]\nbridge = [{ name = 's1' }, { name = 's2' }]\n\
             link = [{ a = { at = 'PC1' }, b = { at = 's1' } }, { a = { at = 's1' }, b = { at = 's2' }, rate = 1000 },\n\
             { a = { at = 's2' }, b = { at = 's1' } }]",
        )
        .unwrap();
        let devices: Vec<String> = plan
            .cables
            .iter()
            .flat_map(Cable::devices)
            .map(|(namespace, device)| format!("{namespace}/{device}"))
            .collect();
        assert_eq!(
            devices,
            [
                "oxvs-lab-1-0-host-PC1/eth0",
                "oxvs-lab-1-0-switch/s1-PC1",
                "oxvs-lab-1-0-switch/s1-s2",
                "oxvs-lab-1-0-cable-s1-s2/to-s1",
                "oxvs-lab-1-0-switch/s2-s1",
                "oxvs-lab-1-0-cable-s1-s2/to-s2",
                "oxvs-lab-1-0-switch/s2-s1.2",
                "oxvs-lab-1-0-switch/s1-s2.2",
            ]
        );
    }

    #[test]
    fn two_machines_have_the_hosts_and_the_bridges_with_the_rates_on_the_hosts_side() {
        use crate::bed::wire::Tag;
        let text = "host = [{ name = 'A', address = [] }, { name = 'B', address = [] }, { name = 'C', address = [] }, { name = 'D', address = [] }]
             bridge = [{ name = 's1' }, { name = 's2' }]
             link = [{ a = { at = 's1' }, b = { at = 's2' }, delay = 5 }, { a = { at = 'A' }, b = { at = 's1' } },
                     { a = { at = 's2' }, b = { at = 'B' }, rate = 1000000 }, { a = { at = 'C' }, b = { at = 'D' } }]";
        let part = |side| {
            let mut plan = plan(text).unwrap();
            plan.keep(side, &Wire::new("w", Tag::Vlan, (None, None))).unwrap();
            plan
        };
        let lines = |plan: &Plan| -> Vec<String> { plan.cables.iter().filter_map(|c| c.to_wire.clone()).collect() };
        let hosts = part(Side::Hosts);
        assert_eq!(
            lines(&hosts),
            [
                "link add link w index 1001 name eth0 address 02:00:00:01:00:01 netns oxvs-lab-1-0-host-A mtu 1500 type vlan id 101",
                "link add link w name to-s2 netns oxvs-lab-1-0-cable-s2-B mtu 1500 type vlan id 102",
            ]
        );
        let made = |plan: &Plan| -> usize { plan.cables.iter().map(|cable| cable.links().len()).sum() };
        assert_eq!((hosts.cables.len(), hosts.hosts.len(), made(&hosts)), (3, 4, 2));
        let switch = part(Side::Switch);
        assert_eq!(
            lines(&switch),
            [
                "link add link w index 1004 name s1-A address 02:00:00:02:00:04 netns oxvs-lab-1-0-switch mtu 1500 type vlan id 101",
                "link add link w index 1005 name s2-B address 02:00:00:02:00:05 netns oxvs-lab-1-0-switch mtu 1500 type vlan id 102",
            ]
        );
        assert_eq!((switch.cables.len(), switch.hosts.len(), made(&switch)), (3, 0, 2));
        let names = switch.namespaces();
        assert_eq!(names, ["oxvs-lab-1-0-switch", "oxvs-lab-1-0-cable-s1-s2"]);
    }

    #[test]
    fn a_host_behind_a_tunnel_has_the_tunnels_end_where_others_have_the_cables() {
        let topology = toml::from_str(
            "host = [{ name = 'far', address = [{ ip = '10.0.0.1', prefix = 24 }], tunnel = { kind = 'geneve' } }]
             bridge = [{ name = 's1' }]\nlink = [{ a = { at = 'far' }, b = { at = 's1' } }]",
        );
        let topology: Topology = topology.unwrap();
        let plan = Plan::of(&topology, "1-0").unwrap();
        assert_eq!(plan.cables[0].a.device, "underlay0");
        assert_eq!(
            crate::bed::build::set_up(&topology.hosts[0], &topology, &plan),
            [
                "link set lo up",
                "addr add 198.18.0.1/30 dev underlay0",
                "link set underlay0 up",
                "link add eth0 address 02:00:00:01:00:01 type geneve id 1 remote 198.18.0.2",
                "link set eth0 mtu 1450",
                "link set eth0 up",
                "addr add 10.0.0.1/24 dev eth0",
            ]
        );
    }

    #[test]
    fn a_topology_that_cannot_be_is_refused_with_the_reason() {
        let refused = |text: &str| plan(text).unwrap_err().to_string();
        let host = "host = [{ name = 'h', address = [] }]\nbridge = [{ name = 's' }]\n";
        let link = |text: &str| refused(&format!("{host}link = [{text}]"));
        assert_eq!(
            link("{ a = { at = 'h' }, b = { at = 'x' } }"),
            "a cable leads to x, which is no host and no bridge"
        );
        assert_eq!(
            link("{ a = { at = 'h' }, b = { at = 'h' } }"),
            "a cable joins h to itself"
        );
        assert_eq!(
            link("{ a = { at = 'h' }, b = { at = 's' } }, { a = { at = 'h' }, b = { at = 's' } }"),
            "host h has 2 cables; a host can have one"
        );
    }
}
