//! sFlow's counter samples of a port of a kernel device, beside Open vSwitch's.

use crate::fixture::{debian_in_namespace, in_namespace};
use std::time::Duration;
use testkit::{Collector, Netns, eventually, skip, to_hex};

/// A number of a datagram.
fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Structures, each with its format and its length before it.
fn structures(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (content, rest) = bytes[8..].split_at(be(&bytes[4..8]) as usize);
        all.push((be(&bytes[..4]), content));
        bytes = rest;
    }
    all
}

/// The structures of a port's counter sample as text. Of counters, whether they are known: how many
/// packets the hosts send by themselves differs.
fn of_port(sample: &[u8], name: &str, ifindex: u64) -> Option<Vec<String>> {
    let records = structures(&sample[12..]);
    let named = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat();
    records
        .iter()
        .find(|(format, content)| *format == 1005 && content.starts_with(&named))?;
    let line = |(format, content): &(u64, &[u8])| match format {
        // Index of the interface, then type, speed, direction, state.
        1 => {
            let counters = content[24..].chunks(4).map(|counter| be(counter) != 0xffff_ffff);
            let mut counters: Vec<bool> = counters.collect();
            // Received multicast packets: Open vSwitch knows them from the kernel; our datapath has
            // no such counter, and the sample says that it is unknown.
            counters.remove(3);
            format!(
                "1: {} {} {counters:?}",
                be(&content[..4]) == ifindex,
                to_hex(&content[4..24])
            )
        }
        // Of the datapath and the port, the port.
        1004 => format!("1004: {}", to_hex(&content[8..])),
        // LACP: systems (what fills them up to eight bytes is random), key, states; of received,
        // wrong and sent LACPDUs, whether there are any. The others are those of markers, which
        // Open vSwitch does not count.
        7 => {
            let counts = [24, 40, 44].map(|at| be(&content[at..at + 4]) != 0);
            let known = [0..6, 8..14, 16..24].map(|range| to_hex(&content[range]));
            format!("7: {known:?} {counts:?}")
        }
        format => format!("{format}: {}", to_hex(content)),
    };
    Some(records.iter().map(line).collect())
}

/// Whether both ends of a link send and receive, as LACP's counters tell it.
fn aggregates(sample: &[u8]) -> bool {
    const IN_USE: u8 = 0x3c;
    structures(&sample[12..]).iter().any(|(format, content)| {
        *format == 7 && [content[21], content[23]].iter().all(|state| state & IN_USE == IN_USE)
    })
}

/// The first counter sample of `v1`, or with `lacp`, of the member `v2` of a bond whose other end
/// is in use.
fn samples_of(ours: bool, lacp: bool) -> Vec<String> {
    let (ns, host) = (Netns::new("counters"), Netns::new("counted"));
    host.veth("eth0", &ns, "v1");
    let collector = ns.enter(Collector::new);
    let switch = match ours {
        true => in_namespace(&ns),
        false => debian_in_namespace(&ns),
    };
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 v1 -- set interface v1 ofport_request=7",
    );
    switch.wait_for("interface", "v1", "link_state", |state| state == "up");
    let target = collector.target();
    switch.vsctl(&format!(
        "-- --id=@s create sflow targets=\"{target}\" agent=127.0.0.1 polling=1 sampling=1000 -- set bridge br0 sflow=@s"
    ));
    if lacp {
        // Both ends of two links are bonds of the switch.
        ns.ip("link add v2 type veth peer w2");
        ns.ip("link add v3 type veth peer w3");
        for device in ["v2", "w2", "v3", "w3"] {
            ns.ip(&format!("link set {device} up"));
        }
        switch.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
        switch.vsctl(
            "add-bond br0 b0 v2 v3 lacp=active other_config:lacp-system-id=0e:00:00:00:00:01 other_config:lacp-time=fast \
             -- set interface v2 ofport_request=8 other_config:lacp-aggregation-key=5 \
             -- set interface v3 ofport_request=9 other_config:lacp-aggregation-key=5 \
             -- add-bond br1 b1 w2 w3 lacp=passive other_config:lacp-system-id=0e:00:00:00:00:02 other_config:lacp-time=fast",
        );
    }
    let name = if lacp { "v2" } else { "v1" };
    let link = ns.ip(&format!("-o link show {name}"));
    let ifindex = link.split(':').next().unwrap().parse().unwrap();
    eventually("counters of the port come", || {
        let datagrams = collector.take(Duration::from_millis(300));
        let samples = datagrams.iter().flat_map(|datagram| structures(&datagram[28..]));
        samples
            .filter(|(format, _)| *format == 2)
            .filter(|(_, sample)| !lacp || aggregates(sample))
            .find_map(|(_, sample)| of_port(sample, name, ifindex))
    })
}

#[test]
fn counters_of_a_port_have_open_vswitchs_structures() {
    skip!(unless root, "ip", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let ours = samples_of(true, false).join("\n");
    assert!(ours.contains("1: true"), "the kernel's number of the device: {ours}");
    assert_eq!(samples_of(false, false).join("\n"), ours);
}

#[test]
fn counters_of_a_bonds_member_have_lacp() {
    skip!(unless root, "ip", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let ours = samples_of(true, true).join("\n");
    let theirs = samples_of(false, true).join("\n");
    assert!(
        ours.contains("\n7: [\"0e0000000001"),
        "{ours}\n--- Open vSwitch\n{theirs}"
    );
    assert_eq!(theirs, ours);
}
