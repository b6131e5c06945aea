//! Writing actions in the specification's words.

use super::{Encoder, put, to10};
use crate::buf::Writer;
use crate::model::{Action, MAX_LEN_WHOLE, Subfield, Value};
use crate::{Version, oxm};
use flow::MatchField;
use std::net::Ipv4Addr;
use wire::{EtherType, MacAddr};

/// Writes an action in OpenFlow 1.0's words, if it has any for it.
pub(super) fn encode10(out: &mut Writer, action: &Action) -> bool {
    match action {
        Action::Output { port, max_len } => put(out, 0, |out| {
            out.u16(to10(*port));
            out.u16(*max_len);
        }),
        Action::SetVlanVid(vid) => put(out, 1, |out| out.u16(*vid)),
        Action::SetVlanPcp(pcp) => put(out, 2, |out| out.u8(*pcp)),
        Action::PopVlan | Action::StripVlan => put(out, 3, |out| out.zeros(4)),
        Action::SetEthSrc(mac) => put(out, 4, |out| out.bytes(&mac.0)),
        Action::SetEthDst(mac) => put(out, 5, |out| out.bytes(&mac.0)),
        Action::SetIpv4Src(ip) => put(out, 6, |out| out.bytes(&ip.octets())),
        Action::SetIpv4Dst(ip) => put(out, 7, |out| out.bytes(&ip.octets())),
        Action::SetTos(tos) => put(out, 8, |out| out.u8(*tos)),
        Action::SetTpSrc(port) => put(out, 9, |out| out.u16(*port)),
        Action::SetTpDst(port) => put(out, 10, |out| out.u16(*port)),
        Action::Enqueue { port, queue } => put(out, 11, |out| {
            out.u16(to10(*port));
            out.zeros(6);
            out.u32(*queue);
        }),
        Action::SetField {
            field,
            value,
            mask: None,
        } => {
            return older(*field, value, Version::V10).is_some_and(|a| encode10(out, &a));
        }
        _ => return false,
    }
    true
}

/// The action of an older version that sets a field.
fn older(field: MatchField, value: &Value, version: Version) -> Option<Action> {
    use MatchField as F;
    let Value::Word(word) = value else { return None };
    let mac = || MacAddr::from_u64(*word as u64);
    let ip = || Ipv4Addr::from(*word as u32);
    Some(match field {
        F::EthSrc => Action::SetEthSrc(mac()),
        F::EthDst => Action::SetEthDst(mac()),
        F::DlVlan | F::VlanVid => Action::SetVlanVid(*word as u16 & 0xfff),
        F::DlVlanPcp | F::VlanPcp => Action::SetVlanPcp(*word as u8),
        F::IpSrc => Action::SetIpv4Src(ip()),
        F::IpDst => Action::SetIpv4Dst(ip()),
        F::NwTos => Action::SetTos(*word as u8),
        F::IpDscp => Action::SetTos((*word as u8) << 2),
        F::TcpSrc | F::UdpSrc | F::SctpSrc => Action::SetTpSrc(*word as u16),
        F::TcpDst | F::UdpDst | F::SctpDst => Action::SetTpDst(*word as u16),
        F::NwEcn if version == Version::V11 => Action::SetEcn(*word as u8),
        F::NwTtl if version == Version::V11 => Action::SetTtl(*word as u8),
        F::MplsLabel if version == Version::V11 => Action::SetMplsLabel(*word as u32),
        F::MplsTc if version == Version::V11 => Action::SetMplsTc(*word as u8),
        _ => return None,
    })
}

/// Writes an action in the words of OpenFlow 1.1 or later, if the version has any for it.
pub(super) fn encode11(encoder: &mut Encoder, out: &mut Writer, action: &Action) -> bool {
    let version = encoder.version;
    match action {
        Action::Output { port, max_len } => put(out, 0, |out| {
            out.u32(port.0);
            out.u16(*max_len);
            out.zeros(6);
        }),
        Action::CopyTtlOut => put(out, 11, |out| out.zeros(4)),
        Action::CopyTtlIn => put(out, 12, |out| out.zeros(4)),
        Action::SetMplsTtl(ttl) => put(out, 15, |out| out.u8(*ttl)),
        Action::DecMplsTtl => put(out, 16, |out| out.zeros(4)),
        Action::PushVlan(tpid) => put(out, 17, |out| out.u16(*tpid)),
        Action::PopVlan | Action::StripVlan => put(out, 18, |out| out.zeros(4)),
        Action::PushMpls(ethertype) => put(out, 19, |out| out.u16(*ethertype)),
        Action::PopMpls(ethertype) => put(out, 20, |out| out.u16(*ethertype)),
        Action::SetQueue(queue) => put(out, 21, |out| out.u32(*queue)),
        Action::Group(group) => put(out, 22, |out| out.u32(*group)),
        Action::SetTtl(ttl) => put(out, 23, |out| out.u8(*ttl)),
        Action::DecTtl(ids) if ids[..] == [0] => put(out, 24, |out| out.zeros(4)),
        Action::PushPbb(ethertype) if version >= Version::V13 => put(out, 26, |out| out.u16(*ethertype)),
        Action::PopPbb if version >= Version::V13 => put(out, 27, |out| out.zeros(4)),
        Action::Meter(meter) if version >= Version::V15 => put(out, 29, |out| out.u32(*meter)),
        Action::Enqueue { port, queue } => {
            // The queue is set, used, and set back.
            let output = Action::Output {
                port: *port,
                max_len: MAX_LEN_WHOLE,
            };
            encoder.encode(out, &[Action::SetQueue(*queue), output, Action::PopQueue]);
        }
        Action::Move { src, dst } if version >= Version::V15 => put(out, 28, |out| {
            out.u16(src.n_bits());
            out.u16(src.ofs());
            out.u16(dst.ofs());
            out.zeros(2);
            oxm::encode_name(out, src.field(), version);
            oxm::encode_name(out, dst.field(), version);
        }),
        Action::Load { dst, value } if version >= Version::V15 => {
            let (value, mask) = placed(dst, *value);
            put_set(out, dst.field(), &Value::Word(value), mask.as_ref(), version);
        }
        Action::SetField { field, value, mask } => {
            if version == Version::V11 {
                let plain = mask.is_none();
                let older = plain.then(|| older(*field, value, version)).flatten();
                return older.is_some_and(|a| encode11(encoder, out, &a));
            }
            if mask.is_some() && version < Version::V15 {
                return false;
            }
            put_set(out, *field, value, mask.as_ref(), version);
        }
        _ if version == Version::V11 => return encode_only11(encoder, out, action),
        _ => return encode_as_set(encoder, out, action),
    }
    true
}

