//! `backup` and `restore`: a database as a file and back.

use std::io::{self, Read, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use mgmt::jsonrpc::Connection;
use ovsdb::log::{self, Record};
use ovsdb::{Atom, ColumnSchema, Database, DatabaseSchema, Uuid};
use serde_json::{Map, Value, json};

use super::Client;
use crate::common::{Failure, print};

impl Client {
    pub(super) async fn backup(&self, rpc: &mut Connection, database: &str) -> Result<(), Failure> {
        let schema = self.fetch_schema(rpc, database).await?;
        let mut params = vec![Value::from(database)];
        for table in schema.tables() {
            let kept = table.user_columns().filter(|(_, c)| c.persistent).map(|(_, c)| &c.name);
            let columns: Vec<&str> = std::iter::once("_uuid").chain(kept.map(String::as_str)).collect();
            params.push(json!({"op": "select", "table": table.name(), "where": [], "columns": columns}));
        }
        let reply = self.call(rpc, "transact", params).await?;
        let mut tables = Map::new();
        for (i, table) in schema.tables().iter().enumerate() {
            let rows = reply.get(i).and_then(|r| r.get("rows")).and_then(Value::as_array);
            let rows = rows.ok_or_else(|| Failure::new(format!("{} table reply has no \"rows\"", table.name())))?;
            let rows: Map<String, Value> = rows.iter().filter_map(name_row).collect();
            if !rows.is_empty() {
                tables.insert(table.name().to_owned(), Value::Object(rows));
            }
        }
        let failed = |e: ovsdb::Error| Failure::new(e.to_string());
        let mut bytes = log::schema_record(&schema);
        let mut copy = Database::new(schema, 0);
        log::apply(
            &mut copy,
            &Record {
                offset: 0,
                json: tables,
            },
        )
        .map_err(failed)?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let comment = Some("produced by \"ovsdb-client backup\"");
        bytes.extend(log::snapshot_record(&copy, comment, now as i64).unwrap_or_default());
        let mut out = mgmt::out::Stdout;
        out.write_all(&bytes)
            .and_then(|()| out.flush())
            .map_err(|e| Failure::new(format!("writing the backup failed ({e})")))
    }

    pub(super) async fn restore(&self, rpc: &mut Connection, database: &str) -> Result<(), Failure> {
        let wrong = |why: &str| Failure::new(format!("ovsdb error: /dev/stdin: {why}"));
        let mut bytes = Vec::new();
        io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map_err(|e| wrong(&e.to_string()))?;
        if bytes.is_empty() {
            return Err(wrong("cannot identify file type"));
        }
        if !bytes.starts_with(b"OVSDB JSON ") {
            return Err(wrong("unexpected file format"));
        }
        let backup = log::load(&mut bytes.as_slice(), 0).map_err(|e| wrong(&e.to_string()))?;
        if let Some(damage) = backup.damage {
            return Err(wrong(&damage.to_string()));
        }
        let backup = backup.database;

        let current = self.fetch_schema(rpc, database).await?;
        if let Some(difference) = difference(backup.schema(), &current) {
            if !self.force {
                return Err(Failure::new(format!(
                    "{difference} (use --force to override differences, or \"ovsdb-client \
                     convert\" to change the schema)"
                )));
            }
            tracing::info!(target: "ovsdb_client", "{difference}");
        }
        let mut params = vec![Value::from(backup.schema().name())];
        params.extend(restore_operations(&backup));
        let reply = self.call(rpc, "transact", params).await?;
        let failed = reply
            .as_array()
            .into_iter()
            .flatten()
            .find(|r| r.get("error").is_some());
        match failed {
            Some(error) => Err(Failure::new(format!("restore transaction failed: {error}"))),
            None => print(""),
        }
    }
}

/// A row of a `select` as name and contents.
fn name_row(row: &Value) -> Option<(String, Value)> {
    let mut row = row.as_object()?.clone();
    let uuid = row.remove("_uuid")?.get(1)?.as_str()?.to_owned();
    Some((uuid, Value::Object(row)))
}

/// The difference between two schemas, as text.
fn difference(backup: &DatabaseSchema, current: &DatabaseSchema) -> Option<String> {
    let differ = |what: &str, backup: &str, current: &str| {
        (backup != current)
            .then(|| format!("backup schema has {what} \"{backup}\" but database schema has {what} \"{current}\""))
    };
    differ("version", backup.version(), current.version())
        .or_else(|| differ("checksum", backup.cksum(), current.cksum()))
        .or_else(|| differ("name", backup.name(), current.name()))
        .or_else(|| (backup != current).then(|| "backup schema and database schema differ".to_owned()))
}

/// Operations that delete everything and insert what `backup` holds. UUIDs become names: clients
/// cannot choose them.
fn restore_operations(backup: &Database) -> Vec<Value> {
    let tables = || backup.schema().tables().iter().enumerate();
    let mut operations: Vec<Value> = tables()
        .map(|(_, table)| json!({"op": "delete", "table": table.name(), "where": []}))
        .collect();
    for (number, table) in tables() {
        for row in backup.rows(number) {
            let mut values = Map::new();
            for (c, column) in table.user_columns() {
                let datum = row.get(c);
                if column.persistent && !datum.is_default(&column.kind) {
                    let known = |uuid: Uuid| known_row(backup, column, uuid);
                    values.insert(column.name.clone(), rename(datum.to_json(&column.kind), &known));
                }
            }
            operations.push(json!({
                "op": "insert",
                "table": table.name(),
                "uuid-name": row_name(row.uuid()),
                "row": values,
            }));
        }
    }
    operations
}

/// Whether the column refers to rows, and to that one.
fn known_row(backup: &Database, column: &ColumnSchema, uuid: Uuid) -> bool {
    let bases = std::iter::once(&column.kind.key).chain(&column.kind.value);
    bases.filter_map(|base| base.reference()).any(|reference| {
        let number = backup.schema().table_index(&reference.table);
        number.is_some_and(|n| backup.row(n, uuid).is_some())
    })
}

/// Replaces `["uuid", …]` by `["named-uuid", …]` for the rows that `known` has.
fn rename(value: Value, known: &dyn Fn(Uuid) -> bool) -> Value {
    match value {
        Value::Array(items) => {
            if let [Value::String(tag), Value::String(text)] = items.as_slice()
                && tag == "uuid"
                && let Ok(uuid) = text.parse::<Uuid>()
                && known(uuid)
            {
                return json!(["named-uuid", row_name(uuid)]);
            }
            items.into_iter().map(|item| rename(item, known)).collect()
        }
        other => other,
    }
}

fn row_name(uuid: Uuid) -> String {
    format!("row{}", Atom::from(uuid).to_text().replace('-', "_"))
}
