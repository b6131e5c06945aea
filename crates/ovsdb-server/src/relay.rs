//! Relays (ovsdb(7), "Relay Service Model"): a database in memory that follows the one of a source,
//! and sends it the transactions of clients that change something.
//!
//! A relay monitors the whole database. A connection that was lost for a while brings only what
//! changed, if the source numbers its transactions and remembers those since then.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mgmt::jsonrpc::Message;
use mgmt::stream::Remote;
use ovsdb::{Commit, Database, DatabaseSchema, Error, TableSchema, UpdateForm, Uuid, is_id};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::{self, AbortHandle};

use crate::server::{Inner, OpenError};
use crate::source::{self, End, Protocol, SourceOptions};

/// A relay probes a source on another machine that has been silent for this time.
const PROBE: Duration = Duration::from_secs(5);

/// The relays of a server, by database.
#[derive(Default)]
pub(crate) struct Relays {
    running: BTreeMap<String, Running>,
    /// The time of probes that a command has set for all sources; zero for never.
    probe: Option<Duration>,
}

struct Running {
    sources: String,
    options: SourceOptions,
    wake: Rc<Notify>,
    probe: Rc<Cell<Option<Duration>>>,
    task: Option<AbortHandle>,
}

impl Relays {
    /// Tells the relays that the core may have messages for their sources.
    pub(crate) fn wake(&self) {
        self.running.values().for_each(|running| running.wake.notify_one());
    }

    /// Ends all connections.
    pub(crate) fn stop(&mut self) {
        let tasks = std::mem::take(&mut self.running).into_values();
        tasks.filter_map(|running| running.task).for_each(|task| task.abort());
    }
}

impl Inner {
    /// Adds a relay, `DATABASE:REMOTE[,REMOTE]…`.
    pub(crate) fn add_relay(self: &Rc<Self>, text: &str, options: SourceOptions) -> Result<String, OpenError> {
        let Some((name, sources)) = text.split_once(':').filter(|(name, _)| is_id(name)) else {
            return Err(OpenError::Relay(text.to_owned()));
        };
        self.flush();
        let now = self.now();
        if !self.core.borrow_mut().add_relay(name, now) {
            return Err(OpenError::Duplicate { name: name.to_owned() });
        }
        self.flush();
        let running = Running {
            sources: sources.to_owned(),
            options,
            wake: Rc::new(Notify::new()),
            probe: Rc::default(),
            task: None,
        };
        self.relays.borrow_mut().running.insert(name.to_owned(), running);
        if self.has_started() {
            self.start_relays();
        }
        Ok(name.to_owned())
    }

    /// Connects the relays that have no connection yet.
    pub(crate) fn start_relays(self: &Rc<Self>) {
        let mut relays = self.relays.borrow_mut();
        let set = relays.probe;
        for (name, running) in &mut relays.running {
            if running.task.is_some() {
                continue;
            }
            let mut session = Session::new(self.clone(), name.clone(), running.wake.clone());
            let (inner, sources) = (self.clone(), running.sources.clone());
            let is_local = |source: &str| source.parse().is_ok_and(|remote: Remote| remote.is_local());
            let options = SourceOptions {
                probe: running.options.probe.or(set),
                ..running.options.clone()
            };
            let default = (!sources.split(',').all(is_local)).then_some(PROBE);
            running.probe.set(options.probe_or(default));
            let probe = running.probe.clone();
            let follow = async move {
                source::follow(&inner, &sources, &probe, &options, &mut session).await;
            };
            running.task = Some(task::spawn_local(follow).abort_handle());
        }
    }

    /// `ovsdb-server/set-relay-source-probe-interval`, in milliseconds; 0 for never. Connections
    /// use it from the next message on.
    pub(crate) fn set_relay_probe(&self, interval: &str) -> Result<String, String> {
        let Ok(interval) = interval.parse::<i32>() else {
            return Ok("Invalid probe interval, integer value expected".to_owned());
        };
        let interval = Duration::from_millis(u64::try_from(interval).unwrap_or(0));
        let mut relays = self.relays.borrow_mut();
        relays.probe = Some(interval);
        for running in relays.running.values() {
            running.probe.set((!interval.is_zero()).then_some(interval));
        }
        Ok(String::new())
    }

