//! A bridge's agent with its sockets and tasks.

use super::connection;
use crate::packets::Packet;
use crate::state::State;
use mgmt::paths;
use mgmt::pidfile::os_text;
use mgmt::stream::{Listener, Remote, Stream};
use ofproto::{Agent, Config, ConnId, Event, Kind, LimitStats, Options, PortInfo};
use openflow::model::Role;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;
use switch::tables::TableSettings;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle, spawn_local};
use wire::Nanos;

/// The first pause and the longest before a socket that could not be listened at is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The agent of a bridge, and the tasks of its connections.
pub(crate) struct BridgeAgent {
    pub(super) state: Weak<State>,
    pub(super) agent: RefCell<Agent>,
    connections: RefCell<BTreeMap<ConnId, Task>>,
    listeners: RefCell<Vec<AbortHandle>>,
    /// The sockets that it does not listen at yet, with the error of the last attempt.
    unbound: RefCell<BTreeMap<String, String>>,
    /// Rings when closed connections have left work to do.
    background: Notify,
    /// What the database said of tables.
    tables: RefCell<BTreeMap<u8, TableSettings>>,
}

struct Task {
    /// Rings when the connection is ready.
    wake: Rc<Notify>,
    greeted: Rc<Notify>,
    task: AbortHandle,
}

/// A connection that was added.
pub(crate) struct Connection {
    /// Its number in the agent.
    pub(crate) id: ConnId,
    /// Ends with it; says why.
    pub(crate) task: JoinHandle<String>,
    /// Rings when a version is agreed on, and when the peer first asks for more than who we are.
    pub(crate) greeted: Rc<Notify>,
}

impl BridgeAgent {
    /// An agent that listens at the bridge's sockets.
    pub(crate) fn start(state: &Rc<State>, config: Config) -> Rc<BridgeAgent> {
        let bridge = config.bridge.clone();
        let this = Rc::new(BridgeAgent {
            state: Rc::downgrade(state),
            agent: RefCell::new(Agent::new(config, state.openflow.budget.clone())),
            connections: RefCell::default(),
            listeners: RefCell::default(),
            unbound: RefCell::default(),
            background: Notify::new(),
            tables: RefCell::default(),
        });
        for (suffix, kind) in [("mgmt", Kind::Service), ("snoop", Kind::Snoop)] {
            let remote = Remote::PassiveUnix(paths::in_rundir(format!("{bridge}.{suffix}")));
            this.unbound.borrow_mut().insert(remote.to_string(), String::new());
            let task = spawn_local(listen(this.clone(), remote, kind));
            this.listeners.borrow_mut().push(task.abort_handle());
        }
        let task = spawn_local(background(this.clone()));
        this.listeners.borrow_mut().push(task.abort_handle());
        this
    }

    /// A socket that it does not listen at yet, and the error of the last attempt.
    pub(crate) fn unbound(&self) -> Option<(String, String)> {
        let unbound = self.unbound.borrow();
        unbound.iter().next().map(|(name, error)| (name.clone(), error.clone()))
    }

    /// Ends all its connections and closes its sockets.
    pub(crate) fn end(&self) {
        for listener in self.listeners.take() {
            listener.abort();
        }
        self.reconnect();
    }

    /// Ends all its connections; who wants to be connected has to do it again.
    pub(crate) fn reconnect(&self) {
        for (id, connection) in self.connections.take() {
            connection.task.abort();
            self.forget(id);
        }
    }

    /// Serves a connection until it ends.
    pub(crate) fn add(self: &Rc<Self>, stream: Stream, options: Options) -> Connection {
        let now = self.state.upgrade().map_or(Nanos(0), |state| state.shared.clock.now());
        let id = self.agent.borrow_mut().connect(options, now);
        let wake = Rc::new(Notify::new());
        let greeted = Rc::new(Notify::new());
        let serving = connection::serve(self.clone(), stream, id, wake.clone());
        let task = spawn_local(serving);
        let entry = Task {
            wake,
            greeted: greeted.clone(),
            task: task.abort_handle(),
        };
        self.connections.borrow_mut().insert(id, entry);
        Connection { id, task, greeted }
    }

    /// Ends a connection, if it has not ended.
    pub(crate) fn close(&self, id: ConnId) {
        let closed = self.connections.borrow_mut().remove(&id);
        if let Some(connection) = closed {
            connection.task.abort();
            self.forget(id);
        }
    }

    /// Forgets peers that have gone. Where there are too many all the same, closes the connection
    /// of the one that has been silent for longest.
    fn make_room(&self, peers: &mut Vec<ConnId>, socket: &Remote) {
        let heard = |id: &ConnId| self.agent.borrow().heard(*id);
        peers.retain(|id| heard(id).is_some());
        if peers.len() < MOST_PEERS {
            return;
        }
        let silent = (0..peers.len()).min_by_key(|at| heard(&peers[*at]));
        if let Some(at) = silent {
            PEER_REPLACED.inc();
            telemetry::warn_limited!(target: "bridge", "{socket}: more than {MOST_PEERS} peers, closing the connection of the one that has been silent for longest");
            self.close(peers.swap_remove(at));
        }
    }

    /// Whether a connection's peer means to control the bridge.
    pub(crate) fn is_admitted(&self, id: ConnId) -> bool {
        self.agent.borrow().is_admitted(id)
    }

    /// How many connections there are.
    pub(super) fn peers(&self) -> usize {
        self.connections.borrow().len()
    }

