//! The replica: rows of the selected columns, and how updates change them.

use super::session::IdlError;
use crate::schema::TableSchema;
use crate::{Atom, ColumnType, DatabaseSchema, Datum, Uuid};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Which tables and columns a replica holds.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    tables: BTreeMap<String, BTreeMap<String, Alert>>,
}

/// Whether a change of a column counts as a change of the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alert {
    Yes,
    No,
}

impl Selection {
    /// Nothing.
    pub fn new() -> Selection {
        Selection::default()
    }

    /// Every column of every table of `schema`.
    pub fn all(schema: &DatabaseSchema) -> Selection {
        let mut selection = Selection::new();
        for table in schema.tables() {
            selection.table(table.name());
            for (_, column) in table.user_columns() {
                selection.column(table.name(), &column.name);
            }
        }
        selection
    }

    /// The rows of `table`, without any column yet.
    pub fn table(&mut self, table: &str) -> &mut Selection {
        self.tables.entry(table.to_owned()).or_default();
        self
    }

    /// A column, and its table.
    pub fn column(&mut self, table: &str, column: &str) -> &mut Selection {
        let known = self.tables.entry(table.to_owned()).or_default();
        known.entry(column.to_owned()).or_insert(Alert::Yes);
        self
    }

    /// Several columns of a table.
    pub fn columns(&mut self, table: &str, columns: &[&str]) -> &mut Selection {
        for column in columns {
            self.column(table, column);
        }
        self
    }

    /// Columns whose changes do not move [`super::Idl::seqno`]: those that the client itself
    /// writes. They stay so when they are selected again.
    pub fn quiet(&mut self, table: &str, columns: &[&str]) -> &mut Selection {
        let known = self.tables.entry(table.to_owned()).or_default();
        for column in columns {
            known.insert((*column).to_owned(), Alert::No);
        }
        self
    }

    /// The `<monitor-requests>` for the columns that `schema` has too.
    pub(super) fn monitor_requests(&self, schema: &DatabaseSchema) -> Value {
        let mut requests = Map::new();
        for (name, columns) in &self.tables {
            if let Some(table) = schema.table(name) {
                let known: Vec<&String> = columns.keys().filter(|column| table.column(column).is_some()).collect();
                requests.insert(name.clone(), json!([{ "columns": known }]));
            }
        }
        Value::Object(requests)
    }

    /// Empty tables for the columns that `schema` has too.
    pub(super) fn empty_tables(&self, schema: &DatabaseSchema) -> Tables {
        let known = self
            .tables
            .iter()
            .filter_map(|(name, columns)| Some((name, columns, schema.table(name)?)));
        let tables = known.map(|(name, columns, table)| (name.clone(), Table::new(columns, table)));
        Tables {
            tables: tables.collect(),
        }
    }
}

/// The columns of a table in a replica, sorted by name.
#[derive(Debug, PartialEq)]
pub struct Columns {
    names: Vec<String>,
    kinds: Vec<ColumnType>,
    alerts: Vec<bool>,
}

impl Columns {
    /// The names, sorted.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The type of the column `name`.
    pub fn kind(&self, name: &str) -> Option<&ColumnType> {
        self.index(name).map(|at| &self.kinds[at])
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|known| known.as_str().cmp(name)).ok()
    }
}

/// A row of a replica. Cloning is cheap enough for snapshots: large values are shared.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    columns: Arc<Columns>,
    values: Vec<Datum>,
}

impl Row {
    /// The value of a column; `None` where the replica or the server lacks the column.
    pub fn get(&self, column: &str) -> Option<&Datum> {
        self.columns.index(column).map(|at| &self.values[at])
    }

    /// The columns with their values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Datum)> {
        self.columns.names.iter().map(String::as_str).zip(&self.values)
    }
}

/// The rows of one table.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Arc<Columns>,
    rows: BTreeMap<Uuid, Row>,
}

impl Table {
    fn new(selected: &BTreeMap<String, Alert>, schema: &TableSchema) -> Table {
        let mut columns = Columns {
            names: Vec::new(),
            kinds: Vec::new(),
            alerts: Vec::new(),
        };
        for (name, alert) in selected {
            if let Some(column) = schema.column(name) {
                columns.names.push(name.clone());
                columns.kinds.push(column.kind.clone());
                columns.alerts.push(*alert == Alert::Yes);
            }
        }
        Table {
            columns: Arc::new(columns),
            rows: BTreeMap::new(),
        }
    }

    /// The columns that the replica holds.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The row `uuid`.
    pub fn row(&self, uuid: Uuid) -> Option<&Row> {
        self.rows.get(&uuid)
    }

