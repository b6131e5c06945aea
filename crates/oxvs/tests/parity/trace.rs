//! `ofproto/trace`: packets through rules of every action kind, and wrong arguments.

use crate::run::{Daemons, Group, Table, row, run, step};

const TABLE: Table = Table {
    name: "trace",
    groups: &[ACTIONS, MORE, RECIRCULATION, SWITCHING, MIRRORS, EXPORTS, ARGUMENTS],
};

const FLOWS: &str = "\
table=0,priority=10,in_port=1,dl_vlan=1 actions=strip_vlan,output:2
table=0,cookie=0x5,in_port=1,tcp,tp_dst=1 actions=output:2
table=0,in_port=1,tcp,tp_dst=2 actions=drop
table=0,in_port=1,tcp,tp_dst=3 actions=output:2,output:3
table=0,in_port=1,tcp,tp_dst=4 actions=flood
table=0,in_port=1,tcp,tp_dst=5 actions=all
table=0,in_port=1,tcp,tp_dst=6 actions=in_port
table=0,in_port=1,tcp,tp_dst=7 actions=local
table=0,in_port=1,tcp,tp_dst=8 actions=mod_vlan_vid:9,mod_vlan_pcp:3,output:2
table=0,in_port=1,tcp,tp_dst=9 actions=push_vlan:0x8100,set_field:4100->vlan_vid,output:2
table=0,in_port=1,tcp,tp_dst=10 actions=mod_dl_src:00:01:02:03:04:05,mod_dl_dst:00:01:02:03:04:06,output:2
table=0,in_port=1,tcp,tp_dst=11 actions=mod_nw_src:1.2.3.4,mod_nw_dst:1.2.3.5,output:2
table=0,in_port=1,tcp,tp_dst=12 actions=mod_tp_src:12,mod_tp_dst:13,output:2
table=0,in_port=1,tcp,tp_dst=13 actions=mod_nw_tos:32,mod_nw_ecn:1,mod_nw_ttl:7,output:2
table=0,in_port=1,tcp,tp_dst=14 actions=dec_ttl,output:2
table=0,in_port=1,tcp,tp_dst=15 actions=load:0x5->NXM_NX_REG0[],move:NXM_NX_REG0[0..3]->NXM_NX_REG1[4..7],resubmit(,1)
table=0,in_port=1,tcp,tp_dst=16 actions=resubmit:7
table=0,in_port=1,tcp,tp_dst=17 actions=push:NXM_OF_ETH_SRC[],pop:NXM_OF_ETH_DST[],output:2
table=0,in_port=1,tcp,tp_dst=18 actions=push_mpls:0x8847,set_mpls_label:7,set_mpls_tc:1,set_mpls_ttl:9,output:2
table=0,in_port=1,tcp,tp_dst=19 actions=controller
table=0,in_port=1,tcp,tp_dst=20 actions=controller(max_len=10,reason=action,id=3)
table=0,in_port=1,tcp,tp_dst=21 actions=group:1
table=0,in_port=1,tcp,tp_dst=22 actions=group:2
table=0,in_port=1,tcp,tp_dst=23 actions=group:3
table=0,in_port=1,tcp,tp_dst=24 actions=group:4
table=0,in_port=1,tcp,tp_dst=25 actions=clone(mod_nw_src:1.2.3.4,output:2),output:3
table=0,in_port=1,tcp,tp_dst=26 actions=learn(table=2,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:2
table=0,in_port=1,tcp,tp_dst=27 actions=goto_table:3
table=0,in_port=1,tcp,tp_dst=28 actions=write_metadata:0x77,goto_table:4
table=0,in_port=1,tcp,tp_dst=29 actions=write_actions(output:2,set_field:1.1.1.1->ip_src),goto_table:4
table=0,in_port=1,tcp,tp_dst=30 actions=clear_actions,write_actions(output:2)
table=0,in_port=1,tcp,tp_dst=31 actions=output:NXM_NX_REG0[]
table=0,in_port=1,tcp,tp_dst=32 actions=bundle(eth_src,0,hrw,ofport,members:2,3)
table=0,in_port=1,tcp,tp_dst=33 actions=multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[]),output:2
table=0,in_port=1,tcp,tp_dst=34 actions=set_queue:1,output:2,pop_queue
table=0,in_port=1,tcp,tp_dst=36 actions=resubmit(,36)
table=36,tcp actions=resubmit(,36)
table=0,in_port=1,tcp,tp_dst=37 actions=note:01.02.03,output:2
table=0,in_port=1,tcp,tp_dst=38 actions=output(port=2,max_len=100)
table=0,in_port=1,tcp,tp_dst=39 actions=output:9
table=0,in_port=1,tcp,tp_dst=40 actions=resubmit(,40)
table=0,in_port=1,tcp,tp_dst=41 actions=fin_timeout(idle_timeout=5),output:2
table=0,in_port=1,tcp,tp_dst=42 actions=exit,output:2
table=0,in_port=1,tcp,tp_dst=45 actions=check_pkt_larger(100)->NXM_NX_REG0[0],output:2
table=0,in_port=1,tcp,tp_dst=47 actions=conjunction(1,1/2)
table=0,in_port=1,tcp,tp_dst=48 actions=meter:1,output:2
table=1,reg0=5,reg1=0x50 actions=output:3
table=3,priority=7,ip,nw_src=10.0.0.0/8 actions=output:2
table=4,metadata=0x77 actions=output:3
table=0,in_port=2,ip actions=conjunction(1,1/2)
table=0,in_port=2,ip,priority=5,nw_src=10.0.0.1 actions=conjunction(7,1/2)
table=0,in_port=2,ip,priority=5,nw_dst=10.0.0.2 actions=conjunction(7,2/2)
table=0,in_port=2,ip,priority=5,conj_id=7 actions=output:3
table=0,in_port=1,arp actions=output:2
table=0,in_port=1,icmp actions=output:2
table=0,in_port=1,icmp6,icmpv6_type=135 actions=output:3
table=0,in_port=1,sctp,tp_dst=9 actions=output:2
table=0,in_port=1,udp6,tp_dst=9 actions=dec_ttl,output:2
table=0,in_port=1,mpls,mpls_bos=1 actions=pop_mpls:0x0800,output:2
table=0,in_port=1,ip,nw_frag=later actions=output:3
table=0,in_port=1,dl_vlan=5 actions=mod_vlan_vid:6,output:3
";

