//! `ofctl` against Debian's `ovs-ofctl`, both talking to Debian's switch with dummy devices.
//!
//! `oracle/ofctl_lines.txt` has a command line per line, in the words of a shell, with ` < FILE`
//! for standard input. A line behind `+` changes the switch: what it is afterwards is compared too,
//! and then put back.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::{Options, Sandbox, Vswitch, eventually, one_in, skip};

const LINES: &str = include_str!("oracle/ofctl_lines.txt");

/// Files that the command lines name.
const FILES: &[(&str, &[u8])] = &[
    (
        "setup.flows",
        b"\
table=0,priority=0,actions=NORMAL
table=0,cookie=0x5,priority=10,ip,nw_dst=10.0.0.0/8,actions=2
table=0,cookie=0x5,priority=11,in_port=1,ip,nw_dst=192.168.0.0/16,actions=LOCAL
table=1,priority=5,tcp,nw_dst=10.0.0.0/8,actions=1
table=1,priority=5,tcp,tp_dst=80,actions=2
table=1,priority=6,udp,in_port=2,tp_dst=53,actions=output:2,CONTROLLER:65535
table=2,reg0=7,actions=load:5->NXM_NX_REG1[],resubmit(,3)
table=3,arp,dl_vlan=5,idle_timeout=300,actions=strip_vlan,FLOOD
",
    ),
    (
        "flows.txt",
        b"\
table=3,actions=1
# comment

table=4,ip,actions=2 # more
add table=5,tcp,actions=drop
delete table=1,ip
modify table=2,actions=drop
",
    ),
    ("bad.txt", b"table=3,actions=1\nfoo=bar\n"),
    ("refused.txt", b"table=3,actions=1\ntable=4,actions=group:77\n"),
    ("notable.txt", b"ip,actions=1\npriority=7,tcp,actions=2\n"),
    ("mods.txt", b"table=1,actions=drop\nip,table=0,actions=2\n"),
    (
        "unmet.txt",
        b"tp_dst=3,actions=drop\nip,actions=1\nip,tp_dst=3,actions=drop\n",
    ),
    ("unmetbundle.txt", b"flow tp_dst=3,actions=drop\nflow tp_src=5,actions=1\n"),
    ("dels.txt", b"table=1\nip\n"),
    ("empty.txt", b""),
    (
        "groups.txt",
        b"\
group_id=11,type=all,bucket=actions=1
add group_id=12,type=select,bucket=actions=2
modify group_id=1,type=all,bucket=actions=1
delete group_id=2
",
    ),
    (
        "bundle.txt",
        b"\
flow add table=6,actions=1
flow table=7,actions=2
group add group_id=21,type=all,bucket=actions=1
flow delete table=1
packet-out in_port=1 packet=ffffffffffff0000000000020806 actions=2
",
    ),
    (
        "insert.txt",
        b"group insert_bucket group_id=1,command_bucket_id=last,bucket=bucket_id=5,weight=7,actions=1\n",
    ),
    (
        "mixed.txt",
        b"flow table=6,actions=1\ngroup insert_bucket group_id=1,command_bucket_id=last,bucket=bucket_id=6,weight=7,actions=1\n",
    ),
    ("badbundle.txt", b"flow table=6,actions=1\nfoo\n"),
    (
        "refusedbundle.txt",
        b"flow table=6,actions=1\nflow table=6,actions=group:77\n",
    ),
    (
        "actions10.txt",
        b"0000 0008 0001 0000\n# c\n0000 0008 0002 ffff 0003 0008 00000000\n",
    ),
    ("actions13.txt", b"0000 0010 00000001 0000 000000000000\n"),
    (
        "instructions13.txt",
        b"0001 0008 05 000000\n0004 0018 00000000 0000 0010 00000001 0000 000000000000\n00ff 0008 00000000\n",
    ),
    ("messages.bin", b"\x01\0\0\x08\0\0\0\x01\x04\x02\0\x0c\0\0\0\x01abcd"),
    ("cut.bin", b"\x01\0\0\x08\0\0\0\x01\x04\x02\0\x0c\0\0\0\x01a"),
];

/// What a program said.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    status: Option<i32>,
    out: String,
    err: String,
}

