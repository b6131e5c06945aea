//! `oxvs tcpdump` on real devices, while traffic flows and the kernel forwards it.

use crate::captures::{Tool, is_captured};
use crate::fixture::{bridge_with_hosts, in_namespace, stand_in};
use std::net::UdpSocket;
use testkit::{Capture, Daemon, Netns, Vswitch, eventually, pcap, ping, skip, try_run};

/// A switch with two hosts. The first pings the second all the time, and sends datagrams that a
/// rule drops on demand.
struct Lab {
    switch: Vswitch,
    hosts: Vec<Netns>,
    ns: Netns,
    _pings: Daemon,
}

const DROPPED: u16 = 7;

impl Lab {
    fn new() -> Lab {
        let ns = Netns::new("sw");
        let switch = in_namespace(&ns);
        let hosts = bridge_with_hosts(&ns, &switch, 2);
        let rule = format!("priority=9,udp,tp_dst={DROPPED},actions=drop");
        switch.tool("ovs-ofctl", &["add-flow", "br0", &rule]).expect_ok();
        let mut words = hosts[0].prefix();
        words.extend(["ping", "-q", "-i", "0.01", "10.1.0.2"].map(str::to_owned));
        let pings = Daemon::start("ping", &words, &switch.sandbox);
        let lab = Lab {
            switch,
            hosts,
            ns,
            _pings: pings,
        };
        lab.wait_for_offload();
        lab
    }

    /// Waits until the kernel forwards the pings both ways.
    fn wait_for_offload(&self) {
        eventually("the pings are offloaded", || (self.offloaded() >= 2).then_some(()));
    }

    fn offloaded(&self) -> usize {
        let flows = self.switch.appctl(&["dpctl/dump-flows", "-m"]);
        flows.lines().filter(|flow| flow.contains("offloaded:")).count()
    }

    /// Starts the tool, and waits until the switch copies packets.
    fn capture(&self, args: &[&str]) -> Tool {
        let tool = Tool::start(&self.switch, args);
        eventually("the switch copies packets", || is_captured(&self.switch).then_some(()));
        tool
    }

    /// The first host sends datagrams to a port of the second.
    fn send(&self, port: u16, datagrams: u32) {
        self.hosts[0].enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for _ in 0..datagrams {
                socket.send_to(b"datagram", ("10.1.0.2", port)).unwrap();
            }
        });
    }

    /// The devices of the switch's namespace, and what its database says of the bridge.
    fn remains(&self) -> String {
        let devices = self.ns.ip("-br link show");
        let names: Vec<&str> = devices
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        let bridge = ["mirrors", "ports"].map(|column| self.switch.get("bridge", "br0", column));
        format!("{names:?} {bridge:?}")
    }
}

/// The frames in a file of the tool, as tshark decodes and rewrites it; `filter` is tshark's. Of a
/// file that a signal has cut short these are the frames before.
fn frames(tool: &Tool, filter: &str) -> Vec<Vec<u8>> {
    let plain = format!("{}.plain", tool.file);
    let words = ["tshark", "-r", &tool.file, "-Y", filter, "-F", "pcap", "-w", &plain];
    let _ = try_run(&words, &[]);
    pcap::frames(plain.as_ref())
}

/// The echo requests and replies with this identifier, in the order of their bytes.
fn of_ping(frames: Vec<Vec<u8>>, id: [u8; 2]) -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = frames.into_iter().filter(|frame| frame[38..40] == id).collect();
    frames.sort();
    frames
}

