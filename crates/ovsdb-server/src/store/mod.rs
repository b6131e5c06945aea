//! A database's file: read when the server starts, appended to by transactions, and compacted.

mod aside;
mod file;
mod lock;
mod syncer;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mgmt::os_text;
use nanos::Nanos;
use ovsdb::{Commit, Database, DatabaseSchema, Uuid, log};

use file::{LogFile, Replaced, Replacement};
pub(crate) use lock::wait as wait_for_lock;
pub(crate) use syncer::Done;

/// Size in bytes from which a file is compacted automatically.
const COMPACT_FROM: u64 = 10 << 20;

/// A file is compacted when it has grown to this multiple of its compacted size.
const COMPACT_GROWTH: u64 = 4;

/// Shortest time between automatic compactions.
const COMPACT_INTERVAL: Duration = Duration::from_secs(600);

/// Why a database could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call failed.
    #[error("I/O error: {}: {what} ({})", .name.display(), os_text(.source))]
    Io {
        /// The database's file.
        name: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// This server has the file open.
    #[error("ovsdb error: {}: already open", .name.display())]
    AlreadyOpen {
        /// The database's file.
        name: PathBuf,
    },
    /// The file does not begin with a schema.
    #[error("ovsdb error: {}: not a database: {reason}", .name.display())]
    NotADatabase {
        /// The file.
        name: PathBuf,
        /// The offset and the format rule that the file breaks.
        reason: String,
    },
}

impl StoreError {
    pub(crate) fn io(name: &Path, what: &'static str, source: io::Error) -> StoreError {
        StoreError::Io {
            name: name.to_owned(),
            what,
            source,
        }
    }
}

/// The file of one database.
#[derive(Debug)]
pub(crate) struct Store {
    log: LogFile,
    compacted_len: u64,
    compacted_at: Nanos,
    /// The records written since the running compaction began.
    since_snapshot: Option<Vec<u8>>,
    /// How many times the database was replaced. A snapshot from before a replacement is invalid.
    generation: u64,
}

impl Store {
    /// Opens a database's file. Moves damaged data after the last good record to a file beside it,
    /// and logs how much that is.
    pub(crate) fn open(name: &Path, seed: u128, now: Nanos) -> Result<(Store, Database), StoreError> {
        let (mut log, content) = LogFile::open(name)?;
        let loaded = log::load(content.as_slice(), seed).map_err(|error| StoreError::NotADatabase {
            name: name.to_owned(),
            reason: error.details().unwrap_or(error.kind().as_str()).to_owned(),
        })?;
        if let Some(damage) = &loaded.damage {
            let tail = &content[loaded.good_length as usize..];
            let kept = match aside::keep(name, tail) {
                Ok(copy) => format!("kept in {}", copy.display()),
                Err(error) => format!("lost, for they cannot be written beside it ({})", os_text(&error)),
            };
            tracing::error!(
                target: "ovsdb_file",
                "{}: configuration is lost: {} bytes, {} record(s), after the last good one are cut off and {kept}; \
                 {} transaction(s) remain (offset {damage})",
                name.display(), tail.len(), aside::records(tail), loaded.transactions,
            );
            log.cut(loaded.good_length)
                .map_err(|source| StoreError::io(name, "truncate failed", source))?;
        }
        Ok((Store::new(log, now), loaded.database))
    }

    /// Creates the file of an empty database, and its directory.
    pub(crate) fn create(
        name: &Path,
        schema: DatabaseSchema,
        seed: u128,
        now: Nanos,
    ) -> Result<(Store, Database), StoreError> {
        if let Some(parent) = name.parent() {
            fs::create_dir_all(parent).map_err(|source| StoreError::io(name, "create failed", source))?;
        }
        let log = LogFile::create(name, &log::schema_record(&schema))?;
        Ok((Store::new(log, now), Database::new(schema, seed)))
    }

    fn new(log: LogFile, now: Nanos) -> Store {
        Store {
            compacted_len: log.len(),
            log,
            compacted_at: now,
            since_snapshot: None,
            generation: 0,
        }
    }

    /// The name that the file was opened by.
    pub(crate) fn name(&self) -> &Path {
        self.log.name()
    }

    /// Writes records. When this fails, none of them is in the file.
    pub(crate) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        self.log.append(records)?;
        if let Some(since) = &mut self.since_snapshot {
            since.extend_from_slice(records);
        }
        Ok(())
    }

    /// Calls `done`, on another thread, when what was appended is on the disk.
    pub(crate) fn sync(&self, done: Done) {
        self.log.sync(done);
    }

    /// Whether the file has grown enough for an automatic compaction.
    pub(crate) fn wants_compaction(&self, now: Nanos) -> bool {
        self.log.len() >= COMPACT_FROM
            && self.log.len() / COMPACT_GROWTH > self.compacted_len
            && self.since_snapshot.is_none()
            && now >= self.compacted_at + COMPACT_INTERVAL
    }

    /// Begins a compaction: returns a snapshot of the database, which any thread can write. `None`
    /// while another compaction runs.
    pub(crate) fn snapshot(&mut self, db: &Database, date_ms: i64, comment: &str) -> io::Result<Option<Snapshot>> {
        if self.since_snapshot.is_some() {
            return Ok(None);
        }
        let place = self.log.replacement(file::COMPACTED)?;
        self.since_snapshot = Some(Vec::new());
        let changes = db.contents().collect();
        let contents = Commit {
            id: Uuid::ZERO,
            changes,
            comment: Some(comment.to_owned()),
            durable: false,
        };
        Ok(Some(Snapshot {
            place,
            generation: self.generation,
            schema: db.schema().clone(),
            contents,
            date_ms,
        }))
    }

    /// Ends a compaction: the written snapshot and the records since then become the file. If this
    /// fails, the file stays as without the compaction.
    pub(crate) fn compacted(&mut self, written: io::Result<Written>, now: Nanos) -> io::Result<()> {
        if written
            .as_ref()
            .is_ok_and(|written| written.generation != self.generation)
        {
            return Ok(());
        }
        let since = self.since_snapshot.take().unwrap_or_default();
        self.compacted_at = now;
        let new = written?.file;
        self.log.install(new, &since)?;
        self.compacted_len = self.log.len() - since.len() as u64;
        Ok(())
    }

    /// Replaces the database in the file by another.
    pub(crate) fn replace(&mut self, db: &Database, date_ms: i64, comment: &str, now: Nanos) -> io::Result<()> {
        let mut content = log::schema_record(db.schema());
        content.extend(log::snapshot_record(db, Some(comment), date_ms).unwrap_or_default());
        let new = self.log.replacement(file::CONVERTED)?.write(&content)?;
        self.log.install(new, &[])?;
        self.generation += 1;
        self.since_snapshot = None;
        self.compacted_len = self.log.len();
        self.compacted_at = now;
        Ok(())
    }
}

/// The contents of a database at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    place: Replacement,
    generation: u64,
    schema: Arc<DatabaseSchema>,
    contents: Commit,
    date_ms: i64,
}

/// A snapshot on the disk, beside the file that it will replace.
#[derive(Debug)]
pub(crate) struct Written {
    file: Replaced,
    generation: u64,
}

impl Snapshot {
    /// Writes it to a file beside the database's, and brings that to the disk.
    pub(crate) fn write(self) -> io::Result<Written> {
        let mut content = log::schema_record(&self.schema);
        content.extend(log::commit_record(&self.schema, &self.contents, self.date_ms).unwrap_or_default());
        Ok(Written {
            file: self.place.write(&content)?,
            generation: self.generation,
        })
    }
}
