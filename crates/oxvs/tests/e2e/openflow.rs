//! Bridges as Debian's `ovs-ofctl` programs them.

use crate::fixture::{dummy, dummy_bridge, in_namespace};
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::{Netns, Packet, Vswitch, eventually, mac, pcap, ping, skip};

const TOOLS: [&str; 3] = ["ovs-ofctl", "ovs-vsctl", "setpriv"];

/// `ovs-ofctl`, which must succeed.
#[track_caller]
fn ofctl(switch: &Vswitch, args: &[&str]) -> String {
    let words: Vec<&str> = ["--timeout=20"].iter().chain(args).copied().collect();
    switch.tool("ovs-ofctl", &words).expect_ok()
}

/// Flows as they are printed, without what changes from run to run.
fn flows(text: &str) -> Vec<String> {
    let varies = |word: &&str| {
        !["duration=", "idle_age=", "n_packets=", "n_bytes="]
            .iter()
            .any(|k| word.starts_with(k))
    };
    let line = |line: &str| line.split_whitespace().filter(varies).collect::<Vec<_>>().join(" ");
    let mut flows: Vec<String> = text.lines().filter(|l| l.contains("actions=")).map(line).collect();
    flows.sort();
    flows
}

#[test]
fn rules_come_and_go_by_ovs_ofctl_in_every_version() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let shown = ofctl(&switch, &["show", "br0"]);
    for part in [
        "n_tables:254, n_buffers:0",
        "1(p1)",
        "2(p2)",
        "LOCAL(br0)",
        "frags=normal miss_send_len=0",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let builtin = flows(&ofctl(&switch, &["dump-flows", "br0"]));
    assert_eq!(builtin, ["cookie=0x0, table=0, priority=0 actions=NORMAL"]);
    for version in ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14"] {
        let version = ["-O", version];
        let with = |args: &[&str]| ofctl(&switch, &[&version, args].concat());
        with(&["del-flows", "br0"]);
        assert_eq!(flows(&with(&["dump-flows", "br0"])), Vec::<String>::new());
        with(&[
            "add-flow",
            "br0",
            "cookie=0x5,priority=7,ip,in_port=1,nw_dst=10.0.0.0/8,actions=mod_dl_dst:02:00:00:00:00:01,output:2",
        ]);
        with(&["add-flow", "br0", "priority=9,arp,actions=drop"]);
        let wanted = [
            "cookie=0x0, table=0, priority=9,arp actions=drop",
            "cookie=0x5, table=0, priority=7,ip,in_port=1,nw_dst=10.0.0.0/8 actions=",
        ];
        let there = flows(&with(&["dump-flows", "br0"]));
        assert!(
            there.len() == 2 && there.iter().zip(wanted).all(|(a, b)| a.starts_with(b)),
            "{there:?}"
        );
        with(&["del-flows", "br0", "arp"]);
        assert!(with(&["dump-aggregate", "br0"]).contains("flow_count=1"));
    }
    let refused = switch.tool(
        "ovs-ofctl",
        &["-O", "OpenFlow13", "add-flow", "br0", "table=3,actions=goto_table:3"],
    );
    assert!(!refused.ok());
}

#[test]
fn many_rules_come_back_in_one_dump() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1"]);
    let file = switch.sandbox.arg("flows");
    let rule = |n: u32| {
        format!(
            "priority=10,ip,nw_src=10.{}.{}.{},actions=output:1\n",
            n >> 16,
            n >> 8 & 255,
            n & 255
        )
    };
    std::fs::write(&file, (0..5000).map(rule).collect::<String>()).expect("the file is written");
    ofctl(&switch, &["add-flows", "br0", &file]);
    let there = flows(&ofctl(&switch, &["dump-flows", "br0"]));
    assert_eq!(there.len(), 5001);
    let table = ofctl(&switch, &["dump-tables", "br0"]);
    assert!(table.contains("active=5001"), "{table}");
}

