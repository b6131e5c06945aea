//! Bonds: ports of several interfaces, of which one or all carry the traffic ("Bonding" in
//! ovs-vswitchd's documentation; the `bond_*` columns in ovs-vswitchd.conf.db(5)).
//!
//! - `active-backup`: one member carries all traffic.
//! - `balance-slb`: a hash of source address and VLAN selects the member. The switch at the other
//!   end knows nothing of the bond, so received duplicates are dropped.
//! - `balance-tcp`: a hash of layers 2 to 4 selects the member. It needs LACP.
//!
//! [`Bond`] says which members are enabled, which one is active and which member each of
//! [`BUCKETS`] hash buckets uses. Buckets move between members by load, not too often.

mod balance;
mod events;
mod hash;
mod machine;
mod show;

#[cfg(test)]
mod tests;

pub use events::Event;
pub use hash::hash_of_source;
pub use machine::{Bond, Config, LacpStatus, MemberConfig, Mode, Outputs, Refused};

/// Hash buckets of a bond.
pub const BUCKETS: usize = 256;
