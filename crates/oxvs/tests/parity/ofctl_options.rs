//! Every option and command of `ovs-ofctl(8)`: forms that the other tables of `ovs-ofctl` lack, and
//! a test that no command and no option of the help text lacks a row.

use crate::run::{Daemons, Group, Row, Table, options, row, run};
use crate::{monitor, ofctl, ofctl_answers, ofctl_switch};
use std::collections::BTreeSet;
use testkit::{run as command_output, skip};

const FILES: &[(&str, &str)] = &[
    (
        "setup.flows",
        "table=0,priority=0,actions=NORMAL\n\
         table=0,cookie=0x5,priority=10,ip,nw_dst=10.0.0.0/8,actions=2\n\
         table=0,priority=11,in_port=1,tcp,tp_dst=80,actions=drop\n\
         table=1,priority=5,tcp,nw_dst=10.0.0.0/8,actions=learn(table=2,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),group:1,resubmit(,2)\n\
         table=2,reg0=7,actions=load:5->NXM_NX_REG1[],move:NXM_NX_REG0[]->NXM_NX_REG2[],exit\n\
         table=3,arp,dl_vlan=5,idle_timeout=300,actions=strip_vlan,FLOOD,CONTROLLER\n\
         table=4,ip,in_port=LOCAL,actions=clone(1,2),set_field:1.2.3.4->ip_dst\n",
    ),
    ("empty.txt", ""),
];

const SETUP: &[&str] = &[
    "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy other-config:datapath-id=0000000000000001 \
     other-config:hwaddr=aa:55:aa:55:00:00 protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15",
    "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
    "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
    "ovs-vsctl add-port br0 a-long.name -- set interface a-long.name type=dummy ofport_request=3",
    "ovs-vsctl add-port br0 '4th port' -- set interface '4th port' type=dummy ofport_request=4",
    "ovs-ofctl del-flows br0",
    "ovs-ofctl -OOpenFlow13 add-group br0 group_id=1,type=select,bucket=weight=10,actions=1,bucket=weight=20,actions=2",
    "ovs-ofctl add-flows br0 setup.flows",
    "ovs-ofctl -OOpenFlow14 mod-table br0 3 name:third",
];

macro_rules! rows {
    ($($line:literal),* $(,)?) => { &[$(row(concat!("ovs-ofctl ", $line)).unordered()),*] };
}

