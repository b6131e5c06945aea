//! Transactions and monitor updates a second: this server against the `ovsdb-server` that is
//! installed, in one run.
//!
//! Both serve the same 10,000 rows from a file over a Unix socket, with group commit at their own
//! discretion; one cheap client thread drives both, round about, and the table shows the medians of
//! all rounds, with the processor time that the server spent on each.
//! `cargo bench -p ovsdb-server [-- ROUNDS [MILLISECONDS]]`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ovsdb::{DatabaseSchema, log};
use rustix::event::epoll;
use rustix::thread::{CpuSet, sched_setaffinity};

const ROWS: usize = 10_000;

/// Requests that a pipelining client has under way.
const WINDOW: usize = 64;

const SCHEMA: &str = r#"{"name": "Bench", "version": "1.0.0", "tables": {"Row": {"isRoot": true, "columns": {
    "name": {"type": "string"}, "count": {"type": "integer"},
    "options": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}}}}"#;

#[derive(Clone, Copy, PartialEq)]
enum Load {
    /// Each client has one transaction under way.
    Sequential,
    /// The same, client and server on one processor: neither waits for another one to wake up.
    Together,
    /// Each client has [`WINDOW`] transactions under way.
    Pipelined,
    /// All clients monitor the changes of one more client, [`WINDOW`] transactions at a time.
    Monitor,
}

const CELLS: [(Load, usize); 10] = [
    (Load::Sequential, 1),
    (Load::Together, 1),
    (Load::Sequential, 10),
    (Load::Sequential, 100),
    (Load::Pipelined, 1),
    (Load::Pipelined, 10),
    (Load::Pipelined, 100),
    (Load::Monitor, 1),
    (Load::Monitor, 10),
    (Load::Monitor, 100),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "serve") {
        let mut rest = args.into_iter().skip(1).map(Into::into);
        let _ = ovsdb_server::main(&mut rest);
        return;
    }
    let mut numbers = args.iter().filter_map(|arg| arg.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(5);
    let time = Duration::from_millis(numbers.next().unwrap_or(150));
    let only: Option<usize> = numbers.next().map(|cell| cell as usize);

    let dir = PathBuf::from(format!("/tmp/oxvs-bench-{}", std::process::id()));
    let mut servers = vec![Server::start(
        "oxvs",
        &std::env::current_exe().expect("our own path"),
        &["serve"],
        &dir,
    )];
    match ["/usr/sbin/ovsdb-server", "/usr/local/sbin/ovsdb-server"]
        .iter()
        .find(|path| Path::new(path).exists())
    {
        Some(theirs) => servers.push(Server::start("other", Path::new(theirs), &[], &dir)),
        None => println!("no other ovsdb-server is installed: ours alone"),
    }
    let cells: Vec<usize> = (0..CELLS.len())
        .filter(|cell| only.is_none_or(|only| only == *cell))
        .collect();
    let mut rates = vec![vec![Vec::new(); CELLS.len()]; servers.len()];
    for round in 0..rounds {
        for &cell in &cells {
            for turn in 0..servers.len() {
                let at = (turn + round as usize) % servers.len();
                let (load, clients) = CELLS[cell];
                servers[at].pin(load == Load::Together);
                let cpu = servers[at].cpu_time();
                let rate = servers[at].measure(load, clients, time);
                let cpu = (servers[at].cpu_time() - cpu).as_secs_f64() / (rate * time.as_secs_f64());
                rates[at][cell].push((rate, cpu * 1e6));
            }
        }
    }
    report(&servers, &cells, &mut rates);
    drop(servers);
    let _ = fs::remove_dir_all(&dir);
}

fn report(servers: &[Server], cells: &[usize], rates: &mut [Vec<Vec<(f64, f64)>>]) {
    let names: String = servers
        .iter()
        .map(|server| format!("{:>20} {:>8}", server.name, "CPU"))
        .collect();
    println!("{:<26} {:>7} {names}", "a second, median", "clients");
    for &cell in cells {
        let (load, clients) = CELLS[cell];
        let what = match load {
            Load::Sequential => "sequential transactions",
            Load::Together => "... on one processor",
            Load::Pipelined => "pipelined transactions",
            Load::Monitor => "monitor updates",
        };
        let mut line = format!("{what:<26} {clients:>7} ");
        let mut medians = Vec::new();
        for rates in rates.iter_mut() {
            let rates = &mut rates[cell];
            rates.sort_by(|a, b| a.0.total_cmp(&b.0));
            let median = rates[rates.len() / 2].0;
            let spread = (rates[rates.len() - 1].0 - rates[0].0) / median / 2.0 * 100.0;
            rates.sort_by(|a, b| a.1.total_cmp(&b.1));
            let cpu = rates[rates.len() / 2].1;
            line += &format!("{median:>12.0} ±{spread:>4.0} % {cpu:>5.1} µs");
            medians.push((median, cpu));
        }
        if let [ours, theirs] = medians[..] {
            line += &format!("{:>8.2}×, CPU {:.2}×", ours.0 / theirs.0, theirs.1 / ours.1);
        }
        println!("{line}");
    }
}

