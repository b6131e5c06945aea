//! The server: the core, its databases' files, and the tasks around them.
//!
//! Everything runs on one thread, inside a tokio `LocalSet`, but for syncing and compacting, which
//! wait for disks on threads of their own. No borrow of a `RefCell` lives across an await.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mgmt::pidfile::os_text;
use mgmt::reclaim;
use mgmt::stream::{Stream, Tls, tls};
use ovsdb::{Arena, DatabaseSchema};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::{self, AbortHandle};
use wire::Nanos;

use crate::conn::{self, Conn};
use crate::core::{Close, Core, Effect, HeldReply, Now, SERVER_DB, SessionId, SessionMap, SessionOptions};
use crate::linger::{self, Linger};
use crate::remotes::Remotes;
use crate::request::Incoming;
use crate::store::{Store, StoreError};

/// What a server is started with.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Database files.
    pub databases: Vec<PathBuf>,
    /// Where to listen and connect: `punix:FILE`, `ptcp:PORT`, `db:DATABASE,TABLE,COLUMN`, …
    pub remotes: Vec<String>,
    /// The schema that the databases should have, as JSON text. A file that does not exist is made
    /// with it; an older one that it extends is converted to it. Without it files have to exist,
    /// and are served as they are.
    pub schema: Option<String>,
    /// The clients served at once; 0 for [`DEFAULT_MAX_SESSIONS`].
    pub max_sessions: usize,
    /// The memory that all clients may hold together, in bytes: unfinished messages, what waits to
    /// be sent to them, and what they asked for that stays. 0 for a quarter of the machine's,
    /// between 512 MiB and 4 GiB.
    pub memory_budget: usize,
    /// The keys for remotes under TLS. Files may be named by columns: `db:DATABASE,TABLE,COLUMN`.
    /// Where these are the default, [`Options::tls`] is left as it is.
    pub tls_settings: tls::Settings,
    /// Where the keys are kept for all of the process.
    pub tls: Tls,
}

/// The clients served at once unless [`Options::max_sessions`] says otherwise.
pub const DEFAULT_MAX_SESSIONS: usize = 1000;

/// More clients that are served if they are processes of this machine.
const RESERVED: usize = 16;

telemetry::counters! {
    /// Idle clients that gave way to others.
    GAVE_WAY = "ovsdb_session_gave_way";
    /// Clients that were refused because there were too many.
    REFUSED = "ovsdb_session_refused";
}

/// Why a server did not start, or a database could not be added.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A database's file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// [`Options::schema`] is none.
    #[error("{0}")]
    Schema(ovsdb::Error),
    /// Two files hold databases of one name.
    #[error("ovsdb error: {}: duplicate database name {name}", .file.display())]
    Duplicate {
        /// The second file.
        file: PathBuf,
        /// The database's name.
        name: String,
    },
    /// A `db:` remote that names nothing, or a remote that cannot be listened on.
    #[error("{0}")]
    Remote(String),
}

/// A database server. Clones are the same server.
#[derive(Clone)]
pub struct Server {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) core: RefCell<Core>,
    pub(crate) stores: RefCell<BTreeMap<String, Store>>,
    pub(crate) conns: RefCell<SessionMap<Rc<Conn>>>,
    pub(crate) remotes: RefCell<Remotes>,
    /// Something changed that [`Remotes`] depend on.
    pub(crate) remotes_changed: Notify,
    /// Asks for the end of the server.
    pub(crate) exit: Notify,
    pub(crate) tls: Tls,
    /// As configured, columns not resolved.
    pub(crate) tls_settings: tls::Settings,
    /// What was said to be wrong with protocols and ciphers that columns name.
    pub(crate) tls_complaints: RefCell<Vec<String>>,
    /// Where all connections read to first.
    pub(crate) read_buffer: RefCell<Box<[u8]>>,
    /// What messages are read into.
    pub(crate) arena: RefCell<Arena>,
    pub(crate) linger: Linger,
    flusher: RefCell<Option<Waker>>,
    /// The sessions that a flush sends to; empty but for its memory between flushes.
    dirty: RefCell<Vec<SessionId>>,
    flush_wanted: Cell<bool>,
    deadline_moved: Notify,
    synced: mpsc::UnboundedSender<Synced>,
    sync_results: RefCell<Option<mpsc::UnboundedReceiver<Synced>>>,
    tasks: RefCell<Vec<AbortHandle>>,
    started: Instant,
    max_sessions: usize,
    internal: Cell<u64>,
}

/// Durable transactions whose sync ended.
struct Synced {
    ticket: Vec<HeldReply>,
    result: io::Result<()>,
}

