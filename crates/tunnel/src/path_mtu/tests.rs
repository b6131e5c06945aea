use super::*;
use crate::format::{Body, Encapsulation, FlowLabel, Inner, Outer, Packet, SourcePorts};
use crate::vport::{Config, Type, parse};
use nanos::Nanos;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use wire::EtherType;
use wire::checksum::{checksum, pseudo_ipv6};

const NONE: [IpAddr; 0] = [];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn secs(secs: u64) -> Nanos {
    Nanos::from_secs(1000 + secs)
}

/// A tunnel port, options as `key=value` separated by blanks.
fn config(kind: Type, options: &str) -> Config {
    let pairs = options.split_whitespace().filter_map(|pair| pair.split_once('='));
    let options = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    parse("t", kind, &options).config.unwrap()
}

/// A packet of 1500 bytes that a tunnel sends from 192.0.2.1 to 192.0.2.2, or between the same of
/// IPv6, from its IP header on.
fn outer_packet(body: &Body<'_>, inner: Inner, v6: bool) -> Vec<u8> {
    let outer = Outer {
        ethernet: None,
        src: ip(if v6 { "fd00::1" } else { "192.0.2.1" }),
        dst: ip(if v6 { "fd00::2" } else { "192.0.2.2" }),
        tos: 0,
        ttl: 64,
        df: true,
        label: FlowLabel::Zero,
        ports: SourcePorts::default(),
    };
    let template = Encapsulation::new(&outer, body, inner).unwrap();
    let mut frame = vec![0x45; 1500];
    let packet = Packet {
        hash: 0x1234_5678,
        ..Packet::default()
    };
    template.write(&mut frame, &packet).unwrap();
    frame
}

fn vxlan(id: u64) -> Body<'static> {
    Body::Vxlan {
        port: 4789,
        csum: false,
        id,
        gbp: None,
        gpe: false,
    }
}

/// An ICMP error about a packet, which quotes this many bytes of it.
fn error(packet: &[u8], mtu: u32, quote: usize) -> Vec<u8> {
    let quoted = &packet[..quote.min(packet.len())];
    let v6 = packet[0] >> 4 == 6;
    let mut message = [
        &[if v6 { 2 } else { 3 }, if v6 { 0 } else { 4 }, 0, 0][..],
        &mtu.to_be_bytes(),
        quoted,
    ]
    .concat();
    let mut header = if v6 {
        let source = Ipv6Addr::from([9; 16]);
        let destination = Ipv6Addr::from(*packet[8..].first_chunk::<16>().unwrap());
        let sum = pseudo_ipv6(source, destination, 58, message.len() as u32).bytes(&message);
        message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        let mut header = [0x60, 0, 0, 0, 0, 0, 58, 64];
        header[4..6].copy_from_slice(&(message.len() as u16).to_be_bytes());
        [&header[..], &source.octets(), &destination.octets()].concat()
    } else {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let len = 20 + message.len() as u16;
        let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 9, 9, 9, 9];
        header[2..4].copy_from_slice(&len.to_be_bytes());
        header.extend(&packet[12..16]);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    };
    header.extend(message);
    header
}

