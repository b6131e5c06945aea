//! A bridge's spanning tree, as the procedures of IEEE 802.1D-1998 §8.6 have it.
//!
//! The procedures have the standard's names. Every port is one of five [`State`]s; the bridge
//! elects a root, each port tells what it takes for the best path to it, and ports that offer no
//! better path than another bridge's block.

use super::guard::{Gate, Verdict};
use super::timers::{Age, BridgeTimes, HOLD_TIME, MESSAGE_AGE_INCREMENT};
use super::wire::{Bpdu, BridgeId, Message, PortId, Times};
use super::{Event, Guards, Refused};
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
}

#[derive(Debug)]
struct Port {
    config: PortConfig,
    state: State,
    since: Nanos,
    /// What the best BPDU on the segment says; the own one at a designated port (§8.5.5.4–7).
    root: BridgeId,
    cost: u32,
    bridge: BridgeId,
    port: PortId,
    acknowledge: bool,
    config_pending: bool,
    age: Option<Age>,
    forward_at: Option<Nanos>,
    hold_until: Option<Nanos>,
    gate: Gate,
    tx: u64,
    rx: u64,
}

/// A bridge's spanning tree.
#[derive(Debug)]
pub struct Stp {
    id: BridgeId,
    own: Times,
    root: BridgeId,
    root_path_cost: u32,
    root_port: Option<u32>,
    times: Times,
    detected: bool,
    topology_change: bool,
    topology_changes: u64,
    hello_at: Option<Nanos>,
    tcn_at: Option<Nanos>,
    change_until: Option<Nanos>,
    /// While the topology changes, addresses are flushed once a forward delay.
    flush_at: Option<Nanos>,
    ports: BTreeMap<u32, Port>,
    frames: VecDeque<(u32, Vec<u8>)>,
    events: VecDeque<Event>,
}

