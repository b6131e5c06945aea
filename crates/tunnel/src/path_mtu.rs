//! Path MTU discovery for outer packets (RFC 1191, RFC 8201): the largest packets that reach a
//! destination, learned from ICMP errors about packets that tunnels have sent.
//!
//! [`TooBig`] is such an error. [`sent`] checks that a tunnel port could have sent the packet that
//! it quotes: anybody can send ICMP errors, but has to guess what the tunnels send. [`Table`] has
//! the sizes, and [`PathMtus`] is a copy of its answers, which translations read without a lock.
//!
//! Invariants
//! - An error only makes a size smaller, until it is forgotten after ten minutes.
//! - No size is below the minimum of the IP version, whatever an error says.

mod error;
mod table;

pub use error::{NotTooBig, Quoted, TooBig, sent};
pub use table::{Counters, LIMIT, MIN_IPV4, MIN_IPV6, PathMtus, Table};

#[cfg(test)]
mod tests;
