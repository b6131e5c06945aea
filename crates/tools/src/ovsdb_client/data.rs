//! Commands that read and write the contents of a database.

use mgmt::jsonrpc::Connection;
use ovsdb::{COL_UUID, COL_VERSION, Datum, TableSchema, no_names};
use serde_json::{Value, json};

use super::Client;
use crate::common::{Failure, parse_json};
use crate::table::{Cell, Table};

impl Client {
    pub(super) async fn transact(&self, rpc: &mut Connection) -> Result<(), Failure> {
        let params = self.parse_transaction()?;
        let reply = self.call(rpc, "transact", params).await?;
        self.print_json(&reply)
    }

    pub(super) async fn query(&self, rpc: &mut Connection) -> Result<(), Failure> {
        let mut params = self.parse_transaction()?;
        params.push(json!({"op": "abort"}));
        let mut reply = self.call(rpc, "transact", params).await?;
        if let Value::Array(results) = &mut reply {
            results.pop_if(|last| last.get("error").is_some_and(|e| e == "aborted"));
        }
        self.print_json(&reply)
    }

    fn parse_transaction(&self) -> Result<Vec<Value>, Failure> {
        match parse_json(&self.args[0])? {
            Value::Array(params) if params.first().is_some_and(Value::is_string) => Ok(params),
            _ => Err(Failure::new("not a valid OVSDB query")),
        }
    }

    pub(super) async fn dump(&mut self, rpc: &mut Connection, database: &str) -> Result<(), Failure> {
        let schema = self.fetch_schema(rpc, database).await?;
        let columns = self.args.split_off(self.args.len().min(1));
        let selected: Vec<Selection<'_>> = match self.args.first() {
            None => schema.tables().iter().map(Selection::all).collect(),
            Some(name) => {
                let table = schema
                    .table(name)
                    .ok_or_else(|| Failure::new(format!("No table \"{name}\" found.")))?;
                vec![Selection::new(table, &columns)?]
            }
        };
        let mut params = vec![Value::from(database)];
        params.extend(selected.iter().map(Selection::operation));
        let reply = self.call(rpc, "transact", params).await?;
        let none = Value::Null;
        for (i, selection) in selected.iter().enumerate() {
            let table = selection.table(reply.get(i).unwrap_or(&none))?;
            self.print_table(&table)?;
        }
        Ok(())
    }
}

/// Columns of a table to print.
struct Selection<'a> {
    table: &'a TableSchema,
    /// Numbers of columns in the order of printing: `_uuid`, then by name.
    columns: Vec<usize>,
}

impl<'a> Selection<'a> {
    /// All columns but the row's version.
    fn all(table: &'a TableSchema) -> Selection<'a> {
        Selection::ordered(table, (0..table.columns().len()).collect())
    }

    /// The columns named, all if none is.
    fn new(table: &'a TableSchema, names: &[String]) -> Result<Selection<'a>, Failure> {
        if names.is_empty() {
            return Ok(Selection::all(table));
        }
        let number = |name: &String| {
            table
                .column_index(name)
                .ok_or_else(|| Failure::new(format!("Table \"{}\" has no column {name}.", table.name())))
        };
        let columns: Result<Vec<usize>, Failure> = names.iter().map(number).collect();
        Ok(Selection::ordered(table, columns?))
    }

    fn ordered(table: &'a TableSchema, mut columns: Vec<usize>) -> Selection<'a> {
        columns.retain(|c| *c != COL_VERSION);
        columns.sort_by_key(|c| (*c != COL_UUID, &table.columns()[*c].name));
        Selection { table, columns }
    }

    fn names(&self) -> Vec<&str> {
        self.columns
            .iter()
            .map(|c| self.table.columns()[*c].name.as_str())
            .collect()
    }

    fn operation(&self) -> Value {
        json!({"op": "select", "table": self.table.name(), "where": [], "columns": self.names()})
    }

    /// The rows of the operation's result, sorted by value, so that equal databases print alike
    /// with any UUIDs.
    fn table(&self, result: &Value) -> Result<Table, Failure> {
        let name = self.table.name();
        let rows = result.get("rows").and_then(Value::as_array).ok_or_else(|| {
            Failure::new(format!(
                "{name} table reply is not an object with a \"rows\" member array: {result}"
            ))
        })?;
        let mut parsed: Vec<Vec<Datum>> = Vec::with_capacity(rows.len());
        for row in rows {
            let cell = |c: &usize| {
                let column = &self.table.columns()[*c];
                let json = row
                    .get(&column.name)
                    .ok_or_else(|| Failure::new(format!("{name} table reply lacks column {}", column.name)))?;
                Datum::from_json_relaxed(json, &column.kind, &mut no_names).map_err(|e| Failure::new(e.to_string()))
            };
            parsed.push(self.columns.iter().map(cell).collect::<Result<_, _>>()?);
        }
        let first = usize::from(self.columns.first() == Some(&COL_UUID));
        parsed.sort_by(|a, b| a[first..].cmp(&b[first..]).then_with(|| a.cmp(b)));

        let mut table = Table::new(self.names());
        table.caption = Some(format!("{name} table"));
        for row in parsed {
            let kinds = self.columns.iter().map(|c| self.table.columns()[*c].kind.clone());
            table.add_row(row.into_iter().zip(kinds).map(|(d, k)| Cell::Datum(d, k)).collect());
        }
        Ok(table)
    }
}