struct Oracle {
    switch: Vswitch,
}

impl Oracle {
    fn new() -> Oracle {
        let switch = Vswitch::debian(Options::default());
        switch.vsctl(
            "add-br br0 -- set bridge br0 datapath_type=dummy other-config:datapath-id=0000000000000001 \
             protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15",
        );
        for port in [1, 2] {
            switch.vsctl(&format!(
                "add-port br0 p{port} -- set interface p{port} type=dummy ofport_request={port}"
            ));
        }
        for (name, bytes) in FILES {
            std::fs::write(switch.sandbox.path(name), bytes).unwrap();
        }
        std::fs::write(switch.sandbox.path("openflow.pcap"), capture()).unwrap();
        Oracle { switch }
    }

    fn sandbox(&self) -> &Sandbox {
        &self.switch.sandbox
    }

    fn run(&self, mut command: Command, words: &[&str], input: Option<&str>) -> Said {
        let stdin = match input {
            Some(file) => Stdio::from(std::fs::File::open(self.sandbox().path(file)).unwrap()),
            None => Stdio::null(),
        };
        let envs = self.sandbox().env();
        let directory = self.sandbox().path(".");
        let command = command.args(words).envs(envs).env("TZ", "UTC").current_dir(directory);
        let output = command.stdin(stdin).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let err = text(&output.stderr);
        let (log, mut err): (Vec<&str>, Vec<&str>) = err.lines().partition(is_log);
        // Of the log, what was left out of matches; theirs says it again of messages that it
        // prints.
        let mut notices: Vec<&str> = log
            .iter()
            .filter_map(|line| line.split_once("|ofp_match|INFO|").map(|(_, said)| said))
            .collect();
        if words.contains(&"parse-flow") {
            notices.truncate(3);
        }
        err.extend(notices);
        Said {
            status: output.status.code(),
            out: mask(&text(&output.stdout)),
            err: mask(&err.join("\n")),
        }
    }

    fn theirs(&self, words: &[&str], input: Option<&str>) -> Said {
        self.run(Command::new("ovs-ofctl"), words, input)
    }

    fn ours(&self, words: &[&str], input: Option<&str>) -> Said {
        let mut command = Command::new(tool());
        command.arg("ovs-ofctl");
        self.run(command, words, input)
    }

    /// Puts the switch back to what every line begins with.
    fn reset(&self, line: &str) {
        let many = |lines: &str| {
            for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
                self.theirs(&words(line), None);
            }
        };
        many(
            "-OOpenFlow13 del-flows br0
             -OOpenFlow13 del-groups br0
             -OOpenFlow13 del-meters br0
             del-tlv-map br0
             add-flows br0 setup.flows
             -OOpenFlow13 add-group br0 group_id=1,type=select,bucket=weight=10,actions=1,bucket=weight=20,actions=2
             -OOpenFlow13 add-group br0 group_id=2,type=ff,bucket=watch_port:1,actions=1,bucket=watch_group:1,actions=2
             -OOpenFlow13 add-meter br0 meter=1,kbps,burst,stats,bands=type=drop,rate=1000,burst_size=100
             -OOpenFlow13 add-meter br0 'meter=2,pktps,bands=type=drop,rate=10 type=drop,rate=20'
             add-tlv-map br0 {class=0xffff,type=0,len=4}->tun_metadata0",
        );
        if line.contains("set-frags") {
            many("set-frags br0 normal");
        }
        if line.contains("mod-port") {
            for port in ["p1", "p2", "LOCAL"] {
                for action in ["up", "flood", "receive", "forward", "packet-in"] {
                    self.theirs(&["mod-port", "br0", port, action], None);
                }
            }
        }
        if line.contains("mod-table") {
            many(
                "-OOpenFlow13 mod-table br0 1 name:
                 -OOpenFlow13 mod-table br0 2 name:
                 -OOpenFlow14 mod-table br0 1 noevict
                 -OOpenFlow14 mod-table br0 1 novacancy
                 -OOpenFlow11 mod-table br0 all controller",
            );
        }
    }

    /// What the switch is.
    fn state(&self, line: &str) -> Vec<String> {
        let mut commands = vec![
            "--no-stats -OOpenFlow14 dump-flows br0",
            "-OOpenFlow15 dump-groups br0",
            "-OOpenFlow13 dump-meters br0",
            "show br0",
            "dump-tlv-map br0",
        ];
        if line.contains("mod-table") {
            commands.extend([
                "-OOpenFlow14 dump-table-desc br0",
                "-OOpenFlow11 dump-tables br0",
                "dump-tables br0",
            ]);
        }
        let mut lines: Vec<String> = Vec::new();
        for command in commands {
            lines.extend(self.theirs(&words(command), None).out.lines().map(str::to_owned));
        }
        // Theirs is the order of hash tables.
        lines.sort_unstable();
        lines
    }
}

