//! The file of a database as bytes: open under a lock, append, truncate, replace as a whole.
//!
//! Invariant: after each call the file has `len` bytes of complete records. If [`LogFile::append`]
//! cannot remove an incomplete record, the file is broken and refuses all further writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::StoreError;
use super::lock::{DbLock, LockError};
use super::syncer::{Done, Syncer};

/// An open database file.
#[derive(Debug)]
pub(crate) struct LogFile {
    name: PathBuf,
    file: Arc<File>,
    len: u64,
    broken: bool,
    syncer: Syncer,
    lock: DbLock,
}

impl LogFile {
    /// Opens a file that exists, and reads it.
    pub(crate) fn open(name: &Path) -> Result<(LogFile, Vec<u8>), StoreError> {
        let failed = |source| StoreError::io(name, "open failed", source);
        let kind = fs::metadata(name).map_err(failed)?.file_type();
        // Reading a FIFO or a device may never end.
        if !kind.is_file() && !kind.is_dir() {
            return Err(failed(io::Error::other("Not a regular file")));
        }
        let lock = acquire(name)?;
        remove_unfinished(lock.canonical());
        let mut file = OpenOptions::new().read(true).write(true).open(name).map_err(failed)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)
            .map_err(|source| StoreError::io(name, "read failed", source))?;
        let len = content.len() as u64;
        let syncer = Syncer::start().map_err(failed)?;
        Ok((
            LogFile {
                name: name.to_owned(),
                file: Arc::new(file),
                len,
                broken: false,
                syncer,
                lock,
            },
            content,
        ))
    }

    /// Creates a file with this content, and syncs it to the disk.
    pub(crate) fn create(name: &Path, content: &[u8]) -> Result<LogFile, StoreError> {
        let lock = acquire(name)?;
        let failed = |source| StoreError::io(name, "create failed", source);
        let path = lock.canonical().to_owned();
        if path.exists() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let syncer = Syncer::start().map_err(failed)?;
        let mut new = Replacement {
            path,
            suffix: COMPACTED,
            mode: 0o640,
            owner: None,
        }
        .write(content)
        .map_err(failed)?;
        new.rename().map_err(failed)?;
        let file = new.file.try_clone().map_err(failed)?;
        let len = content.len() as u64;
        Ok(LogFile {
            name: name.to_owned(),
            file: Arc::new(file),
            len,
            broken: false,
            syncer,
            lock,
        })
    }

    /// The name it was opened by.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Writes records at the end. When this fails, none of them is in the file.
    pub(crate) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write failed and could not be taken back"));
        }
        if let Err(error) = self.file.write_all_at(records, self.len) {
            if let Err(worse) = self.file.set_len(self.len) {
                tracing::error!(target: "ovsdb_file", "{}: cannot take a failed write back: {worse}", self.name.display());
                self.broken = true;
            }
            return Err(error);
        }
        self.len += records.len() as u64;
        self.syncer.wrote(&self.file);
        Ok(())
    }

    /// Calls `done`, on another thread, when all records appended so far are on the disk.
    pub(crate) fn sync(&self, done: Done) {
        self.syncer.sync(&self.file, done);
    }

    /// Truncates the file to `len` bytes.
    pub(crate) fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.file.sync_data()?;
        self.len = len;
        Ok(())
    }

    /// What writes a file to take this one's place, on any thread, under a name with this suffix at
    /// first.
    pub(crate) fn replacement(&self, suffix: &'static str) -> io::Result<Replacement> {
        let meta = self.file.metadata()?;
        let (mode, owner) = (meta.mode() & 0o7777, Some((meta.uid(), meta.gid())));
        Ok(Replacement {
            path: self.lock.canonical().to_owned(),
            suffix,
            mode,
            owner,
        })
    }

    /// Replaces the whole file by a written replacement followed by `tail`. On success all of it is
    /// on the disk; on an error nothing has changed.
    pub(crate) fn install(&mut self, mut new: Replaced, tail: &[u8]) -> io::Result<()> {
        if !tail.is_empty() {
            new.file.write_all_at(tail, new.len)?;
            new.file.sync_data()?;
            new.len += tail.len() as u64;
        }
        let file = Arc::new(new.file.try_clone()?);
        let renamed = new.rename();
        if !new.renamed {
            return renamed;
        }
        // Even if its directory could not be synced, the new file is the one that the next start
        // opens.
        self.file = file;
        self.len = new.len;
        self.broken = false;
        self.syncer.replaced(&self.file);
        renamed
    }
}

