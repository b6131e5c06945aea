//! Path MTU discovery for outer packets (RFC 1191, RFC 8201): the largest packets that reach a
//! destination, learned from ICMP errors about packets that tunnels have sent.
//!
//! [`TooBig`] is such an error. [`sent`] checks that a tunnel port could have sent the packet that
//! it quotes: anybody can send ICMP errors, but has to guess what the tunnels send. [`Table`] has
//! the sizes.
//!
//! An inner packet that does not fit is answered ([`answer`]), or the outer packet is fragmented
//! ([`fragments`]).
//!
//! Invariants
//! - An error only makes a size smaller, until it is forgotten after ten minutes.
//! - No size is below the minimum of the IP version, whatever an error says.

mod answer;
mod error;
mod fragments;
mod table;

pub use answer::{answer, must_be_carried};
pub use error::{NotTooBig, Quoted, TooBig, sent};
pub use fragments::{allow_fragments, fragments};
pub use table::{Counters, Entry, LIMIT, MIN_IPV4, MIN_IPV6, Table};

#[cfg(test)]
mod tests;
