//! Port-status messages of a port in a spanning tree: what controllers hear of its states.

use crate::run::{Daemons, Group, Row, Table, row, run, step};

const TABLE: Table = Table {
    name: "port_status",
    groups: &[STP, RSTP],
};

/// A monitor in the background.
macro_rules! monitor {
    ($version:literal, $name:literal) => {
        step(concat!(
            "ovs-ofctl -O ",
            $version,
            " monitor br0 65534 --detach --no-chdir --pidfile={dir}/",
            $name,
            ".pid --unixctl={dir}/",
            $name,
            ".ctl"
        ))
        .into_file($name)
    };
}

/// Monitors of three versions, a tree that opens the port, and what they printed.
macro_rules! heard {
    ($enable:literal, $disable:literal, $first:literal, $messages:literal) => {
        &[
            step("ovs-appctl time/stop"),
            monitor!("OpenFlow10", "ten"),
            monitor!("OpenFlow13", "thirteen"),
            monitor!("OpenFlow14", "fourteen"),
            step($enable),
            step("ovs-appctl time/warp 16000 1000"),
            step(concat!(
                "sh -c \"for i in $(seq 500); do grep -q ",
                $first,
                " ten && exit 0; sleep 0.01; done; exit 1\""
            )),
            step("ovs-appctl time/warp 16000 1000"),
            // In OpenFlow 1.0 states have bits, and in later versions nothing changes.
            step("sh -c \"for i in $(seq 500); do grep -q STP_FORWARD ten && exit 0; sleep 0.01; done; exit 1\""),
            step($disable),
            step(concat!(
                "sh -c \"for i in $(seq 500); do [ $(grep -c PORT_STATUS ten) = ",
                $messages,
                " ] && exit 0; sleep 0.01; done; exit 1\""
            )),
            step("ovs-appctl -t {dir}/ten.ctl exit"),
            step("ovs-appctl -t {dir}/thirteen.ctl exit"),
            step("ovs-appctl -t {dir}/fourteen.ctl exit"),
            row(concat!("sh -c \"cat ten; : ", $enable, "\"")),
            row(concat!("sh -c \"cat thirteen; : ", $enable, "\"")),
            row(concat!("sh -c \"cat fourteen; : ", $enable, "\"")),
        ]
    };
}

const fn group(rows: &'static [Row]) -> Group {
    Group {
        daemons: Daemons::Dummy(&[]),
        files: &[],
        setup: &[
            "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy other_config:hwaddr=00:00:00:00:00:01 \
             -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
        ],
        rows,
    }
}

const STP: Group = group(heard!(
    "ovs-vsctl set bridge br0 stp_enable=true",
    "ovs-vsctl set bridge br0 stp_enable=false",
    "STP_LEARN",
    "3"
));

const RSTP: Group = group(heard!(
    "ovs-vsctl set bridge br0 rstp_enable=true",
    "ovs-vsctl set bridge br0 rstp_enable=false",
    "STP_FORWARD",
    "2"
));

#[test]
fn controllers_hear_of_the_states_of_spanning_trees_as_from_open_vswitch() {
    run(&TABLE);
}