/// Rules of every action kind.
const ACTIONS: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[("flows.txt", FLOWS)],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure protocols=OpenFlow10,OpenFlow13,OpenFlow15 \
         other-config:hwaddr=aa:55:aa:55:00:00",
        "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
        "ovs-vsctl add-port br0 p3 -- set interface p3 type=dummy ofport_request=3",
        "ovs-ofctl -O OpenFlow15 add-meter br0 meter=1,kbps,band=type=drop,rate=1000",
        "ovs-ofctl -O OpenFlow13 add-group br0 group_id=1,type=all,bucket=output:2,bucket=mod_nw_src:1.1.1.1,output:3",
        "ovs-ofctl -O OpenFlow13 add-group br0 group_id=2,type=indirect,bucket=output:3",
        "ovs-ofctl -O OpenFlow13 add-group br0 group_id=3,type=select,bucket=weight:1,output:3",
        "ovs-ofctl -O OpenFlow13 add-group br0 group_id=4,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3",
        "ovs-ofctl -O OpenFlow15 add-flows br0 flows.txt",
    ],
    rows: &[
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=2"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=3"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=4"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=5"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=6"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=7"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=8"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=9"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=10"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=11"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=12"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=13"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=14,nw_ttl=64"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=14,nw_ttl=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=15"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=16"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=17,dl_src=00:00:00:00:00:0a"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=18"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=19"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=20"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=21"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=22"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=23"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=24"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=25"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=26"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=27,nw_src=10.1.1.1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=27,nw_src=11.1.1.1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=28"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=29"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=30"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=31"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=32"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=33"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=34"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=36"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=37"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=38"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=39"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=40"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=41"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=42"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=45"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=48"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=99"),
        row("ovs-appctl ofproto/trace br0 in_port=1,dl_vlan=1,dl_vlan_pcp=2"),
        row("ovs-appctl ofproto/trace br0 in_port=2,ip,nw_src=10.0.0.1,nw_dst=10.0.0.2"),
        row("ovs-appctl ofproto/trace br0 in_port=2,ip,nw_src=10.0.0.1,nw_dst=10.0.0.3"),
        row("ovs-appctl ofproto/trace br0 in_port=1,arp,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.2"),
        row("ovs-appctl ofproto/trace br0 in_port=1,icmp,icmp_type=8"),
        row("ovs-appctl ofproto/trace br0 in_port=1,icmp6,icmpv6_type=135,nd_target=fe80::1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,sctp,tp_dst=9"),
        row("ovs-appctl ofproto/trace br0 in_port=1,udp6,tp_dst=9,nw_ttl=9"),
        row("ovs-appctl ofproto/trace br0 in_port=1,mpls,mpls_label=7,mpls_bos=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,ip,nw_frag=later"),
        row("ovs-appctl ofproto/trace --names br0 in_port=p1,tcp,tp_dst=3"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=3 -generate"),
        row("ovs-appctl ofproto/trace br0 in_port=1 \
             50540000000a50540000000908004500001c00000000401166cf0a0000010a000002000100020008dd0a"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1,tcp,tp_dst=3 output:2"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1,tcp,tp_dst=3 resubmit(,0)"),
        row("ovs-appctl ofproto/trace-packet-out -consistent br0 in_port=1,tcp,tp_dst=3 table"),
    ],
};

