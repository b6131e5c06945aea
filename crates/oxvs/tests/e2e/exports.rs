//! Flow export: the same packets through this switch and Debian's Open vSwitch, and what tshark
//! reads in the datagrams of both.

use crate::fixture::start;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;
use testkit::ipfix::{Reader, Record};
use testkit::{
    Collector, Daemon, Options, Packet, Rng, Sandbox, Vswitch, dissect, eventually, mac, one_in, run, skip, to_hex,
};

/// Long enough for megaflows to end and for exporters to tell it.
pub(crate) const QUIET: Duration = Duration::from_millis(2500);

/// Long enough for samples, which wait a second for others.
pub(crate) const SOON: Duration = Duration::from_millis(1300);

/// A switch with dummies `p1` to `p3` and a rule for each kind of destination, and its collector.
pub(crate) struct Side {
    pub(crate) switch: Vswitch,
    pub(crate) collector: Collector,
}

impl Side {
    pub(crate) fn new(switch: Vswitch) -> Side {
        let side = Side {
            switch,
            collector: Collector::new(),
        };
        side.switch.vsctl(
            "set open_vswitch . other_config:max-idle=500 -- add-br br0 \
             -- set bridge br0 datapath_type=dummy fail_mode=secure other_config:datapath-id=1",
        );
        for (number, vlan) in [(1, ""), (2, "tag=5"), (3, "")] {
            self::add_port(&side.switch, number, vlan);
        }
        for rule in [
            "priority=0,actions=drop",
            "nw_dst=10.0.1.0/24,ip,actions=output:2",
            "nw_dst=10.0.2.0/24,ip,actions=2,3",
            "nw_dst=10.0.3.0/24,ip,actions=normal",
            "nw_dst=10.0.4.0/24,ip,actions=mod_vlan_vid:9,mod_vlan_pcp:3,output:3",
            "nw_dst=10.0.5.0/24,ip,actions=local",
            "nw_dst=10.0.6.0/24,ip,actions=flood",
        ] {
            let done = side.switch.tool("ovs-ofctl", &["add-flow", "br0", rule]);
            done.expect_ok();
        }
        side
    }

    /// Points a new row of a table at the collector.
    pub(crate) fn export(&self, column: &str, table: &str, settings: &str) {
        let target = self.collector.target();
        self.switch.vsctl(&format!(
            "-- --id=@e create {table} targets=\"{target}\" {settings} -- set bridge br0 {column}=@e"
        ));
    }

    pub(crate) fn receive(&self, packets: &[(usize, String)]) {
        let mut control = self.switch.unixctl();
        for (port, packet) in packets {
            let sent = control.call("netdev-dummy/receive", &[&format!("p{port}"), packet]);
            sent.unwrap_or_else(|error| panic!("{packet}: {error}"));
        }
    }
}

fn add_port(switch: &Vswitch, number: usize, vlan: &str) {
    switch.vsctl(&format!(
        "add-port br0 p{number} {vlan} -- set interface p{number} type=dummy ofport_request={number}"
    ));
}

/// Packets of some flows, several of each, in no order.
fn packets(rng: &mut Rng, count: usize) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for _ in 0..count {
        let port = [1, 3][rng.below(2)];
        let (src, dst) = (
            Ipv4Addr::new(10, 9, 0, rng.below(3) as u8),
            Ipv4Addr::new(10, 0, rng.below(8) as u8, 1),
        );
        let packet = Packet::new(mac(rng.below(3) as u32 + 1), mac(9)).ipv4(src, dst);
        let (sport, dport) = (rng.below(3) as u16 + 1000, rng.below(2) as u16 + 80);
        // Long enough that no frame is filled up.
        let payload = vec![7; 30 + rng.below(200)];
        let packet = match rng.below(4) {
            0 => packet.tcp(sport, dport, [2, 16, 24, 17][rng.below(4)], &payload),
            1 => packet.echo(1, 1, &payload),
            _ => packet.udp(sport, dport, &payload),
        };
        all.push((port, packet.hex()));
    }
    all
}

