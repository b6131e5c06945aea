use super::*;
use crate::format::{Format, InnerIp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;
use wire::MacAddr;

/// Options as `key=value` separated by blanks.
fn options(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn parsed(kind: Type, text: &str) -> Parsed {
    parse("t", kind, &options(text))
}

fn config(kind: Type, text: &str) -> Config {
    parsed(kind, text).config.unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn what_cannot_be_set_up_has_open_vswitchs_error() {
    use Type::*;
    for (kind, text, error) in [
        (Vxlan, "", "t: vxlan type requires valid 'remote_ip' argument"),
        (
            Vxlan,
            "remote_ip=zz",
            "t: bad vxlan 'remote_ip'\nt: vxlan type requires valid 'remote_ip' argument",
        ),
        (
            Vxlan,
            "remote_ip=::",
            "t: vxlan type requires valid 'remote_ip' argument",
        ),
        (
            Vxlan,
            "remote_ip=224.0.0.1 key=5",
            "t: multicast remote_ip=224.0.0.1 not allowed",
        ),
        (
            Geneve,
            "remote_ip=ff02::1",
            "t: multicast remote_ip=ff02::1 not allowed",
        ),
        (
            Vxlan,
            "local_ip=flow remote_ip=1.1.1.2",
            "t: vxlan type requires 'remote_ip=flow' with 'local_ip=flow'",
        ),
        (
            Vxlan,
            "local_ip=::1 remote_ip=1.1.1.2",
            "t: 'remote_ip' and 'local_ip' has to be of the same address family",
        ),
        (
            Vxlan,
            "remote_ip=1.1.1.4 packet_type=legacy_l3",
            "t: legacy_l3 configured on VXLAN (without GPE) tunnel that cannot carry L3 traffic",
        ),
        (
            Gtpu,
            "remote_ip=1.1.1.4 packet_type=legacy_l2",
            "t: legacy_l2 configured on gtpu tunnel that cannot carry L2 traffic",
        ),
        (
            Gre,
            "remote_ip=zz foo=1 packet_type=zz",
            "t: unknown gre argument 'foo'\nt: bad gre 'remote_ip'\nt: unknown packet_type 'zz'",
        ),
        (Erspan, "remote_ip=1.1.1.5 erspan_ver=3", "t: invalid erspan version: 3"),
        (
            Erspan,
            "remote_ip=1.1.1.5 erspan_idx=fffffff",
            "t: invalid erspan index: fffffff",
        ),
        (
            Erspan,
            "remote_ip=1.1.1.5 erspan_dir=7",
            "t: invalid erspan direction: 7",
        ),
        (
            Erspan,
            "remote_ip=1.1.1.5 erspan_hwid=ff",
            "t: invalid erspan hardware ID: ff",
        ),
        (
            Bareudp,
            "remote_ip=1.1.1.5 payload_type=zz",
            "t: could not set configuration (Invalid argument)",
        ),
    ] {
        assert_eq!(parsed(kind, text).error().as_deref(), Some(error), "{text}");
    }
}

#[test]
fn what_is_odd_is_complained_of_and_set_up() {
    let text = "remote_ip=1.1.1.3 tos=7 ttl=x dst_port=zz csum=maybe seq=true foo=bar exts=gbp,gpe,zz key=zz";
    let odd = parsed(Type::Vxlan, text);
    let complaints = [
        "t: unknown extension 'zz'",
        "t: unknown vxlan argument 'foo'",
        "t: unknown vxlan argument 'seq'",
        "t: invalid TOS 7",
    ];
    assert_eq!(odd.complaints, complaints);
    assert_eq!(odd.error(), None);
    let config = odd.config.unwrap();
    assert_eq!((config.dst_port, config.ttl), (0, Ttl::Value(64)));
    assert_eq!(config.extensions, Extensions { gbp: true, gpe: true });
    assert_eq!(
        parsed(Type::Vxlan, "remote_ip=1.1.1.2 local_ip=x").complaints,
        ["t: bad vxlan 'local_ip'"]
    );
    for good in ["psk=x", "remote_cert=x ipsec_encapsulation=yes", "remote_name=y"] {
        let tunnel = parsed(Type::Gre, &format!("remote_ip=1.1.1.2 {good}"));
        assert!(tunnel.complaints.is_empty());
        let peer = IpsecPeer {
            address: "1.1.1.2".parse().unwrap(),
            protocol: 47,
            port: 0,
        };
        assert_eq!(tunnel.config.unwrap().ipsec_peer(), Some(peer));
        let anyone = parsed(Type::Gre, &format!("remote_ip=flow {good}")).config.unwrap();
        assert!(anyone.ipsec && anyone.ipsec_peer().is_none());
    }
    let plain = parsed(Type::Vxlan, "remote_ip=1.1.1.2").config.unwrap();
    assert!(!plain.ipsec && plain.ipsec_peer().is_none());
    assert_eq!(
        parsed(Type::Gtpu, "remote_ip=1.1.1.2 csum=true").complaints,
        ["t: unknown gtpu argument 'csum'"]
    );
    assert_eq!(
        parsed(Type::Srv6, "remote_ip=fc00::1 srv6_segs=fc00::1,x").complaints,
        ["t: bad srv6 'srv6_segs'"]
    );
}

#[test]
fn options_print_as_dpif_show_prints_them() {
    use Type::*;
    for (kind, text, shown) in [
        (Vxlan, "remote_ip=1.1.1.1", "remote_ip=1.1.1.1"),
        (
            Vxlan,
            "remote_ip=1.1.1.3 dst_port=zz key=zz ttl=x",
            "key=0, remote_ip=1.1.1.3",
        ),
        (
            Vxlan,
            "remote_ip=1.1.1.4 packet_type=ptap",
            "packet_type=ptap, remote_ip=1.1.1.4",
        ),
        (Vxlan, "remote_ip=::ffff:1.2.3.4", "remote_ip=1.2.3.4"),
        (
            Vxlan,
            "remote_ip=1.1.1.4 packet_type=legacy_l3 exts=gpe",
            "packet_type=legacy_l3, remote_ip=1.1.1.4",
        ),
        (Gtpu, "remote_ip=1.1.1.4 key=flow", "key=flow, remote_ip=1.1.1.4"),
        (
            Bareudp,
            "remote_ip=1.1.1.5 dst_port=77",
            "dst_port=77, remote_ip=1.1.1.5",
        ),
        (
            Erspan,
            "remote_ip=1.1.1.6 key=9 erspan_ver=1 erspan_idx=5",
            "erspan_idx=0x5, erspan_ver=1, key=9, remote_ip=1.1.1.6",
        ),
        (
            Erspan,
            "remote_ip=1.1.9.12 erspan_ver=2 erspan_dir=1 erspan_hwid=0x1f erspan_idx=flow",
            "erspan_dir=1, erspan_hwid=0x1f, erspan_ver=2, remote_ip=1.1.9.12",
        ),
        (Erspan, "remote_ip=1.1.9.5", "erspan_ver=0, remote_ip=1.1.9.5"),
        (
            Ip6erspan,
            "remote_ip=fc00::1 key=9 erspan_ver=flow",
            "erspan_dir=flow, erspan_hwid=flow, erspan_idx=flow, erspan_ver=flow, key=9, remote_ip=fc00::1",
        ),
        (
            Ip6gre,
            "remote_ip=fc00::1 out_key=9 tos=inherit ttl=inherit df_default=false csum=true seq=true",
            "csum=true, df_default=false, out_key=9, remote_ip=fc00::1, seq=true, tos=inherit, ttl=inherit",
        ),
        (
            Gre,
            "remote_ip=flow local_ip=flow key=flow packet_type=ptap tos=0xfc ttl=300",
            "key=flow, local_ip=flow, packet_type=ptap, remote_ip=flow, tos=0xfc, ttl=44",
        ),
        (
            Gre,
            "remote_ip=flow local_ip=1.2.3.4 in_key=flow out_key=3 egress_pkt_mark=0x10",
            "egress_pkt_mark=0, in_key=flow, local_ip=1.2.3.4, out_key=3, remote_ip=flow",
        ),
        (
            Gre,
            "remote_ip=1.1.9.7 key=-1",
            "key=18446744073709551615, remote_ip=1.1.9.7",
        ),
        (
            Geneve,
            "remote_ip=fc00::77 key=0xfffffffffff ttl=-1",
            "key=17592186044415, remote_ip=fc00::77, ttl=255",
        ),
        (Geneve, "remote_ip=0.0.0.0 key=1", "key=1, remote_ip=::ffff:0.0.0.0"),
        (
            Srv6,
            "remote_ip=fc00::1 srv6_segs=fc00::1,fc00::2 srv6_flowlabel=compute",
            "remote_ip=fc00::1, srv6_flowlabel=compute, srv6_segs=fc00::1,fc00::2",
        ),
    ] {
        let options = config(kind, text).options();
        let options: Vec<String> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(options.join(", "), shown, "{text}");
    }
}

fn vport(name: &str, datapath_port: u32, kind: Type, text: &str) -> Vport {
    Vport {
        name: name.to_owned(),
        datapath_port,
        config: config(kind, text),
    }
}

#[test]
fn tunnels_are_listed_as_open_vswitch_lists_them() {
    use Type::*;
    let mut table = Table::default();
    for (number, datapath_port, kind, text) in [
        (1, 4789, Vxlan, "remote_ip=1.1.1.1"),
        (
            2,
            5,
            Ip6gre,
            "remote_ip=fc00::1 out_key=9 tos=inherit ttl=inherit df_default=false csum=true",
        ),
        (3, 7, Gre, "remote_ip=flow local_ip=1.2.3.4 in_key=flow out_key=3"),
        (
            4,
            7,
            Gre,
            "remote_ip=flow local_ip=flow key=flow packet_type=ptap tos=0xfc ttl=300",
        ),
        (5, 6081, Geneve, "remote_ip=1.1.1.1 local_ip=224.0.0.1 key=1"),
        (6, 4, Gre, "remote_ip=1.1.9.8 in_key=8"),
    ] {
        table
            .set(number, vport(&format!("t{number}"), datapath_port, kind, text))
            .unwrap();
    }
    assert_eq!(
        table.list(),
        [
            "port 6081: t5 (geneve: 224.0.0.1->1.1.1.1, key=0x1, legacy_l2, dp port=6081, ttl=64)",
            "port 4789: t1 (vxlan: ::->1.1.1.1, key=0, legacy_l2, dp port=4789, ttl=64)",
            "port 5: t2 (ip6gre: ::->fc00::1, key=0, legacy_l2, dp port=5, out_key=0x9, ttl=inherit, \
             tos=inherit, df=false, csum=true)",
            "port 4: t6 (gre: ::->1.1.9.8, key=0x8, legacy_l2, dp port=4, out_key=none, ttl=64)",
            "port 7: t3 (gre: 1.2.3.4->flow, key=flow, legacy_l2, dp port=7, out_key=0x3, ttl=64)",
            "port 7: t4 (gre: flow->flow, key=flow, ptap, dp port=7, ttl=44, tos=0xfc)",
        ]
    );
    let listeners: Vec<String> = table.listeners().iter().map(Listener::to_string).collect();
    assert_eq!(
        listeners,
        [
            "ip6gre_sys (5) ref_cnt=1",
            "gre_sys (7) ref_cnt=3",
            "vxlan_sys_4789 (4789) ref_cnt=1",
            "genev_sys_6081 (6081) ref_cnt=1",
        ]
    );
    let mac = MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, 0]);
    let flows = |table: &Table<u32>, at: usize, address: &str| -> Vec<String> {
        table.listeners()[at].flows(mac, address.parse().unwrap()).collect()
    };
    assert_eq!(
        flows(&table, 2, "1.1.2.88"),
        ["vxlan_sys_4789 (4789) : eth(dst=aa:55:aa:55:00:00),eth_type(0x0800),\
         ipv4(dst=1.1.2.88,proto=17,frag=no),udp(dst=4789)"]
    );
    assert_eq!(
        flows(&table, 1, "2001:cafe::88"),
        ["gre_sys (7) : eth(dst=aa:55:aa:55:00:00),eth_type(0x86dd),ipv6(dst=2001:cafe::88,proto=47,frag=no)"]
    );
    // Segment routing carries IPv4 and IPv6.
    let mut table = Table::default();
    table.set(1, vport("t", 9, Type::Srv6, "remote_ip=fc00::1")).unwrap();
    let protocols = [4, 41].map(|protocol| {
        format!(
            "srv6_sys (9) : eth(dst=aa:55:aa:55:00:00),eth_type(0x86dd),ipv6(dst=2001:cafe::88,proto={protocol},frag=no)"
        )
    });
    assert_eq!(flows(&table, 0, "2001:cafe::88"), protocols);
}

#[test]
fn what_is_behind_extension_headers_says_who_receives_a_packet() {
    for (kind, text, protocols) in [
        (Type::Srv6, "remote_ip=fc00::1", &[4, 41][..]),
        (Type::Gre, "remote_ip=1.1.1.1", &[47]),
        (Type::Gtpu, "remote_ip=1.1.1.1", &[17]),
    ] {
        let mut table = Table::default();
        table.set(1, vport("t", 9, kind, text)).unwrap();
        let taken: Vec<u8> = (0..=255)
            .filter(|protocol| table.listeners()[0].takes(*protocol))
            .collect();
        assert_eq!(taken, protocols);
    }
}

/// A packet that came to datapath port 99.
fn received(id: u64, src: &str, dst: &str) -> Received {
    Received {
        datapath_port: 99,
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        id,
        ethernet: true,
    }
}

/// What Open vSwitch 3.1 answered.
#[test]
fn a_packet_belongs_to_the_port_that_says_most_about_it() {
    let mut table = Table::default();
    for (number, text) in [
        (5, "remote_ip=flow key=flow"),
        (6, "remote_ip=flow key=5"),
        (7, "remote_ip=1.1.2.92 key=flow"),
        (8, "remote_ip=flow local_ip=1.1.2.88 key=flow"),
        (9, "remote_ip=flow local_ip=flow key=flow"),
        (10, "remote_ip=1.1.2.93 local_ip=1.1.2.88 key=6"),
        (11, "remote_ip=1.1.2.93 key=6"),
        (12, "remote_ip=flow local_ip=1.1.2.88 key=5"),
        (13, "remote_ip=1.1.2.94"),
        (14, "remote_ip=1.1.2.94 key=0 packet_type=ptap"),
    ] {
        table.set(number, vport("t", 99, Type::Geneve, text)).unwrap();
    }
    for (id, src, dst, port) in [
        (5, "1.1.2.92", "1.1.2.88", 12),
        (5, "1.1.2.95", "1.1.2.77", 6),
        (5, "1.1.2.95", "1.1.2.88", 12),
        (9, "1.1.2.92", "1.1.2.88", 7),
        (9, "1.1.2.95", "1.1.2.88", 8),
        (9, "1.1.2.95", "1.1.2.77", 5),
        (6, "1.1.2.93", "1.1.2.88", 10),
        (6, "1.1.2.93", "1.1.2.77", 11),
        (0, "1.1.2.94", "1.1.2.77", 13),
        (1, "1.1.2.94", "1.1.2.77", 5),
    ] {
        assert_eq!(table.find(&received(id, src, dst)), Some(port), "{id} {src} {dst}");
    }
    table.remove(5);
    assert_eq!(table.find(&received(9, "1.1.2.95", "1.1.2.77")), Some(9));
    // A packet without an Ethernet header belongs to no port for frames.
    let packet = received(0, "1.1.2.94", "1.1.2.77");
    assert_eq!(
        table.find(&Received {
            ethernet: false,
            ..packet
        }),
        Some(14)
    );
    assert_eq!(
        table.find(&Received {
            datapath_port: 98,
            ..packet
        }),
        None
    );
}

#[test]
fn ports_that_cannot_be_told_apart_are_refused() {
    let mut table = Table::default();
    table
        .set(1, vport("t1", 4789, Type::Vxlan, "remote_ip=1.1.1.1"))
        .unwrap();
    let same = vport("t2", 4789, Type::Vxlan, "remote_ip=1.1.1.1 key=0 ttl=9");
    let text = "t2: attempting to add tunnel port with same config as port 't1' \
                (::->1.1.1.1, key=0, legacy_l2, dp port=4789)";
    assert_eq!(table.set(2, same.clone()), Err(Refused::Same(text.to_owned())));
    assert_eq!(table.get(2), None);
    let gbp = vport("t3", 4789, Type::Vxlan, "remote_ip=1.1.1.2 exts=gbp");
    let text = "t3: VXLAN-GBP, and non-VXLAN-GBP tunnels can't be configured on the same dst_port";
    assert_eq!(table.set(3, gbp), Err(Refused::Gbp(text.to_owned())));
    // A port may change to what it was.
    table.set(1, same).unwrap();
    assert_eq!(table.ports().count(), 1);
    table
        .set(
            4,
            vport("t4", 4789, Type::Vxlan, "remote_ip=1.1.1.1 exts=gpe packet_type=ptap"),
        )
        .unwrap();
    let format = Format::Vxlan { gbp: false, gpe: true };
    assert_eq!(table.listeners()[0].format, format);
}

#[test]
fn outer_headers_inherit_what_is_configured() {
    let inner = Some(InnerIp {
        tos: 0xbb,
        ttl: 7,
        label: None,
    });
    let plain = config(Type::Vxlan, "remote_ip=1.1.1.1 tos=0x40");
    assert_eq!((plain.outer_tos(inner), plain.outer_ttl(inner)), (0x43, 64));
    assert_eq!((plain.outer_tos(None), plain.outer_ttl(None)), (0x40, 64));
    let inherit = config(Type::Vxlan, "remote_ip=1.1.1.1 tos=inherit ttl=inherit");
    assert_eq!((inherit.outer_tos(inner), inherit.outer_ttl(inner)), (0xbb, 7));
    assert_eq!((inherit.outer_tos(None), inherit.outer_ttl(None)), (0, 64));
}

/// Options of a port, out of few, so that ports often meet.
fn few_options() -> impl Strategy<Value = String> {
    let pick = |values: &'static [&'static str]| proptest::sample::select(values);
    let key = pick(&["key=flow", "key=1", "key=0", ""]);
    let remote = pick(&["remote_ip=flow", "remote_ip=10.0.0.1", "remote_ip=10.0.0.2"]);
    let local = pick(&["local_ip=10.0.0.3", "local_ip=10.0.0.4", ""]);
    let mode = pick(&["packet_type=ptap", ""]);
    (key, remote, local, mode).prop_map(|(key, remote, local, mode)| format!("{key} {remote} {local} {mode}"))
}

