//! Random actions in the syntax of `ovs-ofctl` that a match permits.

use super::matches::{Known, Network, Transport};
use super::pools::{LABELS, MACS, PORTS, VIDS, ip, ip6};
use crate::Rng;

/// The features that a rule set's actions may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope {
    pub(super) table: u8,
    /// Number of groups, numbered from 1.
    pub(super) groups: u32,
    /// Number of meters, numbered from 1.
    pub(super) meters: u32,
    /// Whether a packet may affect later ones: learned rules and addresses.
    pub(super) learning: bool,
    /// Whether packets go to a controller.
    pub(super) telling: bool,
}

/// The instructions of a rule.
pub(super) fn instructions(rng: &mut Rng, mut known: Known, scope: Scope) -> String {
    let mut words = Vec::new();
    if scope.meters > 0 && rng.chance(8) {
        words.push(format!("meter:{}", 1 + rng.below(scope.meters as usize)));
    }
    list(rng, &mut known, scope, 0, &mut words);
    if !known.oldest {
        if rng.chance(5) {
            words.push("clear_actions".to_owned());
        }
        if rng.chance(15) {
            words.push(format!("write_actions({})", action_set(rng, known, scope)));
        }
        if rng.chance(15) {
            words.push(format!("write_metadata:0x{:x}/0x{:x}", rng.below(4), 1 + rng.below(3)));
        }
        if scope.table < 4 && rng.chance(35) {
            words.push(format!("goto_table:{}", later(rng, scope.table)));
        }
    }
    if words.is_empty() {
        words.push("drop".to_owned());
    }
    words.join(",")
}

fn later(rng: &mut Rng, table: u8) -> u8 {
    table + 1 + rng.below(usize::from(4 - table)) as u8
}

pub(super) fn port(rng: &mut Rng) -> &'static str {
    rng.pick::<&str>(&["1", "2", "3", "4", "5", "LOCAL"])
}

/// Distinct fields set, then one way out.
fn action_set(rng: &mut Rng, known: Known, scope: Scope) -> String {
    let mut words = Vec::new();
    if rng.chance(15) {
        // A new tag always gets both its VLAN and its priority.
        words.push("push_vlan:0x8100,set_field:4106->vlan_vid,set_field:5->vlan_pcp".to_owned());
    } else if rng.chance(10) {
        words.push("pop_vlan".to_owned());
    } else if rng.chance(10) {
        words.push(format!("set_queue:{}", rng.below(3)));
    }
    for _ in 0..rng.below(3) {
        let word = rewrite(rng, &mut known.clone());
        words.extend(word.filter(|word| {
            !["push", "pop", "vlan", "load", "strip"]
                .iter()
                .any(|no| word.contains(no))
        }));
    }
    if scope.groups > 0 && rng.chance(30) {
        words.push(format!("group:{}", 1 + rng.below(scope.groups as usize)));
    }
    words.push(format!("output:{}", port(rng)));
    words.join(",")
}

fn list(rng: &mut Rng, known: &mut Known, scope: Scope, depth: u8, words: &mut Vec<String>) {
    for _ in 0..1 + rng.below(if depth == 0 { 5 } else { 3 }) {
        let word = match rng.below(30) {
            0..=7 => Some(format!("output:{}", port(rng))),
            8 => Some(rng.pick(&["IN_PORT", "FLOOD", "ALL", "IN_PORT"]).to_string()),
            9 if scope.learning => Some("NORMAL".to_owned()),
            10 | 11 if scope.table < 4 => Some(match rng.below(3) {
                0 => format!("resubmit({},{})", port(rng), later(rng, scope.table)),
                _ => format!("resubmit(,{})", later(rng, scope.table)),
            }),
            12 if scope.groups > 0 => Some(format!("group:{}", 1 + rng.below(scope.groups as usize))),
            13 if depth < 2 => {
                let mut inner = Vec::new();
                list(rng, &mut known.clone(), scope, depth + 1, &mut inner);
                (!inner.is_empty()).then(|| format!("clone({})", inner.join(",")))
            }
            14 if scope.learning => Some(learn(rng, *known)),
            15 | 16 => Some(register(rng, *known)),
            17 => Some(odd(rng)),
            18 if scope.telling => Some(controller(rng, *known)),
            19 if rng.chance(15) => Some("exit".to_owned()),
            _ => rewrite(rng, known),
        };
        words.extend(word);
    }
}

