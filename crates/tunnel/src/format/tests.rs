use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::checksum::{Sum, checksum};
use wire::{EtherType, MacAddr};

mod hostile;

const V4: EtherType = EtherType::IPV4;
const V6: EtherType = EtherType::IPV6;

/// An IPv4 packet of 40 bytes with this type of service.
fn ipv4(tos: u8) -> Vec<u8> {
    let mut packet = vec![0x45, tos, 0, 40, 0, 1, 0, 0, 63, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0, 7, 0, 9, 0, 20, 0, 0]);
    packet.extend([0xab; 12]);
    packet
}

/// An IPv6 packet of 52 bytes with this traffic class and the flow label 0x54321.
fn ipv6(class: u8) -> Vec<u8> {
    let mut packet = (6 << 28 | u32::from(class) << 20 | 0x5_4321).to_be_bytes().to_vec();
    packet.extend([0, 12, 17, 64]);
    packet.extend(Ipv6Addr::LOCALHOST.octets());
    packet.extend(Ipv6Addr::LOCALHOST.octets());
    packet.extend([0, 7, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4]);
    packet
}

/// An Ethernet frame with an IP packet.
fn ethernet(kind: EtherType, packet: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &kind.0.to_be_bytes(), packet].concat()
}

fn payload_of(inner: Inner) -> Vec<u8> {
    match inner {
        Inner::Ethernet => ethernet(V4, &ipv4(0)),
        Inner::Packet(V6) => ipv6(0),
        Inner::Packet(V4) => ipv4(0),
        _ => vec![0x10; 20],
    }
}

fn outer(v6: bool) -> Outer {
    let (src, dst) = match v6 {
        false => (Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::new(192, 0, 2, 2).into()),
        true => ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()),
    };
    Outer {
        ethernet: None,
        src,
        dst,
        tos: 0x20,
        ttl: 64,
        df: true,
        label: FlowLabel::Zero,
        ports: SourcePorts::default(),
    }
}

/// A packet of the template's flow.
fn written(template: &Encapsulation, payload: &[u8], packet: &Packet) -> Vec<u8> {
    let mut frame = [&vec![0xee; template.len()][..], payload].concat();
    template.write(&mut frame, packet).unwrap();
    frame
}

/// The format of the port that receives the packet.
fn format_of(body: &Body<'_>) -> Format {
    match body {
        Body::Vxlan { gbp, gpe, .. } => Format::Vxlan {
            gbp: gbp.is_some(),
            gpe: *gpe,
        },
        Body::Geneve { .. } => Format::Geneve,
        Body::Gre { .. } | Body::Erspan { .. } => Format::Gre,
        Body::Gtpu { .. } => Format::Gtpu,
        Body::Bareudp { payload, .. } => Format::Bareudp(*payload),
        Body::Srv6 { .. } => Format::Srv6,
    }
}

/// A body of every kind, with what it carries.
fn bodies() -> Vec<(Body<'static>, Inner)> {
    static OPTIONS: [u8; 16] = [1, 2, 0x83, 1, 9, 9, 9, 9, 0, 1, 5, 1, 7, 7, 7, 7];
    let vxlan = |gbp, gpe| Body::Vxlan {
        port: 4789,
        csum: false,
        id: 0xabcdef,
        gbp,
        gpe,
    };
    let gre = |id, csum, sequence| Body::Gre { id, csum, sequence };
    let segments: &'static [Ipv6Addr] = Box::leak(Box::new(["fd00::2".parse().unwrap()]));
    let bareudp = |payload| Body::Bareudp {
        port: 6635,
        csum: true,
        payload,
    };
    vec![
        (vxlan(None, false), Inner::Ethernet),
        (vxlan(Some(Gbp { id: 77, flags: 0x48 }), false), Inner::Ethernet),
        (vxlan(None, true), Inner::Ethernet),
        (vxlan(None, true), Inner::Packet(V4)),
        (vxlan(None, true), Inner::Packet(EtherType::NSH)),
        (
            Body::Geneve {
                port: 6081,
                csum: true,
                id: 5,
                oam: true,
                options: geneve::Options::new(&OPTIONS).unwrap(),
            },
            Inner::Ethernet,
        ),
        (gre(None, false, false), Inner::Ethernet),
        (gre(Some(0xffff_ffff), true, true), Inner::Ethernet),
        (gre(Some(0), false, true), Inner::Packet(V6)),
        (gre(None, true, false), Inner::Packet(EtherType::MPLS)),
        (
            Body::Erspan {
                id: 0x3ff,
                fields: Erspan::V1 { index: 0xf_ffff },
            },
            Inner::Ethernet,
        ),
        (
            Body::Erspan {
                id: 1,
                fields: Erspan::V2(ErspanV2 {
                    hwid: 0x3f,
                    egress: true,
                }),
            },
            Inner::Ethernet,
        ),
        (
            Body::Gtpu {
                port: 2152,
                id: 0xdead_beef,
                sequence: false,
            },
            Inner::Packet(V4),
        ),
        (
            Body::Gtpu {
                port: 2152,
                id: 1,
                sequence: true,
            },
            Inner::Packet(V6),
        ),
        (bareudp(Payload::Ip), Inner::Packet(V6)),
        (bareudp(Payload::Mpls), Inner::Packet(EtherType::MPLS)),
        (bareudp(Payload::Type(EtherType(0x6558))), Inner::Ethernet),
        (Body::Srv6 { segments }, Inner::Packet(V4)),
    ]
}

