//! Changes of the configuration that the switch makes itself: they are in the database, so that a
//! restart keeps them and clients see them.

use ovsdb::idl::{Tables, Txn, TxnStatus};
use ovsdb::rows::{TypedRow, port};
use ovsdb::{Atom, Uuid, rows};

/// A change of a port's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnChange {
    /// A VLAN comes to `trunks`, or goes.
    Trunk { port: Uuid, vlan: u16, add: bool },
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
        self.waiting.retain(|change| change.write(tables, txn));
        self.sent = self.waiting.len();
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

impl OwnChange {
    /// Adds the change to a transaction; `false` if there is nothing to change.
    fn write(&self, tables: &Tables, txn: &mut Txn) -> bool {
        let OwnChange::Trunk { port, vlan, add } = self;
        let Some(row) = tables.row(rows::Port::TABLE, *port) else {
            return false;
        };
        let vlan = i64::from(*vlan);
        let trunks = row.get(port::columns::TRUNKS);
        let has = trunks.is_some_and(|trunks| trunks.contains(&Atom::Integer(vlan)));
        match (has, add) {
            (false, true) => txn.set_insert(rows::Port::TABLE, *port, port::columns::TRUNKS, vlan),
            (true, false) => txn.set_delete(rows::Port::TABLE, *port, port::columns::TRUNKS, vlan),
            _ => return false,
        }
        true
    }
}
