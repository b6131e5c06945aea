//! A bridge's spanning tree, as the procedures of IEEE 802.1D-1998 §8.6 have it.
//!
//! The procedures have the standard's names; they are in `messages`, `roles`, `states` and
//! `topology`. Every port is in one of five [`State`]s; the bridges elect a root, each port tells
//! what it takes for the best path to it, and ports that offer no better path than another bridge's
//! block.

use super::guard::{Gate, Verdict};
use super::timers::{Age, BridgeTimes};
use super::wire::{Bpdu, BridgeId, PortId, Times};
use super::{Event, Guard, Guards, Refused};
use core::time::Duration;
use nanos::Nanos;
use std::collections::{BTreeMap, VecDeque};
use wire::MacAddr;

/// The configuration of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The bridge's own identifier.
    pub id: BridgeId,
    /// Its timers, used if it is the root.
    pub times: BridgeTimes,
    /// Its ports, by numbers of the caller's choice.
    pub ports: BTreeMap<u32, PortConfig>,
}

/// The configuration of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Priority and number; no two ports have the same.
    pub id: PortId,
    /// The cost of its link, which adds to the way to the root.
    pub cost: u16,
    /// The source address of its BPDUs.
    pub mac: MacAddr,
    /// Whether the link works.
    pub up: bool,
    /// What it takes from the other end.
    pub guards: Guards,
}

/// The state of a port (§8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It takes no part.
    Disabled,
    /// It neither learns nor forwards.
    Blocking,
    /// It does neither yet, so that BPDUs can end a loop.
    Listening,
    /// It learns and does not forward yet.
    Learning,
    /// It learns and forwards.
    Forwarding,
}

/// What a port is in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The way to the root.
    Root,
    /// The way to the root for its segment.
    Designated,
    /// A way that is not used.
    Alternate,
    /// It takes no part.
    Disabled,
}

/// The state of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its own identifier.
    pub id: BridgeId,
    /// The bridge that it takes for the root.
    pub root: BridgeId,
    /// Its distance to it.
    pub root_path_cost: u32,
    /// The port on the way to it; `None` if it is the root itself.
    pub root_port: Option<u32>,
    /// The timers in use, those of the root.
    pub times: Times,
    /// The bridge's own timers.
    pub own_times: Times,
    /// The root tells of a topology change.
    pub topology_change: bool,
    /// Topology changes that this bridge has noticed or been told of.
    pub topology_changes: u64,
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Its identifier.
    pub id: PortId,
    /// Its state.
    pub state: State,
    /// How long it has been in it.
    pub in_state: Duration,
    /// Its role.
    pub role: Role,
    /// Its cost.
    pub cost: u16,
    /// BPDUs sent.
    pub tx: u64,
    /// BPDUs taken.
    pub rx: u64,
    /// BPDUs not taken.
    pub refused: Refused,
    /// The guard that disables or blocks it now.
    pub guard: Option<Guard>,
}

#[derive(Debug)]
pub(super) struct Port {
    pub(super) config: PortConfig,
    pub(super) state: State,
    pub(super) since: Nanos,
    /// What the best BPDU on the segment says; the own one at a designated port (§8.5.5.4–7).
    pub(super) root: BridgeId,
    pub(super) cost: u32,
    pub(super) bridge: BridgeId,
    pub(super) port: PortId,
    pub(super) acknowledge: bool,
    pub(super) config_pending: bool,
    pub(super) age: Option<Age>,
    pub(super) forward_at: Option<Nanos>,
    pub(super) hold_until: Option<Nanos>,
    pub(super) gate: Gate,
    pub(super) tx: u64,
    pub(super) rx: u64,
}

