//! Queues and policers as Debian's clients configure them and read them back.

use crate::fixture::{debian_in_namespace, dummy, dummy_bridge, in_namespace, stand_in};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use testkit::{Netns, Packet, Vswitch, eventually, mac, pcap, skip};

const TOOLS: [&str; 4] = ["ovs-vsctl", "ovs-ofctl", "ovs-appctl", "setpriv"];

/// Two queues besides the default one, all keys given.
const HTB: &str = "set port p2 qos=@q -- --id=@q create qos type=linux-htb other_config:max-rate=10000000 queues:3=@three queues:7=@seven \
    -- --id=@three create queue other_config:min-rate=2000000 other_config:max-rate=5000000 other_config:burst=800000 \
    other_config:priority=4 -- --id=@seven create queue other_config:min-rate=1000000 dscp=46";

/// A bridge of two test devices, and its switch; `None` without the tools, or for a switch that has
/// no disciplines of its own.
fn switch() -> Result<Vswitch, String> {
    if stand_in() {
        return Err("Open vSwitch has no disciplines for test devices".to_owned());
    }
    match testkit::missing(false, &TOOLS) {
        Some(reason) => Err(reason),
        None => {
            let switch = dummy();
            dummy_bridge(&switch, "br0", &["p1", "p2"]);
            Ok(switch)
        }
    }
}

#[track_caller]
fn ofctl(switch: &Vswitch, args: &[&str]) -> String {
    let words: Vec<&str> = ["--timeout=20"].iter().chain(args).copied().collect();
    switch.tool("ovs-ofctl", &words).expect_ok()
}

fn show(switch: &Vswitch) -> String {
    switch.appctl(&["qos/show", "p2"])
}

/// `qos/show` in parts: the port's lines, then each queue's, by their headings.
fn parts(shown: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut parts: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for part in shown.split("\n\n") {
        let mut lines = part.lines();
        let heading = lines.next().unwrap_or_default().to_owned();
        let pairs = lines.filter_map(|line| line.trim().split_once(": "));
        parts.insert(
            heading,
            pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        );
    }
    parts
}

/// A switch's log.
fn log(switch: &Vswitch) -> String {
    std::fs::read_to_string(switch.sandbox.path("switch.log")).unwrap_or_default()
}

#[test]
fn every_kind_is_configured_and_shown_with_its_defaults() {
    let switch = match switch() {
        Ok(switch) => switch,
        Err(reason) => skip!("{reason}"),
    };
    assert_eq!(show(&switch), "QoS not configured on p2\n");
    let types = switch.appctl(&["qos/show-types", "p2"]);
    for (kind, keys, wanted) in [
        ("linux-htb", "", "max-rate: 10000000000\n\nDefault:\n  burst: "),
        (
            "linux-hfsc",
            "",
            "max-rate: 10000000000\n\nDefault:\n  min-rate: 12000\n  max-rate: 10000000000\n",
        ),
        ("linux-sfq", "", "quantum: 1500\nperturb: 10\n"),
        ("linux-codel", "", "target: 5000\nlimit: 10240\ninterval: 100000\n"),
        (
            "linux-fq_codel",
            "",
            "target: 5000\nlimit: 10240\ninterval: 100000\necn: true\nflows: 1024\nquantum: 1514\n",
        ),
        (
            "linux-netem",
            "other_config:latency=2000",
            "latency: 2000\njitter: 0\nlimit: 1000\nloss: 0\n",
        ),
        (
            "egress-policer",
            "other_config:cir=46000000 other_config:cbs=2048",
            "cir: 46000000\ncbs: 2048\n",
        ),
        (
            "trtcm-policer",
            "other_config:cir=52000 other_config:cbs=2048 other_config:eir=52000 other_config:ebs=2048",
            "cir: 52000\ncbs: 2048\neir: 52000\nebs: 2048\n\nDefault:\n  cir: 52000\n",
        ),
    ] {
        assert!(types.contains(&format!("QoS type: {kind}\n")), "{types}");
        switch.vsctl(&format!("set port p2 qos=@q -- --id=@q create qos type={kind} {keys}"));
        let shown = show(&switch);
        assert!(shown.starts_with(&format!("QoS: p2 {kind}\n{wanted}")), "{shown}");
        assert!(shown.contains("\nDefault:\n"), "{shown}");
        assert!(
            shown.contains("  tx_packets: 0\n  tx_bytes: 0\n  tx_errors: 0\n"),
            "{shown}"
        );
        assert_eq!(switch.get("port", "p2", "status"), "{}", "{kind}");
    }
    switch.vsctl("set port p2 qos=@q -- --id=@q create qos type=linux-noop");
    assert_eq!(show(&switch), "QoS not configured on p2\n");
    switch.vsctl("clear port p2 qos -- --all destroy qos -- --all destroy queue");
    assert_eq!(show(&switch), "QoS not configured on p2\n");
    for command in ["qos/show", "qos/show-types"] {
        let unknown = switch.try_appctl(&[command, "nothing"]);
        assert!(
            !unknown.ok() && unknown.stderr.contains("no such interface"),
            "{unknown:?}"
        );
    }
}

