//! The kernel's rules, which choose a table of routes (`RTM_GETRULE`, `ip rule`).

use super::message::{NLM_F_DUMP, read_u32};
use super::{Attributes, Message, Netlink};
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const RTM_NEWRULE: u16 = 32;
const RTM_GETRULE: u16 = 34;
/// The length of `struct fib_rule_hdr`.
const FIXED: usize = 12;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
/// What a rule may ask for that is not known before a packet has its route: a device that it
/// leaves by, a VRF, a user, ports, protocols and the like.
const UNKNOWN: [u16; 10] = [11, 12, 17, 19, 20, 22, 23, 24, 25, 26];
/// The action of a rule that names a table, and those of rules that end a lookup.
const TO_TABLE: u8 = 1;
const ENDS: std::ops::RangeInclusive<u8> = 6..=8;
const INVERT: u32 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// A rule of the kernel about packets that the host itself sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRule {
    /// Rules with a lower number go first.
    pub priority: u32,
    /// It is about all packets but those that it describes.
    pub invert: bool,
    /// Bits of a packet's mark, and those that it looks at.
    pub mark: (u32, u32),
    /// The network of the destination, with the length of its prefix; its family is the rule's.
    pub to: (IpAddr, u8),
    /// The network of the source.
    pub from: (IpAddr, u8),
    /// The table; `None` ends the lookup without a route.
    pub table: Option<u32>,
    /// Routes of the table whose prefix is not longer than this do not count.
    pub suppress: Option<u8>,
}

/// The rules of the network namespace of the calling thread, in the kernel's order. Rules about
/// what only the host's stack knows of a packet (its type of service, a user, a VRF) are left out.
///
/// # Errors
/// The kernel's.
pub fn rules() -> io::Result<Vec<KernelRule>> {
    let mut netlink = Netlink::open()?;
    let mut found = Vec::new();
    let ask = Message::new(RTM_GETRULE, NLM_F_DUMP, &[0; FIXED]);
    let asked = netlink.exchange(ask, |kind, payload| {
        if kind == RTM_NEWRULE {
            found.extend(parse(payload));
        }
    });
    match asked {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => return Ok(usual()),
        asked => asked?,
    }
    found.sort_by_key(|rule: &KernelRule| rule.priority);
    Ok(found)
}

/// What a kernel without rules does: the tables `local`, `main` and `default`, one after the other.
fn usual() -> Vec<KernelRule> {
    let families: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let of_table = |table: u32| {
        families.map(|family| KernelRule {
            priority: 0,
            invert: false,
            mark: (0, 0),
            to: (family, 0),
            from: (family, 0),
            table: Some(table),
            suppress: None,
        })
    };
    [255, 254, 253].into_iter().flat_map(of_table).collect()
}

