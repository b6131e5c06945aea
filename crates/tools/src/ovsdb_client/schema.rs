//! Commands about databases and their schemas.

use mgmt::jsonrpc::Connection;
use ovsdb::DatabaseSchema;
use serde_json::{Value, json};

use super::Client;
use crate::common::{Failure, print, read_schema};
use crate::table::{Cell, Table};

impl Client {
    pub(super) async fn list_dbs(&self, rpc: &mut Connection) -> Result<(), Failure> {
        let mut names = self.fetch_databases(rpc).await?;
        names.sort_unstable();
        print(&names.iter().map(|name| format!("{name}\n")).collect::<String>())
    }

    pub(super) async fn get_schema(&self, rpc: &mut Connection, database: &str) -> Result<(), Failure> {
        let schema = self.fetch_schema(rpc, database).await?;
        self.print_json(&schema.to_json())
    }

    pub(super) async fn get_schema_version(&self, rpc: &mut Connection, database: &str) -> Result<(), Failure> {
        print(&format!("{}\n", self.fetch_schema(rpc, database).await?.version()))
    }

    pub(super) async fn get_schema_cksum(&self, rpc: &mut Connection, database: &str) -> Result<(), Failure> {
        print(&format!("{}\n", self.fetch_schema(rpc, database).await?.cksum()))
    }

    pub(super) async fn list_tables(&mut self, rpc: &mut Connection, database: &str) -> Result<(), Failure> {
        let schema = self.fetch_schema(rpc, database).await?;
        let mut table = Table::new(["Table"]);
        for found in schema.tables() {
            table.add_row(vec![Cell::Text(found.name().to_owned())]);
        }
        self.print_table(&table)
    }

    pub(super) async fn list_columns(&mut self, rpc: &mut Connection, database: &str) -> Result<(), Failure> {
        let schema = self.fetch_schema(rpc, database).await?;
        let wanted = self.args.first();
        let headings: &[&str] = if wanted.is_some() {
            &["Column", "Type"]
        } else {
            &["Table", "Column", "Type"]
        };
        let mut table = Table::new(headings.iter().copied());
        for found in schema.tables() {
            if wanted.is_some_and(|name| name != found.name()) {
                continue;
            }
            for column in found.columns() {
                let mut cells = vec![Cell::Text(column.name.clone()), Cell::Json(column.kind.to_json())];
                if wanted.is_none() {
                    cells.insert(0, Cell::Text(found.name().to_owned()));
                }
                table.add_row(cells);
            }
        }
        self.print_table(&table)
    }

    pub(super) async fn needs_conversion(&self, rpc: &mut Connection) -> Result<(), Failure> {
        let schema = read_schema(&self.args[0])?;
        let current = self.fetch_schema(rpc, schema.name()).await?;
        print(if schema == current { "no\n" } else { "yes\n" })
    }

    pub(super) async fn convert(&self, rpc: &mut Connection) -> Result<(), Failure> {
        let schema = read_schema(&self.args[0])?;
        // A server closes clients that do not know that databases change, this one included.
        self.call(rpc, "set_db_change_aware", vec![json!(true)]).await?;
        self.call(rpc, "convert", vec![json!(schema.name()), schema.to_json()])
            .await?;
        Ok(())
    }

    pub(super) async fn fetch_databases(&self, rpc: &mut Connection) -> Result<Vec<String>, Failure> {
        let reply = self.call(rpc, "list_dbs", Vec::new()).await?;
        let names: Option<Vec<String>> = reply
            .as_array()
            .and_then(|names| names.iter().map(|n| n.as_str().map(str::to_owned)).collect());
        names.ok_or_else(|| Failure::new("list_dbs response is not array of strings"))
    }

    pub(super) async fn fetch_schema(&self, rpc: &mut Connection, database: &str) -> Result<DatabaseSchema, Failure> {
        let reply = self.call(rpc, "get_schema", vec![Value::from(database)]).await?;
        DatabaseSchema::from_json(&reply).map_err(|e| Failure::new(e.to_string()))
    }
}