impl Stp {
    /// A bridge with this configuration.
    pub fn new(config: &Config, now: Nanos) -> Stp {
        let own = config.times.bounded().times();
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
        let own = config.times.bounded().times();
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
            };
            (number, status)
        })
    }

    fn port(&mut self, number: u32) -> &mut Port {
        self.ports.get_mut(&number).expect("the port exists")
    }

    fn is_root(&self) -> bool {
        self.root == self.id
    }

    fn is_designated(&self, port: &Port) -> bool {
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

    /// Takes part with a port whose link works, and ends it with another one.
    fn follow_link(&mut self, number: u32, now: Nanos) {
        let port = self.port(number);
        let enable = port.config.up && !port.gate.disabled;
        match (port.state == State::Disabled, enable) {
            (true, true) => {
                self.become_designated(number);
                let port = self.port(number);
                port.acknowledge = false;
                port.config_pending = false;
                port.age = None;
                port.forward_at = None;
                port.hold_until = None;
                self.set_state(number, State::Blocking, now);
                self.port_state_selection(now);
            }
            (false, false) => self.disable(number, now),
            _ => {}
        }
    }

    /// §8.8.3.
    fn disable(&mut self, number: u32, now: Nanos) {
        if self.port(number).state == State::Disabled {
            return;
        }
        let was_active = matches!(self.port(number).state, State::Learning | State::Forwarding);
        self.become_designated(number);
        self.set_state(number, State::Disabled, now);
        let port = self.port(number);
        port.acknowledge = false;
        port.config_pending = false;
        port.age = None;
        port.forward_at = None;
        if was_active {
            self.events.push_back(Event::Flush { port: number });
            self.topology_change_detection(now);
        }
        self.update(now);
    }

    /// A guard has acted on a port.
    fn guard(&mut self, number: u32, now: Nanos) {
        self.follow_link(number, now);
        if self.port(number).state != State::Disabled {
            // What was known of the segment came from who claims the root.
            self.become_designated(number);
            self.update(now);
        }
    }

    /// Selects root, roles and states again.
    fn update(&mut self, now: Nanos) {
        let was_root = self.root_port.is_none();
        self.configuration_update();
        self.port_state_selection(now);
        if self.root_port.is_none() && !was_root {
            self.become_root(now);
        }
    }

    /// §8.8.4.
    fn set_bridge_id(&mut self, id: BridgeId, now: Nanos) {
        let was_root = self.is_root();
        let old = self.id;
        for port in self
            .ports
            .values_mut()
            .filter(|port| port.bridge == old && port.port == port.config.id)
        {
            port.bridge = id;
        }
        if was_root {
            self.root = id;
        }
        self.id = id;
        self.update(now);
    }

    /// §8.8.5.
    fn set_port_id(&mut self, number: u32, old: PortId, now: Nanos) {
        let id = self.id;
        let port = self.port(number);
        let new = port.config.id;
        if port.bridge == id && port.port == old {
            port.port = new;
        } else if port.bridge == id && new < port.port {
            self.become_designated(number);
            self.port_state_selection(now);
        }
    }

    /// §8.7.1.
    fn received_config(&mut self, number: u32, message: &Message, ack: bool, now: Nanos) {
        let was_root = self.is_root();
        if self.supersedes(number, message) {
            self.record_config_information(number, message, now);
            self.configuration_update();
            self.port_state_selection(now);
            if was_root && !self.is_root() {
                self.hello_at = None;
                if self.detected {
                    self.change_until = None;
                    self.transmit_tcn();
                    self.tcn_at = Some(now + Times::duration(self.own.hello_time));
                }
            }
            if self.root_port == Some(number) {
                self.record_config_timeout_values(message, now);
                self.config_bpdu_generation(now);
                if ack {
                    self.detected = false;
                    self.tcn_at = None;
                }
            }
        } else if self.is_designated(&self.ports[&number]) {
            // Reply.
            self.transmit_config(number, now);
        }
    }

    /// §8.7.2.
    fn received_tcn(&mut self, number: u32, now: Nanos) {
        if self.is_designated(&self.ports[&number]) {
            self.topology_change_detection(now);
            self.port(number).acknowledge = true;
            self.transmit_config(number, now);
        }
    }

    /// §8.7.4.
    fn message_age_expired(&mut self, number: u32, now: Nanos) {
        self.become_designated(number);
        self.update(now);
    }

    fn become_root(&mut self, now: Nanos) {
        self.times = self.own;
        self.topology_change_detection(now);
        self.tcn_at = None;
        self.config_bpdu_generation(now);
        self.hello_at = Some(now + Times::duration(self.times.hello_time));
    }

    /// §8.7.5.
    fn forward_delay_expired(&mut self, number: u32, now: Nanos) {
        self.port(number).forward_at = None;
        match self.port(number).state {
            State::Listening => {
                self.set_state(number, State::Learning, now);
                let delay = Times::duration(self.times.forward_delay);
                self.port(number).forward_at = Some(now + delay);
            }
            State::Learning => {
                self.set_state(number, State::Forwarding, now);
                if self.ports.values().any(|port| port.bridge == self.id) {
                    self.topology_change_detection(now);
                }
            }
            _ => {}
        }
    }

    /// §8.6.1.
    fn transmit_config(&mut self, number: u32, now: Nanos) {
        let age = self.root_port.map(|root| {
            let age = self.ports[&root].age.map(|age| age.value(now)).unwrap_or_default();
            age + MESSAGE_AGE_INCREMENT
        });
        let (root, cost, bridge, mut times) = (self.root, self.root_path_cost, self.id, self.times);
        let topology_change = self.topology_change;
        times.message_age = Times::units(age.unwrap_or_default());
        let port = self.port(number);
        if port.hold_until.is_some() {
            port.config_pending = true;
            return;
        }
        port.config_pending = false;
        if times.message_age >= times.max_age {
            return;
        }
        let message = Message {
            root,
            cost,
            bridge,
            port: port.config.id,
            times,
            topology_change,
        };
        let ack = std::mem::take(&mut port.acknowledge);
        port.hold_until = Some(now + HOLD_TIME);
        self.send(number, Bpdu::Config(message, ack));
    }

    /// §8.6.6.
    fn transmit_tcn(&mut self) {
        if let Some(root) = self.root_port {
            self.send(root, Bpdu::Tcn);
        }
    }

    fn send(&mut self, number: u32, bpdu: Bpdu) {
        let port = self.port(number);
        if !port.gate.guards.bpdu_filter {
            port.tx += 1;
            let frame = bpdu.emit(port.config.mac);
            self.frames.push_back((number, frame));
        }
    }

    /// §8.6.2.2.
    fn supersedes(&self, number: u32, message: &Message) -> bool {
        let port = &self.ports[&number];
        let theirs = (message.root, message.cost, message.bridge);
        match theirs.cmp(&(port.root, port.cost, port.bridge)) {
            core::cmp::Ordering::Less => true,
            core::cmp::Ordering::Greater => false,
            core::cmp::Ordering::Equal => message.bridge != self.id || message.port <= port.port,
        }
    }

    /// §8.6.2.
    fn record_config_information(&mut self, number: u32, message: &Message, now: Nanos) {
        let port = self.port(number);
        (port.root, port.cost) = (message.root, message.cost);
        (port.bridge, port.port) = (message.bridge, message.port);
        port.age = Some(Age::start(Times::duration(message.times.message_age), now));
    }

    /// §8.6.3.
    fn record_config_timeout_values(&mut self, message: &Message, now: Nanos) {
        self.times = message.times.bounded();
        self.set_topology_change(message.topology_change, now);
    }

    /// §8.6.4.
    fn config_bpdu_generation(&mut self, now: Nanos) {
        let numbers: Vec<u32> = self.ports.keys().copied().collect();
        for number in numbers {
            let port = &self.ports[&number];
            if port.state != State::Disabled && self.is_designated(port) {
                self.transmit_config(number, now);
            }
        }
    }

    /// §8.6.7.
    fn configuration_update(&mut self) {
        self.root_selection();
        self.designated_port_selection();
    }

    /// §8.6.8.
    fn root_selection(&mut self) {
        let candidates = self
            .ports
            .iter()
            .filter(|(_, port)| port.state != State::Disabled && !self.is_designated(port) && port.root < self.id);
        let best = candidates.min_by_key(|(_, port)| {
            let cost = port.cost.saturating_add(u32::from(port.config.cost));
            (port.root, cost, port.bridge, port.port, port.config.id)
        });
        (self.root_port, self.root, self.root_path_cost) = match best {
            Some((&number, port)) => (
                Some(number),
                port.root,
                port.cost.saturating_add(u32::from(port.config.cost)),
            ),
            None => (None, self.id, 0),
        };
    }

    /// §8.6.9.
    fn designated_port_selection(&mut self) {
        let own = (self.root_path_cost, self.id);
        let numbers: Vec<u32> = self.ports.keys().copied().collect();
        for number in numbers {
            let port = &self.ports[&number];
            let mine = (own.0, own.1, port.config.id) < (port.cost, port.bridge, port.port);
            if self.is_designated(port) || port.root != self.root || mine {
                self.become_designated(number);
            }
        }
    }

    /// §8.6.10.
    fn become_designated(&mut self, number: u32) {
        let (root, cost, bridge) = (self.root, self.root_path_cost, self.id);
        let port = self.port(number);
        (port.root, port.cost, port.bridge) = (root, cost, bridge);
        port.port = port.config.id;
    }

    /// §8.6.11.
    fn port_state_selection(&mut self, now: Nanos) {
        let numbers: Vec<u32> = self.ports.keys().copied().collect();
        for number in numbers {
            let port = &self.ports[&number];
            let designated = self.is_designated(port);
            if port.state == State::Disabled {
                continue;
            }
            if port.gate.blocks() {
                self.make_blocking(number, now);
            } else if self.root_port == Some(number) {
                let port = self.port(number);
                port.config_pending = false;
                port.acknowledge = false;
                self.make_forwarding(number, now);
            } else if designated {
                self.port(number).age = None;
                self.make_forwarding(number, now);
            } else {
                let port = self.port(number);
                port.config_pending = false;
                port.acknowledge = false;
                self.make_blocking(number, now);
            }
        }
    }

    /// §8.6.12.
    fn make_forwarding(&mut self, number: u32, now: Nanos) {
        if self.port(number).state == State::Blocking {
            self.set_state(number, State::Listening, now);
            let delay = Times::duration(self.times.forward_delay);
            self.port(number).forward_at = Some(now + delay);
        }
    }

    /// §8.6.13.
    fn make_blocking(&mut self, number: u32, now: Nanos) {
        let state = self.port(number).state;
        if matches!(state, State::Disabled | State::Blocking) {
            return;
        }
        self.port(number).forward_at = None;
        self.set_state(number, State::Blocking, now);
        if matches!(state, State::Learning | State::Forwarding) {
            self.events.push_back(Event::Flush { port: number });
            self.topology_change_detection(now);
        }
    }

    fn set_state(&mut self, number: u32, state: State, now: Nanos) {
        let port = self.port(number);
        if port.state == state {
            return;
        }
        let does = |state| {
            (
                matches!(state, State::Learning | State::Forwarding),
                state == State::Forwarding,
            )
        };
        let (before, (learn, forward)) = (does(port.state), does(state));
        port.state = state;
        port.since = now;
        if before != (learn, forward) {
            self.events.push_back(Event::Port {
                port: number,
                learn,
                forward,
            });
        }
    }

    /// §8.6.14.
    fn topology_change_detection(&mut self, now: Nanos) {
        if self.is_root() {
            let time = Times::duration(self.own.max_age) + Times::duration(self.own.forward_delay);
            self.change_until = Some(now + time);
            self.set_topology_change(true, now);
        } else if !self.detected {
            self.transmit_tcn();
            self.tcn_at = Some(now + Times::duration(self.own.hello_time));
        }
        self.detected = true;
    }

    /// While the topology changes, what was learned becomes stale in a forward delay (§8.3.5). The
    /// bridge flushes the addresses at the start, once in every forward delay, and at the end.
    fn set_topology_change(&mut self, change: bool, now: Nanos) {
        if self.topology_change == change {
            return;
        }
        self.topology_change = change;
        self.topology_changes += u64::from(change);
        self.flush();
        self.flush_at = change.then(|| now + Times::duration(self.times.forward_delay));
    }

    fn flush(&mut self) {
        let flushed = self.ports.keys().map(|&port| Event::Flush { port });
        self.events.extend(flushed);
    }
}
