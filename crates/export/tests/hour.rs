//! An hour of virtual time: tshark reads every datagram, and finds in them what was put in.

use export::ipfix::{self, Addresses, Headers, Interface, Ip, Transport};
use export::netflow::{self, Counts, Flow};
use export::sflow::{self, BridgeCounters, Direction, FlowSample, PortCounters, Source};
use export::{Encapsulation, Tunnel};
use nanos::Nanos;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use testkit::{Packet, Rng, dissect, mac, skip};

const HOUR: u64 = 3600;

/// The time since 1970 at a second of the hour.
fn wall(second: u64) -> Duration {
    Duration::from_secs(1_700_000_000 + second)
}

/// No tunnel, or one over IPv4 or IPv6.
fn tunnel(rng: &mut Rng) -> Option<Tunnel> {
    let (src, dst): (IpAddr, IpAddr) = match rng.chance(70) {
        true => (
            Ipv4Addr::LOCALHOST.into(),
            Ipv4Addr::from_bits(rng.below(5) as u32).into(),
        ),
        false => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::UNSPECIFIED.into()),
    };
    rng.chance(60).then(|| Tunnel {
        src,
        dst,
        protocol: 17,
        tos: rng.number() as u8,
        src_port: 50_000,
        dst_port: 4789,
        key: rng.number() >> rng.below(64),
        encapsulation: *rng.pick(&[
            None,
            Some(Encapsulation::Vxlan),
            Some(Encapsulation::Gre),
            Some(Encapsulation::Geneve),
        ]),
    })
}

/// The sum of a field's values.
fn sum(read: &[Vec<Vec<String>>], field: usize) -> u64 {
    let values = read.iter().flat_map(|fields| &fields[field]);
    values.map(|value| value.parse::<u64>().expect("a number")).sum()
}

/// The number of a field's values.
fn count(read: &[Vec<Vec<String>>], field: usize) -> usize {
    read.iter().map(|fields| fields[field].len()).sum()
}

#[test]
fn an_hour_of_netflow_has_all_packets_and_bytes() {
    skip!(unless "tshark");
    let settings = netflow::Settings {
        engine_id: 3,
        add_id_to_interface: true,
        active_timeout: Some(Duration::from_secs(60)),
        ..netflow::Settings::default()
    };
    let mut rng = Rng::new(1);
    let mut exporter = netflow::Exporter::new(settings, Nanos::ZERO);
    let (mut datagrams, mut packets, mut bytes) = (Vec::new(), 0, 0);
    for second in 0..HOUR {
        let now = Nanos::from_secs(second);
        for _ in 0..5 {
            let flow = Flow {
                input: rng.below(600) as u16,
                src: Ipv4Addr::from_bits(0x0a00_0000 + rng.below(3) as u32),
                dst: Ipv4Addr::from_bits(0x0a00_0100),
                protocol: *rng.pick(&[1, 6, 17, 132, 47]),
                tos: 0x48,
                src_port: rng.number() as u16 & 3,
                dst_port: 80,
            };
            // Some flows carry more than 32 bits count.
            let shift = if rng.chance(1) { 30 } else { 4 };
            let counts = Counts {
                output: *rng.pick(&[1, 2, Counts::FLOODED, Counts::SEVERAL, Counts::DROPPED]),
                packets: 1 + rng.number() % 50,
                bytes: (64 + rng.number() % 1400) << shift,
                tcp_flags: rng.number() as u8,
                used: now,
            };
            (packets, bytes) = (packets + counts.packets, bytes + counts.bytes);
            exporter.update(flow, &counts, now);
        }
        datagrams.extend(exporter.run(now, wall(second)));
    }
    datagrams.extend(exporter.flush(Nanos::from_secs(HOUR), wall(HOUR)));
    let read = dissect(
        &datagrams,
        "cflow",
        &["cflow.packets", "cflow.octets", "cflow.sequence"],
    );
    assert_eq!(read.len(), datagrams.len());
    assert_eq!((sum(&read, 0), sum(&read, 1)), (packets, bytes));
    let mut sequence = 0;
    for fields in &read {
        assert_eq!(fields[2], [sequence.to_string()]);
        sequence += fields[0].len();
    }
}

#[test]
fn an_hour_of_sflow_has_all_samples_and_counters() {
    skip!(unless "tshark");
    for agent in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        an_hour_of_sflow(agent);
    }
}

