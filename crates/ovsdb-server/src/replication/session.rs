//! The session of one database with its active server: compares the schemas, monitors all tables,
//! and applies every update as one transaction.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use mgmt::jsonrpc::Message;
use ovsdb::{DatabaseSchema, TableSchema, UpdateForm};
use serde_json::{Value, json};

use super::Phase;
use crate::server::Inner;
use crate::source::{End, Protocol};

/// The client of one database.
pub(super) struct Session {
    inner: Rc<Inner>,
    db: String,
    excluded: BTreeSet<String>,
    phase: Rc<Cell<Phase>>,
    /// The reply that it waits for; updates if `None`.
    awaited: Option<Awaited>,
    /// The local schema that was compared with the active server's.
    schema: Option<Arc<DatabaseSchema>>,
}

/// A reply, in the order of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    ServerId,
    Databases,
    Schema,
    Contents,
    /// None: the active server does not have the database. It closes the connection when it adds
    /// the database.
    Nothing,
}

impl Session {
    pub(super) fn new(inner: Rc<Inner>, db: String, excluded: BTreeSet<String>, phase: Rc<Cell<Phase>>) -> Session {
        Session {
            inner,
            db,
            excluded,
            phase,
            awaited: None,
            schema: None,
        }
    }

    fn request(&mut self, awaited: Awaited, method: &str, params: Vec<Value>) -> Vec<Message> {
        self.awaited = Some(awaited);
        vec![Message::request(method, params, method)]
    }

    fn reply(&mut self, awaited: Awaited, result: Value) -> Result<Vec<Message>, End> {
        match awaited {
            Awaited::ServerId => {
                if result == self.inner.core.borrow().server_id().to_string() {
                    return Err(failed("Server ID check failed: Self replicating is not allowed"));
                }
                Ok(self.request(Awaited::Databases, "list_dbs", Vec::new()))
            }
            Awaited::Databases => {
                let known = result.as_array().is_some_and(|names| names.contains(&json!(self.db)));
                if !known {
                    self.awaited = Some(Awaited::Nothing);
                    return Ok(Vec::new());
                }
                Ok(self.request(Awaited::Schema, "get_schema", vec![json!(self.db)]))
            }
            Awaited::Schema => self.monitor(&result),
            Awaited::Contents => {
                tracing::info!(target: "replication", "Monitor request received. Resetting the database");
                self.awaited = None;
                let excluded = self.excluded.clone();
                self.apply(|db| db.adopt(&result, UpdateForm::Rows, None, &|table| excluded.contains(table)))?;
                self.phase.set(Phase::Replicating);
                Ok(Vec::new())
            }
            Awaited::Nothing => Ok(Vec::new()),
        }
    }

    /// Compares the schemas, and monitors the tables that the active server has.
    fn monitor(&mut self, schema: &Value) -> Result<Vec<Message>, End> {
        let theirs = DatabaseSchema::from_json(schema).map_err(failed)?;
        let ours = self
            .inner
            .core
            .borrow()
            .database(&self.db)
            .map(|db| db.schema().clone());
        let Some(ours) = ours.filter(|_| theirs.name() == self.db) else {
            return Err(failed(format!("unexpected schema {}", theirs.name())));
        };
        if theirs != *ours {
            let db = &self.db;
            tracing::info!(target: "replication", "Schema version mismatch, checking if {db} can still be replicated or not.");
            if let Err(why) = holds(&ours, &theirs) {
                tracing::info!(target: "replication", "{why}");
                tracing::info!(target: "replication", "{db} cannot be replicated.");
                tracing::warn!(target: "replication", "Nothing to replicate.");
                return Err(End::Stop);
            }
            tracing::info!(target: "replication", "{db} can be replicated.");
        }
        self.schema = Some(ours);
        let wanted = theirs
            .tables()
            .iter()
            .filter(|table| !self.excluded.contains(table.name()));
        let columns = |table: &TableSchema| -> Value {
            let names = table.user_columns().map(|(_, column)| column.name.as_str());
            json!({"columns": names.collect::<Vec<_>>()})
        };
        let requests = wanted.map(|table| (table.name().to_owned(), columns(table)));
        let requests = Value::Object(requests.collect());
        let params = vec![json!(self.db), json!(self.db), requests];
        Ok(self.request(Awaited::Contents, "monitor", params))
    }

    fn apply(
        &self,
        change: impl FnOnce(&mut ovsdb::Database) -> Result<Option<Arc<ovsdb::Commit>>, ovsdb::Error>,
    ) -> Result<(), End> {
        let (inner, db) = (&self.inner, self.db.as_str());
        inner.flush();
        let (now, compared) = (inner.now(), self.schema.as_ref());
        let applied = {
            let mut core = inner.core.borrow_mut();
            let same = core.database(db).zip(compared);
            if !same.is_some_and(|(db, compared)| Arc::ptr_eq(db.schema(), compared)) {
                return Err(End::Retry("the schema has changed".to_owned()));
            }
            core.follow(db, change, now).map_err(failed)?
        };
        inner.flush();
        let last = inner.core.borrow().database(db).map(ovsdb::Database::last_txn);
        // A transaction that cannot be written to the file is undone.
        if applied.is_some() && applied != last {
            return Err(End::Retry("cannot write to the database's file".to_owned()));
        }
        Ok(())
    }
}

impl Protocol for Session {
    fn begin(&mut self) -> Vec<Message> {
        self.phase.set(Phase::Connecting);
        self.request(Awaited::ServerId, "get_server_id", Vec::new())
    }

    fn handle(&mut self, message: Message) -> Result<Vec<Message>, End> {
        match (message, self.awaited) {
            (Message::Reply { result, .. }, Some(awaited)) => self.reply(awaited, result),
            (Message::Error { error, .. }, Some(_)) => Err(failed(error)),
            (Message::Notification { method, params }, None) if method == "update" => {
                if let [_, updates] = params.as_slice() {
                    self.apply(|db| db.follow(updates, UpdateForm::Rows, None))?;
                }
                Ok(Vec::new())
            }
            _ => Ok(Vec::new()),
        }
    }
}

/// Replication ends with an error.
fn failed(why: impl Display) -> End {
    tracing::error!(target: "ovsdb_error", "unexpected ovsdb error: {why}");
    End::Stop
}

/// Whether a database with the schema `ours` can hold all that one with `theirs` does.
fn holds(ours: &DatabaseSchema, theirs: &DatabaseSchema) -> Result<(), String> {
    for table in theirs.tables() {
        let name = table.name();
        let Some(local) = ours.table(name) else {
            return Err(format!("Table {name} not present in the local db schema"));
        };
        for (_, column) in table.user_columns() {
            let column_name = &column.name;
            match local.column(column_name) {
                None => {
                    return Err(format!(
                        "Column {column_name} not present in the local db schema table {name}."
                    ));
                }
                Some(own) if own.kind != column.kind => {
                    return Err(format!(
                        "Column {column_name} mismatch in local db schema table {name}."
                    ));
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}
