use super::*;
use crate::format::{Body, Encapsulation, FlowLabel, Inner, Outer, Packet, SourcePorts};
use crate::vport::{Config, Type, parse};
use nanos::Nanos;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
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
    assert_eq!(mtu(&v4, 68), Ok(68));
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

/// An error with this size.
fn too_big(mtu: u16) -> TooBig<'static> {
    let quoted = Quoted {
        src: ip("192.0.2.1"),
        dst: ip("192.0.2.2"),
        protocol: 17,
        len: 1500,
        data: &[],
    };
    TooBig { mtu, quoted }
}

#[test]
fn a_size_only_gets_smaller_and_is_forgotten_after_ten_minutes() {
    let mut table = Table::default();
    let to = ip("192.0.2.2");
    assert_eq!(table.learn(to, &too_big(1400), secs(0)), [to]);
    assert_eq!(table.learn(to, &too_big(1450), secs(100)), NONE);
    assert_eq!(table.path_mtus().get(to), Some(1400));
    assert_eq!(table.next_event(), Some(secs(600)));
    let before = table.path_mtus();
    assert_eq!(table.learn(to, &too_big(1400), secs(200)), NONE);
    assert_eq!(table.path_mtus().version(), before.version());
    assert_eq!(table.learn(to, &too_big(1300), secs(300)), [to]);
    assert_eq!((before.get(to), table.path_mtus().get(to)), (Some(1400), Some(1300)));
    assert!(before.version() < table.path_mtus().version());
    assert_eq!(table.tick(secs(899)), NONE);
    assert_eq!(table.tick(secs(900)), [to]);
    assert_eq!((table.path_mtus().get(to), table.next_event()), (None, None));
    assert_eq!(table.counters(), Counters { learned: 2, evicted: 0 });
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
            let before = table.path_mtus();
            let mut told = table.tick(now);
            told.extend(table.learn(address(n), &too_big(mtu), now));
            let after = table.path_mtus();
            let size = after.get(address(n)).unwrap();
            prop_assert!(size <= mtu);
            prop_assert!(table.next_event().unwrap() > now);
            let known = (0..12).filter(|n| after.get(address(*n)).is_some()).count();
            prop_assert!(known <= 5);
            for n in 0..12 {
                let same = before.get(address(n)) == after.get(address(n));
                prop_assert!(same || told.contains(&address(n)));
                prop_assert!(same || before.version() < after.version());
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
