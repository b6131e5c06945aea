//! Relays (ovsdb(7), "Relay Service Model"): databases in memory whose contents come from another
//! server, their source. The source executes the transactions that change something.
//!
//! A forwarded transaction counts against its session's memory until its reply comes. Those that
//! wait for a connection are sent when there is one; those that were sent when a connection is lost
//! are canceled, for nobody knows what became of them.

use std::collections::BTreeSet;
use std::time::Duration;

use mgmt::jsonrpc::Message;
use ovsdb::{Database, DatabaseSchema, Error, ErrorKind, Json, Outcome};
use serde_json::{Value, json};

use super::{Core, HELD_ITEM, Now, SessionId, encode, weigh};

/// The state of a relay.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// The contents follow the source.
    pub(super) connected: bool,
    /// The contents have been complete once.
    pub(super) ready: bool,
    /// The source numbers its transactions.
    pub(super) numbered: bool,
    /// The numbers of forwarded transactions to cancel.
    cancels: BTreeSet<u64>,
}

/// A transaction for a relay's source.
#[derive(Debug)]
pub(super) struct Forward {
    db: String,
    session: SessionId,
    /// The request's id.
    id: Value,
    /// The request's parameters; `None` when they were sent.
    params: Option<Vec<Value>>,
    weight: usize,
}

impl Core {
    /// Adds a relay without contents. Batches as for [`Core::add_database`].
    pub(crate) fn add_relay(&mut self, name: &str, now: Now) -> bool {
        let Some(db) = empty(name, self.seed()).filter(|_| !self.databases.contains_key(name)) else {
            return false;
        };
        self.host(name, db, false);
        if let Some(hosted) = self.databases.get_mut(name) {
            hosted.relay = Some(Relay::default());
        }
        self.databases_changed(&format!("adding {name} database"), now);
        true
    }

    /// Whether a database is a relay.
    pub(crate) fn is_relay(&self, db: &str) -> bool {
        self.databases.get(db).is_some_and(|hosted| hosted.relay.is_some())
    }

    /// The source's schema, if it is not the one that the relay has: the relay starts again without
    /// contents. Batches as for [`Core::add_database`].
    pub(crate) fn set_relay_schema(&mut self, db: &str, schema: DatabaseSchema, now: Now) {
        let seed = self.seed();
        self.cancel_all(db);
        self.cancel_monitors(db);
        let Some(hosted) = self.databases.get_mut(db) else {
            return;
        };
        hosted.db = Database::new(schema, seed);
        hosted.relay = Some(Relay::default());
        self.databases_changed(&format!("{db} database converted"), now);
    }

    /// The relay has the source's contents, or the connection is lost. Batches as for
    /// [`Core::add_database`].
    pub(crate) fn set_relay_connected(&mut self, db: &str, connected: bool, numbered: bool, now: Now) {
        let Some(relay) = self.databases.get_mut(db).and_then(|hosted| hosted.relay.as_mut()) else {
            return;
        };
        let was_ready = relay.ready;
        relay.connected = connected;
        relay.ready |= connected;
        if connected {
            relay.numbered = numbered;
        } else {
            relay.cancels.clear();
            let sent = |forward: &Forward| forward.db == db && forward.params.is_none();
            self.cancel_forwards(sent);
        }
        if was_ready || !connected {
            self.update_server_db(now);
        } else {
            self.databases_changed(&format!("{db} database connected to storage"), now);
        }
    }

    /// Whether the source has to execute a transaction.
    pub(super) fn belongs_to_source(&self, db: &str, session: SessionId, ops: &[impl Json]) -> bool {
        let writes = |op: &Value| {
            let name = op.get("op").and_then(Value::as_str);
            matches!(name, Some("insert" | "update" | "mutate" | "delete" | "commit"))
        };
        let read_only = self
            .sessions
            .get(&session)
            .is_some_and(|session| session.options.read_only);
        self.is_relay(db) && !read_only && ops.iter().any(|op| writes(&op.to_value()))
    }

    /// The source does not know the roles of a relay's clients: a transaction of a client with a
    /// role runs here first, without effect. Returns the reply if it does not succeed.
    pub(super) fn try_for_role(&mut self, session: SessionId, db: &str, ops: &[impl Json]) -> Option<Value> {
        let state = self.sessions.get(&session)?;
        if state.options.role.is_empty() {
            return None;
        }
        let mut trial: Vec<Value> = ops.iter().map(Json::to_value).collect();
        trial.push(json!({"op": "abort"}));
        match self.run(session, db, &trial, Duration::ZERO)? {
            Outcome::Done { reply, .. } if reply[ops.len()]["error"] == "aborted" => None,
            Outcome::Done { mut reply, .. } => {
                if let Value::Array(results) = &mut reply {
                    results.truncate(ops.len());
                }
                Some(reply)
            }
            Outcome::Blocked { .. } => {
                let details = "a client with a role cannot wait in a transaction that changes a relay";
                Some(json!([Error::new(ErrorKind::NotSupported, details).to_json()]))
            }
        }
    }

