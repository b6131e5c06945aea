//! Reading the `learn` action.

use super::action_args::{arrow, subfield, writable};
use super::action_in::{Reader, error};
use super::{ParseError, field, number, parse_table, token};
use crate::model::{Learn, LearnDst, LearnSpec, LearnSrc, Subfield, Value};
use flow::MatchField as F;

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
                let part = writable(subfield(value)?)?;
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
            key => learn.specs.push(condition(reader, key, pair.given.then_some(value))?),
        }
    }
    Ok(learn)
}

fn load(text: &str) -> Result<LearnSpec, ParseError> {
    let (src, dst) = arrow(text, text)?;
    let dst = writable(subfield(dst)?)?;
    let src = match number::wide(src) {
        Some(value) => immediate(text, value, dst)?,
        None => LearnSrc::Field(same_width(text, subfield(src)?, dst)?),
    };
    Ok(LearnSpec {
        src,
        dst: LearnDst::Load(dst),
    })
}

fn immediate(text: &str, value: u128, dst: Subfield) -> Result<LearnSrc, ParseError> {
    let n_bits = dst.n_bits();
    match n_bits < 128 && value >> n_bits != 0 {
        true => error(format!("{text}: value does not fit into {n_bits} bits")),
        false => Ok(LearnSrc::Immediate { value, n_bits }),
    }
}

fn same_width(text: &str, src: Subfield, dst: Subfield) -> Result<Subfield, ParseError> {
    match src.n_bits() == dst.n_bits() {
        true => Ok(src),
        false => error(format!(
            "{text}: bit widths of {} ({}) and {} ({}) differ",
            src.field(),
            src.n_bits(),
            dst.field(),
            dst.n_bits()
        )),
    }
}

/// `FIELD`, `FIELD[..]`, `FIELD=value`, `FIELD[..]=FIELD[..]`.
fn condition(reader: &Reader<'_>, key: &str, value: Option<&str>) -> Result<LearnSpec, ParseError> {
    let shown = match value {
        Some(value) => format!("{key}={value}"),
        None => key.to_string(),
    };
    let named = F::from_name(key.split('[').next().unwrap_or(key));
    if named.is_none() {
        return error(format!("{shown}: unknown keyword {key}"));
    }
    let dst = subfield(key)?;
    let Some(value) = value else {
        return Ok(LearnSpec {
            src: LearnSrc::Field(dst),
            dst: LearnDst::Match(dst),
        });
    };
    let src = if let Ok(src) = subfield(value) {
        LearnSrc::Field(same_width(&shown, src, dst)?)
    } else if let (false, Some(number)) = (dst.is_whole(), number::wide(value)) {
        immediate(&shown, number, dst)?
    } else {
        match field::parse(dst.field(), value, reader.names)? {
            Some((Value::Word(value), None)) => LearnSrc::Immediate {
                value: value & dst.field().info().valid,
                n_bits: dst.n_bits(),
            },
            _ => return error(format!("{shown}: value must be exact")),
        }
    };
    Ok(LearnSpec {
        src,
        dst: LearnDst::Match(dst),
    })
}
