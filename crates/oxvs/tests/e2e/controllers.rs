//! Bridges and their controllers, as Debian's `ovs-vsctl` configures them.

mod overheard;
pub(crate) mod secure;
mod several;

use crate::fixture::{dummy, dummy_bridge, stand_in};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};
use testkit::{ArpOp, Packet, Vswitch, eventually, mac, pcap, skip};

const TOOLS: [&str; 3] = ["ovs-ofctl", "ovs-vsctl", "setpriv"];

/// OpenFlow 1.3.
const VERSION: u8 = 4;
const HELLO: u8 = 0;
const ECHO_REQUEST: u8 = 2;
const FEATURES_REQUEST: u8 = 5;
const FEATURES_REPLY: u8 = 6;
const PACKET_IN: u8 = 10;
const FLOW_MOD: u8 = 14;
const BARRIER_REQUEST: u8 = 20;

/// A message's type and the bytes after its header.
type Heard = (u8, Vec<u8>);

/// A minimal controller: sends hello, requests features, answers echoes, and records all messages.
struct Controller {
    port: u16,
    heard: Arc<Mutex<Vec<Heard>>>,
    peer: Arc<Mutex<Option<TcpStream>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + body.len()).expect("a short message");
    let mut bytes = vec![VERSION, kind];
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 0, 0, 1]);
    bytes.extend(body);
    bytes
}

