//! Open vSwitch's other tools, unmodified: those that look at a switch, and those that read its
//! files.

use crate::fixture::{binary, bridge_with_hosts, dummy, dummy_bridge, in_namespace};
use testkit::{Daemon, Netns, Packet, Sandbox, eventually, mac, skip, try_run};

#[test]
fn ovs_tcpdump_shows_what_a_port_carries_and_leaves_nothing_behind() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl", "ovs-tcpdump");
    let ns = Netns::new("sw");
    let switch = in_namespace(&ns);
    let hosts = bridge_with_hosts(&ns, &switch, 2);
    let mut pings = hosts[0].prefix();
    pings.extend(["ping", "-q", "-i", "0.1", "10.1.0.2"].map(str::to_owned));
    let _pings = Daemon::start("ping", &pings, &switch.sandbox);
    let socket = format!("unix:{}", switch.sandbox.arg("db.sock"));
    let mut words = ns.prefix();
    words.extend(
        [
            "ovs-tcpdump",
            "--db-sock",
            &socket,
            "-i",
            "h1",
            "-nn",
            "-c",
            "6",
            "icmp",
        ]
        .map(str::to_owned),
    );
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let shown = try_run(&words, &switch.sandbox.env()).expect_ok();
    let (asked, answered) = (
        "10.1.0.1 > 10.1.0.2: ICMP echo request",
        "10.1.0.2 > 10.1.0.1: ICMP echo reply",
    );
    assert!(shown.contains(asked) && shown.contains(answered), "{shown}");
    assert_eq!(switch.get("bridge", "br0", "mirrors"), "[]");
    assert!(!switch.vsctl("list-ports br0").contains("mih1"));
}

#[test]
fn ovs_dpctl_top_counts_the_packets_of_dumped_megaflows() {
    skip!(unless "ovs-vsctl", "setpriv", "ovs-dpctl-top");
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let packet = Packet::new(mac(1), mac(2)).payload(0x88b5, b"payload").padded();
    let flows = eventually("packets are counted", || {
        let sent = switch.unixctl().call("netdev-dummy/receive", &["p1", &packet.hex()]);
        sent.unwrap_or_else(|error| panic!("{error}"));
        let flows = switch.appctl(&["dpctl/dump-flows"]);
        flows.contains("packets:3,").then_some(flows)
    });
    let file = switch.sandbox.path("flows");
    std::fs::write(&file, flows).unwrap();
    let words = ["ovs-dpctl-top", "--script", "--flow-file", &file.display().to_string()];
    let table = try_run(&words, &[]).expect_ok();
    let line = table
        .lines()
        .find(|line| line.starts_with("in_port("))
        .unwrap_or_else(|| panic!("{table}"));
    assert_eq!(
        line.split_whitespace().skip(1).collect::<Vec<_>>(),
        ["1", "3", "180", "60"],
        "{table}"
    );
}

#[test]
fn ovs_pcap_reads_what_a_test_device_wrote() {
    skip!(unless "ovs-vsctl", "setpriv", "ovs-pcap");
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let packet = Packet::new(mac(1), mac(2)).payload(0x88b5, b"payload").padded();
    let sent = switch.unixctl().call("netdev-dummy/receive", &["p1", &packet.hex()]);
    sent.unwrap_or_else(|error| panic!("{error}"));
    let file = switch.sandbox.arg("p2.tx");
    eventually("the packet is in the file", || {
        let read = try_run(&["ovs-pcap", &file], &[]).stdout;
        (read.trim() == packet.hex()).then_some(())
    });
}

#[test]
fn vtep_ctl_configures_a_hardware_vteps_database() {
    const SCHEMA: &str = "/usr/share/openvswitch/vtep.ovsschema";
    skip!(unless "vtep-ctl", "ovsdb-tool", "setpriv");
    let sandbox = Sandbox::new();
    let (database, socket) = (sandbox.arg("vtep.db"), sandbox.arg("vtep.sock"));
    try_run(&["ovsdb-tool", "create", &database, SCHEMA], &[]).expect_ok();
    let (ours, remote) = (binary().display().to_string(), format!("--remote=punix:{socket}"));
    let server = [&ours, "ovsdb-server", &database, &remote, "--pidfile"].map(str::to_owned);
    let _server = Daemon::start("ovsdb-server", &server, &sandbox);
    let unix = format!("--db=unix:{socket}");
    let run = |line: &str| {
        let words: Vec<&str> = ["vtep-ctl", "--timeout=10", &unix]
            .into_iter()
            .chain(line.split(' '))
            .collect();
        try_run(&words, &sandbox.env())
    };
    eventually("the server answers", || run("list-ps").ok().then_some(()));
    run("add-ps ps0 -- add-port ps0 p1 -- add-ls ls0 -- bind-ls ps0 p1 5 ls0").expect_ok();
    run("add-ucast-remote ls0 00:00:00:00:00:01 10.0.0.1 -- add-mcast-local ls0 unknown-dst 10.0.0.2").expect_ok();
    assert_eq!(run("list-bindings ps0 p1").expect_ok(), "0005 ls0\n");
    assert_eq!(run("list-ports ps0").expect_ok(), "p1\n");
    let remote = run("list-remote-macs ls0").expect_ok();
    assert!(
        remote.contains("00:00:00:00:00:01 -> vxlan_over_ipv4/10.0.0.1"),
        "{remote}"
    );
    let refused = run("add-ps ps0");
    assert!(
        !refused.ok() && refused.stderr.contains("already exists"),
        "{refused:?}"
    );
    let used = run("del-ls ls0");
    assert!(used.stderr.contains("referential integrity violation"), "{used:?}");
    run("clear-remote-macs ls0 -- clear-local-macs ls0 -- unbind-ls ps0 p1 5 -- del-ps ps0").expect_ok();
    run("del-ls ls0").expect_ok();
    assert_eq!(run("list-ps").expect_ok(), "");
}