/// An action that sends the packet to a controller.
fn controller(rng: &mut Rng, known: Known) -> String {
    let ip = matches!(known.network, Network::Ipv4 | Network::Ipv6);
    match rng.below(if ip { 7 } else { 6 }) {
        0 => "CONTROLLER".to_owned(),
        1 => format!("CONTROLLER:{}", rng.pick(&[14, 20, 64, 65535])),
        2 => format!("controller(max_len={})", rng.pick(&[0, 18, 60, 200])),
        3 => format!(
            "controller(reason={})",
            rng.pick(&["action", "no_match", "invalid_ttl"])
        ),
        // No controller has that number.
        4 => "controller(id=7)".to_owned(),
        5 => format!("controller(userdata=0{}.ff)", rng.below(9)),
        _ => "dec_ttl(0,7)".to_owned(),
    }
}

fn learn(rng: &mut Rng, known: Known) -> String {
    let mut parts = vec![format!("table={},priority={}", 1 + rng.below(4), 100 + rng.below(3))];
    if rng.chance(30) {
        parts.push(
            rng.pick::<&str>(&[
                "delete_learned,cookie=0x77",
                "cookie=0x5",
                "fin_idle_timeout=500,fin_hard_timeout=600",
                "idle_timeout=900,hard_timeout=1000",
                "result_dst=NXM_NX_REG2[0]",
            ])
            .to_string(),
        );
    }
    parts.push(
        match rng.below(3) {
            0 => "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]",
            1 => "NXM_OF_ETH_SRC[],NXM_OF_VLAN_TCI[0..11]",
            _ => "NXM_OF_ETH_DST[0..15]=NXM_OF_ETH_SRC[0..15],reg1=0x1",
        }
        .to_owned(),
    );
    if known.network == Network::Ipv4 && rng.chance(50) {
        parts.push("dl_type=0x800,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[]".to_owned());
    }
    if rng.chance(40) {
        parts.push("load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]".to_owned());
    }
    if rng.chance(30) {
        parts.push("load:0x2->NXM_NX_REG1[0..3]".to_owned());
    }
    if rng.chance(20) {
        parts.push("limit=3".to_owned());
    }
    parts.push("output:NXM_OF_IN_PORT[]".to_owned());
    format!("learn({})", parts.join(","))
}

/// An action with registers and the stack.
fn register(rng: &mut Rng, known: Known) -> String {
    let reg = rng.below(3);
    match rng.below(12) {
        0 => format!("load:0x{:x}->NXM_NX_REG{reg}[0..7]", rng.below(6)),
        1 => format!("set_field:0x{:x}/0x3->reg{reg}", rng.below(4)),
        2 => format!(
            "load:0x{:x}->NXM_NX_REG0[0..15],output:NXM_NX_REG0[0..15]",
            1 + rng.below(5)
        ),
        3 => format!("move:NXM_OF_ETH_SRC[0..1]->NXM_NX_REG{reg}[0..1]"),
        4 => "push:NXM_OF_ETH_SRC[],push:NXM_OF_ETH_DST[],pop:NXM_OF_ETH_SRC[],pop:NXM_OF_ETH_DST[]".to_owned(),
        5 => format!("move:NXM_OF_IN_PORT[0..3]->NXM_NX_REG{reg}[4..7]"),
        6 => format!("load:0x{:x}->NXM_NX_XXREG0[{}]", rng.below(2), rng.below(128)),
        7 => "move:NXM_NX_REG0[]->NXM_NX_REG1[]".to_owned(),
        8 => "load:0->NXM_OF_IN_PORT[]".to_owned(),
        9 => format!("check_pkt_larger({})->NXM_NX_REG{reg}[0]", rng.pick(&[64, 100, 1500])),
        10 => format!("push:NXM_NX_REG{reg}[],load:0x3->NXM_NX_REG{reg}[],pop:NXM_NX_REG{reg}[0..31]"),
        _ => match known.network {
            Network::Ipv4 => rng
                .pick(&[
                    "move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]",
                    "move:NXM_OF_IP_SRC[0..7]->NXM_OF_IP_DST[8..15]",
                    "move:NXM_NX_IP_TTL[0..3]->NXM_NX_REG1[0..3]",
                    "push:NXM_OF_IP_SRC[],push:NXM_OF_IP_DST[],pop:NXM_OF_IP_SRC[],pop:NXM_OF_IP_DST[]",
                ])
                .to_string(),
            Network::Ipv6 => rng
                .pick(&[
                    "move:NXM_NX_IPV6_SRC[]->NXM_NX_IPV6_DST[]",
                    "move:NXM_NX_IPV6_SRC[0..31]->NXM_NX_REG1[]",
                ])
                .to_string(),
            Network::Arp => rng
                .pick(&[
                    "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]",
                    "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],load:2->NXM_OF_ARP_OP[]",
                    "move:NXM_OF_ETH_SRC[]->NXM_NX_ARP_SHA[]",
                ])
                .to_string(),
            _ => "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]".to_owned(),
        },
    }
}

