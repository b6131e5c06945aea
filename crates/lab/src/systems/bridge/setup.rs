//! The commands that make a kernel's bridge of a layout.

use super::qdisc;
use crate::systems::kernel::{self, police_classifier};
use crate::systems::layout::{BridgeLayout, Layout, PortLayout, Svi, TunnelLayout};
use crate::systems::openvswitch::leaf;
use crate::topology::{Bond, BondMode, Policing, Qos, QosKind, TUNNEL_KEY, TUNNEL_MTU, UNDERLAY_PREFIX, Underlay};
use std::collections::{BTreeMap, BTreeSet};

/// The default rate of a class: Open vSwitch's assumption for a port of unknown speed.
const UNLIMITED: u64 = 10_000_000_000;

/// A command and its undo command, unless another undo command covers it.
#[derive(Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) line: String,
    pub(crate) undo: Option<String>,
}

/// Whether ports or addresses of a bridge are in VLANs.
pub(crate) fn has_vlans(bridge: &BridgeLayout) -> bool {
    let ports = bridge
        .ports
        .iter()
        .any(|port| port.port.access.is_some() || !port.port.trunk.is_empty());
    ports || bridge.svis.iter().any(|svi| svi.vlan.is_some())
}

pub(crate) fn commands(layout: &Layout, filtering: bool) -> Vec<Line> {
    let mut lines = Vec::new();
    for (_, port, tunnel) in layout.tunnels() {
        underlay(tunnel, &mut lines);
        say_with(
            &mut lines,
            format!("ip {}", tunnel_device(tunnel, &port.device, TUNNEL_KEY)),
            format!("ip link del {}", port.device),
        );
    }
    for bridge in &layout.bridges {
        for (name, of, members) in bridge.bonds() {
            bond(&name, of, &members, &mut lines);
        }
        let bonded = with_bonds_as_ports(bridge);
        match (has_vlans(bridge), filtering) {
            (false, _) => plain(&bonded, &mut lines),
            (true, true) => filtered(&bonded, &mut lines),
            (true, false) => split(&bonded, &mut lines),
        }
        for port in &bridge.ports {
            if let Some(qos) = &port.port.qos {
                schedule(&port.device, qos, layout, &mut lines);
            }
            if let Some(policing) = &port.port.policing {
                police(&port.device, policing, &mut lines);
            }
        }
    }
    lines
}

/// What is below a tunnel.
fn underlay(tunnel: &TunnelLayout, lines: &mut Vec<Line>) {
    let (address, device) = (tunnel.ends.switch, &tunnel.device);
    if tunnel.tunnel.underlay == Underlay::Native {
        make(device, "", lines);
        say(lines, format!("ip link set {} master {device}", tunnel.cable));
        say(lines, format!("ip link set {device} up"));
    }
    let address = format!("{address}/{UNDERLAY_PREFIX} dev {device}");
    say_with(
        lines,
        format!("ip addr add {address}"),
        format!("ip addr del {address}"),
    );
    for [command, undo] in tunnel.protect() {
        say_with(lines, format!("ip {command}"), format!("ip {undo}"));
    }
}

/// Makes the switch's end of a tunnel: arguments of `ip`.
fn tunnel_device(tunnel: &TunnelLayout, device: &str, key: u32) -> String {
    let ends = tunnel.ends;
    let kind = tunnel.tunnel.kind.device(key, ends.switch, ends.host, &tunnel.device);
    format!("link add {device} mtu {TUNNEL_MTU} up type {kind}")
}

/// The group of the devices of tunnels that no host uses, by which they are removed.
pub(crate) const OTHERS: u32 = 1;

/// Makes the ends of the tunnels that no host uses, and ports of them: arguments of `ip`.
pub(crate) fn other_tunnels(layout: &Layout) -> Vec<String> {
    let of_port = |(bridge, _, tunnel): (&BridgeLayout, &PortLayout, &TunnelLayout)| {
        let make = |(device, key): (String, u32)| {
            let options = format!("{device} group {OTHERS} master {}", bridge.name);
            tunnel_device(tunnel, &options, key)
        };
        tunnel.others().map(make).collect::<Vec<_>>()
    };
    layout.tunnels().flat_map(of_port).collect()
}

