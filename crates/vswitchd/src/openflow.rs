//! OpenFlow: the sockets of bridges, and what ties their agents to the switch.
//!
//! Each bridge has an agent, which implements the protocol; the tasks here move its connections'
//! bytes. Tools connect to `BRIDGE.mgmt`, and to `BRIDGE.snoop` to follow the controllers' traffic.
//! Other connections come in by [`BridgeAgent::add`].

mod bridge;
mod connection;
mod environment;
mod output;

pub(crate) use bridge::BridgeAgent;
pub(crate) use connection::CLOSED;

use crate::bridges::{BridgeState, Bridges};
use crate::desired::{self, Desired};
use crate::state::State;
use ofproto::{Config, PortInfo};
use openflow::model::Port;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use telemetry::budget::Budget;
use tokio::sync::Notify;
use wire::MacAddr;

/// How long changes made by packets are collected before controllers are notified.
const PAUSE: Duration = Duration::from_millis(5);

/// Packets delivered to agents before other tasks run.
const BATCH: usize = 64;

/// The agents of all bridges, by name.
pub(crate) struct OpenFlow {
    bridges: RefCell<BTreeMap<String, Rc<BridgeAgent>>>,
    /// Notified when a bridge's socket listens.
    pub(crate) listening: Notify,
    /// The memory that connections of all bridges may hold.
    budget: Budget,
}

/// Bytes that the connections of all bridges may hold together, on a machine with at least four
/// times as much memory.
const MEMORY: usize = 1 << 30;
/// Bytes that each connection may hold in any case.
const RESERVED: usize = 1 << 20;

impl Default for OpenFlow {
    fn default() -> OpenFlow {
        let all = rustix::system::sysinfo();
        let all = (all.totalram as usize).saturating_mul(all.mem_unit as usize);
        OpenFlow {
            bridges: RefCell::default(),
            listening: Notify::default(),
            budget: Budget::new(MEMORY.min(all / 4), RESERVED),
        }
    }
}

impl OpenFlow {
    /// Configures the agents and updates their ports.
    pub(crate) fn follow(&self, state: &Rc<State>, desired: &Desired, bridges: &Bridges) {
        self.bridges.borrow_mut().retain(|name, agent| {
            let stays = bridges.state().contains_key(name);
            if !stays {
                agent.end();
            }
            stays
        });
        for (name, wanted) in &desired.bridges {
            let Some(there) = bridges.state().get(name) else {
                continue;
            };
            let config = config(name, desired, wanted, there);
            let known = self.bridge(name);
            let agent = match known {
                Some(agent) => {
                    agent.configure(config);
                    agent
                }
                None => {
                    let agent = BridgeAgent::start(state, config);
                    self.bridges.borrow_mut().insert(name.clone(), agent.clone());
                    agent
                }
            };
            agent.set_ports(ports(name, there, state), state);
            agent.set_tables(&wanted.tables, state);
        }
    }

    /// Reports changed links to the agents.
    pub(crate) fn links_changed(&self, state: &State, bridges: &Bridges) {
        for (name, agent) in &*self.bridges.borrow() {
            if let Some(there) = bridges.state().get(name) {
                agent.set_ports(ports(name, there, state), state);
            }
        }
    }

    /// Notifies controllers of rules that expired or that packets learned.
    pub(crate) fn tables_changed(&self, state: &State) {
        for agent in self.bridges.borrow().values() {
            agent.tables_changed(state);
        }
    }

