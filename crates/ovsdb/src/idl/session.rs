//! The session with the server: schema, monitor, lock, transactions.

use super::tables::{Changes, Selection, Tables};
use super::txn::{Request, Txn, TxnStatus};
use super::view::View;
use crate::{DatabaseSchema, Error, Uuid, UuidGen};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A message of the server, or the state of the client, is invalid: close the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdlError {
    /// A message that does not follow RFC 7047.
    #[error("malformed message from database server: {0}")]
    Malformed(&'static str),
    /// A value that its column cannot hold, or a schema that is not one.
    #[error("malformed value from database server: {0}")]
    Value(#[from] Error),
    /// The server refuses a request that the client depends on.
    #[error("{0}")]
    Refused(String),
}

/// Something the caller may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The contents changed: [`Idl::seqno`] has moved.
    Changed,
    /// The lock was granted (`true`) or lost (`false`).
    Lock(bool),
    /// The result of the transaction with this number.
    Committed(u64, TxnStatus),
    /// The answer to [`Idl::ask_for_holder`]: whether some client holds that lock.
    Holder(bool),
    /// The server has answered the probe.
    Alive,
}

/// The state of the client's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// It has not requested one.
    Unwanted,
    /// It waits for it.
    Waiting,
    /// Another client owns it; the server notifies this one when it is free.
    Contended,
    /// The client owns it.
    Held,
}

/// The state of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Schema,
    Monitor(Method),
    Synced,
}

/// The monitor methods, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    CondSince,
    Cond,
    Plain,
}

/// A request that waits for its reply.
#[derive(Debug)]
enum Pending {
    Schema,
    Monitor(Method),
    Lock,
    Holder(String),
    Transact(Request),
    Echo,
}

/// A client of one database. See the [module](super) for the order of calls.
#[derive(Debug)]
pub struct Idl {
    db: String,
    selection: Selection,
    uuids: UuidGen,
    schema: Option<Arc<DatabaseSchema>>,
    tables: Tables,
    changes: Changes,
    seqno: u64,
    phase: Phase,
    last_txn: Uuid,
    lock: Option<String>,
    lock_state: LockState,
    next_id: u64,
    pending: BTreeMap<u64, Pending>,
    outbox: VecDeque<Value>,
    events: Vec<Event>,
}

impl Idl {
    /// A client of the database `db` that keeps what `selection` names. `seed` (random in a
    /// process, fixed in a test) decides the provisional UUIDs of its transactions.
    pub fn new(db: &str, selection: Selection, seed: u128) -> Idl {
        let mut idl = Idl {
            db: db.to_owned(),
            selection,
            uuids: UuidGen::new(seed),
            schema: None,
            tables: Tables::default(),
            changes: Changes::default(),
            seqno: 0,
            phase: Phase::Schema,
            last_txn: Uuid::ZERO,
            lock: None,
            lock_state: LockState::Unwanted,
            next_id: 0,
            pending: BTreeMap::new(),
            outbox: VecDeque::new(),
            events: Vec::new(),
        };
        idl.start();
        idl
    }

    /// Requests the lock `name`. Every transaction fails with [`TxnStatus::NotLocked`] unless the
    /// client owns it. Call it before the first message is sent.
    pub fn set_lock(&mut self, name: &str) {
        self.lock = Some(name.to_owned());
        self.lock_state = LockState::Waiting;
        self.request_lock();
    }

    /// Releases the lock.
    pub fn unlock(&mut self) {
        if let Some(name) = self.lock.take() {
            self.lock_state = LockState::Unwanted;
            self.request("unlock", json!([name]), Pending::Echo);
        }
    }

    /// The name of the database.
    pub fn db(&self) -> &str {
        &self.db
    }

    /// A number that moves when the contents change, other than in quiet columns; 0 before the
    /// first contents.
    pub fn seqno(&self) -> u64 {
        self.seqno
    }

    /// The replica.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The rows that changed since the last call, those in quiet columns included.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// The server's schema, once it is known.
    pub fn schema(&self) -> Option<&Arc<DatabaseSchema>> {
        self.schema.as_ref()
    }

