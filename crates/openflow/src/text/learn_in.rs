//! Reading the `learn` action.

use super::action_args::{arrow, as_wide, fits, subfield, writable};
use super::action_in::{Reader, error};
use super::{ParseError, field, number, parse_table, token};
use crate::model::{Learn, LearnDst, LearnSpec, LearnSrc, Subfield, Value};

pub(super) fn parse(reader: &Reader<'_>, text: &str) -> Result<Learn, ParseError> {
    let mut learn = Learn::default();
    let mut rest = text;
    while let Some(pair) = token::next(&mut rest) {
        let value = pair.value;
        match pair.key {
            "table" => {
                learn.table = parse_table(value, reader.names)?;
                if learn.table == 255 {
                    return error(format!("{text}: table id 255 not valid for `learn' action"));
                }
            }
            "priority" => learn.priority = number::named(value, "priority")?,
            "idle_timeout" => learn.idle_timeout = number::named(value, "idle_timeout")?,
            "hard_timeout" => learn.hard_timeout = number::named(value, "hard_timeout")?,
            "fin_idle_timeout" => learn.fin_idle_timeout = number::named(value, "fin_idle_timeout")?,
            "fin_hard_timeout" => learn.fin_hard_timeout = number::named(value, "fin_hard_timeout")?,
            "cookie" => learn.cookie = number::u64(value)?,
            "send_flow_rem" => learn.send_flow_rem = true,
            "delete_learned" => learn.delete_learned = true,
            "limit" => learn.limit = number::u32(value)?,
            "result_dst" => {
                let part = subfield(value)?;
                if !part.field().writable() {
                    return error(format!("{value} is read-only"));
                }
                if part.n_bits() != 1 {
                    return error("result_dst in 'learn' action must be a single bit");
                }
                learn.result = Some(part);
            }
            "load" => learn.specs.push(load(value)?),
            "output" => learn.specs.push(LearnSpec {
                src: LearnSrc::Field(subfield(value)?),
                dst: LearnDst::Output,
            }),
            key => {
                let value = pair.given.then_some(value);
                learn.specs.push(condition(reader, text, key, value)?);
            }
        }
    }
    Ok(learn)
}

fn load(text: &str) -> Result<LearnSpec, ParseError> {
    let Some((src, dst)) = arrow(text) else {
        return error(format!("load: missing `->' in `{text}'"));
    };
    let dst = writable(subfield(dst)?)?;
    let src = match number::wide(src) {
        Some(value) if fits(value, dst.n_bits().into()) => LearnSrc::Immediate {
            value,
            n_bits: dst.n_bits(),
        },
        Some(_) => return error(format!("{text}: value does not fit into {} bits", dst.n_bits())),
        None => {
            let src = subfield(src)?;
            as_wide(text, src, dst)?;
            LearnSrc::Field(src)
        }
    };
    Ok(LearnSpec {
        src,
        dst: LearnDst::Load(dst),
    })
}

/// `FIELD`, `FIELD[..]`, `FIELD=value`, `FIELD[..]=FIELD[..]`; `whole` is the text of the action.
fn condition(reader: &Reader<'_>, whole: &str, key: &str, value: Option<&str>) -> Result<LearnSpec, ParseError> {
    let Ok(dst) = subfield(key) else {
        return error(format!("{whole}: unknown keyword {key}"));
    };
    let spec = |src| LearnSpec {
        src,
        dst: LearnDst::Match(dst),
    };
    let Some(value) = value else {
        return Ok(spec(LearnSrc::Field(dst)));
    };
    let part = match subfield(value) {
        Ok(src) if src.n_bits() == dst.n_bits() => return Ok(spec(LearnSrc::Field(src))),
        Ok(src) => {
            return error(format!(
                "{whole}: bit widths of {key} ({}) and {value} ({}) differ",
                src.n_bits(),
                dst.n_bits()
            ));
        }
        Err(part) => part,
    };
    match immediate(reader, whole, value, dst) {
        Ok(src) => Ok(spec(src)),
        Err(e) => error(format!(
            "{whole}: {key} value {value} cannot be parsed as a subfield ({part}) or an immediate value ({e})"
        )),
    }
}

/// A value of the field, or a number for a part of it.
fn immediate(reader: &Reader<'_>, whole: &str, text: &str, dst: Subfield) -> Result<LearnSrc, ParseError> {
    let (field, n_bits) = (dst.field(), dst.n_bits());
    if !dst.is_whole() {
        return match number::wide(text) {
            Some(value) if fits(value, n_bits.into()) => Ok(LearnSrc::Immediate { value, n_bits }),
            Some(value) => error(format!("{whole}: value {value:#x} does not fit into {n_bits} bits")),
            None => error(format!("{whole}: cannot parse integer value")),
        };
    }
    match field::parse(field, text, reader.names)? {
        Some((Value::Word(value), None)) => Ok(LearnSrc::Immediate {
            value: value & field.info().valid,
            n_bits,
        }),
        _ => error(format!("{text}: wildcards not allowed here")),
    }
}
