//! The same random configurations and packets through the switch under test and Debian's Open
//! vSwitch: each port's output must be the same, byte for byte, also after changes to the
//! configuration and moves of addresses.
//!
//! This tests the whole path with caches. The crate `switch` tests single decisions, with corner
//! cases that differ from Open vSwitch; configurations and packets here avoid those: no tunnels, no
//! double tags.

use crate::fixture::start;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use testkit::{Options, Packet, Rng, Unixctl, Vswitch, mac, one_in, pcap, skip};

/// Configurations tried in the long tests; `OXVS_SOAK` multiplies them.
const CASES: u64 = 12;
/// Packets sent through each, with changes to the configuration between them.
const PACKETS: usize = 40;

const PORTS: [&str; 6] = ["p1", "p2", "p3", "p4", "p5", "q1"];
const VLANS: [u16; 4] = [1, 10, 20, 4095];

#[test]
fn packets_come_out_where_open_vswitch_sends_them() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    compare(false);
}

#[test]
fn mirrors_copy_what_those_of_open_vswitch_copy() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    compare(true);
}

fn compare(mirrored: bool) {
    let mut pair = Pair::start();
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let first = number("OXVS_SEED").unwrap_or(1);
    let soak = number("OXVS_SOAK");
    let seeds = first..first + CASES * soak.unwrap_or(1);
    for seed in one_in(if soak.is_some() { 1 } else { 3 }, seeds) {
        // A packet that waits in a queue while the next is sent is no fault: only a difference that
        // repeats with slow sending is.
        if let Err(quick) = pair.case(seed, mirrored, Duration::from_millis(4)) {
            println!("seed {seed}, once more and slowly, after\n{quick}");
            if let Err(fault) = pair.case(seed, mirrored, Duration::from_millis(60)) {
                panic!("OXVS_SEED={seed} shows it:\n{fault}");
            }
        }
    }
}

/// Both switches.
struct Pair {
    oracle: Side,
    mine: Side,
}

struct Side {
    switch: Vswitch,
    control: Unixctl,
    outputs: BTreeMap<&'static str, pcap::Tail>,
}

/// Output by port.
type Output = BTreeMap<&'static str, Vec<Vec<u8>>>;

impl Side {
    fn new(switch: Vswitch) -> Side {
        let control = switch.unixctl();
        Side {
            switch,
            control,
            outputs: BTreeMap::new(),
        }
    }

    /// Makes the bridges again, with new captures.
    fn rebuild(&mut self, seed: u64) {
        self.switch.vsctl("--if-exists del-br br0 -- --if-exists del-br br1");
        self.switch.vsctl(
            "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=standalone \
             -- add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=standalone \
             -- add-port br0 to1 -- set interface to1 type=patch options:peer=to0 \
             -- add-port br1 to0 -- set interface to0 type=patch options:peer=to1",
        );
        for port in PORTS {
            let file = self.switch.sandbox.path(&format!("{port}-{seed}.tx"));
            let _ = std::fs::remove_file(&file);
            self.switch.vsctl(&format!(
                "add-port {} {port} -- set interface {port} type=dummy options:tx_pcap={}",
                bridge_of(port),
                file.display()
            ));
            self.outputs.insert(port, pcap::Tail::new(file));
        }
    }

    fn send(&mut self, port: &str, hex: &str) {
        let sent = self.control.call("netdev-dummy/receive", &[port, hex]);
        sent.unwrap_or_else(|e| panic!("netdev-dummy/receive {port} {hex}: {e}"));
    }

    /// Flushes Open vSwitch's megaflows. It uses outdated ones for up to half a second after
    /// learning.
    fn forget_flows(&mut self) {
        let purged = self.control.call("revalidator/purge", &[]);
        purged.unwrap_or_else(|e| panic!("revalidator/purge: {e}"));
    }

    fn collect(&mut self, into: &mut Output) -> bool {
        let mut any = false;
        for (port, tail) in &mut self.outputs {
            let frames = tail.take();
            any |= !frames.is_empty();
            into.entry(port).or_default().extend(frames);
        }
        any
    }

