//! A database: its schema, its rows, and the recent transactions.

use crate::atom::Symbols;
use crate::commit::{Commit, RowChange};
use crate::error::{Error, ErrorKind};
use crate::json::Json;
use crate::row::Row;
use crate::schema::DatabaseSchema;
use crate::table::{Table, index_key, reference_changes};
use crate::txn::{self, TxnCtx};
use crate::types::RefType;
use crate::uuid::{Uuid, UuidGen};
use foldhash::fast::FixedState;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How many transactions are kept for clients that reconnect (`monitor_cond_since`).
const HISTORY: usize = 128;

/// Most values in the history that the database does not share, about 24 bytes each: this bounds
/// its memory.
const HISTORY_VALUES: usize = 64 * 1024;

/// A database in memory.
///
/// It does no I/O: the caller writes each [`Commit`] to the log and sends it to monitors.
#[derive(Debug)]
pub struct Database {
    schema: Arc<DatabaseSchema>,
    pub(crate) tables: Vec<Table>,
    pub(crate) uuids: UuidGen,
    /// The last transactions, oldest first, each with the number of values it keeps in memory.
    history: VecDeque<(Arc<Commit>, usize)>,
    history_values: usize,
    last_txn: Uuid,
}

/// The result of a transaction.
#[derive(Debug)]
pub enum Outcome {
    /// It has ended.
    Done {
        /// The array of results, one an operation (RFC 7047 §4.1.3): the `result` of the reply.
        reply: Value,
        /// What changed, unless nothing did or the transaction failed.
        commit: Option<Arc<Commit>>,
    },
    /// A `wait` is not met yet, and nothing has changed: try again after the next commit, or when
    /// the time is over.
    Blocked {
        /// How long until the `wait` fails; for ever if `None`.
        timeout: Option<Duration>,
    },
}

