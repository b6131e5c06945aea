//! Learning, VLAN-aware bridges (IEEE 802.1Q) as Open vSwitch's NORMAL action has them, without
//! sockets, clocks or threads.
//!
//! A [`Switch`] is told what it is ([`Switch::configure`]), asked what becomes of a packet
//! ([`Switch::translate`], which changes nothing), told what packets taught ([`Switch::apply`]),
//! and told that time passed ([`Switch::tick`], due at [`Switch::next_event`]). Whatever changes
//! the answer of an earlier `translate` is returned as [`dp::Change`]s, which the caller publishes
//! before anyone translates again.
//!
//! Invariants
//! - Translations depend on the key, on the tables and on nothing else; not on the time, because
//!   [`Switch::tick`] alone removes what is old.
//! - Packets that are equal under a translation's mask have the same actions, dependencies and
//!   effects.
//! - A translation stays right until a change of one of its dependencies is returned.
//! - In a steady state nothing is returned: refreshing an address is no change.
#![forbid(unsafe_code)]

mod bridge;
mod bulk;
mod config;
mod configure;
mod control;
mod dep;
mod fdb;
mod port;
mod reserved;
mod switch;
pub mod tables;
pub mod trace;
mod translate;
mod vlan_set;

pub use bridge::{Bridge, FdbEntry};
pub use config::{
    Attach, BridgeConfig, FailMode, FragMode, InterfaceConfig, PortConfig, PortFlags, PriorityTags, SwitchConfig,
    VlanMode,
};
pub use control::{BundleError, BundleItem};
pub use fdb::FdbStats;
pub use switch::{FdbError, Ignored, News, OutOfDate, Switch};
pub use vlan_set::VlanSet;