/// The suffix of a compacted file before it takes its place.
pub(super) const COMPACTED: &str = "tmp";

/// The suffix of a converted file before it takes its place.
pub(super) const CONVERTED: &str = "convert.tmp";

/// Removes the replacement of a server that was killed while it wrote it. The database must be
/// locked.
fn remove_unfinished(database: &Path) {
    for suffix in [COMPACTED, CONVERTED] {
        // If this fails, the next compaction replaces the file.
        let _ = fs::remove_file(beside(database, suffix));
    }
}

/// The name of a replacement before it takes its place.
fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

/// How to create a file that replaces another.
#[derive(Debug)]
pub(crate) struct Replacement {
    path: PathBuf,
    suffix: &'static str,
    mode: u32,
    owner: Option<(u32, u32)>,
}

/// A file beside the one that it will replace; removed if dropped before that.
#[derive(Debug)]
pub(crate) struct Replaced {
    file: File,
    len: u64,
    beside: PathBuf,
    path: PathBuf,
    renamed: bool,
}

impl Replacement {
    /// Writes the file and syncs it to the disk.
    pub(crate) fn write(self, content: &[u8]) -> io::Result<Replaced> {
        let Replacement {
            path,
            suffix,
            mode,
            owner,
        } = self;
        let beside = beside(&path, suffix);
        // The name may be a link or a FIFO, which must not be written to.
        let _ = fs::remove_file(&beside);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        let new = Replaced {
            file,
            len: content.len() as u64,
            beside,
            path,
            renamed: false,
        };
        new.file.set_permissions(fs::Permissions::from_mode(mode))?;
        if let Some((uid, gid)) = owner
            && new
                .file
                .metadata()
                .is_ok_and(|meta| (meta.uid(), meta.gid()) != (uid, gid))
        {
            std::os::unix::fs::fchown(&new.file, Some(uid), Some(gid))?;
        }
        new.file.write_all_at(content, 0)?;
        new.file.sync_all()?;
        Ok(new)
    }
}

impl Replaced {
    fn rename(&mut self) -> io::Result<()> {
        fs::rename(&self.beside, &self.path)?;
        self.renamed = true;
        match self.path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = fs::remove_file(&self.beside);
        }
    }
}

fn acquire(name: &Path) -> Result<DbLock, StoreError> {
    DbLock::acquire(name).map_err(|error| match error {
        LockError::AlreadyOpen => StoreError::AlreadyOpen { name: name.to_owned() },
        LockError::Io(source) => StoreError::io(name, "failed to lock lockfile", source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_appended_to_cut_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.db");
        let mut log = LogFile::create(&path, b"one").unwrap();
        log.append(b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"onetwo");
        log.cut(4).unwrap();
        log.append(b"x").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"onetx");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let new = log.replacement("tmp").unwrap().write(b"thr").unwrap();
        log.install(new, b"ee").unwrap();
        log.append(b"!").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three!");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(log.len(), 6);
        assert!(matches!(LogFile::open(&path), Err(StoreError::AlreadyOpen { .. })));
        drop(log);
        assert_eq!(LogFile::open(&path).unwrap().1, b"three!");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "the file and its lock");
    }

    #[test]
    fn a_write_that_fails_leaves_the_file_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.db");
        let mut log = LogFile::create(&path, b"one").unwrap();
        log.file = Arc::new(File::open(&path).unwrap());
        assert!(log.append(b"two").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }

    #[test]
    fn a_replacement_that_is_not_installed_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.db");
        let log = LogFile::create(&path, b"one").unwrap();
        drop(log.replacement("tmp").unwrap().write(b"two").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_symbolic_link_stays_when_what_it_names_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real.db"), dir.path().join("conf.db"));
        fs::write(&real, b"one").unwrap();
        std::os::unix::fs::symlink("real.db", &link).unwrap();
        let (mut log, _) = LogFile::open(&link).unwrap();
        let new = log.replacement("tmp").unwrap().write(b"two").unwrap();
        log.install(new, b"").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"two");
    }
}
