//! The fixed-size matches of OpenFlow 1.0 (§5.2.3) and 1.1 (§A.2.3).
//!
//! Fields that packets of the given protocol lack are ignored, as the specifications' errata ask.
//! As in Open vSwitch, OpenFlow 1.0 has TOS, protocol and ports of IPv6 too, and OpenFlow 1.1 those
//! of IPv4 only. A condition that such a match cannot express is left out.

use crate::OfError;
use crate::action::{port10, port11, to10};
use crate::buf::{Reader, Writer};
use crate::model::{Match, Port, TAGGED};
use flow::MatchField as F;
use std::borrow::Cow;

/// Wildcards of OpenFlow 1.0.
mod w10 {
    pub(super) const IN_PORT: u32 = 1;
    pub(super) const DL_VLAN: u32 = 1 << 1;
    pub(super) const DL_SRC: u32 = 1 << 2;
    pub(super) const DL_DST: u32 = 1 << 3;
    pub(super) const DL_TYPE: u32 = 1 << 4;
    pub(super) const NW_PROTO: u32 = 1 << 5;
    pub(super) const TP_SRC: u32 = 1 << 6;
    pub(super) const TP_DST: u32 = 1 << 7;
    pub(super) const NW_SRC_SHIFT: u32 = 8;
    pub(super) const NW_DST_SHIFT: u32 = 14;
    pub(super) const DL_VLAN_PCP: u32 = 1 << 20;
    pub(super) const NW_TOS: u32 = 1 << 21;
    pub(super) const ALL: u32 = (1 << 22) - 1;
}

/// Wildcards of OpenFlow 1.1.
mod w11 {
    pub(super) const IN_PORT: u32 = 1;
    pub(super) const DL_VLAN: u32 = 1 << 1;
    pub(super) const DL_VLAN_PCP: u32 = 1 << 2;
    pub(super) const DL_TYPE: u32 = 1 << 3;
    pub(super) const NW_TOS: u32 = 1 << 4;
    pub(super) const NW_PROTO: u32 = 1 << 5;
    pub(super) const TP_SRC: u32 = 1 << 6;
    pub(super) const TP_DST: u32 = 1 << 7;
    pub(super) const MPLS_LABEL: u32 = 1 << 8;
    pub(super) const MPLS_TC: u32 = 1 << 9;
    pub(super) const ALL: u32 = (1 << 10) - 1;
}

/// In place of a VLAN: no tag.
const VLAN_NONE: u16 = 0xffff;
/// In place of a VLAN, in OpenFlow 1.1: any tag.
const VLAN_ANY: u16 = 0xfffe;

const MAC: u128 = 0xffff_ffff_ffff;
const WORD: u128 = 0xffff_ffff;

const LEN11: u16 = 88;

/// The members of both versions, as conditions: value and mask.
#[derive(Clone, Copy, Debug, Default)]
struct Members {
    in_port: Option<Port>,
    dl_src: (u128, u128),
    dl_dst: (u128, u128),
    vlan: Option<u16>,
    pcp: Option<u8>,
    dl_type: Option<u16>,
    tos: Option<u8>,
    proto: Option<u8>,
    nw_src: (u128, u128),
    nw_dst: (u128, u128),
    tp_src: Option<u16>,
    tp_dst: Option<u16>,
}

