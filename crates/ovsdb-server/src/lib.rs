//! The OVSDB server: databases of RFC 7047 for clients on sockets, and for the switch in the same
//! process.
//!
//! A request's way: `conn` reads bytes and cuts them into messages → `core` decides (transactions,
//! monitors, locks; no input or output) and leaves records, replies and updates → `server` appends
//! the records to the database's file (`store`) and only then sends what is to be sent. Requests
//! that arrive together share one write to the file and one to each socket.
//!
//! Invariants
//! - What a client was told is in the file: the kernel has it before the reply leaves, the disk
//!   within 100 ms, or, for a durable transaction, before its reply. When the file cannot be
//!   written, memory holds what the file holds.
//! - No client can make the server keep more than a bounded amount of memory for it, nor keep the
//!   others waiting.
//! - Idle, nothing runs: no timer without something due.

#![warn(clippy::print_stdout)]

mod cli;
mod conn;
mod control;
mod core;
mod linger;
mod remotes;
mod request;
mod server;
mod socket;
mod store;

pub use cli::main;
pub use server::{DEFAULT_MAX_SESSIONS, OpenError, Options, Server};
pub use store::StoreError;
