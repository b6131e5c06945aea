//! Active-backup replication (ovsdb(7), "Active-Backup Database Service Model"): the databases of a
//! backup follow those of an active server, and clients may only read them.
//!
//! Each database has a connection of its own ([`session`]). A database that cannot be replicated
//! becomes active, as with Open vSwitch.

mod session;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{self, AbortHandle};

use crate::config::{Model, Source};
use crate::server::{Inner, SyncOptions};
use crate::source::{self, SourceOptions};
use session::Session;

/// The server probes an active server that has been silent for this time.
const DEFAULT_PROBE: Duration = Duration::from_secs(60);

/// The configuration and state of replication.
pub(crate) struct Replication {
    source: Option<String>,
    excluded: Excluded,
    probe: Rc<Cell<Option<Duration>>>,
    /// The server is a backup: databases that are added are too.
    backup: bool,
    /// The active-backup databases of the configuration file, which have settings of their own.
    own: BTreeMap<String, Own>,
    /// The databases that follow the source.
    running: BTreeMap<String, Running>,
}

/// The settings of a database that the configuration file calls active-backup.
struct Own {
    /// `None` for the active role.
    source: Option<Source>,
    excluded: BTreeSet<String>,
}

/// A database that follows its source.
struct Running {
    source: String,
    phase: Rc<Cell<Phase>>,
    task: AbortHandle,
}

/// The state of a database's replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connecting,
    Replicating,
}

/// Tables that are not replicated, by database and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Excluded(BTreeSet<(String, String)>);

impl Replication {
    pub(crate) fn new(options: &SyncOptions) -> Replication {
        Replication {
            source: options.source.clone(),
            excluded: Excluded::parse(options.exclude.as_deref().unwrap_or_default()),
            probe: Rc::new(Cell::new(Some(DEFAULT_PROBE))),
            backup: options.source.is_some() && !options.active,
            own: BTreeMap::new(),
            running: BTreeMap::new(),
        }
    }

    /// The status of each database of the configuration file, as newer releases write it.
    fn own_status(&self) -> String {
        let blocks = self.own.iter().map(|(name, own)| {
            let Some(running) = self.running.get(name) else {
                return format!("database: {name}\nstate: active\n");
            };
            let phase = match running.phase.get() {
                Phase::Connecting => "connecting",
                Phase::Replicating => "replicating",
            };
            let mut block = format!("database: {name}\nstate: backup\n{phase}: {}\n", running.source);
            if !own.excluded.is_empty() {
                let excluded: Vec<&str> = own.excluded.iter().map(String::as_str).collect();
                block += &format!("exclude: {}\n", excluded.join(","));
            }
            block
        });
        blocks.collect::<Vec<_>>().join("\n")
    }

    /// Ends the connections. Databases keep their roles.
    pub(crate) fn stop(&mut self) {
        for running in std::mem::take(&mut self.running).into_values() {
            running.task.abort();
        }
    }
}

impl Excluded {
    /// Parses `DB:TABLE[,DB:TABLE]…`. Names that do not exist have no effect.
    fn parse(text: &str) -> Excluded {
        let pair = |word: &str| match word.char_indices().skip(1).find(|(_, c)| *c == ':') {
            Some((at, _)) => (word[..at].to_owned(), word[at + 1..].to_owned()),
            None => (word.to_owned(), String::new()),
        };
        Excluded(text.split(',').filter(|word| !word.is_empty()).map(pair).collect())
    }

    /// The names of a database's tables.
    fn of(&self, db: &str) -> BTreeSet<String> {
        let own = self.0.iter().filter(|(of, _)| of == db);
        own.map(|(_, table)| table.clone()).collect()
    }
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (db, table)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{db}:{table}")?;
        }
        Ok(())
    }
}

impl Inner {
    /// Starts to follow the source in every database, if the server is a backup.
    pub(crate) fn start_replication(self: &Rc<Self>) {
        let core = self.core.borrow();
        let names: Vec<String> = core.database_names().map(str::to_owned).collect();
        drop(core);
        for name in names.iter().filter(|name| !Inner::is_reserved(name)) {
            if self.core.borrow().is_relay(name) {
                continue;
            }
            self.replicate(name);
        }
    }

    /// Starts to follow the source in a database that was added, if the server is a backup.
    pub(crate) fn replicate(self: &Rc<Self>, db: &str) {
        let mut replication = self.replication.borrow_mut();
        let shared = || (replication.source.clone(), replication.excluded.of(db));
        let (source, excluded, options, probe) = match replication.own.get(db) {
            Some(own) => {
                let options = own
                    .source
                    .as_ref()
                    .map(|source| source.options.clone())
                    .unwrap_or_default();
                let probe = Rc::new(Cell::new(options.probe_or(Some(DEFAULT_PROBE))));
                let source = own.source.as_ref().map(|source| source.remote.clone());
                (source, own.excluded.clone(), options, probe)
            }
            None if replication.backup => {
                let (source, excluded) = shared();
                (source, excluded, SourceOptions::default(), replication.probe.clone())
            }
            None => return,
        };
        let Some(source) = source else { return };
        self.core.borrow_mut().set_backup(db, true);
        self.flush_soon();
        let phase = Rc::new(Cell::new(Phase::Connecting));
        let mut session = Session::new(self.clone(), db.to_owned(), excluded, phase.clone());
        let (inner, name, remote) = (self.clone(), db.to_owned(), source.clone());
        let follow = async move {
            source::follow(&inner, &remote, &probe, &options, &mut session).await;
            inner.end_replication(&name);
        };
        let task = task::spawn_local(follow).abort_handle();
        if let Some(before) = replication
            .running
            .insert(db.to_owned(), Running { source, phase, task })
        {
            before.task.abort();
        }
    }

