//! Flow export: what the switch tells collectors of its traffic.
//!
//! Sans-IO: the caller hands in samples, counters and the time, and takes datagrams out, the same
//! ones for every collector. Nothing here knows sockets, workers or the database.

pub mod ipfix;
pub mod netflow;
pub mod sflow;
mod tunnel;

pub use tunnel::{Encapsulation, Tunnel};