/// All bodies over the families that they have.
fn templates() -> Vec<(Format, Encapsulation, Inner)> {
    let mut all = Vec::new();
    for (body, inner) in bodies() {
        for v6 in [false, true] {
            if matches!(body, Body::Srv6 { .. }) && !v6 {
                continue;
            }
            let template = Encapsulation::new(&outer(v6), &body, inner).unwrap();
            all.push((format_of(&body), template, inner));
        }
    }
    all
}

fn id_of(body: &Body<'_>) -> Option<u64> {
    match *body {
        Body::Vxlan { id, .. } | Body::Geneve { id, .. } | Body::Gtpu { id, .. } => Some(id),
        Body::Erspan { id, .. } => Some(id),
        Body::Gre { id, .. } => id,
        _ => None,
    }
}

#[test]
fn what_is_written_is_read_back() {
    for (body, inner) in bodies() {
        for v6 in [false, true] {
            let outer = outer(v6);
            let Ok(template) = Encapsulation::new(&outer, &body, inner) else {
                assert!(matches!(body, Body::Srv6 { .. }) && !v6);
                continue;
            };
            let payload = payload_of(inner);
            let packet = Packet {
                hash: 0x8000_0000,
                identification: 7,
                sequence: 9,
                time: 3,
                sum: None,
            };
            let mut bytes = written(&template, &payload, &packet);
            let len = bytes.len();
            // Ethernet pads short frames.
            bytes.extend([0xff; 6]);
            let read = decapsulate(format_of(&body), &bytes, Checksums::Verify).unwrap();
            assert_eq!(
                (read.src, read.dst, read.tos, read.ttl),
                (outer.src, outer.dst, 0x20, 64)
            );
            assert_eq!(
                (read.start, read.end, read.inner),
                (template.len(), len, inner),
                "{body:?}"
            );
            assert_eq!(read.id, id_of(&body));
            let details = match body {
                Body::Vxlan { gbp: Some(gbp), .. } => Details::Gbp(gbp),
                Body::Geneve { options, .. } => Details::Geneve(options),
                Body::Erspan { fields, .. } => Details::Erspan(fields),
                Body::Gtpu { sequence, .. } => Details::Gtpu(Gtpu {
                    flags: 0x30 | if sequence { 2 } else { 0 },
                    message: 255,
                }),
                _ => Details::None,
            };
            assert_eq!(read.details, details);
            assert_eq!(read.oam, matches!(body, Body::Geneve { .. }));
            let udp = !matches!(read.kind, Kind::Gre | Kind::Erspan | Kind::Srv6);
            assert_eq!(read.tp_src, if udp { 32_768 + 28_233 / 2 } else { 0 });
            let asked = match body {
                Body::Vxlan { csum, .. } | Body::Geneve { csum, .. } | Body::Bareudp { csum, .. } => csum,
                Body::Gre { csum, .. } => csum,
                _ => false,
            };
            let always = udp && v6 || matches!(body, Body::Gtpu { .. });
            assert_eq!(read.csum, asked || always, "{body:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_known_sum_of_the_payload_gives_the_same_headers(
        payload in proptest::collection::vec(any::<u8>(), 40..200), hash: u32, identification: u16,
    ) {
        for (format, template, inner) in templates() {
            let payload = match inner {
                Inner::Packet(V4) | Inner::Packet(V6) => payload_of(inner),
                _ => payload.clone(),
            };
            let packet = Packet { hash, identification, ..Packet::default() };
            let known = Packet { sum: Some(Sum::ZERO.bytes(&payload)), ..packet };
            let bytes = written(&template, &payload, &packet);
            prop_assert_eq!(&bytes, &written(&template, &payload, &known));
            let read = decapsulate(format, &bytes, Checksums::Verify);
            prop_assert!(read.is_ok_and(|read| bytes[read.start..read.end] == payload));
        }
    }

    #[test]
    fn source_ports_stay_in_their_range(hash: u32, first: u16, last: u16) {
        if let Some(ports) = SourcePorts::new(first, last) {
            let outer = Outer { ports, ..outer(false) };
            let template = Encapsulation::new(&outer, &bodies()[0].0, Inner::Ethernet).unwrap();
            let bytes = written(&template, &payload_of(Inner::Ethernet), &Packet { hash, ..Packet::default() });
            prop_assert!((first..=last).contains(&be16(&bytes, 20)));
        } else {
            prop_assert!(first > last);
        }
    }
}

#[test]
fn an_outer_ethernet_header_comes_first() {
    let ethernet = Some((MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1])));
    for (body, inner) in bodies() {
        let plain = Encapsulation::new(&outer(true), &body, inner).unwrap();
        let framed = Encapsulation::new(
            &Outer {
                ethernet,
                ..outer(true)
            },
            &body,
            inner,
        )
        .unwrap();
        let payload = payload_of(inner);
        let bytes = written(&framed, &payload, &Packet::default());
        assert_eq!(bytes[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd]);
        assert_eq!(bytes[14..], written(&plain, &payload, &Packet::default()));
        assert!(framed.len() <= MAX_HEADER);
    }
}

