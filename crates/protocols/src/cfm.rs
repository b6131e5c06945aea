//! Connectivity Fault Management: continuity checks (IEEE 802.1Q-2018 clause 20.1, formerly
//! 802.1ag), as Open vSwitch does them.
//!
//! One [`MaintenancePoint`] watches the other ends of one interface. As in Open vSwitch, it has no
//! list of the other ends: an interface is faulty while none is heard. All have one maintenance
//! association.

mod machine;
mod settings;
mod show;
pub mod wire;

#[cfg(test)]
mod tests;

pub use machine::{Counters, Faults, MOST_REMOTES, MaintenancePoint, Status};
pub use settings::{Config, Interval, VlanTagging};