/// Whether a line is a log message, for example a warning about a long poll interval.
fn is_log(line: &&str) -> bool {
    line.split('|').nth(1).is_some_and(|n| n.parse::<u32>().is_ok())
}

fn tool() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let target = tests.parent().and_then(Path::parent).unwrap();
    target.join("examples/tool")
}

/// The words of a line, some of them in single quotes.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').unwrap(),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word);
        rest = behind.trim_start();
    }
    words
}

/// Takes out what is another time another.
fn mask(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut line = line.to_owned();
        for (begin, end) in [
            ("duration=", "s"),
            ("duration:", "s"),
            ("idle_age=", ","),
            ("hard_age=", ","),
            ("lookup=", ","),
            ("matched=", "\n"),
            ("n_packets=", ","),
            ("n_bytes=", ","),
            ("pkts=", ","),
            ("bytes=", ","),
            ("tx_q0_bytes=", ","),
            ("tx_q0_packets=", ","),
            ("time=", "\n"),
            ("Finished in ", "\n"),
        ] {
            let Some(at) = line.find(begin) else { continue };
            let from = at + begin.len();
            let len = line[from..].find(end).unwrap_or(line.len() - from);
            line.replace_range(from..from + len, "N");
        }
        // An age is printed or not, depending on the time that has passed.
        lines.push(
            line.replace("hard_age=N, ", "")
                .replace("(Broken pipe)", "(Protocol error)"),
        );
    }
    lines.join("\n")
}

