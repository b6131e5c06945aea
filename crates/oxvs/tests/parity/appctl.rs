//! `ovs-appctl` and the commands of the switch.

mod arguments;

use crate::run::{Daemons, Group, Table, binary, ours, row, run, step};
use std::process::Stdio;
use testkit::{Client, Options, Vswitch, eventually, skip, try_run, try_run_in};

pub(crate) static TABLE: Table = Table {
    name: "appctl",
    groups: &[CLIENT, SWITCH, arguments::COUNTS, END],
};

const MODULES: &str = "\
    ovs-appctl vlog/set backtrace:file:info bfd:file:info bond:file:info bridge:file:info bundle:file:info \
    bundles:file:info cfm:file:info collectors:file:info command_line:file:info connmgr:file:info \
    conntrack:file:info conntrack_tp:file:info coverage:file:info ct_dpif:file:info daemon:file:info \
    daemon_unix:file:info dns_resolve:file:info dpdk:file:info dpif:file:info dpif_lookup_autovalidator:file:info \
    dpif_lookup_generic:file:info dpif_mfex_extract_study:file:info dpif_netdev:file:info \
    dpif_netdev_extract:file:info dpif_netdev_impl:file:info dpif_netdev_lookup:file:info dpif_netlink:file:info \
    dpif_netlink_rtnl:file:info entropy:file:info fail_open:file:info fatal_signal:file:info flow:file:info \
    hmap:file:info in_band:file:info ipf:file:info ipfix:file:info jsonrpc:file:info lacp:file:info \
    lldp:file:info lldpd:file:info lldpd_structs:file:info lockfile:file:info memory:file:info \
    meta_flow:file:info native_tnl:file:info netdev:file:info netdev_afxdp:file:info netdev_dummy:file:info \
    netdev_linux:file:info netdev_offload:file:info netdev_offload_tc:file:info netdev_vport:file:info \
    netflow:file:info netlink:file:info netlink_conntrack:file:info netlink_notifier:file:info \
    netlink_socket:file:info nx_match:file:info odp_execute:file:info odp_execute_impl:file:info \
    odp_util:file:info ofp_actions:file:info ofp_bundle:file:info ofp_connection:file:info ofp_errors:file:info \
    ofp_flow:file:info ofp_group:file:info ofp_match:file:info ofp_meter:file:info ofp_monitor:file:info \
    ofp_msgs:file:info ofp_packet:file:info ofp_port:file:info ofp_protocol:file:info ofp_queue:file:info \
    ofp_table:file:info ofp_util:file:info ofproto:file:info ofproto_dpif:file:info ofproto_dpif_mirror:file:info \
    ofproto_dpif_monitor:file:info ofproto_dpif_rid:file:info ofproto_dpif_upcall:file:info \
    ofproto_dpif_xlate:file:info ofproto_xlate_cache:file:info ovs_lldp:file:info ovs_numa:file:info \
    ovs_rcu:file:info ovs_replay:file:info ovs_router:file:info ovs_thread:file:info ovsdb_cs:file:info \
    ovsdb_error:file:info ovsdb_idl:file:info ox_stat:file:info pcap:file:info pmd_perf:file:info \
    poll_loop:file:info process:file:info rconn:file:info reconnect:file:info route_table:file:info \
    rstp:file:info rstp_sm:file:info sflow:file:info sha1:file:info signals:file:info socket_util:file:info \
    socket_util_unix:file:info stp:file:info stream:file:info stream_fd:file:info stream_replay:file:info \
    stream_ssl:file:info stream_tcp:file:info stream_unix:file:info svec:file:info system_stats:file:info \
    tc:file:info timeval:file:info tunnel:file:info unixctl:file:info userspace_tso:file:info util:file:info \
    uuid:file:info vconn:file:info vconn_stream:file:info vlog:file:info vswitchd:file:info";

