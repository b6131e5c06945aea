//! The operations of a transaction (RFC 7047 §5.2).

use super::rbac::Change;
use super::{Stop, Txn};
use crate::condition::Condition;
use crate::error::{Error, ErrorKind};
use crate::json::{Json, JsonKind};
use crate::mutation::Mutation;
use crate::parser::{Kinds, Parser};
use crate::row::Row;
use crate::schema::{COL_UUID, COL_VERSION, FIRST_COLUMN, TableSchema};
use crate::uuid::Uuid;
use crate::{Database, Datum, Symbols};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The columns that a `<row>` of a request sets, with their values, in the order of their numbers.
type Values = Vec<(usize, Datum)>;

impl Txn<'_> {
    /// `insert` (§5.2.1).
    pub(super) fn insert<J: Json>(&mut self, mut parser: Parser<'_, J>) -> Result<Value, Error> {
        let table = self.table(&mut parser);
        let uuid = parser.optional("uuid", Kinds::STRING);
        let name = parser.optional("uuid-name", Kinds::ID);
        let row = parser.required("row", Kinds::OBJECT);
        parser.finish()?;
        self.check_writable("insert")?;
        let (Some(table), Some(row)) = (table, row) else {
            return Err(unparsed());
        };
        let schema = self.schema.clone();
        let columns = &schema.tables()[table];

        let mut uuid = match uuid {
            None => None,
            Some(json) => {
                let text = json.as_str().unwrap_or_default();
                let uuid = text.parse().map_err(|_| Error::syntax(json, "bad uuid"))?;
                if self.is_taken(table, uuid) {
                    let details = "This UUID would duplicate a UUID already present within the table or deleted within the same \
                                   transaction.";
                    return Err(Error::new(ErrorKind::DuplicateUuid, details).quoting(json));
                }
                Some(uuid)
            }
        };
        if let Some(json) = name {
            let (db, symbols) = (&mut *self.db, &mut self.symbols);
            let symbol = symbols.get_or_insert(json.as_str().unwrap_or_default(), || db.uuids.next_uuid());
            if symbol.created {
                let details = "This \"uuid-name\" appeared on an earlier \"insert\" operation.";
                return Err(Error::new(ErrorKind::DuplicateUuidName, details).quoting(json));
            }
            symbol.created = true;
            symbol.uuid = uuid.unwrap_or(symbol.uuid);
            uuid = Some(symbol.uuid);
        }
        let values = self.values(columns, row)?;
        let uuid = match uuid {
            Some(uuid) => uuid,
            None => self.fresh_uuid(table),
        };

        let mut row = Row::new(columns, uuid);
        let mut given = values.iter().map(|(column, _)| *column).peekable();
        for (at, column) in columns.user_columns() {
            while given.next_if(|&column| column < at).is_some() {}
            if given.peek() != Some(&at) {
                row.get(at).check(&column.kind)?;
            }
        }
        for (column, value) in values {
            if column >= FIRST_COLUMN {
                row.set(column, value);
            }
        }
        row.set(COL_VERSION, Datum::one(self.db.uuids.next_uuid()));
        self.check_new_row(table, &row)?;
        self.touch(table, uuid);
        self.db.tables[table].rows.insert(uuid, Arc::new(row));
        Ok(json!({ "uuid": ["uuid", uuid.to_text().as_str()] }))
    }

    /// `select` (§5.2.2).
    pub(super) fn select<J: Json>(&mut self, mut parser: Parser<'_, J>) -> Result<Value, Error> {
        let table = self.table(&mut parser);
        let condition = parser.required("where", Kinds::ARRAY);
        let columns = parser.optional("columns", Kinds::ARRAY);
        parser.finish()?;
        let (Some(table), Some(condition)) = (table, condition) else {
            return Err(unparsed());
        };
        let schema = self.schema.clone();
        let definition = &schema.tables()[table];
        let condition = self.condition(definition, condition)?;
        let columns = match columns {
            Some(columns) => definition.parse_columns(columns)?,
            None => (0..definition.columns().len()).collect(),
        };
        // Of rows with equal values in all selected columns only one is returned, as in Open
        // vSwitch.
        let distinct = columns.contains(&COL_UUID);
        let mut shown: HashSet<Vec<Datum>> = HashSet::new();
        let mut rows = Vec::new();
        self.each(table, &condition, |row| {
            if distinct || shown.insert(projection(row, &columns)) {
                rows.push(row.to_json(definition, &columns));
            }
        });
        Ok(one_member("rows", Value::Array(rows)))
    }

    /// `update` (§5.2.3).
    pub(super) fn update<J: Json>(&mut self, mut parser: Parser<'_, J>) -> Result<Value, Error> {
        let table = self.table(&mut parser);
        let condition = parser.required("where", Kinds::ARRAY);
        let row = parser.required("row", Kinds::OBJECT);
        let op = parser.json();
        parser.finish()?;
        self.check_writable("update")?;
        let (Some(table), Some(condition), Some(row)) = (table, condition, row) else {
            return Err(unparsed());
        };
        let schema = self.schema.clone();
        let definition = &schema.tables()[table];
        let values = self.values(definition, row)?;
        let fixed = values
            .iter()
            .map(|(column, _)| &definition.columns()[*column])
            .find(|column| !column.mutable);
        if let Some(column) = fixed {
            let details = format!(
                "Cannot update immutable column {} in table {}.",
                column.name,
                definition.name()
            );
            return Err(Error::constraint(details).quoting(op));
        }
        let condition = self.condition(definition, condition)?;
        let rows = self.matching(table, &condition);
        if self.ctx.rbac.is_some() {
            let columns: Vec<usize> = values.iter().map(|(column, _)| *column).collect();
            self.check_role(table, &rows, Change::Update(&columns))?;
        }
        for uuid in &rows {
            self.touch(table, *uuid);
            if let Some(row) = self.db.tables[table].rows.get_mut(uuid) {
                let row = Arc::make_mut(row);
                for (column, value) in &values {
                    row.set(*column, value.clone());
                }
            }
        }
        Ok(one_member("count", rows.len().into()))
    }

    /// `mutate` (§5.2.4).
    pub(super) fn mutate<J: Json>(&mut self, mut parser: Parser<'_, J>) -> Result<Value, Error> {
        let table = self.table(&mut parser);
        let condition = parser.required("where", Kinds::ARRAY);
        let mutations = parser.required("mutations", Kinds::ARRAY);
        parser.finish()?;
        self.check_writable("mutate")?;
        let (Some(table), Some(condition)) = (table, condition) else {
            return Err(unparsed());
        };
        let schema = self.schema.clone();
        let definition = &schema.tables()[table];
        let mut parsed = Vec::new();
        for json in mutations.and_then(J::as_array).into_iter().flatten() {
            parsed.push(Mutation::from_json(
                json,
                definition,
                &mut resolver(self.db, &mut self.symbols),
            )?);
        }
        let condition = self.condition(definition, condition)?;
        let rows = self.matching(table, &condition);
        if self.ctx.rbac.is_some() {
            let columns: Vec<usize> = parsed.iter().map(Mutation::column).collect();
            self.check_role(table, &rows, Change::Mutate(&columns))?;
        }
        for uuid in &rows {
            self.touch(table, *uuid);
            if let Some(row) = self.db.tables[table].rows.get_mut(uuid) {
                let row = Arc::make_mut(row);
                for mutation in &parsed {
                    mutation.apply(row, definition)?;
                }
            }
        }
        Ok(one_member("count", rows.len().into()))
    }

    /// `delete` (§5.2.5).
    pub(super) fn delete<J: Json>(&mut self, mut parser: Parser<'_, J>) -> Result<Value, Error> {
        let table = self.table(&mut parser);
        let condition = parser.required("where", Kinds::ARRAY);
        parser.finish()?;
        self.check_writable("delete")?;
        let (Some(table), Some(condition)) = (table, condition) else {
            return Err(unparsed());
        };
        let schema = self.schema.clone();
        let condition = self.condition(&schema.tables()[table], condition)?;
        let rows = self.matching(table, &condition);
        self.check_role(table, &rows, Change::Delete)?;
        for uuid in &rows {
            self.touch(table, *uuid);
            self.db.tables[table].rows.remove(uuid);
        }
        Ok(one_member("count", rows.len().into()))
    }

    /// `wait` (§5.2.6): rows are compared as sets.
    pub(super) fn wait<J: Json>(&mut self, mut parser: Parser<'_, J>) -> Result<Value, Stop> {
        let timeout = parser.optional("timeout", Kinds::NUMBER);
        let table = self.table(&mut parser);
        let condition = parser.required("where", Kinds::ARRAY);
        let columns = parser.optional("columns", Kinds::ARRAY);
        let until = parser.required("until", Kinds::STRING);
        let rows = parser.required("rows", Kinds::ARRAY);
        parser.finish()?;
        let (Some(table), Some(condition), Some(until)) = (table, condition, until) else {
            return Err(unparsed().into());
        };
        let schema = self.schema.clone();
        let definition = &schema.tables()[table];
        let timeout = match timeout {
            None => None,
            Some(json) => {
                let milliseconds = json.as_f64().filter(|&time| time >= 0.0);
                let milliseconds = milliseconds.ok_or_else(|| Error::syntax(json, "timeout must be nonnegative"))?;
                Some(Duration::from_millis(milliseconds as u64))
            }
        };
        let condition = self.condition(definition, condition)?;
        let columns = match columns {
            Some(columns) => definition.parse_columns(columns)?,
            None => (FIRST_COLUMN..definition.columns().len()).collect(),
        };
        let equal = match until.as_str() {
            Some("==") => true,
            Some("!=") => false,
            _ => return Err(Error::syntax(until, "\"until\" must be \"==\" or \"!=\"").into()),
        };
        let mut wanted: HashSet<Vec<Datum>> = HashSet::new();
        for json in rows.and_then(J::as_array).into_iter().flatten() {
            let mut row = Row::new(definition, Uuid::ZERO);
            for (column, value) in self.values(definition, json)? {
                row.set(column, value);
            }
            wanted.insert(projection(&row, &columns));
        }
        let mut found: HashSet<Vec<Datum>> = HashSet::new();
        self.each(table, &condition, |row| {
            found.insert(projection(row, &columns));
        });
        if (found == wanted) == equal {
            return Ok(Value::Object(Map::new()));
        }
        match timeout {
            Some(Duration::ZERO) => Err(Error::new(ErrorKind::TimedOut, "\"where\" clause test failed").into()),
            Some(timeout) if self.ctx.waited >= timeout => {
                let waited = self.ctx.waited.as_millis();
                Err(Error::new(ErrorKind::TimedOut, format!("\"wait\" timed out after {waited} ms")).into())
            }
            _ => Err(Stop::Blocked(
                timeout.map(|timeout| timeout.saturating_sub(self.ctx.waited)),
            )),
        }
    }

    /// `commit` (§5.2.7).
    pub(super) fn commit<J: Json>(&mut self, mut parser: Parser<'_, J>) -> Result<Value, Error> {
        let durable = parser.required("durable", Kinds::BOOLEAN);
        parser.finish()?;
        self.check_writable("commit")?;
        self.durable |= durable.and_then(J::as_bool).unwrap_or(false);
        Ok(Value::Object(Map::new()))
    }

    /// `comment` (§5.2.9).
    pub(super) fn comment<J: Json>(&mut self, mut parser: Parser<'_, J>) -> Result<Value, Error> {
        let comment = parser.required("comment", Kinds::STRING);
        parser.finish()?;
        self.comments.extend(comment.and_then(J::as_str).map(str::to_owned));
        Ok(Value::Object(Map::new()))
    }

    /// `assert` (§5.2.10).
    pub(super) fn assert<J: Json>(&mut self, mut parser: Parser<'_, J>) -> Result<Value, Error> {
        let lock = parser.required("lock", Kinds::ID);
        parser.finish()?;
        let lock = lock.and_then(J::as_str).unwrap_or_default();
        if !(self.ctx.holds_lock)(lock) {
            return Err(Error::new(
                ErrorKind::NotOwner,
                format!("Asserted lock {lock} not held."),
            ));
        }
        Ok(Value::Object(Map::new()))
    }

    /// Takes the `table` member: the table's number.
    fn table(&self, parser: &mut Parser<'_, impl Json>) -> Option<usize> {
        let name = parser.required("table", Kinds::ID)?.as_str()?;
        let table = self.schema.table_index(name);
        if table.is_none() {
            parser.fail(format!("No table named {name}."));
        }
        table
    }

    fn check_writable(&self, op: &str) -> Result<(), Error> {
        if self.ctx.read_only {
            let details = format!("{op} operation not allowed when database server is in read only mode");
            return Err(Error::new(ErrorKind::NotAllowed, details));
        }
        Ok(())
    }

    fn condition(&mut self, table: &TableSchema, json: &impl Json) -> Result<Condition, Error> {
        Condition::from_json(json, table, &mut resolver(self.db, &mut self.symbols))
    }

    /// Parses a `<row>`.
    fn values(&mut self, table: &TableSchema, json: &impl Json) -> Result<Values, Error> {
        if json.kind() != JsonKind::Object {
            return Err(Error::syntax(json, "row must be JSON object"));
        }
        let mut values = Vec::with_capacity(json.n_members());
        for (name, value) in json.members() {
            let column = crate::condition::find_column(json, table, name)?;
            let kind = &table.columns()[column].kind;
            values.push((
                column,
                Datum::from_json(value, kind, &mut resolver(self.db, &mut self.symbols))?,
            ));
        }
        values.sort_unstable_by_key(|(column, _)| *column);
        Ok(values)
    }

    /// Whether a row has the UUID now, or had it when the transaction began.
    fn is_taken(&self, table: usize, uuid: Uuid) -> bool {
        self.db.tables[table].rows.contains_key(&uuid)
            || self.committed(&(table, uuid)).is_some_and(|row| row.old.is_some())
    }

    fn fresh_uuid(&mut self, table: usize) -> Uuid {
        loop {
            let uuid = self.db.uuids.next_uuid();
            if !self.is_taken(table, uuid) {
                return uuid;
            }
        }
    }

    /// The UUIDs of the rows that meet every clause.
    fn matching(&self, table: usize, condition: &Condition) -> Vec<Uuid> {
        let mut rows = Vec::new();
        self.each(table, condition, |row| rows.push(row.uuid()));
        rows
    }

    /// Calls `found` for each row that meets every clause. Looks rows up by UUID or index if the
    /// clauses allow it, else scans the table.
    fn each(&self, table: usize, condition: &Condition, mut found: impl FnMut(&Row)) {
        let contents = &self.db.tables[table];
        let mut try_row = |row: &Row| {
            if condition.all(row) {
                found(row);
            }
        };
        if let Some(uuid) = condition.uuid() {
            if let Some(row) = contents.rows.get(&uuid) {
                try_row(row);
            }
            return;
        }
        let indexes = self.schema.tables()[table].indexes().iter().zip(&contents.indexes);
        for (columns, index) in indexes {
            let values = columns.iter().map(|&column| condition.equal_to(column).cloned());
            let Some(key) = values.collect::<Option<Box<[Datum]>>>() else {
                continue;
            };
            // The index has the state of the last commit. Rows that this transaction changed are
            // checked one by one.
            if let Some(uuid) = index.get(&key)
                && !self.touched_at.contains_key(&(table, *uuid))
                && let Some(row) = contents.rows.get(uuid)
            {
                try_row(row);
            }
            for touched in self.touched.iter().filter(|touched| touched.table == table) {
                if let Some(row) = contents.rows.get(&touched.uuid) {
                    try_row(row);
                }
            }
            return;
        }
        contents.rows.values().for_each(|row| try_row(row));
    }
}

/// Resolves named UUIDs, and generates those that a later insert will use.
fn resolver<'a>(db: &'a mut Database, symbols: &'a mut Symbols) -> impl FnMut(&str) -> Option<Uuid> + 'a {
    move |name| Some(db.symbol(symbols, name))
}

fn projection(row: &Row, columns: &[usize]) -> Vec<Datum> {
    columns.iter().map(|&column| row.get(column).clone()).collect()
}

fn one_member(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}

/// Cannot happen: a parser that took all its members has no fault.
fn unparsed() -> Error {
    Error::bare(ErrorKind::Internal)
}