/// Options with values, right and wrong, short and long.
const OPTIONS: &[Row] = rows![
    "--user= show br0",
    "--user",
    "--no-self-confinement dump-tables br0",
    "--detach --no-chdir --pidfile={dir}/not.pid get-frags br0",
    "--monitor get-frags br0",
    "--pidfile=/nonexistent/x.pid get-frags br0",
    "--pidfile=/nonexistent/x.pid monitor br0",
    "--overwrite-pidfile get-frags br0",
    "--no-chdir get-frags br0",
    "--detach=1 get-frags br0",
    "--unixctl=none get-frags br0",
    "--unixctl=/nonexistent/x.ctl monitor br0",
    "-p nofile.pem get-frags br0",
    "-c nofile.pem get-frags br0",
    "-C nofile.pem get-frags br0",
    "-C none get-frags br0",
    "--private-key=nofile.pem get-frags br0",
    "--certificate=nofile.pem get-frags br0",
    "--ca-cert=nofile.pem get-frags br0",
    "--ca-cert=none get-frags br0",
    "--ssl-protocols=TLSv1.2 get-frags br0",
    "--ssl-ciphers=HIGH get-frags br0",
    "-t 5 get-frags br0",
    "-t5 get-frags br0",
    "-t 1x get-frags br0",
    "-t -1 get-frags br0",
    "--timeout=5 get-frags br0",
    "--timeout get-frags br0",
    "--log-file=/nonexistent/x.log get-frags br0",
    "--log-file={dir}/ofctl.log get-frags br0",
    "--syslog-method=null get-frags br0",
    "--syslog-method=foo get-frags br0",
    "--syslog-target=127.0.0.1:514 get-frags br0",
    "-voff get-frags br0",
    "--verbose=vconn:console:off get-frags br0",
    "-vconsole:info get-frags br0",
    "-vPATTERN:console:%c get-frags br9",
    "-vFACILITY:local3 get-frags br0",
    "-vFACILITY:foo get-frags br0",
    "-vany:console:err get-frags br0",
    "-vconsole:zz get-frags br0",
    "-O OpenFlow13 -vconsole:err get-frags br0",
    "-O openflow13 get-frags br0",
    "-O 1.3 get-frags br0",
    "-O OpenFlow10,OpenFlow14 get-frags br0",
    "-O OpenFlow16 get-frags br0",
    "-O '' get-frags br0",
    "--protocols=OpenFlow15 get-frags br0",
    "--protocols= get-frags br0",
    "-F any dump-flows br0 table=2",
    "-F OpenFlow10-table_id dump-flows br0 table=2",
    "-F OpenFlow10+table_id dump-flows br0 table=0",
    "-F NXM-table_id add-flow br0 table=9,actions=drop",
    "-F NXM+table_id add-flow br0 table=9,actions=drop",
    "-F OXM-OpenFlow12 -O OpenFlow12 dump-flows br0 table=2",
    "-F OXM-OpenFlow14 -O OpenFlow13 dump-flows br0 table=2",
    "-F OXM-OpenFlow15 -O OpenFlow15 dump-flows br0 table=2",
    "-F OXM dump-flows br0 table=2",
    "-F nxm,openflow10 dump-flows br0 table=2",
    "-F nxm,foo dump-flows br0 table=2",
    "-F , dump-flows br0 table=2",
    "-F '' dump-flows br0 table=2",
    "--flow-format=NXM dump-flows br0 table=2",
    "-P foo monitor br0",
    "-P get-frags br0",
    "--packet-in-format=standard get-frags br0",
    "-P openflow10 get-frags br0",
    "-P nxt_packet_in get-frags br0",
    "-P nxt_packet_in2 get-frags br0",
    "-P nxm get-frags br0",
    "--color dump-flows br0 table=2",
    "--color=always --no-stats dump-flows br0",
    "--color=never --no-stats dump-flows br0 table=2",
    "--color=auto --no-stats dump-flows br0 table=2",
    "--color=always --names --no-stats dump-flows br0",
    "--color=always --no-stats -O OpenFlow15 dump-flows br0",
    "--color=always --sort --no-stats dump-flows br0",
    "--color=always get-frags br0",
    "--sort=nw_dst --no-stats dump-flows br0",
    "--rsort=nw_dst --no-stats dump-flows br0",
    "--sort=in_port --rsort=tcp_dst --no-stats dump-flows br0",
    "--sort=NXM_OF_IP_DST --no-stats dump-flows br0",
    "--sort= dump-flows br0",
    "--rsort=zz dump-flows br0",
    "--stats dump-flows br0 table=2",
    "--stats --no-stats dump-flows br0 table=2",
    "--no-stats --stats dump-flows br0 table=2",
    "--names show br0",
    "--names dump-flows br0 table=third",
    "--names --no-stats dump-flows br0",
    "--no-names --no-stats dump-flows br0 table=third",
    "--no-names dump-flows br0 in_port=p1",
    "--no-names dump-ports br0 p1",
    "--no-stats dump-flows br0 table=third",
    "--no-stats dump-flows br0 'table=\"third\"'",
    "--no-stats dump-flows br0 in_port=LOCAL",
    "--names --no-stats dump-flows br0 in_port=LOCAL",
    "-O OpenFlow14 --names dump-table-desc br0",
    "-O OpenFlow13 --names dump-groups br0",
    "--names queue-stats br0",
    "--names dump-tables br0",
    "add-flow br0 in_port=a-long.name,actions=\"4th port\"",
    "--names --no-stats dump-flows br0 in_port=4",
    "--names --no-stats dump-flows br0 in_port=a-long.name",
    "dump-ports br0 '4th port'",
    "dump-ports br0 '\"4th port\"'",
    "mod-port br0 '4th port' no-flood",
    "mod-table br0 third evict",
    "-O OpenFlow14 mod-table br0 third evict",
    "--no-names -O OpenFlow14 mod-table br0 third noevict",
    "-m get-frags br0",
    "-mmm dump-tables br0",
    "--more --more --more get-frags br0",
    "--strict get-frags br0",
    "--readd get-frags br0",
    "--may-create get-frags br0",
    "--bundle get-frags br0",
    "--bundle dump-flows br0 table=2",
    "--bundle -O OpenFlow10 add-flow br0 table=9,actions=1",
    "--bundle -O OpenFlow13 add-flow br0 table=9,actions=2",
    "--bundle -O OpenFlow15 add-flow br0 table=9,actions=3",
    "--bundle mod-flows br0 table=9,actions=4",
    "--bundle --strict mod-flows br0 table=9,actions=5",
    "--bundle --strict del-flows br0 table=9",
    "--bundle del-flows br0 table=10",
    "--bundle del-flows br0 foo",
    "--bundle --read-only del-flows br0",
    "-Vx",
    "-V show br0",
    "--version show br0",
    "-z show br0",
    "show -- br0",
    "-- get-frags br0",
    "get-frags -- br0",
    "get-frags br0 -m",
    "",
];