pub(crate) fn both() -> [Side; 2] {
    [Vswitch::debian(Options::default()), start(Options::default())].map(Side::new)
}

#[test]
fn netflow_counts_the_flows_that_open_vswitch_counts() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv", "tshark");
    const FIELDS: [&str; 14] = [
        "cflow.engine_type",
        "cflow.engine_id",
        "cflow.srcaddr",
        "cflow.dstaddr",
        "cflow.inputint",
        "cflow.outputint",
        "cflow.packets",
        "cflow.octets",
        "cflow.srcport",
        "cflow.dstport",
        "cflow.tcpflags",
        "cflow.protocol",
        "cflow.tos",
        "cflow.sequence",
    ];
    for (seed, settings) in [
        (1, "engine_type=7 engine_id=5"),
        (2, "engine_type=0 engine_id=200 add_id_to_interface=true"),
    ] {
        let sent = packets(&mut Rng::new(seed), 120);
        let [theirs, ours] = both().map(|side| {
            side.export("netflow", "netflow", settings);
            side.receive(&sent);
            let datagrams = side.collector.take(QUIET);
            let read = dissect(&datagrams, "cflow", &FIELDS);
            // A record has one value of each field but the header's, which come first and last.
            let mut sums = BTreeMap::<Vec<String>, (u64, u64)>::new();
            let (mut sequence, mut sequences) = (0, Vec::new());
            for fields in &read {
                sequences.push((fields[13][0].clone(), sequence.to_string()));
                for n in 0..fields[2].len() {
                    let key = (0..13).filter(|field| !matches!(field, 6 | 7));
                    let key = key.map(|field| fields[field][if field < 2 { 0 } else { n }].clone());
                    let number = |field: usize| fields[field][n].parse::<u64>().unwrap();
                    let sum = sums.entry(key.collect()).or_default();
                    *sum = (sum.0 + number(6), sum.1 + number(7));
                }
                sequence += fields[2].len();
            }
            (sums, sequences)
        });
        // Open vSwitch's number is that of a datagram's last flow, which collectors take for a gap.
        for (told, before) in &ours.1 {
            assert_eq!(told, before, "the flows before a datagram's");
        }
        let (theirs, ours) = (theirs.0, ours.0);
        let lines = |sums: &BTreeMap<Vec<String>, (u64, u64)>| -> Vec<String> {
            sums.iter()
                .map(|(key, sum)| format!("{} {sum:?}", key.join(" ")))
                .collect()
        };
        assert_eq!(lines(&theirs).join("\n"), lines(&ours).join("\n"), "{settings}");
        assert_eq!(theirs.values().map(|sum| sum.0).sum::<u64>(), 120);
    }
}

#[test]
fn sflow_samples_what_open_vswitch_samples() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv", "tshark");
    const FIELDS: [&str; 13] = [
        "sflow_245.agent",
        "sflow.flow_sample.sequence_number",
        "sflow.flow_sample.sampling_rate",
        "sflow.flow_sample.sample_pool",
        "sflow.flow_sample.dropped_packets",
        "sflow.flow_sample.input_interface_value",
        "sflow.flow_sample.output_interface",
        "sflow_245.vlan.in",
        "sflow_245.vlan.out",
        "sflow_245.pri.out",
        "sflow_245.header.frame_length",
        "sflow_245.header.payload_stripped",
        "sflow_245.header",
    ];
    for (seed, settings, header) in [
        (1, "sampling=1 agent=127.0.0.9 polling=0", 128),
        (2, "sampling=1 header=64 agent=127.0.0.1 polling=0", 64),
    ] {
        let sent = packets(&mut Rng::new(seed), 60);
        let [theirs, ours] = both().map(|side| {
            side.export("sflow", "sflow", settings);
            side.receive(&sent);
            let datagrams = side.collector.take(SOON);
            let read = dissect(&datagrams, "sflow", &FIELDS);
            let (mut lines, mut number) = (Vec::new(), 0);
            for fields in &read {
                for n in 0..fields[1].len() {
                    let of = |field: usize| fields[field].get(n).cloned().unwrap_or_default();
                    // Workers and Open vSwitch take the ports' packets in another order.
                    number += 1;
                    assert_eq!([of(1), of(3)], [number.to_string(), number.to_string()]);
                    // tshark shows what a header is filled up with, too.
                    let len: usize = of(10).parse::<usize>().unwrap() - 4;
                    let header = of(12)[..2 * len.min(header)].to_owned();
                    let others = [2, 4, 5, 6, 7, 8, 9, 10, 11].map(of).join(" ");
                    lines.push(format!("{} {others} {header}", fields[0].join(" ")));
                }
            }
            lines.sort();
            lines
        });
        assert_eq!(theirs.join("\n"), ours.join("\n"), "{settings}");
        assert_eq!(theirs.len(), 60);
    }
}

