//! Transactions whose `wait` is not met yet. The server retries them when a table that they wait
//! for changes; a timeout or `cancel` ends them.

use std::time::Duration;

use nanos::Nanos;
use ovsdb::{Commit, DatabaseSchema};
use serde_json::Value;

use super::{Core, HELD_ITEM, Now, SessionId, encode, weigh};

/// A transaction that waits.
#[derive(Debug)]
pub(super) struct Blocked {
    pub(super) session: SessionId,
    /// The request's id.
    pub(super) id: Value,
    pub(super) db: String,
    /// The operations.
    pub(super) ops: Vec<Value>,
    /// When it was first executed.
    pub(super) since: Nanos,
    /// When it times out.
    pub(super) deadline: Option<Nanos>,
    /// Its charge against the memory budget.
    pub(super) weight: usize,
}

impl Blocked {
    pub(super) fn new(
        session: SessionId,
        id: Value,
        db: String,
        ops: Vec<Value>,
        timeout: Option<Duration>,
        now: Nanos,
    ) -> Blocked {
        let deadline = timeout.map(|timeout| now + timeout);
        let weight = HELD_ITEM + ops.iter().map(weigh).sum::<usize>();
        Blocked {
            session,
            id,
            db,
            ops,
            since: now,
            deadline,
            weight,
        }
    }

    /// Whether the commit changed a table that the transaction waits for.
    pub(super) fn concerns(&self, schema: &DatabaseSchema, commit: &Commit) -> bool {
        let mut waits = self
            .ops
            .iter()
            .filter(|op| op.get("op").and_then(Value::as_str) == Some("wait"));
        waits.any(|op| {
            let table = op
                .get("table")
                .and_then(Value::as_str)
                .and_then(|name| schema.table_index(name));
            table.is_none_or(|table| commit.touches(table))
        })
    }
}

impl Core {
    /// Ends the transactions that have timed out, of one database only, because a batch belongs to
    /// one database. The next tick, which is due at once, ends those of the others.
    pub(super) fn time_out_waits(&mut self, now: Now) {
        let over = |blocked: &Blocked| blocked.deadline.is_some_and(|deadline| deadline <= now.monotonic);
        let Some(db) = self
            .blocked
            .iter()
            .find(|blocked| over(blocked))
            .map(|blocked| blocked.db.clone())
        else {
            return;
        };
        let mut at = 0;
        while at < self.blocked.len() {
            if self.blocked[at].db != db || !over(&self.blocked[at]) {
                at += 1;
            } else if !self.retry(at, now) {
                self.blocked[at].deadline = Some(now.monotonic + Duration::from_millis(1));
                at += 1;
            }
        }
        if !self.batch.is_empty() {
            self.retry_blocked(&db, now);
        }
    }

    /// Removes a waiting transaction.
    pub(super) fn unblock(&mut self, at: usize) -> Blocked {
        let blocked = self.blocked.remove(at);
        if let Some(session) = self.sessions.get_mut(&blocked.session) {
            session.n_blocked = session.n_blocked.saturating_sub(1);
            session.let_go(blocked.weight);
        }
        blocked
    }

    /// `cancel` (RFC 7047 §4.1.4): the canceled transaction's reply is the error.
    pub(super) fn cancel(&mut self, session: SessionId, id: &Value) {
        if let Some(at) = self
            .blocked
            .iter()
            .position(|blocked| blocked.session == session && blocked.id == *id)
        {
            self.unblock(at);
            self.post(session, |out| encode::error(out, id, &"canceled".into()));
        } else {
            self.cancel_forward(session, id);
        }
    }

    /// Ends all waiting transactions of a database.
    pub(super) fn cancel_all(&mut self, db: &str) {
        while let Some(at) = self.blocked.iter().position(|blocked| blocked.db == db) {
            let blocked = self.unblock(at);
            self.post(blocked.session, |out| {
                encode::error(out, &blocked.id, &"canceled".into())
            });
        }
    }

    /// Whether the session has a waiting transaction with that id.
    pub(super) fn waits_for(&self, session: SessionId, id: &Value) -> bool {
        let blocked = self.sessions.get(&session).is_some_and(|state| state.n_blocked > 0);
        let own = |waiting: &Blocked| waiting.session == session && waiting.id == *id;
        (blocked && self.blocked.iter().any(own)) || self.forwards_id(session, id)
    }
}
