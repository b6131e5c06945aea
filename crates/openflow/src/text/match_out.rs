//! Matches in text.

use super::Style;
use super::field::{format, hex_bytes};
use super::number::hex;
use crate::model::{Match, Value};
use flow::{Format, MatchField as F};

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

/// What comes before the protocol.
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
    F::TunErspanVer,
    F::TunErspanIdx,
    F::TunErspanDir,
    F::TunErspanHwid,
    F::TunGtpuFlags,
    F::TunGtpuMsgtype,
    F::TunTos,
    F::TunTtl,
    F::TunFlags,
];

/// A match as text, without priority: empty for the match of every packet.
pub fn matching(m: &Match, style: Style<'_>) -> String {
    let mut out = Vec::new();
    for field in FIRST {
        put(&mut out, m, field, style);
    }
    let (said_type, said_proto) = protocol(&mut out, m, style);
    for number in 0..16 {
        if let Some(field) = F::reg(number) {
            put(&mut out, m, field, style);
        }
    }
    for field in TUNNEL {
        put(&mut out, m, field, style);
    }
    for tun in m.tun_metadata() {
        let exact = tun.mask.iter().all(|b| *b == 0xff);
        let value = hex_bytes(&Value::Wide(tun.value.clone()));
        out.push(match exact {
            true => format!("tun_metadata{}={value}", tun.number),
            false => format!(
                "tun_metadata{}={value}/{}",
                tun.number,
                hex_bytes(&Value::Wide(tun.mask.clone()))
            ),
        });
    }
    for field in [F::Metadata, F::InPortOxm, F::InPhyPort] {
        put(&mut out, m, field, style);
    }
    tag(&mut out, m);
    put(&mut out, m, F::EthSrc, style);
    put(&mut out, m, F::EthDst, style);
    if !said_type && let Some(kind) = m.exact(F::EthType) {
        out.push(format!("dl_type=0x{kind:04x}"));
    }
    for field in [
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
    ] {
        put(&mut out, m, field, style);
    }
    if !said_proto {
        put(&mut out, m, F::NwProto, style);
    }
    for field in [
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
    ] {
        put(&mut out, m, field, style);
    }
    out.join(",")
}

/// Says the packet type and the protocol's short name. Returns whether the Ethernet type and the protocol number are said with it.
fn protocol(out: &mut Vec<String>, m: &Match, style: Style<'_>) -> (bool, bool) {
    let kind = m.exact(F::EthType);
    if m.get(F::PacketType).is_some_and(|(kind, _)| kind != 0) {
        put(out, m, F::PacketType, style);
        return (kind.is_none(), false);
    }
    if m.get(F::RecircId).is_some() && kind.is_some() {
        // The type of what is recirculated is not to be taken for granted.
        out.push("eth".into());
    }
    let Some(kind) = kind else { return (false, false) };
    let number = m.exact(F::NwProto);
    let found = PROTOCOLS
        .iter()
        .find(|(k, n, _)| *k == kind && (n.is_none() || *n == number));
    match found {
        Some((_, n, name)) => {
            out.push((*name).to_string());
            (true, n.is_some())
        }
        None => (false, false),
    }
}

/// A tag: identifier and priority where these say all.
fn tag(out: &mut Vec<String>, m: &Match) {
    const PRESENT: u128 = 0x1000;
    const VID: u128 = 0xfff;
    const PCP: u128 = 0xe000;
    let Some((value, mask)) = m.get(F::VlanTci) else { return };
    let vid = mask & VID;
    let pcp = mask & PCP;
    let whole = (vid == 0 || vid == VID) && (pcp == 0 || pcp == PCP) && (vid | pcp) != 0;
    if value & PRESENT != 0 && whole {
        if vid != 0 {
            out.push(format!("dl_vlan={}", value & VID));
        }
        if pcp != 0 {
            out.push(format!("dl_vlan_pcp={}", value >> 13));
        }
    } else if mask == 0xffff {
        out.push(format!("vlan_tci=0x{value:04x}"));
    } else {
        out.push(format!("vlan_tci=0x{value:04x}/0x{mask:04x}"));
    }
}

/// The name of a field in matches, which is older than its own for some.
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

fn put(out: &mut Vec<String>, m: &Match, field: F, style: Style<'_>) {
    let Some((value, mask)) = m.get(field) else { return };
    let exact = mask == field.info().valid;
    let text = match field {
        F::Ipv6Label if exact => format!("0x{value:05x}"),
        F::Ipv6Label => format!("0x{value:05x}/0x{mask:05x}"),
        F::CtZone => value.to_string(),
        F::NshFlags if !exact => format!("{value:#04x}/{mask:#04x}"),
        // Of these, 16-bit numbers, a zero has its 0x too.
        _ if !exact && field.info().format == Format::Decimal && field.info().bits == 16 => {
            format!("{value:#x}/{mask:#x}")
        }
        F::RecircId => hex(value),
        _ => format(field, value, mask, style),
    };
    out.push(format!("{}={text}", name(field)));
}
