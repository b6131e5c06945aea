//! Bridges on virtual time: VLANs, learning, flooding, patches.

#[path = "support/ask.rs"]
mod ask;
#[path = "bridges/bonds.rs"]
mod bonds;
#[path = "bridges/control.rs"]
mod control;
#[path = "bridges/guard.rs"]
mod guard;
#[path = "bridges/lab.rs"]
mod lab;
#[path = "bridges/learning.rs"]
mod learning;
#[path = "bridges/mac_limit.rs"]
mod mac_limit;
#[path = "bridges/patches.rs"]
mod patches;
#[path = "bridges/refusals.rs"]
mod refusals;
#[path = "bridges/snooping.rs"]
mod snooping;
#[path = "bridges/storm.rs"]
mod storm;
#[path = "bridges/vlans.rs"]
mod vlans;
#[path = "bridges/watched.rs"]
mod watched;
