//! Messages of hosts and queries for a group, as the proxy sends them.

use super::proxy::ProxyConfig;
use super::querier::link_local;
use super::timers::QUERY_INTERVAL;
use super::wire::{Record, Version, ipv4, ipv6, query_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use wire::Vid;

/// Bytes of an IP packet, and those before the records: the IP header, the router alert option and
/// the head of the message.
const MTU: usize = 1500;
const BEFORE_RECORDS: (usize, usize) = (24 + 8, 40 + 8 + 8);
const IGMP_V1_REPORT: u8 = 0x12;
const IGMP_V2_REPORT: u8 = 0x16;
const IGMP_LEAVE: u8 = 0x17;
const IGMP_V3_REPORT: u8 = 0x22;
const MLD_REPORT: u8 = 131;
const MLD_DONE: u8 = 132;
const MLD_V2_REPORT: u8 = 143;
/// All routers, and the routers of IGMPv3 and MLDv2 (RFC 2236 §9, RFC 3376 §4.2.14, RFC 3810
/// §5.2.14).
const ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const ROUTERS6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const V3_ROUTERS6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// Reports with these records, all of one protocol: as many as they need.
pub(super) fn with_records(sender: &ProxyConfig, vlan: Vid, is_v6: bool, records: &[Record]) -> Vec<Vec<u8>> {
    let room = MTU - if is_v6 { BEFORE_RECORDS.1 } else { BEFORE_RECORDS.0 };
    let mut frames = Vec::new();
    let (mut body, mut number) = (Vec::new(), 0u16);
    let mut flush = |body: &mut Vec<u8>, number: &mut u16| {
        if *number > 0 {
            frames.push(report(sender, vlan, is_v6, *number, body));
        }
        body.clear();
        *number = 0;
    };
    for record in records {
        let written = bytes_of(record);
        if body.len() + written.len() > room {
            flush(&mut body, &mut number);
        }
        body.extend(written);
        number += 1;
    }
    flush(&mut body, &mut number);
    frames
}

fn bytes_of(record: &Record) -> Vec<u8> {
    let mut bytes = vec![record.kind as u8, 0];
    bytes.extend((record.sources.len() as u16).to_be_bytes());
    for address in std::iter::once(&record.group).chain(&record.sources) {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    bytes
}

fn report(sender: &ProxyConfig, vlan: Vid, is_v6: bool, number: u16, records: &[u8]) -> Vec<u8> {
    let mut body = vec![if is_v6 { MLD_V2_REPORT } else { IGMP_V3_REPORT }, 0, 0, 0, 0, 0];
    body.extend(number.to_be_bytes());
    body.extend(records);
    match is_v6 {
        true => ipv6(sender.mac, vlan, link_local(sender.mac), V3_ROUTERS6, &body),
        false => ipv4(sender.mac, vlan, sender.address, V3_ROUTERS, &body),
    }
}

/// A report or leave message of an older version; `None` where the version has no leave message.
pub(super) fn older(sender: &ProxyConfig, vlan: Vid, group: IpAddr, version: Version, leaves: bool) -> Option<Vec<u8>> {
    match group {
        IpAddr::V4(group) => {
            let (kind, dst) = match (version, leaves) {
                (Version::V1, true) => return None,
                (Version::V1, false) => (IGMP_V1_REPORT, group),
                (_, false) => (IGMP_V2_REPORT, group),
                (_, true) => (IGMP_LEAVE, ROUTERS),
            };
            let mut body = vec![kind, 0, 0, 0];
            body.extend(group.octets());
            Some(ipv4(sender.mac, vlan, sender.address, dst, &body))
        }
        IpAddr::V6(group) => {
            let (kind, dst) = match leaves {
                false => (MLD_REPORT, group),
                true => (MLD_DONE, ROUTERS6),
            };
            let mut body = vec![kind, 0, 0, 0, 0, 0, 0, 0];
            body.extend(group.octets());
            Some(ipv6(sender.mac, vlan, link_local(sender.mac), dst, &body))
        }
    }
}

/// A query for one group, which hosts of all versions answer within `response`. Routers keep their
/// timers (the S flag, RFC 3376 §4.1.5).
pub(super) fn group_query(sender: &ProxyConfig, vlan: Vid, group: IpAddr, response: Duration) -> Vec<u8> {
    let src = match group {
        // A switch that asks does not want to be elected (RFC 4541 §2.1.1).
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => link_local(sender.mac).into(),
    };
    query_of(sender.mac, vlan, src, Some(group), response, QUERY_INTERVAL.0)
}
