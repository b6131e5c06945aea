//! `fdb/*`: the tables of learned addresses.

use super::Answer;
use crate::state::State;
use nanos::Nanos;
use std::fmt::Write;
use switch::{FdbError, Switch};
use wire::{MacAddr, Vid};

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("fdb/show", "bridge", 1, 1, show);
    add("fdb/stats-show", "bridge", 1, 1, stats_show);
    add("fdb/stats-clear", "[bridge]", 0, 1, stats_clear);
    add("fdb/flush", "[bridge]", 0, 1, flush);
    add("fdb/add", "bridge port vlan mac", 4, 4, insert);
    add("fdb/del", "bridge vlan mac", 3, 3, delete);
}

fn show(state: &State, args: &[String]) -> Answer {
    let now = state.shared.clock.now();
    let switch = state.shared.switch.read();
    let bridge = switch.bridge(&args[0]).ok_or(NO_BRIDGE)?;
    let mut out = String::from(" port  VLAN  MAC                Age\n");
    for entry in bridge.entries(now) {
        let port = match entry.ofport {
            Some(crate::ofport::LOCAL) => "LOCAL".to_owned(),
            Some(number) => number.to_string(),
            None => entry.port.to_owned(),
        };
        let age = match entry.age {
            Some(age) => format!("{:3}", age.as_secs()),
            None => "static".to_owned(),
        };
        let _ = writeln!(out, "{port:>5}  {:>4}  {}  {age}", entry.vlan.get(), entry.mac);
    }
    Ok(out)
}

fn stats_show(state: &State, args: &[String]) -> Answer {
    let switch = state.shared.switch.read();
    let stats = switch.bridge(&args[0]).ok_or(NO_BRIDGE)?.fdb_stats();
    Ok(format!(
        "Statistics for bridge \"{}\":\n  \
         Current/maximum MAC entries in the table: {}/{}\n  \
         Current static MAC entries in the table : {}\n  \
         Total number of learned MAC entries     : {}\n  \
         Total number of expired MAC entries     : {}\n  \
         Total number of evicted MAC entries     : {}\n  \
         Total number of port moved MAC entries  : {}\n",
        args[0],
        stats.current,
        stats.max,
        stats.static_current,
        stats.learned,
        stats.expired,
        stats.evicted,
        stats.moved
    ))
}

pub(super) const NO_BRIDGE: &str = "no such bridge";

/// Runs `change` on the named bridge, or on all of them.
pub(super) fn on_bridges(
    state: &State,
    name: Option<&String>,
    mut change: impl FnMut(&mut Switch, &str) -> Result<Vec<dp::Change>, FdbError>,
) -> Result<(), String> {
    let mut result = Ok(());
    state.shared.update(|switch, _: Nanos| {
        let names = match name {
            Some(name) => vec![name.clone()],
            None => switch.bridge_names().map(str::to_owned).collect(),
        };
        let mut changes = Vec::new();
        for name in names {
            match change(switch, &name) {
                Ok(more) => changes.extend(more),
                Err(error) => result = Err(error.to_string()),
            }
        }
        changes
    });
    result
}

fn stats_clear(state: &State, args: &[String]) -> Answer {
    on_bridges(state, args.first(), |switch, name| {
        switch.fdb_stats_clear(name).map(|()| Vec::new())
    })?;
    Ok("statistics successfully cleared".to_owned())
}

fn flush(state: &State, args: &[String]) -> Answer {
    on_bridges(state, args.first(), |switch, name| switch.fdb_flush(name, None))?;
    Ok("table successfully flushed".to_owned())
}

fn insert(state: &State, args: &[String]) -> Answer {
    let (vlan, mac) = station(&args[2], &args[3])?;
    // The name of an interface, as in Open vSwitch, or of a port: those of bonds differ.
    let number = state.bridges.borrow().state().get(&args[0]).and_then(|bridge| {
        let interface = bridge.interfaces.get(&args[1])?;
        interface.ofport.as_ref().ok().copied()
    });
    on_bridges(state, args.first(), |switch, name| {
        let bridge = switch.bridge(name);
        let port = number.and_then(|number| bridge?.port_of(u32::from(number)));
        let port = port.unwrap_or(&args[1]).to_owned();
        switch.fdb_add(name, &port, vlan, mac)
    })?;
    Ok(String::new())
}

fn delete(state: &State, args: &[String]) -> Answer {
    if !state.bridges.borrow().state().contains_key(&args[0]) {
        return Err(NO_BRIDGE.to_owned());
    }
    let mac = args[2].parse().map_err(|_| "bad MAC address".to_owned())?;
    // No station is in a VLAN that does not exist.
    let vlan = args[1].parse().ok().and_then(|number| Vid::new(number).ok());
    let vlan = vlan.ok_or_else(|| FdbError::NoEntry.to_string())?;
    on_bridges(state, args.first(), |switch, name| switch.fdb_del(name, vlan, mac))?;
    Ok(String::new())
}

fn station(vlan: &str, mac: &str) -> Result<(Vid, MacAddr), String> {
    let vid = vlan
        .parse()
        .ok()
        .and_then(|number| Vid::new(number).ok())
        .ok_or_else(|| format!("bad vlan: {vlan} is not in 0 to 4095"))?;
    let mac = mac.parse().map_err(|_| "bad MAC address".to_owned())?;
    Ok((vid, mac))
}
