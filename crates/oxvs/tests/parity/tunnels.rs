//! Tunnels over bridges of the switch, and what they know of the underlay.

use crate::run::{Daemons, Group, Table, row, run, step};

const TABLE: Table = Table {
    name: "tunnels",
    groups: &[NEIGHBOURS],
};

const NATIVE_TABLE: Table = Table {
    name: "native-tunnels",
    groups: &[NATIVE],
};

/// Neighbours that users set, and the range of source ports.
const NEIGHBOURS: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &["ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy \
         -- add-br br1 -- set bridge br1 datapath_type=dummy"],
    rows: &[
        row("ovs-appctl tnl/ports/show"),
        row("ovs-appctl tnl/ports/show -v"),
        row("ovs-appctl tnl/ports/show x"),
        row("ovs-appctl ofproto/list-tunnels"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 1"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 5 3"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 0 10"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range x 3"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 3 x"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 1 65535"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 1 65536"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 0 0"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range -1 3"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 5x 9"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 3 -1"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 70000 5"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 5 5"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range 5 0"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/egress_port_range ' 7' +9"),
        row("ovs-appctl tnl/egress_port_range"),
        row("ovs-appctl tnl/arp/show"),
        row("ovs-appctl tnl/neigh/show"),
        row("ovs-appctl tnl/neigh/aging"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging 5x"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging 0"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging 1"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging 3600"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging 3601"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging -1"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging x"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging ''"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging 0x10"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging 010"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging ' 7'"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging 5.5"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/neigh/aging 4294967300"),
        row("ovs-appctl tnl/arp/aging"),
        row("ovs-appctl tnl/arp/aging 900"),
        row("ovs-appctl tnl/neigh/set br0 1.1.1.1 aa:bb:cc:dd:ee:ff"),
        row("ovs-appctl tnl/neigh/set br0 fe80::1 0:1:2:3:4:5"),
        row("ovs-appctl tnl/neigh/set nobody 1.1.1.2 aa:bb:cc:dd:ee:01"),
        row("ovs-appctl tnl/neigh/set br0 x aa:bb:cc:dd:ee:ff"),
        row("ovs-appctl tnl/neigh/set br0 1.1.1.1 x"),
        row("ovs-appctl tnl/neigh/set br0 1.1.1.1/24 aa:bb:cc:dd:ee:ff"),
        row("ovs-appctl tnl/neigh/set br0 ::ffff:1.1.1.9 aa:bb:cc:dd:ee:ff"),
        row("ovs-appctl tnl/neigh/set averyveryverylongbridgename 1.1.1.3 00:00:00:00:00:00"),
        row("ovs-appctl tnl/neigh/set br0 0.0.0.0 ff:ff:ff:ff:ff:ff"),
        row("ovs-appctl tnl/neigh/set br0 :: ff:ff:ff:ff:ff:ff"),
        row("ovs-appctl tnl/neigh/set br0 1.1.1.1 aa:bb:cc:dd:ee:ffz"),
        row("ovs-appctl tnl/neigh/set br0 1.1.1 aa:bb:cc:dd:ee:ff"),
        row("ovs-appctl tnl/neigh/set br0 2001:0db8:ffff:ffff:ffff:ffff:ffff:ffff 1:2:3:4:5:6"),
        row("ovs-appctl tnl/neigh/set br0 1.1.1.1 aa-bb-cc-dd-ee-ff"),
        row("ovs-appctl tnl/neigh/set br0 010.1.1.1 1:2:3:4:5:6"),
        row("ovs-appctl tnl/neigh/set br0 fe80::1%eth0 1:2:3:4:5:6"),
        row("ovs-appctl tnl/neigh/set br0 x x"),
        row("ovs-appctl tnl/neigh/set br0 ff02::1 1:2:3:4:5:6"),
        row("ovs-appctl tnl/neigh/set br0 224.0.0.1 1:2:3:4:5:7"),
        row("ovs-appctl tnl/neigh/set br0 5.5.5.5 aabbccddeeff"),
        row("ovs-appctl tnl/arp/set br1 1.1.1.1 1:2:3:4:5:8"),
        row("ovs-appctl tnl/neigh/show").unordered(),
        row("ovs-appctl tnl/arp/show").unordered(),
        // A bridge takes its neighbours with it; nobody is none.
        step("ovs-vsctl del-br br1"),
        row("ovs-appctl tnl/neigh/show").unordered(),
        row("ovs-appctl tnl/arp/flush"),
        row("ovs-appctl tnl/neigh/show"),
        row("ovs-appctl tnl/neigh/flush"),
        // A neighbour ages from the last time it was set.
        step("ovs-appctl time/stop"),
        row("ovs-appctl tnl/neigh/aging 10"),
        row("ovs-appctl tnl/neigh/set br0 1.1.1.1 aa:bb:cc:dd:ee:ff"),
        row("ovs-appctl tnl/neigh/set br0 1.1.1.2 aa:bb:cc:dd:ee:02"),
        row("ovs-appctl time/warp 9000 1000"),
        row("ovs-appctl tnl/neigh/set br0 1.1.1.2 aa:bb:cc:dd:ee:02"),
        row("ovs-appctl tnl/neigh/show").unordered(),
        row("ovs-appctl time/warp 999 999"),
        row("ovs-appctl tnl/neigh/show").unordered(),
        row("ovs-appctl time/warp 1 1"),
        row("ovs-appctl tnl/neigh/show").unordered(),
        // A longer time counts for new neighbours only, a shorter one for all.
        row("ovs-appctl tnl/neigh/aging 30"),
        row("ovs-appctl time/warp 10000 1000"),
        row("ovs-appctl tnl/neigh/show").unordered(),
        row("ovs-appctl tnl/neigh/set br0 1.1.1.3 aa:bb:cc:dd:ee:02"),
        row("ovs-appctl tnl/neigh/aging 5"),
        row("ovs-appctl time/warp 4000 1000"),
        row("ovs-appctl tnl/neigh/show").unordered(),
        row("ovs-appctl time/warp 2000 1000"),
        row("ovs-appctl tnl/neigh/show").unordered(),
        row("ovs-appctl tnl/neigh/set br0 1.1.1.4 aa:bb:cc:dd:ee:02"),
        row("ovs-appctl tnl/neigh/set br0 1.1.1.4 aa:bb:cc:dd:ee:04"),
        row("ovs-appctl tnl/neigh/show").unordered(),
    ],
};

/// A trace of a packet of a host behind `br7`.
macro_rules! traced {
    ($flow:literal) => {
        row(concat!(
            "ovs-appctl ofproto/trace br7 'in_port=9,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02,",
            $flow,
            "'"
        ))
    };
}

/// A trace of a packet that the tunnels' datapath port has decapsulated.
macro_rules! received {
    ($tunnel:literal, $port:literal) => {
        row(concat!(
            "ovs-appctl ofproto/trace ovs-dummy 'tunnel(",
            $tunnel,
            "),in_port(",
            $port,
            "),eth(src=50:54:00:00:00:05,dst=ff:ff:ff:ff:ff:ff),eth_type(0x0800),",
            "ipv4(src=1.0.0.1,dst=1.0.0.2,proto=17,ttl=64),udp(src=1,dst=2)'"
        ))
    };
}

/// Tunnels whose underlay is a bridge of the switch.
const NATIVE: Group = Group {
    daemons: Daemons::Plain(&["--enable-dummy", "--disable-system", "--disable-system-route"]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure \
         other-config:hwaddr=aa:55:aa:55:00:00 -- add-port br0 p1 -- set Interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-br br7 -- set bridge br7 datapath_type=dummy fail-mode=secure \
         -- add-port br7 p9 -- set Interface p9 type=dummy ofport_request=9 \
         -- add-port br7 t2 -- set Interface t2 type=vxlan options:remote_ip=1.1.2.92 options:key=123 ofport_request=2 \
         -- add-port br7 t3 -- set Interface t3 type=geneve options:remote_ip=flow options:key=flow ofport_request=3 \
         -- add-port br7 t4 -- set Interface t4 type=gre options:remote_ip=1.1.2.92 options:key=456 options:seq=true \
            ofport_request=4 \
         -- add-port br7 t5 -- set Interface t5 type=vxlan options:remote_ip=1.1.2.93 options:out_key=flow \
            options:csum=true options:df_default=false options:ttl=inherit options:tos=inherit ofport_request=5 \
         -- add-port br7 t6 -- set Interface t6 type=vxlan options:remote_ip=2001:cafe::93 options:key=flow \
            ofport_request=6 \
         -- add-port br7 t8 -- set Interface t8 type=gtpu options:remote_ip=1.1.2.92 options:key=8 ofport_request=8",
        "ovs-appctl netdev-dummy/ip4addr br0 1.1.2.88/24",
        "ovs-appctl netdev-dummy/ip6addr br0 2001:cafe::88/24",
        "ovs-appctl ovs/route/add 1.1.2.92/24 br0",
        "ovs-appctl ovs/route/add 2001:cafe::92/24 br0",
        "ovs-ofctl add-flow br0 actions=normal",
    ],
    rows: &[
        row("ovs-appctl tnl/ports/show -v").unordered(),
        row("ovs-appctl tnl/ports/show").unordered(),
        row("ovs-appctl ofproto/list-tunnels").unordered(),
        row("ovs-appctl dpif/show"),
        row("ovs-ofctl dump-ports br7 2"),
        row("ovs-ofctl dump-ports br7 6"),
        row("ovs-vsctl get Interface t2 statistics"),
        row("ovs-vsctl get Interface t6 admin_state link_state mtu error"),
        // Without a neighbour nothing is sent.
        step("ovs-ofctl add-flow br7 in_port=9,actions=output:2"),
        traced!("tcp,nw_src=1.0.0.1,nw_dst=1.0.0.2"),
        step("ovs-appctl tnl/arp/set br0 1.1.2.92 f8:bc:12:44:34:b6"),
        step("ovs-appctl tnl/arp/set br0 1.1.2.93 f8:bc:12:44:34:b7"),
        step("ovs-appctl tnl/neigh/set br0 2001:cafe::93 f8:bc:12:44:34:b8"),
        traced!("tcp,nw_src=1.0.0.1,nw_dst=1.0.0.2"),
        traced!("arp"),
        step("ovs-ofctl add-flow br7 in_port=9,actions=output:4"),
        traced!("udp,nw_tos=3"),
        step("ovs-ofctl add-flow br7 'in_port=9,actions=set_field:77->tun_id,output:5'"),
        traced!("udp,nw_tos=0x49,nw_ttl=9"),
        traced!("arp"),
        step("ovs-ofctl add-flow br7 'in_port=9,actions=set_field:5->tun_id,output:6'"),
        traced!("udp,nw_ttl=9"),
        step(
            "ovs-vsctl add-port br7 t7 -- set Interface t7 type=erspan options:remote_ip=1.1.2.92 options:key=7 \
             options:erspan_ver=1 options:erspan_idx=3 ofport_request=7",
        ),
        step("ovs-ofctl add-flow br7 in_port=9,actions=output:7"),
        traced!("udp,nw_ttl=9"),
        // The rules choose the other end, or none, or one without a route.
        step("ovs-ofctl add-flow br7 'in_port=9,actions=set_field:1.1.2.92->tun_dst,set_field:5->tun_id,output:3'"),
        traced!("udp"),
        step("ovs-ofctl add-flow br7 'in_port=9,actions=set_field:9.1.2.92->tun_dst,set_field:5->tun_id,output:3'"),
        traced!("udp"),
        step("ovs-ofctl add-flow br7 in_port=9,actions=output:3"),
        traced!("udp"),
        // And the source, which has to be an address of the switch: with routes of users only, Open
        // vSwitch knows of none.
        step(
            "ovs-vsctl add-port br7 t10 -- set Interface t10 type=geneve options:remote_ip=flow options:local_ip=flow \
             options:key=flow options:dst_port=6082 ofport_request=10",
        ),
        row("ovs-appctl ofproto/list-tunnels").unordered(),
        step(
            "ovs-ofctl add-flow br7 'in_port=9,actions=set_field:1.1.2.77->tun_src,set_field:1.1.2.92->tun_dst,\
             output:10'",
        ),
        traced!("udp"),
        step("ovs-ofctl add-flow br7 'in_port=9,actions=set_field:1.1.2.92->tun_dst,output:10'"),
        traced!("udp"),
        step("ovs-vsctl del-port br7 t10"),
        step("ovs-ofctl add-flow br7 in_port=9,actions=output:2"),
        step("ovs-vsctl set Interface t2 options:local_ip=1.1.2.77"),
        traced!("udp"),
        step("ovs-vsctl remove Interface t2 options local_ip"),
        // Several copies, and an underlay that changes them.
        step("ovs-ofctl add-flow br0 priority=60000,in_port=local,actions=mod_vlan_vid:5,output:1"),
        step("ovs-ofctl add-flow br7 in_port=9,actions=output:2,output:9,output:2"),
        traced!("udp"),
        step("ovs-ofctl del-flows --strict br0 priority=60000,in_port=local"),
        step("ovs-ofctl add-flow br7 actions=output:9,output:2"),
        step("ovs-ofctl add-flow br0 priority=40000,in_port=1,actions=local"),
        // What comes through them.
        row(
            "ovs-appctl ofproto/trace br0 'in_port=1,dl_src=f8:bc:12:44:34:b6,dl_dst=aa:55:aa:55:00:00,udp,\
             nw_src=1.1.2.92,nw_dst=1.1.2.88,udp_dst=4789'",
        ),
        received!("tun_id=0x7b,src=1.1.2.92,dst=1.1.2.88,ttl=64,flags(key)", "4789"),
        received!("tun_id=0x7c,src=1.1.2.92,dst=1.1.2.88,ttl=64,flags(key)", "4789"),
        received!("tun_id=0x7b,src=1.1.2.94,dst=1.1.2.88,ttl=64,flags(key)", "4789"),
        received!("tun_id=0x7b,src=1.1.2.94,dst=1.1.2.88,ttl=64,flags(key)", "6081"),
    ],
};

#[test]
fn neighbours_and_source_ports_are_set_and_shown_as_in_open_vswitch() {
    run(&TABLE);
}

#[test]
fn native_tunnels_are_traced_as_in_open_vswitch() {
    run(&NATIVE_TABLE);
}
