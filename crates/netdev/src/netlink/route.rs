//! The kernel's routes (`RTM_GETROUTE`).

use super::message::{NLM_F_DUMP, read_u16, read_u32};
use super::{Attributes, Message, Netlink, dump_links};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
/// The length of `struct rtmsg`.
const FIXED: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_MARK: u16 = 16;
const RTA_VIA: u16 = 18;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
/// A route of the cache, made for one destination.
const RTM_F_CLONED: u32 = 0x200;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// The length of `struct rtnexthop`.
const NEXT_HOP: usize = 8;

/// A route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// The destination's address.
    pub to: IpAddr,
    /// The number of its table: 253 is `default`, 254 `main`, 255 `local`.
    pub table: u32,
    /// The length of its prefix in bits: 0 to 32, or to 128 for IPv6.
    pub len: u8,
    /// The mark of the packets that it is for; 0 for all.
    pub mark: u32,
    /// The name of the device that packets leave by; of several next hops, the first one's.
    pub device: String,
    /// The next router.
    pub gateway: Option<IpAddr>,
    /// The source address that the route names.
    pub source: Option<IpAddr>,
    /// It leads to an address of this host.
    pub local: bool,
}

/// The routes of the network namespace of the calling thread, in the kernel's order. Of routes that
/// differ in nothing but their metrics, those with the lowest are there.
///
/// # Errors
/// The kernel's.
pub fn routes() -> io::Result<Vec<KernelRoute>> {
    let mut netlink = Netlink::open()?;
    let links = dump_links(&mut netlink)?;
    let names: BTreeMap<u32, &str> = links.iter().map(|link| (link.ifindex, link.name.as_str())).collect();
    let mut found = Vec::new();
    let ask = Message::new(RTM_GETROUTE, NLM_F_DUMP, &[0; FIXED]);
    netlink.exchange(ask, |kind, payload| {
        if kind == RTM_NEWROUTE {
            found.extend(parse(payload, &names));
        }
    })?;
    let mut best: HashMap<_, u32> = HashMap::new();
    let key = |route: &KernelRoute| (route.table, route.to, route.len, route.mark, route.local);
    for (route, metric) in &found {
        let lowest = best.entry(key(route)).or_insert(*metric);
        *lowest = (*lowest).min(*metric);
    }
    found.retain(|(route, metric)| best[&key(route)] == *metric);
    Ok(found.into_iter().map(|(route, _)| route).collect())
}

/// A route and its metric; `None` for one that forwards nothing.
fn parse(payload: &[u8], names: &BTreeMap<u32, &str>) -> Option<(KernelRoute, u32)> {
    let [family, len, _, _, table, _, _, kind] = *payload.first_chunk()?;
    let attributes = Attributes::after(payload, FIXED);
    let table = attributes.u32(RTA_TABLE).unwrap_or(table.into());
    if !matches!(kind, RTN_UNICAST | RTN_LOCAL) || read_u32(payload, 8)? & RTM_F_CLONED != 0 {
        return None;
    }
    let unspecified: IpAddr = match family {
        AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let to = match attributes.get(RTA_DST) {
        Some(bytes) => address(bytes)?,
        None => unspecified,
    };
    let width = if to.is_ipv4() { 32 } else { 128 };
    if to.is_ipv4() != unspecified.is_ipv4() || len > width {
        return None;
    }
    let (index, hop) = match (attributes.u32(RTA_OIF), attributes.get(RTA_MULTIPATH)) {
        (Some(index), _) => (index, attributes),
        (None, Some(hops)) => (read_u32(hops, 4)?, first_hop(hops)?),
        (None, None) => return None,
    };
    let route = KernelRoute {
        table,
        to,
        len,
        mark: attributes.u32(RTA_MARK).unwrap_or(0),
        device: (*names.get(&index)?).to_owned(),
        gateway: gateway(hop),
        source: attributes.get(RTA_PREFSRC).and_then(address),
        local: kind == RTN_LOCAL,
    };
    Some((route, attributes.u32(RTA_PRIORITY).unwrap_or(0)))
}

/// The attributes of the first `struct rtnexthop`.
fn first_hop(hops: &[u8]) -> Option<Attributes<'_>> {
    let len = usize::from(read_u16(hops, 0)?);
    Some(Attributes::after(hops.get(..len)?, NEXT_HOP))
}

