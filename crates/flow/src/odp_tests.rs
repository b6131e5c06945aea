use super::*;
use crate::extract;
use proptest::prelude::*;

fn read(text: &str) -> Result<(Key, Mask), OdpError> {
    parse_odp(text, &|name| (name == "eth0").then_some(PortNo(7)))
}

/// As Open vSwitch's datapath printed them.
const LINES: [&str; 14] = [
    "recirc_id(0x5),in_port(1),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),\
     ipv4(src=10.0.0.0/255.255.0.0,dst=1.2.3.4,proto=6,tos=0/0xfc,ttl=64/0xf0,frag=no),tcp(src=1,dst=2/0xff),tcp_flags(syn|ack)",
    "recirc_id(0x6),in_port(1),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),\
     ipv4(frag=later)",
    "skb_priority(0x5),skb_mark(0x1/0xff),recirc_id(0x8),in_port(1),packet_type(ns=0,id=0),eth_type(0x8847),\
     mpls(label=5,tc=1,ttl=64,bos=1)",
    "recirc_id(0x9),in_port(1),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:00/ff:ff:00:00:00:00),eth_type(0x8100),\
     vlan(vid=5/0xf,pcp=3),encap(eth_type(0x0806),arp(sip=1.0.0.0/255.0.0.0,op=1/0xf,sha=02:00:00:00:00:02))",
    "recirc_id(0xa),in_port(1),packet_type(ns=0,id=0),eth_type(0x86dd),\
     ipv6(src=fe80::/ffff::,label=0/0xff,proto=58,tclass=0x10,hlimit=255,frag=no),icmpv6(type=135,code=0),\
     nd(target=fe80::/ffff::,sll=02:00:00:00:00:01)",
    "recirc_id(0xc),in_port(1),packet_type(ns=0,id=0),eth_type(0x88e0/0xfff0)",
    "recirc_id(0xa),dp_hash(0x5/0xf),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)",
    "recirc_id(0xb),dp_hash(0/0x1f),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)",
    "recirc_id(0x10),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(proto=1,frag=no),icmp(type=8,code=0/0xf)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8847),mpls(label=5/0xfffff,tc=1/7,ttl=0/0x0,bos=1/1)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8847),\
     mpls(label=6/0xfffff,tc=3/7,ttl=64/0xff,bos=0/0,label=7/0xfffff,tc=0/0,ttl=0/0x0,bos=1/1)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(proto=6,tos=0x20/0xfc,ttl=64,frag=no),\
     tcp_flags(+syn-ack)",
    "skb_priority(0),skb_mark(0),recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),\
     ipv4(src=10.0.0.0/255.255.255.0,proto=17,frag=no),udp(dst=48/0xfff0)",
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=5,pcp=1),\
     encap(eth_type(0x88a8),vlan(vid=6),encap(eth_type(0x0800),ipv4(frag=first)))",
];

#[test]
fn what_open_vswitch_prints_is_read_and_printed_the_same() {
    for line in LINES {
        let (key, mask) = read(line).unwrap();
        assert_eq!(key.display(&mask).to_string(), line);
    }
}

#[test]
fn what_this_switch_has_beyond_it_is_printed_and_read_too() {
    let lines = [
        "recirc_id(0),packet_type(ns=0,id=0),eth_type(0x88e7),pbb(isid=5,uca=1)",
        "recirc_id(0),packet_type(ns=0,id=0),eth_type(0x86dd),ipv6(proto=58,exthdr=0x40/0xc0,frag=no),icmpv6(type=136,code=0),\
         nd(target=fe80::1),nd_ext(nd_reserved=0x60000000,nd_options_type=2)",
    ];
    for line in lines {
        let (key, mask) = read(line).unwrap();
        assert_eq!(key.display(&mask).to_string(), line);
    }
}

#[test]
fn names_prefixes_and_parts_that_mean_nothing_here_are_read() {
    let (key, mask) = read(
        "ufid:1-2, recirc_id(0),ct_state(0/0),ct_label(0/0),dp_hash(0/0),in_port(eth0),eth(),eth_type(0x0800),ipv4(src=10.1.2.3/8,frag=no)",
    )
    .unwrap();
    assert_eq!(key.in_port(), PortNo(7));
    assert_eq!((mask.get(Field::Ipv4Src), mask.get(Field::Ipv4Dst)), (0xff00_0000, 0));
    let (key, mask) = read("eth_type(0x86dd),ipv6(src=fe80::1/64),tcp_flags(0x2/0x12)").unwrap();
    assert_eq!(mask.get(Field::Ipv6Src), u128::MAX << 64);
    assert_eq!((key.get(Field::TcpFlags), mask.get(Field::TcpFlags)), (2, 0x12));
}

