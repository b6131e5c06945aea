//! The tables of the switch's schema as structures, generated from it, and the conversions between
//! Rust values and [`Datum`]s.
//!
//! `Bridge` is a row of the table `bridge::TABLE`, with its columns as fields and their names in
//! `bridge::columns`. A column that the replica does not hold, or that the server lacks, has its
//! default.

use crate::idl::{Row, Selection, Tables};
use crate::{Atom, Datum, Uuid};
use std::collections::BTreeMap;
use std::sync::Arc;

include!(concat!(env!("OUT_DIR"), "/rows.rs"));

/// A row with a field for each column.
pub trait TypedRow: Sized {
    /// The table's name.
    const TABLE: &'static str;
    /// The columns' names.
    const COLUMNS: &'static [&'static str];

    /// The row `uuid` of a replica.
    ///
    /// # Errors
    /// A column of the server's schema has another type than ours.
    fn from_row(uuid: Uuid, row: &Row) -> Result<Self, RowError>;
}

/// A column's type differs from our schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of {table} row {uuid} has an unexpected type")]
pub struct RowError {
    /// The row.
    pub uuid: Uuid,
    /// Its table.
    pub table: &'static str,
    /// The column.
    pub column: &'static str,
}

/// All rows of a table, by UUID.
///
/// # Errors
/// As [`TypedRow::from_row`].
pub fn all<T: TypedRow>(tables: &Tables) -> Result<BTreeMap<Uuid, T>, RowError> {
    tables
        .rows(T::TABLE)
        .map(|(uuid, row)| Ok((uuid, T::from_row(uuid, row)?)))
        .collect()
}

/// One row; `None` if it does not exist.
///
/// # Errors
/// As [`TypedRow::from_row`].
pub fn get<T: TypedRow>(tables: &Tables, uuid: Uuid) -> Result<Option<T>, RowError> {
    tables.row(T::TABLE, uuid).map(|row| T::from_row(uuid, row)).transpose()
}

/// Selects every column of a table.
pub fn select<T: TypedRow>(selection: &mut Selection) {
    selection.columns(T::TABLE, T::COLUMNS);
}

/// A Rust type for a column's value.
pub trait FromDatum: Default {
    /// The value, if the datum holds atoms of that type, and of that number.
    fn from_datum(datum: &Datum) -> Option<Self>;
}

/// A Rust value that converts to a column's value.
pub trait ToDatum {
    /// The value for a column.
    fn to_datum(&self) -> Datum;
}

/// A Rust value that is one atom.
pub trait FromAtom: Default {
    /// The value, if the atom has that type.
    fn from_atom(atom: &Atom) -> Option<Self>;
}

fn column<T: FromDatum>(row: &Row, uuid: Uuid, table: &'static str, column: &'static str) -> Result<T, RowError> {
    match row.get(column) {
        None => Ok(T::default()),
        Some(datum) => T::from_datum(datum).ok_or(RowError { uuid, table, column }),
    }
}

impl FromAtom for i64 {
    fn from_atom(atom: &Atom) -> Option<i64> {
        atom.as_integer()
    }
}

impl FromAtom for f64 {
    fn from_atom(atom: &Atom) -> Option<f64> {
        atom.as_real()
    }
}

impl FromAtom for bool {
    fn from_atom(atom: &Atom) -> Option<bool> {
        atom.as_bool()
    }
}

impl FromAtom for String {
    fn from_atom(atom: &Atom) -> Option<String> {
        atom.as_str().map(str::to_owned)
    }
}

impl FromAtom for Uuid {
    fn from_atom(atom: &Atom) -> Option<Uuid> {
        atom.as_uuid()
    }
}

macro_rules! scalars {
    ($($kind:ty),*) => {$(
        impl FromDatum for $kind {
            fn from_datum(datum: &Datum) -> Option<$kind> {
                datum.as_one().and_then(FromAtom::from_atom)
            }
        }

        impl ToDatum for $kind {
            fn to_datum(&self) -> Datum {
                Datum::one(self.clone())
            }
        }
    )*};
}