/// Connection methods, sockets and bridges.
const TARGETS: &[Row] = rows![
    "show tcp:nohost",
    "show tcp:nohost:6653",
    "show tcp:",
    "show tcp:127.0.0.1:",
    "show tcp:127.0.0.1:1",
    "show tcp:127.0.0.1:0",
    "show tcp:127.0.0.1:70000",
    "show tcp:127.0.0.1:99999999999",
    "show tcp:127.0.0.1:1:2",
    "show tcp:[::1]:1",
    "show tcp:[::1",
    "show tcp:[::1]x",
    "show tcp:::1",
    "show tcp:[zz]:1",
    "show tcp:1.2.3:1",
    "show tcp:300.1.1.1:1",
    "show tcp:localhost:1",
    "show ssl:nohost",
    "show ssl:nohost:1",
    "show ssl:",
    "show ssl:127.0.0.1:1",
    "-p nofile.pem show ssl:127.0.0.1:1",
    "show unix:",
    "show unix:nofile",
    "show unix:br0.mgmt",
    "show unix:{dir}/empty.txt",
    "show {dir}/empty.txt",
    "show {dir}/br0.mgmt",
    "show br0.mgmt",
    "show ./br0.mgmt",
    "show empty.txt",
    "show ''",
    "show .",
    "show foo:bar",
    "show :",
    "show ptcp:1",
    "show punix:x",
    "show system@br0",
    "show dummy@br0",
    "show dummy@ovs-dummy",
    "show dummy@",
    "show @br0",
    "show ovs-dummy",
    "probe tcp:127.0.0.1:1",
    "ping tcp:nohost",
    "benchmark tcp:127.0.0.1:1 1 1",
    "snoop tcp:127.0.0.1:1",
    "snoop {dir}/nofile",
    "monitor tcp:nohost",
    "diff-flows tcp:127.0.0.1:1 br0",
];

