//! Makes records.

use super::sum::Sum;
use crate::commit::{Commit, RowChange};
use crate::database::Database;
use crate::row::Row;
use crate::schema::{DatabaseSchema, TableSchema};
use serde::ser::{Serialize, SerializeMap, Serializer};
use smallvec::SmallVec;
use std::io::Write;
use std::sync::Arc;

/// The first record of a file.
pub fn schema_record(schema: &DatabaseSchema) -> Vec<u8> {
    record(&schema.to_json())
}

/// The record of a commit, or `None` if it changed ephemeral columns only. `date` is milliseconds
/// since the Unix epoch.
pub fn commit_record(schema: &DatabaseSchema, commit: &Commit, date: i64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    append_commit(&mut bytes, schema, commit, date).then_some(bytes)
}

/// Appends the record of a commit, as [`commit_record`] makes it. Returns false, and appends
/// nothing, if the commit changed ephemeral columns only.
pub fn append_commit(bytes: &mut Vec<u8>, schema: &DatabaseSchema, commit: &Commit, date: i64) -> bool {
    let kept: SmallVec<[&RowChange; 4]> = commit.changes.iter().filter(|change| is_kept(schema, change)).collect();
    if kept.is_empty() {
        return false;
    }
    let transaction = Transaction {
        schema,
        changes: &kept,
        date,
        comment: commit.comment.as_deref(),
    };
    append(bytes, &transaction);
    true
}

/// The record that holds everything: with the schema's before it, a compacted file. `None` if the
/// database is empty.
pub fn snapshot_record(db: &Database, comment: Option<&str>, date: i64) -> Option<Vec<u8>> {
    let changes: Vec<RowChange> = db.contents().collect();
    let kept: Vec<&RowChange> = changes.iter().collect();
    let transaction = Transaction {
        schema: db.schema(),
        changes: &kept,
        date,
        comment,
    };
    (!kept.is_empty()).then(|| record(&transaction))
}

/// Header and body.
fn record(json: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(&mut bytes, json);
    bytes
}

/// Appends header and body. The header contains the body's length and sum, so it is made last.
fn append(bytes: &mut Vec<u8>, json: &impl Serialize) {
    let start = bytes.len();
    // Writing to a Vec does not fail, and all our keys are strings.
    let _ = serde_json::to_writer(&mut *bytes, json);
    bytes.push(b'\n');
    let length = bytes.len() - start;
    let sum = Sum::of(&bytes[start..]);
    let _ = writeln!(bytes, "OVSDB JSON {length} {}", sum.as_str());
    let header = bytes.len() - start - length;
    bytes[start..].rotate_right(header);
}

/// Whether a change is more than that of ephemeral columns.
fn is_kept(schema: &DatabaseSchema, change: &RowChange) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else {
        return true;
    };
    let mut columns = schema.tables()[change.table].user_columns();
    columns.any(|(at, column)| column.persistent && old.get(at) != new.get(at))
}

/// The JSON object of a transaction.
struct Transaction<'a> {
    schema: &'a DatabaseSchema,
    /// Grouped by table.
    changes: &'a [&'a RowChange],
    date: i64,
    comment: Option<&'a str>,
}

impl Serialize for Transaction<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("_date", &self.date)?;
        map.serialize_entry("_is_diff", &true)?;
        if let Some(comment) = self.comment.filter(|comment| !comment.is_empty()) {
            map.serialize_entry("_comment", comment)?;
        }
        for changes in self.changes.chunk_by(|a, b| a.table == b.table) {
            if let Some(first) = changes.first() {
                let table = &self.schema.tables()[first.table];
                map.serialize_entry(table.name(), &TableRows { table, changes })?;
            }
        }
        map.end()
    }
}

struct TableRows<'a> {
    table: &'a TableSchema,
    changes: &'a [&'a RowChange],
}

impl Serialize for TableRows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.changes.len()))?;
        for change in self.changes {
            let row = change.new.as_ref().map(|new| RowColumns {
                table: self.table,
                old: change.old.as_ref(),
                new,
            });
            map.serialize_entry(change.uuid.to_text().as_str(), &row)?;
        }
        map.end()
    }
}

/// A new row's values that are not the default, or the differences of a changed one.
struct RowColumns<'a> {
    table: &'a TableSchema,
    old: Option<&'a Arc<Row>>,
    new: &'a Arc<Row>,
}

impl Serialize for RowColumns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (at, column) in self.table.user_columns().filter(|(_, column)| column.persistent) {
            let value = self.new.get(at);
            match self.old.map(|old| old.get(at)) {
                None if value.is_default(&column.kind) => {}
                None => map.serialize_entry(&column.name, &value.json(&column.kind))?,
                Some(old) if old == value => {}
                Some(old) => map.serialize_entry(&column.name, &old.diff(value, &column.kind).json(&column.kind))?,
            }
        }
        map.end()
    }
}