const MORE_FLOWS: &str = "\
in_port=1,tcp6 actions=dec_ttl,output:2
in_port=1,ip,nw_tos=4 actions=mod_nw_src:1.1.1.1,output:2
in_port=1,ip,nw_tos=8 actions=mod_nw_tos:16,output:2
in_port=1,ip,nw_tos=12 actions=load:1->NXM_OF_IP_SRC[],dec_ttl,output:2
in_port=1,ip,nw_tos=16 actions=push_mpls:0x8847,set_mpls_label:4,push_mpls:0x8847,output:2
in_port=1,ip,nw_tos=20 actions=set_queue:3,set_field:4->pkt_mark,push_vlan:0x8100,mod_dl_src:00:00:00:00:00:07,output:2,controller
in_port=1,ip,nw_tos=24 actions=controller(pause),output:2
in_port=1,ip,nw_tos=28 actions=write_actions(output:2)
in_port=1,ip,nw_tos=32 actions=learn(table=3,idle_timeout=5,hard_timeout=6,fin_idle_timeout=2,cookie=9,send_flow_rem,\
NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])
in_port=1,mpls,mpls_bos=1 actions=dec_mpls_ttl,output:2,set_mpls_tc:3,output:3
in_port=1,mpls,mpls_bos=0 actions=pop_mpls:0x8847,output:2
in_port=3,mpls,mpls_label=7 actions=pop_mpls:0x8847,output:2
in_port=3,mpls,mpls_label=8 actions=pop_mpls:0x8847,pop_mpls:0x0800,dec_ttl,output:2
in_port=3,mpls,mpls_label=9 actions=pop_mpls:0x0800,output:2
in_port=2,dl_vlan=1 actions=set_field:4100->vlan_vid
in_port=2,dl_vlan=2 actions=set_field:3->vlan_pcp,output:3
in_port=2,dl_vlan=3 actions=pop_vlan,output:3
in_port=2,dl_vlan=4 actions=pop_vlan
in_port=2,dl_vlan=5 actions=push_vlan:0x88a8,set_field:4100->vlan_vid,output:3
in_port=2,dl_vlan=6 actions=pop_vlan,push_vlan:0x88a8,set_field:4100->vlan_vid,output:3
in_port=2,icmp6,icmp_type=135 actions=set_field:fe80::1->nd_target,output:3
";

