//! The lock file that keeps two servers from opening the same database: `.conf.db.~lock~` beside
//! `conf.db`.
//!
//! It is a POSIX record lock, as in Open vSwitch, so that its server and tools and ours exclude
//! each other. A record lock does not exclude its own process, so we also keep a list of open
//! files.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};

static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// How long a server that starts waits for another process that has the database locked.
const PATIENCE: Duration = Duration::from_secs(5);

/// A lock on a database, released when dropped. The file stays: removing it would race with other
/// processes that lock it.
#[derive(Debug)]
pub(crate) struct DbLock {
    canonical: PathBuf,
    _file: File,
}

/// Why a database could not be locked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// This process has it open.
    #[error("already open")]
    AlreadyOpen,
    /// The system's: `WouldBlock` when another process holds it.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl DbLock {
    /// Locks the database at `database`, which need not exist.
    pub(crate) fn acquire(database: &Path) -> Result<DbLock, LockError> {
        let canonical = canonical(database)?;
        if held().contains(&canonical) {
            return Err(LockError::AlreadyOpen);
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(lock_name(&canonical))?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .map_err(busy)?;
        held().insert(canonical.clone());
        Ok(DbLock { canonical, _file: file })
    }

    /// The database's path, free of symbolic links: what a compaction has to replace.
    pub(crate) fn canonical(&self) -> &Path {
        &self.canonical
    }
}

impl Drop for DbLock {
    fn drop(&mut self) {
        held().remove(&self.canonical);
    }
}

/// Waits for another process that has the database locked to end, or for 5 s to pass.
pub(crate) fn wait(database: &Path) {
    let Ok(canonical) = canonical(database) else { return };
    // Closing the file that is opened here would release a lock of this process.
    if held().contains(&canonical) {
        return;
    }
    let Ok(file) = File::open(lock_name(&canonical)) else {
        return;
    };
    let deadline = Instant::now() + PATIENCE;
    let mut said = false;
    while let Ok(Some(lock)) = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)) {
        if Instant::now() >= deadline {
            return;
        }
        if !said {
            said = true;
            let pid = lock.pid.map_or(0, |pid| pid.as_raw_nonzero().get());
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            tracing::warn!(
                target: "lockfile",
                "{}: cannot lock file because it is already locked by pid {pid}", lock_name(&canonical).display(),
            );
            tracing::info!(
                target: "ovsdb_file",
                "{}: waiting for the end of pid {pid} ({})", database.display(), name.trim_end(),
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `F_SETLK` returns one of two errors when another process has the lock.
fn busy(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => io::ErrorKind::WouldBlock.into(),
        _ => error,
    }
}

fn held() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn canonical(database: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(database) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = match database.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            Ok(fs::canonicalize(parent)?.join(database.file_name().unwrap_or_default()))
        }
        result => result,
    }
}

fn lock_name(database: &Path) -> PathBuf {
    let name = database.file_name().unwrap_or_default().to_string_lossy();
    database.with_file_name(format!(".{name}.~lock~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_locked_once_whatever_it_is_called() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.db");
        fs::write(&path, b"").unwrap();
        let link = dir.path().join("link.db");
        std::os::unix::fs::symlink("conf.db", &link).unwrap();
        let lock = DbLock::acquire(&path).unwrap();
        assert!(dir.path().join(".conf.db.~lock~").exists());
        assert!(matches!(DbLock::acquire(&link), Err(LockError::AlreadyOpen)));
        drop(lock);
        DbLock::acquire(&link).unwrap();
    }
}