impl Database {
    /// An empty database. `seed` makes the UUIDs of new rows: give 128 random bits, or a constant
    /// for a repeatable test.
    pub fn new(schema: DatabaseSchema, seed: u128) -> Database {
        let hasher = FixedState::with_seed(seed as u64 ^ (seed >> 64) as u64);
        let tables = schema
            .tables()
            .iter()
            .map(|table| Table::new(&schema, table, hasher.clone()))
            .collect();
        Database {
            schema: Arc::new(schema),
            tables,
            uuids: UuidGen::new(seed),
            history: VecDeque::new(),
            history_values: 0,
            last_txn: Uuid::ZERO,
        }
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<DatabaseSchema> {
        &self.schema
    }

    /// Runs a transaction: all of its operations take effect, or none.
    ///
    /// `ops` are the elements after the database's name in the `params` of a `transact` request.
    pub fn transact(&mut self, ops: &[impl Json], ctx: &TxnCtx<'_>) -> Outcome {
        txn::transact(self, ops, ctx)
    }

    /// The rows of the table of that number, in any order.
    pub fn rows(&self, table: usize) -> impl ExactSizeIterator<Item = &Arc<Row>> {
        self.tables[table].rows.values()
    }

    /// The row of that UUID in the table of that number.
    pub fn row(&self, table: usize, uuid: Uuid) -> Option<&Arc<Row>> {
        self.tables[table].rows.get(&uuid)
    }

    /// The number of rows in all tables.
    pub fn n_rows(&self) -> usize {
        self.tables.iter().map(|table| table.rows.len()).sum()
    }

    /// The UUID of the last transaction that changed something, or zero.
    pub fn last_txn(&self) -> Uuid {
        self.last_txn
    }

    /// The transactions after `last`, oldest first, if the history reaches back to it.
    pub fn since(&self, last: Uuid) -> Option<impl Iterator<Item = &Arc<Commit>>> {
        let none_since = last == self.last_txn && !last.is_zero();
        let known = self
            .history
            .iter()
            .position(|(commit, _)| commit.id == last)
            .map(|at| at + 1);
        let from = if none_since { self.history.len() } else { known? };
        Some(self.history.range(from..).map(|(commit, _)| commit))
    }

    /// Undoes a commit that could not be written to the log. It must be the last one.
    ///
    /// # Errors
    /// `internal error` if it is not the last one; then nothing changes.
    pub fn revert(&mut self, commit: &Commit) -> Result<(), Error> {
        if self.history.back().is_none_or(|(last, _)| last.id != commit.id) {
            return Err(Error::new(
                ErrorKind::Internal,
                "only the last transaction can be taken back",
            ));
        }
        let values = self.history.pop_back().map_or(0, |(_, values)| values);
        self.history_values -= values;
        self.last_txn = self.history.back().map_or(Uuid::ZERO, |(commit, _)| commit.id);
        for change in &commit.changes {
            self.replace_row(change.table, change.uuid, change.old.clone());
        }
        Ok(())
    }

    /// A copy of this database with another schema: tables and columns that the new schema lacks
    /// are dropped, new columns get their default values (ovsdb-server(7) §4.1.19).
    ///
    /// # Errors
    /// `constraint violation` or `referential integrity violation` when the contents do not fit the
    /// new schema.
    pub fn convert(&self, schema: DatabaseSchema, seed: u128) -> Result<Database, Error> {
        let mut new = Database::new(schema, seed);
        let schema = new.schema.clone();
        let mut rows = Vec::new();
        for (at, table) in schema.tables().iter().enumerate() {
            let Some(from) = self.schema.table_index(table.name()) else {
                continue;
            };
            let source = &self.schema.tables()[from];
            for old in self.tables[from].rows.values() {
                let mut row = Row::new(table, old.uuid());
                for (column, definition) in table.user_columns() {
                    let Some(source_column) = source.column_index(&definition.name) else {
                        continue;
                    };
                    let source_kind = &source.columns()[source_column].kind;
                    let value = old.get(source_column);
                    let json = value.to_json(source_kind);
                    row.set(column, crate::Datum::from_plain_json(&json, &definition.kind)?);
                }
                rows.push((at, old.uuid(), Some(row)));
            }
        }
        txn::apply(&mut new, rows, None)?;
        new.forget_history();
        Ok(new)
    }

    /// Replaces, inserts or removes a row, with its references and index entries, without checking
    /// anything.
    pub(crate) fn replace_row(&mut self, table: usize, uuid: Uuid, new: Option<Arc<Row>>) {
        let old = match &new {
            Some(row) => self.tables[table].rows.insert(uuid, row.clone()),
            None => self.tables[table].rows.remove(&uuid),
        };
        self.note_change(table, uuid, old.as_deref(), new.as_deref());
    }

    /// Updates references and indexes after a row changed.
    fn note_change(&mut self, table: usize, uuid: Uuid, old: Option<&Row>, new: Option<&Row>) {
        let references = self.tables[table].references.clone();
        for reference in references.iter().filter(|reference| reference.kind == RefType::Strong) {
            let target = &mut self.tables[reference.target];
            let (before, after) = (
                old.map(|row| row.get(reference.column)),
                new.map(|row| row.get(reference.column)),
            );
            reference_changes(before, after, reference.side, |to, change| {
                if (reference.target, to) != (table, uuid) {
                    target.count_strong(to, change);
                }
            });
        }
        self.note_weak_and_indexes(table, uuid, old, new);
    }

    /// Updates weak references and indexes after a row changed.
    pub(crate) fn note_weak_and_indexes(&mut self, table: usize, uuid: Uuid, old: Option<&Row>, new: Option<&Row>) {
        let references = self.tables[table].references.clone();
        for reference in references.iter().filter(|reference| reference.kind == RefType::Weak) {
            let target = &mut self.tables[reference.target];
            let (before, after) = (
                old.map(|row| row.get(reference.column)),
                new.map(|row| row.get(reference.column)),
            );
            reference_changes(before, after, reference.side, |to, change| {
                target.count_weak(to, (table, uuid), change)
            });
        }
        let schema = self.schema.clone();
        for (index, columns) in schema.tables()[table].indexes().iter().enumerate() {
            if let (Some(old), Some(new)) = (old, new)
                && columns.iter().all(|&column| old.get(column) == new.get(column))
            {
                continue;
            }
            let index = &mut self.tables[table].indexes[index];
            if let Some(old) = old {
                let key = index_key(old, columns);
                if index.get(&key) == Some(&uuid) {
                    index.remove(&key);
                }
            }
            if let Some(new) = new {
                index.insert(index_key(new, columns), uuid);
            }
        }
    }

    /// Adds a commit to the history for clients that reconnect.
    pub(crate) fn remember(&mut self, commit: Arc<Commit>) {
        self.last_txn = commit.id;
        let values = commit.old_values();
        self.history_values += values;
        self.history.push_back((commit, values));
        while self.history.len() > 1 && (self.history.len() > HISTORY || self.history_values > HISTORY_VALUES) {
            if let Some((_, values)) = self.history.pop_front() {
                self.history_values -= values;
            }
        }
    }

    /// The last transaction will not be reverted. A large one is removed from the history at once,
    /// so that deleted rows do not stay in memory; clients that reconnect then get all rows.
    pub fn settle(&mut self) {
        if self.history_values > HISTORY_VALUES {
            self.forget_history();
        }
    }

    /// Frees memory of tables that have shrunk a lot.
    pub fn shrink(&mut self) {
        self.tables.iter_mut().for_each(Table::shrink);
    }

    pub(crate) fn forget_history(&mut self) {
        self.history.clear();
        self.history_values = 0;
    }

    /// The changes that would insert every row: what a new monitor or a compacted log starts from.
    pub fn contents(&self) -> impl Iterator<Item = RowChange> + '_ {
        self.tables.iter().enumerate().flat_map(|(table, contents)| {
            let insertion = move |row: &Arc<Row>| RowChange {
                table,
                uuid: row.uuid(),
                old: None,
                new: Some(row.clone()),
            };
            contents.rows.values().map(insertion)
        })
    }

    /// The UUID that `name` stands for in a transaction.
    pub(crate) fn symbol(&mut self, symbols: &mut Symbols, name: &str) -> Uuid {
        symbols.get_or_insert(name, || self.uuids.next_uuid()).uuid
    }
}
