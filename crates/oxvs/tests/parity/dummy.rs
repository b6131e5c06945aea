//! Devices of memory, as test benches use them.

use crate::run::{Daemons, Group, Table, row, run, step};

pub(crate) static TABLE: Table = Table {
    name: "dummy",
    groups: &[DEVICES, RECEIVE, WITHOUT, BESIDE, INSTEAD, NODES, CABLES, ROUTES],
};

const DEVICES: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
         -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
         -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
    ],
    rows: &[
        row("ovs-appctl dpctl/dump-dps"),
        row("ovs-appctl dpif/dump-dps"),
        row("ovs-appctl dpif/show"),
        row("ovs-appctl dpctl/cache-get-size"),
        row("ovs-appctl dpctl/dump-flows dummy@ovs-dummy"),
        row("ovs-appctl dpctl/dump-flows netdev@ovs-dummy"),
        row("ovs-appctl dpctl/dump-flows netdev@ovs-netdev"),
        row("ovs-appctl dpctl/add-dp dummy@ovs-dummy"),
        row("ovs-appctl netdev-dummy/conn-state"),
        row("ovs-appctl netdev-dummy/conn-state p1"),
        row("ovs-appctl netdev-dummy/conn-state nobody"),
        row("ovs-appctl netdev-dummy/conn-state p1 p2"),
        row("ovs-appctl netdev-dummy/ip4addr br0 10.0.0.1/24"),
        row("ovs-appctl netdev-dummy/ip4addr br0 10.0.0.1"),
        row("ovs-appctl netdev-dummy/ip4addr br0 10.0.0.1/40"),
        row("ovs-appctl netdev-dummy/ip4addr br0 10.0.0"),
        row("ovs-appctl netdev-dummy/ip4addr nobody 10.0.0.1/24"),
        row("ovs-appctl netdev-dummy/ip4addr br0"),
        row("ovs-appctl netdev-dummy/ip6addr br0 2001:db8::1/64"),
        row("ovs-appctl netdev-dummy/ip6addr br0 2001:db8::1"),
        row("ovs-appctl netdev-dummy/ip6addr br0 2001"),
        row("ovs-appctl netdev-dummy/ip6addr nobody 2001:db8::1/64"),
        row("ovs-appctl dpif-dummy/change-port-number ovs-dummy nobody 7"),
        row("ovs-appctl dpif-dummy/change-port-number dummy@ovs-dummy p1 7"),
        row("ovs-appctl dpif-dummy/change-port-number elsewhere p1 7"),
        row("ovs-appctl dpif-dummy/change-port-number ovs-dummy p1 2"),
        row("ovs-appctl dpif-dummy/change-port-number ovs-dummy p1 0"),
        row("ovs-appctl dpif-dummy/change-port-number ovs-dummy p1 7"),
        row("ovs-appctl dpif/show").eventually(),
        row("ovs-vsctl get interface p1 statistics").eventually(),
        row("ovs-vsctl get interface br0 statistics").eventually(),
        // Packets come and go by the new number.
        step("ovs-ofctl add-flow br0 in_port=1,actions=2"),
        step("ovs-ofctl add-flow br0 in_port=2,actions=1"),
        step("ovs-appctl netdev-dummy/receive p1 in_port(7),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a)"),
        step("ovs-appctl netdev-dummy/receive p2 in_port(2),eth(src=50:54:00:00:00:0a,dst=50:54:00:00:00:09)"),
        row("sh -c \"ovs-ofctl dump-flows br0 | grep -o 'n_packets=1,.*in_port.*'\"").eventually(),
    ],
};