impl Members {
    fn to_match(self) -> Match {
        // Few matches have more conditions.
        let mut m = Match::with_capacity(4);
        // The match is empty, so that wildcarded fields need no entry.
        let mut say = |field: F, (value, mask): (u128, u128)| {
            if mask != 0 {
                m.set(field, value & mask, mask);
            }
        };
        if let Some(port) = self.in_port {
            say(F::InPortOxm, (port.0.into(), WORD));
        }
        say(F::EthSrc, self.dl_src);
        say(F::EthDst, self.dl_dst);
        match self.vlan {
            Some(VLAN_NONE) => say(F::VlanTci, (0, 0xffff)),
            Some(VLAN_ANY) => say(F::VlanTci, (0x1000, 0x1000)),
            Some(vid) => say(F::DlVlan, ((vid & 0xfff).into(), 0xfff)),
            None => {}
        }
        if let Some(pcp) = self.pcp.filter(|_| self.vlan != Some(VLAN_NONE)) {
            say(F::DlVlanPcp, ((pcp & 7).into(), 7));
        }
        if let Some(dl_type) = self.dl_type {
            say(F::EthType, (dl_type.into(), 0xffff));
        }
        let arp = matches!(self.dl_type, Some(0x0806 | 0x8035));
        let (src, dst) = if arp {
            (F::ArpSpa, F::ArpTpa)
        } else {
            (F::IpSrc, F::IpDst)
        };
        say(src, self.nw_src);
        say(dst, self.nw_dst);
        if let Some(tos) = self.tos {
            say(F::NwTos, ((tos & 0xfc).into(), 0xfc));
        }
        if let Some(proto) = self.proto {
            match arp {
                true => say(F::ArpOp, (proto.into(), 0xffff)),
                false => say(F::NwProto, (proto.into(), 0xff)),
            }
        }
        let (src, dst, mask) = match self.proto {
            Some(58) if self.dl_type == Some(0x86dd) => (F::Icmpv6Type, F::Icmpv6Code, 0xff),
            Some(1) => (F::IcmpType, F::IcmpCode, 0xff),
            Some(17) => (F::UdpSrc, F::UdpDst, 0xffff),
            Some(132) => (F::SctpSrc, F::SctpDst, 0xffff),
            _ => (F::TcpSrc, F::TcpDst, 0xffff),
        };
        for (field, port) in [(src, self.tp_src), (dst, self.tp_dst)] {
            if let Some(port) = port {
                say(field, (port.into(), mask));
            }
        }
        m.normalize();
        m
    }

    /// The conditions of a match, as far as the members can express them; `ip` are the Ethernet
    /// types whose TOS, protocol and ports count.
    fn of(m: &Match, ip: &[u128]) -> Members {
        let of = |fields: &[F]| fields.iter().find_map(|f| m.exact(*f));
        let both = |fields: &[F]| fields.iter().find_map(|f| m.get(*f)).unwrap_or((0, 0));
        let tci = m.get(F::VlanTci).unwrap_or((0, 0));
        let vlan = match tci {
            (value, mask) if mask & !value & TAGGED != 0 => Some(VLAN_NONE),
            (value, mask) if mask & 0x1fff == 0x1fff => Some(value as u16 & 0xfff),
            (value, mask) if value & 0x1000 != 0 && mask & 0xfff == 0 => Some(VLAN_ANY),
            _ => None,
        };
        let tagged = tci.0 & 0x1000 != 0 && tci.1 & 0xe000 == 0xe000;
        let arp = matches!(m.exact(F::EthType), Some(0x0806 | 0x8035));
        let ip = m.exact(F::EthType).is_some_and(|eth_type| ip.contains(&eth_type));
        let proto = match arp {
            true => m.exact(F::ArpOp).filter(|op| *op < 0x100),
            false => m.exact(F::NwProto).filter(|_| ip),
        };
        let has_ports = ip && proto.is_some();
        Members {
            in_port: m.exact(F::InPortOxm).map(|p| Port(p as u32)),
            dl_src: both(&[F::EthSrc]),
            dl_dst: both(&[F::EthDst]),
            vlan,
            pcp: tagged.then_some((tci.0 >> 13) as u8),
            dl_type: m.exact(F::EthType).map(|t| t as u16),
            tos: m.exact(F::NwTos).filter(|_| ip).map(|t| t as u8),
            proto: proto.map(|p| p as u8),
            nw_src: both(&[F::IpSrc, F::ArpSpa]),
            nw_dst: both(&[F::IpDst, F::ArpTpa]),
            tp_src: of(&[F::TcpSrc, F::UdpSrc, F::SctpSrc, F::IcmpType, F::Icmpv6Type])
                .filter(|_| has_ports)
                .map(|p| p as u16),
            tp_dst: of(&[F::TcpDst, F::UdpDst, F::SctpDst, F::IcmpCode, F::Icmpv6Code])
                .filter(|_| has_ports)
                .map(|p| p as u16),
        }
    }
}

/// The mask of an address that ignores this number of low bits.
fn cidr(wild: u32) -> u128 {
    if wild >= 32 { 0 } else { WORD << wild & WORD }
}

