//! Packet headers and the small types that they are made of: the walk from header to header
//! ([`headers`]), checksums, addresses, VLAN tags. Nothing here allocates, reads a clock, panics on
//! a packet's bytes or is unsafe.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod checksum;
pub mod crc32c;
mod ether_type;
mod extensions;
pub mod headers;
mod mac;
pub mod nsh;
mod vid;

pub use ether_type::EtherType;
pub use mac::{MacAddr, ParseMacError};
pub use vid::{Vid, VidError, VlanTag};
