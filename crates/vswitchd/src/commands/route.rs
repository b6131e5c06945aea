//! `ovs/route/*`: the routes that tunnels take.

use super::Answer;
use crate::state::State;
use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};
use tunnel::route::Prefix;

/// How a mark of packets is given.
const MARK: &str = "pkt_mark=";

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    let usage = "ip_addr/prefix_len out_br_name [gw] [pkt_mark=mark]";
    add("ovs/route/add", usage, 2, 4, add_route);
    add("ovs/route/del", "ip_addr/prefix_len [pkt_mark=mark]", 1, 2, remove);
    add("ovs/route/lookup", "ip_addr [pkt_mark=mark]", 1, 2, lookup);
}

/// `ovs/route/show` as text.
pub(super) fn show(state: &State) -> String {
    let mut routes = state.routes.borrow_mut();
    let lines = routes.table().routes();
    lines.fold("Route Table:\n".to_owned(), |mut out, route| {
        let _ = writeln!(out, "{route}");
        out
    })
}

fn add_route(state: &State, args: &[String]) -> Answer {
    let to = prefix(&args[0])?;
    let (mut mark, mut gateway) = (0, None);
    if let Some(word) = args.get(2) {
        let same_family = |address: &IpAddr| address.is_ipv4() == to.host().is_ipv4();
        match (read_mark(word), word.parse().ok().filter(same_family)) {
            (Some(number), _) => mark = number,
            (None, Some(address)) => gateway = Some(address),
            (None, None) if to.host().is_ipv4() => return Err("Invalid pkt_mark or gateway".to_owned()),
            (None, None) => return Err("Invalid pkt_mark or IPv6 gateway".to_owned()),
        }
    }
    if let Some(word) = args.get(3) {
        mark = read_mark(word).ok_or("Invalid pkt_mark")?;
    }
    let device = args[1].as_str();
    let addresses = state.bridges.borrow().addresses_of(device);
    let added = state.routes.borrow_mut().add(to, mark, device, gateway, &addresses);
    added.ok_or("Error while inserting route.")?;
    let _ = state.settle_underlay();
    Ok("OK".to_owned())
}

fn remove(state: &State, args: &[String]) -> Answer {
    let (to, mark) = (prefix(&args[0])?, mark(args.get(1))?);
    let removed = state.routes.borrow_mut().remove(to, mark);
    if removed {
        let _ = state.settle_underlay();
        Ok("OK".to_owned())
    } else {
        Err("Not found".to_owned())
    }
}

fn lookup(state: &State, args: &[String]) -> Answer {
    let to = prefix(&args[0])?;
    if to.len() != if to.host().is_ipv4() { 32 } else { 128 } {
        return Err("Invalid parameters".to_owned());
    }
    let mark = mark(args.get(1))?;
    let mut routes = state.routes.borrow_mut();
    let route = routes.table().lookup(to.host(), mark).ok_or("Not found")?;
    let gateway = route.hop.gateway.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
    Ok(format!(
        "src {}\ngateway {gateway}\ndev {}\n",
        route.hop.source, route.hop.device
    ))
}

fn prefix(text: &str) -> Result<Prefix, String> {
    text.parse().map_err(|_| "Invalid parameters".to_owned())
}

fn mark(word: Option<&String>) -> Result<u32, String> {
    let Some(word) = word else { return Ok(0) };
    read_mark(word).ok_or_else(|| "Invalid pkt_mark".to_owned())
}

/// Reads `pkt_mark=NUMBER`, decimal, hexadecimal with `0x` or octal with a leading zero, as C
/// reads it: characters behind the number are ignored.
fn read_mark(word: &str) -> Option<u32> {
    let text = word.strip_prefix(MARK)?;
    let (radix, digits) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_hexdigit()) => (16, rest),
        _ if text.starts_with('0') => (8, text),
        _ => (10, text),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    u32::from_str_radix(&digits[..end], radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_c_reads_numbers() {
        for (text, mark) in [
            ("pkt_mark=7", Some(7)),
            ("pkt_mark=0x1f", Some(31)),
            ("pkt_mark=010", Some(8)),
            ("pkt_mark=0", Some(0)),
            ("pkt_mark=0x", Some(0)),
            ("pkt_mark=7x", Some(7)),
            ("pkt_mark=4294967295", Some(u32::MAX)),
            ("pkt_mark=zz", None),
            ("pkt_mark=", None),
            ("mark=7", None),
        ] {
            assert_eq!(read_mark(text), mark, "{text}");
        }
    }
}
