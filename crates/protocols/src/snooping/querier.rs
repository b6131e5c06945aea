//! A querier of our own, for networks without a multicast router (RFC 4541 §2.1.1, RFC 3376
//! §6.6.2).

use super::timers::{QUERY_INTERVAL, RESPONSE, ROBUSTNESS, STARTUP_QUERIES};
use super::wire::general_query;
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use wire::{MacAddr, Vid};

/// The settings of the querier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuerierConfig {
    /// The VLANs in which it asks; 0 is outside any VLAN.
    pub vlans: BTreeSet<Vid>,
    /// The IPv4 source of queries. With 0.0.0.0 every other querier wins the election.
    pub address: Ipv4Addr,
    /// The Ethernet source; the link-local source of MLD queries is made of it (RFC 4291
    /// appendix A).
    pub mac: MacAddr,
    /// The time between queries, in the bounds of [`QUERY_INTERVAL`].
    pub interval: Duration,
}

/// The querier's state in a VLAN, for IPv4 or IPv6.
#[derive(Clone, Copy, Debug)]
struct Network {
    next: Nanos,
    startup: u8,
}

/// The querier.
#[derive(Debug, Default)]
pub(super) struct Querier {
    config: Option<QuerierConfig>,
    networks: BTreeMap<(Vid, bool), Network>,
}

impl Querier {
    pub(super) fn configure(&mut self, config: Option<QuerierConfig>, now: Nanos) {
        let wanted = |vlan: &Vid| config.as_ref().is_some_and(|config| config.vlans.contains(vlan));
        self.networks.retain(|(vlan, _), _| wanted(vlan));
        for vlan in config.iter().flat_map(|config| &config.vlans) {
            for is_v6 in [false, true] {
                self.networks.entry((*vlan, is_v6)).or_insert(Network {
                    next: now,
                    startup: STARTUP_QUERIES,
                });
            }
        }
        self.config = config;
    }

    /// Hears another querier: the one with the lowest address asks.
    pub(super) fn hear(&mut self, vlan: Vid, other: IpAddr, now: Nanos) {
        let Some(config) = &self.config else { return };
        let own = config.source(other.is_ipv6());
        let wins = own.is_unspecified() || other < own;
        if wins && let Some(network) = self.networks.get_mut(&(vlan, other.is_ipv6())) {
            // The other querier present interval.
            network.next = now + config.interval * ROBUSTNESS + RESPONSE / 2;
            network.startup = 0;
        }
    }

    /// The queries that are due.
    pub(super) fn tick(&mut self, now: Nanos) -> Vec<(Vid, Vec<u8>)> {
        let Some(config) = &self.config else {
            return Vec::new();
        };
        let (min, max) = (QUERY_INTERVAL.1, QUERY_INTERVAL.2);
        let interval = config.interval.clamp(min, max);
        let mut queries = Vec::new();
        for ((vlan, is_v6), network) in &mut self.networks {
            if network.next <= now {
                network.startup = network.startup.saturating_sub(1);
                network.next = now + if network.startup > 0 { interval / 4 } else { interval };
                let source = config.source(*is_v6);
                queries.push((*vlan, general_query(config.mac, *vlan, source, RESPONSE, interval)));
            }
        }
        queries
    }

    pub(super) fn next_event(&self) -> Option<Nanos> {
        self.networks.values().map(|network| network.next).min()
    }
}

impl QuerierConfig {
    fn source(&self, is_v6: bool) -> IpAddr {
        match is_v6 {
            true => link_local(self.mac).into(),
            false => self.address.into(),
        }
    }
}

/// The link-local address of an Ethernet address (RFC 4291 appendix A).
pub(super) fn link_local(mac: MacAddr) -> std::net::Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f].into()
}
