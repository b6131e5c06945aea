//! The checks and changes after all operations of a transaction (RFC 7047 §4.1.3, "deferred"
//! constraints): strong references, garbage collection, limits on rows, weak references, indexes.
//!
//! Everything is incremental: the work grows with what changed, not with the database.

use super::Txn;
use crate::atom::Atom;
use crate::commit::RowChange;
use crate::datum::Datum;
use crate::error::{Error, ErrorKind};
use crate::table::{IndexKey, Reference, RowId, Side, index_key, reference_changes};
use crate::types::{RefType, UNLIMITED};
use crate::uuid::Uuid;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;

/// How the number of strong references of rows changes.
pub(super) type Counts = HashMap<RowId, i32, FixedState>;

/// A transaction that has passed all checks.
pub(super) struct Settled {
    /// What it changes, consequences included.
    pub(super) changes: Vec<RowChange>,
    /// How the numbers of strong references change.
    pub(super) counts: Counts,
}

/// Checks the transaction and completes it with its consequences. `None` if it changes nothing.
///
/// # Errors
/// `referential integrity violation`, `constraint violation`; the caller rolls back.
pub(super) fn settle(txn: &mut Txn<'_>) -> Result<Option<Settled>, Error> {
    drop_unchanged(txn);
    if txn.touched.is_empty() {
        return Ok(None);
    }
    let mut counts = count_references(txn)?;
    check_deletions(txn, &counts)?;
    collect_garbage(txn, &mut counts);
    check_max_rows(txn)?;
    while clean_weak_references(txn, &mut counts)? {
        collect_garbage(txn, &mut counts);
    }
    let changes = changes(txn);
    check_indexes(txn, &changes)?;
    Ok((!changes.is_empty()).then_some(Settled { changes, counts }))
}

/// Removes rows whose final state equals the committed one.
fn drop_unchanged(txn: &mut Txn<'_>) {
    let tables = &mut txn.db.tables;
    let before = txn.touched.len();
    txn.touched.retain(|touched| {
        let rows = &mut tables[touched.table].rows;
        match (&touched.old, rows.get_mut(&touched.uuid)) {
            (None, None) => false,
            (Some(old), Some(new)) if old.fields() == new.fields() => {
                *new = old.clone();
                false
            }
            _ => true,
        }
    });
    if txn.touched.len() != before {
        txn.touched_at.clear();
        txn.touched_at.extend(
            txn.touched
                .iter()
                .enumerate()
                .map(|(at, touched)| ((touched.table, touched.uuid), at)),
        );
    }
}

/// Counts added and removed strong references, and checks that the added ones refer to rows.
fn count_references(txn: &Txn<'_>) -> Result<Counts, Error> {
    let mut counts = Counts::with_hasher(txn.touched_at.hasher().clone());
    for touched in &txn.touched {
        let table = &txn.db.tables[touched.table];
        let new = table.rows.get(&touched.uuid);
        for reference in table
            .references
            .iter()
            .filter(|reference| reference.kind == RefType::Strong)
        {
            let old = touched.old.as_ref().map(|row| row.get(reference.column));
            let new = new.map(|row| row.get(reference.column));
            let targets = &txn.db.tables[reference.target].rows;
            let mut dangling = None;
            reference_changes(old, new, reference.side, |to, change| {
                if change > 0 && !targets.contains_key(&to) {
                    dangling.get_or_insert(to);
                }
                if (reference.target, to) != (touched.table, touched.uuid) {
                    *counts.entry((reference.target, to)).or_insert(0) += change;
                }
            });
            if let Some(to) = dangling {
                return Err(dangling_reference(txn, reference, touched.table, touched.uuid, to));
            }
        }
    }
    Ok(counts)
}

fn dangling_reference(txn: &Txn<'_>, reference: &Reference, table: usize, row: Uuid, to: Uuid) -> Error {
    let tables = txn.schema.tables();
    let (from, target) = (&tables[table], tables[reference.target].name());
    let (name, column) = (from.name(), &from.columns()[reference.column].name);
    let details = format!("Table {name} column {column} row {row} references nonexistent row {to} in table {target}.");
    Error::new(ErrorKind::ReferentialIntegrity, details)
}

