//! The updates that a monitor sends: `<table-updates>` (RFC 7047 §4.1.6) and `<table-updates2>`
//! (ovsdb-server(7) §4.1.14).

use super::{Monitor, MonitorTable, MonitorVersion};
use crate::row::Row;
use crate::schema::TableSchema;
use crate::uuid::Uuid;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::sync::Arc;

/// The kind of a row's update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Initial,
    Insert,
    Delete,
    Modify,
}

/// A client's update for one row.
#[derive(Debug, Clone)]
pub(super) struct RowUpdate {
    /// The place of the row's table in the monitor's list.
    table: usize,
    kind: Kind,
    uuid: Uuid,
    old: Option<Arc<Row>>,
    new: Option<Arc<Row>>,
}

impl RowUpdate {
    pub(super) fn new(table: usize, kind: Kind, uuid: Uuid, old: Option<Arc<Row>>, new: Option<Arc<Row>>) -> RowUpdate {
        RowUpdate {
            table,
            kind,
            uuid,
            old,
            new,
        }
    }
}

/// A client's updates: an object from table names to objects from UUIDs to row updates.
/// Serialize it, or ask for a [`Value`].
#[derive(Debug, Clone)]
pub struct Updates {
    monitor: Monitor,
    /// Grouped by table.
    rows: Vec<RowUpdate>,
}

impl Updates {
    pub(super) fn new(monitor: Monitor, rows: Vec<RowUpdate>) -> Updates {
        Updates { monitor, rows }
    }

    /// The number of rows in it.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// As JSON text.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Serialize for Updates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for rows in self.rows.chunk_by(|a, b| a.table == b.table) {
            let Some(first) = rows.first() else { continue };
            let monitored = &self.monitor.tables[first.table];
            let table = &self.monitor.schema.tables()[monitored.table];
            let updates = TableJson {
                table,
                monitored,
                version: self.monitor.version,
                rows,
            };
            map.serialize_entry(table.name(), &updates)?;
        }
        map.end()
    }
}

/// The updates of one table.
struct TableJson<'a> {
    table: &'a TableSchema,
    monitored: &'a MonitorTable,
    version: MonitorVersion,
    rows: &'a [RowUpdate],
}

impl Serialize for TableJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.rows.len()))?;
        for row in self.rows {
            map.serialize_entry(row.uuid.to_text().as_str(), &RowUpdateJson { context: self, row })?;
        }
        map.end()
    }
}

/// The update of one row.
struct RowUpdateJson<'a> {
    context: &'a TableJson<'a>,
    row: &'a RowUpdate,
}

impl Serialize for RowUpdateJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let RowUpdate { kind, old, new, .. } = self.row;
        let mut map = serializer.serialize_map(None)?;
        let row = |row, other, form| RowValues {
            context: self.context,
            kind: *kind,
            row,
            other,
            form,
        };
        if self.context.version == MonitorVersion::Monitor {
            if let (Some(old), true) = (old, matches!(kind, Kind::Modify | Kind::Delete)) {
                let form = if *kind == Kind::Modify {
                    Form::Changed
                } else {
                    Form::Whole
                };
                map.serialize_entry("old", &row(old, new.as_deref(), form))?;
            }
            if let (Some(new), true) = (new, *kind != Kind::Delete) {
                map.serialize_entry("new", &row(new, None, Form::Whole))?;
            }
            return map.end();
        }
        match (kind, new) {
            (Kind::Delete, _) | (_, None) => map.serialize_entry("delete", &())?,
            (Kind::Modify, Some(new)) => map.serialize_entry("modify", &row(new, old.as_deref(), Form::Difference))?,
            (Kind::Insert, Some(new)) => map.serialize_entry("insert", &row(new, None, Form::NotDefault))?,
            (Kind::Initial, Some(new)) => map.serialize_entry("initial", &row(new, None, Form::NotDefault))?,
        }
        map.end()
    }
}

/// Which values of a row, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Whole,
    NotDefault,
    Changed,
    Difference,
}

/// The `<row>` in an update.
struct RowValues<'a> {
    context: &'a TableJson<'a>,
    kind: Kind,
    row: &'a Row,
    other: Option<&'a Row>,
    form: Form,
}

impl Serialize for RowValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for &(at, select) in &self.context.monitored.columns {
            let column = &self.context.table.columns()[at];
            let value = self.row.get(at);
            let other = self.other.map(|row| row.get(at));
            let changed = other.is_some_and(|other| other != value);
            match self.form {
                _ if !select.has(self.kind) => {}
                Form::Whole => map.serialize_entry(&column.name, &value.json(&column.kind))?,
                Form::NotDefault if !value.is_default(&column.kind) => {
                    map.serialize_entry(&column.name, &value.json(&column.kind))?;
                }
                Form::Changed if changed => map.serialize_entry(&column.name, &value.json(&column.kind))?,
                Form::Difference if changed => {
                    let difference = other.map(|old| old.diff(value, &column.kind)).unwrap_or_default();
                    map.serialize_entry(&column.name, &difference.json(&column.kind))?;
                }
                Form::NotDefault | Form::Changed | Form::Difference => {}
            }
        }
        map.end()
    }
}
