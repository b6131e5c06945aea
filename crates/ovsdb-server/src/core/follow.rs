//! Databases that follow another server (active-backup replication, ovsdb(7)): clients may only
//! read them, and what the other server sends changes them.

use std::sync::Arc;

use ovsdb::{Commit, Database, Error, Uuid};

use super::{Close, Core, Now, SERVER_DB};

impl Core {
    /// Whether all databases are backups. Then no client gets a lock.
    pub(crate) fn is_backup_server(&self) -> bool {
        let mut own = self
            .databases
            .iter()
            .filter(|(name, hosted)| *name != SERVER_DB && hosted.relay.is_none())
            .peekable();
        own.peek().is_some() && own.all(|(_, hosted)| hosted.backup)
    }

    /// Whether the database is a backup: clients may only read it.
    pub(crate) fn is_backup(&self, db: &str) -> bool {
        match db {
            SERVER_DB => self.is_backup_server(),
            _ => self.databases.get(db).is_some_and(|hosted| hosted.backup),
        }
    }

    /// Makes a database a backup, or active. Clients are disconnected if this changes anything.
    pub(crate) fn set_backup(&mut self, db: &str, backup: bool) {
        let Some(hosted) = self.databases.get_mut(db) else {
            return;
        };
        if std::mem::replace(&mut hosted.backup, backup) == backup {
            return;
        }
        let role = if backup { "read-only" } else { "read/write" };
        let reason = Close::Info(format!("disconnecting (making server {role})"));
        self.close_all(&reason, |options| !options.remote.is_empty());
    }

    /// Applies a change that the other server sent. The batch must be empty or of that database.
    /// Returns the UUID of the transaction if anything changed.
    ///
    /// # Errors
    /// Those of `change`; nothing changes then.
    pub(crate) fn follow(
        &mut self,
        db: &str,
        change: impl FnOnce(&mut Database) -> Result<Option<Arc<Commit>>, Error>,
        now: Now,
    ) -> Result<Option<Uuid>, Error> {
        let Some(hosted) = self.databases.get_mut(db) else {
            return Ok(None);
        };
        let Some(commit) = change(&mut hosted.db)? else {
            return Ok(None);
        };
        let id = commit.id;
        self.committed(db, commit, now);
        self.retry_blocked(db, now);
        Ok(Some(id))
    }
}
