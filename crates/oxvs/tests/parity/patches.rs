//! Counters of patches: what commands and the database show of packets that pass them.

use crate::run::{Daemons, Group, Table, row, run, step};

const TABLE: Table = Table {
    name: "patches",
    groups: &[PATCHES],
};

/// A packet of 60 bytes.
macro_rules! packet {
    () => {
        step(
            "ovs-appctl netdev-dummy/receive p1 \
             505400000007505400000005080045000020000000004011f979c0a80001c0a8000200080009000c0000616263640000000000000000000000000000",
        )
    };
}

const PATCHES: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-appctl time/stop",
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure other-config:hwaddr=aa:55:aa:55:00:00 \
         -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
         -- add-port br0 t0 -- set interface t0 type=patch options:peer=t1 ofport_request=3",
        "ovs-vsctl add-br br1 -- set bridge br1 datapath_type=dummy fail-mode=secure other-config:hwaddr=aa:55:aa:55:00:01 \
         -- add-port br1 t1 -- set interface t1 type=patch options:peer=t0 ofport_request=1 \
         -- add-port br1 p3 -- set interface p3 type=dummy ofport_request=3",
        "ovs-ofctl add-flow br0 actions=3",
        "ovs-ofctl add-flow br1 actions=3",
    ],
    rows: &[
        row("ovs-ofctl dump-ports br0 t0"),
        packet!(),
        packet!(),
        packet!(),
        step("ovs-appctl time/warp 6000 100"),
        step("ovs-appctl revalidator/purge"),
        step("ovs-appctl time/warp 6000 100"),
        row("ovs-ofctl dump-ports br0 t0"),
        row("ovs-ofctl dump-ports br1 t1"),
        row("ovs-vsctl get interface t0 statistics"),
        row("ovs-vsctl get interface t1 statistics"),
    ],
};

#[test]
fn patches_count_as_open_vswitchs() {
    run(&TABLE);
}
