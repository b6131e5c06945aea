//! What the server does, without sockets, files, clocks or threads.
//!
//! Goal: everything that clients observe is decided here, one request after the other, except for
//! timing and transport.
//!
//! The driver calls in a loop, in this order:
//! 1. [`Core::must_flush`] with the next message of a session; if so it does step 3 first.
//! 2. [`Core::handle`], which changes databases in memory and puts replies and updates, staged,
//!    into outboxes.
//! 3. [`Core::batch`]: it writes the records to the database's file and reports the result with
//!    [`Core::flushed`], which releases the staged bytes, or undoes the transactions and replies
//!    with an I/O error.
//! 4. [`Core::take_dirty`]: the sessions whose outboxes grew; it sends what is sendable and calls
//!    [`Core::drained`] when all is sent.
//!
//! Invariants
//! - A batch holds transactions of one database, and only transactions are executed while it is
//!   open. So undoing the batch undoes everything that depends on it.
//! - An update of a transaction is in a client's outbox before the reply to it.
//! - While a session's backlog exceeds [`BACKLOG`], the core handles none of its requests and
//!   merges its updates into one, which it encodes when the backlog is gone. So a client that does
//!   not read uses a bounded amount of memory.
//! - The waiting transactions, monitors and locks of a session use at most [`MAX_HELD`] bytes.
//! - All sessions together stay within a memory budget, which also counts incomplete messages and
//!   bytes to be sent. A request that exceeds a session's share gets the error `resources
//!   exhausted`. See [`hold`].

mod admin;
mod batch;
mod encode;
mod follow;
mod hold;
mod locks;
mod methods;
mod monitors;
mod outbox;
mod relay;
mod session;
#[cfg(test)]
mod tests;
mod tlog;
mod waits;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use nanos::Nanos;
use ovsdb::{Database, Uuid, UuidGen};
use telemetry::budget::Budget;

pub(crate) use batch::{Batch, HeldReply};
pub(crate) use hold::COUNTED;
pub(crate) use session::SessionOptions;

use locks::Locks;
use monitors::Monitors;
use relay::{Forward, Relay};
use session::Session;
use waits::Blocked;

/// The backlog in bytes from which the server stops reading from a client.
pub(crate) const BACKLOG: usize = 1 << 20;

/// Most bytes, approximately, of a session's waiting transactions, monitors and locks together.
const MAX_HELD: usize = 16 << 20;

/// The overhead in bytes of each of them.
const HELD_ITEM: usize = 512;

/// Tables shrink after this many bytes were freed.
const SHRINK: usize = 1 << 20;

/// The name of the database about the server's databases.
pub(crate) const SERVER_DB: &str = "_Server";

/// A session's number, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(pub(crate) u64);

/// A map by session. The keys are consecutive numbers, so a multiplication is a good hash.
pub(crate) type SessionMap<T> = HashMap<SessionId, T, BuildHasherDefault<SessionHasher>>;

/// Hashes a [`SessionId`].
#[derive(Debug, Default)]
pub(crate) struct SessionHasher(u64);

impl Hasher for SessionHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The time by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// For intervals.
    pub(crate) monotonic: Nanos,
    /// For the log: milliseconds since 1970.
    pub(crate) date_ms: i64,
}

/// Work that the core leaves to the driver.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Replace the file by the converted database, then call [`Core::converted`].
    Convert(Box<Conversion>),
}

/// A database that is converted to another schema.
#[derive(Debug)]
pub(crate) struct Conversion {
    pub(crate) name: String,
    pub(crate) new: Database,
    session: SessionId,
    id: serde_json::Value,
}

/// Why the server ends a session, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Close {
    /// A normal end.
    Info(String),
    /// Because of something that the client did.
    Warn(String),
    /// The client seems dead.
    Error(String),
}

