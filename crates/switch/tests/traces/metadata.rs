//! Metadata that outputs to ordinary ports ignore: marks, and the fields of tunnels.

use crate::model::Topology;
use flow::{Key, PortNo, extract};
use nanos::Nanos;
use openflow::model::FlowCommand;
use openflow::text::{Names, parse_flow, parse_tlv_maps};
use switch::Switch;
use switch::tables::Patience;
use switch::trace::Request;
use testkit::{Options, Packet, Vswitch, mac, skip, to_hex};

/// Rules of the first bridge, `in_port=1` its port `a1`. Traces of their packets must be equal.
const PROGRAMS: &[&[&str]] = &[
    &[
        "in_port=1,actions=set_field:5->tun_id,set_field:1.2.3.4->tun_dst,set_field:1.2.3.5->tun_src,set_field:0x12->pkt_mark,resubmit(,1)",
        "table=1,tun_id=5,tun_dst=1.2.3.4,pkt_mark=0x12/0xff,actions=move:NXM_NX_TUN_ID[0..15]->NXM_NX_REG0[0..15],output:2",
    ],
    &[
        "in_port=1,actions=set_field:7->tun_gbp_id,set_field:0x4->tun_gbp_flags,set_field:oam->tun_flags,set_field:1.2.3.4->tun_dst,goto_table:3",
        "table=3,tun_gbp_id=0x7/0xf,tun_flags=oam,tun_gbp_flags=4,actions=output:2,set_field:fe80::1->tun_ipv6_dst,set_field:fe80::2->tun_ipv6_src,resubmit(,4)",
        "table=4,tun_ipv6_dst=fe80::/16,tun_ipv6_src=fe80::2,actions=output:3",
    ],
    &[
        "in_port=1,actions=set_field:1.2.3.4->tun_dst,set_field:1->tun_erspan_ver,set_field:5->tun_erspan_idx,resubmit(,1)",
        "table=1,tun_erspan_ver=1,tun_erspan_idx=0x5,actions=output:2",
    ],
    &[
        "in_port=1,actions=set_field:1.2.3.4->tun_dst,set_field:2->tun_erspan_ver,set_field:1->tun_erspan_dir,set_field:3->tun_erspan_hwid,resubmit(,1)",
        "table=1,tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=0x3,actions=output:2",
    ],
    &[
        "in_port=1,actions=set_field:0x123456789->tun_id,move:NXM_NX_TUN_ID[0..31]->NXM_NX_PKT_MARK[],push:NXM_NX_PKT_MARK[],pop:NXM_NX_REG7[],learn(table=5,NXM_NX_TUN_ID[],NXM_NX_PKT_MARK[],load:NXM_NX_TUN_ID[32..39]->NXM_NX_REG0[0..7]),output:2",
    ],
    // The mapping of tunnel options.
    &[
        "in_port=1,actions=set_field:0x123->tun_metadata0,load:5->NXM_NX_TUN_METADATA1[3..40],move:NXM_NX_TUN_METADATA1[0..31]->NXM_NX_REG0[],resubmit(,1)",
        "table=1,tun_metadata0=0x123,actions=delete_field:tun_metadata0,resubmit(,2),push:tun_metadata1[0..47],pop:tun_metadata2[0..47],resubmit(,3),output:2",
        "table=2,priority=3,tun_metadata0,actions=output:3",
        "table=2,priority=1,actions=output:4",
        "table=3,tun_metadata2=0x28,actions=learn(table=4,reg1=0x5,load:NXM_NX_TUN_METADATA1[0..31]->NXM_NX_REG1[]),output:3",
    ],
    &[
        "in_port=1,actions=set_field:0x5/0xf->tun_metadata1,move:NXM_NX_TUN_METADATA1[0..31]->NXM_NX_TUN_METADATA2[32..63],output:x0,resubmit(,1)",
        "table=1,priority=2,tun_metadata1=0x15,actions=output:2",
        "table=1,priority=1,tun_metadata2=0x500000000,actions=output:3,multipath(eth_src,50,modulo_n,1,0,tun_metadata1[0..7]),goto_table:2",
        "table=2,tun_metadata1=0,actions=output:4",
    ],
    // The other bridge sees only the mark.
    &["in_port=1,actions=set_field:5->tun_id,set_field:6->pkt_mark,output:x0"],
    &[
        "in_port=1,actions=set_field:1->pkt_mark,output:2,set_field:0->pkt_mark,output:3,clone(set_field:9->pkt_mark,output:4),output:3",
    ],
];