#[test]
fn a_rule_forwards_between_hosts_until_it_is_deleted() {
    if let Some(reason) = testkit::missing(true, &["ip", "ping", "ovs-ofctl", "ovs-vsctl", "setpriv"]) {
        skip!("{reason}");
    }
    let ns = Netns::new("of");
    let switch = in_namespace(&ns);
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure");
    let mut hosts = Vec::new();
    for n in 1..=2 {
        let port = format!("h{n}");
        hosts.push(Vswitch::host(&ns, &port, &port, &format!("10.2.0.{n}/24")));
        switch.vsctl(&format!(
            "add-port br0 {port} -- set interface {port} ofport_request={n}"
        ));
    }
    let reaches = || ping(&hosts[0], "10.2.0.2", 1).received > 0;
    assert!(!reaches(), "a secure bridge without rules forwards nothing");
    ofctl(&switch, &["add-flow", "br0", "in_port=1,actions=output:2"]);
    ofctl(&switch, &["add-flow", "br0", "in_port=2,actions=output:1"]);
    eventually("the rules forward", || reaches().then_some(()));
    ofctl(&switch, &["del-flows", "br0", "in_port=2"]);
    assert!(!reaches());
}

#[test]
fn a_group_fails_over_when_a_host_loses_its_link_and_goes_back() {
    if let Some(reason) = testkit::missing(true, &["ip", "ping", "ovs-ofctl", "ovs-vsctl", "setpriv"]) {
        skip!("{reason}");
    }
    let ns = Netns::new("ff");
    let switch = in_namespace(&ns);
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure");
    let mut hosts = Vec::new();
    // The second and the third look like one host to others, but not to the switch.
    for (n, address) in [(1, "10.2.0.1/24"), (2, "10.2.0.2/24"), (3, "10.2.0.2/24")] {
        let port = format!("f{n}");
        let host = Vswitch::host(&ns, &port, &port, address);
        if n > 1 {
            host.ip("link set eth0 address 02:00:00:00:00:02");
        }
        hosts.push(host);
        switch.vsctl(&format!(
            "add-port br0 {port} -- set interface {port} ofport_request={n}"
        ));
    }
    let group = "group_id=1,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3";
    ofctl(&switch, &["-OOpenFlow13", "add-group", "br0", group]);
    ofctl(
        &switch,
        &["-OOpenFlow13", "add-flow", "br0", "in_port=1,actions=group:1"],
    );
    ofctl(&switch, &["add-flow", "br0", "actions=output:1"]);
    let carried = |port: u8| {
        let ports = ofctl(&switch, &["dump-ports", "br0", &port.to_string()]);
        let sent = ports.split("tx pkts=").nth(1).and_then(|rest| rest.split(',').next());
        sent.and_then(|number| number.parse::<u64>().ok())
            .expect("the port counts")
    };
    for (link, by, other) in [("up", 2, 3), ("down", 3, 2), ("up", 2, 3)] {
        hosts[1].ip(&format!("link set eth0 {link}"));
        eventually("the link is seen", || {
            let state = switch.get("interface", "f2", "link_state");
            (state == link).then_some(())
        });
        eventually("the other end is reached", || {
            let before = (carried(by), carried(other));
            let reached = ping(&hosts[0], "10.2.0.2", 1).received > 0;
            (reached && carried(by) > before.0 && carried(other) == before.1).then_some(())
        });
    }
}

#[test]
fn packets_go_to_monitors_and_come_from_packet_outs() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    ofctl(
        &switch,
        &["add-flow", "br0", "priority=5,in_port=1,actions=controller:60,output:2"],
    );
    let log = switch.sandbox.arg("monitor.log");
    let pid = switch.sandbox.arg("monitor.pid");
    let arguments = ["monitor", "br0", "65534", "--detach", "--no-chdir"];
    let (log_file, pid_file) = (format!("--log-file={log}.vlog"), format!("--pidfile={pid}"));
    let words = [&arguments[..], &[&log_file, &pid_file]].concat();
    let redirected = format!("exec ovs-ofctl {} 2> {log}", words.join(" "));
    testkit::try_run(&["sh", "-c", &redirected], &switch.sandbox.env()).expect_ok();
    let frame = Packet::new(mac(1), mac(2)).payload(0x88b5, &[7; 100]);
    switch.appctl(&["netdev-dummy/receive", "p1", &frame.hex()]);
    let told = eventually("the monitor is told of the packet", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("PACKET_IN").then_some(text)
    });
    for part in ["total_len=114", "in_port=1 (via action) data_len=114", "dl_type=0x88b5"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let sent = || pcap::frames(Path::new(&switch.sandbox.arg("p2.tx")));
    eventually("the rule's output is done too", || (sent().len() == 1).then_some(()));

    let frame = Packet::new(mac(3), mac(4))
        .payload(0x88b5, b"from a controller")
        .padded();
    let hex = frame.hex();
    ofctl(
        &switch,
        &[
            "packet-out",
            "br0",
            &format!("in_port=controller packet={hex} actions=output:2"),
        ],
    );
    eventually("the packet goes where its actions say", || {
        sent().contains(&frame.clone().bytes()).then_some(())
    });
    ofctl(
        &switch,
        &["packet-out", "br0", &format!("in_port=1 packet={hex} actions=TABLE")],
    );
    eventually("the packet goes through the tables", || {
        (sent().len() == 3).then_some(())
    });
    eventually("the controller gets that packet too", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        (text.matches("PACKET_IN").count() == 2).then_some(())
    });
    let counted = ofctl(&switch, &["dump-flows", "br0", "in_port=1"]);
    assert!(
        counted.contains("n_packets=2"),
        "the controller's packet counts as well: {counted}"
    );
    let process = std::fs::read_to_string(&pid).unwrap_or_default();
    testkit::try_run(&["kill", process.trim()], &[]).expect_ok();
}

