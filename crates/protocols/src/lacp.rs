//! The Link Aggregation Control Protocol (IEEE 802.1AX-2014 clause 6).
//!
//! One [`Lacp`] runs the protocol of one aggregation: its members are ports of one system with one
//! operational key. As in Open vSwitch, an aggregation has one aggregator, so selection only
//! decides which members belong to it: those whose partner is that of the best member.

mod machine;
mod member;
pub mod timers;
pub mod wire;

#[cfg(test)]
mod tests;

pub use machine::{Config, Lacp, MemberConfig};
pub use member::{Counters, MemberStatus, Receive};
