//! The host's device and next hop for an address, from the kernel's tables in `/proc/net`.

use std::fs;
use std::net::Ipv4Addr;
use wire::MacAddr;

/// The MAC address of the next hop to an address over a device, if the route uses the device and
/// the neighbour is known.
pub(super) fn next_hop(to: Ipv4Addr, device: &str) -> Option<MacAddr> {
    let route = route(&fs::read_to_string("/proc/net/route").ok()?, to)?;
    if route.device != device {
        return None;
    }
    let station = route.gateway.unwrap_or(to);
    neighbour(&fs::read_to_string("/proc/net/arp").ok()?, station, device)
}

#[derive(Debug, PartialEq, Eq)]
struct Route {
    device: String,
    gateway: Option<Ipv4Addr>,
}

/// The most specific route to an address.
fn route(table: &str, to: Ipv4Addr) -> Option<Route> {
    // The kernel prints the bytes of an address as one number in the machine's own order.
    let address = |text: &str| Some(Ipv4Addr::from(u32::from_str_radix(text, 16).ok()?.to_ne_bytes()));
    let routes = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [device, destination, gateway, flags, _, _, _, mask, ..] = words[..] else {
            return None;
        };
        let (destination, mask) = (address(destination)?.to_bits(), address(mask)?.to_bits());
        let is_up = u32::from_str_radix(flags, 16).ok()? & 1 != 0;
        let gateway = address(gateway)?;
        let route = Route {
            device: device.to_owned(),
            gateway: (!gateway.is_unspecified()).then_some(gateway),
        };
        (is_up && to.to_bits() & mask == destination).then_some((mask, route))
    });
    routes.max_by_key(|(mask, _)| *mask).map(|(_, route)| route)
}

/// The MAC address of an IP address, if the device's neighbour table has it.
fn neighbour(table: &str, address: Ipv4Addr, device: &str) -> Option<MacAddr> {
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [ip, _, flags, mac, _, on] = words[..] else {
            return None;
        };
        let complete = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()? & 2 != 0;
        let is_it = complete && on == device && ip.parse() == Ok(address);
        is_it.then(|| mac.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
br0\t0000A8C0\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
br0\t0001A8C0\tFE00A8C0\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0
";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_narrowest_route_counts() {
        let to = |text: &str| {
            let route = route(ROUTES, text.parse().unwrap()).unwrap();
            (route.device, route.gateway.map(|gateway| gateway.to_string()))
        };
        assert_eq!(to("192.168.0.7"), ("br0".to_owned(), None));
        assert_eq!(to("192.168.1.7"), ("br0".to_owned(), Some("192.168.0.254".to_owned())));
        assert_eq!(to("8.8.8.8"), ("eth0".to_owned(), Some("10.0.0.1".to_owned())));
    }

    #[test]
    fn a_neighbour_is_one_that_has_answered_on_that_device() {
        let table = "\
IP address       HW type     Flags       HW address            Mask     Device
192.168.0.7      0x1         0x2         02:00:00:00:00:07     *        br0
192.168.0.8      0x1         0x0         00:00:00:00:00:00     *        br0
";
        let find = |text: &str, device| neighbour(table, text.parse().unwrap(), device);
        assert_eq!(find("192.168.0.7", "br0"), Some(MacAddr([2, 0, 0, 0, 0, 7])));
        assert_eq!(find("192.168.0.7", "br1"), None);
        assert_eq!(find("192.168.0.8", "br0"), None);
    }
}
