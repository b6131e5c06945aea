//! The database file: a line `OVSDB JSON LENGTH SHA1` and a JSON object a record (ovsdb(5),
//! "Standalone Format").
//!
//! The first record is the schema, each of the others a transaction. [`Reader`] yields records and
//! stops at the first that is torn or corrupt, telling where; [`load`] rebuilds a database from
//! what is good; [`schema_record`], [`commit_record`] and [`snapshot_record`] make the bytes of
//! records. Files are the caller's business.

mod reader;
mod replay;
mod sum;
mod writer;

pub use reader::{Damage, Reader, Record};
pub use replay::{Loaded, apply, load};
pub use writer::{append_commit, commit_record, schema_record, snapshot_record};
