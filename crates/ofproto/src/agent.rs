//! The agent: its connections, and the work on received messages.

use crate::asynchronous::AsyncEvent;
use crate::conn::{Closed, Conn, ConnId, ConnStats, Kind, Options};
use crate::env::Env;
use crate::events::{Effect, Event};
use crate::limit::LimitStats;
use crate::log;
use crate::memory::HELLO_TIMEOUT;
use crate::ports::{PortChange, PortInfo, Ports};
use crate::probe::Probing;
use nanos::Nanos;
use openflow::model::{Body, ControllerStatus, Message, Role, RoleStatus, StatsReply};
use openflow::{Framer, OfError, Version, Versions};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Weak;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use switch::FragMode;
use telemetry::budget::Budget;

/// The description of a bridge that its peers see, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The bridge's name.
    pub bridge: String,
    /// Versions that connections may agree on; never none.
    pub versions: Versions,
    /// The bridge's identifier.
    pub datapath_id: u64,
    /// The owner's description of the switch (`other_config:dp-desc`); peers see at most 255 bytes.
    pub description: String,
    /// Its serial number (`other_config:dp-sn`); peers see at most 31 bytes.
    pub serial: String,
    /// The version of the software.
    pub software: String,
    /// Packets that may wait for a controller (`other_config:controller-queue-size`), at least 1.
    pub queue: usize,
    /// The idle timeout of an open bundle (`other_config:bundle-idle-timeout`).
    pub bundle_timeout: Duration,
    /// How many bytes a peer may leave unread before the agent closes its connection. Notifications
    /// (rules removed, ports changed) have to be kept for it, and a million rules may time out at
    /// once.
    pub most_unread: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            bridge: String::new(),
            versions: Versions::ALL,
            datapath_id: 0,
            description: "None".to_owned(),
            serial: "None".to_owned(),
            software: String::new(),
            queue: 100,
            bundle_timeout: Duration::from_secs(10),
            most_unread: 256 << 20,
        }
    }
}

/// The last type of the messages that say nothing about the switch: hello, error, echo,
/// experimenter, features, configuration. They have the same numbers in all versions.
const LAST_COURTESY: u8 = 9;

/// The number of short messages that take as long as one part of a long answer or change.
const PART: usize = 64;

/// How long the peer may take to send the next part of a request (OpenFlow 1.4 §7.3.5).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What is left to do for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// Nothing, until more comes in.
    Idle,
    /// More: call again.
    Busy,
    /// More, beginning with a change that has to wait for another connection's bundle:
    /// [`Event::Ready`] says when it can go on.
    Wait,
    /// More, when the bytes to send have been taken.
    Full,
    /// The caller has to close the connection after sending what is left to send.
    Close(Closed),
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) ports: Ports,
    /// How fragments are treated.
    pub(crate) fragments: FragMode,
    /// Whether a connection wants packets that matched no rule.
    misses_wanted: bool,
    /// The generation id of the last role request.
    pub(crate) generation: Option<u64>,
    /// The connection whose bundle is being committed; changes of other connections wait.
    pub(crate) committing: Option<ConnId>,
    /// The fields of tunnel options that rules in open bundles use, a bit each, by bundle.
    pub(crate) options_in_bundles: Vec<Weak<AtomicU64>>,
    /// What the request being answered causes beyond its own connection.
    pub(crate) effects: Vec<Effect>,
}

/// The reason of a role status: another connection became master.
const ANOTHER_MASTER: u8 = 0;

/// The agent of a bridge. See the crate's page.
#[derive(Debug)]
pub struct Agent {
    pub(crate) core: Core,
    budget: Budget,
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    /// Closed connections whose last request is under way.
    orphans: VecDeque<Conn>,
    events: Vec<Event>,
    next: u64,
}

