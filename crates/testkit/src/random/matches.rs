//! Random matches in the syntax of `ovs-ofctl`, and the protocol that they fix.

use super::pools::{LABELS, MACS, PORTS, VIDS, ip, ip6};
use crate::Rng;

/// The network protocol that a match asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    Any,
    Arp,
    Ipv4,
    Ipv6,
    Mpls,
}

/// The transport that a match asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Any,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    /// Neighbor solicitation or advertisement, with its type.
    Neighbor(u8),
}

/// What actions can assume about a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) network: Network,
    pub(super) transport: Transport,
    pub(super) tagged: bool,
    /// Whether the rules are OpenFlow 1.0's, which has fewer guarantees and requirements.
    pub(super) oldest: bool,
}

/// A match in `table`.
pub(super) fn random(rng: &mut Rng, table: u8, oldest: bool) -> (String, Known) {
    let mut words: Vec<String> = Vec::new();
    let (mut network, mut transport) = (Network::Any, Transport::Any);
    let protocol = match rng.below(20) {
        0..=3 => "",
        4 => "arp",
        5 => "rarp",
        6 | 7 => "ip",
        8 | 9 => "tcp",
        10 => "udp",
        11 => "sctp",
        12 => "icmp",
        13 => "ipv6",
        14 => "tcp6",
        15 => *rng.pick(&["udp6", "sctp6"]),
        16 => "icmp6",
        17 => *rng.pick(&["icmp6,icmp_type=135,icmp_code=0", "icmp6,icmp_type=136,icmp_code=0"]),
        18 => "mpls",
        _ => *rng.pick(&["mplsm", "dl_type=0x88b5", "dl_type=0x05ff"]),
    };
    if !protocol.is_empty() {
        words.push(protocol.to_owned());
    }
    match protocol {
        "arp" | "rarp" => network = Network::Arp,
        "ip" | "tcp" | "udp" | "sctp" | "icmp" => network = Network::Ipv4,
        "mpls" | "mplsm" => network = Network::Mpls,
        p if p.contains('6') && !p.starts_with("dl") => network = Network::Ipv6,
        _ => {}
    }
    match protocol.trim_end_matches('6') {
        "tcp" => transport = Transport::Tcp,
        "udp" => transport = Transport::Udp,
        "sctp" => transport = Transport::Sctp,
        "icmp" => transport = Transport::Icmp,
        p if p.contains("icmp_type=135") => transport = Transport::Neighbor(135),
        p if p.contains("icmp_type") => transport = Transport::Neighbor(136),
        _ => {}
    }
    let tagged = common(rng, table, oldest, &mut words);
    match network {
        Network::Arp => arp(rng, &mut words),
        Network::Ipv4 | Network::Ipv6 => internet(rng, network, &mut words),
        Network::Mpls => mpls(rng, &mut words),
        Network::Any => {}
    }
    ports(rng, network, transport, &mut words);
    let known = Known {
        // Open vSwitch never writes to RARP.
        network: if protocol == "rarp" { Network::Any } else { network },
        transport,
        tagged,
        oldest,
    };
    (words.join(","), known)
}

fn common(rng: &mut Rng, table: u8, oldest: bool, words: &mut Vec<String>) -> bool {
    let mut tagged = false;
    if rng.chance(25) {
        words.push(format!("in_port={}", *rng.pick(&["1", "2", "3", "4", "LOCAL"])));
    }
    if rng.chance(15) {
        words.push(format!("dl_src={}{}", rng.pick(&MACS), mac_mask(rng)));
    }
    if rng.chance(15) {
        words.push(format!("dl_dst={}{}", rng.pick(&MACS), mac_mask(rng)));
    }
    if rng.chance(20) {
        let vid = rng.pick(&VIDS);
        let (word, sure) = match rng.below(8) {
            0 | 1 => (format!("dl_vlan={vid}"), true),
            2 => (format!("dl_vlan={vid},dl_vlan_pcp={}", rng.pick(&[0, 3, 7])), true),
            3 => ("vlan_tci=0x1000/0x1000".to_owned(), true),
            4 => ("vlan_tci=0x0000/0x1fff".to_owned(), false),
            5 => (format!("vlan_tci=0x{:04x}/0x1ff0", 0x1000 | vid & 0xff0), true),
            6 if !oldest => (format!("vlan_vid=0x{:x}/0x{:x}", 0x1000 | vid & 0x14, 0x1014), true),
            _ => ("vlan_tci=0".to_owned(), false),
        };
        tagged = sure;
        words.push(word);
    }
    if table > 0 {
        if rng.chance(20) {
            let reg = rng.below(3);
            words.push(format!("reg{reg}=0x{:x}/0x{:x}", rng.below(4), 3));
        }
        if rng.chance(10) && !oldest {
            words.push(format!("metadata=0x{:x}/0x3", rng.below(4)));
        }
        if rng.chance(6) {
            let value = rng.below(4);
            words.push(match rng.below(3) {
                0 => format!("tun_id=0x{value:x}"),
                1 => format!("tun_id=0x{value:x}/0x3"),
                _ => format!("pkt_mark=0x{value:x}/0x3"),
            });
        }
        if rng.chance(5) {
            words.push(format!("xreg{}=0x{:x}/0x100000001", rng.below(2), rng.below(2)));
        }
    }
    tagged
}

