//! Problems that the switch reports in rows: `Bridge.status`, `Port.status` and `Interface.error`.
//!
//! Open vSwitch's tool prints only the errors of new interfaces. This one also warns of
//! configuration that the switch does not apply.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::idl::{Row, Selection, Tables};
use ovsdb::rows::{bridge, interface, port};
use ovsdb::{Atom, Datum, Uuid};

use super::PROGRAM;

/// Complaints by row: `TABLE NAME: REASON`, once for each reason.
pub(super) type Complaints = BTreeMap<Uuid, BTreeSet<String>>;

/// The keys of `status` that are complaints.
pub(super) const KEYS: [&str; 2] = ["error", "unsupported"];

/// Selects what [`of`] reads.
pub(super) fn select(selection: &mut Selection) {
    selection
        .columns(bridge::TABLE, &[bridge::columns::NAME, bridge::columns::STATUS])
        .columns(port::TABLE, &[port::columns::NAME, port::columns::STATUS])
        .columns(interface::TABLE, &[interface::columns::NAME, interface::columns::ERROR]);
}

/// All complaints.
pub(super) fn of(tables: &Tables) -> Complaints {
    let mut found = Complaints::new();
    let mut add = |table: &str, uuid: Uuid, row: &Row, reason: &str| {
        let name = text(row, "name").unwrap_or_default();
        found
            .entry(uuid)
            .or_default()
            .insert(format!("{table} {name}: {reason}"));
    };
    for (table, column) in [
        (bridge::TABLE, bridge::columns::STATUS),
        (port::TABLE, port::columns::STATUS),
    ] {
        for (uuid, row) in tables.rows(table) {
            let status = row.get(column);
            if let Some(reason) = status.and_then(|status| value(status, KEYS[0])) {
                add(table, uuid, row, reason);
            }
            if let Some(features) = status.and_then(|status| value(status, KEYS[1])) {
                for feature in features.split(' ') {
                    add(
                        table,
                        uuid,
                        row,
                        &format!("{feature} is not supported yet and has no effect"),
                    );
                }
            }
        }
    }
    for (uuid, row) in tables.rows(interface::TABLE) {
        if let Some(error) = text(row, interface::columns::ERROR) {
            add(interface::TABLE, uuid, row, error);
        }
    }
    found
}

/// Prints complaints about rows that were set, and new ones about other rows. Errors of new
/// interfaces are reported separately.
pub(super) fn warn(before: &Complaints, tables: &Tables, set: &[Uuid], new_interfaces: &[String]) {
    let reported: Vec<Uuid> = new_interfaces
        .iter()
        .filter_map(|name| Some(tables.find(interface::TABLE, interface::columns::NAME, name)?.0))
        .collect();
    for (row, complaints) in of(tables).iter().filter(|(row, _)| !reported.contains(row)) {
        let known = before.get(row).filter(|_| !set.contains(row));
        for complaint in complaints
            .iter()
            .filter(|new| !known.is_some_and(|known| known.contains(*new)))
        {
            eprintln!("{PROGRAM}: warning: {complaint}");
        }
    }
}

/// A key's value in a map of strings.
pub(super) fn value<'a>(map: &'a Datum, key: &str) -> Option<&'a str> {
    let (_, value) = map.pairs().iter().find(|(name, _)| name.as_str() == Some(key))?;
    value.as_str()
}

fn text<'a>(row: &'a Row, column: &str) -> Option<&'a str> {
    row.get(column)?.as_one().and_then(Atom::as_str)
}
