//! The database file: a line `OVSDB JSON LENGTH SHA1` and a JSON object a record (ovsdb(5),
//! "Standalone Format").
//!
//! The first record is the schema; each of the others is a transaction. [`Reader`] yields records,
//! stops at the first incomplete or corrupt one and reports its offset; [`load`] rebuilds a
//! database from the good records; [`schema_record`], [`commit_record`] and [`snapshot_record`]
//! encode records. The caller reads and writes the files.

mod reader;
mod replay;
mod sum;
mod writer;

pub use reader::{Damage, Reader, Record};
pub use replay::{Loaded, apply, load};
pub use writer::{append_commit, commit_record, schema_record, snapshot_record};
