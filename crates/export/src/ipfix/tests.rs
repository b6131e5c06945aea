use super::*;
use crate::Encapsulation;
use proptest::prelude::*;
use std::net::IpAddr;
use testkit::ipfix::{Reader, be, number};

fn settings(active_timeout: u64, max_flows: u32) -> Settings {
    Settings {
        active_timeout: Duration::from_secs(active_timeout),
        max_flows,
        template_interval: Duration::from_secs(600),
        stats_interval: Duration::from_secs(600),
        virtual_obs_id: String::new(),
    }
}

const TCP: Headers = Headers {
    eth_src: [2, 0, 0, 0, 0, 1],
    eth_dst: [2, 0, 0, 0, 0, 2],
    eth_type: 0x0800,
    tci: None,
    ip: Some(Ip {
        addresses: Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)),
        ttl: 64,
        protocol: 6,
        tos: 0x48,
        len: 100,
        transport: Transport::Tcp(1000, 80, 0x12),
    }),
};

fn sample(headers: Headers) -> Sample<'static> {
    Sample {
        domain: 3,
        point: 4,
        weight: 1,
        leaves: false,
        input: Interface { ifindex: 7, name: "p1" },
        output: None,
        tunnel: None,
        headers,
        len: 114,
        dropped: false,
    }
}

/// Headers of a flow of TCP, UDP, ICMP or none, with addresses of either version or none.
fn headers(flow: u16) -> Headers {
    let transport = match flow % 5 {
        0 => Transport::Tcp(flow, 80, (flow >> 3) as u8),
        1 => Transport::Udp(flow, 53),
        2 => Transport::Icmp(flow as u8, 1),
        3 => Transport::Sctp(flow, 9),
        _ => Transport::Other,
    };
    let addresses = match flow % 3 {
        0 => Addresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, flow.into()),
        _ => Addresses::V4(Ipv4Addr::from_bits(flow.into()), Ipv4Addr::LOCALHOST),
    };
    let ip = TCP.ip.map(|ip| Ip {
        addresses,
        transport,
        ..ip
    });
    Headers {
        tci: flow.is_multiple_of(7).then_some(flow),
        eth_dst: [[2; 6], [3; 6], [0xff; 6]][usize::from(flow % 11) % 3],
        ip: ip.filter(|_| !flow.is_multiple_of(13)),
        ..TCP
    }
}

fn at(secs: u64) -> (Nanos, Duration) {
    (Nanos::from_secs(secs), Duration::from_secs(1_700_000_000 + secs))
}

#[test]
fn a_sample_without_a_cache_is_told_at_once() {
    let (now, wall) = at(1);
    let mut exporter = Exporter::new(settings(0, 0), now);
    exporter.sample(&sample(TCP), now, wall);
    let (later, wall) = (now + Duration::from_millis(20), wall);
    let messages = exporter.run(later, wall);
    let mut reader = Reader::default();
    let records = reader.read(&messages);
    // 84 templates, and that of the exporter's own counts.
    assert_eq!(reader.templates.len(), 89);
    let own: Vec<_> = records.iter().filter(|(template, _)| *template == 462).collect();
    assert_eq!((own.len(), records.len()), (1, 2));
    let record = records.iter().find(|(template, _)| *template == 280).unwrap();
    let expected = [
        (138, 4),
        (61, 0),
        (256, 0x800),
        (240, 14),
        (10, 7),
        (60, 4),
        (192, 64),
        (4, 6),
        (195, 0x12),
        (196, 2),
        (5, 0x48),
        (8, 0x0a00_0001),
        (7, 1000),
        (11, 80),
        (2, 1),
        (86, 1),
        (354, 1),
        (357, 0),
        (352, 114),
        (136, 2),
        (1, 100),
        (198, 10_000),
        (25, 100),
        (26, 100),
        (222, 1),
        (219, 0),
        (218, 1),
    ];
    for (field, value) in expected {
        assert_eq!(number(record, field), value, "{field}");
    }
    assert_eq!(
        record
            .1
            .iter()
            .filter(|(number, _)| *number == 82)
            .map(|(_, name)| &name[..])
            .next(),
        Some(&b"p1"[..])
    );
    let statistics = exporter.statistics();
    assert_eq!(
        (statistics.flows, statistics.packets, statistics.ipv4_packets),
        (1, 1, 1)
    );
    assert_eq!(statistics.current_flows, 0);
}

