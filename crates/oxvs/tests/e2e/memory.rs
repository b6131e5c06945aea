//! Interfaces without a wire: packets come from a file, and sent packets are dropped.

use crate::fixture::{dummy, dummy_bridge, stand_in};
use std::fs;
use testkit::{Vswitch, eventually, skip};

/// A capture with a number of packets of 60 bytes.
fn capture(switch: &Vswitch, packets: u8) -> String {
    let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0]);
    for n in 0..packets {
        file.extend([0; 8]);
        file.extend([60, 0, 0, 0, 60, 0, 0, 0]);
        file.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, n, 8, 0]);
        file.extend([0; 46]);
    }
    let path = switch.sandbox.arg("packets.pcap");
    fs::write(&path, file).unwrap();
    path
}

/// A bridge with a rule from a source of three packets to a sink, ports 1 and 2.
fn bridge(options: &str) -> Vswitch {
    let switch = dummy();
    let file = capture(&switch, 3);
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure");
    switch
        .tool("ovs-ofctl", &["add-flow", "br0", "in_port=1,actions=output:2"])
        .expect_ok();
    switch.vsctl("add-port br0 sink -- set interface sink type=null ofport_request=2");
    switch.vsctl(&format!(
        "add-port br0 source -- set interface source type=pcap options:rx_pcap={file} {options} ofport_request=1"
    ));
    switch
}

/// Port counters: packets received by the source and sent by the sink.
fn moved(switch: &Vswitch) -> (u64, u64) {
    let count = |port: &str, counter: &str| -> u64 {
        let said = switch.tool("ovs-ofctl", &["dump-ports", "br0", port]).expect_ok();
        let (_, rest) = said.split_once(counter).unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    };
    let sent = count("2", "tx pkts=");
    (count("1", "rx pkts="), sent)
}

#[test]
fn packets_of_a_file_come_once() {
    if stand_in() {
        skip!("these types are ours");
    }
    let switch = bridge("");
    eventually("all packets are in", || (moved(&switch).0 == 3).then_some(()));
    assert_eq!(switch.get("interface", "source", "error"), "[]");
    // Exactly the packets of the file. They can arrive before their port's rule is in force.
    let (received, sent) = moved(&switch);
    assert!(received == 3 && sent <= 3, "{received} {sent}");
}

#[test]
fn packets_of_a_file_come_again_and_again_and_pass_rules_to_a_null_port_that_swallows_them() {
    if stand_in() {
        skip!("these types are ours");
    }
    let switch = bridge("options:infinite_rx=true");
    eventually("more packets are out than the file has", || {
        (moved(&switch).1 > 1000).then_some(())
    });
    // Sent packets were received before.
    let (before, after) = (moved(&switch), moved(&switch));
    assert!(after.0 >= before.1, "{before:?} {after:?}");
}

#[test]
fn a_file_that_is_no_capture_is_an_error_of_its_row() {
    if stand_in() {
        skip!("these types are ours");
    }
    let switch = dummy();
    let path = switch.sandbox.arg("text");
    fs::write(&path, "no capture").unwrap();
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy");
    switch.vsctl(&format!(
        "add-port br0 source -- set interface source type=pcap options:rx_pcap={path}"
    ));
    let error = switch.get("interface", "source", "error");
    assert!(error.contains("not a capture file"), "{error}");
    assert_eq!(switch.get("interface", "source", "ofport"), "-1");
}

#[test]
fn memory_of_megaflows_that_aged_out_is_given_back() {
    if stand_in() {
        skip!("Open vSwitch keeps it");
    }
    const FLOWS: usize = 15_000;
    let mut switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    switch.vsctl("set open_vswitch . other_config:max-idle=600000 other_config:flow-limit=100000");
    let ofctl = |args: &[&str]| switch.tool("ovs-ofctl", args).expect_ok();
    // Every pair of addresses has a megaflow: by such weights the datapath does not select.
    let group = "group_id=1,type=select,selection_method=hash,fields(ip_src,ip_dst),bucket=weight:1,actions=output:1,bucket=weight:1000,actions=output:2";
    ofctl(&["-OOpenFlow15", "add-group", "br0", group]);
    ofctl(&["-OOpenFlow15", "add-flow", "br0", "priority=9,ip,actions=group:1"]);
    let before = switch.daemon().resident_kib();
    let mut control = switch.unixctl();
    for n in 0..FLOWS {
        let packet = format!(
            "0200000000aa0200000000bb0800450000140000400040000000{:08x}0a000001",
            0x0b00_0000 + n
        );
        eventually("the packet is taken", || {
            control.call("netdev-dummy/receive", &["p1", &packet]).ok()
        });
    }
    let flows = |control: &mut testkit::Unixctl| -> usize {
        let usage = control.call("memory/show", &[]).unwrap();
        let flows = usage.split_whitespace().collect::<Vec<_>>().join(" ");
        let (_, rest) = flows.split_once("udpif keys:").unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    eventually("all megaflows are there", || {
        (flows(&mut control) >= FLOWS).then_some(())
    });
    let full = switch.daemon().resident_kib();
    // The switch updates the figure with its statistics, every five seconds.
    std::thread::sleep(std::time::Duration::from_secs(6));
    switch.vsctl("set open_vswitch . other_config:max-idle=500");
    eventually("all megaflows are gone", || (flows(&mut control) == 0).then_some(()));
    eventually("memory is given back", || {
        let now = switch.daemon().resident_kib();
        (now < before + (full - before) / 2).then_some(())
    });
}