/// Reads an OpenFlow 1.0 match.
pub(super) fn decode10(data: &mut Reader<'_>) -> Result<Match, OfError> {
    let w = data.u32()?;
    let has = |bit: u32| w & bit == 0;
    let mut members = Members::default();
    let in_port = port10(data.u16()?);
    members.in_port = has(w10::IN_PORT).then_some(in_port);
    members.dl_src = (mac(data)?, if has(w10::DL_SRC) { MAC } else { 0 });
    members.dl_dst = (mac(data)?, if has(w10::DL_DST) { MAC } else { 0 });
    let (vlan, pcp) = (data.u16()?, data.u8()?);
    data.skip(1)?;
    let vlan = if vlan == VLAN_NONE { vlan } else { vlan & 0xfff };
    members.vlan = has(w10::DL_VLAN).then_some(vlan);
    members.pcp = has(w10::DL_VLAN_PCP).then_some(pcp);
    let (dl_type, tos, proto) = (data.u16()?, data.u8()?, data.u8()?);
    data.skip(2)?;
    members.dl_type = has(w10::DL_TYPE).then_some(dl_type);
    members.tos = has(w10::NW_TOS).then_some(tos);
    members.proto = has(w10::NW_PROTO).then_some(proto);
    members.nw_src = (data.u32()?.into(), cidr(w >> w10::NW_SRC_SHIFT & 0x3f));
    members.nw_dst = (data.u32()?.into(), cidr(w >> w10::NW_DST_SHIFT & 0x3f));
    let (src, dst) = (data.u16()?, data.u16()?);
    members.tp_src = has(w10::TP_SRC).then_some(src);
    members.tp_dst = has(w10::TP_DST).then_some(dst);
    Ok(members.to_match())
}

/// The number of low bits that a mask ignores, if it has all others.
fn wild(mask: u128) -> Option<u32> {
    let wild = (mask as u32).trailing_zeros();
    (cidr(wild) == mask).then_some(wild)
}

/// Writes an OpenFlow 1.0 match.
pub(super) fn encode10(out: &mut Writer, matching: &Match) {
    let m = Members::of(matching, &[0x0800, 0x86dd]);
    let vlan = m.vlan.filter(|v| *v != VLAN_ANY);
    let mut w = w10::ALL;
    let mut say = |bit: u32, said: bool| w &= if said { !bit } else { !0 };
    say(w10::IN_PORT, m.in_port.is_some());
    say(w10::DL_SRC, m.dl_src.1 == MAC);
    say(w10::DL_DST, m.dl_dst.1 == MAC);
    say(w10::DL_VLAN, vlan.is_some());
    // Without a tag there is no priority to wildcard.
    say(w10::DL_VLAN_PCP, m.pcp.is_some() || vlan == Some(VLAN_NONE));
    say(w10::DL_TYPE, m.dl_type.is_some());
    say(w10::NW_TOS, m.tos.is_some());
    say(w10::NW_PROTO, m.proto.is_some());
    say(w10::TP_SRC, m.tp_src.is_some());
    say(w10::TP_DST, m.tp_dst.is_some());
    let (src, dst) = (wild(m.nw_src.1).unwrap_or(32), wild(m.nw_dst.1).unwrap_or(32));
    w &= !(0x3f << w10::NW_SRC_SHIFT | 0x3f << w10::NW_DST_SHIFT);
    w |= src << w10::NW_SRC_SHIFT | dst << w10::NW_DST_SHIFT;
    let kept = |value: (u128, u128)| if value.1 == MAC { value.0 } else { 0 };
    out.u32(w);
    out.u16(m.in_port.map_or(0, to10));
    out.low(kept(m.dl_src), 6);
    out.low(kept(m.dl_dst), 6);
    out.u16(vlan.unwrap_or(0));
    out.u8(m.pcp.unwrap_or(0));
    out.zeros(1);
    out.u16(m.dl_type.unwrap_or(0));
    out.u8(m.tos.unwrap_or(0));
    out.u8(m.proto.unwrap_or(0));
    out.zeros(2);
    out.low(m.nw_src.0 & cidr(src), 4);
    out.low(m.nw_dst.0 & cidr(dst), 4);
    out.u16(m.tp_src.unwrap_or(0));
    out.u16(m.tp_dst.unwrap_or(0));
}

