//! A layout as `ovs-vsctl` commands, without the program's name.

use super::Kind;
use crate::systems::layout::{BridgeLayout, Layout, PortLayout, Svi, TunnelLayout};
use crate::topology::{Bond, BondMode, Class, Control, Qos, QosKind, TUNNEL_KEY, Tree, Underlay};
use std::fmt::Write;

/// Makes a bridge.
pub(crate) fn bridge(bridge: &BridgeLayout, kind: Kind) -> String {
    let name = &bridge.name;
    let mut line = format!("add-br {name} -- set bridge {name} datapath_type={}", kind.datapath());
    match bridge.control {
        Control::Learning if bridge.stateful.is_none() => {}
        Control::Learning | Control::Rules | Control::Ovn => line += " fail_mode=secure",
        // The controller is not reached through the bridge.
        Control::Reactive => line += " fail_mode=secure other_config:disable-in-band=true",
    }
    if let Some((tree, priority)) = bridge.tree {
        let protocol = match tree {
            Tree::Stp => "stp",
            Tree::Rstp => "rstp",
        };
        let _ = write!(
            line,
            " {protocol}_enable=true other_config:{protocol}-priority={priority}"
        );
    }
    line
}

/// Adds a port to its bridge.
pub(crate) fn port(bridge: &str, port: &PortLayout, kind: Kind) -> String {
    let mut line = format!("add-port {bridge} {}", port.device);
    line += &vlans(port);
    if let Some(tunnel) = &port.tunnel {
        line += &end(&port.device, tunnel, TUNNEL_KEY);
    } else if kind.is_afxdp() {
        let _ = write!(line, " -- set interface {} type=afxdp", port.device);
    }
    line + &set_bfd(port) + &options(port, kind)
}

/// Makes an interface the end of a tunnel.
fn end(device: &str, tunnel: &TunnelLayout, key: u32) -> String {
    let (kind, remote) = (tunnel.tunnel.kind.name(), tunnel.ends.host);
    // No IKE daemon reads the key. With it oxvs drops unencrypted packets; Open vSwitch ignores
    // it.
    let ipsec = match tunnel.tunnel.ipsec {
        true => " options:psk=laboratory",
        false => "",
    };
    format!(" -- set interface {device} type={kind} options:remote_ip={remote} options:key={key}{ipsec}")
}

/// Adds the ports of the tunnels that the host does not use, one command each.
pub(crate) fn other_tunnels(bridge: &str, tunnel: &TunnelLayout) -> Vec<String> {
    let others = tunnel.others();
    others
        .map(|(device, key)| format!("add-port {bridge} {device}{}", end(&device, tunnel, key)))
        .collect()
}

/// Makes the bridge below a tunnel; none if the host's stack is below it.
pub(crate) fn underlay(tunnel: &TunnelLayout, kind: Kind) -> Option<String> {
    let TunnelLayout { cable, device, .. } = tunnel;
    let mut line = match tunnel.tunnel.underlay {
        Underlay::Host => return None,
        Underlay::Native => format!(
            "add-br {device} -- set bridge {device} datapath_type={} -- add-port {device} {cable}",
            kind.datapath()
        ),
    };
    if kind.is_afxdp() {
        let _ = write!(line, " -- set interface {cable} type=afxdp");
    }
    Some(line)
}

/// The settings of a port's BFD session, each after a blank.
pub(crate) fn bfd(port: &PortLayout) -> String {
    port.port.bfd.map_or_else(String::new, |interval| {
        format!(" bfd:enable=true bfd:min_rx={interval} bfd:min_tx={interval} bfd:mult=3")
    })
}

fn set_bfd(port: &PortLayout) -> String {
    match bfd(port) {
        none if none.is_empty() => none,
        settings => format!(" -- set interface {}{settings}", port.device),
    }
}

/// Sets up an existing port.
pub(crate) fn set_port(port: &PortLayout, kind: Kind) -> Option<String> {
    let vlans = vlans(port);
    let mut line = String::new();
    if !vlans.is_empty() {
        let _ = write!(line, "set port {}{vlans}", port.device);
    }
    line += &options(port, kind);
    let line = line.trim_start_matches(" -- ");
    (!line.is_empty()).then(|| line.to_owned())
}

