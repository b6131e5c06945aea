//! `ovs-dpctl`. Open vSwitch's asks a kernel module, which is not here. Errors are compared with
//! it, answers with those of `ovs-appctl dpctl/*`.

use crate::run::{Daemons, Group, Table, binary, row, run};
use testkit::{Client, Options, Vswitch, skip};

pub(crate) static TABLE: Table = Table {
    name: "dpctl",
    groups: &[Group {
        daemons: Daemons::None,
        files: &[],
        setup: &[],
        rows: &[
            row("ovs-dpctl"),
            row("ovs-dpctl fly"),
            row("ovs-dpctl get-flow"),
            row("ovs-dpctl dump-dps x"),
            row("ovs-dpctl del-dp"),
            row("ovs-dpctl add-flow x"),
            row("ovs-dpctl add-flow a b c d"),
            row("ovs-dpctl --read-only del-flows"),
            row("ovs-dpctl --read-only add-dp x"),
            row("ovs-dpctl -t x show"),
            row("ovs-dpctl --nothing"),
            row("ovs-dpctl --version"),
            row("ovs-dpctl list-commands"),
            row("ovs-dpctl list-commands x"),
            row("ovs-dpctl help").status(),
            row("ovs-dpctl add-dp"),
            row("ovs-dpctl del-dp a b c d e f g h"),
            row("ovs-dpctl add-if"),
            row("ovs-dpctl del-if"),
            row("ovs-dpctl set-if"),
            row("ovs-dpctl dump-flows a b c d e f g h"),
            row("ovs-dpctl add-flow"),
            row("ovs-dpctl add-flow a b c d e f g h"),
            row("ovs-dpctl mod-flow"),
            row("ovs-dpctl mod-flow a b c d e f g h"),
            row("ovs-dpctl get-flow a b c d e f g h"),
            row("ovs-dpctl del-flow"),
            row("ovs-dpctl del-flow a b c d e f g h"),
            row("ovs-dpctl add-flows"),
            row("ovs-dpctl add-flows a b c d e f g h"),
            row("ovs-dpctl mod-flows"),
            row("ovs-dpctl mod-flows a b c d e f g h"),
            row("ovs-dpctl del-flows a b c d e f g h"),
            row("ovs-dpctl offload-stats-show a b c d e f g h"),
            row("ovs-dpctl dump-conntrack a b c d e f g h"),
            row("ovs-dpctl --read-only flush-conntrack"),
            row("ovs-dpctl cache-get-size a b c d e f g h"),
            row("ovs-dpctl cache-set-size"),
            row("ovs-dpctl cache-set-size a b c d e f g h"),
            row("ovs-dpctl ct-stats-show a b c d e f g h"),
            row("ovs-dpctl ct-bkts a b c d e f g h"),
            row("ovs-dpctl ct-set-maxconns"),
            row("ovs-dpctl ct-set-maxconns a b c d e f g h"),
            row("ovs-dpctl ct-get-maxconns a b c d e f g h"),
            row("ovs-dpctl ct-get-nconns a b c d e f g h"),
            row("ovs-dpctl ct-enable-tcp-seq-chk a b c d e f g h"),
            row("ovs-dpctl ct-disable-tcp-seq-chk a b c d e f g h"),
            row("ovs-dpctl ct-get-tcp-seq-chk a b c d e f g h"),
            row("ovs-dpctl ct-set-limits"),
            row("ovs-dpctl ct-del-limits"),
            row("ovs-dpctl ct-get-limits a b c d e f g h"),
            row("ovs-dpctl ipf-set-enabled"),
            row("ovs-dpctl ipf-set-enabled a b c d e f g h"),
            row("ovs-dpctl ipf-set-disabled"),
            row("ovs-dpctl ipf-set-disabled a b c d e f g h"),
            row("ovs-dpctl ipf-set-min-frag"),
            row("ovs-dpctl ipf-set-min-frag a b c d e f g h"),
            row("ovs-dpctl ipf-set-max-nfrags"),
            row("ovs-dpctl ipf-set-max-nfrags a b c d e f g h"),
            row("ovs-dpctl ipf-get-status a b c d e f g h"),
            row("ovs-dpctl parse-actions"),
            row("ovs-dpctl normalize-actions"),
        ],
    }],
};

#[test]
fn wrong_command_lines_are_refused_as_in_open_vswitch() {
    run(&TABLE);
}

#[test]
fn answers_are_those_of_the_running_switch() {
    skip!(unless "setpriv", "ovs-vsctl");
    let switch = Vswitch::oxvs(
        binary(),
        Options {
            client: Client::Ours(binary().to_owned()),
            ..Options::default()
        },
    );
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy -- add-port br0 p1 -- set interface p1 type=dummy");
    let dpctl = |args: &[&str]| switch.tool("ovs-dpctl", args);
    for args in [&["dump-dps"][..], &["show"], &["dump-flows", "-m"], &["cache-get-size"]] {
        let command = format!("dpctl/{}", args[0]);
        let appctl = switch.appctl(&[&[command.as_str()], &args[1..]].concat());
        assert_eq!(dpctl(args).expect_ok(), appctl, "{args:?}");
    }
    let flow = "in_port(1),eth(),eth_type(0x1234)";
    let missing = dpctl(&["mod-flow", flow, "2"]);
    assert_eq!(
        (missing.status, missing.stderr.as_str()),
        (Some(1), "ovs-dpctl: updating flow table (No such file or directory)\n")
    );
    dpctl(&["--may-create", "mod-flow", flow, "2"]).expect_ok();
    dpctl(&["mod-flow", flow, "drop"]).expect_ok();
    assert!(
        dpctl(&["dump-flows"])
            .expect_ok()
            .contains("eth_type(0x1234), packets:0, bytes:0, used:never, actions:drop")
    );
    let statistics = dpctl(&["-s", "del-flow", flow]).expect_ok();
    assert_eq!(statistics, "packets:0, bytes:0, used:never\n");
    // `--clear` sets the counters to zero, after it has shown them.
    dpctl(&["add-flow", flow, "drop"]).expect_ok();
    let packet = testkit::Packet::new(testkit::mac(1), testkit::mac(2)).payload(0x1234, b"x");
    switch.appctl(&["netdev-dummy/receive", "p1", &packet.padded().hex()]);
    testkit::eventually("the flow has counted a packet", || {
        dpctl(&["dump-flows"]).expect_ok().contains("packets:1,").then_some(())
    });
    let shown = dpctl(&["-s", "--clear", "mod-flow", flow, "2"]).expect_ok();
    assert!(shown.starts_with("packets:1, bytes:60, used:"), "{shown}");
    let flows = dpctl(&["dump-flows"]).expect_ok();
    assert!(
        flows.contains("eth_type(0x1234), packets:0, bytes:0, used:never, actions:2\n"),
        "{flows}"
    );
}