/// A bridge in which a bond is one port, as its first member is set up.
pub(crate) fn with_bonds_as_ports(bridge: &BridgeLayout) -> BridgeLayout {
    let mut bonded = bridge.clone();
    bonded.ports.retain(|port| port.port.bond.is_none());
    for (name, _, members) in bridge.bonds() {
        let first = members.into_iter().next().cloned();
        bonded
            .ports
            .extend(first.map(|first| PortLayout { device: name, ..first }));
    }
    bonded
}

/// A device that is several others.
fn bond(name: &str, bond: &Bond, members: &[&PortLayout], lines: &mut Vec<Line>) {
    let mode = match (bond.mode, bond.lacp) {
        (BondMode::ActiveBackup, _) => "active-backup",
        (BondMode::BalanceSlb, false) => "balance-xor xmit_hash_policy vlan+srcmac",
        (BondMode::BalanceSlb, true) => "802.3ad xmit_hash_policy vlan+srcmac",
        (BondMode::BalanceTcp, _) => "802.3ad xmit_hash_policy layer3+4",
    };
    // The interval of link monitoring in ms, which has no other default.
    let rate = if bond.fast { " lacp_rate fast" } else { "" };
    let line = format!("ip link add {name} type bond mode {mode} miimon 100{rate}");
    say_with(lines, line, format!("ip link del {name}"));
    for member in members {
        say(lines, format!("ip link set {} down", member.device));
        let up = format!("ip link set {} up", member.device);
        say_with(lines, format!("ip link set {} master {name}", member.device), up);
    }
    say(lines, format!("ip link set {name} up"));
}

fn say(lines: &mut Vec<Line>, line: String) {
    lines.push(Line { line, undo: None });
}

fn say_with(lines: &mut Vec<Line>, line: String, undo: String) {
    lines.push(Line { line, undo: Some(undo) });
}

fn make(name: &str, options: &str, lines: &mut Vec<Line>) {
    say_with(
        lines,
        format!("ip link add {name} type bridge{options}"),
        format!("ip link del {name}"),
    );
}

fn plug(port: &PortLayout, bridge: &str, lines: &mut Vec<Line>) {
    say(lines, format!("ip link set {} master {bridge}", port.device));
}

fn address(device: &str, svi: &Svi, lines: &mut Vec<Line>) {
    for address in &svi.addresses {
        say(
            lines,
            format!("ip addr add {}/{} dev {device}", address.ip, address.prefix),
        );
    }
}

/// A bridge without VLANs.
fn plain(bridge: &BridgeLayout, lines: &mut Vec<Line>) {
    let tree = bridge
        .tree
        .map_or_else(String::new, |(_, priority)| format!(" stp_state 1 priority {priority}"));
    make(&bridge.name, &tree, lines);
    for port in &bridge.ports {
        plug(port, &bridge.name, lines);
    }
    for svi in &bridge.svis {
        address(&bridge.name, svi, lines);
    }
    say(lines, format!("ip link set {} up", bridge.name));
}

