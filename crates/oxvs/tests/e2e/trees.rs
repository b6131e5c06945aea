//! Spanning trees on rings of real links, with Debian's Open vSwitch and the kernel's bridge in
//! them, and what guards do.

use crate::fixture::{debian_in_namespace, dummy, dummy_bridge, in_namespace, stand_in};
use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::{Capture, Netns, Packet, Vswitch, eventually, mac, pcap, ping, skip};

/// Where numbered broadcasts go.
const PORT: u16 = 5000;

/// A bridge of a ring. The first one is the root.
#[derive(Clone, Copy)]
enum Kind {
    Ours,
    Debian,
    /// The kernel's, which has STP only.
    Kernel,
}

/// Bridges in a ring, each in a namespace with a host of its own. The device `right` of a bridge is
/// linked to `left` of the next one.
struct Ring {
    bridges: Vec<Netns>,
    hosts: Vec<Netns>,
    switches: Vec<Option<Vswitch>>,
}

/// Sets a flag at its end, also after a panic.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Ring {
    fn new(kinds: &[Kind], protocol: &str) -> Ring {
        let bridges: Vec<Netns> = (1..=kinds.len()).map(|n| Netns::new(&format!("sw{n}"))).collect();
        for (at, bridge) in bridges.iter().enumerate() {
            bridge.veth("right", &bridges[(at + 1) % bridges.len()], "left");
        }
        let hosts = (1..).zip(&bridges).map(|(n, bridge)| {
            let address = format!("10.1.0.{n}/24");
            Vswitch::host(bridge, &format!("h{n}"), "host", &address)
        });
        let hosts = hosts.collect();
        let kinds = kinds.iter().enumerate();
        let switches = kinds
            .map(|(at, kind)| switch(*kind, &bridges[at], at, protocol))
            .collect();
        for bridge in &bridges {
            for device in ["left", "right"] {
                bridge.ip(&format!("link set {device} up"));
            }
        }
        Ring {
            bridges,
            hosts,
            switches,
        }
    }

    /// Waits until all hosts reach each other.
    fn wait_for_pings(&self, why: &str) {
        for (at, host) in self.hosts.iter().enumerate() {
            for other in (1..=self.hosts.len()).filter(|other| *other != at + 1) {
                let address = format!("10.1.0.{other}");
                // STP takes two forward delays, and a maximum age before them.
                let mut tries = (0..60).map(|_| ping(host, &address, 2).received);
                assert!(
                    tries.any(|received| received == 2),
                    "{why}: {address} from host {}",
                    at + 1
                );
            }
        }
    }

    /// Sends numbered broadcasts while `work` runs. No host may get one of them again and again.
    fn without_loops(&self, work: impl FnOnce()) {
        let filter = format!("udp and dst port {PORT}");
        let captures: Vec<Capture> = self
            .hosts
            .iter()
            .map(|host| Capture::start(host, "eth0", &filter))
            .collect();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ended = SetOnDrop(&ended);
            scope.spawn(|| {
                self.hosts[0].enter(|| {
                    let socket = UdpSocket::bind("10.1.0.1:0").unwrap();
                    socket.set_broadcast(true).unwrap();
                    for number in 0_u32.. {
                        if ended.load(Ordering::Relaxed) {
                            break;
                        }
                        // Without a carrier there is nothing to send to.
                        let _ = socket.send_to(&number.to_be_bytes(), ("10.1.0.255", PORT));
                        std::thread::sleep(Duration::from_millis(10));
                    }
                });
            });
            work();
        });
        for (host, capture) in (1..).zip(captures) {
            let mut copies: HashMap<[u8; 4], u32> = HashMap::new();
            for frame in capture.finish() {
                if let Some(number) = frame.get(42..46) {
                    *copies.entry(number.try_into().unwrap()).or_default() += 1;
                }
            }
            // A frame that is under way when a port changes can come by two ways.
            let most = copies.values().max().copied().unwrap_or_default();
            assert!((1..=2).contains(&most), "host {host} got {most} copies of a frame");
        }
    }

    /// The ring settles, loses a link of the root, and gets it back.
    fn fail_and_recover(&self) {
        self.without_loops(|| {
            self.wait_for_pings("pings in the ring");
            self.bridges[0].ip("link set right down");
            self.wait_for_pings("pings around the lost link");
            self.bridges[0].ip("link set right up");
            self.wait_for_pings("pings with all links");
        });
    }

    /// The states of our bridges' ports in the ring.
    fn our_states(&self, column: &str, key: &str) -> Vec<String> {
        let ours = self.switches.iter().flatten();
        ours.flat_map(|switch| ["left", "right"].map(|port| switch.get("port", port, &format!("{column}:{key}"))))
            .collect()
    }
}