    /// The role of a database of the configuration file; a backup starts again.
    pub(crate) fn set_model(self: &Rc<Self>, db: &str, model: &Model) {
        self.end_replication(db);
        self.forget_model(db);
        let own = match model {
            Model::Standalone | Model::Relay(_) => None,
            Model::Active => Some(Own {
                source: None,
                excluded: BTreeSet::new(),
            }),
            Model::Backup { source, excluded } => {
                // Tables have their names alone or, as on the command line, with the database's.
                let excluded = excluded.iter().map(|table| {
                    let prefix = table.strip_prefix(db).and_then(|rest| rest.strip_prefix(':'));
                    prefix.unwrap_or(table).to_owned()
                });
                let excluded = excluded.collect();
                Some(Own {
                    source: Some(source.clone()),
                    excluded,
                })
            }
        };
        if let Some(own) = own {
            self.replication.borrow_mut().own.insert(db.to_owned(), own);
            if self.has_started() {
                self.replicate(db);
            }
        }
    }

    /// A database of the configuration file was removed.
    pub(crate) fn forget_model(&self, db: &str) {
        self.replication.borrow_mut().own.remove(db);
    }

    /// A database was removed, or cannot be replicated any more.
    pub(crate) fn end_replication(&self, db: &str) {
        let mut replication = self.replication.borrow_mut();
        let running = replication.running.remove(db);
        if let Some(own) = replication.own.get_mut(db) {
            own.source = None;
        }
        drop(replication);
        if let Some(running) = running {
            self.core.borrow_mut().set_backup(db, false);
            self.flush_soon();
            running.task.abort();
        }
    }

    /// `ovsdb-server/connect-active-ovsdb-server`.
    pub(crate) fn become_backup(self: &Rc<Self>) -> Result<String, String> {
        {
            let mut replication = self.replication.borrow_mut();
            if replication.source.is_none() {
                return Ok("Unable to connect: active server is not specified.\n".to_owned());
            }
            replication.backup = true;
            replication.stop();
        }
        self.start_replication();
        Ok(String::new())
    }

    /// `ovsdb-server/disconnect-active-ovsdb-server`.
    pub(crate) fn become_active(&self) {
        let names: Vec<String> = {
            let mut replication = self.replication.borrow_mut();
            replication.backup = false;
            replication.running.keys().cloned().collect()
        };
        for name in names {
            self.end_replication(&name);
        }
    }

    /// `ovsdb-server/set-active-ovsdb-server`: takes effect with the next connection.
    pub(crate) fn set_active_server(&self, source: &str) {
        self.replication.borrow_mut().source = Some(source.to_owned());
    }

    /// `ovsdb-server/get-active-ovsdb-server`.
    pub(crate) fn active_server(&self) -> String {
        self.replication.borrow().source.clone().unwrap_or_default()
    }

    /// `ovsdb-server/set-active-ovsdb-server-probe-interval`, in milliseconds; 0 for never.
    pub(crate) fn set_active_server_probe(&self, interval: &str) -> Result<String, String> {
        let Ok(interval) = interval.parse::<i32>() else {
            return Ok("Invalid probe interval, integer value expected".to_owned());
        };
        let interval = u64::try_from(interval).ok().filter(|interval| *interval > 0);
        let probe = &self.replication.borrow().probe;
        probe.set(interval.map(Duration::from_millis));
        Ok(String::new())
    }

    /// `ovsdb-server/set-sync-exclude-tables`: a backup starts again.
    pub(crate) fn set_excluded(self: &Rc<Self>, tables: &str) {
        let mut replication = self.replication.borrow_mut();
        replication.excluded = Excluded::parse(tables);
        let restart: Vec<String> = replication.running.keys().cloned().collect();
        drop(replication);
        for name in restart {
            self.replicate(&name);
        }
    }

    /// `ovsdb-server/get-sync-exclude-tables`.
    pub(crate) fn excluded(&self) -> String {
        self.replication.borrow().excluded.to_string()
    }

    /// `ovsdb-server/sync-status`.
    pub(crate) fn sync_status(&self) -> String {
        let replication = self.replication.borrow();
        if !replication.own.is_empty() {
            return replication.own_status();
        }
        let Some(first) = replication.running.values().next() else {
            return "state: active\n".to_owned();
        };
        let replicating = |(_, running): &(&String, &Running)| running.phase.get() == Phase::Replicating;
        let replicated = replication.running.iter().filter(replicating);
        let replicated: Vec<&str> = replicated.map(|(name, _)| name.as_str()).collect();
        if replicated.is_empty() {
            return format!("state: backup\nconnecting: {}\n", first.source);
        }
        let mut status = format!(
            "state: backup\nreplicating: {}\ndatabase: {}\n",
            first.source,
            replicated.join(", ")
        );
        if !replication.excluded.0.is_empty() {
            status += &format!("exclude: {}\n", replication.excluded);
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_tables_are_pairs_of_a_database_and_a_table() {
        let excluded = Excluded::parse("D:U,D:T,X,,:y,b::c,D:T");
        assert_eq!(excluded.to_string(), ":y:,D:T,D:U,X:,b::c");
        assert_eq!(excluded.of("D"), BTreeSet::from(["T".to_owned(), "U".to_owned()]));
        assert!(excluded.of("E").is_empty());
        assert_eq!(Excluded::parse("").to_string(), "");
    }
}
