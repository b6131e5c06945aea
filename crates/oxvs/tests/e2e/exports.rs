//! Flow export: the same packets through this switch and Debian's Open vSwitch, and what tshark
//! reads in the datagrams of both.

use crate::fixture::start;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;
use testkit::{Collector, Options, Packet, Rng, Vswitch, dissect, mac, skip};

/// Long enough for megaflows to end and for exporters to tell it.
const QUIET: Duration = Duration::from_secs(3);

/// A switch with dummies `p1` to `p3` and a rule for each kind of destination, and its collector.
struct Side {
    switch: Vswitch,
    collector: Collector,
}

impl Side {
    fn new(switch: Vswitch) -> Side {
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
    fn export(&self, column: &str, table: &str, settings: &str) {
        let target = self.collector.target();
        self.switch.vsctl(&format!(
            "-- --id=@e create {table} targets=\"{target}\" {settings} -- set bridge br0 {column}=@e"
        ));
    }

    fn receive(&self, packets: &[(usize, String)]) {
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
        let payload = vec![7; rng.below(200)];
        let packet = match rng.below(4) {
            0 => packet.tcp(sport, dport, [2, 16, 24, 17][rng.below(4)], &payload),
            1 => packet.echo(1, 1, &payload),
            _ => packet.udp(sport, dport, &payload),
        };
        all.push((port, packet.padded().hex()));
    }
    all
}

fn both() -> [Side; 2] {
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
            let datagrams = side.collector.take(QUIET, |_| false);
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
            let datagrams = side.collector.take(QUIET, |_| false);
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
