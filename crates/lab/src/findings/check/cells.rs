//! Which cells of a table a check is about.

use crate::table::{Cell, Table};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Values of dimensions, one each or several.
pub(super) type Where = BTreeMap<String, OneOrMany>;

/// See [`Where`].
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    /// This value.
    One(String),
    /// Any of these.
    Many(Vec<String>),
}

/// The dimensions of a cell with its values.
pub(crate) type At = BTreeMap<String, String>;

/// Whether a cell has the requested values.
pub(super) fn chosen(at: &At, wanted: &Where) -> bool {
    wanted
        .iter()
        .all(|(dimension, wanted)| match (at.get(dimension), wanted) {
            (Some(value), OneOrMany::One(wanted)) => value == wanted,
            (Some(value), OneOrMany::Many(wanted)) => wanted.contains(value),
            (None, _) => false,
        })
}

/// A cell's values without those of some dimensions.
pub(super) fn without(at: &At, dimensions: &[&str]) -> At {
    let others = at.iter().filter(|(name, _)| !dimensions.contains(&name.as_str()));
    others.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The chosen cells, by their values of all dimensions but some.
pub(super) fn groups<'a>(table: &'a Table, at: &Where, but: &[&str]) -> Vec<(At, Vec<&'a Cell>)> {
    let mut groups: Vec<(At, Vec<&Cell>)> = Vec::new();
    for cell in table.cells.iter().filter(|cell| chosen(&cell.at, at)) {
        let key = without(&cell.at, but);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, cells)) => cells.push(cell),
            None => groups.push((key, vec![cell])),
        }
    }
    groups
}

/// The values of a cell in words.
pub(super) fn name(at: &At) -> String {
    let values = at.iter().map(|(dimension, value)| show(dimension, value));
    values.collect::<Vec<_>>().join(", ")
}

/// The values of a cell before a statement about it.
pub(super) fn prefix(at: &At) -> String {
    if at.is_empty() {
        String::new()
    } else {
        format!("{}: ", name(at))
    }
}

/// A value of a dimension; a number has the dimension's name with it.
pub(super) fn show(dimension: &str, value: &str) -> String {
    if value.starts_with(|c: char| c.is_ascii_digit()) {
        format!("{dimension} {value}")
    } else {
        value.to_owned()
    }
}
