//! `oxvs tcpdump`: shows what ports of the switch receive and send.
//!
//! The switch copies packets to this program while it is connected, and stops when it goes away.
//! They go as pcapng (the IETF's draft-ietf-opsawg-pcapng) to a file, to standard output, or to the
//! program `tcpdump`, which prints them. A packet that the switch drops has a comment with the
//! cause.

mod file;

use crate::common::{Failure, finish, print, run};
use file::File;
use mgmt::capture::{MOST, Packet, Record};
use mgmt::cli::{COMMON, Item, Opt, Order, Parser};
use mgmt::{daemon, os_text, unixctl};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

const PROGRAM: &str = "oxvs tcpdump";

/// How long the switch may take for the last records.
const PATIENCE: Duration = Duration::from_secs(5);

const OPTIONS: &[Opt] = &[
    Opt::value("bridge", None),
    Opt::value("interface", Some('i')),
    Opt::value("write", Some('w')),
    Opt::value("count", Some('c')),
    Opt::value("snapshot-length", Some('s')),
    Opt::value("direction", Some('Q')),
    Opt::value("target", Some('t')),
];

/// Runs the tool with `args`, which do not hold its name.
pub fn main<I>(args: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    telemetry::vlog::init("oxvs-tcpdump");
    let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    finish(PROGRAM, execute(&args))
}

/// What the command line asks for.
#[derive(Default)]
struct Wanted {
    bridge: Option<String>,
    ports: Vec<String>,
    flow: Vec<String>,
    write: Option<String>,
    count: Option<u64>,
    snaplen: Option<u32>,
    direction: Option<String>,
    target: String,
    /// For the program `tcpdump`.
    printer: Vec<OsString>,
}

fn execute(args: &[OsString]) -> Result<(), Failure> {
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let mut wanted = Wanted {
        target: "ovs-vswitchd".to_owned(),
        printer: args.get(end + 1..).unwrap_or_default().to_vec(),
        ..Wanted::default()
    };
    let mut parser = Parser::new(
        args[..end].to_vec(),
        vec![OPTIONS, daemon::LOG_OPTIONS, COMMON],
        Order::Mixed,
    );
    let mut words = Vec::new();
    while let Some(item) = parser.next()? {
        match item {
            Item::Opt("bridge", value) => wanted.bridge = value,
            Item::Opt("interface", value) => wanted.ports.extend(value),
            Item::Opt("write", value) => wanted.write = value,
            Item::Opt("direction", value) => wanted.direction = value,
            Item::Opt("target", value) => wanted.target = value.unwrap_or_default(),
            Item::Opt("count", value) => wanted.count = Some(number("count", value.as_deref(), 1, u64::MAX)?),
            Item::Opt("snapshot-length", value) => {
                wanted.snaplen = Some(number("snapshot-length", value.as_deref(), 14, 65535)? as u32);
            }
            Item::Opt("help", _) => return print(HELP),
            Item::Opt("version", _) => return print(&format!("{}\n", telemetry::version::text(PROGRAM))),
            Item::Opt(name, value) => _ = daemon::accept_tool_log("oxvs-tcpdump", name, value.as_deref())?,
            Item::Arg(word) => words.push(word),
        }
    }
    let mut words = words.into_iter();
    if wanted.bridge.is_none() && wanted.ports.is_empty() {
        wanted.ports.extend(words.next());
    }
    if wanted.bridge.is_none() && wanted.ports.is_empty() {
        return Err(Failure::new(
            "name a port, or a bridge with --bridge (--help has examples)",
        ));
    }
    wanted.flow = words.collect();
    run(None, capture(&wanted))
}

fn number(name: &str, value: Option<&str>, least: u64, most: u64) -> Result<u64, Failure> {
    let value = value.unwrap_or_default();
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| Failure::new(format!("--{name} {value}: a number from {least} to {most} is needed")))
}

async fn capture(wanted: &Wanted) -> Result<(), Failure> {
    let path = unixctl::target_path(&wanted.target).map_err(|error| Failure::new(error.to_string()))?;
    let path = path.with_extension("capture");
    let (connection, interfaces) = open(&path, wanted).await?;
    let mut output = Output::open(wanted)?;
    let file = File::new(output.writer()?, &interfaces, wanted.snaplen);
    let mut file = file.map_err(|error| Failure::new(format!("cannot write the capture: {error}")))?;
    let mut seen = Seen::default();
    let ended = follow(connection, wanted.count, &mut file, &mut seen).await;
    let ended = ended.map_err(|error| match error {
        Broken::Ended => Failure::new("the switch has ended"),
        Broken::Version => Failure::new("the switch speaks another version of captures"),
        Broken::Io(error) => Failure::new(format!("{}: {}", path.display(), os_text(&error))),
    });
    let _ = file.end(&seen.causes(), seen.lost());
    drop(file);
    output.close();
    eprintln!("{}", seen.summary());
    ended
}

