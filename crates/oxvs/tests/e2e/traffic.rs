//! Real traffic between namespaces.

use crate::fixture::{in_namespace, stand_in};
use testkit::{Capture, Iperf3, Netns, Vswitch, eventually, ping, skip};

/// A switch in a namespace with a bridge and hosts at its ports.
struct Lab {
    hosts: Vec<Netns>,
    switch: Vswitch,
    ns: Netns,
}

impl Lab {
    /// A host for each of `tags` (`tag=1` or any other words after the port's name), with addresses
    /// from 10.1.0.1 upward.
    fn new(tags: &[&str]) -> Lab {
        let ns = Netns::new("sw");
        let switch = in_namespace(&ns);
        switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
        let mut hosts = Vec::new();
        for (n, tag) in tags.iter().enumerate() {
            let port = format!("h{}", n + 1);
            hosts.push(Vswitch::host(&ns, &port, &port, &format!("{}/24", address(n))));
            switch.vsctl(&format!("add-port br0 {port} {tag}"));
        }
        Lab { hosts, switch, ns }
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        // After a failed ARP request a host repeats it only after a second.
        self.hosts[from].ip("neigh flush all");
        ping(&self.hosts[from], &address(to), 2).received > 0
    }

    /// [`reaches`](Lab::reaches) right after a change: at once with our switch, in its own time
    /// with Open vSwitch.
    fn reaches_now(&self, from: usize, to: usize) -> bool {
        (0..if stand_in() { 5 } else { 1 }).any(|_| self.reaches(from, to))
    }
}

fn address(host: usize) -> String {
    format!("10.1.0.{}", host + 1)
}

const TOOLS: [&str; 6] = ["ip", "ping", "tcpdump", "iperf3", "ovs-vsctl", "setpriv"];

fn cannot() -> Option<String> {
    testkit::missing(true, &TOOLS)
}

#[test]
fn hosts_reach_each_other_within_their_vlan_only() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let lab = Lab::new(&["tag=1", "tag=1", "tag=2"]);
    let third = Capture::start(&lab.hosts[2], "eth0", "arp");
    let second = Capture::start(&lab.hosts[1], "eth0", "arp");
    assert!(lab.reaches(0, 1) && lab.reaches(1, 0));
    assert!(!lab.reaches(0, 2) && !lab.reaches(2, 0));
    second.wait_for("the first host's request for the third's address", |f| {
        f[38..42] == [10, 1, 0, 3]
    });
    let strangers = third.finish();
    let sender = |f: &[u8]| [f[28], f[29], f[30], f[31]];
    assert!(strangers.iter().all(|f| sender(f) == [10, 1, 0, 3]), "{strangers:?}");

    lab.switch.vsctl("set port h3 tag=1");
    assert!(
        lab.reaches_now(0, 2),
        "a changed tag is in force when ovs-vsctl returns"
    );
    lab.switch.vsctl("set port h2 tag=2");
    assert!(!lab.reaches(0, 1));
}

#[test]
fn tcp_passes_with_default_offloads_whole_and_unharmed() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let lab = Lab::new(&["", ""]);
    let capture = Capture::start(&lab.hosts[1], "eth0", "tcp and greater 3000");
    Iperf3::tcp_bytes(50_000_000).run(&lab.hosts[0], &lab.hosts[1], &address(1));
    Iperf3::tcp_bytes(50_000_000).run(&lab.hosts[1], &lab.hosts[0], &address(0));
    assert!(!capture.finish().is_empty(), "segments larger than packets cross whole");
    let udp = Iperf3 {
        bytes: 1_000_000,
        udp_rate: 50_000_000,
        ..Iperf3::default()
    };
    assert!(udp.run(&lab.hosts[0], &lab.hosts[1], &address(1)) > 0.0);
    eventually("statistics have the keys that libvirt wants, and count", || {
        let text = lab.switch.get("interface", "h1", "statistics");
        let keys = [
            "rx_bytes",
            "rx_errors",
            "rx_dropped",
            "tx_bytes",
            "tx_packets",
            "tx_errors",
            "tx_dropped",
        ];
        let counted = keys.iter().all(|key| text.contains(key)) && !text.contains("rx_packets=0");
        counted.then_some(())
    });
}

