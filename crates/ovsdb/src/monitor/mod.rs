//! Monitors: the tables, columns and rows that a client watches, and the updates it gets (RFC 7047
//! §4.1.5, ovsdb-server(7) §4.1.12 to §4.1.16).
//!
//! A [`Monitor`] is a pure function from a commit to its client's [`Updates`]. Most clients watch
//! the same; [`Fanout`] makes the text of an update once for all equal monitors.

mod fanout;
mod updates;

pub use fanout::Fanout;
pub use updates::Updates;

use crate::atom::no_names;
use crate::commit::{Commit, RowChange};
use crate::condition::Condition;
use crate::database::Database;
use crate::error::{Error, ErrorKind};
use crate::parser::{Kinds, Name, Parser};
use crate::row::Row;
use crate::schema::{COL_UUID, DatabaseSchema, TableSchema};
use crate::uuid::Uuid;
use foldhash::fast::FixedState;
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use updates::{Kind, RowUpdate};

/// Which request made a monitor, and so the form of its updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MonitorVersion {
    /// `monitor`: whole old and new values, in `update`.
    Monitor,
    /// `monitor_cond`: conditions and differences, in `update2`.
    Cond,
    /// `monitor_cond_since`: the same with the UUID of the transaction, in `update3`.
    CondSince,
}

impl MonitorVersion {
    /// The method of the notifications that carry updates.
    pub fn method(self) -> &'static str {
        match self {
            MonitorVersion::Monitor => "update",
            MonitorVersion::Cond => "update2",
            MonitorVersion::CondSince => "update3",
        }
    }
}

/// What a client watches in one database.
#[derive(Debug, Clone)]
pub struct Monitor {
    schema: Arc<DatabaseSchema>,
    version: MonitorVersion,
    tables: Arc<Vec<MonitorTable>>,
    /// A hash of what is watched, the same for equal monitors.
    fingerprint: u64,
}

/// What a client watches in one table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MonitorTable {
    /// The table's number.
    table: usize,
    /// The columns, sorted by name, each with its events.
    columns: Vec<(usize, Select)>,
    /// The events of all columns together.
    select: Select,
    /// The watched rows: those that meet any clause.
    condition: Condition,
}

/// Events that a monitor selects (RFC 7047 §4.1.5, `<monitor-select>`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Select {
    initial: bool,
    insert: bool,
    delete: bool,
    modify: bool,
}

impl Select {
    fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::Initial => self.initial,
            Kind::Insert => self.insert,
            Kind::Delete => self.delete,
            Kind::Modify => self.modify,
        }
    }

    fn or(self, other: Select) -> Select {
        Select {
            initial: self.initial | other.initial,
            insert: self.insert | other.insert,
            delete: self.delete | other.delete,
            modify: self.modify | other.modify,
        }
    }
}

impl Monitor {
    /// Parses the `<monitor-requests>` of a request.
    ///
    /// # Errors
    /// `syntax error`, `unknown column`, `unknown function`, `constraint violation`.
    pub fn new(db: &Database, requests: &Value, version: MonitorVersion) -> Result<Monitor, Error> {
        let schema = db.schema().clone();
        let object = requests.as_object();
        let object = object.ok_or_else(|| Error::syntax(requests, "monitor-requests must be object"))?;
        let mut tables = Vec::new();
        for (name, requests) in object {
            let table = find_table(&schema, name)?;
            let definition = &schema.tables()[table];
            let mut monitored = MonitorTable::new(table);
            let mut conditions = Vec::new();
            // A single request without an array around it is an old form that clients still send.
            let list = requests
                .as_array()
                .map_or(std::slice::from_ref(requests), Vec::as_slice);
            for request in list {
                conditions.push(monitored.add_request(definition, request, version)?);
            }
            monitored
                .columns
                .sort_by(|a, b| definition.columns()[a.0].name.cmp(&definition.columns()[b.0].name));
            monitored.condition = any_of(conditions);
            tables.push(monitored);
        }
        tables.sort_by_key(|table| table.table);
        let fingerprint = fingerprint(&tables);
        Ok(Monitor {
            schema,
            version,
            tables: Arc::new(tables),
            fingerprint,
        })
    }

    /// Which request made it.
    pub fn version(&self) -> MonitorVersion {
        self.version
    }

    /// What the database holds now: the reply to the request.
    pub fn initial(&self, db: &Database) -> Updates {
        let mut rows = Vec::new();
        for (at, monitored) in self.tables.iter().enumerate() {
            if !monitored.select.initial {
                continue;
            }
            let matching = db.rows(monitored.table).filter(|row| monitored.condition.any(row));
            rows.extend(matching.map(|row| RowUpdate::new(at, Kind::Initial, row.uuid(), None, Some(row.clone()))));
        }
        self.updates(rows)
    }

