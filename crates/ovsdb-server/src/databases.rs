//! The databases that a server serves, and their files: open and close them, write transactions to
//! them, compact them, upgrade their schemas.

use std::io;
use std::path::Path;
use std::rc::Rc;

use mgmt::os_text;
use ovsdb::DatabaseSchema;
use tokio::task;

use crate::core::{Now, SERVER_DB};
use crate::server::{Inner, OpenError, Synced};
use crate::store::Store;

impl Inner {
    /// Appends the core's batch of transactions to its database's file.
    pub(crate) fn write_batch(self: &Rc<Self>) {
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

    /// Compacts a database's file while clients go on using the database. Returns false if a
    /// compaction is running already.
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
            return Err(OpenError::Duplicate { name });
        }
        self.stores.borrow_mut().insert(name.clone(), store);
        self.flush();
        if self.has_started() {
            self.replicate(&name);
        }
        Ok(name)
    }

    /// Stops serving a database and closes its file.
    pub(crate) fn remove_database(self: &Rc<Self>, name: &str) -> bool {
        self.end_replication(name);
        self.flush();
        let now = self.now();
        let removed = self.core.borrow_mut().remove_database(name, now);
        if removed {
            self.end_relay(name);
            self.forget_model(name);
            self.stores.borrow_mut().remove(name);
        }
        self.flush();
        removed
    }

    /// Whether a name belongs to the server's own database.
    pub(crate) fn is_reserved(name: &str) -> bool {
        name == SERVER_DB
    }
}

/// Converts a database with an older version of `schema`, unless that loses tables or columns.
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
