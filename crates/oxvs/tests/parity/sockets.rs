//! Who may use the sockets that the daemons make.

use crate::run::{Daemons, Group, Table, row, run};

const SOCKETS: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &["ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy"],
    rows: &[
        row("sh -c \"stat -c '%a %F %n' db.sock switch.ctl br0.mgmt br0.snoop\""),
        row("ovs-appctl -t ovsdb-server ovsdb-server/add-remote punix:{dir}/more.sock"),
        row("sh -c \"stat -c '%a %F %n' more.sock\""),
        row("ovs-vsctl set-controller br0 punix:{dir}/more.mgmt"),
        row("sh -c \"stat -c '%a %F %n' more.mgmt\"").eventually(),
    ],
};

static TABLE: Table = Table {
    name: "sockets",
    groups: &[SOCKETS],
};

#[test]
fn sockets_have_the_mode_that_those_of_open_vswitch_have() {
    run(&TABLE);
}