/// All of the server's state.
pub(crate) struct Core {
    databases: BTreeMap<String, Hosted>,
    sessions: SessionMap<Session>,
    locks: Locks,
    blocked: Vec<Blocked>,
    batch: Batch,
    dirty: Vec<SessionId>,
    closing: Vec<SessionId>,
    watched: Vec<(String, String)>,
    watch_fired: bool,
    /// The number of commits delivered to monitors.
    delivery: u64,
    /// `monitor_cond` and its relatives are methods. Tests of clients switch them off.
    monitor_cond: bool,
    deadline_moved: bool,
    /// Roughly the bytes freed since [`Core::take_freed`].
    freed: usize,
    /// Roughly the bytes freed since tables were shrunk.
    unshrunk: usize,
    next_session: u64,
    /// The transactions that sources of relays have to answer, by number.
    forwards: BTreeMap<u64, Forward>,
    next_forward: u64,
    forwards_changed: bool,
    uuids: UuidGen,
    server_id: Uuid,
    budget: Budget,
}

/// A database and its monitors.
struct Hosted {
    db: Database,
    monitors: Monitors,
    /// Whether it is written to a file.
    persistent: bool,
    /// It follows another server; clients may only read it.
    backup: bool,
    /// Its contents come from another server, which executes transactions that change something.
    relay: Option<Relay>,
    /// The tables whose changes are logged.
    logged: BTreeSet<String>,
}

impl Core {
    /// A server with no database but its own. `seed` makes its UUIDs, `budget` is the most that
    /// sessions may hold together, in bytes.
    pub(crate) fn new(seed: u128, budget: usize) -> Core {
        let mut uuids = UuidGen::new(seed);
        let mut core = Core {
            databases: BTreeMap::new(),
            sessions: SessionMap::default(),
            locks: Locks::default(),
            blocked: Vec::new(),
            batch: Batch::default(),
            dirty: Vec::new(),
            closing: Vec::new(),
            watched: Vec::new(),
            watch_fired: false,
            delivery: 0,
            monitor_cond: true,
            deadline_moved: false,
            freed: 0,
            unshrunk: 0,
            next_session: 0,
            forwards: BTreeMap::new(),
            next_forward: 0,
            forwards_changed: false,
            server_id: uuids.next_uuid(),
            uuids,
            budget: Budget::new(budget, hold::RESERVED),
        };
        core.host_server_db();
        core
    }

    /// The UUID by which clients know this server.
    pub(crate) fn server_id(&self) -> Uuid {
        self.server_id
    }

    /// The database of that name.
    pub(crate) fn database(&self, name: &str) -> Option<&Database> {
        self.databases.get(name).map(|hosted| &hosted.db)
    }

    /// The names of all databases.
    pub(crate) fn database_names(&self) -> impl Iterator<Item = &str> {
        self.databases.keys().map(String::as_str)
    }

    /// When [`Core::tick`] has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let waits = self.blocked.iter().filter_map(|blocked| blocked.deadline);
        waits
            .chain(self.sessions.values().filter_map(Session::probe_deadline))
            .min()
    }

    /// Whether [`Core::next_deadline`] may have come closer since the last call.
    pub(crate) fn take_deadline_moved(&mut self) -> bool {
        std::mem::take(&mut self.deadline_moved)
    }

    /// Roughly the bytes of rows and messages that were freed since the last call.
    pub(crate) fn take_freed(&mut self) -> usize {
        let freed = std::mem::take(&mut self.freed);
        self.unshrunk += freed;
        if self.unshrunk >= SHRINK {
            self.unshrunk = 0;
            self.databases.values_mut().for_each(|hosted| hosted.db.shrink());
        }
        freed
    }

    /// Handles timers: `wait`s time out; silent clients are probed, then disconnected.
    pub(crate) fn tick(&mut self, now: Now) {
        self.time_out_waits(now);
        self.probe_sessions(now);
    }

    /// A fresh seed for a database's UUIDs.
    pub(crate) fn seed(&mut self) -> u128 {
        self.uuids.next_uuid().as_u128()
    }
}

/// Roughly the memory that a value takes, in bytes.
fn weigh(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(weigh).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| 64 + name.len() + weigh(value)).sum(),
    };
    32 + inside
}

/// The time from `start` to `now`.
fn elapsed(start: Nanos, now: Nanos) -> Duration {
    Duration::from_nanos(now.0.saturating_sub(start.0))
}