/// A bridge with VLAN filtering. Untagged packets without a VLAN get an unused one.
fn filtered(bridge: &BridgeLayout, lines: &mut Vec<Line>) {
    let name = &bridge.name;
    make(name, " vlan_filtering 1 vlan_default_pvid 0", lines);
    let used = vlans(bridge);
    let own = (1..4095).rev().find(|vlan| !used.contains(vlan)).unwrap_or(1);
    for port in &bridge.ports {
        plug(port, name, lines);
        let device = &port.device;
        let untagged = port.port.access.or(port.port.trunk.is_empty().then_some(own));
        if let Some(vlan) = untagged {
            say(lines, format!("bridge vlan add dev {device} vid {vlan} pvid untagged"));
        }
        let tagged: Vec<u16> = match (port.port.access, port.port.trunk.is_empty()) {
            // A port that says nothing of VLANs carries all.
            (None, true) => used.iter().copied().collect(),
            _ => port
                .port
                .trunk
                .iter()
                .copied()
                .filter(|vlan| Some(*vlan) != port.port.access)
                .collect(),
        };
        for vlan in tagged {
            say(lines, format!("bridge vlan add dev {device} vid {vlan}"));
        }
    }
    say(lines, format!("ip link set {name} up"));
    for svi in &bridge.svis {
        match svi.vlan {
            None => {
                say(
                    lines,
                    format!("bridge vlan add dev {name} vid {own} pvid untagged self"),
                );
                address(name, svi, lines);
            }
            Some(vlan) => {
                let device = &svi.device;
                say(lines, format!("bridge vlan add dev {name} vid {vlan} self"));
                say(
                    lines,
                    format!("ip link add link {name} name {device} type vlan id {vlan}"),
                );
                address(device, svi, lines);
                say(lines, format!("ip link set {device} up"));
            }
        }
    }
}

/// A bridge for each VLAN; those with addresses have the name of the SVI's device.
fn split(bridge: &BridgeLayout, lines: &mut Vec<Line>) {
    let mut by_vlan: BTreeMap<Option<u16>, Vec<&PortLayout>> = BTreeMap::new();
    for port in &bridge.ports {
        by_vlan.entry(port.port.access).or_default().push(port);
    }
    for svi in &bridge.svis {
        by_vlan.entry(svi.vlan).or_default();
    }
    for (vlan, ports) in by_vlan {
        let svi = bridge.svis.iter().find(|svi| svi.vlan == vlan);
        let name = match (svi, vlan) {
            (Some(svi), _) => svi.device.clone(),
            (None, Some(vlan)) => part(&bridge.name, vlan),
            (None, None) => bridge.name.clone(),
        };
        make(&name, "", lines);
        for port in ports {
            plug(port, &name, lines);
        }
        if let Some(svi) = svi {
            address(&name, svi, lines);
        }
        say(lines, format!("ip link set {name} up"));
    }
}

/// Name of the part of a bridge that is for a VLAN, in the 15 letters that a device may have.
fn part(bridge: &str, vlan: u16) -> String {
    let vlan = format!(".{vlan}");
    let start: String = bridge.chars().take(15 - vlan.len()).collect();
    start + &vlan
}

/// Every VLAN that a bridge knows.
fn vlans(bridge: &BridgeLayout) -> BTreeSet<u16> {
    let ports = bridge
        .ports
        .iter()
        .flat_map(|port| port.port.access.into_iter().chain(port.port.trunk.iter().copied()));
    ports.chain(bridge.svis.iter().filter_map(|svi| svi.vlan)).collect()
}

fn schedule(device: &str, qos: &Qos, layout: &Layout, lines: &mut Vec<Line>) {
    if let Some(limit) = qos.limit {
        let (line, undo) = kernel::queue_length(device, limit);
        say_with(lines, line, undo);
    }
    let undo = format!("tc qdisc del dev {device} root");
    say_with(
        lines,
        format!("tc qdisc replace dev {device} root {}", qdisc(qos.kind)),
        undo,
    );
    let rate = qos.rate.unwrap_or(UNLIMITED);
    if !matches!(qos.kind, QosKind::Htb | QosKind::Hfsc) {
        return;
    }
    let parent = if qos.classes.is_empty() {
        class(device, "1:", 1, qos.kind, rate, rate, None, lines);
        ""
    } else {
        class(device, "1:", ROOT, qos.kind, rate, rate, None, lines);
        "1:fffe"
    };
    for (number, of) in (1_u16..).zip(&qos.classes) {
        let max = of.max.unwrap_or(rate);
        class(device, parent, number, qos.kind, of.min, max, of.priority, lines);
        // The first is that of all others.
        for address in layout.addresses(of).iter().filter(|_| number > 1) {
            say(
                lines,
                format!(
                    "tc filter add dev {device} parent 1: protocol ip prio 1 u32 match ip src {address}/32 flowid 1:{number:x}"
                ),
            );
        }
    }
    let classes = u16::try_from(qos.classes.len()).unwrap_or(u16::MAX).max(1);
    for number in 1..=classes {
        if let Some(leaf) = qos.leaf.and_then(leaf) {
            say(
                lines,
                format!("tc qdisc replace dev {device} parent 1:{number:x} {leaf}"),
            );
        }
    }
}