/// The client where no daemon runs.
const CLIENT: Group = Group {
    daemons: Daemons::None,
    files: &[("stale.pid", "1\n"), ("empty.pid", "")],
    setup: &[],
    rows: &[
        row("ovs-appctl --help").options(),
        row("ovs-appctl -h version").options(),
        row("ovs-appctl --version"),
        row("ovs-appctl -V version"),
        row("ovs-appctl --option").options(),
        row("ovs-appctl -o").options(),
        row("ovs-appctl"),
        row("ovs-appctl version"),
        row("ovs-appctl -e version"),
        row("ovs-appctl --execute version"),
        row("ovs-appctl -t"),
        row("ovs-appctl --target"),
        row("ovs-appctl --tar=foo version"),
        row("ovs-appctl -q"),
        row("ovs-appctl --foo"),
        row("ovs-appctl --t=3 version"),
        row("ovs-appctl --version=x"),
        row("ovs-appctl -t nobody version"),
        row("ovs-appctl -t stale version"),
        row("ovs-appctl -t empty version"),
        row("ovs-appctl -t ./stale version"),
        row("ovs-appctl -t unix:nobody version"),
        row("ovs-appctl -t /nobody version"),
        row("ovs-appctl -T"),
        row("ovs-appctl -T x version"),
        row("ovs-appctl -T 0 version"),
        row("ovs-appctl -T -3 version"),
        row("ovs-appctl --timeout"),
        row("ovs-appctl --timeout=x version"),
        row("ovs-appctl -v"),
        row("ovs-appctl -vfoo"),
        row("ovs-appctl --verbose=foo version"),
        row("ovs-appctl -vconsole:off version"),
        row("ovs-appctl --log-file={dir}/tool.log version"),
        row("ovs-appctl --log-file={dir}/nowhere/x version"),
        row("ovs-appctl --syslog-method=xx version"),
    ],
};

