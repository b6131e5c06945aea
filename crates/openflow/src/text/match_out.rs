//! Matches in text.

use super::Style;
use super::field::{hex_bytes, put_value};
use super::number::{put_decimal, put_hex};
use crate::model::{Match, Value};
use flow::{Format, MatchField as F};
use std::fmt::Write;

/// Protocols that have a short name: Ethernet type, protocol number, name.
pub(super) const PROTOCOLS: [(u128, Option<u128>, &str); 17] = [
    (0x0800, Some(1), "icmp"),
    (0x0800, Some(6), "tcp"),
    (0x0800, Some(17), "udp"),
    (0x0800, Some(132), "sctp"),
    (0x86dd, Some(58), "icmp6"),
    (0x86dd, Some(6), "tcp6"),
    (0x86dd, Some(17), "udp6"),
    (0x86dd, Some(132), "sctp6"),
    (0x0800, None, "ip"),
    (0x86dd, None, "ipv6"),
    (0x86dd, None, "ip6"),
    (0x0800, None, "ip4"),
    (0x0800, None, "ipv4"),
    (0x0806, None, "arp"),
    (0x8035, None, "rarp"),
    (0x8847, None, "mpls"),
    (0x8848, None, "mplsm"),
];

/// Fields before the protocol.
const FIRST: [F; 17] = [
    F::PktMark,
    F::RecircId,
    F::DpHash,
    F::ConjId,
    F::SkbPriority,
    F::ActsetOutput,
    F::CtState,
    F::CtZone,
    F::CtMark,
    F::CtLabel,
    F::CtNwSrc,
    F::CtIpv6Src,
    F::CtNwDst,
    F::CtIpv6Dst,
    F::CtNwProto,
    F::CtTpSrc,
    F::CtTpDst,
];

/// Tunnels, behind the registers.
const TUNNEL: [F; 16] = [
    F::TunId,
    F::TunSrc,
    F::TunDst,
    F::TunIpv6Src,
    F::TunIpv6Dst,
    F::TunGbpId,
    F::TunGbpFlags,
    F::TunTos,
    F::TunTtl,
    F::TunErspanVer,
    F::TunErspanIdx,
    F::TunErspanDir,
    F::TunErspanHwid,
    F::TunGtpuFlags,
    F::TunGtpuMsgtype,
    F::TunFlags,
];

/// Addresses and what belongs to them, behind the Ethernet type.
const ADDRESSES: [F; 10] = [
    F::PbbIsid,
    F::PbbUca,
    F::IpSrc,
    F::IpDst,
    F::Ipv6Src,
    F::Ipv6Dst,
    F::Ipv6Label,
    F::Ipv6Exthdr,
    F::ArpSpa,
    F::ArpTpa,
];

/// Fields behind the protocol's number.
const LAST: [F; 37] = [
    F::ArpOp,
    F::ArpSha,
    F::ArpTha,
    F::NshFlags,
    F::NshTtl,
    F::NshMdtype,
    F::NshNp,
    F::NshSpi,
    F::NshSi,
    F::NshC1,
    F::NshC2,
    F::NshC3,
    F::NshC4,
    F::NwTos,
    F::NwEcn,
    F::NwTtl,
    F::MplsLabel,
    F::MplsTc,
    F::MplsTtl,
    F::MplsBos,
    F::IpFrag,
    F::IcmpType,
    F::IcmpCode,
    F::Icmpv6Type,
    F::Icmpv6Code,
    F::NdTarget,
    F::NdSll,
    F::NdTll,
    F::NdReserved,
    F::NdOptionsType,
    F::TcpSrc,
    F::UdpSrc,
    F::SctpSrc,
    F::TcpDst,
    F::UdpDst,
    F::SctpDst,
    F::TcpFlags,
];

/// A match that is printed.
struct Printer<'a> {
    out: &'a mut String,
    matching: &'a Match,
    style: Style<'a>,
    /// The fields that there are conditions on.
    present: [u64; 4],
}

/// A match as text, without priority: empty for the match of every packet.
pub fn matching(m: &Match, style: Style<'_>) -> String {
    let mut out = String::new();
    put_match(&mut out, m, style);
    out
}

/// Appends a match.
pub(super) fn put_match(out: &mut String, m: &Match, style: Style<'_>) {
    let mut present = [0; 4];
    for entry in m.entries() {
        let number = entry.field as usize;
        present[number / 64 % 4] |= 1 << (number % 64);
    }
    let before = out.len();
    let mut printer = Printer {
        out,
        matching: m,
        style,
        present,
    };
    printer.all();
    if out.len() > before {
        // The comma behind the last.
        out.pop();
    }
}

