//! The IP addresses of interfaces (`RTM_GETADDR`).

use super::{Attributes, Message, Netlink, link_by_name};
use std::io;
use std::net::IpAddr;

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
    let beyond = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let found = addresses_of(interface).ok()?.into_iter().map(|(address, _)| address);
    found.filter(beyond).min_by_key(IpAddr::is_ipv6)
}

/// The addresses of a kernel's interface, with the lengths of their networks' prefixes in bits.
///
/// # Errors
/// The kernel's; [`NotFound`](io::ErrorKind::NotFound) or `ENODEV` if there is no such interface.
pub fn addresses_of(interface: &str) -> io::Result<Vec<(IpAddr, u8)>> {
    let mut netlink = Netlink::open()?;
    let index = link_by_name(&mut netlink, interface)?.ifindex;
    let mut found = Vec::new();
    let ask = Message::new(RTM_GETADDR, NLM_F_DUMP, &[0; FIXED]);
    netlink.exchange(ask, |kind, payload| {
        if kind == RTM_NEWADDR {
            found.extend(address(payload, index));
        }
    })?;
    Ok(found)
}

fn address(payload: &[u8], index: u32) -> Option<(IpAddr, u8)> {
    let attributes = Attributes::after(payload, FIXED);
    let value = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS))?;
    let [family, len] = *payload.first_chunk()?;
    if super::message::read_u32(payload, 4)? != index {
        return None;
    }
    let address: IpAddr = match family {
        AF_INET => <[u8; 4]>::try_from(value).ok()?.into(),
        AF_INET6 => <[u8; 16]>::try_from(value).ok()?.into(),
        _ => return None,
    };
    Some((address, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

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
        assert_eq!(address(&v4, 3), Some((Ipv4Addr::new(10, 0, 0, 1).into(), 64)));
        assert_eq!(address(&v4, 4), None);
        assert_eq!(
            address(&message(AF_INET6, 3, &[1; 16]), 3),
            Some((Ipv6Addr::from([1; 16]).into(), 64))
        );
        for len in 0..v4.len() {
            let _ = address(&v4[..len], 3);
        }
        assert_eq!(address(&message(AF_INET, 3, &[1; 3]), 3), None);
    }
}