const SWITCH: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[
        (
            "flows",
            "in_port(p1),eth(),eth_type(0x2001) 77\n# a comment\n\nadd in_port(p1),eth(),eth_type(0x2002) drop\n",
        ),
        (
            "changes",
            "modify in_port(p1),eth(),eth_type(0x2001) pop_vlan,77\ndelete in_port(p1),eth(),eth_type(0x2002)\n",
        ),
        ("wrong", "in_port(p1),eth(),eth_type(0x2001) xx\n"),
    ],
    setup: &[
        "ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=standalone",
        "ovs-vsctl add-port br0 p1 -- set interface p1 type=dummy ofport_request=1",
        "ovs-vsctl add-port br0 p2 -- set interface p2 type=dummy ofport_request=2",
        // Revalidators do not remove megaflows made by hand meanwhile.
        "ovs-vsctl set open_vswitch . other_config:max-revalidator=100000",
        "ovs-vsctl add-br br1 -- set bridge br1 datapath_type=netdev fail-mode=secure",
    ],
    rows: &[
        row("ovs-appctl list-commands").superset(),
        row("ovs-appctl dpctl/list-commands").superset(),
        row("ovs-appctl version"),
        row("ovs-appctl --timeout=5 version"),
        row("ovs-appctl -t ovsdb-server version"),
        row("ovs-appctl -t ovs-vswitchd version"),
        row("ovs-appctl --target={dir}/switch.ctl version"),
        row("ovs-appctl no-such-command"),
        row("ovs-appctl -t {dir}/switch.ctl no-such-command"),
        row("ovs-appctl -- version"),
        row("ovs-appctl version --help"),
        row("ovs-appctl vlog/list-pattern"),
        row("ovs-appctl vlog/set foo"),
        row("ovs-appctl vlog/set a b"),
        // All modules that Open vSwitch lists.
        row(MODULES),
        row("ovs-appctl vlog/set PATTERN:console:%m"),
        row("ovs-appctl vlog/set PATTERN:foo:%m"),
        row("ovs-appctl vlog/set FACILITY:foo"),
        row("ovs-appctl vlog/set FACILITY:daemon"),
        row("ovs-appctl vlog/set any:file:info"),
        row("ovs-appctl vlog/set ANY:any:info"),
        row("ovs-appctl vlog/set"),
        row("ovs-appctl vlog/set info"),
        row("ovs-appctl vlog/enable-rate-limit foo"),
        row("ovs-appctl vlog/disable-rate-limit foo"),
        row("ovs-appctl vlog/disable-rate-limit"),
        row("ovs-appctl vlog/enable-rate-limit"),
        row("ovs-appctl vlog/close"),
        row("ovs-appctl vlog/reopen"),
        row("ovs-appctl coverage/read-counter no_such_counter"),
        row("ovs-appctl memory/show").status(),
        row("ovs-appctl coverage/show").status(),
        row("ovs-appctl fdb/show br9"),
        row("ovs-appctl fdb/show br0"),
        row("ovs-appctl fdb/stats-show br9"),
        row("ovs-appctl fdb/stats-show br0"),
        row("ovs-appctl fdb/flush"),
        row("ovs-appctl fdb/flush br0"),
        row("ovs-appctl fdb/flush br9"),
        row("ovs-appctl fdb/stats-clear"),
        row("ovs-appctl fdb/stats-clear br0"),
        row("ovs-appctl fdb/stats-clear br9"),
        row("ovs-appctl fdb/add br9 p1 0 00:00:00:00:00:01"),
        row("ovs-appctl fdb/add br0 p9 0 00:00:00:00:00:01"),
        row("ovs-appctl fdb/add br0 p1 0 00:00:00:00:00:01"),
        row("ovs-appctl fdb/add br0 p2 7 00:00:00:00:00:02"),
        row("ovs-appctl fdb/add br0 p1 0 x"),
        row("ovs-appctl fdb/show br0").unordered(),
        row("ovs-appctl fdb/stats-show br0"),
        row("ovs-appctl fdb/del br9 0 00:00:00:00:00:01"),
        row("ovs-appctl fdb/del br0 0 00:00:00:00:00:01"),
        row("ovs-appctl fdb/del br0 0 00:00:00:00:00:01"),
        row("ovs-appctl fdb/del br0 x 00:00:00:00:00:01"),
        row("ovs-appctl fdb/del br0 7 x"),
        row("ovs-appctl fdb/add br0 p1 4096 00:00:00:00:00:01"),
        row("ovs-appctl fdb/add br0 p1 x 00:00:00:00:00:01"),
        row("ovs-appctl ofproto/list").unordered(),
        row("ovs-appctl ofproto/list-tunnels"),
        row("ovs-appctl bridge/dump-flows br9"),
        row("ovs-appctl bridge/dump-flows a b"),
        row("ovs-appctl bridge/dump-flows --offload-stats br9"),
        row("ovs-appctl bridge/dump-flows br0").unordered(),
        row("ovs-appctl bridge/dump-flows br1").unordered(),
        row("ovs-appctl bridge/dump-flows --offload-stats br0").unordered(),
        row("ovs-appctl bridge/reconnect br9"),
        row("ovs-appctl bridge/reconnect br0"),
        row("ovs-appctl bridge/reconnect"),
        row("ovs-appctl qos/show p1"),
        row("ovs-appctl qos/show p9"),
        row("ovs-appctl qos/show-types p9"),
        row("ovs-appctl dpif/dump-dps").unordered(),
        row("ovs-appctl dpif/dump-flows br9"),
        row("ovs-appctl dpif/dump-flows -m br9"),
        row("ovs-appctl dpif/dump-flows br0"),
        row("ovs-appctl dpif/dump-flows -q br0"),
        row("ovs-appctl dpif/dump-flows br0 br1"),
        row("ovs-appctl dpif/show").status(),
        row("ovs-appctl dpctl/show").status(),
        row("ovs-appctl dpctl/show -s").status(),
        row("ovs-appctl dpctl/show netdev@ovs-netdev").status(),
        row("ovs-appctl dpif/show-dp-features br0").status(),
        row("ovs-appctl dpif/set-dp-features br0").status(),
        row("ovs-appctl upcall/show").status(),
        row("ovs-appctl vlog/list").status(),
        row("ovs-appctl qos/show-types p1").status(),
        row("ovs-appctl dpif-netdev/dpif-impl-get").status(),
        row("ovs-appctl dpif-netdev/miniflow-parser-get").status(),
        row("ovs-appctl dpif-netdev/subtable-lookup-info-get").status(),
        row("ovs-appctl dpif-netdev/pmd-rxq-show").status(),
        row("ovs-appctl dpif-netdev/pmd-stats-show").status(),
        row("ovs-appctl odp-execute/action-impl-show").status(),
        ours("ovs-appctl dpif-netdev/pmd-sleep-show"),
        row("ovs-appctl dpif/show-dp-features br9"),
        row("ovs-appctl dpif/set-dp-features br9"),
        row("ovs-appctl dpif/set-dp-features br9 recirc true"),
        row("ovs-appctl dpif/set-dp-features br0 recirc"),
        row("ovs-appctl dpif/set-dp-features br0 recirc true"),
        row("ovs-appctl dpif/set-dp-features br0 recirc x"),
        row("ovs-appctl dpif/set-dp-features br0 foo true"),
        row("ovs-appctl dpif/set-dp-features br0 max_mpls_depth"),
        row("ovs-appctl revalidator/wait"),
        row("ovs-appctl revalidator/purge"),
        ours("ovs-appctl revalidator/pause"),
        ours("ovs-appctl revalidator/resume"),
        row("ovs-appctl upcall/disable-ufid"),
        row("ovs-appctl upcall/enable-ufid"),
        row("ovs-appctl upcall/disable-megaflows"),
        step(
            "ovs-appctl netdev-dummy/receive p1 505400000007505400000005080045000020000000004011f979c0a80001c0a8000200080009000c0000616263640000000000000000000000000000",
        ),
        row("ovs-appctl dpif/dump-flows --names br0").eventually(),
        row("ovs-appctl upcall/enable-megaflows"),
        step(
            "ovs-appctl netdev-dummy/receive p1 505400000007505400000005080045000020000000004011f979c0a80001c0a8000200080009000c0000616263640000000000000000000000000000",
        ),
        row("ovs-appctl dpif/dump-flows --names br0").eventually(),
        row("ovs-appctl dpif/dump-flows --names br1"),
        row("ovs-appctl dpctl/dump-flows --names"),
        row("ovs-appctl dpctl/dump-flows --names filter=in_port=p1"),
        row("ovs-appctl dpctl/dump-flows --names filter=in_port=p2"),
        row("ovs-appctl dpctl/dump-flows --names filter=tcp,nw_src=10.0.0.1"),
        row("ovs-appctl dpctl/dump-flows --names filter=dl_src=50:54:00:00:00:09"),
        row("ovs-appctl dpctl/dump-flows filter=foo"),
        row("ovs-appctl dpctl/dump-flows --names type=all"),
        row("ovs-appctl dpctl/dump-flows --names type=ovs"),
        row("ovs-appctl dpctl/dump-flows --names type=tc,ovs"),
        row("ovs-appctl dpctl/dump-flows --names type=tc"),
        row("ovs-appctl dpctl/dump-flows --names type=offloaded"),
        row("ovs-appctl dpctl/dump-flows type=foo"),
        row("ovs-appctl dpctl/dump-flows --names pmd=-1"),
        row("ovs-appctl dpctl/dump-flows --names pmd=77"),
        row("ovs-appctl dpctl/dump-flows pmd=x"),
        row("ovs-appctl dpctl/dump-flows -x"),
        row("ovs-appctl dpctl/dump-flows --foo"),
        row("ovs-appctl dpctl/dump-flows nodp"),
        row("ovs-appctl dpctl/dump-flows netdev@nodp"),
        row("ovs-appctl dpctl/dump-dps"),
        row("ovs-appctl dpctl/show nodp"),
        row("ovs-appctl dpctl/show foo@nodp"),
        row("ovs-appctl dpctl/show -x"),
        row("ovs-appctl dpctl/add-dp foo@nodp"),
        row("ovs-appctl dpctl/del-dp nodp"),
        row("ovs-appctl dpctl/add-if nodp p9"),
        row("ovs-appctl dpctl/del-if nodp p9"),
        row("ovs-appctl dpctl/set-if nodp p9"),
        row("ovs-appctl dpctl/add-dp netdev@ovs-netdev"),
        row("ovs-appctl dpctl/del-if netdev@ovs-netdev p9"),
        row("ovs-appctl dpctl/set-if netdev@ovs-netdev p9"),
        row("ovs-appctl dpctl/set-if netdev@ovs-netdev p1"),
        row("ovs-appctl dpctl/set-if netdev@ovs-netdev p1,type=dummy"),
        row("ovs-appctl dpctl/set-if netdev@ovs-netdev p1,type=system"),
        row("ovs-appctl dpctl/cache-get-size"),
        row("ovs-appctl dpctl/cache-get-size nodp"),
        row("ovs-appctl dpctl/cache-set-size netdev@ovs-netdev x 1"),
        row("ovs-appctl dpctl/del-flows"),
        row("ovs-appctl dpctl/add-flow in_port(p1),eth(),eth_type(0x1234) 77"),
        row("ovs-appctl dpctl/add-flow in_port(p1),eth(),eth_type(0x1234) 77"),
        row("ovs-appctl dpctl/add-flow in_port(p1),eth(),eth_type(0x1235) xx"),
        row("ovs-appctl dpctl/add-flow in_port(p9),eth(),eth_type(0x1235) 2"),
        row("ovs-appctl dpctl/add-flow foo 2"),
        row("ovs-appctl dpctl/add-flow nodp in_port(p1),eth(),eth_type(0x1235) 2"),
        row("ovs-appctl dpctl/dump-flows --names"),
        row("ovs-appctl dpctl/mod-flow in_port(p1),eth(),eth_type(0x1234) push_vlan(vid=3,pcp=1),77"),
        row("ovs-appctl dpctl/mod-flow in_port(p2),eth(),eth_type(0x1234) 1"),
        row("ovs-appctl dpctl/dump-flows --names"),
        row("ovs-appctl dpctl/get-flow x"),
        row("ovs-appctl dpctl/get-flow ufid:1234"),
        row("ovs-appctl dpctl/get-flow ufid:00000000-0000-0000-0000-000000000001"),
        row("ovs-appctl dpctl/get-flow nodp ufid:00000000-0000-0000-0000-000000000001"),
        row("ovs-appctl dpctl/del-flow x"),
        row("ovs-appctl dpctl/del-flow in_port(p2),eth(),eth_type(0x1234)"),
        row("ovs-appctl dpctl/del-flow in_port(p1),eth(),eth_type(0x1234)"),
        row("ovs-appctl dpctl/dump-flows --names"),
        row("ovs-appctl dpctl/add-flows nofile"),
        row("ovs-appctl dpctl/mod-flows nofile"),
        row("ovs-appctl dpctl/del-flows nofile"),
        row("ovs-appctl dpctl/add-flows {dir}/flows"),
        row("ovs-appctl dpctl/dump-flows --names").unordered(),
        row("ovs-appctl dpctl/mod-flows {dir}/changes"),
        row("ovs-appctl dpctl/mod-flows {dir}/wrong"),
        row("ovs-appctl dpctl/dump-flows --names"),
        row("ovs-appctl dpctl/del-flows netdev@ovs-netdev"),
        row("ovs-appctl dpctl/dump-flows --names"),
        row("ovs-appctl dpctl/parse-actions 1,2"),
        row("ovs-appctl dpctl/parse-actions drop"),
        row("ovs-appctl dpctl/normalize-actions"),
        row("ovs-appctl dpctl/normalize-actions 'in_port(1)'"),
        row("ovs-appctl dpctl/normalize-actions 'in_port(1)' 3,2"),
        row("ovs-appctl dpctl/normalize-actions 'in_port(1)' drop"),
        row("ovs-appctl dpctl/normalize-actions 'in_port(1)' xx"),
        row("ovs-appctl dpctl/normalize-actions xx 1"),
        row("ovs-appctl dpctl/normalize-actions -x 'in_port(1)' 1"),
        row("ovs-appctl dpctl/normalize-actions 'in_port(1)' 1 p1=x"),
        row("ovs-appctl dpctl/normalize-actions 'in_port(1)' 1 p1"),
        row("ovs-appctl dpctl/normalize-actions --names 'in_port(p1),eth_type(0x1234)' 3,p2,1 p1=1 p2=2"),
        row("ovs-appctl dpctl/normalize-actions -m 'in_port(1),eth_type(0x1234)' '3, 2 1'"),
        row("ovs-appctl dpctl/normalize-actions -s 'in_port(1),eth_type(0x1234)' 3,2,recirc(5),2,1"),
        row(
            "ovs-appctl dpctl/normalize-actions 'in_port(1),eth_type(0x1234)' 'push_vlan(vid=5,pcp=0),1,set(eth(src=00:00:00:00:00:05)),1,pop_vlan,1,push_vlan(vid=4,pcp=3),9'",
        ),
        row(
            "ovs-appctl dpctl/normalize-actions 'in_port(1),eth_type(0x1234)' 'push_vlan(vid=5,pcp=0),push_vlan(vid=6,pcp=0),1,pop_vlan,2,pop_vlan,pop_vlan,3'",
        ),
        row(
            "ovs-appctl dpctl/normalize-actions 'in_port(1),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x1234))' 'pop_vlan,2,push_vlan(vid=7,pcp=1),3'",
        ),
        row(
            "ovs-appctl dpctl/normalize-actions 'in_port(1),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),eth_type(0x8847),mpls(label=100,tc=7,ttl=64,bos=1)' 2,1",
        ),
        row("ovs-appctl dpctl/parse-actions xx"),
        row("ovs-appctl dpctl/parse-actions 1 2 xx"),
        row("ovs-appctl dpctl/parse-actions 'push_vlan(vid=3,pcp=0),pop_vlan,set(eth(src=00:00:00:00:00:01)),1'"),
        row("ovs-appctl dpctl/parse-actions 'push_vlan(tpid=0x88a8,vid=3,pcp=1),trunc(100),1'"),
        row("ovs-appctl dpctl/parse-actions 'clone(pop_vlan,1),meter(1),recirc(7)'"),
        row("ovs-appctl dpctl/parse-actions 'check_pkt_len(size=200,gt(1),le(2))'"),
        row("ovs-appctl dpif-netdev/bond-show"),
        row("ovs-appctl dpif-netdev/dpif-impl-set x"),
        row("ovs-appctl dpif-netdev/dpif-impl-set dpif_scalar"),
        row("ovs-appctl dpif-netdev/miniflow-parser-set x"),
        row("ovs-appctl dpif-netdev/miniflow-parser-set scalar"),
        row("ovs-appctl dpif-netdev/miniflow-parser-set -pmd 77 scalar"),
        row("ovs-appctl dpif-netdev/pmd-perf-log-set x"),
        row("ovs-appctl dpif-netdev/pmd-perf-log-set on -b x"),
        row("ovs-appctl dpif-netdev/subtable-lookup-prio-set foo 1"),
        row("ovs-appctl dpif-netdev/subtable-lookup-prio-set generic 3"),
        row("ovs-appctl dpif-netdev/subtable-lookup-prio-set generic 256"),
        row("ovs-appctl dpif-netdev/subtable-lookup-prio-set generic x"),
        row("ovs-appctl dpif-netdev/pmd-rxq-rebalance"),
        row("ovs-appctl dpif-netdev/pmd-rxq-rebalance foo"),
        row("ovs-appctl dpif-netdev/pmd-stats-clear"),
        row("ovs-appctl dpif-netdev/pmd-rxq-show -pmd 77"),
        row("ovs-appctl dpif-netdev/pmd-stats-show -pmd 77"),
        row("ovs-appctl dpif-netdev/pmd-perf-show -pmd 77"),
        row("ovs-appctl odp-execute/action-impl-set x"),
        row("ovs-appctl odp-execute/action-impl-set scalar"),
        row("ovs-appctl upcall/set-flow-limit 1000"),
        row("ovs-appctl upcall/set-flow-limit x"),
        row("ovs-appctl upcall/set-flow-limit -1"),
        ours("ovs-appctl --format=text version"),
        ours("ovs-appctl -f json version"),
        ours("ovs-appctl --format=json --pretty list-commands"),
    ],
};

