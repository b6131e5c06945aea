//! Rebuilds a database from records.

use super::{Damage, Reader, Record};
use crate::database::Database;
use crate::datum::Datum;
use crate::error::{Error, ErrorKind};
use crate::row::Row;
use crate::schema::{COL_VERSION, DatabaseSchema};
use crate::uuid::Uuid;
use serde_json::{Map, Value};
use std::io::BufRead;
use std::sync::Arc;

/// A database read from a file.
#[derive(Debug)]
pub struct Loaded {
    /// The database, as of the last good record.
    pub database: Database,
    /// The number of transactions read.
    pub transactions: u64,
    /// The length of the good part of the file in bytes: truncate the file to it before writing.
    pub good_length: u64,
    /// What is wrong after it.
    pub damage: Option<Damage>,
}

/// Reads a database file to its end or to the first record that is damaged or does not fit the
/// schema.
///
/// # Errors
/// `I/O error` or `syntax error` only when there is no schema to begin with: the file is empty, or
/// its first record is bad.
pub fn load(input: impl BufRead, seed: u128) -> Result<Loaded, Error> {
    let mut reader = Reader::new(input);
    let Some(first) = reader.next() else {
        let damage = reader
            .damage()
            .map_or("the file is empty".to_owned(), Damage::to_string);
        return Err(Error::new(
            ErrorKind::Io,
            format!("no schema in the database file: {damage}"),
        ));
    };
    let schema = DatabaseSchema::from_json(&Value::Object(first.json))?;
    let mut loaded = Loaded {
        database: Database::new(schema, seed),
        transactions: 0,
        good_length: reader.good_length(),
        damage: None,
    };
    while let Some(record) = reader.next() {
        if let Err(error) = apply(&mut loaded.database, &record) {
            loaded.damage = Some(Damage {
                offset: record.offset,
                reason: error.to_string(),
            });
            return Ok(loaded);
        }
        loaded.transactions += 1;
        loaded.good_length = reader.good_length();
    }
    loaded.damage = reader.damage().cloned();
    Ok(loaded)
}

/// Applies one transaction record, with references and indexes. Constraints were checked before it
/// was written.
///
/// # Errors
/// When the record does not fit the schema or the rows; then nothing changes.
pub fn apply(db: &mut Database, record: &Record) -> Result<(), Error> {
    let schema = db.schema().clone();
    let is_diff = record.json.get("_is_diff").and_then(Value::as_bool).unwrap_or(false);
    let mut changes: Vec<(usize, Uuid, Option<Arc<Row>>)> = Vec::new();
    for (name, rows) in record.json.iter().filter(|(name, _)| !name.starts_with('_')) {
        let Some(table) = schema.table_index(name) else {
            return Err(Error::new(ErrorKind::UnknownTable, format!("No table named {name}.")));
        };
        let rows = rows.as_object().ok_or_else(|| Error::syntax(rows, "object expected"))?;
        for (uuid, row) in rows {
            let bad = |_| Error::new(ErrorKind::Syntax, format!("\"{uuid}\" is not a valid UUID"));
            let uuid: Uuid = uuid.parse().map_err(bad)?;
            let new = match row {
                Value::Null => None,
                Value::Object(values) => Some(Arc::new(new_row(db, table, uuid, values, is_diff)?)),
                _ => return Err(Error::syntax(row, "row must be JSON object")),
            };
            if new.is_none() && db.row(table, uuid).is_none() {
                return Err(Error::new(
                    ErrorKind::Ovsdb,
                    format!("deletes row {uuid}, which does not exist, in table {name}"),
                ));
            }
            changes.push((table, uuid, new));
        }
    }
    for (table, uuid, new) in changes {
        db.replace_row(table, uuid, new);
    }
    Ok(())
}

/// The existing or new row with `values` applied.
fn new_row(
    db: &mut Database,
    table: usize,
    uuid: Uuid,
    values: &Map<String, Value>,
    is_diff: bool,
) -> Result<Row, Error> {
    let schema = db.schema().clone();
    let definition = &schema.tables()[table];
    let old = db.row(table, uuid).cloned();
    let mut row = old
        .as_ref()
        .map_or_else(|| Row::new(definition, uuid), |row| Row::clone(row));
    for (name, value) in values {
        let Some(at) = definition.column_index(name) else {
            let details = format!("No column {name} in table {}.", definition.name());
            return Err(Error::new(ErrorKind::UnknownColumn, details));
        };
        let kind = &definition.columns()[at].kind;
        let value = if is_diff && old.is_some() {
            let diff = Datum::from_json_relaxed(value, kind, &mut crate::atom::no_names)?;
            row.get(at).apply_diff(&diff, kind)
        } else {
            Datum::from_plain_json(value, kind)?
        };
        if value.len() < kind.min || value.len() > kind.max {
            let details = format!("Attempted to store {} elements in {}.", value.len(), kind.describe());
            return Err(Error::constraint(details));
        }
        row.set(at, value);
    }
    row.set(COL_VERSION, Datum::one(db.uuids.next_uuid()));
    Ok(row)
}
