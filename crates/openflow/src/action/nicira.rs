//! Reading Nicira's actions.

use super::standard::{checked_move, checked_set};
use super::{DEBUG_RECIRC, DEBUG_SLOW, Scope, TEST_ACTIONS, ct, decode_list, learn, port10};
use crate::buf::Reader;
use crate::model::{
    Action, Bundle, BundleAlgorithm, Controller, EncapProperty, HashFields, Multipath, MultipathAlgorithm, Port,
    Sample, SampleDirection, Subfield,
};
use crate::{OfError, oxm};
use flow::MatchField;
use std::sync::atomic::Ordering;

/// The bytes of an action up to behind its subtype.
const HEADER: usize = 10;

/// The length of an action that has but one.
fn fixed_len(subtype: u16) -> Option<usize> {
    match subtype {
        1 | 2 | 4 | 5 | 14 | 17..=20 | 23..=26 | 30 | 31 | 34 | 39 | 40 | 43 | 44 | 47 | 48 => Some(16),
        7 | 9 | 15 | 29 => Some(24),
        10 | 22 => Some(32),
        _ => None,
    }
}

/// Reads an action of a subtype, from behind the subtype.
pub(super) fn decode(scope: Scope, subtype: u16, mut body: Reader<'_>) -> Result<Action, OfError> {
    if fixed_len(subtype).is_some_and(|len| body.len() + HEADER != len) {
        return Err(OfError::BacBadLen);
    }
    let action = match subtype {
        1 => {
            let in_port = port10(body.u16()?);
            body.skip(4)?;
            resubmit(in_port, 255, false)
        }
        2 => {
            body.skip(2)?;
            Action::SetTunnel {
                id: body.u32()?.into(),
                wide: false,
            }
        }
        4 => {
            body.skip(2)?;
            Action::SetQueue(body.u32()?)
        }
        5 => empty(&mut body, Action::PopQueue)?,
        6 => return reg_move(body),
        7 => return reg_load(body),
        8 => Action::Note(body.rest().to_vec()),
        9 => {
            body.skip(6)?;
            Action::SetTunnel {
                id: body.u64()?,
                wide: true,
            }
        }
        10 => multipath(&mut body)?,
        12 | 13 => return bundle(subtype == 13, body),
        14 | 44 => {
            let in_port = port10(body.u16()?);
            let table = body.u8()?;
            body.zeros(3, OfError::BacBadArgument)?;
            resubmit(in_port, table, subtype == 44)
        }
        15 => output_reg(&mut body)?,
        16 | 45 => return learn::decode(subtype == 45, body),
        17 => empty(&mut body, Action::Exit)?,
        18 => empty(&mut body, Action::DecTtl(vec![0]))?,
        19 => {
            let (idle, hard) = (body.u16()?, body.u16()?);
            body.skip(2)?;
            Action::FinTimeout { idle, hard }
        }
        20 => controller(&mut body)?,
        21 => return dec_ttl_ids(body),
        22 => {
            body.zeros(6, OfError::NxBrcMustBeZero)?;
            let (value, mask) = (body.u64()?, body.u64()?);
            Action::WriteMetadata { value, mask }
        }
        23 => match padded(&mut body, 4)? {
            ethertype @ (0x8847 | 0x8848) => Action::PushMpls(ethertype),
            _ => return Err(OfError::BacBadArgument),
        },
        24 => Action::PopMpls(padded(&mut body, 4)?),
        25 => Action::SetMplsTtl(padded_u8(&mut body)?),
        26 => empty(&mut body, Action::DecMplsTtl)?,
        27 | 28 => return stack(subtype == 27, body),
        29 => sample(subtype, &mut body)?,
        30 => {
            body.skip(2)?;
            match body.u32()? {
                label @ 0..=0xf_ffff => Action::SetMplsLabel(label),
                _ => return Err(OfError::BacBadArgument),
            }
        }
        31 => match padded_u8(&mut body)? {
            tc @ 0..=7 => Action::SetMplsTc(tc),
            _ => return Err(OfError::BacBadArgument),
        },
        32 => return output_reg2(body),
        33 => {
            let (field, value, mask) = oxm::decode_set(&mut body)?;
            body.zeros(body.len(), OfError::BacBadSetArgument)?;
            return checked_set(field, value, mask);
        }
        34 => {
            let (clause, n_clauses, id) = (body.u8()?, body.u8()?, body.u32()?);
            if !(2..=64).contains(&n_clauses) || clause >= n_clauses {
                return Err(OfError::NxBacBadConjunction);
            }
            Action::Conjunction { id, clause, n_clauses }
        }
        35 => return ct::decode(scope, body),
        36 if scope.in_ct => return ct::decode_nat(body),
        36 => return Err(OfError::BacBadSetArgument),
        37 => return controller2(body),
        38 | 41 => sample(subtype, &mut body)?,
        39 => {
            const ETHERNET_HEADER: u32 = 14;
            let (port, max_len) = (port10(body.u16()?), body.u32()?);
            if max_len < ETHERNET_HEADER {
                return Err(OfError::BacBadArgument);
            }
            Action::OutputTrunc { port, max_len }
        }
        40 => {
            body.skip(2)?;
            Action::Group(body.u32()?)
        }
        42 => {
            body.skip(6)?;
            let actions = decode_list(scope.deeper(false)?, body.rest())?;
            Action::Clone(actions)
        }
        43 => empty(&mut body, Action::CtClear)?,
        46 => return encap(body),
        47 => {
            body.skip(2)?;
            Action::Decap(body.u32()?)
        }
        48 => empty(&mut body, Action::DecNshTtl)?,
        49 => return check_pkt_larger(body),
        50 => return delete_field(body),
        DEBUG_RECIRC if TEST_ACTIONS.load(Ordering::Relaxed) => empty(&mut body, Action::DebugRecirc)?,
        DEBUG_SLOW if TEST_ACTIONS.load(Ordering::Relaxed) => empty(&mut body, Action::DebugSlow)?,
        _ => return Err(OfError::BacBadVendorType),
    };
    body.end()?;
    Ok(action)
}