/// Packets by hand, and the clock.
const RECEIVE: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
         -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 options:n_rxq=2 options:numa_id=1 \
         -- add-port br0 p2 -- set interface p2 type=dummy-pmd ofport_request=2 options:n_rxq=2 \
         -- add-port br0 p3 -- set interface p3 type=dummy-internal ofport_request=3 \
         -- add-port br0 p4 -- set interface p4 ofport_request=4 -- add-port br0 p5 -- set interface p5 type=tap ofport_request=5 \
         -- add-port br0 p6 -- set interface p6 type=internal ofport_request=6",
    ],
    rows: &[
        row("ovs-appctl dpif/show"),
        row("ovs-appctl dpctl/show"),
        row("ovs-appctl netdev-dummy/receive p2 --qid 1 in_port(2),eth(src=50:54:00:00:00:0a,dst=50:54:00:00:00:0b)"),
        row("ovs-appctl netdev-dummy/receive p2 --qid 2 in_port(2),eth(src=50:54:00:00:00:0a,dst=50:54:00:00:00:0b)"),
        row("ovs-appctl netdev-dummy/receive p2 -qid 1 in_port(2),eth(src=50:54:00:00:00:0a,dst=50:54:00:00:00:0b)"),
        row("ovs-appctl netdev-dummy/receive p2 --qid x in_port(2),eth(src=50:54:00:00:00:0a,dst=50:54:00:00:00:0b)"),
        row("ovs-appctl netdev-dummy/receive p2 --qid -1 in_port(2),eth(src=50:54:00:00:00:0a,dst=50:54:00:00:00:0b)"),
        row("ovs-appctl netdev-dummy/receive p1 --qid"),
        row("ovs-appctl netdev-dummy/receive p1 --qid 0"),
        row("ovs-appctl netdev-dummy/receive p1 --qid 1 5054000000075054000000050800"),
        row("ovs-appctl netdev-dummy/receive p1 5054000000075054000000050800"),
        row("ovs-appctl netdev-dummy/receive p1 50540000000750540000000508"),
        row("ovs-appctl netdev-dummy/receive p1 5054000000075054000000050800 --len 100"),
        row("ovs-appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:0a,dst=50:54:00:00:00:0b) --len 100"),
        row("ovs-appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:0a,dst=50:54:00:00:00:0b) --len 59"),
        row("ovs-appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:0a,dst=50:54:00:00:00:0b) --len x"),
        row("ovs-appctl netdev-dummy/receive p1 zz"),
        row("ovs-appctl netdev-dummy/receive p1 000"),
        row("ovs-appctl netdev-dummy/receive p1 00 --len 100"),
        row("ovs-appctl netdev-dummy/receive p1"),
        row("ovs-appctl netdev-dummy/receive nobody 5054000000075054000000050800"),
        row("ovs-appctl netdev-dummy/receive p1 foo(1)"),
        row("ovs-appctl netdev-dummy/receive p1 in_port(1)"),
        row("ovs-appctl netdev-dummy/receive p1 eth()"),
        row("ovs-appctl netdev-dummy/receive br0 5054000000075054000000050800"),
        row("ovs-appctl netdev-dummy/set-admin-state up"),
        row("ovs-appctl netdev-dummy/set-admin-state x"),
        row("ovs-appctl netdev-dummy/set-admin-state p1 zz"),
        row("ovs-appctl netdev-dummy/set-admin-state nobody down"),
        row("ovs-appctl netdev-dummy/set-admin-state p1 down"),
        row("ovs-appctl netdev-dummy/receive p1 5054000000075054000000050800"),
        row("ovs-appctl netdev-dummy/receive p1 00"),
        row("ovs-vsctl get interface p1 status"),
        row("ovs-appctl time/warp 10"),
        row("ovs-appctl time/warp x"),
        row("ovs-appctl time/warp 0"),
        row("ovs-appctl time/warp -1"),
        row("ovs-appctl time/warp 100 0"),
        row("ovs-appctl time/warp 100 x"),
        row("ovs-appctl time/warp 10 100"),
        row("ovs-appctl time/warp 1 2 3"),
        row("ovs-appctl time/stop x"),
        row("ovs-appctl time/stop"),
        row("ovs-appctl time/warp 100 10"),
        row("ovs-appctl time/warp 10x"),
        row("ovs-appctl dpctl/add-flow -s in_port(1),eth(),eth_type(0x1241) 3"),
        row("ovs-appctl dpctl/add-flow --may-create in_port(1),eth(),eth_type(0x1241) 3"),
        row("ovs-appctl dpctl/add-flow --read-only in_port(1),eth(),eth_type(0x1242) 3"),
        row("ovs-appctl dpctl/mod-flow -s in_port(1),eth(),eth_type(0x1241) 4"),
        row("ovs-appctl dpctl/mod-flow -s in_port(1),eth(),eth_type(0x1243) 4"),
        row("ovs-appctl dpctl/mod-flow --may-create in_port(1),eth(),eth_type(0x1243) 4"),
        row("ovs-appctl dpctl/mod-flow --clear in_port(1),eth(),eth_type(0x1244) 4"),
        row("ovs-appctl dpctl/mod-flow --clear --may-create in_port(1),eth(),eth_type(0x1244) 4"),
        row("ovs-appctl dpctl/del-flow -s in_port(1),eth(),eth_type(0x1243)"),
    ],
};

