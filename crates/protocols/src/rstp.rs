//! The Rapid Spanning Tree Protocol (IEEE 802.1D-2004 clause 17).
//!
//! The standard defines it as state machines that run until none has a transition left. Here, each
//! file has some of them, as functions that return whether they did something, and
//! [`Rstp`] runs them. Variables and functions have the standard's names; variables of one port are
//! fields of one structure.

mod information;
mod machine;
mod migration;
mod port;
mod roles;
mod timers;
mod topology;
mod transitions;
mod transmit;
pub mod wire;

#[cfg(test)]
mod tests;

pub use machine::{Config, PointToPoint, PortConfig, PortStatus, Rstp, Status};
pub use port::{Role, State};

pub use crate::stp::{Event, Guard, Guards, Refused};