fn empty(body: &mut Reader<'_>, action: Action) -> Result<Action, OfError> {
    body.skip(6)?;
    Ok(action)
}

fn padded(body: &mut Reader<'_>, pad: usize) -> Result<u16, OfError> {
    let value = body.u16()?;
    body.skip(pad)?;
    Ok(value)
}

fn padded_u8(body: &mut Reader<'_>) -> Result<u8, OfError> {
    let value = body.u8()?;
    body.skip(5)?;
    Ok(value)
}

fn resubmit(in_port: Port, table: u8, ct: bool) -> Action {
    Action::Resubmit { in_port, table, ct }
}

/// Bits that an action writes.
pub(super) fn destination(ofs_nbits: u16, field: MatchField) -> Result<Subfield, OfError> {
    match field.writable() {
        true => oxm::decode_subfield(ofs_nbits, field),
        false => Err(OfError::BacBadArgument),
    }
}

fn reg_move(mut body: Reader<'_>) -> Result<Action, OfError> {
    let (n_bits, src_ofs, dst_ofs) = (body.u16()?, body.u16()?, body.u16()?);
    let src = oxm::decode_name(&mut body)?;
    let dst = oxm::decode_name(&mut body)?;
    body.zeros(body.len(), OfError::NxBrcMustBeZero)?;
    checked_move(src, src_ofs, dst, dst_ofs, n_bits)
}

fn reg_load(mut body: Reader<'_>) -> Result<Action, OfError> {
    let ofs_nbits = body.u16()?;
    let field = oxm::decode_name(&mut body)?;
    let dst = destination(ofs_nbits, field)?;
    let value = body.u64()?;
    body.end()?;
    if dst.n_bits() < 64 && value >> dst.n_bits() != 0 {
        return Err(OfError::BacBadArgument);
    }
    Ok(Action::Load { dst, value })
}

fn hash_fields(number: u16) -> Result<HashFields, OfError> {
    let found = HashFields::ALL.into_iter().find(|(f, _)| *f as u16 == number);
    found.map(|(f, _)| f).ok_or(OfError::BacBadArgument)
}

fn multipath(body: &mut Reader<'_>) -> Result<Action, OfError> {
    let fields = hash_fields(body.u16()?)?;
    let basis = body.u16()?;
    body.skip(2)?;
    let number = body.u16()?;
    let algorithm = MultipathAlgorithm::ALL.into_iter().find(|(a, _)| *a as u16 == number);
    let (algorithm, _) = algorithm.ok_or(OfError::BacBadArgument)?;
    let (max_link, arg) = (body.u16()?, body.u32()?);
    body.skip(2)?;
    let ofs_nbits = body.u16()?;
    let dst = destination(ofs_nbits, oxm::decode_name(body)?)?;
    // Every link's number must fit.
    if dst.n_bits() < 16 && max_link >> dst.n_bits() != 0 {
        return Err(OfError::BacBadArgument);
    }
    Ok(Action::Multipath(Multipath {
        fields,
        basis,
        algorithm,
        max_link,
        arg,
        dst,
    }))
}

