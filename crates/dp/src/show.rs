//! Printing actions in the syntax of `ovs-dpctl dump-flows`.

use crate::user_data::UserData;
use crate::{Action, SetField};
use flow::{Field, Key, Mask, PortNo};
use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::{EtherType, MacAddr};

/// A megaflow's number in the form of a UUID (RFC 9562, version 4 in form). Megaflows with the same
/// mask, and the same key under it, have the same number.
pub fn ufid(key: &Key, mask: &Mask) -> String {
    /// Any two different seeds.
    const SEEDS: [u64; 2] = [0x6f78_7673, 0x7566_6964];
    let mut words = *mask.words();
    words.iter_mut().zip(key.words()).for_each(|(bits, word)| *bits &= word);
    let key = Key::from_words(&words);
    let mask = Key::from_words(mask.words());
    let half = |seed| key.hash64(mask.hash64(seed));
    let number = u128::from(half(SEEDS[0])) << 64 | u128::from(half(SEEDS[1]));
    let number = number & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{number:032x}");
    [0..8, 8..12, 12..16, 16..20, 20..32]
        .map(|part| &digits[part])
        .join("-")
}

/// A list of actions. Prints as in Open vSwitch: separated by commas, with writes to one header
/// merged.
#[derive(Clone, Copy)]
pub struct ActionList<'a> {
    actions: &'a [Action],
    context: Context,
    port_name: Option<&'a dyn Fn(PortNo) -> Option<String>>,
    user_data: Option<&'a dyn Fn(u32) -> Option<UserData>>,
}

