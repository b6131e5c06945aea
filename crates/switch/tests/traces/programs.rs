//! Random rules of many fields and actions, as text.

use crate::model::Topology;
use std::collections::BTreeSet;
use testkit::{Rng, mac};
use wire::MacAddr;

/// Tables that rules are in; the last one goes nowhere.
const TABLES: usize = 5;

pub(crate) fn rules(rng: &mut Rng, topology: &Topology, bridge: &str) -> Vec<String> {
    let mut rules = Vec::new();
    let mut seen = BTreeSet::new();
    let count = if bridge == "br0" { 24 } else { 6 };
    for _ in 0..count {
        let rule = rule(rng, topology, bridge);
        let (head, _) = rule.split_once("actions=").unwrap();
        // Of two rules of one match and priority the second replaces the first; of overlapping ones
        // it is not said which wins.
        if seen.insert(head.to_owned()) {
            rules.push(rule);
        }
    }
    rules
}

/// Groups of all types but select, which chooses by a hash that is the switch's own.
pub(crate) fn groups(rng: &mut Rng, topology: &Topology, bridge: &str) -> Vec<String> {
    let ports = topology.ofports(bridge);
    let bucket = |rng: &mut Rng| {
        let set = *rng.pick(&[
            "set_field:02:00:00:00:00:08->eth_src,",
            "set_queue:2,",
            "set_field:6->reg3,",
            "",
        ]);
        format!("bucket={set}output:{}", rng.pick(&ports))
    };
    let all: Vec<String> = (0..1 + rng.below(3)).map(|_| bucket(rng)).collect();
    let indirect = bucket(rng);
    let watched: Vec<String> = (0..2)
        .map(|at| {
            let watch = *rng.pick(&["watch_port:99", "watch_port:1", "watch_group:1"]);
            format!("bucket={watch},output:{}", 1 + at)
        })
        .collect();
    vec![
        format!("group_id=1,type=all,{}", all.join(",")),
        format!("group_id=2,type=indirect,{indirect}"),
        format!("group_id=3,type=ff,{}", watched.join(",")),
        "group_id=4,type=all,bucket=group:2,bucket=group:3".to_owned(),
    ]
}

/// The kind of packets that a rule matches, which decides the actions that it can have.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Any,
    Ip,
    Ipv6,
    Tcp,
    Udp,
    Arp,
    Mpls,
}

fn rule(rng: &mut Rng, topology: &Topology, bridge: &str) -> String {
    let table = if rng.chance(45) { 0 } else { rng.below(TABLES) };
    // No two rules of a table have the same priority: whichever wins is the same one in both
    // switches.
    let priority = 1 + rng.below(60_000);
    let mut parts = vec![format!("table={table}"), format!("priority={priority}")];
    if rng.chance(20) {
        parts.push(format!("cookie={:#x}", 1 + rng.below(9)));
    }
    let class = *rng.pick(&[
        Class::Any,
        Class::Any,
        Class::Any,
        Class::Ip,
        Class::Ipv6,
        Class::Tcp,
        Class::Udp,
        Class::Arp,
        Class::Mpls,
    ]);
    let name = match class {
        Class::Any => "",
        Class::Ip => "ip",
        Class::Ipv6 => "ipv6",
        Class::Tcp => "tcp",
        Class::Udp => "udp",
        Class::Arp => "arp",
        Class::Mpls => "mpls",
    };
    if !name.is_empty() {
        parts.push(name.to_owned());
    }
    let ports = topology.ofports(bridge);
    if rng.chance(25) {
        parts.push(format!("in_port={}", rng.pick(&ports)));
    }
    conditions(rng, class, &mut parts);
    let tagged = parts.iter().any(|part| part.starts_with("dl_vlan="));
    let mut actions = Vec::new();
    if rng.chance(6) {
        actions.push("meter:1".to_owned());
    }
    for _ in 0..rng.below(6) {
        actions.push(action(rng, &ports, table, class, tagged, 0));
    }
    if rng.chance(15) && table + 1 < TABLES {
        let sets = [
            "set_field:02:00:00:00:00:07->eth_src",
            "set_field:5->reg5",
            "set_queue:4",
            "dec_ttl",
        ];
        let set = if matches!(class, Class::Ip | Class::Tcp) {
            rng.below(4)
        } else {
            rng.below(3)
        };
        let out = if rng.chance(80) {
            format!(",output:{}", rng.pick(&ports))
        } else {
            String::new()
        };
        actions.push(format!("write_actions({}{out})", sets[set]));
    }
    if rng.chance(10) {
        actions.push(format!("write_metadata:{:#x}/0xff", rng.below(4)));
    }
    if rng.chance(20) && table + 1 < TABLES {
        actions.push(format!("goto_table:{}", table + 1 + rng.below(TABLES - table - 1)));
    }
    if actions.is_empty() {
        actions.push("drop".to_owned());
    }
    format!("{},actions={}", parts.join(","), actions.join(","))
}

