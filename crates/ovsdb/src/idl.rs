//! A client's replica of a database, and transactions against it: the client half of RFC 7047
//! without sockets.
//!
//! An [`Idl`] keeps the tables and columns of a [`Selection`] as [`Tables`], up to date by
//! `monitor_cond_since` if the server has it, else by `monitor_cond` or `monitor`. The caller's
//! steps:
//!
//! 1. Send every message of [`Idl::poll_send`], feed every message received to [`Idl::handle`], and
//!    look at the [`Event`]s it returns.
//! 2. Read [`Idl::tables`] whenever [`Idl::seqno`] has moved.
//! 3. Fill a [`Txn`] from [`Idl::txn`], give it to [`Idl::commit`], and wait for the
//!    [`Event::Committed`] with that number.
//! 4. After a broken connection call [`Idl::reset`] and start at 1. The replica stays readable. The
//!    server sends only the changes since then if its history still has them.
//!
//! Invariants: the replica always shows a complete commit of the database, and
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
