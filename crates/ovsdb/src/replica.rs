//! A database that follows another server's: the updates of a monitor become transactions here.
//!
//! The other server is not trusted. Every value is checked against the local schema, and every
//! constraint is checked before a transaction is committed. An error changes nothing.

use crate::commit::Commit;
use crate::database::Database;
use crate::datum::Datum;
use crate::error::{Error, ErrorKind};
use crate::row::Row;
use crate::schema::COL_VERSION;
use crate::txn;
use crate::uuid::Uuid;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// The form of updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateForm {
    /// `<table-updates>` (RFC 7047 §4.1.6): a changed row is complete.
    Rows,
    /// `<table-updates2>` (ovsdb-server(7) §4.1.14): a changed row has the differences.
    Differences,
}

/// The rows that a transaction sets or deletes: the table's number, the row's UUID, its new value.
pub(crate) type NewRows = Vec<(usize, Uuid, Option<Row>)>;

impl Database {
    /// Makes the contents of the database equal to the initial `updates` of a monitor of all tables
    /// but those that `keep` holds for: these stay as they are. `id` is the UUID of the last
    /// transaction, if the other server numbers transactions.
    ///
    /// # Errors
    /// The updates do not fit the schema, or break a constraint.
    pub fn adopt(
        &mut self,
        updates: &Value,
        form: UpdateForm,
        id: Option<Uuid>,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Arc<Commit>>, Error> {
        let mut rows = self.parse_updates(updates, form, true)?;
        let present: HashSet<(usize, Uuid)> = rows.iter().map(|(table, uuid, _)| (*table, *uuid)).collect();
        for (table, schema) in self.schema().clone().tables().iter().enumerate() {
            if keep(schema.name()) {
                continue;
            }
            let gone = self.rows(table).map(|row| row.uuid());
            let gone = gone.filter(|uuid| !present.contains(&(table, *uuid)));
            rows.extend(gone.map(|uuid| (table, uuid, None)));
        }
        txn::apply(self, rows, id)
    }

    /// Applies the `updates` of one transaction of the other server.
    ///
    /// # Errors
    /// As [`Database::adopt`]; also when they change rows that do not exist.
    pub fn follow(
        &mut self,
        updates: &Value,
        form: UpdateForm,
        id: Option<Uuid>,
    ) -> Result<Option<Arc<Commit>>, Error> {
        let rows = self.parse_updates(updates, form, false)?;
        txn::apply(self, rows, id)
    }

    /// `initial` updates have whole rows only.
    fn parse_updates(&self, updates: &Value, form: UpdateForm, initial: bool) -> Result<NewRows, Error> {
        let schema = self.schema().clone();
        let mut parsed = Vec::new();
        for (name, rows) in object(updates)? {
            let Some(at) = schema.table_index(name) else {
                return Err(Error::new(ErrorKind::UnknownTable, format!("No table named {name}.")));
            };
            for (uuid, update) in object(rows)? {
                let bad = |_| Error::new(ErrorKind::Syntax, format!("\"{uuid}\" is not a valid UUID"));
                let uuid: Uuid = uuid.parse().map_err(bad)?;
                let new = self.parse_row(at, uuid, object(update)?, form, initial)?;
                parsed.push((at, uuid, new));
            }
        }
        Ok(parsed)
    }

    fn parse_row(
        &self,
        table: usize,
        uuid: Uuid,
        update: &Map<String, Value>,
        form: UpdateForm,
        initial: bool,
    ) -> Result<Option<Row>, Error> {
        let definition = &self.schema().tables()[table];
        let fresh = || {
            let mut row = Row::new(definition, uuid);
            // A row that turns out to be the same is not a change.
            if let Some(present) = self.row(table, uuid) {
                row.set(COL_VERSION, present.get(COL_VERSION).clone());
            }
            row
        };
        let present = || self.row(table, uuid).map(|row| Row::clone(row));
        let absent = || {
            let details = format!(
                "changes row {uuid}, which does not exist, in table {}",
                definition.name()
            );
            Error::new(ErrorKind::Ovsdb, details)
        };
        let (content, row, differs) = match form {
            UpdateForm::Rows => match (update.get("new"), update.get("old")) {
                (Some(new), _) => (new, present().unwrap_or_else(fresh), false),
                (None, Some(_)) => return present().map(|_| None).ok_or_else(absent),
                (None, None) => return Err(Error::syntax(&Value::Object(update.clone()), "no row in a row update")),
            },
            UpdateForm::Differences => {
                let kind = update.iter().next().map(|(kind, content)| (kind.as_str(), content));
                match kind {
                    // Columns with their default values are left out.
                    Some(("initial" | "insert", content)) => (content, fresh(), false),
                    Some(("modify", content)) if !initial => (content, present().ok_or_else(absent)?, true),
                    Some(("delete", _)) if !initial => return present().map(|_| None).ok_or_else(absent),
                    _ => {
                        return Err(Error::syntax(
                            &Value::Object(update.clone()),
                            "unknown kind of row update",
                        ));
                    }
                }
            }
        };
        self.assign(table, row, object(content)?, differs).map(Some)
    }

    fn assign(&self, table: usize, mut row: Row, content: &Map<String, Value>, differs: bool) -> Result<Row, Error> {
        let definition = &self.schema().tables()[table];
        // The server that changes a row gives it a version of its own.
        for (name, value) in content.iter().filter(|(name, _)| !name.starts_with('_')) {
            let at = definition.user_columns().find(|(_, column)| column.name == *name);
            let Some((at, column)) = at else {
                let details = format!("No column {name} in table {}.", definition.name());
                return Err(Error::new(ErrorKind::UnknownColumn, details));
            };
            let kind = &column.kind;
            let value = if differs && kind.is_composite() {
                let difference = Datum::from_json_relaxed(value, kind, &mut crate::atom::no_names)?;
                row.get(at).apply_diff(&difference, kind)
            } else {
                Datum::from_plain_json(value, kind)?
            };
            value.check(kind)?;
            if value.len() < kind.min || value.len() > kind.max {
                let details = format!("Attempted to store {} elements in {}.", value.len(), kind.describe());
                return Err(Error::constraint(details));
            }
            row.set(at, value);
        }
        Ok(row)
    }
}

fn object(value: &Value) -> Result<&Map<String, Value>, Error> {
    value.as_object().ok_or_else(|| Error::syntax(value, "object expected"))
}
