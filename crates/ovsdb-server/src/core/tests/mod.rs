//! The core against clients that are a few lines each, on virtual time and without a file.

mod hold;
mod monitors;
mod relays;
mod sessions;
mod transactions;

use std::io;
use std::time::Duration;

use nanos::Nanos;
use ovsdb::{Arena, Database, DatabaseSchema};
use serde_json::{Value, json};

use super::{BACKLOG, Core, Effect, Now, SessionId, SessionOptions};
use crate::request::{self, Incoming};

const SCHEMA: &str = r#"{"name": "D", "version": "1.0.0", "tables": {
    "T": {"isRoot": true, "columns": {"name": {"type": "string"}, "n": {"type": "integer"}}, "indexes": [["name"]]},
    "U": {"isRoot": true, "columns": {"n": {"type": "integer"}}}}}"#;

/// A core with the database `D`, driven as the server drives it.
struct World {
    core: Core,
    now: u64,
    /// Whether the file can be written.
    disk_full: bool,
    /// The records written to the file.
    file: Vec<u8>,
}

impl World {
    fn new() -> World {
        World::with_budget(1 << 30)
    }

    fn with_budget(budget: usize) -> World {
        let mut world = World {
            core: Core::new(7, budget),
            now: 0,
            disk_full: false,
            file: Vec::new(),
        };
        let schema = DatabaseSchema::from_text(SCHEMA).unwrap();
        let now = world.now();
        assert!(world.core.add_database(Database::new(schema, 1), now));
        world.flush();
        world
    }

    fn now(&self) -> Now {
        Now {
            monotonic: Nanos::from_millis(self.now),
            date_ms: 1_700_000_000_000,
        }
    }

    fn connect(&mut self) -> SessionId {
        self.connect_probed(None)
    }

    fn connect_probed(&mut self, probe: Option<Duration>) -> SessionId {
        let options = SessionOptions {
            name: "test".into(),
            remote: "r".into(),
            local: true,
            read_only: false,
            role: String::new(),
            client: None,
            probe,
        };
        let now = self.now();
        self.core.connect(options, now)
    }

    fn flush(&mut self) {
        let records = self.core.batch().records().to_vec();
        let held = if self.disk_full && !records.is_empty() {
            self.core.flushed(Err(&io::ErrorKind::StorageFull.into()))
        } else {
            self.file.extend(records);
            self.core.flushed(Ok(()))
        };
        if !held.is_empty() {
            self.core.synced(held, &Ok(()));
            self.core.flushed(Ok(()));
        }
    }

    /// Sends without a flush.
    fn send(&mut self, session: SessionId, message: Value) -> Option<Effect> {
        let text = message.to_string();
        let arena = Arena::default();
        let message = request::parse(text.as_bytes(), &arena).unwrap();
        if self.core.must_flush(&message) {
            self.flush();
        }
        let now = self.now();
        self.core.handle(session, message, now)
    }

    /// All that the client reads.
    fn read(&mut self, session: SessionId) -> Vec<Value> {
        self.flush();
        let Some(outbox) = self.core.outbox(session) else {
            return Vec::new();
        };
        let bytes = outbox.sendable().to_vec();
        outbox.sent(bytes.len());
        self.core.drained(session);
        serde_json::Deserializer::from_slice(&bytes)
            .into_iter()
            .map(Result::unwrap)
            .collect()
    }

    fn call(&mut self, session: SessionId, method: &str, params: Value) -> Vec<Value> {
        self.send(session, json!({"id": 1, "method": method, "params": params}));
        self.read(session)
    }

    /// The result of a request that nothing but its reply follows.
    fn ask(&mut self, session: SessionId, method: &str, params: Value) -> Value {
        let mut read = self.call(session, method, params);
        assert_eq!(read.len(), 1, "{read:?}");
        read.remove(0)
    }

    fn transact(&mut self, session: SessionId, op: Value) -> Value {
        self.ask(session, "transact", json!(["D", op]))
    }

    /// The names in `T`, sorted.
    fn names(&mut self, session: SessionId) -> Vec<String> {
        let reply = self.transact(
            session,
            json!({"op": "select", "table": "T", "where": [], "columns": ["name"]}),
        );
        let rows = reply["result"][0]["rows"].as_array().unwrap().iter();
        let mut names: Vec<String> = rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }
}

fn insert(name: &str) -> Value {
    json!({"op": "insert", "table": "T", "row": {"name": name}})
}

fn set_n(name: &str, n: usize) -> Value {
    json!({"op": "update", "table": "T", "where": [["name", "==", name]], "row": {"n": n}})
}

fn wait_for(name: &str) -> Value {
    json!({"op": "wait", "table": "T", "where": [["name", "==", name]], "columns": ["name"], "until": "==", "rows": [{"name": name}]})
}

/// The methods of notifications and the ids of replies.
fn kinds(messages: &[Value]) -> Vec<String> {
    let kind = |message: &Value| {
        message["method"]
            .as_str()
            .map_or_else(|| message["id"].to_string(), str::to_owned)
    };
    messages.iter().map(kind).collect()
}