    /// A connection's role.
    pub(crate) fn role(&self, id: ConnId) -> Option<Role> {
        self.agent.borrow().role(id)
    }

    /// What became of a connection's packets, where their rate is limited.
    pub(crate) fn limited(&self, id: ConnId) -> Option<[LimitStats; 2]> {
        self.agent.borrow().limited(id)
    }

    pub(crate) fn configure(&self, config: Config) {
        self.agent.borrow_mut().configure(config);
        self.wake();
    }

    pub(crate) fn set_ports(&self, ports: Vec<PortInfo>, state: &State) {
        self.agent.borrow_mut().set_ports(ports, state);
        self.wake();
    }

    pub(crate) fn packet_in(&self, packet: &Packet, now: Nanos) {
        let mut agent = self.agent.borrow_mut();
        agent.packet_in(&packet.meaning, &packet.data, (packet.total_len, packet.mark), now);
    }

    pub(crate) fn tables_changed(&self, state: &State) {
        let now = state.shared.clock.now();
        self.agent.borrow_mut().tables_changed(state, now);
        self.wake();
    }

    /// Sets what the database says of tables; those that it does not speak of any more are as they
    /// were made.
    pub(crate) fn set_tables(&self, wanted: &BTreeMap<u8, TableSettings>, state: &State) {
        let bridge = self.agent.borrow().config().bridge.clone();
        let mut known = self.tables.borrow_mut();
        if *known == *wanted {
            return;
        }
        let numbers: BTreeSet<u8> = known.keys().chain(wanted.keys()).copied().collect();
        for table in numbers {
            let settings = wanted.get(&table).cloned().unwrap_or_default();
            if known.get(&table) != wanted.get(&table) {
                state
                    .shared
                    .update(|switch, now| switch.set_table(&bridge, table, settings, now));
            }
        }
        known.clone_from(wanted);
        drop(known);
        self.tables_changed(state);
    }

    /// Wakes the tasks that the agent has events for.
    pub(super) fn wake(&self) {
        self.wake_but(None);
    }

    /// Wakes the tasks that the agent has events for, except a connection's task that is awake.
    pub(super) fn wake_but(&self, awake: Option<ConnId>) {
        let events = self.agent.borrow_mut().events();
        let wake = |id, which: fn(&Task) -> &Notify| {
            if let Some(task) = self.connections.borrow().get(&id) {
                which(task).notify_one();
            }
        };
        for event in events {
            match event {
                Event::Ready(id) if Some(id) == awake => {}
                Event::Ready(id) => wake(id, |task| &task.wake),
                Event::Greeted(id) | Event::Admitted(id) => wake(id, |task| &task.greeted),
                Event::Reconnect => self.reconnect(),
                Event::Background => self.background.notify_one(),
            }
        }
    }

    pub(super) fn ended(&self, id: ConnId) {
        self.forget(id);
        self.connections.borrow_mut().remove(&id);
    }

    fn forget(&self, id: ConnId) {
        if let Some(state) = self.state.upgrade() {
            let now = state.shared.clock.now();
            self.agent.borrow_mut().disconnect(id, &*state, now);
            self.wake();
        }
    }
}

/// Finishes the work of closed connections part by part, between the work of others.
async fn background(bridge: Rc<BridgeAgent>) {
    loop {
        bridge.background.notified().await;
        let Some(state) = bridge.state.upgrade() else { return };
        let now = state.shared.clock.now();
        bridge.agent.borrow_mut().background(&*state, now);
        bridge.wake();
        state.tables_touched();
        drop(state);
        tokio::task::yield_now().await;
    }
}

/// Peers of one socket of a bridge.
const MOST_PEERS: usize = 256;
/// How long a peer of these sockets may take for its hello.
const HELLO: Duration = Duration::from_secs(10);

telemetry::counters! {
    /// Peers of a bridge's sockets that gave way to new ones.
    PEER_REPLACED = "openflow_peer_replaced";
}

/// Accepts connections until told to end. When there are too many, the peer that has been silent
/// for longest gives way.
async fn listen(bridge: Rc<BridgeAgent>, remote: Remote, kind: Kind) {
    let mut listener = bind(&bridge, &remote).await;
    let mut peers: Vec<ConnId> = Vec::new();
    loop {
        match listener.accept().await {
            Ok((stream, name)) => {
                if peers.len() >= MOST_PEERS {
                    bridge.make_room(&mut peers, &remote);
                }
                let options = Options {
                    hello: Some(HELLO),
                    ..Options::new(kind, name)
                };
                peers.push(bridge.add(stream, options).id);
            }
            Err(error) => {
                tracing::warn!(target: "bridge", "{remote}: accept failed: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Listens at a socket; tries again until that works.
async fn bind(bridge: &BridgeAgent, remote: &Remote) -> Listener {
    let name = remote.to_string();
    let mut pause = FIRST_PAUSE;
    loop {
        match Listener::bind(remote, &mgmt::stream::Tls::default()).await {
            Ok(listener) => {
                let failed = bridge.unbound.borrow_mut().remove(&name);
                if failed.is_some_and(|error| !error.is_empty()) {
                    tracing::info!(target: "bridge", "{name}: listening");
                }
                if let Some(state) = bridge.state.upgrade() {
                    state.openflow.listening.notify_one();
                }
                return listener;
            }
            Err(error) => {
                let error = os_text(&error);
                let before = bridge.unbound.borrow_mut().insert(name.clone(), error.clone());
                if before.is_none_or(|before| before != error) {
                    tracing::error!(target: "bridge", "cannot listen at {name}: {error}; trying again");
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