fn bundle(load: bool, mut body: Reader<'_>) -> Result<Action, OfError> {
    /// The header of `NXM_OF_IN_PORT`: members are ports.
    const PORTS: u32 = 0x0000_0002;
    let algorithm = match body.u16()? {
        0 => BundleAlgorithm::ActiveBackup,
        1 => BundleAlgorithm::Hrw,
        _ => return Err(OfError::BacBadArgument),
    };
    let fields = hash_fields(body.u16()?)?;
    let basis = body.u16()?;
    if body.u32()? != PORTS {
        return Err(OfError::BacBadArgument);
    }
    let (n, ofs_nbits) = (usize::from(body.u16()?), body.u16()?);
    let dst = match load {
        true => Some(destination(ofs_nbits, oxm::decode_name(&mut body)?)?),
        false => {
            let unused = body.u32()?;
            if unused != 0 || ofs_nbits != 0 {
                return Err(OfError::BacBadArgument);
            }
            None
        }
    };
    body.zeros(4, OfError::BacBadArgument)?;
    if dst.is_some_and(|dst| dst.n_bits() < 16) {
        return Err(OfError::BacBadArgument);
    }
    let mut ports = body.sub(n * 2, OfError::BacBadLen)?;
    let members = (0..n).map(|_| ports.u16().map(port10)).collect::<Result<_, _>>()?;
    body.zeros(body.len(), OfError::BacBadArgument)?;
    Ok(Action::Bundle(Bundle {
        algorithm,
        fields,
        basis,
        members,
        dst,
    }))
}

fn output_reg(body: &mut Reader<'_>) -> Result<Action, OfError> {
    let ofs_nbits = body.u16()?;
    let src = oxm::decode_subfield(ofs_nbits, oxm::decode_name(body)?)?;
    let max_len = body.u16()?;
    body.zeros(6, OfError::BacBadArgument)?;
    Ok(Action::OutputReg { src, max_len })
}

fn output_reg2(mut body: Reader<'_>) -> Result<Action, OfError> {
    let (ofs_nbits, max_len) = (body.u16()?, body.u16()?);
    let src = oxm::decode_subfield(ofs_nbits, oxm::decode_name(&mut body)?)?;
    body.zeros(body.len(), OfError::NxBrcMustBeZero)?;
    Ok(Action::OutputReg { src, max_len })
}

fn controller(body: &mut Reader<'_>) -> Result<Action, OfError> {
    let (max_len, id, reason) = (body.u16()?, body.u16()?, body.u8()?);
    body.skip(1)?;
    Ok(Action::Controller(Controller {
        max_len,
        id,
        reason,
        ..Controller::default()
    }))
}

fn controller2(mut body: Reader<'_>) -> Result<Action, OfError> {
    body.zeros(6, OfError::NxBrcMustBeZero)?;
    let mut controller = Controller::default();
    while !body.is_empty() {
        let (kind, mut property) = property(&mut body)?;
        match kind {
            0 => controller.max_len = property.u16()?,
            1 => controller.id = property.u16()?,
            2 => controller.reason = property.u8()?,
            3 => controller.userdata = property.rest().to_vec(),
            4 => controller.pause = true,
            5 => controller.meter = Some(property.u32()?),
            _ => return Err(OfError::BpcBadType),
        }
    }
    Ok(Action::Controller(controller))
}

/// The next property: its type, and the data behind its header. Properties are padded to 8 bytes.
pub(super) fn property<'a>(body: &mut Reader<'a>) -> Result<(u16, Reader<'a>), OfError> {
    let Some([a, b, c, d]) = body.peek().first_chunk() else {
        return Err(OfError::BpcBadLen);
    };
    let kind = u16::from_be_bytes([*a, *b]);
    let len = usize::from(u16::from_be_bytes([*c, *d]));
    let padded = len.next_multiple_of(8);
    if len < 4 || padded > body.len() {
        return Err(OfError::BpcBadLen);
    }
    let whole = body.take(padded)?;
    Ok((kind, Reader::new(&whole[4..len], OfError::BpcBadLen)))
}

