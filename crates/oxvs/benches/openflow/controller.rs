//! A reactive controller's rates: packets through it and back a second, and new connections a
//! second.

use crate::system::{ADDRESSES, Kind, System};
use crate::{line, median};
use mgmt::vconn::Vconn;
use openflow::model::{Body, FlowCommand, FlowMod, Message, PacketOut, Port};
use openflow::text::{Names, parse_actions, parse_flow};
use openflow::{Codec, Version};
use std::net::UdpSocket;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::eventually;

const TIME: Duration = Duration::from_secs(3);
/// Packets in flight.
const WINDOW: u64 = 64;
/// The receiver's first port, and how many it has: connections differ in both ports, so that none
/// repeats.
const RECEIVER: u16 = 9000;
const RECEIVERS: u16 = 16;
const SENDERS: u64 = 60_000;

pub(crate) fn compare(kinds: &[Kind], rounds: usize) {
    println!("\na reactive controller, {rounds} rounds{:>41}{:>12}", "oxvs", "ovs");
    for (what, installs) in [
        ("packet-in to packet-out and out", false),
        ("new connections, a rule for each", true),
    ] {
        let mut all: Vec<Vec<f64>> = kinds.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            for turn in 0..kinds.len() {
                let at = (turn + round) % kinds.len();
                all[at].push(measure(kinds[at], installs));
            }
        }
        let figures: Vec<f64> = all.into_iter().map(median).collect();
        line(what, "1/s", &figures, true);
    }
}

/// Packets a second that reached the second host through the controller.
fn measure(kind: Kind, installs: bool) -> f64 {
    let system = System::start(kind);
    let path = system.switch.sandbox.path("controller.sock");
    let listener = UnixListener::bind(&path).expect("a socket in the sandbox");
    let ready = Arc::new(AtomicBool::new(false));
    let told = ready.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = serve(stream, installs, &told);
        }
    });
    system
        .switch
        .vsctl("set bridge br0 protocols=OpenFlow13 other_config:disable-in-band=true");
    system
        .switch
        .vsctl(&format!("set-controller br0 unix:{}", path.display()));
    eventually("the controller is connected", || {
        ready.load(Ordering::Relaxed).then_some(())
    });
    thread::sleep(Duration::from_millis(300));

    let received = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let receivers: Vec<_> = (0..RECEIVERS)
        .map(|n| {
            let socket =
                system.hosts[1].enter(|| UdpSocket::bind((ADDRESSES[1], RECEIVER + n)).expect("the receiver's port"));
            socket
                .set_read_timeout(Some(Duration::from_millis(100)))
                .expect("a time-out");
            let (stopped, count) = (stop.clone(), received.clone());
            thread::spawn(move || {
                let mut buffer = [0; 64];
                while !stopped.load(Ordering::Relaxed) {
                    if socket.recv(&mut buffer).is_ok() {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let rate = system.hosts[0].enter(|| send(&received));
    stop.store(true, Ordering::Relaxed);
    receivers.into_iter().for_each(|receiver| drop(receiver.join()));
    rate
}

/// Sends packets, each of another connection, as fast as they arrive.
fn send(received: &AtomicU64) -> f64 {
    let (began, mut sent, mut lost) = (Instant::now(), 0u64, 0u64);
    let (mut seen, mut progress) = (0, Instant::now());
    while began.elapsed() < TIME {
        let arrived = received.load(Ordering::Relaxed);
        if arrived != seen {
            (seen, progress) = (arrived, Instant::now());
        }
        if sent.saturating_sub(arrived + lost) >= WINDOW {
            if progress.elapsed() > Duration::from_millis(50) {
                // Packets still missing are lost.
                lost = sent - arrived;
                progress = Instant::now();
            }
            thread::yield_now();
            continue;
        }
        let port = 1024 + (sent % SENDERS) as u16;
        let receiver = RECEIVER + (sent / SENDERS) as u16 % RECEIVERS;
        if let Ok(socket) = UdpSocket::bind((ADDRESSES[0], port)) {
            let _ = socket.send_to(&[0; 18], (ADDRESSES[1], receiver));
        }
        sent += 1;
    }
    received.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

/// A controller that sends each packet on to port 2, with a rule for its connection if it
/// `installs` them.
fn serve(stream: UnixStream, installs: bool, ready: &AtomicBool) -> std::io::Result<()> {
    let codec = Codec::new(Version::V13);
    let (mut conn, mut out) = (Vconn::new(stream), Vec::new());
    let say = |out: &mut Vec<u8>, body: Body| {
        out.extend(codec.encode(&Message { xid: 1, body }));
    };
    conn.agree("switch", 1, [Version::V13].into_iter().collect())?;
    say(&mut out, Body::FeaturesRequest);
    say(&mut out, rule("table=0,priority=0,actions=CONTROLLER:65535"));
    let out_of_2 = parse_actions("output:2", &Names::default()).unwrap_or_default();
    loop {
        conn.send(&out)?;
        out.clear();
        let mut received = Some(conn.recv()?);
        while let Some(bytes) = received {
            let message = codec.decode(bytes);
            received = conn.recv_now()?;
            let Ok(message) = message else { continue };
            match message.body {
                Body::EchoRequest(data) => say(&mut out, Body::EchoReply(data)),
                Body::FeaturesReply(_) => ready.store(true, Ordering::Relaxed),
                Body::PacketIn(packet) => {
                    if installs && packet.data.len() >= 38 {
                        say(&mut out, rule(&connection(&packet.data)));
                    }
                    let packet = PacketOut {
                        buffer_id: None,
                        in_port: Port(1),
                        metadata: openflow::model::Match::ANY,
                        actions: out_of_2.clone(),
                        data: packet.data,
                    };
                    say(&mut out, Body::PacketOut(Box::new(packet)));
                }
                _ => {}
            }
        }
    }
}

fn rule(text: &str) -> Body {
    let rule: FlowMod = parse_flow(FlowCommand::Add, text, &Names::default()).expect("a flow of ours");
    Body::FlowMod(Box::new(rule))
}

/// A rule for a UDP packet's connection.
fn connection(packet: &[u8]) -> String {
    let dots = |at: usize| {
        packet[at..at + 4]
            .iter()
            .map(u8::to_string)
            .collect::<Vec<_>>()
            .join(".")
    };
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    format!(
        "table=0,priority=10,idle_timeout=10,in_port=1,udp,nw_src={},nw_dst={},tp_src={},tp_dst={},actions=output:2",
        dots(26),
        dots(30),
        port(34),
        port(36)
    )
}
