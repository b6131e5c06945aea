//! Port security, by keys of our own: DHCP snooping and ARP inspection.
//!
//! A bridge turns them on; ports without trust are guarded. The local port is the host's own, which
//! is trusted.

use crate::desired::Bridge;
use ovsdb::{Uuid, rows};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use switch::PortGuard;

/// Sets the guards of a bridge's ports. Wrong values are named in the rows.
pub(crate) fn apply(row: &rows::Bridge, ports: &BTreeMap<Uuid, rows::Port>, bridge: &mut Bridge) {
    let mut wrong = Vec::new();
    let dhcp = flag(&row.other_config, "dhcp-snooping", &mut wrong);
    let arp = flag(&row.other_config, "arp-inspection", &mut wrong);
    bridge.unsupported.extend(wrong);
    if !dhcp && !arp {
        return;
    }
    for row in row
        .ports
        .iter()
        .filter_map(|uuid| ports.get(uuid))
        .filter(|port| port.name != row.name)
    {
        let Some(port) = bridge.ports.get_mut(&row.name) else {
            continue;
        };
        let mut wrong = Vec::new();
        let config = &row.other_config;
        let trusts_dhcp = flag(config, "dhcp-snooping-trust", &mut wrong);
        let trusts_arp = flag(config, "arp-inspection-trust", &mut wrong);
        let addresses = addresses(config, &mut wrong);
        port.config.guard = PortGuard {
            no_dhcp_server: dhcp && !trusts_dhcp,
            arp: (arp && !trusts_arp).then_some(addresses),
        };
        port.problems
            .extend(wrong.into_iter().map(|what| format!("{what} is not a legal value")));
    }
}

/// A key that is `true` or `false`; `false` by default, and if it is neither.
fn flag(map: &BTreeMap<String, String>, key: &str, wrong: &mut Vec<String>) -> bool {
    match map.get(key).map(String::as_str) {
        Some("true") => true,
        None | Some("false") => false,
        Some(other) => {
            wrong.push(format!("other_config:{key}={other}"));
            false
        }
    }
}

/// The IPv4 addresses of a port's hosts, separated by spaces or commas. A wrong one is left out.
fn addresses(map: &BTreeMap<String, String>, wrong: &mut Vec<String>) -> BTreeSet<Ipv4Addr> {
    const KEY: &str = "arp-inspection-addresses";
    let text = map.get(KEY).map_or("", String::as_str);
    let words = text.split([' ', ',']).filter(|word| !word.is_empty());
    let mut addresses = BTreeSet::new();
    for word in words {
        match word.parse() {
            Ok(address) => _ = addresses.insert(address),
            Err(_) => wrong.push(format!("other_config:{KEY}={word}")),
        }
    }
    addresses
}
