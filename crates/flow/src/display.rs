//! Printing a key under a mask, in the syntax of `ovs-dpctl dump-flows`.

use crate::field::Field;
use crate::key::{Key, TAG_PRESENT};
use crate::mask::Mask;
use crate::meta::{Connection, PortNo, Tunnel};
use crate::recirc::RecircId;
use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::{EtherType, MacAddr};

/// A key and a mask; bits outside the mask do not matter. Prints as `ovs-dpctl dump-flows` prints
/// the match of a megaflow: without the fields outside the mask; fields with a partial mask have
/// `/` and the mask behind them.
#[derive(Clone, Copy)]
pub struct Masked<'a> {
    key: &'a Key,
    mask: &'a Mask,
    port_name: Option<&'a dyn Fn(PortNo) -> Option<String>>,
    wildcards: bool,
}

impl<'a> Masked<'a> {
    pub(crate) fn new(key: &'a Key, mask: &'a Mask) -> Masked<'a> {
        Masked {
            key,
            mask,
            port_name: None,
            wildcards: false,
        }
    }

    /// Prints the fields outside the mask too, with the mask 0, as `dump-flows -m` does.
    #[must_use]
    pub fn with_wildcards(self) -> Masked<'a> {
        Masked {
            wildcards: true,
            ..self
        }
    }

    /// Prints the input port by its name, as `dump-flows --names` does.
    #[must_use]
    pub fn with_names(self, port_name: &'a dyn Fn(PortNo) -> Option<String>) -> Masked<'a> {
        Masked {
            port_name: Some(port_name),
            ..self
        }
    }

    fn bits(&self, field: Field) -> u128 {
        self.mask.get(field)
    }

    fn value(&self, field: Field) -> u128 {
        self.key.get(field) & self.bits(field)
    }

    /// `name(a=1,b=2/0x3),` of those parts that the mask covers; empty if it covers none.
    fn group(&self, f: &mut dyn Write, name: &str, parts: &[(&str, Field, Style)]) -> fmt::Result {
        let mut separator = "(";
        for (part, field, style) in parts {
            let bits = self.bits(*field);
            // Open vSwitch always compares whether a packet is a fragment, and has no `exthdr`.
            let shown = self.wildcards && !matches!(field, Field::IpFrag | Field::Ipv6Exthdr);
            if bits == 0 && !shown {
                continue;
            }
            if separator == "(" {
                write!(f, ",{name}")?;
            }
            write!(f, "{separator}{part}=")?;
            style.write(f, self.value(*field))?;
            if bits != field.max_value() && !matches!(style, Style::Frag) {
                f.write_str("/")?;
                style.write_mask(f, bits)?;
            }
            separator = ",";
        }
        if separator == "," { f.write_str(")") } else { Ok(()) }
    }

    fn tag(&self, f: &mut dyn Write, tpid: Field, tci: Field) -> fmt::Result {
        let (value, bits) = (self.value(tci) as u16, self.bits(tci) as u16);
        let comma = if tpid == Field::VlanTpid0 { "," } else { "" };
        write!(f, "{comma}eth_type(0x{:04x}),vlan(", self.key.get(tpid))?;
        let mut separator = "";
        for (name, shift, width) in [("vid", 0, 0xfff), ("pcp", 13, 7)] {
            let bits = bits >> shift & width;
            if bits != 0 {
                write!(f, "{separator}{name}={}", value >> shift & width)?;
                if bits != width {
                    write!(f, "/0x{bits:x}")?;
                }
                separator = ",";
            }
        }
        f.write_str(")")
    }

    /// The type and all that depends on it.
    fn payload(&self, f: &mut dyn Write) -> fmt::Result {
        use Field as F;
        let bits = self.bits(F::EthType);
        if bits != 0 {
            write!(f, ",eth_type(0x{:04x}", self.value(F::EthType))?;
            if bits != F::EthType.max_value() {
                write!(f, "/0x{bits:04x}")?;
            }
            f.write_str(")")?;
        }
        match EtherType(self.value(F::EthType) as u16) {
            EtherType::IPV4 => {
                self.group(
                    f,
                    "ipv4",
                    &[
                        ("src", F::Ipv4Src, Style::Ipv4),
                        ("dst", F::Ipv4Dst, Style::Ipv4),
                        ("proto", F::IpProto, Style::Decimal),
                        ("tos", F::IpTos, Style::Hex),
                        ("ttl", F::IpTtl, Style::Decimal),
                        ("frag", F::IpFrag, Style::Frag),
                    ],
                )?;
                self.transport(f, "icmp")
            }
            EtherType::IPV6 => {
                self.group(
                    f,
                    "ipv6",
                    &[
                        ("src", F::Ipv6Src, Style::Ipv6),
                        ("dst", F::Ipv6Dst, Style::Ipv6),
                        ("label", F::Ipv6Label, Style::Hex),
                        ("proto", F::IpProto, Style::Decimal),
                        ("tclass", F::IpTos, Style::Hex),
                        ("hlimit", F::IpTtl, Style::Decimal),
                        ("exthdr", F::Ipv6Exthdr, Style::Hex),
                        ("frag", F::IpFrag, Style::Frag),
                    ],
                )?;
                self.transport(f, "icmpv6")?;
                if self.wildcards && !matches!((self.value(F::IpProto), self.value(F::IcmpType)), (58, 135 | 136)) {
                    return Ok(());
                }
                self.group(
                    f,
                    "nd",
                    &[
                        ("target", F::NdTarget, Style::Ipv6),
                        ("sll", F::NdSll, Style::Mac),
                        ("tll", F::NdTll, Style::Mac),
                    ],
                )?;
                self.group(
                    f,
                    "nd_ext",
                    &[
                        ("nd_reserved", F::NdReserved, Style::Hex),
                        ("nd_options_type", F::NdOptionsType, Style::Decimal),
                    ],
                )
            }
            EtherType::MPLS | EtherType::MPLS_MULTICAST => self.mpls(f),
            EtherType::PBB => self.group(
                f,
                "pbb",
                &[("isid", F::PbbIsid, Style::Decimal), ("uca", F::PbbUca, Style::Decimal)],
            ),
            EtherType::NSH => self.group(
                f,
                "nsh",
                &[
                    ("flags", F::NshFlags, Style::Decimal),
                    ("ttl", F::NshTtl, Style::Decimal),
                    ("mdtype", F::NshMdtype, Style::Decimal),
                    ("np", F::NshNp, Style::Decimal),
                    ("spi", F::NshSpi, Style::TunId),
                    ("si", F::NshSi, Style::Decimal),
                    ("c1", F::NshC1, Style::TunId),
                    ("c2", F::NshC2, Style::TunId),
                    ("c3", F::NshC3, Style::TunId),
                    ("c4", F::NshC4, Style::TunId),
                ],
            ),
            EtherType::ARP | EtherType::RARP => self.group(
                f,
                "arp",
                &[
                    ("sip", F::ArpSpa, Style::Ipv4),
                    ("tip", F::ArpTpa, Style::Ipv4),
                    ("op", F::ArpOp, Style::Decimal),
                    ("sha", F::ArpSha, Style::Mac),
                    ("tha", F::ArpTha, Style::Mac),
                ],
            ),
            _ => Ok(()),
        }
    }

    /// Label stack entries, down to the last that the mask covers.
    fn mpls(&self, f: &mut dyn Write) -> fmt::Result {
        use Field as F;
        let entries = [F::MplsLse0, F::MplsLse1, F::MplsLse2];
        let Some(last) = entries.iter().rposition(|entry| self.bits(*entry) != 0) else {
            return Ok(());
        };
        let exact = entries[..=last]
            .iter()
            .all(|entry| self.bits(*entry) == entry.max_value());
        let parts = |entry: u128| (entry >> 12, entry >> 9 & 7, entry & 0xff, entry >> 8 & 1);
        for (number, entry) in entries[..=last].iter().enumerate() {
            f.write_str(if number == 0 { ",mpls(" } else { "," })?;
            let (label, tc, ttl, bos) = parts(self.value(*entry));
            if exact {
                write!(f, "label={label},tc={tc},ttl={ttl},bos={bos}")?;
            } else {
                let masks = parts(self.bits(*entry));
                write!(f, "label={label}/0x{:x},tc={tc}/{:x}", masks.0, masks.1)?;
                write!(f, ",ttl={ttl}/0x{:x},bos={bos}/{:x}", masks.2, masks.3)?;
            }
        }
        f.write_str(")")
    }

    /// The tunnel that the packet came from. Type of service and versions that are zero do not
    /// show, as in Open vSwitch.
    fn tunnel(&self, f: &mut dyn Write) -> fmt::Result {
        use Field as F;
        let is_v6 = self.key.get(F::TunIpv6Dst) != 0;
        if !is_v6 && self.key.get(F::TunDst) == 0 {
            return Ok(());
        }
        let mut text = String::new();
        let parts = [
            ("tun_id", F::TunId, Style::TunId),
            ("src", F::TunSrc, Style::Ipv4),
            ("dst", F::TunDst, Style::Ipv4),
            ("ipv6_src", F::TunIpv6Src, Style::Ipv6),
            ("ipv6_dst", F::TunIpv6Dst, Style::Ipv6),
            ("tos", F::TunTos, Style::Hex),
            ("ttl", F::TunTtl, Style::Decimal),
        ];
        let shown = parts.into_iter().filter(|(_, field, _)| match field {
            F::TunSrc | F::TunDst => !is_v6,
            F::TunIpv6Src | F::TunIpv6Dst => is_v6,
            F::TunTos => self.value(F::TunTos) != 0,
            _ => true,
        });
        self.group(&mut text, "tunnel", &shown.collect::<Vec<_>>())?;
        let mut text = match text.strip_suffix(')') {
            Some(text) => format!("{},", text.trim_start_matches(',')),
            None => String::from("tunnel("),
        };
        self.tunnel_details(&mut text)?;
        let bits = self.bits(F::TunFlags) as u16;
        if bits != 0 {
            let exact = bits == crate::tunnel::ALL_FLAGS || u128::from(bits) == F::TunFlags.max_value();
            let set = self.value(F::TunFlags) as u16;
            let flags = match exact {
                true => Tunnel::names_of_flags(set),
                false => Tunnel::signed_flags(set, bits),
            };
            write!(text, "flags({flags}),")?;
        }
        write!(f, "{}),", text.trim_end_matches(','))
    }

    fn tunnel_details(&self, text: &mut String) -> fmt::Result {
        use Field as F;
        let erspan: &[(&str, F, Style)] = match self.value(F::TunErspanVer) {
            1 => &[
                ("ver", F::TunErspanVer, Style::Decimal),
                ("idx", F::TunErspanIdx, Style::Hex),
            ],
            2 => &[
                ("ver", F::TunErspanVer, Style::Decimal),
                ("dir", F::TunErspanDir, Style::Decimal),
                ("hwid", F::TunErspanHwid, Style::Hex),
            ],
            _ => &[],
        };
        for (name, close, parts) in [
            (
                "vxlan(gbp",
                "),",
                &[
                    ("id", F::TunGbpId, Style::Decimal),
                    ("flags", F::TunGbpFlags, Style::Hex),
                ][..],
            ),
            ("erspan", ",", erspan),
            (
                "gtpu",
                ",",
                &[
                    ("flags", F::TunGtpuFlags, Style::Hex),
                    ("msgtype", F::TunGtpuMsgtype, Style::Decimal),
                ][..],
            ),
        ] {
            if parts.iter().all(|(_, field, _)| self.value(*field) == 0) {
                continue;
            }
            let mut group = String::new();
            self.group(&mut group, name, parts)?;
            if !group.is_empty() {
                text.push_str(group.trim_start_matches(','));
                text.push_str(close);
            }
        }
        if self.bits(F::TunOptions) != 0 {
            // Their values are not in the key.
            write!(text, "geneve(hash=0x{:x}),", self.value(F::TunOptions))?;
        }
        Ok(())
    }

    /// Metadata; empty if the mask covers none of it.
    fn mark(&self, f: &mut dyn Write, name: &str, field: Field) -> fmt::Result {
        let bits = self.bits(field);
        if bits == 0 && !self.wildcards {
            return Ok(());
        }
        write!(f, "{name}(")?;
        Style::Hex.write(f, self.value(field))?;
        if bits == 0 {
            f.write_str("/0")?;
        } else if bits != field.max_value() {
            write!(f, "/0x{bits:x}")?;
        }
        f.write_str("),")
    }

    fn ct_state(&self, f: &mut dyn Write) -> fmt::Result {
        let (state, bits) = (self.value(Field::CtState) as u32, self.bits(Field::CtState) as u32);
        match bits {
            0 if self.wildcards => f.write_str("ct_state(0/0),"),
            0 => Ok(()),
            bits if u128::from(bits) == Field::CtState.max_value() => {
                let names = Connection::names_of_state(state);
                write!(f, "ct_state({}),", if names.is_empty() { "0" } else { &names })
            }
            bits => write!(f, "ct_state({}),", Connection::signed_state(state, bits)),
        }
    }

    /// The original direction of the packet's connection.
    fn original(&self, f: &mut dyn Write) -> fmt::Result {
        use Field as F;
        let ports = [
            ("proto", F::CtProto, Style::Decimal),
            ("tp_src", F::CtTpSrc, Style::Decimal),
            ("tp_dst", F::CtTpDst, Style::Decimal),
        ];
        let v4 = [("src", F::CtIpv4Src, Style::Ipv4), ("dst", F::CtIpv4Dst, Style::Ipv4)];
        let v6 = [("src", F::CtIpv6Src, Style::Ipv6), ("dst", F::CtIpv6Dst, Style::Ipv6)];
        // As in Open vSwitch, only a packet of a connection has them.
        if self.key.get(F::CtProto) == 0 {
            return Ok(());
        }
        let is_v6 = self.key.get(F::CtIpv6Src) | self.key.get(F::CtIpv6Dst) != 0;
        let (name, addresses) = if is_v6 { ("ct_tuple6", v6) } else { ("ct_tuple4", v4) };
        let mut text = String::new();
        self.group(&mut text, name, &[&addresses[..], &ports].concat())?;
        match text.trim_start_matches(',') {
            "" => Ok(()),
            text => write!(f, "{text},"),
        }
    }

    fn transport(&self, f: &mut dyn Write, icmp: &str) -> fmt::Result {
        use Field as F;
        let name = match self.value(F::IpProto) {
            6 => "tcp",
            17 => "udp",
            132 => "sctp",
            1 | 58 => {
                return self.group(
                    f,
                    icmp,
                    &[
                        ("type", F::IcmpType, Style::Decimal),
                        ("code", F::IcmpCode, Style::Decimal),
                    ],
                );
            }
            _ => return Ok(()),
        };
        self.group(
            f,
            name,
            &[("src", F::TpSrc, Style::Decimal), ("dst", F::TpDst, Style::Decimal)],
        )?;
        let (flags, bits) = (self.value(F::TcpFlags) as u16, self.bits(F::TcpFlags) as u16);
        if bits == 0 || name != "tcp" {
            let shown = self.wildcards && name == "tcp";
            return f.write_str(if shown { ",tcp_flags(0/0)" } else { "" });
        }
        f.write_str(",tcp_flags(")?;
        let names = TCP_FLAGS
            .iter()
            .enumerate()
            .filter(|(bit, _)| (bits & 1 << bit) != 0)
            .map(|(bit, name)| (flags & 1 << bit != 0, name));
        if u128::from(bits) == F::TcpFlags.max_value() {
            let set: Vec<&str> = names.filter(|(set, _)| *set).map(|(_, name)| *name).collect();
            f.write_str(if set.is_empty() { "0" } else { "" })?;
            f.write_str(&set.join("|"))?;
        } else {
            for (set, name) in names {
                write!(f, "{}{name}", if set { '+' } else { '-' })?;
            }
        }
        f.write_str(")")
    }
}