/// The number of strong references to a row once the transaction is committed.
fn count_of(txn: &Txn<'_>, counts: &Counts, id: &RowId) -> i64 {
    i64::from(txn.db.tables[id.0].strong_count(id.1)) + i64::from(counts.get(id).copied().unwrap_or(0))
}

/// Checks that nothing refers strongly to a deleted row.
fn check_deletions(txn: &Txn<'_>, counts: &Counts) -> Result<(), Error> {
    for touched in &txn.touched {
        if txn.db.tables[touched.table].rows.contains_key(&touched.uuid) {
            continue;
        }
        let count = count_of(txn, counts, &(touched.table, touched.uuid));
        if count > 0 {
            let (table, uuid) = (txn.schema.tables()[touched.table].name(), touched.uuid);
            let details = format!("cannot delete {table} row {uuid} because of {count} remaining reference(s)");
            return Err(Error::new(ErrorKind::ReferentialIntegrity, details));
        }
    }
    Ok(())
}

/// Garbage collection: deletes rows of non-root tables without strong references, and then the rows
/// that only these referred to.
fn collect_garbage(txn: &mut Txn<'_>, counts: &mut Counts) {
    let mut candidates: Vec<RowId> = txn
        .touched
        .iter()
        .map(|touched| (touched.table, touched.uuid))
        .collect();
    candidates.extend(counts.iter().filter(|(_, change)| **change < 0).map(|(id, _)| *id));
    while let Some(id) = candidates.pop() {
        let (table, uuid) = id;
        if txn.schema.tables()[table].is_root() || count_of(txn, counts, &id) > 0 {
            continue;
        }
        if !txn.db.tables[table].rows.contains_key(&uuid) {
            continue;
        }
        txn.touch(table, uuid);
        let contents = &mut txn.db.tables[table];
        let Some(row) = contents.rows.remove(&uuid) else {
            continue;
        };
        for reference in contents
            .references
            .iter()
            .filter(|reference| reference.kind == RefType::Strong)
        {
            reference_changes(Some(row.get(reference.column)), None, reference.side, |to, change| {
                let target = (reference.target, to);
                if target != id {
                    *counts.entry(target).or_insert(0) += change;
                    candidates.push(target);
                }
            });
        }
    }
}

fn check_max_rows(txn: &Txn<'_>) -> Result<(), Error> {
    for (table, contents) in txn.schema.tables().iter().zip(&txn.db.tables) {
        let (rows, limit) = (contents.rows.len(), table.max_rows());
        if limit != UNLIMITED && rows > limit {
            let name = table.name();
            return Err(Error::constraint(format!(
                "transaction causes \"{name}\" table to contain {rows} rows, greater than the schema-defined limit of {limit} row(s)"
            )));
        }
    }
    Ok(())
}

/// Removes weak references to rows that do not exist. Returns whether that also removed strong
/// references, as the other half of a map's pair; then there may be new garbage.
fn clean_weak_references(txn: &mut Txn<'_>, counts: &mut Counts) -> Result<bool, Error> {
    let mut referrers: HashSet<RowId, FixedState> = HashSet::with_hasher(txn.touched_at.hasher().clone());
    let mut rows: Vec<RowId> = Vec::new();
    for touched in &txn.touched {
        let table = &txn.db.tables[touched.table];
        if table.rows.contains_key(&touched.uuid) {
            if table.references.iter().any(|reference| reference.kind == RefType::Weak) {
                rows.push((touched.table, touched.uuid));
            }
        } else if let Some(sources) = table.weak.get(&touched.uuid) {
            referrers.extend(sources.keys().copied());
        }
    }
    rows.extend(referrers.iter().filter(|id| !txn.touched_at.contains_key(*id)));
    let mut lost_strong = false;
    for id in rows {
        lost_strong |= clean_row(txn, counts, id, referrers.contains(&id))?;
    }
    Ok(lost_strong)
}

