//! Transactions run in memory and are collected in a batch. The batch is written to the file and
//! replied to, or undone.

use std::sync::Arc;
use std::time::Duration;

use ovsdb::{Commit, Error, ErrorKind, Json, Outcome, Rbac, TxnCtx, log};
use serde_json::Value;

use super::session::mark_dirty;
use super::waits::Blocked;
use super::{BACKLOG, Core, Now, SERVER_DB, SessionId, elapsed, encode};

/// An empty batch keeps capacity for this many commits.
const KEEP_COMMITS: usize = 1024;

/// An empty batch keeps this much memory for records, in bytes.
const KEEP_RECORDS: usize = 256 << 10;

/// Roughly what a column of a row takes, in bytes.
const COLUMN: usize = 64;

/// Transactions of one database that are committed in memory and not written yet.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The database; meaningless while the batch is empty.
    db: String,
    commits: Vec<Arc<Commit>>,
    records: Vec<u8>,
    /// The sessions replied to, with the requests' ids.
    replies: Vec<(SessionId, Value)>,
    /// Replies that wait for the disk.
    durable: Vec<HeldReply>,
}

/// The reply to a durable transaction.
#[derive(Debug)]
pub(crate) struct HeldReply {
    session: SessionId,
    id: Value,
    reply: Vec<u8>,
}

impl Batch {
    /// Whether the batch has no transactions.
    pub(crate) fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// The database that it belongs to.
    pub(crate) fn db(&self) -> &str {
        &self.db
    }

    /// What to append to the database's file.
    pub(crate) fn records(&self) -> &[u8] {
        &self.records
    }
}

impl Core {
    /// The transactions to write.
    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Ends the open batch: it was written, it was empty, or the write failed and nothing of it is
    /// in the file. After this everything in the outboxes may be sent. Returns the replies for
    /// [`Core::synced`], which wait until the file is on the disk.
    pub(crate) fn flushed(&mut self, result: Result<(), &std::io::Error>) -> Vec<HeldReply> {
        if let Err(error) = result {
            self.take_back(&io_error(error));
        }
        for id in &self.dirty {
            if let Some(session) = self.sessions.get_mut(id) {
                session.outbox.release();
            }
        }
        if let Some(hosted) = self.databases.get_mut(&self.batch.db) {
            hosted.db.settle();
        }
        self.batch.commits.clear();
        self.batch.commits.shrink_to(KEEP_COMMITS);
        self.freed += self.batch.records.capacity().saturating_sub(KEEP_RECORDS);
        self.batch.records.clear();
        self.batch.records.shrink_to(KEEP_RECORDS);
        self.batch.replies.clear();
        std::mem::take(&mut self.batch.durable)
    }

    /// The file is on the disk, or the sync failed. No batch may be open.
    pub(crate) fn synced(&mut self, held: Vec<HeldReply>, result: &std::io::Result<()>) {
        for HeldReply { session, id, reply } in held {
            match result {
                Ok(()) => self.post(session, |out| out.extend_from_slice(&reply)),
                Err(error) => self.refuse(session, &id, &io_error(error).to_json()),
            }
        }
    }

    /// Undoes the batch in the database and in the outboxes.
    fn take_back(&mut self, error: &Error) {
        if let Some(hosted) = self.databases.get_mut(&self.batch.db) {
            for commit in self.batch.commits.iter().rev() {
                if let Err(error) = hosted.db.revert(commit) {
                    tracing::error!(target: "ovsdb_server", "cannot take a transaction back: {error}");
                }
            }
        }
        for id in &self.dirty {
            if let Some(session) = self.sessions.get_mut(id) {
                session.outbox.retract();
            }
        }
        let error = error.to_json();
        for (session, id) in std::mem::take(&mut self.batch.replies) {
            self.refuse(session, &id, &error);
        }
        self.batch.durable.clear();
    }

