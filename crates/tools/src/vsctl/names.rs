//! Tables, columns and records by user-supplied names: abbreviated, in any case, `-` for `_`.

use ovsdb::idl::Selection;
use ovsdb::rows::{autoattach, ipfix, netflow, qos, sflow};
use ovsdb::rows::{
    bridge, controller, flow_sample_collector_set, flow_table, interface, manager, mirror, open_vswitch, port, ssl,
};
use ovsdb::{Atom, ColumnSchema, DatabaseSchema, Datum, TableSchema, Uuid};

use super::Stop;
use super::context::Context;

/// A way to name records of a table other than by UUID.
pub(super) struct Naming {
    /// The table whose records this names.
    pub(super) table: &'static str,
    /// How.
    pub(super) by: By,
}

/// How a record is named.
pub(super) enum By {
    /// As `.`: the table has one row.
    Dot,
    /// By the value of one of its columns.
    Column(&'static str),
    /// By the name of a row of another table that refers to it: table, its name column, its column
    /// of references.
    Referrer(&'static str, &'static str, &'static str),
}

const fn by_bridge(table: &'static str, column: &'static str) -> Naming {
    Naming {
        table,
        by: By::Referrer(bridge::TABLE, bridge::columns::NAME, column),
    }
}

const fn by_column(table: &'static str, column: &'static str) -> Naming {
    Naming {
        table,
        by: By::Column(column),
    }
}

/// The ways to name records.
pub(super) const NAMINGS: &[Naming] = &[
    by_bridge(autoattach::TABLE, bridge::columns::AUTO_ATTACH),
    by_column(bridge::TABLE, bridge::columns::NAME),
    by_bridge(controller::TABLE, bridge::columns::CONTROLLER),
    by_column(flow_sample_collector_set::TABLE, flow_sample_collector_set::columns::ID),
    by_column(flow_table::TABLE, flow_table::columns::NAME),
    by_bridge(ipfix::TABLE, bridge::columns::IPFIX),
    by_column(interface::TABLE, interface::columns::NAME),
    by_column(manager::TABLE, manager::columns::TARGET),
    by_column(mirror::TABLE, mirror::columns::NAME),
    by_bridge(netflow::TABLE, bridge::columns::NETFLOW),
    Naming {
        table: open_vswitch::TABLE,
        by: By::Dot,
    },
    by_column(port::TABLE, port::columns::NAME),
    Naming {
        table: qos::TABLE,
        by: By::Referrer(port::TABLE, port::columns::NAME, port::columns::QOS),
    },
    Naming {
        table: ssl::TABLE,
        by: By::Dot,
    },
    by_bridge(sflow::TABLE, bridge::columns::SFLOW),
];

/// The table that `name` stands for.
pub(super) fn table<'a>(schema: &'a DatabaseSchema, name: &str) -> Result<&'a TableSchema, Stop> {
    match select(schema.tables(), TableSchema::name, name) {
        Matches::One(table) => Ok(table),
        Matches::None => Stop::fatal(format!("unknown table \"{name}\"")),
        Matches::Many(tables) => Stop::fatal(format!(
            "\"{name}\" matches multiple table names: {}",
            list(&tables, TableSchema::name)
        )),
    }
}

/// The column that `name` stands for.
pub(super) fn column<'a>(table: &'a TableSchema, name: &str) -> Result<&'a ColumnSchema, Stop> {
    let columns: Vec<&ColumnSchema> = table.user_columns().map(|(_, column)| column).collect();
    let known = |column: &&'a ColumnSchema| column.name.as_str();
    match select(&columns, known, name) {
        Matches::One(column) => Ok(column),
        Matches::None => Stop::fatal(format!(
            "{} does not contain a column whose name matches \"{name}\"",
            table.name()
        )),
        Matches::Many(columns) => Stop::fatal(format!(
            "{} contains more than one column whose name matches \"{name}\": {}",
            table.name(),
            list(&columns, known)
        )),
    }
}

/// Whether `name` is the column `_uuid`, which can be read but not written.
pub(super) fn is_uuid_column(name: &str) -> bool {
    name.eq_ignore_ascii_case("_uuid")
}

/// The column that `name` stands for, which must be one that can be written.
pub(super) fn mutable_column<'a>(table: &'a TableSchema, name: &str) -> Result<&'a ColumnSchema, Stop> {
    let column = column(table, name)?;
    check_mutable(table, column)?;
    Ok(column)
}