    /// A database was removed: ends its connection, if it was a relay.
    pub(crate) fn end_relay(&self, db: &str) {
        let running = self.relays.borrow_mut().running.remove(db);
        if let Some(task) = running.and_then(|running| running.task) {
            task.abort();
        }
    }
}

/// The methods that monitor a database, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    CondSince,
    Cond,
    Plain,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::CondSince => "monitor_cond_since",
            Method::Cond => "monitor_cond",
            Method::Plain => "monitor",
        }
    }

    fn form(self) -> UpdateForm {
        match self {
            Method::Plain => UpdateForm::Rows,
            Method::CondSince | Method::Cond => UpdateForm::Differences,
        }
    }
}

/// The session of a relay with its source.
struct Session {
    inner: Rc<Inner>,
    db: String,
    wake: Rc<Notify>,
    schema: Option<DatabaseSchema>,
    method: Method,
    /// The contents are there; updates follow.
    synced: bool,
    /// The last transaction of the contents; zero if the source does not number them.
    last: Uuid,
}

impl Session {
    fn new(inner: Rc<Inner>, db: String, wake: Rc<Notify>) -> Session {
        Session {
            inner,
            db,
            wake,
            schema: None,
            method: Method::CondSince,
            synced: false,
            last: Uuid::ZERO,
        }
    }

    fn take_schema(&mut self, json: &Value) -> Result<Vec<Message>, End> {
        let schema = DatabaseSchema::from_json(json).map_err(retry)?;
        if schema.name() != self.db {
            return Err(retry(format!("unexpected schema {}", schema.name())));
        }
        if self.schema.as_ref() != Some(&schema) {
            self.last = Uuid::ZERO;
            self.inner.flush();
            let now = self.inner.now();
            let mut core = self.inner.core.borrow_mut();
            core.set_relay_schema(&self.db, schema.clone(), now);
            drop(core);
            self.inner.flush();
            self.schema = Some(schema);
        }
        Ok(self.monitor(Method::CondSince))
    }

    fn monitor(&mut self, method: Method) -> Vec<Message> {
        self.method = method;
        let columns = |table: &TableSchema| -> Value {
            let names = table.user_columns().map(|(_, column)| column.name.as_str());
            json!([{"columns": names.collect::<Vec<_>>()}])
        };
        let tables = self.schema.iter().flat_map(DatabaseSchema::tables);
        let requests = tables.map(|table| (table.name().to_owned(), columns(table)));
        let mut params = vec![json!(self.db), json!(self.db), Value::Object(requests.collect())];
        if method == Method::CondSince {
            params.push(json!(self.last.to_string()));
        }
        vec![Message::request(method.name(), params, "monitor")]
    }

    fn take_contents(&mut self, result: &Value) -> Result<Vec<Message>, End> {
        let form = self.method.form();
        let (found, txn, updates) = match (self.method, result.as_array().map(Vec::as_slice)) {
            (Method::CondSince, Some([found, txn, updates])) => (found == true, parse_txn(txn), updates),
            (Method::CondSince, _) => return Err(retry("malformed reply to monitor_cond_since")),
            (Method::Cond | Method::Plain, _) => (false, Uuid::ZERO, result),
        };
        let id = Some(txn).filter(|txn| !txn.is_zero());
        match found && !self.last.is_zero() {
            true => self.apply(|db| db.follow(updates, form, id))?,
            false => self.apply(|db| db.adopt(updates, form, id, &|_| false))?,
        }
        self.last = txn;
        self.synced = true;
        self.set_connected(true);
        Ok(self.outgoing())
    }

