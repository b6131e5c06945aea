//! `ofproto/trace` of hashes: what a megaflow compares after `multipath` and `bundle`.

use crate::run::{Daemons, Group, Table, row, run};

const TABLE: Table = Table {
    name: "trace of links",
    groups: &[LINKS],
};

/// Traces of several packets by each of the rules with these numbers.
macro_rules! links {
    ($($number:literal),*) => { &[$(
        row(concat!("ovs-appctl ofproto/trace br0 in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,reg5=", $number, ",tcp,nw_src=10.1.2.3,nw_dst=10.3.4.5,tp_src=77,tp_dst=80")),
        row(concat!("ovs-appctl ofproto/trace br0 in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,reg5=", $number, ",udp,nw_src=10.1.2.3,nw_dst=10.3.4.5,tp_src=78,tp_dst=81")),
        row(concat!("ovs-appctl ofproto/trace br0 in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,reg5=", $number, ",udp6,ipv6_src=fe80::1,ipv6_dst=fe80::2,tp_src=5,tp_dst=6")),
        row(concat!("ovs-appctl ofproto/trace br0 in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,reg5=", $number, ",arp,arp_spa=1.2.3.4,arp_tpa=1.2.3.5")),
        row(concat!("ovs-appctl ofproto/trace br0 in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,reg5=", $number, ",dl_vlan=7,dl_vlan_pcp=3,sctp,nw_src=10.1.2.3,nw_dst=10.3.4.5,tp_src=77,tp_dst=80")),
        row(concat!("ovs-appctl ofproto/trace br0 in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,reg5=", $number, ",dl_type=0x1234")),
        row(concat!("ovs-appctl ofproto/trace br0 in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,reg5=", $number, ",ip,nw_frag=later,nw_proto=6,nw_src=10.1.2.3")),
    )*] };
}

/// Hashes of each kind of fields: what the megaflow compares. One link leaves no choice.
const LINKS: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[("links.txt", LINK_FLOWS)],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure other-config:hwaddr=aa:55:aa:55:00:00",
        "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
        "ovs-ofctl add-flows br0 links.txt",
    ],
    rows: links![0, 1, 2, 3, 4, 5, 6],
};

const LINK_FLOWS: &str = "\
reg5=0,actions=multipath(eth_src,0,modulo_n,1,0,NXM_NX_REG0[0..3]),bundle(eth_src,0,hrw,ofport,members:2)
reg5=1,actions=multipath(symmetric_l4,1,hash_threshold,1,0,NXM_NX_REG0[0..3]),bundle(symmetric_l4,1,hrw,ofport,members:2)
reg5=2,actions=multipath(symmetric_l3l4,2,hrw,1,0,NXM_NX_REG0[0..3]),bundle(symmetric_l3l4,2,hrw,ofport,members:2)
reg5=3,actions=multipath(symmetric_l3l4+udp,3,iter_hash,1,0,NXM_NX_REG0[0..3]),bundle(symmetric_l3l4+udp,3,hrw,ofport,members:2)
reg5=4,actions=multipath(nw_src,4,modulo_n,1,0,NXM_NX_REG0[0..3]),bundle(nw_src,4,hrw,ofport,members:2)
reg5=5,actions=multipath(nw_dst,5,hash_threshold,1,0,NXM_NX_REG0[0..3]),bundle(nw_dst,5,hrw,ofport,members:2)
reg5=6,actions=multipath(symmetric_l3,6,hrw,1,0,NXM_NX_REG0[0..3]),bundle(symmetric_l3,6,hrw,ofport,members:2)
";

#[test]
fn megaflows_of_hashes_compare_what_open_vswitchs_compare() {
    run(&TABLE);
}
