//! A server in a process of its own, and a client that speaks bytes.
#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) const SCHEMA: &str = r#"{"name": "D", "version": "1.0.0", "tables": {
    "T": {"isRoot": true, "columns": {"name": {"type": "string"}, "n": {"type": "integer"}}, "indexes": [["name"]]}}}"#;

/// The directory of the test program's own temporary files, removed with it.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("oxvs-").tempdir().unwrap()
}

/// An empty database in `dir`.
pub(crate) fn database(dir: &Path) -> PathBuf {
    let file = dir.join("d.db");
    let schema = ovsdb::DatabaseSchema::from_text(SCHEMA).unwrap();
    fs::write(&file, ovsdb::log::schema_record(&schema)).unwrap();
    file
}

/// The server's program.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().unwrap().parent().unwrap();
    target.join("examples/ovsdb-server")
}

/// A running server, killed when dropped.
pub(crate) struct Server {
    pub(crate) child: Running,
    pub(crate) dir: PathBuf,
}

impl Server {
    pub(crate) fn start(dir: &Path, file: &Path, more: &[&str]) -> Server {
        let child = Command::new(program())
            .arg(file)
            .arg(format!("--remote=punix:{}", dir.join("sock").display()))
            .arg(format!("--unixctl={}", dir.join("ctl").display()))
            .arg(format!("--log-file={}", dir.join("log").display()))
            .args(["-vconsole:off", "-vsyslog:off"])
            .args(more)
            .env("OVS_RUNDIR", dir)
            .env("OVS_LOGDIR", dir)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server {
            child: Running(child),
            dir: dir.to_owned(),
        };
        server.connect();
        server
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("sock")
    }

    /// Connects, waiting for the server to begin to listen.
    pub(crate) fn connect(&self) -> Client {
        let begin = Instant::now();
        loop {
            match UnixStream::connect(self.socket()) {
                Ok(stream) => return Client::new(stream),
                Err(error) => {
                    assert!(
                        begin.elapsed() < Duration::from_secs(20),
                        "the server does not listen: {error}"
                    );
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    /// Runs a command over the control socket.
    pub(crate) fn control(&self, command: &str, args: &[&str]) -> Result<String, String> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime
            .block_on(mgmt::unixctl::call(&self.dir.join("ctl"), command, &args))
            .unwrap()
    }

    /// As [`Server::control`], for a server that may be killed meanwhile.
    pub(crate) fn try_control(&self, command: &str, args: &[&str]) -> Result<String, String> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let socket = self.dir.join("ctl");
        let call = mgmt::unixctl::call(&socket, command, &args);
        runtime
            .block_on(call)
            .map_err(|error| error.to_string())
            .and_then(|reply| reply)
    }

    /// Kills the process; [`Server::kill`] still has to be called.
    pub(crate) fn signal_kill(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Resident memory, in KiB.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A process that is killed when this is dropped.
pub(crate) struct Running(pub(crate) Child);

impl std::ops::Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = self.wait();
    }
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn new(stream: UnixStream) -> Client {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Over TCP: streams of all kinds are read and written alike.
    pub(crate) fn over_tcp(stream: std::net::TcpStream) -> Client {
        Client::new(std::os::fd::OwnedFd::from(stream).into())
    }

    /// Whether the server has closed the connection, as far as is known yet.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let mut chunk = [0; 4096];
        let closed = match self.stream.read(&mut chunk) {
            Ok(n) => {
                self.buffer.extend_from_slice(&chunk[..n]);
                n == 0
            }
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        self.stream.set_nonblocking(false).unwrap();
        closed
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// The next message; `None` when the server has closed the connection.
    pub(crate) fn recv(&mut self) -> Option<Value> {
        loop {
            let mut values = serde_json::Deserializer::from_slice(&self.buffer).into_iter();
            if let Some(Ok(value)) = values.next() {
                let end = values.byte_offset();
                self.buffer.drain(..end);
                return Some(value);
            }
            let mut chunk = vec![0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no message: {error}"),
            }
        }
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).expect("the server closed the connection")
    }

    /// As [`Client::call`]; `None` when the server has closed the connection.
    pub(crate) fn try_call(&mut self, method: &str, params: Value) -> Option<Value> {
        let request = json!({"id": "call", "method": method, "params": params}).to_string();
        self.stream.write_all(request.as_bytes()).ok()?;
        loop {
            let message = self.recv()?;
            if message["id"] == "call" {
                return Some(message);
            }
        }
    }

    pub(crate) fn transact(&mut self, op: Value) -> Value {
        self.call("transact", json!(["D", op]))
    }

    /// The names in the table, sorted.
    pub(crate) fn names(&mut self) -> Vec<String> {
        let reply = self.transact(json!({"op": "select", "table": "T", "where": [], "columns": ["name"]}));
        let rows = reply["result"][0]["rows"].as_array().unwrap().iter();
        let mut names: Vec<String> = rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }
}

pub(crate) fn insert(name: &str) -> Value {
    json!({"op": "insert", "table": "T", "row": {"name": name}})
}

/// A program of the other implementation, or the reason for doing without.
pub(crate) fn other(program: &str) -> Option<PathBuf> {
    let found = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"]
        .iter()
        .map(|dir| Path::new(dir).join(program))
        .find(|path| path.exists());
    if found.is_none() {
        println!("skipped: {program} is not installed");
    }
    found
}

/// Standard output of a program that succeeds.
pub(crate) fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A new directory in `dir`.
pub(crate) fn subdirectory(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir(&path).unwrap();
    path
}

/// Open vSwitch's server, killed when dropped.
pub(crate) struct Theirs {
    pub(crate) child: Running,
    pub(crate) dir: PathBuf,
}

impl Theirs {
    /// Serves `d.db`.
    pub(crate) fn start(program: &Path, dir: &Path, more: &[&str]) -> Theirs {
        Theirs::serve(program, dir, "d.db", more)
    }

    /// Serves `database`: a file's name in `dir`, or a relay.
    pub(crate) fn serve(program: &Path, dir: &Path, database: &str, more: &[&str]) -> Theirs {
        let child = Command::new(program)
            .arg(database)
            .current_dir(dir)
            .arg(format!("--remote=punix:{}", dir.join("sock").display()))
            .arg(format!("--unixctl={}", dir.join("ctl").display()))
            .arg(format!("--log-file={}", dir.join("log").display()))
            .args(["-vconsole:off", "-vsyslog:off"])
            .args(more)
            .env("OVS_RUNDIR", dir)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let theirs = Theirs {
            child: Running(child),
            dir: dir.to_owned(),
        };
        eventually("Open vSwitch's server listens", || {
            std::os::unix::net::UnixStream::connect(theirs.dir.join("sock")).is_ok()
        });
        theirs
    }

    pub(crate) fn connect(&self) -> Client {
        Client::new(std::os::unix::net::UnixStream::connect(self.dir.join("sock")).unwrap())
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