/// A daemon that ends.
const END: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[],
    rows: &[
        row("ovs-appctl exit --cleanup x"),
        row("ovs-appctl exit"),
        row("ovs-appctl version").eventually(),
        row("ovs-appctl -t {dir}/switch.ctl version").eventually(),
    ],
};

#[test]
fn appctl_and_the_switchs_commands_answer_as_in_open_vswitch() {
    run(&TABLE);
}

/// Our switch and our tools, with two ports and a megaflow.
fn our_switch() -> Vswitch {
    let client = Client::Ours(binary().to_owned());
    let switch = Vswitch::oxvs(
        binary(),
        Options {
            client,
            ..Options::default()
        },
    );
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=standalone");
    switch.vsctl("add-port br0 p1 -- add-port br0 p2");
    let packet = testkit::Packet::new(testkit::mac(1), testkit::mac(2))
        .payload(0x88b5, b"x")
        .padded();
    switch.appctl(&["netdev-dummy/receive", "p1", &packet.hex()]);
    eventually("there is a megaflow", || {
        let flows = switch.appctl(&["dpctl/dump-flows"]);
        flows.contains("actions:").then_some(())
    });
    switch
}

/// A UDP packet with these ports, in hexadecimal digits.
fn udp(ports: [u8; 2]) -> String {
    let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let bytes = [&ip[..], &[0, ports[0], 0, ports[1], 0, 8, 0, 0]].concat();
    let packet = testkit::Packet::new(testkit::mac(1), testkit::mac(2));
    packet.payload(0x0800, &bytes).padded().hex()
}

