//! Reading the specification's actions.

use super::{port10, port11};
use crate::buf::Reader;
use crate::model::{Action, Port, Subfield, Value};
use crate::{OfError, Version, oxm};
use flow::MatchField;
use std::net::Ipv4Addr;
use wire::{EtherType, MacAddr};

/// OpenFlow 1.0 (§5.2.4).
pub(super) fn decode10(kind: u16, mut body: Reader<'_>) -> Result<Action, OfError> {
    let action = match kind {
        0 => Action::Output {
            port: output(port10(body.u16()?))?,
            max_len: body.u16()?,
        },
        1 => vlan_vid(&mut body)?,
        2 => vlan_pcp(&mut body)?,
        3 => {
            body.skip(4)?;
            Action::StripVlan
        }
        4 => Action::SetEthSrc(mac(&mut body)?),
        5 => Action::SetEthDst(mac(&mut body)?),
        6 => Action::SetIpv4Src(ipv4(&mut body)?),
        7 => Action::SetIpv4Dst(ipv4(&mut body)?),
        8 => tos(&mut body)?,
        9 => Action::SetTpSrc(padded_u16(&mut body)?),
        10 => Action::SetTpDst(padded_u16(&mut body)?),
        11 => {
            let port = port10(body.u16()?);
            body.skip(6)?;
            Action::Enqueue {
                port,
                queue: body.u32()?,
            }
        }
        _ => return Err(OfError::BacBadType),
    };
    body.end()?;
    Ok(action)
}

/// OpenFlow 1.1 and later (1.1 §A.2.5, 1.3.1 §7.2.5, 1.5 §7.2.6). The actions that 1.1 alone has
/// are no types of later versions.
pub(super) fn decode11(version: Version, kind: u16, mut body: Reader<'_>) -> Result<Action, OfError> {
    let action = match kind {
        0 => {
            let port = output(port11(body.u32()?, OfError::BacBadOutPort)?)?;
            let max_len = body.u16()?;
            body.skip(6)?;
            Action::Output { port, max_len }
        }
        1..=10 | 13 | 14 if version == Version::V11 => only11(kind, &mut body)?,
        11 => empty(&mut body, Action::CopyTtlOut)?,
        12 => empty(&mut body, Action::CopyTtlIn)?,
        15 => Action::SetMplsTtl(padded_u8(&mut body)?),
        16 => empty(&mut body, Action::DecMplsTtl)?,
        17 => match padded_u16(&mut body)? {
            tpid if EtherType(tpid).is_vlan() => Action::PushVlan(tpid),
            _ => return Err(OfError::BacBadArgument),
        },
        18 => empty(&mut body, Action::PopVlan)?,
        19 => match padded_u16(&mut body)? {
            ethertype @ (0x8847 | 0x8848) => Action::PushMpls(ethertype),
            _ => return Err(OfError::BacBadArgument),
        },
        20 => Action::PopMpls(padded_u16(&mut body)?),
        21 => Action::SetQueue(body.u32()?),
        22 => Action::Group(body.u32()?),
        23 => Action::SetTtl(padded_u8(&mut body)?),
        24 => empty(&mut body, Action::DecTtl(vec![0]))?,
        25 if version >= Version::V12 => return set_field(version, body),
        26 if version >= Version::V13 => match padded_u16(&mut body)? {
            0x88e7 => Action::PushPbb(0x88e7),
            _ => return Err(OfError::BacBadArgument),
        },
        27 if version >= Version::V13 => empty(&mut body, Action::PopPbb)?,
        28 if version >= Version::V15 => return copy_field(body),
        29 if version >= Version::V15 => Action::Meter(body.u32()?),
        _ => return Err(OfError::BacBadType),
    };
    body.end()?;
    Ok(action)
}

/// A port for output: one that may exist, or a reserved one for output.
fn output(port: Port) -> Result<Port, OfError> {
    match port {
        Port::IN_PORT | Port::TABLE | Port::NORMAL | Port::FLOOD | Port::ALL | Port::CONTROLLER | Port::LOCAL => {
            Ok(port)
        }
        Port(0..0xff00) => Ok(port),
        _ => Err(OfError::BacBadOutPort),
    }
}