    /// The updates for a commit, if it concerns the monitor.
    pub fn update(&self, commit: &Commit) -> Option<Updates> {
        let rows = self.row_updates(&commit.changes);
        (!rows.is_empty()).then(|| self.updates(rows))
    }

    /// The reply to `monitor_cond_since`: whether the history reaches back to transaction `last`,
    /// and the changes since then or, if not, all that the database holds.
    pub fn since(&self, db: &Database, last: Uuid) -> (bool, Updates) {
        let Some(commits) = db.since(last) else {
            return (false, self.initial(db));
        };
        let mut merged: BTreeMap<(usize, Uuid), RowChange> = BTreeMap::new();
        for change in commits.flat_map(|commit| &commit.changes) {
            let entry = merged.entry((change.table, change.uuid));
            entry
                .and_modify(|earlier| earlier.new = change.new.clone())
                .or_insert_with(|| change.clone());
        }
        let changes: Vec<RowChange> = merged.into_values().collect();
        (true, self.updates(self.row_updates(&changes)))
    }

    /// Changes conditions (`monitor_cond_change`); returns updates for rows that begin or cease to
    /// meet them.
    ///
    /// # Errors
    /// As [`Monitor::new`]; then nothing changes.
    pub fn change(&mut self, db: &Database, requests: &Value) -> Result<Option<Updates>, Error> {
        let object = requests.as_object();
        let object = object.ok_or_else(|| Error::syntax(requests, "monitor-cond-change-requests must be object"))?;
        let mut changed = self.tables.to_vec();
        for (name, requests) in object {
            let table = find_table(&self.schema, name)?;
            let Some(requests) = requests.as_array() else {
                let details = format!("table {name} no monitor-cond-change JSON array");
                return Err(Error::new(ErrorKind::Syntax, details));
            };
            let Some(monitored) = changed.iter_mut().find(|monitored| monitored.table == table) else {
                return Err(Error::new(
                    ErrorKind::Syntax,
                    format!("no table named {name} in monitor session"),
                ));
            };
            let mut conditions = Vec::new();
            for request in requests {
                conditions.push(change_request(&self.schema.tables()[table], request)?);
            }
            if !conditions.is_empty() {
                monitored.condition = any_of(conditions);
            }
        }
        if self.version == MonitorVersion::Monitor {
            return Ok(None);
        }
        let mut rows = Vec::new();
        for (at, (before, after)) in self.tables.iter().zip(&changed).enumerate() {
            if before.condition == after.condition {
                continue;
            }
            for row in db.rows(before.table) {
                match (before.condition.any(row), after.condition.any(row)) {
                    (false, true) if after.select.insert => {
                        rows.push(RowUpdate::new(at, Kind::Insert, row.uuid(), None, Some(row.clone())));
                    }
                    (true, false) if after.select.delete => {
                        rows.push(RowUpdate::new(at, Kind::Delete, row.uuid(), Some(row.clone()), None));
                    }
                    _ => {}
                }
            }
        }
        self.fingerprint = fingerprint(&changed);
        self.tables = Arc::new(changed);
        Ok((!rows.is_empty()).then(|| self.updates(rows)))
    }

    fn updates(&self, rows: Vec<RowUpdate>) -> Updates {
        Updates::new(self.clone(), rows)
    }

    /// The changes that concern the monitor. `changes` are grouped by table, in the order of
    /// `self.tables`.
    fn row_updates(&self, changes: &[RowChange]) -> Vec<RowUpdate> {
        let mut rows = Vec::new();
        let mut tables = self.tables.iter().enumerate().peekable();
        for change in changes {
            while tables
                .next_if(|(_, monitored)| monitored.table < change.table)
                .is_some()
            {}
            let Some(&(at, monitored)) = tables.peek() else { break };
            if monitored.table == change.table
                && let Some(kind) = monitored.event(change.old.as_deref(), change.new.as_deref())
            {
                rows.push(RowUpdate::new(
                    at,
                    kind,
                    change.uuid,
                    change.old.clone(),
                    change.new.clone(),
                ));
            }
        }
        rows
    }
}

/// Monitors are equal if they produce the same updates for every commit.
impl PartialEq for Monitor {
    fn eq(&self, other: &Monitor) -> bool {
        self.version == other.version
            && Arc::ptr_eq(&self.schema, &other.schema)
            && (Arc::ptr_eq(&self.tables, &other.tables) || self.tables == other.tables)
    }
}

impl Eq for Monitor {}

impl Hash for Monitor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.version.hash(state);
        self.fingerprint.hash(state);
    }
}