impl Agent {
    /// An agent without connections and ports. `budget` bounds the memory of its connections
    /// together with those of other agents.
    pub fn new(config: Config, budget: Budget) -> Agent {
        Agent {
            budget,
            core: Core {
                config,
                ports: Ports::default(),
                fragments: FragMode::Normal,
                misses_wanted: false,
                generation: None,
                committing: None,
                options_in_bundles: Vec::new(),
                effects: Vec::new(),
            },
            conns: BTreeMap::new(),
            orphans: VecDeque::new(),
            events: Vec::new(),
            next: 0,
        }
    }

    /// Changes the description of the bridge. A new datapath id and new versions hold for new
    /// connections only, so the caller is asked to end the others ([`Event::Reconnect`]).
    pub fn configure(&mut self, config: Config) {
        let old = std::mem::replace(&mut self.core.config, config);
        let new = &self.core.config;
        if (old.datapath_id, old.versions) != (new.datapath_id, new.versions) {
            self.events.push(Event::Reconnect);
        }
    }

    /// The description of the bridge.
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// Sets the ports; connections are notified of the differences.
    pub fn set_ports(&mut self, ports: Vec<PortInfo>, env: &impl Env) {
        let changes = self.core.ports.replace(ports);
        for gone in changes
            .iter()
            .filter(|change| change.status.reason == crate::ports::DELETED)
        {
            // Port flags do not carry over to another port with the same number.
            let number = gone.status.desc.port.0;
            let bridge = &self.core.config.bridge;
            env.change(|switch, _| {
                let stale = switch.set_port_flags(bridge, number, switch::PortFlags::default());
                ((), stale.unwrap_or_default())
            });
        }
        changes.iter().for_each(|change| self.tell_port(change));
        self.copy_to_snoops();
    }

    /// Adds a connection and queues our hello.
    pub fn connect(&mut self, options: Options, now: Nanos) -> ConnId {
        self.next += 1;
        let id = ConnId(self.next);
        let config = &self.core.config;
        log::state(&config.bridge, &options, &["entering CONNECTING"]);
        let mut conn = Conn::new(id, options, config.versions, config.queue, self.budget.share(), now);
        conn.most_unread = config.most_unread;
        self.conns.insert(id, conn);
        self.update_snooping();
        id
    }

    /// Ends a connection. [`Agent::background`] finishes what it has begun and cannot stay half
    /// done.
    pub fn disconnect(&mut self, id: ConnId, env: &impl Env, now: Nanos) {
        let Some(mut gone) = self.conns.remove(&id) else { return };
        let bridge = &self.core.config.bridge;
        log::state(
            bridge,
            &gone.options,
            &["connection closed by peer", "entering DISCONNECTED"],
        );
        gone.log_flow_mods(bridge, now);
        if let Some(job) = gone.job.take().and_then(|job| job.orphaned(&mut self.core, env)) {
            gone.job = Some(job);
            self.orphans.push_back(gone);
            self.events.push(Event::Background);
        }
        self.update_snooping();
        self.core
            .effects
            .extend([Effect::MonitorsChanged, Effect::ListenersChanged]);
        self.after(env, now);
    }

    /// Does one part of what closed connections have begun: changes of very many rules, and bundles
    /// to undo. [`Event::Background`] says whether there is more; changes of other connections wait
    /// until it is done.
    pub fn background(&mut self, env: &impl Env, now: Nanos) {
        let Some(mut gone) = self.orphans.pop_front() else {
            return;
        };
        if let Some(job) = gone.job.take() {
            gone.job = job.step(&mut self.core, &mut gone, env, now);
            // The peer is gone.
            gone.out.take();
            gone.account();
            self.after(env, now);
        }
        if gone.job.is_some() {
            self.orphans.push_front(gone);
        }
        if !self.orphans.is_empty() {
            self.events.push(Event::Background);
        }
    }

    /// The connections.
    pub fn connections(&self) -> impl Iterator<Item = (ConnId, &Options)> {
        self.conns.iter().map(|(id, conn)| (*id, &conn.options))
    }

    /// When the last message arrived on a connection.
    pub fn heard(&self, id: ConnId) -> Option<Nanos> {
        Some(self.conns.get(&id)?.probe.last_heard())
    }

