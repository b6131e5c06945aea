//! Directories for a switch of a test's own.

use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory with a place for sockets, database and logs, removed with its value.
#[derive(Debug)]
pub struct Sandbox {
    dir: TempDir,
}

impl Sandbox {
    /// Makes one. Its path is short enough for Unix sockets in it.
    pub fn new() -> Sandbox {
        let prefix = format!("oxvs-{}-", std::process::id());
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir();
        Sandbox {
            dir: dir.unwrap_or_else(|e| panic!("a temporary directory: {e}")),
        }
    }

    /// The directory: run, database and log directory at once.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// A file in it, as a command's argument.
    pub fn arg(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// `unix:` and the database socket in it.
    pub fn db_remote(&self) -> String {
        format!("unix:{}", self.arg("db.sock"))
    }

    /// The variables that make Open vSwitch's programs and ours live in it.
    pub fn env(&self) -> Vec<(String, String)> {
        let dir = self.dir().display().to_string();
        ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"]
            .map(|name| (name.to_owned(), dir.clone()))
            .to_vec()
    }

    /// A file's text; empty where there is none.
    pub fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.path(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Default for Sandbox {
    fn default() -> Sandbox {
        Sandbox::new()
    }
}