/// Headers in their order, the bits of the megaflow, OpenFlow 1.0's words.
const MORE: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[("flows.txt", MORE_FLOWS)],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure protocols=OpenFlow10,OpenFlow13,OpenFlow15 \
         other-config:hwaddr=aa:55:aa:55:00:00",
        "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
        "ovs-vsctl add-port br0 p3 -- set interface p3 type=dummy ofport_request=3",
        "ovs-ofctl -O OpenFlow15 add-flows br0 flows.txt",
        "ovs-ofctl add-flow br0 in_port=3,dl_vlan=1,actions=strip_vlan,output:2",
        "ovs-ofctl add-flow br0 in_port=3,dl_vlan=2,actions=mod_vlan_vid:7,mod_vlan_pcp:3,enqueue:2:1",
        "ovs-ofctl -O OpenFlow13 add-flow br0 in_port=3,dl_vlan=3,actions=strip_vlan,output:2",
        "ovs-ofctl add-flow br0 in_port=3,dl_vlan=4,actions=normal",
        "ovs-ofctl add-flow br0 in_port=2,dl_vlan=77,actions=mod_vlan_vid:9,debug_recirc,resubmit(,9)",
        "ovs-ofctl add-flow br0 in_port=2,dl_vlan=78,actions=debug_slow,3",
        "ovs-ofctl add-flow br0 table=9,dl_vlan=9,actions=output:3",
    ],
    rows: &[
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp6,nw_ttl=64"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp6,nw_ttl=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,ip,nw_tos=4"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,nw_tos=4"),
        row("ovs-appctl ofproto/trace br0 in_port=1,ip,nw_tos=8"),
        row("ovs-appctl ofproto/trace br0 in_port=1,udp,nw_tos=8"),
        row("ovs-appctl ofproto/trace br0 in_port=1,ip,nw_tos=12,nw_ttl=9"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,nw_tos=12,nw_ttl=9"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,nw_tos=16,nw_ttl=3"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,nw_tos=20"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,nw_tos=24"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,nw_tos=24 -generate"),
        row("ovs-appctl ofproto/trace --names br0 in_port=p1,tcp,nw_tos=28"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,nw_tos=32"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,nw_tos=32 --generate"),
        row("ovs-appctl ofproto/trace br0 in_port=1,mpls,mpls_label=7,mpls_ttl=64,mpls_bos=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,mpls,mpls_label=7,mpls_ttl=1,mpls_bos=1"),
        row(
            "ovs-appctl ofproto/trace br0 in_port=3 500000000002500000000001884700009040000201404500001c00000000400166df0a0000010a0000020800f7ff00000000",
        ),
        row("ovs-appctl ofproto/trace br0 in_port=1,mpls,mpls_label=7,mpls_ttl=64,mpls_bos=0"),
        row("ovs-appctl ofproto/trace br0 in_port=3 \
             50540000000a50540000000988470000704000007140450000140000000040110000c0000201c0000202"),
        row("ovs-appctl ofproto/trace br0 in_port=3 \
             50540000000a50540000000988470000804000007140450000140000000040110000c0000201c0000202"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=1,dl_vlan_pcp=5"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=2,dl_vlan_pcp=5"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=3,dl_vlan_pcp=5"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=4,dl_vlan_pcp=5"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=5,dl_vlan_pcp=5"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=6,dl_vlan_pcp=5"),
        row("ovs-appctl ofproto/trace br0 in_port=2,icmp6,icmp_type=135,nd_target=::1"),
        row("ovs-appctl ofproto/trace br0 in_port=3,dl_vlan=1"),
        row("ovs-appctl ofproto/trace br0 in_port=3,dl_vlan=2"),
        row("ovs-appctl ofproto/trace br0 in_port=3,dl_vlan=3"),
        row("ovs-appctl ofproto/trace br0 in_port=3,dl_vlan=4"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=77"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=78"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1 'conjunction(1,1/2)'"),
        step(
            "ovs-ofctl -O OpenFlow15 add-flow br0 cookie=9,in_port=3,dl_type=0x1234,actions=controller(id=5,max_len=77),output:2",
        ),
        step(
            "ovs-appctl netdev-dummy/receive p3 in_port(3),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)",
        ),
        row("ovs-appctl dpctl/dump-flows").eventually(),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1,dl_vlan=5 strip_vlan,output:2"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1,dl_vlan=5 pop_vlan,output:2"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1,tcp,nw_tos=8 drop"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=CONTROLLER,dl_src=00:00:00:00:00:01 normal"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=CONTROLLER flood"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1 group:77"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1 meter:5"),
        row("ovs-appctl ofproto/trace-packet-out -consistent br0 in_port=1 dec_ttl"),
        row("ovs-appctl ofproto/trace-packet-out -consistent br0 in_port=1 strip_vlan"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1 -generate output:2"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1 \
             50540000000a50540000000908004500001c00000000401166cf0a0000010a000002000100020008dd0a output:3"),
        row("ovs-appctl ofproto/trace \
             'recirc_id(0),in_port(3),eth(src=50:54:00:00:00:05,dst=ff:ff:ff:ff:ff:ff),eth_type(0x8100),vlan(vid=1,pcp=0),\
              encap(eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2))'"),
        row("ovs-appctl ofproto/trace --names ovs-dummy \
             'in_port(p3),eth(),eth_type(0x0800),ipv4(src=10.0.0.0/255.0.0.0,frag=no)'"),
        row("ovs-appctl ofproto/trace ovs-dummy \
             'in_port(3)' 50540000000a50540000000908004500001c00000000401166cf0a0000010a000002000100020008dd0a"),
        step(
            "ovs-appctl netdev-dummy/receive p2 50540000000a5054000000098100004d080045000014000000004011aaaa0a0000010a000002",
        ),
        row("ovs-ofctl dump-flows br0 table=9").eventually(),
        row("ovs-ofctl -O OpenFlow13 add-flow br0 table=9,actions=write_actions(debug_recirc)").status(),
    ],
};

/// Packets that recirculated: what is left of the rules that they have met.
const RECIRCULATION: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[(
        "flows.txt",
        "cookie=5,in_port=1,mpls actions=resubmit(,1),output:3\n\
         table=1,cookie=0x61,mpls actions=pop_mpls:0x0800,set_field:00:00:00:00:00:01->eth_dst,mod_nw_ttl:5,resubmit(,2),note:01,output:2\n\
         table=2,ip actions=dec_ttl,output:3\n\
         in_port=2,mpls actions=pop_mpls:0x0800,write_actions(set_field:1.1.1.1->ip_src,output:2),goto_table:3\n\
         table=3 actions=output:3,goto_table:4\n\
         table=4 actions=drop\n",
    )],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure protocols=OpenFlow10,OpenFlow15 \
         other-config:hwaddr=aa:55:aa:55:00:00",
        "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
        "ovs-vsctl add-port br0 p3 -- set interface p3 type=dummy ofport_request=3",
        "ovs-ofctl -O OpenFlow15 add-flows br0 flows.txt",
    ],
    rows: &[
        row(
            "ovs-appctl ofproto/trace 'recirc_id(0x1),in_port(1),eth(),eth_type(0x0800),ipv4(proto=17,ttl=64,frag=no)'",
        ),
        step(
            "ovs-appctl netdev-dummy/receive p1 \
             50540000000a50540000000988470000714045000014000000004011000a0000010a000002",
        ),
        row(
            "ovs-appctl ofproto/trace 'recirc_id(0x1),in_port(1),eth(),eth_type(0x0800),ipv4(proto=17,ttl=64,frag=no)'",
        )
        .eventually(),
        step(
            "ovs-appctl netdev-dummy/receive p2 \
             50540000000a50540000000988470000714045000014000000004011000a0000010a000002",
        ),
        row(
            "ovs-appctl ofproto/trace 'recirc_id(0x2),in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,ttl=64,frag=no)'",
        )
        .eventually(),
    ],
};