#[test]
fn json_wraps_the_text_of_an_answer() {
    skip!(unless "setpriv");
    let switch = our_switch();
    let text = switch.appctl(&["ofproto/list"]);
    let json = switch.appctl(&["--format=json", "ofproto/list"]);
    assert_eq!(json.lines().count(), 1, "{json}");
    let document: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(document, serde_json::json!({"reply-format": "plain", "reply": text}));
    let pretty = switch.appctl(&["-f", "json", "--pretty", "ofproto/list"]);
    assert_eq!(pretty, "{\n  \"reply\": \"br0\\n\",\n  \"reply-format\": \"plain\"}\n");
    for (words, error) in [
        (
            &["--pretty", "version"][..],
            "ovs-appctl: --pretty is supported with --format json only\n",
        ),
        (
            &["-f", "xml", "version"],
            "ovs-appctl: value xml on -f or --format is invalid\n",
        ),
    ] {
        let done = switch.try_appctl(words);
        assert_eq!((done.status, done.stderr.as_str()), (Some(1), error));
    }
    let error = switch.try_appctl(&["-f", "json", "fdb/show", "br9"]);
    assert_eq!((error.status, error.stdout.as_str()), (Some(2), ""));
    assert!(error.stderr.starts_with("no such bridge\n"), "{}", error.stderr);
}

