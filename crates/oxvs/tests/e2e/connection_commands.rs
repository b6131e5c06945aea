//! Connection tracking by the commands and rows that users have.

use crate::fixture::{bridge_with_hosts, dummy, in_namespace, ours, stand_in, start};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use testkit::{Netns, Options, Packet, Vswitch, eventually, mac, skip};

/// A bridge of dummies whose rules commit what comes in on `p1` in zone 5.
fn committing(switch: &Vswitch) {
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure");
    switch.vsctl("add-port br0 p1 -- set interface p1 type=dummy ofport_request=1");
    switch.vsctl("-- --id=@d create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:dummy=@d");
    add_rule(switch);
}

fn add_rule(switch: &Vswitch) {
    let rule = "in_port=1,ip,actions=ct(commit,zone=5)";
    switch.tool("ovs-ofctl", &["add-flow", "br0", rule]).expect_ok();
}

fn send(switch: &Vswitch, port: u16) {
    let packet = Packet::new(mac(1), mac(2))
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
        .udp(port, 53, b"question");
    switch.appctl(&["netdev-dummy/receive", "p1", &packet.hex()]);
}

/// The seconds that the connection from this port still has; `None` if there is none.
fn timeout_of(switch: &Vswitch, port: u16) -> Option<u32> {
    let dump = switch.appctl(&["dpctl/dump-conntrack", "-s", "zone=5"]);
    let line = dump.lines().find(|line| line.contains(&format!("sport={port},")))?;
    line.split("timeout=").nth(1)?.split(',').next()?.parse().ok()
}

fn is_within(seconds: u32, most: u32) -> Option<()> {
    (most / 2 < seconds && seconds <= most).then_some(())
}

#[test]
fn a_zones_timeouts_are_those_of_its_row_also_after_kill_9() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "setpriv");
    let mut switch = dummy();
    committing(&switch);
    switch.wait_for("Open_vSwitch", ".", "datapaths", |_| {
        switch
            .tool(
                "ovs-vsctl",
                &[&format!("--db={}", switch.sandbox.db_remote()), "list-dp-cap", "dummy"],
            )
            .stdout
            .contains("ct_timeout=true")
    });
    send(&switch, 1000);
    eventually("the connection has the default timeout", || {
        is_within(timeout_of(&switch, 1000)?, 60)
    });
    switch.vsctl("add-zone-tp dummy zone=5 udp_first=5000");
    send(&switch, 1001);
    eventually("the next one has that of the zone", || {
        is_within(timeout_of(&switch, 1001)?, 5000)
    });
    switch.kill();
    switch.boot();
    assert_eq!(
        switch.vsctl("list-zone-tp dummy"),
        "Zone:5, Timeout Policies: udp_first=5000\n"
    );
    add_rule(&switch);
    send(&switch, 1002);
    eventually("it is in force again", || is_within(timeout_of(&switch, 1002)?, 5000));
    switch.vsctl("del-zone-tp dummy zone=5");
    send(&switch, 1003);
    eventually("it is gone", || is_within(timeout_of(&switch, 1003)?, 60));
}

#[test]
fn limits_of_zones_in_the_database_hold_and_no_command_changes_them() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Debian's Open vSwitch has no such columns");
    }
    let mut switch = start(Options {
        client: ours(),
        ..Options::default()
    });
    committing(&switch);
    switch.appctl(&["dpctl/ct-set-limits", "zone=9,limit=7"]);
    switch.vsctl("set-zone-limit dummy zone=5 2 -- set-zone-limit dummy default 100");
    assert_eq!(
        switch.vsctl("list-zone-limits dummy"),
        "Default limit: 100\nZone: 5, Limit: 2\n"
    );
    let limits = |switch: &Vswitch| switch.appctl(&["dpctl/ct-get-limits", "zone=4,5"]);
    for port in 1..=4 {
        send(&switch, port);
    }
    let refused = |switch: &Vswitch| switch.appctl(&["coverage/read-counter", "conntrack_zone_full"]);
    let evicted = |switch: &Vswitch| switch.appctl(&["coverage/read-counter", "conntrack_evicted"]);
    eventually("two connections are too many", || {
        let count = |text: String| text.trim().parse::<u32>().ok();
        (count(refused(&switch))? + count(evicted(&switch))? == 2).then_some(())
    });
    let expected = "default limit=100\nzone=4,limit=100,count=0\nzone=5,limit=2,count=2\n";
    assert_eq!(limits(&switch), expected);
    for words in [
        ["dpctl/ct-set-limits", "zone=5,limit=9"],
        ["dpctl/ct-del-limits", "zone=9"],
    ] {
        let done = switch.try_appctl(&words);
        assert!(done.stderr.contains("the zone limits are set via database"), "{done:?}");
    }
    switch.kill();
    switch.boot();
    assert!(limits(&switch).ends_with("zone=5,limit=2,count=0\n"));
    switch.vsctl("del-zone-limit dummy zone=5 -- del-zone-limit dummy default");
    assert_eq!(switch.vsctl("list-zone-limits dummy"), "");
    assert_eq!(
        limits(&switch),
        "default limit=0\nzone=4,limit=0,count=0\nzone=5,limit=0,count=0\n"
    );
    let done = switch.try_vsctl(&["del-zone-limit", "dummy", "zone=5"]);
    assert!(done.stderr.contains("does not have limit"), "{done:?}");
    switch.vsctl("--if-exists del-zone-limit dummy zone=5");
    switch.appctl(&["dpctl/ct-set-limits", "zone=5,limit=9"]);
}