impl fmt::Display for Masked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Field as F;
        self.mark(f, "skb_priority", F::SkbPriority)?;
        self.tunnel(f)?;
        self.mark(f, "skb_mark", F::PktMark)?;
        self.ct_state(f)?;
        self.mark(f, "ct_zone", F::CtZone)?;
        self.mark(f, "ct_mark", F::CtMark)?;
        self.mark(f, "ct_label", F::CtLabel)?;
        self.original(f)?;
        let id = RecircId(self.value(F::RecircId) as u32);
        f.write_str("recirc_id(")?;
        Style::Hex.write(f, id.number().into())?;
        match (id.hash(), self.bits(F::RecircId) as u32 & RecircId::HASH_BITS) {
            (Some(hash), bits) if bits != 0 => {
                f.write_str("),dp_hash(")?;
                Style::Hex.write(f, hash.into())?;
                write!(f, "/0x{bits:x})")?;
            }
            _ => f.write_str(if self.wildcards { "),dp_hash(0/0)" } else { ")" })?,
        }
        if self.bits(F::InPort) != 0 {
            match self.port_name.and_then(|name| name(self.key.in_port())) {
                Some(name) => write!(f, ",in_port({name})")?,
                None => write!(f, ",in_port({})", self.key.in_port())?,
            }
        }
        match self.value(F::PacketType) {
            0 => f.write_str(",packet_type(ns=0,id=0)")?,
            kind => write!(f, ",packet_type(ns={},id=0x{:x})", kind >> 16, kind & 0xffff)?,
        }
        self.group(
            f,
            "eth",
            &[("src", F::EthSrc, Style::Mac), ("dst", F::EthDst, Style::Mac)],
        )?;
        // Tags outside the mask are left out, and tags that the mask says are absent.
        let tags = [(F::VlanTpid0, F::VlanTci0), (F::VlanTpid1, F::VlanTci1)];
        let tags = tags
            .iter()
            .take_while(|(_, tci)| self.value(*tci) as u16 & TAG_PRESENT != 0);
        let mut depth = 0;
        for (tpid, tci) in tags {
            self.tag(f, *tpid, *tci)?;
            f.write_str(",encap(")?;
            depth += 1;
        }
        let mut payload = String::new();
        self.payload(&mut payload)?;
        let payload = if depth == 0 {
            &payload
        } else {
            payload.trim_start_matches(',')
        };
        write!(f, "{payload}{}", &"))"[..depth])
    }
}