    /// The rows, sorted by UUID.
    pub fn rows(&self) -> impl Iterator<Item = (Uuid, &Row)> {
        self.rows.iter().map(|(uuid, row)| (*uuid, row))
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// All tables of a replica.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    tables: BTreeMap<String, Table>,
}

impl Tables {
    /// The table `name`; `None` where the selection or the server lacks it.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.get(name)
    }

    /// The row `uuid` of the table `name`.
    pub fn row(&self, name: &str, uuid: Uuid) -> Option<&Row> {
        self.table(name)?.row(uuid)
    }

    /// The rows of the table `name`, sorted by UUID.
    pub fn rows(&self, name: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        self.table(name).into_iter().flat_map(Table::rows)
    }

    /// The first row of the table `name` whose string column `column` holds `value`.
    pub fn find(&self, name: &str, column: &str, value: &str) -> Option<(Uuid, &Row)> {
        self.rows(name)
            .find(|(_, row)| row.get(column).and_then(Datum::as_one).and_then(Atom::as_str) == Some(value))
    }

    /// Applies the `<table-updates>` of `monitor` and `update` (RFC 7047 §4.1.6).
    pub(super) fn apply_updates(&mut self, updates: &Value, changes: &mut Changes) -> Result<(), IdlError> {
        self.each(updates, |table, name, uuid, update| {
            let members = update
                .as_object()
                .ok_or(IdlError::Malformed("row update is not an object"))?;
            match members.get("new") {
                Some(new) => {
                    let mut row = table.rows.get(&uuid).cloned().unwrap_or_else(|| table.default_row());
                    row.assign(new)?;
                    table.replace(name, uuid, row, changes);
                }
                None => table.remove(name, uuid, changes),
            }
            Ok(())
        })
    }

    /// Applies the `<table-updates2>` of `monitor_cond`, `update2` and `update3` (ovsdb-server(7)
    /// §4.1.12 to 4.1.15).
    pub(super) fn apply_updates2(&mut self, updates: &Value, changes: &mut Changes) -> Result<(), IdlError> {
        self.each(updates, |table, name, uuid, update| {
            let members = update
                .as_object()
                .ok_or(IdlError::Malformed("row update is not an object"))?;
            for (kind, content) in members {
                match kind.as_str() {
                    "initial" | "insert" => {
                        let mut row = table.default_row();
                        row.assign(content)?;
                        table.replace(name, uuid, row, changes);
                    }
                    "modify" => {
                        let known = table.rows.get(&uuid);
                        let mut row = known.cloned().ok_or(IdlError::Malformed("modified row is unknown"))?;
                        row.apply_difference(content)?;
                        table.replace(name, uuid, row, changes);
                    }
                    "delete" => table.remove(name, uuid, changes),
                    _ => return Err(IdlError::Malformed("unknown kind of row update")),
                }
            }
            Ok(())
        })
    }

    /// The changes that lead from `self` to `newer`.
    pub(super) fn compare(&self, newer: &Tables, changes: &mut Changes) {
        for (name, table) in &newer.tables {
            let old = self.tables.get(name);
            for (uuid, row) in &table.rows {
                match old.and_then(|old| old.rows.get(uuid)) {
                    None => changes.record(name, *uuid, Change::Inserted, true),
                    Some(before) if before != row => changes.record(name, *uuid, Change::Modified, row.alerts(before)),
                    Some(_) => {}
                }
            }
        }
        for (name, table) in &self.tables {
            let kept = newer.tables.get(name);
            for uuid in table
                .rows
                .keys()
                .filter(|uuid| !kept.is_some_and(|kept| kept.rows.contains_key(uuid)))
            {
                changes.record(name, *uuid, Change::Deleted, true);
            }
        }
    }

    fn each(
        &mut self,
        updates: &Value,
        mut apply: impl FnMut(&mut Table, &str, Uuid, &Value) -> Result<(), IdlError>,
    ) -> Result<(), IdlError> {
        let updates = updates
            .as_object()
            .ok_or(IdlError::Malformed("table updates are not an object"))?;
        for (name, rows) in updates {
            let table = self
                .tables
                .get_mut(name)
                .ok_or(IdlError::Malformed("update of a table not monitored"))?;
            let rows = rows
                .as_object()
                .ok_or(IdlError::Malformed("table update is not an object"))?;
            for (uuid, update) in rows {
                let uuid = uuid
                    .parse()
                    .map_err(|_| IdlError::Malformed("row update without a UUID"))?;
                apply(table, name, uuid, update)?;
            }
        }
        Ok(())
    }
}

impl Table {
    fn default_row(&self) -> Row {
        let values = self.columns.kinds.iter().map(ColumnType::default_datum).collect();
        Row {
            columns: Arc::clone(&self.columns),
            values,
        }
    }

