//! The replica with the changes of an unfinished transaction, which later steps of the same
//! transaction read.

use super::tables::Tables;
use super::txn::{EditKind, Txn};
use crate::{ColumnType, DatabaseSchema, Datum, Uuid};

/// The replica with the changes of a transaction.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub(super) schema: &'a DatabaseSchema,
    pub(super) tables: &'a Tables,
    pub(super) txn: &'a Txn,
}

impl<'a> View<'a> {
    /// The replica `tables`, of a database with `schema`, under `txn`.
    pub fn new(schema: &'a DatabaseSchema, tables: &'a Tables, txn: &'a Txn) -> View<'a> {
        View { schema, tables, txn }
    }

    /// Whether the row exists.
    pub fn contains(&self, table: &str, uuid: Uuid) -> bool {
        match self.txn.edit_of(table, uuid).map(|edit| edit.kind) {
            Some(EditKind::Insert | EditKind::InsertAs) => true,
            Some(EditKind::Delete | EditKind::Nothing) => false,
            Some(EditKind::Update) | None => self.tables.row(table, uuid).is_some(),
        }
    }

    /// The value of a column; `None` if the row, table or column does not exist here.
    pub fn get(&self, table: &str, uuid: Uuid, column: &str) -> Option<Datum> {
        if !self.contains(table, uuid) {
            return None;
        }
        let edit = self.txn.edit_of(table, uuid);
        if let Some(value) = edit.and_then(|edit| edit.set.get(column)) {
            return Some(value.clone());
        }
        let before = match self.tables.row(table, uuid) {
            Some(row) => row.get(column)?.clone(),
            None => self.kind(table, column)?.default_datum(),
        };
        Some(match edit.and_then(|edit| edit.mutated.get(column)) {
            Some(mutation) => mutation.apply(&before),
            None => before,
        })
    }

    /// The rows of `table`: those of the replica sorted by UUID, then the inserted ones in their
    /// order.
    pub fn rows(&self, table: &str) -> Vec<Uuid> {
        let kept = self
            .tables
            .rows(table)
            .map(|(uuid, _)| uuid)
            .filter(|uuid| self.contains(table, *uuid));
        let new = |kind| matches!(kind, EditKind::Insert | EditKind::InsertAs);
        let inserted = self
            .txn
            .edits_of(table)
            .filter(|edit| new(edit.kind))
            .map(|edit| edit.uuid);
        kept.chain(inserted).collect()
    }

    /// The type of a column in the database.
    pub fn kind(&self, table: &str, column: &str) -> Option<&'a ColumnType> {
        self.schema.table(table)?.column(column).map(|column| &column.kind)
    }
}
