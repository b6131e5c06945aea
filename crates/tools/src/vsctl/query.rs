//! `get`, `list`, `find`, `wait-until`.

use ovsdb::{AtomicType, BaseType, ColumnSchema, ColumnType, Datum, TableSchema, Uuid};

use super::Stop;
use super::context::Context;
use super::grammar::{Command, Prepare};
use super::names::{self, is_uuid_column};
use super::values::{Condition, Reading, leading_column};
use crate::table::{Cell, Table};

pub(super) fn prepare_get(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    names::select_naming(context.selection, table);
    for arg in &command.args[2..] {
        if let Some(column) = leading_column(table, arg)? {
            context.selection.column(table.name(), &column.name);
        }
    }
    if command.has("--id") && command.has("--if-exists") {
        return Stop::fatal("--if-exists and --id may not be specified together");
    }
    Ok(())
}

pub(super) fn get(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let may_lack = command.has("--if-exists");
    let table = names::table(context.schema, command.arg(0))?;
    let record = command.arg(1);
    let row = match names::find_row(context, table, record)? {
        None if may_lack => return Ok(()),
        None => names::row(context, table, record)?,
        Some(row) => row,
    };
    if let Some(name) = command.value("--id") {
        context.name_row(name, row)?;
    }
    for arg in &command.args[2..] {
        let Reading { column, key } = Reading::parse(table, arg)?;
        let Some(column) = column else {
            context.line(row);
            continue;
        };
        let value = context.get(table.name(), row, &column.name);
        let Some(key) = key else {
            context.line(value.to_text(&column.kind));
            continue;
        };
        if !column.kind.is_map() {
            return Stop::fatal(format!("cannot specify key to get for non-map column {}", column.name));
        }
        let atom = context.parse_atom(&key, &column.kind.key)?;
        match value.get(&atom) {
            Some(value) => context.line(value.to_text()),
            None if may_lack => context.line(""),
            None => {
                let (table, column) = (table.name(), &column.name);
                return Stop::fatal(format!(
                    "no key \"{key}\" in {table} record \"{record}\" column {column}"
                ));
            }
        }
    }
    Ok(())
}

/// The columns to print: `None` is `_uuid`.
type Columns<'a> = Vec<Option<&'a ColumnSchema>>;

fn columns<'a>(table: &'a TableSchema, command: &Command) -> Result<Columns<'a>, Stop> {
    let Some(list) = command.value("--columns") else {
        let all = table.user_columns().map(|(_, column)| Some(column));
        return Ok(std::iter::once(None).chain(all).collect());
    };
    let words: Vec<&str> = list.split([',', ' ']).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return Stop::fatal("must specify at least one column name");
    }
    let column = |word: &&str| match is_uuid_column(word) {
        true => Ok(None),
        false => names::column(table, word).map(Some),
    };
    words.iter().map(column).collect()
}

fn select(context: &mut Prepare<'_>, table: &TableSchema, columns: &Columns<'_>) {
    context.selection.table(table.name());
    for column in columns.iter().flatten() {
        context.selection.column(table.name(), &column.name);
    }
}

pub(super) fn prepare_list(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    let columns = columns(table, command)?;
    select(context, table, &columns);
    names::select_naming(context.selection, table);
    Ok(())
}

pub(super) fn list(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    let rows = if command.args.len() == 1 {
        context.rows(table.name())
    } else {
        let mut rows = Vec::new();
        for record in &command.args[1..] {
            match names::find_row(context, table, record)? {
                None if command.has("--if-exists") => {}
                None => return names::row(context, table, record).map(|_| ()),
                Some(row) => rows.push(row),
            }
        }
        rows
    };
    print(context, table, &columns(table, command)?, &rows);
    Ok(())
}

pub(super) fn prepare_find(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    let columns = columns(table, command)?;
    select(context, table, &columns);
    select_conditions(context, table, &command.args[1..])
}

fn select_conditions(context: &mut Prepare<'_>, table: &TableSchema, args: &[String]) -> Result<(), Stop> {
    for arg in args {
        if let Some(column) = leading_column(table, arg)? {
            context.selection.column(table.name(), &column.name);
        }
    }
    Ok(())
}

fn conditions<'a>(table: &'a TableSchema, args: &[String]) -> Result<Vec<Condition<'a>>, Stop> {
    args.iter().map(|arg| Condition::parse(table, arg)).collect()
}

pub(super) fn find(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    let conditions = conditions(table, &command.args[1..])?;
    let mut rows = Vec::new();
    for row in context.rows(table.name()) {
        if all_hold(context, table, row, &conditions)? {
            rows.push(row);
        }
    }
    print(context, table, &columns(table, command)?, &rows);
    Ok(())
}

fn all_hold(
    context: &mut Context<'_>,
    table: &TableSchema,
    row: Uuid,
    conditions: &[Condition<'_>],
) -> Result<bool, Stop> {
    for condition in conditions {
        if !condition.holds(context, table, row)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn prepare_wait_until(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    names::select_naming(context.selection, table);
    select_conditions(context, table, &command.args[2..])
}

pub(super) fn wait_until(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    let conditions = conditions(table, &command.args[2..])?;
    match names::find_row(context, table, command.arg(1))? {
        Some(row) if all_hold(context, table, row, &conditions)? => Ok(()),
        _ => Err(Stop::Again),
    }
}

fn print(context: &mut Context<'_>, table: &TableSchema, columns: &Columns<'_>, rows: &[Uuid]) {
    let uuid = ColumnType::scalar(BaseType::plain(AtomicType::Uuid));
    let mut out = Table::new(
        columns
            .iter()
            .map(|column| column.map_or("_uuid", |column| &column.name)),
    );
    for row in rows {
        let cell = |column: &Option<&ColumnSchema>| match column {
            None => Cell::Datum(Datum::one(*row), uuid.clone()),
            Some(column) => Cell::Datum(context.get(table.name(), *row, &column.name), column.kind.clone()),
        };
        out.add_row(columns.iter().map(cell).collect());
    }
    context.table(out);
}