#[test]
fn sflow_tells_of_the_labels_that_open_vswitch_tells_of() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv", "tshark");
    let [theirs, ours] = both().map(|side| {
        side.export("sflow", "sflow", "sampling=1 agent=127.0.0.1 polling=0");
        for rule in [
            "priority=9,udp,in_port=1,actions=push_mpls:0x8847,set_field:100->mpls_label,set_field:5->mpls_tc,output:2",
            "priority=9,tcp,in_port=1,actions=push_mpls:0x8847,set_field:7->mpls_label,push_mpls:0x8847,set_field:8->mpls_label,output:2",
            "priority=9,icmp,in_port=1,actions=push_mpls:0x8847,pop_mpls:0x0800,output:2",
        ] {
            side.switch
                .tool("ovs-ofctl", &["-O", "OpenFlow13", "add-flow", "br0", rule])
                .expect_ok();
        }
        let packet = || Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let sent = [
            packet().udp(1, 2, b"x").padded().hex(),
            packet().tcp(1, 2, 0x10, b"x").padded().hex(),
            packet().echo(1, 2, b"x").padded().hex(),
        ];
        side.receive(&sent.map(|packet| (1, packet)));
        let datagrams = side.collector.take(SOON);
        // The structure of labels as it stands in the datagrams: format, length, content.
        let mut found = Vec::new();
        for datagram in &datagrams {
            for at in (0..datagram.len().saturating_sub(8)).step_by(4) {
                if datagram[at..at + 4] == 1006u32.to_be_bytes() {
                    let len = u32::from_be_bytes(datagram[at + 4..at + 8].try_into().unwrap()) as usize;
                    found.push(datagram[at + 8..at + 8 + len].to_vec());
                }
            }
        }
        found
    });
    assert_eq!(theirs, ours);
    assert_eq!(ours.len(), 2, "{ours:?}");
}

/// Fields whose values are the same in Open vSwitch: all but times, counts of the whole exporter
/// where a flow's belong, and what was dropped.
const COMPARED: [u32; 45] = [
    138,
    61,
    56,
    80,
    256,
    240,
    10,
    368,
    82,
    83,
    14,
    369,
    58,
    243,
    244,
    60,
    192,
    4,
    195,
    196,
    5,
    8,
    12,
    27,
    28,
    31,
    7,
    11,
    176,
    177,
    178,
    179,
    0x10000 + 891,
    0x10000 + 892,
    0x10000 + 893,
    0x10000 + 894,
    0x10000 + 895,
    0x10000 + 896,
    0x10000 + 897,
    0x10000 + 898,
    2,
    352,
    1,
    198,
    25,
];

/// What a switch's IPFIX tells of packets: templates, and records as text.
pub(crate) fn ipfix(side: &Side, sent: &[(usize, String)], lax: bool) -> (BTreeSet<String>, Vec<String>) {
    side.receive(sent);
    let messages = side.collector.take(SOON);
    let mut reader = Reader {
        lax,
        ..Reader::default()
    };
    let line = |record: &Record| {
        let fields = record.1.iter().filter(|(field, _)| COMPARED.contains(field));
        let fields = fields.map(|(field, value)| format!("{field}={}", to_hex(value)));
        format!("{}: {}", record.0, fields.collect::<Vec<_>>().join(" "))
    };
    let records = reader.read(&messages);
    let mut records: Vec<String> = records.iter().filter(|record| record.0 != 462).map(line).collect();
    records.sort();
    let template = |((_, number), fields): (&(u32, u16), &Vec<_>)| format!("{number}: {fields:?}");
    let templates: BTreeSet<String> = reader.templates.iter().map(template).collect();
    // Open vSwitch's messages of a second domain have no templates.
    if !lax {
        dissect(&messages, "cflow", &["cflow.version"]);
    }
    (templates, records)
}

