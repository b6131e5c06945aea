//! The address that sFlow's datagrams say they come from, beside Open vSwitch's.

use crate::fixture::{debian_in_namespace, in_namespace};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;
use testkit::{Netns, Vswitch, eventually, skip};

/// A bridge with sFlow: its name, the columns of its row, and where its collector is.
struct Case {
    bridge: &'static str,
    settings: &'static str,
    target: &'static str,
}

const CASES: [Case; 10] = [
    // The route to the target leaves through `out`, whose first address is not on that network.
    Case::new("route", "", "192.0.2.9"),
    Case::new("own", "", "127.0.0.1"),
    Case::new("route6", "", "[2001:db8::9]"),
    Case::new("named", "agent=lo", "192.0.2.9"),
    Case::new("six", "agent=only6", "192.0.2.9"),
    Case::new("literal", "agent=203.0.113.5", "192.0.2.9"),
    Case::new("literal6", "agent=\"2001:db8::5\"", "192.0.2.9"),
    Case::new("empty", "agent=bare", "192.0.2.9"),
    Case::new("unknown", "agent=nothing", "192.0.2.9"),
    // Without samples Open vSwitch sends no counters either.
    Case::new("none", "sampling=0", "192.0.2.9"),
];

impl Case {
    const fn new(bridge: &'static str, settings: &'static str, target: &'static str) -> Case {
        Case {
            bridge,
            settings,
            target,
        }
    }
}

/// The agent's address in a datagram of sFlow version 5.
fn agent(datagram: &[u8]) -> IpAddr {
    match datagram[4..8] {
        [0, 0, 0, 1] => Ipv4Addr::from(<[u8; 4]>::try_from(&datagram[8..12]).unwrap()).into(),
        [0, 0, 0, 2] => Ipv6Addr::from(<[u8; 16]>::try_from(&datagram[8..24]).unwrap()).into(),
        _ => panic!("no kind of address: {:?}", &datagram[..8]),
    }
}

/// The agents of all cases that send datagrams.
fn agents(switch_in: fn(&Netns) -> Vswitch) -> BTreeMap<&'static str, IpAddr> {
    let (ns, far) = (Netns::new("agent"), Netns::new("taker"));
    ns.veth("out", &far, "in");
    ns.ip("link add only6 type veth peer bare");
    for device in ["lo", "out", "only6", "bare"] {
        ns.ip(&format!("link set {device} up"));
    }
    for ns in [&ns, &far] {
        ns.run(&[
            "sh",
            "-c",
            "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 0 > $f; done",
        ]);
    }
    for address in ["198.51.100.1/24", "192.0.2.1/24", "2001:db8::1/64"] {
        ns.ip(&format!("addr add {address} dev out{}", nodad(address)));
    }
    ns.ip("addr add 2001:db8:6::1/64 dev only6 nodad");
    for address in ["192.0.2.9/24", "2001:db8::9/64"] {
        far.ip(&format!("addr add {address} dev in{}", nodad(address)));
    }
    let switch = switch_in(&ns);
    let mut settings = String::new();
    let mut collectors = Vec::new();
    for case in &CASES {
        let at = if case.target == "127.0.0.1" { &ns } else { &far };
        let socket = at.enter(|| UdpSocket::bind("[::]:0").unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let port = socket.local_addr().unwrap().port();
        let Case {
            bridge,
            settings: own,
            target,
        } = case;
        let sampling = if own.contains("sampling") { "" } else { "sampling=1" };
        settings += &format!(
            "-- add-br {bridge} -- set bridge {bridge} datapath_type=netdev -- --id=@{bridge} create sflow \
             targets=\"{target}:{port}\" polling=1 {sampling} {own} -- set bridge {bridge} sflow=@{bridge} "
        );
        collectors.push((case.bridge, socket));
    }
    switch.vsctl(&settings);
    let mut found = BTreeMap::new();
    let mut buffer = [0; 2000];
    eventually("every exporter has sent its counters", || {
        for (bridge, socket) in &collectors {
            if let Ok(len) = socket.recv(&mut buffer) {
                found.insert(*bridge, agent(&buffer[..len]));
            }
        }
        // One sends nothing. Where it does, its datagrams come with those of the others.
        (found.len() >= CASES.len() - 1).then_some(())
    });
    found
}

/// Addresses of IPv6 are usable at once only without a search for duplicates.
fn nodad(address: &str) -> &'static str {
    if address.contains(':') { " nodad" } else { "" }
}

#[test]
fn sflows_agent_has_the_address_that_open_vswitch_chooses() {
    skip!(unless root, "ip", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let ours = agents(in_namespace);
    assert_eq!(agents(debian_in_namespace), ours);
    let is = |bridge, address: &str| ours.get(bridge) == Some(&address.parse::<IpAddr>().unwrap());
    assert!(is("route", "192.0.2.1") && is("literal", "203.0.113.5"), "{ours:?}");
}