/// The router, whose address may be of the other family (`RTA_VIA`).
fn gateway(hop: Attributes<'_>) -> Option<IpAddr> {
    let via = || address(hop.get(RTA_VIA)?.get(2..)?);
    hop.get(RTA_GATEWAY).and_then(address).or_else(via)
}

pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute, padded.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u8, table: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![AF_INET, 16, 0, 0, table, 0, 0, kind, 0, 0, 0, 0];
        bytes.extend(attributes.concat());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<(KernelRoute, u32)> {
        parse(bytes, &BTreeMap::from([(3, "v0")]))
    }

    #[test]
    fn routes_of_the_loopback_device_are_listed() {
        let routes = routes().unwrap();
        let own = |route: &&KernelRoute| route.local && route.to == IpAddr::from([127, 0, 0, 1]);
        let route = routes.iter().find(own).expect("lo is up");
        assert_eq!((route.device.as_str(), route.len), ("lo", 32));
    }

    #[test]
    fn routes_have_the_first_next_hop() {
        let to = attribute(RTA_DST, &[10, 2, 0, 0]);
        let hop = |index: u8, gateway: u8| {
            let gateway = attribute(RTA_GATEWAY, &[10, 1, 2, gateway]);
            [&[16, 0, 0, 0, index, 0, 0, 0], gateway.as_slice()].concat()
        };
        let hops = attribute(RTA_MULTIPATH, &[hop(3, 8), hop(4, 9)].concat());
        let several = message(RTN_UNICAST, 254, &[to.clone(), hops]);
        let (route, metric) = read(&several).unwrap();
        assert_eq!((route.device.as_str(), metric), ("v0", 0));
        assert_eq!(route.gateway, Some([10, 1, 2, 8].into()));
        for len in 0..several.len() {
            let _ = read(&several[..len]);
        }
    }

    #[test]
    fn a_gateway_may_be_of_the_other_family() {
        let device = attribute(RTA_OIF, &3u32.to_ne_bytes());
        let mut via = AF_INET6.to_ne_bytes().to_vec();
        via.push(0);
        via.extend([9; 16]);
        let bytes = message(RTN_UNICAST, 254, &[device, attribute(RTA_VIA, &via)]);
        assert_eq!(read(&bytes).unwrap().0.gateway, Some([9; 16].into()));
    }

    #[test]
    fn routes_that_forward_nothing_are_left_out() {
        const BLACKHOLE: u8 = 6;
        let rest = [
            attribute(RTA_DST, &[10, 2, 0, 0]),
            attribute(RTA_OIF, &3u32.to_ne_bytes()),
        ];
        let kept = |kind, table| read(&message(kind, table, &rest)).is_some();
        assert!(kept(RTN_UNICAST, 254) && kept(RTN_LOCAL, 255));
        assert!(!kept(BLACKHOLE, 254));
        assert_eq!(read(&message(RTN_UNICAST, 77, &rest)).unwrap().0.table, 77);
        let mut cloned = message(RTN_UNICAST, 254, &rest);
        cloned[9] = 2;
        assert_eq!(read(&cloned), None);
        let mut long = message(RTN_UNICAST, 254, &rest);
        long[1] = 33;
        assert_eq!(read(&long), None);
        let elsewhere = [rest[0].clone(), attribute(RTA_OIF, &9u32.to_ne_bytes())];
        assert_eq!(read(&message(RTN_UNICAST, 254, &elsewhere)), None);
    }
}