#[test]
fn the_cache_ends_flows_by_age_by_number_and_at_the_end() {
    let mut exporter = Exporter::new(settings(10, 3), Nanos::ZERO);
    let mut reader = Reader::default();
    let mut told = |exporter: &mut Exporter, secs, flush: bool| -> Vec<(u64, u64, u64)> {
        let (now, wall) = at(secs);
        let messages = if flush {
            exporter.flush(now, wall)
        } else {
            exporter.run(now, wall)
        };
        let records = reader.read(&messages);
        let flows = records.iter().filter(|(template, _)| *template != 462);
        flows
            .map(|record| (number(record, 7), number(record, 2), number(record, 136)))
            .collect()
    };
    for second in 0..10 {
        let (now, wall) = at(second);
        exporter.sample(&sample(headers(5)), now, wall);
        assert!(told(&mut exporter, second, false).is_empty());
    }
    assert_eq!(told(&mut exporter, 10, false), [(5, 10, 2)]);
    for flow in [20, 5, 20, 35, 50, 20] {
        let (now, wall) = at(11);
        exporter.sample(&sample(headers(flow)), now, wall);
    }
    // The oldest had to go, and its next packet began it again.
    assert_eq!(exporter.statistics().current_flows, 3);
    let ended = told(&mut exporter, 11, false);
    assert_eq!(ended, [(20, 2, 5), (5, 1, 5)]);
    assert_eq!(told(&mut exporter, 12, true), [(35, 1, 4), (50, 1, 4), (20, 1, 4)]);
    assert_eq!(exporter.next(), Nanos::from_secs(600));
}

#[test]
fn templates_come_again_and_each_domain_has_its_own_numbers() {
    let mut exporter = Exporter::new(settings(0, 0), Nanos::ZERO);
    let mut reader = Reader::default();
    let mut templates = 0;
    for second in 0..3600 {
        let (now, wall) = at(second);
        for domain in [3, 9] {
            let sample = Sample {
                domain,
                ..sample(headers(second as u16))
            };
            exporter.sample(&sample, now, wall);
        }
        for message in exporter.run(now, wall) {
            templates += usize::from(be(&message[16..18]) == 2);
            reader.message(&message);
        }
    }
    assert_eq!(reader.read[&3], 3600);
    assert_eq!(reader.read[&9], 3600);
    // 6 times, for two domains, some messages each.
    assert_eq!(templates % 12, 0);
    assert!((12 * 10..=12 * 20).contains(&templates), "{templates}");
}

#[test]
fn what_nobody_fetches_is_bounded_and_its_loss_is_told() {
    let (now, wall) = at(0);
    let mut exporter = Exporter::new(settings(0, 0), now);
    for flow in 0..100_000u32 {
        let sample = Sample {
            domain: flow % 1000 + 1,
            ..sample(headers(flow as u16))
        };
        exporter.sample(&sample, now, wall);
    }
    assert!(exporter.domains.len() <= MOST_DOMAINS);
    let lost = exporter.statistics().lost_records;
    assert!(lost > 0);
    // Templates of the last domain, and one message open for each.
    assert!(exporter.run(now, wall).len() <= MOST_MESSAGES + MOST_DOMAINS + 16);
    let (later, wall) = at(600);
    let own = exporter.run(later, wall);
    assert_eq!(be(&own[1][24..32]), lost);
}

#[test]
fn a_huge_cache_is_bounded() {
    let (now, wall) = at(0);
    let mut exporter = Exporter::new(settings(4200, u32::MAX), now);
    for flow in 0..MOST_FLOWS as u32 + 10 {
        let ip = TCP.ip.map(|ip| Ip {
            addresses: Addresses::V4(Ipv4Addr::from_bits(flow), Ipv4Addr::LOCALHOST),
            ..ip
        });
        exporter.sample(&sample(Headers { ip, ..TCP }), now, wall);
    }
    assert_eq!(exporter.statistics().current_flows as usize, MOST_FLOWS);
}

#[test]
fn the_exporters_own_counts_have_the_numbers_of_their_domain() {
    let mut exporter = Exporter::new(settings(0, 0), Nanos::ZERO);
    let own_domain = Sample {
        domain: 0,
        ..sample(TCP)
    };
    let mut sequence = 0;
    for second in [0, 1, 600, 601] {
        let (now, wall) = (Nanos::from_secs(second), Duration::from_secs(second));
        exporter.sample(&own_domain, now, wall);
        for message in exporter.run(now, wall) {
            assert_eq!(be(&message[8..12]), sequence);
            // Sets of templates have the numbers 2 and 3, and the others one record each.
            sequence += u64::from(be(&message[16..18]) > 3);
        }
    }
    assert_eq!(sequence, 6, "four samples, and the counts twice");
}