fn parse(payload: &[u8]) -> Option<KernelRule> {
    let [family, dst_len, src_len, tos, table, _, _, action] = *payload.first_chunk()?;
    let attributes = Attributes::after(payload, FIXED);
    let unspecified: IpAddr = match family {
        AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let own = attributes.get(FRA_IIFNAME).is_none_or(|name| name == b"lo\0");
    if tos != 0 || !own || UNKNOWN.iter().any(|kind| attributes.get(*kind).is_some()) {
        return None;
    }
    let table = match action {
        TO_TABLE => Some(attributes.u32(FRA_TABLE).unwrap_or(table.into())),
        action if ENDS.contains(&action) => None,
        _ => return None,
    };
    let width = if unspecified.is_ipv4() { 32 } else { 128 };
    let network = |kind, len| {
        let address = match attributes.get(kind) {
            Some(bytes) => super::route::address(bytes)?,
            None => unspecified,
        };
        (address.is_ipv4() == unspecified.is_ipv4() && len <= width).then_some((address, len))
    };
    let mark = attributes.u32(FRA_FWMARK).unwrap_or(0);
    let mask = attributes
        .u32(FRA_FWMASK)
        .unwrap_or(if mark == 0 { 0 } else { u32::MAX });
    let suppress = attributes.u32(FRA_SUPPRESS_PREFIXLEN);
    Some(KernelRule {
        priority: attributes.u32(FRA_PRIORITY).unwrap_or(0),
        invert: read_u32(payload, 8)? & INVERT != 0,
        mark: (mark, mask),
        to: network(FRA_DST, dst_len)?,
        from: network(FRA_SRC, src_len)?,
        table,
        suppress: suppress.and_then(|len| u8::try_from(len).ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute of whole words.
    fn attribute(kind: u16, value: u32) -> Vec<u8> {
        [&8u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value.to_ne_bytes()].concat()
    }

    fn message(fixed: [u8; 8], flags: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
        [&fixed[..], &flags.to_ne_bytes(), &attributes.concat()].concat()
    }

    #[test]
    fn the_usual_rules_name_the_three_tables_in_their_order() {
        let rules = rules().unwrap();
        let v4 = rules.iter().filter(|rule| rule.to.0.is_ipv4());
        let tables: Vec<u32> = v4.filter_map(|rule| rule.table).collect();
        assert!(
            tables.is_empty() || tables.first() == Some(&255) && tables.contains(&254),
            "{tables:?}"
        );
    }

    #[test]
    fn a_rule_says_which_marks_and_destinations_it_is_for() {
        let all = [
            attribute(FRA_PRIORITY, 77),
            attribute(FRA_FWMARK, 7),
            attribute(FRA_FWMASK, 15),
            attribute(FRA_TABLE, 1000),
            attribute(FRA_SUPPRESS_PREFIXLEN, 0),
            attribute(FRA_DST, u32::from_ne_bytes([10, 2, 0, 0])),
            attribute(FRA_SRC, u32::from_ne_bytes([10, 3, 0, 0])),
        ];
        let bytes = message([AF_INET, 16, 24, 0, 252, 0, 0, TO_TABLE], INVERT, &all);
        let rule = parse(&bytes).unwrap();
        assert_eq!((rule.priority, rule.mark, rule.table), (77, (7, 15), Some(1000)));
        assert_eq!(
            (rule.to, rule.suppress, rule.invert),
            (([10, 2, 0, 0].into(), 16), Some(0), true)
        );
        assert_eq!(rule.from, ([10, 3, 0, 0].into(), 24));
        for len in 0..bytes.len() {
            let _ = parse(&bytes[..len]);
        }
        let plain = parse(&message([AF_INET6, 0, 0, 0, 254, 0, 0, TO_TABLE], 0, &[])).unwrap();
        assert_eq!((plain.mark, plain.table, plain.invert), ((0, 0), Some(254), false));
        let ends = parse(&message([AF_INET, 0, 0, 0, 0, 0, 0, 7], 0, &[])).unwrap();
        assert_eq!(ends.table, None);
    }

    #[test]
    fn rules_about_what_is_not_known_are_left_out() {
        let kept = |fixed, attributes: &[Vec<u8>]| parse(&message(fixed, 0, attributes)).is_some();
        assert!(kept([AF_INET, 0, 0, 0, 9, 0, 0, TO_TABLE], &[]));
        assert!(!kept([AF_INET, 0, 33, 0, 9, 0, 0, TO_TABLE], &[]));
        assert!(!kept([AF_INET, 0, 0, 8, 9, 0, 0, TO_TABLE], &[]));
        assert!(!kept([AF_INET, 0, 0, 0, 9, 0, 0, TO_TABLE], &[attribute(19, 1)]));
        assert!(!kept([AF_INET, 0, 0, 0, 9, 0, 0, 2], &[]));
        assert!(!kept([9, 0, 0, 0, 9, 0, 0, TO_TABLE], &[]));
        let (lo, other) = (u32::from_ne_bytes(*b"lo\0\0"), u32::from_ne_bytes(*b"eth\0"));
        let mut named = attribute(FRA_IIFNAME, lo);
        named[0] = 7;
        assert!(kept([AF_INET, 0, 0, 0, 9, 0, 0, TO_TABLE], &[named]));
        assert!(!kept(
            [AF_INET, 0, 0, 0, 9, 0, 0, TO_TABLE],
            &[attribute(FRA_IIFNAME, other)]
        ));
    }
}