    /// Whether the server has that column.
    pub fn server_has(&self, table: &str, column: &str) -> bool {
        let table = self.schema.as_ref().and_then(|schema| schema.table(table));
        table.is_some_and(|table| table.column(column).is_some())
    }

    /// Whether the replica is kept up to date: from the first contents until the connection breaks.
    pub fn is_synced(&self) -> bool {
        self.phase == Phase::Synced
    }

    /// The state of the client's lock.
    pub fn lock_state(&self) -> LockState {
        self.lock_state
    }

    /// An empty transaction.
    pub fn txn(&mut self) -> Txn {
        Txn::new(self.uuids.next_uuid().as_u128())
    }

    /// The replica as `txn` will leave it; `None` before the schema is known.
    pub fn view<'a>(&'a self, txn: &'a Txn) -> Option<View<'a>> {
        Some(View::new(self.schema.as_ref()?, &self.tables, txn))
    }

    /// Sends `txn`; its number, which [`Event::Committed`] will name. Where no answer is needed or
    /// possible that event is in the result of the next [`Idl::handle`] or [`Idl::take_events`].
    pub fn commit(&mut self, txn: Txn) -> u64 {
        let status = match &self.schema {
            _ if txn.is_empty() => Some(TxnStatus::Unchanged),
            Some(_) if self.lock.is_some() && self.lock_state != LockState::Held => Some(TxnStatus::NotLocked),
            Some(_) if self.phase == Phase::Synced => None,
            _ => Some(TxnStatus::TryAgain),
        };
        match (status, self.schema.clone()) {
            (None, Some(schema)) => {
                let request = txn.into_request(&schema, self.lock.as_deref());
                let mut params = vec![Value::from(self.db.as_str())];
                params.extend(request.operations.iter().cloned());
                self.request("transact", Value::Array(params), Pending::Transact(request))
            }
            (status, _) => {
                let id = self.next_id;
                self.next_id += 1;
                self.events
                    .push(Event::Committed(id, status.unwrap_or(TxnStatus::TryAgain)));
                id
            }
        }
    }

    /// Asks whether some client holds the lock `name`; the answer is [`Event::Holder`]. Where none
    /// does, this client holds it for an instant.
    pub fn ask_for_holder(&mut self, name: &str) {
        self.request("lock", json!([name]), Pending::Holder(name.to_owned()));
    }

    /// Probes the server; the answer is [`Event::Alive`].
    pub fn ping(&mut self) {
        self.request("echo", json!([]), Pending::Echo);
    }

    /// The next message to send.
    pub fn poll_send(&mut self) -> Option<Value> {
        self.outbox.pop_front()
    }

    /// Events that no message caused.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Takes a message of the server.
    ///
    /// # Errors
    /// The session failed: close the connection and call [`Idl::reset`].
    pub fn handle(&mut self, message: Value) -> Result<Vec<Event>, IdlError> {
        let result = match message.get("method").and_then(Value::as_str) {
            Some(method) => self.handle_method(method, &message),
            None => self.handle_reply(message),
        };
        if result.is_err() {
            self.last_txn = Uuid::ZERO;
        }
        result.map(|()| self.take_events())
    }

    /// The connection broke: ends open transactions with [`TxnStatus::TryAgain`] and starts a new
    /// session.
    pub fn reset(&mut self) {
        self.outbox.clear();
        for (id, pending) in std::mem::take(&mut self.pending) {
            if matches!(pending, Pending::Transact(_)) {
                self.events.push(Event::Committed(id, TxnStatus::TryAgain));
            }
        }
        if self.lock.is_some() {
            if self.lock_state == LockState::Held {
                self.events.push(Event::Lock(false));
            }
            self.lock_state = LockState::Waiting;
        }
        self.start();
    }

    fn start(&mut self) {
        self.phase = Phase::Schema;
        self.request("get_schema", json!([self.db]), Pending::Schema);
        self.request_lock();
    }

