//! Spanning trees: a machine of STP or RSTP for each bridge that has one, and its way into the
//! switch.

pub(crate) mod report;
pub(crate) mod rows;
mod show;

use super::links::Passes;
use super::ports::PortFacts;
use super::{Service, World};
use crate::desired::Desired;
use dp::PuntReason;
use nanos::Nanos;
use ofproto::TreeState;
use protocols::rstp::{self, Rstp};
use protocols::stp::wire::{BridgeId, PortId};
use protocols::stp::{self, Event, Guard, Stp};
use rows::{PortWanted, Protocol, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use wire::MacAddr;

/// The speed of a link that does not tell it, in Mbit/s, as Open vSwitch assumes.
const UNKNOWN_SPEED: u64 = 10_000;

/// The spanning trees of all bridges.
#[derive(Default)]
pub(crate) struct Trees {
    bridges: BTreeMap<String, Tree>,
}

/// The spanning tree of a bridge. Ports have the numbers of OpenFlow 1.0 in it.
struct Tree {
    machine: Machine,
    ports: BTreeMap<u32, TreePort>,
}

struct TreePort {
    interface: String,
    port: String,
    /// Its state, in Open vSwitch's words.
    state: &'static str,
}

enum Machine {
    Stp(Stp),
    Rstp(Rstp),
}

impl Service for Trees {
    fn takes(&self, reason: PuntReason) -> bool {
        reason == PuntReason::Stp
    }

    fn follow(&mut self, desired: &Desired, world: &mut World<'_>) {
        let wanted = |name: &str| desired.bridges.get(name).and_then(|bridge| bridge.tree.as_ref());
        self.bridges.retain(|name, tree| {
            let stays = wanted(name).is_some_and(|wanted| wanted.protocol == tree.machine.protocol());
            if !stays {
                tree.leave(world);
            }
            stays
        });
        for name in desired.bridges.keys() {
            let Some(wanted) = wanted(name) else { continue };
            let tree = self
                .bridges
                .entry(name.clone())
                .or_insert_with(|| Tree::new(wanted, bridge_id(name, wanted, world), world.now));
            tree.configure(name, wanted, world);
        }
    }

    fn receive(&mut self, from: &PortFacts, frame: &[u8], world: &mut World<'_>) {
        if let Some(tree) = self.bridges.get_mut(&from.bridge) {
            match &mut tree.machine {
                Machine::Stp(stp) => stp.receive(from.ofport.into(), frame, world.now),
                Machine::Rstp(rstp) => rstp.receive(from.ofport.into(), frame, world.now),
            }
            tree.act(&from.bridge, world);
        }
    }

    fn tick(&mut self, world: &mut World<'_>) {
        for (name, tree) in &mut self.bridges {
            if tree.machine.next_event().is_some_and(|due| due <= world.now) {
                match &mut tree.machine {
                    Machine::Stp(stp) => stp.tick(world.now),
                    Machine::Rstp(rstp) => rstp.tick(world.now),
                }
                tree.act(name, world);
            }
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.bridges.values().filter_map(|tree| tree.machine.next_event()).min()
    }
}

impl Trees {
    /// The states of a bridge's ports for OpenFlow, by interface.
    pub(crate) fn states(&self, bridge: &str) -> BTreeMap<String, TreeState> {
        let ports = self
            .bridges
            .get(bridge)
            .into_iter()
            .flat_map(|tree| tree.ports.values());
        ports
            .filter_map(|port| Some((port.interface.clone(), openflow_state(port.state)?)))
            .collect()
    }

    /// Lets the trees of a protocol, of one bridge or of all, behave as if the topology had
    /// changed. `false` if the bridge has no such tree.
    pub(crate) fn force_topology_change(
        &mut self,
        protocol: Protocol,
        bridge: Option<&str>,
        world: &mut World<'_>,
    ) -> bool {
        let mut any = bridge.is_none();
        for (name, tree) in &mut self.bridges {
            if tree.machine.protocol() == protocol && bridge.is_none_or(|bridge| bridge == name) {
                any = true;
                match &mut tree.machine {
                    Machine::Stp(stp) => stp.force_topology_change(world.now),
                    Machine::Rstp(rstp) => rstp.force_topology_change(world.now),
                }
                tree.act(name, world);
            }
        }
        any
    }
}

/// A port's state as OpenFlow has it. A port without a link, or one that has no tree, has none.
fn openflow_state(state: &str) -> Option<TreeState> {
    match state {
        "listening" | "Discarding" => Some(TreeState::Listen),
        "learning" | "Learning" => Some(TreeState::Learn),
        "forwarding" | "Forwarding" => Some(TreeState::Forward),
        "blocking" => Some(TreeState::Block),
        _ => None,
    }
}

impl Machine {
    fn protocol(&self) -> Protocol {
        match self {
            Machine::Stp(_) => Protocol::Stp,
            Machine::Rstp(_) => Protocol::Rstp,
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        match self {
            Machine::Stp(stp) => stp.next_event(),
            Machine::Rstp(rstp) => rstp.next_event(),
        }
    }

    fn take_frame(&mut self) -> Option<(u32, Vec<u8>)> {
        match self {
            Machine::Stp(stp) => stp.take_frame(),
            Machine::Rstp(rstp) => rstp.take_frame(),
        }
    }

    fn take_event(&mut self) -> Option<Event> {
        match self {
            Machine::Stp(stp) => stp.take_event(),
            Machine::Rstp(rstp) => rstp.take_event(),
        }
    }

    /// The states of all ports, in Open vSwitch's words.
    fn states(&self, now: Nanos) -> BTreeMap<u32, &'static str> {
        match self {
            Machine::Stp(stp) => stp
                .ports(now)
                .map(|(number, port)| (number, show::stp_state(port.state)))
                .collect(),
            Machine::Rstp(rstp) => rstp
                .ports(now)
                .map(|(number, port)| (number, show::rstp_state(port.state)))
                .collect(),
        }
    }
}

impl Tree {
    fn new(wanted: &Wanted, id: BridgeId, now: Nanos) -> Tree {
        Tree {
            machine: match wanted.protocol {
                Protocol::Stp => Machine::Stp(Stp::new(&wanted.stp(id, BTreeMap::new()), now)),
                Protocol::Rstp => Machine::Rstp(Rstp::new(&wanted.rstp(id, BTreeMap::new()), now)),
            },
            ports: BTreeMap::new(),
        }
    }

    /// Applies a configuration.
    fn configure(&mut self, name: &str, wanted: &Wanted, world: &mut World<'_>) {
        let facts: Vec<(&PortFacts, &PortWanted)> = wanted
            .ports
            .iter()
            .filter_map(|(interface, port)| Some((world.ports.get(interface)?, port)))
            .filter(|(facts, _)| facts.bridge == name)
            .collect();
        let mut ports = BTreeMap::new();
        for (facts, port) in &facts {
            let entry = TreePort {
                interface: facts.interface.clone(),
                port: port.port.clone(),
                state: "disabled",
            };
            ports.insert(u32::from(facts.ofport), entry);
        }
        let mut before = std::mem::replace(&mut self.ports, ports);
        for (number, port) in &mut self.ports {
            match before.remove(number).filter(|old| old.interface == port.interface) {
                Some(old) => port.state = old.state,
                // Stations that were learned without the tree may be behind another port.
                None => world.flush(name, &port.port, &port.interface),
            }
        }
        for old in before.into_values() {
            if !self.ports.values().any(|port| port.interface == old.interface) {
                world.set_tree(&old.interface, None);
            }
        }
        let id = bridge_id(name, wanted, world);
        let mac = id.mac();
        let numbers = numbers(&facts, wanted.protocol.most_ports());
        let facts = facts.into_iter().zip(numbers);
        match &mut self.machine {
            Machine::Stp(stp) => {
                let ports = facts.map(|((facts, port), number)| (facts.ofport.into(), port.stp(facts, number, mac)));
                stp.configure(&wanted.stp(id, ports.collect()), world.now);
            }
            Machine::Rstp(rstp) => {
                let ports = facts.map(|((facts, port), number)| (facts.ofport.into(), port.rstp(facts, number, mac)));
                rstp.configure(&wanted.rstp(id, ports.collect()), world.now);
            }
        }
        self.act(name, world);
    }

    /// Carries out what the machine wants.
    fn act(&mut self, name: &str, world: &mut World<'_>) {
        while let Some((number, frame)) = self.machine.take_frame() {
            if let Some(port) = self.ports.get(&number) {
                world.send(&port.interface, frame);
            }
        }
        while let Some(event) = self.machine.take_event() {
            match event {
                Event::Port { port, learn, forward } => {
                    // A port that is gone has left already.
                    if let Some(port) = self.ports.get(&port) {
                        world.set_tree(&port.interface, Some(Passes { learn, forward }));
                    }
                }
                Event::Flush { port } => {
                    if let Some(port) = self.ports.get(&port) {
                        world.flush(name, &port.port, &port.interface);
                    }
                }
                Event::Guard { port, guard } => {
                    if let Some(port) = self.ports.get(&port) {
                        tracing::warn!(target: "bridge", "port {}: {}", port.port, guard_text(guard));
                    }
                }
            }
        }
        let mut changed = false;
        for (number, state) in self.machine.states(world.now) {
            if let Some(port) = self.ports.get_mut(&number)
                && port.state != state
            {
                let (name, before) = (&port.interface, port.state);
                tracing::debug!(target: "ofproto_dpif", "port {name}: {} state changed from {before} to {state}", self.machine.protocol().name());
                port.state = state;
                changed = true;
            }
        }
        if changed {
            world.note_status();
        }
    }

    /// Ends the tree.
    fn leave(&self, world: &mut World<'_>) {
        for port in self.ports.values() {
            world.set_tree(&port.interface, None);
        }
        world.note_status();
    }
}

fn bridge_id(name: &str, wanted: &Wanted, world: &World<'_>) -> BridgeId {
    let mac = wanted.mac.or_else(|| world.ports.mac_of_bridge(name));
    BridgeId::new(wanted.priority, mac.unwrap_or(MacAddr::ZERO))
}

fn guard_text(guard: Guard) -> &'static str {
    match guard {
        Guard::Bpdu => "received a BPDU; bpdu-guard disables the port until its link goes down",
        Guard::Root => "received a better root than the present one; root-guard blocks the port",
        Guard::Claim => "received a root that allowed-roots does not have; the port is blocked",
    }
}

/// The numbers of ports in their identifiers: the configured one, or else that of OpenFlow if it is
/// legal and free, or else the lowest free one.
fn numbers(ports: &[(&PortFacts, &PortWanted)], most: u16) -> Vec<u16> {
    let mut taken: BTreeSet<u16> = ports.iter().filter_map(|(_, port)| port.number).collect();
    let natural: Vec<Option<u16>> = ports
        .iter()
        .map(|(facts, port)| {
            let own = Some(facts.ofport).filter(|ofport| (1..=most).contains(ofport));
            port.number.or_else(|| own.filter(|own| taken.insert(*own)))
        })
        .collect();
    let mut free = (1..=most).filter(|number| !taken.contains(number));
    let number = |natural: Option<u16>| natural.or_else(|| free.next()).unwrap_or(most);
    natural.into_iter().map(number).collect()
}

impl Wanted {
    fn stp(&self, id: BridgeId, ports: BTreeMap<u32, stp::PortConfig>) -> stp::Config {
        stp::Config {
            id,
            times: self.times,
            ports,
        }
    }

    fn rstp(&self, id: BridgeId, ports: BTreeMap<u32, rstp::PortConfig>) -> rstp::Config {
        rstp::Config {
            id,
            times: self.times,
            force_stp: self.force_stp,
            transmit_hold_count: self.hold_count,
            ports,
        }
    }
}

impl PortWanted {
    fn stp(&self, facts: &PortFacts, number: u16, bridge: MacAddr) -> stp::PortConfig {
        stp::PortConfig {
            id: PortId(u16::from(self.priority) << 8 | number),
            cost: self.cost.unwrap_or_else(|| stp_cost(mbits(facts))) as u16,
            mac: source(facts, bridge),
            up: facts.up,
            guards: self.guards.clone(),
        }
    }

    fn rstp(&self, facts: &PortFacts, number: u16, bridge: MacAddr) -> rstp::PortConfig {
        rstp::PortConfig {
            id: PortId(u16::from(self.priority >> 4) << 12 | number),
            cost: self.cost.unwrap_or_else(|| rstp_cost(mbits(facts))),
            mac: source(facts, bridge),
            up: facts.up && self.enabled,
            full_duplex: facts.full_duplex,
            point_to_point: self.point_to_point,
            admin_edge: self.admin_edge,
            auto_edge: self.auto_edge,
            mcheck: self.mcheck,
            guards: self.guards.clone(),
        }
    }
}

/// The source address of a port's BPDUs. A patch has none of its own.
fn source(facts: &PortFacts, bridge: MacAddr) -> MacAddr {
    match facts.mac {
        MacAddr::ZERO => bridge,
        mac => mac,
    }
}

fn mbits(facts: &PortFacts) -> u64 {
    facts.speed.map_or(UNKNOWN_SPEED, |speed| speed / 1_000_000)
}

/// The default cost of a link by its speed in Mbit/s (IEEE 802.1D-1998 table 8-5, with 2 from
/// 10 Gbit/s on).
fn stp_cost(mbits: u64) -> u32 {
    match mbits {
        10_000.. => 2,
        1000.. => 4,
        100.. => 19,
        16.. => 62,
        10.. => 100,
        4.. => 250,
        _ => 19,
    }
}

/// The same of RSTP (IEEE 802.1D-2004 table 17-3).
fn rstp_cost(mbits: u64) -> u32 {
    match mbits {
        10_000_000.. => 2,
        1_000_000.. => 20,
        100_000.. => 200,
        10_000.. => 2000,
        1000.. => 20_000,
        100.. => 200_000,
        10.. => 2_000_000,
        1.. => 20_000_000,
        0 => 200_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_follow_the_tables_of_the_standards() {
        let speeds = [0, 1, 4, 10, 16, 100, 1000, 2500, 10_000, 40_000, 100_000];
        let stp = [19, 19, 250, 100, 62, 19, 4, 4, 2, 2, 2];
        let rstp = [
            200_000_000,
            20_000_000,
            20_000_000,
            2_000_000,
            2_000_000,
            200_000,
            20_000,
            20_000,
            2000,
            2000,
            200,
        ];
        assert_eq!((speeds.map(stp_cost), speeds.map(rstp_cost)), (stp, rstp));
    }
}
