//! Devices of memory, as test benches use them.

use crate::run::{Daemons, Group, Table, row, run, step};

const TABLE: Table = Table {
    name: "dummy",
    groups: &[DEVICES, CABLES, ROUTES],
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
