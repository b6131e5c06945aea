//! Database files: locked as `ovsdb-server` locks them, read whole, appended to, replaced
//! atomically.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use mgmt::os_text;
use ovsdb::DatabaseSchema;
use ovsdb::log::{self, Loaded};
use rustix::fs::{FlockOperation, fcntl_lock};

use crate::common::Failure;

/// The two kinds of database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Standalone,
    Clustered,
}

/// A database file locked against other writers.
pub(super) struct Locked {
    name: String,
    path: PathBuf,
    _lock: File,
}

/// What kind of database file `name` is.
pub(super) fn kind(name: &str) -> Result<Kind, Failure> {
    let mut start = [0; 14];
    let mut file = open(name)?;
    let mut length = 0;
    while length < start.len() {
        match file.read(&mut start[length..]) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(e) => return Err(io_failure(name, &format!("read failed ({})", os_text(&e)))),
        }
    }
    if start.starts_with(b"OVSDB JSON ") {
        Ok(Kind::Standalone)
    } else if start.starts_with(b"OVSDB CLUSTER ") {
        Ok(Kind::Clustered)
    } else if length == 0 {
        Err(Failure::new(format!("ovsdb error: {name}: cannot identify file type")))
    } else {
        Err(Failure::new(format!("ovsdb error: {name}: unexpected file format")))
    }
}

/// Refuses clustered files.
pub(super) fn check_standalone(name: &str) -> Result<(), Failure> {
    match kind(name)? {
        Kind::Standalone => Ok(()),
        Kind::Clustered => Err(Failure::new(format!(
            "ovsdb error: {name}: cannot apply this operation to clustered database file"
        ))),
    }
}

/// The file's bytes.
pub(super) fn read(name: &str) -> Result<Vec<u8>, Failure> {
    check_standalone(name)?;
    let mut bytes = Vec::new();
    open(name)?
        .read_to_end(&mut bytes)
        .map_err(|e| io_failure(name, &format!("read failed ({})", os_text(&e))))?;
    Ok(bytes)
}

/// The schema in the file.
pub(super) fn read_schema(name: &str) -> Result<DatabaseSchema, Failure> {
    let bytes = read(name)?;
    let mut reader = log::Reader::new(bytes.as_slice());
    match reader.next() {
        Some(record) => {
            DatabaseSchema::from_json(&serde_json::Value::Object(record.json)).map_err(|e| Failure::new(e.to_string()))
        }
        None => Err(damaged(name, reader.damage())),
    }
}

/// The database in the file. A damaged file is refused: only a server truncates it.
pub(super) fn load(name: &str) -> Result<Loaded, Failure> {
    let bytes = read(name)?;
    let seed = uuid::Uuid::new_v4().as_u128();
    let loaded = log::load(&mut bytes.as_slice(), seed).map_err(|e| Failure::new(e.to_string()))?;
    match &loaded.damage {
        Some(_) => Err(damaged(name, loaded.damage.as_ref())),
        None => Ok(loaded),
    }
}

/// The error text for a damaged file.
pub(super) fn damaged(name: &str, damage: Option<&log::Damage>) -> Failure {
    let what = damage.map_or_else(|| "no schema".to_owned(), ToString::to_string);
    io_failure(name, &what)
}

impl Locked {
    /// Locks the database `name` for writing, whether the file exists or not.
    pub(super) fn new(name: &str) -> Result<Locked, Failure> {
        Locked::try_new(name).map_err(|e| Failure::new(format!("I/O error: {}", e.message)))
    }

    /// As [`Locked::new`], with an error that only names the file.
    pub(super) fn try_new(name: &str) -> Result<Locked, Failure> {
        // A link is followed, so that the lock is beside the file that the server has open.
        let path = fs::canonicalize(name).unwrap_or_else(|_| PathBuf::from(name));
        let lock =
            lock_file(&path).map_err(|e| Failure::new(format!("{name}: failed to lock lockfile ({})", os_text(&e))))?;
        Ok(Locked {
            name: name.to_owned(),
            path,
            _lock: lock,
        })
    }

    /// Writes a new file.
    pub(super) fn create(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o660)
            .open(&self.path)
            .map_err(|e| self.failed("create", &e))?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        written
            .and_then(|()| self.sync_directory())
            .map_err(|e| self.failed("write", &e))
    }

    /// Appends a record after `good_length` bytes and syncs it to disk.
    pub(super) fn append(&self, good_length: u64, record: &[u8]) -> Result<(), Failure> {
        let write = || {
            let mut file = OpenOptions::new().write(true).open(&self.path)?;
            file.set_len(good_length)?;
            file.seek(SeekFrom::Start(good_length))?;
            file.write_all(record)?;
            file.sync_data()
        };
        write().map_err(|e| self.failed("write", &e))
    }

    /// Replaces the file atomically, with the same owner and mode.
    pub(super) fn replace(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut temporary = OsString::from(&self.path);
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let write = || {
            let _lock = lock_file(&temporary)?;
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o660)
                .open(&temporary)?;
            if let Ok(old) = fs::metadata(&self.path) {
                file.set_permissions(old.permissions())?;
                // Only root may change the owner; other users own the file already.
                let _ = chown(&temporary, Some(old.uid()), Some(old.gid()));
            }
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &self.path)?;
            let _ = fs::remove_file(lock_name(&temporary));
            self.sync_directory()
        };
        write().map_err(|e| self.failed("write", &e))
    }

    fn sync_directory(&self) -> io::Result<()> {
        let parent = self.path.parent().filter(|p| !p.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn failed(&self, what: &str, error: &io::Error) -> Failure {
        io_failure(&self.name, &format!("{what} failed ({})", os_text(error)))
    }
}

fn open(name: &str) -> Result<File, Failure> {
    File::open(name).map_err(|e| io_failure(name, &format!("open failed ({})", os_text(&e))))
}

fn io_failure(name: &str, what: &str) -> Failure {
    Failure::new(format!("I/O error: {name}: {what}"))
}

/// Takes the lock that belongs to a database file.
fn lock_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(lock_name(path))?;
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// `.NAME.~lock~` beside the file.
fn lock_name(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".~lock~");
    path.with_file_name(name)
}