fn only11(kind: u16, body: &mut Reader<'_>) -> Result<Action, OfError> {
    Ok(match kind {
        1 => vlan_vid(body)?,
        2 => vlan_pcp(body)?,
        3 => Action::SetEthSrc(mac(body)?),
        4 => Action::SetEthDst(mac(body)?),
        5 => Action::SetIpv4Src(ipv4(body)?),
        6 => Action::SetIpv4Dst(ipv4(body)?),
        7 => tos(body)?,
        8 => match padded_u8(body)? {
            ecn @ 0..=3 => Action::SetEcn(ecn),
            _ => return Err(OfError::BacBadArgument),
        },
        9 => Action::SetTpSrc(padded_u16(body)?),
        10 => Action::SetTpDst(padded_u16(body)?),
        13 => match body.u32()? {
            label @ 0..=0xf_ffff => Action::SetMplsLabel(label),
            _ => return Err(OfError::BacBadArgument),
        },
        _ => match padded_u8(body)? {
            tc @ 0..=7 => Action::SetMplsTc(tc),
            _ => return Err(OfError::BacBadArgument),
        },
    })
}

fn empty(body: &mut Reader<'_>, action: Action) -> Result<Action, OfError> {
    body.skip(4)?;
    Ok(action)
}

fn padded_u8(body: &mut Reader<'_>) -> Result<u8, OfError> {
    let value = body.u8()?;
    body.skip(3)?;
    Ok(value)
}

fn padded_u16(body: &mut Reader<'_>) -> Result<u16, OfError> {
    let value = body.u16()?;
    body.skip(2)?;
    Ok(value)
}

fn mac(body: &mut Reader<'_>) -> Result<MacAddr, OfError> {
    let mac = MacAddr(body.array()?);
    body.skip(6)?;
    Ok(mac)
}

fn ipv4(body: &mut Reader<'_>) -> Result<Ipv4Addr, OfError> {
    body.u32().map(Ipv4Addr::from)
}

fn vlan_vid(body: &mut Reader<'_>) -> Result<Action, OfError> {
    match padded_u16(body)? {
        vid @ 0..=0xfff => Ok(Action::SetVlanVid(vid)),
        _ => Err(OfError::BacBadArgument),
    }
}

fn vlan_pcp(body: &mut Reader<'_>) -> Result<Action, OfError> {
    match padded_u8(body)? {
        pcp @ 0..=7 => Ok(Action::SetVlanPcp(pcp)),
        _ => Err(OfError::BacBadArgument),
    }
}

fn tos(body: &mut Reader<'_>) -> Result<Action, OfError> {
    match padded_u8(body)? {
        tos if tos & 3 == 0 => Ok(Action::SetTos(tos)),
        _ => Err(OfError::BacBadArgument),
    }
}

/// The action that sets a field (OpenFlow 1.2 and later); masks are OpenFlow 1.5's.
fn set_field(version: Version, mut body: Reader<'_>) -> Result<Action, OfError> {
    let (field, value, mask) = oxm::decode_set(&mut body)?;
    if mask.is_some() && version < Version::V15 {
        return Err(OfError::BacBadSetMask);
    }
    body.zeros(body.len(), OfError::BacBadSetArgument)?;
    checked_set(field, value, mask)
}

/// A set-field action, if the field may be set to this.
pub(super) fn checked_set(field: MatchField, value: Value, mask: Option<Value>) -> Result<Action, OfError> {
    if !field.writable() {
        return Err(OfError::BacBadSetArgument);
    }
    let valid = field.info().valid;
    if let Value::Word(word) = &value {
        let mut word = *word;
        // A tag that is set is there, whether or not its bit says so.
        if matches!(field, MatchField::DlVlan) {
            word &= 0xfff;
        }
        if word & !valid != 0 {
            return Err(OfError::BacBadSetArgument);
        }
    }
    match mask {
        Some(Value::Word(mask)) if mask & !valid != 0 => Err(OfError::BacBadSetMask),
        mask => Ok(Action::SetField { field, value, mask }),
    }
}

/// The action that copies a field (OpenFlow 1.5 §7.2.6.9).
fn copy_field(mut body: Reader<'_>) -> Result<Action, OfError> {
    let (n_bits, src_ofs, dst_ofs) = (body.u16()?, body.u16()?, body.u16()?);
    body.skip(2)?;
    let src = oxm::decode_name(&mut body)?;
    let dst = oxm::decode_name(&mut body)?;
    body.zeros(body.len(), OfError::NxBrcMustBeZero)?;
    checked_move(src, src_ofs, dst, dst_ofs, n_bits)
}

/// A move action, if the fields have the bits and the second may be set.
pub(super) fn checked_move(
    src: MatchField,
    src_ofs: u16,
    dst: MatchField,
    dst_ofs: u16,
    n_bits: u16,
) -> Result<Action, OfError> {
    let part = |field, ofs| Subfield::new(field, ofs, n_bits).ok_or(OfError::BacBadArgument);
    let (src, dst) = (part(src, src_ofs)?, part(dst, dst_ofs)?);
    match dst.field().writable() {
        true => Ok(Action::Move { src, dst }),
        false => Err(OfError::BacBadArgument),
    }
}
