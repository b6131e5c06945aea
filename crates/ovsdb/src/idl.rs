//! A client's replica of a database, and transactions against it: the client half of RFC 7047
//! without sockets.
//!
//! An [`Idl`] keeps the tables and columns that a [`Selection`] names as [`Tables`], fresh by
//! `monitor_cond_since` where the server has it, else by `monitor_cond` or `monitor`. What the
//! caller does:
//!
//! 1. Send every message of [`Idl::poll_send`], feed every message received to [`Idl::handle`], and
//!    look at the [`Event`]s it returns.
//! 2. Read [`Idl::tables`] whenever [`Idl::seqno`] has moved.
//! 3. Fill a [`Txn`] from [`Idl::txn`], give it to [`Idl::commit`], and wait for the
//!    [`Event::Committed`] with that number.
//! 4. After a broken connection call [`Idl::reset`] and start at 1: the replica stays readable, and
//!    what has changed meanwhile comes as a difference if the server still remembers.
//!
//! Invariants: the replica always shows one whole commit of the database, never half of one, and
//! the update with a transaction's own effects is applied before its success is reported (RFC 7047
//! §4.1.3 and ovsdb-server's order of messages).

mod session;
mod tables;
mod txn;
mod view;

pub use session::{Event, Idl, IdlError, LockState};
pub use tables::{Change, Changes, Columns, Row, Selection, Table, Tables};
pub use txn::{Txn, TxnStatus};
pub use view::View;

#[cfg(test)]
mod tests;
