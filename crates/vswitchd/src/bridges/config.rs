//! The switch's configuration of bridges: as their rows want it, with the devices that there are.

use super::BridgeState;
use crate::desired::{self, Desired};
use crate::protocols::links::Links;
use crate::protocols::trees::rows::Protocol;
use crate::slowpath::Shared;
use crate::{exports, mirrors};
use std::collections::{BTreeMap, BTreeSet};
use switch::{Attach, BridgeConfig, FailMode, InterfaceConfig, Punts, Switch, SwitchConfig};

/// The switch's configuration for the attached interfaces, and what of mirrors is ignored.
pub(super) fn switch_config(
    desired: &Desired,
    state: &BTreeMap<String, BridgeState>,
    shared: &Shared,
) -> (SwitchConfig, Vec<mirrors::Problem>) {
    let mut ignored = Vec::new();
    let mirrors_before = mirrors_in_force(desired, &shared.switch.read());
    let links = &shared.links.lock();
    let mut config = SwitchConfig {
        vlan_limit: desired.vlan_limit,
        ..SwitchConfig::default()
    };
    for (name, bridge) in &desired.bridges {
        let mut ports = BTreeMap::new();
        for (port_name, port) in &bridge.ports {
            let attached: Vec<InterfaceConfig> = port
                .interfaces
                .keys()
                .filter_map(|interface| attachment(interface, port, bridge, &state[name], links))
                .collect();
            if !attached.is_empty() {
                let mut config = port.config.clone();
                let interfaces = &state[name].interfaces;
                let marks = port.interfaces.keys().filter_map(|interface| interfaces.get(interface));
                config.dscp = marks.flat_map(|interface| interface.dscp.clone()).collect();
                config.interfaces = attached;
                ports.insert(port_name.clone(), config);
            }
        }
        let mut mirrors = mirrors::configs(name, bridge, &state[name], &mirrors_before, &mut ignored);
        mirrors.extend(shared.captures.mirrors(name, &state[name], mirrors.len()));
        let bridge = BridgeConfig {
            // Controllers make the rules of a controlled bridge.
            fail_mode: match bridge.is_controlled() {
                true => FailMode::Secure,
                false => bridge.fail_mode,
            },
            mac_aging: bridge.mac_aging,
            mac_table_size: bridge.mac_table_size,
            flood_vlans: bridge.flood_vlans.clone(),
            forward_bpdu: bridge.forward_bpdu,
            rstp: bridge.tree.as_ref().is_some_and(|tree| tree.protocol == Protocol::Rstp),
            snooping: bridge.snooping.as_ref().map(|wanted| wanted.config),
            mirrors,
            export: exports::config(&bridge.exports, &state[name]),
            ports,
        };
        config.bridges.insert(name.clone(), bridge);
    }
    (config, ignored)
}

/// The mirrors of rows that the switch has already, by [`switch::MirrorConfig::id`].
fn mirrors_in_force(desired: &Desired, switch: &Switch) -> BTreeSet<u128> {
    let of_bridge = |(name, wanted): (&String, &desired::Bridge)| {
        let bridge = switch.bridge(name);
        let ids = wanted.mirrors.iter().map(|mirror| mirror.uuid.as_u128());
        let known = ids.filter(|id| bridge.is_some_and(|bridge| bridge.mirror_counts(*id).is_some()));
        known.collect::<Vec<_>>()
    };
    desired.bridges.iter().flat_map(of_bridge).collect()
}

fn attachment(
    name: &str,
    port: &desired::Port,
    bridge: &desired::Bridge,
    state: &BridgeState,
    links: &Links,
) -> Option<InterfaceConfig> {
    let (interface, wanted) = (state.interfaces.get(name)?, port.interfaces.get(name)?);
    let ofport = *interface.ofport.as_ref().ok()?;
    let attach = match (&interface.peer, &interface.tunnel, interface.port) {
        (Some(peer), _, _) => Attach::Patch { peer: peer.clone() },
        (None, Some(tunnel), _) => Attach::Tunnel(tunnel.clone()),
        (None, None, Some(port)) => Attach::Device(port),
        (None, None, None) => return None,
    };
    Some(InterfaceConfig {
        name: name.to_owned(),
        ofport,
        attach,
        link: links.state(name, interface.link.as_ref().is_none_or(|link| link.carrier)),
        punts: Punts {
            lacp: port.aggregation.lacp.is_some(),
            lldp: port.interfaces.get(name).is_some_and(|interface| interface.lldp),
            cfm: wanted.cfm.as_ref().map(protocols::cfm::Config::group),
            bfd: wanted.bfd.as_ref().map(|bfd| bfd.frames),
            // Also at ports that take no part: BPDUs never cross a bridge with a spanning tree.
            stp: bridge.tree.is_some(),
        },
    })
}