/// A server under load.
struct Server {
    name: &'static str,
    child: Child,
    socket: PathBuf,
    /// The `_uuid` of rows, one for each client.
    rows: Vec<String>,
}

impl Server {
    fn start(name: &'static str, program: &Path, args: &[&str], dir: &Path) -> Server {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).expect("a directory for the server");
        let schema = DatabaseSchema::from_text(SCHEMA).expect("our own schema");
        let file = dir.join("bench.db");
        fs::write(&file, log::schema_record(&schema)).expect("a database file");
        let socket = dir.join("sock");
        let child = Command::new(program)
            .args(args)
            .arg(&file)
            .arg(format!("--remote=punix:{}", socket.display()))
            .args(["--unixctl=none", "-vconsole:off", "-vsyslog:off"])
            .env("OVS_RUNDIR", &dir)
            .stdout(Stdio::null())
            .spawn()
            .expect("the server starts");
        let mut server = Server {
            name,
            child,
            socket,
            rows: Vec::new(),
        };
        server.fill();
        server
    }

    fn fill(&mut self) {
        for _ in 0..500 {
            if UnixStream::connect(&self.socket).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut client = Client::connect(&self.socket);
        for chunk in 0..ROWS / 500 {
            let inserts: Vec<String> = (0..500)
                .map(|at| {
                    let row = chunk * 500 + at;
                    format!(r#"{{"op":"insert","table":"Row","row":{{"name":"row{row}","options":["map",[["key","value{row}"]]]}}}}"#)
                })
                .collect();
            client.send(&format!(
                r#"{{"method":"transact","params":["Bench",{}],"id":1}}"#,
                inserts.join(",")
            ));
            let reply = client.one_message();
            let uuids = reply.split("[\"uuid\",\"").skip(1).map(|rest| rest[..36].to_owned());
            self.rows.extend(uuids);
        }
        assert_eq!(self.rows.len(), ROWS, "all rows are inserted");
    }

    /// Puts the server and this program on one processor, or lets them go. A client that waits for
    /// each reply never uses two at once; on two, what is measured is how long an idle processor
    /// takes to wake up.
    fn pin(&self, together: bool) {
        let mut set = CpuSet::new();
        (0..CpuSet::MAX_CPU)
            .filter(|cpu| !together || *cpu == 0)
            .for_each(|cpu| set.set(cpu));
        for pid in [rustix::process::Pid::from_child(&self.child).into(), None] {
            sched_setaffinity(pid, &set).expect("processors can be chosen");
        }
    }

    /// The processor time that the server has used so far: unlike its rates, it does not depend on
    /// what else the machine does.
    fn cpu_time(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("the server runs");
        let spent = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
        Duration::from_nanos(
            spent
                .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
                .sum(),
        )
    }

    /// Transactions, or updates, a second.
    fn measure(&self, load: Load, clients: usize, time: Duration) -> f64 {
        let requests: Vec<String> = (0..clients.max(1)).map(|at| mutate(&self.rows[at * 7])).collect();
        let mut clients: Vec<Client> = (0..clients).map(|_| Client::connect(&self.socket)).collect();
        match load {
            Load::Sequential | Load::Together => drive(&mut clients, &requests, 1, time),
            Load::Pipelined => drive(&mut clients, &requests, WINDOW, time),
            Load::Monitor => {
                for client in &mut clients {
                    let watch = r#"{"Row":[{"columns":["name","count"],"select":{"initial":false}}]}"#;
                    client.send(&format!(
                        r#"{{"method":"monitor_cond","params":["Bench","m",{watch}],"id":1}}"#
                    ));
                    client.one_message();
                }
                let requests: Vec<String> = self.rows.iter().map(|row| mutate(row)).collect();
                watch(&mut clients, &mut Client::connect(&self.socket), &requests, time)
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mutate(row: &str) -> String {
    format!(
        r#"{{"method":"transact","params":["Bench",{{"op":"mutate","table":"Row","where":[["_uuid","==",["uuid","{row}"]]],"mutations":[["count","+=",1]]}}],"id":1}}"#
    )
}

/// Keeps `window` requests of each client under way; returns replies a second.
fn drive(clients: &mut [Client], requests: &[String], window: usize, time: Duration) -> f64 {
    // A single client needs no poll.
    let poll = (clients.len() > 1).then(|| Poll::new(clients));
    let requests: Vec<String> = requests.iter().map(|request| request.repeat(window)).collect();
    for (client, request) in clients.iter_mut().zip(&requests) {
        client.send(request);
    }
    let (start, mut done) = (Instant::now(), 0);
    let mut ready = vec![0];
    while start.elapsed() < time {
        if let Some(poll) = &poll {
            poll.wait(&mut ready);
        }
        for &at in &ready {
            let replies = clients[at].read();
            done += replies;
            let length = requests[at].len() / window;
            clients[at].send(&requests[at][..length * replies]);
        }
    }
    done as f64 / start.elapsed().as_secs_f64()
}

/// Has one client change row after row, [`WINDOW`] of them before all others have heard of it;
/// returns the rows' updates a second. A server may tell of several rows in one notification.
fn watch(clients: &mut [Client], writer: &mut Client, requests: &[String], time: Duration) -> f64 {
    let poll = Poll::new(clients);
    let mut heard = vec![0; clients.len()];
    let (mut sent, mut replied) = (0, 0);
    let mut ready = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time || heard.iter().any(|&heard| heard < sent) {
        let slowest = heard.iter().min().copied().unwrap_or(0);
        let room = WINDOW.saturating_sub(sent - slowest);
        if start.elapsed() < time && room >= WINDOW / 2 {
            let batch: String = (sent..sent + room)
                .map(|at| requests[at % requests.len()].as_str())
                .collect();
            writer.send(&batch);
            sent += room;
        }
        poll.wait(&mut ready);
        for &at in &ready {
            clients[at].read();
            heard[at] += std::mem::take(&mut clients[at].deep);
        }
        while replied + WINDOW < sent {
            replied += writer.read();
        }
    }
    let taken = start.elapsed();
    while replied < sent {
        replied += writer.read();
    }
    (sent * clients.len()) as f64 / taken.as_secs_f64()
}

/// A client that only counts braces.
struct Client {
    stream: UnixStream,
    depth: usize,
    /// The objects at the fifth level so far: the rows of updates.
    deep: usize,
    buffer: Vec<u8>,
}

impl Client {
    fn connect(socket: &Path) -> Client {
        let stream = UnixStream::connect(socket).expect("the server listens");
        Client {
            stream,
            depth: 0,
            deep: 0,
            buffer: vec![0; 64 << 10],
        }
    }

    fn send(&mut self, request: &str) {
        self.stream.write_all(request.as_bytes()).expect("the server reads");
    }

    /// Reads once; the number of messages that ended.
    fn read(&mut self) -> usize {
        let n = match self.stream.read(&mut self.buffer) {
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("the server replies: {error}"),
        };
        let mut messages = 0;
        for byte in &self.buffer[..n] {
            match byte {
                b'{' => {
                    self.depth += 1;
                    self.deep += usize::from(self.depth == 5);
                }
                b'}' => {
                    self.depth -= 1;
                    messages += usize::from(self.depth == 0);
                }
                _ => {}
            }
        }
        messages
    }

    fn one_message(&mut self) -> String {
        let mut text = String::new();
        let mut depth = 0i32;
        loop {
            let n = self.stream.read(&mut self.buffer).expect("the server replies");
            assert!(n > 0, "the server closed the connection");
            for &byte in &self.buffer[..n] {
                depth += i32::from(byte == b'{') - i32::from(byte == b'}');
            }
            text += &String::from_utf8_lossy(&self.buffer[..n]);
            if depth == 0 {
                return text;
            }
        }
    }
}

/// Waits for many clients.
struct Poll(std::os::fd::OwnedFd);

impl Poll {
    fn new(clients: &[Client]) -> Poll {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
        for (at, client) in clients.iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&poll, &client.stream, data, epoll::EventFlags::IN).expect("epoll takes sockets");
        }
        Poll(poll)
    }

    fn wait(&self, ready: &mut Vec<usize>) {
        let mut events = Vec::with_capacity(128);
        epoll::wait(&self.0, rustix::buffer::spare_capacity(&mut events), None).expect("epoll waits");
        ready.clear();
        ready.extend(events.iter().map(|event: &epoll::Event| event.data.u64() as usize));
    }
}
