//! `column[:key]`, `column[:key]=value` and the operators of `find` and `wait-until`.

use std::cmp::Ordering;

use ovsdb::{Atom, BaseType, ColumnSchema, ColumnType, Datum, TableSchema, UNLIMITED, Uuid, split_token};

use super::Stop;
use super::context::Context;
use super::names;

/// How a column is compared with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    SetEqual,
    SetNotEqual,
    ProperSubset,
    ProperSuperset,
    Subset,
    Superset,
    In,
    NotIn,
}

const OPERATORS: &[(&str, Operator)] = &[
    ("=", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("{=}", Operator::SetEqual),
    ("{!=}", Operator::SetNotEqual),
    ("{<}", Operator::ProperSubset),
    ("{>}", Operator::ProperSuperset),
    ("{<=}", Operator::Subset),
    ("{>=}", Operator::Superset),
    ("{in}", Operator::In),
    ("{not-in}", Operator::NotIn),
];

/// The words before an operator: a column and perhaps a key.
struct Place<'a> {
    column: &'a str,
    key: Option<&'a str>,
    rest: &'a str,
}

fn place(arg: &str) -> Result<Place<'_>, Stop> {
    let (column, rest) = split_token(arg)?;
    if column.is_empty() {
        return Stop::fatal(format!("{arg}: missing column name"));
    }
    match rest.strip_prefix(':') {
        None => Ok(Place {
            column,
            key: None,
            rest,
        }),
        Some(rest) => {
            let (key, rest) = split_token(rest)?;
            Ok(Place {
                column,
                key: Some(key),
                rest,
            })
        }
    }
}

/// The column at the beginning of `arg`, whatever follows; `None` for `_uuid`.
pub(super) fn leading_column<'a>(table: &'a TableSchema, arg: &str) -> Result<Option<&'a ColumnSchema>, Stop> {
    if names::is_uuid_column(arg) {
        return Ok(None);
    }
    names::column(table, place(arg)?.column).map(Some)
}

/// `column[:key]`, as in `get`.
pub(super) struct Reading<'a> {
    /// `None` for `_uuid`, which can only be read.
    pub(super) column: Option<&'a ColumnSchema>,
    pub(super) key: Option<String>,
}

impl<'a> Reading<'a> {
    pub(super) fn parse(table: &'a TableSchema, arg: &str) -> Result<Reading<'a>, Stop> {
        let place = place(arg)?;
        let is_uuid = names::is_uuid_column(arg);
        let column = if is_uuid {
            None
        } else {
            Some(names::column(table, place.column)?)
        };
        if !place.rest.is_empty() {
            return Stop::fatal(format!("{arg}: trailing garbage \"{}\" in argument", place.rest));
        }
        Ok(Reading {
            column,
            key: place.key.map(str::to_owned),
        })
    }
}

/// `column[:key]=value`, as in `set`.
pub(super) struct Assignment<'a> {
    pub(super) column: &'a ColumnSchema,
    pub(super) key: Option<String>,
    pub(super) value: String,
}

impl<'a> Assignment<'a> {
    pub(super) fn parse(table: &'a TableSchema, arg: &str) -> Result<Assignment<'a>, Stop> {
        let (column, key, _, value) = parse_comparison(table, arg, &OPERATORS[..1])?;
        Ok(Assignment { column, key, value })
    }
}

/// `column[:key] operator value`, as in `find`.
pub(super) struct Condition<'a> {
    pub(super) column: &'a ColumnSchema,
    key: Option<String>,
    operator: Operator,
    value: String,
}

impl<'a> Condition<'a> {
    pub(super) fn parse(table: &'a TableSchema, arg: &str) -> Result<Condition<'a>, Stop> {
        let (column, key, operator, value) = parse_comparison(table, arg, OPERATORS)?;
        Ok(Condition {
            column,
            key,
            operator,
            value,
        })
    }

    /// Whether the row satisfies it.
    pub(super) fn holds(&self, context: &mut Context<'_>, table: &TableSchema, row: Uuid) -> Result<bool, Stop> {
        let have = context.get(table.name(), row, &self.column.name);
        let kind = &self.column.kind;
        let Some(key) = &self.key else {
            let wanted = context.parse_datum(&self.value, kind)?;
            return Ok(self.operator.compare(&have, &wanted));
        };
        let Some(value_type) = &kind.value else {
            return Stop::fatal(format!(
                "cannot specify key to check for non-map column {}",
                self.column.name
            ));
        };
        let key = context.parse_atom(key, &kind.key)?;
        let found = have.get(&key).cloned();
        let one_or_none = ColumnType {
            key: value_type.clone(),
            value: None,
            min: 0,
            max: UNLIMITED,
        };
        let wanted = if self.operator.is_of_sets() {
            context.parse_datum(&self.value, &one_or_none)?
        } else {
            Datum::one(context.parse_atom(&self.value, value_type)?)
        };
        match found {
            Some(value) => Ok(self.operator.compare(&Datum::one(value), &wanted)),
            None => Ok(self.operator.is_of_sets() && self.operator.compare(&Datum::EMPTY, &wanted)),
        }
    }
}

impl Operator {
    fn is_of_sets(self) -> bool {
        !matches!(
            self,
            Operator::Equal
                | Operator::NotEqual
                | Operator::Less
                | Operator::Greater
                | Operator::LessOrEqual
                | Operator::GreaterOrEqual
        )
    }

