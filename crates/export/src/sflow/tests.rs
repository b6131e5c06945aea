use super::*;
use crate::Encapsulation;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use testkit::from_hex;

const SETTINGS: Settings = Settings {
    agent: IpAddr::V4(Ipv4Addr::LOCALHOST),
    sub_agent: 0,
    sampling: 1,
    polling: Some(Duration::from_secs(2)),
};

fn at(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The samples of a datagram of an IPv4 agent: format and content.
fn samples(datagram: &[u8]) -> Vec<(u32, &[u8])> {
    assert_eq!(datagram.len() % 4, 0);
    assert!(datagram.len() <= MOST_BYTES);
    let mut rest = &datagram[28..];
    let mut samples = Vec::new();
    while !rest.is_empty() {
        let len = number(rest, 4) as usize;
        samples.push((number(rest, 0), &rest[8..8 + len]));
        rest = &rest[8 + len..];
    }
    assert_eq!(number(datagram, 24) as usize, samples.len());
    samples
}

/// Datagrams of Open vSwitch 3.1, captured on the wire.
#[test]
fn samples_have_open_vswitchs_bytes() {
    let mut agent = Agent::new(SETTINGS, at(0));
    agent.set_ports([5], at(0));
    let header = from_hex("50540000000a50540000000908004500");
    let sample = FlowSample {
        input: 0,
        output: 0x8000_0001,
        tci_in: 0,
        labels_out: &[],
        tunnel_in: None,
        tunnel_out: None,
        tci_out: 5,
        len: 200,
        header: &header,
    };
    agent.sample(&sample, at(500));
    assert_eq!(agent.next(), at(0), "the bridge's counters are due");
    let port = PortCounters {
        ifindex: 5,
        name: "v2".into(),
        speed: 10_000_000_000,
        full_duplex: Some(true),
        admin_up: true,
        oper_up: true,
        datapath: 0x6afb_24e4_5d4b,
        of_port: 1,
        received: Direction {
            bytes: Some(0x10a),
            packets: Some(3),
            dropped: Some(0),
            errors: Some(0),
        },
        multicast: Some(0),
        sent: Direction {
            bytes: Some(0x1e4),
            packets: Some(6),
            dropped: Some(0),
            errors: Some(0),
        },
        alignment_errors: Some(0),
        crc_errors: Some(0),
        lacp: None,
    };
    agent.counters(&Counters::Port(&port), at(500));
    let bridge = BridgeCounters {
        user_ms: 7,
        system_ms: 15,
        memory: 0x117_d000,
        misses: 5,
        flows: 5,
        ..BridgeCounters::default()
    };
    agent.counters(&Counters::Bridge(&bridge), at(500));
    assert!(agent.run(at(1499)).is_empty());
    let datagrams = agent.run(at(1500));
    let expected = [
        "00000005 00000001 7f000001 00000000 00000001 000005dc 00000003",
        "00000001 00000060 00000001 020003e8 00000001 00000001 00000000 00000000 80000001 00000002",
        "000003e9 00000010 00000000 00000000 00000005 00000000",
        "00000001 00000020 00000001 000000cc 00000004 00000010 50540000000a50540000000908004500",
        "00000002 000000cc 00000001 00000005 00000004",
        "00000002 00000034 0000000000000000ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "000003ec 0000000c 00006afb24e45d4b00000001",
        "000003ed 00000008 0000000276320000",
        "00000001 00000058 000000050000000600000002540be4000000000100000003000000000000010a0000000300000000ffffffff0000000000000000",
        "ffffffff00000000000001e400000006ffffffffffffffff000000000000000000000000",
        "00000002 0000005c 00000001 020003e8 00000002",
        "0000089b 00000028 000000070000000f000000000117d000000000000000000000000000000000000000000000000000",
        "0000089f 00000018 000000000000000500000000ffffffff00000005ffffffff",
    ];
    let expected = from_hex(&expected.concat().replace(' ', ""));
    assert_eq!(testkit::to_hex(&datagrams[0]), testkit::to_hex(&expected));
    assert_eq!(datagrams.len(), 1);
}

#[test]
fn a_port_that_runs_lacp_has_its_counters() {
    let lacp = LacpCounters {
        actor_system: [2, 0, 0, 0, 0, 1],
        partner_system: [2, 0, 0, 0, 0, 2],
        aggregator: 8,
        states: [7, 0x3f, 0, 0x3e],
        rx: 10,
        rx_markers: 11,
        rx_marker_responses: 12,
        rx_illegal: 13,
        tx: 14,
        tx_marker_responses: 15,
    };
    let port = PortCounters {
        ifindex: 5,
        lacp: Some(lacp),
        ..PortCounters::default()
    };
    let mut agent = Agent::new(SETTINGS, at(0));
    agent.set_ports([5], at(0));
    agent.counters(&Counters::Port(&port), at(0));
    let datagram = testkit::to_hex(&agent.flush(at(0))[0]);
    let expected = [
        "00000007 00000038 0200000000010000 0200000000020000 00000008 073f003e",
        "0000000a 0000000b 0000000c ffffffff 0000000d 0000000e 00000000 0000000f",
    ];
    assert!(datagram.contains(&expected.concat().replace(' ', "")), "{datagram}");
}

#[test]
fn the_agents_address_may_be_of_version_6() {
    let agent = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let mut agent = Agent::new(Settings { agent, ..SETTINGS }, at(0));
    agent.set_ports([], at(0));
    agent.counters(&Counters::Bridge(&BridgeCounters::default()), at(0));
    let datagram = &agent.flush(at(0))[0];
    assert_eq!(datagram[4..24], from_hex("0000000200000000000000000000000000000001"));
    assert_eq!(number(datagram, 28), 1, "the sequence number");
}

#[test]
fn each_source_is_polled_once_an_interval_and_not_all_at_once() {
    let mut agent = Agent::new(
        Settings {
            polling: Some(Duration::from_secs(10)),
            ..SETTINGS
        },
        at(0),
    );
    agent.set_ports(1..=99, at(0));
    let mut polled = BTreeMap::<Source, Vec<u64>>::new();
    for second in 0..100 {
        let due = agent.due(Nanos::from_secs(second));
        assert!(due.len() <= 15, "{} in one second", due.len());
        for source in due {
            polled.entry(source).or_default().push(second);
        }
    }
    assert_eq!(polled.len(), 100);
    for times in polled.values() {
        assert!((9..=10).contains(&times.len()));
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 10));
    }
    // After a pause, each is due once.
    assert_eq!(agent.due(Nanos::from_secs(1000)).len(), 100);
    assert!(agent.due(Nanos::from_secs(1000)).is_empty());
    // Ports that stay keep their time, and one that went is not told any more.
    agent.set_ports(50..=60, Nanos::from_secs(1000));
    assert!(agent.due(Nanos::from_secs(1000)).is_empty());
    let gone = PortCounters {
        ifindex: 1,
        ..PortCounters::default()
    };
    agent.counters(&Counters::Port(&gone), Nanos::from_secs(1001));
    assert!(agent.flush(Nanos::from_secs(1001)).is_empty());
}

