//! The value of a column: a sorted set of atoms, or a map from atoms to atoms sorted by key (RFC
//! 7047 §5.1, `<value>`).
//!
//! A scalar is a set of one, an optional scalar a set of one or none. An empty set and an empty map
//! are the same [`Datum`]; the column's type tells them apart. Cloning is cheap: one atom is
//! inline, more are shared and copied when they change.

use crate::atom::{Atom, Resolve, no_names};
use crate::error::{Error, ErrorKind};
use crate::json::Json;
use crate::types::{BaseType, ColumnType, UNLIMITED};
use serde::ser::{Serialize, SerializeTuple, Serializer};
use serde_json::Value;
use std::sync::Arc;

/// The value of a column.
#[derive(Debug, Clone, Default)]
pub struct Datum(Repr);

/// Invariant: `Set` and `Map` are not empty, sorted, without duplicates; a set of one is `One`.
#[derive(Debug, Clone, Default)]
enum Repr {
    #[default]
    Empty,
    One(Atom),
    Set(Arc<Vec<Atom>>),
    Map(Arc<Vec<(Atom, Atom)>>),
}

impl Datum {
    /// No elements.
    pub const EMPTY: Datum = Datum(Repr::Empty);

    /// One atom.
    pub fn one(atom: impl Into<Atom>) -> Datum {
        Datum(Repr::One(atom.into()))
    }

    /// The set of `atoms`; duplicates count once.
    pub fn set<A: Into<Atom>>(atoms: impl IntoIterator<Item = A>) -> Datum {
        let mut atoms: Vec<Atom> = atoms.into_iter().map(Into::into).collect();
        if !atoms.is_sorted_by(|a, b| a < b) {
            atoms.sort_unstable();
            atoms.dedup();
        }
        Datum::from_sorted_set(atoms)
    }

