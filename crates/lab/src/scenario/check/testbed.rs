//! Rules of a testbed.

use super::{Faults, Filled, is_name};
use crate::topology::{Address, Control, End, Link, Port, Qos, QosKind, Stateful, Topology, UNDERLAYS, Underlay};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

pub(super) fn names(topology: &Topology, filled: &Filled, faults: &mut Faults) {
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
}

pub(super) fn addresses(topology: &Topology, filled: &Filled, faults: &mut Faults) {
    let mut seen = BTreeMap::new();
    let hosts = topology.hosts.iter().enumerate();
    let hosts = hosts.map(|(n, host)| (&filled.host, n, "address", &host.name, &host.addresses));
    let bridges = topology.bridges.iter().enumerate();
    let bridges = bridges.map(|(n, bridge)| (&filled.bridge, n, "svi", &bridge.name, &bridge.svis));
    for (list, n, key, owner, addresses) in hosts.chain(bridges) {
        let mut vlans: BTreeMap<Option<u16>, &Address> = BTreeMap::new();
        for address in addresses {
            let Address { ip, prefix, vlan, ip6 } = address;
            if ip6.is_some() && key == "svi" {
                faults.say(list, n, &[key], "only a host has IPv6 addresses".to_owned());
            }
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
            let first = *vlans.entry(*vlan).or_insert(address);
            if first.prefix != *prefix || !same_network(first, *ip) {
                let where_ = vlan.map_or("untagged".to_owned(), |vlan| format!("in VLAN {vlan}"));
                faults.say(
                    list,
                    n,
                    &[key],
                    format!("'{owner}' has addresses of two networks {where_}"),
                );
            }
            if let Some(other) = seen.insert(*ip, owner.clone()) {
                faults.say(list, n, &[key], format!("'{other}' has the address {ip} already"));
            }
        }
    }
    for (n, host) in topology.hosts.iter().enumerate() {
        if let Some(memory) = host.attachment.memory()
            && !(64..=65_536).contains(&memory)
        {
            let message = format!("a guest's memory is 64 to 65 536 MiB, not {memory}");
            faults.say(&filled.host, n, &["attachment"], message);
        }
        let has_ip6 = host.addresses.iter().any(|address| address.ip6.is_some());
        if has_ip6 && host.attachment.is_guest() {
            let message = format!("'{}' is a guest, which has no IPv6", host.name);
            faults.say(&filled.host, n, &["address"], message);
        }
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

pub(super) fn cable(topology: &Topology, link: &Link, say: &mut dyn FnMut(&[&str], String)) {
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
    if port.speed == Some(0) {
        say(&["speed"], "a speed is more than 0 bit/s".to_owned());
    }
    if let Some(Qos {
        kind,
        rate,
        leaf,
        limit,
        classes,
    }) = &port.qos
    {
        let shapes = matches!(kind, QosKind::Htb | QosKind::Hfsc);
        if !shapes && (rate.is_some() || !classes.is_empty() || leaf.is_some() || limit.is_some()) {
            say(
                &["qos"],
                "only HTB and HFSC have a rate, classes, leaves and a limit".to_owned(),
            );
        }
        if limit.is_some_and(|limit| !(1..=1000).contains(&limit)) {
            say(&["qos", "limit"], "a queue holds 1 to 1000 packets".to_owned());
        }
        if limit.is_some() && leaf.is_some_and(|leaf| leaf != QosKind::Fifo) {
            say(&["qos", "limit"], "only a leaf 'fifo' has a limit".to_owned());
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
    if port.bfd.is_some_and(|interval| !(1..=60_000).contains(&interval)) {
        say(&["bfd"], "an interval of BFD is 1 to 60 000 ms".to_owned());
    }
    if port.policing.is_some_and(|policing| policing.rate == 0) {
        say(
            &["policing", "rate"],
            "a policer's rate is more than 0 kbit/s".to_owned(),
        );
    }
}

/// Each host has one cable, and cables between the same two bridges are a bond at both.
pub(super) fn plugs(topology: &Topology, filled: &Filled, faults: &mut Faults) {
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

/// Bridges must not be joined in a circle, unless all have a spanning tree; a bond counts as one
/// cable.
pub(super) fn loops(topology: &Topology, filled: &Filled, faults: &mut Faults) {
    if topology.bridges.iter().all(|bridge| bridge.tree.is_some()) {
        return;
    }
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

/// The longest prefix of all underlays' networks.
const UNDERLAYS_PREFIX: u8 = 15;

/// Hosts behind tunnels are containers at a bridge, whose port has VLANs at most.
pub(super) fn tunnels(topology: &Topology, filled: &Filled, faults: &mut Faults) {
    if !topology.has_tunnels() {
        return;
    }
    let hosts = topology.hosts.iter().map(|host| (&host.name, &host.addresses));
    let hosts = hosts.enumerate().map(|(n, owner)| (&filled.host, n, "address", owner));
    let bridges = topology.bridges.iter().map(|bridge| (&bridge.name, &bridge.svis));
    let bridges = bridges.enumerate().map(|(n, owner)| (&filled.bridge, n, "svi", owner));
    for (list, n, key, (_, addresses)) in hosts.chain(bridges) {
        for Address { ip, .. } in addresses {
            let underlays = Address {
                ip: UNDERLAYS,
                prefix: UNDERLAYS_PREFIX,
                vlan: None,
                ip6: None,
            };
            if same_network(&underlays, *ip) {
                let message = format!("{ip} is an address of the tunnels' underlays, {UNDERLAYS}/{UNDERLAYS_PREFIX}");
                faults.say(list, n, &[key], message);
            }
        }
    }
    for (n, host) in topology.hosts.iter().enumerate() {
        let Some(tunnel) = host.tunnel else { continue };
        let mut say = |path: &[&str], message: String| faults.say(&filled.host, n, path, message);
        if !(1..=1000).contains(&tunnel.number) {
            say(
                &["tunnel", "number"],
                format!("a switch has 1 to 1000 tunnels to a host, not {}", tunnel.number),
            );
        }
        if tunnel.ipsec && tunnel.underlay != Underlay::Host {
            let message = "the host's stack encrypts: a tunnel with IPsec has the underlay 'host'".to_owned();
            say(&["tunnel", "ipsec"], message);
        }
        if host.attachment.is_guest() {
            say(&["tunnel"], "only a container is attached through a tunnel".to_owned());
        }
    }
    for (n, link) in topology.links.iter().enumerate() {
        for (side, end, other) in [("a", &link.a, &link.b), ("b", &link.b, &link.a)] {
            if topology.tunnel_ends(&other.at).is_none() {
                continue;
            }
            let vlans = Port {
                access: end.port.access,
                trunk: end.port.trunk.clone(),
                ..Port::default()
            };
            if topology.host(&end.at).is_some() {
                let message = format!("the tunnel of '{}' leads to a bridge", other.at);
                faults.say(&filled.link, n, &[side, "at"], message);
            } else if end.port != vlans {
                let message = "a tunnel's port has VLANs, and no other set-up".to_owned();
                faults.say(&filled.link, n, &[side, "port"], message);
            }
        }
    }
}

/// The most servers of a load balancer, as many as a select group's buckets by `dp_hash` are for.
const SERVERS: usize = 64;

/// Rules that track connections are about hosts with addresses that belong to them.
pub(super) fn stateful(topology: &Topology, filled: &Filled, faults: &mut Faults) {
    for (n, bridge) in topology.bridges.iter().enumerate() {
        let Some(stateful) = &bridge.stateful else { continue };
        let mut say = |key: &str, message: String| faults.say(&filled.bridge, n, &["stateful", key], message);
        if bridge.control != Control::Learning {
            say(
                "kind",
                format!("the rules of '{}' are not the switch's own", bridge.name),
            );
        }
        let Some(from) = topology.host(stateful.from()) else {
            say("from", format!("there is no host '{}'", stateful.from()));
            continue;
        };
        let owner = |ip: &Ipv4Addr| {
            let mut hosts = topology.hosts.iter();
            hosts.find(|host| host.addresses.iter().any(|address| address.ip == *ip))
        };
        match stateful {
            Stateful::Firewall { .. } => {}
            Stateful::Snat { address, .. } => {
                if !from.addresses.iter().skip(1).any(|own| own.ip == *address) {
                    say(
                        "address",
                        format!("{address} is not one more address of '{}'", from.name),
                    );
                }
            }
            Stateful::Balance { address, servers, .. } => {
                let server = owner(address);
                if server.is_none_or(|server| server.name == from.name) {
                    say("address", format!("{address} is no address of another host"));
                }
                if !(1..=SERVERS).contains(&servers.len()) {
                    say(
                        "servers",
                        format!("there are 1 to {SERVERS} servers, not {}", servers.len()),
                    );
                }
                for ip in servers.iter().filter(|ip| owner(ip) != server || *ip == address) {
                    say(
                        "servers",
                        format!("{ip} is not one more address of the host with {address}"),
                    );
                }
            }
        }
    }
}

/// A cluster is two chassis, which one cable joins, and one logical switch.
pub(super) fn cluster(topology: &Topology, filled: &Filled, faults: &mut Faults) {
    if !topology.is_cluster() {
        return;
    }
    let bridges = &topology.bridges;
    for (n, bridge) in bridges.iter().enumerate() {
        let mut say = |key: &str, message: &str| faults.say(&filled.bridge, n, &[key], message.to_owned());
        if bridge.control != Control::Ovn || bridges.len() != 2 {
            say("control", "a cluster is two bridges, both controlled by OVN");
        }
        if !bridge.svis.is_empty() || bridge.tree.is_some() {
            say("name", "a chassis has neither addresses of its own nor a tree");
        }
    }
    let is_bridge = |end: &End| topology.host(&end.at).is_none();
    let between = topology
        .links
        .iter()
        .filter(|link| is_bridge(&link.a) && is_bridge(&link.b));
    if between.count() != 1 {
        faults.say(
            &filled.bridge,
            0,
            &["name"],
            "one cable joins the two chassis".to_owned(),
        );
    }
    for (n, link) in topology.links.iter().enumerate() {
        if link.a.port != Port::default() || link.b.port != Port::default() {
            faults.say(&filled.link, n, &["a"], "ports of a chassis have no set-up".to_owned());
        }
    }
    let first = topology.hosts.first().and_then(|host| host.addresses.first());
    for (n, host) in topology.hosts.iter().enumerate() {
        let plain = !host.attachment.is_guest() && host.tunnel.is_none();
        let alike = |own: &Address| own.vlan.is_none() && first.is_none_or(|first| same_network(first, own.ip));
        if !plain || !host.addresses.iter().all(alike) {
            let message = "hosts of a cluster are containers in one network, untagged".to_owned();
            faults.say(&filled.host, n, &["name"], message);
        }
    }
}
