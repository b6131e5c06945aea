//! The neighbours of the underlay: the Ethernet addresses behind the bridges whose LOCAL ports
//! native tunnels send from.
//!
//! [`Table`] is the one that changes. [`Neighbours`] is a copy of its answers, which translations
//! read without a lock. [`Heard`] is what a packet to a bridge's LOCAL port says of a neighbour,
//! and [`Request`] asks for one by ARP or neighbour solicitation.
//!
//! A translation looks into [`Neighbours`]. If the neighbour is unknown, the packet is dropped and
//! [`Table::resolve`] says whether to send a request. A cached flow that sends to a neighbour ends
//! when [`Neighbours::version`] changes, or when the change names its neighbour; as long as it
//! carries packets, [`Table::used`] keeps the entry.
//!
//! Invariants
//! - Addresses that nobody asked for fill at most half of the table. Peers that announce made-up
//!   addresses cannot keep tunnels from learning the neighbours that they need.
//! - A packet changes entries of its own bridge only.

mod heard;
mod name;
mod request;
mod table;

pub use heard::{Heard, HeardBy};
pub use name::BridgeName;
pub use request::Request;
pub use table::{AGING, BadAging, Counters, Entry, Ignored, Limits, Neighbours, Resolution, Table};

#[cfg(test)]
mod tests;
