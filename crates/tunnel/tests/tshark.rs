//! tshark decodes the outer headers that templates write, without a complaint.

use std::net::{IpAddr, Ipv6Addr};
use testkit::{Sandbox, from_hex, skip, tshark};
use tunnel::format::{
    Body, Encapsulation, Erspan, ErspanV2, FlowLabel, Gbp, Inner, Outer, Packet, Payload, SourcePorts, geneve,
};
use wire::EtherType;

/// An Ethernet frame with an ICMP echo request, good for any decoder.
fn frame() -> Vec<u8> {
    [from_hex("0200000000020200000000010800"), echo()].concat()
}

/// ICMP echo over IPv4.
fn echo() -> Vec<u8> {
    from_hex("4500001c00014000400126de0a0000010a0000020800f7fd00010001")
}

/// UDP over IPv6 without data.
fn ipv6() -> Vec<u8> {
    from_hex("6000000000081140fd000000000000000000000000000001fd00000000000000000000000000000200070009000805ca")
}

fn payload(inner: Inner) -> Vec<u8> {
    match inner {
        Inner::Ethernet => frame(),
        Inner::Packet(EtherType::IPV6) => ipv6(),
        Inner::Packet(EtherType::MPLS) => [from_hex("00064140"), echo()].concat(),
        _ => echo(),
    }
}

/// A packet, and a field that tshark shows with its value.
struct Sample<'a> {
    body: Body<'a>,
    inner: Inner,
    field: &'a str,
    value: &'a str,
}

fn sample<'a>(body: Body<'a>, inner: Inner, field: &'a str, value: &'a str) -> Sample<'a> {
    Sample {
        body,
        inner,
        field,
        value,
    }
}

fn outer(v6: bool) -> Outer {
    let address = |host: u8| match v6 {
        false => IpAddr::from([192, 0, 2, host]),
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into(),
    };
    Outer {
        ethernet: None,
        src: address(1),
        dst: address(2),
        tos: 0x28,
        ttl: 64,
        df: true,
        label: FlowLabel::Hash,
        ports: SourcePorts::default(),
    }
}

#[test]
fn tshark_decodes_every_format_over_both_families() {
    skip!(unless "tshark");
    let mut options = geneve::OptionsBuffer::default();
    options.push(0x0102, 0x80, &[0, 0, 0, 7]).unwrap();
    options.push(0x0103, 2, &[]).unwrap();
    let vxlan = |gbp, gpe, port| Body::Vxlan {
        port,
        csum: true,
        id: 77,
        gbp,
        gpe,
    };
    let gre = |id, csum, sequence| Body::Gre { id, csum, sequence };
    let segments = ["fd00::2".parse().unwrap(), "fd00::7".parse().unwrap()];
    let (v4, v6) = (Inner::Packet(EtherType::IPV4), Inner::Packet(EtherType::IPV6));
    let mpls = Inner::Packet(EtherType::MPLS);
    let v2 = ErspanV2 { hwid: 5, egress: true };
    let samples = [
        sample(vxlan(None, false, 4789), Inner::Ethernet, "vxlan.vni", "77"),
        sample(
            vxlan(Some(Gbp { id: 9, flags: 8 }), false, 4789),
            Inner::Ethernet,
            "vxlan.gbp",
            "9",
        ),
        sample(vxlan(None, true, 4790), v4, "vxlan.next_proto", "1"),
        sample(
            Body::Geneve {
                port: 6081,
                csum: true,
                id: 78,
                oam: false,
                options: options.options(),
            },
            Inner::Ethernet,
            "geneve.vni",
            "0x00004e",
        ),
        sample(gre(None, false, false), Inner::Ethernet, "gre.proto", "0x6558"),
        sample(gre(Some(79), true, true), v6, "gre.key", "0x0000004f"),
        sample(gre(None, true, false), mpls, "mpls.label", "100"),
        sample(
            Body::Erspan {
                id: 80,
                fields: Erspan::V1 { index: 3 },
            },
            Inner::Ethernet,
            "erspan.spanid",
            "80",
        ),
        sample(
            Body::Erspan {
                id: 81,
                fields: Erspan::V2(v2),
            },
            Inner::Ethernet,
            "erspan.hw",
            "5",
        ),
        sample(
            Body::Gtpu {
                port: 2152,
                id: 82,
                sequence: false,
            },
            v4,
            "gtp.teid",
            "0x00000052",
        ),
        sample(
            Body::Gtpu {
                port: 2152,
                id: 83,
                sequence: true,
            },
            v6,
            "gtp.seq_number",
            "0x0009",
        ),
        sample(
            Body::Bareudp {
                port: 6635,
                csum: false,
                payload: Payload::Mpls,
            },
            mpls,
            "mpls.label",
            "100",
        ),
        sample(Body::Srv6 { segments: &segments }, v4, "ipv6.routing.segleft", "1"),
        sample(
            Body::Srv6 {
                segments: &segments[..1],
            },
            v6,
            "ipv6.routing.segleft",
            "0",
        ),
    ];
    let mut packets = Vec::new();
    let mut expected = Vec::new();
    for v6 in [false, true] {
        for sample in &samples {
            if matches!(sample.body, Body::Srv6 { .. }) && !v6 {
                continue;
            }
            let template = Encapsulation::new(&outer(v6), &sample.body, sample.inner).unwrap();
            let mut bytes = vec![0; template.len()];
            bytes.extend(payload(sample.inner));
            let packet = Packet {
                hash: 0x1234_5678,
                identification: 3,
                sequence: 9,
                time: 1,
                sum: None,
            };
            template.write(&mut bytes, &packet).unwrap();
            packets.push(bytes);
            expected.push(sample);
        }
    }
    let sandbox = Sandbox::new();
    let file = sandbox.path("tunnels.pcap");
    std::fs::write(&file, testkit::pcap::of_ip(&packets)).unwrap();
    let mut options = vec!["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"];
    // Warnings and errors; notes point to what may be of interest.
    let complaints = ["-Y", "_ws.malformed || _ws.expert.severity >= 0x600000", "-V"];
    let complaints = tshark(&file, &[&options[..], &complaints].concat());
    assert!(complaints.is_empty(), "{complaints}");
    options.extend(["-T", "fields", "-E", "separator=|", "-e", "frame.protocols"]);
    options.extend(samples.iter().flat_map(|sample| ["-e", sample.field]));
    let lines = tshark(&file, &options);
    assert_eq!(lines.lines().count(), expected.len());
    for (
        line,
        Sample {
            inner, field, value, ..
        },
    ) in lines.lines().zip(expected)
    {
        let values: Vec<&str> = line.split('|').collect();
        let place = samples.iter().rposition(|sample| sample.field == *field).unwrap();
        assert_eq!(values[1 + place], *value, "{field}: {line}");
        let last = if *inner == Inner::Packet(EtherType::IPV6) {
            "ipv6:udp"
        } else {
            "icmp"
        };
        assert!(values[0].contains(last), "{line}");
    }
}
