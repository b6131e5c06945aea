//! The server: the core and the tasks around it.
//!
//! Everything runs on one thread, inside a tokio `LocalSet`. Only sync and compaction, which wait
//! for disks, run on threads of their own. No borrow of a `RefCell` lives across an await.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mgmt::reclaim;
use mgmt::stream::{Stream, Tls, tls};
use nanos::Nanos;
use ovsdb::{Arena, DatabaseSchema};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::{self, AbortHandle};

use crate::config::ConfigFile;
use crate::conn::{self, Conn};
use crate::core::{Close, Core, Effect, HeldReply, Now, SessionId, SessionMap, SessionOptions};
use crate::relay::Relays;
use crate::remotes::Remotes;
use crate::replication::Replication;
use crate::request::Incoming;
use crate::source::SourceOptions;
use crate::store::{Store, StoreError};

/// What a server is started with.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Database files, and relays: `relay:DATABASE:REMOTE[,REMOTE]…`.
    pub databases: Vec<PathBuf>,
    /// Where to listen and connect: `punix:FILE`, `ptcp:PORT`, `db:DATABASE,TABLE,COLUMN`, …
    pub remotes: Vec<String>,
    /// The schema that the databases should have, as JSON text. The server creates a missing file
    /// with it, and converts a file with an older schema that it extends. Without a schema the
    /// files have to exist, and the server does not convert them.
    pub schema: Option<String>,
    /// Most clients at the same time; 0 for [`DEFAULT_MAX_SESSIONS`].
    pub max_sessions: usize,
    /// Most memory that all clients use together, in bytes: incomplete messages, messages that
    /// wait to be sent, monitors and other state that clients asked for. 0 for a quarter of the
    /// machine's memory, between 512 MiB and 4 GiB.
    pub memory_budget: usize,
    /// A file that names databases and remotes instead (ovsdb-server(1), "Configuration File").
    pub config_file: Option<PathBuf>,
    /// The databases follow those of an active server.
    pub sync: SyncOptions,
    /// The keys for remotes under TLS. `db:DATABASE,TABLE,COLUMN` names a column that has the file
    /// name. If these are the default, the server does not change [`Options::tls`].
    pub tls_settings: tls::Settings,
    /// The keys of the whole process.
    pub tls: Tls,
}

/// Active-backup replication (ovsdb-server(1), "Active-Backup Options").
#[derive(Debug, Clone, Default)]
pub struct SyncOptions {
    /// The active server: `tcp:HOST:PORT`, …
    pub source: Option<String>,
    /// Tables that are not replicated: `DB:TABLE[,DB:TABLE]…`.
    pub exclude: Option<String>,
    /// Start in the active role although there is a source.
    pub active: bool,
}

/// Most clients at the same time by default.
pub const DEFAULT_MAX_SESSIONS: usize = 1000;

/// More clients of this machine that may connect when the limit is reached.
const RESERVED: usize = 16;

telemetry::counters! {
    /// Idle clients that the server disconnected to accept others.
    GAVE_WAY = "ovsdb_session_gave_way";
    /// Clients that the server refused because there were too many.
    REFUSED = "ovsdb_session_refused";
}

/// Why a server did not start, or a database could not be added.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A database's file cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// [`Options::schema`] is not a schema.
    #[error("{0}")]
    Schema(ovsdb::Error),
    /// Two files hold databases with the same name.
    #[error("ovsdb error: {name}: duplicate database name")]
    Duplicate {
        /// The database's name.
        name: String,
    },
    /// A relay is not of the form `relay:DATABASE:REMOTE`.
    #[error("ovsdb error: relay:{0}: invalid syntax")]
    Relay(String),
    /// The configuration file is wrong, or the server cannot do what it says.
    #[error("{0}")]
    Config(String),
    /// A `db:` remote names no column, or the server cannot listen on a remote.
    #[error("{0}")]
    Remote(String),
}

