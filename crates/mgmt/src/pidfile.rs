//! Pidfiles: a file with the process id of the daemon of that name, in decimal. The daemon keeps it
//! locked (`fcntl`), so the file of a daemon that died is recognised as stale.

use crate::os_text;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::predecessor;

/// A pidfile of this process. Dropping it removes the file.
///
/// The kernel releases the lock when the process closes any descriptor of the file, so nothing else
/// in the process may open it.
#[derive(Debug)]
pub struct Pidfile {
    path: PathBuf,
    file: File,
}

/// Why there is no pidfile.
#[derive(Debug, thiserror::Error)]
pub enum PidfileError {
    /// A daemon has it locked.
    #[error("{}: already running as pid {pid}, aborting", path.display())]
    Running {
        /// The file.
        path: PathBuf,
        /// The daemon's process.
        pid: u32,
    },
    /// It cannot be written.
    #[error("{}: {what} failed ({})", path.display(), os_text(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Pidfile {
    /// Makes this process the daemon that `path` names. Waits up to 30 s for a daemon that is
    /// ending. With `overwrite`, does so even if another one is running.
    ///
    /// # Errors
    /// [`PidfileError::Running`] if one is running; the system's.
    pub fn create(path: &Path, overwrite: bool) -> Result<Pidfile, PidfileError> {
        let failed = |what| {
            move |source: io::Error| PidfileError::Io {
                path: path.to_owned(),
                what,
                source,
            }
        };
        let running = |pid| PidfileError::Running {
            path: path.to_owned(),
            pid,
        };
        if !overwrite {
            predecessor::wait(path).map_err(running)?;
        }
        // Only the process that has locked the temporary file may rename it. The rename makes name
        // and contents appear at once.
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&temporary)
            .map_err(|source| PidfileError::Io {
                path: temporary.clone(),
                what: "create",
                source,
            })?;
        if fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(running(lock_holder(&file).ok().flatten().unwrap_or(0)));
        }
        if !overwrite
            && let Ok(other) = File::open(path)
            && let Some(pid) = lock_holder(&other).map_err(failed("lock"))?
        {
            let _ = fs::remove_file(&temporary);
            return Err(running(pid));
        }
        file.set_len(0).map_err(failed("truncate"))?;
        file.rewind().map_err(failed("write"))?;
        writeln!(file, "{}", std::process::id()).map_err(failed("write"))?;
        fs::rename(&temporary, path).map_err(failed("rename"))?;
        Ok(Pidfile {
            path: path.to_owned(),
            file,
        })
    }

    /// Announces that this daemon is ending, so that a successor waits.
    pub fn announce_end(&self) {
        predecessor::announce_end(&self.file);
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        let id = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let ours = fs::metadata(&self.path)
            .and_then(|there| Ok(id(there) == id(self.file.metadata()?)))
            .unwrap_or(false);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The process id in a pidfile whose daemon runs.
///
/// # Errors
/// The system's; `NotFound` also when the daemon no longer runs, `InvalidData` when the file does
/// not hold a number.
pub fn read(path: &Path) -> io::Result<u32> {
    let file = File::open(path)?;
    // This process's own lock does not show here, and closing `file` releases it: only programs
    // that have no pidfile themselves may call this.
    if lock_holder(&file)?.is_none() {
        return Err(rustix::io::Errno::SRCH.into());
    }
    number(&file)
}

/// The process id in an open pidfile, whether or not its daemon runs.
pub(crate) fn number(mut file: &File) -> io::Result<u32> {
    let mut text = String::new();
    file.rewind()?;
    file.take(64).read_to_string(&mut text)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// The other process that has the file locked.
pub(crate) fn lock_holder(file: &File) -> io::Result<Option<u32>> {
    let lock = fcntl_getlk(file, &Flock::from(FlockType::WriteLock))?;
    Ok(lock.map(|l| l.pid.map_or(0, |pid| pid.as_raw_nonzero().get() as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pidfile_names_this_process_and_goes_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("daemon.pid");
        fs::write(&path, "1\n").unwrap();
        let pidfile = Pidfile::create(&path, false).unwrap();
        assert_eq!(
            fs::read_to_string(pidfile.path()).unwrap(),
            format!("{}\n", std::process::id())
        );
        drop(pidfile);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_pidfile_without_its_daemon_is_stale() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("daemon.pid");
        fs::write(&path, "1\n").unwrap();
        assert_eq!(os_text(&read(&path).unwrap_err()), "No such process");
        fs::write(&path, "x").unwrap();
        assert!(read(&path).is_err());
    }
}