impl<'a> ActionList<'a> {
    /// The actions of packets like `key`, which determines the headers that fields belong to.
    pub fn new(actions: &'a [Action], key: &Key) -> ActionList<'a> {
        ActionList {
            actions,
            context: Context {
                kind: EtherType(key.get(Field::EthType) as u16),
                protocol: key.get(Field::IpProto) as u8,
            },
            port_name: None,
            user_data: None,
        }
    }

    /// Uses the switch's data about punts, by their handle.
    #[must_use]
    pub fn with_user_data(self, user_data: &'a dyn Fn(u32) -> Option<UserData>) -> ActionList<'a> {
        ActionList {
            user_data: Some(user_data),
            ..self
        }
    }

    /// Prints ports by name.
    #[must_use]
    pub fn with_names(self, port_name: &'a dyn Fn(PortNo) -> Option<String>) -> ActionList<'a> {
        ActionList {
            port_name: Some(port_name),
            ..self
        }
    }

    fn list(&self, f: &mut fmt::Formatter<'_>, actions: &[Action], mut context: Context) -> fmt::Result {
        let mut rest = actions;
        while let [action, behind @ ..] = rest {
            if rest.len() < actions.len() {
                f.write_char(',')?;
            }
            rest = behind;
            match action {
                Action::Output(port) => match self.port_name.and_then(|name| name(*port)) {
                    Some(name) => f.write_str(&name)?,
                    None => write!(f, "{action}")?,
                },
                Action::SetField(set) => {
                    let header = context.header(set.field());
                    let mut sets = vec![*set];
                    while let [Action::SetField(next), behind @ ..] = rest
                        && context.header(next.field()) == header
                    {
                        // A second write to a part would hide the first one.
                        if sets.iter().any(|set| set.field() == next.field()) {
                            break;
                        }
                        sets.push(*next);
                        rest = behind;
                    }
                    self::set(f, &sets, context)?;
                }
                Action::Clone(actions) => {
                    let (copy, behind) = rest.split_at((*actions as usize).min(rest.len()));
                    f.write_str("clone(")?;
                    self.list(f, copy, context)?;
                    f.write_char(')')?;
                    rest = behind;
                }
                Action::Punt { handle, max_len, .. } => match self.user_data.and_then(|data| data(*handle)) {
                    Some(known) => known.userspace(f, *max_len)?,
                    None => write!(f, "{action}")?,
                },
                Action::Sample { probability, steps } => {
                    let (sampled, behind) = rest.split_at((*steps as usize).min(rest.len()));
                    if *probability == u32::MAX && matches!(sampled, [Action::Punt { .. }]) {
                        self.list(f, sampled, context)?;
                    } else {
                        let percent = f64::from(*probability) / f64::from(u32::MAX) * 100.0;
                        write!(f, "sample(sample={percent:.1}%,actions(")?;
                        self.list(f, sampled, context)?;
                        f.write_str("))")?;
                    }
                    rest = behind;
                }
                Action::IfLonger { len, then, otherwise } => {
                    let (then, behind) = rest.split_at((*then as usize).min(rest.len()));
                    let (otherwise, behind) = behind.split_at((*otherwise as usize).min(behind.len()));
                    write!(f, "check_pkt_len(size={len}")?;
                    for (name, actions) in [("gt", then), ("le", otherwise)] {
                        write!(f, ",{name}(")?;
                        match actions {
                            [] => f.write_str("drop")?,
                            _ => self.list(f, actions, context)?,
                        }
                        f.write_char(')')?;
                    }
                    f.write_char(')')?;
                    rest = behind;
                }
                Action::PushMpls { ethertype, .. }
                | Action::AddMpls { ethertype, .. }
                | Action::PopMpls { ethertype } => {
                    context.kind = EtherType(*ethertype);
                    write!(f, "{action}")?;
                }
                _ => write!(f, "{action}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for ActionList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.actions.is_empty() {
            return f.write_str("drop");
        }
        self.list(f, self.actions, self.context)
    }
}

impl fmt::Debug for ActionList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The headers that some fields belong to.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    kind: EtherType,
    protocol: u8,
}

impl Default for Context {
    fn default() -> Context {
        Context {
            kind: EtherType::IPV4,
            protocol: 6,
        }
    }
}

impl Context {
    /// The name of the header that a field belongs to.
    fn header(self, field: Field) -> &'static str {
        use Field as F;
        let v6 = self.kind == EtherType::IPV6;
        match field {
            F::EthDst | F::EthSrc => "eth",
            F::VlanTci0 => "vlan",
            F::Ipv4Src | F::Ipv4Dst => "ipv4",
            F::Ipv6Src | F::Ipv6Dst | F::Ipv6Label => "ipv6",
            F::IpTos | F::IpTtl => ["ipv4", "ipv6"][usize::from(v6)],
            F::TpSrc | F::TpDst => match self.protocol {
                17 => "udp",
                132 => "sctp",
                _ => "tcp",
            },
            F::TcpFlags => "tcp_flags",
            F::IcmpType | F::IcmpCode => ["icmp", "icmpv6"][usize::from(v6)],
            F::NdTarget | F::NdSll | F::NdTll => "nd",
            F::NdReserved | F::NdOptionsType => "nd_ext",
            F::PktMark => "skb_mark",
            F::SkbPriority => "skb_priority",
            F::MplsLse0 => "mpls",
            F::PbbIsid | F::PbbUca => "pbb",
            F::NshFlags | F::NshTtl | F::NshSpi | F::NshSi => "nsh",
            F::NshC1 | F::NshC2 | F::NshC3 | F::NshC4 => "nsh",
            _ => "arp",
        }
    }
}

/// Writes to one header.
pub(crate) fn set(f: &mut fmt::Formatter<'_>, sets: &[SetField], context: Context) -> fmt::Result {
    let Some(first) = sets.first() else { return Ok(()) };
    let header = context.header(first.field());
    write!(f, "set({header}(")?;
    // Parts are printed in the order in which the header's other parts are.
    let mut order: Vec<&SetField> = sets.iter().collect();
    order.sort_by_key(|set| place(set.field()));
    let mut separator = "";
    for set in order {
        if set.mask() == 0 {
            continue;
        }
        f.write_str(separator)?;
        separator = ",";
        part(f, set, header)?;
    }
    f.write_str("))")
}

/// The order in which Open vSwitch prints the parts of a header.
fn place(field: Field) -> usize {
    use Field as F;
    let order = [
        F::EthSrc,
        F::EthDst,
        F::Ipv4Src,
        F::Ipv4Dst,
        F::Ipv6Src,
        F::Ipv6Dst,
        F::Ipv6Label,
    ];
    let order = order
        .into_iter()
        .chain([F::IpTos, F::IpTtl, F::TpSrc, F::TpDst, F::IcmpType, F::IcmpCode]);
    let order = order.chain([
        F::ArpSpa,
        F::ArpTpa,
        F::ArpOp,
        F::ArpSha,
        F::ArpTha,
        F::NdTarget,
        F::NdSll,
        F::NdTll,
        F::NdReserved,
        F::NdOptionsType,
    ]);
    let nsh = [F::NshFlags, F::NshTtl, F::NshSpi, F::NshSi];
    let mut order = order.chain(nsh).chain([F::NshC1, F::NshC2, F::NshC3, F::NshC4]);
    order.position(|other| other == field).unwrap_or(usize::MAX)
}

/// `name=value`, followed by the mask if it does not cover the whole field.
fn part(f: &mut fmt::Formatter<'_>, set: &SetField, header: &str) -> fmt::Result {
    use Field as F;
    let (value, mask) = (set.value(), set.mask());
    let name = match set.field() {
        F::VlanTci0 => return vlan(f, value, mask),
        F::TcpFlags => return write!(f, "0x{value:03x}/0x{mask:03x}"),
        F::MplsLse0 => return crate::action::mpls(f, value as u32, mask as u32),
        F::PktMark | F::SkbPriority => {
            number(f, set.field(), value, false)?;
            return match mask == set.field().max_value() {
                true => Ok(()),
                false => write!(f, "/0x{mask:x}"),
            };
        }
        F::EthSrc | F::Ipv4Src | F::Ipv6Src | F::TpSrc => "src",
        F::EthDst | F::Ipv4Dst | F::Ipv6Dst | F::TpDst => "dst",
        F::IpTos if header == "ipv6" => "tclass",
        F::IpTos => "tos",
        F::IpTtl if header == "ipv6" => "hlimit",
        F::IpTtl => "ttl",
        F::Ipv6Label => "label",
        F::IcmpType => "type",
        F::IcmpCode => "code",
        F::ArpSpa => "sip",
        F::ArpTpa => "tip",
        F::ArpOp => "op",
        F::ArpSha => "sha",
        F::ArpTha => "tha",
        F::NdTarget => "target",
        F::NdSll => "sll",
        F::NdTll => "tll",
        F::PbbIsid => "isid",
        F::PbbUca => "uca",
        F::NshFlags => "flags",
        F::NshTtl => "ttl",
        F::NshSpi => "spi",
        F::NshSi => "si",
        F::NshC1 => "c1",
        F::NshC2 => "c2",
        F::NshC3 => "c3",
        F::NshC4 => "c4",
        other => other.info().name,
    };
    write!(f, "{name}=")?;
    number(f, set.field(), value, false)?;
    if mask != set.field().max_value() {
        f.write_char('/')?;
        number(f, set.field(), mask, true)?;
    }
    Ok(())
}

fn vlan(f: &mut fmt::Formatter<'_>, value: u128, mask: u128) -> fmt::Result {
    let mut separator = "";
    for (name, shift, width) in [("vid", 0, 0xfff), ("pcp", 13, 7)] {
        let bits = mask >> shift & width;
        if bits == 0 {
            continue;
        }
        write!(f, "{separator}{name}={}", value >> shift & width)?;
        if bits != width {
            write!(f, "/0x{bits:x}")?;
        }
        separator = ",";
    }
    Ok(())
}

fn number(f: &mut fmt::Formatter<'_>, field: Field, value: u128, mask: bool) -> fmt::Result {
    use Field as F;
    match field {
        F::EthSrc | F::EthDst | F::ArpSha | F::ArpTha | F::NdSll | F::NdTll => {
            write!(f, "{}", MacAddr::from_u64(value as u64))
        }
        F::Ipv4Src | F::Ipv4Dst | F::ArpSpa | F::ArpTpa => write!(f, "{}", Ipv4Addr::from_bits(value as u32)),
        F::Ipv6Src | F::Ipv6Dst | F::NdTarget => write!(f, "{}", Ipv6Addr::from_bits(value)),
        F::IpTos | F::Ipv6Label | F::NdReserved | F::PktMark | F::SkbPriority if value == 0 => f.write_char('0'),
        F::IpTos | F::Ipv6Label | F::NdReserved | F::PktMark | F::SkbPriority => write!(f, "0x{value:x}"),
        F::NshSpi | F::NshC1 | F::NshC2 | F::NshC3 | F::NshC4 => write!(f, "0x{value:x}"),
        _ if mask => write!(f, "0x{value:x}"),
        _ => write!(f, "{value}"),
    }
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
