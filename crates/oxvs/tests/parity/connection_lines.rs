//! Lines of FTP in several segments, through Open vSwitch's tracker and ours: which segments are
//! valid, and which data connections are related.

use crate::both::Both;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use testkit::{Packet, Vswitch, eventually, mac, pcap, skip};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// The client's translated address.
const OUTER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 80);

/// What leaves where: the name of the output, and the text of the segment.
type Left = BTreeMap<u16, Vec<(&'static str, String)>>;

/// Outputs by the state of a packet; new control connections leave by the second port.
const OUTPUTS: [(u16, &str, &str); 5] = [
    (2, "", "committed"),
    (3, "+new+rel", "related"),
    (4, "+new-rel", "new"),
    (5, "+inv", "invalid"),
    (6, "+est", "established"),
];

/// One side of a control connection says something.
struct Case {
    name: String,
    from_server: bool,
    segments: Vec<String>,
}

/// The data port that a case announces.
fn data_port(case: usize) -> u16 {
    78 * 256 + 100 + case as u16
}

fn control_port(case: usize) -> u16 {
    3000 + case as u16
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (from_server, line) in [(false, "PORT 10,9,0,1,78,"), (true, "227 Entering (10,9,0,2,78,")] {
        let end = if from_server { ").\r\n" } else { "\r\n" };
        let len = line.len() + 3 + end.len();
        let mut add = |name: String, text: &dyn Fn(&str) -> Vec<String>| {
            let line = format!("{line}{}{end}", 100 + cases.len());
            let segments = text(&line);
            cases.push(Case {
                name,
                from_server,
                segments,
            });
        };
        for cut in 0..len {
            add(format!("cut at {cut}"), &|line| {
                let parts = [&line[..cut], &line[cut..]].map(str::to_owned);
                parts.into_iter().filter(|part| !part.is_empty()).collect()
            });
        }
        add("in three".to_owned(), &|line| {
            [&line[..3], &line[3..9], &line[9..]].map(str::to_owned).to_vec()
        });
        add("behind another line".to_owned(), &|line| {
            vec![format!("200 NOOP\r\n{line}")]
        });
        add("before another line".to_owned(), &|line| {
            vec![format!("{line}200 NOOP\r\n")]
        });
    }
    cases
}

fn configure(switch: &Vswitch, translated: bool) {
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure");
    for port in 1..=6 {
        let capture = switch.sandbox.arg(&format!("p{port}.pcap"));
        switch.vsctl(&format!(
            "add-port br0 p{port} -- set interface p{port} type=dummy ofport_request={port} options:tx_pcap={capture}"
        ));
    }
    let (nat, source) = match translated {
        true => (",nat", format!(",nat(src={OUTER})")),
        false => ("", String::new()),
    };
    let mut rules = vec![
        format!("table=0,tcp,actions=ct(zone=1,table=1{nat})"),
        format!(
            "table=1,priority=40000,in_port=1,ct_state=+new-rel,tcp,tp_dst=21,actions=ct(commit,zone=1,alg=ftp{source}),2"
        ),
    ];
    for (port, state, _) in &OUTPUTS[1..] {
        rules.push(format!("table=1,ct_state={state},tcp,actions=output:{port}"));
    }
    for rule in rules {
        switch.tool("ovs-ofctl", &["add-flow", "br0", &rule]).expect_ok();
    }
}

/// A packet from the server or the client: its ports as the client sees them, flags, numbers, text.
type Sent = (bool, (u16, u16), u8, (u32, u32), String);

/// The packets of a case, in order.
fn packets(number: usize, case: &Case) -> Vec<Sent> {
    let ports = (control_port(number), 21);
    let mut packets = vec![
        (false, ports, 2, (100, 0), String::new()),
        (true, ports, 0x12, (500, 101), String::new()),
        (false, ports, 0x10, (101, 501), String::new()),
    ];
    let (mut own, other) = if case.from_server { (501, 101) } else { (101, 501) };
    for text in &case.segments {
        packets.push((case.from_server, ports, 0x18, (own, other), text.clone()));
        own += text.len() as u32;
    }
    let ports = match case.from_server {
        true => (40_000 + number as u16, data_port(number)),
        false => (data_port(number), 20),
    };
    packets.push((!case.from_server, ports, 2, (9, 0), "data".to_owned()));
    packets
}

/// Sends the packets of the cases, and gives what leaves of each case.
fn run(switch: &Vswitch, cases: &[Case], translated: bool) -> Left {
    let seen = if translated { OUTER } else { CLIENT };
    let mut control = switch.unixctl();
    let mut steps: Vec<_> = (0..).zip(cases).map(|(number, case)| packets(number, case)).collect();
    let mut sent = 0;
    let mut left = Left::new();
    while steps.iter().any(|packets| !packets.is_empty()) {
        for packets in steps.iter_mut().filter(|packets| !packets.is_empty()) {
            let (from_server, ports, flags, numbers, text) = packets.remove(0);
            let (src, dst, ports) = match from_server {
                false => (CLIENT, SERVER, ports),
                true => (SERVER, seen, (ports.1, ports.0)),
            };
            let packet = Packet::new(mac(1), mac(2)).ipv4(src, dst);
            let packet = packet.tcp_at(ports.0, ports.1, flags, numbers, text.as_bytes());
            let port = if from_server { "p2" } else { "p1" };
            control.call("netdev-dummy/receive", &[port, &packet.hex()]).unwrap();
            sent += 1;
        }
        // The two ports of a switch are not polled in the order of what they receive.
        left = eventually("all packets leave", || {
            let (count, left) = leaves(switch, cases.len());
            (count == sent).then_some(left)
        });
    }
    left
}

/// How many packets have left, and what of each case.
fn leaves(switch: &Vswitch, cases: usize) -> (usize, Left) {
    let (mut count, mut left) = (0, Left::new());
    for (port, _, name) in OUTPUTS {
        for frame in pcap::frames(&switch.sandbox.path(&format!("p{port}.pcap"))) {
            count += 1;
            let ports = [34, 36].map(|at| u16::from_be_bytes([frame[at], frame[at + 1]]));
            let is_of = |case: &usize| {
                let own = [control_port(*case), data_port(*case)];
                own.iter().any(|port| ports.contains(port))
            };
            let case = (0..cases).find(is_of).unwrap();
            let text = String::from_utf8_lossy(&frame[54..]).into_owned();
            left.entry(case as u16).or_default().push((name, text));
        }
    }
    (count, left)
}

#[test]
fn lines_of_ftp_in_segments_are_read_where_open_vswitch_reads_none() {
    skip!(unless "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let cases = cases();
    for translated in [false, true] {
        let both = Both::start(str::to_owned);
        let [theirs, ours] = both.switches.each_ref().map(|switch| {
            configure(switch, translated);
            run(switch, &cases, translated)
        });
        for (number, case) in cases.iter().enumerate() {
            let (theirs, ours) = (&theirs[&(number as u16)], &ours[&(number as u16)]);
            let is_related = |left: &[(&str, String)]| left.contains(&("related", "data".to_owned()));
            let name = format!(
                "translated: {translated}, from the server: {}, {}",
                case.from_server, case.name
            );
            let behind = case.name.starts_with("behind");
            // Open vSwitch reads the beginning of a segment, up to what follows the last number.
            let numbers_end = if case.from_server { 29 } else { 20 };
            let at_once = !behind && case.segments[0].len() > numbers_end;
            assert_eq!(is_related(theirs), at_once, "{name}: {theirs:?}");
            // We read all lines, but change one only if a segment has all of it.
            let can_change = !translated || case.from_server || case.segments.len() == 1;
            assert_eq!(is_related(ours), can_change, "{name}: {ours:?}");
            // Segments pass whatever is in them.
            assert!(ours.iter().all(|(output, _)| *output != "invalid"), "{name}: {ours:?}");
        }
    }
}
