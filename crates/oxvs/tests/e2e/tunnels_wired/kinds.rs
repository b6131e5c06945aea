//! Every type of tunnel, over both families.

use super::{V4, V6, Wired, decoded, inner, inner6};
use crate::fixture::stand_in;
use testkit::{one_in, skip, to_hex};

/// A tunnel: its options, the actions before the output to it, what the other end matches, and a
/// field of tshark with its value.
struct Kind {
    options: &'static str,
    set: &'static str,
    received: &'static str,
    shown: (&'static str, &'static str),
    /// It carries IP packets without Ethernet headers.
    bare: bool,
    v6: bool,
}

const fn kind(options: &'static str, shown: (&'static str, &'static str)) -> Kind {
    Kind {
        options,
        set: "",
        received: "",
        shown,
        bare: false,
        v6: false,
    }
}

const fn setting(kind: Kind, set: &'static str, received: &'static str) -> Kind {
    Kind { set, received, ..kind }
}

const fn bare(kind: Kind) -> Kind {
    Kind { bare: true, ..kind }
}

const fn over_v6(kind: Kind) -> Kind {
    Kind { v6: true, ..kind }
}

/// Those that Open vSwitch's userspace datapath has, too.
const COMMON: &[Kind] = &[
    kind("type=vxlan options:key=77", ("vxlan.vni", "77")),
    kind("type=vxlan options:key=78 options:csum=true", ("vxlan.vni", "78")),
    over_v6(kind("type=vxlan options:key=79", ("vxlan.vni", "79"))),
    bare(kind(
        "type=vxlan options:key=81 options:exts=gpe options:packet_type=legacy_l3 options:dst_port=4790",
        ("vxlan.vni", "81"),
    )),
    kind("type=geneve options:key=82", ("geneve.vni", "0x000052")),
    setting(
        over_v6(kind("type=geneve options:key=flow", ("geneve.vni", "0x000053"))),
        "set_field:83->tun_id,",
        "tun_id=83,",
    ),
    kind("type=gre", ("gre.proto", "0x6558")),
    kind("type=gre options:key=84 options:csum=true", ("gre.key", "0x00000054")),
    kind("type=gre options:key=84 options:seq=true", ("gre.key", "0x00000054")),
    bare(kind(
        "type=gre options:key=85 options:packet_type=legacy_l3",
        ("gre.key", "0x00000055"),
    )),
    over_v6(kind("type=ip6gre options:key=86", ("gre.key", "0x00000056"))),
    setting(
        kind(
            "type=erspan options:key=87 options:erspan_ver=1 options:erspan_idx=3",
            ("erspan.spanid", "87"),
        ),
        "",
        "tun_erspan_ver=1,tun_erspan_idx=0x3,",
    ),
    setting(
        kind(
            "type=erspan options:key=88 options:erspan_ver=2 options:erspan_dir=1 options:erspan_hwid=5",
            ("erspan.hw", "5"),
        ),
        "",
        "tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=0x5,",
    ),
    over_v6(kind(
        "type=ip6erspan options:key=89 options:erspan_ver=1 options:erspan_idx=3",
        ("erspan.spanid", "89"),
    )),
    setting(
        over_v6(kind(
            "type=ip6erspan options:key=92 options:erspan_ver=2 options:erspan_dir=1 options:erspan_hwid=6",
            ("erspan.hw", "6"),
        )),
        "",
        "tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=0x6,",
    ),
];

