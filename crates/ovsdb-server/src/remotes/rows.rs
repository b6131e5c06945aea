//! Remotes that rows of a database name: `db:DATABASE,TABLE,COLUMN` (ovsdb-server(1), `--remote`).
//!
//! The column either holds targets, or refers to rows with a column `target`. The server writes the
//! state of a remote to `is_connected` and `status` of its row.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ovsdb::{Atom, AtomicType, Database, Row, TableSchema, Uuid};
use serde_json::{Value, json};

use super::{Settings, State};
use crate::core::Core;
use crate::server::Inner;

/// A column that names remotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowSource {
    db: String,
    table: String,
    column: String,
}

/// A row that a column refers to.
struct TargetRow {
    db: String,
    table: String,
    uuid: Uuid,
    target: String,
    settings: Settings,
}

impl RowSource {
    /// Parses a `db:` remote; `None` for other remotes.
    pub(super) fn parse(remote: &str) -> Option<Result<RowSource, String>> {
        let words: Vec<&str> = remote.strip_prefix("db:")?.split(',').collect();
        Some(match words[..] {
            [db, table, column] => Ok(RowSource {
                db: db.into(),
                table: table.into(),
                column: column.into(),
            }),
            _ => Err("invalid syntax".to_owned()),
        })
    }

    /// Whether the column exists and can name remotes.
    pub(super) fn check(&self, core: &Core) -> Result<(), String> {
        let db = core
            .database(&self.db)
            .ok_or_else(|| format!("no database named {}", self.db))?;
        let table = db.schema().table(&self.table);
        let table = table.ok_or_else(|| format!("no table named {}", self.table))?;
        let column = table.column_index(&self.column).map(|at| &table.columns()[at]);
        let column = column.ok_or_else(|| format!("table \"{}\" has no column \"{}\"", self.table, self.column))?;
        let key = &column.kind.key;
        let fits =
            column.kind.value.is_none() && (key.atomic_type() == AtomicType::String || key.reference().is_some());
        let why = || {
            format!(
                "type mismatch: table \"{}\" column \"{}\" should be strings or references",
                self.table, self.column
            )
        };
        if fits { Ok(()) } else { Err(why()) }
    }

    /// The tables whose changes may change the remotes.
    pub(super) fn tables(&self, core: &Core) -> Vec<(String, String)> {
        let mut tables = vec![(self.db.clone(), self.table.clone())];
        if let Some((_, referenced)) = core.database(&self.db).and_then(|db| self.referenced(db)) {
            tables.push((self.db.clone(), referenced.name().to_owned()));
        }
        tables
    }

    /// The remotes that the column names now.
    pub(super) fn targets(&self, core: &Core) -> BTreeMap<String, Settings> {
        let rows = self.rows(core).into_iter().map(|row| (row.target, row.settings));
        let texts = self
            .values(core)
            .into_iter()
            .filter_map(|atom| Some(atom.as_str()?.to_owned()));
        rows.chain(texts.map(|text| (text, Settings::default())))
            .filter(|(target, _)| !target.is_empty())
            .collect()
    }

    /// The rows that the column refers to now.
    fn rows(&self, core: &Core) -> Vec<TargetRow> {
        let Some(db) = core.database(&self.db) else {
            return Vec::new();
        };
        let Some((at, table)) = self.referenced(db) else {
            return Vec::new();
        };
        let uuids: BTreeSet<Uuid> = self.values(core).iter().filter_map(Atom::as_uuid).collect();
        let rows = uuids.into_iter().filter_map(|uuid| Some((uuid, db.row(at, uuid)?)));
        rows.map(|(uuid, row)| TargetRow {
            db: self.db.clone(),
            table: table.name().to_owned(),
            uuid,
            target: one(table, row, "target")
                .and_then(Atom::as_str)
                .unwrap_or_default()
                .to_owned(),
            settings: settings(table, row),
        })
        .collect()
    }

    /// The column's values in all rows.
    pub(super) fn values(&self, core: &Core) -> Vec<Atom> {
        let values = || {
            let db = core.database(&self.db)?;
            let at = db.schema().table_index(&self.table)?;
            let column = db.schema().tables()[at].column_index(&self.column)?;
            Some(db.rows(at).flat_map(|row| row.get(column).atoms().to_vec()).collect())
        };
        values().unwrap_or_default()
    }

    /// The table that the column refers to.
    fn referenced<'a>(&self, db: &'a Database) -> Option<(usize, &'a TableSchema)> {
        let table = db.schema().table(&self.table)?;
        let column = &table.columns()[table.column_index(&self.column)?];
        let at = db.schema().table_index(&column.kind.key.reference()?.table)?;
        Some((at, &db.schema().tables()[at]))
    }
}