    /// Notifies controllers of changes that packets made in the tables, for the life of the daemon.
    pub(crate) async fn watch(state: Rc<State>) {
        loop {
            state.shared.tables_changed.notified().await;
            state.shared.catch_up();
            state.openflow.tables_changed(&state);
            state.tables_touched();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Takes packets from workers to the agents, for the life of the daemon.
    pub(crate) async fn deliver(state: Rc<State>) {
        loop {
            let packets = state.shared.packets.take(BATCH).await;
            let now = state.shared.clock.now();
            let mut told: BTreeMap<u32, Option<Rc<BridgeAgent>>> = BTreeMap::new();
            for packet in &packets {
                let agent = told.entry(packet.meaning.bridge).or_insert_with_key(|number| {
                    let switch = state.shared.switch.read();
                    state.openflow.bridge(switch.bridge_name(*number)?)
                });
                if let Some(agent) = agent {
                    agent.packet_in(packet, now);
                }
            }
            told.into_values().flatten().for_each(|agent| agent.wake());
            tokio::task::yield_now().await;
        }
    }

    /// Closes the connections of all bridges; peers must reconnect.
    pub(crate) fn reconnect(&self) {
        let agents: Vec<_> = self.bridges.borrow().values().cloned().collect();
        agents.iter().for_each(|agent| agent.reconnect());
    }

    /// A socket that a bridge is not listening on yet, and the last error.
    pub(crate) fn unbound(&self) -> Option<(String, String)> {
        self.bridges.borrow().values().find_map(|agent| agent.unbound())
    }

    /// Adds what connections hold to `memory/show`.
    pub(crate) fn count_memory(&self, usage: &mut telemetry::memory::Usage) {
        let bridges = self.bridges.borrow();
        let peers = bridges.values().map(|agent| agent.peers()).sum::<usize>();
        usage.insert("openflow peers", peers as u64);
        usage.insert("openflow bytes", self.budget.held() as u64);
        usage.insert("openflow limit", self.budget.limit() as u64);
    }

    /// The agent of a bridge.
    pub(crate) fn bridge(&self, name: &str) -> Option<Rc<BridgeAgent>> {
        self.bridges.borrow().get(name).cloned()
    }
}

fn config(name: &str, desired: &Desired, wanted: &desired::Bridge, there: &BridgeState) -> Config {
    Config {
        bridge: name.to_owned(),
        versions: wanted.protocols,
        datapath_id: there.datapath_id,
        description: wanted.description.clone().unwrap_or_else(|| "None".to_owned()),
        serial: wanted.serial.clone().unwrap_or_else(|| "None".to_owned()),
        software: telemetry::version::COMPATIBLE.to_owned() + ", oxvs " + telemetry::version::OXVS,
        queue: wanted.controller_queue,
        bundle_timeout: desired.bundle_timeout,
        ..Config::default()
    }
}

/// The ports of a bridge for its agent.
fn ports(name: &str, bridge: &BridgeState, state: &State) -> Vec<PortInfo> {
    let now = state.shared.clock.now();
    let in_tree = state.protocols.look(|services| services.trees.states(name));
    let links = state.shared.links.lock();
    let port = |(name, interface): (&String, &crate::bridges::InterfaceState)| {
        let number = *interface.ofport.as_ref().ok()?;
        let link = interface.link.as_ref();
        // Patch ports and tunnels have no device.
        if link.is_none() && interface.peer.is_none() && interface.tunnel.is_none() {
            return None;
        }
        Some(PortInfo {
            port: port_number(number),
            name: name.clone(),
            hw_addr: link.map_or_else(|| patch_address(interface.uuid), |link| link.mac),
            admin_up: link.is_none_or(|link| link.admin_up),
            link_up: link.is_none_or(|link| link.carrier),
            alive: links.state(name, true).alive,
            speed: link.and_then(|link| link.speed),
            full_duplex: link.is_none_or(|link| link.full_duplex != Some(false)),
            // Tunnels share datapath ports.
            device: interface.port.filter(|_| interface.tunnel.is_none()),
            since: now,
            tree: in_tree.get(name).copied(),
        })
    };
    bridge.interfaces.iter().filter_map(port).collect()
}

/// A port's number in OpenFlow 1.1 and later.
fn port_number(number: u16) -> Port {
    if number == crate::ofport::LOCAL {
        Port::LOCAL
    } else {
        Port(number.into())
    }
}

/// A stable address for a port without a device: a patch port or a tunnel.
fn patch_address(uuid: Option<ovsdb::Uuid>) -> MacAddr {
    let mut mac = [0; 6];
    let uuid = uuid.unwrap_or_default().as_u128().to_be_bytes();
    mac.copy_from_slice(&uuid[..6]);
    mac[0] = mac[0] & 0xfc | 0x02;
    MacAddr(mac)
}
