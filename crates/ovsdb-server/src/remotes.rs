//! Remotes: sockets that the server listens on, connections that it opens to clients, and rows of a
//! database that configure both.

mod keys;
mod rows;
mod run;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mgmt::stream::{DEFAULT_DSCP, Remote};
use tokio::task::{self, AbortHandle};

use crate::server::Inner;
use rows::RowSource;

/// How often the server updates the status columns of remotes.
const STATUS_INTERVAL: Duration = Duration::from_millis(2500);

/// The server probes a TCP client that has been silent for this time.
const DEFAULT_PROBE: Duration = Duration::from_secs(5);

/// The longest pause between two attempts to connect.
const DEFAULT_MAX_BACKOFF: Duration = Duration::from_secs(8);

/// The remotes of a server.
#[derive(Default)]
pub(crate) struct Remotes {
    /// Named on the command line or by a command.
    configured: BTreeMap<String, Settings>,
    /// The server has started.
    started: bool,
    /// The running remotes, by target.
    running: BTreeMap<String, Running>,
}

/// A remote that the server listens on or connects to.
struct Running {
    settings: Settings,
    state: Rc<RefCell<State>>,
    task: Option<AbortHandle>,
}

/// Settings for a remote's clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `None` for the default of the kind of socket; zero for never.
    pub(crate) probe: Option<Duration>,
    pub(crate) max_backoff: Duration,
    pub(crate) read_only: bool,
    /// The role of clients; empty for none.
    pub(crate) role: String,
    /// The DSCP of packets over TCP.
    pub(crate) dscp: u8,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            probe: None,
            max_backoff: DEFAULT_MAX_BACKOFF,
            read_only: false,
            role: String::new(),
            dscp: DEFAULT_DSCP,
        }
    }
}

impl Settings {
    /// The time after which the server probes a silent client.
    fn probe(&self, remote: &Remote) -> Option<Duration> {
        let default = if remote.is_local() {
            Duration::ZERO
        } else {
            DEFAULT_PROBE
        };
        Some(self.probe.unwrap_or(default)).filter(|probe| !probe.is_zero())
    }
}

/// The state of a remote.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// `ACTIVE`, `BACKOFF`, … of a connection of our own.
    pub(crate) state: Option<&'static str>,
    /// The port that the server listens on.
    pub(crate) bound_port: Option<u16>,
    pub(crate) last_error: Option<String>,
    pub(crate) connected: Option<Instant>,
    pub(crate) disconnected: Option<Instant>,
}

impl Remotes {
    /// Named on the command line or by a command.
    pub(crate) fn configured(&self) -> impl Iterator<Item = &str> {
        self.configured.keys().map(String::as_str)
    }

    /// Ends all remotes.
    pub(crate) fn stop(&mut self) {
        for running in std::mem::take(&mut self.running).into_values() {
            running.stop();
        }
    }
}

impl Running {
    /// Why the server does not listen on a passive remote.
    fn listen_error(&self) -> Option<String> {
        let state = self.state.borrow();
        state.last_error.clone().filter(|_| state.state.is_none())
    }

