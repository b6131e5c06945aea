//! DHCP snooping and ARP inspection, by the keys that users set.

use crate::fixture::{dummy, stand_in};
use testkit::{ArpOp, Packet, Vswitch, eventually, skip};

#[test]
fn guarded_ports_drop_what_their_hosts_must_not_send() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has no port security");
    }
    let switch = dummy();
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=dummy other_config:dhcp-snooping=true \
         other_config:arp-inspection=true \
         -- add-port br0 p1 -- set interface p1 type=dummy \
         -- set port p1 other_config:arp-inspection-addresses=10.0.0.1 \
         -- add-port br0 p2 -- set interface p2 type=dummy \
         -- set port p2 other_config:dhcp-snooping-trust=true other_config:arp-inspection-trust=true",
    );
    let offer = || {
        Packet::new(testkit::mac(1), testkit::mac(2))
            .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
            .udp(67, 68, b"offer")
    };
    let arp =
        || Packet::new(testkit::mac(1), [0xff; 6]).arp(ArpOp::Request, [10, 0, 0, 7].into(), [10, 0, 0, 9].into());
    for port in ["p1", "p2"] {
        for packet in [offer(), arp()] {
            switch.appctl(&["netdev-dummy/receive", port, &packet.hex()]);
        }
    }
    let drops = |port: &str| {
        let statistics = switch.get("interface", port, "statistics");
        let number = statistics.split("drop_port_security=").nth(1).map(str::to_owned);
        number.and_then(|rest| {
            rest.split([',', '}'])
                .next()
                .and_then(|number| number.parse::<u32>().ok())
        })
    };
    eventually("the drops are counted", || (drops("p1") == Some(2)).then_some(()));
    assert!(drops("p2").is_none_or(|drops| drops == 0));
    switch.vsctl("set port p1 other_config:arp-inspection-addresses=10.0.0.300");
    switch.wait_for("port", "p1", "status", |s| {
        s.contains("arp-inspection-addresses=10.0.0.300")
    });
    switch.vsctl("set bridge br0 other_config:dhcp-snooping=perhaps");
    switch.wait_for("bridge", "br0", "status", |s| s.contains("dhcp-snooping=perhaps"));
}

#[test]
fn sticky_addresses_survive_a_restart_and_further_ones_are_refused() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has no port security");
    }
    let mut switch = dummy();
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=dummy \
         -- add-port br0 p1 -- set interface p1 type=dummy \
         -- set port p1 other_config:mac-limit=2 other_config:mac-sticky=true \
         -- add-port br0 p2 -- set interface p2 type=dummy",
    );
    let send = |switch: &Vswitch, port: &str, station: u32| {
        let packet = Packet::new(testkit::mac(station), testkit::mac(99)).payload(0x88b5, b"data");
        switch.appctl(&["netdev-dummy/receive", port, &packet.padded().hex()]);
    };
    for station in [1, 2, 3] {
        send(&switch, "p1", station);
    }
    let stored = "\"0/02:00:00:00:00:01 0/02:00:00:00:00:02\"";
    let key = |switch: &Vswitch| switch.get("port", "p1", "other_config:mac-sticky-addresses");
    eventually("the database has the addresses", || {
        (key(&switch) == stored).then_some(())
    });
    let refused = |switch: &Vswitch, port: &str| {
        switch.wait_for("interface", port, "statistics", |s| s.contains("drop_mac_limit=1"));
    };
    refused(&switch, "p1");
    switch.kill();
    switch.boot();
    let table = eventually("the table has them again", || {
        Some(switch.appctl(&["fdb/show", "br0"])).filter(|table| table.matches("static").count() == 2)
    });
    assert!(table.contains("02:00:00:00:00:01  static"), "{table}");
    send(&switch, "p2", 1);
    refused(&switch, "p2");
    let shown = switch.appctl(&["port-security/show", "br0"]);
    assert_eq!(shown, "p1: addresses=2/2, sticky=2, action=drop\n");
    switch.appctl(&["fdb/del", "br0", "0", "02:00:00:00:00:01"]);
    eventually("the database has one left", || {
        (key(&switch) == "\"0/02:00:00:00:00:02\"").then_some(())
    });
    switch.vsctl("set port p1 other_config:mac-limit=1 other_config:mac-limit-action=shutdown");
    send(&switch, "p1", 7);
    eventually("the port is shut", || {
        let shown = switch.appctl(&["port-security/show"]);
        shown.contains("shut by 02:00:00:00:00:07 in VLAN 0").then_some(())
    });
    switch.wait_for("port", "p1", "status", |s| {
        s.contains("shut-by=\"02:00:00:00:00:07 in VLAN 0\"")
    });
    switch.appctl(&["port-security/reset", "br0", "p1"]);
    assert!(!switch.appctl(&["port-security/show"]).contains("shut by"));
    switch.wait_for("port", "p1", "status", |s| !s.contains("shut-by"));
    switch.vsctl("set port p1 other_config:mac-limit=0");
    switch.wait_for("port", "p1", "status", |s| s.contains("mac-limit=0"));
}