impl MonitorTable {
    fn new(table: usize) -> MonitorTable {
        MonitorTable {
            table,
            columns: Vec::new(),
            select: Select::default(),
            condition: Condition::default(),
        }
    }

    /// Adds the columns of one `<monitor-request>` and returns its condition.
    fn add_request(&mut self, table: &TableSchema, json: &Value, version: MonitorVersion) -> Result<Condition, Error> {
        let mut parser = Parser::new(json, Name::Named("table", table.name()));
        let columns = parser.optional("columns", Kinds::ARRAY);
        let select = parser.optional("select", Kinds::OBJECT);
        let condition = match version {
            MonitorVersion::Monitor => None,
            _ => parser.optional("where", Kinds::ARRAY),
        };
        parser.finish()?;
        let select = parse_select(table, select)?;
        let Some(json) = columns else {
            let all = (0..table.columns().len()).filter(|&column| column != COL_UUID);
            for column in all {
                self.add_column(table, json, column, select)?;
            }
            self.select = self.select.or(select);
            return parse_condition(table, condition);
        };
        for name in json.as_array().into_iter().flatten() {
            let name = name
                .as_str()
                .ok_or_else(|| Error::syntax(json, "array of column names expected"))?;
            let column = table.column_index(name);
            let column = column.ok_or_else(|| Error::syntax(json, format!("{name} is not a valid column name")))?;
            self.add_column(table, json, column, select)?;
        }
        self.select = self.select.or(select);
        parse_condition(table, condition)
    }

    fn add_column(&mut self, table: &TableSchema, json: &Value, column: usize, select: Select) -> Result<(), Error> {
        if self.columns.iter().any(|(added, _)| *added == column) {
            let name = &table.columns()[column].name;
            return Err(Error::syntax(json, format!("column {name} mentioned more than once")));
        }
        self.columns.push((column, select));
        Ok(())
    }

    /// What a change of a row is to the client.
    fn event(&self, old: Option<&Row>, new: Option<&Row>) -> Option<Kind> {
        let old = old.filter(|row| self.condition.any(row));
        let new = new.filter(|row| self.condition.any(row));
        let kind = match (old, new) {
            (None, None) => return None,
            (None, Some(_)) => Kind::Insert,
            (Some(_), None) => Kind::Delete,
            (Some(old), Some(new)) => {
                let changed =
                    |(column, select): &(usize, Select)| select.modify && old.get(*column) != new.get(*column);
                return self.columns.iter().any(changed).then_some(Kind::Modify);
            }
        };
        self.select.has(kind).then_some(kind)
    }
}

fn fingerprint(tables: &[MonitorTable]) -> u64 {
    FixedState::default().hash_one(tables)
}

fn find_table(schema: &DatabaseSchema, name: &str) -> Result<usize, Error> {
    schema
        .table_index(name)
        .ok_or_else(|| Error::new(ErrorKind::Syntax, format!("no table named {name}")))
}

fn parse_select(table: &TableSchema, json: Option<&Value>) -> Result<Select, Error> {
    let Some(json) = json else {
        return Ok(Select {
            initial: true,
            insert: true,
            delete: true,
            modify: true,
        });
    };
    let mut parser = Parser::new(json, Name::Select(table.name()));
    let mut flag = |name| {
        parser
            .optional(name, Kinds::BOOLEAN)
            .and_then(Value::as_bool)
            .unwrap_or(true)
    };
    let select = Select {
        initial: flag("initial"),
        insert: flag("insert"),
        delete: flag("delete"),
        modify: flag("modify"),
    };
    parser.finish()?;
    Ok(select)
}

fn parse_condition(table: &TableSchema, json: Option<&Value>) -> Result<Condition, Error> {
    json.map_or(Ok(Condition::default()), |json| {
        Condition::from_json(json, table, &mut no_names)
    })
}

/// Parses a `<monitor-cond-update-request>`.
fn change_request(table: &TableSchema, json: &Value) -> Result<Condition, Error> {
    let mut parser = Parser::new(json, Name::Named("table", table.name()));
    let columns = parser.optional("columns", Kinds::ARRAY);
    let condition = parser.optional("where", Kinds::ARRAY);
    parser.finish()?;
    if columns.is_some() {
        return Err(Error::syntax(json, "changing columns is unsupported"));
    }
    parse_condition(table, condition)
}

/// The condition that holds where any of these does.
fn any_of(conditions: Vec<Condition>) -> Condition {
    if conditions.iter().any(Condition::is_always) {
        return Condition::default();
    }
    Condition {
        clauses: conditions.into_iter().flat_map(|condition| condition.clauses).collect(),
    }
}