    /// The output until no packet arrives for `quiet`, or until the expected amount if known.
    fn output(&mut self, quiet: Duration, expected: Option<&Output>) -> Output {
        let mut output = Output::new();
        let begin = Instant::now();
        let mut last = begin;
        let count = |o: &Output| o.values().map(Vec::len).sum::<usize>();
        loop {
            if self.collect(&mut output) {
                last = Instant::now();
            }
            let short = expected.is_some_and(|e| count(&output) < count(e)) && begin.elapsed() < Duration::from_secs(1);
            if last.elapsed() >= quiet && !short {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // Floods leave in any order of ports and bridges.
        output.values_mut().for_each(|frames| frames.sort());
        output
    }
}

impl Pair {
    fn start() -> Pair {
        Pair {
            oracle: Side::new(Vswitch::debian(Options::default())),
            mine: Side::new(start(Options::default())),
        }
    }

    /// One configuration with its packets; a difference is the error.
    fn case(&mut self, seed: u64, mirrored: bool, quiet: Duration) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        let mut story = String::new();
        self.oracle.rebuild(seed);
        self.mine.rebuild(seed);
        self.both(&bridges(&mut rng), &mut story);
        for port in PORTS {
            self.both(&port_settings(port, &mut rng), &mut story);
        }
        if mirrored {
            self.both("set interface to1 options:peer=none", &mut story);
        }
        for n in 0..PACKETS {
            if rng.chance(10) {
                let port = *rng.pick(&PORTS);
                self.both(&port_settings(port, &mut rng), &mut story);
            }
            if mirrored && (n == 0 || rng.chance(15)) {
                let bridge = if rng.chance(75) { "br0" } else { "br1" };
                let mirrors = mirrors(bridge, &mut rng);
                self.both(&mirrors, &mut story);
                let all = mirrors.contains("select_all");
                let rule: &&str = if all { &RULES[0] } else { rng.pick(&RULES) };
                self.rule(bridge, rule, &mut story);
            }
            let port = *rng.pick(&PORTS);
            let packet = packet(&mut rng);
            let hex = packet.hex();
            story += &format!("packet into {port}: {hex}\n");
            self.oracle.forget_flows();
            self.oracle.send(port, &hex);
            let expected = self.oracle.output(quiet, None);
            self.mine.send(port, &hex);
            let found = self.mine.output(quiet, Some(&expected));
            if found != expected {
                let show = |o: &Output| {
                    let lines = o.iter().flat_map(|(p, fs)| fs.iter().map(move |f| (p, f)));
                    lines
                        .map(|(p, f)| format!("  {p} {}\n", testkit::to_hex(f)))
                        .collect::<String>()
                };
                let tables = |side: &Side| {
                    let table = |bridge| side.switch.appctl(&["fdb/show", bridge]);
                    let flows = side.switch.appctl(&["dpctl/dump-flows"]);
                    format!("br0\n{}br1\n{}megaflows\n{flows}", table("br0"), table("br1"))
                };
                return Err(format!(
                    "{story}Open vSwitch:\n{}here:\n{}Open vSwitch's tables:\n{}here:\n{}",
                    show(&expected),
                    show(&found),
                    tables(&self.oracle),
                    tables(&self.mine),
                ));
            }
        }
        Ok(())
    }

    /// Gives a bridge of both one rule beside NORMAL.
    fn rule(&mut self, bridge: &str, rule: &str, story: &mut String) {
        *story += &format!("ovs-ofctl add-flow {bridge} {rule}\n");
        for side in [&self.oracle, &self.mine] {
            let rules = [
                ["del-flows", bridge, "table=0"],
                ["add-flow", bridge, "priority=0,actions=NORMAL"],
                ["add-flow", bridge, rule],
            ];
            for words in rules {
                side.switch.tool("ovs-ofctl", &words).expect_ok();
            }
        }
    }

    /// Configures both. Flushes learned addresses: Open vSwitch sends to a learned port packets
    /// that it would no longer flood there.
    fn both(&mut self, command: &str, story: &mut String) {
        *story += &format!("ovs-vsctl {command}\n");
        for side in [&mut self.oracle, &mut self.mine] {
            side.switch.vsctl(command);
            let flushed = side.control.call("fdb/flush", &[]);
            flushed.unwrap_or_else(|e| panic!("fdb/flush: {e}"));
        }
    }
}

fn bridge_of(port: &str) -> &'static str {
    if port.starts_with('q') { "br1" } else { "br0" }
}

fn bridges(rng: &mut Rng) -> String {
    let mut words = Vec::new();
    for bridge in ["br0", "br1"] {
        let mut settings = format!("set bridge {bridge} fail_mode=standalone");
        if rng.chance(25) {
            settings += &format!(" flood_vlans={}", rng.pick(&VLANS[..3]));
        }
        if rng.chance(25) {
            settings += " other_config:forward-bpdu=true";
        }
        words.push(settings);
    }
    words.join(" -- ")
}

