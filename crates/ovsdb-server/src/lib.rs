//! The OVSDB server: databases of RFC 7047 for clients on sockets, and for the switch in the same
//! process.
//!
//! How a request is handled: `conn` reads bytes and splits them into messages → `core` executes
//! them (transactions, monitors, locks; no input or output) and produces records, replies and
//! updates → `server` appends the records to the database's file (`databases`, `store`) and then
//! sends replies and updates. Requests that arrive together share one write to the file and one to
//! each socket.
//!
//! Invariants
//! - A transaction is in the file before its reply is sent. It is on the disk within 100 ms; a
//!   durable transaction is on the disk before its reply. If the file cannot be written, the
//!   transaction is undone in memory.
//! - A client can use a bounded amount of memory only, and cannot block the others.
//! - An idle server sleeps: there is a timer only while something is due.

#![warn(clippy::print_stdout)]

mod cli;
mod config;
mod conn;
mod control;
mod core;
mod databases;
mod relay;
mod remotes;
mod replication;
mod request;
mod server;
mod socket;
mod source;
mod store;

pub use cli::main;
pub use config::check_config;
pub use server::{DEFAULT_MAX_SESSIONS, OpenError, Options, Server, SyncOptions};
pub use store::StoreError;