impl Controller {
    /// Listens on a port, any if it is 0.
    fn start(port: u16) -> Controller {
        let listener = eventually("the port is free", || TcpListener::bind(("127.0.0.1", port)).ok());
        let port = listener.local_addr().expect("an address").port();
        listener.set_nonblocking(true).expect("a listener");
        let (heard, peer, stop) = (Arc::default(), Arc::default(), Arc::new(AtomicBool::new(false)));
        let mut controller = Controller {
            port,
            heard,
            peer,
            stop,
            thread: None,
        };
        let (heard, peer, stop) = (
            controller.heard.clone(),
            controller.peer.clone(),
            controller.stop.clone(),
        );
        controller.thread = Some(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => converse(stream, &heard, &peer, &stop),
                    Err(_) => sleep(Duration::from_millis(10)),
                }
            }
        }));
        controller
    }

    /// Takes the body of the next received message of a kind.
    #[track_caller]
    fn hears(&self, kind: u8) -> Vec<u8> {
        eventually("the controller hears it", || {
            let mut heard = self.heard.lock().expect("what was heard");
            let at = heard.iter().position(|(what, _)| *what == kind)?;
            Some(heard.remove(at).1)
        })
    }

    fn has_heard(&self, kind: u8) -> bool {
        self.heard
            .lock()
            .expect("what was heard")
            .iter()
            .any(|(what, _)| *what == kind)
    }

    fn say(&self, bytes: &[u8]) {
        let mut peer = self.peer.lock().expect("a peer");
        peer.as_mut().expect("a switch").write_all(bytes).expect("it is sent");
    }

    /// `priority=0,actions=CONTROLLER:65535`
    fn ask_for_misses(&self) {
        let mut body = vec![0; 16];
        body.extend([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        body.extend([0xff; 8]);
        body.extend([0; 4]);
        // An empty match, and apply-actions with one output.
        body.extend([0, 1, 0, 4, 0, 0, 0, 0]);
        body.extend([0, 4, 0, 24, 0, 0, 0, 0]);
        body.extend([0, 0, 0, 16, 0xff, 0xff, 0xff, 0xfd, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
        self.say(&message(FLOW_MOD, &body));
    }
}

fn converse(mut stream: TcpStream, heard: &Mutex<Vec<Heard>>, peer: &Mutex<Option<TcpStream>>, stop: &AtomicBool) {
    stream.set_nonblocking(false).expect("a stream");
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("a stream");
    let _ = stream.write_all(&message(HELLO, &[]));
    let _ = stream.write_all(&message(FEATURES_REQUEST, &[]));
    // A peer without requests does not count as a controller.
    let _ = stream.write_all(&message(BARRIER_REQUEST, &[]));
    *peer.lock().expect("a peer") = stream.try_clone().ok();
    let (mut bytes, mut buffer) = (Vec::new(), [0; 65_536]);
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => break,
        }
        while bytes.len() >= 8 {
            let len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
            if bytes.len() < len {
                break;
            }
            let whole: Vec<u8> = bytes.drain(..len).collect();
            if whole[1] == ECHO_REQUEST {
                let mut reply = whole.clone();
                reply[1] = ECHO_REQUEST + 1;
                let _ = stream.write_all(&reply);
            }
            heard
                .lock()
                .expect("what was heard")
                .push((whole[1], whole[8..].to_vec()));
        }
    }
    peer.lock().expect("a peer").take();
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn is_connected(switch: &Vswitch) -> bool {
    switch.vsctl("--bare --columns=is_connected list controller").trim() == "true"
}

#[track_caller]
fn wait_connected(switch: &Vswitch, wanted: bool) {
    eventually("the controller's row says whether it is connected", || {
        (is_connected(switch) == wanted).then_some(())
    });
}

fn inject(switch: &Vswitch, port: &str, frame: &Packet) {
    switch.appctl(&["netdev-dummy/receive", port, &frame.hex()]);
}

fn sent(switch: &Vswitch, port: &str) -> usize {
    pcap::frames(Path::new(&switch.sandbox.arg(&format!("{port}.tx")))).len()
}

fn frame(n: u8) -> Packet {
    Packet::new(mac(1), mac(0xffff)).payload(0x88b5, &[n; 60])
}

/// Whether a frame that comes in on `p1` leaves by `p2`.
fn passes(switch: &Vswitch, frame: &Packet) -> bool {
    let before = sent(switch, "p2");
    inject(switch, "p1", frame);
    let end = Instant::now() + Duration::from_millis(500);
    while Instant::now() < end {
        if sent(switch, "p2") > before {
            return true;
        }
        sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn a_bridge_made_as_mininet_makes_it_connects_to_its_controller_and_tells_it_of_packets() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    let controller = Controller::start(0);
    let target = format!("tcp:127.0.0.1:{}", controller.port);
    switch.vsctl(&format!(
        "--id=@s1c0 create Controller target=\"{target}\" max_backoff=1000 -- --if-exists del-br s1 -- add-br s1 \
         -- set bridge s1 controller=[@s1c0] other_config:datapath-id=00000000000000a1 fail_mode=secure \
         other-config:disable-in-band=true datapath_type=dummy other-config:dp-desc=s1 \
         -- add-port s1 p1 -- set interface p1 type=dummy ofport_request=1"
    ));
    wait_connected(&switch, true);
    controller.hears(HELLO);
    let features = controller.hears(FEATURES_REPLY);
    assert_eq!(features[..8], [0, 0, 0, 0, 0, 0, 0, 0xa1]);
    assert_eq!(features[12], 254, "n_tables");
    assert_eq!(switch.vsctl("get-controller s1").trim(), target);
    assert_eq!(switch.vsctl("--bare --columns=role list controller").trim(), "other");
    let status = switch.vsctl("--bare --columns=status list controller");
    assert!(
        status.contains("state=ACTIVE") && status.contains("sec_since_connect="),
        "{status}"
    );
    assert!(switch.vsctl("show").contains("is_connected: true"));

    controller.ask_for_misses();
    let whole = eventually("the rule is there and the packet is told of", || {
        inject(&switch, "p1", &frame(1));
        sleep(Duration::from_millis(50));
        controller.has_heard(PACKET_IN).then(|| controller.hears(PACKET_IN))
    });
    let data = frame(1).bytes();
    assert!(whole.windows(data.len()).any(|part| part == data), "{whole:02x?}");

    switch.vsctl("del-controller s1");
    assert_eq!(switch.vsctl("get-controller s1").trim(), "");
    eventually("the connection ends", || {
        controller.peer.lock().expect("a peer").is_none().then_some(())
    });
}

#[test]
fn a_controller_that_goes_away_and_comes_back_is_connected_again() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let controller = Controller::start(0);
    let port = controller.port;
    switch.vsctl(&format!(
        "set-fail-mode br0 secure -- set-controller br0 tcp:127.0.0.1:{port}"
    ));
    let row = switch.vsctl("--bare --columns=_uuid list controller").trim().to_owned();
    switch.vsctl(&format!("set controller {row} max_backoff=1000 inactivity_probe=1000"));
    wait_connected(&switch, true);
    drop(controller);
    wait_connected(&switch, false);
    let status = eventually("the row says why", || {
        let status = switch.vsctl("--bare --columns=status list controller");
        status.contains("last_error=").then_some(status)
    });
    assert!(status.contains("sec_since_disconnect="), "{status}");
    let controller = Controller::start(port);
    wait_connected(&switch, true);
    controller.hears(FEATURES_REPLY);
    // The switch probes a silent peer.
    controller.hears(ECHO_REQUEST);
    assert!(is_connected(&switch));
}

#[test]
fn a_standalone_bridge_switches_by_itself_while_no_controller_answers() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    assert!(passes(&switch, &frame(1)), "a bridge without controllers switches");
    let controller = Controller::start(0);
    let port = controller.port;
    switch.vsctl(&format!(
        "--id=@c create controller target=\"tcp:127.0.0.1:{port}\" inactivity_probe=3000 max_backoff=1000 \
         -- set bridge br0 controller=[@c] fail_mode=standalone"
    ));
    wait_connected(&switch, true);
    assert!(!passes(&switch, &frame(2)), "its controller has made no rules");
    drop(controller);
    wait_connected(&switch, false);
    assert!(!passes(&switch, &frame(3)), "a controller may come back");
    let end = Instant::now() + Duration::from_secs(20);
    while !passes(&switch, &frame(4)) {
        assert!(Instant::now() < end, "nobody answers, and the bridge does not switch");
    }
    let _controller = Controller::start(port);
    wait_connected(&switch, true);
    eventually("the bridge obeys again", || (!passes(&switch, &frame(5))).then_some(()));
    switch.vsctl("del-controller br0");
    eventually("without controllers it switches", || {
        passes(&switch, &frame(6)).then_some(())
    });
}

#[test]
fn tools_reach_a_bridge_that_listens_for_service_controllers() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1"]);
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port")
        .port();
    let target = format!("ptcp:{port}:127.0.0.1");
    let socket = format!("punix:{}", switch.sandbox.arg("br0.controller"));
    switch.vsctl(&format!("set-controller br0 {target} {socket}"));
    let shown = eventually("it answers over TCP", || {
        let done = switch.tool("ovs-ofctl", &["--timeout=5", "show", &format!("tcp:127.0.0.1:{port}")]);
        done.ok().then(|| done.stdout.clone())
    });
    assert!(shown.contains("1(p1)"), "{shown}");
    let unix = format!("unix:{}", switch.sandbox.arg("br0.controller"));
    switch
        .tool("ovs-ofctl", &["--timeout=5", "-OOpenFlow14", "dump-flows", &unix])
        .expect_ok();
    // A peer that only serves does not control the bridge, so the bridge switches.
    let flows = switch
        .tool("ovs-ofctl", &["--timeout=5", "dump-flows", "br0"])
        .expect_ok();
    assert!(flows.contains("actions=NORMAL"), "{flows}");
    switch.vsctl("del-controller br0");
    eventually("it listens no more", || {
        TcpStream::connect(("127.0.0.1", port)).is_err().then_some(())
    });
}

