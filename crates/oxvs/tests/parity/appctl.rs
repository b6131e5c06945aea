//! `ovs-appctl` and the commands of the switch.

use crate::run::{Daemons, Group, Table, row, run};

const TABLE: Table = Table {
    name: "appctl",
    groups: &[CLIENT, SWITCH],
};

/// The client where no daemon runs.
const CLIENT: Group = Group {
    daemons: Daemons::None,
    files: &[],
    setup: &[],
    rows: &[
        row("ovs-appctl --help").options(),
        row("ovs-appctl --version"),
        row("ovs-appctl"),
        row("ovs-appctl -t"),
        row("ovs-appctl -q"),
        row("ovs-appctl -t /nobody version").status(),
        row("ovs-appctl --timeout=x version"),
    ],
};

const SWITCH: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=standalone",
        "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
    ],
    rows: &[
        row("ovs-appctl version"),
        row("ovs-appctl no-such-command"),
        row("ovs-appctl version x"),
        row("ovs-appctl fdb/show"),
        row("ovs-appctl fdb/show br0 br0"),
        row("ovs-appctl fdb/show br9"),
        row("ovs-appctl fdb/show br0"),
        row("ovs-appctl -t ovsdb-server version"),
    ],
};

#[test]
fn appctl_and_the_switchs_commands_answer_as_in_open_vswitch() {
    run(&TABLE);
}