#[test]
fn what_nobody_fetches_is_bounded_and_its_loss_is_told() {
    let mut agent = Agent::new(SETTINGS, at(0));
    let sample = FlowSample {
        input: 1,
        output: 2,
        tci_in: 0,
        labels_out: &[],
        tunnel_in: None,
        tunnel_out: None,
        tci_out: 0,
        len: 1500,
        header: &[0; MOST_HEADER as usize],
    };
    for _ in 0..5000 {
        agent.sample(&sample, at(0));
    }
    let datagrams = agent.run(at(0));
    assert_eq!(datagrams.len(), MOST_DATAGRAMS);
    agent.sample(&sample, at(1));
    let last = agent.flush(at(2));
    let (_, flow) = *samples(last.last().unwrap()).last().unwrap();
    assert_eq!(number(flow, 12), 5001, "the pool has all packets");
    assert_eq!(number(flow, 16) as usize, 5000 - MOST_DATAGRAMS - 1);
}

/// A tunnel over IPv4 or IPv6, with a key or without, or none.
fn tunnel(any: u32) -> Option<Tunnel> {
    let (src, dst): (IpAddr, IpAddr) = match any & 1 {
        0 => ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        _ => (Ipv6Addr::from(1).into(), Ipv6Addr::from(2).into()),
    };
    (any & 2 != 0).then_some(Tunnel {
        src,
        dst,
        protocol: 17,
        tos: 0x28,
        src_port: 50_000,
        dst_port: 4789,
        key: if any & 4 == 0 { 0 } else { 123 },
        encapsulation: Some(Encapsulation::Vxlan),
    })
}