    fn replace(&mut self, name: &str, uuid: Uuid, row: Row, changes: &mut Changes) {
        match self.rows.get(&uuid) {
            None => changes.record(name, uuid, Change::Inserted, true),
            Some(before) if *before != row => changes.record(name, uuid, Change::Modified, row.alerts(before)),
            Some(_) => return,
        }
        self.rows.insert(uuid, row);
    }

    fn remove(&mut self, name: &str, uuid: Uuid, changes: &mut Changes) {
        if self.rows.remove(&uuid).is_some() {
            changes.record(name, uuid, Change::Deleted, true);
        }
    }
}

impl Row {
    /// Sets the columns that `content` has, and ignores columns that were not selected.
    fn assign(&mut self, content: &Value) -> Result<(), IdlError> {
        self.each(content, |kind, value, json| {
            *value = Datum::from_plain_json(json, kind)?;
            Ok(())
        })
    }

    /// Applies the differences of a `modify`: the new value where a column holds at most one
    /// element; else the elements that came or went, and the pairs that came, went (as they were)
    /// or have a new value.
    fn apply_difference(&mut self, content: &Value) -> Result<(), IdlError> {
        self.each(content, |kind, value, json| {
            if !kind.is_composite() {
                *value = Datum::from_plain_json(json, kind)?;
                return Ok(());
            }
            let difference = Datum::from_json_relaxed(json, kind, &mut crate::no_names)?;
            *value = if kind.is_map() {
                map_difference(value, &difference)
            } else {
                set_difference(value, &difference)
            };
            Ok(())
        })
    }

    fn each(
        &mut self,
        content: &Value,
        mut apply: impl FnMut(&ColumnType, &mut Datum, &Value) -> Result<(), IdlError>,
    ) -> Result<(), IdlError> {
        let content = content.as_object().ok_or(IdlError::Malformed("row is not an object"))?;
        for (name, json) in content {
            if let Some(at) = self.columns.index(name) {
                apply(&self.columns.kinds[at], &mut self.values[at], json)?;
            }
        }
        Ok(())
    }

    /// Whether a column that is not quiet differs from `before`.
    fn alerts(&self, before: &Row) -> bool {
        let pairs = self.values.iter().zip(&before.values);
        pairs
            .zip(&self.columns.alerts)
            .any(|((new, old), alert)| *alert && new != old)
    }
}

fn set_difference(value: &Datum, difference: &Datum) -> Datum {
    let stay = value.atoms().iter().filter(|atom| !difference.contains(atom));
    let come = difference.atoms().iter().filter(|atom| !value.contains(atom));
    Datum::set(stay.chain(come).cloned())
}

fn map_difference(value: &Datum, difference: &Datum) -> Datum {
    let stay = value.pairs().iter().filter(|(key, _)| difference.get(key).is_none());
    let come = difference
        .pairs()
        .iter()
        .filter(|(key, new)| value.get(key) != Some(new));
    Datum::map(stay.chain(come).cloned())
}

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Inserted,
    /// Some column has another value.
    Modified,
    /// It was deleted.
    Deleted,
}

/// The rows that changed since the last call.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    rows: HashMap<String, BTreeMap<Uuid, Change>>,
    alerting: bool,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows of `table` that changed, sorted by UUID.
    pub fn of(&self, table: &str) -> impl Iterator<Item = (Uuid, Change)> {
        self.rows
            .get(table)
            .into_iter()
            .flatten()
            .map(|(uuid, change)| (*uuid, *change))
    }

    /// Whether a change was more than that of a quiet column.
    pub(super) fn alerting(&self) -> bool {
        self.alerting
    }

    /// Adds later changes.
    pub(super) fn extend(&mut self, later: Changes) {
        for (table, rows) in later.rows {
            for (uuid, change) in rows {
                self.record(&table, uuid, change, later.alerting);
            }
        }
    }

    fn record(&mut self, table: &str, uuid: Uuid, change: Change, alert: bool) {
        self.alerting |= alert;
        let rows = match self.rows.get_mut(table) {
            Some(rows) => rows,
            None => self.rows.entry(table.to_owned()).or_default(),
        };
        let sum = match (rows.get(&uuid), change) {
            (Some(Change::Inserted), Change::Deleted) => None,
            (Some(Change::Inserted), _) => Some(Change::Inserted),
            (Some(Change::Deleted), Change::Inserted) => Some(Change::Modified),
            (_, change) => Some(change),
        };
        match sum {
            Some(sum) => rows.insert(uuid, sum),
            None => rows.remove(&uuid),
        };
    }
}