/// Adds a device of the switch itself in a VLAN; none if it is the bridge's own.
pub(crate) fn svi(bridge: &str, svi: &Svi) -> Option<String> {
    let (vlan, device) = (svi.vlan?, &svi.device);
    Some(format!(
        "add-port {bridge} {device} tag={vlan} -- set interface {device} type=internal"
    ))
}

/// `QoS.type` of a scheduler; none for the default of a port.
pub(crate) fn qos_type(kind: QosKind) -> Option<&'static str> {
    match kind {
        QosKind::Fifo => None,
        QosKind::Sfq => Some("linux-sfq"),
        QosKind::Codel => Some("linux-codel"),
        QosKind::FqCodel => Some("linux-fq_codel"),
        QosKind::Htb => Some("linux-htb"),
        QosKind::Hfsc => Some("linux-hfsc"),
    }
}

fn vlans(port: &PortLayout) -> String {
    let trunks: Vec<String> = port.port.trunk.iter().map(u16::to_string).collect();
    let trunks = trunks.join(",");
    match (port.port.access, trunks.is_empty()) {
        (None, true) => String::new(),
        (Some(access), true) => format!(" tag={access}"),
        (None, false) => format!(" trunks={trunks}"),
        (Some(access), false) => format!(" tag={access} trunks={trunks} vlan_mode=native-untagged"),
    }
}

fn options(port: &PortLayout, switch: Kind) -> String {
    let device = &port.device;
    let mut line = String::new();
    if let Some(policing) = &port.port.policing {
        let (rate, burst) = (policing.rate, policing.burst);
        let _ = write!(
            line,
            " -- set interface {device} ingress_policing_rate={rate} ingress_policing_burst={burst}"
        );
    }
    if let Some(speed) = port.port.speed {
        let _ = write!(line, " -- set interface {device} other_config:port-speed={speed}");
    }
    if let Some(qos) = &port.port.qos
        && let Some(kind) = qos_type(qos.kind)
    {
        line += &schedule(device, qos, kind, switch);
    }
    line
}

/// A row of `QoS`, and rows of `Queue` for its classes.
fn schedule(device: &str, qos: &Qos, kind: &str, switch: Kind) -> String {
    let mut line = format!(" -- set port {device} qos=@q -- --id=@q create qos type={kind}");
    if let Some(rate) = qos.rate {
        let _ = write!(line, " other_config:max-rate={rate}");
    }
    let leaf = match qos.limit.filter(|_| switch.is_oxvs()) {
        Some(limit) => Some(format!("fifo other_config:limit={limit}")),
        None => qos.leaf.filter(|_| switch.is_oxvs()).and_then(leaf).map(str::to_owned),
    };
    // A class's inner discipline is in its queue's row.
    let alone = [Class {
        min: qos.rate.unwrap_or(UNLIMITED),
        max: None,
        priority: None,
        hosts: Vec::new(),
    }];
    let classes = if qos.classes.is_empty() && leaf.is_some() {
        &alone[..]
    } else {
        &qos.classes
    };
    for number in 0..classes.len() {
        let _ = write!(line, " queues:{number}=@c{number}");
    }
    for (number, class) in classes.iter().enumerate() {
        let _ = write!(
            line,
            " -- --id=@c{number} create queue other_config:min-rate={}",
            class.min
        );
        if let Some(max) = class.max {
            let _ = write!(line, " other_config:max-rate={max}");
        }
        if let (Some(priority), QosKind::Htb) = (class.priority, qos.kind) {
            let _ = write!(line, " other_config:priority={priority}");
        }
        if let Some(leaf) = &leaf {
            let _ = write!(line, " other_config:leaf={leaf}");
        }
    }
    line
}

/// The rate of a single class without a rate.
const UNLIMITED: u64 = 10_000_000_000;

/// A discipline in a class, as oxvs and `tc` call it; none: the usual one.
pub(crate) fn leaf(kind: QosKind) -> Option<&'static str> {
    match kind {
        QosKind::Sfq => Some("sfq"),
        QosKind::Codel => Some("codel"),
        QosKind::FqCodel => Some("fq_codel"),
        QosKind::Fifo | QosKind::Htb | QosKind::Hfsc => None,
    }
}

