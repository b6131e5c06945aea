//! Bidirectional Forwarding Detection in asynchronous mode over one hop (RFC 5880, RFC 5881).
//!
//! One [`Session`] watches the other end of one interface. It has no authentication and no echo
//! function, like Open vSwitch's. As there, the interface selects the session: a packet with
//! another session's discriminator is refused.

pub mod datagram;
mod machine;
mod settings;
mod show;
pub mod timers;
pub mod wire;

#[cfg(test)]
mod tests;

pub use machine::{Counters, Identity, Session, Status};
pub use settings::Config;