#[test]
fn controllers_and_the_database_are_reached_under_tls() {
    if let Some(reason) = testkit::missing(
        false,
        &[
            "ovs-ofctl",
            "ovs-vsctl",
            "ovsdb-client",
            "ovs-pki",
            "openssl",
            "setpriv",
        ],
    ) {
        skip!("{reason}");
    }
    if stand_in() {
        skip!("the sandbox's ovsdb-server of Debian is not started with keys");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1"]);
    let file = |name: &str| switch.sandbox.arg(name);
    secure::make_keys(&switch);
    assert!(switch.vsctl("get-ssl").contains("sw-cert.pem"));
    let free = || {
        TcpListener::bind("127.0.0.1:0")
            .and_then(|l| l.local_addr())
            .expect("a port")
            .port()
    };
    let (of, db) = (free(), free());
    switch.vsctl(&format!(
        "set-controller br0 pssl:{of}:127.0.0.1 -- set-manager pssl:{db}:127.0.0.1"
    ));
    let keys = |name: &str, ca: &str| secure::keys(&switch, name, ca);
    let run = |program: &str, keys: &[String], words: &[&str]| {
        let all: Vec<&str> = keys.iter().map(String::as_str).chain(words.iter().copied()).collect();
        switch.tool(program, &all)
    };
    let good = keys("ctl", "switchca");
    let shown = eventually("it answers under TLS", || {
        let done = run(
            "ovs-ofctl",
            &good,
            &["--timeout=5", "show", &format!("ssl:127.0.0.1:{of}")],
        );
        done.ok().then(|| done.stdout.clone())
    });
    assert!(shown.contains("1(p1)"), "{shown}");
    let ours = [
        &[crate::fixture::binary().display().to_string(), "ofctl".to_owned()],
        &good[..],
        &["show".to_owned(), format!("ssl:127.0.0.1:{of}")],
    ]
    .concat();
    let by_ours = testkit::try_run(&ours, &switch.sandbox.env()).expect_ok();
    assert!(by_ours.contains("1(p1)"), "{by_ours}");
    let listed = run(
        "ovsdb-client",
        &good,
        &["--timeout=5", "list-dbs", &format!("ssl:127.0.0.1:{db}")],
    );
    assert!(listed.expect_ok().contains("Open_vSwitch"));
    let stranger = run(
        "ovs-ofctl",
        &keys("sw", "switchca"),
        &["--timeout=5", "show", &format!("ssl:127.0.0.1:{of}")],
    );
    assert!(!stranger.ok());
    eventually("the log names who was not let in", || {
        let log = std::fs::read_to_string(file("switch.log")).unwrap_or_default();
        log.contains("certificate is not issued by a trusted authority")
            .then_some(())
    });
    switch.vsctl("del-ssl");
    let refused = run(
        "ovs-ofctl",
        &good,
        &["--timeout=5", "show", &format!("ssl:127.0.0.1:{of}")],
    );
    assert!(!refused.ok());
}

/// An ARP request for 10.9.0.7 that 10.9.0.1 sends.
fn arp_request() -> Packet {
    let (sender, target) = ([10, 9, 0, 1].into(), [10, 9, 0, 7].into());
    Packet::new(mac(1), mac(0xffff))
        .arp(ArpOp::Request, sender, target)
        .padded()
}

#[test]
fn a_controller_reached_over_the_bridge_is_reached_whatever_the_rules_say() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    switch.vsctl("set-fail-mode br0 secure -- set-controller br0 tcp:10.9.0.1:6653");
    eventually("who asks for the controller's station is answered", || {
        passes(&switch, &arp_request()).then_some(())
    });
    assert!(!passes(&switch, &frame(1)), "nothing else passes");
    let traced = |flow: &str| switch.appctl(&["ofproto/trace", "br0", flow]);
    let answer = traced("in_port=1,udp,udp_src=67,udp_dst=68");
    assert!(
        answer.contains("outputting DHCP packet to local port for in-band control")
            && !answer.contains("Datapath actions: drop"),
        "{answer}"
    );
    let other = traced("in_port=1,udp,udp_src=67,udp_dst=69");
    assert!(other.contains("Datapath actions: drop"), "{other}");
    let flows = switch
        .tool("ovs-ofctl", &["--timeout=5", "dump-flows", "br0"])
        .expect_ok();
    assert!(!flows.contains("actions"), "{flows}");
    switch.vsctl("set bridge br0 other_config:disable-in-band=true");
    eventually("not without in-band control", || {
        (!passes(&switch, &arp_request())).then_some(())
    });
    switch.vsctl("remove bridge br0 other_config disable-in-band");
    eventually("with it again", || passes(&switch, &arp_request()).then_some(()));
    let row = switch.vsctl("--bare --columns=_uuid list controller").trim().to_owned();
    switch.vsctl(&format!("set controller {row} connection_mode=out-of-band"));
    eventually("not for one out of band", || {
        (!passes(&switch, &arp_request())).then_some(())
    });
}

