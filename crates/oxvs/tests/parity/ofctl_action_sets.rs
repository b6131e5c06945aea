//! Actions that cannot be read, and those that an action set cannot hold: `ovs-ofctl` sends them,
//! the switch refuses them, and both log why.

use crate::run::{Daemons, Group, Row, Table, row, run};

const TEXTS: &[Row] = &[
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(exit)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(note:01)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(learn(table=1))\""),
    row(
        "ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(bundle(eth_src,0,active_backup,ofport,members:1))\"",
    ),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(clone(output:1))\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(clone(exit))\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(sample(probability=1,collector_set_id=1))\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(fin_timeout(idle_timeout=1))\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(push:reg0)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(pop:reg0)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(multipath(eth_src,50,modulo_n,1,0,reg0))\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(conjunction(1,1/2))\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(enqueue:1:2)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(pop_queue)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(check_pkt_larger(100)->reg0[0])\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(delete_field:tun_metadata0)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(output(port=1,max_len=100))\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(debug_recirc)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(output:reg0)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(write_metadata:1)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(output:1,write_metadata:1)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(exit,output:65281)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(set_queue:1,output:1)\""),
    row("ovs-ofctl -O OpenFlow13 parse-flow \"actions=write_actions(group:1)\""),
    row("ovs-ofctl parse-flow \"actions=clone(write_metadata:1)\""),
];

const MESSAGES: &[Row] = &[
    row(
        "ovs-ofctl ofp-print 040e005000000001000000000000000000000000000000000000000000008000ffffffffffffffffffffffff0000000000010004000000000004001800000000ffff00100000232000ff000000000000",
    ),
    row(
        "ovs-ofctl ofp-print 040e005000000001000000000000000000000000000000000000000000008000ffffffffffffffffffffffff0000000000010004000000000003001800000000ffff00100000232000ff000000000000",
    ),
    row(
        "ovs-ofctl ofp-print 040e006000000001000000000000000000000000000000000000000000008000ffffffffffffffffffffffff000000000001000400000000000400280000000000000010000000010000000000000000ffff00100000232000ff000000000000",
    ),
    row(
        "ovs-ofctl ofp-print 040e005000000001000000000000000000000000000000000000000000008000ffffffffffffffffffffffff0000000000010004000000000003001800000000ffff0010000023200011000000000000",
    ),
    row(
        "ovs-ofctl ofp-print 040e006800000001000000000000000000000000000000000000000000008000ffffffffffffffffffffffff0000000000010004000000000004001800000000ffff00100000232000ff0000000000000003001800000000ffff0010000023200011000000000000",
    ),
    row(
        "ovs-ofctl ofp-print 040e006800000001000000000000000000000000000000000000000000008000ffffffffffffffffffffffff0000000000010004000000000004001800000000ffff00100000232000110000000000000003001800000000ffff00100000232000ff000000000000",
    ),
    row("ovs-ofctl ofp-print 040d002800000001fffffffffffffffd0010000000000000ffff00100000232000ff000000000000"),
    row("ovs-ofctl ofp-print 010d002000000001ffffffffffff0010ffff00100000232000ff000000000000"),
    row(
        "ovs-ofctl ofp-print 010e005800000001003820ff00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000008000ffffffffffff0000ffff00100000232000ff000000000000",
    ),
    row(
        "ovs-ofctl ofp-print 060e007000000001000000000000000000000000000000000000000000008000ffffffffffffffffffffffff000000000001000400000000000300380000000000000010000000010000000000000000ffff0010000023200011000000000000ffff00100000232000ff000000000000",
    ),
];

const fn offline(rows: &'static [Row]) -> Group {
    Group {
        daemons: Daemons::None,
        files: &[],
        setup: &[],
        rows,
    }
}

const SWITCH: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[("flows.txt", "actions=drop\nactions=write_actions(exit)\n")],
    setup: &["ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy \
         protocols=OpenFlow10,OpenFlow13,OpenFlow14,OpenFlow15"],
    rows: &[
        row("ovs-ofctl -O OpenFlow13 add-flow br0 \"actions=write_actions(exit)\""),
        row("ovs-ofctl -O OpenFlow14 add-flow br0 \"actions=write_actions(clone(output:1))\""),
        row("ovs-ofctl -O OpenFlow15 add-flow br0 \"actions=write_actions(note:01)\""),
        row("ovs-ofctl -O OpenFlow13 add-flow br0 \"actions=write_actions(learn(table=1))\""),
        row(
            "ovs-ofctl -O OpenFlow13 add-flow br0 \"actions=write_actions(bundle(eth_src,0,active_backup,ofport,members:1))\"",
        ),
        row("ovs-ofctl -O OpenFlow10 add-flow br0 \"actions=write_actions(exit)\""),
        row("ovs-ofctl -O OpenFlow13 add-flow br0 \"actions=write_actions(output:1)\""),
        row("ovs-ofctl -O OpenFlow14 --bundle add-flows br0 flows.txt"),
        row("ovs-ofctl -O OpenFlow13 add-flow br0 actions=output:1,goto_table:0"),
        row("ovs-ofctl --no-stats dump-flows br0"),
        row(
            "sh -c \"sed -nE 's/^[^|]*[|][^|]*[|]((ofp_actions|connmgr)[|].*)$/\\1/p' switch.log | \
             grep -e action -e error | sed -E 's/unix#[0-9]+/unix#N/'\"",
        )
        .eventually(),
    ],
};

static TABLE: Table = Table {
    name: "action sets",
    groups: &[offline(TEXTS), offline(MESSAGES), SWITCH],
};

#[test]
fn what_an_action_set_cannot_hold_is_sent_and_refused_as_in_open_vswitch() {
    run(&TABLE);
}