#[test]
fn some_commands_answer_with_json_of_their_own() {
    skip!(unless "setpriv");
    let switch = our_switch();
    let json = |words: &[&str]| -> serde_json::Value {
        let text = switch.appctl(&[&["--format=json"], words].concat());
        serde_json::from_str(&text).expect("it is JSON")
    };
    let commands = json(&["list-commands"]);
    assert_eq!(commands["fdb/add"], "bridge port vlan mac");
    assert_eq!(commands.as_object().map(|all| all.len() + 1), {
        let text = switch.appctl(&["list-commands"]);
        Some(text.lines().count())
    });
    switch.appctl(&["netdev-dummy/ip4addr", "br0", "10.0.0.1/24"]);
    switch.vsctl("add-port br0 p3 -- set interface p3 type=dummy-pmd -- add-port br0 patch -- set interface patch type=patch options:peer=x");
    let shown = json(&["dpif/show"]);
    let ports = &shown["netdev@ovs-netdev"]["bridges"]["br0"];
    assert_eq!(
        ports["br0"],
        serde_json::json!({"ofport": "65534", "port_no": "100", "type": "dummy-internal"})
    );
    assert_eq!(ports["p3"]["config"]["configured_rx_queues"], "1");
    assert_eq!(
        (&ports["patch"]["port_no"], &ports["patch"]["config"]["peer"]),
        (&"none".into(), &"x".into())
    );
    assert_eq!(shown["netdev@ovs-netdev"]["stats"]["n_missed"], "1");
    switch.appctl(&["ovs/route/add", "10.1.0.0/16", "br0", "10.0.0.9", "pkt_mark=7"]);
    assert_eq!(
        json(&["ovs/route/show"]),
        serde_json::json!([{
            "dst": "10.1.0.0", "local": false, "mark": 7, "nexthops": [{"dev": "br0", "gateway": "10.0.0.9"}],
            "prefix": 16, "prefsrc": "10.0.0.1", "priority": 176, "user": true,
        }])
    );
    let error = switch.try_appctl(&["-f", "json", "dpif/show", "x"]);
    assert_eq!((error.status, error.stdout.as_str()), (Some(2), ""));
}