/// A capture of two directions of a connection of OpenFlow, one message in two segments, and of
/// another one.
fn capture() -> Vec<u8> {
    let hello = b"\x01\0\0\x08\0\0\0\x01";
    let echo = b"\x04\x02\0\x0c\0\0\0\x01abcd";
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    let mut put = |from: u16, to: u16, sequence: u32, flags: u8, data: &[u8]| {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((40 + data.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(from.to_be_bytes());
        frame.extend(to.to_be_bytes());
        frame.extend(sequence.to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, flags, 0, 100, 0, 0, 0, 0]);
        frame.extend(data);
        for word in [1_700_000_000, 5000, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    };
    put(40_000, 6653, 100, 2, b"");
    put(40_000, 6653, 101, 0x18, &[&hello[..], &echo[..5]].concat());
    put(40_000, 6653, 114, 0x18, &echo[5..]);
    put(6653, 40_000, 7, 0x18, hello);
    put(40_000, 80, 1, 0x18, hello);
    put(1234, 40_000, 9, 0x18, hello);
    file
}

#[test]
fn ofctl_answers_as_ovs_ofctl_does() {
    skip!(unless "ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovs-ofctl", "setpriv");
    let oracle = Oracle::new();
    oracle.reset("mod-port mod-table set-frags");
    let (mut alike, mut faults) = (0, Vec::new());
    for line in one_in(3, LINES.lines()) {
        let (changes, command) = match line.strip_prefix("+ ") {
            Some(command) => (true, command),
            None => (false, line),
        };
        let (command, input) = match command.split_once(" < ") {
            Some((command, input)) => (command, Some(input)),
            None => (command, None),
        };
        let words = words(command);
        let after = |said| {
            if !changes {
                return (said, Vec::new());
            }
            let state = oracle.state(line);
            oracle.reset(line);
            (said, state)
        };
        let mut theirs = after(oracle.theirs(&words, input));
        let mut ours = after(oracle.ours(&words, input));
        if ["diff-flows", "dump-groups", "dump-group-stats"]
            .iter()
            .any(|c| words.contains(c))
        {
            for said in [&mut theirs.0, &mut ours.0] {
                let mut lines: Vec<&str> = said.out.lines().collect();
                lines.sort_unstable();
                said.out = lines.join("\n");
            }
        }
        match theirs == ours {
            true => alike += 1,
            false => faults.push(format!("{line}\n  theirs: {theirs:?}\n  ours:   {ours:?}")),
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {}\n{}",
        faults.len(),
        alike + faults.len(),
        faults.join("\n")
    );
    assert!(alike > 133, "{alike}");
}

/// What a monitor prints while the switch is changed and packets come, its transactions' numbers
/// aside.
fn monitored(oracle: &Oracle, mut command: Command, (version, echo): (&str, &str)) -> (String, String, Vec<String>) {
    let control = oracle.sandbox().arg("monitor.ctl");
    let unixctl = format!("--unixctl={control}");
    let words = ["-O", version, "monitor", "br0", "65534", "watch:!initial", &unixctl];
    let command = command.args(words).envs(oracle.sandbox().env()).stdin(Stdio::null());
    let err = oracle.sandbox().path("monitor.err");
    let printed = Stdio::from(std::fs::File::create(&err).unwrap());
    let monitor = command.stdout(Stdio::piped()).stderr(printed).spawn().unwrap();
    eventually("the monitor listens", || {
        UnixStream::connect(&control).is_ok().then_some(())
    });
    let tell = |words: &[&str]| {
        let done = testkit::try_run(&[&["ovs-appctl", "-t", &control][..], words].concat(), &[]);
        format!("{:?} {}{}", done.status, done.stdout, done.stderr)
    };
    let mut told = vec![
        tell(&["ofctl/barrier"]),
        tell(&["ofctl/send", echo]),
        tell(&["ofctl/send", "zz"]),
    ];
    for flow in ["table=4,ip,actions=1", "table=0,priority=99,actions=CONTROLLER:65535"] {
        oracle.theirs(&["add-flow", "br0", flow], None);
    }
    let packet =
        "505400000002505400000001080045000028000000004006f6d90a0000010a00000200050050000000000000000050020000cd5f0000";
    // Another thread of the switch receives the packet, and the flow must still be there. A cached
    // flow that is older than the rule may drop the first packet: another one follows after 2 s.
    let mut probes = 0;
    eventually("the packet is in", || {
        if probes % 100 == 0 {
            oracle.switch.appctl(&["netdev-dummy/receive", "p1", packet]);
        }
        probes += 1;
        let printed = std::fs::read_to_string(&err).unwrap();
        printed.contains("NXT_PACKET_IN2").then_some(())
    });
    oracle.theirs(&["--strict", "del-flows", "br0", "table=0,priority=99"], None);
    told.push(tell(&[
        "ofctl/packet-out",
        "in_port=1 packet=ffffffffffff0000000000020806 actions=2",
    ]));
    told.push(tell(&["ofctl/packet-out", "foo"]));
    told.push(tell(&["ofctl/barrier"]));
    told.push(tell(&["exit"]));
    let output = monitor.wait_with_output().unwrap();
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let lines = text.lines().filter(|line| !is_log(line));
        let lines = lines.map(|line| match line.split_once("(xid=") {
            Some((before, rest)) => format!("{before}{}", rest.split_once(')').map_or("", |(_, rest)| rest)),
            None => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    (text(&output.stdout), text(&std::fs::read(&err).unwrap()), told)
}

#[test]
fn a_monitor_tells_what_ovs_ofctl_tells() {
    skip!(unless "ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "setpriv");
    let oracle = Oracle::new();
    for version in [("OpenFlow10", "0102000800000009"), ("OpenFlow14", "0502000800000009")] {
        let theirs = monitored(&oracle, Command::new("ovs-ofctl"), version);
        oracle.theirs(&["del-flows", "br0"], None);
        let mut command = Command::new(tool());
        command.arg("ovs-ofctl");
        let ours = monitored(&oracle, command, version);
        oracle.theirs(&["del-flows", "br0"], None);
        assert_eq!(theirs, ours);
        assert!(ours.1.contains("NXT_PACKET_IN2"), "{}", ours.1);
        assert!(ours.1.contains("event=ADDED table=4"), "{}", ours.1);
    }
}