#[test]
fn the_flow_label_is_zero_or_the_hash_or_the_inner_one() {
    let body = bodies()[8].0;
    let label = |label, payload: &[u8], inner| {
        let outer = Outer { label, ..outer(true) };
        let template = Encapsulation::new(&outer, &body, inner).unwrap();
        let packet = Packet {
            hash: 0xfff1_2345,
            ..Packet::default()
        };
        be32(&written(&template, payload, &packet), 0)
    };
    let v6 = Inner::Packet(V6);
    assert_eq!(label(FlowLabel::Zero, &ipv6(0), v6), 0x6200_0000);
    assert_eq!(label(FlowLabel::Hash, &ipv6(0), v6), 0x6201_2345);
    assert_eq!(label(FlowLabel::Copy, &ipv6(0), v6), 0x6205_4321);
    assert_eq!(label(FlowLabel::Copy, &ipv4(0), Inner::Packet(V4)), 0x6200_0000);
}

#[test]
fn what_a_header_has_no_room_for_is_refused() {
    use EncapsulateError as Error;
    let segments: Vec<Ipv6Addr> = vec!["fd00::2".parse().unwrap(); 7];
    let elsewhere = ["fd00::3".parse().unwrap()];
    let vxlan = |id, gpe| Body::Vxlan {
        port: 4789,
        csum: false,
        id,
        gbp: None,
        gpe,
    };
    let v2 = |hwid| Erspan::V2(ErspanV2 { hwid, egress: false });
    let v4 = Inner::Packet(V4);
    let bareudp = Body::Bareudp {
        port: 1,
        csum: false,
        payload: Payload::Ip,
    };
    for (v6, body, inner, error) in [
        (false, vxlan(1 << 24, false), Inner::Ethernet, Error::Id),
        (false, vxlan(1, false), v4, Error::Inner),
        (false, vxlan(1, true), Inner::Packet(EtherType::ARP), Error::Inner),
        (
            false,
            Body::Gre {
                id: Some(1 << 32),
                csum: false,
                sequence: false,
            },
            v4,
            Error::Id,
        ),
        (
            false,
            Body::Gre {
                id: None,
                csum: false,
                sequence: false,
            },
            Inner::Message,
            Error::Inner,
        ),
        (
            false,
            Body::Erspan {
                id: 1024,
                fields: v2(0),
            },
            Inner::Ethernet,
            Error::Id,
        ),
        (
            false,
            Body::Erspan { id: 1, fields: v2(64) },
            Inner::Ethernet,
            Error::Erspan,
        ),
        (
            false,
            Body::Erspan {
                id: 1,
                fields: Erspan::V1 { index: 1 << 20 },
            },
            Inner::Ethernet,
            Error::Erspan,
        ),
        (false, Body::Erspan { id: 1, fields: v2(0) }, v4, Error::Inner),
        (
            false,
            Body::Gtpu {
                port: 1,
                id: 1 << 32,
                sequence: false,
            },
            v4,
            Error::Id,
        ),
        (
            false,
            Body::Gtpu {
                port: 1,
                id: 1,
                sequence: false,
            },
            Inner::Ethernet,
            Error::Inner,
        ),
        (false, bareudp, Inner::Ethernet, Error::Inner),
        (
            false,
            Body::Srv6 {
                segments: &segments[..1],
            },
            v4,
            Error::Family,
        ),
        (true, Body::Srv6 { segments: &segments }, v4, Error::Segments),
        (true, Body::Srv6 { segments: &[] }, v4, Error::Segments),
        (true, Body::Srv6 { segments: &elsewhere }, v4, Error::Segments),
        (
            true,
            Body::Srv6 {
                segments: &segments[..1],
            },
            Inner::Ethernet,
            Error::Inner,
        ),
    ] {
        assert_eq!(Encapsulation::new(&outer(v6), &body, inner), Err(error), "{body:?}");
    }
    let mixed = Outer {
        src: outer(true).src,
        ..outer(false)
    };
    assert_eq!(
        Encapsulation::new(&mixed, &vxlan(1, false), Inner::Ethernet),
        Err(Error::Family)
    );
    let mut options = geneve::OptionsBuffer::default();
    assert_eq!(options.push(1, 1, &[0; 3]), Err(Error::Options));
    assert_eq!(options.push(1, 1, &[0; 128]), Err(Error::Options));
    assert_eq!(options.push(1, 1, &[0; 124]), Ok(()));
    assert_eq!(options.push(1, 1, &[0; 120]), Ok(()));
    assert_eq!(options.push(1, 1, &[]), Err(Error::Options));
    assert_eq!(options.options().bytes().len(), 252);
}

