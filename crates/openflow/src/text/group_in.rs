//! Reading groups.

use super::action_in::{Reader, Usable};
use super::token::Pair;
use super::{Names, ParseError, Protocols, field, number, token};
use crate::model::*;
use flow::{Maskable, MatchField as F};

fn error<T>(message: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError::new(message))
}

/// The highest number of a group, and of a bucket.
const MAX: u32 = 0xffff_ff00;

/// Start of a bucket.
const BUCKET: &str = "bucket=";

/// Parses a group-mod: the group's number, type, selection method, the bucket that the command
/// refers to, and the group's buckets.
///
/// Buckets without a number get the lowest free ones. Also returns the flow formats that can carry
/// it.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_group_mod(command: GroupCommand, text: &str, names: &Names) -> Result<(GroupMod, Protocols), ParseError> {
    let usable = Usable::default();
    let reader = Reader::new(names, &usable);
    use GroupCommand as C;
    let makes = matches!(command, C::Add | C::Modify | C::AddOrMod);
    let picks = matches!(command, C::InsertBucket | C::RemoveBucket);
    let (head, buckets) = match text.find(BUCKET) {
        Some(_) if !makes && command != C::InsertBucket => return error("bucket is not needed"),
        Some(at) => (&text[..at], Some(&text[at + BUCKET.len()..])),
        None => (text, None),
    };
    let mut m = GroupMod {
        command,
        kind: GroupType::All,
        group: ALL_GROUPS,
        bucket_id: bucket_ids::ALL,
        buckets: Vec::new(),
        selection: None,
    };
    let (mut number_said, mut type_said, mut bucket_said, mut param_said) = (false, false, false, false);
    let mut selection = Selection::default();
    let mut rest = head;
    while let Some(pair) = token::next(&mut rest) {
        let value = pair.value;
        match pair.key {
            "command_bucket_id" if !picks => return error("command bucket id is not needed"),
            "command_bucket_id" => {
                m.bucket_id = command_bucket(command, value)?;
                bucket_said = true;
            }
            "group_id" => {
                m.group = group_number(value)?;
                number_said = true;
            }
            "type" if !makes => return error("type is not needed"),
            "type" => {
                m.kind = group_type(value)?;
                type_said = true;
            }
            "selection_method" if !makes => return error("selection method is not needed"),
            "selection_method" if value.len() > 15 => return error("selection method is longer than 15 bytes long"),
            "selection_method" if value.contains(['(', ')', '[', ']', '"']) => {
                return error(format!("invalid selection method {value}"));
            }
            "selection_method" => selection.method = value.into(),
            "selection_method_param" if !makes => return error("selection method param is not needed"),
            "selection_method_param" => {
                selection.param = number::u64(value)?;
                param_said = true;
            }
            "fields" if !makes => return error("fields are not needed"),
            "fields" => fields(&mut selection, value, names)?,
            key => return error(format!("unknown keyword {key}")),
        }
    }
    if !number_said {
        return error("must specify a group_id");
    }
    if makes && !type_said {
        return error("must specify a type");
    }
    if command == C::InsertBucket && !bucket_said {
        return error("must specify a command bucket id");
    }
    if selection.method.is_empty() && (param_said && selection.param != 0) {
        return error("selection_method_param is only allowed with \"selection_method\"");
    }
    if !selection.fields.is_empty() && selection.method != "hash" {
        return error("fields may only be specified with \"selection_method=hash\"");
    }
    m.selection = (!selection.method.is_empty()).then_some(selection);
    let mut numbers = Vec::new();
    for text in buckets.into_iter().flat_map(|b| b.split(BUCKET)) {
        let (id, bucket) = bucket(m.kind, text, &reader)?;
        if bucket.weight != 0 && m.kind != GroupType::Select && makes {
            return error("Only select groups can have bucket weights.");
        }
        numbers.push(id);
        m.buckets.push(bucket);
    }
    let mut next = 0;
    for (bucket, id) in m.buckets.iter_mut().zip(&numbers) {
        bucket.id = match id {
            Some(id) => *id,
            None => {
                while numbers.contains(&Some(next)) {
                    next += 1;
                }
                next += 1;
                next - 1
            }
        };
    }
    Ok((m, usable.get()))
}

