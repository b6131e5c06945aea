//! Keys in the syntax of `ovs-dpctl dump-flows`, without masks: what `ofproto/trace` takes in the place of an OpenFlow flow.

use flow::{Field, Key};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::{MacAddr, VlanTag};

/// Text that is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("syntax error at {0}")]
pub struct OdpError(pub String);

/// Reads a key: `in_port(1),eth(src=…,dst=…),eth_type(0x0800),ipv4(src=…,…),tcp(src=…,dst=…)`. What is not given is zero. `port` tells the
/// number of a datapath port by its name.
///
/// # Errors
/// Names the part that makes no sense.
pub fn parse_key(text: &str, port: &dyn Fn(&str) -> Option<u32>) -> Result<Key, OdpError> {
    let mut key = Key::ZERO;
    let mut tags = Vec::new();
    read(&mut key, text, port, &mut tags)?;
    for (level, tag) in tags.into_iter().enumerate().take(2) {
        key.set_tag(level, Some(tag));
    }
    Ok(key)
}

fn read(
    key: &mut Key,
    text: &str,
    port: &dyn Fn(&str) -> Option<u32>,
    tags: &mut Vec<VlanTag>,
) -> Result<(), OdpError> {
    let mut rest = text.trim();
    while !rest.is_empty() {
        let error = || OdpError(rest.to_owned());
        let open = rest.find('(').ok_or_else(error)?;
        let close = closing(&rest[open..]).ok_or_else(error)? + open;
        let (name, inside) = (rest[..open].trim(), &rest[open + 1..close]);
        match name {
            "encap" => read(key, inside, port, tags)?,
            "vlan" => {
                let mut tci = 0;
                for (part, value) in parts(inside).ok_or_else(error)? {
                    let value = number(value).ok_or_else(error)? as u16;
                    match part {
                        "vid" => tci |= value & 0xfff,
                        "pcp" => tci |= (value & 7) << 13,
                        "cfi" => {}
                        "tci" => tci |= value,
                        _ => return Err(error()),
                    }
                }
                let tpid = key.get(Field::EthType) as u16;
                tags.push(VlanTag {
                    tpid,
                    tci: tci & !flow::TAG_PRESENT,
                });
            }
            "in_port" => {
                let number = number(inside).map(|n| n as u32).or_else(|| port(inside));
                key.set(Field::InPort, number.ok_or_else(error)?.into());
            }
            _ => group(key, name, inside).ok_or_else(error)?,
        }
        rest = rest[close + 1..].trim_start_matches([',', ' ']);
    }
    Ok(())
}

/// A part that is fields by name, or one value.
fn group(key: &mut Key, name: &str, inside: &str) -> Option<()> {
    use Field as F;
    if let Some(field) = match name {
        "eth_type" => Some(F::EthType),
        "skb_priority" => Some(F::SkbPriority),
        "skb_mark" => Some(F::PktMark),
        "tcp_flags" => Some(F::TcpFlags),
        "recirc_id" => Some(F::RecircId),
        _ => None,
    } {
        let value = match (field, number(inside)) {
            (_, Some(value)) => value,
            (F::TcpFlags, None) => flags(inside)?,
            _ => return None,
        };
        key.set(field, value);
        return Some(());
    }
    // What no packet here has; zero is no news.
    if matches!(
        name,
        "dp_hash" | "ct_state" | "ct_zone" | "ct_mark" | "ct_label" | "packet_type"
    ) {
        return Some(());
    }
    for (part, value) in parts(inside)? {
        let field = match (name, part) {
            ("eth", "src") => F::EthSrc,
            ("eth", "dst") => F::EthDst,
            ("ipv4", "src") => F::Ipv4Src,
            ("ipv4", "dst") => F::Ipv4Dst,
            ("ipv6", "src") => F::Ipv6Src,
            ("ipv6", "dst") => F::Ipv6Dst,
            ("ipv6", "label") => F::Ipv6Label,
            ("ipv4" | "ipv6", "proto") => F::IpProto,
            ("ipv4", "tos") | ("ipv6", "tclass") => F::IpTos,
            ("ipv4", "ttl") | ("ipv6", "hlimit") => F::IpTtl,
            ("ipv4" | "ipv6", "frag") => F::IpFrag,
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
            ("mpls", "label" | "tc" | "ttl" | "bos") => {
                let shift = [("label", 12), ("tc", 9), ("bos", 8), ("ttl", 0)];
                let (_, shift) = shift.into_iter().find(|(name, _)| *name == part)?;
                let lse = key.get(F::MplsLse0) | number(value)? << shift;
                key.set(F::MplsLse0, lse);
                continue;
            }
            _ => return None,
        };
        let value = match value {
            "no" if field == F::IpFrag => 0,
            "first" if field == F::IpFrag => 1,
            "later" if field == F::IpFrag => 3,
            _ => number(value)?,
        };
        if value > field.max_value() {
            return None;
        }
        key.set(field, value);
    }
    Some(())
}

