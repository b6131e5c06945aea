//! Keys of packets, whole and damaged, beside what Open vSwitch reads of them
//! (`ovs-ofctl parse-pcap`).
#![allow(clippy::unwrap_used)]

use flow::{Field, Key, PortNo, extract};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use testkit::Rng;
use wire::MacAddr;

/// How many packets are compared.
const PACKETS: usize = 20_000;

#[test]
fn keys_are_what_open_vswitch_reads() {
    testkit::skip!(unless "ovs-ofctl");
    let mut rng = Rng::new(5);
    let packets: Vec<_> = (0..PACKETS).map(|_| packet(&mut rng)).collect();
    let theirs = parsed_by_open_vswitch(&packets);
    assert_eq!(theirs.len(), packets.len());
    let mut kinds = BTreeMap::<String, usize>::new();
    for (packet, theirs) in packets.iter().zip(&theirs) {
        // A packet that ends inside its outermost tag is dropped here; there it goes on as one
        // without a tag.
        let Some(key) = extract(packet, &PortNo(0).into()) else {
            continue;
        };
        let (ours, theirs) = (ours(&key), normal(theirs));
        assert_eq!(ours, theirs, "{}", testkit::to_hex(packet));
        let kind: String = theirs.split(',').map(|part| part.split('=').next().unwrap()).collect();
        *kinds.entry(kind).or_default() += 1;
    }
    // All kinds must have come up.
    assert!(kinds.len() > 25, "{kinds:#?}");
}

/// The lines that `ovs-ofctl` prints.
fn parsed_by_open_vswitch(packets: &[Vec<u8>]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("packets.pcap");
    let mut capture = Vec::new();
    for word in [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 1u32] {
        capture.extend(word.to_le_bytes());
    }
    for packet in packets {
        for word in [0, 0, packet.len() as u32, packet.len() as u32] {
            capture.extend(word.to_le_bytes());
        }
        capture.extend(packet);
    }
    std::fs::write(&path, capture).unwrap();
    let output = Command::new("ovs-ofctl").arg("parse-pcap").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(Into::into).collect()
}

/// A packet of many headers, now and then damaged, cut or padded.
fn packet(rng: &mut Rng) -> Vec<u8> {
    let mut data = Vec::new();
    for _ in 0..2 {
        data.extend([2, 0, 0, 0, 0, rng.below(4) as u8]);
    }
    for _ in 0..[0, 0, 0, 1, 1, 2, 3][rng.below(7)] {
        data.extend([[0x81, 0], [0x88, 0xa8]][rng.below(2)]);
        data.extend((rng.number() as u16).to_be_bytes());
    }
    let (kind, payload) = network(rng);
    if rng.chance(5) {
        data.extend([0, 40, 0xaa, 0xaa, 3, 0, 0, 0]);
    }
    data.extend(kind.to_be_bytes());
    data.extend(payload);
    if rng.chance(30) {
        let padding = rng.below(20);
        data.extend((0..padding).map(|_| rng.number() as u8));
    }
    if rng.chance(20) {
        data.truncate(14 + rng.below(data.len()));
    }
    for _ in 0..[0, 0, 1, 2][rng.below(4)] {
        let at = 12 + rng.below(data.len() - 12);
        data[at] = match rng.below(3) {
            0 => rng.number() as u8,
            1 => data[at] ^ 1 << rng.below(8),
            _ => *rng.pick(&[0, 1, 2, 6, 17, 43, 44, 51, 58, 60, 132, 135, 136, 255]),
        };
    }
    data
}

