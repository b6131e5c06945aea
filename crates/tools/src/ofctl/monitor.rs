//! `monitor` and `snoop`: print a switch's messages, in the foreground or as a daemon with a
//! control socket.

use super::conn::{Conn, Target, reason};
use super::names::{NAMES_IDS, Wanted};
use super::{Ctl, PROGRAM};
use crate::common::Failure;
use mgmt::vconn::{Stream, echo_reply, is_error, xid_of};
use mgmt::{daemon, os_text, unixctl};
use openflow::model::{Body, Message, PacketInFormat, StatsRequest};
use openflow::text::print::message;
use openflow::text::{Names, parse_flow_monitor_request, parse_packet_out};
use openflow::{HEADER_LEN, Version};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use tokio::sync::{mpsc, oneshot};

/// The flag of a switch configuration for packet-ins with an invalid TTL.
const INVALID_TTL: u16 = 4;

/// The versions that have it.
const LENIENT: [Version; 3] = [Version::V10, Version::V11, Version::V12];

/// The asker's own changes in full.
const OWN: u16 = 0x20;
/// Since OpenFlow 1.4: these only.
const ONLY_OWN: u16 = 0x40;

/// Messages read ahead.
const AHEAD: usize = 64;

pub(super) fn monitor(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    for word in &args[1..] {
        let known = word.starts_with(|c: char| c.is_ascii_digit())
            || matches!(word.as_str(), "invalid_ttl" | "resume")
            || word.starts_with("watch:");
        if !known {
            return Err(Failure::new(format!("{word}: unsupported \"monitor\" argument")));
        }
    }
    let mut daemon = start(ctl)?;
    let mut conn = ctl.open(target)?;
    let mut ids = 0..;
    for word in &args[1..] {
        if let Some(text) = word.strip_prefix("watch:") {
            let (mut request, usable) =
                ctl.read_with_names(target, Wanted::Both, |names| parse_flow_monitor_request(text, names))?;
            ctl.check_formats(usable)?;
            request.id = ids.next().unwrap_or_default();
            if conn.version >= Version::V14 && request.flags & OWN != 0 {
                // Open vSwitch refuses OpenFlow 1.4's flag for this, and takes the next one for it.
                request.flags ^= OWN | ONLY_OWN;
            }
            ctl.print_statistics(&mut conn, target, StatsRequest::FlowMonitor(vec![request]))?;
        } else if word == "invalid_ttl" {
            if !LENIENT
                .into_iter()
                .any(|version| ctl.options.versions.contains(version))
            {
                return Err(Failure::new(
                    "invalid_ttl requires one of the OpenFlow versions OpenFlow10, OpenFlow11, OpenFlow12 but none is \
                     enabled (use -O)",
                ));
            }
            let mut config = ctl.switch_config(&mut conn)?;
            config.flags |= INVALID_TTL;
            ctl.set_switch_config(&mut conn, target, config)?;
            if ctl.switch_config(&mut conn)?.flags & INVALID_TTL == 0 {
                return Err(Failure::new(format!(
                    "{}: setting invalid_ttl_to_controller failed (this switch probably doesn't support this flag)",
                    conn.name
                )));
            }
        } else {
            // `resume` asks for whole packets.
            let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
            let mut config = ctl.switch_config(&mut conn)?;
            config.miss_send_len = word[..digits].parse().unwrap_or(u16::MAX);
            ctl.set_switch_config(&mut conn, target, config)?;
        }
    }
    let format = |conn: &mut Conn, format| {
        let request = conn.encode(ctl.xid(), Body::SetPacketInFormat(format));
        let reply = conn.transact_noreply(ctl, &request)?;
        Ok::<_, Failure>(!reply.is_some_and(|r| is_error(&r)))
    };
    match ctl.options.packet_in_format {
        Some(wanted) => {
            if !format(&mut conn, wanted)? {
                return Err(Failure::new(format!(
                    "{}: failed to set packet in format to {}",
                    conn.name,
                    ["standard", "nxt_packet_in", "nxt_packet_in2"][wanted as usize]
                )));
            }
        }
        None => {
            if !format(&mut conn, PacketInFormat::Nxt2)? && conn.version == Version::V10 {
                format(&mut conn, PacketInFormat::Nxt)?;
            }
        }
    }
    let resume = args[1..].iter().any(|word| word == "resume");
    watch(ctl, target, conn, &mut daemon, true, resume)
}

pub(super) fn snoop(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let mut daemon = start(ctl)?;
    let conn = ctl.open_for(&args[0], Target::Snoop)?;
    watch(ctl, &args[0], conn, &mut daemon, false, false)
}

fn start(ctl: &Ctl) -> Result<daemon::Daemon, Failure> {
    daemon::start(ctl.options.daemon.clone()).map_err(|e| Failure::new(e.to_string()))
}

