//! Popped labels, and rules that match or change the headers behind them.

use super::side::Batch;
use super::{PATIENCE, Pair};
use std::net::Ipv4Addr;
use testkit::random::{MARK, MARK_PORT, RuleSet};
use testkit::{Packet, mac, skip};

/// Rules of the first table with the rules for their results.
const SETS: [&[&str]; 9] = [
    &[
        "mpls,actions=pop_mpls:0x0800,goto_table:1",
        "table=1,ip,nw_tos=32,actions=output:2",
    ],
    &[
        "mpls,actions=pop_mpls:0x0800,goto_table:1",
        "table=1,ip,nw_ecn=1,actions=output:2",
    ],
    &[
        "mpls,actions=pop_mpls:0x0800,goto_table:1",
        "table=1,udp,tp_src=7,actions=output:2",
    ],
    &[
        "mpls,actions=pop_mpls:0x0800,goto_table:1",
        "table=1,ip,actions=set_field:10.0.0.9->ip_dst,output:2",
    ],
    &["mpls,actions=pop_mpls:0x0800,set_field:10.0.0.9->ip_dst,set_field:2->nw_ecn,output:2"],
    &[
        "mpls,actions=pop_mpls:0x0800,write_actions(dec_ttl,output:3),write_metadata:5,goto_table:1",
        "table=1,udp,metadata=5,actions=output:2",
    ],
    &[
        "mpls,mpls_bos=0,actions=pop_mpls:0x8847,goto_table:1",
        "mpls,mpls_bos=1,actions=pop_mpls:0x0800,goto_table:2",
        "table=1,mpls,mpls_label=6,actions=pop_mpls:0x0800,goto_table:2",
        "table=2,ip,nw_dst=10.0.0.2,actions=mod_nw_tos:8,output:2",
    ],
    &[
        "mpls,actions=pop_mpls:0x0800,clone(set_field:9->nw_ttl,output:2),resubmit(,1)",
        "table=1,udp,actions=output:3",
    ],
    &[
        "mpls,actions=pop_mpls:0x0800,mod_dl_src:02:00:00:00:00:07,output:2,goto_table:1",
        "table=1,ip,dl_src=02:00:00:00:00:07,nw_ttl=64,actions=output:3",
    ],
];

/// UDP packets with one label, or also with two.
fn packets(two: bool) -> Batch {
    let mut batch = Batch::new();
    let stacks = [&[0x0000_5140_u32][..], &[0x0000_5020, 0x0000_6140]];
    for stack in &stacks[..1 + usize::from(two)] {
        for tos in [0, 32, 33] {
            let ip = Packet::new(mac(1), mac(2)).ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
            let mut ip = ip.udp(7, 80, b"data").bytes().split_off(14);
            ip[1] = tos;
            ip[10..12].copy_from_slice(&[0, 0]);
            let sum = testkit::checksum(&ip[..20]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            let labels = stack.iter().flat_map(|label| label.to_be_bytes());
            let payload: Vec<u8> = labels.chain(ip).collect();
            batch.push(("p1", Packet::new(mac(1), mac(2)).payload(0x8847, &payload).bytes()));
        }
    }
    batch
}

/// A trace without the megaflow, and whether it recirculates: the order of datapath actions may
/// differ.
fn told(trace: &str) -> (Vec<&str>, bool) {
    let own = ["Megaflow: ", "Datapath actions: "];
    let told = trace
        .lines()
        .filter(|line| !own.iter().any(|own| line.starts_with(own)));
    (told.collect(), trace.contains("recirc("))
}

#[test]
fn what_is_behind_labels_is_seen_and_changed_as_in_open_vswitch() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let mut pair = Pair::new(1);
    pair.oracle.rebuild();
    pair.mine.rebuild();
    let mark = format!("priority=65535,dl_type=0x{MARK:x},actions=output:{MARK_PORT}");
    for rules in SETS {
        let mut set = RuleSet {
            version: "OpenFlow13",
            rules: rules
                .iter()
                .copied()
                .chain([mark.as_str()])
                .map(str::to_owned)
                .collect(),
            groups: Vec::new(),
            learning: false,
            telling: None,
            ports: Vec::new(),
            frags: "normal",
        };
        pair.program(&mut set).unwrap();
        assert_eq!(set.rules.len(), rules.len() + 1, "{rules:?}");
        // Open vSwitch pops both at once if the pop's EtherType is not a label's.
        let packets = packets(rules[0].contains("mpls_bos"));
        for (port, frame) in &packets[..1] {
            let (expected, found) = (pair.oracle_trace(port, frame), pair.mine.trace(port, frame));
            assert_eq!(told(&found), told(&expected), "{rules:?}");
        }
        let outputs = pair.exchange_within(&packets, PATIENCE);
        assert_eq!(outputs.difference(), None, "{rules:?}");
        assert_ne!(outputs.found.values().map(Vec::len).sum::<usize>(), 0, "{rules:?}");
    }
}
