//! Floods of control frames at one port, as fast as the switch takes them: counters change, and the
//! offender's own port, and nothing else.

use crate::fixture::{dummy, stand_in};
use crate::snooping::igmp;
use crate::trees::bpdu;
use std::net::Ipv4Addr;
use testkit::{Packet, Vswitch, eventually, mac, pcap, skip};

const FRAMES: u32 = 100_000;

/// A bridge of dummies on a clock that stands still.
fn bridge(settings: &str, ports: &[&str]) -> Vswitch {
    let switch = dummy();
    switch.appctl(&["time/stop"]);
    switch.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=standalone {settings}"
    ));
    for port in ports {
        let pcap = switch.sandbox.arg(&format!("{port}.tx"));
        switch.vsctl(&format!(
            "add-port br0 {port} -- set interface {port} type=dummy options:tx_pcap={pcap}"
        ));
    }
    switch
}

fn receive(switch: &Vswitch, port: &str, packet: Vec<u8>) {
    switch.appctl(&["netdev-dummy/receive", port, &testkit::to_hex(&packet)]);
}

/// The file of a flood, from frames of at least 60 bytes.
fn file(switch: &Vswitch, frames: impl Iterator<Item = Vec<u8>>) -> String {
    let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0]);
    for mut frame in frames {
        frame.resize(frame.len().max(60), 0);
        file.extend([0; 8]);
        for _ in 0..2 {
            file.extend((frame.len() as u32).to_le_bytes());
        }
        file.extend(frame);
    }
    let path = switch.sandbox.arg("flood.pcap");
    std::fs::write(&path, file).unwrap();
    path
}

/// Starts the flood at the interface `x`, which the command adds, and waits for twice its frames.
fn flood(switch: &Vswitch, frames: impl Iterator<Item = Vec<u8>>, add: &str) {
    let path = file(switch, frames);
    switch.vsctl(&format!(
        "{add} -- set interface x type=pcap options:rx_pcap={path} options:infinite_rx=true"
    ));
    eventually("the flood is in", || {
        (received(switch, "x") > u64::from(2 * FRAMES)).then_some(())
    });
}

fn received(switch: &Vswitch, port: &str) -> u64 {
    let said = switch
        .tool("ovs-ofctl", &["dump-ports", "br0", port])
        .expect_ok()
        .to_owned();
    let (_, rest) = said.split_once("rx pkts=").unwrap();
    rest.split(',').next().unwrap().parse().unwrap()
}

/// Known stations of two ports reach each other while the flood goes on.
fn stations_reach_each_other(switch: &Vswitch, from: &str, to: &str) {
    for (port, src, dst) in [(to, 2, 1), (from, 1, 2)] {
        let packet = Packet::new(mac(src), mac(dst)).payload(0x88b5, b"hello").padded();
        receive(switch, port, packet.clone().bytes());
        let other = if port == to { from } else { to };
        eventually("the packet is there", || {
            let sent = pcap::frames(&switch.sandbox.path(&format!("{other}.tx")));
            sent.contains(&packet.clone().bytes()).then_some(())
        });
    }
}

/// An IGMPv3 report of a host that joins a group.
fn join(host: u32, group: Ipv4Addr) -> Vec<u8> {
    let mut body = vec![0x22, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0];
    body.extend(group.octets());
    let routers = Ipv4Addr::new(224, 0, 0, 22);
    igmp(host, Ipv4Addr::new(10, 0, 0, host as u8), routers, body).bytes()
}

#[test]
fn a_hundred_thousand_groups_cost_other_ports_no_membership() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch gives way to the flood");
    }
    let switch = bridge("mcast_snooping_enable=true", &["h1", "h2"]);
    let own = Ipv4Addr::new(239, 1, 2, 3);
    receive(&switch, "h1", join(1, own));
    let table = || switch.appctl(&["mdb/show", "br0"]);
    let is_member = || table().contains("239.1.2.3 ");
    eventually("the host is a member", || is_member().then_some(()));
    let groups = (0..FRAMES).map(|n| join(7, (u32::from(Ipv4Addr::new(239, 128, 0, 0)) + n).into()));
    flood(&switch, groups, "add-port br0 x");
    assert!(is_member());
    assert!(table().lines().count() <= 1 + 2048, "the table has its size");
    stations_reach_each_other(&switch, "h1", "h2");
    // The host leaves and joins as before.
    receive(&switch, "h2", join(2, own));
    eventually("another host is a member", || {
        (table().matches("239.1.2.3 ").count() == 2).then_some(())
    });
    let statistics = switch.appctl(&["coverage/show"]);
    assert!(statistics.contains("drop_protocol_budget"), "{statistics}");
}

