//! The Spanning Tree Protocol (IEEE 802.1D-1998 clauses 8 and 9).
//!
//! RSTP shares the frames ([`wire`]) and the guards of ports ([`Guards`]).

mod guard;
mod machine;
mod messages;
mod roles;
mod states;
pub(crate) mod timers;
mod topology;
pub mod wire;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use guard::{Gate, Verdict};
pub use guard::{Guard, Guards, Refused};
pub use machine::{Config, PortConfig, PortStatus, Role, State, Status, Stp};
pub use timers::BridgeTimes;

/// What a spanning tree tells its bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// What the port does with data from now on.
    Port {
        /// The port.
        port: u32,
        /// It learns addresses.
        learn: bool,
        /// It forwards.
        forward: bool,
    },
    /// The addresses that were learned at a port are no longer true.
    Flush {
        /// The port.
        port: u32,
    },
    /// A guard begins to act on a port.
    Guard {
        /// The port.
        port: u32,
        /// The guard.
        guard: Guard,
    },
}