/// Two bridges joined by a veth trunk: tags are pushed and popped around kernel devices, which keep
/// them in metadata.
#[test]
fn a_trunk_between_two_bridges_carries_each_vlan_and_no_other() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let mut lab = Lab::new(&["tag=10", "tag=20", "tag=30"]);
    lab.switch.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
    lab.ns.ip("link add t0 type veth peer name t1");
    for end in ["t0", "t1"] {
        lab.ns.ip(&format!("link set {end} up"));
    }
    lab.switch
        .vsctl("add-port br0 t0 trunks=10,20 -- add-port br1 t1 vlan_mode=native-untagged tag=20 trunks=10,30");
    for (port, tag, n) in [("h4", 10, 3), ("h5", 20, 4), ("h6", 30, 5)] {
        let host = Vswitch::host(&lab.ns, port, port, &format!("{}/24", address(n)));
        lab.switch.vsctl(&format!("add-port br1 {port} tag={tag}"));
        lab.hosts.push(host);
    }
    let trunk = Capture::start(&lab.ns, "t1", "vlan 10");
    assert!(lab.reaches(0, 3), "VLAN 10 is on both ends");
    trunk.wait_for("a tagged frame on the trunk", |f| f[12..14] == [0x81, 0]);
    assert!(!lab.reaches(2, 5), "VLAN 30 is on one end only");
    assert!(
        !lab.reaches(1, 4),
        "VLAN 20 is tagged on one end and native on the other"
    );
    Iperf3::tcp_bytes(20_000_000).run(&lab.hosts[0], &lab.hosts[3], &address(3));
    lab.switch
        .vsctl("set port t1 trunks=10,20,30 -- clear port t1 tag -- clear port t1 vlan_mode");
    assert!(lab.reaches_now(1, 4));
    Iperf3::tcp_bytes(20_000_000).run(&lab.hosts[4], &lab.hosts[1], &address(1));
}

#[test]
fn the_switchs_own_interfaces_route_between_vlans() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let lab = Lab::new(&["tag=10", "tag=20"]);
    lab.switch.vsctl(
        "add-port br0 vlan10 tag=10 -- set interface vlan10 type=internal \
         -- add-port br0 vlan20 tag=20 -- set interface vlan20 type=internal mtu_request=1400",
    );
    for (vlan, host) in [(10, 0), (20, 1)] {
        let device = format!("vlan{vlan}");
        lab.ns.address(&device, &format!("10.{vlan}.0.254/24"));
        lab.ns.ip(&format!("link set {device} up"));
        let host = &lab.hosts[host];
        host.address("eth0", &format!("10.{vlan}.0.1/24"));
        host.ip(&format!("route add default via 10.{vlan}.0.254"));
    }
    lab.ns.run(&["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
    assert!(
        ping(&lab.hosts[0], "10.10.0.254", 2).received > 0,
        "the gateway answers"
    );
    assert!(ping(&lab.hosts[0], "10.20.0.1", 2).received > 0, "and routes");
    Iperf3::tcp_bytes(20_000_000).run(&lab.hosts[0], &lab.hosts[1], "10.20.0.1");
    assert_eq!(lab.switch.get("interface", "vlan20", "mtu"), "1400");
    assert!(lab.ns.ip("link show vlan20").contains("mtu 1400"));
    lab.switch.vsctl("del-port vlan20");
    eventually("the device goes with its port", || {
        (!lab.ns.ip("link show").contains("vlan20")).then_some(())
    });
}

#[test]
fn jumbo_frames_pass_where_the_devices_take_them() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let lab = Lab::new(&["", ""]);
    lab.switch
        .vsctl("set interface h1 mtu_request=9000 -- set interface h2 mtu_request=9000");
    for (n, host) in lab.hosts.iter().enumerate() {
        host.ip("link set eth0 mtu 9000");
        assert!(lab.ns.ip(&format!("link show h{}", n + 1)).contains("mtu 9000"));
    }
    lab.hosts[0].run(&["ping", "-c", "3", "-i", "0.2", "-M", "do", "-s", "8972", &address(1)]);
    Iperf3::tcp_bytes(20_000_000).run(&lab.hosts[0], &lab.hosts[1], &address(1));
}

#[test]
fn a_device_that_vanishes_and_comes_back_is_picked_up_again() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    if stand_in() {
        skip!("Open vSwitch's userspace datapath keeps the socket of the device that is gone");
    }
    let mut lab = Lab::new(&["tag=3", "tag=3"]);
    assert!(lab.reaches(0, 1));
    for _ in 0..2 {
        lab.ns.ip("link del h2");
        lab.switch
            .wait_for("interface", "h2", "ofport", |p| p == "-1" || p == "[]");
        assert!(!lab.reaches(0, 1));
        lab.hosts[1] = Vswitch::host(&lab.ns, "h2", "h2", &format!("{}/24", address(1)));
        lab.switch.wait_for("interface", "h2", "link_state", |s| s == "up");
        assert!(lab.reaches(0, 1));
    }
    assert_eq!(lab.switch.get("interface", "h2", "error"), "[]");
    assert!(ping(&lab.hosts[0], &address(1), 5).received >= 4);
}

#[test]
fn the_hosts_stack_does_not_see_a_ports_packets() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let lab = Lab::new(&["", ""]);
    // The port itself has an address, which must not answer ARP.
    lab.ns.address("h1", "10.1.0.99/24");
    assert!(lab.reaches(0, 1));
    let answers = ping(&lab.hosts[0], "10.1.0.99", 3).received;
    assert!(
        stand_in() || answers == 0,
        "the port's own address answered {answers} times"
    );
    lab.switch.vsctl("del-port h1");
    eventually("the device is the host's again", || {
        (ping(&lab.hosts[0], "10.1.0.99", 1).received > 0).then_some(())
    });
}
