//! Packets to and from controllers.

use super::Printer;
use super::hex::marked_hex_lines;
use crate::Version;
use crate::model::{Match, PacketIn, PacketInFormat, PacketOut};
use crate::text::{Style, actions, matching};
use flow::MatchField as F;
use flow::{Field, FlowState, Key, PortNo};
use std::fmt::Write;
use wire::EtherType;

/// The names of the reasons for which packets go to controllers.
const REASONS: [&str; 6] = ["no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"];

impl Printer<'_> {
    pub(super) fn packet_in(&mut self, p: &PacketIn) {
        let old = self.version == Version::V10 && p.format == PacketInFormat::Standard;
        if p.table != 0 && !old {
            let _ = write!(self.out, " table_id={}", crate::text::table(p.table, self.style));
        }
        if p.cookie != u64::MAX && (p.format != PacketInFormat::Standard || self.version >= Version::V13) {
            let _ = write!(self.out, " cookie={:#x}", p.cookie);
        }
        let _ = write!(self.out, " total_len={} ", p.total_len);
        self.out.push_str(&matching(&p.metadata, self.style));
        let _ = match REASONS.get(usize::from(p.reason)) {
            Some(reason) => write!(self.out, " (via {reason})"),
            None => write!(self.out, " (via {})", p.reason),
        };
        let _ = write!(self.out, " data_len={}", p.data.len());
        match p.buffer_id {
            None => {
                self.out.push_str(" (unbuffered)");
                if p.data.len() != p.total_len as usize {
                    self.out.push_str(" (***total_len != data_len***)");
                }
            }
            Some(buffer) => {
                let _ = write!(self.out, " buffer=0x{buffer:08x}");
                if p.data.len() > p.total_len as usize {
                    self.out.push_str(" (***total_len < data_len***)");
                }
            }
        }
        self.out.push('\n');
        if !p.userdata.is_empty() {
            self.out.push_str(" userdata=");
            dotted(self.out, &p.userdata);
            self.out.push('\n');
        }
        if !p.continuation.is_empty() {
            continuation(self.out, p);
        }
        self.payload(&p.data);
    }

    pub(super) fn packet_out(&mut self, p: &PacketOut) {
        self.out.push(' ');
        let mut metadata = p.metadata.clone();
        metadata.set(F::InPortOxm, p.in_port.0.into(), u32::MAX.into());
        self.out.push_str(&matching(&metadata, self.style));
        let _ = write!(self.out, " actions={}", actions(&p.actions, self.style));
        match p.buffer_id {
            None => {
                let _ = write!(self.out, " data_len={}", p.data.len());
                if self.verbosity > 0 && !p.data.is_empty() {
                    self.out.push('\n');
                    self.payload(&p.data);
                    return;
                }
            }
            Some(buffer) => {
                let _ = write!(self.out, " buffer=0x{buffer:08x}");
            }
        }
        self.out.push('\n');
    }

    /// The packet itself.
    fn payload(&mut self, data: &[u8]) {
        if self.verbosity > 0 {
            packet(self.out, data);
        }
        if self.verbosity > 2 {
            marked_hex_lines(self.out, data);
        }
    }
}

fn dotted(out: &mut String, bytes: &[u8]) {
    for (n, byte) in bytes.iter().enumerate() {
        let dot = if n == 0 { "" } else { "." };
        let _ = write!(out, "{dot}{byte:02x}");
    }
}

/// The continuation of a paused packet; only a switch knows the meaning of its bytes.
fn continuation(out: &mut String, p: &PacketIn) {
    out.push_str(" continuation=");
    dotted(out, &p.continuation);
    out.push('\n');
}

/// A packet's headers as a match, and its transport checksum, on a line.
pub fn packet(out: &mut String, data: &[u8]) {
    let m = packet_match(data);
    let text = matching(&m, Style::PLAIN);
    out.push_str(&text);
    more_labels(out, data, &m);
    let _ = checksum_of(out, data, &m);
    out.push('\n');
}

