//! `ovs-ofctl` with a switch: questions about the switch, files with errors, the order of checks,
//! and the log lines that the tool writes.

use crate::run::{Daemons, Group, Row, Table, row, run, step};

const FILES: &[(&str, &str)] = &[
    (
        "good.flows",
        "add table=3,priority=5,actions=1\nmodify table=3,actions=2\nmodify_strict table=3,priority=5,actions=3\n\
         delete table=9\ndelete_strict table=3,priority=6\nadd table=4,ip,actions=drop\n",
    ),
    (
        "late.flows",
        "table=5,actions=1\ntable=5,ip,actions=2\ntable=5,tcp,foo=bar,actions=3\n",
    ),
    ("verb.flows", "change table=5,actions=1\n"),
    (
        "refused.flows",
        "table=5,actions=1\ntable=5,tcp,actions=2\ntable=5,ip,actions=group:9999\n",
    ),
    ("noaction.flows", "table=5,ip\n"),
    ("metadata.flows", "table=5,metadata=1,actions=1\nreg0=5,actions=2\n"),
    ("same.flows", "priority=5,ip,actions=1\npriority=5,ip,actions=2\n"),
    (
        "other.flows",
        "priority=5,ip,actions=2\npriority=6,ip,actions=2\ntable=1,cookie=7,actions=drop\n",
    ),
    ("empty.flows", ""),
    (
        "good.groups",
        "delete group_id=21\ndelete group_id=22\n\n# comment\ngroup_id=21,type=all,bucket=actions=1\nadd group_id=22,type=all\n",
    ),
    (
        "late.groups",
        "group_id=23,type=all,bucket=actions=1\ngroup_id=24,type=all,bucket=foo\n",
    ),
    (
        "twice.groups",
        "group_id=25,type=all,bucket=actions=1\ngroup_id=25,type=all,bucket=actions=1\n",
    ),
    (
        "verb.groups",
        "insert_bucket group_id=25,command_bucket_id=last,bucket=bucket_id=1,actions=1\nfoo group_id=1\n",
    ),
    (
        "good.bundle",
        "flow add table=6,actions=1\ngroup add group_id=31,type=all,bucket=actions=1\n\
         packet-out in_port=1,packet=ffffffffffff0000000000020806,actions=2\nflow delete table=6\n",
    ),
    (
        "late.bundle",
        "flow add table=6,actions=1\ngroup add group_id=32,type=foo\n",
    ),
    ("word.bundle", "foo add table=6\n"),
    ("short.bundle", "flow\n"),
    (
        "refused.bundle",
        "flow add table=6,actions=1\ngroup add group_id=33,type=all\ngroup add group_id=33,type=all\n",
    ),
    ("wrong.bundle", "flow add table=6,actions=group:9999\n"),
    ("packet.bundle", "packet-out in_port=1,packet=zz,actions=2\n"),
];

const SETUP: &[&str] = &[
    "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy other-config:datapath-id=0000000000000001 \
     other-config:hwaddr=aa:55:aa:55:00:00 protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15",
    "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
    "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
    "ovs-vsctl add-br old -- set bridge old datapath_type=dummy protocols=OpenFlow10 other-config:datapath-id=0000000000000002 \
     other-config:hwaddr=aa:55:aa:55:00:01",
    "ovs-ofctl del-flows br0",
];

