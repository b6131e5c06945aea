//! `ofproto/trace` of connection tracking: what `ct` does, and how a packet continues behind it.

use crate::run::{Daemons, Group, Table, row, run, step};

const TABLE: Table = Table {
    name: "trace of connections",
    groups: &[CONNECTIONS],
};

/// Traces of packets of a host.
macro_rules! traced {
    ($flow:literal) => {
        row(concat!(
            "ovs-appctl ofproto/trace br0 'in_port=1,dl_src=50:54:00:00:00:05,",
            $flow,
            "'"
        ))
    };
    ($flow:literal, $options:literal) => {
        row(concat!(
            "ovs-appctl ofproto/trace br0 'in_port=1,dl_src=50:54:00:00:00:05,",
            $flow,
            "' ",
            $options
        ))
    };
}

const CONNECTIONS: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[("connections.txt", FLOWS)],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure other-config:hwaddr=aa:55:aa:55:00:00",
        "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
        "ovs-vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail-mode=secure other-config:hwaddr=aa:55:aa:55:00:01",
        "ovs-vsctl add-port br0 t0 -- set interface t0 type=patch options:peer=t1 ofport_request=3 \
         -- add-port br1 t1 -- set interface t1 type=patch options:peer=t0 ofport_request=1 \
         -- add-port br1 p3 -- set interface p3 type=dummy ofport_request=3",
        "ovs-ofctl -O OpenFlow13 add-flows br0 connections.txt",
        "ovs-ofctl add-flow br1 'ct_state=-trk,ip,actions=ct(commit,zone=3),3'",
        "ovs-ofctl add-flow br1 'priority=1,actions=3'",
    ],
    rows: &[
        row("ovs-ofctl -O OpenFlow13 dump-flows br0 --no-stats").unordered(),
        traced!("tcp,nw_src=10.0.0.1"),
        traced!("tcp,nw_src=10.0.0.1", "--ct-next trk,est"),
        traced!("tcp,nw_src=10.0.0.1", "--ct-next 'trk est rpl snat'"),
        traced!("tcp,nw_src=10.0.0.1", "--ct-next trk,inv"),
        traced!("tcp,nw_src=10.0.0.1", "--ct-next ''"),
        traced!("tcp,nw_src=10.0.0.1,nw_frag=first"),
        traced!("tcp,nw_src=10.0.0.1,nw_frag=later"),
        traced!("tcp,nw_src=10.0.0.2"),
        traced!("tcp,nw_src=10.0.0.3"),
        traced!("tcp,nw_src=10.0.0.3", "--ct-next trk,new,dnat --ct-next trk,est"),
        traced!("tcp,nw_src=10.0.0.4"),
        traced!("tcp,nw_src=10.0.0.5,nw_dst=10.0.0.9,tp_src=1,tp_dst=2"),
        traced!("udp,nw_src=10.0.0.5,nw_dst=10.0.0.9,tp_src=1,tp_dst=2"),
        traced!("icmp,nw_src=10.0.0.5,nw_dst=10.0.0.9,icmp_type=8"),
        traced!("tcp,nw_src=10.0.0.6,nw_dst=10.0.0.9,tp_src=1,tp_dst=2"),
        traced!("tcp,nw_src=10.0.0.7"),
        traced!("tcp,nw_src=10.0.0.8"),
        traced!("udp,nw_src=10.0.0.9"),
        traced!("tcp,nw_src=10.0.0.9"),
        traced!("tcp,nw_src=10.0.0.10", "--ct-next trk,inv"),
        traced!("tcp,nw_src=10.0.0.11"),
        traced!("tcp,nw_src=10.0.0.12"),
        traced!("tcp,nw_src=10.0.0.15"),
        traced!("tcp,nw_src=10.0.0.13,dl_vlan=7"),
        traced!("tcp6,ipv6_src=fc01::1,ipv6_dst=fc01::2,tp_src=7"),
        traced!("arp"),
        step("ovs-ofctl add-flow br0 'table=30,ip,ct_state=-trk,actions=2'"),
        row("ovs-appctl ofproto/trace br0 'in_port=1,ct_state=trk|est,ct_mark=5,ct_zone=3,tcp,nw_src=10.0.0.14'"),
        row("ovs-appctl ofproto/trace br0 'in_port=1,tcp,nw_src=10.0.0.14'"),
        traced!("tcp", "--ct-next new"),
        traced!("tcp", "--ct-next trk,new,est"),
        traced!("tcp", "--ct-next foo"),
    ],
};

