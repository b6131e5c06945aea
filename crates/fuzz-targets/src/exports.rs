//! Updates, samples, pauses and changes of settings, in any order, through the exporters.

use export::ipfix::{self, Addresses, Headers, Interface, Ip, Transport};
use export::netflow::{self, Counts, Flow};
use export::sflow::{self, BridgeCounters, FlowSample, PortCounters, Source};
use export::{Encapsulation, Tunnel};
use nanos::Nanos;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The same bytes through each exporter. Datagrams are whole, and no more is exported than came in.
pub fn exports(data: &[u8]) {
    netflow(Input::new(data));
    sflow(Input::new(data));
    ipfix(Input::new(data));
}

/// The bytes as numbers, and the time; zeros behind the end.
struct Input<'a> {
    data: &'a [u8],
    now: Nanos,
}

impl Input<'_> {
    fn new(data: &[u8]) -> Input<'_> {
        let now = Nanos::from_secs(5);
        Input { data, now }
    }

    fn number(&mut self, bytes: usize) -> u64 {
        let (taken, rest) = self.data.split_at(bytes.min(self.data.len()));
        self.data = rest;
        be(taken)
    }

    fn byte(&mut self) -> u8 {
        self.number(1) as u8
    }

    /// The kind of the next step, of which there are `kinds`.
    fn step(&mut self, kinds: u8) -> Option<u8> {
        (!self.data.is_empty()).then(|| self.byte() % kinds)
    }

    /// Up to 27 minutes, most of them short.
    fn pause(&mut self) {
        let shift = self.byte() % 14;
        let millis = u64::from(self.byte()) << shift >> 1;
        self.now += Duration::from_millis(millis);
    }

    fn wall(&self) -> Duration {
        self.now.since(Nanos::ZERO)
    }

    /// Of any size up to 39 bits (130 records of NetFlow), and sometimes an unknown counter.
    fn count(&mut self) -> u64 {
        match self.byte() {
            0xff => u64::MAX,
            shift => self.number(2) << (shift % 24),
        }
    }
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn at(bytes: &[u8], place: usize, len: usize) -> usize {
    be(&bytes[place..place + len]) as usize
}

fn netflow(mut input: Input<'_>) {
    let settings = |input: &mut Input<'_>| netflow::Settings {
        engine_type: input.byte(),
        engine_id: input.byte(),
        add_id_to_interface: input.byte() & 1 != 0,
        active_timeout: Some(input.byte())
            .filter(|secs| *secs > 0)
            .map(|secs| Duration::from_secs(secs.into())),
        idle_timeout: Duration::from_secs(input.byte().into()),
    };
    let mut exporter = netflow::Exporter::new(settings(&mut input), input.now);
    let (mut put, mut datagrams) = ((0, 0), Vec::new());
    let mut most_records = 0;
    while let Some(step) = input.step(8) {
        match step {
            0 => exporter.set(settings(&mut input)),
            1 => input.pause(),
            2 => datagrams.extend(exporter.run(input.now, input.wall())),
            3 => assert!(exporter.next() >= Nanos::ZERO),
            _ => {
                let flow = Flow {
                    input: input.byte().into(),
                    src: Ipv4Addr::LOCALHOST,
                    dst: Ipv4Addr::from_bits(u32::from(input.byte() % 8)),
                    protocol: input.byte(),
                    tos: 0,
                    src_port: 1,
                    dst_port: 2,
                };
                let counts = Counts {
                    output: input.byte().into(),
                    packets: input.count() >> 8,
                    bytes: input.count(),
                    tcp_flags: 0x12,
                    used: Nanos(input.now.0 - input.number(3)),
                };
                exporter.update(flow, &counts, input.now);
                if counts.packets.max(counts.bytes) <= 1 << 45 {
                    put = (put.0 + counts.packets, put.1 + counts.bytes);
                    most_records += 1 + (counts.packets.max(counts.bytes) >> 31);
                }
            }
        }
    }
    datagrams.extend(exporter.flush(input.now, input.wall()));
    assert_eq!(exporter.next(), Nanos::MAX);
    let (mut told, mut sequence) = ((0, 0), 0);
    for datagram in &datagrams {
        let records = at(datagram, 2, 2);
        assert!((1..=30).contains(&records));
        assert_eq!(datagram.len(), 24 + 48 * records);
        assert!(at(datagram, 16, 4) >= sequence, "sequence numbers go forward");
        sequence = at(datagram, 16, 4) + records;
        for record in datagram[24..].chunks(48) {
            told = (told.0 + be(&record[16..20]), told.1 + be(&record[20..24]));
        }
    }
    assert!(told.0 <= put.0 && told.1 <= put.1);
    if most_records < 100_000 {
        assert_eq!(told, put, "nothing is lost where there is room");
    }
}

