//! The match of an OpenFlow 1.0 message as it is, with its wildcards.

use crate::model::Port;
use crate::text::{Style, port};
use std::fmt::Write;
use std::net::Ipv4Addr;
use wire::MacAddr;

/// The length of the match.
pub(super) const LEN: usize = 40;

/// Prints all members of a match that packets of its protocol have; `*` for wildcarded ones.
pub(super) fn match10(out: &mut String, data: &[u8; LEN], style: Style<'_>) {
    let half = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
    let wildcards = u32::from_be_bytes([data[0], data[1], data[2], data[3]]);
    let has = |bit: u32| wildcards & 1 << bit == 0;
    let (kind, proto) = (half(22), data[25]);
    let mut named = "";
    let mut with_proto = false;
    if has(4) {
        (named, with_proto) = match (kind, proto) {
            (0x0800, 1) if has(5) => ("icmp,", true),
            (0x0800, 6) if has(5) => ("tcp,", true),
            (0x0800, 17) if has(5) => ("udp,", true),
            (0x0800, 132) if has(5) => ("sctp,", true),
            (0x0800, _) => ("ip,", false),
            (0x0806, _) => ("arp,", false),
            (0x8035, _) => ("rarp,", false),
            (0x8847, _) => ("mpls,", false),
            (0x8848, _) => ("mplsm,", false),
            _ => ("", false),
        };
    }
    let mac = |at: usize| MacAddr(std::array::from_fn(|n| data[at + n])).to_string();
    let address = |at: usize, shift: u32| {
        let wild = wildcards >> shift & 0x3f;
        let value = Ipv4Addr::new(data[at], data[at + 1], data[at + 2], data[at + 3]);
        match wild {
            0 => value.to_string(),
            1..32 => format!("{value}/{}", 32 - wild),
            _ => "*".into(),
        }
    };
    let put = |out: &mut String, name: &str, known: bool, value: String| {
        let _ = write!(out, "{name}={}", if known { value } else { "*".into() });
    };
    let number = match half(4) {
        number if number >= 0xff00 => Port(flow::port_from_of10(number)),
        number => Port(number.into()),
    };
    out.push_str(named);
    put(out, "in_port", has(0), port(number, style));
    put(out, ",dl_vlan", has(1), half(18).to_string());
    put(out, ",dl_vlan_pcp", has(20), data[20].to_string());
    put(out, ",dl_src", has(2), mac(6));
    put(out, ",dl_dst", has(3), mac(12));
    if named.is_empty() {
        put(out, ",dl_type", has(4), format!("0x{kind:04x}"));
    }
    let _ = write!(out, ",nw_src={},nw_dst={}", address(28, 8), address(32, 14));
    if !with_proto {
        let name = if matches!(kind, 0x0806 | 0x8035) {
            ",arp_op"
        } else {
            ",nw_proto"
        };
        put(out, name, has(5), proto.to_string());
    }
    put(out, ",nw_tos", has(21), data[24].to_string());
    let (source, target) = match proto {
        1 if has(5) => (",icmp_type", ",icmp_code"),
        _ => (",tp_src", ",tp_dst"),
    };
    put(out, source, has(6), half(36).to_string());
    put(out, target, has(7), half(38).to_string());
}
