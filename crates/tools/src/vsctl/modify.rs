//! `set`, `add`, `remove`, `clear`, `create`, `destroy`.

use ovsdb::{Atom, ColumnType, Datum, TableSchema, Uuid};

use super::Stop;
use super::context::Context;
use super::grammar::{Command, Prepare};
use super::names;
use super::values::{assign, leading_column, some};

/// The table of the first argument and the row of the second; `None` if the row is missing and
/// `--if-exists` allows that.
fn target<'a>(context: &Context<'a>, command: &Command) -> Result<(&'a TableSchema, Option<Uuid>), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    let record = command.arg(1);
    let row = match names::find_row(context, table, record)? {
        None if !command.has("--if-exists") => Some(names::row(context, table, record)?),
        row => row,
    };
    Ok((table, row))
}

pub(super) fn prepare_set(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    names::select_naming(context.selection, table);
    for arg in &command.args[2..] {
        if let Some(column) = leading_column(table, arg)? {
            names::check_mutable(table, column)?;
            context.selection.column(table.name(), &column.name);
        }
    }
    Ok(())
}

pub(super) fn set(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let (table, row) = target(context, command)?;
    let Some(row) = row else { return Ok(()) };
    for arg in &command.args[2..] {
        assign(context, table.name(), row, arg)?;
    }
    Ok(())
}

/// For `add` and `remove`, whose third argument is a column.
pub(super) fn prepare_column(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    names::select_naming(context.selection, table);
    let column = names::mutable_column(table, command.arg(2))?;
    context.selection.column(table.name(), &column.name);
    Ok(())
}

pub(super) fn add(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let (table, row) = target(context, command)?;
    let Some(row) = row else { return Ok(()) };
    let column = names::column(table, command.arg(2))?;
    context.check_server_has(table.name(), &column.name)?;
    let kind = some(&column.kind);
    for arg in &command.args[3..] {
        let value = context.parse_datum(arg, &kind)?;
        for atom in value.atoms() {
            context.txn().set_insert(table.name(), row, &column.name, atom.clone());
        }
        for (key, value) in value.pairs() {
            context
                .txn()
                .map_put(table.name(), row, &column.name, key.clone(), value.clone());
        }
    }
    Ok(())
}

pub(super) fn remove(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let (table, row) = target(context, command)?;
    let Some(row) = row else { return Ok(()) };
    let column = names::column(table, command.arg(2))?;
    context.check_server_has(table.name(), &column.name)?;
    let mut value = context.get(table.name(), row, &column.name);
    for arg in &command.args[3..] {
        let gone = parse_removal(context, arg, &column.kind)?;
        value = subtract(&value, &gone);
    }
    if value.len() < column.kind.min {
        let what = if column.kind.is_map() { "pairs" } else { "values" };
        return Stop::fatal(format!(
            "\"remove\" operation would put {} {what} in column {} of table {} but the minimum number is {}",
            value.len(),
            column.name,
            table.name(),
            column.kind.min
        ));
    }
    context.replace(table.name(), row, &column.name, value);
    Ok(())
}

/// Pairs or keys of a map, or elements of a set.
fn parse_removal(context: &mut Context<'_>, arg: &str, kind: &ColumnType) -> Result<Datum, Stop> {
    let kind = some(kind);
    match context.parse_datum(arg, &kind) {
        Err(_) if kind.is_map() => context.parse_datum(arg, &ColumnType { value: None, ..kind }),
        result => result,
    }
}

fn subtract(value: &Datum, gone: &Datum) -> Datum {
    if value.pairs().is_empty() {
        return Datum::set(value.atoms().iter().filter(|atom| !gone.contains(atom)).cloned());
    }
    let goes = |key: &Atom, value: &Atom| gone.atoms().contains(key) || gone.get(key) == Some(value);
    Datum::map(value.pairs().iter().filter(|(key, value)| !goes(key, value)).cloned())
}

pub(super) fn prepare_clear(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    names::select_naming(context.selection, table);
    for name in &command.args[2..] {
        let column = names::column(table, name)?;
        context.selection.column(table.name(), &column.name);
    }
    Ok(())
}

pub(super) fn clear(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let (table, row) = target(context, command)?;
    let Some(row) = row else { return Ok(()) };
    for name in &command.args[2..] {
        let column = names::mutable_column(table, name)?;
        if column.kind.min > 0 {
            return Stop::fatal(format!(
                "\"clear\" operation cannot be applied to column {} of table {}, which is not allowed to be empty",
                column.name,
                table.name()
            ));
        }
        context.check_server_has(table.name(), &column.name)?;
        context.txn().set(table.name(), row, &column.name, Datum::EMPTY);
    }
    Ok(())
}

pub(super) fn prepare_create(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    if command.value("--id").is_none() && !table.is_root() {
        tracing::warn!(
            target: "db_ctl_base",
            "applying \"create\" command to table {} without --id option will have no effect",
            table.name()
        );
    }
    context.selection.table(table.name());
    for arg in &command.args[1..] {
        if let Some(column) = leading_column(table, arg)? {
            context.selection.column(table.name(), &column.name);
        }
    }
    Ok(())
}

pub(super) fn create(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    let row = context.create(table.name(), command.value("--id"))?;
    for arg in &command.args[1..] {
        assign(context, table.name(), row, arg)?;
    }
    context.inserted(row);
    Ok(())
}

pub(super) fn prepare_destroy(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    if command.has("--all") && command.args.len() > 1 {
        return Stop::fatal("--all and records argument should not be specified together");
    }
    if command.has("--all") && command.has("--if-exists") {
        return Stop::fatal("--all and --if-exists should not be specified together");
    }
    if !command.has("--all") && command.args.len() == 1 {
        tracing::warn!(target: "db_ctl_base", "either --all or records argument should be specified");
    }
    names::select_naming(context.selection, table);
    Ok(())
}

pub(super) fn destroy(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let table = names::table(context.schema, command.arg(0))?;
    if command.has("--all") {
        for row in context.rows(table.name()) {
            context.txn().delete(table.name(), row);
        }
        return Ok(());
    }
    for record in &command.args[1..] {
        match names::find_row(context, table, record)? {
            None if command.has("--if-exists") => {}
            None => return names::row(context, table, record).map(|_| ()),
            Some(row) => context.txn().delete(table.name(), row),
        }
    }
    Ok(())
}