/// Reads an OpenFlow 1.0 match.
///
/// # Errors
/// The error that a switch answers.
pub fn decode_match10(data: &[u8]) -> Result<Match, OfError> {
    decode10(&mut Reader::new(data, OfError::BrcBadLen))
}

/// An OpenFlow 1.0 match, as far as it can express the conditions.
pub fn encode_match10(matching: &Match) -> Vec<u8> {
    let mut out = Writer::new();
    encode10(&mut out, matching);
    out.0
}

/// Reads an OpenFlow 1.1 match.
///
/// # Errors
/// The error that a switch answers.
pub fn decode_match11(data: &[u8]) -> Result<Match, OfError> {
    decode11(&mut Reader::new(data, OfError::BmcBadLen))
}

/// An OpenFlow 1.1 match, as far as it can express the conditions.
pub fn encode_match11(matching: &Match) -> Vec<u8> {
    let mut out = Writer::new();
    encode11(&mut out, matching);
    out.0
}

/// Whether OpenFlow 1.0's match can express all of a match.
pub(crate) fn says_all10(matching: &Match) -> bool {
    let mut out = Writer::new();
    encode10(&mut out, matching);
    let read = decode10(&mut Reader::new(&out.0, OfError::BrcBadLen));
    read.as_ref() == Ok(&*untagged(matching))
}

/// A match of untagged packets for the fixed formats, which have one value for all such packets.
fn untagged(matching: &Match) -> Cow<'_, Match> {
    match matching.get(F::VlanTci) {
        Some((value, mask)) if mask & !value & TAGGED != 0 => {
            let mut said = matching.clone();
            said.set(F::VlanTci, 0, 0xffff);
            Cow::Owned(said)
        }
        _ => Cow::Borrowed(matching),
    }
}

/// Whether OpenFlow 1.1's match can express all of a match.
pub(crate) fn says_all11(matching: &Match) -> bool {
    let mut out = Writer::new();
    encode11(&mut out, matching);
    let read = decode11(&mut Reader::new(&out.0, OfError::BrcBadLen));
    read.as_ref() == Ok(&*untagged(matching))
}

/// Reads an OpenFlow 1.1 match.
pub(super) fn decode11(data: &mut Reader<'_>) -> Result<Match, OfError> {
    let mut data = data.sub(usize::from(LEN11).min(data.len()), OfError::BmcBadLen)?;
    let data = &mut data;
    let (kind, len) = (data.u16()?, data.u16()?);
    if kind != 0 {
        return Err(OfError::BmcBadType);
    }
    if len != LEN11 {
        return Err(OfError::BmcBadLen);
    }
    let mut members = Members::default();
    let (in_port, w) = (data.u32()?, data.u32()?);
    let has = |bit: u32| w & bit == 0;
    if has(w11::IN_PORT) {
        members.in_port = Some(port11(in_port, OfError::BmcBadValue)?);
    }
    members.dl_src = (mac(data)?, !mac(data)? & MAC);
    members.dl_dst = (mac(data)?, !mac(data)? & MAC);
    let (vlan, pcp) = (data.u16()?, data.u8()?);
    data.skip(1)?;
    if has(w11::DL_VLAN) {
        members.vlan = match vlan {
            0..=0xfff | VLAN_NONE | VLAN_ANY => Some(vlan),
            _ => return Err(OfError::BmcBadValue),
        };
        members.pcp = has(w11::DL_VLAN_PCP).then_some(pcp);
        if pcp > 7 && members.pcp.is_some() && vlan != VLAN_NONE {
            return Err(OfError::BmcBadValue);
        }
    }
    let (dl_type, tos, proto) = (data.u16()?, data.u8()?, data.u8()?);
    members.dl_type = has(w11::DL_TYPE).then_some(dl_type);
    members.tos = has(w11::NW_TOS).then_some(tos);
    if has(w11::NW_TOS) && tos & 3 != 0 {
        return Err(OfError::BmcBadValue);
    }
    members.proto = has(w11::NW_PROTO).then_some(proto);
    members.nw_src = (data.u32()?.into(), u128::from(!data.u32()?));
    members.nw_dst = (data.u32()?.into(), u128::from(!data.u32()?));
    let (src, dst) = (data.u16()?, data.u16()?);
    members.tp_src = has(w11::TP_SRC).then_some(src);
    members.tp_dst = has(w11::TP_DST).then_some(dst);
    let (label, tc) = (data.u32()?, data.u8()?);
    data.skip(3)?;
    let (metadata, mask) = (data.u64()?, !data.u64()?);
    if members.dl_type == Some(0x86dd) {
        (members.tos, members.proto) = (None, None);
    }
    let mut m = members.to_match();
    if matches!(members.dl_type, Some(0x8847 | 0x8848)) {
        if has(w11::MPLS_LABEL) {
            m.set(F::MplsLabel, (label & 0xf_ffff).into(), 0xf_ffff);
        }
        if has(w11::MPLS_TC) {
            m.set(F::MplsTc, (tc & 7).into(), 7);
        }
    }
    m.set(F::Metadata, (metadata & mask).into(), mask.into());
    Ok(m)
}

