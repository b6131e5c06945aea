//! Tunnels as data, without I/O and without a clock.
//!
//! - [`format`] reads and writes outer headers: VXLAN, Geneve, GRE, ERSPAN, GTP-U, bareudp, SRv6.
//! - [`vport`] has the tunnel ports: their options, and which port a packet belongs to.
//! - [`route`] has the routes: those of the kernel and those that users added.
//! - [`neighbour`] has the Ethernet addresses of neighbours behind bridges, and asks for them.
//! - [`path_mtu`] has what ICMP errors say of the largest packets to a destination.
//!
//! Invariants
//! - Nothing here opens a socket or reads a clock. The daemon asks the kernel and calls in.
//! - Outer headers come from anybody. Their parsers never panic, and reject a packet as a whole.

pub mod format;
pub mod neighbour;
pub mod path_mtu;
pub mod route;
mod shards;
pub mod vport;