/// A bridge's spanning tree.
#[derive(Debug)]
pub struct Stp {
    pub(super) id: BridgeId,
    pub(super) own: Times,
    pub(super) root: BridgeId,
    pub(super) root_path_cost: u32,
    pub(super) root_port: Option<u32>,
    pub(super) times: Times,
    pub(super) detected: bool,
    pub(super) topology_change: bool,
    pub(super) topology_changes: u64,
    pub(super) hello_at: Option<Nanos>,
    pub(super) tcn_at: Option<Nanos>,
    pub(super) change_until: Option<Nanos>,
    /// While the topology changes, addresses are flushed once a forward delay.
    pub(super) flush_at: Option<Nanos>,
    pub(super) ports: BTreeMap<u32, Port>,
    pub(super) frames: VecDeque<(u32, Vec<u8>)>,
    pub(super) events: VecDeque<Event>,
}

impl Stp {
    /// A bridge with this configuration.
    pub fn new(config: &Config, now: Nanos) -> Stp {
        let own = config.times.times();
        let mut stp = Stp {
            id: config.id,
            own,
            root: config.id,
            root_path_cost: 0,
            root_port: None,
            times: own,
            detected: false,
            topology_change: false,
            topology_changes: 0,
            hello_at: None,
            tcn_at: None,
            change_until: None,
            flush_at: None,
            ports: BTreeMap::new(),
            frames: VecDeque::new(),
            events: VecDeque::new(),
        };
        stp.configure(config, now);
        stp.port_state_selection(now);
        stp.config_bpdu_generation(now);
        stp.hello_at = Some(now + Times::duration(stp.times.hello_time));
        stp
    }

    /// Applies a configuration; what stays the same keeps its state.
    pub fn configure(&mut self, config: &Config, now: Nanos) {
        let own = config.times.times();
        if self.own != own {
            self.own = own;
            if self.is_root() {
                self.times = own;
            }
        }
        let gone: Vec<u32> = self
            .ports
            .keys()
            .filter(|port| !config.ports.contains_key(port))
            .copied()
            .collect();
        for port in gone {
            self.disable(port, now);
            self.ports.remove(&port);
            self.events.push_back(Event::Port {
                port,
                learn: true,
                forward: true,
            });
        }
        if self.id != config.id {
            self.set_bridge_id(config.id, now);
        }
        for (&number, new) in &config.ports {
            let Some(port) = self.ports.get_mut(&number) else {
                self.add(number, new, now);
                continue;
            };
            let old = std::mem::replace(&mut port.config, new.clone());
            port.gate.set_guards(&new.guards);
            if !new.up {
                port.gate.release();
            }
            if old.id != new.id {
                self.set_port_id(number, old.id, now);
            }
            if old.cost != new.cost {
                self.update(now);
            }
            self.follow_link(number, now);
        }
    }

    /// Takes a frame, from the Ethernet header on.
    pub fn receive(&mut self, number: u32, frame: &[u8], now: Nanos) {
        let (root, block) = (self.root, Times::duration(self.times.max_age));
        let Some(port) = self.ports.get_mut(&number) else {
            return;
        };
        if port.state == State::Disabled {
            return;
        }
        match port.gate.judge(frame, root, block, now) {
            Verdict::Refuse => {}
            Verdict::Act(guard, first) => {
                if first {
                    self.events.push_back(Event::Guard { port: number, guard });
                    self.guard(number, now);
                }
            }
            Verdict::Take(bpdu) => {
                port.rx += 1;
                match bpdu {
                    Bpdu::Config(message, ack) => self.received_config(number, &message, ack, now),
                    Bpdu::Tcn => self.received_tcn(number, now),
                    // Another version's: not for this bridge (§9.3.4).
                    Bpdu::Rst(..) => {
                        port.rx -= 1;
                        port.gate.refused.errors += 1;
                    }
                }
            }
        }
    }