/// The names of TCP's flags, from the lowest bit up.
pub(crate) const TCP_FLAGS: [&str; 12] = [
    "fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]",
];

/// Format of a field's value.
#[derive(Clone, Copy)]
enum Style {
    Decimal,
    Hex,
    /// Hexadecimal with a prefix, also where it is zero.
    TunId,
    Mac,
    Ipv4,
    Ipv6,
    Frag,
}

impl Style {
    fn write(&self, f: &mut dyn Write, value: u128) -> fmt::Result {
        match self {
            Style::Decimal => write!(f, "{value}"),
            Style::TunId => write!(f, "0x{value:x}"),
            Style::Hex if value == 0 => f.write_str("0"),
            Style::Hex => write!(f, "0x{value:x}"),
            Style::Mac => write!(f, "{}", MacAddr::from_u64(value as u64)),
            Style::Ipv4 => write!(f, "{}", Ipv4Addr::from_bits(value as u32)),
            Style::Ipv6 => write!(f, "{}", Ipv6Addr::from_bits(value)),
            Style::Frag => f.write_str(match value {
                0 => "no",
                1 => "first",
                _ => "later",
            }),
        }
    }

    fn write_mask(&self, f: &mut dyn Write, bits: u128) -> fmt::Result {
        match self {
            Style::Decimal if bits != 0 => write!(f, "0x{bits:x}"),
            _ => self.write(f, bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract;

    /// A UDP packet from 02:…:01 to 02:…:02 with the tags given.
    fn packet(tags: &[[u8; 4]]) -> Vec<u8> {
        let mut data = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        data.extend(tags.iter().flatten());
        data.extend([
            8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 53, 1, 0, 0, 8, 0, 0,
        ]);
        data
    }

    #[test]
    fn an_untagged_packet_prints_as_ovs_dpctl_prints_it() {
        let key = extract(&packet(&[]), &PortNo(2).into()).unwrap();
        let mut mask = Mask::EMPTY;
        for field in [
            Field::InPort,
            Field::EthSrc,
            Field::EthType,
            Field::IpFrag,
            Field::VlanTci0,
        ] {
            mask.add(field);
        }
        mask.add_bits(Field::EthDst, 0xffff_ffff_0000);
        assert_eq!(
            key.display(&mask).to_string(),
            "recirc_id(0),in_port(2),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:00/ff:ff:ff:ff:00:00),eth_type(0x0800),ipv4(frag=no)"
        );
        let mut mask = Mask::exact(Field::InPort);
        mask.add(Field::EthType);
        mask.add(Field::IpProto);
        mask.add_bits(Field::Ipv4Src, 0xffff_ff00);
        mask.add_bits(Field::TpDst, 0xff00);
        let names = |port: PortNo| (port.0 == 2).then(|| String::from("eth0"));
        assert_eq!(
            key.display(&mask).with_names(&names).to_string(),
            "recirc_id(0),in_port(eth0),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(src=10.0.0.0/255.255.255.0,proto=17),udp(dst=256/0xff00)"
        );
    }

    #[test]
    fn wildcards_print_with_an_empty_mask() {
        let key = extract(&packet(&[]), &PortNo(2).into()).unwrap();
        let mut mask = Mask::exact(Field::InPort);
        for field in [Field::EthSrc, Field::EthType, Field::IpProto] {
            mask.add(field);
        }
        assert_eq!(
            key.display(&mask).with_wildcards().to_string(),
            "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),recirc_id(0),dp_hash(0/0),\
             in_port(2),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01,dst=00:00:00:00:00:00/00:00:00:00:00:00),eth_type(0x0800),\
             ipv4(src=0.0.0.0/0.0.0.0,dst=0.0.0.0/0.0.0.0,proto=17,tos=0/0,ttl=0/0),udp(src=0/0,dst=0/0)"
        );
    }

    #[test]
    fn what_follows_a_tag_is_inside_encap() {
        let key = extract(
            &packet(&[[0x88, 0xa8, 0x20, 10], [0x81, 0, 0x10, 20]]),
            &PortNo(1).into(),
        )
        .unwrap();
        let mut mask = Mask::exact(Field::InPort);
        mask.add(Field::VlanTci0);
        mask.add(Field::VlanTpid0);
        mask.add(Field::EthType);
        mask.add_bits(Field::VlanTci1, 0x1fff);
        assert_eq!(
            key.display(&mask).to_string(),
            "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x88a8),vlan(vid=10,pcp=1),encap(eth_type(0x8100),vlan(vid=20),encap(eth_type(0x0800)))"
        );
        let mut mask = Mask::exact(Field::InPort);
        mask.add_bits(Field::VlanTci0, 0x1fff);
        assert_eq!(
            key.display(&mask).to_string(),
            "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x88a8),vlan(vid=10),encap()"
        );
        assert_eq!(
            key.display(&Mask::EMPTY).to_string(),
            "recirc_id(0),packet_type(ns=0,id=0)"
        );
    }
}
