//! Packets get outer headers and lose them as they do by workers.

use super::*;
use dp::offload::OuterHeaders;
use dp::{PathLimit, PortNo, TunnelPush};
use std::net::IpAddr;
use tunnel::format::{Body, Encapsulation, FlowLabel, Format, Inner, Kind, Outer, SourcePorts, geneve};
use wire::MacAddr;

/// Steps of a flow into a tunnel.
fn with(push: &OuterHeaders) -> Steps<'_> {
    Steps {
        push: Some(push),
        ..Steps::default()
    }
}

/// A packet of a tunnel, without a UDP checksum.
fn tunnelled(header: &[u8], inner: &[u8]) -> Vec<u8> {
    outside(false, false, header, inner)
}

/// A packet of a tunnel over IPv4 or IPv6, with a UDP checksum or without.
fn outside(ipv6: bool, sum: bool, header: &[u8], inner: &[u8]) -> Vec<u8> {
    let (ip, udp) = if ipv6 { (v6(), 54) } else { (v4(), 34) };
    let mut packet = ip.udp(0x8001, 4789, &[header, inner].concat()).bytes();
    if !sum {
        packet[udp + 6..udp + 8].fill(0);
    }
    packet
}

/// The inner packet that is in a tunnel's packet.
fn in_tunnel(kind: usize) -> Vec<u8> {
    let packet = Packet::new(mac(3), mac(4));
    let packet = match kind % 2 {
        0 => packet.ipv4(Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)),
        _ => packet.ipv6(Ipv6Addr::from_bits(9), Ipv6Addr::from_bits(10)),
    };
    match kind / 2 {
        0 => packet.udp(1000, 2000, b"some payload"),
        1 => packet.tcp(1000, 2000, 0x10, b"some payload"),
        _ => packet.echo(7, 1, b"some payload"),
    }
    .bytes()
}

/// The sum of the pseudo header of the IP packet at `at`, which is where the checksum of its
/// transport is while that is to be filled in, and where that is; without one for ICMP.
fn pseudo(packet: &[u8], at: usize) -> Option<([u8; 2], usize)> {
    let (protocol, addresses, transport) = match packet[at] >> 4 {
        4 => (packet[at + 9], at + 12..at + 20, at + 20),
        _ => (packet[at + 6], at + 8..at + 40, at + 40),
    };
    let field = match protocol {
        6 => 16,
        17 => 6,
        _ => return None,
    };
    let len = (packet.len() - transport) as u16;
    let pseudo = [&packet[addresses], &[0, protocol], &len.to_be_bytes()].concat();
    Some(((!testkit::checksum(&pseudo)).to_be_bytes(), transport + field))
}

/// What a receiver computes over an outer UDP datagram: 0 if its checksum is right.
pub(super) fn udp_sum(packet: &[u8]) -> u16 {
    let (sum, field) = pseudo(packet, 14).unwrap();
    testkit::checksum(&[&sum, &packet[field - 6..]].concat())
}

/// Leaves the checksum of the IP packet at `at` to be filled in, if its protocol has one.
fn unfill(packet: &mut [u8], at: usize) {
    if let Some((sum, field)) = pseudo(packet, at) {
        packet[field..field + 2].copy_from_slice(&sum);
    }
}

const VXLAN: Format = Format::Vxlan { gbp: false, gpe: false };