impl Printer<'_> {
    fn all(&mut self) {
        self.fields(&FIRST);
        let (said_type, said_proto) = self.protocol();
        self.fields(&F::ALL[F::Reg0 as usize..=F::Reg15 as usize]);
        self.fields(&TUNNEL);
        self.options();
        self.fields(&[F::Metadata, F::InPortOxm, F::InPhyPort]);
        self.tag();
        self.fields(&[F::EthSrc, F::EthDst]);
        if !said_type && let Some(kind) = self.matching.exact(F::EthType) {
            let _ = write!(self.out, "dl_type=0x{kind:04x},");
        }
        self.fields(&ADDRESSES);
        if !said_proto {
            self.field(F::NwProto);
        }
        self.fields(&LAST);
    }

    fn fields(&mut self, fields: &[F]) {
        for field in fields {
            self.field(*field);
        }
    }

    fn field(&mut self, field: F) {
        let number = field as usize;
        if self.present[number / 64 % 4] & 1 << (number % 64) == 0 {
            return;
        }
        let Some((value, mask)) = self.matching.get(field) else {
            return;
        };
        let exact = mask == field.info().valid;
        self.out.push_str(name(field));
        self.out.push('=');
        let out = &mut *self.out;
        let _ = match field {
            F::Ipv6Label if exact => write!(out, "0x{value:05x}"),
            F::Ipv6Label => write!(out, "0x{value:05x}/0x{mask:05x}"),
            // Of these a zero has its 0x too.
            F::NshSpi | F::NshC1 | F::NshC2 | F::NshC3 | F::NshC4 if exact => write!(out, "{value:#x}"),
            F::NshC1 | F::NshC2 | F::NshC3 | F::NshC4 => write!(out, "{value:#x}/{mask:#x}"),
            F::NshFlags if !exact => write!(out, "{value:#04x}/{mask:#04x}"),
            // Of these, 16-bit numbers, a zero has its 0x too.
            _ if !exact && field.info().format == Format::Decimal && field.info().bits == 16 => {
                write!(out, "{value:#x}/{mask:#x}")
            }
            F::CtZone => {
                put_decimal(out, value);
                Ok(())
            }
            F::RecircId => {
                put_hex(out, value);
                Ok(())
            }
            _ => {
                put_value(out, field, value, mask, self.style);
                Ok(())
            }
        };
        self.out.push(',');
    }

    /// Tunnel options.
    fn options(&mut self) {
        for tun in self.matching.tun_metadata() {
            let _ = write!(self.out, "tun_metadata{}", tun.number);
            if tun.mask.is_empty() {
                self.out.push(',');
                continue;
            }
            let value = hex_bytes(&Value::Wide(tun.value.clone()));
            let _ = write!(self.out, "={value}");
            if tun.mask.iter().any(|b| *b != 0xff) {
                let _ = write!(self.out, "/{}", hex_bytes(&Value::Wide(tun.mask.clone())));
            }
            self.out.push(',');
        }
    }

    /// Says the packet type and the protocol's short name. Returns whether the Ethernet type and
    /// the protocol number are said with it.
    fn protocol(&mut self) -> (bool, bool) {
        let m = self.matching;
        let kind = m.exact(F::EthType);
        if m.get(F::PacketType).is_some_and(|(kind, _)| kind != 0) {
            self.field(F::PacketType);
            return (kind.is_none(), false);
        }
        if m.get(F::RecircId).is_some() && kind.is_some() {
            // A recirculated packet may be of any type, so the text has it.
            self.out.push_str("eth,");
        }
        let Some(kind) = kind else { return (false, false) };
        let number = m.exact(F::NwProto);
        let found = PROTOCOLS
            .iter()
            .find(|(k, n, _)| *k == kind && (n.is_none() || *n == number));
        match found {
            Some((_, n, name)) => {
                self.out.push_str(name);
                self.out.push(',');
                (true, n.is_some())
            }
            None => (false, false),
        }
    }

    /// A tag: identifier and priority where these say all.
    fn tag(&mut self) {
        const PRESENT: u128 = 0x1000;
        const VID: u128 = 0xfff;
        const PCP: u128 = 0xe000;
        let Some((value, mask)) = self.matching.get(F::VlanTci) else {
            return;
        };
        let vid = mask & VID;
        let pcp = mask & PCP;
        let whole = (vid == 0 || vid == VID) && (pcp == 0 || pcp == PCP) && (vid | pcp) != 0;
        let out = &mut *self.out;
        if value & PRESENT != 0 && whole {
            if vid != 0 {
                let _ = write!(out, "dl_vlan={},", value & VID);
            }
            if pcp != 0 {
                let _ = write!(out, "dl_vlan_pcp={},", value >> 13);
            }
        } else if mask == 0xffff {
            let _ = write!(out, "vlan_tci=0x{value:04x},");
        } else {
            let _ = write!(out, "vlan_tci=0x{value:04x}/0x{mask:04x},");
        }
    }
}

/// The name of a field in matches; some have an older name there.
fn name(field: F) -> &'static str {
    match field {
        F::InPortOxm => "in_port",
        F::EthSrc => "dl_src",
        F::EthDst => "dl_dst",
        F::IpSrc => "nw_src",
        F::IpDst => "nw_dst",
        F::IpFrag => "nw_frag",
        F::TcpSrc | F::UdpSrc | F::SctpSrc => "tp_src",
        F::TcpDst | F::UdpDst | F::SctpDst => "tp_dst",
        F::Icmpv6Type => "icmp_type",
        F::Icmpv6Code => "icmp_code",
        F::TunGtpuFlags => "gtpu_flags",
        F::TunGtpuMsgtype => "gtpu_msgtype",
        _ => field.name(),
    }
}
