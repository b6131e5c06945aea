//! Multicast snooping: `mdb/*`, and traces of packets in a bridge that snoops.

use crate::run::{Daemons, Group, Table, row, run, step};

const TABLE: Table = Table {
    name: "snooping",
    groups: &[GROUPS],
};

const GROUPS: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy",
        "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
        "ovs-vsctl add-port br0 p3 -- set interface p3 type=dummy ofport_request=3",
        "ovs-vsctl add-port br0 p4 -- set interface p4 type=dummy ofport_request=4",
    ],
    rows: &[
        row("ovs-appctl mdb/show br9"),
        row("ovs-appctl mdb/show br0"),
        row("ovs-appctl mdb/flush br9"),
        row("ovs-appctl mdb/flush br0"),
        row("ovs-appctl mdb/flush"),
        step("ovs-vsctl set bridge br0 mcast_snooping_enable=true"),
        row("ovs-vsctl get bridge br0 mcast_snooping_enable"),
        row("ovs-appctl mdb/show br0").eventually(),
        row("ovs-appctl mdb/flush br0"),
        step("ovs-appctl time/stop"),
        row(
            "ovs-appctl ofproto/trace br0 in_port=2,udp,dl_src=02:00:00:00:00:02,dl_dst=01:00:5e:01:02:03,nw_src=10.0.0.2,nw_dst=239.1.2.3",
        ),
        row(
            "ovs-appctl ofproto/trace br0 in_port=2,udp,dl_src=02:00:00:00:00:02,dl_dst=01:00:5e:00:00:fb,nw_src=10.0.0.2,nw_dst=224.0.0.251",
        ),
        row(
            "ovs-appctl ofproto/trace br0 in_port=3,udp6,dl_src=02:00:00:00:00:03,dl_dst=33:33:00:00:00:01,ipv6_src=fe80::3,ipv6_dst=ff02::1",
        ),
        row(
            "ovs-appctl ofproto/trace br0 in_port=2,arp,dl_src=02:00:00:00:00:02,dl_dst=ff:ff:ff:ff:ff:ff,arp_op=1,arp_spa=10.0.0.2,arp_tpa=10.0.0.3",
        ),
        row("ovs-appctl ofproto/trace br0 in_port=2,dl_type=0x88b5,dl_src=02:00:00:00:00:02,dl_dst=01:00:0c:cc:cc:cd"),
        row(
            "ovs-appctl ofproto/trace br0 in_port=3,udp6,dl_src=02:00:00:00:00:03,dl_dst=33:33:00:00:00:99,ipv6_src=fe80::3,ipv6_dst=ff05::99",
        ),
        step(
            "ovs-appctl netdev-dummy/receive p1 01005e010203020000000001080046c0002000000000010229130a000001ef010203940400001600f8faef010203",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        // A packet in full teaches Open vSwitch what it says; these say nothing new.
        row(
            "ovs-appctl ofproto/trace br0 in_port=1 01005e010203020000000001080046c0002000000000010229130a000001ef010203940400001600f8faef010203",
        ),
        row(
            "ovs-appctl ofproto/trace br0 in_port=1 01005e000001020000000009080046c00024000000000102441300000000e0000001940400001164ec1e00000000027d0000",
        ),
        row(
            "ovs-appctl ofproto/trace br0 in_port=1 01005e000001020000000001080046c000200000000001023a160a000001e0000001940400001300fbfaef010203",
        ),
        row(
            "ovs-appctl ofproto/trace br0 in_port=2,udp,dl_src=02:00:00:00:00:02,dl_dst=01:00:5e:01:02:03,nw_src=10.0.0.2,nw_dst=239.1.2.3",
        ),
        row(
            "ovs-appctl ofproto/trace br0 in_port=1,udp,dl_src=02:00:00:00:00:02,dl_dst=01:00:5e:01:02:03,nw_src=10.0.0.2,nw_dst=239.1.2.3",
        ),
        row(
            "ovs-appctl ofproto/trace br0 in_port=2,udp,dl_src=02:00:00:00:00:02,dl_dst=01:00:5e:09:09:09,nw_src=10.0.0.2,nw_dst=239.9.9.9",
        ),
        step(
            "ovs-appctl netdev-dummy/receive p2 01005e010203020000000002080046c0002000000000010229130a000001ef010203940400001600f8faef010203",
        ),
        step(
            "ovs-appctl netdev-dummy/receive p1 01005e090909020000000001080046c0002000000000010222050a000001ef090909940400001600f1ecef090909",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step("ovs-appctl time/warp 5000"),
        step(
            "ovs-appctl netdev-dummy/receive p1 01005e010203020000000001080046c0002000000000010229130a000001ef010203940400001200fcfaef010203",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step("ovs-vsctl set bridge br0 other_config:mcast-snooping-disable-flood-unregistered=true"),
        row(
            "ovs-appctl ofproto/trace br0 in_port=2,udp,dl_src=02:00:00:00:00:02,dl_dst=01:00:5e:08:08:08,nw_src=10.0.0.2,nw_dst=239.8.8.8",
        ),
        step(
            "ovs-appctl netdev-dummy/receive p3 01005e000001020000000009080046c00024000000000102441300000000e0000001940400001164ec1e00000000027d0000",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step(
            "ovs-appctl netdev-dummy/receive p3 01005e000001020000000009080046c000240000000001023a0a0a000009e0000001940400001164ec1e00000000027d0000",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step(
            "ovs-appctl netdev-dummy/receive p3 01005e010203020000000002080046c0002000000000010229130a000001ef010203940400001600f8faef010203",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        row(
            "ovs-appctl ofproto/trace br0 in_port=2,udp,dl_src=02:00:00:00:00:02,dl_dst=01:00:5e:08:08:08,nw_src=10.0.0.2,nw_dst=239.8.8.8",
        ),
        row(
            "ovs-appctl ofproto/trace br0 in_port=2,udp,dl_src=02:00:00:00:00:02,dl_dst=01:00:5e:01:02:03,nw_src=10.0.0.2,nw_dst=239.1.2.3",
        ),
        step(
            "ovs-appctl netdev-dummy/receive p1 01005e000002020000000001080046c000200000000001023a150a000001e0000002940400001700f7faef010203",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step(
            "ovs-appctl netdev-dummy/receive p2 01005e000016020000000001080046c0002800000000010239f90a000001e0000016940400002200e9f90000000103000000ef010203",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step(
            "ovs-appctl netdev-dummy/receive p2 01005e000016020000000001080046c0002800000000010239f90a000001e0000016940400002200e8f90000000104000000ef010203",
        ),
        step(
            "ovs-appctl netdev-dummy/receive p2 01005e000016020000000001080046c0002c00000000010239f50a000001e0000016940400002200e5f10000000105000001e80101010a000009",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step(
            "ovs-appctl netdev-dummy/receive p1 33330000009902000000000186dd6000000000200001fe800000000000000000000000000001ff0500000000000000000000000000993a0005020000010083007eed00000000ff050000000000000000000000000099",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        row(
            "ovs-appctl ofproto/trace br0 in_port=1 33330000009902000000000186dd6000000000200001fe800000000000000000000000000001ff0500000000000000000000000000993a0005020000010083007eed00000000ff050000000000000000000000000099",
        ),
        step(
            "ovs-appctl netdev-dummy/receive p2 33330000001602000000000286dd6000000000240001fe800000000000000000000000000001ff0200000000000000000000000000163a000502000001008f006f6e0000000104000000ff050000000000000000000000000099",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        row(
            "ovs-appctl ofproto/trace br0 in_port=3,udp6,dl_src=02:00:00:00:00:03,dl_dst=33:33:00:00:00:99,ipv6_src=fe80::3,ipv6_dst=ff05::99",
        ),
        step(
            "ovs-appctl netdev-dummy/receive p1 33330000000202000000000186dd6000000000200001fe800000000000000000000000000001ff0200000000000000000000000000023a0005020000010084007e8700000000ff050000000000000000000000000099",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step(
            "ovs-appctl netdev-dummy/receive p3 33330000000102000000000986dd6000000000240001fe800000000000000000000000000009ff0200000000000000000000000000013a000502000001008200568e2710000000000000000000000000000000000000027d0000",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step(
            "ovs-vsctl set port p4 other_config:mcast-snooping-flood=true -- set port p2 other_config:mcast-snooping-flood-reports=true",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step(
            "ovs-appctl netdev-dummy/receive p4 01005e010203020000000001080046c0002000000000010229130a000001ef010203940400001600f8faef010203",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        row(
            "ovs-appctl ofproto/trace br0 in_port=2,udp,dl_src=02:00:00:00:00:02,dl_dst=01:00:5e:01:02:03,nw_src=10.0.0.2,nw_dst=239.1.2.3",
        ),
        step(
            "ovs-appctl netdev-dummy/receive p2 01005e000002020000000001080046c000200000000001023a150a000001e0000002940400001700f7faef010203",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step("ovs-vsctl set port p1 trunks=7,8"),
        step(
            "ovs-appctl netdev-dummy/receive p1 01005e01020302000000000181000007080046c0002000000000010229130a000001ef010203940400001600f8faef010203",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        step("ovs-vsctl set bridge br0 other_config:mcast-snooping-aging-time=20"),
        step("ovs-appctl time/warp 30000"),
        row("ovs-appctl mdb/show br0").eventually(),
        step("ovs-appctl time/warp 200000"),
        row("ovs-appctl mdb/show br0").eventually(),
        step(
            "ovs-appctl netdev-dummy/receive p2 01005e010203020000000001080046c0002000000000010229130a000001ef010203940400001600f8faef010203",
        ),
        row("ovs-appctl mdb/show br0").eventually(),
        row("ovs-appctl mdb/flush"),
        row("ovs-appctl mdb/show br0").eventually(),
        step("ovs-vsctl set bridge br0 mcast_snooping_enable=false"),
        row("ovs-appctl mdb/show br0").eventually(),
        row("ovs-vsctl get bridge br0 status"),
    ],
};

#[test]
fn snooping() {
    run(&TABLE);
}