    /// `transact` (RFC 7047 §4.1.3).
    pub(super) fn transact(&mut self, session: SessionId, id: Value, db: &str, ops: &[impl Json], now: Now) {
        if self.belongs_to_source(db, session, ops) {
            return match self.try_for_role(session, db, ops) {
                None => self.forward(session, id, db, ops),
                Some(reply) => self.answer(session, &id, &reply),
            };
        }
        match self.run(session, db, ops, Duration::ZERO) {
            None => {}
            Some(Outcome::Done { reply, commit }) => {
                let changed = commit.is_some();
                self.complete(session, id, db, &reply, commit, now);
                if changed {
                    self.retry_blocked(db, now);
                }
            }
            Some(Outcome::Blocked { timeout }) => {
                let Some(state) = self.sessions.get_mut(&session) else {
                    return;
                };
                let ops = ops.iter().map(Json::to_value).collect();
                let blocked = Blocked::new(session, id, db.to_owned(), ops, timeout, now.monotonic);
                if let Err(error) = state.hold(blocked.weight) {
                    return self.refuse(session, &blocked.id, &error.to_json());
                }
                state.n_blocked += 1;
                self.deadline_moved |= timeout.is_some();
                self.blocked.push(blocked);
            }
        }
    }

    /// Executes a client's transaction.
    pub(super) fn run(&mut self, session: SessionId, db: &str, ops: &[impl Json], waited: Duration) -> Option<Outcome> {
        let (locks, state) = (&self.locks, self.sessions.get(&session)?);
        let holds_lock = |name: &str| locks.owns(name, session);
        let reserved = db == SERVER_DB;
        let server_read_only = state.options.read_only || self.is_backup(db);
        let read_only = server_read_only || reserved;
        let ctx = TxnCtx {
            waited,
            holds_lock: &holds_lock,
            read_only,
            rbac: Some(&state.options.role)
                .filter(|role| !role.is_empty())
                .map(|role| Rbac {
                    role,
                    client: state.options.client.as_deref(),
                }),
        };
        let mut outcome = self.databases.get_mut(db)?.db.transact(ops, &ctx);
        if !server_read_only
            && reserved
            && let Outcome::Done { reply, .. } = &mut outcome
        {
            explain_reserved(reply);
        }
        Some(outcome)
    }

    /// Ends a client's transaction: updates first, then the reply.
    fn complete(
        &mut self,
        session: SessionId,
        id: Value,
        db: &str,
        reply: &Value,
        commit: Option<Arc<Commit>>,
        now: Now,
    ) {
        let changed = commit.is_some();
        let durable = commit.as_ref().is_some_and(|commit| commit.durable) && self.is_persistent(db);
        if let Some(commit) = commit {
            self.committed(db, commit, now);
        }
        if durable {
            let mut bytes = Vec::new();
            encode::reply(&mut bytes, &id, reply);
            self.batch.durable.push(HeldReply {
                session,
                id: id.clone(),
                reply: bytes,
            });
        } else if changed {
            self.post(session, |out| encode::reply(out, &id, reply));
        } else {
            self.answer(session, &id, reply);
        }
        self.batch.replies.push((session, id));
    }

    /// Adds a commit to the batch and notifies monitors.
    pub(super) fn committed(&mut self, db: &str, commit: Arc<Commit>, now: Now) {
        let Some(hosted) = self.databases.get_mut(db) else {
            return;
        };
        if self.batch.is_empty() && self.batch.db != db {
            db.clone_into(&mut self.batch.db);
        }
        debug_assert_eq!(self.batch.db, db);
        if hosted.persistent {
            log::append_commit(&mut self.batch.records, hosted.db.schema(), &commit, now.date_ms);
        }
        if !self.watched.is_empty() && !self.watch_fired {
            let schema = hosted.db.schema();
            let touched = |(of, table): &(String, String)| {
                of == db && schema.table_index(table).is_some_and(|table| commit.touches(table))
            };
            self.watch_fired = self.watched.iter().any(touched);
        }
        let deleted = commit.changes.iter().filter(|change| change.new.is_none());
        let columns = deleted.filter_map(|change| Some(change.old.as_ref()?.fields().len()));
        self.freed += columns.sum::<usize>() * COLUMN;
        self.delivery += 1;
        let delivery = self.delivery;
        hosted.log_changes(&commit);
        let txn = hosted.txn(&commit);
        hosted.monitors.deliver(&commit, txn, |id, update| {
            let Some(session) = self.sessions.get_mut(&id) else {
                return;
            };
            if session.lags_at(delivery) {
                session.lags.entry(db.to_owned()).or_default().add(&commit, delivery);
            } else {
                update(session.outbox.tail());
                mark_dirty(&mut self.dirty, id, session);
            }
        });
        self.batch.commits.push(commit);
    }

