//! Messages that a switch refuses and that are printed nevertheless: with reserved bytes that are
//! not zero, values out of range, bits or properties without meaning.

use super::name::Name;
use crate::model::{Body, BundleAdd, BundleControl, Message};
use crate::{Codec, HEADER_LEN, OfError, Version};
use std::ops::Range;

/// Decodes a message that decoding refuses with `error`, without regard to what it is refused for.
///
/// # Errors
/// `error`, if the message is not printed either.
pub(super) fn decode(codec: Codec, name: &Name, data: &[u8], error: OfError) -> Result<Message, OfError> {
    match name.text() {
        "OFPT_REQUESTFORWARD" | "ONFT_REQUESTFORWARD" => forwarded(codec, &data[name.body..]),
        _ => lenient(codec, name, data, error).ok_or(error),
    }
}

/// A forwarded request: a change of a group or meter, and bytes behind it.
fn forwarded(codec: Codec, data: &[u8]) -> Result<Message, OfError> {
    let len = number(data, 2..4).ok_or(OfError::BfcMsgBadLen)? as usize;
    let request = data.get(..len).filter(|_| len >= HEADER_LEN);
    let request = request.ok_or(OfError::BfcMsgBadLen)?;
    if request[0] != codec.version.number() {
        return Err(OfError::BrcBadVersion);
    }
    let name = Name::of(request)?;
    if !matches!(name.text(), "OFPT_GROUP_MOD" | "OFPT_METER_MOD") {
        return Err(OfError::BfcMsgUnsup);
    }
    let request = codec
        .decode(request)
        .or_else(|error| decode(codec, &name, request, error))?;
    let body = Body::RequestForward(Box::new(request));
    Ok(Message { xid: 0, body })
}

fn lenient(codec: Codec, name: &Name, data: &[u8], error: OfError) -> Option<Message> {
    let body = name.body;
    let read = |data: &[u8]| codec.decode(data).ok();
    match (name.text(), error) {
        ("NXT_SET_CONTROLLER_ID" | "NXT_CT_FLUSH_ZONE", OfError::NxBrcMustBeZero) => {
            read(&zeroed(data, body..body + 6)?)
        }
        ("NXT_FLOW_MOD_TABLE_ID", OfError::NxBrcMustBeZero) => read(&zeroed(data, body + 1..body + 8)?),
        ("OFPT_PORT_MOD", OfError::PmfcBadConfig) => {
            let (at, known) = match codec.version {
                Version::V10 => (16, 0x7f),
                _ => (24, 0x65),
            };
            let mut data = data.to_vec();
            for word in data.get_mut(at..at + 8)?.chunks_mut(4) {
                word[..3].fill(0);
                word[3] &= known;
            }
            read(&data)
        }
        ("OFPT_BUNDLE_CONTROL" | "ONFT_BUNDLE_CONTROL", _) => {
            let body = Body::BundleControl(BundleControl {
                bundle: number(data, body..body + 4)?,
                kind: number(data, body + 4..body + 6)? as u16,
                flags: number(data, body + 6..body + 8)? as u16,
            });
            Some(message(data, body))
        }
        ("OFPT_BUNDLE_ADD_MESSAGE" | "ONFT_BUNDLE_ADD_MESSAGE", _) if of_bundle(error) => {
            let inner = data.get(body + 8..)?;
            let len = number(inner, 2..4)? as usize;
            let body = Body::BundleAdd(BundleAdd {
                bundle: number(data, body..body + 4)?,
                flags: number(data, body + 6..body + 8)? as u16,
                message: inner.get(..len)?.to_vec(),
            });
            Some(message(data, body))
        }
        ("OFPT_ROLE_STATUS" | "ONFT_ROLE_STATUS", _) => {
            let data = shortened(data, body + 16)?;
            let mut message = read(&zeroed(&data, body + 4..body + 5)?)?;
            if let Body::RoleStatus(status) = &mut message.body {
                status.reason = data[body + 4];
            }
            Some(message)
        }
        ("OFPT_PORT_MOD", OfError::BpcBadType | OfError::BpcBadExperimenter) => read(&shortened(data, 32)?),
        // Bytes behind the match.
        ("OFPST_FLOW request" | "OFPST_AGGREGATE request" | "OFPT_FLOW_REMOVED", OfError::BrcBadLen) => {
            let ends = (body..data.len()).rev().filter(|end| end.is_multiple_of(8));
            ends.filter_map(|end| shortened(data, end)).find_map(|data| read(&data))
        }
        ("OFPT_METER_MOD", OfError::MmfcBadFlags) => {
            let flags = number(data, 10..12)? as u16;
            // One rate in two units has no text.
            if flags & 3 == 3 {
                return None;
            }
            let mut possible = zeroed(data, 10..12)?;
            possible[11] = 1;
            let mut message = read(&possible)?;
            if let Body::MeterMod(m) = &mut message.body {
                m.config.flags = flags;
            }
            Some(message)
        }
        (_, OfError::GmfcInvalidGroup | OfError::MmfcInvalidMeter) => out_of_range(codec, data, error),
        _ => None,
    }
}

/// Whether a bundle's message is refused because of its flags or properties.
fn of_bundle(error: OfError) -> bool {
    matches!(
        error,
        OfError::BfcBadFlags
            | OfError::BfcSchedNotSupported
            | OfError::BpcBadLen
            | OfError::BpcBadType
            | OfError::BpcBadExperimenter
    )
}

/// A group-mod or meter-mod whose number is out of range.
fn out_of_range(codec: Codec, data: &[u8], error: OfError) -> Option<Message> {
    const NUMBER: Range<usize> = 12..16;
    let number = number(data, NUMBER)?;
    let mut possible = data.to_vec();
    possible[NUMBER].copy_from_slice(&1u32.to_be_bytes());
    let may = match error {
        OfError::GmfcInvalidGroup => number > 0xffff_ff00,
        OfError::MmfcInvalidMeter => number == u32::MAX,
        _ => false,
    };
    let mut message = codec.decode(&possible).ok().filter(|_| may)?;
    match &mut message.body {
        Body::GroupMod(m) => m.group = number,
        Body::MeterMod(m) => m.config.meter = number,
        _ => return None,
    }
    Some(message)
}

fn message(data: &[u8], body: Body) -> Message {
    let xid = number(data, 4..HEADER_LEN).unwrap_or(0);
    Message { xid, body }
}

/// The message with these bytes zero.
fn zeroed(data: &[u8], range: Range<usize>) -> Option<Vec<u8>> {
    let mut data = data.to_vec();
    data.get_mut(range)?.fill(0);
    Some(data)
}

/// The first `len` bytes as a message of that length.
fn shortened(data: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut data = data.get(..len)?.to_vec();
    data.get_mut(2..4)?
        .copy_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
    Some(data)
}

fn number(data: &[u8], range: Range<usize>) -> Option<u32> {
    let bytes = data.get(range)?;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}
