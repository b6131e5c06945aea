//! A bridge that speaks RSTP: its configuration, its state, and the run of the state machines.

use super::port::{Port, Received, Role, State};
use super::timers::{MIGRATE_TIME, Timer};
use super::wire::{Bpdu, BridgeId, PortId, Times, Vector};
use super::{Event, Guard, Guards, Refused};
use crate::stp::BridgeTimes;
use crate::stp::Verdict;
use core::time::Duration;
use nanos::Nanos;
use std::collections::{BTreeMap, VecDeque};
use wire::MacAddr;

/// Rounds of the state machines until none has a transition left, at most. Each round moves every
/// port on by a step; the longest chain of the standard takes a few steps a port.
const ROUNDS: usize = 1000;

/// The configuration of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The bridge's own identifier.
    pub id: BridgeId,
    /// Its timers, used if it is the root.
    pub times: BridgeTimes,
    /// The force protocol version (§17.13.4) is 0: the bridge sends no RST BPDUs.
    pub force_stp: bool,
    /// BPDUs that a port sends in a second, at most (§17.13.12): 1 to 10, 6 by default.
    pub transmit_hold_count: u32,
    /// Its ports, by numbers of the caller's choice.
    pub ports: BTreeMap<u32, PortConfig>,
}

/// Whether a link has two ends only (§6.4.3, adminPointToPointMAC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PointToPoint {
    /// It has more.
    ForceFalse,
    /// It has two.
    #[default]
    ForceTrue,
    /// It has two if it is full duplex.
    Auto,
}

/// The configuration of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Priority and number; no two ports have the same.
    pub id: PortId,
    /// The cost of its link, which adds to the way to the root.
    pub cost: u32,
    /// The source address of its BPDUs.
    pub mac: MacAddr,
    /// Whether the link works.
    pub up: bool,
    /// Whether the link is full duplex.
    pub full_duplex: bool,
    /// Whether it has two ends only.
    pub point_to_point: PointToPoint,
    /// The port is at the edge of the network until it receives a BPDU (§17.13.1).
    pub admin_edge: bool,
    /// A port that receives no BPDU becomes an edge port (§17.13.3).
    pub auto_edge: bool,
    /// A change to `true` starts the protocol migration again (§17.19.13).
    pub mcheck: bool,
    /// What it takes from the other end.
    pub guards: Guards,
}

impl PortConfig {
    /// operPointToPointMAC (§6.4.3).
    pub(super) fn is_point_to_point(&self) -> bool {
        match self.point_to_point {
            PointToPoint::ForceFalse => false,
            PointToPoint::ForceTrue => true,
            PointToPoint::Auto => self.full_duplex,
        }
    }
}

/// The state of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its own identifier.
    pub id: BridgeId,
    /// The best way to the root; the bridge itself if it is the root.
    pub root: Vector,
    /// The port on the way to the root; `None` if the bridge is the root itself.
    pub root_port: Option<u32>,
    /// The identifier of that port; 0 if the bridge is the root itself.
    pub root_port_id: PortId,
    /// The timers in use, those of the root.
    pub times: Times,
    /// The bridge's own timers.
    pub own_times: Times,
    /// Topology changes that this bridge has noticed or been told of.
    pub topology_changes: u64,
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Its identifier.
    pub id: PortId,
    /// Its role.
    pub role: Role,
    /// Its state.
    pub state: State,
    /// Its cost.
    pub cost: u32,
    /// How long it has had its role.
    pub in_role: Duration,
    /// How long it has taken part, whatever its link did: what `tx`, `rx` and `refused` cover.
    pub uptime: Duration,
    /// The best way to the root that its segment offers: designated bridge, port and cost
    /// (portPriority, §17.19.21).
    pub designated: Vector,
    /// It is at the edge of the network.
    pub edge: bool,
    /// The link has two ends only.
    pub point_to_point: bool,
    /// It sends RST BPDUs.
    pub sends_rstp: bool,
    /// BPDUs sent.
    pub tx: u64,
    /// BPDUs taken.
    pub rx: u64,
    /// BPDUs not taken.
    pub refused: Refused,
    /// The guard that disables or blocks it now.
    pub guard: Option<Guard>,
}

/// A bridge that speaks RSTP.
#[derive(Debug)]
pub struct Rstp {
    pub(super) id: BridgeId,
    pub(super) own: Times,
    pub(super) force_stp: bool,
    pub(super) hold_count: u32,
    pub(super) root: Vector,
    pub(super) root_port: Option<u32>,
    pub(super) root_port_id: PortId,
    pub(super) root_times: Times,
    pub(super) topology_changes: u64,
    pub(super) ports: BTreeMap<u32, Port>,
    pub(super) frames: VecDeque<(u32, Vec<u8>)>,
    pub(super) events: VecDeque<Event>,
}

