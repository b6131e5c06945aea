//! The harness of the comparisons with Debian's tools: a sandbox with its own run directory, in
//! which both run the same command line.

#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A run directory of its own, and what runs in it.
pub(crate) struct Sandbox {
    dir: TempDir,
    server: Option<Child>,
}

/// How the outputs have to agree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alike {
    /// Byte for byte.
    Exactly,
    /// The lines of standard output, in any order: theirs is that of a hash table.
    Lines,
    /// The lines of standard output, in any order, and the status; errors are in other words.
    Output,
    /// The status.
    Status,
}

/// What one of the two said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Sandbox {
    /// An empty one; `None`, with the reason printed, without Debian's tools.
    pub(crate) fn new() -> Option<Sandbox> {
        for tool in ["ovsdb-tool", "ovsdb-server", "ovsdb-client", "ovs-vsctl", "ovs-appctl"] {
            let version = Command::new(tool).arg("--version").output();
            let text = version.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
            match text {
                Ok(text) if text.contains("oxvs") => {
                    eprintln!("skipped: {tool} here is oxvs itself");
                    return None;
                }
                Ok(_) => {}
                Err(e) => {
                    eprintln!("skipped: no {tool} to compare with ({e})");
                    return None;
                }
            }
        }
        Some(Sandbox {
            dir: TempDir::new().unwrap(),
            server: None,
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Starts Debian's server on `databases`, which are made if they are not there.
    pub(crate) fn start_server(&mut self, databases: &[(&str, &str)]) {
        for (database, schema) in databases {
            if !self.path(database).exists() {
                assert_eq!(self.theirs(&["ovsdb-tool", "create", database, schema]).err, "");
            }
        }
        let mut command = self.command("ovsdb-server");
        command.args(databases.iter().map(|(database, _)| database));
        command.args(["--remote=punix:db.sock", "--pidfile", "-vconsole:off", "-vsyslog:off"]);
        self.server = Some(command.stderr(Stdio::null()).spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(20);
        while !self.path("db.sock").exists() || !self.path("ovsdb-server.pid").exists() {
            assert!(Instant::now() < end, "ovsdb-server does not start");
            sleep(Duration::from_millis(20));
        }
    }

    /// Runs Debian's tool.
    pub(crate) fn theirs(&self, words: &[&str]) -> Said {
        said(self.command(words[0]).args(&words[1..]).output().unwrap())
    }

    /// Runs ours.
    pub(crate) fn ours(&self, words: &[&str]) -> Said {
        said(self.our_command(words).output().unwrap())
    }

    /// The same of both, with `input` on standard input.
    pub(crate) fn both_with_input(&self, words: &[&str], input: &[u8]) -> (Said, Said) {
        self.write_bytes("stdin", input);
        let open = || Stdio::from(fs::File::open(self.path("stdin")).unwrap());
        let theirs = self.command(words[0]).args(&words[1..]).stdin(open()).output().unwrap();
        let ours = self.our_command(words).stdin(open()).output().unwrap();
        (said(theirs), said(ours))
    }

    /// Asserts that both answer alike.
    pub(crate) fn compare(&self, alike: Alike, words: &[&str]) {
        let (mut theirs, mut ours) = (self.theirs(words), self.ours(words));
        match alike {
            Alike::Exactly => {}
            Alike::Lines => {
                sort_lines(&mut theirs.out);
                sort_lines(&mut ours.out);
            }
            Alike::Output | Alike::Status => {
                for said in [&mut theirs, &mut ours] {
                    sort_lines(&mut said.out);
                    assert_eq!(said.err.is_empty(), said.status == Some(0), "{words:?}: {said:?}");
                    said.err.clear();
                    if alike == Alike::Status {
                        said.out.clear();
                    }
                }
            }
        }
        assert_eq!(theirs, ours, "theirs and ours of {words:?}");
    }

    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, self.dir.path());
        }
        command
            .env("TZ", "UTC")
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn our_command(&self, words: &[&str]) -> Command {
        let tests = std::env::current_exe().unwrap();
        let target = tests.parent().and_then(Path::parent).unwrap();
        let mut command = self.command(target.join("examples/tool"));
        command.args(words);
        command
    }

    fn write_bytes(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn said(output: Output) -> Said {
    use std::os::unix::process::ExitStatusExt;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let is_log = |line: &&str| line.split('|').nth(1).is_some_and(|n| n.parse::<u32>().is_ok());
    let err = text(&output.stderr);
    let err: Vec<&str> = err.lines().filter(|line| !is_log(line)).collect();
    Said {
        status: output.status.code().or(output.status.signal().map(|s| 128 + s)),
        out: text(&output.stdout),
        err: err.join("\n"),
    }
}

fn sort_lines(text: &mut String) {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    *text = lines.join("\n");
}