    fn stop(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Inner {
    /// Adds a remote; [`Inner::remotes_changed`] starts it. Does nothing if it exists already.
    pub(crate) fn add_remote(&self, name: &str) -> Result<(), String> {
        self.check_remote(name)?;
        let mut remotes = self.remotes.borrow_mut();
        remotes.configured.entry(name.to_owned()).or_default();
        self.remotes_changed.notify_one();
        Ok(())
    }

    /// Replaces the remotes that are not rows of a database.
    ///
    /// # Errors
    /// A `db:` remote that names no column; the others are in force.
    pub(crate) fn set_remotes(&self, mut wanted: BTreeMap<String, Settings>) -> Result<(), String> {
        let mut failures = Vec::new();
        wanted.retain(|name, _| self.check_remote(name).map_err(|why| failures.push(why)).is_ok());
        self.remotes.borrow_mut().configured = wanted;
        self.remotes_changed.notify_one();
        match failures.is_empty() {
            true => Ok(()),
            false => Err(failures.join(", ")),
        }
    }

    /// Whether a `db:` remote names a column that can name remotes.
    fn check_remote(&self, name: &str) -> Result<(), String> {
        match RowSource::parse(name) {
            None => Ok(()),
            Some(source) => source
                .and_then(|source| source.check(&self.core.borrow()))
                .map_err(|why| format!("{name:?}: {why}")),
        }
    }

    /// Removes a remote that [`Inner::add_remote`] added.
    pub(crate) fn remove_remote(&self, name: &str) -> bool {
        let removed = self.remotes.borrow_mut().configured.remove(name).is_some();
        if removed {
            self.remotes_changed.notify_one();
        }
        removed
    }

    /// Starts the remotes.
    ///
    /// # Errors
    /// The server cannot listen on a socket of the command line. It retries those that rows name.
    pub(crate) async fn start_remotes(self: &Rc<Self>) -> Result<(), String> {
        self.reconcile_remotes().await;
        let mut remotes = self.remotes.borrow_mut();
        remotes.started = true;
        for name in remotes.configured.keys() {
            let error = remotes.running.get(name).and_then(Running::listen_error);
            if let Some(error) = error {
                return Err(format!("{name}: listen failed ({error})"));
            }
        }
        Ok(())
    }

    /// Starts and stops remotes until the running ones are the configured ones.
    pub(crate) async fn reconcile_remotes(self: &Rc<Self>) {
        let (mut wanted, mut tables) = (BTreeMap::new(), Vec::new());
        {
            let (core, remotes) = (self.core.borrow(), self.remotes.borrow());
            for (name, settings) in &remotes.configured {
                match RowSource::parse(name) {
                    None => drop(wanted.insert(name.clone(), settings.clone())),
                    Some(Ok(source)) => {
                        tables.extend(source.tables(&core));
                        wanted.extend(source.targets(&core));
                    }
                    Some(Err(_)) => {}
                }
            }
        }
        tables.extend(self.reconcile_keys());
        self.core.borrow_mut().watch(tables);
        let gone: Vec<String> = {
            let remotes = self.remotes.borrow();
            let gone = remotes
                .running
                .iter()
                .filter(|(name, running)| wanted.get(*name) != Some(&running.settings));
            gone.map(|(name, _)| name.clone()).collect()
        };
        for name in gone {
            if let Some(running) = self.remotes.borrow_mut().running.remove(&name) {
                running.stop();
            }
            tracing::info!(target: "ovsdb_jsonrpc_server", "{name}: remote deconfigured");
            self.core.borrow_mut().close_remote(&name);
            self.flush();
            // The task's end drops the listener, which removes its socket's name.
            task::yield_now().await;
        }
        for (name, settings) in wanted {
            if !self.remotes.borrow().running.contains_key(&name) {
                self.start_remote(name, settings).await;
            }
        }
    }

    async fn start_remote(self: &Rc<Self>, name: String, settings: Settings) {
        let state = Rc::new(RefCell::new(State::default()));
        let task = match name.parse::<Remote>() {
            Err(error) => {
                tracing::warn!(target: "ovsdb_jsonrpc_server", "{error}");
                let mut state = state.borrow_mut();
                (state.state, state.last_error) = (Some("VOID"), Some(error.to_string()));
                None
            }
            Ok(remote) if remote.is_passive() => {
                let patience = {
                    let remotes = self.remotes.borrow();
                    !remotes.started && remotes.configured.contains_key(&name)
                };
                let first = run::bind(&self.tls, &remote, &state, patience).await.ok();
                let listen = run::listen(
                    self.clone(),
                    name.clone(),
                    remote,
                    settings.clone(),
                    state.clone(),
                    first,
                );
                Some(task::spawn_local(listen).abort_handle())
            }
            Ok(remote) => {
                let connect = run::connect(self.clone(), name.clone(), remote, settings.clone(), state.clone());
                Some(task::spawn_local(connect).abort_handle())
            }
        };
        self.remotes
            .borrow_mut()
            .running
            .insert(name, Running { settings, state, task });
    }
}

/// Follows configuration changes, and updates the status columns of remotes.
pub(crate) async fn follow(inner: Rc<Inner>) {
    loop {
        let reports = inner.report_remotes();
        let changed = inner.remotes_changed.notified();
        if reports {
            if tokio::time::timeout(STATUS_INTERVAL, changed).await.is_err() {
                continue;
            }
        } else {
            changed.await;
        }
        inner.reconcile_remotes().await;
    }
}
