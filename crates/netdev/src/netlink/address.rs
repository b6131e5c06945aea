//! The IP addresses of interfaces (`RTM_GETADDR`).

use super::{Attributes, Message, Netlink, link_by_name};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
/// The length of `struct ifaddrmsg`.
const FIXED: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const NLM_F_DUMP: u16 = super::message::NLM_F_DUMP;

/// An address of a kernel's interface: the first of IPv4, or else the first of IPv6 that is valid
/// beyond its link. `None` where there is no such interface, or it has none.
pub fn address_of(interface: &str) -> Option<IpAddr> {
    let mut netlink = Netlink::open().ok()?;
    let index = link_by_name(&mut netlink, interface).ok()?.ifindex;
    let mut found = Vec::new();
    let ask = Message::new(RTM_GETADDR, NLM_F_DUMP, &[0; FIXED]);
    let read = |kind: u16, payload: &[u8]| {
        if kind == RTM_NEWADDR {
            found.extend(address(payload, index));
        }
    };
    netlink.exchange(ask, read).ok()?;
    found.into_iter().min_by_key(IpAddr::is_ipv6)
}

fn address(payload: &[u8], index: u32) -> Option<IpAddr> {
    let attributes = Attributes::after(payload, FIXED);
    let value = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS))?;
    if super::message::read_u32(payload, 4)? != index {
        return None;
    }
    match *payload.first()? {
        AF_INET => <[u8; 4]>::try_from(value)
            .ok()
            .map(|bytes| Ipv4Addr::from(bytes).into()),
        AF_INET6 => {
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?);
            (!address.is_unicast_link_local()).then_some(address.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_tell_their_addresses() {
        assert_eq!(address_of("lo"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(address_of("no-such-one"), None);
        let message = |family: u8, index: u8, attribute: &[u8]| {
            let mut bytes = vec![family, 64, 0, 0, index, 0, 0, 0];
            bytes.extend([attribute.len() as u8 + 4, 0, IFA_ADDRESS as u8, 0]);
            bytes.extend(attribute);
            bytes
        };
        let v4 = message(AF_INET, 3, &[10, 0, 0, 1]);
        assert_eq!(address(&v4, 3), Some(Ipv4Addr::new(10, 0, 0, 1).into()));
        assert_eq!(address(&v4, 4), None);
        let local: Ipv6Addr = "fe80::1".parse().unwrap();
        assert_eq!(address(&message(AF_INET6, 3, &local.octets()), 3), None);
        assert_eq!(
            address(&message(AF_INET6, 3, &[1; 16]), 3),
            Some(Ipv6Addr::from([1; 16]).into())
        );
        for len in 0..v4.len() {
            let _ = address(&v4[..len], 3);
        }
        assert_eq!(address(&message(AF_INET, 3, &[1; 3]), 3), None);
    }
}