/// As Open vSwitch 3.1 sends them, but for the ports, which it sends with their bytes swapped, and
/// for tunnels over IPv6, of which it sends none or numbers without a meaning.
#[test]
fn tunnels_have_the_structures_of_their_family_and_their_key_if_it_is_not_0() {
    let of_sample = |tunnel_in, tunnel_out| {
        let mut agent = Agent::new(SETTINGS, at(0));
        let sample = FlowSample {
            input: 0,
            output: 0x8000_0001,
            tci_in: 0,
            labels_out: &[],
            tunnel_in,
            tunnel_out,
            tci_out: 0,
            len: 60,
            header: &[],
        };
        agent.sample(&sample, at(0));
        let datagrams = agent.flush(at(0));
        let all = samples(&datagrams[0]);
        let ([(_, sample)], true) = (&all[..], datagrams.len() == 1) else {
            panic!("{all:?}");
        };
        let mut rest = &sample[32..];
        let mut found = Vec::new();
        for _ in 0..number(sample, 28) {
            let (format, len) = (number(rest, 0), number(rest, 4) as usize);
            found.push((format, testkit::to_hex(&rest[8..8 + len])));
            rest = &rest[8 + len..];
        }
        assert!(rest.is_empty());
        found.retain(|(format, _)| !matches!(format, 1 | 1001));
        found
    };
    let v4 = "00000000 00000011 0a000001 0a000002 0000c350 000012b5 00000000 00000028".replace(' ', "");
    let v6 = format!("0000000000000011{:032x}{:032x}0000c350000012b50000000000000028", 1, 2);
    let key = "0000007b".to_owned();
    assert_eq!(of_sample(None, None), []);
    assert_eq!(of_sample(tunnel(2), None), [(1024, v4.clone())]);
    assert_eq!(of_sample(tunnel(6), None), [(1024, v4.clone()), (1030, key.clone())]);
    assert_eq!(of_sample(None, tunnel(6)), [(1023, v4.clone()), (1029, key.clone())]);
    assert_eq!(of_sample(tunnel(3), None), [(1026, v6.clone())]);
    assert_eq!(of_sample(tunnel(2), tunnel(7)), [(1025, v6), (1029, key), (1024, v4)]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Datagrams are numbered, whole and short; samples of a source are numbered without gaps.
    #[test]
    fn any_samples_and_counters_make_whole_datagrams(
        steps in prop::collection::vec((0..4u8, 0..3000usize, any::<u32>(), 0..2000u64), 1..80),
        name in "\\PC{0,600}",
    ) {
        let mut agent = Agent::new(SETTINGS, at(0));
        agent.set_ports([7], at(0));
        let (mut now, mut datagrams) = (0, Vec::new());
        for (kind, len, any, later) in steps {
            now += later;
            let header = vec![any as u8; len];
            match kind {
                0 => {
                    let (input, output) = (any, any.rotate_left(7));
                    let (tci_in, tci_out) = (any as u16, (any >> 16) as u16);
                    agent.sample(&FlowSample { input, output, tci_in, tci_out, labels_out: &[], tunnel_in: tunnel(any), tunnel_out: tunnel(any >> 4), len: 1024, header: &header }, at(now));
                }
                1 => agent.counters(&Counters::Port(&PortCounters {
                    ifindex: 7, name: name.clone(),
                    lacp: (any % 2 == 0).then(LacpCounters::default), ..PortCounters::default()
                }), at(now)),
                2 => drop(agent.due(at(now))),
                _ => datagrams.extend(agent.run(at(now))),
            }
        }
        datagrams.extend(agent.flush(at(now)));
        let mut expected = BTreeMap::<u32, u32>::new();
        for (place, datagram) in (1..).zip(&datagrams) {
            prop_assert_eq!(number(datagram, 16), place);
            for (format, sample) in samples(datagram) {
                prop_assert_eq!(number(sample, 4), if format == 1 { 0x0200_03e8 } else { 7 });
                let last = expected.entry(number(sample, 4)).or_default();
                *last += 1;
                prop_assert_eq!(number(sample, 0), *last);
            }
        }
    }
}