#[test]
fn queues_are_told_to_ovs_ofctl_in_every_version() {
    let switch = match switch() {
        Ok(switch) => switch,
        Err(reason) => skip!("{reason}"),
    };
    // As in Open vSwitch, a dummy without a QoS has one queue without counters.
    let bare = ofctl(&switch, &["queue-stats", "br0", "p2"]);
    assert!(
        bare.contains(" 1 queues\n  port 2 queue 0: bytes=?, pkts=?, errors=?"),
        "{bare}"
    );
    switch.vsctl(HTB);
    for version in [
        "OpenFlow10",
        "OpenFlow11",
        "OpenFlow12",
        "OpenFlow13",
        "OpenFlow14",
        "OpenFlow15",
    ] {
        let ask = |args: &[&str]| ofctl(&switch, &[&["-O", version], args].concat());
        let stats = ask(&["queue-stats", "br0", "p2"]);
        assert!(stats.contains(" 3 queues\n"), "{stats}");
        for queue in [0, 3, 7] {
            let line = format!("  port 2 queue {queue}: bytes=0, pkts=0, errors=0, duration=");
            assert!(stats.contains(&line), "{stats}");
        }
        let timed = ["OpenFlow13", "OpenFlow14", "OpenFlow15"].contains(&version);
        assert_eq!(!stats.contains("duration=?"), timed, "{stats}");
        assert!(ask(&["queue-stats", "br0", "p2", "3"]).contains(" 1 queues\n"));
        for (args, error) in [
            (&["queue-stats", "br0", "9"][..], "OFPQOFC_BAD_PORT"),
            (&["queue-stats", "br0", "p2", "5"], "OFPQOFC_BAD_QUEUE"),
            (&["queue-stats", "br0", "p1", "1"], "OFPQOFC_BAD_QUEUE"),
            (&["queue-stats", "br0", "ALL", "5"], "OFPQOFC_BAD_QUEUE"),
            (&["queue-get-config", "br0", "9"], "OFPQOFC_BAD_PORT"),
        ] {
            let told = ask(args);
            assert!(told.contains(error), "{version} {args:?}: {told}");
        }
        let config = ask(&["queue-get-config", "br0", "p2"]);
        assert!(config.contains("port=2\nqueue 0:\n"), "{config}");
        for line in ["queue 3: min_rate:20.0% max_rate:50.0%\n", "queue 7: min_rate:10.0%\n"] {
            assert!(config.contains(line), "{version}: {config}");
        }
    }
    let missing = ofctl(&switch, &["-O", "OpenFlow14", "queue-get-config", "br0", "p2", "5"]);
    assert!(missing.contains("OFPQOFC_BAD_QUEUE"), "{missing}");
}