/// Without `--enable-dummy` there are neither dummies nor their commands.
const WITHOUT: Group = Group {
    daemons: Daemons::Plain(&[]),
    files: &[],
    setup: &[],
    rows: &[
        row("ovs-appctl list-commands").superset(),
        row("sh -c \"ovs-appctl list-commands | grep -c -e dummy -e time/\""),
        row("ovs-appctl time/stop"),
        row("ovs-appctl time/warp"),
        row("ovs-appctl netdev-dummy/receive x y"),
        row("ovs-appctl netdev-dummy/conn-state"),
        row("ovs-appctl dpif-dummy/change-port-number a b c"),
        row("ovs-vsctl get open_vswitch . datapath_types"),
        row("ovs-appctl dpif/show"),
        row("ovs-appctl dpif/dump-dps"),
        row("ovs-appctl upcall/show"),
    ],
};

/// Dummies beside other devices.
const BESIDE: Group = Group {
    daemons: Daemons::Plain(&["--enable-dummy"]),
    files: &[],
    setup: &["ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy \
         -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
         -- add-port br0 p2 -- set interface p2 type=dummy-pmd ofport_request=2 \
         -- add-port br0 p3 -- set interface p3 type=internal ofport_request=3"],
    rows: &[
        row("ovs-appctl dpif/show"),
        row("ovs-appctl dpctl/show"),
        row("ovs-appctl dpctl/dump-dps"),
        row("ovs-vsctl get open_vswitch . datapath_types"),
        row("ovs-vsctl -t 5 add-port br0 nobody"),
        row("ovs-vsctl --columns=name,error,ofport find interface name=nobody"),
        row("ovs-appctl dpif-dummy/change-port-number ovs-system p1 77"),
        row("ovs-appctl dpif-dummy/change-port-number ovs-dummy p1 77"),
    ],
};

/// Dummies in the place of `system` datapaths and devices.
const INSTEAD: Group = Group {
    daemons: Daemons::Plain(&["--enable-dummy=system"]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
         -- add-port br0 p2 -- set interface p2 type=dummy-pmd ofport_request=2 options:n_rxq=3 options:n_txq=2 \
         -- add-port br0 p3 -- set interface p3 type=internal ofport_request=3 -- add-port br0 p4 -- set interface p4 ofport_request=4",
    ],
    rows: &[
        row("ovs-appctl dpif/show"),
        row("ovs-appctl dpctl/show"),
        row("ovs-appctl dpctl/dump-dps"),
        row("ovs-vsctl get open_vswitch . datapath_types"),
        row("ovs-vsctl --columns=name,error,ofport,status find interface name=p4"),
        row("ovs-appctl netdev-dummy/receive p4 in_port(4),eth(src=50:54:00:00:00:0a,dst=50:54:00:00:00:0b)"),
        row("ovs-appctl dpif-dummy/change-port-number ovs-dummy p1 77"),
        row("ovs-appctl dpif-dummy/change-port-number ovs-system p1 77"),
        row("ovs-appctl dpif/show").eventually(),
    ],
};

/// `dpif-netdev/pmd-rxq-show` without loads.
macro_rules! placed {
    () => {
        row("sh -c \"ovs-appctl dpif-netdev/pmd-rxq-show | grep -v overhead | sed 's/ pmd usage:.*//'\"").eventually()
    };
}

/// Cores and devices on NUMA nodes.
const NODES: Group = Group {
    daemons: Daemons::Dummy(&["--dummy-numa=0,0,1,1"]),
    files: &[],
    setup: &["ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy \
         -- add-port br0 p2 -- set interface p2 type=dummy-pmd \
         -- add-port br0 p3 -- set interface p3 type=dummy-pmd options:n_rxq=2 options:numa_id=1 \
         -- add-port br0 p4 -- set interface p4 type=dummy-pmd options:numa_id=0 options:n_rxq=3"],
    rows: &[
        row("sh -c \"sed -n 's/.*|ovs_numa|INFO|//p' switch.log\""),
        placed!(),
        step("ovs-vsctl set open_vswitch . other_config:pmd-cpu-mask=0x5"),
        placed!(),
        step("ovs-vsctl set open_vswitch . other_config:pmd-cpu-mask=0xf"),
        step("ovs-appctl dpif-netdev/pmd-rxq-rebalance"),
        placed!(),
        step("ovs-vsctl set interface p4 options:n_rxq=x"),
        row("ovs-appctl dpctl/show").eventually(),
        step("ovs-vsctl set interface p4 options:n_rxq=0"),
        row("ovs-appctl dpctl/show").eventually(),
    ],
};

const CABLES: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
         -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
         options:pstream=punix:{dir}/p1.sock \
         -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2 \
         options:stream=unix:{dir}/p1.sock \
         -- add-port br0 p3 -- set interface p3 type=dummy ofport_request=3",
        "ovs-ofctl add-flow br0 in_port=3,actions=1",
        "ovs-ofctl add-flow br0 in_port=2,actions=drop",
    ],
    rows: &[
        row("sh -c \"ovs-appctl netdev-dummy/conn-state | sort\"").eventually(),
        row("ovs-appctl netdev-dummy/conn-state p2").eventually(),
        row("ovs-appctl netdev-dummy/conn-state p1"),
        step("sleep 1"),
        step("ovs-appctl netdev-dummy/receive p3 in_port(3),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a)"),
        row("sh -c \"ovs-ofctl dump-flows br0 | grep -o 'n_packets=1,.*in_port.*'\"").eventually(),
        step("ovs-vsctl del-port p1"),
        row("ovs-appctl netdev-dummy/conn-state p2").eventually(),
    ],
};

