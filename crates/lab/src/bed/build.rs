//! Making a testbed.

use super::cable::{Cable, OFFLOADS};
use super::command::{batch, known, run};
use super::container;
use super::delay::Delay;
use super::guest;
use super::host::{DEVICE, UNDERLAY};
use super::namespace;
use super::plan::Plan;
use super::record::Record;
use super::wire;
use crate::topology::{self, PREFIX6, TUNNEL_KEY, Topology, UNDERLAY_PREFIX, ipsec};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Why this machine cannot have such a testbed; none if it can.
pub fn missing(topology: &Topology) -> Option<String> {
    let others = || guest::missing(topology).or_else(|| container::missing(topology));
    if let Some(reason) = missing_tools().or_else(others) {
        return Some(reason);
    }
    let tagged = topology
        .hosts
        .iter()
        .find(|host| guest::memory(host).is_none() && host.addresses.iter().any(|address| address.vlan.is_some()))?;
    if has_8021q() {
        return None;
    }
    Some(format!(
        "this kernel has no 8021q (VLAN devices), which host {} needs",
        tagged.name
    ))
}

/// Why this machine cannot have the bridges of a testbed, whatever its hosts; none if it can.
pub(crate) fn missing_tools() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("testbeds need root: they are made of network namespaces".to_owned());
    }
    for (tool, version) in [("ip", "-V"), ("tc", "-V"), ("ethtool", "--version")] {
        if let Err(error) = known(&[tool, version]) {
            return Some(error);
        }
    }
    None
}

pub(super) fn has_8021q() -> bool {
    let there = || Path::new("/proc/net/vlan").exists();
    there() || (known(&["modprobe", "-q", "8021q"]).is_ok() && there())
}

/// Builds the plan. Returns the programs of cables.
pub(crate) fn build(topology: &Topology, plan: &Plan, record: &Record) -> Result<Vec<Delay>> {
    for name in plan.namespaces() {
        record.make_namespace(name)?;
        namespace::enter(name, settle)?;
    }
    for (namespace, tap, mac) in plan.cables.iter().flat_map(Cable::taps) {
        let mut lines = vec![format!("tuntap add dev {tap} mode tap")];
        lines.extend(mac.map(|mac| format!("link set {tap} address {}", super::cable::mac(mac))));
        batch("ip", namespace, &lines)?;
    }
    let links: Vec<String> = plan.cables.iter().flat_map(Cable::links).collect();
    batch("ip", &plan.switch, &links)?;
    for line in plan.cables.iter().filter_map(|cable| cable.to_wire.as_deref()) {
        wire::make(line)?;
    }
    for cable in &plan.cables {
        if let Some(own) = &cable.namespace {
            set_offloads(cable, false)?;
            batch("tc", own, &cable.queues())?;
            batch("ip", own, &cable.inside())?;
        }
    }
    for namespace in plan.of_switches() {
        let plugs = plan.cables.iter().flat_map(|cable| [&cable.a, &cable.b]);
        let ports = plugs.filter(|plug| plug.namespace == namespace && !plug.is_far);
        let up = ["lo"].into_iter().chain(ports.map(|plug| plug.device.as_str()));
        let up: Vec<String> = up.map(|device| format!("link set {device} up")).collect();
        batch("ip", namespace, &up)?;
    }
    for host in topology.hosts.iter().filter(|host| guest::memory(host).is_none()) {
        // A host of another machine is not planned.
        let Some(made) = plan.hosts.get(&host.name) else {
            continue;
        };
        batch("ip", &made.namespace, &set_up(host, topology, plan))?;
        add_ipv6(host, made)?;
        if host.forwards {
            made.enter(|| write("net/ipv4/ip_forward", "1"))?;
        }
    }
    let cables = plan.cables.iter().filter(|cable| cable.has_program());
    cables.map(Delay::start).collect()
}

/// IPv6 of a host's devices that have such addresses. It has no link-local address, asks for no
/// router, and sends nothing to find out whether another has its address.
fn add_ipv6(host: &topology::Host, made: &super::Host) -> Result<()> {
    for address in &host.addresses {
        let Some(ip6) = address.ip6 else { continue };
        let device = device_of(address);
        let set = |name: &str, value: &str| write(&format!("net/ipv6/conf/{device}/{name}"), value);
        made.enter(|| {
            set("accept_ra", "0")?;
            set("addr_gen_mode", "1")?;
            set("disable_ipv6", "0")
        })?;
        let line = format!("addr add {ip6}/{PREFIX6} dev {device} nodad");
        batch("ip", &made.namespace, &[line])?;
    }
    Ok(())
}

/// The device with an address.
fn device_of(address: &topology::Address) -> String {
    match address.vlan {
        None => DEVICE.to_owned(),
        Some(vlan) => format!("{DEVICE}.{vlan}"),
    }
}

