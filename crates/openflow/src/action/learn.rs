//! The `learn` action in messages.

use super::nicira::destination;
use super::put;
use crate::buf::{Reader, Writer};
use crate::model::{Action, Learn, LearnDst, LearnSpec, LearnSrc, Subfield};
use crate::{OfError, Version, oxm};
use flow::MatchField;

const SEND_FLOW_REM: u16 = 1;
const DELETE_LEARNED: u16 = 2;
const WRITE_RESULT: u16 = 4;

/// Bits of a specification's header.
const N_BITS: u16 = 0x3ff;
const IMMEDIATE: u16 = 1 << 13;
const DST_SHIFT: u16 = 11;

/// Reads the action, in its second form if `limited`.
pub(super) fn decode(limited: bool, mut body: Reader<'_>) -> Result<Action, OfError> {
    let mut learn = Learn {
        idle_timeout: body.u16()?,
        hard_timeout: body.u16()?,
        priority: body.u16()?,
        cookie: body.u64()?,
        ..Learn::default()
    };
    let flags = body.u16()?;
    learn.table = body.u8()?;
    body.zeros(1, OfError::BacBadArgument)?;
    learn.fin_idle_timeout = body.u16()?;
    learn.fin_hard_timeout = body.u16()?;
    let known = SEND_FLOW_REM | DELETE_LEARNED | if limited { WRITE_RESULT } else { 0 };
    if flags & !known != 0 || learn.table == 255 {
        return Err(OfError::BacBadArgument);
    }
    learn.send_flow_rem = flags & SEND_FLOW_REM != 0;
    learn.delete_learned = flags & DELETE_LEARNED != 0;
    if limited {
        learn.limit = body.u32()?;
        let ofs = body.u16()?;
        body.zeros(2, OfError::BacBadArgument)?;
        if flags & WRITE_RESULT != 0 {
            let field = oxm::decode_name(&mut body)?;
            learn.result = Some(destination(ofs << 6, field)?);
        }
    }
    while !body.is_empty() {
        let header = match body.len() {
            1 => 0,
            _ => body.peek()[0..2].iter().fold(0, |n, b| n << 8 | u16::from(*b)),
        };
        if header == 0 {
            break;
        }
        body.skip(2)?;
        learn.specs.push(spec(header, &mut body)?);
    }
    body.zeros(body.len(), OfError::BacBadArgument)?;
    Ok(Action::Learn(Box::new(learn)))
}

fn spec(header: u16, body: &mut Reader<'_>) -> Result<LearnSpec, OfError> {
    let n_bits = header & N_BITS;
    let dst_kind = header >> DST_SHIFT & 3;
    if header & !(N_BITS | IMMEDIATE | 3 << DST_SHIFT) != 0 || n_bits == 0 || dst_kind == 3 {
        return Err(OfError::BacBadArgument);
    }
    let src = match header & IMMEDIATE != 0 {
        true => {
            let bytes = body.take(usize::from(n_bits).div_ceil(16) * 2)?;
            let (high, low) = bytes.split_at(bytes.len().saturating_sub(16));
            let value = low.iter().fold(0, |n, b| n << 8 | u128::from(*b));
            let fits = n_bits >= 128 || value >> n_bits == 0;
            if high.iter().any(|b| *b != 0) || !fits {
                return Err(OfError::BacBadArgument);
            }
            LearnSrc::Immediate { value, n_bits }
        }
        false => LearnSrc::Field(part(body, n_bits)?),
    };
    let dst = match dst_kind {
        0 => LearnDst::Match(part(body, n_bits)?),
        1 => {
            let part = part(body, n_bits)?;
            if !part.field().writable() {
                return Err(OfError::BacBadArgument);
            }
            LearnDst::Load(part)
        }
        _ => LearnDst::Output,
    };
    Ok(LearnSpec { src, dst })
}

fn part(body: &mut Reader<'_>, n_bits: u16) -> Result<Subfield, OfError> {
    let field = oxm::decode_name(body)?;
    let ofs = body.u16()?;
    Subfield::new(field, ofs, n_bits).ok_or(OfError::BacBadArgument)
}

/// Writes the action, in its first form where that can say all.
pub(super) fn encode(out: &mut Writer, learn: &Learn) {
    let limited = learn.limit != 0 || learn.result.is_some();
    let flag = |set: bool, bit: u16| if set { bit } else { 0 };
    put(out, super::EXPERIMENTER, |out| {
        out.u32(super::NICIRA);
        out.u16(if limited { 45 } else { 16 });
        out.u16(learn.idle_timeout);
        out.u16(learn.hard_timeout);
        out.u16(learn.priority);
        out.u64(learn.cookie);
        out.u16(
            flag(learn.send_flow_rem, SEND_FLOW_REM)
                | flag(learn.delete_learned, DELETE_LEARNED)
                | flag(learn.result.is_some(), WRITE_RESULT),
        );
        out.u8(learn.table);
        out.u8(0);
        out.u16(learn.fin_idle_timeout);
        out.u16(learn.fin_hard_timeout);
        if limited {
            out.u32(learn.limit);
            out.u16(learn.result.map_or(0, |r| r.ofs()));
            out.u16(0);
            if let Some(result) = learn.result {
                name(out, result.field());
            }
        }
        for spec in &learn.specs {
            encode_spec(out, spec);
        }
    });
}

fn encode_spec(out: &mut Writer, spec: &LearnSpec) {
    let n_bits = spec.n_bits();
    let dst = match spec.dst {
        LearnDst::Match(_) => 0,
        LearnDst::Load(_) => 1,
        LearnDst::Output => 2,
    };
    let immediate = matches!(spec.src, LearnSrc::Immediate { .. });
    out.u16(n_bits | dst << DST_SHIFT | if immediate { IMMEDIATE } else { 0 });
    match &spec.src {
        LearnSrc::Field(field) => encode_part(out, field),
        LearnSrc::Immediate { value, .. } => {
            let bytes = usize::from(n_bits).div_ceil(16) * 2;
            out.zeros(bytes.saturating_sub(16));
            out.low(*value, bytes.min(16));
        }
    }
    match &spec.dst {
        LearnDst::Match(field) | LearnDst::Load(field) => encode_part(out, field),
        LearnDst::Output => {}
    }
}

fn encode_part(out: &mut Writer, part: &Subfield) {
    name(out, part.field());
    out.u16(part.ofs());
}

fn name(out: &mut Writer, field: MatchField) {
    oxm::encode_name(out, field, Version::V10);
}