    /// Runs the timers that are due (§8.7.3–8.7.8).
    pub fn tick(&mut self, now: Nanos) {
        let due = |at: Option<Nanos>| at.is_some_and(|at| at <= now);
        if due(self.hello_at) {
            self.config_bpdu_generation(now);
            self.hello_at = Some(now + Times::duration(self.times.hello_time));
        }
        let numbers: Vec<u32> = self.ports.keys().copied().collect();
        for &number in &numbers {
            let most = Times::duration(self.times.max_age);
            if due(self.ports[&number].age.map(|age| age.due(most))) {
                self.message_age_expired(number, now);
            }
        }
        for &number in &numbers {
            let port = self.port(number);
            if due(port.forward_at) {
                self.forward_delay_expired(number, now);
            }
            if self.port(number).gate.tick(now) {
                self.port_state_selection(now);
            }
        }
        if due(self.tcn_at) {
            self.transmit_tcn();
            self.tcn_at = Some(now + Times::duration(self.own.hello_time));
        }
        if due(self.change_until) {
            self.change_until = None;
            self.detected = false;
            self.set_topology_change(false, now);
        }
        if due(self.flush_at) {
            self.flush();
            self.flush_at = Some(now + Times::duration(self.times.forward_delay));
        }
        for &number in &numbers {
            if due(self.port(number).hold_until) {
                self.port(number).hold_until = None;
                if self.port(number).config_pending {
                    self.transmit_config(number, now);
                }
            }
        }
    }

    /// When [`Stp::tick`] is due.
    pub fn next_event(&self) -> Option<Nanos> {
        let most = Times::duration(self.times.max_age);
        let of_ports = self.ports.values().flat_map(|port| {
            [
                port.age.map(|age| age.due(most)),
                port.forward_at,
                port.hold_until,
                port.gate.blocked_until,
            ]
        });
        let own = [self.hello_at, self.tcn_at, self.change_until, self.flush_at];
        own.into_iter().chain(of_ports).flatten().min()
    }

    /// The next frame to send, and its port.
    pub fn take_frame(&mut self) -> Option<(u32, Vec<u8>)> {
        self.frames.pop_front()
    }

    /// The next thing that the bridge has to do.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Behaves as if the topology had changed.
    pub fn force_topology_change(&mut self, now: Nanos) {
        self.topology_change_detection(now);
    }

    /// The bridge's state.
    pub fn status(&self) -> Status {
        Status {
            id: self.id,
            root: self.root,
            root_path_cost: self.root_path_cost,
            root_port: self.root_port,
            times: self.times,
            own_times: self.own,
            topology_change: self.topology_change,
            topology_changes: self.topology_changes,
        }
    }

    /// The states of all ports, by the caller's number.
    pub fn ports(&self, now: Nanos) -> impl Iterator<Item = (u32, PortStatus)> {
        self.ports.iter().map(move |(&number, port)| {
            let role = if port.state == State::Disabled {
                Role::Disabled
            } else if self.root_port == Some(number) {
                Role::Root
            } else if self.is_designated(port) {
                Role::Designated
            } else {
                Role::Alternate
            };
            let status = PortStatus {
                id: port.config.id,
                state: port.state,
                in_state: now.since(port.since),
                role,
                cost: port.config.cost,
                tx: port.tx,
                rx: port.rx,
                refused: port.gate.refused,
                guard: port.gate.acting(),
            };
            (number, status)
        })
    }

    pub(super) fn port(&mut self, number: u32) -> &mut Port {
        self.ports.get_mut(&number).expect("the port exists")
    }

    pub(super) fn is_root(&self) -> bool {
        self.root == self.id
    }

    pub(super) fn is_designated(&self, port: &Port) -> bool {
        port.bridge == self.id && port.port == port.config.id
    }

    fn add(&mut self, number: u32, config: &PortConfig, now: Nanos) {
        let mut port = Port {
            config: config.clone(),
            state: State::Disabled,
            since: now,
            root: self.root,
            cost: self.root_path_cost,
            bridge: self.id,
            port: config.id,
            acknowledge: false,
            config_pending: false,
            age: None,
            forward_at: None,
            hold_until: None,
            gate: Gate::default(),
            tx: 0,
            rx: 0,
        };
        port.gate.set_guards(&config.guards);
        self.ports.insert(number, port);
        self.events.push_back(Event::Port {
            port: number,
            learn: false,
            forward: false,
        });
        self.follow_link(number, now);
    }
}
