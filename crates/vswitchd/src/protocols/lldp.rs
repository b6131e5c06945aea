//! LLDP: the machine of all interfaces that speak it, and auto-attach.
//!
//! As in Open vSwitch, the VLANs that auto-attach maps come to `Port.trunks` of the ports that tell
//! of them.

pub(crate) mod rows;
mod show;

use super::ports::PortFacts;
use super::{Service, World};
use crate::desired::{Bridge, Desired, Port};
use crate::own_changes::OwnChange;
use dp::PuntReason;
use nanos::Nanos;
use ovsdb::Uuid;
use protocols::lldp::{Config, Lldp, PortConfig};
use std::collections::{BTreeMap, BTreeSet};
use telemetry::version;
use wire::{MacAddr, Vid};

/// The interfaces that speak LLDP.
#[derive(Default)]
pub(crate) struct Interfaces {
    machine: Lldp,
    /// Their bridges.
    bridges: BTreeMap<String, String>,
    /// The mapped VLANs of ports.
    mapped: BTreeMap<Uuid, BTreeSet<Vid>>,
}

impl Service for Interfaces {
    fn takes(&self, reason: PuntReason) -> bool {
        reason == PuntReason::Lldp
    }

    fn follow(&mut self, desired: &Desired, world: &mut World<'_>) {
        let mut config = Config::default();
        let mut mapped = BTreeMap::new();
        self.bridges.clear();
        for (bridge_name, bridge) in &desired.bridges {
            for port in bridge.ports.values() {
                for name in speakers(port) {
                    let Some(facts) = world.ports.get(name).filter(|facts| facts.bridge == *bridge_name) else {
                        continue;
                    };
                    let chassis = world.ports.mac_of_bridge(bridge_name).unwrap_or(facts.mac);
                    config.ports.insert(name.to_owned(), says(bridge, facts, chassis));
                    self.bridges.insert(name.to_owned(), bridge_name.clone());
                    if let Some(auto_attach) = &bridge.auto_attach {
                        mapped.insert(port.uuid, auto_attach.mappings.values().copied().collect());
                    } else {
                        mapped.insert(port.uuid, BTreeSet::new());
                    }
                }
            }
        }
        self.map(mapped, world);
        self.machine.configure(config, world.now);
        self.send(world);
    }

    fn receive(&mut self, from: &PortFacts, frame: &[u8], world: &mut World<'_>) {
        self.machine.receive(&from.interface, frame, world.now);
    }

    fn tick(&mut self, world: &mut World<'_>) {
        self.machine.tick(world.now);
        self.send(world);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.machine.next_event()
    }
}

impl Interfaces {
    fn send(&mut self, world: &mut World<'_>) {
        while let Some((name, frame)) = self.machine.take_frame() {
            world.send(&name, frame);
        }
    }

    /// Writes the changes of mapped VLANs to the ports' rows. A port that no longer speaks LLDP
    /// keeps its trunks.
    fn map(&mut self, mapped: BTreeMap<Uuid, BTreeSet<Vid>>, world: &mut World<'_>) {
        for (port, now) in &mapped {
            let before = self.mapped.remove(port).unwrap_or_default();
            for (vlan, add) in now
                .difference(&before)
                .map(|vlan| (vlan, true))
                .chain(before.difference(now).map(|vlan| (vlan, false)))
            {
                world.write(OwnChange::Trunk {
                    port: *port,
                    vlan: vlan.get(),
                    add,
                });
            }
        }
        self.mapped = mapped;
    }
}

/// The interfaces of a port that speak LLDP.
fn speakers(port: &Port) -> impl Iterator<Item = &str> {
    let interfaces = port.interfaces.iter();
    interfaces
        .filter(|(_, interface)| interface.lldp)
        .map(|(name, _)| name.as_str())
}

/// What an interface says.
fn says(bridge: &Bridge, facts: &PortFacts, chassis: MacAddr) -> PortConfig {
    let auto_attach = bridge.auto_attach.clone().unwrap_or_default();
    PortConfig {
        mac: facts.mac,
        chassis,
        up: facts.up,
        system_name: auto_attach.system_name,
        system_description: match auto_attach.system_description.as_str() {
            "" => format!("oxvs {}", version::OXVS),
            description => description.to_owned(),
        },
        mappings: auto_attach.mappings,
    }
}