/// Each tunnel with a packet of its own.
fn tunnels() -> Vec<(Config, Vec<u8>)> {
    let v4 = Inner::Packet(wire::EtherType::IPV4);
    let gre = Body::Gre {
        id: Some(7),
        csum: true,
        sequence: true,
    };
    let plain_gre = Body::Gre {
        id: None,
        csum: false,
        sequence: false,
    };
    let geneve = Body::Geneve {
        port: 6081,
        csum: true,
        id: 7,
        oam: false,
        options: crate::format::geneve::Options::NONE,
    };
    let gtpu = Body::Gtpu {
        port: 2152,
        id: 7,
        sequence: false,
    };
    let segments = ["fd00::2".parse().unwrap(), "fd00::3".parse().unwrap()];
    let srv6 = Body::Srv6 { segments: &segments };
    let to4 = "remote_ip=192.0.2.2 key=7";
    let to6 = "remote_ip=fd00::2 key=7";
    vec![
        (
            config(Type::Vxlan, to4),
            outer_packet(&vxlan(7), Inner::Ethernet, false),
        ),
        (config(Type::Vxlan, to6), outer_packet(&vxlan(7), Inner::Ethernet, true)),
        (
            config(Type::Vxlan, "remote_ip=flow key=flow"),
            outer_packet(&vxlan(7), Inner::Ethernet, false),
        ),
        (
            config(Type::Vxlan, "remote_ip=192.0.2.2 local_ip=192.0.2.1"),
            outer_packet(&vxlan(0), Inner::Ethernet, false),
        ),
        (config(Type::Geneve, to4), outer_packet(&geneve, Inner::Ethernet, false)),
        (config(Type::Gre, to4), outer_packet(&gre, Inner::Ethernet, false)),
        (
            config(Type::Gre, "remote_ip=192.0.2.2"),
            outer_packet(&plain_gre, Inner::Ethernet, false),
        ),
        (config(Type::Ip6gre, to6), outer_packet(&gre, Inner::Ethernet, true)),
        (config(Type::Gtpu, to4), outer_packet(&gtpu, v4, false)),
        (
            config(Type::Srv6, "remote_ip=fd00::2 srv6_segs=fd00::2,fd00::3"),
            outer_packet(&srv6, v4, true),
        ),
    ]
}

#[test]
fn every_tunnel_knows_its_own_packets_in_errors() {
    let all = tunnels();
    for (config, packet) in &all {
        for quote in [28, 60, 128, 1500] {
            let v6 = packet[0] >> 4 == 6;
            let error = error(packet, 1400, if v6 { quote.max(60) } else { quote });
            let read = TooBig::parse(&error).unwrap_or_else(|e| panic!("{config:?} {quote}: {e}"));
            assert_eq!((read.mtu, read.quoted.len), (1400, 1500));
            let to = sent(config, SourcePorts::default(), &read.quoted);
            assert_eq!(to, Some(read.quoted.dst), "{config:?} {quote}");
        }
    }
}

#[test]
fn packets_that_a_tunnel_cannot_have_sent_are_not_its_own() {
    let ports = SourcePorts::default();
    let refused = |config: &Config, packet: &[u8], ports| {
        let error = error(packet, 1400, 128);
        sent(config, ports, &TooBig::parse(&error).unwrap().quoted).is_none()
    };
    let (own, packet) = (
        config(Type::Vxlan, "remote_ip=192.0.2.2 key=7"),
        outer_packet(&vxlan(7), Inner::Ethernet, false),
    );
    assert!(!refused(&own, &packet, ports));
    for other in [
        config(Type::Vxlan, "remote_ip=192.0.2.3 key=7"),
        config(Type::Vxlan, "remote_ip=192.0.2.2 key=8"),
        config(Type::Vxlan, "remote_ip=192.0.2.2 key=7 dst_port=4790"),
        config(Type::Vxlan, "remote_ip=192.0.2.2 local_ip=192.0.2.9 key=7"),
        config(Type::Geneve, "remote_ip=192.0.2.2 key=7"),
        config(Type::Gre, "remote_ip=192.0.2.2 key=7"),
        config(Type::Srv6, "remote_ip=fd00::2 srv6_segs=fd00::2"),
        config(Type::Ip6gre, "remote_ip=flow"),
    ] {
        assert!(refused(&other, &packet, ports), "{other:?}");
    }
    // The source port comes from the range that tunnels use.
    assert!(refused(&own, &packet, SourcePorts::new(1, 100).unwrap()));
    // A key that the error does not quote is not compared.
    let short = error(&packet, 1400, 28);
    let other_key = config(Type::Vxlan, "remote_ip=192.0.2.2 key=8");
    assert!(sent(&other_key, ports, &TooBig::parse(&short).unwrap().quoted).is_some());
}

#[test]
fn an_error_about_a_later_segment_is_about_the_first_one() {
    let (config, mut packet) = tunnels().pop().unwrap();
    packet[24..40].copy_from_slice(&"fd00::3".parse::<Ipv6Addr>().unwrap().octets());
    let error = error(&packet, 1400, 128);
    let read = TooBig::parse(&error).unwrap();
    assert_eq!(read.quoted.dst, ip("fd00::3"));
    assert_eq!(sent(&config, SourcePorts::default(), &read.quoted), Some(ip("fd00::2")));
}