    /// The map of `pairs`; of equal keys the last counts.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Datum {
        let mut pairs: Vec<(Atom, Atom)> = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        if !pairs.is_sorted_by(|a, b| a.0 < b.0) {
            pairs.reverse();
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            pairs.dedup_by(|later, first| later.0 == first.0);
        }
        Datum::from_sorted_map(pairs)
    }

    /// The set of `atoms`, which are sorted and differ.
    pub(crate) fn from_sorted_set(mut atoms: Vec<Atom>) -> Datum {
        debug_assert!(atoms.is_sorted_by(|a, b| a < b));
        match (atoms.len(), atoms.pop()) {
            (_, None) => Datum::EMPTY,
            (1, Some(atom)) => Datum(Repr::One(atom)),
            (_, Some(atom)) => {
                atoms.push(atom);
                Datum(Repr::Set(Arc::new(atoms)))
            }
        }
    }

    /// The map of `pairs`, whose keys are sorted and differ.
    pub(crate) fn from_sorted_map(pairs: Vec<(Atom, Atom)>) -> Datum {
        debug_assert!(pairs.is_sorted_by(|a, b| a.0 < b.0));
        if pairs.is_empty() {
            Datum::EMPTY
        } else {
            Datum(Repr::Map(Arc::new(pairs)))
        }
    }

    /// The number of elements or pairs.
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Empty => 0,
            Repr::One(_) => 1,
            Repr::Set(atoms) => atoms.len(),
            Repr::Map(pairs) => pairs.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Repr::Empty)
    }

    /// The elements of a set, sorted; none for a map.
    pub fn atoms(&self) -> &[Atom] {
        match &self.0 {
            Repr::One(atom) => std::slice::from_ref(atom),
            Repr::Set(atoms) => atoms,
            Repr::Empty | Repr::Map(_) => &[],
        }
    }

    /// The pairs of a map, sorted by key; none for a set.
    pub fn pairs(&self) -> &[(Atom, Atom)] {
        if let Repr::Map(pairs) = &self.0 { pairs } else { &[] }
    }

    /// The elements of a set or the keys of a map, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &Atom> {
        self.atoms().iter().chain(self.pairs().iter().map(|(key, _)| key))
    }

    /// The values of a map, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &Atom> {
        self.pairs().iter().map(|(_, value)| value)
    }

    /// The only atom of a set of one.
    pub fn as_one(&self) -> Option<&Atom> {
        if let [atom] = self.atoms() { Some(atom) } else { None }
    }

    /// Whether `key` is an element, or a key of the map.
    pub fn contains(&self, key: &Atom) -> bool {
        match &self.0 {
            Repr::Empty => false,
            Repr::One(atom) => atom == key,
            Repr::Set(atoms) => atoms.binary_search(key).is_ok(),
            Repr::Map(_) => self.get(key).is_some(),
        }
    }

    /// The value of `key` in a map.
    pub fn get(&self, key: &Atom) -> Option<&Atom> {
        let pairs = self.pairs();
        pairs.binary_search_by(|(k, _)| k.cmp(key)).ok().map(|at| &pairs[at].1)
    }

    /// The string under the string `key` of a map.
    pub fn get_str(&self, key: &str) -> Option<&str> {
        let pairs = self.pairs();
        pairs
            .binary_search_by(|(k, _)| k.as_str().unwrap_or_default().cmp(key))
            .ok()
            .and_then(|at| pairs[at].1.as_str())
    }

    /// Whether it is what a column of type `kind` holds by default.
    pub fn is_default(&self, kind: &ColumnType) -> bool {
        if kind.min == 0 {
            return self.is_empty();
        }
        match &self.0 {
            Repr::One(atom) => kind.value.is_none() && atom.is_default(),
            Repr::Map(pairs) => pairs.len() == 1 && pairs[0].0.is_default() && pairs[0].1.is_default(),
            Repr::Empty | Repr::Set(_) => false,
        }
    }

    /// Whether both are the same storage: then they are equal without a look at the elements.
    pub(crate) fn same_storage(&self, other: &Datum) -> bool {
        match (&self.0, &other.0) {
            (Repr::Set(a), Repr::Set(b)) => Arc::ptr_eq(a, b),
            (Repr::Map(a), Repr::Map(b)) => Arc::ptr_eq(a, b),
            (Repr::One(Atom::String(a)), Repr::One(Atom::String(b))) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Checks every atom against the type's limits, but not their number.
    ///
    /// # Errors
    /// `constraint violation`.
    pub fn check(&self, kind: &ColumnType) -> Result<(), Error> {
        self.keys().try_for_each(|key| kind.key.check(key))?;
        match &kind.value {
            Some(value) => self.values().try_for_each(|atom| value.check(atom)),
            None => Ok(()),
        }
    }

    /// Parses a `<value>` of type `kind` and checks it against the type's limits.
    ///
    /// # Errors
    /// `syntax error`, `constraint violation`, or `ovsdb error` for duplicates.
    pub fn from_json(json: &impl Json, kind: &ColumnType, resolve: Resolve<'_>) -> Result<Datum, Error> {
        parse(json, kind, kind.min, kind.max, resolve)
    }

    /// The same with any number of elements: for differences, and the arguments of conditions and
    /// mutations.
    ///
    /// # Errors
    /// As [`Datum::from_json`].
    pub fn from_json_relaxed(json: &impl Json, kind: &ColumnType, resolve: Resolve<'_>) -> Result<Datum, Error> {
        parse(json, kind, 0, UNLIMITED, resolve)
    }

    /// The `<value>`.
    pub fn to_json(&self, kind: &ColumnType) -> Value {
        let array = |tag: &str, elements: Vec<Value>| Value::Array(vec![tag.into(), Value::Array(elements)]);
        if kind.is_map() {
            let pair = |(k, v): &(Atom, Atom)| Value::Array(vec![k.to_json(), v.to_json()]);
            return array("map", self.pairs().iter().map(pair).collect());
        }
        match self.as_one() {
            Some(atom) => atom.to_json(),
            None => array("set", self.atoms().iter().map(Atom::to_json).collect()),
        }
    }

    /// The `<value>` for a serializer, without building a [`Value`].
    pub fn json<'a>(&'a self, kind: &'a ColumnType) -> impl Serialize + 'a {
        DatumJson {
            datum: self,
            is_map: kind.is_map(),
        }
    }
}

/// Sets and maps are equal when their elements are.
impl PartialEq for Datum {
    fn eq(&self, other: &Datum) -> bool {
        match (&self.0, &other.0) {
            (Repr::Empty, Repr::Empty) => true,
            (Repr::One(a), Repr::One(b)) => a == b,
            (Repr::Set(a), Repr::Set(b)) => Arc::ptr_eq(a, b) || a == b,
            (Repr::Map(a), Repr::Map(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}

impl Eq for Datum {}

impl PartialOrd for Datum {
    fn partial_cmp(&self, other: &Datum) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Datum {
    fn cmp(&self, other: &Datum) -> std::cmp::Ordering {
        self.atoms()
            .cmp(other.atoms())
            .then_with(|| self.pairs().cmp(other.pairs()))
    }
}

impl std::hash::Hash for Datum {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.atoms().hash(state);
        self.pairs().hash(state);
    }
}

struct DatumJson<'a> {
    datum: &'a Datum,
    is_map: bool,
}

impl Serialize for DatumJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let (false, Some(atom)) = (self.is_map, self.datum.as_one()) {
            return atom.serialize(serializer);
        }
        let mut tagged = serializer.serialize_tuple(2)?;
        if self.is_map {
            tagged.serialize_element("map")?;
            tagged.serialize_element(self.datum.pairs())?;
        } else {
            tagged.serialize_element("set")?;
            tagged.serialize_element(self.datum.atoms())?;
        }
        tagged.end()
    }
}

fn parse<J: Json>(json: &J, kind: &ColumnType, min: usize, max: usize, resolve: Resolve<'_>) -> Result<Datum, Error> {
    let class = if kind.is_map() { "map" } else { "set" };
    let tagged = json
        .as_array()
        .filter(|array| array.first().and_then(J::as_str) == Some(class));
    if !kind.is_map() && tagged.is_none() {
        return parse_atom(json, &kind.key, resolve).map(|atom| Datum(Repr::One(atom)));
    }
    let elements = match tagged {
        Some([_, elements]) => elements.as_array(),
        _ => None,
    };
    let Some(elements) = elements else {
        return Err(Error::syntax(json, format!("expected [\"{class}\", <array>]")));
    };
    if elements.len() < min || elements.len() > max {
        let n = elements.len();
        let bounds = match (min, max) {
            (1, 1) => "exactly one member".to_owned(),
            (0, UNLIMITED) => "any number of members".to_owned(),
            (_, UNLIMITED) => format!("{min} or more members"),
            _ => format!("{min} to {max} members"),
        };
        return Err(Error::syntax(
            json,
            format!("{class} must have {bounds} but {n} are present"),
        ));
    }
    match &kind.value {
        None => {
            let mut atoms = Vec::with_capacity(elements.len());
            for element in elements {
                atoms.push(parse_atom(element, &kind.key, resolve)?);
            }
            if !atoms.is_sorted_by(|a, b| a < b) {
                atoms.sort_unstable();
                if atoms.windows(2).any(|pair| pair[0] == pair[1]) {
                    return Err(Error::new(ErrorKind::Ovsdb, "set contains duplicate"));
                }
            }
            Ok(Datum::from_sorted_set(atoms))
        }
        Some(value_type) => {
            let mut pairs = Vec::with_capacity(elements.len());
            for element in elements {
                let Some([key, value]) = element.as_array() else {
                    return Err(Error::syntax(element, "expected 2-element array"));
                };
                pairs.push((
                    parse_atom(key, &kind.key, resolve)?,
                    parse_atom(value, value_type, resolve)?,
                ));
            }
            if !pairs.is_sorted_by(|a, b| a.0 < b.0) {
                pairs.sort_by(|a, b| a.0.cmp(&b.0));
                if pairs.windows(2).any(|two| two[0].0 == two[1].0) {
                    return Err(Error::new(ErrorKind::Ovsdb, "map contains duplicate key"));
                }
            }
            Ok(Datum::from_sorted_map(pairs))
        }
    }
}

fn parse_atom(json: &impl Json, base: &BaseType, resolve: Resolve<'_>) -> Result<Atom, Error> {
    let atom = Atom::from_json(json, base.atomic_type(), resolve)?;
    base.check(&atom)?;
    Ok(atom)
}

impl From<Atom> for Datum {
    fn from(atom: Atom) -> Datum {
        Datum::one(atom)
    }
}

/// Parses a value where named UUIDs mean nothing: replies, updates, log records.
impl Datum {
    /// [`Datum::from_json`] without named UUIDs.
    ///
    /// # Errors
    /// As [`Datum::from_json`].
    pub fn from_plain_json(json: &impl Json, kind: &ColumnType) -> Result<Datum, Error> {
        Datum::from_json(json, kind, &mut no_names)
    }
}
