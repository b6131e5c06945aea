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