/// `a=1,b=2`.
fn parts(inside: &str) -> Option<Vec<(&str, &str)>> {
    let parts = inside.split(',').filter(|part| !part.trim().is_empty());
    parts.map(|part| part.trim().split_once('=')).collect()
}

/// The position of the bracket that closes the first one.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(at, c)| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        (depth == 0).then_some(at)
    })
}

fn flags(text: &str) -> Option<u128> {
    const NAMES: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];
    text.split('|').try_fold(0, |all, name| {
        let at = NAMES.iter().position(|known| *known == name.trim())?;
        Some(all | 1 << at)
    })
}

fn number(text: &str) -> Option<u128> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x") {
        return u128::from_str_radix(hex, 16).ok();
    }
    if let Ok(mac) = text.parse::<MacAddr>() {
        return Some(mac.to_u64().into());
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(address.to_bits().into());
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(address.to_bits());
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Mask, PortNo, extract};

    #[test]
    fn what_is_printed_of_a_key_is_read_again() {
        let udp = "eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0x10,ttl=64,frag=no),udp(src=53,dst=80)";
        let key = parse_key(&format!("in_port(p1),{udp}"), &|name| (name == "p1").then_some(7)).unwrap();
        assert_eq!((key.in_port(), key.get(Field::TpDst)), (PortNo(7), 80));
        let mut mask = Mask::EMPTY;
        for field in [
            Field::InPort,
            Field::EthSrc,
            Field::EthDst,
            Field::EthType,
            Field::IpTos,
        ] {
            mask.add(field);
        }
        let again = parse_key(&key.display(&mask).to_string(), &|_| None).unwrap();
        assert_eq!(again, key.masked(&mask));
    }

    #[test]
    fn tags_are_read_from_outside_to_inside() {
        let text = "in_port(1),eth(),eth_type(0x88a8),vlan(vid=10,pcp=1),encap(eth_type(0x8100),vlan(vid=20,pcp=0),encap(eth_type(0x0806)))";
        let key = parse_key(text, &|_| None).unwrap();
        assert_eq!(
            key.tag(0),
            Some(VlanTag {
                tpid: 0x88a8,
                tci: 10 | 1 << 13
            })
        );
        assert_eq!(key.tag(1), Some(VlanTag { tpid: 0x8100, tci: 20 }));
        assert_eq!(key.get(Field::EthType), 0x0806);
        let frame = [2u8, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x12, 0x34];
        let bare = extract(&frame, PortNo(1)).unwrap();
        let text = bare.display(&Mask::full()).to_string();
        assert_eq!(parse_key(&text, &|_| None).unwrap(), bare);
    }

    #[test]
    fn nonsense_is_named() {
        for text in [
            "foo(3)",
            "in_port(x)",
            "eth(src=1",
            "eth(src)",
            "ipv4(tos=0x100)",
            "in_port",
        ] {
            assert!(parse_key(text, &|_| None).is_err(), "{text}");
        }
    }
}
