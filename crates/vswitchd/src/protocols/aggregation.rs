//! Bonds and LACP: the machines of each port, and their way into the switch.

pub(crate) mod rows;
mod show;

use super::links::Watcher;
use super::ports::PortFacts;
use super::{Service, World};
use crate::desired::{Desired, Port};
use dp::{BondTable, PuntReason};
use nanos::Nanos;
use parking_lot::Mutex;
use protocols::bond::{self, BUCKETS, Bond, LacpStatus, Mode, Outputs, hash_of_source};
use protocols::lacp::{self, Lacp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use switch::BondState;
use wire::{MacAddr, Vid};

/// All bonds and aggregations, by bridge and port.
#[derive(Default)]
pub(crate) struct Aggregations {
    ports: BTreeMap<(String, String), Aggregation>,
    /// The number of the last bond that has one.
    last_id: u32,
}

/// A port with a bond, LACP, or both.
pub(crate) struct Aggregation {
    bridge: String,
    port: String,
    /// OpenFlow port numbers by interface.
    members: BTreeMap<String, u16>,
    config: bond::Config,
    bond: Option<Bond>,
    lacp: Option<Lacp>,
    /// What the bond's buckets have sent, as the switch was asked.
    loads: Arc<Mutex<Option<[u64; BUCKETS]>>>,
    /// The switch was asked for a rebalancing.
    asked: bool,
}

/// What the database shows of a port.
pub(crate) struct PortReport {
    /// `Port.bond_active_slave`.
    pub(crate) active: Option<MacAddr>,
    /// `Interface.lacp_current`, by interface.
    pub(crate) current: BTreeMap<String, bool>,
}

impl Service for Aggregations {
    fn takes(&self, reason: PuntReason) -> bool {
        reason == PuntReason::Lacp
    }

    fn follow(&mut self, desired: &Desired, world: &mut World<'_>) {
        let wanted = |bridge: &str, port: &str| {
            let port = desired.bridges.get(bridge).and_then(|bridge| bridge.ports.get(port));
            port.is_some_and(|port| port.aggregation.is_wanted(port.interfaces.len()))
        };
        let gone: Vec<_> = self.ports.keys().filter(|(b, p)| !wanted(b, p)).cloned().collect();
        for key in gone {
            if let Some(old) = self.ports.remove(&key) {
                old.leave(world);
            }
        }
        for (bridge, config) in &desired.bridges {
            for (name, port) in &config.ports {
                if port.aggregation.is_wanted(port.interfaces.len()) {
                    self.configure(bridge, name, port, world);
                }
            }
        }
    }

    fn receive(&mut self, from: &PortFacts, frame: &[u8], world: &mut World<'_>) {
        let of = |port: &&mut Aggregation| port.bridge == from.bridge && port.members.contains_key(&from.interface);
        if let Some(port) = self.ports.values_mut().find(of)
            && let Some(lacp) = &mut port.lacp
        {
            lacp.receive(from.ofport.into(), frame, world.now);
            port.settle(world);
        }
    }

    fn tick(&mut self, world: &mut World<'_>) {
        for port in self.ports.values_mut() {
            if port.next_event().is_some_and(|due| due <= world.now) {
                port.tick(world);
            }
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.ports.values().filter_map(Aggregation::next_event).min()
    }

    fn links_changed(&mut self, world: &mut World<'_>) {
        for port in self.ports.values_mut().filter(|port| port.bond.is_some()) {
            port.settle(world);
        }
    }
}

impl Aggregations {
    fn configure(&mut self, bridge: &str, name: &str, port: &Port, world: &mut World<'_>) {
        let key = (bridge.to_owned(), name.to_owned());
        let others = self
            .ports
            .iter()
            .filter(|(other, _)| other.0 == bridge && **other != key);
        let taken = others.filter_map(|(_, other)| other.lacp.as_ref()?.key()).collect();
        let aggregation = self.ports.entry(key).or_insert_with(|| Aggregation {
            bridge: bridge.to_owned(),
            port: name.to_owned(),
            members: BTreeMap::new(),
            config: bond::Config::default(),
            bond: None,
            lacp: None,
            loads: Arc::default(),
            asked: false,
        });
        let mut config = port.aggregation.bond.clone();
        config.id = aggregation.config.id;
        if config.mode == Mode::Tcp && config.id == 0 {
            self.last_id += 1;
            config.id = self.last_id;
        }
        aggregation.configure(config, port, taken, world);
    }

    /// A bond by its port's name.
    pub(crate) fn bond(&mut self, name: &str) -> Option<&mut Aggregation> {
        self.ports
            .values_mut()
            .find(|port| port.port == name && port.bond.is_some())
    }

    /// All ports, by name.
    fn by_name(&self) -> Vec<&Aggregation> {
        let mut ports: Vec<&Aggregation> = self.ports.values().collect();
        ports.sort_by(|a, b| a.port.cmp(&b.port));
        ports
    }

    /// LACP of an interface, and the interface's number in it.
    pub(crate) fn lacp(&self, bridge: &str, interface: &str) -> Option<(&Lacp, u32)> {
        self.ports
            .values()
            .filter(|port| port.bridge == bridge)
            .find_map(|port| {
                let member = port.members.get(interface)?;
                Some((port.lacp.as_ref()?, (*member).into()))
            })
    }

    /// What the database shows of a port, if it has a bond or LACP.
    pub(crate) fn report(&self, bridge: &str, port: &str) -> Option<PortReport> {
        let port = self.ports.get(&(bridge.to_owned(), port.to_owned()))?;
        let lacp = port.lacp.as_ref();
        let current = lacp.map(|lacp| {
            let members = port.members.iter();
            members
                .map(|(name, ofport)| (name.clone(), lacp.is_current((*ofport).into())))
                .collect()
        });
        let active = port
            .bond
            .as_ref()
            .map(|bond| bond.active_mac().unwrap_or(MacAddr::ZERO));
        Some(PortReport {
            active,
            current: current.unwrap_or_default(),
        })
    }
}

impl Aggregation {
    /// `taken`: LACP's keys of the bridge's other ports.
    fn configure(&mut self, config: bond::Config, port: &Port, taken: BTreeSet<u16>, world: &mut World<'_>) {
        let facts = port.interfaces.keys().filter_map(|name| world.ports.get(name));
        let members: BTreeMap<String, u16> = facts
            .filter(|facts| facts.bridge == self.bridge)
            .map(|facts| (facts.interface.clone(), facts.ofport))
            .collect();
        for name in self.members.keys().filter(|name| !members.contains_key(*name)) {
            world.set_alive(name, Watcher::Lacp, None);
        }
        self.members = members;
        self.config = config;
        self.configure_lacp(port, taken, world);
        self.settle_lacp(world);
        if port.interfaces.len() < 2 {
            self.bond = None;
        } else if self.bond.is_none() {
            let config = self.bond_config(world);
            self.bond = Some(Bond::new(&config, self.lacp_status(), world.now));
        }
        self.settle(world);
    }

    fn configure_lacp(&mut self, port: &Port, taken: BTreeSet<u16>, world: &mut World<'_>) {
        let Some(wanted) = &port.aggregation.lacp else {
            if self.lacp.take().is_some() {
                for name in self.members.keys() {
                    world.set_alive(name, Watcher::Lacp, None);
                }
            }
            return;
        };
        let members = self.members.iter().filter_map(|(name, ofport)| {
            let facts = world.ports.get(name)?;
            let own = port.interfaces.get(name)?.lacp;
            let config = lacp::MemberConfig {
                port: if own.port == 0 { *ofport } else { own.port },
                priority: own.priority,
                key: own.key,
                up: facts.up,
                mac: facts.mac,
            };
            Some((u32::from(*ofport), config))
        });
        let system = wanted.system.or_else(|| world.ports.mac_of_bridge(&self.bridge));
        let config = lacp::Config {
            active: wanted.active,
            fast: wanted.fast,
            fallback: self.config.fallback,
            system_priority: wanted.priority,
            system: system.unwrap_or(MacAddr::ZERO),
            taken,
            members: members.collect(),
        };
        match &mut self.lacp {
            Some(lacp) => lacp.configure(&config, world.now),
            None => self.lacp = Some(Lacp::new(&config, world.now)),
        }
    }

    fn lacp_status(&self) -> LacpStatus {
        match &self.lacp {
            None => LacpStatus::Off,
            Some(lacp) if lacp.is_negotiated() => LacpStatus::Negotiated,
            Some(_) => LacpStatus::Configured,
        }
    }

    /// The bond's configuration with the links of its members.
    fn bond_config(&self, world: &World<'_>) -> bond::Config {
        let members = self.members.keys().filter_map(|name| {
            let (facts, link) = (world.ports.get(name)?, world.link(name)?);
            let member = bond::MemberConfig {
                mac: facts.mac,
                up: link.up,
                may_enable: link.up && link.alive,
            };
            Some((name.clone(), member))
        });
        bond::Config {
            members: members.collect(),
            ..self.config.clone()
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let lacp = self.lacp.as_ref().and_then(Lacp::next_event);
        let bond = self.bond.as_ref().and_then(Bond::next_event);
        lacp.into_iter().chain(bond).min()
    }

    fn tick(&mut self, world: &mut World<'_>) {
        if let Some(lacp) = &mut self.lacp {
            lacp.tick(world.now);
        }
        let asks = self.bond.as_ref().is_some_and(|bond| bond.rebalances(world.now));
        if asks && !self.asked {
            // The loads are there when this is due again, which is at once.
            self.asked = true;
            let (loads, bridge, port) = (self.loads.clone(), self.bridge.clone(), self.port.clone());
            world.change(move |switch, _| {
                *loads.lock() = switch.take_bond_loads(&bridge, &port);
                Vec::new()
            });
        } else if let Some(bond) = &mut self.bond {
            let of_switch = self.loads.lock().take();
            for loads in of_switch.into_iter().chain(world.take_bond_loads(self.config.id)) {
                bond.credit(&loads);
            }
            self.asked = false;
            bond.tick(world.now);
        }
        self.settle(world);
    }

    /// Sends what LACP has to send, and tells the switch what has changed.
    pub(crate) fn settle(&mut self, world: &mut World<'_>) {
        self.settle_lacp(world);
        let (config, status) = (self.bond_config(world), self.lacp_status());
        let Some(bond) = &mut self.bond else { return };
        bond.configure(&config, status, world.now);
        while let Some(event) = bond.take_event() {
            tracing::info!(target: "bond", "{}", event.text(&self.port));
        }
        let (changed, learning) = (bond.take_changed(), bond.take_learning());
        if changed {
            self.tell_switch(world);
        }
        if learning {
            self.announce(world);
        }
    }

    /// Sends LACP's frames, and notes which members it lets carry traffic.
    fn settle_lacp(&mut self, world: &mut World<'_>) {
        if let Some(lacp) = &mut self.lacp {
            let name_of = |number: u32| self.members.iter().find(|(_, ofport)| u32::from(**ofport) == number);
            while let Some((member, frame)) = lacp.take_frame() {
                if let Some((name, _)) = name_of(member) {
                    world.send(name, frame);
                }
            }
            for (name, ofport) in &self.members {
                world.set_alive(name, Watcher::Lacp, Some(lacp.may_enable((*ofport).into())));
            }
        }
    }

    fn tell_switch(&self, world: &mut World<'_>) {
        let Some(bond) = &self.bond else { return };
        let number = |name: &str| self.members.get(name).map(|ofport| flow::port_from_of10(*ofport));
        let config = bond.config();
        let enabled = self.members.keys().filter(|name| bond.is_enabled(name));
        let state = BondState {
            id: config.id,
            mode: config.mode,
            lacp: bond.lacp(),
            fallback: config.fallback,
            all_members_active: config.all_members_active,
            basis: config.basis,
            outputs: bond.outputs(),
            active: bond.active().and_then(number),
            enabled: enabled.filter_map(|name| number(name)).collect(),
            buckets: bond.buckets().map(|name| name.and_then(number)).collect(),
        };
        if state.outputs == Outputs::Tcp {
            let device = |name: Option<&str>| world.ports.get(name?)?.device;
            let mut members = [None; BUCKETS];
            for (place, name) in members.iter_mut().zip(bond.buckets()) {
                *place = device(name);
            }
            // Before the switch's tables: megaflows that they make know the bond.
            let basis = config.basis;
            world.set_bond(config.id, BondTable { basis, members });
        }
        let (bridge, port) = (self.bridge.clone(), self.port.clone());
        world.change(move |switch, _| switch.set_bonds(&bridge, vec![(port, Some(state))]));
        world.note_status();
    }

    /// Lets the other end learn by which member the bridge's stations are reached now.
    fn announce(&self, world: &mut World<'_>) {
        let Some(bond) = &self.bond else { return };
        let active = bond.active().map(str::to_owned);
        let buckets: Vec<Option<String>> = bond.buckets().map(|name| name.map(str::to_owned)).collect();
        let (outputs, basis) = (bond.outputs(), bond.config().basis);
        let choose = move |mac: MacAddr, vlan: Vid| match outputs {
            Outputs::Slb => buckets[usize::from(hash_of_source(mac, vlan.get(), basis))].clone(),
            Outputs::Active => active.clone(),
            Outputs::Tcp | Outputs::Nothing => None,
        };
        world.announce(&self.bridge, &self.port, Box::new(choose));
    }

    /// Ends the port's part in the switch.
    fn leave(self, world: &mut World<'_>) {
        for name in self.members.keys() {
            world.set_alive(name, Watcher::Lacp, None);
        }
        if self.config.id != 0 {
            world.end_bond(self.config.id);
        }
        let (bridge, port) = (self.bridge, self.port);
        world.change(move |switch, _| switch.set_bonds(&bridge, vec![(port, None)]));
        world.note_status();
    }
}