/// Writes an OpenFlow 1.1 match.
pub(super) fn encode11(out: &mut Writer, matching: &Match) {
    let m = Members::of(matching, &[0x0800]);
    let (label, tc) = (matching.exact(F::MplsLabel), matching.exact(F::MplsTc));
    let mut w = w11::ALL;
    let mut say = |bit: u32, said: bool| w &= if said { !bit } else { !0 };
    say(w11::IN_PORT, m.in_port.is_some());
    say(w11::DL_VLAN, m.vlan.is_some());
    say(w11::DL_VLAN_PCP, m.pcp.is_some());
    say(w11::DL_TYPE, m.dl_type.is_some());
    say(w11::NW_TOS, m.tos.is_some());
    say(w11::NW_PROTO, m.proto.is_some());
    say(w11::TP_SRC, m.tp_src.is_some());
    say(w11::TP_DST, m.tp_dst.is_some());
    say(w11::MPLS_LABEL, label.is_some());
    say(w11::MPLS_TC, tc.is_some());
    out.u16(0);
    out.u16(LEN11);
    out.u32(m.in_port.map_or(0, |p| p.0));
    out.u32(w);
    for (value, mask) in [m.dl_src, m.dl_dst] {
        out.low(value, 6);
        out.low(!mask, 6);
    }
    out.u16(m.vlan.unwrap_or(0));
    out.u8(m.pcp.unwrap_or(0));
    out.zeros(1);
    out.u16(m.dl_type.unwrap_or(0));
    out.u8(m.tos.unwrap_or(0));
    out.u8(m.proto.unwrap_or(0));
    for (value, mask) in [m.nw_src, m.nw_dst] {
        out.low(value, 4);
        out.low(!mask, 4);
    }
    out.u16(m.tp_src.unwrap_or(0));
    out.u16(m.tp_dst.unwrap_or(0));
    out.u32(label.unwrap_or(0) as u32);
    out.u8(tc.unwrap_or(0) as u8);
    out.zeros(3);
    let (metadata, mask) = matching.get(F::Metadata).unwrap_or((0, 0));
    out.u64(metadata as u64);
    out.u64(!(mask as u64));
}

fn mac(data: &mut Reader<'_>) -> Result<u128, OfError> {
    let bytes: [u8; 6] = data.array()?;
    Ok(bytes.iter().fold(0, |n, b| n << 8 | u128::from(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random matches of OpenFlow 1.0, and how Debian's ovs-vswitchd 3.1 reports the rules.
    const REPORTED: &str = include_str!("../../tests/fixtures/match10.txt");

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    #[test]
    fn matches_of_openflow_1_0_are_reported_as_open_vswitch_reports_them() {
        for line in REPORTED.lines() {
            let (sent, reported) = line.split_once('\t').expect("two matches");
            let sent = bytes(sent);
            let matching = decode10(&mut Reader::new(&sent, OfError::BrcBadLen)).expect("a match");
            let mut out = Writer::new();
            encode10(&mut out, &matching);
            assert_eq!(out.0, bytes(reported), "{matching:?}");
        }
    }
}