/// Questions about the switch, in every version.
const QUESTIONS: &[Row] = versions![
    "dump-desc br0",
    "dump-tables br0",
    "dump-table-features br0",
    "dump-table-desc br0",
    "dump-ports br0",
    "dump-ports br0 1",
    "dump-ports br0 LOCAL",
    "dump-ports br0 p1",
    "dump-ports br0 77",
    "dump-ports-desc br0 nope",
    "queue-stats br0",
    "queue-stats br0 1",
    "queue-stats br0 1 0",
    "queue-stats br0 1 5",
    "queue-stats br0 77",
    "queue-stats br0 ALL",
    "queue-stats br0 1 zz",
    "queue-get-config br0",
    "queue-get-config br0 1",
    "queue-get-config br0 1 0",
    "queue-get-config br0 1 7",
    "queue-get-config br0 ANY",
    "queue-get-config br0 77",
    "queue-get-config br0 nope",
    "meter-features br0",
    "meter-stats br0",
    "meter-stats br0 meter=1",
    "dump-meters br0 meter=1",
    "dump-group-features br0",
    "dump-tlv-map br0",
    "mod-port br0 77 down",
    "mod-port br0 p1 no-receive",
    "mod-port br0 p1 receive",
    "mod-port br0 p1 no-stp",
    "mod-port br0 p1 stp",
    "mod-port br0 p1 no-receive-stp",
    "mod-port br0 p1 no-forward",
    "mod-port br0 p1 forward",
    "mod-port br0 p1 no-packet-in",
    "mod-port br0 p1 packet-in",
    "mod-port br0 LOCAL down",
    "mod-port br0 LOCAL up",
    "mod-port br0 p1 foo",
    "mod-table br0 all controller",
    "mod-table br0 300 drop",
    "set-frags br0 reassemble",
    "set-frags br0 nx-match",
    "set-frags br0 normal",
    "add-group br0 group_id=1,type=all,bucket=actions=1",
    "add-groups br0 good.groups",
    "add-groups br0 late.groups",
    "add-groups br0 twice.groups",
    "add-groups br0 verb.groups",
    "--bundle add-groups br0 twice.groups",
    "dump-groups br0",
    "del-groups br0",
    "bundle br0 good.bundle",
    "bundle br0 late.bundle",
    "bundle br0 word.bundle",
    "bundle br0 short.bundle",
    "bundle br0 refused.bundle",
    "bundle br0 wrong.bundle",
    "bundle br0 packet.bundle",
    "bundle br0 empty.flows",
    "add-flows br0 good.flows",
    "add-flows br0 late.flows",
    "add-flows br0 verb.flows",
    "add-flows br0 refused.flows",
    "add-flows br0 noaction.flows",
    "add-flows br0 metadata.flows",
    "add-flows br0 empty.flows",
    "add-flows br0 nofile",
    "--bundle add-flows br0 refused.flows",
    "--no-stats dump-flows br0",
    "replace-flows br0 same.flows",
    "replace-flows br0 late.flows",
    "replace-flows br0 metadata.flows",
    "replace-flows br0 good.flows",
    "--bundle replace-flows br0 other.flows",
    "replace-flows br0 nofile",
    "--no-stats dump-flows br0",
    "diff-flows br0 other.flows",
    "diff-flows other.flows br0",
    "diff-flows same.flows other.flows",
    "diff-flows br0 late.flows",
    "diff-flows br0 nofile",
    "diff-flows br0 br9",
    "diff-flows br0 br0",
    "replace-flows br0 empty.flows",
    "--no-stats dump-flows br0",
    "add-meter br0 meter=3,pktps,bands=type=drop,rate=5",
    "del-meters br0 meter=3",
    "monitor br0 watch:!foo",
    "ct-flush br0 zone=5 ct_nw_proto=6",
    "ct-flush-zone br0 65536",
];

macro_rules! rows {
    ($($line:literal),* $(,)?) => { &[$(row(concat!("ovs-ofctl ", $line))),*] };
}