#[test]
fn controllers_that_flood_stall_or_hang_up_disturb_nobody() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port")
        .port();
    switch.vsctl(&format!("set-controller br0 ptcp:{port}:127.0.0.1"));
    let connect = || eventually("it listens", || TcpStream::connect(("127.0.0.1", port)).ok());
    let before = switch.daemons.last().map_or(0, |daemon| daemon.resident_kib());
    // Requests long answers and reads none of them.
    let stop = Arc::new(AtomicBool::new(false));
    let floods: Vec<JoinHandle<()>> = (0..4)
        .map(|_| {
            let (mut stream, stop) = (connect(), stop.clone());
            stream
                .set_write_timeout(Some(Duration::from_millis(50)))
                .expect("a stream");
            std::thread::spawn(move || {
                let _ = stream.write_all(&message(HELLO, &[]));
                let asks = message(ECHO_REQUEST, &[7; 8000]).repeat(100);
                while !stop.load(Ordering::Relaxed) {
                    let _ = stream.write(&asks);
                }
            })
        })
        .collect();
    // Sends half a message and stops; disconnects in the middle of one; never sends hello; sends
    // garbage.
    let mut half = connect();
    half.write_all(&message(HELLO, &[])).expect("it is sent");
    half.write_all(&message(FLOW_MOD, &[0; 40])[..20]).expect("it is sent");
    for nonsense in [
        &message(FLOW_MOD, &[0; 40])[..20],
        &[0xff; 4096],
        &[VERSION, HELLO, 0, 4, 0, 0, 0, 0],
    ] {
        let mut stream = connect();
        let _ = stream.write_all(&message(HELLO, &[]));
        let _ = stream.write_all(nonsense);
    }
    let silent: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    sleep(Duration::from_secs(1));
    let begun = Instant::now();
    assert!(passes(&switch, &frame(1)), "packets pass");
    switch.vsctl("set bridge br0 other_config:hwaddr=02:00:00:00:00:55");
    switch
        .tool(
            "ovs-ofctl",
            &["--timeout=5", "add-flow", "br0", "priority=1,actions=NORMAL"],
        )
        .expect_ok();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    let after = switch.daemons.last().map_or(0, |daemon| daemon.resident_kib());
    assert!(after < before + 64_000, "{before} kB before, {after} kB after");
    stop.store(true, Ordering::Relaxed);
    drop(silent);
    for flood in floods {
        let _ = flood.join();
    }
    eventually("there is room for others again", || {
        let done = switch.tool("ovs-ofctl", &["--timeout=5", "probe", &format!("tcp:127.0.0.1:{port}")]);
        done.ok().then_some(())
    });
}