/// The state shared by the control socket's commands and the loop.
struct Shared {
    /// Where messages are printed.
    output: RefCell<File>,
    /// The stream to the switch.
    writer: RefCell<Stream>,
    /// Commands that wait for a barrier reply, by transaction id.
    barriers: RefCell<HashMap<u32, oneshot::Sender<()>>>,
    /// Whether reading from the switch is blocked.
    blocked: Cell<bool>,
    changed: tokio::sync::Notify,
    /// Whether the program is to end.
    exit: Cell<bool>,
    xid: Cell<u32>,
    codec: openflow::Codec,
    verbosity: u8,
    names: Option<Names>,
    /// The transaction ids of the names that Open vSwitch asks for before the first packet-out.
    unasked: Cell<u32>,
}

impl Shared {
    fn say(&self, text: &str) {
        let mut output = self.output.borrow_mut();
        // Writing to the output failed, and there is no other place to report that.
        let _ = output.write_all(text.as_bytes());
    }

    fn show(&self, data: &[u8]) {
        self.say(&message(data, self.names.as_ref(), self.verbosity));
    }

    fn send(&self, data: &[u8]) -> io::Result<()> {
        self.writer.borrow_mut().write_all(data)
    }

    fn next_xid(&self) -> u32 {
        let next = self.xid.get().wrapping_add(1);
        self.xid.set(next);
        next
    }
}

/// Prints all messages until the connection ends or the program is stopped.
fn watch(
    ctl: &Ctl,
    target: &str,
    conn: Conn,
    daemon: &mut daemon::Daemon,
    answer_echo: bool,
    resume: bool,
) -> Result<(), Failure> {
    let io = |what: &'static str| move |e: io::Error| Failure::new(format!("{what} ({})", os_text(&e)));
    let names = ctl.shown_names(target)?;
    // A daemon's standard streams are closed, but not this one.
    let output = io::stderr().as_fd().try_clone_to_owned().map_err(io("stderr"))?;
    let shared = Rc::new(Shared {
        output: RefCell::new(File::from(output)),
        writer: RefCell::new(conn.vconn.writer().map_err(io("connection"))?),
        barriers: RefCell::default(),
        blocked: Cell::new(false),
        changed: tokio::sync::Notify::new(),
        exit: Cell::new(false),
        xid: Cell::new(ctl.xid.get()),
        codec: conn.codec(),
        verbosity: ctl.options.verbosity,
        names,
        unasked: Cell::new(match ctl.options.accept_names() && !ctl.options.show_names() {
            true => NAMES_IDS,
            false => 0,
        }),
    });
    let (sender, mut messages) = mpsc::channel::<io::Result<Vec<u8>>>(AHEAD);
    std::thread::spawn(move || read_all(conn, &sender));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io("cannot start"))?;
    let local = tokio::task::LocalSet::new();
    let result = local.block_on(&runtime, async {
        let server = unixctl::Server::new(PROGRAM);
        register(&server, &shared);
        if let Some(path) = daemon.options().unixctl_path() {
            let bound = unixctl::Server::bind(&path).await;
            let listener = bound.map_err(|e| no_control_socket(&path, &e))?;
            tokio::task::spawn_local(server.serve(listener));
        }
        daemon.ready();
        let mut terminated = std::pin::pin!(daemon::terminated());
        loop {
            if shared.exit.get() {
                // The client that sent `exit` waits for its reply.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                return Ok(None);
            }
            tokio::select! {
                signal = &mut terminated => return signal.map(Some).map_err(io("signals")),
                () = shared.changed.notified() => {}
                received = messages.recv(), if !shared.blocked.get() => match received {
                    Some(Ok(data)) => {
                        if ctl.options.timestamp {
                            shared.say(&format!("{} ", telemetry::timestamp(MOMENT)));
                        }
                        heard(&shared, &data, answer_echo, resume);
                    }
                    Some(Err(e)) => return Err(Failure::new(format!("vconn_recv ({})", reason(&e)))),
                    None => return Err(Failure::new("vconn_recv (End of file)")),
                },
            }
        }
    });
    runtime.shutdown_background();
    match result? {
        Some(signal) => daemon::exit_by_signal(signal),
        None => Ok(()),
    }
}

/// Says that there is no control socket, in the words of Open vSwitch.
fn no_control_socket(path: &Path, error: &io::Error) -> Failure {
    let (path, why) = (path.display(), os_text(error));
    if error.kind() == io::ErrorKind::NotFound {
        tracing::warn!(target: "fatal_signal", "could not unlink \"{path}\" ({why})");
    }
    tracing::error!(target: "stream_unix", "{path}: binding failed: {why}");
    eprintln!("{PROGRAM}: {path}: could not initialize control socket ({why})");
    Failure::new(format!("failed to create unixctl server ({why})"))
}