/// Commands of `ip` that set up a host.
pub(crate) fn set_up(host: &topology::Host, topology: &Topology, plan: &Plan) -> Vec<String> {
    let mut lines = vec!["link set lo up".to_owned()];
    if !plan
        .cables
        .iter()
        .any(|cable| cable.a.at == host.name || cable.b.at == host.name)
    {
        return lines;
    }
    if let (Some(tunnel), Some(ends), Some(made)) = (
        host.tunnel,
        topology.tunnel_ends(&host.name),
        plan.hosts.get(&host.name),
    ) {
        let (own, mac) = (ends.host, super::cable::mac(made.mac));
        let device = tunnel.kind.device(TUNNEL_KEY, own, ends.switch, UNDERLAY);
        lines.push(format!("addr add {own}/{UNDERLAY_PREFIX} dev {UNDERLAY}"));
        lines.push(format!("link set {UNDERLAY} up"));
        lines.push(format!("link add {DEVICE} address {mac} type {device}"));
        let protection = ipsec::protect(tunnel, own, ends.switch);
        lines.extend(protection.into_iter().map(|[command, _]| command));
    }
    lines.extend(topology.mtu().map(|mtu| format!("link set {DEVICE} mtu {mtu}")));
    lines.push(format!("link set {DEVICE} up"));
    for address in &host.addresses {
        let device = device_of(address);
        let made = format!("link add link {DEVICE} name {device} ");
        if let (Some(vlan), false) = (address.vlan, lines.iter().any(|line| line.starts_with(&made))) {
            lines.push(format!("{made}type vlan id {vlan}"));
            lines.push(format!("link set {device} up"));
        }
        lines.push(format!("addr add {}/{} dev {device}", address.ip, address.prefix));
    }
    lines.extend(host.gateway.map(|gateway| format!("route add default via {gateway}")));
    lines
}

/// Settings of a namespace, made on a thread in it before it has devices: so that nothing
/// unrequested is sent, and no run affects another.
fn settle() -> Result<()> {
    let settings = [
        ("net/ipv6/conf/all/disable_ipv6", "1"),
        ("net/ipv6/conf/default/disable_ipv6", "1"),
        // Neither redirects nor reverse path filters change a host's routing.
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/default/rp_filter", "0"),
        ("net/ipv4/conf/all/send_redirects", "0"),
        ("net/ipv4/conf/default/send_redirects", "0"),
        ("net/ipv4/conf/all/accept_redirects", "0"),
        ("net/ipv4/conf/default/accept_redirects", "0"),
        // A host does not repeat ARP requests in the middle of a run.
        ("net/ipv4/neigh/default/base_reachable_time_ms", "3600000"),
        ("net/ipv4/tcp_no_metrics_save", "1"),
        // A bridge is a bridge.
        ("net/bridge/bridge-nf-call-iptables", "0"),
        ("net/bridge/bridge-nf-call-ip6tables", "0"),
        ("net/bridge/bridge-nf-call-arptables", "0"),
    ];
    for (name, value) in settings {
        // A kernel without IPv6 or without the bridge's filter has no such setting, and needs none.
        if Path::new("/proc/sys").join(name).exists() {
            write(name, value)?;
        }
    }
    Ok(())
}

fn write(name: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys").join(name);
    fs::write(&path, value).with_context(|| format!("{} = {value}", path.display()))
}

/// The offloads of a container's device on a bare cable, the same as on a switch's port, in
/// `ethtool -k` names, without features that the device cannot have. None if no testbed can be
/// made.
pub fn offloads() -> BTreeMap<String, String> {
    let topology = "host = [{ name = 'a', address = [] }, { name = 'b', address = [] }]\n\
                    link = [{ a = { at = 'a' }, b = { at = 'b' } }]";
    let said = toml::from_str::<Topology>(topology)
        .map_err(anyhow::Error::from)
        .and_then(|topology| super::Bed::build(&topology))
        .and_then(|bed| run(&mut bed.host("a")?.command(&["ethtool", "-k", DEVICE])));
    features(&said.unwrap_or_default())
}

/// The output of `ethtool -k` by feature: `on` or `off`.
fn features(said: &str) -> BTreeMap<String, String> {
    let lines = said.lines().filter_map(|line| line.trim().split_once(": "));
    lines
        .filter(|(_, state)| *state != "off [fixed]")
        .map(|(feature, state)| (feature.to_owned(), state.to_owned()))
        .collect()
}

/// Switches offloads on or off at all devices of a cable.
pub(crate) fn set_offloads(cable: &Cable, on: bool) -> Result<()> {
    for (namespace, device) in cable.devices() {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "ethtool", "-K", device]);
        for &feature in OFFLOADS {
            command.args([feature, if on && feature != "gro" { "on" } else { "off" }]);
        }
        run(&mut command)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_a_device_can_have_are_read_with_their_state() {
        let said = "Features for eth0:\ntx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\n\ttx-checksum-ip-generic: on\n\
                    generic-receive-offload: off\n";
        let found = features(said);
        let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let expected = [
            ("generic-receive-offload", "off"),
            ("tx-checksum-ip-generic", "on"),
            ("tx-checksumming", "on"),
        ];
        assert_eq!(found, expected);
        assert!(features("").is_empty());
    }
}
