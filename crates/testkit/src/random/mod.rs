//! Random OpenFlow rules, as text for `ovs-ofctl`, and random frames that match them, to compare
//! two switches, or a cache with its source.
//!
//! Both are drawn from a few values, so that rules often match; nearly every frame is well-formed,
//! and a few of each kind are not.

mod actions;
mod matches;
mod packets;
mod pools;
mod rules;

pub use packets::frame;
pub use rules::{MARK, MARK_PORT, RuleSet};