    /// The version that a connection uses; `None` before the hello.
    pub fn version(&self, id: ConnId) -> Option<Version> {
        self.conns.get(&id)?.version()
    }

    /// Whether the peer has sent a request beyond hello, echo, features and configuration
    /// ([`Event::Admitted`]).
    pub fn is_admitted(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.admitted)
    }

    /// A connection's role.
    pub fn role(&self, id: ConnId) -> Option<Role> {
        Some(self.conns.get(&id)?.role)
    }

    /// The counters of a connection.
    pub fn stats(&self, id: ConnId) -> Option<ConnStats> {
        let conn = self.conns.get(&id)?;
        Some(ConnStats {
            dropped: conn.packets.dropped(),
            ..conn.stats
        })
    }

    /// Packet-in counters: of packets that matched no rule, and of packets that actions sent.
    /// `None` if the rate is not limited.
    pub fn limited(&self, id: ConnId) -> Option<[LimitStats; 2]> {
        self.conns.get(&id)?.packets.limited()
    }

    /// Whether the caller may read from a connection: not while the agent has more to do for it or
    /// its peer does not read.
    pub fn wants_input(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| {
            let owes = conn.job.is_some() || conn.out.is_full();
            conn.closed.is_none() && !owes
        })
    }

    /// Takes received bytes. [`Agent::run`] works on them.
    pub fn receive(&mut self, id: ConnId, bytes: &[u8]) {
        if let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.closed.is_none()) {
            conn.framer.push(bytes);
        }
    }

    /// Works on the messages received on a connection, for about the time of `steps` short
    /// messages.
    pub fn run(&mut self, id: ConnId, env: &impl Env, now: Nanos, steps: usize) -> Run {
        let mut taken = 0;
        while taken < steps {
            taken += 1;
            let Some(conn) = self.conns.get_mut(&id) else {
                return Run::Close(Closed::Gone);
            };
            if let Some(closed) = &conn.closed {
                return Run::Close(closed.clone());
            }
            conn.send_packets(now);
            if conn.out.is_full() {
                return Run::Full;
            }
            if let Some(job) = conn.job.take() {
                conn.job = job.step(&mut self.core, conn, env, now);
                self.after(env, now);
                taken += PART;
                continue;
            }
            conn.resume_monitors();
            if conn.job.is_some() {
                continue;
            }
            conn.waits = self.core.committing.is_some_and(|other| other != id) && conn.is_next_a_change();
            if conn.waits {
                return Run::Wait;
            }
            let mut framer = std::mem::take(&mut conn.framer);
            let met = self.next_message(id, &mut framer, env, now);
            let Some(conn) = self.conns.get_mut(&id) else {
                return Run::Close(Closed::Gone);
            };
            conn.framer = framer;
            match met {
                Ok(true) => {}
                Ok(false) => return Run::Idle,
                Err(closed) => {
                    conn.closed = Some(closed.clone());
                    return Run::Close(closed);
                }
            }
        }
        Run::Busy
    }

    /// When [`Agent::tick`] has something to do for a connection; `None` for never.
    pub fn deadline(&self, id: ConnId) -> Option<Nanos> {
        let conn = self.conns.get(&id)?;
        let packets = conn.packets.next_event().filter(|_| !conn.out.is_full());
        let bundles = conn.bundles.next_event(self.core.config.bundle_timeout);
        let partial = conn.partial.as_ref().map(|partial| partial.heard + REQUEST_TIMEOUT);
        let flow_mods = conn.flow_mods.due();
        [
            conn.probe.due(),
            conn.hello_deadline,
            packets,
            bundles,
            partial,
            flow_mods,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Runs the timers of a connection: probes a silent peer, and closes a connection whose peer
    /// does not answer or does not send its hello.
    pub fn tick(&mut self, id: ConnId, now: Nanos) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match conn.probe.tick(now) {
            Probing::Wait => {}
            Probing::Ask if conn.codec.is_some() => conn.send(0, Body::EchoRequest(Vec::new())),
            Probing::Ask => {}
            Probing::GiveUp => conn.closed = Some(Closed::ProbeTimeout),
        }
        if conn.hello_deadline.take_if(|by| *by <= now).is_some() {
            HELLO_TIMEOUT.inc();
            conn.closed = Some(Closed::HelloTimeout);
        }
        if conn.flow_mods.due().is_some_and(|due| due <= now) {
            conn.log_flow_mods(&self.core.config.bridge, now);
        }
        if let Some(partial) = conn.partial.take_if(|partial| partial.heard + REQUEST_TIMEOUT <= now) {
            conn.refuse(partial.xid, OfError::BrcMultipartRequestTimeout, &[]);
        }
        while let Some(first) = conn.bundles.expire(self.core.config.bundle_timeout, now) {
            let xid = first.get(4..8).and_then(|xid| xid.try_into().ok());
            conn.refuse(xid.map_or(0, u32::from_be_bytes), OfError::BfcTimeout, &first);
        }
    }

    /// Takes the bytes to send on a connection.
    pub fn transmit(&mut self, id: ConnId) -> Vec<u8> {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Vec::new();
        };
        let bytes = conn.out.take();
        conn.account();
        bytes
    }

    /// What the caller has to do because of the calls before this one. Ask after each call that
    /// takes `&mut self`; each event is returned once.
    pub fn events(&mut self) -> Vec<Event> {
        let may_go_on = self.core.committing.is_none();
        let ready = |conn: &mut Conn| conn.out.take_news() || conn.waits && may_go_on;
        let ready = self
            .conns
            .values_mut()
            .filter_map(|conn| ready(conn).then_some(conn.id));
        self.events.extend(ready.map(Event::Ready));
        std::mem::take(&mut self.events)
    }

    /// Works on the next message; false if there is none.
    fn next_message(&mut self, id: ConnId, framer: &mut Framer, env: &impl Env, now: Nanos) -> Result<bool, Closed> {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Err(Closed::Gone);
        };
        let Some(message) = framer.next()? else {
            return Ok(false);
        };
        conn.stats.received += 1;
        log::received(&conn.options.name, message);
        conn.probe.heard(now);
        let asks = conn.codec.is_some() && message.get(1).is_some_and(|kind| *kind > LAST_COURTESY);
        if asks && !std::mem::replace(&mut conn.admitted, true) {
            self.events.push(Event::Admitted(id));
        }
        if conn.is_snooped {
            conn.snooped.extend_from_slice(message);
        }
        match conn.codec {
            None => {
                conn.greet(message)?;
                let bridge = &self.core.config.bridge;
                log::state(bridge, &conn.options, &["connected", "entering ACTIVE"]);
                self.events.push(Event::Greeted(id));
                self.core.effects.push(Effect::ListenersChanged);
            }
            Some(codec) => self.core.message(conn, codec, message, env, now),
        }
        self.after(env, now);
        Ok(true)
    }

    /// Applies what a request causes beyond its own connection.
    pub(crate) fn after(&mut self, env: &impl Env, now: Nanos) {
        for effect in std::mem::take(&mut self.core.effects) {
            match effect {
                Effect::NewMaster(master) => self.demote_others(master),
                Effect::ListenersChanged => self.listen_to_misses(env),
                Effect::PortChanged(change) => self.tell_port(&change),
                Effect::MonitorsChanged => self.monitor(env),
                Effect::Forward(whose, message) => self.forward(whose, message),
                Effect::Tables(changes) => self.tell_table_events(&changes, now),
                Effect::StatusWanted(id, xid) => self.controller_status(id, xid),
            }
        }
        self.copy_to_snoops();
    }

    /// Makes slaves of all other masters (OpenFlow 1.3.5 §6.3.6).
    fn demote_others(&mut self, master: ConnId) {
        let others = self.conns.values_mut().filter(|conn| conn.id != master);
        for other in others.filter(|conn| conn.role == Role::Master) {
            other.role = Role::Slave;
            if other.wants(AsyncEvent::RoleStatus(ANOTHER_MASTER)) && other.version() >= Some(Version::V14) {
                let status = RoleStatus {
                    role: Role::Slave,
                    reason: ANOTHER_MASTER,
                    generation: self.core.generation,
                };
                other.send(0, Body::RoleStatus(status));
            }
        }
    }

    /// Reports the state of controllers (OpenFlow 1.5 §7.3.5.21).
    fn controller_status(&mut self, id: ConnId, xid: u32) {
        let primary = self.conns.values().filter(|conn| conn.options.kind == Kind::Primary);
        let statuses = primary.map(|conn| ControllerStatus {
            short_id: conn.controller_id,
            role: conn.role,
            reason: 0,
            up: conn.codec.is_some() && conn.closed.is_none(),
            uris: vec![conn.options.name.clone()],
        });
        let reply = StatsReply::ControllerStatus(statuses.collect());
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.send(xid, Body::StatsReply { more: false, reply });
        }
    }

    /// Sends other connections a copy of a group or meter change (OpenFlow 1.4 §7.4.6).
    fn forward(&mut self, whose: ConnId, message: Message) {
        let reason = u8::from(matches!(message.body, Body::MeterMod(_)));
        let others = self
            .conns
            .values_mut()
            .filter(|conn| conn.id != whose && conn.version() >= Some(Version::V14));
        for other in others.filter(|conn| conn.wants(AsyncEvent::Forward(reason))) {
            other.send(0, Body::RequestForward(Box::new(message.clone())));
        }
    }

    /// Has the switch record changes of rules as long as a connection monitors them.
    fn monitor(&mut self, env: &impl Env) {
        let monitored = self.conns.values().any(|conn| !conn.monitors.is_empty());
        let bridge = &self.core.config.bridge;
        env.change(|switch, _| (switch.set_monitored(bridge, monitored), Vec::new()));
    }

    /// Has the switch punt packets that match no rule if a connection wants them. Versions before
    /// 1.3 have no table-miss rules.
    fn listen_to_misses(&mut self, env: &impl Env) {
        let wants = |conn: &Conn| {
            conn.version() < Some(Version::V13) && conn.controller_id == 0 && conn.wants(AsyncEvent::PacketIn(0))
        };
        let wanted = self.conns.values().any(wants);
        if wanted != self.core.misses_wanted {
            self.core.misses_wanted = wanted;
            let bridge = &self.core.config.bridge;
            env.change(|switch, _| ((), switch.set_misses_to_controller(bridge, wanted)));
        }
    }

    fn tell_port(&mut self, change: &PortChange) {
        let event = AsyncEvent::PortStatus(change.status.reason);
        let told = |conn: &&mut Conn| conn.wants(event) && change.concerns(conn);
        for conn in self.conns.values_mut().filter(told) {
            conn.send(0, Body::PortStatus(Box::new(change.status.clone())));
        }
    }

    /// Copies the messages of primary connections to snooping ones. One that does not read misses
    /// messages.
    pub(crate) fn copy_to_snoops(&mut self) {
        let mut snooped = Vec::new();
        for conn in self.conns.values_mut().filter(|conn| !conn.snooped.is_empty()) {
            snooped.append(&mut conn.snooped);
        }
        if snooped.is_empty() {
            return;
        }
        let listeners = self.conns.values_mut().filter(|c| c.options.kind == Kind::Snoop);
        for conn in listeners.filter(|conn| !conn.out.is_full() && conn.codec.is_some()) {
            conn.out.push(&snooped);
        }
    }

    fn update_snooping(&mut self) {
        let is_snooped = self.conns.values().any(|conn| conn.options.kind == Kind::Snoop);
        for conn in self.conns.values_mut() {
            conn.is_snooped = is_snooped && conn.options.kind == Kind::Primary;
        }
    }
}