#[test]
fn a_wrong_value_is_the_rows_error_and_what_ran_before_runs_on() {
    let switch = match switch() {
        Ok(switch) => switch,
        Err(reason) => skip!("{reason}"),
    };
    switch.vsctl(HTB);
    let good = show(&switch);
    assert!(good.starts_with("QoS: p2 linux-htb\nmax-rate: 10000000\n"), "{good}");
    assert!(
        good.contains("\nQueue 3:\n  burst: 800000\n  priority: 4\n  min-rate: 2000000\n  max-rate: 5000000\n"),
        "{good}"
    );
    let rule = "not a whole number of bit/s";
    for (change, back, wrong) in [
        (
            "set qos QOS other_config:max-rate=10M",
            "set qos QOS other_config:max-rate=10000000",
            format!("QoS: max-rate=10M: {rule}"),
        ),
        (
            "set qos QOS type=linux-cake",
            "set qos QOS type=linux-htb",
            "QoS: type=linux-cake: not one of ".to_owned(),
        ),
        (
            "set queue THREE other_config:min-rate=-1",
            "set queue THREE other_config:min-rate=2000000",
            format!("queue 3: min-rate=-1: {rule}"),
        ),
        (
            "set queue THREE other_config:parent=3",
            "remove queue THREE other_config parent",
            "queue 3: parent=3: the queue would be among its own ancestors".to_owned(),
        ),
    ] {
        let qos = switch.get("port", "p2", "qos");
        let three = switch.vsctl("--bare --columns=_uuid find queue other_config:max-rate=5000000");
        let with = |command: &str| command.replace("QOS", &qos).replace("THREE", three.trim());
        switch.vsctl(&with(change));
        let status = switch.get("port", "p2", "status");
        assert!(status.contains(&wrong), "{status}");
        assert_eq!(show(&switch), good);
        let warned = log(&switch)
            .lines()
            .filter(|line| line.contains("WARN") && line.contains(&wrong))
            .count();
        assert_eq!(warned, 1, "{wrong}");
        // Some other change neither repairs nor repeats it.
        switch.vsctl("set port p1 external_ids:a=b");
        assert_eq!(log(&switch).lines().filter(|line| line.contains(&wrong)).count(), 1);
        switch.vsctl(&with(back));
        assert_eq!(switch.get("port", "p2", "status"), "{}");
        assert_eq!(show(&switch), good);
    }
    for wrong in ["ten", "0", "-5"] {
        switch.vsctl(&format!("set interface p2 other_config:port-speed={wrong}"));
        let error = switch.get("interface", "p2", "error");
        assert!(
            error.contains(&format!("other_config:port-speed={wrong}: not ")),
            "{error}"
        );
        assert_eq!(show(&switch), good);
    }
    switch.vsctl("set interface p2 other_config:port-speed=100000000");
    assert_eq!(switch.get("interface", "p2", "error"), "[]");
    assert!(show(&switch).contains("max-rate: 10000000\nport-speed: 100000000\n"));
    assert_eq!(switch.get("interface", "p2", "link_speed"), "100000000");
    assert!(ofctl(&switch, &["show", "br0"]).contains("speed: 100 Mbps now"));
}

#[test]
fn a_key_that_has_no_effect_is_a_warning_and_no_error() {
    let switch = match switch() {
        Ok(switch) => switch,
        Err(reason) => skip!("{reason}"),
    };
    // As libvirt sets it, with a queue's keys also in the port's row.
    switch.vsctl(
        "set port p2 qos=@qos1 external-ids:ifname=p2 -- --id=@qos1 create qos type=linux-htb other_config:min-rate=800000 \
         other_config:max-rate=1600000 other_config:burst=8192000 queues:0=@queue0 external-ids:ifname=p2 -- --id=@queue0 create queue \
         other_config:min-rate=800000 other_config:max-rate=1600000 other_config:burst=8192000 external-ids:ifname=p2",
    );
    switch.vsctl("set interface p2 ingress_policing_rate=1000 ingress_policing_burst=100");
    let shown = show(&switch);
    assert!(
        shown.starts_with("QoS: p2 linux-htb\nmax-rate: 1600000\n\nDefault:\n  burst: 8192000\n  min-rate: 800000\n  max-rate: 1600000\n"),
        "{shown}"
    );
    assert_eq!(switch.get("port", "p2", "status"), "{}");
    assert_eq!(switch.get("interface", "p2", "error"), "[]");
    let log = log(&switch);
    assert!(
        log.contains("qos: QoS: min-rate is no key of linux-htb in this place and has no effect"),
        "{log}"
    );
    // As libvirt removes them.
    switch
        .vsctl("-- --if-exists clear port p2 qos -- set interface p2 ingress_policing_rate=0 ingress_policing_burst=0");
    switch.vsctl("-- --all destroy qos -- --all destroy queue");
    assert_eq!(show(&switch), "QoS not configured on p2\n");
}