fn sflow(mut input: Input<'_>) {
    let sub_agent = input.number(4) as u32;
    let settings = sflow::Settings {
        agent: match input.byte() & 1 {
            0 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            _ => IpAddr::V6(Ipv6Addr::LOCALHOST),
        },
        sub_agent,
        sampling: input.number(4) as u32,
        polling: Some(input.byte())
            .filter(|secs| *secs > 0)
            .map(|secs| Duration::from_secs(secs.into())),
    };
    let header_len = if settings.agent.is_ipv4() { 28 } else { 40 };
    let mut agent = sflow::Agent::new(settings, input.now);
    let mut datagrams = Vec::new();
    let packet = [0x5a; 1200];
    while let Some(step) = input.step(8) {
        match step {
            0 => agent.set_ports((0..input.byte() % 16).map(u32::from), input.now),
            1 => input.pause(),
            2 => datagrams.extend(agent.run(input.now)),
            3 => agent.lost(input.number(4) as u32),
            4 => agent.skip(),
            5 => {
                for source in agent.due(input.now) {
                    match source {
                        Source::Bridge => {
                            let counters = BridgeCounters::default();
                            agent.counters(&sflow::Counters::Bridge(&counters), input.now);
                        }
                        Source::Port(ifindex) => {
                            let name = "é".repeat(input.number(2) as usize % 1000);
                            let port = PortCounters {
                                ifindex,
                                name,
                                ..PortCounters::default()
                            };
                            agent.counters(&sflow::Counters::Port(&port), input.now);
                        }
                    }
                }
                assert!(agent.due(input.now).is_empty(), "a source is due once");
            }
            _ => {
                let sample = FlowSample {
                    input: input.number(4) as u32,
                    output: input.number(4) as u32,
                    tci_in: input.number(2) as u16,
                    tunnel_in: tunnel(&mut input),
                    tunnel_out: tunnel(&mut input),
                    labels_out: &[input.number(4) as u32; 20][..input.number(1) as usize % 21],
                    tci_out: input.number(2) as u16,
                    len: input.number(4) as usize,
                    header: &packet[..input.number(2) as usize % packet.len()],
                };
                agent.sample(&sample, input.now);
            }
        }
    }
    datagrams.extend(agent.flush(input.now));
    for (datagram, place) in datagrams.iter().zip(1..) {
        assert!(datagram.len() <= 1400);
        assert_eq!(at(datagram, header_len - 12, 4), place, "the datagram's number");
        let mut rest = &datagram[header_len..];
        for _ in 0..at(datagram, header_len - 4, 4) {
            let (sample, after) = rest[8..].split_at(at(rest, 4, 4));
            // A flow sample has 8 numbers, a counter sample 3; the last one is that of its records.
            let numbers = if at(rest, 0, 4) == 1 { 32 } else { 12 };
            let mut records = &sample[numbers..];
            for _ in 0..at(sample, numbers - 4, 4) {
                records = &records[8 + at(records, 4, 4)..];
            }
            assert!(records.is_empty());
            rest = after;
        }
        assert!(rest.is_empty());
    }
}