#[test]
fn errors_that_contradict_themselves_are_ignored() {
    let packet = outer_packet(&vxlan(7), Inner::Ethernet, false);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = packet.clone();
        change(&mut packet);
        TooBig::parse(&error(&packet, 1400, 128)).map(|error| error.mtu)
    };
    assert_eq!(with(&|_| {}), Ok(1400));
    assert_eq!(
        with(&|packet| packet[6] = 0),
        Err(NotTooBig::Contradiction),
        "it could be fragmented"
    );
    assert_eq!(
        with(&|packet| packet[6] = 0x60),
        Err(NotTooBig::Contradiction),
        "a fragment"
    );
    assert_eq!(
        with(&|packet| packet[7] = 1),
        Err(NotTooBig::Contradiction),
        "a later fragment"
    );
    assert_eq!(
        with(&|packet| packet[2..4].copy_from_slice(&[5, 0x78])),
        Err(NotTooBig::Contradiction),
        "1400 bytes"
    );
    assert_eq!(with(&|packet| packet[0] = 0x35), Err(NotTooBig::Malformed), "not IPv4");
    assert_eq!(
        with(&|packet| packet[0] = 0x44),
        Err(NotTooBig::Malformed),
        "a short header"
    );
    assert_eq!(TooBig::parse(&error(&packet, 1400, 27)), Err(NotTooBig::Malformed));
    let mut elsewhere = error(&packet, 1400, 128);
    elsewhere[16..20].copy_from_slice(&[192, 0, 2, 7]);
    elsewhere[10..12].fill(0);
    let sum = checksum(&elsewhere[..20]);
    elsewhere[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(TooBig::parse(&elsewhere), Err(NotTooBig::NotOurs));
}

#[test]
fn every_byte_of_an_error_is_under_a_checksum() {
    for (config, packet) in tunnels() {
        let good = error(&packet, 1400, 128);
        assert!(TooBig::parse(&good).is_ok());
        // The checksum of ICMPv6 covers the addresses of the IPv6 header, that of IPv4 all of it.
        let first = if good[0] >> 4 == 6 { 8 } else { 0 };
        for at in first..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x21;
            assert!(TooBig::parse(&bad).is_err(), "{config:?}: byte {at}");
        }
        for len in 0..good.len() {
            assert!(TooBig::parse(&good[..len]).is_err(), "{config:?}: {len} bytes");
        }
    }
}

#[test]
fn sizes_below_the_minimum_are_refused_or_raised() {
    let (v4, v6) = (
        outer_packet(&vxlan(7), Inner::Ethernet, false),
        outer_packet(&vxlan(7), Inner::Ethernet, true),
    );
    let mtu = |packet: &[u8], mtu| TooBig::parse(&error(packet, mtu, 128)).map(|error| error.mtu);
    assert_eq!(mtu(&v4, 1), Ok(MIN_IPV4));
    assert_eq!((mtu(&v4, 68), mtu(&v4, 576)), (Ok(576), Ok(576)));
    assert_eq!(mtu(&v6, 1279), Err(NotTooBig::TooSmall));
    assert_eq!(mtu(&v6, 0), Err(NotTooBig::TooSmall));
    assert_eq!(mtu(&v6, 1280), Ok(MIN_IPV6));
    assert_eq!(mtu(&v6, 65_536 + 1300), Err(NotTooBig::Contradiction));
    // A router from before RFC 1191 says no size.
    assert_eq!(mtu(&v4, 0), Ok(1492));
    // What stands in the unused half of the word does not count.
    assert_eq!(mtu(&v4, 0xdead_0578), Ok(1400));
}

#[test]
fn other_packets_are_for_others() {
    let tunnel = outer_packet(&vxlan(7), Inner::Ethernet, false);
    for packet in [tunnel.clone(), outer_packet(&vxlan(7), Inner::Ethernet, true)] {
        assert_eq!(TooBig::parse(&packet), Err(NotTooBig::Other));
    }
    let mut port_unreachable = error(&tunnel, 1400, 128);
    port_unreachable[21] = 3;
    assert_eq!(TooBig::parse(&port_unreachable), Err(NotTooBig::Other));
    assert_eq!(TooBig::parse(&[]), Err(NotTooBig::Other));
}