fn mac_mask(rng: &mut Rng) -> &'static str {
    rng.pick::<&str>(&["", "", "/01:00:00:00:00:00", "/ff:ff:ff:00:00:ff", "/00:00:00:00:00:01"])
}

fn arp(rng: &mut Rng, words: &mut Vec<String>) {
    if rng.chance(30) {
        words.push(format!("arp_op={}", 1 + rng.below(3)));
    }
    if rng.chance(30) {
        let mask = rng.pick(&["", "/24", "/0.0.0.255"]);
        words.push(format!("arp_{}={}{mask}", rng.pick(&["spa", "tpa"]), ip(rng)));
    }
    if rng.chance(30) {
        let field = rng.pick(&["sha", "tha"]);
        words.push(format!("arp_{field}={}{}", rng.pick(&MACS), mac_mask(rng)));
    }
}

fn internet(rng: &mut Rng, network: Network, words: &mut Vec<String>) {
    for way in ["src", "dst"] {
        if rng.chance(20) {
            words.push(match network {
                Network::Ipv4 => {
                    let mask = rng.pick(&["", "/24", "/8", "/0.0.0.255", "/255.0.255.0", "/0.0.0.1"]);
                    format!("nw_{way}={}{mask}", ip(rng))
                }
                _ => {
                    let mask = rng.pick(&["", "/32", "/10", "/::ffff", "/ffff::1"]);
                    format!("ipv6_{way}={}{mask}", ip6(rng))
                }
            });
        }
    }
    if rng.chance(15) {
        let any = matches!(words[0].as_str(), "ip" | "ipv6");
        // No later fragment has ports.
        let kinds = ["no", "first", "not_later", "yes", "later"];
        words.push(format!("ip_frag={}", rng.pick(&kinds[..if any { 5 } else { 3 }])));
    }
    if rng.chance(10) {
        words.push(format!("nw_tos={}", rng.pick(&[0, 0x28, 0xb8])));
    }
    if rng.chance(10) {
        words.push(format!("nw_ecn={}", rng.below(4)));
    }
    if rng.chance(10) {
        words.push(format!("nw_ttl={}", rng.pick(&[0, 1, 2, 64])));
    }
    if network == Network::Ipv6 && rng.chance(15) {
        words.push(
            rng.pick(&["ipv6_label=0", "ipv6_label=5", "ipv6_label=0x5/0xff"])
                .to_string(),
        );
    }
    if matches!(words[0].as_str(), "ip" | "ipv6") && rng.chance(40) {
        words.push(format!("nw_proto={}", rng.pick(&[0, 1, 2, 6, 17, 47, 50, 58, 59, 255])));
    }
}

fn mpls(rng: &mut Rng, words: &mut Vec<String>) {
    if rng.chance(40) {
        words.push(format!("mpls_label={}", rng.pick(&LABELS)));
    }
    if rng.chance(20) {
        words.push(format!("mpls_tc={}", rng.pick(&[0, 5])));
    }
    if rng.chance(30) {
        words.push(format!("mpls_bos={}", rng.below(2)));
    }
    if rng.chance(20) {
        words.push(format!("mpls_ttl={}", rng.pick(&[0, 1, 64])));
    }
}

fn ports(rng: &mut Rng, network: Network, transport: Transport, words: &mut Vec<String>) {
    let prefix = match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
        Transport::Sctp => "sctp",
        Transport::Icmp => {
            let (kind, code) = match network {
                Network::Ipv4 => (*rng.pick(&[8, 0, 3]), rng.below(2)),
                _ => (*rng.pick(&[128, 129, 1, 135]), rng.below(2)),
            };
            if rng.chance(40) {
                words.push(format!("icmp_type={kind}"));
            }
            if rng.chance(20) {
                words.push(format!("icmp_code={code}"));
            }
            return;
        }
        Transport::Neighbor(kind) => {
            if rng.chance(40) {
                let mask = rng.pick(&["", "/32", "/::ff"]);
                words.push(format!("nd_target={}{mask}", ip6(rng)));
            }
            if rng.chance(40) {
                let field = if kind == 135 { "nd_sll" } else { "nd_tll" };
                words.push(format!("{field}={}{}", rng.pick(&MACS), mac_mask(rng)));
            }
            if rng.chance(15) {
                words.push(format!("nd_options_type={}", rng.below(3)));
            }
            if rng.chance(15) {
                words.push(format!("nd_reserved={}", rng.pick(&["0", "0x60000000"])));
            }
            return;
        }
        Transport::Any => return,
    };
    for way in ["src", "dst"] {
        if rng.chance(30) {
            let mask = rng.pick(&["", "", "/0xfff0", "/0x0001"]);
            words.push(format!("{prefix}_{way}={}{mask}", rng.pick(&PORTS)));
        }
    }
    if prefix == "tcp" && rng.chance(20) {
        let flags = rng.pick(&[
            "tcp_flags=+syn-ack",
            "tcp_flags=+ack",
            "tcp_flags=0x012",
            "tcp_flags=-rst",
        ]);
        words.push(flags.to_string());
    }
}