/// Refuses a column that cannot be written.
pub(super) fn check_mutable(table: &TableSchema, column: &ColumnSchema) -> Result<(), Stop> {
    if column.mutable {
        return Ok(());
    }
    Stop::fatal(format!(
        "cannot modify read-only column {} in table {}",
        column.name,
        table.name()
    ))
}

enum Matches<'a, T> {
    None,
    One(&'a T),
    Many(Vec<&'a T>),
}

/// The entry whose name `name` is, or is an unambiguous prefix of.
fn select<'a, T>(all: &'a [T], known: impl Fn(&'a T) -> &'a str, name: &str) -> Matches<'a, T> {
    let fold = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let wanted = fold(name);
    if let Some(exact) = all.iter().find(|one| fold(known(one)) == wanted) {
        return Matches::One(exact);
    }
    let near: Vec<&T> = all.iter().filter(|one| fold(known(one)).starts_with(&wanted)).collect();
    match near.as_slice() {
        [] => Matches::None,
        [one] => Matches::One(one),
        _ => Matches::Many(near),
    }
}

fn list<'a, T>(matches: &[&'a T], name: impl Fn(&'a T) -> &'a str) -> String {
    matches.iter().map(|one| name(one)).collect::<Vec<_>>().join(", ")
}

/// Selects the columns that [`find_row`] needs for records of `table`.
pub(super) fn select_naming(selection: &mut Selection, table: &TableSchema) {
    selection.table(table.name());
    for naming in NAMINGS.iter().filter(|naming| naming.table == table.name()) {
        match naming.by {
            By::Dot => {}
            By::Column(column) => drop(selection.column(table.name(), column)),
            By::Referrer(table, name, references) => drop(selection.columns(table, &[name, references])),
        }
    }
}

/// The row of `table` that `record` names, if there is one.
pub(super) fn find_row(context: &Context<'_>, table: &TableSchema, record: &str) -> Result<Option<Uuid>, Stop> {
    if let Ok(uuid) = record.parse()
        && context.view().contains(table.name(), uuid)
    {
        return Ok(Some(uuid));
    }
    for naming in NAMINGS.iter().filter(|naming| naming.table == table.name()) {
        let found = match naming.by {
            By::Dot if record == "." => context.rows(table.name()).first().copied(),
            By::Dot => None,
            By::Column(column) => row_by_column(context, table.name(), column, record)?,
            By::Referrer(other, name, references) => match row_by_column(context, other, name, record)? {
                Some(row) => match context.references(other, row, references).as_slice() {
                    [only] => Some(*only),
                    _ => None,
                },
                None => None,
            },
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    // In any table, a dot is the only row.
    if let ([only], ".") = (context.rows(table.name()).as_slice(), record) {
        return Ok(Some(*only));
    }
    row_by_partial_uuid(context, table.name(), record)
}

/// The row of `table` that `record` names.
pub(super) fn row(context: &Context<'_>, table: &TableSchema, record: &str) -> Result<Uuid, Stop> {
    match find_row(context, table, record)? {
        Some(row) => Ok(row),
        None => Stop::fatal(format!("no row \"{record}\" in table {}", table.name())),
    }
}

fn row_by_column(context: &Context<'_>, table: &str, column: &str, value: &str) -> Result<Option<Uuid>, Stop> {
    let holds = |row: &Uuid| {
        let datum: Datum = context.get(table, *row, column);
        datum.as_one().map(Atom::to_bare_text).as_deref() == Some(value)
    };
    let mut rows = context.rows(table).into_iter().filter(holds);
    let first = rows.next();
    match rows.next() {
        None => Ok(first),
        Some(_) => Stop::fatal(format!("multiple rows in {table} match \"{value}\"")),
    }
}

/// The only row whose UUID begins with `text`, at least four digits.
fn row_by_partial_uuid(context: &Context<'_>, table: &str, text: &str) -> Result<Option<Uuid>, Stop> {
    let wanted = text.to_ascii_lowercase();
    if wanted.len() < 4 {
        return Ok(None);
    }
    let mut rows = context
        .rows(table)
        .into_iter()
        .filter(|row| row.to_string().starts_with(&wanted));
    let first = rows.next();
    match rows.next() {
        None => Ok(first),
        Some(_) => Stop::fatal(format!("multiple rows in {table} match \"{text}\"")),
    }
}