fn dec_ttl_ids(mut body: Reader<'_>) -> Result<Action, OfError> {
    let n = usize::from(body.u16()?);
    body.zeros(4, OfError::NxBrcMustBeZero)?;
    let mut ids = body.sub(n * 2, OfError::BacBadLen)?;
    let ids = (0..n).map(|_| ids.u16()).collect::<Result<_, _>>()?;
    Ok(Action::DecTtl(ids))
}

fn stack(push: bool, mut body: Reader<'_>) -> Result<Action, OfError> {
    let ofs = body.u16()?;
    let field = oxm::decode_name(&mut body)?;
    let n_bits = body.u16()?;
    body.zeros(body.len(), OfError::BacBadArgument)?;
    let part = Subfield::new(field, ofs, n_bits).ok_or(OfError::BacBadArgument)?;
    match (push, field.writable()) {
        (true, _) => Ok(Action::Push(part)),
        (false, true) => Ok(Action::Pop(part)),
        (false, false) => Err(OfError::BacBadArgument),
    }
}

fn sample(subtype: u16, body: &mut Reader<'_>) -> Result<Action, OfError> {
    let probability = body.u16()?;
    let (collector_set_id, obs_domain_id, obs_point_id) = (body.u32()?, body.u32()?, body.u32()?);
    let mut sampling_port = Port::ANY;
    let mut direction = SampleDirection::Default;
    if subtype != 29 {
        sampling_port = port10(body.u16()?);
        direction = match (subtype, body.u8()?) {
            (38, _) | (41, 0) => SampleDirection::Default,
            (_, 1) => SampleDirection::Ingress,
            (_, 2) => SampleDirection::Egress,
            _ => return Err(OfError::NxBrcMustBeZero),
        };
        body.zeros(5, OfError::NxBrcMustBeZero)?;
    }
    match probability {
        0 => Err(OfError::BacBadArgument),
        _ => Ok(Action::Sample(Sample {
            probability,
            collector_set_id,
            obs_domain_id,
            obs_point_id,
            sampling_port,
            direction,
        })),
    }
}

fn encap(mut body: Reader<'_>) -> Result<Action, OfError> {
    let hdr_size = body.u16()?;
    let packet_type = body.u32()?;
    let mut properties = Vec::new();
    while !body.is_empty() {
        properties.push(encap_property(&mut body)?);
    }
    Ok(Action::Encap {
        packet_type,
        hdr_size,
        properties,
    })
}

/// A property of a header: class, type, length with this header, padded to 8 bytes.
fn encap_property(body: &mut Reader<'_>) -> Result<EncapProperty, OfError> {
    const CLASS_NSH: u16 = 4;
    let Some([a, b, kind, len]) = body.peek().first_chunk() else {
        return Err(OfError::NxBacBadEdProp);
    };
    let (class, kind, len) = (u16::from_be_bytes([*a, *b]), *kind, usize::from(*len));
    let padded = len.next_multiple_of(8);
    if len < 5 || padded > body.len() {
        return Err(OfError::NxBacBadEdProp);
    }
    let mut data = Reader::new(&body.take(padded)?[4..len], OfError::NxBacBadEdProp);
    match (class, kind) {
        (CLASS_NSH, 1) => Ok(EncapProperty::NshMdType(data.u8()?)),
        (CLASS_NSH, 2) => {
            let (class, kind, len) = (data.u16()?, data.u8()?, usize::from(data.u8()?));
            Ok(EncapProperty::NshTlv {
                class,
                kind,
                data: data.take(len)?.to_vec(),
            })
        }
        (CLASS_NSH, _) => Err(OfError::NxBacUnknownEdProp),
        _ => Err(OfError::NxBacUnknownEdProp),
    }
}

fn check_pkt_larger(mut body: Reader<'_>) -> Result<Action, OfError> {
    let (pkt_len, ofs) = (body.u16()?, body.u16()?);
    let field = oxm::decode_name(&mut body)?;
    body.zeros(body.len(), OfError::NxBrcMustBeZero)?;
    let dst = Subfield::new(field, ofs, 1).filter(|dst| dst.field().writable());
    let dst = dst.ok_or(OfError::BacBadSetArgument)?;
    Ok(Action::CheckPktLarger { pkt_len, dst })
}

fn delete_field(mut body: Reader<'_>) -> Result<Action, OfError> {
    let field = oxm::decode_name(&mut body)?;
    body.zeros(body.len(), OfError::NxBrcMustBeZero)?;
    match field.info().home {
        flow::Home::Elsewhere => Ok(Action::DeleteField(field)),
        _ => Err(OfError::BacBadArgument),
    }
}
