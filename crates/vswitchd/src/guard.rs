//! Port security, by keys of our own: DHCP snooping, ARP inspection, limits of addresses.
//!
//! A bridge turns them on; ports without trust are guarded. The local port is the host's own, which
//! is trusted.

use crate::desired::{Bridge, Port};
use crate::storm;
use ovsdb::{Uuid, rows};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use switch::{MacLimit, PortGuard};
use wire::{MacAddr, Vid};

/// Legal values of `mac-limit`; a port with sticky addresses has at most the second.
const MAC_LIMIT: (u32, u32) = (65_536, 1024);

/// The key with the sticky addresses of a port: `VLAN/ADDRESS`, separated by spaces.
pub(crate) const STICKY_ADDRESSES: &str = "mac-sticky-addresses";

/// Sets the guards of a bridge's ports. Wrong values are named in the rows.
pub(crate) fn apply(row: &rows::Bridge, ports: &BTreeMap<Uuid, rows::Port>, bridge: &mut Bridge) {
    let mut wrong = Vec::new();
    let dhcp = flag(&row.other_config, "dhcp-snooping", &mut wrong);
    let arp = flag(&row.other_config, "arp-inspection", &mut wrong);
    bridge.unsupported.extend(wrong);
    for row in row.ports.iter().filter_map(|uuid| ports.get(uuid)) {
        if let Some(port) = bridge.ports.get_mut(&row.name) {
            limit_addresses(&row.other_config, port);
            storm::apply(&row.other_config, port);
        }
    }
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

/// Sets the limit of a port's addresses.
fn limit_addresses(config: &BTreeMap<String, String>, port: &mut Port) {
    let mut wrong = Vec::new();
    let sticky = flag(config, "mac-sticky", &mut wrong);
    let shuts = match config.get("mac-limit-action").map(String::as_str) {
        Some("shutdown") => true,
        None | Some("drop") => false,
        Some(other) => {
            wrong.push(format!("other_config:mac-limit-action={other}"));
            false
        }
    };
    let most = if sticky { MAC_LIMIT.1 } else { MAC_LIMIT.0 };
    port.config.mac_limit = match config.get("mac-limit").map(|text| (text, text.parse())) {
        Some((_, Ok(limit))) if (1..=most).contains(&limit) => Some(MacLimit {
            most: limit,
            shuts,
            sticky,
        }),
        Some((text, _)) => {
            wrong.push(format!("other_config:mac-limit={text}"));
            None
        }
        None => {
            if sticky {
                port.problems
                    .push("other_config:mac-sticky has no effect without mac-limit".to_owned());
            }
            None
        }
    };
    if sticky {
        let text = config.get(STICKY_ADDRESSES).map_or("", String::as_str);
        for word in text.split_whitespace() {
            match station(word) {
                Some(station) => _ = port.config.sticky.insert(station),
                None => wrong.push(format!("other_config:{STICKY_ADDRESSES}={word}")),
            }
        }
    }
    port.problems
        .extend(wrong.into_iter().map(|what| format!("{what} is not a legal value")));
}

/// A station in [`STICKY_ADDRESSES`].
pub(crate) fn station(word: &str) -> Option<(Vid, MacAddr)> {
    let (vlan, mac) = word.split_once('/')?;
    let vlan = vlan.parse().ok().and_then(|vlan| Vid::new(vlan).ok())?;
    Some((vlan, mac.parse().ok()?))
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