/// The commands in a document: indented lines, joined after a backslash, without text after a `#`.
fn commands(document: &str) -> Vec<Vec<String>> {
    let lines = document.lines().filter_map(|line| line.strip_prefix("    "));
    let joined = lines.fold(String::new(), |all, line| {
        match line
            .split("  #")
            .next()
            .unwrap_or_default()
            .trim_end()
            .strip_suffix('\\')
        {
            Some(begun) => all + begun,
            None => all + line.split("  #").next().unwrap_or_default() + "\n",
        }
    });
    let words = |line: &str| {
        // Quoted text is one word.
        let mut words = Vec::new();
        for (at, part) in line.split('"').enumerate() {
            match at % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        words
    };
    joined.lines().map(words).collect()
}

#[test]
fn every_example_of_the_documentation_does_what_it_says_without_a_complaint() {
    let switch = match switch() {
        Ok(switch) => switch,
        Err(reason) => skip!("{reason}"),
    };
    switch.vsctl("add-port br0 eth1 -- set interface eth1 type=dummy");
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/qos.md");
    let document = std::fs::read_to_string(document).expect("the document is there");
    let mut configured = 0;
    for command in commands(&document) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        match words[..] {
            ["ovs-vsctl", ref args @ ..] => _ = switch.try_vsctl(args).expect_ok(),
            ["ovs-appctl", ref args @ ..] => _ = switch.appctl(args),
            ["ovs-ofctl", ref args @ ..] => _ = ofctl(&switch, args),
            _ => panic!("{command:?}"),
        }
        assert_eq!(switch.get("port", "eth1", "status"), "{}", "{command:?}");
        assert_eq!(switch.get("interface", "eth1", "error"), "[]", "{command:?}");
        configured += usize::from(command.iter().any(|word| word == "create"));
    }
    assert!(configured >= 5, "{configured}");
    let log = log(&switch);
    let complaints: Vec<&str> = log.lines().filter(|line| line.contains("qos:")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}

/// A packet of UDP from port `src`, 100 bytes with its headers.
fn udp(src: u16) -> Packet {
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    packet.udp(src, 80, &[0; 58])
}

#[test]
fn packets_go_through_the_queue_that_rules_choose_and_are_counted_and_marked_there() {
    let switch = match switch() {
        Ok(switch) => switch,
        Err(reason) => skip!("{reason}"),
    };
    switch.vsctl(HTB);
    ofctl(&switch, &["del-flows", "br0"]);
    for (src, actions) in [
        (1, "set_queue:3,output:2"),
        (2, "enqueue:2:7"),
        (3, "set_queue:99,output:2"),
        (4, "output:2"),
        (5, "set_queue:7,output:2,pop_queue,output:2"),
    ] {
        ofctl(
            &switch,
            &["add-flow", "br0", &format!("udp,tp_src={src},actions={actions}")],
        );
    }
    for src in 1..=5 {
        switch.appctl(&["netdev-dummy/receive", "p1", &udp(src).hex()]);
    }
    let mut stats = String::new();
    eventually("six copies are sent", || {
        stats = ofctl(&switch, &["queue-stats", "br0", "p2"]);
        let wanted = [
            "port 2 queue 0: bytes=300, pkts=3, errors=0",
            "port 2 queue 3: bytes=100, pkts=1, errors=0",
            "port 2 queue 7: bytes=200, pkts=2, errors=0",
        ];
        wanted.iter().all(|line| stats.contains(line)).then_some(())
    });
    let shown = show(&switch);
    let seven = &parts(&shown)["Queue 7:"];
    for (key, value) in [
        ("dscp", "46"),
        ("tx_packets", "2"),
        ("tx_bytes", "200"),
        ("backlog_packets", "0"),
        ("ecn_marks", "0"),
    ] {
        assert_eq!(seven.get(key).map(String::as_str), Some(value), "{key}: {shown}");
    }
    assert!(seven.contains_key("sojourn_p99"), "{shown}");
    // DSCP 46 is a type of service of 184: the copies that left by queue 7, and no others.
    let sent = || pcap::frames(Path::new(&switch.sandbox.arg("p2.tx")));
    eventually("all copies are in the file", || (sent().len() == 6).then_some(()));
    let tos: Vec<(u8, u8)> = sent().iter().map(|frame| (frame[35], frame[15])).collect();
    let mut sorted = tos.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [(1, 0), (2, 184), (3, 0), (4, 0), (5, 0), (5, 184)]);
    // Other parameters, the same counters; another kind, others.
    let qos = switch.get("port", "p2", "qos");
    switch.vsctl(&format!("set qos {qos} other_config:max-rate=20000000"));
    assert!(ofctl(&switch, &["queue-stats", "br0", "p2"]).contains("queue 7: bytes=200, pkts=2"));
    assert!(show(&switch).contains("max-rate: 20000000\n"));
    switch.vsctl(&format!("set qos {qos} type=linux-sfq"));
    let stats = ofctl(&switch, &["queue-stats", "br0", "p2"]);
    assert!(
        stats.contains(" 1 queues\n") && stats.contains("queue 0: bytes="),
        "{stats}"
    );
}