/// Starts a bridge with ports and a spanning tree with short timers.
fn switch(kind: Kind, ns: &Netns, at: usize, protocol: &str) -> Option<Vswitch> {
    let priority = at * 4096;
    // Debian's release takes the hello time in ms.
    let (switch, hello) = match kind {
        Kind::Ours => (in_namespace(ns), 1),
        Kind::Debian => (debian_in_namespace(ns), 1000),
        Kind::Kernel => {
            ns.ip(&format!(
                "link add br0 type bridge stp_state 1 forward_delay 400 hello_time 100 max_age 600 priority {priority}"
            ));
            for device in ["host", "left", "right"] {
                ns.ip(&format!("link set {device} master br0"));
            }
            ns.ip("link set br0 up");
            return None;
        }
    };
    let settings = match protocol {
        "stp" => format!("stp-hello-time={hello} other_config:stp-max-age=6 other_config:stp-forward-delay=4"),
        _ => "rstp-max-age=6 other_config:rstp-forward-delay=4".to_owned(),
    };
    switch.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath_type=netdev {protocol}_enable=true \
         other_config:{protocol}-priority={priority} other_config:{settings} \
         -- add-port br0 host -- add-port br0 left -- add-port br0 right"
    ));
    Some(switch)
}

macro_rules! needs {
    () => {
        skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    };
}

#[test]
fn a_ring_with_stp_of_open_vswitch_and_the_kernel_never_loops_and_recovers() {
    skip!(unless long);
    needs!();
    let ring = Ring::new(&[Kind::Ours, Kind::Debian, Kind::Kernel, Kind::Ours], "stp");
    ring.fail_and_recover();
    // The root has the priority 0.
    for switch in ring.switches.iter().flatten() {
        let root = switch.get("bridge", "br0", "status:stp_designated_root");
        assert!(root.contains("0000."), "{root}");
    }
    if !stand_in() {
        let states = ring.our_states("status", "stp_state");
        assert!(states.iter().all(|state| state != "disabled"), "{states:?}");
    }
}

#[test]
fn a_ring_with_rstp_of_open_vswitch_never_loops_and_recovers() {
    needs!();
    let ring = Ring::new(&[Kind::Ours, Kind::Debian, Kind::Ours, Kind::Debian], "rstp");
    ring.fail_and_recover();
    eventually("one port discards", || {
        let states = ring.our_states("rstp_status", "rstp_port_state");
        let discarding = states.iter().filter(|state| *state == "Discarding");
        (discarding.count() == 1).then_some(())
    });
}

#[test]
fn bridges_with_rstp_speak_stp_to_the_kernel() {
    skip!(unless long);
    needs!();
    let ring = Ring::new(&[Kind::Ours, Kind::Kernel, Kind::Ours], "rstp");
    ring.fail_and_recover();
}

/// A bridge of dummies with a spanning tree on virtual time.
fn dummies(protocol: &str, ports: &[&str]) -> Vswitch {
    let switch = dummy();
    switch.appctl(&["time/stop"]);
    switch.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath_type=dummy {protocol}_enable=true"
    ));
    for (number, port) in (1..).zip(ports) {
        let pcap = switch.sandbox.arg(&format!("{port}.tx"));
        switch.vsctl(&format!(
            "add-port br0 {port} -- set interface {port} type=dummy ofport_request={number} options:tx_pcap={pcap}"
        ));
    }
    switch
}

fn receive(switch: &Vswitch, port: &str, packet: &Packet) {
    switch.appctl(&["netdev-dummy/receive", port, &packet.hex()]);
}

