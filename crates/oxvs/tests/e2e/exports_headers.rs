//! IPFIX of packets with every combination of headers, beside Open vSwitch's.

use crate::exports::{SOON, Side, both, ipfix, only_in_one};
use crate::fixture::start;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use testkit::{Options, Packet, eventually, mac, skip, to_hex};

const PAYLOAD: [u8; 40] = [7; 40];
/// A request by 10.9.0.1 for 10.9.0.2.
const ARP: [u8; 28] = [
    0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 9, 0, 1, 0, 0, 0, 0, 0, 0, 10, 9, 0, 2,
];

/// A frame with an IP header of that version, or without one.
fn ip(frame: Packet, version: u8, host: u8) -> Packet {
    let v6 = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    match version {
        4 => frame.ipv4(Ipv4Addr::new(10, 9, 0, host), Ipv4Addr::new(10, 0, 1, 1)),
        _ => frame.ipv6(v6(u16::from(host)), v6(1)),
    }
}

/// The packets: each combination of tag, version of IP and transport several times. Behind two tags
/// Open vSwitch counts the second one to the length of the IP packet, so they are without IP.
fn packets() -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for tags in [&[][..], &[(0x8100, 0x6007)], &[(0x88a8, 9), (0x8100, 8)]] {
        let versions: &[u8] = if tags.len() < 2 { &[4, 6] } else { &[] };
        let frame = || {
            let untagged = Packet::new(mac(1), mac(9));
            tags.iter().fold(untagged, |frame, (tpid, tci)| frame.tag(*tpid, *tci))
        };
        all.push(frame().payload(0x88b5, &PAYLOAD));
        all.push(frame().payload(0x0806, &ARP));
        for version in versions {
            for host in [1, 1, 2] {
                let ip = || ip(frame(), *version, host);
                all.push(ip().tcp(1000, 80, 0x18, &PAYLOAD));
                all.push(ip().udp(1000, 53, &PAYLOAD));
                all.push(ip().sctp(1000, 36412, &PAYLOAD));
                all.push(ip().echo(1, 1, &PAYLOAD));
                // An IP header and no transport.
                all.push(ip());
            }
        }
    }
    all.into_iter().map(|packet| (1, packet.hex())).collect()
}

#[test]
fn ipfix_tells_of_every_combination_of_headers_what_open_vswitch_tells() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv", "tshark");
    let sent = packets();
    for settings in [
        "sampling=1 obs_domain_id=3 obs_point_id=4",
        "sampling=1 other_config:virtual_obs_id=abc cache_active_timeout=1 cache_max_flows=1000",
    ] {
        let [theirs, ours] = both();
        let [theirs, ours] = [(theirs, true), (ours, false)].map(|(side, lax)| {
            let rules = [
                "ipv6,actions=output:2",
                "dl_type=0x88b5,actions=output:3",
                "arp,actions=normal",
            ];
            // Open vSwitch looks behind one tag otherwise.
            side.switch.vsctl("set open_vswitch . other_config:vlan-limit=2");
            for rule in rules {
                side.switch.tool("ovs-ofctl", &["add-flow", "br0", rule]).expect_ok();
            }
            side.export("ipfix", "ipfix", settings);
            ipfix(&side, &sent, lax)
        });
        assert_eq!(theirs.0, ours.0, "{settings}");
        assert_eq!(only_in_one(&theirs.1, &ours.1), Vec::<String>::new(), "{settings}");
        assert!(ours.1.len() >= sent.len() / 2, "{}", ours.1.len());
    }
}

/// How often a minute brings the first template, and the first options template, with such
/// intervals in seconds. A flow is exported each second.
fn in_a_minute(template_interval: u32, stats_interval: u32) -> [usize; 2] {
    let side = Side::new(start(Options::default()));
    side.switch.appctl(&["time/stop"]);
    side.export("ipfix", "IPFIX", "sampling=1 cache_active_timeout=0");
    // Debian's ovs-vsctl does not know the columns yet.
    let columns = format!(r#"{{"template_interval":{template_interval},"stats_interval":{stats_interval}}}"#);
    let update = format!(r#"["Open_vSwitch",{{"op":"update","table":"IPFIX","where":[],"row":{columns}}}]"#);
    let words = ["transact", &side.switch.sandbox.db_remote(), &update];
    side.switch.tool("ovsdb-client", &words).expect_ok();
    // The switch has read them.
    side.switch.vsctl("set bridge br0 external_ids:read=1");
    let packet = packets().remove(0);
    let second = || {
        side.receive(std::slice::from_ref(&packet));
        side.switch.appctl(&["time/warp", "1000", "250"]);
    };
    let has_source = |message: &Vec<u8>| to_hex(message).contains(&packet.1[12..24]);
    // A second is over when its flow is told: exporters have time to do what is due.
    let told = |messages: &mut Vec<Vec<u8>>| {
        second();
        eventually("a flow is told", || {
            let came = side.collector.take(Duration::from_millis(20));
            let told = came.iter().any(has_source);
            messages.extend(came);
            told.then_some(())
        });
    };
    // With the first flow, what it tells at its start is over.
    told(&mut Vec::new());
    let mut messages = Vec::new();
    (0..60).for_each(|_| told(&mut messages));
    messages.extend(side.collector.take(SOON));
    // A set begins behind the header of a message (RFC 7011 §3.1, §3.3.2).
    [2u16, 3].map(|id| {
        let of_id = messages.iter().filter(|message| message[16..18] == id.to_be_bytes());
        let sets: Vec<&[u8]> = of_id.map(|message| &message[16..]).collect();
        sets.iter().filter(|set| **set == sets[0]).count()
    })
}

#[test]
fn ipfix_tells_its_templates_and_its_own_counts_at_the_intervals_of_their_columns() {
    skip!(unless "ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovsdb-client");
    assert_eq!(in_a_minute(10, 30), [6, 2]);
    assert_eq!(in_a_minute(20, 5), [3, 12]);
}