proptest! {
    /// The same for packets of tunnels, with changes in all headers.
    #[test]
    fn the_kernel_takes_packets_of_tunnels_of_the_same_kind(
        kind in 0..6_usize,
        format in 0..3_usize,
        changes in prop::collection::vec((0..170_usize, any::<u8>(), any::<bool>()), 0..4),
        cut in prop::option::of(34..180_usize),
        more in 0..3_usize,
        sums in any::<bool>(),
        ipv6 in any::<bool>(),
        sum in any::<bool>(),
        unfilled in any::<bool>(),
        segment in any::<bool>(),
    ) {
        static LOADED: LazyLock<Option<(Arc<OffloadTable>, Arc<Ebpf>)>> = LazyLock::new(table);
        let Some((table, ebpf)) = &*LOADED else {
            testkit::say_skipped(module_path!(), "needs the right to load BPF programs");
            return Ok(());
        };
        let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
        let (header, format) = match format {
            0 => (vec![8, 0, 0, 0, 0, 0, 42, 0], VXLAN),
            1 => (vec![0, 0, 0x65, 0x58, 0, 0, 42, 0], Format::Geneve),
            _ => ([&[2, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 1][..], &[9; 4]].concat(), Format::Geneve),
        };
        let mut packet = outside(ipv6, sum, &header, &in_tunnel(kind));
        let inner = packet.len() - in_tunnel(kind).len() + 14;
        if unfilled {
            unfill(&mut packet, inner);
        }
        let kind = port.kind_of_tunnel(&packet, format, false);
        if kind.is_none() && ipv6 != (packet[inner] >> 4 == 6) && !ebpf.removes_mixed {
            return Ok(());
        }
        let kind = kind.unwrap();
        let flow = port.open(&[(&exit, LONG)], kind, Steps::default(), &[], 0).unwrap();
        settle(&flow);
        let mut other = packet.clone();
        other.resize(other.len() + more, 0);
        for (at, value, low) in changes {
            if let Some(byte) = other.get_mut(at) {
                *byte = if low { byte.wrapping_add(value % 3) } else { value };
            }
        }
        other.truncate(cut.unwrap_or(usize::MAX));
        if sums && !ipv6 && other.len() > 34 {
            // What is changed behind the checksum counts too.
            other[24..26].fill(0);
            let sum = testkit::checksum(&other[14..34]);
            other[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let is_same = port.kind_of_tunnel(&other, format, segment) == Some(kind);
        match ebpf.takes_segment(&other, if segment { 5 } else { 0 }) {
            Some(takes) => prop_assert_eq!(takes, is_same, "{:02x?}", other),
            None => prop_assert!(!is_same && other.len() < 54),
        }
        let mut to_fill_in = packet.clone();
        unfill(&mut to_fill_in, 14);
        prop_assert_eq!(ebpf.takes(&to_fill_in), Some(false));
        prop_assert_eq!(flow.carried().bytes, if is_same { other.len() as u64 } else { 0 });
        let inside = (other.len() as u64).saturating_sub(kind.outer_len().into());
        prop_assert_eq!(exit.carried().tx_bytes, if is_same { inside } else { 0 });
    }
}

/// Outer headers that a flow gets, of 50 bytes.
pub(super) fn outer_headers(csum: bool, path_mtu: Option<u16>) -> OuterHeaders {
    let vxlan = Body::Vxlan {
        port: 4789,
        csum,
        id: 42,
        gbp: None,
        gpe: false,
    };
    outer_headers_of(false, Kind::Vxlan, &vxlan, path_mtu)
}

fn outer_headers_of(ipv6: bool, kind: Kind, body: &Body<'_>, path_mtu: Option<u16>) -> OuterHeaders {
    let address = |n: u8| match ipv6 {
        false => IpAddr::from([172, 31, 0, n]),
        true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n.into()]),
    };
    let outer = Outer {
        ethernet: Some((MacAddr(mac(5)), MacAddr(mac(6)))),
        src: address(1),
        dst: address(2),
        tos: 0,
        ttl: 64,
        df: true,
        label: FlowLabel::Zero,
        ports: SourcePorts::default(),
    };
    let push = TunnelPush {
        port: PortNo(4),
        underlay: PortNo(5),
        kind,
        headers: Encapsulation::new(&outer, body, Inner::Ethernet).unwrap(),
        sequence: None,
        limit: path_mtu.map(|mtu| PathLimit {
            mtu,
            fragments: false,
            id: None,
            answers: true,
        }),
    };
    OuterHeaders::of(&push, 7).unwrap()
}