#[test]
fn storms_are_limited_by_port_and_counted() {
    skip!(unless "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch has no storm control");
    }
    let switch = dummy();
    let pcap = switch.sandbox.arg("p2.tx");
    switch.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath_type=dummy \
         -- add-port br0 p1 -- set interface p1 type=dummy \
         -- set port p1 other_config:storm-control-unit=kbps other_config:storm-control-broadcast=1 \
            other_config:storm-control-unknown-unicast=1 \
         -- add-port br0 p2 -- set interface p2 type=dummy options:tx_pcap={pcap}",
    ));
    let send = |port: &str, src: u32, dst: [u8; 6]| {
        // Each is worth more than ten seconds of the rate.
        let packet = Packet::new(testkit::mac(src), dst).payload(0x88b5, &[0; 1400]);
        switch.appctl(&["netdev-dummy/receive", port, &packet.hex()]);
    };
    for _ in 0..5 {
        send("p1", 1, [0xff; 6]);
        send("p1", 1, testkit::mac(77));
        send("p1", 1, [1, 0, 0x5e, 1, 2, 3]);
        send("p2", 2, [0xff; 6]);
        send("p1", 1, testkit::mac(2));
    }
    let counts = |kind: &str| -> (u32, u32) {
        let shown = switch.appctl(&["storm-control/show", "br0"]);
        let line = shown.lines().find(|line| line.contains(kind)).unwrap_or_default();
        let count = |name: &str| line.split(name).nth(1)?.split(',').next()?.parse().ok();
        assert!(line.starts_with(&format!("p1: {kind}, rate=1 kbps, ")), "{shown}");
        (count("passed=").unwrap(), count("dropped=").unwrap())
    };
    let (broadcast, unicast) = eventually("all packets are measured", || {
        let both = (counts("broadcast"), counts("unknown-unicast"));
        let ((a, b), (c, d)) = both;
        (a + b == 5 && c + d == 5).then_some(both)
    });
    assert!(broadcast.0 >= 1 && broadcast.1 >= 1, "{broadcast:?}");
    assert!(unicast.0 >= 1 && unicast.1 >= 1, "{unicast:?}");
    let dropped = broadcast.1 + unicast.1;
    switch.wait_for("interface", "p1", "statistics", |s| {
        s.contains(&format!("drop_storm_control={dropped}"))
    });
    let out = 5 + 5 + broadcast.0 + unicast.0;
    switch.wait_for("interface", "p2", "statistics", |s| {
        s.contains(&format!("tx_packets={out}"))
    });
    // A limit that is gone does nothing; wrong values are named.
    switch.vsctl("set port p1 other_config:storm-control-broadcast=none");
    switch.wait_for("port", "p1", "status", |s| s.contains("storm-control-broadcast=none"));
    assert!(!switch.appctl(&["storm-control/show"]).contains("broadcast"));
    for _ in 0..5 {
        send("p1", 1, [0xff; 6]);
    }
    switch.wait_for("interface", "p2", "statistics", |s| {
        s.contains(&format!("tx_packets={}", out + 5))
    });
}