/// Routes of users by devices that have addresses.
const ROUTES: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
         -- add-port br0 p1 -- set interface p1 type=dummy",
        "ovs-appctl netdev-dummy/ip4addr br0 1.1.2.88/24",
        "ovs-appctl netdev-dummy/ip6addr br0 2001:cafe::92/64",
    ],
    rows: &[
        row("ovs-appctl ovs/route/show"),
        row("ovs-appctl ovs/route/lookup 1.1.2.5"),
        row("ovs-appctl ovs/route/add 1.1.2.92/24 br0"),
        row("ovs-appctl ovs/route/add 1.2.3.0/24 br0 1.1.2.1"),
        row("ovs-appctl ovs/route/add 1.2.3.0/24 br0 1.1.2.1"),
        row("ovs-appctl ovs/route/add 1.2.4.0/24 br0 1.1.2.1 pkt_mark=7"),
        row("ovs-appctl ovs/route/add 2001:db8::/32 br0 2001:cafe::1"),
        row("ovs-appctl ovs/route/add 1.3.0.0/16 br0 9.9.9.9"),
        row("ovs-appctl ovs/route/add x br0"),
        row("ovs-appctl ovs/route/add 1.2.3.4/33 br0"),
        row("ovs-appctl ovs/route/add 1.2.3.4 br0"),
        row("ovs-appctl ovs/route/add 1.1.2.4 br0"),
        row("ovs-appctl ovs/route/add 1.5.0.0/16 nobody"),
        row("ovs-appctl ovs/route/add 1.5.0.0/16 br0 zz"),
        row("ovs-appctl ovs/route/add 1.5.0.0/16 br0 pkt_mark=zz"),
        row("ovs-appctl ovs/route/add 1.5.0.0/16 br0 pkt_mark=0x9 1.1.2.1"),
        row("ovs-appctl ovs/route/add 1.5.0.0/16 br0 1.1.2.1 pkt_mark=0x9"),
        row("ovs-appctl ovs/route/add 1.5.0.0/16 br0 1.1.2.1 pkt_mark=012"),
        row("ovs-appctl ovs/route/add 0.0.0.0/0 br0 1.1.2.1"),
        row("ovs-appctl ovs/route/add ::/0 br0 2001:cafe::1"),
        row("ovs-appctl ovs/route/add 1.6.0.0/16 p1"),
        row("ovs-appctl ovs/route/add 1.7.0.0/16 br0 1.1.2.1 src=1.1.2.88"),
        row("ovs-appctl ovs/route/add 1.1.2.0/24 br0 pkt_mark=3"),
        row("ovs-appctl ovs/route/add 1.9.1.5/16 br0 1.1.2.1"),
        row("ovs-appctl ovs/route/add 1.10.0.0/16 br0 2001:cafe::1"),
        row("ovs-appctl ovs/route/add 2001:db9::/32 br0 1.1.2.1"),
        row("ovs-appctl ovs/route/add 2001:db9::/129 br0"),
        row("ovs-appctl ovs/route/add 1.1.1.1/0x10 br0"),
        row("ovs-appctl ovs/route/add 1.1.1.1/255.255.0.0 br0 1.1.2.1"),
        row("ovs-appctl ovs/route/add 1.1.1.1/255.0.255.0 br0 1.1.2.1"),
        row("ovs-appctl ovs/route/add 2001:cafe::/64 br0"),
        row("ovs-appctl ovs/route/show").unordered(),
        row("ovs-appctl ovs/route/lookup 1.1.2.5"),
        row("ovs-appctl ovs/route/lookup 1.2.3.9"),
        row("ovs-appctl ovs/route/lookup 9.9.9.9"),
        row("ovs-appctl ovs/route/lookup 1.2.4.5"),
        row("ovs-appctl ovs/route/lookup 1.2.4.5 pkt_mark=7"),
        row("ovs-appctl ovs/route/lookup 1.2.4.5 pkt_mark=8"),
        row("ovs-appctl ovs/route/lookup 2001:db8::7"),
        row("ovs-appctl ovs/route/lookup fd99::1"),
        row("ovs-appctl ovs/route/lookup 2001:cafe::5"),
        row("ovs-appctl ovs/route/lookup x"),
        row("ovs-appctl ovs/route/lookup 1.2.3.4 pkt_mark=zz"),
        row("ovs-appctl ovs/route/lookup 1.2.3.4 noise"),
        row("ovs-appctl ovs/route/lookup 1.2.3.0/24"),
        row("ovs-appctl ovs/route/lookup 1.2.3.4/32"),
        row("ovs-appctl ovs/route/lookup ::1/128"),
        row("ovs-appctl ovs/route/del 1.2.3.0/24"),
        row("ovs-appctl ovs/route/del 1.2.3.0/24"),
        row("ovs-appctl ovs/route/del 1.2.4.0/24"),
        row("ovs-appctl ovs/route/del 1.2.4.0/24 pkt_mark=7"),
        row("ovs-appctl ovs/route/del 10.1.2.0/24"),
        row("ovs-appctl ovs/route/del zz"),
        row("ovs-appctl ovs/route/del 1.2.3.4 noise"),
        row("ovs-appctl ovs/route/del 2001:db8::/32"),
        row("ovs-appctl ovs/route/del 1.9.7.7/16"),
        row("ovs-appctl ovs/route/show").unordered(),
    ],
};

#[test]
fn dummies_serve_test_benches_as_in_open_vswitch() {
    run(&TABLE);
}