fn conditions(rng: &mut Rng, class: Class, parts: &mut Vec<String>) {
    if rng.chance(15) {
        parts.push(format!("dl_src={}", MacAddr(mac(1 + rng.below(4) as u32))));
    }
    if rng.chance(10) {
        parts.push("dl_dst=02:00:00:00:00:00/ff:ff:ff:ff:ff:fe".to_owned());
    }
    if rng.chance(15) {
        parts.push(
            rng.pick(&["dl_vlan=10", "dl_vlan=20", "vlan_tci=0x0000", "vlan_tci=0x1000/0x1000"])
                .to_string(),
        );
    }
    if rng.chance(12) {
        parts.push(format!("reg{}={}", rng.below(3), rng.below(3)));
    }
    if rng.chance(6) {
        parts.push(format!("metadata={:#x}/0x3", rng.below(4)));
    }
    if rng.chance(6) {
        parts.push(
            rng.pick(&[
                "tun_id=0",
                "tun_id=0x1/0x1",
                "tun_src=0.0.0.0",
                "pkt_mark=0x2/0x2",
                "pkt_mark=0",
            ])
            .to_string(),
        );
    }
    let extra: &[&str] = match class {
        Class::Any => &[],
        Class::Ip => &[
            "nw_src=10.0.0.0/24",
            "nw_dst=10.0.1.1",
            "nw_tos=184",
            "nw_ttl=64",
            "nw_frag=no",
            "nw_proto=17",
            "nw_ecn=1",
        ],
        Class::Ipv6 => &[
            "ipv6_src=2001:db8::/126",
            "ipv6_dst=2001:db8::3",
            "nw_proto=6",
            "ipv6_label=0x0",
        ],
        Class::Tcp => &[
            "tp_dst=80",
            "tp_src=80/0xfffe",
            "tcp_flags=+syn-ack",
            "nw_dst=10.0.0.0/255.255.0.1",
        ],
        Class::Udp => &["tp_dst=81", "nw_src=10.0.0.0/30"],
        Class::Arp => &["arp_op=1", "arp_spa=10.0.0.0/24", "arp_tpa=10.0.1.1"],
        Class::Mpls => &["mpls_bos=1", "mpls_label=5", "mpls_tc=0"],
    };
    if !extra.is_empty() && rng.chance(60) {
        parts.push((*rng.pick(extra)).to_owned());
    }
}