/// A database server. All clones are handles of the same server.
#[derive(Clone)]
pub struct Server {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) core: RefCell<Core>,
    pub(crate) stores: RefCell<BTreeMap<String, Store>>,
    pub(crate) conns: RefCell<SessionMap<Rc<Conn>>>,
    pub(crate) remotes: RefCell<Remotes>,
    pub(crate) replication: RefCell<Replication>,
    pub(crate) relays: RefCell<Relays>,
    pub(crate) config_file: RefCell<Option<ConfigFile>>,
    /// A row changed that [`Remotes`] depend on.
    pub(crate) remotes_changed: Notify,
    /// Requests that the server ends.
    pub(crate) exit: Notify,
    pub(crate) tls: Tls,
    /// As configured: names of columns are not replaced by their values.
    pub(crate) tls_settings: tls::Settings,
    /// The errors logged about protocols and ciphers in columns.
    pub(crate) tls_complaints: RefCell<Vec<String>>,
    /// The buffer that all connections read into.
    pub(crate) read_buffer: RefCell<Box<[u8]>>,
    /// The memory for a message while the server handles it.
    pub(crate) arena: RefCell<Arena>,
    flusher: RefCell<Option<Waker>>,
    /// The sessions that a flush sends to. Empty between flushes; kept for its capacity.
    dirty: RefCell<Vec<SessionId>>,
    flush_wanted: Cell<bool>,
    deadline_moved: Notify,
    pub(crate) synced: mpsc::UnboundedSender<Synced>,
    sync_results: RefCell<Option<mpsc::UnboundedReceiver<Synced>>>,
    tasks: RefCell<Vec<AbortHandle>>,
    started: Instant,
    max_sessions: usize,
    internal: Cell<u64>,
    /// Whether a compaction by a user's request returns freed memory at once.
    pub(crate) trim_on_compaction: Cell<bool>,
}

/// The replies to durable transactions that wait for a sync, and how the sync ended.
pub(crate) struct Synced {
    pub(crate) ticket: Vec<HeldReply>,
    pub(crate) result: io::Result<()>,
}

impl Server {
    /// Opens the databases. Waits up to 5 s for the end of another process that has one of them
    /// locked. No client is served before [`Server::run_local`].
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(options: Options) -> Result<Server, OpenError> {
        let seed = || uuid::Uuid::new_v4().as_u128();
        let (synced, sync_results) = mpsc::unbounded_channel();
        let max_sessions = if options.max_sessions == 0 {
            DEFAULT_MAX_SESSIONS
        } else {
            options.max_sessions
        };
        let inner = Rc::new(Inner {
            core: RefCell::new(Core::new(seed(), memory_budget(options.memory_budget))),
            stores: RefCell::default(),
            conns: RefCell::default(),
            remotes: RefCell::default(),
            relays: RefCell::default(),
            config_file: RefCell::new(options.config_file.clone().map(ConfigFile::new)),
            replication: RefCell::new(Replication::new(&options.sync)),
            remotes_changed: Notify::new(),
            exit: Notify::new(),
            tls: options.tls,
            tls_settings: options.tls_settings,
            tls_complaints: RefCell::default(),
            read_buffer: RefCell::new(vec![0; conn::READ].into()),
            arena: RefCell::default(),
            flusher: RefCell::new(None),
            dirty: RefCell::default(),
            flush_wanted: Cell::new(false),
            deadline_moved: Notify::new(),
            synced,
            sync_results: RefCell::new(Some(sync_results)),
            tasks: RefCell::default(),
            started: Instant::now(),
            max_sessions,
            internal: Cell::new(0),
            trim_on_compaction: Cell::new(false),
        });
        let schema = options
            .schema
            .as_deref()
            .map(DatabaseSchema::from_text)
            .transpose()
            .map_err(OpenError::Schema)?;
        for file in &options.databases {
            if let Some(relay) = file.to_str().and_then(|file| file.strip_prefix("relay:")) {
                inner.add_relay(relay, SourceOptions::default())?;
                continue;
            }
            crate::store::wait_for_lock(file);
            inner.add_database(file, schema.as_ref())?;
        }
        if let Some(path) = &options.config_file {
            inner.load_config_file(path).map_err(OpenError::Config)?;
        }
        inner.check_keys().map_err(OpenError::Remote)?;
        for remote in &options.remotes {
            inner.add_remote(remote).map_err(OpenError::Remote)?;
        }
        Ok(Server { inner })
    }