/// A new random VLAN configuration of a port.
fn port_settings(port: &str, rng: &mut Rng) -> String {
    let columns = ["tag", "trunks", "vlan_mode", "other_config"];
    let mut words = columns.map(|c| format!("clear port {port} {c}")).join(" -- ");
    words += &format!(" -- set port {port}");
    let mode = *rng.pick(&["", "access", "trunk", "native-tagged", "native-untagged"]);
    if !mode.is_empty() {
        words += &format!(" vlan_mode={mode}");
    }
    // A native port without a tag has no defined meaning.
    let needs_tag = mode.starts_with("native");
    if needs_tag || rng.chance(if mode.is_empty() { 40 } else { 85 }) {
        words += &format!(" tag={}", rng.pick(&VLANS[..3]));
    }
    if rng.chance(40) {
        words += &format!(" trunks={}", vlans(rng));
    }
    if rng.chance(30) {
        words += &format!(
            " other_config:priority-tags={}",
            rng.pick(&["never", "if-nonzero", "always", "true"])
        );
    }
    format!(
        "{words} protected={} external_ids:n={}",
        rng.chance(15),
        rng.below(1000)
    )
}

/// Rules that mirrored packets meet.
const RULES: [&str; 6] = [
    "priority=1,dl_vlan=20,actions=drop",
    "priority=1,dl_vlan=10,actions=mod_vlan_vid:20,NORMAL",
    "priority=1,dl_dst=ff:ff:ff:ff:ff:ff,actions=LOCAL,ALL",
    "priority=1,ip,actions=mod_nw_tos:32,NORMAL,strip_vlan,FLOOD",
    "priority=1,ip,actions=output:2,mod_vlan_vid:10,NORMAL",
    "priority=1,arp,actions=IN_PORT",
];

/// A mirror of a bridge, or two that do not copy each other's copies: their order, which is that of
/// the UUIDs of their rows, would matter. Open vSwitch does not mirror what patch
/// ports carry: they carry nothing here. Of
/// several outputs of a packet, the first is mirrored, and floods have their own order: a mirror
/// selects one destination.
fn mirrors(bridge: &str, rng: &mut Rng) -> String {
    let ports: &[&str] = if bridge == "br0" {
        &["p1", "p2", "p3", "p4", "p5", "br0"]
    } else {
        &["q1", "br1"]
    };
    let mut words = format!("clear bridge {bridge} mirrors");
    for port in ports {
        words += &format!(" -- --id=@{port} get port {port}");
    }
    let outputs = match rng.below(4) {
        0 if bridge == "br0" => vec!["output_port=@p4".to_owned(), "output_port=@p5".to_owned()],
        1 => vec![format!("output_vlan={}", rng.pick(&VLANS[..3]))],
        _ => vec![format!("output_port=@{}", rng.pick(ports))],
    };
    let two = outputs.len() == 2;
    let list = |rng: &mut Rng, most: usize| {
        let ports = ports
            .iter()
            .filter(|port| !two || !outputs.iter().any(|out| out.ends_with(**port)));
        let some = ports.filter(|_| rng.chance(30)).map(|port| format!("@{port}"));
        format!("[{}]", some.take(most).collect::<Vec<_>>().join(","))
    };
    let mut names = Vec::new();
    for (n, output) in outputs.iter().enumerate() {
        words += &format!(" -- --id=@m{n} create mirror name=m{n} {output}");
        if !two && rng.chance(30) {
            words += " select_all=true";
        } else {
            words += &format!(" select_src_port={} select_dst_port={}", list(rng, 9), list(rng, 1));
        }
        if rng.chance(30) {
            words += &format!(" select_vlan={}", vlans(rng));
        }
        if rng.chance(20) {
            words += " snaplen=40";
        }
        names.push(format!("@m{n}"));
    }
    format!("{words} -- set bridge {bridge} mirrors={}", names.join(","))
}

fn vlans(rng: &mut Rng) -> String {
    let mut set: Vec<String> = VLANS[..3]
        .iter()
        .filter(|_| rng.chance(50))
        .map(u16::to_string)
        .collect();
    if set.is_empty() {
        set.push("0".to_owned());
    }
    set.join(",")
}

/// A frame that VLANs and learning treat differently.
fn packet(rng: &mut Rng) -> Packet {
    let src = mac(1 + rng.below(5) as u32);
    let dst = match rng.below(10) {
        0 | 1 => [0xff; 6],
        2 => [0x01, 0x00, 0x5e, 0, 0, 9],
        3 => [0x01, 0x80, 0xc2, 0, 0, *rng.pick(&[0u8, 0x0e, 0x10])],
        _ => mac(1 + rng.below(5) as u32),
    };
    let mut packet = Packet::new(src, dst);
    if rng.chance(60) {
        let vid = *rng.pick(&[0, 1, 10, 20, 20, 30]);
        let priority = *rng.pick(&[0u16, 0, 0, 5]);
        packet = packet.tag(0x8100, priority << 13 | vid);
    }
    let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    match rng.below(4) {
        0 => packet.arp(testkit::ArpOp::Request, a, b),
        1 => packet.ipv4(a, b).udp(1, 2, b"data"),
        2 => packet.ipv4(a, b).tcp(1, 2, 2, b""),
        _ => packet.payload(0x88b5, b"payload"),
    }
    .padded()
}