impl Server {
    /// Opens the databases. Waits up to 5 s for another process that has one of them locked to end.
    /// Nothing is served before [`Server::run_local`].
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
            remotes_changed: Notify::new(),
            exit: Notify::new(),
            tls: options.tls,
            tls_settings: options.tls_settings,
            tls_complaints: RefCell::default(),
            read_buffer: RefCell::new(vec![0; conn::READ].into()),
            arena: RefCell::default(),
            linger: Linger::default(),
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
        });
        let schema = options
            .schema
            .as_deref()
            .map(DatabaseSchema::from_text)
            .transpose()
            .map_err(OpenError::Schema)?;
        for file in &options.databases {
            crate::store::wait_for_lock(file);
            inner.add_database(file, schema.as_ref())?;
        }
        inner.check_keys().map_err(OpenError::Remote)?;
        for remote in &options.remotes {
            inner.add_remote(remote).map_err(OpenError::Remote)?;
        }
        Ok(Server { inner })
    }

    /// Starts to serve: listens on the remotes before it returns. Call it once, inside a
    /// `LocalSet`, where the server's tasks go on until the last clone is dropped or
    /// [`Server::shut_down`]. Waits up to 10 s for another process that listens on one of
    /// [`Options::remotes`] to end.
    ///
    /// # Errors
    /// [`OpenError::Remote`]: one of [`Options::remotes`] cannot be listened on. Those that rows of
    /// a database name are tried again.
    pub async fn run_local(&self) -> Result<(), OpenError> {
        let inner = &self.inner;
        let Some(results) = inner.sync_results.borrow_mut().take() else {
            return Ok(());
        };
        inner.spawn(flush_when_wanted(inner.clone()));
        inner.spawn(tell_synced(inner.clone(), results));
        inner.spawn(keep_time(inner.clone()));
        inner.spawn(linger::linger(inner.clone()));
        inner.start_remotes().await.map_err(OpenError::Remote)?;
        inner.spawn(crate::remotes::follow(inner.clone()));
        Ok(())
    }

    /// A connection to the server without a name in the file system: for the switch in the same
    /// process.
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
            probe: None,
        };
        let inner = self.inner.clone();
        let session = inner.connect(options);
        self.inner.spawn(conn::serve(inner, Stream::Unix(ours), session));
        Ok(theirs)
    }

    /// Waits until somebody asks for the end of the server (`exit`).
    pub async fn exit_requested(&self) {
        self.inner.exit.notified().await;
    }

    /// Asks for the end of the server: [`Server::exit_requested`] returns.
    pub fn request_exit(&self) {
        self.inner.exit.notify_one();
    }

    /// Ends all tasks and connections, and closes the databases when what was written is on the
    /// disk.
    pub fn shut_down(&self) {
        self.inner.flush();
        for task in self.inner.tasks.take() {
            task.abort();
        }
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

    /// Spawns a task that ends with the server.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let handle = task::spawn_local(task).abort_handle();
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(handle);
    }

    /// Whether one more client may connect. Where there are as many as may be, the one that has
    /// been idle longest gives way: first one of another machine, and for a client of this machine
    /// there are [`RESERVED`] places more.
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
        self.linger.handled();
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

    /// Has everything written and sent as soon as the tasks that are ready have run.
    pub(crate) fn flush_soon(&self) {
        if !self.flush_wanted.replace(true)
            && let Some(flusher) = &*self.flusher.borrow()
        {
            flusher.wake_by_ref();
        }
    }

    /// Writes the batch to its file and sends what may be sent.
    pub(crate) fn flush(self: &Rc<Self>) {
        self.flush_wanted.set(false);
        self.write_batch();
        let mut dirty = self.dirty.take();
        loop {
            self.core.borrow_mut().take_dirty(&mut dirty);
            if dirty.is_empty() {
                break;
            }
            self.linger.sent_to(&dirty);
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
        if self.core.borrow_mut().take_watch_fired() {
            self.remotes_changed.notify_one();
        }
    }

    /// Brings the core's batch into its database's file.
    fn write_batch(self: &Rc<Self>) {
        let mut core = self.core.borrow_mut();
        let batch = core.batch();
        if batch.is_empty() || batch.records().is_empty() {
            core.flushed(Ok(()));
            return;
        }
        let name = batch.db().to_owned();
        let mut stores = self.stores.borrow_mut();
        let result = match stores.get_mut(&name) {
            Some(store) => store.append(batch.records()),
            None => Ok(()),
        };
        if let Err(error) = &result {
            telemetry::error_limited!(target: "ovsdb_file", "{name}: transaction could not be written: {}", os_text(error));
        }
        let held = core.flushed(result.as_ref().copied());
        let Some(store) = stores.get(&name) else { return };
        if !held.is_empty() {
            let synced = self.synced.clone();
            store.sync(Box::new(move |result| {
                let _ = synced.send(Synced { ticket: held, result });
            }));
        }
        if store.wants_compaction(self.monotonic()) {
            let inner = self.clone();
            self.spawn(async move {
                let _ = inner.compact(&name, "compacting database online").await;
            });
        }
    }

    /// Compacts the file of a database; it is served meanwhile. False when a compaction is under
    /// way already.
    pub(crate) async fn compact(self: &Rc<Self>, name: &str, comment: &str) -> io::Result<bool> {
        self.flush();
        let now = self.now();
        let snapshot = {
            let core = self.core.borrow();
            let mut stores = self.stores.borrow_mut();
            let (Some(db), Some(store)) = (core.database(name), stores.get_mut(name)) else {
                return Ok(false);
            };
            store.snapshot(db, now.date_ms, comment)?
        };
        let Some(snapshot) = snapshot else { return Ok(false) };
        let written = task::spawn_blocking(move || snapshot.write()).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        self.flush();
        let result = match self.stores.borrow_mut().get_mut(name) {
            Some(store) => store.compacted(written, self.monotonic()),
            None => return Ok(false),
        };
        if let Err(error) = &result {
            tracing::warn!(target: "ovsdb_server", "compaction of {name} failed: {}", os_text(error));
        }
        result.map(|()| true)
    }

    /// Opens a database file and serves it.
    pub(crate) fn add_database(
        self: &Rc<Self>,
        file: &Path,
        schema: Option<&DatabaseSchema>,
    ) -> Result<String, OpenError> {
        self.flush();
        let now = self.now();
        let seed = self.core.borrow_mut().seed();
        let (mut store, mut db) = match schema {
            Some(schema) if !file.exists() => Store::create(file, schema.clone(), seed, now.monotonic)?,
            _ => Store::open(file, seed, now.monotonic)?,
        };
        if let Some(schema) = schema {
            upgrade(&mut store, &mut db, schema, now);
        }
        let name = db.schema().name().to_owned();
        if !self.core.borrow_mut().add_database(db, now) {
            return Err(OpenError::Duplicate {
                file: file.to_owned(),
                name,
            });
        }
        self.stores.borrow_mut().insert(name.clone(), store);
        self.flush();
        Ok(name)
    }

    /// Serves a database no more, and closes its file.
    pub(crate) fn remove_database(self: &Rc<Self>, name: &str) -> bool {
        self.flush();
        let now = self.now();
        let removed = self.core.borrow_mut().remove_database(name, now);
        if removed {
            self.stores.borrow_mut().remove(name);
        }
        self.flush();
        removed
    }

    /// Whether a database is the server's own.
    pub(crate) fn is_reserved(name: &str) -> bool {
        name == SERVER_DB
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

/// Converts a database whose schema is an older form of `schema`, if nothing of it gets lost.
fn upgrade(store: &mut Store, db: &mut ovsdb::Database, schema: &DatabaseSchema, now: Now) {
    let have = db.schema().clone();
    if have.name() != schema.name() || !is_newer(schema.version(), have.version()) {
        return;
    }
    let versions = format!("schema {} to {}", have.version(), schema.version());
    let file = store.name().display().to_string();
    if !extends(schema, &have) {
        tracing::warn!(target: "ovsdb_server", "{file}: not converted from {versions}: that would lose tables or columns");
        return;
    }
    let converted = db
        .convert(schema.clone(), uuid::Uuid::new_v4().as_u128())
        .map_err(|error| error.to_string());
    let written = converted.and_then(|new| {
        let comment = format!("converted from {versions}");
        let written = store.replace(&new, now.date_ms, &comment, now.monotonic);
        written.map(|()| new).map_err(|error| os_text(&error))
    });
    match written {
        Ok(new) => {
            tracing::info!(target: "ovsdb_server", "{file}: converted from {versions}");
            *db = new;
        }
        Err(why) => tracing::warn!(target: "ovsdb_server", "{file}: could not be converted from {versions}: {why}"),
    }
}

/// Whether version `a` is greater than `b`.
fn is_newer(a: &str, b: &str) -> bool {
    let numbers = |version: &str| -> Vec<u64> { version.split('.').map(|part| part.parse().unwrap_or(0)).collect() };
    numbers(a) > numbers(b)
}

/// Whether `new` has all tables and columns of `old`.
fn extends(new: &DatabaseSchema, old: &DatabaseSchema) -> bool {
    old.tables().iter().all(|table| {
        let same = new.table(table.name());
        same.is_some_and(|same| {
            table
                .columns()
                .iter()
                .all(|column| same.column_index(&column.name).is_some())
        })
    })
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
            inner.linger.flushed();
        }
        Poll::<()>::Pending
    })
    .await;
}

/// Tells clients of durable transactions that these are on the disk.
async fn tell_synced(inner: Rc<Inner>, mut results: mpsc::UnboundedReceiver<Synced>) {
    while let Some(Synced { ticket, result }) = results.recv().await {
        inner.flush();
        inner.core.borrow_mut().synced(ticket, &result);
        inner.flush();
    }
}

/// Lets the core see time pass when it has something to do then.
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
