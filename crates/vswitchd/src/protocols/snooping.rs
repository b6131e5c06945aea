//! Multicast snooping: a machine for each bridge that asks for it.

use super::ports::PortFacts;
use super::{Service, World};
use crate::desired::{self, Desired};
use dp::PuntReason;
use nanos::Nanos;
use protocols::snooping::{
    AGING, Config, PortConfig, ProxyConfig, QUERY_INTERVAL, QuerierConfig, Snooping, TABLE_SIZE,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;
use switch::{SnoopingConfig, VlanMode, VlanSet};
use wire::{MacAddr, Vid};

/// Settings of a bridge that snoops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The switch's part.
    pub(crate) config: SnoopingConfig,
    aging: Duration,
    table_size: usize,
    fast_leave: bool,
    /// The interval of the querier of our own.
    querier: Option<Duration>,
    /// The address of the querier and the proxy.
    address: Ipv4Addr,
}

/// Reads `mcast-snooping-*` of `Bridge.other_config`. Names wrong values of our own keys.
pub(crate) fn wanted(map: &BTreeMap<String, String>, wrong: &mut BTreeSet<String>) -> Wanted {
    let number = |key: &str| map.get(key).and_then(|text| text.trim().parse::<u64>().ok());
    let mut flag = |key: &str, default| match map.get(key).map(String::as_str) {
        Some("true") => true,
        Some("false") => false,
        None => default,
        Some(other) => {
            wrong.insert(format!("other_config:{key}={other}"));
            default
        }
    };
    let fast_leave = flag("mcast-snooping-fast-leave", true);
    let has_querier = flag("mcast-snooping-querier", false);
    let proxy_reports = flag("mcast-snooping-proxy-reports", false);
    let address = value(map, "mcast-snooping-querier-address", wrong, |_: &Ipv4Addr| true);
    let is_interval = |seconds: &u64| {
        let bounds = QUERY_INTERVAL.1.as_secs()..=QUERY_INTERVAL.2.as_secs();
        bounds.contains(seconds)
    };
    let interval = value(map, "mcast-snooping-query-interval", wrong, is_interval);
    let interval = interval.map_or(QUERY_INTERVAL.0, Duration::from_secs);
    let address = address.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let disabled = map.get("mcast-snooping-disable-flood-unregistered");
    Wanted {
        config: SnoopingConfig {
            flood_unregistered: disabled.is_none_or(|value| value != "true"),
            proxy_reports,
        },
        aging: match number("mcast-snooping-aging-time") {
            None | Some(0) => AGING.0,
            Some(seconds) => Duration::from_secs(seconds),
        },
        table_size: number("mcast-snooping-table-size").map_or(TABLE_SIZE.0, |size| size as usize),
        fast_leave,
        querier: has_querier.then_some(interval),
        address,
    }
}

/// The value of a key; one that is not legal is named and has no effect.
fn value<T: FromStr>(
    map: &BTreeMap<String, String>,
    key: &str,
    wrong: &mut BTreeSet<String>,
    is_legal: impl Fn(&T) -> bool,
) -> Option<T> {
    let text = map.get(key)?;
    let found = text.parse().ok().filter(is_legal);
    if found.is_none() {
        wrong.insert(format!("other_config:{key}={text}"));
    }
    found
}

/// The bridges that snoop.
#[derive(Default)]
pub(crate) struct Bridges {
    bridges: BTreeMap<String, Bridge>,
}

/// A bridge that snoops.
#[derive(Default)]
pub(crate) struct Bridge {
    pub(crate) machine: Snooping,
    /// The number of each interface's port: that of its first interface.
    interfaces: BTreeMap<String, u32>,
    /// Port names by number.
    pub(crate) names: BTreeMap<u32, String>,
    /// Ports as they were configured, by number.
    ports: BTreeMap<u32, switch::PortConfig>,
}

impl Bridges {
    pub(crate) fn get(&self, bridge: &str) -> Option<&Bridge> {
        self.bridges.get(bridge)
    }

    /// Forgets the groups and the routers behind an interface, if its bridge snoops.
    pub(crate) fn flush_port(&mut self, bridge: &str, interface: &str, world: &mut World<'_>) {
        let entry = self.bridges.get_mut(bridge);
        if let Some(entry) = entry
            && let Some(number) = entry.interfaces.get(interface)
        {
            entry.machine.flush_port(*number);
            entry.act(bridge, world);
        }
    }

    /// Forgets the groups and router ports of a bridge, or of all. `false` if it does not snoop.
    pub(crate) fn flush(&mut self, bridge: Option<&str>, world: &mut World<'_>) -> bool {
        let mut any = bridge.is_none();
        for (name, entry) in &mut self.bridges {
            if bridge.is_none_or(|bridge| bridge == name) {
                entry.machine.flush();
                entry.act(name, world);
                any = true;
            }
        }
        any
    }
}