    /// A session's outbox has been sent. Appends the changes that were merged while it was too
    /// full. No batch may be open.
    pub(crate) fn drained(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        session.holding.owe(session.outbox.backlog());
        if session.lags.is_empty() || session.outbox.backlog() > BACKLOG / 2 {
            return;
        }
        for (db, lag) in std::mem::take(&mut session.lags) {
            let Some(hosted) = self.databases.get(&db) else {
                continue;
            };
            let commit = lag.into_commit(&hosted.db);
            for (text, reference) in session.monitors.iter().filter(|(_, reference)| reference.db == db) {
                hosted
                    .monitors
                    .update_one(reference, text, &commit, hosted.txn(&commit), session.outbox.tail());
            }
        }
        mark_dirty(&mut self.dirty, id, session);
    }

    fn is_persistent(&self, db: &str) -> bool {
        self.databases.get(db).is_some_and(|hosted| hosted.persistent)
    }

    /// Retries the transactions that wait for a change of `db`, until none of them changes it
    /// again.
    pub(super) fn retry_blocked(&mut self, db: &str, now: Now) {
        let mut seen = self.batch.commits.len().saturating_sub(1);
        while !self.blocked.is_empty() && seen < self.batch.commits.len() {
            let fresh = seen..self.batch.commits.len();
            seen = fresh.end;
            let mut at = 0;
            while at < self.blocked.len() {
                let blocked = &self.blocked[at];
                let commits = &self.batch.commits[fresh.clone()];
                let hosted = self.databases.get(db);
                let concerned = blocked.db == db
                    && hosted.is_some_and(|hosted| {
                        commits
                            .iter()
                            .any(|commit| blocked.concerns(hosted.db.schema(), commit))
                    });
                if !concerned || !self.retry(at, now) {
                    at += 1;
                }
            }
        }
    }

    /// Retries a waiting transaction. Returns whether it has ended and left the queue.
    pub(super) fn retry(&mut self, at: usize, now: Now) -> bool {
        let blocked = &mut self.blocked[at];
        let (session, waited) = (blocked.session, elapsed(blocked.since, now.monotonic));
        let (db, ops) = (blocked.db.clone(), std::mem::take(&mut blocked.ops));
        match self.run(session, &db, &ops, waited) {
            Some(Outcome::Blocked { .. }) => {
                self.blocked[at].ops = ops;
                false
            }
            Some(Outcome::Done { reply, commit }) => {
                let blocked = self.unblock(at);
                self.complete(session, blocked.id, &db, &reply, commit, now);
                true
            }
            None => {
                self.unblock(at);
                true
            }
        }
    }
}

/// The error that a client gets when the file cannot be written.
fn io_error(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot write to the database's file: {error}"))
}

/// Refuses an operation because the database, not the server, is read-only.
fn explain_reserved(reply: &mut Value) {
    let results = reply.as_array_mut().into_iter().flatten();
    for details in results.filter_map(|result| result.get_mut("details")) {
        if let Some((op, _)) = details
            .as_str()
            .and_then(|text| text.split_once(" operation not allowed when"))
        {
            *details = format!("{op} operation not allowed on table in reserved database {SERVER_DB}").into();
        }
    }
}
