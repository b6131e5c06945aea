//! A bridge's agent with its sockets and tasks.

use super::connection;
use crate::packets::Packet;
use crate::state::State;
use mgmt::os_text;
use mgmt::paths;
use mgmt::stream::{Listener, Remote, Stream};
use nanos::Nanos;
use ofproto::{Agent, Config, ConnId, Event, Kind, LimitStats, Options, PortInfo};
use openflow::model::Role;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;
use switch::tables::TableSettings;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle, spawn_local};

/// The first and the longest pause before the next attempt to listen on a socket.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The agent of a bridge, and the tasks of its connections.
pub(crate) struct BridgeAgent {
    pub(super) state: Weak<State>,
    pub(super) agent: RefCell<Agent>,
    connections: RefCell<BTreeMap<ConnId, Task>>,
    listeners: RefCell<Vec<AbortHandle>>,
    /// The sockets that are not listening yet, with the last error.
    unbound: RefCell<BTreeMap<String, String>>,
    /// Notified when closed connections leave work behind.
    background: Notify,
    /// The database's settings of tables.
    tables: RefCell<BTreeMap<u8, TableSettings>>,
}

struct Task {
    /// Notified when a connection has data to send.
    wake: Rc<Notify>,
    greeted: Rc<Notify>,
    task: AbortHandle,
}

/// An added connection.
pub(crate) struct Connection {
    /// Its number in the agent.
    pub(crate) id: ConnId,
    /// Ends with the connection and returns the reason.
    pub(crate) task: JoinHandle<String>,
    /// Notified when a version is negotiated, and at the peer's first request other than for
    /// features.
    pub(crate) greeted: Rc<Notify>,
}

impl BridgeAgent {
    /// Starts an agent that listens on the bridge's sockets.
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
            if kind == Kind::Service {
                tracing::info!(target: "connmgr", "{bridge}: added service controller \"{remote}\"");
            }
            let task = spawn_local(listen(this.clone(), bridge.clone(), remote, kind));
            this.listeners.borrow_mut().push(task.abort_handle());
        }
        let task = spawn_local(background(this.clone()));
        this.listeners.borrow_mut().push(task.abort_handle());
        this
    }

    /// A socket that is not listening yet, and the last error.
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

    /// Closes all its connections; peers must reconnect.
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

    /// Forgets closed peers. If there are still too many, closes the connection that has been
    /// silent longest.
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

    /// Whether a connection's peer has sent a request other than for features.
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

    /// Rate limit counters of a connection's packet-ins.
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

    /// Applies the database's settings of tables; tables without settings go back to the default.
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

    /// Wakes the tasks of connections with data to send.
    pub(super) fn wake(&self) {
        self.wake_but(None);
    }

    /// The same, except for the calling task.
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

/// Cleans up after closed connections in slices.
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
/// Timeout of the hello of these sockets' peers.
const HELLO: Duration = Duration::from_secs(10);

telemetry::counters! {
    /// Peers of a bridge's sockets closed to admit new ones.
    PEER_REPLACED = "openflow_peer_replaced";
}

/// Accepts connections. When there are too many, closes the peer that has been silent longest.
async fn listen(bridge: Rc<BridgeAgent>, name: String, remote: Remote, kind: Kind) {
    // Without a controller there is nothing to overhear; Open vSwitch closes the connection too.
    let is_vain = || {
        let state = bridge.state.upgrade();
        kind == Kind::Snoop && !state.is_some_and(|state| state.controllers.are_given(&name))
    };
    let mut listener = bind(&bridge, &remote).await;
    let mut peers: Vec<ConnId> = Vec::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) if is_vain() => drop(stream),
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

/// Listens on a socket; retries until it succeeds.
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
                    tracing::error!(target: "bridge", "cannot listen on {name}: {error}; trying again");
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