fn read_all(mut conn: Conn, to: &mpsc::Sender<io::Result<Vec<u8>>>) {
    loop {
        let message = conn.vconn.recv().map(<[u8]>::to_vec);
        let ended = message.is_err();
        if to.blocking_send(message).is_err() || ended {
            return;
        }
    }
}

fn heard(shared: &Shared, data: &[u8], answer_echo: bool, resume: bool) {
    shared.say(&message(
        data,
        shared.names.as_ref(),
        shared.verbosity.saturating_add(2),
    ));
    if let Some(reply) = echo_reply(data).filter(|_| answer_echo) {
        let _ = shared.writer.borrow_mut().write_all(&reply);
    }
    if let Some(waiting) = shared.barriers.borrow_mut().remove(&xid_of(data)) {
        let _ = waiting.send(());
    }
    if resume
        && let Ok(Message {
            body: Body::PacketIn(packet),
            ..
        }) = shared.codec.decode(data)
        && !packet.continuation.is_empty()
    {
        let xid = shared.next_xid();
        let body = Body::Resume(packet);
        let _ = shared
            .writer
            .borrow_mut()
            .write_all(&shared.codec.encode(&Message { xid, body }));
    }
}

fn register(server: &unixctl::Server, shared: &Rc<Shared>) {
    let text = |e: io::Error| os_text(&e);
    let s = shared.clone();
    let exit = move |_: &[String]| {
        s.exit.set(true);
        s.changed.notify_one();
        Ok(String::new())
    };
    server.register("exit", "", 0, 0, Box::new(exit));
    let s = shared.clone();
    let send = move |args: &[String]| {
        let mut out = String::new();
        for word in args {
            let Some(data) = super::offline::bytes(word) else {
                return Err(out + "Trailing garbage in hex data");
            };
            let wrong = match data.first_chunk::<HEADER_LEN>() {
                None => Some("Message too short for OpenFlow"),
                Some([_, _, high, low, ..]) if data.len() != usize::from(u16::from_be_bytes([*high, *low])) => {
                    Some("Message size does not match length in OpenFlow header")
                }
                Some(_) => None,
            };
            if let Some(wrong) = wrong {
                return Err(out + wrong);
            }
            s.say("send: ");
            s.show(&data);
            match s.send(&data) {
                Ok(()) => out += "sent\n",
                Err(e) => out += &format!("{}\n", text(e)),
            }
        }
        Ok(out)
    };
    server.register("ofctl/send", "OFMSG...", 1, usize::MAX, Box::new(send));
    let s = shared.clone();
    let packet_out = move |args: &[String]| {
        let none = Names::default();
        let names = s.names.as_ref().unwrap_or(&none);
        s.xid.set(s.xid.get().wrapping_add(s.unasked.take()));
        let (packet, _) = parse_packet_out(&args[0], names).map_err(|e| e.to_string())?;
        let xid = s.next_xid();
        let body = Body::PacketOut(Box::new(packet));
        let data = s.codec.encode(&Message { xid, body });
        s.show(&data);
        s.send(&data).map_err(text)?;
        Ok(String::new())
    };
    server.register(
        "ofctl/packet-out",
        "\"in_port=<port> packet=<hex data> actions=...\"",
        1,
        1,
        Box::new(packet_out),
    );
    let s = shared.clone();
    let barrier = move |_: &[String]| {
        let xid = s.next_xid();
        let (sender, answered) = oneshot::channel();
        s.barriers.borrow_mut().insert(xid, sender);
        let body = Body::BarrierRequest;
        let sent = s.send(&s.codec.encode(&Message { xid, body })).map_err(text);
        Box::pin(async move {
            sent?;
            answered.await.map_err(|_| "connection closed".to_owned())?;
            Ok(String::new())
        }) as std::pin::Pin<Box<dyn Future<Output = Result<String, String>>>>
    };
    server.register_deferred("ofctl/barrier", "", 0, 0, Box::new(barrier));
    let s = shared.clone();
    let output = move |args: &[String]| {
        let file = File::options().create(true).append(true).open(&args[0]).map_err(text)?;
        *s.output.borrow_mut() = file;
        Ok(String::new())
    };
    server.register("ofctl/set-output-file", "FILE", 1, 1, Box::new(output));
    for (name, blocked) in [("ofctl/block", true), ("ofctl/unblock", false)] {
        let s = shared.clone();
        let block = move |_: &[String]| {
            let said = match (s.blocked.replace(blocked) == blocked, blocked) {
                (false, _) => "",
                (true, true) => "already blocking",
                (true, false) => "already unblocked",
            };
            s.changed.notify_one();
            Ok(said.to_owned())
        };
        server.register(name, "", 0, 0, Box::new(block));
    }
}

/// The format of timestamps, in UTC.
pub(super) const MOMENT: &str = "%Y-%m-%d %H:%M:%S.###";
