//! Flow monitors of a running switch, of all three kinds: Nicira's, the foundation's of OpenFlow
//! 1.3, and those of OpenFlow 1.4 and later.

use crate::run::{Daemons, Group, Row, Table, row, run, step};

/// The rows of one version: monitors in the background with these names and words, changes of rules
/// by other connections, a change by three of the monitors (`own` is a flow-mod in hexadecimal
/// digits), and what each monitor printed.
macro_rules! watched {
    ($version:literal, $own:literal, $($name:literal $words:literal),* $(,)?) => { &[
        $(step(concat!(
            "ovs-ofctl -O ", $version, " monitor br0 ", $words,
            " --detach --no-chdir --pidfile={dir}/", $name, ".pid --unixctl={dir}/", $name, ".ctl"
        )).into_file($name),)*
        step("ovs-ofctl add-flow br0 table=4,actions=1"),
        step("ovs-ofctl add-flow br0 in_port=1,actions=output:3"),
        step("ovs-ofctl add-flow br0 in_port=1,actions=output:3"),
        step("ovs-ofctl add-flow br0 in_port=1,actions=drop"),
        step("ovs-ofctl mod-flows br0 in_port=2,actions=output:LOCAL"),
        step("ovs-ofctl mod-flows br0 in_port=2,actions=output:LOCAL"),
        step("ovs-ofctl mod-flows br0 in_port=2,actions=output:1"),
        step("ovs-ofctl add-flow br0 in_port=3,udp,cookie=5,idle_timeout=50,hard_timeout=60,priority=9,actions=output:2"),
        step("ovs-ofctl --strict del-flows br0 table=1"),
        step("ovs-ofctl -O OpenFlow13 del-groups br0"),
        step("ovs-ofctl -O OpenFlow14 bundle br0 bundle.txt"),
        $(row(concat!("ovs-appctl -t {dir}/", $name, ".ctl ofctl/barrier")),)*
        // Each of these sees the others' changes before it makes its own.
        row(concat!("ovs-appctl -t {dir}/own.ctl ofctl/send ", $own)),
        row("ovs-appctl -t {dir}/own.ctl ofctl/barrier"),
        row("ovs-appctl -t {dir}/foreign.ctl ofctl/barrier"),
        row("ovs-appctl -t {dir}/all.ctl ofctl/barrier"),
        row(concat!("ovs-appctl -t {dir}/foreign.ctl ofctl/send ", $own)),
        row("ovs-appctl -t {dir}/foreign.ctl ofctl/barrier"),
        row("ovs-appctl -t {dir}/all.ctl ofctl/barrier"),
        row(concat!("ovs-appctl -t {dir}/all.ctl ofctl/send ", $own)),
        $(row(concat!("ovs-appctl -t {dir}/", $name, ".ctl ofctl/barrier")),)*
        $(row(concat!("ovs-appctl -t {dir}/", $name, ".ctl exit")),)*
        $(row(concat!("sh -c \"cat ", $name, "; : ", $version, " ", $words, "\"")),)*
    ] };
}

macro_rules! version {
    ($version:literal, $own:literal) => {
        watched![
            $version,
            $own,
            "all" "watch:",
            "later" "watch:!initial",
            "gone" "watch:!add,!modify",
            "kept" "watch:!delete",
            "bare" "watch:!actions",
            "own" "watch:!own",
            "foreign" "watch:!own,!actions,table=1",
            "port" "watch:out_port=1",
            "local" "watch:out_port=65534",
            "anywhere" "watch:out_port=65535,table=2",
            "group" "watch:out_group=1",
            "one" "watch:in_port=1",
            "named" "watch:in_port=p3",
            "net" "watch:ip,nw_dst=10.0.0.0/8",
            "pair" "watch:table=0,!own watch:table=1,!delete,!actions",
        ]
    };
}

const RULES: &str = "\
in_port=1,actions=output:2
cookie=0x9,in_port=2,tcp,actions=mod_vlan_vid:7,output:1
table=1,priority=5,ip,nw_dst=10.1.0.0/16,actions=drop
table=1,actions=LOCAL
table=1,priority=6,actions=drop
table=2,reg1=5,actions=resubmit(,3)
table=3,in_port=3,actions=group:1
";