fn an_hour_of_sflow(agent: IpAddr) {
    const PORTS: u32 = 9;
    let settings = sflow::Settings {
        agent,
        sub_agent: 1,
        sampling: 64,
        polling: Some(Duration::from_secs(30)),
    };
    let mut rng = Rng::new(2);
    let mut agent = sflow::Agent::new(settings, Nanos::ZERO);
    agent.set_ports(1..=PORTS, Nanos::ZERO);
    let (mut datagrams, mut samples) = (Vec::new(), 0);
    let mut counters = [0, 0];
    for second in 0..HOUR {
        let now = Nanos::from_secs(second);
        for source in agent.due(now) {
            let port = PortCounters {
                name: "p".repeat(1 + second as usize % 15),
                speed: 10_000_000_000,
                received: Direction {
                    bytes: Some(second << 24),
                    ..Direction::default()
                },
                ifindex: match source {
                    Source::Port(ifindex) => ifindex,
                    Source::Bridge => 0,
                },
                ..PortCounters::default()
            };
            match source {
                Source::Port(_) => agent.counters(&sflow::Counters::Port(&port), now),
                Source::Bridge => agent.counters(&sflow::Counters::Bridge(&BridgeCounters::default()), now),
            }
            counters[usize::from(source == Source::Bridge)] += 1;
        }
        for _ in 0..rng.below(4) {
            let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
            let payload = vec![0; rng.below(1400)];
            let packet = Packet::new(mac(1), mac(2))
                .vlan(5)
                .ipv4(a, b)
                .udp(1, 2, &payload)
                .bytes();
            let sample = FlowSample {
                input: rng.below(10) as u32,
                output: *rng.pick(&[0, 3, 0x4000_0102, 0x8000_0000, 0x8000_0004]),
                tci_in: 5,
                labels_out: &[0x0001_0040, 0x0002_0140],
                // tshark takes what is behind the header of an unknown structure for the next
                // structure, so only the last one of a sample may be unknown.
                tunnel_in: tunnel(&mut rng).map(|tunnel| Tunnel { key: 0, ..tunnel }),
                tunnel_out: None,
                tci_out: rng.number() as u16,
                len: packet.len(),
                // Of any length, so that all ways to fill up to four bytes come.
                header: &packet[..packet.len().min(60 + rng.below(69))],
            };
            agent.sample(&sample, now);
            samples += 1;
        }
        datagrams.extend(agent.run(now));
    }
    datagrams.extend(agent.flush(Nanos::from_secs(HOUR)));
    const FIELDS: [&str; 5] = [
        "sflow_245.sequence_number",
        "sflow.flow_sample.sequence_number",
        "sflow_245.header.frame_length",
        "sflow.counters_sample.sequence_number",
        // tshark stops reading a sample at the OpenFlow port, which it does not know.
        "sflow_245.dot3StatsFCSErrors",
    ];
    let read = dissect(&datagrams, "sflow", &FIELDS);
    for (fields, place) in read.iter().zip(1..) {
        assert_eq!(fields[0], [place.to_string()]);
    }
    assert_eq!(read.len(), datagrams.len());
    assert_eq!((count(&read, 1), count(&read, 2)), (samples, samples));
    assert_eq!(count(&read, 3), counters[0] + counters[1]);
    assert_eq!(count(&read, 4), counters[0]);
    // Each of them every 30 seconds, from some time in the first 30 on.
    assert_eq!(counters, [9 * 120, 120]);
}

#[test]
fn an_hour_of_ipfix_has_all_packets() {
    skip!(unless "tshark");
    let settings = ipfix::Settings {
        active_timeout: Duration::from_secs(60),
        max_flows: 40,
        template_interval: Duration::from_secs(600),
        stats_interval: Duration::from_secs(600),
        virtual_obs_id: "hour".into(),
    };
    let mut rng = Rng::new(3);
    let mut exporter = ipfix::Exporter::new(settings, Nanos::ZERO);
    let (mut messages, mut packets) = (Vec::new(), 0);
    for second in 0..HOUR {
        let (now, wall) = (Nanos::from_secs(second), wall(second));
        for _ in 0..3 {
            let interface = Interface {
                ifindex: 4,
                name: "eth4",
            };
            let addresses = match rng.chance(50) {
                true => Addresses::V4(Ipv4Addr::from_bits(rng.below(9) as u32), Ipv4Addr::LOCALHOST),
                false => Addresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, rng.below(9) as u32),
            };
            let transport = *rng.pick(&[
                Transport::Other,
                Transport::Tcp(1000, 80, 0x12),
                Transport::Udp(53, 53),
                Transport::Sctp(1, 2),
                Transport::Icmp(8, 0),
            ]);
            let ip = Ip {
                addresses,
                ttl: 64,
                protocol: 6,
                tos: 0,
                len: 100,
                transport,
            };
            let weight = 1 + rng.number() % 1000;
            packets += weight;
            let sample = ipfix::Sample {
                domain: rng.below(2) as u32,
                point: 4,
                weight,
                leaves: rng.chance(50),
                input: interface,
                output: rng.chance(50).then_some(interface),
                tunnel: tunnel(&mut rng),
                headers: Headers {
                    eth_src: mac(1),
                    eth_dst: *rng.pick(&[mac(2), [0xff; 6], [1, 0, 0x5e, 0, 0, 1]]),
                    eth_type: 0x0800,
                    tci: rng.chance(50).then_some(5),
                    ip: rng.chance(80).then_some(ip),
                },
                len: 114,
                dropped: rng.chance(10),
            };
            exporter.sample(&sample, now, wall);
        }
        messages.extend(exporter.run(now, wall));
    }
    messages.extend(exporter.flush(Nanos::from_secs(HOUR), wall(HOUR)));
    let fields = ["cflow.packets", "cflow.octets", "cflow.version", "cflow.template_frame"];
    let read = dissect(&messages, "cflow", &fields);
    assert_eq!(read.len(), messages.len());
    assert_eq!(sum(&read, 0), packets);
    assert_eq!(sum(&read, 2), 10 * messages.len() as u64);
    assert_eq!(exporter.statistics().lost_records, 0);
}