#[test]
fn a_capture_of_a_port_equals_one_at_its_host_and_ends_the_offload_of_its_flows_meanwhile() {
    skip!(unless root, "ip", "ping", "tcpdump", "tshark", "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has no such tool");
    }
    let lab = Lab::new();
    let mut tool = lab.capture(&["h1"]);
    eventually("workers have all packets of the port", || {
        (lab.offloaded() == 0).then_some(())
    });
    let host = Capture::start(&lab.hosts[0], "eth0", "icmp");
    // The two captures begin and end at different times; both have all packets of this ping.
    let done = lab.hosts[0].run(&["ping", "-n", "-q", "-e", "4711", "-c", "40", "-i", "0.005", "10.1.0.2"]);
    assert!(done.contains(" 40 received"), "{done}");
    let seen = of_ping(host.finish(), 4711u16.to_be_bytes());
    assert_eq!(seen.len(), 80);
    eventually("the packets are in the file", || {
        let of_file = of_ping(frames(&tool, "icmp"), 4711u16.to_be_bytes());
        (of_file.len() >= 80).then_some(())
    });
    let said = tool.end("-INT");
    assert!(said.contains("packets captured"), "{said}");
    assert!(!said.contains("not captured"), "{said}");
    assert_eq!(of_ping(frames(&tool, "icmp"), 4711u16.to_be_bytes()), seen);
    let rows = tool.rows(&["icmp.type", "frame.interface_name", "frame.packet_flags_direction"]);
    for (row, what) in [
        ("8 h1 0x00000001", "a request comes in"),
        ("0 h1 0x00000002", "a reply goes out"),
    ] {
        let found = rows.iter().filter(|own| *own == row).count();
        assert!(found >= 40, "{what}: {found} of {}", rows.len());
    }
    let others: Vec<_> = rows.iter().filter(|row| row.starts_with(['0', '8'])).collect();
    assert!(
        others
            .iter()
            .all(|row| ["8 h1 0x00000001", "0 h1 0x00000002"].contains(&row.as_str())),
        "{others:?}"
    );
    lab.wait_for_offload();
}

#[test]
fn a_capture_of_a_bridge_says_which_packets_are_dropped_and_what_a_policer_drops() {
    skip!(unless root, "ip", "ping", "tshark", "ovs-vsctl", "ovs-ofctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has no such tool");
    }
    let lab = Lab::new();
    let mut tool = lab.capture(&["--bridge", "br0"]);
    lab.send(DROPPED, 5);
    lab.send(9999, 3);
    eventually("the datagrams are in the file", || {
        (frames(&tool, "udp && !icmp").len() >= 5 + 2 * 3).then_some(())
    });
    // The policer takes packets before anything can copy them: only their number is known.
    lab.switch
        .vsctl("set interface h1 ingress_policing_rate=8 ingress_policing_burst=8");
    eventually("the policer drops pings", || {
        let shown = lab.switch.appctl(&["dpctl/show", "-s"]);
        shown.contains("drop_policed").then_some(())
    });
    // The tool has the switch's counters five times a second.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let said = tool.end("-INT");
    assert!(
        said.contains("captured packets that go nowhere: drop_no_destination 5"),
        "{said}"
    );
    assert!(said.contains("drop_policed "), "{said}");
    let rows = tool.rows(&[
        // Errors of ICMP have two protocols: their own, and that of the datagram that they quote.
        "ip.proto",
        "udp.dstport",
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.comment",
    ]);
    let to = |port: u16| {
        let start = format!("17 {port} ");
        let mut rows: Vec<&str> = rows.iter().filter_map(|row| row.strip_prefix(&start)).collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!(to(DROPPED), ["h1 0x00000001 drop_no_destination"; 5]);
    let (into, out) = (["h1 0x00000001"; 3], ["h2 0x00000002"; 3]);
    assert_eq!(to(9999), [into, out].concat());
    let statistics = std::fs::read(&tool.file).unwrap();
    let comment = b"dropped by the switch at the captured ports: ";
    assert!(statistics.windows(comment.len()).any(|window| window == comment));
}

#[test]
fn a_capture_with_a_flow_has_its_packets_only_and_leaves_nothing_when_it_is_killed() {
    skip!(unless root, "ip", "ping", "tshark", "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has no such tool");
    }
    let lab = Lab::new();
    let before = lab.remains();
    let mut tool = lab.capture(&["h1", "icmp,icmp_type=0"]);
    lab.send(9999, 3);
    eventually("replies are in the file", || {
        (frames(&tool, "icmp.type == 0").len() >= 20).then_some(())
    });
    tool.end("-KILL");
    assert_eq!(frames(&tool, "!(icmp.type == 0)").len(), 0);
    lab.wait_for_offload();
    eventually("nothing is copied", || (!is_captured(&lab.switch)).then_some(()));
    assert_eq!(lab.remains(), before);
    assert_eq!(ping(&lab.hosts[0], "10.1.0.2", 3).received, 3);
}