/// Log lines on standard error, and the options that change them.
const LOGS: &[Row] = rows![
    "show old",
    "dump-flows old",
    "dump-group-features old",
    "add-flow old group_id=5",
    "-vPATTERN:console:%c|%p|%m show tcp:127.0.0.1:1",
    "-vPATTERN:console:%c|%p|%m show unix:{dir}/nope",
    "-vPATTERN:console:%c|%p|%m show ssl:127.0.0.1:1",
    "-vPATTERN:console:%c|%p|%m show tcp:127.0.0.1:foo",
    "-vPATTERN:console:%c|%p|%m show foo:127.0.0.1",
    "-vPATTERN:console:%c|%p|%m snoop old9",
    "-vPATTERN:console:%c|%p|%m -t 1 monitor old 65534 invalid_ttl",
    "-vPATTERN:console:%c|%p|%m probe unix:{dir}/nope",
    "-vPATTERN:console:%c|%p|%m ping unix:{dir}/nope",
    "-vPATTERN:console:%c|%p|%m add-flow br0 tcp,tp_dst=80,nw_src=10.1.2.3/8,actions=drop",
    "-vPATTERN:console:%c|%p|%m add-flow br0 tp_dst=80,actions=drop",
    "-vPATTERN:console:%c|%p|%m add-flow br0 priority=6,dl_vlan=5000,actions=drop",
    "-vPATTERN:console:%c|%p|%m add-flow br0 in_port=65536,actions=drop",
    "-vPATTERN:console:%c|%p|%m add-flow br0 actions=output:65280",
    "-vPATTERN:console:%c|%p|%m add-flow br0 actions=mod_vlan_vid:5000",
    "-vPATTERN:console:%c|%p|%m add-flow br0 actions=enqueue:1:2",
    "-vPATTERN:console:%c|%p|%m add-flow br0 duration=5,actions=1",
    "-vPATTERN:console:%c|%p|%m add-flow br0 idle_timeout=70000,actions=1",
    "-vPATTERN:console:%c|%p|%m mod-flows br0 cookie=1/2,actions=1",
    "-vPATTERN:console:%c|%p|%m mod-flows br0 cookie=zz,actions=1",
    "-vPATTERN:console:%c|%p|%m del-flows br0 cookie=1",
    "-vPATTERN:console:%c|%p|%m del-flows br0 table=zz",
    "-vPATTERN:console:%c|%p|%m --strict del-flows br0 priority=zz",
    "-vPATTERN:console:%c|%p|%m -O OpenFlow13 add-meter br0 meter=1",
    "-vPATTERN:console:%c|%p|%m -O OpenFlow13 add-meter br0 meter=1,kbps,band=type=foo",
    "-vPATTERN:console:%c|%p|%m -O OpenFlow13 add-meter br0 meter=1,kbps,bands=type=drop",
    "-vPATTERN:console:%c|%p|%m -O OpenFlow13 add-meter br0 meter=zz,kbps,bands=type=drop,rate=1",
    "-vPATTERN:console:%c|%p|%m -O OpenFlow13 add-meter br0 meter=1,kbps,pktps,bands=type=drop,rate=1",
    "-vPATTERN:console:%c|%p|%m -O OpenFlow13 add-group br0 group_id=1,type=all,bucket=weight:5,actions=1",
    "-vPATTERN:console:%c|%p|%m -O OpenFlow13 add-group br0 group_id=1,type=select,selection_method=dp_hash,bucket=actions=1",
    "-vPATTERN:console:%c|%p|%m -O OpenFlow13 add-group br0 group_id=1,type=ff,bucket=actions=1",
    "-vPATTERN:console:%c|%p|%m -O OpenFlow15 insert-buckets br0 group_id=9,command_bucket_id=zz,bucket=actions=1",
    "-vPATTERN:console:%c|%p|%m -O OpenFlow15 remove-buckets br0 group_id=9",
    "-vPATTERN:console:%c|%p|%m --strict=1 show br0",
    "-vPATTERN:console:%c|%p|%m -t 0 dump-desc br0",
    "-vPATTERN:console:%c|%p|%m packet-out br0 'packet=ffffffffffff0000000000020806 actions=2'",
    "-vPATTERN:console:%c|%p|%m packet-out br0 'in_port=1 foo=3'",
    "-vPATTERN:console:%c|%p|%m packet-out br0 'in_port=1 packet=ffffffffffff0000000000020806'",
];

/// Flows that one message of statistics hardly holds.
const LARGE: &[Row] = &[
    step(
        "perl -we 'open O, q(>large.flows); for $n (1 .. 3) { printf O qq(table=7,priority=$n,actions=%s\\n), join q(,), map { qq(output:$_) } 1 .. 8000 } ; \
         printf O qq(table=8,actions=%s\\n), join q(,), (q(output:1)) x 4000; printf O qq(table=8,ip,actions=%s\\n), join q(,), (q(output:1)) x 8186'",
    ),
    row("ovs-ofctl add-flows br0 large.flows"),
    row("ovs-ofctl --no-stats dump-flows br0"),
    row("ovs-ofctl -O OpenFlow13 --no-stats dump-flows br0"),
    row("ovs-ofctl -O OpenFlow15 add-flows br0 large.flows"),
    row("ovs-ofctl -O OpenFlow15 --no-stats dump-flows br0"),
    row("ovs-ofctl diff-flows br0 large.flows"),
    row("ovs-ofctl -O OpenFlow13 dump-aggregate br0"),
];

const fn switch(rows: &'static [Row]) -> Group {
    Group {
        daemons: Daemons::Dummy(&[]),
        files: FILES,
        setup: SETUP,
        rows,
    }
}

pub(crate) static TABLE: Table = Table {
    name: "ofctl answers",
    groups: &[switch(QUESTIONS), switch(LOGS), switch(LARGE)],
};

#[test]
fn ofctl_answers_and_complains_as_open_vswitch_does() {
    run(&TABLE);
}