/// Whether the port takes the packet, and how much it says about it.
fn says(port: &Config, packet: &Received) -> Option<[bool; 4]> {
    let key = match port.in_key {
        Key::Flow => None,
        Key::None => Some(0),
        Key::Value(key) => Some(key),
    };
    let remote = match port.remote {
        Endpoint::Flow => None,
        Endpoint::Address(remote) => Some(remote),
    };
    let local = match port.local {
        Local::Address(local) => Some(local),
        _ => None,
    };
    let takes = key.is_none_or(|key| key == packet.id)
        && remote.is_none_or(|remote| remote == packet.src)
        && local.is_none_or(|local| local == packet.dst);
    takes.then_some([
        key.is_some(),
        remote.is_some(),
        local.is_some(),
        port.mode != Mode::Ptap,
    ])
}

proptest! {
    #[test]
    fn the_port_found_is_the_best_of_all(
        texts in proptest::collection::vec(few_options(), 1..12),
        id in 0u64..3, src in 1u8..4, dst in 3u8..6,
    ) {
        let mut table = Table::default();
        for (number, text) in texts.iter().enumerate() {
            let _ = table.set(number, vport("t", 99, Type::Geneve, text));
        }
        let address = |host| IpAddr::from([10, 0, 0, host]);
        let packet = Received { datapath_port: 99, src: address(src), dst: address(dst), id, ethernet: true };
        let best = table.ports().filter_map(|(number, port)| says(&port.config, &packet).map(|says| (says, number)));
        prop_assert_eq!(table.find(&packet), best.max().map(|(_, number)| number));
    }

    #[test]
    fn no_option_makes_the_parser_panic(kind in 0usize..9, key in "[a-z_]{1,12}|erspan_idx|ttl|tos|key", value in ".{0,12}") {
        let options = [(key, value), ("remote_ip".to_owned(), "10.0.0.1".to_owned())];
        let parsed = parse("t", Type::ALL[kind], &options.into_iter().collect());
        prop_assert!(parsed.config.is_some() || !parsed.complaints.is_empty());
    }
}
