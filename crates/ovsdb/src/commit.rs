//! The changes of a transaction.

use crate::row::Row;
use crate::uuid::Uuid;
use std::sync::Arc;

/// The effects of a transaction, garbage collection and weak references included.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The transaction's UUID, for `monitor_cond_since`.
    pub id: Uuid,
    /// The rows that changed, each once, grouped by table in the order of the tables' numbers.
    pub changes: Vec<RowChange>,
    /// The transaction's comments, a line each.
    pub comment: Option<String>,
    /// Whether the client requested that it is on disk before the reply.
    pub durable: bool,
}

/// A row before and after.
#[derive(Debug, Clone)]
pub struct RowChange {
    /// The number of its table.
    pub table: usize,
    /// The row.
    pub uuid: Uuid,
    /// As it was; `None` if it was inserted.
    pub old: Option<Arc<Row>>,
    /// As it is; `None` if it was deleted.
    pub new: Option<Arc<Row>>,
}

impl Commit {
    /// The number of values in the commit that it does not share with the new rows.
    pub(crate) fn old_values(&self) -> usize {
        let values = |change: &RowChange| match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                let columns = old.fields().iter().zip(new.fields());
                columns
                    .map(|(old, new)| if old.same_storage(new) { 1 } else { 1 + old.len() })
                    .sum()
            }
            (Some(old), None) => old.fields().iter().map(|value| 1 + value.len()).sum::<usize>(),
            (None, _) => 1,
        };
        self.changes.iter().map(values).sum()
    }

    /// Whether a row of the table changed.
    pub fn touches(&self, table: usize) -> bool {
        self.changes.binary_search_by_key(&table, |change| change.table).is_ok()
    }
}