const BUNDLE: &str = "\
flow modify table=2,actions=1
flow add in_port=1,actions=3
flow delete table=4
";

const fn group(rows: &'static [Row]) -> Group {
    Group {
        daemons: Daemons::Dummy(&[]),
        files: &[("rules.txt", RULES), ("bundle.txt", BUNDLE), ("packets.txt", PACKETS)],
        setup: &[
            "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
             -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
             -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2 \
             -- add-port br0 p3 -- set interface p3 type=dummy ofport_request=3",
            "ovs-ofctl -O OpenFlow13 add-group br0 group_id=1,type=all,bucket=output:2",
            "ovs-ofctl -O OpenFlow13 add-flows br0 rules.txt",
        ],
        rows,
    }
}

/// Waits until a monitor has printed so many packets.
macro_rules! heard {
    ($packets:literal) => {
        step(concat!(
            "sh -c \"for i in $(seq 500); do [ $(grep -c '(via' plain) -ge ",
            $packets,
            " ] && exit 0; sleep 0.01; done; exit 1\""
        ))
    };
}

/// The rows of packets that the switch sends to monitors: monitors with these names, options and
/// words; packets; what each monitor printed.
macro_rules! packets {
    ($version:literal, $($name:literal $options:literal $words:literal),* $(,)?) => { &[
        $(step(concat!(
            "ovs-ofctl -O ", $version, " ", $options, " monitor br0 ", $words,
            " --detach --no-chdir --pidfile={dir}/", $name, ".pid --unixctl={dir}/", $name, ".ctl"
        )).into_file($name),)*
        step("ovs-ofctl -O OpenFlow13 del-flows br0"),
        step("ovs-ofctl add-flows br0 packets.txt"),
        step("ovs-appctl netdev-dummy/receive p1 50540000000750540000000508004500001c00000000401166ce0a0000010a000002003500350008eb65"),
        heard!(2),
        step("ovs-appctl netdev-dummy/receive p2 50540000000750540000000581000005080045000028000000004006ba910a0000010a00000200500051000000010000000250120000b0ce0000"),
        heard!(3),
        step("ovs-appctl netdev-dummy/receive p3 ffffffffffff505400000005080600010800060400015054000000050a0000010000000000000a000002"),
        heard!(4),
        step("ovs-appctl netdev-dummy/receive p3 505400000007505400000005884700005140450000140000000040007ae70a0000010a000002"),
        heard!(5),
        step("ovs-ofctl packet-out br0 'in_port=2,metadata=7,reg1=5,packet=5054000000075054000000058863112233,actions=controller(userdata=01.02,id=0)'"),
        heard!(6),
        step("ovs-ofctl add-flow br0 table=7,send_flow_rem,actions=1"),
        step("ovs-ofctl mod-port br0 p1 no-flood"),
        step("ovs-ofctl mod-port br0 p1 flood"),
        step("ovs-ofctl del-flows br0 table=7"),
        row("ovs-appctl -t {dir}/none.ctl ofctl/packet-out 'in_port=2,packet=505400000007505400000005886311,actions=controller'"),
        row("ovs-appctl -t {dir}/none.ctl ofctl/packet-out in_port=zz"),
        row("ovs-appctl -t {dir}/none.ctl ofctl/barrier"),
        heard!(7),
        row("ovs-appctl -t {dir}/plain.ctl ofctl/packet-out 'in_port=2,packet=505400000007505400000005886311,actions=controller'"),
        row("ovs-appctl -t {dir}/plain.ctl ofctl/packet-out in_port=zz"),
        row("ovs-appctl -t {dir}/plain.ctl ofctl/barrier"),
        heard!(8),
        $(row(concat!("sh -c \"cat ", $name, "; : ", $version, " ", $options, " ", $words, "\"")).eventually(),)*
        $(row(concat!("ovs-appctl -t {dir}/", $name, ".ctl exit")),)*
    ] };
}

macro_rules! packets_of {
    ($version:literal) => {
        packets![
            $version,
            "plain" "" "65534",
            "short" "" "20",
            "none" "" "",
            "standard" "-P standard" "65534",
            "nxt" "-P nxt_packet_in" "65534",
            "nxt2" "-P nxt_packet_in2" "65534",
            "more" "-m" "65534",
            "named" "--names" "65534",
            "resumed" "-P nxt_packet_in2" "65534 resume",
        ]
    };
}

