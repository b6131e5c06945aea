//! The configuration database: RFC 7047 with Open vSwitch's extensions, as an engine without
//! sockets, clocks or files.
//!
//! From the bottom up: [`Uuid`] and [`Atom`] are single values, [`Datum`] is the value of a column,
//! [`ColumnType`] is its type, [`DatabaseSchema`] describes a database. A
//! [`Database`] holds rows; [`Database::transact`] runs a transaction on it and yields a
//! [`Commit`], which [`log`] turns into a record of the database file and [`Monitor`] into updates
//! for clients.
//!
//! Invariants
//! - Nothing a client sends makes the engine panic: every input has its result or its error.
//! - A transaction that fails changes nothing.
//! - The work of a transaction grows with what it changes, not with the database, as long as its
//!   conditions name a row's UUID or the columns of an index.

mod atom;
mod check;
mod commit;
mod condition;
mod database;
mod datum;
mod error;
pub mod idl;
mod json;
pub mod log;
mod monitor;
mod mutation;
mod ops;
mod parser;
mod replica;
mod row;
pub mod rows;
mod schema;
pub mod schemas;
pub mod server_db;
mod table;
mod text;
mod txn;
mod types;
mod uuid;

pub use self::uuid::{ParseUuidError, Uuid, UuidGen, UuidText};
pub use atom::{Atom, AtomicType, Resolve, Symbol, Symbols, no_names};
pub use commit::{Commit, RowChange};
pub use condition::{Clause, Condition, Function};
pub use database::{Database, Outcome};
pub use datum::Datum;
pub use error::{Error, ErrorKind};
pub use json::{Arena, Json, JsonKind, Node, parse_json, refuse_nul};
pub use monitor::{Fanout, Monitor, MonitorVersion, Updates};
pub use parser::is_id;
pub use replica::UpdateForm;
pub use row::Row;
pub use schema::{COL_UUID, COL_VERSION, ColumnSchema, DatabaseSchema, FIRST_COLUMN, TableSchema};
pub use text::split_token;
pub use txn::{Rbac, TxnCtx};
pub use types::{BaseKind, BaseType, ColumnType, RefTable, RefType, UNLIMITED};