#[test]
fn a_size_only_gets_smaller_and_is_forgotten_after_ten_minutes() {
    let mut table = Table::default();
    let to = ip("192.0.2.2");
    assert_eq!(table.learn(to, 1400, secs(0)), [to]);
    assert_eq!(table.learn(to, 1450, secs(100)), NONE);
    assert_eq!(table.get(to), Some(1400));
    assert_eq!(table.next_event(), Some(secs(600)));
    assert_eq!(table.learn(to, 1400, secs(200)), NONE);
    assert_eq!(table.next_event(), Some(secs(800)));
    assert_eq!(table.learn(to, 1300, secs(300)), [to]);
    assert_eq!(table.get(to), Some(1300));
    let shown: Vec<String> = table.entries(secs(890)).map(|entry| entry.to_string()).collect();
    assert_eq!(shown, [format!("{:<46}1300   10 s", "192.0.2.2")]);
    assert_eq!(table.tick(secs(899)), NONE);
    assert_eq!(table.tick(secs(900)), [to]);
    assert_eq!((table.get(to), table.next_event()), (None, None));
    assert_eq!(table.learn(to, 1400, secs(1000)), [to]);
    assert_eq!((table.flush(), table.next_event()), (vec![to], None));
    assert_eq!(table.counters(), Counters { learned: 3, evicted: 0 });
}

proptest! {
    #[test]
    fn sizes_are_bounded_and_every_change_is_told(
        steps in proptest::collection::vec((0u8..12, 68u16..1500, 0u64..300), 0..80),
    ) {
        let mut table = Table::new(5);
        let mut now = secs(0);
        let address = |n: u8| IpAddr::from(Ipv4Addr::new(10, 0, 0, n));
        for (n, mtu, wait) in steps {
            now += Duration::from_secs(wait);
            let sizes = |table: &Table| -> Vec<Option<u16>> { (0..12).map(|n| table.get(address(n))).collect() };
            let before = sizes(&table);
            let mut told = table.tick(now);
            told.extend(table.learn(address(n), mtu, now));
            let after = sizes(&table);
            prop_assert!(after[usize::from(n)].unwrap() <= mtu);
            prop_assert!(table.next_event().unwrap() > now);
            prop_assert!(after.iter().flatten().count() <= 5);
            for n in 0..12 {
                let same = before[usize::from(n)] == after[usize::from(n)];
                prop_assert!(same || told.contains(&address(n)));
            }
        }
    }

    #[test]
    fn no_packet_makes_the_parser_panic(mut packet in proptest::collection::vec(any::<u8>(), 0..200), first in 0u8..3) {
        if let Some(byte) = packet.first_mut() {
            *byte = [0x45, 0x60, *byte][usize::from(first)];
        }
        if let Ok(error) = TooBig::parse(&packet) {
            for (config, _) in tunnels() {
                sent(&config, SourcePorts::default(), &error.quoted);
            }
        }
    }
}

/// An inner IPv4 packet with "don't fragment" and so many bytes behind its header.
fn inner_v4(len: usize) -> Vec<u8> {
    let packet = testkit::Packet::new(testkit::mac(1), testkit::mac(2));
    let packet = packet.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let mut packet = packet.protocol(6, &vec![7; len]).bytes().split_off(14);
    packet[6] |= 0x40;
    packet
}

fn inner_v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([protocol, 64]);
    packet.extend([0xfd; 16]);
    packet.extend([0xfe; 16]);
    packet[24] = 0x20;
    packet.extend(payload);
    packet
}

#[test]
fn the_sender_of_a_packet_that_is_too_big_gets_an_error_from_its_destination() {
    let packet = inner_v4(1480);
    let error = answer(EtherType::IPV4, &packet, 1450).unwrap();
    assert_eq!(error.len(), 576);
    assert_eq!((&error[12..16], &error[16..20]), (&packet[16..20], &packet[12..16]));
    let read = TooBig::parse(&error).unwrap();
    assert_eq!(
        (read.mtu, read.quoted.len, read.quoted.src),
        (1450, 1500, ip("10.0.0.1"))
    );

    let packet = inner_v6(6, &[7; 1460]);
    let error = answer(EtherType::IPV6, &packet, 1430).unwrap();
    assert_eq!(error.len(), 1280);
    assert_eq!((&error[8..24], &error[24..40]), (&packet[24..40], &packet[8..24]));
    let read = TooBig::parse(&error).unwrap();
    assert_eq!((read.mtu, read.quoted.len, read.quoted.data[0]), (1430, 1500, 7));
    // No host has to send smaller ones.
    let error = answer(EtherType::IPV6, &packet, 1000).unwrap();
    assert_eq!(TooBig::parse(&error).unwrap().mtu, 1280);
}