/// A Configuration BPDU of a bridge with this priority and address, which is the root.
pub(crate) fn bpdu(priority: u16, address: [u8; 6]) -> Packet {
    let mut id = priority.to_be_bytes().to_vec();
    id.extend(address);
    let mut payload = vec![0x42, 0x42, 3, 0, 0, 0, 0, 0];
    payload.extend(&id);
    payload.extend([0; 4]);
    payload.extend(&id);
    // Port, age, and the timers 20 s, 2 s and 15 s.
    payload.extend([0x80, 1, 0, 0, 20, 0, 2, 0, 15, 0]);
    let length = payload.len() as u16;
    Packet::new(address, [1, 0x80, 0xc2, 0, 0, 0])
        .payload(length, &payload)
        .padded()
}

fn state_of(switch: &Vswitch, port: &str, state: &str) {
    switch.wait_for("port", port, "status", |status| {
        status.contains(&format!("stp_state={state}"))
    });
}

#[test]
fn a_new_port_forwards_nothing_until_the_tree_opens_it() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "setpriv");
    let switch = dummies("stp", &["p1", "p2"]);
    let broadcast = Packet::new(mac(1), [0xff; 6]).payload(0x88b5, b"hello").padded();
    receive(&switch, "p1", &broadcast);
    switch.tool("ovs-ofctl", &["add-flow", "br0", "in_port=1,actions=2"]);
    receive(&switch, "p1", &broadcast);
    if !stand_in() {
        eventually("both are counted", || {
            let statistics = switch.get("interface", "p1", "statistics");
            statistics.contains("drop_blocked=2").then_some(())
        });
    }
    let sent = || pcap::frames(&switch.sandbox.path("p2.tx"));
    let bytes = broadcast.clone().bytes();
    assert!(!sent().contains(&bytes));
    for _ in 0..35 {
        switch.appctl(&["time/warp", "1000"]);
    }
    state_of(&switch, "p2", "forwarding");
    receive(&switch, "p1", &broadcast);
    eventually("the frame leaves", || sent().contains(&bytes).then_some(()));
    // BPDUs are not forwarded.
    receive(&switch, "p1", &bpdu(0xf000, mac(9)));
    receive(&switch, "p1", &broadcast);
    eventually("the next frame leaves", || {
        (sent().iter().filter(|frame| **frame == bytes).count() == 2).then_some(())
    });
    assert!(!sent().contains(&bpdu(0xf000, mac(9)).bytes()));
}

#[test]
fn bpdu_guard_disables_a_port_until_its_link_goes_down() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has no guards");
    }
    let switch = dummies("stp", &["p1", "p2"]);
    switch.vsctl("set port p1 other_config:bpdu-guard=true");
    receive(&switch, "p1", &bpdu(0xf000, mac(9)));
    state_of(&switch, "p1", "disabled");
    assert!(switch.get("port", "p1", "status").contains("guard=bpdu-guard"));
    switch.appctl(&["netdev-dummy/set-admin-state", "p1", "down"]);
    switch.wait_for("port", "p1", "status", |status| !status.contains("guard"));
    switch.appctl(&["netdev-dummy/set-admin-state", "p1", "up"]);
    state_of(&switch, "p1", "listening");
}

#[test]
fn root_guard_and_allowed_roots_block_a_port_while_claims_come() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has no guards");
    }
    let switch = dummies("stp", &["p1", "p2"]);
    switch
        .vsctl("set port p1 other_config:root-guard=true -- set port p2 other_config:allowed-roots=02:00:00:00:00:07");
    for (port, guard) in [("p1", "root-guard"), ("p2", "allowed-roots")] {
        receive(&switch, port, &bpdu(0, mac(9)));
        state_of(&switch, port, "blocking");
        assert!(switch.get("port", port, "status").contains(&format!("guard={guard}")));
    }
    let own = switch.get("bridge", "br0", "status:stp_bridge_id");
    assert_eq!(switch.get("bridge", "br0", "status:stp_designated_root"), own);
    for _ in 0..25 {
        switch.appctl(&["time/warp", "1000"]);
    }
    for port in ["p1", "p2"] {
        switch.wait_for("port", port, "status", |status| {
            !status.contains("guard") && status.contains("stp_role=designated")
        });
    }
    // The root that the key names is taken.
    receive(&switch, "p2", &bpdu(0, [2, 0, 0, 0, 0, 7]));
    switch.wait_for("port", "p2", "status", |status| status.contains("stp_role=root"));
}

