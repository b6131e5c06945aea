//! The Link Layer Discovery Protocol (IEEE 802.1AB-2016), with the TLVs of auto-attach.
//!
//! One [`Lldp`] runs the protocol of all interfaces of a switch: each tells the other end of its
//! link who it is, and keeps what the other end says until that is out of date.

pub mod auto_attach;
mod machine;
mod neighbors;
mod text;
pub mod timers;
pub mod wire;

#[cfg(test)]
mod tests;

pub use machine::{Config, Counters, Lldp, PortConfig};
pub use neighbors::{MOST, MOST_OF_PORT, Neighbor};
pub use text::readable;
