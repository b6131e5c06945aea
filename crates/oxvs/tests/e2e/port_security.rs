//! DHCP snooping and ARP inspection, by the keys that users set.

use crate::fixture::{dummy, stand_in};
use testkit::{ArpOp, Packet, eventually, skip};

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