/// Commands that read their standard input, and forms of theirs that other tables lack.
const COMMANDS: &[Row] = &[
    row("ovs-ofctl add-flow br0 -").input("table=11,actions=1\ndelete table=9\n\n# x\nmodify table=11,actions=2\n"),
    row("ovs-ofctl --bundle add-flow br0 -").input("table=12,actions=1\ntable=12,ip,actions=2\n"),
    row("ovs-ofctl add-flows br0 -").input("table=13,actions=1\nfoo\n"),
    row("ovs-ofctl mod-flows br0 -").input("table=11,actions=3\ntable=12,actions=3\n"),
    row("ovs-ofctl --strict mod-flows br0 -").input("table=12,ip,actions=4\n"),
    row("ovs-ofctl --no-stats dump-flows br0 table=12").unordered(),
    row("ovs-ofctl del-flows br0 -").input("table=12,ip\n"),
    row("ovs-ofctl del-flows br0 -").input("table=12,foo\n"),
    row("ovs-ofctl --strict --bundle del-flows br0 -").input("table=12\ntable=13\n"),
    row("ovs-ofctl --no-stats dump-flows br0").unordered(),
    row("ovs-ofctl replace-flows br0 -").input("table=1,actions=1\n"),
    row("ovs-ofctl --bundle replace-flows br0 -").input("table=1,actions=2\ntable=2,actions=3\n"),
    row("ovs-ofctl --bundle --readd replace-flows br0 -").input("table=1,actions=2\n"),
    row("ovs-ofctl diff-flows br0 -").input("table=1,actions=4\n"),
    row("ovs-ofctl diff-flows ./empty.txt br0"),
    row("ovs-ofctl diff-flows unix:{dir}/br0.mgmt empty.txt"),
    row("ovs-ofctl -O OpenFlow13 add-group br0 -").input("group_id=5,type=all,bucket=1\nmodify group_id=5,type=all\n"),
    row("ovs-ofctl -O OpenFlow13 add-groups br0 -").input("add_or_mod group_id=6,type=all\ndelete group_id=6\nfoo\n"),
    row("ovs-ofctl -O OpenFlow13 add-groups br0 -").input("add_or_mod group_id=6,type=all\ndelete group_id=6\n"),
    row("ovs-ofctl -O OpenFlow13 mod-group br0 -").input("group_id=5,type=all,bucket=2\n"),
    row("ovs-ofctl -O OpenFlow13 --bundle mod-group br0 group_id=5,type=all,bucket=3"),
    row("ovs-ofctl -O OpenFlow13 --bundle --may-create mod-group br0 group_id=7,type=all,bucket=3"),
    row("ovs-ofctl -O OpenFlow15 insert-buckets br0 -").input("group_id=5,command_bucket_id=first,bucket=bucket_id=9,2\n"),
    row("ovs-ofctl -O OpenFlow15 --bundle insert-buckets br0 group_id=5,command_bucket_id=9,bucket=bucket_id=8,1"),
    row("ovs-ofctl -O OpenFlow15 dump-groups br0 5"),
    row("ovs-ofctl -O OpenFlow15 remove-buckets br0 -").input("group_id=5,command_bucket_id=first\n"),
    row("ovs-ofctl -O OpenFlow15 remove-buckets br0 group_id=5,command_bucket_id=last"),
    row("ovs-ofctl -O OpenFlow15 remove-buckets br0 group_id=5,command_bucket_id=all"),
    row("ovs-ofctl -O OpenFlow15 remove-buckets br0 group_id=5"),
    row("ovs-ofctl -O OpenFlow15 dump-groups br0 ALL").unordered(),
    row("ovs-ofctl -O OpenFlow15 dump-groups br0 group_id=all").unordered(),
    row("ovs-ofctl -O OpenFlow13 dump-group-stats br0 all"),
    row("ovs-ofctl -O OpenFlow13 del-groups br0 -").input("group_id=5\ngroup_id=7\n"),
    row("ovs-ofctl -O OpenFlow13 --bundle del-groups br0 group_id=all"),
    row("ovs-ofctl -O OpenFlow15 bundle br0 -").input("flow add table=20,actions=1\nflow modify_strict table=20,actions=2\n\
        flow delete_strict table=20\ngroup add_or_mod group_id=8,type=all\ngroup insert_bucket group_id=8,command_bucket_id=last,bucket=1\n\
        group remove_bucket group_id=8,command_bucket_id=all\ngroup modify group_id=8,type=indirect,bucket=1\ngroup delete group_id=8\n\
        packet-out in_port=1,packet=ffffffffffff0000000000020806 actions=2\n"),
    row("ovs-ofctl -O OpenFlow14 bundle br0 -").input("flow table=21,actions=1\ngroup foo group_id=1\n"),
    row("ovs-ofctl packet-out br0 'in_port=LOCAL,reg1=5,metadata=7,tun_id=3,packet=ffffffffffff0000000000020806,actions=resubmit(,9)'"),
    row("ovs-ofctl -O OpenFlow15 packet-out br0 'in_port=NONE,reg1=5,packet=ffffffffffff0000000000020806'"),
    row("ovs-ofctl packet-out br0 'in_port=CONTROLLER,ip,packet=ffffffffffff0000000000020806'"),
    row("ovs-ofctl packet-out br0 LOCAL 2 ffffffffffff0000000000020806 ffffffffffff0000000000030806"),
    row("ovs-ofctl -O OpenFlow13 add-meter br0 meter=controller,pktps,bands=type=drop,rate=7"),
    row("ovs-ofctl -O OpenFlow13 add-meter br0 meter=slowpath,pktps,burst,bands=type=drop,rate=7,burst_size=3"),
    row("ovs-ofctl -O OpenFlow13 add-meter br0 meter=all,pktps,bands=type=drop,rate=7"),
    row("ovs-ofctl -O OpenFlow13 add-meter br0 meter=0,pktps,bands=type=drop,rate=7"),
    row("ovs-ofctl -O OpenFlow13 add-meter br0 meter=3,kbps,stats,burst,bands=type=drop,rate=7,burst_size=9,type=drop,rate=8"),
    row("ovs-ofctl -O OpenFlow13 mod-meter br0 meter=controller,kbps,bands=type=drop,rate=8"),
    row("ovs-ofctl -O OpenFlow13 dump-meters br0").unordered(),
    row("ovs-ofctl -O OpenFlow13 dump-meter br0 meter=controller"),
    row("ovs-ofctl -O OpenFlow13 meter-stats br0 meter=slowpath"),
    row("ovs-ofctl -O OpenFlow13 del-meter br0 meter=controller"),
    row("ovs-ofctl -O OpenFlow13 del-meters br0 meter=all"),
    row("ovs-ofctl -O OpenFlow13 dump-meters br0").unordered(),
    row("ovs-ofctl dump-ports-desc br0 ANY"),
    row("ovs-ofctl dump-ports-desc br0 1").unordered(),
    row("ovs-ofctl -O OpenFlow15 dump-ports-desc br0 1"),
    row("ovs-ofctl -O OpenFlow15 dump-ports-desc br0 LOCAL"),
    row("ovs-ofctl -O OpenFlow15 dump-ports-desc br0 p2"),
    row("ovs-ofctl queue-stats br0 ALL ALL").unordered(),
    row("ovs-ofctl queue-stats br0 LOCAL 3"),
    row("ovs-ofctl snoop br9"),
    row("ovs-ofctl --timeout=5 snoop br0").status(),
    row("ovs-ofctl -OOpenFlow13 add-flow br0 table=7,actions=set_field:9->vlan_pcp"),
    row("ovs-ofctl -OOpenFlow13 add-flow br0 table=7,mpls,actions=set_field:0x1fffff->mpls_label"),
    row("ovs-ofctl probe br0"),
    row("ovs-ofctl probe unix:{dir}/br0.mgmt"),
    row("ovs-ofctl ping br0 -1"),
    row("ovs-ofctl benchmark br0 -1 1"),
    // A time of no whole microsecond makes it write "-nan" for the rates.
    row("ovs-ofctl -O OpenFlow13 benchmark br0 0 x").status(),
    row("ovs-ofctl --user=nobody-of-this-name show br0").status(),
    row("ovs-ofctl --user=:nogroup-of-this-name show br0").status(),
    row("ovs-ofctl --help").options(),
    row("ovs-ofctl -hx show br0").options(),
    row("ovs-ofctl help br0").options(),
    row("ovs-ofctl list-commands br0").superset(),
    row("OVS_COLORS=ac=01;32:dr=36:xx=1 ovs-ofctl --color=always --no-stats dump-flows br0 table=1"),
    row("OVS_COLORS=foo ovs-ofctl --color=always --no-stats dump-flows br0 table=1"),
    row("OVS_COLORS=vl=5:sp= ovs-ofctl --color=always --no-stats dump-flows br0 table=1"),
    row("OVS_RUNDIR=/nonexistent ovs-ofctl show br0"),
    row("OVS_SYSLOG_METHOD=foo ovs-ofctl get-frags br0"),
];