/// Those that it has not, or whose packets have wrong checksums there.
const OWN: &[Kind] = &[
    // Open vSwitch's sum leaves out the sequence number.
    kind(
        "type=gre options:key=84 options:csum=true options:seq=true",
        ("gre.key", "0x00000054"),
    ),
    setting(
        kind(
            "type=vxlan options:key=80 options:exts=gbp options:dst_port=4799",
            ("vxlan.gbp", "9"),
        ),
        "set_field:9->tun_gbp_id,set_field:0x48->tun_gbp_flags,",
        "tun_gbp_id=9,tun_gbp_flags=0x48,",
    ),
    // Open vSwitch 3.1 sums GTP-U before it has its length, and refuses IPv6 inside.
    setting(
        bare(kind("type=gtpu options:key=90", ("gtp.teid", "0x0000005a"))),
        "",
        "tun_gtpu_flags=0x30,tun_gtpu_msgtype=255,",
    ),
    over_v6(bare(kind("type=gtpu options:key=91", ("gtp.teid", "0x0000005b")))),
    bare(kind("type=bareudp options:dst_port=6636", ("udp.dstport", "6636,2000"))),
    over_v6(bare(kind(
        "type=bareudp options:dst_port=6637",
        ("udp.dstport", "6637,2000"),
    ))),
    setting(
        bare(kind(
            "type=bareudp options:dst_port=6635 options:payload_type=mpls",
            ("mpls.label", "100"),
        )),
        "push_mpls:0x8847,set_field:100->mpls_label,",
        "mpls,mpls_label=100",
    ),
    over_v6(bare(kind("type=srv6", ("ipv6.routing.segleft", "0")))),
    over_v6(bare(kind(
        "type=srv6 options:srv6_flowlabel=compute",
        ("ipv6.routing.segleft", "0"),
    ))),
];

/// Carries packets by each type, one after the other: not all could have the same key. What the
/// ends send behind their outer IP headers is the same at both.
fn carried(mut wired: Wired, kinds: impl Iterator<Item = &'static Kind>) {
    for kind in kinds {
        let options = kind.options;
        wired.tunnel(1, options, if kind.v6 { V6 } else { V4 });
        let to_host = match kind.bare {
            true => "set_field:02:00:00:00:00:01->eth_src,set_field:02:00:00:00:00:02->eth_dst,99",
            false => "99",
        };
        let labelled = kind.received.starts_with("mpls");
        let mut rules = format!(
            "in_port=99,ip,actions={}1\nin_port=99,ipv6,actions={}1\n",
            kind.set, kind.set
        );
        rules += &match labelled {
            true => format!("in_port=1,{},actions=pop_mpls:0x0800,{to_host}\n", kind.received),
            false => format!("in_port=1,{}actions={to_host}\n", kind.received),
        };
        wired.rules(&rules);
        let sent = [0, 1].map(|from| {
            let mut frames = vec![inner(2), inner(2)];
            if !labelled {
                frames.extend([inner6(2), inner6(2)]);
            }
            let (outer, came) = wired.carry(from, &frames, 1);
            assert_eq!(came[1 - from], frames, "{options} from {from}");
            let (field, value) = kind.shown;
            let ports = [
                "-d",
                "udp.port==6636,ip",
                "-d",
                "udp.port==6637,ip",
                "-d",
                "udp.port==4799,vxlan",
            ];
            for line in decoded(&outer, &ports, &["frame.protocols", field]) {
                let (protocols, shown) = line.split_once('|').unwrap();
                assert_eq!(shown, value, "{options}: {line}");
                assert!(
                    protocols.ends_with(":udp:data") || protocols.ends_with(":udp"),
                    "{options}: {line}"
                );
            }
            let headers = if kind.v6 { 14 + 40 } else { 14 + 20 };
            let udp = if outer[0][if kind.v6 { 20 } else { 23 }] == 17 {
                8
            } else {
                0
            };
            let behind = |frame: &Vec<u8>| to_hex(&frame[headers + udp..]);
            outer.iter().map(behind).collect::<Vec<_>>()
        });
        // ERSPAN has the time of a packet, segment routing the other end.
        if !options.contains("erspan") && !options.contains("srv6") {
            assert_eq!(sent[0], sent[1], "{options}");
        }
        for end in &wired.ends {
            end.switch.vsctl("del-port br0 t1");
            end.switch.tool("ovs-ofctl", &["del-flows", "br0"]).expect_ok();
        }
    }
}

#[test]
fn packets_cross_to_and_from_open_vswitch_by_each_type_and_tshark_decodes_them() {
    skip!(unless "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "tshark");
    carried(Wired::beside(), one_in(4, COMMON));
}

#[test]
fn packets_cross_by_the_types_that_open_vswitch_has_not_and_tshark_decodes_them() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "tshark");
    if stand_in() {
        skip!("its userspace datapath has none of these");
    }
    carried(Wired::alone(), one_in(3, OWN));
}