impl Rstp {
    /// A bridge with this configuration.
    pub fn new(config: &Config, now: Nanos) -> Rstp {
        let own = config.times.times();
        let mut rstp = Rstp {
            id: config.id,
            own,
            force_stp: config.force_stp,
            hold_count: config.transmit_hold_count.clamp(1, 10),
            root: own_vector(config.id),
            root_port: None,
            root_port_id: PortId(0),
            root_times: own,
            topology_changes: 0,
            ports: BTreeMap::new(),
            frames: VecDeque::new(),
            events: VecDeque::new(),
        };
        rstp.configure(config, now);
        rstp
    }

    /// Applies a configuration; what stays the same keeps its state. Another version starts all
    /// ports again (§17.13.4).
    pub fn configure(&mut self, config: &Config, now: Nanos) {
        let own = config.times.times();
        let reselect = self.own != own || self.id != config.id;
        (self.own, self.id) = (own, config.id);
        self.hold_count = config.transmit_hold_count.clamp(1, 10);
        let restart = self.force_stp != config.force_stp;
        self.force_stp = config.force_stp;
        let gone: Vec<u32> = self
            .ports
            .keys()
            .filter(|port| !config.ports.contains_key(port))
            .copied()
            .collect();
        for &port in &gone {
            // Its bridge no longer has it: the others take notice as of a link that went down.
            self.port(port).config.up = false;
            self.run(now);
            self.ports.remove(&port);
            self.events.push_back(Event::Port {
                port,
                learn: true,
                forward: true,
            });
        }
        for (&number, new) in &config.ports {
            match self.ports.get_mut(&number) {
                Some(port) if !restart => {
                    port.mcheck |= new.mcheck && !port.config.mcheck;
                    let changed = port.config.id != new.id || port.config.cost != new.cost;
                    port.reselect |= changed;
                    port.selected &= !changed;
                    if new.admin_edge && !port.config.admin_edge {
                        port.oper_edge = true;
                    }
                    port.gate.set_guards(&new.guards);
                    if !new.up {
                        port.gate.release();
                    }
                    port.config = new.clone();
                }
                _ => {
                    let mut port = Port::new(new, now);
                    port.send_rstp = !config.force_stp;
                    if let Some(old) = self.ports.insert(number, port) {
                        let port = self.port(number);
                        (port.tx, port.rx, port.created) = (old.tx, old.rx, old.created);
                    }
                    self.events.push_back(Event::Port {
                        port: number,
                        learn: false,
                        forward: false,
                    });
                }
            }
        }
        if reselect || !gone.is_empty() {
            self.reselect();
        }
        self.run(now);
    }

    /// Takes a frame, from the Ethernet header on.
    pub fn receive(&mut self, number: u32, frame: &[u8], now: Nanos) {
        let root = self.root.root;
        let Some(port) = self.ports.get_mut(&number) else {
            return;
        };
        if !port.enabled() {
            return;
        }
        let block = Times::duration(self.root_times.max_age);
        match port.gate.judge(frame, root, block, now) {
            Verdict::Refuse => {}
            Verdict::Act(guard, first) => {
                port.oper_edge = false;
                port.restart_edge_delay(now);
                if first {
                    (port.reselect, port.selected) = (true, false);
                    self.events.push_back(Event::Guard { port: number, guard });
                }
            }
            Verdict::Take(bpdu) => {
                port.rx += 1;
                self.take(number, bpdu, now);
            }
        }
        self.run(now);
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, now: Nanos) {
        self.run(now);
    }

    /// When [`Rstp::tick`] is due.
    pub fn next_event(&self) -> Option<Nanos> {
        let due = self.ports.values().flat_map(|port| {
            let timers = port.timers().into_iter().filter_map(|timer| match timer {
                Timer::Running(until) => Some(until),
                _ => None,
            });
            timers.chain(port.gate.blocked_until)
        });
        due.min()
    }

    /// The next frame to send, and its port.
    pub fn take_frame(&mut self) -> Option<(u32, Vec<u8>)> {
        self.frames.pop_front()
    }

    /// The next thing that the bridge has to do.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Behaves as if the topology had changed: flushes all addresses and tells it by all ports that
    /// are not at the edge.
    pub fn force_topology_change(&mut self, now: Nanos) {
        let active: Vec<u32> = self
            .ports
            .iter()
            .filter(|(_, port)| port.forwarding && !port.oper_edge)
            .map(|(&number, _)| number)
            .collect();
        for number in active {
            self.detect_topology_change(number, now);
            self.events.push_back(Event::Flush { port: number });
        }
        self.run(now);
    }

    /// The bridge's state.
    pub fn status(&self) -> Status {
        Status {
            id: self.id,
            root: self.root,
            root_port: self.root_port,
            root_port_id: self.root_port_id,
            times: self.root_times,
            own_times: self.own,
            topology_changes: self.topology_changes,
        }
    }