fn odd(rng: &mut Rng) -> String {
    match rng.below(13) {
        8 => format!("set_field:0x{:x}->metadata", rng.below(4)),
        9 | 10 => format!("set_field:0x{0:x}/0x{0:x}->metadata", 1 << rng.below(3)),
        11 => format!(
            "multipath({},0,{},1,0,NXM_NX_REG2[0..15])",
            rng.pick(&["eth_src", "symmetric_l3", "symmetric_l3l4", "symmetric_l3l4+udp"]),
            rng.pick(&["hash_threshold", "hrw", "iter_hash"])
        ),
        12 => format!(
            "bundle({},0,{},ofport,members:{})",
            rng.pick(&["eth_src", "symmetric_l4"]),
            rng.pick(&["active_backup", "hrw"]),
            rng.pick(&[3, 5])
        ),
        0 => "note:01.02.03".to_owned(),
        1 => format!("set_queue:{}", 1 + rng.below(2)),
        2 => "pop_queue".to_owned(),
        3 => "multipath(symmetric_l4,50,modulo_n,1,0,NXM_NX_REG1[0..3])".to_owned(),
        4 => "bundle(eth_src,0,active_backup,ofport,members:1,2)".to_owned(),
        5 => "bundle_load(eth_src,0,active_backup,ofport,NXM_NX_REG2[0..15],members:3,2)".to_owned(),
        6 => format!("output(port={},max_len={})", port(rng), rng.pick(&[14, 20, 60, 100])),
        _ => format!("enqueue:{}:1", rng.pick(&[1, 2, 3])),
    }
}

/// A change of the packet, if its known protocol has one.
fn rewrite(rng: &mut Rng, known: &mut Known) -> Option<String> {
    let specific = match rng.below(5) {
        0 => return Some(ethernet(rng)),
        1 => return vlan(rng, known),
        2 => transport(rng, *known),
        _ => None,
    };
    if specific.is_some() {
        return specific;
    }
    if !known.oldest && known.network != Network::Mpls && known.network != Network::Any && rng.chance(6)
        || !known.oldest && known.network == Network::Any && rng.chance(15)
    {
        known.network = Network::Mpls;
        known.transport = Transport::Any;
        let more = if rng.chance(70) {
            format!(",set_mpls_label:{}", rng.pick(&LABELS))
        } else {
            String::new()
        };
        return Some(format!("push_mpls:0x{}{more}", rng.pick(&["8847", "8848"])));
    }
    Some(match known.network {
        Network::Any => ethernet(rng),
        Network::Arp => match rng.below(5) {
            0 => format!("set_field:{}->arp_op", 1 + rng.below(2)),
            1 => format!("set_field:{}->arp_spa", ip(rng)),
            2 => format!("set_field:{}->arp_tpa", ip(rng)),
            3 => format!("set_field:{}->arp_sha", rng.pick(&MACS)),
            _ => format!("set_field:{}->arp_tha", rng.pick(&MACS)),
        },
        Network::Ipv4 | Network::Ipv6 => internet(rng, *known),
        Network::Mpls => mpls(rng, known),
    })
}

fn ethernet(rng: &mut Rng) -> String {
    let (field, mac) = (*rng.pick(&["src", "dst"]), rng.pick(&MACS));
    match rng.below(3) {
        0 => format!("mod_dl_{field}:{mac}"),
        1 => format!("set_field:{mac}->eth_{field}"),
        _ => format!(
            "set_field:00:00:00:00:{:02x}:0{}/00:00:00:00:ff:0f->eth_{field}",
            rng.below(3),
            rng.below(9)
        ),
    }
}