/// The fields of the first bridge's tunnels' options.
const OPTIONS: &str = "{class=0xffff,type=0,len=4}->tun_metadata0,{class=0xffff,type=1,len=12}->tun_metadata1,\
                       {class=0xffff,type=2,len=8}->tun_metadata2";

/// Those of the second.
const BEYOND: [&str; 2] = ["pkt_mark=6,tun_id=0,actions=output:2", "priority=1,actions=drop"];

#[test]
fn marks_and_tunnels_metadata_go_through_tables_as_in_open_vswitch() {
    skip!(unless "ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovs-ofctl");
    let oracle = Vswitch::debian(Options::default());
    oracle.vsctl(&Topology::create());
    let mut control = oracle.unixctl();
    let show = control.call("dpif/show", &[]).unwrap();
    let topology = Topology::read(&show);
    let numbers = |port: &str| show.split_whitespace().skip_while(|word| *word != port).nth(1).unwrap();
    let (patch, _) = numbers("x0").split_once('/').unwrap();
    let (ofport, device) = numbers("a1").trim_end_matches(':').split_once('/').unwrap();
    let (ofport, device): (u16, u32) = (ofport.parse().unwrap(), device.parse().unwrap());
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let bytes = packet.udp(1, 2, b"data").bytes();
    oracle.tool("ovs-ofctl", &["add-tlv-map", "br0", OPTIONS]).expect_ok();
    for program in PROGRAMS {
        let mut ours = Switch::new(5);
        ours.configure(topology.config(), Nanos::ZERO);
        ours.change_options("br0", 0, &parse_tlv_maps(OPTIONS).unwrap(), 0)
            .unwrap();
        for bridge in crate::BRIDGES {
            oracle.tool("ovs-ofctl", &["del-flows", bridge]).expect_ok();
        }
        let rules = program
            .iter()
            .map(|rule| ("br0", *rule))
            .chain(BEYOND.map(|rule| ("br1", rule)));
        for (bridge, rule) in rules {
            let rule = rule
                .replace("x0", patch)
                .replace("in_port=1", &format!("in_port={ofport}"));
            oracle
                .tool("ovs-ofctl", &["-O", "OpenFlow13", "add-flow", bridge, &rule])
                .expect_ok();
            let change = parse_flow(FlowCommand::Add, &rule, &Names::default()).unwrap();
            ours.flow_mod(bridge, &change, Nanos::ZERO).unwrap();
        }
        let in_port = format!("in_port={ofport}");
        let theirs = control
            .call("ofproto/trace", &["br0", &in_port, &to_hex(&bytes)])
            .unwrap();
        let key: Key = extract(&bytes, &PortNo(device).into()).unwrap();
        let mut request = Request::new("br0", key, ofport.into());
        request.effective = true;
        let ours = ours
            .trace(&request, Nanos::ZERO, Patience::Whole)
            .unwrap()
            .unwrap()
            .text;
        assert_eq!(without_key(&crate::told(&ours)), without_key(&crate::told(&theirs)));
        let actions = |text: &str| {
            let line = text.lines().find(|line| line.starts_with("Datapath actions"))?;
            // Of a mark only the bits that change are written here.
            let mut parts = line.split("skb_mark(").map(str::to_owned);
            let first = parts.next().into_iter();
            let marks = parts.map(|part| match part.split_once(')') {
                Some((mark, rest)) => format!("{}){rest}", mark.split('/').next().unwrap_or_default()),
                None => part,
            });
            Some(first.chain(marks).collect::<Vec<_>>().join("skb_mark("))
        };
        assert_eq!(actions(&ours), actions(&theirs), "{ours}");
    }
}

/// The text of a trace without the tunnel key, which Open vSwitch leaves out if the tunnel's remote
/// end is known.
fn without_key(lines: &[String]) -> Vec<String> {
    let known = |line: &str| line.starts_with("Final flow") && line.contains("tun_dst=");
    let cut = |line: &String| match line.split_once("tun_id=") {
        Some((before, behind)) if known(line) => format!("{before}{}", behind.split_once(',').unwrap_or_default().1),
        _ => line.clone(),
    };
    lines.iter().map(cut).collect()
}
