//! Packet headers and the small types that they are made of.
//!
//! Each header has a module with the same skeleton: the ranges of its fields, a checked
//! [`View`](ethernet::View) over bytes with getters and setters, and a `Repr`, the header as a
//! value, with `parse` and `emit`. Nothing here allocates, reads a clock or is unsafe.
//!
//! Invariants
//! - `View::new_checked` and `Repr::parse` never panic, whatever the bytes. The getters of a view
//!   panic only where its buffer is shorter than what `new_checked` asks for, which cannot happen
//!   to a view made that way.
//! - Setters and `emit` write only their own fields. They panic on a buffer shorter than the
//!   header.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arp;
pub mod checksum;
pub mod crc32c;
mod ether_type;
pub mod ethernet;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
mod mac;
pub mod tcp;
mod time;
pub mod udp;
mod vid;
mod view;
pub mod vlan;

pub use ether_type::EtherType;
pub use mac::{MacAddr, ParseMacError};
pub use time::Nanos;
pub use vid::{Vid, VidError, VlanTag};
pub use view::Error;
