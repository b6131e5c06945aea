//! Lines of the switch's log that people and test benches search for.

use crate::run::{Daemons, Group, Table, row, run, step};

const TABLE: Table = Table {
    name: "logs",
    groups: &[LINES],
};

/// The lines of some modules without time, number and thread.
macro_rules! lines {
    ($modules:literal, $filter:literal) => {
        row(concat!(
            "sh -c \"sed -nE 's/^[^|]*[|][^|]*[|]((",
            $modules,
            ")([(][^)]*[)])?[|].*)$/\\1/p' switch.log | sed -E 's/unix#[0-9]+/unix#N/g; s/[(]oxvs[^)]*[)]//' | ",
            $filter,
            "\""
        ))
    };
}

const LINES: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-appctl vlog/set vconn:file:dbg",
        "ovs-appctl vlog/set dpif_netdev:file:dbg",
        "ovs-appctl vlog/set unixctl:file:dbg",
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
         other-config:datapath-id=0000000000001234 -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
         -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
    ],
    rows: &[
        lines!("bridge", "sort").eventually(),
        lines!("connmgr", "cat").eventually(),
        step("ovs-ofctl add-flow br0 in_port=1,ip,nw_dst=10.0.0.1,actions=2"),
        step("ovs-ofctl -O OpenFlow13 del-flows br0 in_port=7"),
        lines!(
            "vconn",
            "grep -e FLOW_MOD -e negotiated | sed 's/xid=0x[0-9a-f]*/xid/' | sort -u"
        )
        .eventually(),
        lines!("connmgr", "grep flow_mods").eventually(),
        step(
            "ovs-appctl netdev-dummy/receive p1 'in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),\
             eth_type(0x0800),ipv4(src=10.0.0.2,dst=10.0.0.1,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)'",
        ),
        row("sh -c \"grep -A2 'miss upcall' switch.log | tail -n 2\"").eventually(),
        lines!(
            "dpif_netdev",
            "grep flow_add: | grep 10.0.0.1 | sed 's/.*mega_ufid:[^ ]* //; s/,frag=no//'"
        )
        .eventually(),
        lines!("unixctl", "grep -A1 dummy/receive | tail -n 1").eventually(),
        // The port goes, comes back with another number, and a controller cannot be reached.
        step("ovs-vsctl del-port p2"),
        step("ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=7"),
        step("ovs-vsctl set-controller br0 tcp:127.0.0.1:1 -- set controller br0 connection_mode=out-of-band"),
        lines!("bridge", "sort").eventually(),
        lines!("rconn", "head -n 3").eventually(),
        step("ovs-vsctl del-controller br0"),
        lines!("connmgr", "grep controller").eventually(),
        step("ovs-vsctl del-br br0"),
        lines!("bridge", "sort").eventually(),
    ],
};

#[test]
fn the_log_has_open_vswitchs_lines() {
    run(&TABLE);
}