/// Writes packets until a signal comes, `count` packets are written, or nobody reads the output.
/// The tool then closes its half of the connection, which the switch answers with the rest and a
/// last status.
async fn follow(
    mut connection: Connection,
    count: Option<u64>,
    file: &mut File,
    seen: &mut Seen,
) -> Result<(), Broken> {
    let mut buffer = Vec::new();
    let mut enough = false;
    while connection.next(&mut buffer).await? {
        let written = match Record::read(&buffer).ok_or(Broken::Version)? {
            Record::Packet(_) if enough => Ok(()),
            Record::Packet(packet) => {
                seen.note(&packet);
                file.packet(&packet)
            }
            Record::Status(text) => {
                seen.status(text);
                Ok(())
            }
        };
        let written = match connection.reader.buffer().is_empty() {
            true => written.and_then(|()| file.flush()),
            false => written,
        };
        // The reader has what it wants, as `head` has.
        if !enough && (written.is_err() || count.is_some_and(|count| seen.packets >= count)) {
            enough = true;
            connection.end().await;
        }
    }
    Ok(())
}

/// The connection to the switch, which a signal ends.
struct Connection {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    interrupted: Signal,
    terminated: Signal,
    /// After the end of this half: when the tool no longer waits for the end of the other.
    deadline: Option<Instant>,
}

/// Why a capture ends before its user ends it.
enum Broken {
    Ended,
    Version,
    Io(io::Error),
}

impl Connection {
    /// Reads a record; returns false after the last one.
    async fn next(&mut self, buffer: &mut Vec<u8>) -> Result<bool, Broken> {
        // A signal does not cancel the reading, which may have the first half of a record.
        let mut reading = pin!(read_record(&mut self.reader, buffer));
        let record = loop {
            tokio::select! {
                biased;
                Some(()) = self.interrupted.recv() => {}
                Some(()) = self.terminated.recv() => {}
                () = until(self.deadline) => return Ok(false),
                record = &mut reading => break record,
            }
            // Who sends a second signal does not want to wait.
            if self.deadline.is_some() {
                return Ok(false);
            }
            self.deadline = Some(end(&mut self.writer).await);
        };
        match record {
            Ok(()) => Ok(true),
            Err(_) if self.deadline.is_some() => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Broken::Ended),
            Err(error) => Err(Broken::Io(error)),
        }
    }

    /// Asks the switch for the last records.
    async fn end(&mut self) {
        if self.deadline.is_none() {
            self.deadline = Some(end(&mut self.writer).await);
        }
    }
}