#[test]
fn a_packet_is_at_most_as_long_as_ip_allows() {
    for (v6, most) in [(false, 65_535 - 28 - 8), (true, 65_535 - 8 - 8)] {
        let template = Encapsulation::new(&outer(v6), &bodies()[0].0, Inner::Ethernet).unwrap();
        let mut frame = vec![0; template.len() + most];
        assert_eq!(template.write(&mut frame, &Packet::default()), Ok(()));
        frame.push(0);
        assert_eq!(template.write(&mut frame, &Packet::default()), Err(TooLong));
    }
}

#[test]
fn marks_are_joined_as_rfc_6040_says() {
    use ecn::Ecn::{self, Ce, Ect0, Ect1, NotEct};
    // Figure 4: rows are the inner marks, columns the outer ones.
    let outer = [NotEct, Ect0, Ect1, Ce];
    let table: [(Ecn, [Option<Ecn>; 4]); 4] = [
        (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
        (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
        (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
        (Ce, [Some(Ce); 4]),
    ];
    for (inner, row) in table {
        for (outer, expected) in outer.into_iter().zip(row) {
            assert_eq!(ecn::decapsulate(outer, inner).ok(), expected, "{inner:?} {outer:?}");
            let (tos, mark) = (0xb8 | inner as u8, outer as u8);
            let mut packets = [
                (ethernet(V4, &ipv4(tos)), Inner::Ethernet),
                (
                    ethernet(EtherType::VLAN, &[&[0, 5, 8, 0][..], &ipv4(tos)].concat()),
                    Inner::Ethernet,
                ),
                (ethernet(V6, &ipv6(tos)), Inner::Ethernet),
                (ipv4(tos), Inner::Packet(V4)),
                (ipv6(tos), Inner::Packet(V6)),
            ];
            for (packet, kind) in &mut packets {
                let before = inner_ip(packet, *kind).unwrap();
                assert_eq!(before.tos, tos);
                let done = ecn::apply(packet, *kind, mark);
                assert_eq!(done.is_ok(), expected.is_some());
                let tos = expected.map_or(tos, |mark| 0xb8 | mark as u8);
                assert_eq!(inner_ip(packet, *kind), Some(InnerIp { tos, ..before }));
                let ip = packet.len() - 40;
                assert!(before.label.is_some() || checksum(&packet[ip..ip + 20]) == 0);
            }
        }
        assert_eq!(ecn::encapsulate(0xbb, inner), 0xb8 | inner as u8);
    }
    // Frames without IP have no mark.
    let mut arp = ethernet(EtherType::ARP, &[0; 28]);
    assert_eq!(ecn::apply(&mut arp, Inner::Ethernet, 3), Ok(()));
}
