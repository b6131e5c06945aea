//! Printing actions in the syntax of `ovs-dpctl dump-flows`.

use crate::{Action, SetField};
use flow::{Field, Key, PortNo};
use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::{EtherType, MacAddr};

/// A list of actions. Prints as Open vSwitch prints it, comma between comma, writes to one header together.
#[derive(Clone, Copy)]
pub struct ActionList<'a> {
    actions: &'a [Action],
    context: Context,
    port_name: Option<&'a dyn Fn(PortNo) -> Option<String>>,
}

impl<'a> ActionList<'a> {
    /// The actions of packets that are like `key`: it tells what the headers are that fields are written to.
    pub fn new(actions: &'a [Action], key: &Key) -> ActionList<'a> {
        ActionList {
            actions,
            context: Context {
                kind: EtherType(key.get(Field::EthType) as u16),
                protocol: key.get(Field::IpProto) as u8,
            },
            port_name: None,
        }
    }

    /// Prints ports by their names.
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
                Action::PushMpls { ethertype, .. } | Action::PopMpls { ethertype } => {
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

/// What the headers are that some fields are in.
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
    /// The name of the header that a field is in.
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
    let mut order = order.chain([
        F::ArpSpa,
        F::ArpTpa,
        F::ArpOp,
        F::ArpSha,
        F::ArpTha,
        F::NdTarget,
        F::NdSll,
        F::NdTll,
    ]);
    order.position(|other| other == field).unwrap_or(usize::MAX)
}

/// `name=value`, followed by the mask where not all of the field is written.
fn part(f: &mut fmt::Formatter<'_>, set: &SetField, header: &str) -> fmt::Result {
    use Field as F;
    let (value, mask) = (set.value(), set.mask());
    let name = match set.field() {
        F::VlanTci0 => return vlan(f, value, mask),
        F::TcpFlags => return write!(f, "0x{value:03x}/0x{mask:03x}"),
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
        F::IpTos | F::Ipv6Label => write!(f, "0x{value:x}"),
        _ if mask => write!(f, "0x{value:x}"),
        _ => write!(f, "{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn set(field: Field, value: u128, mask: u128) -> Action {
        Action::SetField(SetField::new(field, value, mask).unwrap())
    }

    fn key(kind: u16, protocol: u8) -> Key {
        let mut key = Key::ZERO;
        key.set(Field::EthType, kind.into());
        key.set(Field::IpProto, protocol.into());
        key
    }

    fn lists() -> Vec<(Vec<Action>, Key, &'static str)> {
        use Field as F;
        let all = u128::MAX;
        let v6 = 0x2001_0db8_u128 << 96 | 1;
        vec![
            (
                vec![
                    set(F::EthDst, 0x0200_0000_0002, all),
                    set(F::EthSrc, 0x0200_0000_0001, 0xffff_ff00_0000),
                    set(F::Ipv4Src, 0x0a00_0001, 0xffff_ff00),
                    set(F::IpTtl, 63, all),
                    set(F::IpTos, 0x10, 0xfc),
                    set(F::TpDst, 80, 0xff),
                    Action::Output(PortNo(2)),
                ],
                key(0x800, 6),
                "set(eth(src=02:00:00:00:00:00/ff:ff:ff:00:00:00,dst=02:00:00:00:00:02)),\
                 set(ipv4(src=10.0.0.0/255.255.255.0,tos=0x10/0xfc,ttl=63)),set(tcp(dst=80/0xff)),2",
            ),
            (
                vec![
                    set(F::Ipv6Src, v6, all),
                    set(F::Ipv6Dst, v6, all << 96),
                    set(F::Ipv6Label, 0x12345, 0xff),
                    set(F::IpTos, 0x10, all),
                    set(F::IpTtl, 3, 0xf),
                    set(F::NdTarget, v6, all),
                    set(F::NdSll, 1, all),
                ],
                key(0x86dd, 58),
                "set(ipv6(src=2001:db8::1,dst=2001:db8::/ffff:ffff::,label=0x45/0xff,tclass=0x10,hlimit=3/0xf)),\
                 set(nd(target=2001:db8::1,sll=00:00:00:00:00:01))",
            ),
            (
                vec![
                    set(F::ArpTpa, 0x0102_0304, 0xffff_ff00),
                    set(F::ArpOp, 1, 3),
                    set(F::ArpSha, 5, all),
                ],
                key(0x806, 0),
                "set(arp(tip=1.2.3.0/255.255.255.0,op=1/0x3,sha=00:00:00:00:00:05))",
            ),
            (
                vec![
                    set(F::VlanTci0, 0x6005, all),
                    set(F::TpSrc, 53, all),
                    Action::Clone(2),
                    set(F::TpSrc, 54, all),
                    Action::Output(PortNo(3)),
                    Action::Output(PortNo(4)),
                ],
                key(0x800, 17),
                "set(vlan(vid=5,pcp=3)),set(udp(src=53)),clone(set(udp(src=54)),3),4",
            ),
            (
                vec![
                    Action::SetMpls {
                        lse: 0x500b,
                        mask: 0xff1ff,
                    },
                    set(F::IcmpCode, 0, all),
                    set(F::IcmpType, 8, all),
                ],
                key(0x800, 1),
                "set(mpls(label=5/0xff,tc=0/0,ttl=11/0xff,bos=0/1)),set(icmp(type=8,code=0))",
            ),
        ]
    }

    #[test]
    fn lists_print_as_in_open_vswitch() {
        for (actions, key, text) in lists() {
            assert_eq!(ActionList::new(&actions, &key).to_string(), text);
        }
        assert_eq!(ActionList::new(&[], &Key::ZERO).to_string(), "drop");
        let others = [
            Action::PushMpls {
                ethertype: 0x8847,
                lse: 5 << 12 | 1 << 8 | 64,
            },
            Action::PopMpls { ethertype: 0x800 },
            set(Field::IpTtl, 1, u128::MAX),
            Action::Trunc(100),
            Action::Meter(3),
            Action::PopVlan,
            Action::Output(PortNo(7)),
        ];
        let names = |port: PortNo| (port.0 == 7).then(|| String::from("eth0"));
        assert_eq!(
            ActionList::new(&others, &key(0x86dd, 0)).with_names(&names).to_string(),
            "push_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),pop_mpls(eth_type=0x800),set(ipv4(ttl=1)),trunc(100),meter(3),pop_vlan,eth0"
        );
    }

    #[test]
    fn open_vswitch_reads_what_is_printed_and_prints_the_same() {
        for (_, _, text) in lists() {
            let Ok(output) = Command::new("ovs-dpctl").args(["parse-actions", text]).output() else {
                eprintln!("skipped: there is no ovs-dpctl");
                return;
            };
            let theirs = String::from_utf8_lossy(&output.stdout);
            assert_eq!(theirs.trim_end(), text);
        }
    }
}
