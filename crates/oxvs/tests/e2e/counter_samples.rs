//! sFlow's counter samples of a port of a kernel device, beside Open vSwitch's.

use crate::fixture::start;
use std::time::Duration;
use testkit::{Collector, Devices, Netns, Options, Vswitch, eventually, skip, to_hex};

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
        format => format!("{format}: {}", to_hex(content)),
    };
    Some(records.iter().map(line).collect())
}

fn samples_of(ours: bool) -> Vec<String> {
    let (ns, host) = (Netns::new("counters"), Netns::new("counted"));
    host.veth("eth0", &ns, "v1");
    let collector = ns.enter(Collector::new);
    let link = ns.ip("-o link show v1");
    let ifindex = link.split(':').next().unwrap().parse().unwrap();
    let options = Options {
        devices: Devices::System,
        netns: Some(ns.name().to_owned()),
        ..Options::default()
    };
    let switch = if ours { start(options) } else { Vswitch::debian(options) };
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 v1 -- set interface v1 ofport_request=7",
    );
    switch.wait_for("interface", "v1", "link_state", |state| state == "up");
    let target = collector.target();
    switch.vsctl(&format!(
        "-- --id=@s create sflow targets=\"{target}\" agent=127.0.0.1 polling=1 sampling=1000 -- set bridge br0 sflow=@s"
    ));
    eventually("counters of the port come", || {
        let datagrams = collector.take(Duration::from_millis(300));
        let samples = datagrams.iter().flat_map(|datagram| structures(&datagram[28..]));
        samples
            .filter(|(format, _)| *format == 2)
            .find_map(|(_, sample)| of_port(sample, "v1", ifindex))
    })
}

#[test]
fn counters_of_a_port_have_open_vswitchs_structures() {
    skip!(unless root, "ip", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let ours = samples_of(true).join("\n");
    assert!(ours.contains("1: true"), "the kernel's number of the device: {ours}");
    assert_eq!(samples_of(false).join("\n"), ours);
}
