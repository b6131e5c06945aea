//! Arithmetic of sets and maps: union, removal, and the differences that updates and log records carry
//! (ovsdb-server(7) §4.1.14).

use crate::atom::Atom;
use crate::datum::Datum;
use crate::types::ColumnType;
use std::cmp::Ordering;

impl Datum {
    /// The elements of both; where a key is in both maps, the value of `self` stays (RFC 7047 §5.1, `insert`).
    pub fn union(&self, other: &Datum) -> Datum {
        if other.is_empty() {
            return self.clone();
        }
        if self.is_empty() {
            return other.clone();
        }
        if other.pairs().is_empty() {
            return Datum::from_sorted_set(merge(self.atoms(), other.atoms(), Atom::cmp, |both| Some(both.0)));
        }
        let by_key = |a: &(Atom, Atom), b: &(Atom, Atom)| a.0.cmp(&b.0);
        Datum::from_sorted_map(merge(self.pairs(), other.pairs(), by_key, |both| Some(both.0)))
    }

    /// What is left without the elements of `other`: for a map, without its pairs, or without its keys if `other` is a set
    /// (RFC 7047 §5.1, `delete`).
    pub fn subtract(&self, other: &Datum) -> Datum {
        if self.is_empty() || other.is_empty() {
            return self.clone();
        }
        if self.pairs().is_empty() {
            if !self.atoms().iter().any(|atom| other.contains(atom)) {
                return self.clone();
            }
            return Datum::from_sorted_set(
                self.atoms()
                    .iter()
                    .filter(|atom| !other.contains(atom))
                    .cloned()
                    .collect(),
            );
        }
        let by_key = other.pairs().is_empty();
        let keep = |(key, value): &&(Atom, Atom)| {
            if by_key {
                !other.contains(key)
            } else {
                other.get(key) != Some(value)
            }
        };
        Datum::from_sorted_map(self.pairs().iter().filter(keep).cloned().collect())
    }

    /// Whether every element of `other`, with its value in a map, is in `self`.
    pub fn includes(&self, other: &Datum) -> bool {
        other.atoms().iter().all(|atom| self.contains(atom))
            && other.pairs().iter().all(|(k, v)| self.get(k) == Some(v))
    }

    /// Whether no element of `other`, with its value in a map, is in `self`.
    pub fn excludes(&self, other: &Datum) -> bool {
        !other.atoms().iter().any(|atom| self.contains(atom))
            && !other.pairs().iter().any(|(k, v)| self.get(k) == Some(v))
    }

    /// What turns `self` into `new`: the elements in one of the two sets, the pairs whose value changed, the new value where a column
    /// holds one at most.
    pub fn diff(&self, new: &Datum, kind: &ColumnType) -> Datum {
        if !kind.is_composite() || self.is_empty() {
            return new.clone();
        }
        if new.is_empty() {
            return self.clone();
        }
        if kind.is_map() {
            let by_key = |a: &(Atom, Atom), b: &(Atom, Atom)| a.0.cmp(&b.0);
            let changed = |(old, new): (&(Atom, Atom), &(Atom, Atom))| (old.1 != new.1).then(|| new.clone());
            return Datum::from_sorted_map(merge_with(self.pairs(), new.pairs(), by_key, changed));
        }
        Datum::from_sorted_set(merge_with(self.atoms(), new.atoms(), Atom::cmp, |_| None))
    }

    /// The value that `diff`, made by [`Datum::diff`], turns `self` into.
    pub fn apply_diff(&self, diff: &Datum, kind: &ColumnType) -> Datum {
        if !kind.is_composite() || self.is_empty() {
            return diff.clone();
        }
        if diff.is_empty() {
            return self.clone();
        }
        if kind.is_map() {
            let by_key = |a: &(Atom, Atom), b: &(Atom, Atom)| a.0.cmp(&b.0);
            let changed = |(old, new): (&(Atom, Atom), &(Atom, Atom))| (old.1 != new.1).then(|| new.clone());
            return Datum::from_sorted_map(merge_with(self.pairs(), diff.pairs(), by_key, changed));
        }
        Datum::from_sorted_set(merge_with(self.atoms(), diff.atoms(), Atom::cmp, |_| None))
    }
}

/// Merges two sorted slices; `both` picks the element to keep where they agree.
fn merge<'a, T: Clone>(
    a: &'a [T],
    b: &'a [T],
    order: impl Fn(&T, &T) -> Ordering,
    both: impl Fn((&'a T, &'a T)) -> Option<&'a T>,
) -> Vec<T> {
    merge_with(a, b, order, |pair| both(pair).cloned())
}

fn merge_with<'a, T: Clone>(
    a: &'a [T],
    b: &'a [T],
    order: impl Fn(&T, &T) -> Ordering,
    both: impl Fn((&'a T, &'a T)) -> Option<T>,
) -> Vec<T> {
    let mut merged = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        match order(&a[i], &b[j]) {
            Ordering::Less => {
                merged.push(a[i].clone());
                i += 1;
            }
            Ordering::Greater => {
                merged.push(b[j].clone());
                j += 1;
            }
            Ordering::Equal => {
                merged.extend(both((&a[i], &b[j])));
                i += 1;
                j += 1;
            }
        }
    }
    merged.extend_from_slice(&a[i..]);
    merged.extend_from_slice(&b[j..]);
    merged
}
