//! Changes of the configuration that the switch makes itself: they are in the database, so that a
//! restart keeps them and clients see them.

use crate::guard::{STICKY_ADDRESSES, station};
use ovsdb::idl::{Tables, Txn, TxnStatus};
use ovsdb::rows::{TypedRow, port};
use ovsdb::{Atom, Uuid, rows};
use std::collections::{BTreeMap, BTreeSet};
use wire::{MacAddr, Vid};

/// A change of a port's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnChange {
    /// A VLAN comes to `trunks`, or goes.
    Trunk { port: Uuid, vlan: u16, add: bool },
    /// A station comes to the sticky addresses, or goes.
    Sticky {
        port: Uuid,
        station: (Vid, MacAddr),
        add: bool,
    },
}

/// The changes that are not in the database yet.
#[derive(Debug, Default)]
pub(crate) struct OwnChanges {
    waiting: Vec<OwnChange>,
    /// How many of them are in the transaction in flight.
    sent: usize,
}

impl OwnChanges {
    pub(crate) fn extend(&mut self, changes: impl IntoIterator<Item = OwnChange>) {
        self.waiting.extend(changes);
    }

    /// Adds the changes to a transaction. Those that the database has already are done, and those
    /// of rows that are gone too.
    pub(crate) fn write(&mut self, tables: &Tables, txn: &mut Txn) {
        let mut sticky = BTreeMap::new();
        self.waiting.retain(|change| match change {
            OwnChange::Trunk { port, vlan, add } => write_trunk(tables, txn, *port, *vlan, *add),
            OwnChange::Sticky { port, station, add } => note_sticky(tables, &mut sticky, *port, *station, *add),
        });
        self.sent = self.waiting.len();
        for (port, stations) in sticky {
            // Somebody else may change the same key.
            txn.verify(tables, rows::Port::TABLE, port, port::columns::OTHER_CONFIG);
            let words: Vec<String> = stations
                .iter()
                .map(|(vlan, mac)| format!("{}/{mac}", vlan.get()))
                .collect();
            let (table, column) = (rows::Port::TABLE, port::columns::OTHER_CONFIG);
            match words.is_empty() {
                true => txn.map_delete(table, port, column, STICKY_ADDRESSES),
                false => txn.map_put(table, port, column, STICKY_ADDRESSES, words.join(" ")),
            }
        }
    }

    /// Takes the outcome of the transaction. After one that may succeed later the changes wait for
    /// the next.
    pub(crate) fn settle(&mut self, outcome: &TxnStatus) {
        if !matches!(outcome, TxnStatus::TryAgain | TxnStatus::NotLocked) {
            self.waiting.drain(..self.sent);
        }
        self.sent = 0;
    }
}

/// Writes a change of trunks; `false` if there is nothing to change.
fn write_trunk(tables: &Tables, txn: &mut Txn, port: Uuid, vlan: u16, add: bool) -> bool {
    let Some(row) = tables.row(rows::Port::TABLE, port) else {
        return false;
    };
    let vlan = i64::from(vlan);
    let trunks = row.get(port::columns::TRUNKS);
    let has = trunks.is_some_and(|trunks| trunks.contains(&Atom::Integer(vlan)));
    match (has, add) {
        (false, true) => txn.set_insert(rows::Port::TABLE, port, port::columns::TRUNKS, vlan),
        (true, false) => txn.set_delete(rows::Port::TABLE, port, port::columns::TRUNKS, vlan),
        _ => return false,
    }
    true
}

/// Notes a change of a port's sticky stations; `false` if there is nothing to change.
fn note_sticky(
    tables: &Tables,
    sticky: &mut BTreeMap<Uuid, BTreeSet<(Vid, MacAddr)>>,
    port: Uuid,
    which: (Vid, MacAddr),
    add: bool,
) -> bool {
    let Some(row) = tables.row(rows::Port::TABLE, port) else {
        return false;
    };
    let known = || {
        let config = row.get(port::columns::OTHER_CONFIG);
        let text = config.and_then(|config| config.get_str(STICKY_ADDRESSES));
        text.unwrap_or_default()
            .split_whitespace()
            .filter_map(station)
            .collect()
    };
    let has = match sticky.get(&port) {
        Some(stations) => stations.contains(&which),
        None => BTreeSet::contains(&known(), &which),
    };
    if has == add {
        return false;
    }
    let stations = sticky.entry(port).or_insert_with(known);
    match add {
        true => stations.insert(which),
        false => stations.remove(&which),
    }
}