/// The class that others are below.
const ROOT: u16 = 0xfffe;

#[expect(clippy::too_many_arguments, reason = "all that a class is")]
fn class(
    device: &str,
    parent: &str,
    number: u16,
    kind: QosKind,
    min: u64,
    max: u64,
    priority: Option<u8>,
    lines: &mut Vec<Line>,
) {
    let mut line = format!("tc class replace dev {device} parent {parent} classid 1:{number:x} ");
    line += &match (kind, min == max) {
        (QosKind::Hfsc, _) => format!("hfsc sc rate {min}bit ul rate {max}bit"),
        (_, true) => format!("htb rate {min}bit"),
        (_, false) => format!("htb rate {min}bit ceil {max}bit"),
    };
    if let (Some(priority), QosKind::Htb) = (priority, kind) {
        line += &format!(" prio {priority}");
    }
    say(lines, line);
}

/// As Open vSwitch polices: packets of any length, those beyond the rate are dropped.
fn police(device: &str, policing: &Policing, lines: &mut Vec<Line>) {
    let undo = format!("tc qdisc del dev {device} ingress");
    say_with(lines, format!("tc qdisc add dev {device} ingress"), undo);
    let Policing { rate, burst } = policing;
    let burst = if *burst == 0 { 8_000 } else { *burst } * 125;
    let all = police_classifier().unwrap_or("matchall");
    say(
        lines,
        format!(
            "tc filter add dev {device} parent ffff: protocol all prio 1 {all} police rate {rate}kbit burst {burst} mtu 65535 conform-exceed drop"
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::layout::tests::{BONDED, TUNNELLED, TWO_VLANS, layout};

    fn text(topology: &str, filtering: bool) -> String {
        let lines = commands(&layout(topology), filtering);
        lines.into_iter().map(|line| line.line + "\n").collect()
    }

    #[test]
    fn with_vlan_filtering_ports_and_addresses_have_their_vlans_on_one_bridge() {
        let expected = "\
ip link add s1 type bridge vlan_filtering 1 vlan_default_pvid 0
ip link set s1-PC1 master s1
bridge vlan add dev s1-PC1 vid 10 pvid untagged
ip link set s1-s2 master s1
bridge vlan add dev s1-s2 vid 10
bridge vlan add dev s1-s2 vid 20
ip link set s1 up
bridge vlan add dev s1 vid 10 self
ip link add link s1 name vlan10 type vlan id 10
ip addr add 10.0.0.254/24 dev vlan10
ip link set vlan10 up
";
        let text = text(TWO_VLANS, true);
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("tc qdisc replace dev s2-PC3 root handle 1: htb default 1\n"),
            "{text}"
        );
        assert!(text.contains("classid 1:1 htb rate 5000000bit\n"), "{text}");
        assert!(
            text.contains("police rate 10240kbit burst 128000 mtu 65535 conform-exceed drop\n"),
            "{text}"
        );
    }

    const ACCESS: &str = "
        host = [{ name = 'a', address = [] }, { name = 'b', address = [] }]
        bridge = [{ name = 's1', svi = [{ ip = '10.0.0.254', prefix = 24, vlan = 10 }] }]
        link = [{ a = { at = 'a' }, b = { at = 's1', port = { access = 10 } } },
                { a = { at = 'b' }, b = { at = 's1', port = { access = 20 } } }]";

    #[test]
    fn without_vlan_filtering_every_vlan_is_a_bridge() {
        let expected = "\
ip link add vlan10 type bridge
ip link set s1-a master vlan10
ip addr add 10.0.0.254/24 dev vlan10
ip link set vlan10 up
ip link add s1.20 type bridge
ip link set s1-b master s1.20
ip link set s1.20 up
";
        assert_eq!(text(ACCESS, false), expected);
        assert_eq!(part("fifteen-letters", 4094), "fifteen-le.4094");
    }

    #[test]
    fn a_tunnel_is_a_device_of_the_kernel_over_the_cable_or_over_a_bridge() {
        let plain = TUNNELLED.replace(", port = { access = 7 }", "");
        let expected = "\
ip addr add 198.18.0.6/30 dev s1-far
ip link add vxlan2 mtu 1450 up type vxlan id 1 local 198.18.0.6 remote 198.18.0.5 dstport 4789 dev s1-far nolearning
ip link add s1 type bridge
ip link set s1-near master s1
ip link set vxlan2 master s1
ip link set s1 up
";
        assert_eq!(text(&plain, false), expected);
        let others = other_tunnels(&layout(&plain));
        assert_eq!(others.len(), 2);
        assert_eq!(
            others[1],
            "link add vxlan2.3 group 1 master s1 mtu 1450 up type vxlan id 3 local 198.18.0.6 remote 198.18.0.5 dstport 4789 dev s1-far nolearning"
        );
        let native = text(&plain.replace("number", "underlay = 'native', number"), false);
        let expected = "\
ip link add underlay2 type bridge
ip link set s1-far master underlay2
ip link set underlay2 up
ip addr add 198.18.0.6/30 dev underlay2
ip link add vxlan2 mtu 1450 up type vxlan id 1 local 198.18.0.6 remote 198.18.0.5 dstport 4789 dev underlay2 nolearning
";
        assert!(native.starts_with(expected), "{native}");
    }

    #[test]
    fn a_port_without_vlans_carries_all_and_what_is_untagged_in_one_of_its_own() {
        let text = text(
            "host = [{ name = 'a', address = [] }, { name = 'b', address = [] }]
             bridge = [{ name = 's1' }]
             link = [{ a = { at = 'a' }, b = { at = 's1', port = { access = 4094 } } }, { a = { at = 'b' }, b = { at = 's1' } }]",
            true,
        );
        assert!(
            text.contains("dev s1-b vid 4093 pvid untagged\nbridge vlan add dev s1-b vid 4094\n"),
            "{text}"
        );
    }

    #[test]
    fn classes_have_filters_and_a_bond_is_a_device() {
        let text = text(BONDED, false);
        let bond = "\
ip link add s1-bond0 type bond mode balance-xor xmit_hash_policy vlan+srcmac miimon 100
ip link set s1-s2 down
ip link set s1-s2 master s1-bond0
ip link set s1-s2.2 down
ip link set s1-s2.2 master s1-bond0
ip link set s1-bond0 up
ip link add s1 type bridge
ip link set s1-bulk master s1
ip link set s1-voice master s1
ip link set s1-bond0 master s1
ip link set s1 up
";
        assert!(text.starts_with(bond), "{text}");
        let classes = "\
tc qdisc replace dev s2-server root handle 1: htb default 1
tc class replace dev s2-server parent 1: classid 1:fffe htb rate 90000000bit
tc class replace dev s2-server parent 1:fffe classid 1:1 htb rate 80000000bit ceil 90000000bit prio 1
tc class replace dev s2-server parent 1:fffe classid 1:2 htb rate 10000000bit ceil 20000000bit prio 0
tc filter add dev s2-server parent 1: protocol ip prio 1 u32 match ip src 10.9.0.1/32 flowid 1:2
";
        assert!(text.ends_with(classes), "{text}");
    }
}
