//! `tnl/*`: what tunnels know of the underlay, and their ports.

use super::{Answer, leading_number};
use crate::state::State;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;
use tunnel::format::SourcePorts;
use tunnel::neighbour::{BridgeName, Entry};
use tunnel::route::Prefix;
use tunnel::vport::Listener;
use wire::MacAddr;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    // Both names are of the same table, which has addresses of both IP versions.
    for prefix in ["tnl/arp", "tnl/neigh"] {
        add(&format!("{prefix}/show"), "", 0, 0, |state, _| Ok(show(state)));
        add(&format!("{prefix}/set"), "BRIDGE IP MAC", 3, 3, set);
        add(&format!("{prefix}/flush"), "", 0, 0, flush);
        add(&format!("{prefix}/aging"), "[SECS]", 0, 1, aging);
    }
    add("tnl/egress_port_range", "min max", 0, 2, egress_port_range);
    add("tnl/ports/show", "-v", 0, 1, |state, args| {
        let verbose = args.first().is_some_and(|arg| arg.eq_ignore_ascii_case("-v"));
        Ok(show_ports(state, verbose))
    });
    add("ofproto/list-tunnels", "", 0, 0, |state, _| {
        let lines = state.shared.tunnels.look(|tables| tables.ports.list());
        Ok(lines.iter().fold(String::new(), |out, line| out + line + "\n"))
    });
}

fn show(state: &State) -> String {
    let now = state.shared.clock.now();
    state.shared.tunnels.tick(now);
    state.shared.tunnels.look(|tables| {
        let mut out = Entry::HEADER.to_owned();
        for entry in tables.neighbours.entries() {
            let _ = writeln!(out, "{entry}");
        }
        out
    })
}

fn set(state: &State, args: &[String]) -> Answer {
    let [bridge, address, mac] = args else {
        return Err("wrong number of arguments".to_owned());
    };
    let address: IpAddr = address.parse().map_err(|_| "bad IP address")?;
    let mac: MacAddr = mac.parse().map_err(|_| "bad MAC address")?;
    let (bridge, now) = (BridgeName::new(bridge), state.shared.clock.now());
    let set = state
        .shared
        .tunnels
        .change(|tables| tables.neighbours.set(bridge, address.to_canonical(), mac, now));
    set.map_err(|full| full.to_string())?;
    state.rearm.notify_one();
    Ok("OK".to_owned())
}

fn flush(state: &State, _: &[String]) -> Answer {
    state.shared.tunnels.change(|tables| tables.neighbours.flush());
    Ok("OK".to_owned())
}

fn aging(state: &State, args: &[String]) -> Answer {
    let now = state.shared.clock.now();
    state.shared.tunnels.change(|tables| {
        let neighbours = &mut tables.neighbours;
        let Some(text) = args.first() else {
            return Ok(neighbours.aging().as_secs().to_string());
        };
        // A negative number is above all times here.
        let aging = Duration::from_secs(leading_number(text).into());
        neighbours.set_aging(aging, now).map_err(|_| "bad aging value")?;
        state.rearm.notify_one();
        Ok("OK".to_owned())
    })
}

fn egress_port_range(state: &State, args: &[String]) -> Answer {
    let tunnels = &state.shared.tunnels;
    let [first, last] = args else {
        let ports = tunnels.underlay().ports;
        let (first, last) = (ports.first(), ports.last());
        return Ok(format!("Tunnel UDP source port range: {first}-{last}\n"));
    };
    let port = |text| u16::try_from(leading_number(text)).ok().filter(|port| *port != 0);
    // Open vSwitch does not call these errors.
    let Some(first) = port(first) else {
        return Ok("Invalid min.".to_owned());
    };
    let Some(last) = port(last) else {
        return Ok("Invalid max.".to_owned());
    };
    if let Some(ports) = SourcePorts::new(first.min(last), first.max(last)) {
        tunnels.change(|tables| tables.source_ports = ports);
    }
    Ok("OK".to_owned())
}

/// The datapath ports that receive tunnels' packets, or the packets that each receives.
fn show_ports(state: &State, verbose: bool) -> String {
    let listeners = state.shared.tunnels.look(|tables| tables.ports.listeners());
    let mut out = "Listening ports:\n".to_owned();
    if verbose && !listeners.is_empty() {
        list_flows(&mut out, &listeners, &underlay(state));
    } else {
        for listener in &listeners {
            let _ = writeln!(out, "{listener}");
        }
    }
    out
}

fn list_flows(out: &mut String, listeners: &[Listener], underlay: &[(MacAddr, Vec<Prefix>)]) {
    for (mac, addresses) in underlay {
        for (address, listener) in addresses
            .iter()
            .flat_map(|address| listeners.iter().map(move |l| (address, l)))
        {
            let _ = writeln!(out, "{}", listener.flow(*mac, address.host()));
        }
    }
}

/// The switch's own devices that routes lead through: their Ethernet and IP addresses.
fn underlay(state: &State) -> Vec<(MacAddr, Vec<Prefix>)> {
    let devices: BTreeSet<String> = {
        let mut routes = state.routes.borrow_mut();
        routes.table().routes().map(|route| route.hop.device.clone()).collect()
    };
    let with_addresses = |device: String| {
        let mac = state.bridges.borrow().interface(&device)?.link.as_ref()?.mac;
        Some((mac, super::route::addresses(state, &device)))
    };
    devices.into_iter().filter_map(with_addresses).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tunnel::vport::{Table, Type, Vport, parse};

    #[test]
    fn a_port_receives_packets_to_each_address_of_the_underlay() {
        let mut ports = Table::default();
        for (n, kind, options) in [
            (1, Type::Geneve, "1.1.2.92"),
            (2, Type::Geneve, "1.1.2.93"),
            (3, Type::Gre, "flow"),
        ] {
            let options = BTreeMap::from([("remote_ip".to_owned(), options.to_owned())]);
            let port = Vport {
                name: format!("t{n}"),
                datapath_port: if kind == Type::Gre { 3 } else { 6081 },
                config: parse("t", kind, &options).config.unwrap(),
            };
            ports.set(n, port).unwrap();
        }
        let prefix = |text: &str| text.parse().unwrap();
        let underlay = [
            (MacAddr([2; 6]), vec![prefix("1.1.2.88/24"), prefix("2001:cafe::88/64")]),
            (MacAddr([4; 6]), vec![prefix("10.0.0.1/8")]),
        ];
        let mut out = String::new();
        list_flows(&mut out, &ports.listeners(), &underlay);
        let geneve = "genev_sys_6081 (6081) : eth(dst=";
        let gre = "gre_sys (3) : eth(dst=";
        let (one, two) = ("02:02:02:02:02:02)", "04:04:04:04:04:04)");
        let (v4, v6) = (",eth_type(0x0800),ipv4(dst=", ",eth_type(0x86dd),ipv6(dst=");
        let expected = [
            format!("{geneve}{one}{v4}1.1.2.88,proto=17,frag=no),udp(dst=6081)"),
            format!("{gre}{one}{v4}1.1.2.88,proto=47,frag=no)"),
            format!("{geneve}{one}{v6}2001:cafe::88,proto=17,frag=no),udp(dst=6081)"),
            format!("{gre}{one}{v6}2001:cafe::88,proto=47,frag=no)"),
            format!("{geneve}{two}{v4}10.0.0.1,proto=17,frag=no),udp(dst=6081)"),
            format!("{gre}{two}{v4}10.0.0.1,proto=47,frag=no)"),
        ];
        assert_eq!(out.lines().collect::<Vec<_>>(), expected);
    }
}