#[test]
fn packets_and_segments_must_fit_their_device_and_their_path_with_outer_headers() {
    let Some((table, ebpf)) = table() else {
        skip!("needs the right to load BPF programs");
    };
    if !ebpf.adds_outer {
        skip!("needs Linux 5.13");
    }
    let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
    // 14, 20 and 20 bytes of headers, and 40 in IPv6.
    for (packet, headers) in [
        (v4().tcp(1, 2, 0x10, &[0; 1000]).bytes(), 54),
        (v6().tcp(1, 2, 0x10, &[0; 1000]).bytes(), 74),
        (v4().udp(1, 2, &[0; 1000]).bytes(), 42),
        (v6().udp(1, 2, &[0; 1000]).bytes(), 62),
    ] {
        let kind = port.kind(&packet).unwrap();
        for (longest, whole, segment) in [
            (headers + 1000 + 50, true, true),
            (headers + 1000 + 49, false, true),
            (headers + 100 + 50, false, true),
            (headers + 100 + 49, false, false),
        ] {
            let of_device = (Egress { longest, ..LONG }, outer_headers(false, None));
            let of_path = (LONG, outer_headers(false, Some(longest as u16 - 14)));
            for (egress, push) in [of_device, of_path] {
                let flow = port.open(&[(&exit, egress)], kind, with(&push), &[], 0).unwrap();
                settle(&flow);
                assert_eq!(ebpf.takes(&packet), Some(whole), "{longest}");
                assert_eq!(ebpf.takes_segment(&packet, 100), Some(segment), "{longest}");
            }
        }
    }
    // No IPv4 packet is so long, and other segments than those of TCP and UDP are not cut here.
    let long = v6().tcp(1, 2, 0x10, &[0; 65_400]).bytes();
    let echo = v4().echo(7, 1, b"some payload").bytes();
    let push = outer_headers(false, None);
    for packet in [long, echo] {
        let kind = port.kind(&packet).unwrap();
        let flow = port.open(&[(&exit, LONG)], kind, with(&push), &[], 0).unwrap();
        settle(&flow);
        assert_ne!(ebpf.takes_segment(&packet, 100), Some(true), "{}", packet.len());
    }
}

/// What the kernel puts before packets, and what it leaves of them, is what workers do.
#[test]
fn outer_headers_with_checksums_and_options_are_added_and_removed_over_both_versions_of_ip() {
    let Some((table, ebpf)) = table() else {
        skip!("needs the right to load BPF programs");
    };
    if !ebpf.adds_outer {
        skip!("needs Linux 5.13");
    }
    let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
    let options = [[1, 2, 3, 1, 9, 9, 9, 9], [1, 2, 4, 1, 8, 8, 8, 8]].concat();
    let bodies = [0, 8, 16].map(|len| Body::Geneve {
        port: 4789,
        csum: true,
        id: 42,
        oam: false,
        options: geneve::Options::new(&options[..len]).unwrap(),
    });
    let long = |len: usize| {
        Packet::new(mac(3), mac(4))
            .ipv4([10, 9, 0, 1].into(), [10, 9, 0, 2].into())
            .udp(1, 2, &vec![5; len])
    };
    let long = [63, 64, 65, 3000].map(|len| long(len).bytes());
    for ipv6 in [false, true] {
        for body in &bodies {
            let push = outer_headers_of(ipv6, Kind::Geneve, body, None);
            for inner in (0..6).map(in_tunnel).chain(long.clone()) {
                for pending in [false, true] {
                    let mut packet = inner.clone();
                    if pending {
                        unfill(&mut packet, 14);
                    }
                    let egress = Egress { longest: 9000, ..LONG };
                    let kind = port.kind(&packet).unwrap();
                    let flow = port.open(&[(&exit, egress)], kind, with(&push), &[], 0).unwrap();
                    settle(&flow);
                    let sent = ebpf.forwards(&packet).unwrap();
                    drop(flow);
                    assert_eq!(sent.len(), packet.len() + push.bytes().len());
                    assert_eq!(sent[push.bytes().len()..], packet);
                    // The inner checksum is filled in later: that is a different packet.
                    let whole = [&sent[..sent.len() - packet.len()], &inner].concat();
                    assert_eq!(udp_sum(&whole), 0, "{sent:02x?}");
                    let Some(kind) = port.kind_of_tunnel(&sent, Format::Geneve, false) else {
                        assert!(!ebpf.removes_mixed);
                        continue;
                    };
                    let flow = port.open(&[(&exit, egress)], kind, Steps::default(), &[], 0).unwrap();
                    settle(&flow);
                    assert_eq!(ebpf.forwards(&sent), Some(packet));
                    drop(flow);
                }
            }
        }
    }
}

#[test]
fn what_is_inside_of_outer_headers_must_fit_its_device() {
    let Some((table, ebpf)) = table() else {
        skip!("needs the right to load BPF programs");
    };
    let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
    let packet = tunnelled(&[8, 0, 0, 0, 0, 0, 42, 0], &in_tunnel(0));
    let inside = packet.len() as u32 - 50;
    let kind = port.kind_of_tunnel(&packet, VXLAN, false).unwrap();
    for (longest, takes) in [(inside, true), (inside - 1, false)] {
        let egress = Egress { longest, ..LONG };
        let flow = port.open(&[(&exit, egress)], kind, Steps::default(), &[], 0).unwrap();
        flow.resume(port.sum([&exit].into_iter(), &[]));
        settle(&flow);
        assert_eq!(ebpf.takes(&packet), Some(takes), "{longest}");
    }
}