#[test]
fn a_paused_packet_goes_on_when_ovs_ofctl_lets_it() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let rules = [
        "priority=5,in_port=1,actions=set_field:5->reg3,mod_dl_dst:02:00:00:00:00:09,controller(pause),resubmit(,1)",
        "table=1,priority=5,reg3=5,actions=output:2",
    ];
    rules
        .iter()
        .for_each(|rule| drop(ofctl(&switch, &["add-flow", "br0", rule])));
    let frame = Packet::new(mac(1), mac(2)).payload(0x88b5, b"wait here").padded();
    let sent = || pcap::frames(Path::new(&switch.sandbox.arg("p2.tx")));
    let receive = || drop(switch.appctl(&["netdev-dummy/receive", "p1", &frame.hex()]));
    let (log, pid) = (switch.sandbox.arg("resume.log"), switch.sandbox.arg("resume.pid"));
    let monitored = |resume: &str| {
        let command = format!(
            "exec ovs-ofctl monitor br0 65534 {resume} --detach --no-chdir --log-file={log}.vlog --pidfile={pid} 2> {log}"
        );
        testkit::try_run(&["sh", "-c", &command], &switch.sandbox.env()).expect_ok();
        receive();
        eventually("the monitor is told of the packet", || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(!text.contains("decode error"), "{text}");
            text.contains("PACKET_IN").then_some(())
        });
    };
    let end = || {
        let process = std::fs::read_to_string(&pid).unwrap_or_default();
        testkit::try_run(&["kill", process.trim()], &[]).expect_ok();
        eventually("the monitor ends", || (!Path::new(&pid).exists()).then_some(()));
    };
    monitored("");
    end();
    assert!(sent().is_empty(), "nobody let it go on");
    monitored("resume");
    eventually("the packet goes on behind the pause", || {
        (!sent().is_empty()).then_some(())
    });
    end();
    let gone = sent();
    assert_eq!((gone.len(), &gone[0][..6]), (1, &[2, 0, 0, 0, 0, 9][..]));
}

#[test]
fn the_rule_that_a_bridge_begins_with_counts_its_packets() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let frame = Packet::new(mac(1), mac(2)).payload(0x88b5, &[7; 50]);
    for _ in 0..3 {
        switch.appctl(&["netdev-dummy/receive", "p1", &frame.hex()]);
    }
    eventually("the rule has counted", || {
        let rules = ofctl(&switch, &["dump-flows", "br0"]);
        rules.contains("n_packets=3, n_bytes=192,").then_some(())
    });
    let table = ofctl(&switch, &["dump-tables", "br0"]);
    assert!(table.contains("active=1, lookup=3, matched=3"), "{}", &table[..300]);
}

#[test]
fn a_port_does_what_a_controller_says_of_it() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2", "p3"]);
    let sent = |port: &str| pcap::frames(Path::new(&switch.sandbox.arg(&format!("{port}.tx")))).len();
    let flood = |n: u8| {
        let frame = Packet::new(mac(9), mac(n.into())).payload(0x88b5, &[n; 50]);
        switch.appctl(&["netdev-dummy/receive", "p1", &frame.hex()]);
    };
    ofctl(&switch, &["mod-port", "br0", "p2", "no-flood"]);
    assert!(ofctl(&switch, &["show", "br0"]).contains("NO_FLOOD"));
    flood(1);
    eventually("the other port floods", || (sent("p3") == 1).then_some(()));
    assert_eq!(sent("p2"), 0);
    ofctl(&switch, &["mod-port", "br0", "p2", "flood"]);
    ofctl(&switch, &["mod-port", "br0", "p3", "no-forward"]);
    flood(2);
    eventually("the port floods again", || (sent("p2") == 1).then_some(()));
    assert_eq!(sent("p3"), 1);
    ofctl(&switch, &["mod-port", "br0", "p1", "down"]);
    assert_eq!(switch.get("interface", "p1", "admin_state"), "down");
    assert!(ofctl(&switch, &["show", "br0"]).contains("PORT_DOWN"));
}

