//! `ofproto/trace` of packet types: `encap`, `decap` and network service headers (RFC 8300).
//!
//! Not compared, because they differ:
//! - megaflows of packets whose tags, or whose TTL in a label, an action depends on (Open vSwitch's
//!   leave out what they depend on), and of packets whose next protocol is unknown;
//! - `set(nsh())`: Open vSwitch's has fields that a rule matches and no action changes, stands
//!   before `pop_eth`, and has masked flags in two digits;
//! - a `pop_eth` right behind a `push_eth`, which ours leaves out together;
//! - bare packets as the flow of a trace, or behind a recirculation (addresses of connections);
//! - a header within a header: Open vSwitch goes on to show the outer one's fields;
//! - `set_field` of a header behind `decap`: accepted there, refused here.

use crate::run::{Daemons, Group, Table, row, run};

const TABLE: Table = Table {
    name: "trace of packet types",
    groups: &[TYPES],
};

/// Traces of packets of a host.
macro_rules! traced {
    ($flow:literal) => {
        row(concat!("ovs-appctl ofproto/trace br0 'in_port=1,", $flow, "'"))
    };
}

/// Traces of Ethernet packets with a service header.
macro_rules! served {
    ($flow:literal) => {
        row(concat!(
            "ovs-appctl ofproto/trace br0 'in_port=2,dl_type=0x894f,nsh_mdtype=1,",
            $flow,
            "'"
        ))
    };
}

const TYPES: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[("types.txt", FLOWS)],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure other-config:hwaddr=aa:55:aa:55:00:00",
        "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
        "ovs-vsctl add-port br0 p3 -- set interface p3 type=dummy ofport_request=3",
        "ovs-ofctl -O OpenFlow13 add-flows br0 types.txt",
    ],
    rows: &[
        row("ovs-ofctl -O OpenFlow13 dump-flows br0 --no-stats").unordered(),
        traced!("udp,nw_dst=10.0.0.1"),
        traced!("udp,nw_dst=10.0.0.2"),
        traced!("udp,nw_dst=10.0.0.3"),
        traced!("udp,nw_dst=10.0.0.4"),
        traced!("udp,nw_dst=10.0.0.5"),
        traced!("udp,nw_dst=10.0.0.6"),
        traced!("udp,nw_dst=10.0.0.7"),
        traced!("udp,nw_dst=10.0.0.8"),
        traced!("udp,nw_dst=10.0.0.9"),
        traced!("udp,nw_dst=10.0.0.14"),
        traced!("udp6,ipv6_dst=fc00::1"),
        served!("nsh_ttl=63,nsh_np=3,nsh_spi=1,nsh_si=255"),
        served!("nsh_ttl=1,nsh_np=3,nsh_spi=3,nsh_si=2"),
        served!("nsh_ttl=0,nsh_np=3,nsh_spi=3,nsh_si=2"),
        served!("nsh_ttl=63,nsh_np=3,nsh_spi=5,nsh_si=9"),
    ],
};

const FLOWS: &str = "\
ip,nw_dst=10.0.0.1,actions=encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,set_field:0x11223344->nsh_c1,encap(ethernet),set_field:11:22:33:44:55:66->eth_dst,2
ip,nw_dst=10.0.0.2,actions=encap(nsh),set_field:0x1234->nsh_spi,encap(ethernet),2
ip,nw_dst=10.0.0.3,actions=encap(nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfedcba9876543210))),set_field:0x1234->nsh_spi,encap(ethernet),2
ip,nw_dst=10.0.0.4,actions=encap(nsh(md_type=1)),dec_nsh_ttl,set_field:2->nsh_si,encap(ethernet),2,3
ip,nw_dst=10.0.0.5,actions=encap(nsh(md_type=1)),2
ip,nw_dst=10.0.0.6,actions=encap(ethernet),2
ip,nw_dst=10.0.0.7,actions=decap(),2
ip,nw_dst=10.0.0.8,actions=decap(),encap(ethernet),2
ip,nw_dst=10.0.0.9,actions=decap(),decap(),2
ip,nw_dst=10.0.0.10,actions=decap(),encap(mpls),set_field:5->mpls_label,encap(ethernet),2
ip,nw_dst=10.0.0.11,actions=encap(mpls),set_field:5->mpls_label,encap(ethernet),2
ip,nw_dst=10.0.0.12,actions=encap(mpls_mc),set_field:5->mpls_label,encap(ethernet),2
ip,nw_dst=10.0.0.13,actions=encap(nsh(md_type=1)),set_field:7->nsh_spi,encap(ethernet),decap(),decap(),2
ip,nw_dst=10.0.0.14,actions=encap(nsh(md_type=1)),encap(nsh(md_type=1)),set_field:7->nsh_spi,encap(ethernet),2
ipv6,actions=encap(nsh(md_type=1)),encap(ethernet),2
dl_type=0x894f,nsh_mdtype=1,nsh_spi=0x1,actions=decap(),decap(),3
dl_type=0x894f,nsh_mdtype=1,nsh_spi=0x2,nsh_c1=0x55,actions=set_field:0x56->nsh_c1,set_field:0x1/0x3->nsh_flags,dec_nsh_ttl,3
dl_type=0x894f,nsh_mdtype=1,nsh_spi=0x3,actions=dec_nsh_ttl,3
dl_type=0x894f,nsh_mdtype=1,nsh_spi=0x4,nsh_si=0,actions=set_field:0x5->nsh_spi,resubmit(,0)
dl_type=0x894f,nsh_mdtype=1,nsh_spi=0x5,actions=move:NXOXM_NSH_SI[]->NXM_NX_REG1[0..7],decap(),decap(),resubmit(,5)
table=5,reg1=9,ip,actions=2
table=5,priority=1,actions=3
table=5,packet_type=(1,0x800),actions=dec_ttl,encap(ethernet),2
";

#[test]
fn packet_types_are_traced_as_in_open_vswitch() {
    run(&TABLE);
}
