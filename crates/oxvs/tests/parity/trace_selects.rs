//! `ofproto/trace` of select groups: up to the hash, and from each slot to its bucket.

use crate::run::{Daemons, Group, Table, row, run, step};

const TABLE: Table = Table {
    name: "trace of select groups",
    groups: &[EVEN, BY_WEIGHT, SKEWED, DEAD, CHANGED],
};

/// The trace of a packet that recirculated with a hash.
macro_rules! slot {
    ($hash:literal) => {
        row(concat!(
            "ovs-appctl ofproto/trace br0 recirc_id=0x1,dp_hash=",
            $hash,
            ",in_port=1,tcp"
        ))
        .eventually()
    };
}

/// Traces of sixteen slots of a group, once a packet has come and then these commands.
macro_rules! slots {
    ($group:literal $(, $step:literal)*) => {
        Group {
            daemons: Daemons::Dummy(&[]),
            files: &[],
            setup: &[
                "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure protocols=OpenFlow10,OpenFlow15 \
                 other-config:hwaddr=aa:55:aa:55:00:00",
                "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
                "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
                "ovs-vsctl add-port br0 p3 -- set interface p3 type=dummy ofport_request=3",
                "ovs-vsctl add-port br0 p4 -- set interface p4 type=dummy ofport_request=4",
                concat!("ovs-ofctl -O OpenFlow15 add-group br0 group_id=1,type=select,", $group),
                "ovs-ofctl -O OpenFlow15 add-flow br0 in_port=1,ip,actions=dec_ttl,group:1,output:4",
                "ovs-ofctl -O OpenFlow15 add-flow br0 in_port=1,ipv6,actions=group:1",
            ],
            rows: &[
                step(
                    "ovs-appctl netdev-dummy/receive p1 'in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),\
                     eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=5,dst=80)'",
                ),
                $(step($step),)*
                row("ovs-appctl ofproto/trace br0 in_port=1,tcp,nw_ttl=64").eventually(),
                row("ovs-appctl ofproto/trace br0 in_port=1,udp6,nw_ttl=64,tp_src=5").eventually(),
                slot!("0x100"),
                slot!("0x101"),
                slot!("0x102"),
                slot!("0x103"),
                slot!("0x104"),
                slot!("0x105"),
                slot!("0x106"),
                slot!("0x107"),
                slot!("0x108"),
                slot!("0x109"),
                slot!("0x10a"),
                slot!("0x10b"),
                slot!("0x10c"),
                slot!("0x10d"),
                slot!("0x10e"),
                slot!("0x10f"),
                row(
                    "ovs-appctl ofproto/trace 'recirc_id(0x1),dp_hash(0x15),in_port(1),eth(),eth_type(0x0800),ipv4(proto=6,frag=no)'",
                ),
                row("ovs-appctl ofproto/trace br0 recirc_id=0x77,dp_hash=0x1,in_port=1,tcp"),
            ],
        }
    };
}

const EVEN: Group = slots!("bucket=weight=1,actions=output:2,bucket=weight=1,actions=output:3");

const BY_WEIGHT: Group = slots!(
    "selection_method=dp_hash,bucket=weight=1,actions=output:2,bucket=weight=2,actions=output:3,bucket=weight=3,actions=output:4"
);

const SKEWED: Group = slots!(
    "selection_method=dp_hash,selection_method_param=0x100000007,bucket=weight=0,actions=output:4,\
     bucket=weight=5,actions=output:2,bucket=weight=100,actions=output:3"
);

const DEAD: Group = slots!(
    "selection_method=dp_hash,selection_method_param=3,bucket=weight=1,watch_port=2,actions=output:2,\
     bucket=weight=2,watch_port=3,actions=output:3,bucket=weight=3,watch_port=4,actions=output:4",
    "ovs-appctl netdev-dummy/set-admin-state p4 down"
);

const CHANGED: Group = slots!(
    "bucket=bucket_id=1,weight=1,actions=output:2,bucket=bucket_id=2,weight=1,actions=output:3",
    "ovs-ofctl -O OpenFlow15 mod-group br0 group_id=1,type=select,bucket=bucket_id=7,weight=20,actions=output:4,\
     bucket=bucket_id=1,weight=1,actions=output:2,bucket=bucket_id=2,weight=1,actions=output:3",
    "ovs-ofctl -O OpenFlow15 mod-group br0 group_id=1,type=select,bucket=bucket_id=7,weight=3,actions=output:4,\
     bucket=bucket_id=1,weight=1,actions=output:2"
);

#[test]
fn traces_of_select_groups_have_the_same_slots() {
    run(&TABLE);
}