fn network(rng: &mut Rng) -> (u16, Vec<u8>) {
    let mut data = Vec::new();
    match rng.below(12) {
        0 => {
            data.extend([0, 1, 8, 0, 6, 4, 0, rng.below(3) as u8]);
            data.extend((0..20).map(|_| rng.number() as u8));
            ([0x806, 0x8035][rng.below(2)], data)
        }
        1 | 2 => {
            for _ in 0..rng.below(5) {
                data.extend((rng.number() as u32 & !0x100).to_be_bytes());
            }
            data.extend((rng.number() as u32 | 0x100).to_be_bytes());
            ([0x8847, 0x8848][rng.below(2)], data)
        }
        3 => (rng.number() as u16, vec![rng.number() as u8; rng.below(40)]),
        4..=6 => {
            let (protocol, payload) = transport(rng, false);
            let options = [0, 0, 1, 10][rng.below(4)];
            let fragment: u16 = *rng.pick(&[0, 0, 0, 0x4000, 0x2000, 0x2001, 1]);
            data.extend([0x45 + options, rng.number() as u8]);
            data.extend((20 + 4 * u16::from(options) + payload.len() as u16).to_be_bytes());
            data.extend([0, 1]);
            data.extend(fragment.to_be_bytes());
            data.extend([rng.number() as u8, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            data.extend(vec![1; 4 * usize::from(options)]);
            data.extend(payload);
            (0x800, data)
        }
        _ => {
            let (protocol, payload) = transport(rng, true);
            let number = [0, 0, 0, 1, 2, 4][rng.below(6)];
            let extensions: Vec<u8> = (0..number).map(|_| *rng.pick(&[0, 43, 44, 51, 60])).collect();
            let nexts = extensions.iter().skip(1).copied().chain([protocol]);
            let mut chain = Vec::new();
            for (header, next) in extensions.iter().zip(nexts) {
                let longer = rng.below(3);
                chain.extend([next, longer as u8]);
                match header {
                    44 => {
                        let offset: u16 = *rng.pick(&[0, 0, 1, 2, 8, 9]);
                        chain.extend(offset.to_be_bytes());
                        chain.extend([0; 4]);
                    }
                    51 => chain.extend(vec![0; (longer + 2) * 4 - 2]),
                    _ => chain.extend(vec![0; (longer + 1) * 8 - 2]),
                }
            }
            chain.extend(payload);
            data.extend((6 << 28 | rng.number() as u32 & 0xfff_ffff).to_be_bytes());
            data.extend((chain.len() as u16).to_be_bytes());
            data.extend([extensions.first().copied().unwrap_or(protocol), rng.number() as u8]);
            data.extend([[0x20; 16], [0xfe; 16]].concat());
            data.extend(chain);
            (0x86dd, data)
        }
    }
}

fn transport(rng: &mut Rng, ipv6: bool) -> (u8, Vec<u8>) {
    let kinds = [
        (6, 20),
        (6, 32),
        (17, 8),
        (132, 12),
        (1, 8),
        (58, 8),
        (58, 24),
        (58, 24),
        (47, 8),
        (59, 0),
    ];
    let (protocol, len) = *rng.pick(&kinds);
    let mut data: Vec<u8> = (0..len).map(|_| rng.number() as u8).collect();
    match (protocol, len) {
        (6, _) => data[12] = ((len / 4) << 4) as u8 | data[12] & 0xf,
        (1, _) => data[0] = 8,
        (58, 8) => data[0] = 128,
        (58, _) if ipv6 => {
            (data[0], data[1]) = (*rng.pick(&[135, 136]), rng.below(8) as u8 / 7);
            for _ in 0..rng.below(4) {
                data.extend([*rng.pick(&[1, 2, 3]), *rng.pick(&[1, 1, 1, 1, 0, 2, 9])]);
                data.extend((0..6).map(|_| rng.below(2) as u8));
            }
        }
        _ => {}
    }
    if rng.chance(50) {
        data.extend([0; 4]);
    }
    (protocol, data)
}

/// A key as `ovs-ofctl` prints flows.
fn ours(key: &Key) -> String {
    use Field as F;
    let get = |field| key.get(field);
    let mut out = String::new();
    for level in [0, 1] {
        if let Some(tag) = key.tag(level) {
            let (vid, pcp) = (tag.tci & 0xfff, tag.tci >> 13);
            write!(out, "dl_vlan{level}={vid},dl_vlan_pcp{level}={pcp},").unwrap();
        }
    }
    let mac = |field| MacAddr::from_u64(key.get(field) as u64);
    write!(out, "dl_src={},dl_dst={}", mac(F::EthSrc), mac(F::EthDst)).unwrap();
    let kind = get(F::EthType);
    write!(out, ",dl_type=0x{kind:04x}").unwrap();
    match kind {
        0x800 | 0x86dd => ip(key, &mut out),
        0x806 | 0x8035 => {
            let ip = |field| Ipv4Addr::from_bits(key.get(field) as u32);
            // They know no operation above 255.
            let op = if get(F::ArpOp) > 255 { 0 } else { get(F::ArpOp) };
            write!(out, ",arp_spa={},arp_tpa={},arp_op={op}", ip(F::ArpSpa), ip(F::ArpTpa)).unwrap();
            write!(out, ",arp_sha={},arp_tha={}", mac(F::ArpSha), mac(F::ArpTha)).unwrap();
        }
        0x8847 | 0x8848 => {
            let lse = get(F::MplsLse0);
            let (label, tc, ttl, bos) = (lse >> 12, lse >> 9 & 7, lse & 255, lse >> 8 & 1);
            write!(out, ",mpls_label={label},mpls_tc={tc},mpls_ttl={ttl},mpls_bos={bos}").unwrap();
            for (name, field) in [("1", F::MplsLse1), ("2", F::MplsLse2)] {
                if get(field) != 0 {
                    write!(out, ",mpls_lse{name}={}", get(field)).unwrap();
                }
            }
        }
        _ => {}
    }
    out
}

fn ip(key: &Key, out: &mut String) {
    use Field as F;
    let get = |field| key.get(field);
    let v6 = get(F::EthType) == 0x86dd;
    if v6 {
        let ip = |field| Ipv6Addr::from_bits(key.get(field));
        write!(out, ",ipv6_src={},ipv6_dst={}", ip(F::Ipv6Src), ip(F::Ipv6Dst)).unwrap();
        write!(out, ",ipv6_label=0x{:05x}", get(F::Ipv6Label)).unwrap();
    } else {
        let ip = |field| Ipv4Addr::from_bits(key.get(field) as u32);
        write!(out, ",nw_src={},nw_dst={}", ip(F::Ipv4Src), ip(F::Ipv4Dst)).unwrap();
    }
    let (tos, frag) = (get(F::IpTos), ["no", "first", "", "later"][get(F::IpFrag) as usize]);
    let proto = get(F::IpProto);
    write!(out, ",nw_proto={proto},nw_tos={},nw_ecn={}", tos & !3, tos & 3).unwrap();
    write!(out, ",nw_ttl={},nw_frag={frag}", get(F::IpTtl)).unwrap();
    if frag == "later" {
        return;
    }
    match (proto, v6) {
        (6 | 17 | 132, _) => write!(out, ",tp_src={},tp_dst={}", get(F::TpSrc), get(F::TpDst)).unwrap(),
        (1, false) | (58, true) => {
            let (kind, code) = (get(F::IcmpType), get(F::IcmpCode));
            write!(out, ",icmp_type={kind},icmp_code={code}").unwrap();
            if v6 && matches!((kind, code), (135 | 136, 0)) {
                let mac = |field| MacAddr::from_u64(key.get(field) as u64);
                write!(out, ",nd_target={}", Ipv6Addr::from_bits(get(F::NdTarget))).unwrap();
                write!(out, ",nd_sll={},nd_tll={}", mac(F::NdSll), mac(F::NdTll)).unwrap();
            }
        }
        _ => {}
    }
    if proto == 6 {
        write!(out, ",tcp_flags={}", get(F::TcpFlags)).unwrap();
    }
}

/// What begins a line: EtherType and protocol; 256 where that is not said.
const KINDS: [(&str, u16, u16); 14] = [
    ("tcp6", 0x86dd, 6),
    ("udp6", 0x86dd, 17),
    ("sctp6", 0x86dd, 132),
    ("icmp6", 0x86dd, 58),
    ("ipv6", 0x86dd, 256),
    ("tcp", 0x800, 6),
    ("udp", 0x800, 17),
    ("sctp", 0x800, 132),
    ("icmp", 0x800, 1),
    ("ip", 0x800, 256),
    ("arp", 0x806, 256),
    ("rarp", 0x8035, 256),
    ("mpls", 0x8847, 256),
    ("mplsm", 0x8848, 256),
];

/// What `ovs-ofctl` prints, spelled out.
fn normal(line: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let (mut kind, mut protocol) = (None, 256);
    for part in line.split(',') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name {
            "in_port" | "vlan_tci" | "vlan_tci1" => {}
            "dl_vlan" | "dl_vlan_pcp" => out.push(format!("{name}0={value}")),
            "mpls_lse1" | "mpls_lse2" if value == "0" => {}
            // Of protocols whose ports no flow can speak of.
            "tp_src" | "tp_dst" if protocol == 256 => {}
            "ipv6_label" => {
                let label = u32::from_str_radix(value.trim_start_matches("0x"), 16).unwrap();
                out.push(format!("{name}=0x{label:05x}"));
            }
            "nw_tos" if protocol < 256 => out.extend([format!("nw_proto={protocol}"), part.into()]),
            "tcp_flags" => out.push(format!("tcp_flags={}", tcp_flags(value))),
            "dl_dst" => {
                out.push(part.into());
                out.extend(kind.map(|kind: u16| format!("dl_type=0x{kind:04x}")));
            }
            _ if value.is_empty() => {
                let (_, its_kind, its_protocol) = KINDS.into_iter().find(|(kind, ..)| *kind == name).unwrap();
                (kind, protocol) = (Some(its_kind), its_protocol);
            }
            _ => out.push(part.into()),
        }
    }
    out.join(",")
}

fn tcp_flags(text: &str) -> u32 {
    let names = [
        "fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]",
    ];
    let bit = |name: &str| 1 << names.iter().position(|other| *other == name).unwrap();
    text.split('|').filter(|name| *name != "0").map(bit).sum()
}