const PACKETS: &str = "\
in_port=1,cookie=0x12,actions=load:5->NXM_NX_REG0[],set_tunnel:9,controller,controller(max_len=10,reason=action)
in_port=2,actions=load:0x77->OXM_OF_METADATA[],resubmit(,1)
table=1,tcp,actions=strip_vlan,dec_ttl,controller,2
in_port=3,arp,actions=controller(userdata=aa.bb.cc),resubmit(,1)
in_port=3,mpls,actions=controller(reason=no_match)
";

/// Requests that the tool or the switch refuses.
const REFUSED: &[Row] = &[
    row("ovs-ofctl -O OpenFlow11 monitor br0 watch:reg1=5"),
    row("ovs-ofctl -O OpenFlow10 -F openflow10 monitor br0 watch:reg1=5"),
    row("ovs-ofctl monitor br0 watch:table=300"),
    row("ovs-ofctl monitor br0 watch:table=0x1"),
    row("ovs-ofctl monitor br0 watch:table=-1"),
    row("ovs-ofctl monitor br0 watch:table="),
    row("ovs-ofctl monitor br0 watch:zz"),
    row("ovs-ofctl monitor br0 'watch:table=0 watch:table=1'"),
    row("ovs-ofctl monitor br0 watch:!zz"),
    row("ovs-ofctl monitor br0 watch:in_port=zz"),
    row("ovs-ofctl monitor br0 watch:out_port="),
    row("ovs-ofctl monitor br0 watch:out_group="),
    row("ovs-ofctl monitor br0 watch:cookie=1"),
    row("ovs-ofctl monitor br0 watch:priority=5"),
    row("ovs-ofctl monitor br0 watch:actions=drop"),
    row("ovs-ofctl monitor br0 1 watch:table=3 zz"),
    row("ovs-ofctl -O OpenFlow13 monitor br0 65534 invalid_ttl"),
    row("ovs-ofctl monitor br0 1 invalid_ttl watch: watch:zz"),
];

/// The commands of a monitor's control socket.
const CONTROL: &[Row] = &[
    step("ovs-ofctl monitor br0 watch: --detach --no-chdir --pidfile={dir}/m.pid --unixctl={dir}/m.ctl")
        .into_file("first"),
    row("ovs-appctl -t {dir}/m.ctl list-commands").superset(),
    row("ovs-appctl -t {dir}/m.ctl ofctl/block"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/block"),
    step("ovs-ofctl add-flow br0 table=9,actions=drop"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/set-output-file {dir}/second"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/unblock"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/unblock"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/set-output-file /nonexistent/file"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/set-output-file"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/barrier x"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/send"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/send zz"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/send 01"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/send 0102000c0000000112345678 0100000800000002"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/send 0163000800000003"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/packet-out foo"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/packet-out 'in_port=1 packet=zz'"),
    row("ovs-appctl -t {dir}/m.ctl ofctl/barrier"),
    row("ovs-appctl -t {dir}/m.ctl foo"),
    row("ovs-appctl -t {dir}/m.ctl vlog/set foo"),
    row("ovs-appctl -t {dir}/m.ctl exit x"),
    row("ovs-appctl -t {dir}/m.ctl exit"),
    row("cat first"),
    row("cat second"),
];

pub(crate) static TABLE: Table = Table {
    name: "monitor",
    groups: &[
        group(REFUSED),
        group(CONTROL),
        group(version!(
            "OpenFlow10",
            "010e004812345678003820ff00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000008000ffffffffffff0000"
        )),
        group(version!(
            "OpenFlow13",
            "040e003812345678000000000000000000000000000000000100000000008000ffffffffffffffffffffffff000000000001000400000000"
        )),
        group(version!(
            "OpenFlow15",
            "060e003812345678000000000000000000000000000000000100000000008000ffffffffffffffffffffffff000000000001000400000000"
        )),
        group(packets_of!("OpenFlow10")),
        group(packets_of!("OpenFlow13")),
        group(packets_of!("OpenFlow15")),
    ],
};

#[test]
fn flow_monitors_report_what_open_vswitchs_report() {
    run(&TABLE);
}