#[test]
fn what_is_no_flow_is_refused_with_the_part_that_is_not() {
    let cases = [
        ("in_port(eth1)", "in_port(eth1)"),
        ("in_port", "in_port"),
        ("eth_type(0x12345)", "eth_type(0x12345)"),
        ("recirc_id(0),ipv4(src=1.2.3)", "ipv4(src=1.2.3)"),
        ("ipv4(src=1.2.3.4/33)", "ipv4(src=1.2.3.4/33)"),
        ("ipv4(frag=maybe)", "ipv4(frag=maybe)"),
        ("ipv4(dst)", "ipv4(dst)"),
        ("tunnel(tun_id=)", "tunnel(tun_id=)"),
        ("tunnel(vxlan(id=1))", "tunnel(vxlan(id=1))"),
        ("ct_state(+old)", "ct_state(+old)"),
        ("vlan(vid=4096)", "vlan(vid=4096)"),
        ("mpls(tc=1)", "mpls(tc=1)"),
        ("tcp_flags(+nothing)", "tcp_flags(+nothing)"),
        ("packet_type(ns=2,id=0x800)", "packet_type(ns=2,id=0x800)"),
        ("recirc_id(1),dp_hash(x/0xf)", "dp_hash(x/0xf)"),
        ("dp_hash(0x5/0xf)", "dp_hash"),
    ];
    for (text, part) in cases {
        assert_eq!(read(text).unwrap_err().part, part);
    }
    let three = "eth_type(0x8100),vlan(vid=1)";
    let three = format!("{three},encap({three},encap({three},encap()))");
    assert!(read(&three).is_err());
    let deep = 50_000;
    let nested = format!("{}{}", "encap(".repeat(deep), ")".repeat(deep));
    assert!(read(&nested).is_err());
}

#[test]
fn a_prefix_of_no_bits_matches_any_address() {
    for none in ["0", "00", "+0"] {
        let (_, mask) = read(&format!("eth_type(0x86dd),ipv6(src=::/{none})")).unwrap();
        assert_eq!(mask.get(Field::Ipv6Src), 0, "{none}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[a-z_0-9(),=/.:x+|-]{0,60}") {
        let _ = read(&text);
    }

    #[test]
    fn a_printed_megaflow_is_read_as_what_it_covers(
        data in prop::collection::vec(any::<u8>(), 60..100), kind in 0usize..5, bits in prop::collection::vec(any::<u128>(), Field::ALL.len()),
        chosen in prop::collection::vec(any::<bool>(), Field::ALL.len()),
    ) {
        let mut data = data;
        let kinds = [&[8, 0, 0x45][..], &[0x86, 0xdd, 0x60], &[8, 6, 0, 1, 8, 0, 6, 4], &[0x88, 0x47], &[0x88, 0xe7]];
        let kind = kinds[kind];
        data[12..12 + kind.len()].copy_from_slice(kind);
        let Some(key) = extract(&data, &PortNo(3).into()) else { return Ok(()) };
        let mut mask = Mask::exact(Field::EthType);
        for field in [Field::RecircId, Field::InPort] {
            mask.add(field);
        }
        if matches!(key.get(Field::EthType), 0x800 | 0x86dd) {
            mask.add(Field::IpProto);
            mask.add(Field::IpFrag);
        }
        for ((field, bits), chosen) in Field::ALL.iter().zip(bits).zip(chosen) {
            if chosen && key.get(*field) != 0 && *field != Field::IpFrag {
                mask.add_bits(*field, bits);
            }
        }
        let text = key.display(&mask).to_string();
        let (read_key, read_mask) = read(&text).unwrap();
        for field in Field::ALL {
            let bits = read_mask.get(*field);
            prop_assert_eq!(bits & !mask.get(*field), 0, "{:?} of {}", field, text);
            prop_assert_eq!(read_key.get(*field) & bits, key.get(*field) & bits, "{:?} of {}", field, text);
        }
        prop_assert_eq!(read_key.display(&read_mask).to_string(), text);
    }
}
