//! The machine against RFC 3376, RFC 3810 and RFC 4541, on virtual time.

mod bounds;
mod frames;
mod memberships;
mod proxy;

use super::wire::{ipv4, ipv6};
use super::{Config, Event, PortConfig, Snooping};
use nanos::Nanos;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{MacAddr, Vid};

const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);

/// An IGMP message of a type without sources.
fn igmp(kind: u8, group: Ipv4Addr) -> Vec<u8> {
    let [a, b, c, d] = group.octets();
    ipv4(
        HOST,
        Vid::NONE,
        Ipv4Addr::new(10, 0, 0, 9),
        group,
        &[kind, 100, 0, 0, a, b, c, d],
    )
}

/// An IGMPv3 report of one record.
fn igmp3(kind: u8, group: Ipv4Addr, sources: &[[u8; 4]]) -> Vec<u8> {
    let mut body = vec![0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources.len() as u8];
    body.extend(group.octets());
    body.extend(sources.concat());
    ipv4(
        HOST,
        Vid::NONE,
        Ipv4Addr::new(10, 0, 0, 9),
        Ipv4Addr::new(224, 0, 0, 22),
        &body,
    )
}

/// An MLDv2 report of one record.
fn mld2(kind: u8, group: Ipv6Addr, sources: &[Ipv6Addr]) -> Vec<u8> {
    let mut body = vec![143, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources.len() as u8];
    body.extend(group.octets());
    sources.iter().for_each(|source| body.extend(source.octets()));
    let routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
    ipv6(HOST, Vid::NONE, LINK_LOCAL, routers, &body)
}

/// An MLD message of a type without records.
fn mld(kind: u8, group: Ipv6Addr) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0, 0, 100, 0, 0];
    body.extend(group.octets());
    ipv6(HOST, Vid::NONE, LINK_LOCAL, group, &body)
}

/// A machine with ports 1 to 4.
fn machine() -> Snooping {
    machine_with(Config::default())
}

fn machine_with(mut config: Config) -> Snooping {
    for port in 1..=4 {
        config.ports.entry(port).or_default();
    }
    let mut machine = Snooping::default();
    machine.configure(config, Nanos::ZERO);
    machine
}

/// The members of a group in VLAN 0.
fn members(machine: &Snooping, group: impl Into<IpAddr>) -> Vec<u32> {
    let group = group.into();
    let entries = machine.groups(Nanos::ZERO).into_iter();
    entries
        .filter(|entry| entry.group == group)
        .map(|entry| entry.port)
        .collect()
}

fn events(machine: &mut Snooping) -> Vec<Event> {
    std::iter::from_fn(|| machine.take_event()).collect()
}
