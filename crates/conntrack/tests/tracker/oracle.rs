//! The same random packets through Debian's Open vSwitch: the same states, packet by packet.

use crate::model::{Model, packet};
use crate::packets::*;
use conntrack::State;
use std::collections::BTreeMap;
use testkit::{Options, Rng, Vswitch, pcap, skip};

/// Output port of Open vSwitch by state.
const PORTS: [(u32, &str, &str); 6] = [
    (0x30, "3", "+inv"),
    (0x21, "4", "+new-rel"),
    (0x22, "5", "+est-rpl-inv"),
    (0x2a, "6", "+est+rpl-inv"),
    (0x24, "7", "+rel-rpl-inv"),
    (0x2c, "8", "+rel+rpl-inv"),
];
const PACKETS: usize = 1500;

#[test]
fn random_packets_have_the_states_that_open_vswitch_gives_them() {
    skip!(unless "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let switch = Vswitch::debian(Options::default());
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure");
    for port in 1..=8 {
        let capture = switch.sandbox.arg(&format!("p{port}.pcap"));
        switch.vsctl(&format!(
            "add-port br0 p{port} -- set interface p{port} type=dummy ofport_request={port} options:tx_pcap={capture}"
        ));
    }
    let mut flows = vec!["table=0,ip,actions=ct(commit,zone=1,table=1)".to_owned()];
    for (_, port, state) in PORTS {
        flows.push(format!("table=1,ct_state={state},ip,actions=output:{port}"));
    }
    for flow in flows {
        let done = switch.tool("ovs-ofctl", &["add-flow", "br0", &flow]);
        assert!(done.status == Some(0), "{flow}: {done:?}");
    }
    let mut control = switch.unixctl();
    control.call("time/stop", &[]).unwrap();

    let mut rng = Rng::new(99);
    let mut bench = Bench::new();
    let mut model = Model::default();
    let (mut sent, mut theirs) = (Vec::new(), BTreeMap::new());
    let mut wait_until_all_leave = |number: usize| {
        testkit::eventually("all packets leave", || {
            for (bits, port, _) in PORTS {
                for frame in pcap::frames(std::path::Path::new(&switch.sandbox.arg(&format!("p{port}.pcap")))) {
                    theirs.insert(u16::from_be_bytes([frame[18], frame[19]]), State::from_bits(bits));
                }
            }
            (theirs.len() == number).then_some(())
        });
    };
    for number in 0..PACKETS {
        // A dummy of Open vSwitch has room for 100 packets that wait.
        if number % 50 == 0 {
            wait_until_all_leave(number);
        }
        let (mut bytes, way, fields) = packet(&mut rng, 1, &model, false);
        // The identification says later which packet it was.
        bytes[4..6].copy_from_slice(&(number as u16).to_be_bytes());
        bytes[10..12].fill(0);
        let sum = testkit::checksum(&bytes[..20]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &bytes].concat();
        control
            .call("netdev-dummy/receive", &["p1", &testkit::to_hex(&frame)])
            .unwrap();
        let state = bench.pass(&commit(1), &mut bytes).state;
        model.pass(&commit(1), way, fields.as_ref(), bench.now.as_millis());
        sent.push((state, format!("{way:?} {fields:?}")));
    }
    wait_until_all_leave(PACKETS);
    for (number, (state, what)) in sent.iter().enumerate() {
        assert_eq!(Some(state), theirs.get(&(number as u16)), "packet {number}: {what}");
    }
    let count = |wanted: State| sent.iter().filter(|(state, _)| *state == wanted).count();
    assert!(
        count(EST) > 100 && count(EST_REPLY) > 100 && count(INVALID) > 100,
        "the packets are of all kinds"
    );
}
