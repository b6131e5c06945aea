//! Prefixes of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// What an IPv4 prefix is longer as an IPv4-mapped prefix of IPv6 (RFC 4291 §2.5.5.2).
const MAPPED: u8 = 96;

/// An address with the length of its prefix: a network, or a host in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    host: IpAddr,
    len: u8,
}

impl Prefix {
    /// A prefix of `len` bits: 0 to 32 for IPv4, 0 to 128 for IPv6; `None` for others.
    pub fn new(host: IpAddr, len: u8) -> Option<Prefix> {
        (len <= width(host)).then_some(Prefix { host, len })
    }

    /// The prefix of an address that has `len` bits as one of IPv6; `None` if an IPv4 address has
    /// none of that length.
    pub(super) fn of_mapped(host: IpAddr, len: u8) -> Option<Prefix> {
        match host {
            IpAddr::V4(_) => Prefix::new(host, len.checked_sub(MAPPED)?),
            IpAddr::V6(_) => Prefix::new(host, len),
        }
    }

    /// The address as it was given, with the bits behind the prefix.
    pub fn host(&self) -> IpAddr {
        self.host
    }

    /// The network's address: zeros behind the prefix.
    pub fn address(&self) -> IpAddr {
        let rest = u32::from(width(self.host) - self.len);
        match self.host {
            IpAddr::V4(host) => {
                let mask = u32::MAX.checked_shl(rest).unwrap_or(0);
                Ipv4Addr::from_bits(host.to_bits() & mask).into()
            }
            IpAddr::V6(host) => {
                let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
                Ipv6Addr::from_bits(host.to_bits() & mask).into()
            }
        }
    }

    /// The length in bits.
    #[expect(clippy::len_without_is_empty, reason = "a prefix of no bits is the default route's")]
    pub fn len(&self) -> u8 {
        self.len
    }

    /// The length as a prefix of IPv6, where IPv4 addresses are mapped.
    pub(super) fn mapped_len(&self) -> u8 {
        self.len + if self.host.is_ipv4() { MAPPED } else { 0 }
    }

    /// Whether the network has this address.
    pub fn contains(&self, other: IpAddr) -> bool {
        other.is_ipv4() == self.host.is_ipv4()
            && Prefix::new(other, self.len).is_some_and(|other| other.address() == self.address())
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// `ADDRESS/LEN`, zeros behind the prefix.
impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.len)
    }
}

/// A text that is no prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsePrefixError;

impl fmt::Display for ParsePrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address with a prefix length or a contiguous mask")
    }
}

impl std::error::Error for ParsePrefixError {}

/// `ADDRESS`, `ADDRESS/LEN` or `ADDRESS/MASK`.
impl FromStr for Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Prefix, ParsePrefixError> {
        let (host, rest) = text
            .split_once('/')
            .map_or((text, None), |(host, len)| (host, Some(len)));
        let host: IpAddr = host.parse().map_err(|_| ParsePrefixError)?;
        let len = match rest {
            None => Some(width(host)),
            Some(len) if len.bytes().all(|byte| byte.is_ascii_digit()) => len.parse().ok(),
            Some(mask) => mask.parse().ok().and_then(|mask| ones(host, mask)),
        };
        len.and_then(|len| Prefix::new(host, len)).ok_or(ParsePrefixError)
    }
}

/// The length of a mask of the same family, if it is contiguous.
fn ones(host: IpAddr, mask: IpAddr) -> Option<u8> {
    let (ones, all) = match (host, mask) {
        (IpAddr::V4(_), IpAddr::V4(mask)) => (mask.to_bits().leading_ones(), mask.to_bits().count_ones()),
        (IpAddr::V6(_), IpAddr::V6(mask)) => (mask.to_bits().leading_ones(), mask.to_bits().count_ones()),
        _ => return None,
    };
    (ones == all).then_some(ones as u8)
}