#[test]
fn groups_meters_and_table_settings_come_and_go() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2", "p3"]);
    let with = |args: &[&str]| ofctl(&switch, &[&["-O", "OpenFlow15"], args].concat());
    with(&[
        "add-group",
        "br0",
        "group_id=7,type=all,bucket=output:2,bucket=output:3",
    ]);
    with(&["add-flow", "br0", "priority=9,in_port=1,actions=group:7"]);
    assert!(with(&["dump-groups", "br0"]).contains("group_id=7,type=all,bucket=bucket_id:0,actions=output:"));
    let frame = Packet::new(mac(1), mac(2)).payload(0x88b5, b"to all").padded();
    switch.appctl(&["netdev-dummy/receive", "p1", &frame.hex()]);
    for port in ["p2", "p3"] {
        let file = switch.sandbox.arg(&format!("{port}.tx"));
        eventually("each bucket sends", || {
            (pcap::frames(Path::new(&file)).len() == 1).then_some(())
        });
    }
    with(&["del-groups", "br0", "group_id=7"]);
    let flows = with(&["dump-flows", "br0"]);
    assert!(!flows.contains("group:7"), "a rule goes with its group: {flows}");

    let with = |args: &[&str]| ofctl(&switch, &[&["-O", "OpenFlow13"], args].concat());
    with(&["add-meter", "br0", "meter=3,kbps,bands=type=drop,rate=1000"]);
    assert!(with(&["dump-meters", "br0"]).contains("meter=3 kbps bands="));
    assert!(with(&["meter-stats", "br0"]).contains("meter:3"));
    let refused = switch.tool(
        "ovs-ofctl",
        &[
            "-O",
            "OpenFlow13",
            "mod-meter",
            "br0",
            "meter=4,kbps,bands=type=drop,rate=1",
        ],
    );
    assert!(
        !refused.ok() && refused.stderr.contains("OFPMMFC_UNKNOWN_METER"),
        "{}",
        refused.stderr
    );
    with(&["del-meters", "br0"]);
    assert!(!with(&["dump-meters", "br0"]).contains("meter=3"));

    switch.vsctl("--id=@t create Flow_Table name=first flow_limit=2 -- set bridge br0 flow_tables:0=@t");
    assert!(with(&["dump-table-features", "br0"]).contains("first"));
    ofctl(&switch, &["del-flows", "br0"]);
    for n in 1..=2 {
        ofctl(&switch, &["add-flow", "br0", &format!("priority={n},actions=drop")]);
    }
    let refused = switch.tool("ovs-ofctl", &["add-flow", "br0", "priority=3,actions=drop"]);
    assert!(refused.stderr.contains("OFPFMFC_TABLE_FULL"), "{}", refused.stderr);
    switch.vsctl("clear bridge br0 flow_tables");
    ofctl(&switch, &["add-flow", "br0", "priority=3,actions=drop"]);
}

#[test]
fn a_bundle_is_done_as_a_whole_or_not_at_all() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1"]);
    let file = switch.sandbox.arg("flows");
    let rule = |n: u32| {
        format!(
            "add priority=10,ip,nw_src=10.0.{}.{},actions=output:1\n",
            n >> 8 & 255,
            n & 255
        )
    };
    let rules: String = (0..3000).map(rule).collect();
    std::fs::write(&file, format!("{rules}delete ipv6\n")).expect("the file is written");
    ofctl(&switch, &["-O", "OpenFlow14", "--bundle", "add-flows", "br0", &file]);
    assert!(ofctl(&switch, &["dump-aggregate", "br0"]).contains("flow_count=3001"));
    let count = || ofctl(&switch, &["dump-aggregate", "br0", "ip"]);
    assert!(count().contains("flow_count=3000"), "{}", count());
    let worse = "delete ip\nadd table=5,actions=group:99\n";
    std::fs::write(&file, worse).expect("the file is written");
    let refused = switch.tool(
        "ovs-ofctl",
        &["-O", "OpenFlow14", "--bundle", "add-flows", "br0", &file],
    );
    assert!(!refused.ok(), "{}", refused.stdout);
    assert!(count().contains("flow_count=3000"), "{}", count());
}

