//! Arithmetic of sets and maps: union, removal, and the differences that updates and log records
//! carry (ovsdb-server(7) §4.1.14).

use crate::atom::Atom;
use crate::datum::Datum;
use crate::types::ColumnType;
use std::cmp::Ordering;

impl Datum {
    /// The elements of both. For a key in both maps the result has the value of `self` (RFC 7047
    /// §5.1, `insert`).
    pub fn union(&self, other: &Datum) -> Datum {
        if other.is_empty() {
            return self.clone();
        }
        if self.is_empty() {
            return other.clone();
        }
        if other.pairs().is_empty() {
            return Datum::from_sorted_set(merge(self.atoms(), other.atoms(), Atom::cmp));
        }
        Datum::from_sorted_map(merge(self.pairs(), other.pairs(), by_key))
    }

    /// Removes the elements of `other`; from a map its pairs, or its keys if `other` is a set (RFC
    /// 7047 §5.1, `delete`).
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

    /// The difference from `self` to `new`: the elements in exactly one of the two sets, the pairs
    /// with another value, or the new value if the column holds at most one.
    pub fn diff(&self, new: &Datum, kind: &ColumnType) -> Datum {
        if !kind.is_composite() || self.is_empty() {
            return new.clone();
        }
        if new.is_empty() {
            return self.clone();
        }
        if kind.is_map() {
            let changed = |old: &(Atom, Atom), new: &(Atom, Atom)| (old.1 != new.1).then(|| new.clone());
            return Datum::from_sorted_map(difference(self.pairs(), new.pairs(), by_key, changed));
        }
        Datum::from_sorted_set(difference(self.atoms(), new.atoms(), Atom::cmp, |_, _| None))
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
            return Datum::from_sorted_map(toggle(self.pairs(), diff.pairs(), by_key, |old, new| {
                (old.1 != new.1).then(|| new.clone())
            }));
        }
        Datum::from_sorted_set(toggle(self.atoms(), diff.atoms(), Atom::cmp, |_, _| None))
    }
}

fn by_key(a: &(Atom, Atom), b: &(Atom, Atom)) -> Ordering {
    a.0.cmp(&b.0)
}

/// The first slice with the elements of a difference put in, taken out, or as `both` changes them.
fn toggle<T: Clone>(
    old: &[T],
    diff: &[T],
    order: impl Fn(&T, &T) -> Ordering,
    both: impl Fn(&T, &T) -> Option<T>,
) -> Vec<T> {
    let mut new = Vec::with_capacity(old.len() + diff.len());
    let mut rest = old;
    for element in diff {
        let found = rest.binary_search_by(|probe| order(probe, element));
        let at = found.unwrap_or_else(|at| at);
        new.extend_from_slice(&rest[..at]);
        match found {
            Ok(_) => new.extend(both(&rest[at], element)),
            Err(_) => new.push(element.clone()),
        }
        rest = &rest[at + usize::from(found.is_ok())..];
    }
    new.extend_from_slice(rest);
    new
}

/// Merges two sorted slices; of equal elements the first's is taken.
fn merge<T: Clone>(a: &[T], b: &[T], order: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    // A few elements are merged into many: copy the many, and search the place of each of the few.
    if b.len() * 16 < a.len() {
        let mut merged = Vec::with_capacity(a.len() + b.len());
        merged.extend_from_slice(a);
        for element in b {
            if let Err(at) = merged.binary_search_by(|probe| order(probe, element)) {
                merged.insert(at, element.clone());
            }
        }
        return merged;
    }
    let mut merged = Vec::with_capacity(a.len() + b.len());
    walk(a, b, order, |step| {
        merged.push(match step {
            Step::Left(element) | Step::Right(element) | Step::Both(element, _) => element.clone(),
        });
    });
    merged
}

/// The elements in exactly one of two sorted slices, and the result of `both` for equal elements.
fn difference<T: Clone + PartialEq>(
    a: &[T],
    b: &[T],
    order: impl Fn(&T, &T) -> Ordering,
    both: impl Fn(&T, &T) -> Option<T>,
) -> Vec<T> {
    let (a, b) = without_common_ends(a, b);
    let mut found = Vec::new();
    walk(a, b, order, |step| match step {
        Step::Left(element) | Step::Right(element) => found.push(element.clone()),
        Step::Both(old, new) => found.extend(both(old, new)),
    });
    found
}

/// Two slices without their common prefix and suffix.
pub(crate) fn without_common_ends<'a, T: PartialEq>(a: &'a [T], b: &'a [T]) -> (&'a [T], &'a [T]) {
    let first = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[first..], &b[first..]);
    let last = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    (&a[..a.len() - last], &b[..b.len() - last])
}

/// Where the elements of a walk are.
pub(crate) enum Step<'a, T> {
    /// In the first slice only.
    Left(&'a T),
    /// In the second slice only.
    Right(&'a T),
    /// In both.
    Both(&'a T, &'a T),
}

/// Walks two sorted slices in order.
pub(crate) fn walk<'a, T>(
    a: &'a [T],
    b: &'a [T],
    order: impl Fn(&T, &T) -> Ordering,
    mut visit: impl FnMut(Step<'a, T>),
) {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        match order(&a[i], &b[j]) {
            Ordering::Less => {
                visit(Step::Left(&a[i]));
                i += 1;
            }
            Ordering::Greater => {
                visit(Step::Right(&b[j]));
                j += 1;
            }
            Ordering::Equal => {
                visit(Step::Both(&a[i], &b[j]));
                i += 1;
                j += 1;
            }
        }
    }
    a[i..].iter().for_each(|element| visit(Step::Left(element)));
    b[j..].iter().for_each(|element| visit(Step::Right(element)));
}