/// A loaded value at its position in the field, and the mask of its bits if it does not fill the
/// field.
fn placed(dst: &Subfield, value: u64) -> (u128, Option<Value>) {
    let bits = u128::MAX >> (128 - u32::from(dst.n_bits()).min(128));
    let mask = (!dst.is_whole()).then_some(Value::Word(bits << dst.ofs()));
    (u128::from(value) << dst.ofs(), mask)
}

fn put_set(out: &mut Writer, field: MatchField, value: &Value, mask: Option<&Value>, version: Version) {
    put(out, 25, |out| oxm::encode_set(out, field, version, value, mask));
}

/// Pushes a tag if there is none, for actions that change one.
fn need_tag(encoder: &Encoder, out: &mut Writer) {
    if !encoder.tagged {
        put(out, 17, |out| out.u16(EtherType::VLAN.0));
    }
}

/// The actions that OpenFlow 1.1 alone has.
fn encode_only11(encoder: &mut Encoder, out: &mut Writer, action: &Action) -> bool {
    match action {
        Action::SetVlanVid(vid) => {
            need_tag(encoder, out);
            put(out, 1, |out| out.u16(*vid));
        }
        Action::SetVlanPcp(pcp) => {
            need_tag(encoder, out);
            put(out, 2, |out| out.u8(*pcp));
        }
        Action::SetEthSrc(mac) => put(out, 3, |out| out.bytes(&mac.0)),
        Action::SetEthDst(mac) => put(out, 4, |out| out.bytes(&mac.0)),
        Action::SetIpv4Src(ip) => put(out, 5, |out| out.bytes(&ip.octets())),
        Action::SetIpv4Dst(ip) => put(out, 6, |out| out.bytes(&ip.octets())),
        Action::SetTos(tos) => put(out, 7, |out| out.u8(*tos)),
        Action::SetEcn(ecn) => put(out, 8, |out| out.u8(*ecn)),
        Action::SetTpSrc(port) => put(out, 9, |out| out.u16(*port)),
        Action::SetTpDst(port) => put(out, 10, |out| out.u16(*port)),
        Action::SetMplsLabel(label) => put(out, 13, |out| out.u32(*label)),
        Action::SetMplsTc(tc) => put(out, 14, |out| out.u8(*tc)),
        _ => return false,
    }
    true
}

/// The older actions in the words of OpenFlow 1.2 and later, which set fields.
fn encode_as_set(encoder: &mut Encoder, out: &mut Writer, action: &Action) -> bool {
    use MatchField as F;
    let transport = |tcp, udp, sctp| match encoder.protocol {
        Some(17) => udp,
        Some(132) => sctp,
        _ => tcp,
    };
    let word = |mac: &MacAddr| mac.0.iter().fold(0, |n, b| n << 8 | u128::from(*b));
    let ip = |ip: &Ipv4Addr| u128::from(u32::from(*ip));
    let (field, value) = match action {
        Action::SetVlanVid(vid) => (F::VlanVid, u128::from(*vid) | 0x1000),
        Action::SetVlanPcp(pcp) => (F::VlanPcp, (*pcp).into()),
        Action::SetEthSrc(mac) => (F::EthSrc, word(mac)),
        Action::SetEthDst(mac) => (F::EthDst, word(mac)),
        Action::SetIpv4Src(addr) => (F::IpSrc, ip(addr)),
        Action::SetIpv4Dst(addr) => (F::IpDst, ip(addr)),
        Action::SetTos(tos) => (F::IpDscp, (*tos >> 2).into()),
        Action::SetEcn(ecn) => (F::NwEcn, (*ecn).into()),
        Action::SetTpSrc(port) => (transport(F::TcpSrc, F::UdpSrc, F::SctpSrc), (*port).into()),
        Action::SetTpDst(port) => (transport(F::TcpDst, F::UdpDst, F::SctpDst), (*port).into()),
        Action::SetMplsLabel(label) => (F::MplsLabel, (*label).into()),
        Action::SetMplsTc(tc) => (F::MplsTc, (*tc).into()),
        Action::SetTunnel { id, .. } => (F::TunId, (*id).into()),
        _ => return false,
    };
    if matches!(action, Action::SetVlanVid(_) | Action::SetVlanPcp(_)) {
        need_tag(encoder, out);
    }
    put_set(out, field, &Value::Word(value), None, encoder.version);
    true
}