    fn request_lock(&mut self) {
        if let Some(name) = self.lock.clone() {
            self.request("lock", json!([name]), Pending::Lock);
        }
    }

    fn request(&mut self, method: &str, params: Value, pending: Pending) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.insert(id, pending);
        self.outbox
            .push_back(json!({ "method": method, "params": params, "id": id }));
        id
    }

    fn monitor(&mut self, method: Method) -> Result<(), IdlError> {
        let schema = self
            .schema
            .as_ref()
            .ok_or(IdlError::Malformed("monitor before schema"))?;
        let requests = self.selection.monitor_requests(schema);
        let id = json!(["monid", self.db]);
        let (name, params) = match method {
            Method::CondSince => (
                "monitor_cond_since",
                json!([self.db, id, requests, self.last_txn.to_string()]),
            ),
            Method::Cond => ("monitor_cond", json!([self.db, id, requests])),
            Method::Plain => ("monitor", json!([self.db, id, requests])),
        };
        self.phase = Phase::Monitor(method);
        self.request(name, params, Pending::Monitor(method));
        Ok(())
    }

    fn handle_method(&mut self, method: &str, message: &Value) -> Result<(), IdlError> {
        let params = message
            .get("params")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let id = message.get("id").filter(|id| !id.is_null());
        match (method, params, id) {
            ("echo", _, Some(id)) => {
                self.outbox
                    .push_back(json!({ "id": id, "result": params, "error": null }));
            }
            (_, _, Some(id)) => {
                self.outbox
                    .push_back(json!({ "id": id, "result": null, "error": "unknown method" }));
            }
            ("update3", [_, txn, updates], _) => {
                self.update(|tables, changes| tables.apply_updates2(updates, changes))?;
                self.last_txn = txn.as_str().and_then(|text| text.parse().ok()).unwrap_or(Uuid::ZERO);
            }
            ("update2", [_, updates], _) => self.update(|tables, changes| tables.apply_updates2(updates, changes))?,
            ("update", [_, updates], _) => self.update(|tables, changes| tables.apply_updates(updates, changes))?,
            ("monitor_canceled", _, _) => {
                self.phase = Phase::Schema;
                self.request("get_schema", json!([self.db]), Pending::Schema);
            }
            ("locked", [Value::String(name)], _) if self.lock.as_ref() == Some(name) => self.set_lock_held(true),
            ("stolen", [Value::String(name)], _) if self.lock.as_ref() == Some(name) => self.set_lock_held(false),
            _ => {}
        }
        Ok(())
    }

    fn handle_reply(&mut self, mut message: Value) -> Result<(), IdlError> {
        let pending = message
            .get("id")
            .and_then(Value::as_u64)
            .and_then(|id| Some((id, self.pending.remove(&id)?)));
        let Some((id, pending)) = pending else { return Ok(()) };
        let error = message.get("error").filter(|error| !error.is_null()).cloned();
        let result = message.get_mut("result").map(Value::take).unwrap_or_default();
        match (pending, error) {
            (Pending::Schema, None) => {
                let schema = Arc::new(DatabaseSchema::from_json(&result)?);
                if self.schema.as_ref() != Some(&schema) {
                    self.last_txn = Uuid::ZERO;
                }
                self.schema = Some(schema);
                self.monitor(Method::CondSince)
            }
            (Pending::Schema, Some(error)) => Err(IdlError::Refused(format!(
                "cannot read schema of database {}: {}",
                self.db,
                error_text(&error)
            ))),
            (Pending::Monitor(method), None) => self.first_contents(method, &result),
            (Pending::Monitor(Method::CondSince), Some(_)) => self.monitor(Method::Cond),
            (Pending::Monitor(Method::Cond), Some(_)) => self.monitor(Method::Plain),
            (Pending::Monitor(Method::Plain), Some(error)) => Err(IdlError::Refused(format!(
                "cannot monitor database {}: {}",
                self.db,
                error_text(&error)
            ))),
            (Pending::Transact(request), None) => {
                self.events.push(Event::Committed(id, request.status(&result)));
                Ok(())
            }
            (Pending::Transact(_), Some(error)) => {
                self.events
                    .push(Event::Committed(id, TxnStatus::Error(error.to_string())));
                Ok(())
            }
            (Pending::Lock, None) => {
                let held = result.get("locked").and_then(Value::as_bool).unwrap_or_default();
                if held {
                    self.set_lock_held(true);
                } else if self.lock.is_some() && self.lock_state == LockState::Waiting {
                    self.lock_state = LockState::Contended;
                    self.events.push(Event::Lock(false));
                }
                Ok(())
            }
            (Pending::Lock, Some(error)) => Err(IdlError::Refused(format!(
                "cannot lock database {}: {}",
                self.db,
                error_text(&error)
            ))),
            (Pending::Holder(name), _) => {
                let free = result.get("locked").and_then(Value::as_bool).unwrap_or_default();
                self.request("unlock", json!([name]), Pending::Echo);
                self.events.push(Event::Holder(!free));
                Ok(())
            }
            (Pending::Echo, _) => {
                self.events.push(Event::Alive);
                Ok(())
            }
        }
    }

    fn first_contents(&mut self, method: Method, result: &Value) -> Result<(), IdlError> {
        let schema = self
            .schema
            .as_ref()
            .ok_or(IdlError::Malformed("contents before schema"))?;
        let mut changes = Changes::default();
        let mut fresh = self.selection.empty_tables(schema);
        let mut last_txn = Uuid::ZERO;
        match (method, result.as_array().map(Vec::as_slice)) {
            (Method::CondSince, Some([found, txn, updates])) => {
                last_txn = txn.as_str().and_then(|text| text.parse().ok()).unwrap_or(Uuid::ZERO);
                if found.as_bool() == Some(true) && !self.last_txn.is_zero() {
                    self.tables.apply_updates2(updates, &mut changes)?;
                } else {
                    fresh.apply_updates2(updates, &mut Changes::default())?;
                    self.tables.compare(&fresh, &mut changes);
                    self.tables = fresh;
                }
            }
            (Method::CondSince, _) => return Err(IdlError::Malformed("reply to monitor_cond_since")),
            (Method::Cond | Method::Plain, _) => {
                if method == Method::Cond {
                    fresh.apply_updates2(result, &mut Changes::default())?;
                } else {
                    fresh.apply_updates(result, &mut Changes::default())?;
                }
                self.tables.compare(&fresh, &mut changes);
                self.tables = fresh;
            }
        }
        self.last_txn = last_txn;
        self.phase = Phase::Synced;
        self.record(changes, true);
        Ok(())
    }

    fn update(
        &mut self,
        apply: impl FnOnce(&mut Tables, &mut Changes) -> Result<(), IdlError>,
    ) -> Result<(), IdlError> {
        if self.phase != Phase::Synced {
            return Ok(());
        }
        let mut changes = Changes::default();
        apply(&mut self.tables, &mut changes)?;
        self.record(changes, false);
        Ok(())
    }

    fn record(&mut self, changes: Changes, always: bool) {
        if always || changes.alerting() {
            self.seqno += 1;
            self.events.push(Event::Changed);
        }
        self.changes.extend(changes);
    }

    fn set_lock_held(&mut self, held: bool) {
        if self.lock.is_some() && (self.lock_state == LockState::Held) != held {
            self.lock_state = if held { LockState::Held } else { LockState::Contended };
            self.events.push(Event::Lock(held));
        }
    }
}

/// An error of a reply, as users read it.
fn error_text(error: &Value) -> String {
    match (
        error.get("error").and_then(Value::as_str),
        error.get("details").and_then(Value::as_str),
    ) {
        (Some(kind), Some(details)) => format!("{kind} ({details})"),
        (Some(kind), None) => kind.to_owned(),
        (None, _) => error.as_str().map_or_else(|| error.to_string(), str::to_owned),
    }
}
