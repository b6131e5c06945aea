//! The rules that a testbed and its traffic must keep, beside being well-formed.

use super::header::Header;
use super::node::{Fault, Node};
use super::read::{Values, used};
use super::setup::{Observe, Setup};
use super::{Figure, Pace, Scenario};
use crate::topology::{Address, End, Link, Port, Qos, QosKind, Topology};
use crate::traffic::{Flow, Streams, Test};
use std::collections::{BTreeMap, BTreeSet};

/// A cell's parts as they stand in the file, for the places of what is wrong.
pub(super) struct Filled {
    pub(super) host: Option<Node>,
    pub(super) bridge: Option<Node>,
    pub(super) link: Option<Node>,
    pub(super) background: Option<Node>,
    pub(super) measure: Option<Node>,
    pub(super) observe: Option<Node>,
    pub(super) openflow: Option<Node>,
}

struct Faults(Vec<Fault>);

impl Faults {
    fn say(&mut self, list: &Option<Node>, n: usize, path: &[&str], message: impl Into<String>) {
        let item = list.as_ref().and_then(Node::array).and_then(|items| items.get(n));
        let span = item.or(list.as_ref()).map_or(0..0, |node| node.place(path).clone());
        self.0.push(Fault::new(&span, message));
    }

    fn done(self) -> Result<(), Vec<Fault>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

/// What the file says of itself.
pub(super) fn header(header: &Header, dimensions: &[Values], places: &Node) -> Result<(), Vec<Fault>> {
    let mut faults = Vec::new();
    let mut say = |path: &[&str], message: String| faults.push(Fault::new(places.place(path), message));
    let id = |text: &str| {
        !text.is_empty() && text.len() <= 40 && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    if !id(&header.id) {
        say(&["id"], "an id is 1 to 40 letters, digits, '.', '-' and '_'".to_owned());
    }
    if header.id != header.study && !header.id.starts_with(&format!("{}.", header.study)) {
        say(
            &["id"],
            format!("the id must begin with the study's: {}.NAME", header.study),
        );
    }
    for (name, pace) in [("quick", &header.quick), ("full", &header.full)] {
        let Pace {
            repetitions,
            seconds,
            warmup,
            ..
        } = pace;
        if !(1..=10_000).contains(repetitions) {
            say(&[name, "repetitions"], "repetitions are 1 to 10 000".to_owned());
        }
        if !(*seconds > 0.0 && *seconds <= 86_400.0) {
            say(
                &[name, "seconds"],
                "what is measured takes more than 0 and at most 86 400 seconds".to_owned(),
            );
        }
        if !(0.0..=3600.0).contains(warmup) {
            say(&[name, "warmup"], "a warm-up takes 0 to 3600 seconds".to_owned());
        }
    }
    let mut names = BTreeSet::new();
    for metric in &header.metrics {
        if !names.insert(&metric.name) {
            say(&["metric"], format!("the metric '{}' stands twice", metric.name));
        }
        if !metric.scale.is_finite() {
            say(
                &["metric"],
                format!("the scale of '{}' is not a finite number", metric.name),
            );
        }
    }
    for figure in &header.figures {
        let (metrics, axes) = used(figure);
        for metric in metrics.into_iter().filter(|metric| !names.contains(metric)) {
            say(
                &["figure"],
                format!("a figure shows '{metric}', which is no [[metric]] of this file"),
            );
        }
        for axis in axes {
            if axis != "system" && dimensions.iter().all(|dimension| dimension.name != *axis) {
                say(&["figure"], format!("a figure uses '{axis}', which is not varied"));
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Whether what is shown can come out of any cell.
pub(super) fn results(scenario: &Scenario, places: &Node) -> Vec<Fault> {
    let mut measured = BTreeSet::new();
    for cell in scenario.quick.1.iter().chain(&scenario.full.1) {
        measured.extend(cell.setup.measured.iter().map(|flow| flow.name.as_str()));
        measured.extend(cell.setup.observed.iter().map(|observed| observed.name.as_str()));
    }
    let distributions = scenario.figures.iter().filter_map(|figure| match figure {
        Figure::Cdf { of, .. } | Figure::Matrix { of } => Some(of),
        _ => None,
    });
    let names = scenario.metrics.iter().map(|metric| &metric.name).chain(distributions);
    let unknown = names.filter(|name| !measured.contains(name.split('.').next().unwrap_or_default()));
    unknown
        .map(|name| {
            Fault::new(
                places.place(&["metric"]),
                format!("'{name}': nothing that is measured has this name"),
            )
        })
        .collect()
}

/// A cell.
pub(super) fn setup(setup: &Setup, filled: &Filled) -> Result<(), Vec<Fault>> {
    let mut faults = Faults(Vec::new());
    names(&setup.topology, filled, &mut faults);
    addresses(&setup.topology, filled, &mut faults);
    for (n, link) in setup.topology.links.iter().enumerate() {
        let mut say = |path: &[&str], message: String| faults.say(&filled.link, n, path, message);
        cable(&setup.topology, link, &mut say);
    }
    // What follows presupposes that ends are known.
    if faults.0.is_empty() {
        plugs(&setup.topology, filled, &mut faults);
        loops(&setup.topology, filled, &mut faults);
        flows(setup, filled, &mut faults);
        observations(setup, filled, &mut faults);
    }
    if let (Some(openflow), Some(node)) = (&setup.openflow, &filled.openflow) {
        if setup
            .topology
            .bridges
            .iter()
            .all(|bridge| bridge.name != openflow.bridge)
        {
            let message = format!("there is no bridge '{}'", openflow.bridge);
            faults.0.push(Fault::new(node.place(&["bridge"]), message));
        }
    }
    faults.done()
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 12 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn names(topology: &Topology, filled: &Filled, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    let hosts = topology.hosts.iter().map(|host| &host.name).enumerate();
    let bridges = topology.bridges.iter().map(|bridge| &bridge.name).enumerate();
    for (list, (n, name)) in hosts
        .map(|host| (&filled.host, host))
        .chain(bridges.map(|b| (&filled.bridge, b)))
    {
        if !is_name(name) {
            faults.say(
                list,
                n,
                &["name"],
                format!("'{name}' is no name: 1 to 12 letters, digits and '-'"),
            );
        }
        if !seen.insert(name) {
            faults.say(list, n, &["name"], format!("there are two of the name '{name}'"));
        }
    }
    if topology.hosts.is_empty() {
        faults.0.push(Fault::new(&(0..0), "there is no [[host]]"));
    }
}

fn addresses(topology: &Topology, filled: &Filled, faults: &mut Faults) {
    let mut seen = BTreeMap::new();
    let hosts = topology.hosts.iter().enumerate();
    let hosts = hosts.map(|(n, host)| (&filled.host, n, "address", &host.name, &host.addresses));
    let bridges = topology.bridges.iter().enumerate();
    let bridges = bridges.map(|(n, bridge)| (&filled.bridge, n, "svi", &bridge.name, &bridge.svis));
    for (list, n, key, owner, addresses) in hosts.chain(bridges) {
        let mut vlans = BTreeSet::new();
        for Address { ip, prefix, vlan } in addresses {
            if *prefix > 32 {
                faults.say(
                    list,
                    n,
                    &[key],
                    format!("{ip}: a prefix is 0 to 32 bits long, not {prefix}"),
                );
            }
            if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip.is_loopback() {
                faults.say(list, n, &[key], format!("{ip} is no address of a host"));
            }
            if let Some(vlan) = vlan {
                vid(*vlan, &mut |message| faults.say(list, n, &[key], message));
            }
            if !vlans.insert(vlan) {
                let where_ = vlan.map_or("untagged".to_owned(), |vlan| format!("in VLAN {vlan}"));
                faults.say(list, n, &[key], format!("'{owner}' has two addresses {where_}"));
            }
            if let Some(other) = seen.insert(*ip, owner.clone()) {
                faults.say(list, n, &[key], format!("'{other}' has the address {ip} already"));
            }
        }
    }
    for (n, host) in topology.hosts.iter().enumerate() {
        if host.addresses.is_empty() {
            faults.say(&filled.host, n, &["name"], format!("'{}' has no address", host.name));
        }
        if let Some(gateway) = host.gateway
            && !host.addresses.iter().any(|own| same_network(own, gateway))
        {
            faults.say(
                &filled.host,
                n,
                &["gateway"],
                format!("the gateway {gateway} is in none of the host's networks"),
            );
        }
    }
}

fn same_network(own: &Address, other: std::net::Ipv4Addr) -> bool {
    let mask = u32::MAX.checked_shl(32 - u32::from(own.prefix.min(32))).unwrap_or(0);
    own.ip.to_bits() & mask == other.to_bits() & mask
}

fn vid(vlan: u16, say: &mut dyn FnMut(String)) {
    if !(1..=4094).contains(&vlan) {
        say(format!("a VLAN is 1 to 4094, not {vlan}"));
    }
}

fn cable(topology: &Topology, link: &Link, say: &mut dyn FnMut(&[&str], String)) {
    let known = |name: &str| {
        topology.hosts.iter().any(|host| host.name == name) || topology.bridges.iter().any(|bridge| bridge.name == name)
    };
    for (side, end) in [("a", &link.a), ("b", &link.b)] {
        if !known(&end.at) {
            say(&[side, "at"], format!("there is no host and no bridge '{}'", end.at));
        }
        if topology.hosts.iter().any(|host| host.name == end.at) && end.port != Port::default() {
            say(
                &[side, "port"],
                format!("'{}' is a host: only a bridge's port has set-up", end.at),
            );
        }
        port(topology, &end.port, &mut |path, message| {
            let path: Vec<&str> = [side, "port"].into_iter().chain(path.iter().copied()).collect();
            say(&path, message);
        });
    }
    if link.a.at == link.b.at {
        say(&["b", "at"], format!("both ends are at '{}'", link.a.at));
    }
    if link.rate == Some(0) {
        say(&["rate"], "a cable's rate is more than 0 bit/s".to_owned());
    }
    if link.delay > 10_000_000 {
        say(&["delay"], "a cable's delay is at most 10 000 000 µs".to_owned());
    }
    if link.queue < 1514 {
        say(
            &["queue"],
            "a cable's queue holds at least one frame: 1514 bytes".to_owned(),
        );
    }
}

fn port(topology: &Topology, port: &Port, say: &mut dyn FnMut(&[&str], String)) {
    if let Some(vlan) = port.access {
        vid(vlan, &mut |message| say(&["access"], message));
    }
    for vlan in &port.trunk {
        vid(*vlan, &mut |message| say(&["trunk"], message));
    }
    if port.access.is_some() && !port.trunk.is_empty() {
        say(&["trunk"], "a port is an access port or a trunk, not both".to_owned());
    }
    if let Some(Qos {
        kind,
        rate,
        leaf,
        classes,
    }) = &port.qos
    {
        let shapes = matches!(kind, QosKind::Htb | QosKind::Hfsc);
        if !shapes && (rate.is_some() || !classes.is_empty() || leaf.is_some()) {
            say(&["qos"], "only HTB and HFSC have a rate, classes and leaves".to_owned());
        }
        if leaf.is_some_and(|leaf| matches!(leaf, QosKind::Htb | QosKind::Hfsc)) {
            say(&["qos", "leaf"], "a leaf is fifo, sfq, codel or fq_codel".to_owned());
        }
        if *rate == Some(0) {
            say(&["qos", "rate"], "a rate is more than 0 bit/s".to_owned());
        }
        for class in classes {
            if class.min == 0 || class.max.is_some_and(|max| max < class.min) {
                say(
                    &["qos", "class"],
                    "a class has a 'min' above 0 bit/s and no 'max' below it".to_owned(),
                );
            }
            for name in class.hosts.iter().filter(|name| topology.host(name).is_none()) {
                say(&["qos", "class"], format!("there is no host '{name}'"));
            }
        }
    }
    if port.policing.is_some_and(|policing| policing.rate == 0) {
        say(
            &["policing", "rate"],
            "a policer's rate is more than 0 kbit/s".to_owned(),
        );
    }
}

/// Each host has one cable, and cables between the same two bridges are a bond at both.
fn plugs(topology: &Topology, filled: &Filled, faults: &mut Faults) {
    for (n, host) in topology.hosts.iter().enumerate() {
        let plugged = topology
            .links
            .iter()
            .flat_map(|link| [&link.a, &link.b])
            .filter(|end| end.at == host.name);
        match plugged.count() {
            1 => {}
            0 => faults.say(
                &filled.host,
                n,
                &["name"],
                format!("no [[link]] is plugged into '{}'", host.name),
            ),
            _ => faults.say(
                &filled.host,
                n,
                &["name"],
                format!("'{}' has more than one cable", host.name),
            ),
        }
    }
    for (n, link) in topology.links.iter().enumerate() {
        for end in [&link.a, &link.b] {
            let Some(bond) = &end.port.bond else {
                continue;
            };
            if !is_name(&bond.name) {
                faults.say(
                    &filled.link,
                    n,
                    &[],
                    format!("'{}' is no name: 1 to 12 letters, digits and '-'", bond.name),
                );
            }
            let unlike = |other: &End| {
                let of_bond = other.port.bond.as_ref().filter(|b| b.name == bond.name);
                other.at == end.at && of_bond.is_some() && other.port != end.port
            };
            if topology.links.iter().any(|other| unlike(&other.a) || unlike(&other.b)) {
                let message = format!("the members of bond '{}' are not set up alike", bond.name);
                faults.say(&filled.link, n, &[], message);
            }
        }
    }
}

/// Bridges must not be joined in a circle; a bond counts as one cable.
fn loops(topology: &Topology, filled: &Filled, faults: &mut Faults) {
    let mut group: BTreeMap<&str, &str> = topology
        .bridges
        .iter()
        .map(|bridge| (bridge.name.as_str(), bridge.name.as_str()))
        .collect();
    let mut bonds = BTreeSet::new();
    for (n, link) in topology.links.iter().enumerate() {
        let (Some(a), Some(b)) = (group.get(link.a.at.as_str()), group.get(link.b.at.as_str())) else {
            continue;
        };
        let (a, b) = (*a, *b);
        let name = |end: &'_ End| end.port.bond.as_ref().map(|bond| bond.name.clone());
        if let (Some(at_a), Some(at_b)) = (name(&link.a), name(&link.b))
            && !bonds.insert((&link.a.at, at_a, &link.b.at, at_b))
        {
            continue;
        }
        if a == b {
            let message = format!("this joins '{}' and '{}' in a circle", link.a.at, link.b.at);
            faults.say(&filled.link, n, &[], message);
        }
        group.values_mut().filter(|of| **of == a).for_each(|of| *of = b);
    }
}

fn flows(setup: &Setup, filled: &Filled, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    let background = setup
        .background
        .iter()
        .enumerate()
        .map(|flow| (&filled.background, flow));
    let measured = setup.measured.iter().enumerate().map(|flow| (&filled.measure, flow));
    for (list, (n, flow)) in background.chain(measured) {
        let Flow { name, from, to, test } = flow;
        if name.is_empty() || name.contains('.') || name.len() > 40 {
            faults.say(
                list,
                n,
                &["name"],
                format!("'{name}' is no name of a flow: 1 to 40 characters without '.'"),
            );
        }
        if !seen.insert(name) {
            faults.say(list, n, &["name"], format!("there are two flows '{name}'"));
        }
        for (key, host) in [("from", from), ("to", to)] {
            if setup.topology.host(host).is_none() {
                faults.say(list, n, &[key], format!("there is no host '{host}'"));
            }
        }
        if from == to {
            faults.say(list, n, &["to"], format!("'{from}' sends to itself"));
        } else if setup.topology.host(from).is_some()
            && setup.topology.host(to).is_some()
            && !reaches(&setup.topology, from, to)
        {
            faults.say(list, n, &["to"], format!("no path leads from '{from}' to '{to}'"));
        }
        if let Some((key, message)) = test_fault(test) {
            faults.say(list, n, &[key], message);
        }
    }
    for (n, observation) in setup.observed.iter().enumerate() {
        if !seen.insert(&observation.name) {
            faults.say(
                &filled.observe,
                n,
                &["name"],
                format!("the name '{}' is taken", observation.name),
            );
        }
        if observation.name.is_empty() || observation.name.contains('.') {
            faults.say(
                &filled.observe,
                n,
                &["name"],
                "a name has at least one character and no '.'",
            );
        }
    }
    if setup.measured.is_empty() && setup.observed.is_empty() {
        let span = filled.measure.as_ref().map_or(0..0, |node| node.span.clone());
        faults
            .0
            .push(Fault::new(&span, "a cell has neither a [[measure]] nor an [[observe]]"));
    }
}

/// Through bridges, and hosts that route.
fn reaches(topology: &Topology, from: &str, to: &str) -> bool {
    let passes = |name: &str| name == from || topology.host(name).is_none_or(|host| host.forwards);
    let mut reached = BTreeSet::from([from]);
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        if !passes(at) {
            continue;
        }
        for link in &topology.links {
            for (near, far) in [(&link.a.at, &link.b.at), (&link.b.at, &link.a.at)] {
                if near == at && reached.insert(far) {
                    next.push(far);
                }
            }
        }
    }
    reached.contains(to)
}

fn test_fault(test: &Test) -> Option<(&'static str, String)> {
    let payload = |payload: u32| {
        let legal = (20..=65_507).contains(&payload);
        (!legal).then(|| {
            (
                "payload",
                format!("a datagram's payload is 20 to 65 507 bytes, not {payload}"),
            )
        })
    };
    match test {
        Test::Rtt { payload: bytes, .. } | Test::NewFlows { payload: bytes, .. } => payload(*bytes),
        Test::Cbr {
            payload: bytes, rate, ..
        } => payload(*bytes).or_else(|| (*rate == 0).then(|| ("rate", "a rate is more than 0 bit/s".to_owned()))),
        Test::TcpStream(streams)
        | Test::UdpStream(streams)
        | Test::TcpRr(streams)
        | Test::TcpCrr(streams)
        | Test::UdpRr(streams) => {
            let Streams {
                streams,
                message,
                buffer,
                ..
            } = streams;
            if !(1..=1000).contains(streams) {
                return Some(("streams", format!("streams are 1 to 1000, not {streams}")));
            }
            if *message == Some(0) {
                return Some(("message", "a message has at least 1 byte".to_owned()));
            }
            (*buffer == Some(0)).then(|| ("buffer", "a buffer has at least 1 byte".to_owned()))
        }
    }
}

fn observations(setup: &Setup, filled: &Filled, faults: &mut Faults) {
    for (n, observation) in setup.observed.iter().enumerate() {
        let mut say = |path: &[&str], message: String| faults.say(&filled.observe, n, path, message);
        let host = |name: &String, say: &mut dyn FnMut(&[&str], String), key: &str| {
            if setup.topology.host(name).is_none() {
                say(&[key], format!("there is no host '{name}'"));
            }
        };
        match &observation.what {
            Observe::Reachability { groups } => {
                groups.iter().flatten().for_each(|name| host(name, &mut say, "groups"));
                for (n, member) in setup.topology.hosts.iter().enumerate() {
                    let of = groups.iter().filter(|group| group.contains(&member.name)).count();
                    if of != 1 {
                        let _ = n;
                        say(
                            &["groups"],
                            format!("'{}' must be in one group, not in {of}", member.name),
                        );
                    }
                }
            }
            Observe::Broadcast { from, rate, payload } => {
                host(from, &mut say, "from");
                if *rate == 0 || !(20..=1472).contains(payload) {
                    say(
                        &["rate"],
                        "broadcasts have a rate above 0 a second and 20 to 1472 bytes".to_owned(),
                    );
                }
            }
            Observe::Capture { flow } => {
                if setup.measured.iter().all(|measured| measured.name != *flow) {
                    say(&["flow"], format!("no measured flow is '{flow}'"));
                }
            }
            Observe::Fairness { flows } => {
                for name in flows
                    .iter()
                    .filter(|name| setup.measured.iter().all(|flow| flow.name != **name))
                {
                    say(&["flows"], format!("no measured flow is '{name}'"));
                }
            }
            Observe::Cut { between, which, after } => {
                let (a, b) = between;
                let joins = |link: &&Link| (&link.a.at, &link.b.at) == (a, b) || (&link.a.at, &link.b.at) == (b, a);
                if setup.topology.links.iter().filter(joins).count() <= *which {
                    say(&["between"], format!("there is no such link between '{a}' and '{b}'"));
                }
                if !(0.0..=1.0).contains(after) {
                    say(&["after"], "'after' is a share of the measured time, 0 to 1".to_owned());
                }
            }
            Observe::FlowStatistics { every } | Observe::PortStatistics { every } => {
                if !(*every >= 0.001 && *every <= 3600.0) {
                    say(&["every"], "requests are 0.001 to 3600 seconds apart".to_owned());
                }
            }
            Observe::Capacity { at_most: rules, .. }
            | Observe::Addresses { at_most: rules }
            | Observe::Rules { rules } => {
                if *rules == 0 {
                    say(&[], "there is at least one rule".to_owned());
                }
            }
            Observe::PacketOut { payload } if !(20..=1472).contains(payload) => {
                say(&["payload"], "a packet-out has 20 to 1472 bytes of payload".to_owned());
            }
            Observe::Idle {} | Observe::Barrier {} | Observe::PacketIn {} | Observe::PacketOut { .. } => {}
        }
    }
}