/// A column's value, if the table has the column and the row has exactly one value in it.
fn one<'a>(table: &TableSchema, row: &'a Row, column: &str) -> Option<&'a Atom> {
    row.get(table.column_index(column)?).as_one()
}

fn settings(table: &TableSchema, row: &Row) -> Settings {
    let time = |column: &str| {
        let value = one(table, row, column).and_then(Atom::as_integer)?;
        Some(Duration::from_millis(u64::try_from(value).unwrap_or(0)))
    };
    Settings {
        probe: time("inactivity_probe"),
        max_backoff: time("max_backoff").unwrap_or(Settings::default().max_backoff),
        read_only: one(table, row, "read_only").and_then(Atom::as_bool).unwrap_or(false),
        role: one(table, row, "role")
            .and_then(Atom::as_str)
            .unwrap_or_default()
            .to_owned(),
        dscp: dscp(table, row).unwrap_or(Settings::default().dscp),
    }
}

/// `other_config:dscp`, if it is legal.
fn dscp(table: &TableSchema, row: &Row) -> Option<u8> {
    let config = row.get(table.column_index("other_config")?);
    let value = config.get_str("dscp")?.parse().ok()?;
    (value < 64).then_some(value)
}

impl Inner {
    /// Writes the remotes' states to their rows. Returns whether there are such rows.
    pub(crate) fn report_remotes(self: &std::rc::Rc<Self>) -> bool {
        let rows: Vec<TargetRow> = {
            let (core, remotes) = (self.core.borrow(), self.remotes.borrow());
            let sources = remotes.configured().filter_map(|name| RowSource::parse(name)?.ok());
            // The rows of a backup or relay are those of the other server.
            let own = sources.filter(|source| !core.is_backup(&source.db) && !core.is_relay(&source.db));
            own.flat_map(|source| source.rows(&core)).collect()
        };
        let mut ops: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for row in &rows {
            let Some(values) = self.report(row) else { continue };
            let condition = json!([["_uuid", "==", ["uuid", row.uuid.to_string()]]]);
            let update = json!({"op": "update", "table": row.table, "where": condition, "row": values});
            ops.entry(&row.db).or_default().push(update);
        }
        for (db, ops) in ops {
            self.flush();
            let now = self.now();
            self.core.borrow_mut().write_own(db, &ops, now);
            self.flush();
        }
        !rows.is_empty()
    }

    /// The status columns of a remote's row that its table has.
    fn report(&self, row: &TargetRow) -> Option<Value> {
        let (core, remotes) = (self.core.borrow(), self.remotes.borrow());
        let table = core.database(&row.db)?.schema().table(&row.table)?;
        let state = remotes.running.get(&row.target)?.state.borrow();
        let sessions = core.n_sessions(Some(&row.target));
        let (held, waiting) = core.remote_locks(&row.target);
        let mut status = describe(&state, sessions);
        if !held.is_empty() {
            status.push(("locks_held", held.join(" ")));
        }
        if !waiting.is_empty() {
            status.push(("locks_waiting", waiting.join(" ")));
        }
        let mut values = serde_json::Map::new();
        if table.column_index("is_connected").is_some() {
            values.insert("is_connected".into(), (sessions > 0).into());
        }
        if table.column_index("status").is_some() {
            values.insert("status".into(), json!(["map", status]));
        }
        Some(Value::Object(values))
    }
}

/// The pairs of `status` (ovs-vswitchd.conf.db(5), Manager).
fn describe(state: &State, sessions: usize) -> Vec<(&'static str, String)> {
    let mut status = Vec::new();
    let since = |at: Option<Instant>| at.map(|at| at.elapsed().as_secs().to_string());
    let mut put = |key, value: Option<String>| status.extend(value.map(|value| (key, value)));
    put("bound_port", state.bound_port.map(|port| port.to_string()));
    put("state", state.state.map(str::to_owned));
    put("last_error", state.last_error.clone());
    put("sec_since_connect", since(state.connected));
    put("sec_since_disconnect", since(state.disconnected));
    put("n_connections", (sessions > 1).then(|| sessions.to_string()));
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_of_rows_has_three_names() {
        let source = RowSource::parse("db:Open_vSwitch,Open_vSwitch,manager_options")
            .unwrap()
            .unwrap();
        assert_eq!(
            (source.db.as_str(), source.column.as_str()),
            ("Open_vSwitch", "manager_options")
        );
        assert!(RowSource::parse("db:x").unwrap().is_err());
        assert_eq!(RowSource::parse("punix:db.sock"), None);
    }

    #[test]
    fn a_status_has_only_what_is_known() {
        let state = State {
            bound_port: Some(6640),
            ..State::default()
        };
        assert_eq!(
            describe(&state, 2),
            [("bound_port", "6640".to_owned()), ("n_connections", "2".to_owned())]
        );
    }
}