const FLOWS: &str = "\
table=0,ip,nw_src=10.0.0.1,actions=ct(table=1),2
table=0,tcp,nw_src=10.0.0.2,actions=ct(commit,zone=5,exec(set_field:0x7->ct_mark,set_field:0xf/0xff->ct_label),nat(src=1.1.1.1-1.1.1.5:10-20)),2
table=0,ip,nw_src=10.0.0.3,actions=ct(table=1,zone=NXM_NX_REG0[0..15],nat),ct_clear,ct(commit,table=2)
table=0,ip,nw_src=10.0.0.4,actions=set_field:00:00:00:00:00:99->eth_dst,ct(commit,force,nat(dst=2.2.2.2)),ct(commit,exec(move:NXM_OF_ETH_SRC[]->NXM_NX_CT_LABEL[0..47])),2
table=0,ip,nw_src=10.0.0.5,actions=load:5->NXM_NX_REG1[],ct(commit,nat(src=1.1.1.1-1.1.1.9:100-200,random),zone=NXM_NX_REG1[0..15],table=1)
table=0,tcp,nw_src=10.0.0.6,actions=ct(commit,nat(dst=1.1.1.1:80,persistent,hash),table=1)
table=0,ip,nw_src=10.0.0.7,actions=ct(table=4)
table=0,ip,nw_src=10.0.0.8,actions=clone(ct(commit,table=4)),2
table=0,udp,nw_src=10.0.0.9,actions=ct(commit,zone=65535,alg=tftp,table=6)
table=0,tcp,nw_src=10.0.0.9,actions=ct(commit,zone=65535,alg=ftp,table=6)
table=0,ip,nw_src=10.0.0.10,actions=ct(table=8)
table=0,ip,nw_src=10.0.0.11,actions=ct(commit),output:3,2
table=0,ip,nw_src=10.0.0.12,actions=write_actions(ct(commit,zone=9),output:2),goto_table:9
table=0,dl_vlan=7,ip,nw_src=10.0.0.13,actions=pop_vlan,ct(commit,table=1),push_vlan:0x8100,set_field:4100->vlan_vid,2
table=0,ip,nw_src=10.0.0.15,actions=write_actions(ct(commit,zone=9,table=1)),goto_table:9
table=0,ip,nw_src=10.0.0.14,actions=resubmit(,30)
table=0,ipv6,actions=ct(commit,nat(src=fc00::1-fc00::5),zone=2,table=4)
table=1,ct_state=+new+trk,ip,actions=ct(commit),2
table=1,ct_state=+est+trk,ip,actions=2
table=1,ct_state=+inv+trk,ip,actions=drop
table=2,ct_mark=1,ct_state=+trk,actions=drop
table=4,priority=10,ct_state=+trk,ip,actions=move:NXM_NX_CT_MARK[]->NXM_NX_REG3[],ct_clear,resubmit(,5),2
table=4,priority=10,ct_state=+trk,ipv6,actions=ct(table=1)
table=5,ct_state=-trk,ip,actions=resubmit(,7),ct(commit,zone=9)
table=6,ct_state=+trk,ct_zone=65535,ct_label=0/1,actions=2
table=7,actions=load:1->NXM_NX_REG4[]
table=8,ip,ct_state=+trk-inv,actions=resubmit(,10,ct)\ntable=8,priority=1,ip,ct_state=+trk,actions=2
table=9,ip,actions=drop
table=10,tcp,nw_src=0.0.0.0,actions=2
";

#[test]
fn connections_are_traced_as_in_open_vswitch() {
    run(&TABLE);
}