/// Cleans one row. `lost` means that a row it refers to was deleted, so unchanged columns are
/// checked too.
fn clean_row(txn: &mut Txn<'_>, counts: &mut Counts, (table, uuid): RowId, lost: bool) -> Result<bool, Error> {
    let mut lost_strong = false;
    let references = txn.db.tables[table].references.clone();
    for reference in references.iter().filter(|reference| reference.kind == RefType::Weak) {
        let Some(row) = txn.db.tables[table].rows.get(&uuid) else {
            return Ok(lost_strong);
        };
        let value = row.get(reference.column);
        let old = txn.committed(&(table, uuid)).and_then(|touched| touched.old.as_ref());
        if !lost && old.is_some_and(|old| old.get(reference.column) == value) {
            continue;
        }
        let targets = &txn.db.tables[reference.target].rows;
        let dangles = |atom: &Atom| atom.as_uuid().is_some_and(|to| !targets.contains_key(&to));
        let Some((kept, zeros)) = without(value, reference.side, dangles) else {
            continue;
        };
        let column = &txn.schema.tables()[table].columns()[reference.column];
        if kept.len() < column.kind.min {
            let inserted = if old.is_none() && txn.touched_at.contains_key(&(table, uuid)) {
                " (inserted within this transaction)"
            } else {
                ""
            };
            let (lost, column, table) = (
                value.len() - kept.len(),
                &column.name,
                txn.schema.tables()[table].name(),
            );
            return Err(Error::constraint(if zeros == lost {
                format!(
                    "Weak reference column \"{column}\" in \"{table}\" row {uuid}{inserted} contained all-zeros UUID (probably as the \
                     default value for this column), which leads to no row, but the column may not be empty."
                )
            } else {
                format!(
                    "Deletion of {lost} weak reference(s) to deleted (or never-existing) rows from column \"{column}\" in \"{table}\" \
                     row {uuid}{inserted} caused this column to become empty, but constraints on this column disallow an empty column."
                )
            }));
        }
        for strong in references
            .iter()
            .filter(|other| other.kind == RefType::Strong && other.column == reference.column)
        {
            reference_changes(Some(value), Some(&kept), strong.side, |to, change| {
                if (strong.target, to) != (table, uuid) {
                    *counts.entry((strong.target, to)).or_insert(0) += change;
                    lost_strong = true;
                }
            });
        }
        let column = reference.column;
        txn.touch(table, uuid);
        if let Some(row) = txn.db.tables[table].rows.get_mut(&uuid) {
            Arc::make_mut(row).set(column, kept);
        }
    }
    Ok(lost_strong)
}

/// The datum without the elements that dangle, and how many of these were zero UUIDs; `None` if
/// none dangles.
fn without(value: &Datum, side: Side, dangles: impl Fn(&Atom) -> bool) -> Option<(Datum, usize)> {
    let zero = |atom: &Atom| atom.as_uuid().is_some_and(Uuid::is_zero);
    if value.pairs().is_empty() {
        let zeros = value.atoms().iter().filter(|atom| dangles(atom) && zero(atom)).count();
        let kept: Vec<Atom> = value.atoms().iter().filter(|atom| !dangles(atom)).cloned().collect();
        return (kept.len() < value.len()).then(|| (Datum::from_sorted_set(kept), zeros));
    }
    let atom = |(k, v): &(Atom, Atom)| if side == Side::Key { k.clone() } else { v.clone() };
    let zeros = value
        .pairs()
        .iter()
        .filter(|pair| dangles(&atom(pair)) && zero(&atom(pair)))
        .count();
    let kept: Vec<(Atom, Atom)> = value
        .pairs()
        .iter()
        .filter(|pair| !dangles(&atom(pair)))
        .cloned()
        .collect();
    (kept.len() < value.len()).then(|| (Datum::from_sorted_map(kept), zeros))
}

