//! Datapath actions from the text that Open vSwitch prints.

use dp::{Action, SetField};
use flow::{Field, PortNo};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::{MacAddr, VlanTag};

pub(crate) fn parse(text: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    for action in split(text.trim()).filter(|action| *action != "drop") {
        one(action, &mut actions);
    }
    actions
}

fn one(action: &str, actions: &mut Vec<Action>) {
    let inner = |name: &str| action.strip_prefix(name).and_then(|rest| rest.strip_suffix(')'));
    let value = |list: &str, name: &str| {
        let found = split(list).find_map(|part| part.split_once('=').filter(|(key, _)| *key == name));
        found.map(|(_, value)| number(value))
    };
    if let Some(tag) = inner("push_vlan(") {
        let part = |name| value(tag, name).unwrap_or(0) as u16;
        actions.push(Action::PushVlan(VlanTag {
            tpid: value(tag, "tpid").unwrap_or(0x8100) as u16,
            tci: part("vid") | part("pcp") << 13,
        }));
    } else if let Some(label) = inner("push_mpls(") {
        let part = |name| value(label, name).unwrap() as u32;
        actions.push(Action::PushMpls {
            ethertype: part("eth_type") as u16,
            lse: part("label") << 12 | part("tc") << 9 | part("bos") << 8 | part("ttl"),
        });
    } else if let Some(kind) = inner("pop_mpls(eth_type=") {
        actions.push(Action::PopMpls {
            ethertype: number(kind) as u16,
        });
    } else if let Some(set) = inner("set(") {
        self::set(set, actions);
    } else if let Some(len) = inner("trunc(") {
        actions.push(Action::Trunc(number(len) as u32));
    } else if let Some(id) = inner("recirc(") {
        actions.push(Action::Recirc(number(id) as u32));
    } else if let Some(list) = inner("clone(") {
        let list = parse(list);
        actions.push(Action::Clone(list.len() as u32));
        actions.extend(list);
    } else if let Some(check) = inner("check_pkt_len(") {
        let branch = |name: &str| {
            let text = split(check).find_map(|part| part.strip_prefix(name)).unwrap();
            parse(&text[..text.len() - 1])
        };
        let (then, otherwise) = (branch("gt("), branch("le("));
        actions.push(Action::IfLonger {
            len: value(check, "size").unwrap() as u16,
            then: then.len() as u32,
            otherwise: otherwise.len() as u32,
        });
        actions.extend(then);
        actions.extend(otherwise);
    } else if let Some(meter) = inner("meter(") {
        actions.push(Action::Meter(number(meter) as u32));
    } else if let Some(to) = inner("userspace(") {
        let to = split(to).find_map(|part| part.strip_prefix("controller(")).unwrap();
        // Open vSwitch only reports `max_len`; the packet is sent whole.
        value(&to[..to.len() - 1], "max_len").unwrap();
        let (handle, max_len) = (0, u16::MAX);
        actions.push(Action::Punt {
            reason: dp::PuntReason::Controller,
            handle,
            max_len,
        });
    } else if action == "pop_vlan" {
        actions.push(Action::PopVlan);
    } else {
        let port = action.parse().unwrap_or_else(|_| panic!("{action}"));
        actions.push(Action::Output(PortNo(port)));
    }
}

fn set(text: &str, actions: &mut Vec<Action>) {
    let (header, fields) = text.strip_suffix(')').unwrap().split_once('(').unwrap();
    if header == "skb_priority" {
        return actions.push(Action::SetQueue(number(fields) as u32));
    }
    if header == "skb_mark" {
        let (value, mask) = fields.split_once('/').unwrap_or((fields, "0xffffffff"));
        let set = SetField::new(Field::PktMark, number(value), number(mask));
        return actions.push(Action::SetField(set.unwrap()));
    }
    if header == "tcp_flags" {
        return;
    }
    for part in split(fields) {
        let (name, value) = part.split_once('=').unwrap();
        let (value, mask) = match value.split_once('/') {
            Some((value, mask)) => (number(value), number(mask)),
            None => (number(value), u128::MAX),
        };
        let shift = match (header, name) {
            ("mpls", "label") => 12,
            ("mpls", "tc") => 9,
            ("mpls", "bos") => 8,
            ("vlan", "pcp") => 13,
            _ => 0,
        };
        if header == "mpls" {
            let width = match name {
                "label" => 0xf_ffff,
                "tc" => 7,
                "bos" => 1,
                _ => 0xff,
            };
            actions.push(Action::SetMpls {
                lse: (value as u32) << shift,
                mask: ((mask as u32) & width) << shift,
            });
            continue;
        }
        let (value, mask) = match (header, name) {
            ("vlan", "vid") => (value, mask & 0xfff),
            ("vlan", _) => (value << shift, (mask & 7) << shift),
            _ => (value, mask),
        };
        let field = field(header, name).unwrap_or_else(|| panic!("{header} {name} in {text}"));
        actions.push(Action::SetField(SetField::new(field, value, mask).unwrap()));
    }
}

fn field(header: &str, name: &str) -> Option<Field> {
    use Field as F;
    Some(match (header, name) {
        ("eth", "src") => F::EthSrc,
        ("eth", "dst") => F::EthDst,
        ("vlan", "vid" | "pcp") => F::VlanTci0,
        ("ipv4", "src") => F::Ipv4Src,
        ("ipv4", "dst") => F::Ipv4Dst,
        ("ipv6", "src") => F::Ipv6Src,
        ("ipv6", "dst") => F::Ipv6Dst,
        ("ipv6", "label") => F::Ipv6Label,
        ("ipv4", "tos") | ("ipv6", "tclass") => F::IpTos,
        ("ipv4", "ttl") | ("ipv6", "hlimit") => F::IpTtl,
        ("tcp" | "udp" | "sctp", "src") => F::TpSrc,
        ("tcp" | "udp" | "sctp", "dst") => F::TpDst,
        ("icmp" | "icmpv6", "type") => F::IcmpType,
        ("icmp" | "icmpv6", "code") => F::IcmpCode,
        ("arp", "sip") => F::ArpSpa,
        ("arp", "tip") => F::ArpTpa,
        ("arp", "op") => F::ArpOp,
        ("arp", "sha") => F::ArpSha,
        ("arp", "tha") => F::ArpTha,
        ("nd", "target") => F::NdTarget,
        ("nd", "sll") => F::NdSll,
        ("nd", "tll") => F::NdTll,
        _ => return None,
    })
}

/// The parts between commas that are in no brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
    .filter(|part| !part.is_empty())
}

fn number(text: &str) -> u128 {
    if let Some(hex) = text.strip_prefix("0x") {
        u128::from_str_radix(hex, 16).unwrap()
    } else if let Ok(mac) = text.parse::<MacAddr>() {
        mac.to_u64().into()
    } else if let Ok(ip) = text.parse::<Ipv4Addr>() {
        ip.to_bits().into()
    } else if let Ok(ip) = text.parse::<Ipv6Addr>() {
        ip.to_bits()
    } else {
        text.parse().unwrap_or_else(|_| panic!("{text:?}"))
    }
}
