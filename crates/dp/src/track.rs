//! The action `ct`.

use crate::ParseActionsError;
use crate::parse::{number, parts};
use conntrack::{Helper, Nat, PolicyId, PortsBy, Range, Request};
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;
use std::str::FromStr;

/// What the tracker does with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Track {
    /// The zone, and what is done with the connection.
    pub request: Request,
    /// Whether the packets are fragments: they are tracked when their datagram is whole.
    pub fragments: bool,
}

/// Prints as `ovs-dpctl dump-flows` prints the action.
impl Display for Track {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let request = &self.request;
        let mut parts = Vec::new();
        if request.commit {
            parts.push(String::from(if request.force { "force_commit" } else { "commit" }));
        }
        if request.zone != 0 {
            parts.push(format!("zone={}", request.zone));
        }
        if let Some((value, mask)) = request.mark {
            parts.push(format!("mark={value:#x}/{mask:#x}"));
        }
        if let Some((value, mask)) = request.label {
            parts.push(format!("label={value:#x}/{mask:#x}"));
        }
        if let Some(helper) = request.helper {
            parts.push(format!("helper={}", helper.name()));
        }
        if request.policy != PolicyId::default() {
            parts.push(format!("timeout={}", request.policy.0));
        }
        if let Some(nat) = &request.nat {
            parts.push(nat_text(nat));
        }
        match parts.is_empty() {
            true => f.write_str("ct"),
            false => write!(f, "ct({})", parts.join(",")),
        }
    }
}

fn nat_text(nat: &Nat) -> String {
    let (name, range) = match nat {
        Nat::Existing => return String::from("nat"),
        Nat::Source(range) => ("src", range),
        Nat::Destination(range) => ("dst", range),
    };
    let mut text = format!("nat({name}");
    if range.addresses.is_some() || range.ports.is_some() {
        text.push('=');
    }
    if let Some((first, last)) = range.addresses {
        let mut addresses = first.to_string();
        if last != first {
            addresses += &format!("-{last}");
        }
        text += &match first.is_ipv6() && range.ports.is_some() {
            true => format!("[{addresses}]"),
            false => addresses,
        };
    }
    if let Some((first, last)) = range.ports {
        text += &format!(":{first}");
        if last != first {
            text += &format!("-{last}");
        }
    }
    if range.persistent {
        text += ",persistent";
    }
    match range.ports_by {
        PortsBy::Default => {}
        PortsBy::Hash => text += ",hash",
        PortsBy::Random => text += ",random",
    }
    text + ")"
}

/// Reads what is between the parentheses: `commit,zone=5,nat(src=10.0.0.1)`.
impl FromStr for Track {
    type Err = ParseActionsError;

    fn from_str(text: &str) -> Result<Track, ParseActionsError> {
        let mut request = Request::default();
        for part in parts(text) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                "commit" => request.commit = true,
                "force_commit" => (request.commit, request.force) = (true, true),
                "zone" => request.zone = value.parse().map_err(|_| ParseActionsError)?,
                "mark" => {
                    let (value, mask) = masked(value, u32::MAX.into())?;
                    request.mark = Some((value as u32, mask as u32));
                }
                "label" => request.label = Some(masked(value, u128::MAX)?),
                "helper" => {
                    let known = [Helper::Ftp, Helper::Tftp]
                        .into_iter()
                        .find(|helper| helper.name() == value);
                    request.helper = Some(known.ok_or(ParseActionsError)?);
                }
                "timeout" => request.policy = PolicyId(value.parse().map_err(|_| ParseActionsError)?),
                _ if part == "nat" => request.nat = Some(Nat::Existing),
                _ => {
                    let inner = part.strip_prefix("nat(").and_then(|part| part.strip_suffix(')'));
                    request.nat = Some(nat(inner.ok_or(ParseActionsError)?)?);
                }
            }
        }
        Ok(Track {
            request,
            fragments: false,
        })
    }
}

/// `value` or `value/mask`, up to `most`.
fn masked(text: &str, most: u128) -> Result<(u128, u128), ParseActionsError> {
    let (value, mask) = text.split_once('/').unwrap_or((text, ""));
    let mask = if mask.is_empty() { most } else { number(mask, most)? };
    Ok((number(value, most)? & mask, mask))
}

/// `src=10.0.0.1-10.0.0.9:100-200,persistent,random`.
fn nat(text: &str) -> Result<Nat, ParseActionsError> {
    let mut parts = parts(text).into_iter();
    let first = parts.next().ok_or(ParseActionsError)?;
    let (name, value) = first.split_once('=').unwrap_or((first, ""));
    let mut range = Range::default();
    if !value.is_empty() {
        (range.addresses, range.ports) = range_of(value).ok_or(ParseActionsError)?;
    }
    for flag in parts {
        match flag {
            "persistent" => range.persistent = true,
            "hash" => range.ports_by = PortsBy::Hash,
            "random" => range.ports_by = PortsBy::Random,
            _ => return Err(ParseActionsError),
        }
    }
    match name {
        "src" => Ok(Nat::Source(range)),
        "dst" => Ok(Nat::Destination(range)),
        _ => Err(ParseActionsError),
    }
}

type Addresses = Option<(IpAddr, IpAddr)>;
type Ports = Option<(u16, u16)>;

fn range_of(text: &str) -> Option<(Addresses, Ports)> {
    let (addresses, ports) = if let Some(bracketed) = text.strip_prefix('[') {
        let (addresses, rest) = bracketed.split_once(']')?;
        let ports = if rest.is_empty() {
            None
        } else {
            Some(rest.strip_prefix(':')?)
        };
        (addresses, ports)
    } else if text.matches(':').count() > 1 {
        (text, None)
    } else {
        match text.split_once(':') {
            Some((addresses, ports)) => (addresses, Some(ports)),
            None => (text, None),
        }
    };
    let addresses = match addresses {
        "" => None,
        text => {
            let (first, last): (IpAddr, IpAddr) = pair(text)?;
            (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(())?;
            Some((first, last))
        }
    };
    let ports = match ports {
        None => None,
        Some(text) => Some(pair(text).filter(|(first, last)| first <= last)?),
    };
    Some((addresses, ports))
}

/// `first-last`, or one for both.
fn pair<T: FromStr + Copy>(text: &str) -> Option<(T, T)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}