impl Service for Bridges {
    fn takes(&self, reason: PuntReason) -> bool {
        reason == PuntReason::Igmp
    }

    fn follow(&mut self, desired: &Desired, world: &mut World<'_>) {
        let snoops = |name: &String| {
            desired
                .bridges
                .get(name)
                .is_some_and(|bridge| bridge.snooping.is_some())
        };
        self.bridges.retain(|name, _| {
            let stays = snoops(name);
            if !stays {
                let name = name.clone();
                world.change(move |switch, _| switch.snoop(&name, &[], true));
            }
            stays
        });
        for (name, bridge) in &desired.bridges {
            if let Some(wanted) = &bridge.snooping {
                let entry = self.bridges.entry(name.clone()).or_default();
                entry.configure(name, bridge, wanted, world);
            }
        }
    }

    fn receive(&mut self, from: &PortFacts, frame: &[u8], world: &mut World<'_>) {
        let Some(bridge) = self.bridges.get_mut(&from.bridge) else {
            return;
        };
        if let (Some(vlan), Some(number)) = (world.vlan(), bridge.interfaces.get(&from.interface)) {
            bridge.machine.receive(*number, vlan, frame, world.now);
            bridge.act(&from.bridge, world);
        }
    }

    fn tick(&mut self, world: &mut World<'_>) {
        for (name, bridge) in &mut self.bridges {
            bridge.machine.tick(world.now);
            bridge.act(name, world);
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.bridges
            .values()
            .filter_map(|bridge| bridge.machine.next_event())
            .min()
    }
}

impl Bridge {
    fn configure(&mut self, name: &str, bridge: &desired::Bridge, wanted: &Wanted, world: &mut World<'_>) {
        self.interfaces.clear();
        self.names.clear();
        let before = std::mem::take(&mut self.ports);
        let mut ports = BTreeMap::new();
        for (port_name, port) in &bridge.ports {
            let facts = |interface: &String| world.ports.get(interface).filter(|facts| facts.bridge == name);
            let mut numbers = port
                .interfaces
                .keys()
                .filter_map(facts)
                .map(|facts| flow::port_from_of10(facts.ofport));
            let Some(number) = numbers.next() else { continue };
            let interfaces = port.interfaces.keys().map(|interface| (interface.clone(), number));
            self.interfaces.extend(interfaces);
            self.names.insert(number, port_name.clone());
            let settings = PortConfig {
                flood: port.config.mcast_flood,
                flood_reports: port.config.mcast_flood_reports,
            };
            ports.insert(number, settings);
            // As in Open vSwitch, where a port with other VLANs begins anew.
            if before
                .get(&number)
                .is_some_and(|old| vlans_of(old) != vlans_of(&port.config))
            {
                self.machine.flush_port(number);
            }
            self.ports.insert(number, port.config.clone());
        }
        let (address, mac) = (wanted.address, world.ports.mac_of_bridge(name).unwrap_or(MacAddr::ZERO));
        let querier = wanted.querier.map(|interval| QuerierConfig {
            vlans: vlans(bridge),
            address,
            mac,
            interval,
        });
        let config = Config {
            aging: wanted.aging,
            table_size: wanted.table_size,
            fast_leave: wanted.fast_leave,
            querier,
            proxy: wanted.config.proxy_reports.then_some(ProxyConfig { address, mac }),
            ports,
        };
        self.machine.configure(config, world.now);
        // The switch may have made the bridge anew.
        let events = self.machine.take_all();
        let bridge = name.to_owned();
        world.change(move |switch, _| switch.snoop(&bridge, &events, true));
        self.act(name, world);
    }

    /// Carries out what the machine wants.
    fn act(&mut self, name: &str, world: &mut World<'_>) {
        while let Some((_, frame)) = self.machine.take_frame() {
            world.flood(name, frame);
        }
        let events: Vec<_> = std::iter::from_fn(|| self.machine.take_event()).collect();
        if !events.is_empty() {
            let name = name.to_owned();
            world.change(move |switch, _| switch.snoop(&name, &events, false));
        }
    }
}

/// What of a port's configuration makes VLANs of packets.
fn vlans_of(port: &switch::PortConfig) -> (VlanMode, Option<Vid>, &VlanSet, &VlanSet) {
    (port.vlan_mode, port.tag, &port.trunks, &port.cvlans)
}

/// The VLANs in which a querier asks: those of untagged packets at any port.
fn vlans(bridge: &desired::Bridge) -> BTreeSet<Vid> {
    let native = |port: &desired::Port| match port.config.vlan_mode {
        VlanMode::Trunk => Vid::NONE,
        _ => port.config.tag.unwrap_or_default(),
    };
    bridge.ports.values().map(native).collect()
}
