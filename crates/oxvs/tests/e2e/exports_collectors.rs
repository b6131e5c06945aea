//! Collectors: several at once, over both versions of IP.

use crate::fixture::{dummy_bridge, start};
use std::net::UdpSocket;
use std::time::Duration;
use testkit::{Collector, Options, Packet, Vswitch, eventually, mac, skip};

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