/// Parses a group's number, or `all`.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub(super) fn group_number(text: &str) -> Result<u32, ParseError> {
    if text == "all" {
        return Ok(ALL_GROUPS);
    }
    match number::u32(text)? {
        number if number <= MAX || number == ALL_GROUPS => Ok(number),
        number => error(format!("invalid group id {number}")),
    }
}

fn command_bucket(command: GroupCommand, text: &str) -> Result<u32, ParseError> {
    match text {
        "all" if command == GroupCommand::InsertBucket => error("command_bucket_id=all is not permitted"),
        "all" => Ok(bucket_ids::ALL),
        "first" => Ok(bucket_ids::FIRST),
        "last" => Ok(bucket_ids::LAST),
        _ => match number::u32(text)? {
            id if id <= bucket_ids::MAX => Ok(id),
            id => error(format!("invalid command bucket id {id}")),
        },
    }
}

fn group_type(text: &str) -> Result<GroupType, ParseError> {
    let name = if text == "fast_failover" { "ff" } else { text };
    match GroupType::ALL.into_iter().find(|(_, n)| *n == name) {
        Some((kind, _)) => Ok(kind),
        None => error(format!("invalid group type {text}")),
    }
}

/// `field`, or `field=bits`, for each field that a selection looks at.
fn fields(selection: &mut Selection, text: &str, names: &Names) -> Result<(), ParseError> {
    let mut rest = text;
    while let Some(Pair { key, value, .. }) = token::next(&mut rest) {
        let behind = rest.strip_prefix(',').unwrap_or(rest);
        let Some(of) = F::from_name(key) else {
            return error(format!("{behind}: unknown field {key}"));
        };
        if selection.fields.iter().any(|(f, _)| *f == of) {
            return error(format!("{key}: duplicate field"));
        }
        let bits = match value {
            "" => Value::all_ones(of),
            text => match field::parse(of, text, names)? {
                Some((bits, None)) if bits.low() == 0 => {
                    return error(format!("{behind}: values are wildcards here and must not be all-zeros"));
                }
                Some((bits, None)) => bits,
                _ => return error(format!("{text}: wildcards not allowed here")),
            },
        };
        if of.info().maskable == Maskable::Exact && bits != Value::all_ones(of) {
            return error(format!("{value}: invalid mask for field {of}"));
        }
        selection.fields.push((of, bits));
    }
    selection.sort();
    Ok(())
}

/// A bucket, and the number that it is given.
fn bucket(kind: GroupType, text: &str, reader: &Reader<'_>) -> Result<(Option<u32>, Bucket), ParseError> {
    let mut bucket = Bucket {
        id: 0,
        weight: u16::from(kind == GroupType::Select),
        watch_port: Port::ANY,
        watch_group: ANY_GROUP,
        actions: Vec::new(),
    };
    let (mut id, mut actions) = (None, String::new());
    let mut rest = text;
    while let Some(pair) = token::next(&mut rest) {
        let value = pair.value;
        match pair.key {
            "weight" => bucket.weight = number::named(value, "weight")?,
            "watch_port" => {
                let port = reader.port(value).filter(|p| *p == Port::ANY || p.0 < 0xff00);
                let Some(port) = port else {
                    return error(format!("{value}: invalid watch_port"));
                };
                bucket.watch_port = port;
            }
            "watch_group" => match number::u32(value)? {
                group if group <= MAX => bucket.watch_group = group,
                group => return error(format!("invalid watch_group id {group}")),
            },
            "bucket_id" => match number::u32(value)? {
                number if number <= bucket_ids::MAX => id = Some(number),
                number => return error(format!("invalid bucket_id id {number}")),
            },
            // A key that no bucket has starts an action.
            "action" | "actions" => {
                actions += value;
                actions.push(',');
            }
            key => {
                actions += key;
                if pair.given {
                    actions.extend(["(", value, ")", pair.tail]);
                }
                actions.push(',');
            }
        }
    }
    if actions.is_empty() {
        return error("bucket must specify actions");
    }
    bucket.actions = reader.actions(&actions)?;
    match kind {
        GroupType::FastFailover if bucket.watch_port == Port::ANY && bucket.watch_group == ANY_GROUP => {
            error("fast failover bucket requires watch_port or watch_group")
        }
        _ => Ok((id, bucket)),
    }
}