    /// The states of all ports, by the caller's number.
    pub fn ports(&self, now: Nanos) -> impl Iterator<Item = (u32, PortStatus)> {
        self.ports.iter().map(move |(&number, port)| {
            let state = match (port.enabled(), port.learning, port.forwarding) {
                (false, ..) => State::Disabled,
                (true, _, true) => State::Forwarding,
                (true, true, false) => State::Learning,
                (true, false, false) => State::Discarding,
            };
            let status = PortStatus {
                id: port.config.id,
                role: port.role,
                state,
                cost: port.config.cost,
                in_role: now.since(port.since),
                uptime: now.since(port.created),
                designated: port.port_priority,
                edge: port.oper_edge,
                point_to_point: port.config.is_point_to_point(),
                sends_rstp: port.send_rstp,
                tx: port.tx,
                rx: port.rx,
                refused: port.gate.refused,
                guard: port.gate.acting(),
            };
            (number, status)
        })
    }

    /// The port receive machine (§17.23).
    fn take(&mut self, number: u32, bpdu: Bpdu, now: Nanos) {
        let force_stp = self.force_stp;
        let port = self.port(number);
        port.oper_edge = false;
        port.restart_edge_delay(now);
        match bpdu {
            Bpdu::Tcn => {
                port.rcvd_stp = true;
                port.rcvd_tcn = true;
                self.run_migration(number, now);
            }
            Bpdu::Config(message, ack) => {
                port.rcvd_stp = true;
                self.run_migration(number, now);
                let received = Received {
                    message,
                    rst: None,
                    ack,
                };
                self.run(now);
                self.receive_information(number, &received, now);
            }
            Bpdu::Rst(message, flags) => {
                if force_stp {
                    // A bridge of the old version knows no such type (§17.4).
                    port.rx -= 1;
                    port.gate.refused.errors += 1;
                    return;
                }
                port.rcvd_rstp = true;
                self.run_migration(number, now);
                let received = Received {
                    message,
                    rst: Some(flags),
                    ack: false,
                };
                self.run(now);
                self.receive_information(number, &received, now);
            }
        }
    }

    /// Runs all state machines until none has a transition left.
    pub(super) fn run(&mut self, now: Nanos) {
        let numbers: Vec<u32> = self.ports.keys().copied().collect();
        for &number in &numbers {
            let port = self.port(number);
            port.gate.tick(now);
            if port.enabled() {
                port.edge_delay_while.release(MIGRATE_TIME, now);
            } else {
                port.edge_delay_while = Timer::Held;
            }
        }
        for _ in 0..ROUNDS {
            let mut moved = false;
            for &number in &numbers {
                moved |= self.run_migration(number, now);
                moved |= self.run_edge(number, now);
                moved |= self.run_information(number, now);
            }
            moved |= self.run_role_selection();
            for &number in &numbers {
                moved |= self.run_role_transitions(number, now);
                moved |= self.run_states(number);
                moved |= self.run_topology_change(number, now);
            }
            if !moved {
                break;
            }
        }
        for &number in &numbers {
            self.run_transmit(number, now);
            self.port(number).drop_expired(now);
        }
    }

    /// The port state transition machine (§17.26).
    fn run_states(&mut self, number: u32) -> bool {
        let port = self.port(number);
        let (learn, forward) = (port.learn, port.learn && port.forward);
        if (port.learning, port.forwarding) == (learn, forward) {
            return false;
        }
        (port.learning, port.forwarding) = (learn, forward);
        self.events.push_back(Event::Port {
            port: number,
            learn,
            forward,
        });
        true
    }

    pub(super) fn port(&mut self, number: u32) -> &mut Port {
        self.ports.get_mut(&number).expect("the port exists")
    }

    /// Selects the roles of all ports again.
    fn reselect(&mut self) {
        for port in self.ports.values_mut() {
            port.reselect = true;
            port.selected = false;
        }
    }
}

impl Port {
    fn restart_edge_delay(&mut self, now: Nanos) {
        self.edge_delay_while = Timer::start(MIGRATE_TIME, now);
    }

    /// Forgets the ends of timers that are over.
    fn drop_expired(&mut self, now: Nanos) {
        for timer in [
            &mut self.edge_delay_while,
            &mut self.fd_while,
            &mut self.mdelay_while,
            &mut self.rb_while,
            &mut self.rcvd_info_while,
            &mut self.rr_while,
            &mut self.tc_while,
        ] {
            if timer.expired(now) {
                *timer = Timer::Expired;
            }
        }
    }
}

/// The vector of a bridge that is the root.
pub(super) fn own_vector(id: BridgeId) -> Vector {
    Vector {
        root: id,
        cost: 0,
        bridge: id,
        port: PortId(0),
    }
}