/// The changes, with consequences.
fn changes(txn: &mut Txn<'_>) -> Vec<RowChange> {
    let mut changes = Vec::with_capacity(txn.touched.len());
    for touched in &txn.touched {
        let new = txn.db.tables[touched.table].rows.get(&touched.uuid).cloned();
        if touched.old.is_some() || new.is_some() {
            changes.push(RowChange {
                table: touched.table,
                uuid: touched.uuid,
                old: touched.old.clone(),
                new,
            });
        }
    }
    changes
}

/// Checks that no two rows agree in all columns of an index.
fn check_indexes(txn: &Txn<'_>, changes: &[RowChange]) -> Result<(), Error> {
    for change in changes {
        let table = &txn.schema.tables()[change.table];
        for (at, columns) in table.indexes().iter().enumerate() {
            let Some(new) = change.new.as_deref() else { continue };
            if let Some(old) = change.old.as_deref()
                && columns.iter().all(|&column| old.get(column) == new.get(column))
            {
                continue;
            }
            let key = index_key(new, columns);
            // A changed row conflicts only if it still has this key.
            if let Some(&other) = txn.db.tables[change.table].indexes[at].get(&key)
                && other != change.uuid
                && let Some(row) = txn.db.tables[change.table].rows.get(&other)
                && index_key(row, columns) == key
            {
                return Err(duplicate(txn, change.table, columns, &key, other, change.uuid));
            }
        }
    }
    check_changed_among_themselves(txn, changes)
}

/// Checks that no two rows got the same new index values.
fn check_changed_among_themselves(txn: &Txn<'_>, changes: &[RowChange]) -> Result<(), Error> {
    if changes.len() < 2 {
        return Ok(());
    }
    let mut seen: HashMap<(usize, usize, IndexKey), Uuid, FixedState> =
        HashMap::with_hasher(txn.touched_at.hasher().clone());
    for change in changes {
        let Some(new) = change.new.as_deref() else { continue };
        for (at, columns) in txn.schema.tables()[change.table].indexes().iter().enumerate() {
            if let Some(first) = seen.insert((change.table, at, index_key(new, columns)), change.uuid) {
                return Err(duplicate(
                    txn,
                    change.table,
                    columns,
                    &index_key(new, columns),
                    first,
                    change.uuid,
                ));
            }
        }
    }
    Ok(())
}

fn duplicate(txn: &Txn<'_>, table: usize, columns: &[usize], key: &IndexKey, first: Uuid, second: Uuid) -> Error {
    let schema = &txn.schema.tables()[table];
    let shown = |key: &[Datum]| {
        let values = columns
            .iter()
            .zip(key)
            .map(|(&column, value)| value.to_text(&schema.columns()[column].kind));
        list(&values.collect::<Vec<_>>())
    };
    let names: Vec<String> = columns
        .iter()
        .map(|&column| format!("\"{}\"", schema.columns()[column].name))
        .collect();
    let origin = |uuid: Uuid| match txn.committed(&(table, uuid)).map(|touched| touched.old.as_deref()) {
        None => "existed in the database before this transaction and was not modified by the transaction".to_owned(),
        Some(None) => "was inserted by this transaction".to_owned(),
        Some(Some(old)) if index_key(old, columns) == *key => {
            "existed in the database before this transaction, which did not modify its values in this index".to_owned()
        }
        Some(Some(old)) => {
            format!(
                "had the following index values before the transaction: {}",
                shown(&index_key(old, columns))
            )
        }
    };
    let (name, values, plural) = (schema.name(), shown(key), if names.len() > 1 { "s" } else { "" });
    Error::constraint(format!(
        "Transaction causes multiple rows in \"{name}\" table to have identical values ({values}) for index on column{plural} {}.  \
         First row, with UUID {first}, {}.  Second row, with UUID {second}, {}.",
        list(&names),
        origin(first),
        origin(second)
    ))
}

/// `a`, `a and b`, `a, b, and c`.
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [a, b] => format!("{a} and {b}"),
        [most @ .., last] => format!("{}, and {last}", most.join(", ")),
    }
}