/// The lines that only one side has, or has more often.
pub(crate) fn only_in_one(theirs: &[String], ours: &[String]) -> Vec<String> {
    let mut lines = BTreeMap::<&String, i32>::new();
    theirs.iter().for_each(|line| *lines.entry(line).or_default() -= 1);
    ours.iter().for_each(|line| *lines.entry(line).or_default() += 1);
    let differ = lines.into_iter().filter(|(_, count)| *count != 0);
    differ.map(|(line, count)| format!("{count:+} {line}")).collect()
}

#[test]
fn ipfix_tells_what_open_vswitch_tells() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv", "tshark");
    for (seed, settings) in [
        (1, "sampling=1 obs_domain_id=3 obs_point_id=4"),
        (2, "sampling=1 other_config:virtual_obs_id=abc"),
        (
            3,
            "sampling=1 obs_domain_id=1 cache_active_timeout=1 cache_max_flows=1000",
        ),
    ] {
        let sent = packets(&mut Rng::new(seed), 60);
        let [theirs, ours] = both();
        let [theirs, ours] = [(theirs, true), (ours, false)].map(|(side, lax)| {
            side.export("ipfix", "ipfix", settings);
            ipfix(&side, &sent, lax)
        });
        assert_eq!(theirs.0, ours.0, "{settings}");
        assert_eq!(only_in_one(&theirs.1, &ours.1), Vec::<String>::new(), "{settings}");
        assert!(ours.1.len() > 30);
    }
}

#[test]
fn the_action_sample_tells_what_open_vswitchs_tells() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv", "tshark");
    let sent = packets(&mut Rng::new(9), 60);
    let [theirs, ours] = both();
    let [theirs, ours] = [(theirs, true), (ours, false)].map(|(side, lax)| {
        for (rule, sample) in [
            (
                "nw_dst=10.0.1.0/24",
                "probability=65535,collector_set_id=1,obs_domain_id=7,obs_point_id=8",
            ),
            (
                "nw_dst=10.0.2.0/24",
                "probability=65535,collector_set_id=1,sampling_port=2,egress",
            ),
            (
                "nw_dst=10.0.3.0/24",
                "probability=65535,collector_set_id=1,sampling_port=1",
            ),
            (
                "nw_dst=10.0.4.0/24",
                "probability=65535,collector_set_id=2,sampling_port=3,ingress",
            ),
            ("nw_dst=10.0.5.0/24", "probability=65535,collector_set_id=99"),
        ] {
            let rule = format!("priority=60000,ip,{rule},actions=mod_vlan_vid:6,sample({sample}),strip_vlan,normal");
            side.switch.tool("ovs-ofctl", &["add-flow", "br0", &rule]).expect_ok();
        }
        let target = side.collector.target();
        side.switch.vsctl(&format!(
            "-- --id=@b get bridge br0 -- --id=@i create ipfix targets=\"{target}\" \
             -- create Flow_Sample_Collector_Set id=1 bridge=@b ipfix=@i \
             -- create Flow_Sample_Collector_Set id=2 bridge=@b ipfix=@i"
        ));
        ipfix(&side, &sent, lax)
    });
    assert_eq!(theirs.0, ours.0);
    assert_eq!(only_in_one(&theirs.1, &ours.1), Vec::<String>::new());
    assert!(ours.1.len() > 10);
}

/// A real collector that writes files.
pub(crate) struct RealCollector {
    daemon: Daemon,
    sandbox: Sandbox,
    pub(crate) target: String,
}