    /// Queues a transaction for the source.
    pub(super) fn forward(&mut self, session: SessionId, id: Value, db: &str, ops: &[impl Json]) {
        let params: Vec<Value> = std::iter::once(json!(db))
            .chain(ops.iter().map(Json::to_value))
            .collect();
        let weight = HELD_ITEM + params.iter().map(weigh).sum::<usize>();
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        if let Err(error) = state.hold(weight) {
            return self.refuse(session, &id, &error.to_json());
        }
        self.next_forward += 1;
        let forward = Forward {
            db: db.to_owned(),
            session,
            id,
            params: Some(params),
            weight,
        };
        self.forwards.insert(self.next_forward, forward);
        self.forwards_changed = true;
    }

    /// Whether [`Core::take_outgoing`] may have messages since the last call.
    pub(crate) fn take_forwards_changed(&mut self) -> bool {
        std::mem::take(&mut self.forwards_changed)
    }

    /// What to send to a relay's source.
    pub(crate) fn take_outgoing(&mut self, db: &str) -> Vec<Message> {
        let relay = self.databases.get_mut(db).and_then(|hosted| hosted.relay.as_mut());
        let Some(relay) = relay.filter(|relay| relay.connected) else {
            return Vec::new();
        };
        let cancels = std::mem::take(&mut relay.cancels).into_iter();
        let mut messages: Vec<Message> = cancels
            .map(|number| Message::notification("cancel", vec![json!(number)]))
            .collect();
        for (number, forward) in self.forwards.iter_mut().filter(|(_, forward)| forward.db == db) {
            if let Some(params) = forward.params.take() {
                messages.push(Message::request("transact", params, *number));
            }
        }
        messages
    }

    /// The source's reply to the forwarded transaction with that number. No batch may be open.
    pub(crate) fn forwarded(&mut self, db: &str, number: u64, reply: Result<Value, Value>) {
        if self.forwards.get(&number).is_none_or(|forward| forward.db != db) {
            return;
        }
        let Some(forward) = self.forwards.remove(&number) else {
            return;
        };
        self.release(&forward);
        match reply {
            Ok(result) => self.answer(forward.session, &forward.id, &result),
            Err(error) => self.refuse(forward.session, &forward.id, &error),
        }
    }

    /// `cancel` of a forwarded transaction. Returns false if there is none with that id.
    pub(super) fn cancel_forward(&mut self, session: SessionId, id: &Value) -> bool {
        let own = |forward: &&mut Forward| forward.session == session && forward.id == *id;
        let Some((number, forward)) = self.forwards.iter_mut().find(|(_, forward)| own(forward)) else {
            return false;
        };
        let (number, db) = (*number, forward.db.clone());
        if forward.params.is_some() {
            self.cancel_forwards(|forward| forward.session == session && forward.id == *id);
        } else if let Some(relay) = self.databases.get_mut(&db).and_then(|hosted| hosted.relay.as_mut()) {
            // The source answers the transaction.
            relay.cancels.insert(number);
            self.forwards_changed = true;
        }
        true
    }

    /// Replies to transactions that no source will answer.
    pub(super) fn cancel_forwards(&mut self, which: impl Fn(&Forward) -> bool) {
        let numbers = self.forwards.iter().filter(|(_, forward)| which(forward));
        let numbers: Vec<u64> = numbers.map(|(number, _)| *number).collect();
        for number in numbers {
            if let Some(forward) = self.forwards.remove(&number) {
                self.release(&forward);
                self.post(forward.session, |out| {
                    encode::error(out, &forward.id, &"canceled".into())
                });
            }
        }
    }

    /// Ends all transactions for a relay's source.
    pub(super) fn cancel_forwards_of(&mut self, db: &str) {
        self.cancel_forwards(|forward| forward.db == db);
    }

    /// Forgets the transactions of a session that has ended.
    pub(super) fn forget_forwards(&mut self, session: SessionId) {
        for (number, forward) in self.forwards.iter().filter(|(_, forward)| forward.session == session) {
            let relay = self
                .databases
                .get_mut(&forward.db)
                .and_then(|hosted| hosted.relay.as_mut());
            if let Some(relay) = relay.filter(|_| forward.params.is_none()) {
                relay.cancels.insert(*number);
                self.forwards_changed = true;
            }
        }
        self.forwards.retain(|_, forward| forward.session != session);
    }

    /// Whether a transaction of the session with that id was forwarded.
    pub(super) fn forwards_id(&self, session: SessionId, id: &Value) -> bool {
        let own = |forward: &Forward| forward.session == session && forward.id == *id;
        self.forwards.values().any(own)
    }

    fn release(&mut self, forward: &Forward) {
        if let Some(state) = self.sessions.get_mut(&forward.session) {
            state.let_go(forward.weight);
        }
    }
}

/// A database without tables.
fn empty(name: &str, seed: u128) -> Option<Database> {
    let schema = json!({"name": name, "version": "0.0.0", "tables": {}});
    let schema = DatabaseSchema::from_json(&schema).ok()?;
    Some(Database::new(schema, seed))
}
