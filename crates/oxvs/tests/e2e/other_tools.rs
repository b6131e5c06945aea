//! Open vSwitch's other tools, unmodified: those that look at a switch, and those that read its
//! files.

use crate::fixture::{binary, bridge_with_hosts, dummy, dummy_bridge, in_namespace};
use testkit::{Daemon, Netns, Packet, Sandbox, eventually, mac, pcap, skip, try_run};

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
fn ovs_dpctl_top_asks_our_ovs_dpctl_by_itself() {
    skip!(unless "ovs-vsctl", "setpriv", "ovs-dpctl-top", "script");
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let packet = Packet::new(mac(1), mac(2)).payload(0x88b5, b"payload").padded();
    switch.appctl(&["netdev-dummy/receive", "p1", &packet.hex()]);
    let mut env = links(&switch.sandbox);
    env.push(("TERM".to_owned(), "xterm".to_owned()));
    // It wants a terminal; its first look is on the screen when `q` ends it.
    let screen = "(sleep 2; echo q) | timeout 10 script -qec ovs-dpctl-top /dev/null";
    eventually("the megaflow is on the screen", || {
        let shown = try_run(&["sh", "-c", screen], &env).stdout;
        (shown.contains("Flow Summary") && shown.contains("in_port(1)")).then_some(())
    });
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
fn ovs_tcpundump_makes_packets_for_a_test_device_from_what_tcpdump_prints() {
    skip!(unless "ovs-vsctl", "setpriv", "tcpdump", "ovs-tcpundump");
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let packet = Packet::new(mac(1), mac(2)).payload(0x88b5, b"payload").padded();
    switch.appctl(&["netdev-dummy/receive", "p1", &packet.hex()]);
    let script = format!(
        "tcpdump -xx -r {} 2>/dev/null | ovs-tcpundump",
        switch.sandbox.arg("p2.tx")
    );
    let hex = eventually("the packet is in the file", || {
        let read = try_run(&["sh", "-c", &script], &[]).stdout;
        (!read.is_empty()).then_some(read)
    });
    assert_eq!(hex.trim().to_lowercase(), packet.hex());
}

#[test]
fn ovs_testcontroller_learns_by_our_packet_ins_and_installs_rules() {
    skip!(unless "ovs-vsctl", "setpriv", "ovs-testcontroller");
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let socket = switch.sandbox.arg("controller");
    let listen = format!("punix:{socket}");
    let words = ["ovs-testcontroller", "--unixctl=none", &listen].map(str::to_owned);
    let _controller = Daemon::start("controller", &words, &switch.sandbox);
    switch.vsctl(&format!(
        "set-controller br0 unix:{socket} -- set bridge br0 fail_mode=secure"
    ));
    eventually("it makes the table its own", || {
        switch
            .tool("ovs-ofctl", &["dump-flows", "br0"])
            .expect_ok()
            .contains("actions=CONTROLLER:128")
            .then_some(())
    });
    let (ask, answer) = (Packet::new(mac(1), mac(2)), Packet::new(mac(2), mac(1)));
    let (ask, answer) = (
        ask.payload(0x88b5, b"a").padded(),
        answer.payload(0x88b5, b"b").padded(),
    );
    eventually("it has learned both stations", || {
        switch.appctl(&["netdev-dummy/receive", "p1", &ask.hex()]);
        switch.appctl(&["netdev-dummy/receive", "p2", &answer.hex()]);
        let rules = switch.tool("ovs-ofctl", &["dump-flows", "br0"]).expect_ok();
        ["in_port=1", "in_port=2"]
            .iter()
            .all(|port| {
                rules
                    .lines()
                    .any(|rule| rule.contains(port) && rule.contains("idle_timeout=60"))
            })
            .then_some(())
    });
    eventually("the packets arrive", || {
        let arrived = pcap::frames(&switch.sandbox.path("p2.tx"));
        arrived.contains(&ask.clone().bytes()).then_some(())
    });
}

/// `ovs-bugtool` asks by the system's paths, so both switches run in namespaces of their own, with
/// an empty `/run`. Each has all of the answers that the other has.
#[test]
fn ovs_bugtool_collects_from_our_switch_what_it_collects_from_open_vswitch() {
    skip!(unless root, "unshare", "ovs-bugtool", "ovs-vswitchd", "ovs-vsctl", "setpriv");
    const SCRIPT: &str = include_str!("bugtool.sh");
    let sandboxes = [Sandbox::new(), Sandbox::new()];
    let collect = |sandbox: &Sandbox, ours: bool| {
        let mut env = vec![("OUT".to_owned(), sandbox.dir().display().to_string())];
        if ours {
            env.extend(links(sandbox));
        }
        let words = ["unshare", "-mnp", "--fork", "--mount-proc", "bash", "-c", SCRIPT];
        try_run(&words, &env).expect_ok();
        let mut files = std::collections::BTreeMap::new();
        for entry in std::fs::read_dir(sandbox.path("collected")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name.ends_with(".out") {
                let bytes = std::fs::read(entry.path()).unwrap();
                files.insert(name, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        files
    };
    let [debian, ours] = [(0, false), (1, true)].map(|(at, ours)| collect(&sandboxes[at], ours));
    assert!(debian.len() > 30, "{:?}", debian.keys());
    let names = |files: &std::collections::BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&debian));
    for (name, text) in &ours {
        // Lines with the time stand above the answers of commands that it repeats.
        let lines = |text: &str| text.lines().filter(|line| !line.contains(" UTC ")).count();
        assert_eq!(lines(text) == 0, lines(&debian[name]) == 0, "{name}: {text}");
        let refused = [
            "not a valid command",
            "unknown command",
            "unrecognized option",
            "invalid option",
        ];
        for words in refused {
            assert_eq!(text.contains(words), debian[name].contains(words), "{name}: {text}");
        }
    }
    assert!(
        ours["ovs-vsctl-show.out"].contains("ovs_version: \"3.5.0\""),
        "{ours:?}"
    );
    assert!(ours["ovs-daemons-ver.out"].contains("oxvs "), "{ours:?}");
}

/// The environment in which Open vSwitch's tools find ours under their names.
fn links(sandbox: &Sandbox) -> Vec<(String, String)> {
    let bin = sandbox.path("bin");
    std::fs::create_dir(&bin).unwrap();
    for tool in [
        "ovs-vsctl",
        "ovs-ofctl",
        "ovs-appctl",
        "ovs-dpctl",
        "ovsdb-client",
        "ovsdb-tool",
        "ovs-vswitchd",
        "ovsdb-server",
    ] {
        std::os::unix::fs::symlink(binary(), bin.join(tool)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut env = sandbox.env();
    env.push(("PATH".to_owned(), path));
    env
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