fn vlan(rng: &mut Rng, known: &mut Known) -> Option<String> {
    let vid = rng.pick(&VIDS);
    Some(match rng.below(7) {
        // Without a known tag, later versions push a further tag.
        0 if known.tagged || known.oldest => {
            known.tagged = true;
            format!("mod_vlan_vid:{vid}")
        }
        1 if known.tagged || known.oldest => {
            known.tagged = true;
            format!("mod_vlan_pcp:{}", rng.pick(&[0, 3, 7]))
        }
        2 if known.tagged || known.oldest => {
            known.tagged = false;
            "strip_vlan".to_owned()
        }
        3 if !known.oldest => {
            known.tagged = true;
            let tpid = if rng.chance(70) { "0x8100" } else { "0x88a8" };
            // Both are set: in OpenFlow a new tag copies the outer tag, in Open vSwitch it is zero.
            let pcp = rng.pick(&[0, 3]);
            format!(
                "push_vlan:{tpid},set_field:{}->vlan_vid,set_field:{pcp}->vlan_pcp",
                0x1000 | vid
            )
        }
        5 if known.tagged && !known.oldest => format!("set_field:{}->vlan_pcp", rng.pick(&[0, 3, 7])),
        _ if known.tagged && !known.oldest => format!("set_field:{}->vlan_vid", 0x1000 | vid),
        _ => return None,
    })
}

fn internet(rng: &mut Rng, known: Known) -> String {
    let v4 = known.network == Network::Ipv4;
    let way = *rng.pick(&["src", "dst"]);
    match rng.below(9) {
        0 | 1 if v4 => format!("mod_nw_{way}:{}", ip(rng)),
        2 if v4 => format!("set_field:0.{}.0.{}/0.255.0.255->ip_{way}", rng.below(3), rng.below(9)),
        0 | 1 => format!("set_field:{}->ipv6_{way}", ip6(rng)),
        2 => match rng.below(2) {
            0 => format!("set_field:fc00::{}/ffff::ff->ipv6_{way}", rng.below(9)),
            _ => format!("set_field:0x{:x}->ipv6_label", rng.below(9)),
        },
        3 => format!("mod_nw_tos:{}", rng.pick(&[0, 0x28, 0xfc])),
        4 => format!("mod_nw_ecn:{}", rng.below(4)),
        5 => format!("mod_nw_ttl:{}", rng.pick(&[1, 9, 255])),
        6 => format!("set_field:{}->ip_dscp", rng.pick(&[0, 10, 63])),
        _ => "dec_ttl".to_owned(),
    }
}

fn transport(rng: &mut Rng, known: Known) -> Option<String> {
    let (way, number) = (*rng.pick(&["src", "dst"]), rng.pick(&PORTS));
    Some(match known.transport {
        Transport::Any => return None,
        Transport::Tcp | Transport::Udp if rng.chance(50) => format!("mod_tp_{way}:{number}"),
        Transport::Tcp if rng.chance(25) => {
            format!("fin_timeout(idle_timeout={},hard_timeout=700)", rng.pick(&[600, 6000]))
        }
        Transport::Tcp => format!("set_field:{}/0xff->tcp_{way}", number & 0xff),
        Transport::Udp => format!("set_field:{number}->udp_{way}"),
        Transport::Sctp => format!("set_field:{number}->sctp_{way}"),
        Transport::Icmp => {
            let six = if known.network == Network::Ipv4 { "" } else { "v6" };
            match rng.below(2) {
                0 => format!("set_field:{}->icmp{six}_type", rng.pick(&[0, 3, 129])),
                _ => format!("set_field:{}->icmp{six}_code", rng.below(3)),
            }
        }
        Transport::Neighbor(kind) => match rng.below(4) {
            0 | 2 => format!("set_field:{}->nd_target", ip6(rng)),
            _ if kind == 135 => format!("set_field:{}->nd_sll", rng.pick(&MACS)),
            _ => format!("set_field:{}->nd_tll", rng.pick(&MACS)),
        },
    })
}

fn mpls(rng: &mut Rng, known: &mut Known) -> String {
    match rng.below(7) {
        0 => format!("set_mpls_label:{}", rng.pick(&LABELS)),
        1 => format!("set_mpls_tc:{}", rng.below(8)),
        2 => format!("set_mpls_ttl:{}", rng.pick(&[1, 9, 255])),
        3 => "dec_mpls_ttl".to_owned(),
        4 if !known.oldest => "push_mpls:0x8847".to_owned(),
        5 | 6 if !known.oldest => {
            let (ether_type, network) = *rng.pick(&[
                ("0x0800", Network::Ipv4),
                ("0x86dd", Network::Ipv6),
                ("0x8847", Network::Mpls),
            ]);
            known.network = network;
            known.transport = Transport::Any;
            format!("pop_mpls:{ether_type}")
        }
        _ => "set_mpls_ttl:3".to_owned(),
    }
}