fn ipfix(mut input: Input<'_>) {
    let settings = ipfix::Settings {
        active_timeout: Duration::from_secs(input.byte().into()),
        max_flows: input.byte().into(),
        // Making templates is slow beside all else.
        template_interval: Duration::from_secs(60 + u64::from(input.byte())),
        stats_interval: Duration::from_secs(input.byte().into()),
        virtual_obs_id: "o".repeat(input.number(2) as usize % 400),
    };
    let mut exporter = ipfix::Exporter::new(settings, input.now);
    let (mut messages, mut packets) = (Vec::new(), 0);
    while let Some(step) = input.step(6) {
        match step {
            0 => exporter.unreadable(),
            1 => input.pause(),
            2 => messages.extend(exporter.run(input.now, input.wall())),
            _ => {
                let (name, domain, weight) = ("p".repeat(input.byte().into()), input.byte(), input.number(4));
                let interface = Interface {
                    ifindex: 7,
                    name: &name,
                };
                let sample = ipfix::Sample {
                    domain: u32::from(domain & 8),
                    point: 1,
                    weight,
                    leaves: domain & 1 != 0,
                    input: interface,
                    output: (domain & 2 != 0).then_some(interface),
                    tunnel: tunnel(&mut input),
                    headers: headers(&mut input),
                    len: input.number(2) as usize,
                    dropped: domain & 4 != 0,
                };
                packets += weight;
                exporter.sample(&sample, input.now, input.wall());
            }
        }
    }
    messages.extend(exporter.flush(input.now, input.wall()));
    let statistics = exporter.statistics();
    assert_eq!((statistics.packets, statistics.current_flows), (packets, 0));
    let mut sequences = BTreeMap::new();
    for message in &messages {
        assert_eq!((at(message, 0, 2), at(message, 2, 2)), (10, message.len()));
        let mut rest = &message[16..];
        while !rest.is_empty() {
            assert!(at(rest, 2, 2) > 4, "no set is empty");
            rest = &rest[at(rest, 2, 2)..];
        }
        let last = sequences.insert(at(message, 12, 4), at(message, 8, 4));
        assert!(last.unwrap_or_default() <= at(message, 8, 4));
    }
}

/// No tunnel, or one over IPv4 or IPv6.
fn tunnel(input: &mut Input<'_>) -> Option<Tunnel> {
    let kind = input.byte();
    let address = |last: u8| match kind & 0x40 {
        0 => IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)),
        _ => IpAddr::V6(Ipv6Addr::from(u128::from(last))),
    };
    (kind & 0x80 != 0).then(|| Tunnel {
        src: address(input.byte()),
        dst: address(1),
        protocol: input.byte(),
        tos: kind,
        src_port: input.number(2) as u16,
        dst_port: 4789,
        key: input.number(usize::from(kind & 7)),
        encapsulation: match kind >> 3 & 3 {
            0 => None,
            1 => Some(Encapsulation::Vxlan),
            2 => Some(Encapsulation::Gre),
            _ => Some(Encapsulation::Geneve),
        },
    })
}

fn headers(input: &mut Input<'_>) -> Headers {
    let kind = input.byte();
    let transport = match kind % 5 {
        0 => Transport::Other,
        1 => Transport::Tcp(1, 2, input.byte()),
        2 => Transport::Udp(1, 2),
        3 => Transport::Sctp(1, 2),
        _ => Transport::Icmp(8, 0),
    };
    let addresses = match kind & 0x40 {
        0 => Addresses::V4(Ipv4Addr::from_bits(u32::from(input.byte())), Ipv4Addr::LOCALHOST),
        _ => Addresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, u32::from(input.byte())),
    };
    let ip = Ip {
        addresses,
        ttl: 64,
        protocol: input.byte(),
        tos: input.byte(),
        len: input.number(2) as u16,
        transport,
    };
    let to = if kind & 0x10 != 0 { [0xff; 6] } else { [kind; 6] };
    Headers {
        eth_src: [2; 6],
        eth_dst: to,
        eth_type: 0x0800,
        tci: (kind & 0x20 != 0).then_some(0x1005),
        ip: (kind & 0x80 == 0).then_some(ip),
    }
}