    fn update(&mut self, form: UpdateForm, txn: Uuid, updates: &Value) -> Result<Vec<Message>, End> {
        if self.synced {
            let id = Some(txn).filter(|txn| !txn.is_zero());
            self.apply(|db| db.follow(updates, form, id))?;
            self.last = txn;
        }
        Ok(Vec::new())
    }

    fn apply(&mut self, change: impl FnOnce(&mut Database) -> Result<Option<Arc<Commit>>, Error>) -> Result<(), End> {
        let inner = &self.inner;
        inner.flush();
        let now = inner.now();
        let applied = inner.core.borrow_mut().follow(&self.db, change, now);
        inner.flush_soon();
        if let Err(error) = applied {
            // What is here and what the source has may differ now.
            self.last = Uuid::ZERO;
            return Err(retry(error));
        }
        Ok(())
    }

    fn set_connected(&self, connected: bool) {
        self.inner.flush();
        let now = self.inner.now();
        let numbered = !self.last.is_zero();
        let mut core = self.inner.core.borrow_mut();
        core.set_relay_connected(&self.db, connected, numbered, now);
        drop(core);
        self.inner.flush();
    }

    fn take_reply(&self, id: &Value, reply: Result<Value, Value>) {
        if let Some(number) = id.as_u64() {
            self.inner.flush();
            self.inner.core.borrow_mut().forwarded(&self.db, number, reply);
            self.inner.flush_soon();
        }
    }
}

impl Protocol for Session {
    fn begin(&mut self) -> Vec<Message> {
        self.synced = false;
        vec![Message::request("get_schema", vec![json!(self.db)], "get_schema")]
    }

    fn handle(&mut self, message: Message) -> Result<Vec<Message>, End> {
        match message {
            Message::Reply { result, id } if id == "get_schema" => self.take_schema(&result),
            Message::Reply { result, id } if id == "monitor" && !self.synced => self.take_contents(&result),
            Message::Error { id, .. } if id == "get_schema" => {
                Err(retry(format!("server does not have {} database", self.db)))
            }
            Message::Error { error, id } if id == "monitor" && !self.synced => match self.method {
                Method::CondSince => Ok(self.monitor(Method::Cond)),
                Method::Cond => Ok(self.monitor(Method::Plain)),
                Method::Plain => Err(retry(format!("cannot monitor {}: {error}", self.db))),
            },
            Message::Reply { result, id } => {
                self.take_reply(&id, Ok(result));
                Ok(Vec::new())
            }
            Message::Error { error, id } => {
                self.take_reply(&id, Err(error));
                Ok(Vec::new())
            }
            Message::Notification { method, params } => match (method.as_str(), params.as_slice()) {
                ("update", [_, updates]) => self.update(UpdateForm::Rows, Uuid::ZERO, updates),
                ("update2", [_, updates]) => self.update(UpdateForm::Differences, Uuid::ZERO, updates),
                ("update3", [_, txn, updates]) => self.update(UpdateForm::Differences, parse_txn(txn), updates),
                ("monitor_canceled", _) => Err(End::Retry("the source has another schema".to_owned())),
                _ => Ok(Vec::new()),
            },
            Message::Request { .. } => Ok(Vec::new()),
        }
    }

    async fn woken(&self) {
        self.wake.notified().await;
    }

    fn outgoing(&mut self) -> Vec<Message> {
        self.inner.core.borrow_mut().take_outgoing(&self.db)
    }

    fn ended(&mut self) {
        self.synced = false;
        self.set_connected(false);
    }
}

/// A transaction's UUID; zero if it is none.
fn parse_txn(txn: &Value) -> Uuid {
    txn.as_str().and_then(|txn| txn.parse().ok()).unwrap_or(Uuid::ZERO)
}

fn retry(why: impl std::fmt::Display) -> End {
    telemetry::info_limited!(target: "ovsdb_cs", "{why}");
    End::Retry("connection dropped (protocol error)".to_owned())
}