#[test]
fn spoofed_roots_behind_a_root_guard_change_their_own_port_only() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has no guards");
    }
    let switch = bridge("stp_enable=true", &["p1", "p2"]);
    receive(&switch, "p1", bpdu(0x1000, mac(9)).bytes());
    let column = |port: &str, key: &str| switch.get("port", port, &format!("status:{key}"));
    eventually("the root is behind p1", || {
        (column("p1", "stp_role") == "root").then_some(())
    });
    for _ in 0..35 {
        switch.appctl(&["time/warp", "1000"]);
        // Hellos, so that the root does not age.
        receive(&switch, "p1", bpdu(0x1000, mac(9)).bytes());
    }
    for port in ["p1", "p2"] {
        switch.wait_for("port", port, "status:stp_state", |state| state == "forwarding");
    }
    let state = || {
        let ports = ["p1", "p2"].map(|port| {
            let keys = ["stp_role", "stp_state", "stp_port_id"];
            keys.map(|key| column(port, key))
        });
        (ports, switch.get("bridge", "br0", "status"))
    };
    let before = state();
    let claims = (0..FRAMES).map(|n| bpdu(0, mac(1000 + n)).bytes());
    flood(
        &switch,
        claims,
        "add-port br0 x -- set port x other_config:root-guard=true",
    );
    switch.wait_for("port", "x", "status", |status| status.contains("guard=root-guard"));
    assert_eq!(column("x", "stp_state"), "blocking");
    assert_eq!(state(), before);
    stations_reach_each_other(&switch, "p1", "p2");
    assert_eq!(state(), before);
}

/// An LACPDU of a system whose port is in sync, with all flags but "defaulted" and "expired".
fn lacpdu(system: u32, key: u16) -> Vec<u8> {
    let mut pdu = vec![1, 1, 1, 20, 0, 1];
    pdu.extend(mac(system));
    pdu.extend(key.to_be_bytes());
    pdu.extend([0, 1, 0, 1, 0x3d, 0, 0, 0, 2, 20]);
    pdu.extend([0; 18]);
    pdu.extend([3, 16]);
    pdu.resize(110, 0);
    Packet::new(mac(system), [1, 0x80, 0xc2, 0, 0, 2])
        .payload(0x8809, &pdu)
        .bytes()
}

#[test]
fn lacpdus_of_strangers_change_their_own_bond_only() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch answers each of them");
    }
    let switch = bridge("", &["h1", "h2"]);
    switch.vsctl("add-bond br0 bond1 p1 p2 lacp=active -- set interface p1 type=dummy -- set interface p2 type=dummy");
    for port in ["p1", "p2"] {
        receive(&switch, port, lacpdu(5, 7));
    }
    let shown = || switch.appctl(&["lacp/show", "bond1"]) + &switch.appctl(&["lacp/show-stats", "bond1"]);
    eventually("both members are current", || {
        (shown().matches(": current").count() == 2).then_some(())
    });
    let before = shown();
    let strangers = (0..FRAMES).map(|n| lacpdu(1000 + n, n as u16));
    flood(
        &switch,
        strangers,
        "add-bond br0 bond0 x y lacp=active -- set interface y type=dummy",
    );
    assert!(switch.appctl(&["lacp/show", "bond0"]).contains("member: x: current"));
    assert_eq!(shown(), before);
    stations_reach_each_other(&switch, "h1", "h2");
    assert_eq!(shown(), before);
    // At a port without LACP nobody listens.
    switch.vsctl("set port bond0 lacp=off");
    switch.wait_for("interface", "x", "statistics", |s| {
        s.contains("drop_reserved_multicast=")
    });
}
