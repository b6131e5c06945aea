//! The networks that Mininet makes itself, as testbeds to draw.

use crate::scenario::{Observe, Setup};
use crate::topology::{Address, Attachment, Bridge, Control, End, Host, Link, OVERHEAD, Port, Topology};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// More hosts than this are not drawn.
const HOSTS: usize = 16;

/// The network that a cell requests from Mininet, with Mininet's names and addresses. None without
/// a request, and if it cannot be drawn: switches not in a row, or too many hosts.
pub(crate) fn network(setup: &Setup) -> Option<Topology> {
    let asked = setup.observed.iter().find_map(|one| match &one.what {
        Observe::Mininet { topology, rate } => Some((topology, *rate)),
        _ => None,
    });
    let (topology, rate) = asked?;
    let mut words = topology.split(',');
    let kind = words.next()?;
    let mut sizes = words.map(|size| size.parse::<usize>().unwrap_or(usize::MAX));
    let mut size = |otherwise: usize| sizes.next().unwrap_or(otherwise);
    let mut network = Network {
        topology: Topology::default(),
        rate,
    };
    match kind {
        "minimal" => network.star(2)?,
        "single" | "reversed" => network.star(size(2))?,
        "linear" => network.row(size(2), size(1))?,
        "tree" => network.tree(size(1), size(2))?,
        _ => return None,
    }
    network.is_a_row().then_some(network.topology)
}

struct Network {
    topology: Topology,
    rate: Option<u64>,
}

impl Network {
    fn star(&mut self, hosts: usize) -> Option<()> {
        let switch = self.switch();
        (1..=hosts).try_for_each(|number| self.host(&format!("h{number}"), &switch))
    }

    /// Switches in a row, each with this many hosts.
    fn row(&mut self, switches: usize, hosts: usize) -> Option<()> {
        let mut before: Option<String> = None;
        for number in 1..=switches {
            let switch = self.switch();
            for host in 1..=hosts {
                let name = if hosts == 1 {
                    format!("h{number}")
                } else {
                    format!("h{host}s{number}")
                };
                self.host(&name, &switch)?;
            }
            if let Some(before) = before {
                self.link(&switch, &before);
            }
            before = Some(switch);
        }
        Some(())
    }

    /// A tree of switches with this fan-out and hosts at the bottom, in Mininet's order.
    fn tree(&mut self, depth: usize, fanout: usize) -> Option<()> {
        let root = self.switch();
        self.below(&root, depth, fanout)
    }

    fn below(&mut self, switch: &str, depth: usize, fanout: usize) -> Option<()> {
        for _ in 0..fanout {
            if depth <= 1 {
                let name = format!("h{}", self.topology.hosts.len() + 1);
                self.host(&name, switch)?;
            } else {
                let child = self.switch();
                self.link(switch, &child);
                self.below(&child, depth - 1, fanout)?;
            }
        }
        Some(())
    }

    fn switch(&mut self) -> String {
        let name = format!("s{}", self.topology.bridges.len() + 1);
        self.topology.bridges.push(Bridge {
            name: name.clone(),
            svis: Vec::new(),
            control: Control::Learning,
            tree: None,
            stateful: None,
            offload: true,
        });
        name
    }

    /// None: there are too many.
    fn host(&mut self, name: &str, at: &str) -> Option<()> {
        let number = self.topology.hosts.len() + 1;
        if number > HOSTS {
            return None;
        }
        self.topology.hosts.push(Host {
            name: name.to_owned(),
            attachment: Attachment::Container,
            // Mininet counts them through in 10.0.0.0/8.
            addresses: vec![Address {
                ip: Ipv4Addr::new(10, 0, 0, u8::try_from(number).ok()?),
                prefix: 8,
                vlan: None,
                ip6: None,
            }],
            gateway: None,
            forwards: false,
            tunnel: None,
        });
        self.link(name, at);
        Some(())
    }

    fn link(&mut self, a: &str, b: &str) {
        let end = |at: &str| End {
            at: at.to_owned(),
            port: Port::default(),
        };
        self.topology.links.push(Link {
            a: end(a),
            b: end(b),
            rate: self.rate,
            delay: 0,
            serial: false,
            queue: OVERHEAD,
        });
    }

    /// No switch has more than two others beside it.
    fn is_a_row(&self) -> bool {
        let is_bridge = |name: &str| self.topology.bridges.iter().any(|bridge| bridge.name == name);
        let mut beside: BTreeMap<&str, usize> = BTreeMap::new();
        for link in &self.topology.links {
            if is_bridge(&link.a.at) && is_bridge(&link.b.at) {
                *beside.entry(&link.a.at).or_default() += 1;
                *beside.entry(&link.b.at).or_default() += 1;
            }
        }
        beside.values().all(|beside| *beside <= 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Observation;

    fn names(topology: &str) -> Option<(String, String)> {
        let setup = Setup {
            observed: vec![Observation {
                name: "net".to_owned(),
                what: Observe::Mininet {
                    topology: topology.to_owned(),
                    rate: Some(1_000_000),
                },
            }],
            ..Setup::nothing()
        };
        let network = network(&setup)?;
        let hosts: Vec<&str> = network.hosts.iter().map(|host| host.name.as_str()).collect();
        let links: Vec<String> = network
            .links
            .iter()
            .map(|link| format!("{}-{}", link.a.at, link.b.at))
            .collect();
        Some((hosts.join(" "), links.join(" ")))
    }

    #[test]
    fn mininets_topologies_have_its_names_and_cables() {
        let known = |topology, hosts: &str, links: &str| {
            assert_eq!(
                names(topology),
                Some((hosts.to_owned(), links.to_owned())),
                "{topology}"
            );
        };
        known("minimal", "h1 h2", "h1-s1 h2-s1");
        known("single,3", "h1 h2 h3", "h1-s1 h2-s1 h3-s1");
        known("linear,2", "h1 h2", "h1-s1 h2-s2 s2-s1");
        known(
            "linear,2,2",
            "h1s1 h2s1 h1s2 h2s2",
            "h1s1-s1 h2s1-s1 h1s2-s2 h2s2-s2 s2-s1",
        );
        known("tree,2", "h1 h2 h3 h4", "s1-s2 h1-s2 h2-s2 s1-s3 h3-s3 h4-s3");
    }

    #[test]
    fn what_has_no_place_in_a_drawing_is_not_drawn() {
        for topology in [
            "tree,3",
            "torus,3,3",
            "single,40",
            "tree,2,3",
            "linear,99999999999999999999",
        ] {
            assert_eq!(names(topology), None, "{topology}");
        }
        assert_eq!(network(&Setup::nothing()), None);
    }
}
