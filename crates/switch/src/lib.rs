//! Bridges: VLANs (IEEE 802.1Q), MAC learning, OpenFlow tables, and the translation of packets to
//! datapath actions, without sockets, clocks or threads.
//!
//! [`Switch::configure`] sets the bridges and ports. [`Switch::translate`] answers an upcall and
//! changes nothing; [`Switch::accept`] then applies what the packet changes. [`Switch::tick`] is
//! due at [`Switch::next_event`]. Calls that change the answer of an earlier `translate` return
//! [`dp::Change`]s. The caller publishes them before it translates again.
//!
//! Invariants
//! - The actions of a translation depend on the packet and the tables only, not on the time:
//!   [`Switch::tick`] alone removes what is old.
//! - Packets that are equal under a translation's mask have the same actions, dependencies and
//!   effects.
//! - A translation is valid until a change of one of its dependencies is returned.
//! - In a steady state, nothing is returned: refreshing a station is no change.
#![forbid(unsafe_code)]

mod bond;
mod bridge;
mod bulk;
mod config;
mod configure;
mod control;
mod dep;
mod export;
mod fdb;
mod mirror;
mod multicast;
mod port;
mod reserved;
mod security;
mod storm;
mod switch;
pub mod tables;
pub mod trace;
mod translate;
mod tunnel;
mod vlan_set;

pub use bond::BondState;
pub use bridge::{Bridge, FdbEntry};
pub use config::{
    Attach, BfdFrames, BridgeConfig, FailMode, FragMode, InterfaceConfig, LinkState, MacLimit, MirrorConfig,
    MirrorOutput, PortConfig, PortFlags, PortGuard, PriorityTags, Punts, SwitchConfig, VlanMode,
};
pub use control::{BundleError, BundleItem};
pub use export::{ExportConfig, FlowCounts, FlowKey, FlowOutput, FlowRecord, IpfixConfig, SflowConfig};
pub use fdb::FdbStats;
pub use mirror::{MAX_MIRRORS, MirrorCounts};
pub use multicast::SnoopingConfig;
pub use security::{Secured, SecuredPort, Security};
pub use storm::{Storm, StormControl, StormLimit};
pub use switch::{FdbError, Ignored, News, OutOfDate, Switch};
pub use tunnel::{PortCounts, TunnelTables, Underlay, UnderlayBridge, Way};
pub use vlan_set::VlanSet;
