//! The rows of one table, with what is needed to check constraints without a scan: the number of
//! strong references to each row, the weak references to it, and the indexes.

use crate::atom::Atom;
use crate::datum::Datum;
use crate::ops::{Step, walk, without_common_ends};
use crate::row::Row;
use crate::schema::{DatabaseSchema, TableSchema};
use crate::types::RefType;
use crate::uuid::Uuid;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::Arc;

/// A row of any table: the table's number and the row's UUID.
pub(crate) type RowId = (usize, Uuid);

/// The values of an index's columns in one row.
pub(crate) type IndexKey = Box<[Datum]>;

/// A table's contents.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// Its rows.
    pub(crate) rows: HashMap<Uuid, Arc<Row>, FixedState>,
    /// How many strong references from other rows a row has, if any.
    pub(crate) strong: HashMap<Uuid, u32, FixedState>,
    /// The rows that refer weakly to a row, with the number of their references.
    pub(crate) weak: HashMap<Uuid, HashMap<RowId, u32, FixedState>, FixedState>,
    /// For each index of the schema, the row of each key.
    pub(crate) indexes: Vec<HashMap<IndexKey, Uuid, FixedState>>,
    /// The columns that refer to rows.
    pub(crate) references: Arc<[Reference]>,
    pub(crate) hasher: FixedState,
}

/// A column whose keys or values are references.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference {
    pub(crate) column: usize,
    pub(crate) side: Side,
    pub(crate) kind: RefType,
    /// The number of the table whose rows it names.
    pub(crate) target: usize,
}

/// Keys or values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Key,
    Value,
}

impl Table {
    pub(crate) fn new(schema: &DatabaseSchema, table: &TableSchema, hasher: FixedState) -> Table {
        let map = || HashMap::with_hasher(hasher.clone());
        Table {
            rows: HashMap::with_hasher(hasher.clone()),
            strong: HashMap::with_hasher(hasher.clone()),
            weak: HashMap::with_hasher(hasher.clone()),
            indexes: table.indexes().iter().map(|_| map()).collect(),
            references: references(schema, table).into(),
            hasher,
        }
    }

    /// Counts the weak references of a new, deleted or changed row.
    pub(crate) fn count_weak(&mut self, target: Uuid, source: RowId, change: i32) {
        let sources = self
            .weak
            .entry(target)
            .or_insert_with(|| HashMap::with_hasher(self.hasher.clone()));
        let count = sources.entry(source).or_insert(0);
        *count = count.saturating_add_signed(change);
        if *count == 0 {
            sources.remove(&source);
            if sources.is_empty() {
                self.weak.remove(&target);
            }
        }
    }

    /// Adds to the number of strong references of a row.
    pub(crate) fn count_strong(&mut self, target: Uuid, change: i32) {
        let count = self.strong.entry(target).or_insert(0);
        *count = count.saturating_add_signed(change);
        if *count == 0 {
            self.strong.remove(&target);
        }
    }

    /// Frees memory of maps that have shrunk a lot.
    pub(crate) fn shrink(&mut self) {
        shrink(&mut self.rows);
        shrink(&mut self.strong);
        shrink(&mut self.weak);
        self.indexes.iter_mut().for_each(shrink);
    }

    /// The number of strong references that a row has.
    pub(crate) fn strong_count(&self, target: Uuid) -> u32 {
        self.strong.get(&target).copied().unwrap_or(0)
    }
}

/// Shrinks a map that uses less than an eighth of its memory, to a capacity that leaves room to
/// grow.
fn shrink<K: Eq + std::hash::Hash, V>(map: &mut HashMap<K, V, FixedState>) {
    const SMALL: usize = 1024;
    if map.capacity() > SMALL && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len() * 2);
    }
}

/// The columns of a table that refer to rows.
fn references(schema: &DatabaseSchema, table: &TableSchema) -> Vec<Reference> {
    let mut found = Vec::new();
    for (column, definition) in table.user_columns() {
        let sides = [
            (Side::Key, Some(&definition.kind.key)),
            (Side::Value, definition.kind.value.as_ref()),
        ];
        for (side, base) in sides {
            let reference = base.and_then(|base| base.reference());
            if let Some(reference) = reference
                && let Some(target) = schema.table_index(&reference.table)
            {
                found.push(Reference {
                    column,
                    side,
                    kind: reference.kind,
                    target,
                });
            }
        }
    }
    found
}

/// The values of an index's columns in `row`.
pub(crate) fn index_key(row: &Row, columns: &[usize]) -> IndexKey {
    columns.iter().map(|&column| row.get(column).clone()).collect()
}

/// Calls `found` for each UUID that `side` of a column holds more or less often in `new` than in
/// `old`.
pub(crate) fn reference_changes(
    old: Option<&Datum>,
    new: Option<&Datum>,
    side: Side,
    mut found: impl FnMut(Uuid, i32),
) {
    let (old, new) = (old.unwrap_or(&Datum::EMPTY), new.unwrap_or(&Datum::EMPTY));
    if old.same_storage(new) {
        return;
    }
    let mut report = |atom: &Atom, change| {
        if let Some(uuid) = atom.as_uuid() {
            found(uuid, change);
        }
    };
    if side == Side::Value {
        if old.pairs() != new.pairs() {
            new.values().for_each(|atom| report(atom, 1));
            old.values().for_each(|atom| report(atom, -1));
        }
        return;
    }
    let (olds, news) = without_common_ends(old.atoms(), new.atoms());
    walk(olds, news, Atom::cmp, |step| match step {
        Step::Left(atom) => report(atom, -1),
        Step::Right(atom) => report(atom, 1),
        Step::Both(..) => {}
    });
    let (olds, news) = without_common_ends(old.pairs(), new.pairs());
    walk(
        olds,
        news,
        |a, b| a.0.cmp(&b.0),
        |step| match step {
            Step::Left((atom, _)) => report(atom, -1),
            Step::Right((atom, _)) => report(atom, 1),
            Step::Both(..) => {}
        },
    );
}