/// A tunnel, or none.
fn tunnel(flow: u16) -> Option<Tunnel> {
    let encapsulation = match flow % 4 {
        0 => Some(Encapsulation::Vxlan),
        1 => Some(Encapsulation::Gre),
        2 => Some(Encapsulation::Geneve),
        _ => None,
    };
    let (src, dst): (IpAddr, IpAddr) = match flow % 7 {
        0 => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
        _ => (Ipv4Addr::LOCALHOST.into(), [127, 0, 0, 2].into()),
    };
    (!flow.is_multiple_of(5)).then_some(Tunnel {
        src,
        dst,
        protocol: 17,
        tos: 0,
        src_port: 50_000,
        dst_port: 4789,
        key: 0x1_0203_0405,
        encapsulation,
    })
}

#[test]
fn records_tell_of_tunnels_over_ipv4_whose_encapsulation_has_a_number() {
    // Addresses, protocol, ports, type, key.
    let told = |kind: &str, key: &str| format!("7f000001 7f000002 11 c350 12b5 {kind} {key}");
    let mut seen = 0;
    for flow in 0..200 {
        let (now, wall) = at(0);
        let mut exporter = Exporter::new(settings(0, 0), now);
        let (tunnel, headers) = (tunnel(flow), headers(flow));
        let sample = Sample {
            tunnel,
            ..sample(headers)
        };
        exporter.sample(&sample, now, wall);
        let records = Reader::default().read(&exporter.flush(now, wall));
        let record = records.iter().find(|record| record.0 != 462).unwrap();
        let fields = [893, 894, 895, 896, 897, 891, 892].map(|field| {
            let found = record.1.iter().find(|(number, _)| *number == field + 0x10000);
            found.map(|(_, value)| testkit::to_hex(value))
        });
        let fields = fields.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let expected = match tunnel
            .filter(|tunnel| tunnel.src.is_ipv4())
            .and_then(|tunnel| tunnel.encapsulation)
        {
            Some(Encapsulation::Vxlan) => told("01", "030405"),
            Some(Encapsulation::Gre) => told("02", "02030405"),
            Some(Encapsulation::Geneve) => told("07", "030405"),
            None => String::new(),
        };
        seen += usize::from(!expected.is_empty());
        assert_eq!(fields, expected, "{tunnel:?}");
    }
    assert!(seen > 50);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, messages can be read, and counts add up.
    #[test]
    fn counts_add_up_however_flows_end(
        steps in prop::collection::vec((0..60u16, 1..2000u64, 0..30u64, any::<bool>(), any::<bool>()), 1..100),
        timeout in 0..40u64, most in 0..20u32, name in "[a-z]{0,3}",
    ) {
        let mut exporter = Exporter::new(
            Settings { virtual_obs_id: name, ..settings(timeout, most) }, Nanos::ZERO);
        let (mut reader, mut records, mut secs) = (Reader::default(), Vec::new(), 0);
        let mut sent = [0; 3];
        for (flow, weight, later, leaves, run) in steps {
            secs += later;
            let (now, wall) = at(secs);
            let headers = headers(flow);
            let tunnel = tunnel(flow);
            let output = leaves.then_some(Interface { ifindex: 9, name: "a-port" });
            exporter.sample(&Sample { weight, leaves, output, tunnel, dropped: !leaves, ..sample(headers) }, now, wall);
            sent[0] += weight;
            sent[1] += weight * 114;
            sent[2] += if leaves { 0 } else { weight };
            if run {
                records.extend(reader.read(&exporter.run(now, wall)));
            }
        }
        let (now, wall) = at(secs);
        records.extend(reader.read(&exporter.flush(now, wall)));
        let mut told = [0; 3];
        for record in records.iter().filter(|(template, _)| *template != 462) {
            for (told, field) in told.iter_mut().zip([2, 352, 133]) {
                *told += number(record, field);
            }
            prop_assert_eq!(number(record, 2), [354, 355, 356, 357, 358, 19].map(|f| number(record, f)).iter().sum::<u64>());
        }
        prop_assert_eq!(told, sent);
    }
}
