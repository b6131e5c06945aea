//! What the log tells of bridges: interfaces that come and go, and datapath IDs. Open vSwitch's
//! words, which scripts and people search for.

use super::BridgeState;
use std::collections::BTreeMap;

/// Logs the differences between two states.
pub(super) fn changes(before: &BTreeMap<String, BridgeState>, after: &BTreeMap<String, BridgeState>) {
    for (name, bridge) in before {
        for (interface, port) in numbered(bridge) {
            let now = after.get(name).and_then(|bridge| port_of(bridge, interface));
            if now != Some(port) {
                tracing::info!(target: "bridge", "bridge {name}: deleted interface {interface} on port {port}");
            }
        }
    }
    for (name, bridge) in after {
        let old = before.get(name);
        for (interface, port) in numbered(bridge) {
            if old.and_then(|bridge| port_of(bridge, interface)) != Some(port) {
                tracing::info!(target: "bridge", "bridge {name}: added interface {interface} on port {port}");
            }
        }
        let id = bridge.datapath_id;
        if old.is_none_or(|bridge| bridge.datapath_id != id) {
            tracing::info!(target: "bridge", "bridge {name}: using datapath ID {id:016x}");
        }
    }
}

fn numbered(bridge: &BridgeState) -> impl Iterator<Item = (&str, u16)> {
    let interfaces = bridge.interfaces.iter();
    interfaces.filter_map(|(name, interface)| Some((name.as_str(), *interface.ofport.as_ref().ok()?)))
}

fn port_of(bridge: &BridgeState, interface: &str) -> Option<u16> {
    bridge.interfaces.get(interface)?.ofport.as_ref().ok().copied()
}
