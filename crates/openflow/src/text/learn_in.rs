//! Reading the `learn` action.

use super::action_args::{arrow, fits, subfield, writable};
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
    let (src, right) = arrow(text, "source")?;
    let dst = writable(subfield(right)?)?;
    let src = match number::wide(src) {
        Some(value) => immediate(text, value, dst)?,
        None => {
            let from = subfield(src)?;
            LearnSrc::Field(same_width(text, (src, from), (right, dst))?)
        }
    };
    Ok(LearnSpec {
        src,
        dst: LearnDst::Load(dst),
    })
}

fn immediate(text: &str, value: u128, dst: Subfield) -> Result<LearnSrc, ParseError> {
    let n_bits = dst.n_bits();
    match fits(value, n_bits.into()) {
        true => Ok(LearnSrc::Immediate { value, n_bits }),
        false => error(format!("{text}: value {value:#x} does not fit into {n_bits} bits")),
    }
}

/// The source, if it is as wide as what it is for; each with its name.
fn same_width(text: &str, src: (&str, Subfield), dst: (&str, Subfield)) -> Result<Subfield, ParseError> {
    match (src.1.n_bits(), dst.1.n_bits()) {
        (from, to) if from == to => Ok(src.1),
        (from, to) => error(format!(
            "{text}: bit widths of {} ({from}) and {} ({to}) differ",
            dst.0, src.0
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
    let src = match subfield(value) {
        Ok(src) => LearnSrc::Field(same_width(&shown, (value, src), (key, dst))?),
        Err(part) if !dst.is_whole() => {
            let number = match number::wide(value) {
                Some(number) => immediate(&shown, number, dst),
                None => error(format!("{shown}: cannot parse integer value")),
            };
            number.or_else(|e| {
                error(format!(
                    "{shown}: {key} value {value} cannot be parsed as a subfield ({part}) or an immediate value ({e})"
                ))
            })?
        }
        Err(_) =>
        match field::parse(dst.field(), value, reader.names)? {
            Some((Value::Word(value), None)) => LearnSrc::Immediate {
                value: value & dst.field().info().valid,
                n_bits: dst.n_bits(),
            },
            _ => return error(format!("{shown}: value must be exact")),
        },
    };
    Ok(LearnSpec {
        src,
        dst: LearnDst::Match(dst),
    })
}