/// Closes a connection's writing half. Returns when the switch should have closed the other.
async fn end(writer: &mut OwnedWriteHalf) -> Instant {
    // It fails if the switch has gone, which the reading half finds out.
    let _ = writer.shutdown().await;
    Instant::now() + PATIENCE
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Connects, and asks. Returns the connection, which has records now, and the captured interfaces.
async fn open(path: &Path, wanted: &Wanted) -> Result<(Connection, Vec<(u16, String)>), Failure> {
    let failed = |error: io::Error| Failure::new(format!("cannot capture at {}: {}", path.display(), os_text(&error)));
    let stream = UnixStream::connect(path).await.map_err(failed)?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let request = json!({
        "bridge": wanted.bridge.clone().unwrap_or_default(),
        "ports": wanted.ports,
        "direction": wanted.direction.clone().unwrap_or_default(),
        "filter": wanted.flow.join(","),
        "snaplen": wanted.snaplen,
    });
    let line = format!("{request}\n");
    writer.write_all(line.as_bytes()).await.map_err(failed)?;
    let mut answer = String::new();
    reader.read_line(&mut answer).await.map_err(failed)?;
    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
    if let Some(error) = answer["error"].as_str() {
        return Err(Failure::new(error));
    }
    let interface = |value: &Value| {
        let ofport = u16::try_from(value["ofport"].as_u64()?).ok()?;
        Some((ofport, value["name"].as_str()?.to_owned()))
    };
    let interfaces = answer["interfaces"].as_array();
    let interfaces: Option<Vec<_>> = interfaces.map(|list| list.iter().filter_map(interface).collect());
    match interfaces {
        Some(interfaces) => {
            let connection = Connection {
                reader,
                writer,
                interrupted: signal(SignalKind::interrupt()).map_err(failed)?,
                terminated: signal(SignalKind::terminate()).map_err(failed)?,
                deadline: None,
            };
            Ok((connection, interfaces))
        }
        None => Err(Failure::new("the switch has ended")),
    }
}

async fn read_record(reader: &mut BufReader<OwnedReadHalf>, buffer: &mut Vec<u8>) -> io::Result<()> {
    let len = reader.read_u32_le().await?;
    let len = u32::from_ne_bytes(len.to_le_bytes()) as usize;
    if len > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    buffer.resize(len, 0);
    reader.read_exact(buffer).await.map(drop)
}

/// Where packets go.
enum Output {
    File(Option<std::fs::File>),
    Stdout,
    Printer(Child),
}

impl Output {
    fn open(wanted: &Wanted) -> Result<Output, Failure> {
        match wanted.write.as_deref() {
            Some("-") => Ok(Output::Stdout),
            Some(path) => match std::fs::File::create(path) {
                Ok(file) => Ok(Output::File(Some(file))),
                Err(error) => Err(Failure::new(format!("{path}: {}", os_text(&error)))),
            },
            None => {
                let mut printer = Command::new("tcpdump");
                printer
                    .args(["-l", "-r", "-"])
                    .args(&wanted.printer)
                    .stdin(Stdio::piped());
                let child = printer.spawn().map_err(|error| {
                    Failure::new(format!(
                        "cannot start the program tcpdump ({}); install it, or write to a file with -w",
                        os_text(&error)
                    ))
                })?;
                Ok(Output::Printer(child))
            }
        }
    }

    fn writer(&mut self) -> Result<Box<dyn io::Write>, Failure> {
        Ok(match self {
            Output::File(file) => match file.take() {
                Some(file) => Box::new(file),
                None => return Err(Failure::new("the file is open already")),
            },
            Output::Stdout => Box::new(io::stdout()),
            Output::Printer(child) => match child.stdin.take() {
                Some(stdin) => Box::new(stdin),
                None => return Err(Failure::new("the program tcpdump has no input")),
            },
        })
    }

    /// Waits until all is printed.
    fn close(&mut self) {
        if let Output::Printer(child) = self {
            // It has printed what it could.
            let _ = child.wait();
        }
    }
}

/// What a capture has seen.
#[derive(Default)]
struct Seen {
    packets: u64,
    dropped: BTreeMap<String, u64>,
    /// The counters of the first status and of the last one.
    first: Option<BTreeMap<String, u64>>,
    last: BTreeMap<String, u64>,
}

/// The name of the lost packets among the counters.
const LOST: &str = "";

impl Seen {
    fn note(&mut self, packet: &Packet<'_>) {
        self.packets += 1;
        if !packet.drop.is_empty() {
            *self.dropped.entry(packet.drop.to_owned()).or_default() += 1;
        }
    }

    fn status(&mut self, text: &str) {
        let mut words = text.split(' ');
        let count = |word: Option<&str>| word.and_then(|word| word.parse().ok()).unwrap_or_default();
        self.last = BTreeMap::from([(LOST.to_owned(), count(words.next()))]);
        while let Some(name) = words.next() {
            self.last.insert(name.to_owned(), count(words.next()));
        }
        self.first.get_or_insert_with(|| self.last.clone());
    }

    /// Packets that the capture missed.
    fn lost(&self) -> u64 {
        self.last.get(LOST).copied().unwrap_or_default()
    }

    /// What the ports dropped meanwhile, by cause.
    fn causes(&self) -> Vec<(String, u64)> {
        let first = self.first.clone().unwrap_or_default();
        let grown = |(name, count): (&String, &u64)| {
            let before = first.get(name).copied().unwrap_or_default();
            (name.clone(), count.saturating_sub(before))
        };
        let causes = self.last.iter().filter(|(name, _)| *name != LOST).map(grown);
        causes.filter(|(_, count)| *count > 0).collect()
    }

    fn summary(&self) -> String {
        let mut text = format!("{} packets captured", self.packets);
        if self.lost() > 0 {
            text += &format!(", {} not captured for lack of room", self.lost());
        }
        let causes: Vec<String> = self.causes().iter().map(|(name, n)| format!("{name} {n}")).collect();
        if !causes.is_empty() {
            text += &format!("\ndropped by the switch at these ports: {}", causes.join(", "));
        }
        let dropped: Vec<String> = self.dropped.iter().map(|(name, n)| format!("{name} {n}")).collect();
        if !dropped.is_empty() {
            text += &format!("\ncaptured packets that go nowhere: {}", dropped.join(", "));
        }
        text
    }
}

const HELP: &str = "\
oxvs tcpdump: shows what ports of the switch receive and send

  oxvs tcpdump PORT [FLOW] [OPTIONS] [-- TCPDUMP-OPTIONS]
  oxvs tcpdump --bridge BRIDGE [FLOW] [OPTIONS] [-- TCPDUMP-OPTIONS]

The switch copies packets of the ports while this program runs, also those that
it drops, and stops when the program ends, however it ends. The program tcpdump
prints them; what stands behind -- is for it.

FLOW is a flow as in ovs-ofctl(8) ('tcp,tp_dst=80'); other packets are left out.

Options:
  --bridge BRIDGE          all ports of a bridge
  -i, --interface PORT     one more port of the same bridge
  -w, --write FILE         write pcapng to a file, which is replaced, or to standard
                           output ('-'); packets that the switch drops have a
                           comment with the cause
  -c, --count N            end after N packets
  -s, --snapshot-length N  bytes of a packet at most (14 to 65535)
  -Q, --direction D        in (received by a port), out (sent by it), both
  -t, --target TARGET      pidfile name or control socket of the switch

Examples:
  oxvs tcpdump eth1
  oxvs tcpdump --bridge br0 arp
  oxvs tcpdump eth1 'ip,nw_dst=10.0.0.2' -Q in -- -e -n -v
  oxvs tcpdump eth1 -w - | wireshark -k -i -

Known flows of the ports pass through the switch's workers during a capture; the
kernel forwards them again afterwards.
";