/// The inner disciplines of classes, which Open vSwitch does not configure: `tc` commands.
pub(crate) fn leaves(port: &PortLayout, kind: Kind) -> Vec<String> {
    let Some(qos) = port.port.qos.as_ref().filter(|_| !kind.is_oxvs()) else {
        return Vec::new();
    };
    let Some(leaf) = qos.leaf.and_then(leaf) else {
        return Vec::new();
    };
    // Queue N is class N + 1.
    let classes = 1..=qos.classes.len().max(1);
    classes
        .map(|class| format!("tc qdisc replace dev {} parent 1:{class:x} {leaf}", port.device))
        .collect()
}

/// Adds a port of several interfaces.
pub(crate) fn bond(bridge: &str, name: &str, bond: &Bond, members: &[&PortLayout], kind: Kind) -> String {
    let devices: Vec<&str> = members.iter().map(|member| member.device.as_str()).collect();
    let mode = match bond.mode {
        BondMode::ActiveBackup => "active-backup",
        BondMode::BalanceSlb => "balance-slb",
        BondMode::BalanceTcp => "balance-tcp",
    };
    let mut line = format!("add-bond {bridge} {name} {} bond_mode={mode}", devices.join(" "));
    if bond.lacp {
        line += " lacp=active";
    }
    if bond.fast {
        line += " other_config:lacp-time=fast";
    }
    if let (BondMode::ActiveBackup, Some(first)) = (bond.mode, devices.first()) {
        // Both ends have to choose the same cable.
        let _ = write!(line, " other_config:bond-primary={first}");
    }
    if let Some(first) = members.first() {
        line += &vlans(first);
    }
    for member in members {
        if kind.is_afxdp() {
            let _ = write!(line, " -- set interface {} type=afxdp", member.device);
        }
        line += &set_bfd(member);
    }
    line
}