impl RealCollector {
    /// Starts `nfcapd` or `sfcapd`, or pmacct's `nfacctd` or `sfacctd`.
    pub(crate) fn start(program: &str) -> RealCollector {
        let sandbox = Sandbox::new();
        let target = Collector::new().target();
        let (_, port) = target.split_once(':').unwrap();
        let out = sandbox.arg("out");
        let command: Vec<String> = match program {
            "nfcapd" | "sfcapd" => {
                std::fs::create_dir(&out).unwrap();
                ["-b", "127.0.0.1", "-p", port, "-w", &out].map(str::to_owned).into()
            }
            _ => {
                let config = format!(
                    "daemonize: false\nplugins: print\naggregate: proto\nprint_output: csv\nprint_refresh_time: 1\n\
                     print_history: 1m\nprint_output_file: {out}\nprint_output_file_append: true\n\
                     {program}_ip: 127.0.0.1\n{program}_port: {port}\n"
                );
                std::fs::write(sandbox.path("config"), config).unwrap();
                vec!["-f".to_owned(), sandbox.arg("config")]
            }
        };
        let command: Vec<String> = [vec![program.to_owned()], command].concat();
        let daemon = Daemon::start(program, &command, &sandbox);
        eventually("the collector listens", || {
            let sockets = std::fs::read_to_string("/proc/net/udp").unwrap();
            let number: u16 = port.parse().unwrap();
            sockets.contains(&format!("0100007F:{number:04X}")).then_some(())
        });
        RealCollector {
            daemon,
            sandbox,
            target,
        }
    }

    /// Ends it; packets and bytes that it has counted.
    pub(crate) fn finish(mut self, nfdump: bool) -> (u64, u64) {
        // pmacct writes once a second.
        std::thread::sleep(Duration::from_millis(if nfdump { 200 } else { 2200 }));
        self.daemon.terminate();
        let (text, places) = if nfdump {
            let out = self.sandbox.arg("out");
            let text = run(&["nfdump", "-q", "-R", &out, "-o", "fmt:%pkt,%byt"]);
            (text, (0, 1))
        } else {
            (self.sandbox.read("out"), (1, 2))
        };
        let mut sum = (0, 0);
        for line in text.lines() {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let number = |place: usize| fields.get(place).and_then(|field| field.parse::<u64>().ok());
            if let (Some(packets), Some(bytes)) = (number(places.0), number(places.1)) {
                sum = (sum.0 + packets, sum.1 + bytes);
            }
        }
        sum
    }
}

#[test]
fn real_collectors_count_what_the_switch_carried() {
    skip!(unless "ovs-vsctl", "setpriv", "nfcapd", "sfcapd", "nfdump", "nfacctd", "sfacctd");
    let sent = packets(&mut Rng::new(5), 90);
    let frames: u64 = sent.iter().map(|(_, hex)| hex.len() as u64 / 2).sum();
    let datagrams = frames - 14 * 90;
    let cases = [
        ("nfcapd", "netflow", "", frames),
        ("nfacctd", "netflow", "", frames),
        (
            "nfcapd",
            "ipfix",
            "sampling=1 other_config:enable-output-sampling=false",
            datagrams,
        ),
        (
            "nfacctd",
            "ipfix",
            "sampling=1 cache_active_timeout=1 cache_max_flows=3 other_config:enable-output-sampling=false",
            datagrams,
        ),
        ("sfcapd", "sflow", "sampling=1 polling=1", frames),
        ("sfacctd", "sflow", "sampling=1 polling=1", frames),
    ];
    for (program, exporter, settings, bytes) in one_in(2, cases) {
        let collector = RealCollector::start(program);
        let side = Side::new(start(Options::default()));
        side.switch.vsctl(&format!(
            "-- --id=@e create {exporter} targets=\"{}\" {settings} -- set bridge br0 {exporter}=@e",
            collector.target
        ));
        side.receive(&sent);
        std::thread::sleep(if exporter == "netflow" { QUIET } else { SOON });
        let counted = collector.finish(program.contains("cap"));
        // pmacct counts an sFlow sample's IP packet, sfcapd its frame.
        let slack = if exporter == "sflow" { 18 * 90 } else { 0 };
        assert_eq!(counted.0, 90, "{program} of {exporter}: packets");
        assert!(
            counted.1.abs_diff(bytes) <= slack,
            "{program} of {exporter}: {} bytes for {bytes}",
            counted.1
        );
    }
}