/// sFlow, IPFIX, NetFlow and the action `sample`.
const EXPORTS: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure other-config:hwaddr=aa:55:aa:55:00:00 \
         -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
         -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2 \
         -- add-port br0 p3 tag=7 -- set interface p3 type=dummy ofport_request=3",
        "ovs-ofctl add-flow br0 tcp,tp_dst=1,actions=2",
        "ovs-ofctl add-flow br0 tcp,tp_dst=2,actions=2,3",
        "ovs-ofctl add-flow br0 tcp,tp_dst=3,actions=drop",
        "ovs-ofctl add-flow br0 tcp,tp_dst=4,actions=normal",
        "ovs-ofctl add-flow br0 tcp,tp_dst=5,actions=mod_vlan_vid:5,mod_vlan_pcp:3,2",
        "ovs-ofctl add-flow br0 tcp,tp_dst=6,actions=mod_vlan_vid:5,2,strip_vlan,3",
        "ovs-ofctl add-flow br0 tcp,tp_dst=7,actions=2,controller",
        "ovs-ofctl add-flow br0 tcp,tp_dst=8,actions=resubmit(,1)",
        "ovs-ofctl add-flow br0 table=1,actions=dec_ttl,local",
        "ovs-ofctl add-flow br0 tcp,tp_dst=9,actions=clone(mod_vlan_vid:7,2),3",
        "ovs-ofctl add-flow br0 tcp,tp_dst=10,actions=output(port=2,max_len=80)",
        "ovs-ofctl add-flow br0 tcp,tp_dst=11,actions=flood",
        "ovs-ofctl add-flow br0 tcp,tp_dst=12,actions=sample(probability=12345,collector_set_id=1,obs_domain_id=100,obs_point_id=200,sampling_port=3),2,sample(probability=65535,collector_set_id=1,egress)",
        "ovs-ofctl add-flow br0 tcp,tp_dst=13,actions=sample(probability=1,collector_set_id=1,sampling_port=9),2",
        "ovs-ofctl add-flow br0 tcp,tp_dst=14,actions=mod_nw_src:1.2.3.4,sample(probability=65535,collector_set_id=1,sampling_port=1,ingress),2",
    ],
    rows: &[
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=12"),
        step(
            "ovs-vsctl -- --id=@s create sflow 'targets=\"127.0.0.1:6343\"' sampling=1 agent=127.0.0.1 -- set bridge br0 sflow=@s",
        ),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=2"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=3"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=5"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=6"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=7"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=8"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=9"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=10"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=11"),
        row("ovs-appctl ofproto/trace br0 in_port=1,dl_vlan=9,dl_vlan_pcp=2"),
        row("ovs-appctl ofproto/trace br0 in_port=65533,tcp,tp_dst=1"),
        step("ovs-vsctl set sflow . sampling=3"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=2"),
        step("ovs-vsctl set sflow . sampling=0"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=2"),
        step("ovs-vsctl clear sflow . sampling"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=3"),
        step("ovs-vsctl -- --id=@i create ipfix 'targets=\"127.0.0.1:4739\"' sampling=10 -- set bridge br0 ipfix=@i"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=3"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=6"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=10"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=12"),
        step("ovs-vsctl clear bridge br0 sflow ipfix"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=12"),
        step(
            "ovs-vsctl -- --id=@b get bridge br0 -- --id=@i create ipfix 'targets=\"127.0.0.1:4739\"' -- create Flow_Sample_Collector_Set id=1 bridge=@b ipfix=@i",
        ),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=12"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=13"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=14"),
        step(
            "ovs-vsctl -- --all destroy Flow_Sample_Collector_Set -- --id=@n create netflow 'targets=\"127.0.0.1:2055\"' -- set bridge br0 netflow=@n",
        ),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,udp,tp_dst=1,nw_tos=32"),
        row("ovs-appctl ofproto/trace br0 in_port=1,icmp,icmp_type=8"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp6,tp_dst=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1,arp"),
        row("ovs-appctl ofproto/trace br0 in_port=1,ip,nw_frag=later"),
    ],
};

/// `NORMAL`, VLANs and patch ports.
const SWITCHING: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy other-config:hwaddr=aa:55:aa:55:00:00",
        "ovs-vsctl add-br br1 -- set bridge br1 datapath_type=dummy other-config:hwaddr=aa:55:aa:55:00:01",
        "ovs-vsctl add-port br0 p1 tag=10 -- set interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
        "ovs-vsctl add-port br0 p3 tag=11 -- set interface p3 type=dummy ofport_request=3",
        "ovs-vsctl add-port br0 a -- set interface a type=patch options:peer=b ofport_request=4",
        "ovs-vsctl add-port br1 b -- set interface b type=patch options:peer=a ofport_request=1",
        "ovs-vsctl add-port br1 p5 -- set interface p5 type=dummy ofport_request=5",
    ],
    rows: &[
        row("ovs-appctl ofproto/trace br0 in_port=1,dl_src=50:54:00:00:00:05,dl_dst=ff:ff:ff:ff:ff:ff"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=11,dl_src=50:54:00:00:00:06,dl_dst=ff:ff:ff:ff:ff:ff"),
        row("ovs-appctl ofproto/trace br0 in_port=1,dl_vlan=11,dl_src=50:54:00:00:00:06"),
        row("ovs-appctl ofproto/trace br1 in_port=5,dl_vlan=10,dl_src=50:54:00:00:00:07,dl_dst=50:54:00:00:00:05"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_src=50:54:00:00:00:06,dl_dst=01:80:c2:00:00:00"),
        row("ovs-appctl ofproto/trace br0 in_port=77,dl_src=50:54:00:00:00:06"),
        row(
            "ovs-appctl ofproto/trace br0 in_port=1,arp,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.2,dl_dst=ff:ff:ff:ff:ff:ff",
        ),
        row("ovs-appctl ofproto/trace br0 in_port=1,arp,arp_op=2,dl_src=50:54:00:00:00:05,dl_dst=ff:ff:ff:ff:ff:ff"),
        row("ovs-appctl ofproto/trace br0 in_port=1,arp,arp_op=1,dl_dst=50:54:00:00:00:05"),
        row("ovs-appctl ofproto/trace br0 in_port=CONTROLLER,arp,arp_op=1,dl_dst=ff:ff:ff:ff:ff:ff"),
        row("ovs-appctl ofproto/trace br0 in_port=1,arp,arp_op=1,dl_src=01:00:00:00:00:05,dl_dst=ff:ff:ff:ff:ff:ff"),
        row("ovs-appctl ofproto/trace br0 in_port=NONE"),
        row("ovs-appctl ofproto/trace br0 in_port=CONTROLLER,dl_dst=01:80:c2:00:00:0e"),
        row("ovs-appctl ofproto/trace br1 in_port=CONTROLLER,dl_vlan=11,dl_vlan_pcp=2,dl_dst=50:54:00:00:00:01"),
        row("ovs-appctl ofproto/trace br0 in_port=4,dl_vlan=10,dl_vlan_pcp=2,dl_dst=50:54:00:00:00:01"),
        row("ovs-appctl ofproto/trace br0 in_port=CONTROLLER,dl_vlan=10,dl_vlan_pcp=2"),
        row("ovs-appctl ofproto/trace br0 in_port=1"),
        row("ovs-appctl ofproto/trace br0 in_port=3,dl_vlan=0,dl_vlan_pcp=3"),
        step("ovs-vsctl set port p2 vlan_mode=native-tagged tag=10 trunks=20"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=30").eventually(),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=20"),
        row("ovs-appctl ofproto/trace br0 in_port=2"),
        step("ovs-vsctl set port p2 vlan_mode=dot1q-tunnel tag=10 cvlans=5"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=6").eventually(),
        row("ovs-appctl ofproto/trace br0 in_port=2"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=5,dl_vlan_pcp=1"),
        step("ovs-vsctl clear port p2 cvlans"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=0").eventually(),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=0,dl_vlan_pcp=3"),
    ],
};

const MIRRORS: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy other-config:hwaddr=aa:55:aa:55:00:00",
        "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-port br0 p2 tag=10 -- set interface p2 type=dummy ofport_request=2",
        "ovs-vsctl add-port br0 p3 -- set interface p3 type=dummy ofport_request=3",
        "ovs-ofctl del-flows br0",
        "ovs-ofctl add-flow br0 in_port=1,udp,actions=mod_dl_src:50:54:00:00:00:09,2,3",
        "ovs-ofctl add-flow br0 in_port=1,tcp,actions=mod_vlan_vid:10,2",
        "ovs-ofctl add-flow br0 in_port=1,icmp,actions=resubmit(,1)",
        "ovs-ofctl add-flow br0 table=1,actions=clone(mod_nw_src:1.2.3.4,2),3",
        "ovs-vsctl -- --id=@p3 get port p3 -- --id=@m create mirror name=m select_all=true output_port=@p3 -- set bridge br0 mirrors=@m",
    ],
    rows: &[
        row("ovs-appctl ofproto/trace br0 in_port=1,udp").eventually(),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp"),
        row("ovs-appctl ofproto/trace br0 in_port=1,icmp"),
        row("ovs-appctl ofproto/trace br0 in_port=2,icmp"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_vlan=10,icmp"),
        row("ovs-appctl ofproto/trace br0 in_port=3,icmp"),
        row("ovs-appctl ofproto/trace br0 in_port=LOCAL,icmp"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1,udp 2"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=CONTROLLER,udp 2"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=3,udp 2"),
        step("ovs-vsctl set port p3 vlan_mode=trunk trunks=5"),
        row("ovs-appctl ofproto/trace br0 in_port=2,icmp").eventually(),
        step("ovs-vsctl set port p3 vlan_mode=access tag=7"),
        row("ovs-appctl ofproto/trace br0 in_port=2,icmp").eventually(),
        step("ovs-ofctl mod-port br0 p3 no-forward"),
        row("ovs-appctl ofproto/trace br0 in_port=2,icmp").eventually(),
        step("ovs-ofctl mod-port br0 p3 forward"),
        step("ovs-vsctl set mirror m snaplen=40"),
        row("ovs-appctl ofproto/trace br0 in_port=1,udp").eventually(),
        step("ovs-vsctl set mirror m select_vlan=10 -- clear mirror m snaplen"),
        row("ovs-appctl ofproto/trace br0 in_port=1,udp").eventually(),
        row("ovs-appctl ofproto/trace br0 in_port=2,udp"),
        step("ovs-vsctl clear mirror m select_vlan -- clear mirror m output_port -- set mirror m output_vlan=20"),
        step("ovs-vsctl set port p2 tag=10 -- set port p3 tag=20"),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_dst=01:80:c2:00:00:00").eventually(),
        row("ovs-appctl ofproto/trace br0 in_port=1,dl_vlan=20,dl_type=0x1234"),
        step("ovs-vsctl set mirror m select_all=false"),
        row("ovs-appctl ofproto/trace br0 in_port=1,udp").eventually(),
        step("ovs-vsctl set port p1 protected=true -- set port p3 protected=true"),
        row("ovs-appctl ofproto/trace br0 in_port=1,udp").eventually(),
        row("ovs-appctl ofproto/trace br0 in_port=1,icmp"),
    ],
};

/// Wrong arguments.
const ARGUMENTS: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy other-config:hwaddr=aa:55:aa:55:00:00",
        "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
    ],
    rows: &[
        row("ovs-appctl ofproto/trace"),
        row("ovs-appctl ofproto/trace-packet-out br0"),
        row("ovs-appctl ofproto/trace br9 in_port=1"),
        row("ovs-appctl ofproto/trace br0 in_port=x"),
        row("ovs-appctl ofproto/trace br0 in_port=1,ip,nw_src=1.2.3.0/24"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,tp_dst=80,tp_dst=81"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tp_dst=80"),
        row("ovs-appctl ofproto/trace br0 in_port=p1,tcp"),
        row("ovs-appctl ofproto/trace br0 in_port=1,bogus"),
        row("ovs-appctl ofproto/trace br0 in_port=1,vlan_tci=0x1005"),
        row("ovs-appctl ofproto/trace br0 in_port=1,vlan_vid=4101"),
        row("ovs-appctl ofproto/trace br0 in_port=1,pkt_mark=3,skb_priority=3,metadata=5,reg0=1,xreg1=7"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tun_id=5,conj_id=5,actset_output=2"),
        row("ovs-appctl ofproto/trace br0 in_port=1,udp6,ipv6_src=::1,ipv6_label=5"),
        row("ovs-appctl ofproto/trace br0 in_port=1,tcp,nw_frag=first,tcp_flags=syn"),
        row("ovs-appctl ofproto/trace br0 in_port=70000"),
        row("ovs-appctl ofproto/trace br0 in_port=1,dl_src=xx"),
        row("ovs-appctl ofproto/trace br0 in_port=1,priority=4"),
        row("ovs-appctl ofproto/trace br0 in_port=1,actions=2"),
        row("ovs-appctl ofproto/trace br0 in_port=1 0"),
        row("ovs-appctl ofproto/trace br0 in_port=1 xyz"),
        row("ovs-appctl ofproto/trace br0 in_port=1 -generate 00"),
        row("ovs-appctl ofproto/trace br0 in_port=1 1 2 3"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --ct-next"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --ct-next bogus"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --ct-next trk,new --ct-next est"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --ct-next 'trk est' --ct-next trk,rel,snat"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --ct-next trk,inv,new"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --ct-next trk,new,est"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --ct-next trk,new,rpl"),
        row("ovs-appctl ofproto/trace br0 --ct-next trk in_port=1"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --ct-next=trk"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --bogus"),
        row("ovs-appctl ofproto/trace br0 in_port=1 -consistent"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --no-names"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --l7"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --l7 001 -generate"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --l7 0011 -generate"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --l7-len 70000"),
        row("ovs-appctl ofproto/trace br0 in_port=1 --l7-len 10 --generate"),
        row("ovs-appctl ofproto/trace br0"),
        row("ovs-appctl ofproto/trace in_port=1"),
        row("ovs-appctl ofproto/trace br0 br0 in_port=1"),
        row("ovs-appctl ofproto/trace br0 in_port(1)"),
        row("ovs-appctl ofproto/trace br0 ''"),
        row("ovs-appctl ofproto/trace dummy in_port(1)"),
        row("ovs-appctl ofproto/trace ovs-dummy in_port(p7)"),
        row("ovs-appctl ofproto/trace ovs-netdev in_port(1)"),
        row("ovs-appctl ofproto/trace ovs-dummy eth()"),
        row("ovs-appctl ofproto/trace ovs-dummy ovs-dummy"),
        row("ovs-appctl ofproto/trace in_port(1),bogus(2)"),
        row("ovs-appctl ofproto/trace in_port(1"),
        row("ovs-appctl ofproto/trace 'in_port(1),recirc_id(7),eth(),eth_type(0x800)'"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1 output:2 00"),
        row("ovs-appctl ofproto/trace-packet-out -x br0 in_port=1 output:2"),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1 goto_table:1"),
        row("ovs-appctl ofproto/trace ovs-dummy in_port(1)"),
        row("ovs-appctl ofproto/trace ovs-dummy \
             'in_port(1),eth(src=50:54:00:00:00:05,dst=ff:ff:ff:ff:ff:ff),eth_type(0x1234)'"),
        row("ovs-appctl ofproto/trace dummy@ovs-dummy \
             'in_port(p1),eth(src=50:54:00:00:00:05,dst=ff:ff:ff:ff:ff:ff),eth_type(0x1234)'"),
        row("ovs-appctl ofproto/trace \
             'in_port(2),eth(src=50:54:00:00:00:05,dst=ff:ff:ff:ff:ff:ff),eth_type(0x1234)'"),
        row("ovs-appctl ofproto/trace ovs-other 'in_port(1),eth_type(0x1234)'"),
        row(
            "ovs-appctl ofproto/trace ovs-dummy 'in_port(9),eth(src=50:54:00:00:00:05,dst=ff:ff:ff:ff:ff:ff),eth_type(0x1234)'",
        ),
        row("ovs-appctl ofproto/trace-packet-out br0 in_port=1 bogus"),
    ],
};

#[test]
fn traces_read_as_in_open_vswitch() {
    run(&TABLE);
}