#[test]
fn what_a_port_receives_beyond_its_rate_is_dropped_as_policed() {
    let switch = match switch() {
        Ok(switch) => switch,
        Err(reason) => skip!("{reason}"),
    };
    // A burst of 8 kbit is 1000 bytes: one packet passes, and for the next one 1 kbit/s takes 8 s.
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let packet = packet.udp(1, 80, &[0; 958]);
    switch.vsctl("set interface p1 ingress_policing_rate=1 ingress_policing_burst=8");
    for _ in 0..3 {
        switch.appctl(&["netdev-dummy/receive", "p1", &packet.hex()]);
    }
    eventually("the rest is policed", || {
        let shown = switch.appctl(&["dpctl/show", "-s"]);
        let policed = switch.appctl(&["coverage/read-counter", "drop_policed"]);
        assert!(policed.trim().parse::<u64>().is_ok_and(|n| n <= 2), "{shown}");
        (policed.trim() == "2").then_some(())
    });
    assert_eq!(pcap::frames(Path::new(&switch.sandbox.arg("p2.tx"))).len(), 1);
    switch.vsctl("set interface p1 ingress_policing_rate=0");
    switch.appctl(&["netdev-dummy/receive", "p1", &packet.hex()]);
    eventually("nothing is policed any more", || {
        (pcap::frames(Path::new(&switch.sandbox.arg("p2.tx"))).len() == 2).then_some(())
    });
}

#[test]
fn disciplines_and_queues_are_told_as_debians_switch_tells_them() {
    skip!(unless root, "ip", "ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "setpriv");
    let told = |theirs: bool| {
        let ns = Netns::new("qc");
        ns.veth("p2", &ns, "far");
        let switch = match theirs {
            true => debian_in_namespace(&ns),
            false => in_namespace(&ns),
        };
        switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
        switch.vsctl("add-port br0 p2 -- set interface p2 ofport_request=2");
        switch.vsctl(HTB);
        let shown = show(&switch);
        let mut lines = BTreeSet::new();
        for args in [
            &["queue-stats", "br0"][..],
            &["queue-stats", "br0", "p2", "3"],
            &["queue-stats", "br0", "p2", "5"],
            &["queue-stats", "br0", "ALL", "5"],
            &["queue-stats", "br0", "77"],
            &["queue-get-config", "br0", "77"],
            &["-O", "OpenFlow13", "queue-get-config", "br0", "77"],
            &["-O", "OpenFlow14", "queue-get-config", "br0", "77"],
            &["-O", "OpenFlow14", "queue-get-config", "br0", "p2", "5"],
        ] {
            // If the device can have queues, Open vSwitch has another error for a missing queue.
            let told = ofctl(&switch, args).replace("NXQOFC_QUEUE_ERROR", "OFPQOFC_BAD_QUEUE");
            lines.extend(told.lines().map(|line| format!("{args:?} {line}")));
        }
        (shown, lines)
    };
    let (theirs, our) = (told(true), told(false));
    if !theirs.0.starts_with("QoS: p2 linux-htb") {
        skip!("the kernel has no HTB for Debian's switch: {}", theirs.0);
    }
    assert_eq!(theirs.1, our.1);
    let (theirs, our) = (parts(&theirs.0), parts(&our.0));
    assert_eq!(theirs.keys().collect::<Vec<_>>(), our.keys().collect::<Vec<_>>());
    for (part, lines) in theirs {
        for (key, value) in lines {
            let same = our[&part].get(&key);
            // Missing bursts have their own defaults.
            let free = key == "burst" && part != "Queue 3:";
            assert!(
                same == Some(&value) || free && same.is_some(),
                "{part} {key}: {value}, {same:?}"
            );
        }
    }
}