/// A stateful firewall: the first host may begin connections, the second one only answers.
const FIREWALL: &str = "
priority=100,arp,actions=NORMAL
priority=90,ip,ct_state=-trk,actions=ct(table=0,zone=7)
priority=80,ct_state=+trk+new,ip,in_port=1,actions=ct(commit,zone=7,exec(set_field:0x2a->ct_mark)),NORMAL
priority=80,ct_state=+trk+est,ip,actions=NORMAL
";

#[test]
fn live_connections_are_shown_and_flushed_by_debians_tools() {
    skip!(unless root, "ovs-vsctl", "ovs-ofctl", "setpriv");
    let ns = Netns::new("ct");
    let switch = in_namespace(&ns);
    let hosts = bridge_with_hosts(&ns, &switch, 2);
    switch.vsctl("set bridge br0 fail_mode=secure -- set interface h1 ofport_request=1");
    let rules = switch.sandbox.path("firewall.txt");
    std::fs::write(&rules, FIREWALL).unwrap();
    let rules = rules.display().to_string();
    switch.tool("ovs-ofctl", &["add-flows", "br0", &rules]).expect_ok();

    let (asked, port) = mpsc::channel();
    std::thread::scope(|scope| {
        let (server, client) = (&hosts[1], &hosts[0]);
        scope.spawn(move || {
            server.enter(|| {
                let listener = TcpListener::bind("10.1.0.2:7000").unwrap();
                asked.send(()).unwrap();
                let (mut stream, _) = listener.accept().unwrap();
                let mut byte = [0];
                while stream.read(&mut byte).unwrap() == 1 {
                    stream.write_all(&byte).unwrap();
                }
            });
        });
        port.recv().unwrap();
        let mut stream = client.enter(|| TcpStream::connect("10.1.0.2:7000").unwrap());
        let mut talk = || {
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        };
        talk();
        let dump = || switch.appctl(&["dpctl/dump-conntrack", "zone=7"]);
        let established = "dport=7000),reply=(src=10.1.0.2,dst=10.1.0.1,sport=7000,";
        let shown = dump();
        assert!(
            shown.contains(established) && shown.contains("zone=7,mark=42,protoinfo=(state=ESTABLISHED)"),
            "{shown}"
        );
        let stats = switch.appctl(&["dpctl/ct-stats-show", "zone=7", "verbose"]);
        assert!(stats.contains("TCP: 1") && stats.contains("[ESTABLISHED]=1"), "{stats}");

        switch
            .tool("ovs-ofctl", &["ct-flush", "br0", "zone=7", "ct_nw_proto=17"])
            .expect_ok();
        assert_eq!(dump().lines().count(), 1, "it is none of UDP");
        let filter = "ct_nw_src=10.1.0.1,ct_nw_proto=6,ct_tp_dst=7000";
        switch
            .tool("ovs-ofctl", &["ct-flush", "br0", "zone=7", filter])
            .expect_ok();
        assert_eq!(dump(), "");
        // The first host's next packet begins it again, in its middle.
        talk();
        assert!(dump().contains(established));
        switch.tool("ovs-ofctl", &["ct-flush-zone", "br0", "7"]).expect_ok();
        assert_eq!(dump(), "");
        talk();
        drop(stream);
        eventually("both sides have closed", || {
            dump().contains("state=TIME_WAIT").then_some(())
        });
    });
    switch.appctl(&["dpctl/flush-conntrack"]);
    assert_eq!(switch.appctl(&["dpctl/ct-get-nconns"]), "0\n");
}