    /// Starts to serve; the server listens on its remotes when this returns. Call it once, inside
    /// a `LocalSet`: the server's tasks run there until the last clone is dropped or
    /// [`Server::shut_down`]. Waits up to 10 s for the end of another process that listens on one
    /// of [`Options::remotes`].
    ///
    /// # Errors
    /// [`OpenError::Remote`]: the server cannot listen on one of [`Options::remotes`]. It retries
    /// the remotes that rows of a database name.
    pub async fn run_local(&self) -> Result<(), OpenError> {
        let inner = &self.inner;
        let Some(results) = inner.sync_results.borrow_mut().take() else {
            return Ok(());
        };
        inner.spawn(flush_when_wanted(inner.clone()));
        inner.spawn(reply_when_synced(inner.clone(), results));
        inner.spawn(keep_time(inner.clone()));
        inner.start_relays();
        inner.start_replication();
        inner.start_remotes().await.map_err(OpenError::Remote)?;
        inner.spawn(crate::remotes::follow(inner.clone()));
        Ok(())
    }

    /// Connects the switch in the same process to the server, without a socket in the file system.
    ///
    /// # Errors
    /// The system's.
    pub fn connect_in_memory(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let number = self.inner.internal.replace(self.inner.internal.get() + 1);
        let options = SessionOptions {
            name: format!("internal#{number}"),
            remote: String::new(),
            local: true,
            read_only: false,
            role: String::new(),
            client: None,
            probe: None,
        };
        let inner = self.inner.clone();
        let session = inner.connect(options);
        self.inner.spawn(conn::serve(inner, Stream::Unix(ours), session));
        Ok(theirs)
    }

    /// Waits until somebody requests that the server ends (`exit`).
    pub async fn exit_requested(&self) {
        self.inner.exit.notified().await;
    }

    /// Requests that the server ends: [`Server::exit_requested`] returns.
    pub fn request_exit(&self) {
        self.inner.exit.notify_one();
    }

    /// Ends all tasks and connections, and closes the databases once all transactions are on the
    /// disk.
    pub fn shut_down(&self) {
        self.inner.flush();
        for task in self.inner.tasks.take() {
            task.abort();
        }
        self.inner.relays.borrow_mut().stop();
        self.inner.replication.borrow_mut().stop();
        self.inner.remotes.borrow_mut().stop();
        self.inner.conns.borrow_mut().clear();
        self.inner.stores.borrow_mut().clear();
    }

    /// The names of the databases, `_Server` included.
    pub fn database_names(&self) -> Vec<String> {
        self.inner.core.borrow().database_names().map(str::to_owned).collect()
    }
}

