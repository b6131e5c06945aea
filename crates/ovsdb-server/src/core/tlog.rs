//! Logs the rows that transactions change, for the tables that a user chose
//! (`ovsdb-server/tlog-set`).

use ovsdb::{Commit, Row, TableSchema};

use super::{Core, Hosted};

impl Core {
    /// `ovsdb-server/tlog-set`.
    pub(crate) fn set_tlog(&mut self, which: &str, state: &str) -> Result<(), String> {
        let (db, table) = match which.split(':').collect::<Vec<_>>()[..] {
            [db, table] if !db.is_empty() && !table.is_empty() => (db, table),
            _ => return Err("invalid DB:TABLE argument".to_owned()),
        };
        let on = match state {
            "on" => true,
            "off" => false,
            _ => return Err("invalid command argument".to_owned()),
        };
        let hosted = self.databases.get_mut(db).ok_or("no such database")?;
        if hosted.db.schema().table(table).is_none() {
            return Err("no such table".to_owned());
        }
        match on {
            true => hosted.logged.insert(table.to_owned()),
            false => hosted.logged.remove(table),
        };
        Ok(())
    }

    /// `ovsdb-server/tlog-list`.
    pub(crate) fn tlog_list(&self) -> String {
        let mut list = format!(
            "{:<16}{:<28}{}\n{:<16}{:<28}{}\n",
            "database", "table", "logging", "--------", "-----", "-------"
        );
        for (name, hosted) in &self.databases {
            list += &format!("{name:<16} \n");
            let mut tables: Vec<&str> = hosted.db.schema().tables().iter().map(TableSchema::name).collect();
            tables.sort_unstable();
            for table in tables {
                let state = if hosted.logged.contains(table) { "ON" } else { "OFF" };
                list += &format!("{:16}{table:<27} {state}\n", "");
            }
        }
        list
    }
}

impl Hosted {
    /// Logs the changes of a commit in the chosen tables.
    pub(super) fn log_changes(&self, commit: &Commit) {
        if self.logged.is_empty() {
            return;
        }
        for change in &commit.changes {
            let table = &self.db.schema().tables()[change.table];
            let (op, row) = match (&change.old, &change.new) {
                (None, Some(new)) => ("inserted", new),
                (Some(_), Some(new)) => ("updated", new),
                (Some(old), None) => ("deleted", old),
                (None, None) => continue,
            };
            if self.logged.contains(table.name()) {
                let line = describe(table, row);
                telemetry::info_limited!(target: "transaction", "table:{},op:{op}{line}", table.name());
            }
        }
    }
}

/// The columns of a row that do not have their default values.
fn describe(table: &TableSchema, row: &Row) -> String {
    let mut line = String::new();
    for (column, value) in table.columns().iter().zip(row.fields()) {
        if !value.is_default(&column.kind) {
            line += &format!(",{}:{}", column.name, value.to_text(&column.kind));
        }
    }
    line
}
