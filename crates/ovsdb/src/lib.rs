//! The configuration database: RFC 7047 with Open vSwitch's extensions, as an engine without sockets, clocks or files.
//!
//! From the bottom up: [`Uuid`] and [`Atom`] are single values, [`Datum`] is the value of a column, [`ColumnType`] says what a column may
//! hold, [`DatabaseSchema`] what a database consists of.

mod atom;
mod datum;
mod error;
mod parser;
mod schema;
pub mod schemas;
mod text;
mod types;
mod uuid;

pub use atom::{Atom, AtomicType, Resolve, Symbol, Symbols, no_names};
pub use datum::Datum;
pub use error::{Error, ErrorKind};
pub use parser::is_id;
pub use schema::{COL_UUID, COL_VERSION, ColumnSchema, DatabaseSchema, FIRST_COLUMN, TableSchema};
pub use types::{BaseKind, BaseType, ColumnType, RefTable, RefType, UNLIMITED};
pub use uuid::{ParseUuidError, Uuid, UuidGen, UuidText};