/// The second and third label of a packet, which have no field.
fn more_labels(out: &mut String, data: &[u8], m: &Match) {
    let Some(key) = flow::extract(data, &PortNo(0).into()) else {
        return;
    };
    let labels = [Field::MplsLse0, Field::MplsLse1, Field::MplsLse2].map(|field| key.get(field) as u32);
    let more = labels.windows(2).take_while(|pair| pair[0] & BOTTOM == 0);
    if m.exact(F::MplsBos).is_some() {
        for (number, pair) in more.enumerate() {
            let _ = write!(out, ",mpls_lse{}={}", number + 1, pair[1]);
        }
    }
}

/// The bit of a label stack entry that says that it is the last (RFC 3032 §2.1).
const BOTTOM: u32 = 0x100;

/// A packet's headers as a match.
pub fn packet_match(data: &[u8]) -> Match {
    let mut m = Match::ANY;
    // A frame that is too short for its headers has none.
    let key = flow::extract(data, &PortNo(0).into()).unwrap_or(Key::ZERO);
    describe(&mut m, &FlowState::new(key, 0));
    m
}

/// The fields that a packet has, with any values.
fn describe(m: &mut Match, state: &FlowState) {
    let mut put = |field: F| m.set(field, state.get(field), field.info().valid);
    put(F::VlanTci);
    put(F::EthSrc);
    put(F::EthDst);
    put(F::EthType);
    match state.get(F::EthType) {
        0x0800 => [F::IpSrc, F::IpDst, F::NwProto, F::NwTos, F::NwEcn, F::NwTtl, F::IpFrag]
            .into_iter()
            .for_each(&mut put),
        0x86dd => [
            F::Ipv6Src,
            F::Ipv6Dst,
            F::Ipv6Label,
            F::NwProto,
            F::NwTos,
            F::NwEcn,
            F::NwTtl,
            F::IpFrag,
        ]
        .into_iter()
        .for_each(&mut put),
        0x0806 | 0x8035 => {
            [F::ArpSpa, F::ArpTpa, F::ArpOp, F::ArpSha, F::ArpTha]
                .into_iter()
                .for_each(&mut put);
            return;
        }
        0x8847 | 0x8848 => {
            [F::MplsLabel, F::MplsTc, F::MplsBos, F::MplsTtl]
                .into_iter()
                .for_each(&mut put);
            return;
        }
        _ => return,
    }
    let ports: &[F] = match (state.get(F::EthType), state.get(F::NwProto)) {
        (_, 6) => &[F::TcpSrc, F::TcpDst, F::TcpFlags],
        (_, 17) => &[F::UdpSrc, F::UdpDst],
        (_, 132) => &[F::SctpSrc, F::SctpDst],
        (0x0800, 1) => &[F::IcmpType, F::IcmpCode],
        (0x86dd, 58) => &[F::Icmpv6Type, F::Icmpv6Code],
        _ => &[],
    };
    ports.iter().copied().for_each(put);
}

/// The checksum in a transport header.
fn checksum_of(out: &mut String, data: &[u8], m: &Match) -> Option<()> {
    let at = transport(data)?;
    let (name, offset, len) = match (m.exact(F::EthType)?, m.exact(F::NwProto)?) {
        (_, 6) => ("tcp_csum", 16, 2),
        (_, 17) => ("udp_csum", 6, 2),
        (_, 132) => ("sctp_csum", 8, 4),
        (0x0800, 1) => ("icmp_csum", 2, 2),
        (0x86dd, 58) => ("icmp6_csum", 2, 2),
        _ => return None,
    };
    let sum = data.get(at + offset..at + offset + len)?;
    let number = sum.iter().fold(0u32, |n, b| n << 8 | u32::from(*b));
    let _ = write!(out, " {name}:{number:x}");
    Some(())
}

/// Offset of the transport header.
fn transport(data: &[u8]) -> Option<usize> {
    let (kind, at) = wire::headers::behind_tags(data, usize::MAX)?;
    match kind {
        EtherType::IPV4 => Some(at + usize::from(data.get(at)? & 15) * 4),
        EtherType::IPV6 => Some(at + 40),
        _ => None,
    }
}
