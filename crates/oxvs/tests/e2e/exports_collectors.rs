//! Who is told, and by whom: several collectors over both versions of IP, and the agent's address.

use crate::fixture::{dummy_bridge, start};
use std::net::UdpSocket;
use std::time::Duration;
use testkit::{Collector, Devices, Netns, Options, Packet, Vswitch, dissect, eventually, mac, skip};

/// Lets the switch receive a packet of IPv4.
fn send(switch: &Vswitch) {
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let packet = packet.udp(1000, 2000, b"payload").padded();
    let sent = switch.unixctl().call("netdev-dummy/receive", &["p1", &packet.hex()]);
    sent.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn collectors_over_both_versions_of_ip_have_the_same_datagrams() {
    skip!(unless "ovs-vsctl", "setpriv");
    let Ok(six) = UdpSocket::bind("[::1]:0") else {
        skip!("loopback has no IPv6");
    };
    six.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for (table, settings) in [
        ("netflow", "active_timeout=1"),
        ("sflow", "sampling=1 polling=0 agent=lo"),
        ("ipfix", "sampling=1"),
    ] {
        let switch = start(Options::default());
        dummy_bridge(&switch, "br0", &["p1"]);
        switch.vsctl("set open_vswitch . other_config:max-idle=500");
        let four = Collector::new();
        let targets = format!("\"{}\",\"{}\"", four.target(), six.local_addr().unwrap());
        switch.vsctl(&format!(
            "-- --id=@e create {table} targets={targets} {settings} -- set bridge br0 {table}=@e"
        ));
        send(&switch);
        let taken = eventually("the first collector has datagrams", || {
            Some(four.take(Duration::from_millis(300))).filter(|taken| !taken.is_empty())
        });
        let mut buffer = [0; 2000];
        let len = six.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..len], taken[0], "{table}");
        // The rest is not for the next exporter.
        six.set_nonblocking(true).unwrap();
        drop(switch);
        while six.recv(&mut buffer).is_ok() {}
        six.set_nonblocking(false).unwrap();
    }
}

#[test]
fn sflows_agent_has_the_address_that_open_vswitch_chooses() {
    skip!(unless root, "ip", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv", "tshark");
    let [theirs, ours] = [false, true].map(|is_ours| {
        let ns = Netns::new("agent");
        ns.ip("link add d0 type veth peer d1");
        ns.address("d0", "10.9.0.1/24");
        ns.ip("link set d0 up");
        let options = Options {
            devices: Devices::System,
            netns: Some(ns.name().to_owned()),
            ..Options::default()
        };
        let switch = if is_ours {
            start(options)
        } else {
            Vswitch::debian(options)
        };
        switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
        // By device, by address, by the way to the collector.
        ["agent=d0", "agent=127.0.0.9", "agent=no-such-device", ""].map(|agent| {
            let collector = ns.enter(Collector::new);
            switch.vsctl(&format!(
                "-- --id=@s create sflow targets=\"{}\" polling=1 {agent} -- set bridge br0 sflow=@s",
                collector.target()
            ));
            let datagrams = collector.take(Duration::from_millis(2500));
            let mut agents: Vec<String> = dissect(&datagrams, "sflow", &["sflow_245.agent"]).concat().concat();
            agents.dedup();
            format!("{agent}: {agents:?}")
        })
    });
    assert_eq!(theirs, ours);
    assert!(ours[0].contains("10.9.0.1"), "{ours:?}");
}