    fn compare(self, have: &Datum, wanted: &Datum) -> bool {
        let order = order(have, wanted);
        let subset = |a: &Datum, b: &Datum| {
            a.atoms().iter().all(|atom| b.contains(atom))
                && a.pairs().iter().all(|(key, value)| b.get(key) == Some(value))
        };
        match self {
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
            Operator::Less => order.is_lt(),
            Operator::Greater => order.is_gt(),
            Operator::LessOrEqual => order.is_le(),
            Operator::GreaterOrEqual => order.is_ge(),
            Operator::SetEqual => have == wanted,
            Operator::SetNotEqual => have != wanted,
            Operator::ProperSubset => have.len() < wanted.len() && subset(have, wanted),
            Operator::ProperSuperset => wanted.len() < have.len() && subset(wanted, have),
            Operator::Subset | Operator::In => subset(have, wanted),
            Operator::Superset => subset(wanted, have),
            Operator::NotIn => {
                !have.atoms().iter().any(|atom| wanted.contains(atom))
                    && !have.pairs().iter().any(|(key, value)| wanted.get(key) == Some(value))
            }
        }
    }
}

/// The order of values: by number of elements, then element by element, keys before values.
fn order(a: &Datum, b: &Datum) -> Ordering {
    a.len()
        .cmp(&b.len())
        .then_with(|| a.keys().cmp(b.keys()))
        .then_with(|| a.values().cmp(b.values()))
}

/// The type of an argument with one or more elements.
pub(super) fn some(kind: &ColumnType) -> ColumnType {
    ColumnType {
        min: 1,
        max: UNLIMITED,
        ..kind.clone()
    }
}

/// Column, key, operator and value.
type Comparison<'a> = (&'a ColumnSchema, Option<String>, Operator, String);

fn parse_comparison<'a>(
    table: &'a TableSchema,
    arg: &str,
    operators: &[(&str, Operator)],
) -> Result<Comparison<'a>, Stop> {
    let place = place(arg)?;
    let column = names::column(table, place.column)?;
    let known = operators.iter().filter(|(text, _)| place.rest.starts_with(text));
    let longest = known.max_by_key(|(text, _)| text.len());
    match longest.map(|(text, operator)| (&place.rest[text.len()..], *operator)) {
        Some((value, operator)) if !value.is_empty() => {
            Ok((column, place.key.map(str::to_owned), operator, value.to_owned()))
        }
        _ => {
            let quoted: Vec<String> = operators.iter().map(|(text, _)| format!("\"{text}\"")).collect();
            let listed = match quoted.as_slice() {
                [but @ .., last] if !but.is_empty() => format!("{}, or {last}", but.join(", ")),
                _ => quoted.concat(),
            };
            Stop::fatal(format!("{arg}: argument does not end in {listed} followed by a value."))
        }
    }
}

/// Applies `column[:key]=value` to a row.
pub(super) fn assign(context: &mut Context<'_>, table: &str, row: Uuid, arg: &str) -> Result<(), Stop> {
    let schema = context.schema;
    let table = names::table(schema, table)?;
    let Assignment { column, key, value } = Assignment::parse(table, arg)?;
    context.check_server_has(table.name(), &column.name)?;
    match key {
        Some(key) => {
            let Some(value_type) = &column.kind.value else {
                return Stop::fatal(format!("cannot specify key to set for non-map column {}", column.name));
            };
            let (key, value) = parse_pair(context, &column.kind.key, value_type, &key, &value)?;
            context.txn().map_put(table.name(), row, &column.name, key, value);
        }
        None => {
            let value = context.parse_datum(&value, &column.kind)?;
            context.txn().set(table.name(), row, &column.name, value);
        }
    }
    Ok(())
}

fn parse_pair(
    context: &mut Context<'_>,
    key_type: &BaseType,
    value_type: &BaseType,
    key: &str,
    value: &str,
) -> Result<(Atom, Atom), Stop> {
    let key = context.parse_atom(key, key_type)?;
    let value = context.parse_atom(value, value_type)?;
    Ok((key, value))
}
