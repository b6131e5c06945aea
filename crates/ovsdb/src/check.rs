//! A full check of a database against its own rules, for tests and fuzzers: it recounts what
//! transactions update incrementally.

use crate::database::Database;
use crate::error::{Error, ErrorKind};
use crate::table::{Side, Table, index_key, reference_changes};
use crate::types::RefType;

impl Database {
    /// Checks every constraint, reference count and index. The work grows with the database.
    ///
    /// # Errors
    /// `internal error` with the first thing that is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let schema = self.schema();
        let hasher = |table: &Table| table.hasher.clone();
        let mut fresh: Vec<Table> = schema
            .tables()
            .iter()
            .zip(&self.tables)
            .map(|(definition, table)| Table::new(schema, definition, hasher(table)))
            .collect();
        for (at, definition) in schema.tables().iter().enumerate() {
            let table = &self.tables[at];
            require(table.rows.len() <= definition.max_rows(), || {
                format!("table {} has too many rows", definition.name())
            })?;
            for (uuid, row) in &table.rows {
                require(row.uuid() == *uuid, || {
                    format!("row {uuid} has another UUID in its column")
                })?;
                for (column, schema) in definition.user_columns() {
                    let value = row.get(column);
                    value.check(&schema.kind)?;
                    let fits = (schema.kind.min..=schema.kind.max).contains(&value.len());
                    require(fits, || {
                        format!("column {} of row {uuid} has {} elements", schema.name, value.len())
                    })?;
                }
                for reference in table.references.iter() {
                    let mut dangling = false;
                    reference_changes(None, Some(row.get(reference.column)), reference.side, |to, change| {
                        dangling |= !self.tables[reference.target].rows.contains_key(&to);
                        match reference.kind {
                            RefType::Strong if (reference.target, to) == (at, *uuid) => {}
                            RefType::Strong => fresh[reference.target].count_strong(to, change),
                            RefType::Weak => fresh[reference.target].count_weak(to, (at, *uuid), change),
                        }
                    });
                    let side = if reference.side == Side::Key { "key" } else { "value" };
                    require(!dangling, || {
                        format!("a {side} of column {} of row {uuid} leads nowhere", reference.column)
                    })?;
                }
                for (index, columns) in definition.indexes().iter().enumerate() {
                    let other = fresh[at].indexes[index].insert(index_key(row, columns), *uuid);
                    require(other.is_none(), || {
                        format!("rows {uuid} and {other:?} agree in an index")
                    })?;
                }
            }
        }
        for ((definition, kept), counted) in schema.tables().iter().zip(&self.tables).zip(&fresh) {
            let name = definition.name();
            require(kept.strong == counted.strong, || {
                format!("strong references to {name} are miscounted")
            })?;
            require(kept.weak == counted.weak, || {
                format!("weak references to {name} are miscounted")
            })?;
            require(kept.indexes == counted.indexes, || {
                format!("an index of {name} is wrong")
            })?;
            let unreached = kept
                .rows
                .keys()
                .find(|uuid| !definition.is_root() && kept.strong_count(**uuid) == 0);
            require(unreached.is_none(), || {
                format!("row {unreached:?} of {name} should have been collected")
            })?;
        }
        Ok(())
    }
}

fn require(holds: bool, message: impl FnOnce() -> String) -> Result<(), Error> {
    if holds {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Internal, message()))
    }
}
