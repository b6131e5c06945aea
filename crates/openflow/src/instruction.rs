//! Instructions in messages (OpenFlow 1.3.1 §7.2.4).

use crate::action::{self, Encoder};
use crate::buf::{Reader, Writer};
use crate::model::{Action, Instructions, Match, Port};
use crate::{OfError, Version};

const GOTO: u16 = 1;
const METADATA: u16 = 2;
const WRITE: u16 = 3;
const APPLY: u16 = 4;
const CLEAR: u16 = 5;
const METER: u16 = 6;
const EXPERIMENTER: u16 = 0xffff;

/// Reads what a rule does: in OpenFlow 1.0 a list of actions, later a list of instructions.
pub fn decode(version: Version, data: &[u8]) -> Result<Instructions, OfError> {
    let instructions = decode_any(version, data)?;
    match instructions.beside_conjunction() {
        None => Ok(instructions),
        Some(_) => Err(OfError::NxBacBadConjunction),
    }
}

fn decode_any(version: Version, data: &[u8]) -> Result<Instructions, OfError> {
    if version == Version::V10 {
        return decode_as_actions(version, data);
    }
    let mut data = Reader::new(data, OfError::BicBadLen);
    let mut result = Instructions::default();
    let mut seen = 0u8;
    while !data.is_empty() {
        let (kind, len) = (data.u16()?, usize::from(data.u16()?));
        if len < 8 || len % 8 != 0 {
            return Err(OfError::BicBadLen);
        }
        let mut body = data.sub(len - 4, OfError::BicBadLen)?;
        if kind <= METER {
            if seen & 1 << kind != 0 {
                return Err(OfError::BicDupInst);
            }
            seen |= 1 << kind;
        }
        match kind {
            GOTO => {
                let table = body.u8()?;
                body.skip(3)?;
                if table == 255 {
                    return Err(OfError::BicBadTableId);
                }
                result.goto = Some(table);
            }
            METADATA => {
                body.skip(4)?;
                result.metadata = Some((body.u64()?, body.u64()?));
            }
            WRITE | APPLY => {
                body.skip(4)?;
                let actions = action::decode(version, body.rest())?;
                *(if kind == WRITE {
                    &mut result.write
                } else {
                    &mut result.apply
                }) = actions;
            }
            CLEAR => {
                body.skip(4)?;
                result.clear = true;
            }
            METER if matches!(version, Version::V13 | Version::V14) => result.meter = Some(body.u32()?),
            EXPERIMENTER => return Err(OfError::BicBadExperimenter),
            _ => return Err(OfError::BicUnknownInst),
        }
        body.end()?;
    }
    Ok(result)
}

/// Reads what a rule does where it is a list of actions, as in OpenFlow 1.0 and in Nicira's
/// monitors: metadata is written by an action; where that is the last one, it is as good as the
/// instruction.
pub(crate) fn decode_as_actions(version: Version, data: &[u8]) -> Result<Instructions, OfError> {
    let mut apply = action::decode(version, data)?;
    let mut metadata = None;
    if let Some(Action::WriteMetadata { value, mask }) = apply.last() {
        metadata = Some((*value, *mask));
        apply.pop();
    }
    Ok(Instructions {
        apply,
        metadata,
        ..Instructions::default()
    })
}

/// Writes what a rule of this match does. OpenFlow 1.0 goes to a table by looking it up, and has no
/// action set and no meters.
pub(crate) fn encode(out: &mut Writer, version: Version, instructions: &Instructions, matching: &Match) {
    if version == Version::V10 {
        encode_as_actions(out, version, instructions, matching);
        return;
    }
    let mut encoder = Encoder::new(version, matching);
    let metered = version >= Version::V15;
    let meter = instructions.meter.map(Action::Meter).into_iter();
    let first: Vec<_> = if metered { meter.collect() } else { Vec::new() };
    if let Some(meter) = instructions
        .meter
        .filter(|_| matches!(version, Version::V13 | Version::V14))
    {
        put(out, METER, |out| out.u32(meter));
    }
    if !instructions.apply.is_empty() || !first.is_empty() {
        put(out, APPLY, |out| {
            out.zeros(4);
            encoder.encode(out, &first);
            encoder.encode(out, &instructions.apply);
        });
    }
    if instructions.clear {
        put(out, CLEAR, |out| out.zeros(4));
    }
    if !instructions.write.is_empty() {
        put(out, WRITE, |out| {
            out.zeros(4);
            Encoder::new(version, matching).encode(out, &instructions.write);
        });
    }
    if let Some((value, mask)) = instructions.metadata {
        put(out, METADATA, |out| {
            out.zeros(4);
            out.u64(value);
            out.u64(mask);
        });
    }
    if let Some(table) = instructions.goto {
        put(out, GOTO, |out| {
            out.u8(table);
            out.zeros(3);
        });
    }
}

/// Writes what a rule does as a list of actions.
pub(crate) fn encode_as_actions(out: &mut Writer, version: Version, instructions: &Instructions, matching: &Match) {
    let mut encoder = Encoder::new(version, matching);
    encoder.encode(out, &instructions.apply);
    if let Some((value, mask)) = instructions.metadata {
        encoder.encode(out, &[Action::WriteMetadata { value, mask }]);
    }
    if let Some(table) = instructions.goto {
        let goto = Action::Resubmit {
            in_port: Port::IN_PORT,
            table,
            ct: false,
        };
        encoder.encode(out, &[goto]);
    }
}

fn put(out: &mut Writer, kind: u16, body: impl FnOnce(&mut Writer)) {
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    body(out);
    out.patch_len(start + 2, start);
}