#[test]
fn open_vswitchs_own_parser_reads_dumped_megaflows() {
    /// Of the virtual environment that scripts/setup.sh makes: Debian's library is too old for the
    /// dumps of Debian's own switch.
    const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/controllers/bin/python3");
    skip!(unless "setpriv");
    if !try_run(&[PYTHON, "-c", "import ovs.flow.odp"], &[]).ok() {
        skip!("needs target/controllers, which scripts/setup.sh test makes");
    }
    let switch = our_switch();
    switch.appctl(&["dpctl/add-flow", "in_port(p2),eth(),eth_type(0x1234)", "drop"]);
    let script = "import sys\nfrom ovs.flow.odp import ODPFlow\n\
                  for line in sys.stdin:\n\
                  \x20   if line.startswith('flow-dump'): continue\n\
                  \x20   flow = ODPFlow(line)\n\
                  \x20   print(flow.info['packets'], sorted(flow.info), flow.match['in_port'], len(flow.actions))\n";
    for options in [&[][..], &["-m"], &["--names"], &["-m", "--no-names"]] {
        let words = [&["dpctl/dump-flows"][..], options].concat();
        let flows = switch.appctl(&words);
        std::fs::write(switch.sandbox.path("flows"), &flows).expect("a file");
        let input = std::fs::File::open(switch.sandbox.path("flows")).expect("a file");
        let command = [PYTHON, "-c", script];
        let read = try_run_in(switch.sandbox.dir(), &command, &[], Stdio::from(input)).expect_ok();
        assert_eq!(read.lines().count(), 2, "{flows}{read}");
        for line in read.lines() {
            assert!(line.contains("'bytes'") && line.contains("'used'"), "{flows}{read}");
        }
    }
}

