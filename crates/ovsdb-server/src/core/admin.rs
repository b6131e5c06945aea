//! Administration: databases are added, removed and converted; and the database about them,
//! `_Server`.

use std::collections::BTreeSet;

use ovsdb::server_db::{self, ServedDatabase};
use ovsdb::{Database, Error, ErrorKind, Outcome, TxnCtx};
use serde_json::{Value, json};

use super::monitors::Monitors;
use super::{Close, Conversion, Core, Hosted, Now, SERVER_DB, encode};

/// Figures about the server, for `memory/show`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) atoms: usize,
    pub(crate) cells: usize,
    pub(crate) monitors: usize,
    pub(crate) sessions: usize,
    pub(crate) triggers: usize,
    /// Bytes that wait for clients.
    pub(crate) backlog: usize,
    /// Bytes of the memory budget that sessions use, and the budget.
    pub(crate) budget: (usize, usize),
}

impl Core {
    /// Creates `_Server`, before any other database.
    pub(super) fn host_server_db(&mut self) {
        let db = server_db::new(self.seed());
        debug_assert!(db.is_ok(), "a test parses the shipped schemas");
        if let Ok(db) = db {
            self.host(SERVER_DB, db, false);
        }
    }

    /// Adds a database. No batch may be open before; a batch of `_Server` is open afterwards.
    /// Returns false if a database of that name exists.
    pub(crate) fn add_database(&mut self, db: Database, now: Now) -> bool {
        let name = db.schema().name().to_owned();
        if self.databases.contains_key(&name) {
            return false;
        }
        self.host(&name, db, true);
        self.databases_changed(&format!("adding {name} database"), now);
        true
    }

    /// Removes a database. Batches as for [`Core::add_database`].
    pub(crate) fn remove_database(&mut self, name: &str, now: Now) -> bool {
        let removable = name != SERVER_DB && self.databases.contains_key(name);
        if !removable {
            return false;
        }
        self.cancel_all(name);
        self.cancel_monitors(name);
        self.cancel_forwards_of(name);
        self.databases.remove(name);
        self.databases_changed(&format!("removing {name} database"), now);
        true
    }

    /// A conversion was written to the database's file, or the write failed. Batches as for
    /// [`Core::add_database`].
    pub(crate) fn converted(&mut self, conversion: Conversion, result: std::io::Result<()>, now: Now) {
        let Conversion { name, new, session, id } = conversion;
        if let Err(error) = result {
            let error = Error::new(ErrorKind::Io, format!("cannot write the converted database: {error}"));
            return self.refuse(session, &id, &error.to_json());
        }
        self.cancel_all(&name);
        self.cancel_monitors(&name);
        if let Some(hosted) = self.databases.get_mut(&name) {
            hosted.db = new;
        }
        self.watch_fired = true;
        self.update_server_db(now);
        self.post(session, |out| encode::reply(out, &id, &json!({})));
        self.close_unaware(&format!("{name} database converted"));
    }

    /// Watches tables for changes, which [`Core::take_watch_fired`] reports.
    pub(crate) fn watch(&mut self, tables: Vec<(String, String)>) {
        self.watched = tables;
    }

    /// Whether a watched table has changed, or databases have, since the last call.
    pub(crate) fn take_watch_fired(&mut self) -> bool {
        std::mem::take(&mut self.watch_fired)
    }

    /// Executes a transaction of the server itself, which the watch ignores. The batch must be
    /// empty or of that database. Returns the results.
    pub(crate) fn write_own(&mut self, db: &str, ops: &[Value], now: Now) -> Option<Value> {
        let outcome = self.databases.get_mut(db)?.db.transact(ops, &TxnCtx::PLAIN);
        let Outcome::Done { reply, commit } = outcome else {
            return None;
        };
        if let Some(commit) = commit {
            let fired = self.watch_fired;
            self.committed(db, commit, now);
            self.watch_fired = fired;
            self.retry_blocked(db, now);
        }
        Some(reply)
    }

    /// The server's figures.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage {
            sessions: self.sessions.len(),
            triggers: self.blocked.len(),
            budget: self.budget(),
            ..Usage::default()
        };
        for hosted in self.databases.values() {
            for (at, table) in hosted.db.schema().tables().iter().enumerate() {
                usage.cells += hosted.db.rows(at).len() * table.columns().len();
                let fields = hosted.db.rows(at).flat_map(|row| row.fields());
                usage.atoms += fields
                    .map(|datum| datum.atoms().len() + 2 * datum.pairs().len())
                    .sum::<usize>();
            }
        }
        for session in self.sessions.values() {
            usage.monitors += session.monitors.len();
            usage.backlog += session.outbox.backlog();
        }
        usage
    }

    pub(super) fn host(&mut self, name: &str, db: Database, persistent: bool) {
        let hosted = Hosted {
            db,
            monitors: Monitors::default(),
            persistent,
            backup: false,
            relay: None,
            logged: BTreeSet::new(),
        };
        self.databases.insert(name.to_owned(), hosted);
    }

    /// Updates `_Server` with the databases that exist.
    pub(super) fn update_server_db(&mut self, now: Now) {
        let served = |(name, hosted): (&String, &Hosted)| {
            let schema = hosted.db.schema().clone();
            match &hosted.relay {
                None => ServedDatabase::standalone(schema),
                Some(relay) => {
                    let schema = Some(schema).filter(|_| relay.ready);
                    ServedDatabase::relay(name.clone(), schema, relay.connected)
                }
            }
        };
        let served: Vec<ServedDatabase> = self.databases.iter().map(served).collect();
        let Some(server) = self.databases.get_mut(SERVER_DB) else {
            return;
        };
        if let Some(commit) = server_db::update(&mut server.db, &served) {
            self.committed(SERVER_DB, commit, now);
            self.retry_blocked(SERVER_DB, now);
        }
    }

    /// Databases came, went or have another schema. Clients that would not notice are disconnected.
    pub(super) fn databases_changed(&mut self, reason: &str, now: Now) {
        self.watch_fired = true;
        self.update_server_db(now);
        self.close_unaware(reason);
    }

    /// Makes conditional monitors unknown methods, as with servers before them, and ends the
    /// sessions that may have some.
    pub(crate) fn disable_monitor_cond(&mut self) {
        self.monitor_cond = false;
        let reason = Close::Info("disconnecting (user ran ovsdb-server/disable-monitor-cond)".into());
        self.close_all(&reason, |options| !options.remote.is_empty());
    }

    /// Ends the sessions of a remote that was removed.
    pub(crate) fn close_remote(&mut self, remote: &str) {
        self.close_all(&Close::Info("disconnecting (remote deconfigured)".into()), |options| {
            options.remote == remote
        });
    }
}
