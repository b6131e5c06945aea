//! `show-log`: what a database file tells of its past.

use std::collections::HashMap;
use std::fmt::Write;

use ovsdb::log::{Reader, Record};
use ovsdb::{DatabaseSchema, Datum, TableSchema, no_names};
use serde_json::{Map, Value};

use super::file;
use crate::common::{Failure, print};

/// Prints the records of the file `name`: with `detail` 1 what rows they change, with 2 how.
pub(super) fn show_log(name: &str, detail: u32) -> Result<(), Failure> {
    let bytes = file::read(name)?;
    let mut reader = Reader::new(bytes.as_slice());
    let mut schema = None;
    let mut names = HashMap::new();
    for (number, record) in reader.by_ref().enumerate() {
        let mut out = format!("record {number}:");
        match &schema {
            None => {
                let parsed =
                    DatabaseSchema::from_json(&Value::Object(record.json)).map_err(|e| Failure::new(e.to_string()))?;
                let (name, version, cksum) = (parsed.name(), parsed.version(), parsed.cksum());
                let _ = writeln!(out, " \"{name}\" schema, version=\"{version}\", cksum=\"{cksum}\"\n");
                schema = Some(parsed);
            }
            Some(schema) => transaction(schema, &record, detail, &mut names, &mut out),
        }
        print(&out)?;
    }
    match reader.damage() {
        Some(damage) => Err(file::damaged(name, Some(damage))),
        None => Ok(()),
    }
}

/// One transaction. `names` keeps the `name` column of rows, by UUID.
fn transaction(
    schema: &DatabaseSchema,
    record: &Record,
    detail: u32,
    names: &mut HashMap<String, String>,
    out: &mut String,
) {
    let json = &record.json;
    if let Some(date) = json.get("_date").and_then(Value::as_i64) {
        // Very old files count seconds.
        let millis = if date < (1 << 31) { date * 1000 } else { date };
        let _ = write!(out, " {}", telemetry::timestamp_of(millis, "%Y-%m-%d %H:%M:%S.###"));
    }
    if let Some(comment) = json.get("_comment").and_then(Value::as_str) {
        let _ = write!(out, " \"{comment}\"");
    }
    out.push('\n');
    if detail == 0 {
        return;
    }
    let is_diff = json.get("_is_diff").is_some_and(|d| d == true);
    for (table_name, rows) in json {
        let (Some(table), Some(rows)) = (schema.table(table_name), rows.as_object()) else {
            continue;
        };
        for (uuid, row) in rows {
            change(table, uuid, row, is_diff, detail, names, out);
        }
    }
    out.push('\n');
}

fn change(
    table: &TableSchema,
    uuid: &str,
    row: &Value,
    is_diff: bool,
    detail: u32,
    names: &mut HashMap<String, String>,
    out: &mut String,
) {
    let short = uuid.get(..8).unwrap_or(uuid);
    let given = row.get("name").and_then(Value::as_str).map(|n| format!("\"{n}\""));
    let known = names.get(uuid).cloned();
    let _ = write!(out, "  table {}", table.name());
    match (&known, &given) {
        (None, Some(name)) if row.is_object() => {
            let _ = writeln!(out, " insert row {name} ({short}):");
        }
        (None, _) if row.is_object() => {
            let _ = writeln!(out, " insert row {short}:");
        }
        (known, _) => {
            let diff = if is_diff { " diff" } else { "" };
            let _ = writeln!(out, " row {} ({short}){diff}:", known.as_deref().unwrap_or(short));
        }
    }
    match row {
        Value::Object(columns) => {
            let name = given.or(known).unwrap_or_else(|| short.to_owned());
            names.insert(uuid.to_owned(), name);
            if detail > 1 {
                values(table, columns, out);
            }
        }
        _ => {
            names.remove(uuid);
            out.push_str("    delete row\n");
        }
    }
}

fn values(table: &TableSchema, columns: &Map<String, Value>, out: &mut String) {
    for (name, json) in columns {
        let text = table.column(name).and_then(|column| {
            let datum = Datum::from_json_relaxed(json, &column.kind, &mut no_names).ok()?;
            Some(datum.to_text(&column.kind))
        });
        let _ = writeln!(out, "    {name}={}", text.unwrap_or_else(|| json.to_string()));
    }
}