#[test]
fn rules_count_their_packets_and_end_when_there_are_none() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    switch.appctl(&["time/stop"]);
    ofctl(
        &switch,
        &["add-flow", "br0", "idle_timeout=10,in_port=1,actions=output:2"],
    );
    let frame = Packet::new(mac(1), mac(2)).payload(0x88b5, b"counted").padded();
    for n in 1..=5 {
        switch.appctl(&["netdev-dummy/receive", "p1", &frame.hex()]);
        let wanted = format!("n_packets={n}, n_bytes={}", 60 * n);
        eventually("a packet is counted", || {
            ofctl(&switch, &["dump-flows", "br0"]).contains(&wanted).then_some(())
        });
    }
    switch.appctl(&["time/warp", "6000"]);
    switch.appctl(&["netdev-dummy/receive", "p1", &frame.hex()]);
    eventually("the last packet is counted", || {
        ofctl(&switch, &["dump-flows", "br0"])
            .contains("n_packets=6")
            .then_some(())
    });
    switch.appctl(&["time/warp", "6000"]);
    assert!(ofctl(&switch, &["dump-flows", "br0"]).contains("idle_timeout=10"));
    switch.appctl(&["time/warp", "5000"]);
    eventually("the rule ends", || {
        (!ofctl(&switch, &["dump-flows", "br0"]).contains("idle_timeout=10")).then_some(())
    });
}

#[test]
fn a_monitor_hears_of_rules() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1"]);
    ofctl(&switch, &["add-flow", "br0", "priority=3,in_port=1,actions=drop"]);
    for version in ["OpenFlow10", "OpenFlow14"] {
        let log = switch.sandbox.arg("monitor.log");
        let pid = switch.sandbox.arg("monitor.pid");
        let command = format!(
            "exec ovs-ofctl -O {version} monitor br0 watch: --detach --no-chdir --log-file={log}.vlog --pidfile={pid} 2> {log}"
        );
        testkit::try_run(&["sh", "-c", &command], &switch.sandbox.env()).expect_ok();
        let heard = |what: &str| {
            eventually(what, || {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                text.contains(what).then_some(())
            });
        };
        ofctl(&switch, &["add-flow", "br0", "priority=4,in_port=2,actions=output:1"]);
        heard("event=ADDED table=0 cookie=0 in_port=2 actions=output:1");
        ofctl(&switch, &["mod-flows", "br0", "in_port=2,actions=drop"]);
        heard("event=MODIFIED table=0 cookie=0 in_port=2");
        ofctl(&switch, &["del-flows", "br0", "in_port=2"]);
        heard("event=DELETED reason=delete table=0 cookie=0 in_port=2");
        let process = std::fs::read_to_string(&pid).unwrap_or_default();
        testkit::try_run(&["kill", process.trim()], &[]).expect_ok();
        eventually("the monitor ends", || {
            (!std::path::Path::new(&pid).exists()).then_some(())
        });
    }
}

#[test]
fn a_timeout_is_kept_to_the_second() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1"]);
    let count = || ofctl(&switch, &["dump-aggregate", "br0"]);
    let begun = Instant::now();
    ofctl(&switch, &["add-flow", "br0", "hard_timeout=1,in_port=1,actions=drop"]);
    assert!(count().contains("flow_count=2"));
    eventually("the rule ends", || count().contains("flow_count=1").then_some(()));
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(990) && took < Duration::from_secs(3),
        "{took:?}"
    );
}

#[test]
fn idle_peers_of_a_bridges_socket_lock_nobody_out() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    if crate::fixture::stand_in() {
        skip!("the limit is ours");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1"]);
    let socket = switch.sandbox.path("br0.mgmt");
    let idle: Vec<_> = (0..400)
        .map(|_| std::os::unix::net::UnixStream::connect(&socket).expect("a socket"))
        .collect();
    ofctl(&switch, &["show", "br0"]);
    let replaced = switch.appctl(&["coverage/read-counter", "openflow_peer_replaced"]);
    assert!(replaced.trim().parse::<u32>().is_ok_and(|n| n > 100), "{replaced}");
    let shown = switch.appctl(&["memory/show"]);
    assert!(
        shown.contains("openflow bytes:") && shown.contains("openflow peers:"),
        "{shown}"
    );
    drop(idle);
}