#[test]
fn a_bpdu_filter_neither_sends_nor_takes_bpdus() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has no filter");
    }
    let switch = dummy();
    switch.appctl(&["time/stop"]);
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    switch.vsctl("set port p1 other_config:bpdu-filter=true -- set bridge br0 rstp_enable=true");
    for _ in 0..10 {
        switch.appctl(&["time/warp", "1000"]);
    }
    let sent = |port: &str| pcap::frames(&switch.sandbox.path(&format!("{port}.tx"))).len();
    eventually("BPDUs leave by the other port", || (sent("p2") > 0).then_some(()));
    assert_eq!(sent("p1"), 0);
    receive(&switch, "p1", &bpdu(0, mac(9)));
    switch.wait_for("port", "p1", "rstp_statistics", |statistics| {
        statistics.contains("rstp_filtered_count=1")
    });
    let root = switch.get("bridge", "br0", "rstp_status:rstp_root_id");
    assert_eq!(root, switch.get("bridge", "br0", "rstp_status:rstp_bridge_id"));
}

#[test]
fn a_ring_of_patches_carries_each_packet_once() {
    skip!(unless "ovs-vsctl", "setpriv");
    for protocol in ["stp", "rstp"] {
        let switch = dummy();
        switch.appctl(&["time/stop"]);
        for n in 1..=3 {
            let (next, pcap) = (n % 3 + 1, switch.sandbox.arg(&format!("h{n}.tx")));
            switch.vsctl(&format!(
                "add-br br{n} -- set bridge br{n} datapath_type=dummy {protocol}_enable=true \
                 other_config:hwaddr=00:00:00:00:00:0{n} \
                 -- add-port br{n} h{n} -- set interface h{n} type=dummy options:tx_pcap={pcap} \
                 -- add-port br{n} a{n} -- set interface a{n} type=patch options:peer=b{next} \
                 -- add-port br{n} b{n} -- set interface b{n} type=patch options:peer=a{}",
                (n + 1) % 3 + 1
            ));
        }
        for _ in 0..60 {
            switch.appctl(&["time/warp", "1000"]);
        }
        let blocked = |switch: &Vswitch| {
            let shown: Vec<String> = (1..=3)
                .map(|n| switch.appctl(&[&format!("{protocol}/show"), &format!("br{n}")]))
                .collect();
            let lines = shown.iter().flat_map(|text| text.lines());
            lines.filter(|line| line.to_lowercase().contains(" alternate ")).count()
        };
        eventually("one end of a patch is blocked", || {
            switch.appctl(&["time/warp", "1000"]);
            (blocked(&switch) == 1).then_some(())
        });
        let sent = |n: u32, packet: &Packet| {
            let frames = pcap::frames(&switch.sandbox.path(&format!("h{n}.tx")));
            frames.iter().filter(|frame| **frame == packet.clone().bytes()).count()
        };
        let broadcast = |n: u32| Packet::new(mac(n), [0xff; 6]).payload(0x88b5, b"hello").padded();
        for n in 1..=3 {
            receive(&switch, &format!("h{n}"), &broadcast(n));
        }
        eventually("all hosts have all packets", || {
            let arrived = |n, to| n == to || sent(to, &broadcast(n)) == 1;
            (1..=3).all(|n| (1..=3).all(|to| arrived(n, to))).then_some(())
        });
        for n in 1..=3 {
            assert_eq!(sent(n, &broadcast(n)), 0, "nothing comes back");
        }
        // The way to the root fails, and the blocked end takes its place.
        switch.vsctl("del-port br2 b2");
        eventually("the detour forwards", || {
            switch.appctl(&["time/warp", "1000"]);
            (blocked(&switch) == 0).then_some(())
        });
        for _ in 0..40 {
            switch.appctl(&["time/warp", "1000"]);
        }
        let again = Packet::new(mac(2), [0xff; 6]).payload(0x88b5, b"again").padded();
        receive(&switch, "h2", &again);
        eventually("the packet takes the detour", || {
            (sent(1, &again) == 1 && sent(3, &again) == 1).then_some(())
        });
    }
}
