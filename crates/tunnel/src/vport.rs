//! Tunnel ports: their options, and which port a received packet belongs to.
//!
//! [`Config`] is the typed form of an Interface row's options. [`Table`] has the ports of all
//! bridges of a datapath. [`Table::find`] takes what [`decapsulate`](crate::format::decapsulate)
//! read of a packet; several ports may share a datapath port, and differ in addresses and keys.

mod config;
mod numbers;
mod options;
mod show;
mod table;

pub use config::{Config, Endpoint, ErspanConfig, Extensions, IpsecPeer, Key, Local, Mode, Segments, Tos, Ttl, Type};
pub use options::{Parsed, parse};
pub use table::{Listener, Received, Refused, Table, Vport};

#[cfg(test)]
mod tests;