scalars!(i64, f64, bool, String, Uuid);

impl<T: FromAtom> FromDatum for Option<T> {
    fn from_datum(datum: &Datum) -> Option<Option<T>> {
        match datum.as_one() {
            Some(atom) => T::from_atom(atom).map(Some),
            None => datum.is_empty().then_some(None),
        }
    }
}

impl<T: FromAtom> FromDatum for Vec<T> {
    fn from_datum(datum: &Datum) -> Option<Vec<T>> {
        if !datum.pairs().is_empty() {
            return None;
        }
        datum.atoms().iter().map(T::from_atom).collect()
    }
}

impl<K: FromAtom + Ord, V: FromAtom> FromDatum for BTreeMap<K, V> {
    fn from_datum(datum: &Datum) -> Option<BTreeMap<K, V>> {
        if !datum.atoms().is_empty() {
            return None;
        }
        datum
            .pairs()
            .iter()
            .map(|(key, value)| Some((K::from_atom(key)?, V::from_atom(value)?)))
            .collect()
    }
}

impl ToDatum for Datum {
    fn to_datum(&self) -> Datum {
        self.clone()
    }
}

impl ToDatum for str {
    fn to_datum(&self) -> Datum {
        Datum::one(self)
    }
}

impl ToDatum for Arc<str> {
    fn to_datum(&self) -> Datum {
        Datum::one(Atom::String(Arc::clone(self)))
    }
}

impl<T: ToDatum + ?Sized> ToDatum for &T {
    fn to_datum(&self) -> Datum {
        (*self).to_datum()
    }
}

impl<T: ToDatum> ToDatum for Option<T> {
    fn to_datum(&self) -> Datum {
        self.as_ref().map_or(Datum::EMPTY, ToDatum::to_datum)
    }
}

impl<T: Clone + Into<Atom>> ToDatum for Vec<T> {
    fn to_datum(&self) -> Datum {
        self.as_slice().to_datum()
    }
}

impl<T: Clone + Into<Atom>> ToDatum for [T] {
    fn to_datum(&self) -> Datum {
        Datum::set(self.iter().cloned())
    }
}

impl<K: Clone + Into<Atom>, V: Clone + Into<Atom>> ToDatum for BTreeMap<K, V> {
    fn to_datum(&self) -> Datum {
        Datum::map(self.iter().map(|(key, value)| (key.clone(), value.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T: FromDatum + ToDatum + PartialEq + std::fmt::Debug>(value: T) {
        assert_eq!(T::from_datum(&value.to_datum()), Some(value));
    }

    #[test]
    fn values_survive_the_way_to_a_datum_and_back() {
        there_and_back(-7i64);
        there_and_back(0.5f64);
        there_and_back(true);
        there_and_back("x".to_owned());
        there_and_back(Uuid::from_u128(3));
        there_and_back(Some(3i64));
        there_and_back(None::<String>);
        there_and_back(vec![1i64, 2, 3]);
        there_and_back(Vec::<Uuid>::new());
        there_and_back(BTreeMap::from([("a".to_owned(), 1i64)]));
    }

    #[test]
    fn a_datum_of_another_type_is_refused() {
        assert_eq!(i64::from_datum(&Datum::one("x")), None);
        assert_eq!(i64::from_datum(&Datum::EMPTY), None);
        assert_eq!(Option::<i64>::from_datum(&Datum::set([1i64, 2])), None);
        assert_eq!(Vec::<i64>::from_datum(&Datum::map([(1i64, 2i64)])), None);
        assert_eq!(BTreeMap::<i64, i64>::from_datum(&Datum::one(1i64)), None);
    }

    #[test]
    fn names_are_those_of_the_schema() {
        assert_eq!(Bridge::TABLE, "Bridge");
        assert_eq!(OpenVSwitch::TABLE, "Open_vSwitch");
        assert_eq!(interface::columns::TYPE, "type");
        assert!(CtTimeoutPolicy::COLUMNS.contains(&ct_timeout_policy::columns::TIMEOUTS));
    }
}