#[test]
fn no_error_is_sent_about_errors_fragments_and_packets_to_many() {
    let change = |at: usize, value: u8| {
        let mut packet = inner_v4(1480);
        packet[at] = value;
        answer(EtherType::IPV4, &packet, 1450)
    };
    assert!(change(8, 1).is_some());
    for (at, value) in [
        (6, 0),
        (7, 1),
        (6, 0x60),
        (12, 224),
        (12, 0),
        (16, 127),
        (16, 255),
        (16, 239),
        (0, 0x65),
    ] {
        assert_eq!(change(at, value), None, "{at} {value}");
    }
    for (kind, is_answered) in [(3, false), (5, false), (11, false), (8, true), (0, true)] {
        let mut packet = inner_v4(1480);
        (packet[9], packet[20]) = (1, kind);
        assert_eq!(
            answer(EtherType::IPV4, &packet, 1450).is_some(),
            is_answered,
            "ICMP {kind}"
        );
        let packet = inner_v6(58, &[kind; 1400]);
        assert!(answer(EtherType::IPV6, &packet, 1400).is_none(), "ICMPv6 {kind}");
    }
    assert!(answer(EtherType::IPV6, &inner_v6(58, &[128; 1400]), 1400).is_some());
    assert!(answer(EtherType::IPV6, &inner_v6(58, &[137; 1400]), 1400).is_none());
    let mut to_many = inner_v6(6, &[7; 1400]);
    to_many[24] = 0xff;
    assert_eq!(answer(EtherType::IPV6, &to_many, 1400), None);
    assert_eq!(answer(EtherType::MPLS, &inner_v4(1480), 1450), None);
    // Every link carries these.
    let small = inner_v6(6, &[7; 1240]);
    assert!(must_be_carried(EtherType::IPV6, &small) && answer(EtherType::IPV6, &small, 1200).is_none());
    assert!(!must_be_carried(EtherType::IPV6, &inner_v6(6, &[7; 1241])));
    assert!(!must_be_carried(EtherType::IPV4, &inner_v4(100)));
}

proptest! {
    #[test]
    fn fragments_together_are_the_packet(len in 1_usize..3000, mtu in 0_usize..2000) {
        let mut packet = inner_v4(len);
        for byte in &mut packet[20..] {
            *byte = (len % 251) as u8;
        }
        prop_assert!(allow_fragments(&mut packet, 0x1234));
        let all: Vec<Vec<u8>> = fragments(&packet, mtu).collect();
        prop_assert_eq!(all.is_empty(), mtu < 28);
        let mut data = Vec::new();
        for (n, fragment) in all.iter().enumerate() {
            let (header, ip) = wire::headers::ipv4(fragment).unwrap();
            prop_assert!(fragment.len() <= mtu && ip.end == fragment.len());
            prop_assert_eq!(checksum(&header[..]), 0);
            let offset = u16::from_be_bytes([header[6], header[7]]);
            prop_assert_eq!(usize::from(offset & 0x1fff) * 8, data.len());
            prop_assert_eq!(offset & 0x2000 != 0, n + 1 < all.len());
            prop_assert_eq!(&header[4..6], [0x12, 0x34]);
            data.extend_from_slice(&fragment[20..]);
        }
        prop_assert!(all.is_empty() || data == packet[20..]);
    }

    #[test]
    fn no_inner_packet_makes_an_answer_panic(
        packet in proptest::collection::vec(any::<u8>(), 0..100),
        v6 in any::<bool>(),
        mtu in any::<u16>(),
    ) {
        let kind = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let _ = (answer(kind, &packet, mtu.into()), fragments(&packet, mtu.into()).count());
    }
}