fn action(rng: &mut Rng, ports: &[u16], table: usize, class: Class, tagged: bool, within: u32) -> String {
    let port = *rng.pick(ports);
    loop {
        return match rng.below(49) {
            0..=4 => format!("output:{port}"),
            5 => "IN_PORT".to_owned(),
            6 => (*rng.pick(&["FLOOD", "ALL", "NORMAL"])).to_owned(),
            7 => "NORMAL".to_owned(),
            8..=11 if table + 1 < TABLES => format!("resubmit(,{})", table + 1 + rng.below(TABLES - table - 1)),
            12 if table + 1 < TABLES => format!("resubmit({port},{})", table + 1),
            13 => format!("set_field:{}->eth_dst", MacAddr(mac(1 + rng.below(5) as u32))),
            14 if tagged => format!("set_field:{}->vlan_vid", 0x1000 + 10 * rng.below(3)),
            15 if tagged => format!("set_field:{}->vlan_pcp", rng.below(8)),
            16 if tagged => "strip_vlan".to_owned(),
            // The new tag is written to: by the specification it begins as the one that is there,
            // there as zero.
            17 => format!(
                "push_vlan:{},set_field:{}->vlan_vid,set_field:{}->vlan_pcp",
                rng.pick(&["0x8100", "0x88a8"]),
                0x1000 + 10 * rng.below(3),
                rng.below(8)
            ),
            18 => format!("set_field:{}->reg{}", rng.below(3), rng.below(3)),
            19 => format!("set_field:{:#x}/0xf0->reg1", 0x10 * rng.below(3)),
            20 => "move:NXM_OF_ETH_SRC[0..1]->NXM_NX_REG0[0..1]".to_owned(),
            21 => "move:NXM_NX_REG1[0..7]->NXM_OF_ETH_SRC[8..15]".to_owned(),
            22 => "push:NXM_NX_REG0[]".to_owned(),
            23 => "pop:NXM_NX_REG2[]".to_owned(),
            24 => format!("set_queue:{}", rng.below(3)),
            25 => "pop_queue".to_owned(),
            26 => format!("enqueue:{port}:{}", 1 + rng.below(3)),
            27 => format!("output(port={port},max_len={})", 60 + rng.below(40)),
            28 => "output:NXM_NX_REG0[0..15]".to_owned(),
            29 => "note:01.02.03".to_owned(),
            30 => format!(
                "controller(max_len={},id={},userdata=0a.0b)",
                100 + rng.below(9),
                rng.below(2)
            ),
            31 => format!(
                "bundle(eth_src,0,active_backup,ofport,members:{port},{})",
                rng.pick(ports)
            ),
            32 => format!("bundle_load(eth_src,0,active_backup,ofport,NXM_NX_REG2[0..15],members:99,{port})"),
            33 => "multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG1[0..3])".to_owned(),
            34 if within == 0 => {
                let inner: Vec<String> = (0..1 + rng.below(3))
                    .map(|_| action(rng, ports, table, class, tagged, 1))
                    .collect();
                format!("clone({})", inner.join(","))
            }
            35 if within == 0 && rng.chance(30) => "exit".to_owned(),
            36 => format!(
                "learn(table={},priority={},NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],output:NXM_OF_IN_PORT[])",
                TABLES + rng.below(2),
                60_001 + rng.below(3)
            ),
            37 => format!("resubmit(,{})", TABLES + rng.below(2)),
            38 | 39 => format!("group:{}", 1 + rng.below(4)),
            40 if rng.chance(30) => "check_pkt_larger(100)->NXM_NX_REG2[0]".to_owned(),
            41 => (*rng.pick(&[
                "set_tunnel:5",
                "set_tunnel64:0x123456789a",
                "set_field:0x100/0xf00->tun_id",
                "move:NXM_NX_TUN_ID[0..7]->NXM_NX_REG1[0..7]",
            ]))
            .to_owned(),
            42 => (*rng.pick(&[
                "set_field:3->pkt_mark",
                "set_field:0x20/0xf0->pkt_mark",
                "move:NXM_NX_PKT_MARK[0..3]->NXM_NX_TUN_IPV4_SRC[4..7]",
                "load:0x7->NXM_NX_PKT_MARK[16..18]",
            ]))
            .to_owned(),
            43 => "set_field:10.0.0.9->tun_src".to_owned(),
            _ => match class {
                Class::Ip => (*rng.pick(&[
                    "dec_ttl",
                    "mod_nw_tos:72",
                    "set_field:2->nw_ecn",
                    "set_field:10.0.0.9->ip_dst",
                    "set_field:10.1.0.0/255.255.0.0->ip_src",
                    "set_field:9->nw_ttl",
                    "push_mpls:0x8847",
                ]))
                .to_owned(),
                Class::Ipv6 => (*rng.pick(&[
                    "dec_ttl",
                    "set_field:2001:db8::9->ipv6_dst",
                    "set_field:0x5->ipv6_label",
                    "set_field:7->nw_ttl",
                ]))
                .to_owned(),
                Class::Tcp => (*rng.pick(&[
                    "set_field:99->tcp_dst",
                    "dec_ttl",
                    "mod_tp_src:7",
                    "fin_timeout(idle_timeout=5)",
                ]))
                .to_owned(),
                Class::Udp => {
                    (*rng.pick(&["set_field:99->udp_dst", "set_field:0x100/0xff00->udp_src", "dec_ttl"])).to_owned()
                }
                Class::Arp => (*rng.pick(&[
                    "set_field:2->arp_op",
                    "set_field:10.0.0.8->arp_tpa",
                    "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]",
                ]))
                .to_owned(),
                Class::Mpls => (*rng.pick(&[
                    "dec_mpls_ttl",
                    "set_field:9->mpls_label",
                    "set_mpls_tc:3",
                    "set_mpls_ttl:77",
                    "push_mpls:0x8847",
                ]))
                .to_owned(),
                Class::Any => continue,
            },
        };
    }
}

/// Matches of two dimensions, and the rule that they have in common.
pub(crate) fn dimensions(rng: &mut Rng) -> Vec<String> {
    let priority = 60_010 + rng.below(3);
    let mut rules = Vec::new();
    for at in 0..3 {
        let clause = 1 + rng.below(2);
        rules.push(format!(
            "table=1,priority={priority},ip,nw_src=10.0.{}.{at},actions=conjunction(7,{clause}/2)",
            rng.below(2)
        ));
        rules.push(format!(
            "table=1,priority={priority},ip,nw_dst=10.0.0.{at},actions=conjunction(7,2/2),conjunction(8,1/2)"
        ));
        rules.push(format!(
            "table=1,priority={priority},in_port={},actions=conjunction(8,2/2)",
            1 + at
        ));
    }
    rules.push(format!(
        "table=1,priority={},conj_id=7,ip,actions=output:1,set_field:3->reg3",
        1 + rng.below(60_000)
    ));
    rules.push("table=1,priority=5,conj_id=8,ip,actions=output:2,NORMAL".to_owned());
    rules
}