#[test]
fn a_megaflow_is_found_and_removed_by_its_number() {
    skip!(unless "setpriv");
    let switch = our_switch();
    let flows = switch.appctl(&["dpctl/dump-flows", "-m"]);
    let line = flows
        .lines()
        .find(|line| line.starts_with("ufid:"))
        .expect("a megaflow");
    let ufid = line.split(',').next().expect("a number");
    let found = switch.appctl(&["dpctl/get-flow", "-m", ufid]);
    assert!(found.starts_with(ufid), "{found}");
    switch.appctl(&["dpctl/del-flow", ufid]);
    assert!(!switch.appctl(&["dpctl/dump-flows", "-m"]).contains(ufid));
    let gone = switch.try_appctl(&["dpctl/get-flow", ufid]);
    assert_eq!(
        gone.stderr.lines().next(),
        Some("ovs-vswitchd: getting flow (No such file or directory)")
    );
}

#[test]
fn packets_take_a_megaflow_that_was_added_by_hand() {
    skip!(unless "setpriv");
    let switch = our_switch();
    switch.appctl(&["dpctl/add-flow", "in_port(p2),eth(),eth_type(0x1234)", "drop"]);
    let packet = testkit::Packet::new(testkit::mac(1), testkit::mac(2))
        .payload(0x1234, b"x")
        .padded();
    for _ in 0..2 {
        switch.appctl(&["netdev-dummy/receive", "p2", &packet.hex()]);
    }
    eventually("the megaflow has counted two packets", || {
        let flows = switch.appctl(&["dpctl/dump-flows", "--names"]);
        let line = flows.lines().find(|line| line.contains("eth_type(0x1234)"))?.to_owned();
        (line.contains("packets:2,") && line.ends_with("actions:drop")).then_some(())
    });
    switch.appctl(&[
        "dpctl/mod-flow",
        "in_port(p2),eth(),eth_type(0x1234)",
        "push_vlan(vid=5,pcp=0),77",
    ]);
    let flows = switch.appctl(&["dpctl/dump-flows", "--names"]);
    assert!(flows.contains("actions:push_vlan(vid=5,pcp=0),77\n"), "{flows}");
}

#[test]
fn a_megaflow_whose_mask_has_no_room_is_refused_and_changes_nothing() {
    skip!(unless "setpriv");
    let switch = our_switch();
    let add = |mask: u32| switch.try_appctl(&["dpctl/add-flow", &format!("in_port(p2),skb_mark(0/{mask})"), "drop"]);
    let refused = (1..=200).find(|mask| !add(*mask).ok()).expect("masks are bounded");
    let flows = switch.appctl(&["dpctl/dump-flows"]);
    let again = add(refused);
    assert_eq!(
        again.stderr.lines().next(),
        Some("ovs-vswitchd: updating flow table (No space left on device)")
    );
    assert_eq!(
        switch.appctl(&["dpctl/dump-flows"]).lines().count(),
        flows.lines().count()
    );
    // One with a mask that is there has room.
    assert!(
        switch
            .try_appctl(&["dpctl/add-flow", "in_port(p1),skb_mark(0/1)", "drop"])
            .ok()
    );
}

#[test]
fn the_limit_of_megaflows_outlasts_a_pause() {
    skip!(unless "setpriv");
    let switch = our_switch();
    switch.appctl(&["upcall/set-flow-limit", "77"]);
    switch.appctl(&["revalidator/pause"]);
    switch.appctl(&["revalidator/resume"]);
    let shown = switch.appctl(&["upcall/show"]);
    assert!(shown.contains("(limit 77)"), "{shown}");
}

#[test]
fn without_megaflows_every_packet_has_its_own() {
    skip!(unless "setpriv");
    let switch = our_switch();
    switch.appctl(&["upcall/disable-megaflows"]);
    let receive = |ports| switch.appctl(&["netdev-dummy/receive", "p1", &udp(ports)]);
    receive([1, 2]);
    receive([1, 3]);
    let count = || switch.appctl(&["dpctl/dump-flows"]).matches("actions:").count();
    eventually("two megaflows", || (count() == 2).then_some(()));
    switch.appctl(&["upcall/enable-megaflows"]);
    receive([1, 2]);
    receive([1, 3]);
    eventually("one megaflow", || (count() == 1).then_some(()));
}