/// Rules that put the hosts' packets into their classes, in the syntax of `ovs-ofctl add-flow`. All
/// others are in the first class.
pub(crate) fn class_rules(layout: &Layout, bridge: &BridgeLayout) -> Vec<String> {
    let mut rules: Vec<String> = Vec::new();
    for qos in bridge.ports.iter().filter_map(|port| port.port.qos.as_ref()) {
        for (number, class) in qos.classes.iter().enumerate().skip(1) {
            for address in layout.addresses(class) {
                let rule = format!("priority=10,ip,nw_src={address},actions=set_queue:{number},normal");
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::layout::tests::{BONDED, TUNNELLED, TWO_VLANS, layout};

    #[test]
    fn a_layout_is_said_as_a_user_would_say_it() {
        let layout = layout(TWO_VLANS);
        let (s1, s2) = (&layout.bridges[0], &layout.bridges[1]);
        assert_eq!(
            bridge(s1, Kind::Oxvs),
            "add-br s1 -- set bridge s1 datapath_type=netdev"
        );
        assert_eq!(
            bridge(s2, Kind::Kernel),
            "add-br s2 -- set bridge s2 datapath_type=system fail_mode=secure"
        );
        assert_eq!(port("s1", &s1.ports[0], Kind::Oxvs), "add-port s1 s1-PC1 tag=10");
        assert_eq!(
            port("s1", &s1.ports[1], Kind::Afxdp),
            "add-port s1 s1-s2 trunks=10,20 -- set interface s1-s2 type=afxdp"
        );
        assert_eq!(
            port("s2", &s2.ports[1], Kind::Oxvs),
            "add-port s2 s2-PC3 tag=20 -- set interface s2-PC3 ingress_policing_rate=10240 ingress_policing_burst=1024 \
             -- set port s2-PC3 qos=@q -- --id=@q create qos type=linux-htb other_config:max-rate=5000000"
        );
        assert_eq!(
            svi("s1", &s1.svis[0]).unwrap(),
            "add-port s1 vlan10 tag=10 -- set interface vlan10 type=internal"
        );
    }

    #[test]
    fn a_port_that_is_there_is_only_told_what_it_is_not_yet() {
        let layout = layout(TWO_VLANS);
        assert_eq!(
            set_port(&layout.bridges[0].ports[0], Kind::Mininet).unwrap(),
            "set port s1-PC1 tag=10"
        );
        let text = set_port(&layout.bridges[1].ports[1], Kind::Mininet).unwrap();
        assert!(
            text.starts_with("set port s2-PC3 tag=20 -- set interface s2-PC3 "),
            "{text}"
        );
        let mut bare = layout.bridges[0].ports[0].clone();
        bare.port = crate::topology::Port::default();
        assert_eq!(set_port(&bare, Kind::Mininet), None);
        bare.port.policing = Some(crate::topology::Policing { rate: 1, burst: 2 });
        assert!(
            set_port(&bare, Kind::Mininet)
                .unwrap()
                .starts_with("set interface s1-PC1 ")
        );
    }

    #[test]
    fn classes_are_queues_and_rules_and_a_bond_is_a_port_of_several_interfaces() {
        let layout = layout(BONDED);
        let (s1, s2) = (&layout.bridges[0], &layout.bridges[1]);
        assert_eq!(
            port("s2", &s2.ports[0], Kind::Oxvs),
            "add-port s2 s2-server -- set port s2-server qos=@q \
             -- --id=@q create qos type=linux-htb other_config:max-rate=90000000 queues:0=@c0 queues:1=@c1 \
             -- --id=@c0 create queue other_config:min-rate=80000000 other_config:priority=1 \
             -- --id=@c1 create queue other_config:min-rate=10000000 other_config:max-rate=20000000 other_config:priority=0"
        );
        assert_eq!(
            class_rules(&layout, s2),
            ["priority=10,ip,nw_src=10.9.0.1,actions=set_queue:1,normal"]
        );
        assert_eq!(class_rules(&layout, s1), [""; 0]);
        let (name, of, members) = &s1.bonds()[0];
        assert_eq!(
            bond("s1", name, of, members, Kind::Tso),
            "add-bond s1 s1-bond0 s1-s2 s1-s2.2 bond_mode=balance-slb"
        );
    }

    #[test]
    fn a_tunnel_is_a_port_over_the_hosts_stack_or_over_a_bridge() {
        let layout = layout(TUNNELLED);
        let (bridge, far, tunnel) = layout.tunnels().next().unwrap();
        assert_eq!(
            port(&bridge.name, far, Kind::OxvsAfxdp),
            "add-port s1 vxlan2 tag=7 -- set interface vxlan2 type=vxlan options:remote_ip=198.18.0.5 options:key=1"
        );
        assert_eq!(
            other_tunnels(&bridge.name, tunnel),
            [
                "add-port s1 vxlan2.2 -- set interface vxlan2.2 type=vxlan options:remote_ip=198.18.0.5 options:key=2",
                "add-port s1 vxlan2.3 -- set interface vxlan2.3 type=vxlan options:remote_ip=198.18.0.5 options:key=3",
            ]
        );
        assert_eq!(underlay(tunnel, Kind::Oxvs), None);
        assert_eq!(tunnel.protect().len(), 0);
        let encrypted = crate::systems::layout::tests::layout(&TUNNELLED.replace("number", "ipsec = true, number"));
        let (bridge, far, tunnel) = encrypted.tunnels().next().unwrap();
        assert!(port(&bridge.name, far, Kind::Oxvs).ends_with(" options:key=1 options:psk=laboratory"));
        assert_eq!(tunnel.protect().len(), 4);
        let native = crate::systems::layout::tests::layout(&TUNNELLED.replace("number", "underlay = 'native', number"));
        let (_, _, tunnel) = native.tunnels().next().unwrap();
        assert_eq!(
            underlay(tunnel, Kind::Tso).unwrap(),
            "add-br underlay2 -- set bridge underlay2 datapath_type=netdev -- add-port underlay2 s1-far"
        );
    }

    #[test]
    fn what_stands_in_a_class_is_said_to_oxvs_and_put_behind_open_vswitch() {
        let mut port = layout(TWO_VLANS).bridges[1].ports[1].clone();
        port.port.policing = None;
        if let Some(qos) = &mut port.port.qos {
            qos.leaf = Some(QosKind::FqCodel);
        }
        let line = super::port("s2", &port, Kind::Oxvs);
        let queue = " queues:0=@c0 -- --id=@c0 create queue other_config:min-rate=5000000 other_config:leaf=fq_codel";
        assert!(line.ends_with(queue), "{line}");
        assert!(leaves(&port, Kind::Oxvs).is_empty());
        assert!(super::port("s2", &port, Kind::Kernel).ends_with("max-rate=5000000"));
        assert_eq!(
            leaves(&port, Kind::Kernel),
            ["tc qdisc replace dev s2-PC3 parent 1:1 fq_codel"]
        );
    }
}
