//! `tnl/*`: what tunnels know of the underlay.

use super::{Answer, leading_number};
use crate::state::State;
use nanos::Nanos;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;
use switch::TunnelTables;
use tunnel::format::SourcePorts;
use tunnel::neighbour::{BridgeName, Entry};
use tunnel::path_mtu;
use wire::MacAddr;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    // Both names are of the same table, which has addresses of both IP versions.
    for prefix in ["tnl/arp", "tnl/neigh"] {
        add(&format!("{prefix}/show"), "", 0, 0, |state, _| Ok(show(state)));
        add(&format!("{prefix}/set"), "BRIDGE IP MAC", 3, 3, set);
        add(&format!("{prefix}/flush"), "", 0, 0, flush);
        add(&format!("{prefix}/aging"), "[SECS]", 0, 1, aging);
    }
    add("tnl/path-mtu/show", "", 0, 0, |state, _| Ok(show_path_mtus(state)));
    add("tnl/path-mtu/flush", "", 0, 0, |state, _| {
        state.shared.update(|switch, _| switch.flush_path_mtus());
        Ok("OK".to_owned())
    });
    add("tnl/egress_port_range", "min max", 0, 2, egress_port_range);
}

/// Changes the tables of tunnels.
fn change<T>(state: &State, change: impl FnOnce(&mut TunnelTables, Nanos) -> T) -> Option<T> {
    let mut done = None;
    state.shared.update(|switch, now| {
        let (result, stale) = switch.change_tunnel_tables(|tables| change(tables, now));
        done = Some(result);
        stale
    });
    state.rearm.notify_one();
    done
}

fn show(state: &State) -> String {
    state.shared.update(|switch, now| switch.tick(now));
    let switch = state.shared.switch.read();
    let mut out = Entry::HEADER.to_owned();
    for entry in switch.tunnel_tables().neighbours.entries() {
        let _ = writeln!(out, "{entry}");
    }
    out
}

fn show_path_mtus(state: &State) -> String {
    let mut out = path_mtu::Entry::HEADER.to_owned();
    state.shared.update(|switch, now| {
        let stale = switch.tick(now);
        for entry in switch.tunnel_tables().path_mtus.entries(now) {
            let _ = writeln!(out, "{entry}");
        }
        stale
    });
    out
}

fn set(state: &State, args: &[String]) -> Answer {
    let [bridge, address, mac] = args else {
        return Err("wrong number of arguments".to_owned());
    };
    let address: IpAddr = address.parse().map_err(|_| "bad IP address")?;
    let mac: MacAddr = mac.parse().map_err(|_| "bad MAC address")?;
    let (bridge, address) = (BridgeName::new(bridge), address.to_canonical());
    let set = change(state, |tables, now| tables.neighbours.set(bridge, address, mac, now));
    set.unwrap_or(Ok(())).map_err(|full| full.to_string())?;
    Ok("OK".to_owned())
}

fn flush(state: &State, _: &[String]) -> Answer {
    change(state, |tables, _| tables.neighbours.flush());
    Ok("OK".to_owned())
}

fn aging(state: &State, args: &[String]) -> Answer {
    let Some(text) = args.first() else {
        let switch = state.shared.switch.read();
        return Ok(switch.tunnel_tables().neighbours.aging().as_secs().to_string());
    };
    // A negative number is above all times here.
    let aging = Duration::from_secs(leading_number(text).into());
    let set = change(state, |tables, now| tables.neighbours.set_aging(aging, now));
    set.unwrap_or(Ok(())).map_err(|_| "bad aging value")?;
    Ok("OK".to_owned())
}

fn egress_port_range(state: &State, args: &[String]) -> Answer {
    let [first, last] = args else {
        let ports = state.shared.switch.read().tunnel_tables().source_ports;
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
        change(state, |tables, _| tables.source_ports = ports);
    }
    Ok("OK".to_owned())
}