#[test]
fn a_collector_that_is_gone_or_behind_the_switch_stops_nothing() {
    skip!(unless "ovs-vsctl", "setpriv");
    let side = Side::new(start(Options::default()));
    // Nobody listens there.
    side.switch.vsctl(
        "-- --id=@s create sflow targets=\"127.0.0.1:9\" sampling=1 \
         -- --id=@i create ipfix targets=\"127.0.0.1:9\",\"[::1]:9\" sampling=1 \
         -- --id=@n create netflow targets=\"127.0.0.1:9\" -- set bridge br0 sflow=@s ipfix=@i netflow=@n",
    );
    let sent = packets(&mut Rng::new(3), 50);
    for _ in 0..20 {
        side.receive(&sent);
    }
    let said = eventually("the log names the collector", || {
        let log = side.switch.sandbox.read("switch.log");
        log.contains("127.0.0.1:9: sending to collector failed").then_some(log)
    });
    assert!(
        said.lines()
            .filter(|line| line.contains("sending to collector"))
            .count()
            <= 8
    );
    // A datagram to a collector that crosses the bridge is not sampled: it would make another one.
    let to_collector = Packet::new(mac(1), mac(9)).ipv4(Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::LOCALHOST);
    let to_collector = to_collector.udp(1000, 9, &[1; 100]).hex();
    let asked = |side: &Side| {
        let done = side.switch.tool("ovs-ofctl", &["dump-ipfix-bridge", "br0"]).expect_ok();
        let (_, rest) = done.split_once("sampled pkts=").unwrap();
        rest.split_once(',').unwrap().0.parse::<u64>().unwrap()
    };
    let before = eventually("all samples are counted", || {
        let before = asked(&side);
        std::thread::sleep(Duration::from_millis(300));
        (before >= 1000 && before == asked(&side)).then_some(before)
    });
    side.receive(&[(1, to_collector)]);
    side.receive(&packets(&mut Rng::new(4), 1));
    let after = eventually("one more is counted", || {
        Some(asked(&side)).filter(|after| *after > before)
    });
    std::thread::sleep(Duration::from_millis(300));
    let last = asked(&side);
    assert!(last <= before + 4 && last == asked(&side), "{before}, {after}, {last}");
    // What cannot be read is named, and the rest goes on.
    side.switch.vsctl("set netflow . targets=\"nowhere\",\"127.0.0.1:9\"");
    side.switch.wait_for("bridge", "br0", "status", |status| {
        status.contains("NetFlow target nowhere: port must be specified")
    });
}

#[test]
fn ofctl_tells_what_ipfix_has_done() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let sent = packets(&mut Rng::new(6), 20);
    let [theirs, ours] = both().map(|side| {
        let ask = |command: &str| {
            let done = side.switch.tool("ovs-ofctl", &[command, "br0"]);
            // What was sent depends on how records are put together.
            let kept = done
                .stdout
                .lines()
                .map(|line| line.split("tx pkts").next().unwrap_or_default());
            let kept = kept.map(|line| line.split(", tx errs").next().unwrap_or_default().to_owned());
            (done.status, kept.collect::<Vec<_>>(), done.stderr.clone())
        };
        let mut said = vec![ask("dump-ipfix-bridge"), ask("dump-ipfix-flow")];
        side.export("ipfix", "ipfix", "sampling=1");
        said.push(ask("dump-ipfix-flow"));
        side.switch.vsctl(
            "-- --id=@b get bridge br0 -- --id=@i create ipfix targets=\"127.0.0.1:9\" \
             -- create Flow_Sample_Collector_Set id=7 bridge=@b ipfix=@i",
        );
        side.receive(&sent);
        side.collector.take(SOON);
        said.extend([ask("dump-ipfix-bridge"), ask("dump-ipfix-flow")]);
        said
    });
    assert_eq!(theirs, ours);
}
