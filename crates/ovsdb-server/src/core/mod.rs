//! What the server does, without sockets, files, clocks or threads.
//!
//! Goal: everything that clients can observe, but for time and bytes on their way, is decided here,
//! one request after the other.
//!
//! The driver calls, in this order, again and again:
//! 1. [`Core::must_flush`] with the next message of a session; if so it does step 3 first.
//! 2. [`Core::handle`], which changes databases in memory and puts replies and updates, staged,
//!    into outboxes.
//! 3. [`Core::batch`]: writes its records to the database's file and says how it went with
//!    [`Core::flushed`], which releases what is staged, or takes the transactions back and has
//!    their clients told of an I/O error.
//! 4. [`Core::take_dirty`]: the sessions whose outboxes grew; it sends what is sendable and calls
//!    [`Core::drained`] when all is sent.
//!
//! Invariants
//! - A batch holds transactions of one database, and nothing but transactions happens while it is
//!   open. So taking it back takes back all that was seen of it.
//! - An update of a transaction is in a client's outbox before the reply to it.
//! - A session whose backlog exceeds [`BACKLOG`] gets no requests handled and no updates encoded:
//!   what changes meanwhile is merged, and told when the backlog is gone. So a client that does not
//!   read costs a bounded amount of memory.
//! - What a session keeps in the server (waiting transactions, monitors, locks) weighs at most
//!   [`MAX_HELD`].
//! - All sessions together keep no more than a memory budget: that, messages that have not arrived
//!   as a whole, and bytes to be sent. A request that would exceed a session's part of it is
//!   refused with `resources exhausted`. See [`hold`].

mod admin;
mod batch;
mod encode;
mod hold;
mod locks;
mod methods;
mod monitors;
mod outbox;
mod session;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use ovsdb::{Database, Uuid, UuidGen};
use telemetry::budget::Budget;
use wire::Nanos;

pub(crate) use batch::{Batch, HeldReply};
pub(crate) use hold::COUNTED;
pub(crate) use session::SessionOptions;

use locks::Locks;
use monitors::Monitors;
use session::Session;
use waits::Blocked;

/// The bytes that may wait for a client before the server stops listening to it.
pub(crate) const BACKLOG: usize = 1 << 20;

/// What a session's waiting transactions, monitors and locks may weigh together, in bytes and
/// roughly.
const MAX_HELD: usize = 16 << 20;

/// What each of them weighs besides the client's own words.
const HELD_ITEM: usize = 512;

/// Tables are made smaller after so many bytes were freed.
const SHRINK: usize = 1 << 20;

/// The name of the database about the server's databases.
pub(crate) const SERVER_DB: &str = "_Server";

/// A session, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(pub(crate) u64);

/// What is kept for each session. The keys are ours and count up: they are spread well enough by a
/// multiplication.
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

/// The time, in both of its senses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// For intervals.
    pub(crate) monotonic: Nanos,
    /// For the log: milliseconds since 1970.
    pub(crate) date_ms: i64,
}

/// What the core cannot do alone.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Write the converted database in the place of the old one, then call [`Core::converted`].
    Convert(Box<Conversion>),
}

/// A database about to change its schema.
#[derive(Debug)]
pub(crate) struct Conversion {
    pub(crate) name: String,
    pub(crate) new: Database,
    session: SessionId,
    id: serde_json::Value,
}

/// Why the server ends a session, in words for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Close {
    /// In the course of things.
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
    /// The number of commits that monitors were told of.
    delivery: u64,
    deadline_moved: bool,
    /// Roughly the bytes freed since [`Core::take_freed`].
    freed: usize,
    /// Roughly the bytes freed since tables were made smaller.
    unshrunk: usize,
    next_session: u64,
    uuids: UuidGen,
    server_id: Uuid,
    budget: Budget,
}

/// A database and who watches it.
struct Hosted {
    db: Database,
    monitors: Monitors,
    /// Whether it is written to a file.
    persistent: bool,
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
            deadline_moved: false,
            freed: 0,
            unshrunk: 0,
            next_session: 0,
            server_id: uuids.next_uuid(),
            uuids,
            budget: Budget::new(budget, hold::RESERVED),
        };
        core.host_server_db();
        core
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

    /// Lets time pass: `wait`s run out, silent clients are probed and given up.
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
