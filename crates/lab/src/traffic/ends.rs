//! The hosts between which traffic goes: their agents and addresses.

use super::Agent;
use crate::bed::Bed;
use crate::topology::{Address, Topology};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::MacAddr;

/// The hosts of a testbed, an agent on each. It is made once for a testbed and serves any number of
/// runs.
#[derive(Default)]
pub struct Ends {
    hosts: BTreeMap<String, End>,
    /// MAC addresses of the hosts.
    macs: BTreeMap<String, MacAddr>,
}

struct End {
    agent: Agent,
    addresses: Vec<Address>,
}

impl Ends {
    /// Starts an agent on every host of a testbed.
    ///
    /// # Errors
    /// An agent that cannot be started.
    pub fn of(bed: &Bed, topology: &Topology) -> Result<Ends> {
        let mut ends = Ends::default();
        for host in &topology.hosts {
            let there = bed.host(&host.name)?;
            ends.add(&host.name, there.agent()?, host.addresses.clone());
            ends.macs.insert(host.name.clone(), MacAddr(there.mac()));
        }
        Ok(ends)
    }

    /// Adds a host whose agent runs already.
    pub fn add(&mut self, name: &str, agent: Agent, addresses: Vec<Address>) {
        self.hosts.insert(name.to_owned(), End { agent, addresses });
    }

    /// The agent of a host.
    ///
    /// # Errors
    /// There is no host of that name.
    pub fn agent(&self, name: &str) -> Result<&Agent> {
        Ok(&self.end(name)?.agent)
    }

    /// The address of `to` for packets of `from`: in a common network if possible, else its first.
    ///
    /// # Errors
    /// An unknown host, or one without an address.
    pub fn address(&self, from: &str, to: &str) -> Result<Ipv4Addr> {
        let (from, to_end) = (self.end(from)?, self.end(to)?);
        let near = |there: &&Address| {
            from.addresses
                .iter()
                .any(|here| network(here, here.prefix) == network(there, here.prefix))
        };
        let address = to_end.addresses.iter().find(near).or(to_end.addresses.first());
        Ok(address.with_context(|| format!("host {to} has no address"))?.ip)
    }

    /// The first IPv6 address of `to`.
    ///
    /// # Errors
    /// An unknown host, or one without such an address.
    pub fn address6(&self, to: &str) -> Result<Ipv6Addr> {
        let found = self.end(to)?.addresses.iter().find_map(|address| address.ip6);
        found.with_context(|| format!("host {to} has no IPv6 address"))
    }

    /// All addresses of a host.
    ///
    /// # Errors
    /// There is no host of that name.
    pub fn addresses(&self, name: &str) -> Result<&[Address]> {
        Ok(&self.end(name)?.addresses)
    }

    /// It is a host's MAC address, as captures write them.
    pub(crate) fn is_host(&self, mac: &str) -> bool {
        self.macs.values().any(|own| own.to_string() == mac)
    }

    /// The MAC address of a host of a testbed.
    ///
    /// # Errors
    /// There is no host of that name, or it is none of a testbed.
    pub(crate) fn mac(&self, name: &str) -> Result<[u8; 6]> {
        let mac = self.macs.get(name);
        Ok(mac
            .with_context(|| format!("no MAC address of host {name} is known"))?
            .0)
    }

    /// Names of all hosts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(String::as_str)
    }

    fn end(&self, name: &str) -> Result<&End> {
        self.hosts.get(name).with_context(|| format!("no host is named {name}"))
    }
}

/// The network that an address is in, by a prefix of this length.
fn network(address: &Address, prefix: u8) -> u32 {
    u32::from(address.ip) & mask(prefix)
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

/// The address that all hosts of an address's network listen to.
pub(crate) fn broadcast(address: &Address) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(address.ip) | !mask(address.prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(ip: [u8; 4], prefix: u8) -> Address {
        Address {
            ip: ip.into(),
            prefix,
            vlan: None,
            ip6: None,
        }
    }

    #[test]
    fn a_host_with_several_addresses_is_reached_at_the_nearest() {
        let mut ends = Ends::default();
        let agent = Agent::here("here").unwrap();
        ends.add("pc", agent.clone(), vec![address([20, 0, 0, 1], 24)]);
        ends.add("far", agent.clone(), vec![address([30, 0, 0, 1], 24)]);
        ends.add("none", agent.clone(), vec![]);
        ends.add(
            "router",
            agent,
            vec![address([10, 0, 0, 254], 24), address([20, 0, 0, 254], 24)],
        );
        assert_eq!(ends.address("pc", "router").unwrap(), Ipv4Addr::new(20, 0, 0, 254));
        assert_eq!(ends.address("far", "router").unwrap(), Ipv4Addr::new(10, 0, 0, 254));
        assert_eq!(ends.address("pc", "far").unwrap(), Ipv4Addr::new(30, 0, 0, 1));
        assert!(ends.address("pc", "none").is_err());
        assert!(ends.address("pc", "nobody").is_err());
    }

    #[test]
    fn a_networks_broadcast_address_has_all_bits_after_the_prefix() {
        assert_eq!(broadcast(&address([10, 1, 2, 3], 24)), Ipv4Addr::new(10, 1, 2, 255));
        assert_eq!(broadcast(&address([10, 1, 2, 3], 32)), Ipv4Addr::new(10, 1, 2, 3));
        assert_eq!(broadcast(&address([10, 1, 2, 3], 0)), Ipv4Addr::BROADCAST);
    }
}