const fn switch(rows: &'static [Row]) -> Group {
    Group {
        daemons: Daemons::Dummy(&[]),
        files: FILES,
        setup: SETUP,
        rows,
    }
}

static TABLE: Table = Table {
    name: "ofctl options",
    groups: &[switch(OPTIONS), switch(TARGETS), switch(COMMANDS)],
};

#[test]
fn ofctl_takes_every_option_and_command_of_the_manual() {
    run(&TABLE);
}

/// Options of the manual that the help text leaves out.
const MANUAL_ONLY: &[&str] = &[
    "--bundle",
    "--may-create",
    "--no-self-confinement",
    "--no-stats",
    "--protocols",
    "--stats",
];

#[test]
fn every_command_and_option_has_a_row() {
    skip!(unless "ovs-ofctl");
    let tables = [
        &TABLE,
        &monitor::TABLE,
        &ofctl::TABLE,
        &ofctl_answers::TABLE,
        &ofctl_switch::TABLE,
    ];
    let words: BTreeSet<&str> = tables.iter().flat_map(|table| table.words()).collect();
    let texts = [
        command_output(&["ovs-ofctl", "--help"]),
        command_output(&["ovs-ofctl", "list-commands"]),
    ];
    let names = texts
        .iter()
        .flat_map(|text| options(text))
        .chain(MANUAL_ONLY.iter().copied());
    let names = names.filter(|name| !name.contains(':'));
    let has_row = |name: &&str| match name.strip_prefix('-') {
        // A short option may have its value in the same word.
        Some(short) if !short.starts_with('-') => words.iter().any(|word| word.starts_with(&name[..2])),
        _ => words.contains(name),
    };
    let missing: BTreeSet<&str> = names.filter(|name| !has_row(name)).collect();
    assert!(missing.is_empty(), "no row of the tables of ovs-ofctl has {missing:?}");
}
