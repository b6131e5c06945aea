//! Delays while a switch is busy with rules: of pings through it, and of a client of its database.

use crate::system::{ADDRESSES, Kind, System};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The database requests, in turn: a query and a change.
const ASKED: [&str; 2] = [
    r#"{"op":"select","table":"Bridge","where":[],"columns":["name"]}"#,
    r#"{"op":"mutate","table":"Open_vSwitch","where":[],"mutations":[["external_ids","insert",["map",[["bench","1"]]]]]},
       {"op":"mutate","table":"Open_vSwitch","where":[],"mutations":[["external_ids","delete",["set",["bench"]]]]}"#,
];

/// Round trips in milliseconds.
#[derive(Clone, Default)]
pub(crate) struct Noticed {
    /// Of pings.
    pub(crate) pings: Vec<f64>,
    /// Pings without answer.
    pub(crate) lost: f64,
    /// Of the database's answers.
    pub(crate) database: Vec<f64>,
}

impl Noticed {
    /// Adds the delays of another measurement.
    pub(crate) fn extend(&mut self, other: Noticed) {
        self.pings.extend(other.pings);
        self.database.extend(other.database);
        self.lost += other.lost;
    }
}

/// A percentile; none without values.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or(f64::NAN)
}

/// Runs something and measures the delays meanwhile.
pub(crate) fn noticed<R>(system: &System, run: impl FnOnce() -> R) -> (R, Noticed) {
    let ping = Ping::start(system);
    let client = Client::start(system);
    thread::sleep(Duration::from_millis(50));
    let result = run();
    let database = client.stop();
    let (pings, lost) = ping.stop();
    let noticed = Noticed { pings, lost, database };
    (result, noticed)
}

/// Keeps the processors busy for two seconds, to measure the machine's own effect on a ping.
pub(crate) fn busy() {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut loops: Vec<Child> = (0..processors)
        .map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn())
        .collect::<Result<_, _>>()
        .expect("a shell can be started");
    thread::sleep(Duration::from_secs(2));
    for child in &mut loops {
        let _ = child.kill();
        let _ = child.wait();
    }
}

struct Ping {
    child: Child,
    output: PathBuf,
}

impl Ping {
    fn start(system: &System) -> Ping {
        let output = system.switch.sandbox.path("ping");
        let file = std::fs::File::create(&output).expect("a file in the sandbox");
        let mut words = system.hosts[0].prefix();
        let ping = ["ping", "-n", "-i", "0.005", "-W", "1", ADDRESSES[1]];
        let setpriv = ["setpriv", "--pdeathsig", "KILL", "--"];
        words.extend(setpriv.into_iter().chain(ping).map(str::to_owned));
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdout(Stdio::from(file))
            .spawn()
            .expect("ping can be started");
        Ping { child, output }
    }

    /// Round trips, and how many pings were lost.
    fn stop(mut self) -> (Vec<f64>, f64) {
        // Packets in flight have time to return.
        thread::sleep(Duration::from_millis(50));
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let _ = self.child.wait();
        let text = std::fs::read_to_string(&self.output).unwrap_or_default();
        let time = |line: &str| line.split("time=").nth(1)?.split(' ').next()?.parse().ok();
        let pings: Vec<f64> = text.lines().filter_map(time).collect();
        let sent = |line: &str| line.split(" packets transmitted").next()?.parse::<f64>().ok();
        let sent = text.lines().find_map(sent).unwrap_or(f64::NAN);
        let lost = sent - pings.len() as f64;
        (pings, lost)
    }
}

/// A client of the database with a request every 10 ms.
struct Client {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<f64>>,
}

impl Client {
    fn start(system: &System) -> Client {
        let path = system.switch.sandbox.path("db.sock");
        let mut stream = UnixStream::connect(path).expect("the database listens");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let mut times = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let asked = ASKED[times.len() % ASKED.len()];
                let request = format!(
                    r#"{{"method":"transact","params":["Open_vSwitch",{asked}],"id":{}}}"#,
                    times.len()
                );
                let began = Instant::now();
                stream.write_all(request.as_bytes()).expect("the database reads");
                answer(&mut stream);
                times.push(began.elapsed().as_secs_f64() * 1e3);
                thread::sleep(Duration::from_millis(10));
            }
            times
        });
        Client { stop, thread }
    }

    fn stop(self) -> Vec<f64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the database answers")
    }
}

/// Reads a JSON object without braces in its strings.
fn answer(stream: &mut UnixStream) {
    let (mut depth, mut buffer) = (0usize, [0; 4096]);
    loop {
        let len = stream.read(&mut buffer).expect("the database answers");
        assert!(len > 0, "the database closed the connection");
        for byte in &buffer[..len] {
            match byte {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
        }
        if depth == 0 {
            return;
        }
    }
}

/// Prints the delays during each operation, for each system.
pub(crate) fn print(kinds: &[Kind], what: &[&str], all: &[Vec<Noticed>]) {
    for (kind, noticed) in kinds.iter().zip(all) {
        println!(
            "{:<38}{:>8}{:>9}{:>9}{:>9}{:>7}{:>6}{:>15}{:>9}",
            format!("meanwhile, {} (ms)", kind.name()),
            "pings",
            "median",
            "99 %",
            "longest",
            "> 5 ms",
            "lost",
            "database 99 %",
            "longest"
        );
        for (what, noticed) in what.iter().zip(noticed) {
            let Noticed { pings, lost, database } = noticed;
            println!(
                "{what:<38}{:>8}{:>9.3}{:>9.3}{:>9.3}{:>7}{lost:>6}{:>15.2}{:>9.2}",
                pings.len(),
                percentile(pings, 50),
                percentile(pings, 99),
                percentile(pings, 100),
                pings.iter().filter(|ms| **ms > 5.0).count(),
                percentile(database, 99),
                percentile(database, 100),
            );
        }
    }
}