impl Inner {
    /// The time.
    pub(crate) fn now(&self) -> Now {
        let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            monotonic: self.monotonic(),
            date_ms: date.as_millis() as i64,
        }
    }

    /// The time since the server began.
    pub(crate) fn monotonic(&self) -> Nanos {
        Nanos(self.started.elapsed().as_nanos() as u64)
    }

    /// Whether [`Server::run_local`] was called.
    pub(crate) fn has_started(&self) -> bool {
        self.sync_results.borrow().is_none()
    }

    /// Spawns a task that ends with the server.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let handle = task::spawn_local(task).abort_handle();
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(handle);
    }

    /// Whether one more client may connect. At the limit the server disconnects the client that has
    /// been idle longest, clients of other machines first. A client of this machine may exceed the
    /// limit by [`RESERVED`].
    pub(crate) fn make_room(&self, local: bool) -> bool {
        let mut core = self.core.borrow_mut();
        let sessions = core.n_open();
        if sessions < self.max_sessions {
            return true;
        }
        let idle = match core.longest_idle(true) {
            None if local && sessions < self.max_sessions + RESERVED => return true,
            None if local => core.longest_idle(false),
            found => found,
        };
        let Some(idle) = idle else {
            REFUSED.inc();
            return false;
        };
        GAVE_WAY.inc();
        core.close(
            idle,
            Close::Warn("disconnecting (idle, and there are too many clients)".into()),
        );
        drop(core);
        self.flush_soon();
        true
    }

    /// Begins a session.
    pub(crate) fn connect(&self, options: SessionOptions) -> SessionId {
        let now = self.now();
        let id = self.core.borrow_mut().connect(options, now);
        self.check_deadline();
        id
    }

    /// Handles a client's message, which arrived at `now`.
    pub(crate) fn handle(self: &Rc<Self>, session: SessionId, message: Incoming<'_>, now: Now) {
        if self.core.borrow().must_flush(&message) {
            self.flush();
        }
        let effect = self.core.borrow_mut().handle(session, message, now);
        if let Some(Effect::Convert(conversion)) = effect {
            let result = match self.stores.borrow_mut().get_mut(&conversion.name) {
                Some(store) => store.replace(&conversion.new, now.date_ms, "converted by ovsdb-server", now.monotonic),
                None => Err(io::ErrorKind::NotFound.into()),
            };
            self.core.borrow_mut().converted(*conversion, result, now);
        }
        self.check_deadline();
    }

    fn check_deadline(&self) {
        if self.core.borrow_mut().take_deadline_moved() {
            self.deadline_moved.notify_one();
        }
    }

    /// Requests a [`flush`](Inner::flush) after all tasks that are ready have run.
    pub(crate) fn flush_soon(&self) {
        if !self.flush_wanted.replace(true)
            && let Some(flusher) = &*self.flusher.borrow()
        {
            flusher.wake_by_ref();
        }
    }

    /// Writes the batch to its file, then sends the replies and updates that depend on it.
    pub(crate) fn flush(self: &Rc<Self>) {
        self.flush_wanted.set(false);
        self.write_batch();
        let mut dirty = self.dirty.take();
        loop {
            self.core.borrow_mut().take_dirty(&mut dirty);
            if dirty.is_empty() {
                break;
            }
            for id in dirty.drain(..) {
                let conn = self.conns.borrow().get(&id).cloned();
                if let Some(conn) = conn
                    && conn.send(self)
                {
                    self.core.borrow_mut().drained(id);
                    conn.resume();
                }
            }
            self.core.borrow_mut().flushed(Ok(()));
        }
        self.dirty.replace(dirty);
        let closing = self.core.borrow_mut().take_closing();
        for (id, reason) in closing {
            let name = self.core.borrow().session_name(id).to_owned();
            match reason {
                Close::Info(why) => tracing::info!(target: "ovsdb_jsonrpc_server", "{name}: {why}"),
                Close::Warn(why) => telemetry::warn_limited!(target: "ovsdb_jsonrpc_server", "{name}: {why}"),
                Close::Error(why) => telemetry::error_limited!(target: "reconnect", "{name}: {why}"),
            }
            if let Some(conn) = self.conns.borrow().get(&id) {
                conn.end();
            }
        }
        match self.core.borrow_mut().take_freed() {
            0 => {}
            bytes => reclaim::freed(bytes),
        }
        if self.core.borrow_mut().take_forwards_changed() {
            self.relays.borrow().wake();
        }
        if self.core.borrow_mut().take_watch_fired() {
            self.remotes_changed.notify_one();
        }
    }
}

/// The memory budget of all clients, in bytes; `asked` is 0 for the default.
fn memory_budget(asked: usize) -> usize {
    if asked > 0 {
        return asked;
    }
    let system = rustix::system::sysinfo();
    let memory = system.totalram * u64::from(system.mem_unit);
    usize::try_from((memory / 4).clamp(512 << 20, 4 << 30)).unwrap_or(usize::MAX)
}

/// Flushes after all tasks that are ready have run.
async fn flush_when_wanted(inner: Rc<Inner>) {
    poll_fn(|cx| {
        if !inner
            .flusher
            .borrow()
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            *inner.flusher.borrow_mut() = Some(cx.waker().clone());
        }
        if inner.flush_wanted.get() {
            inner.flush();
        }
        Poll::<()>::Pending
    })
    .await;
}

/// Replies to durable transactions once they are on the disk.
async fn reply_when_synced(inner: Rc<Inner>, mut results: mpsc::UnboundedReceiver<Synced>) {
    while let Some(Synced { ticket, result }) = results.recv().await {
        inner.flush();
        inner.core.borrow_mut().synced(ticket, &result);
        inner.flush();
    }
}

/// Calls the core at its deadlines.
async fn keep_time(inner: Rc<Inner>) {
    loop {
        let deadline = inner.core.borrow().next_deadline();
        let wait = deadline.map(|deadline| Duration::from_nanos(deadline.0.saturating_sub(inner.monotonic().0)));
        match wait {
            None => inner.deadline_moved.notified().await,
            Some(wait) => {
                // A timer may fire a little early; a millisecond more keeps it from firing twice.
                let wait = wait + Duration::from_millis(1);
                if tokio::time::timeout(wait, inner.deadline_moved.notified())
                    .await
                    .is_ok()
                {
                    continue;
                }
                inner.flush();
                let now = inner.now();
                inner.core.borrow_mut().tick(now);
                inner.flush();
            }
        }
    }
}
