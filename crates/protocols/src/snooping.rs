//! Multicast snooping: which ports of a bridge have receivers of a multicast group (RFC 4541).
//!
//! The machine reads the IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810) messages that hosts
//! and routers send. It keeps the members of each group by VLAN and port, with the sources that
//! they want, and the ports behind which queriers are. [`Snooping::take_event`] says what the
//! bridge's tables need to know. Forwarding is the switch's business.

mod machine;
mod membership;
mod proxy;
mod querier;
mod report;
mod timers;
pub mod wire;

pub use machine::{Config, Event, GroupEntry, PortConfig, PortCounters, RouterEntry, Snooping, TABLE_SIZE};
pub use membership::SourceFilter;
pub use proxy::ProxyConfig;
pub use querier::QuerierConfig;
pub use timers::{AGING, QUERY_INTERVAL};

#[cfg(test)]
mod tests;
