//! Commands of our own: `port-security/*` and `storm-control/show`.

use super::{Answer, fdb};
use crate::state::State;
use dp::MeterUnit;
use std::fmt::Write;
use switch::Bridge;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("port-security/show", "[bridge]", 0, 1, |state, args| {
        show(state, args.first(), show_limits)
    });
    add("port-security/reset", "bridge port", 2, 2, |state, args| {
        fdb::on_bridges(state, args.first(), |switch, name| switch.open_port(name, &args[1]))?;
        Ok(String::new())
    });
    add("storm-control/show", "[bridge]", 0, 1, |state, args| {
        show(state, args.first(), show_storms)
    });
}

/// Prints the lines of the named bridge, or of all.
fn show(state: &State, name: Option<&String>, print: fn(&State, &Bridge, &mut String)) -> Answer {
    let switch = state.shared.switch.read();
    let names: Vec<&str> = match name {
        Some(name) => vec![name.as_str()],
        None => switch.bridge_names().collect(),
    };
    let mut out = String::new();
    for name in names {
        print(state, switch.bridge(name).ok_or(fdb::NO_BRIDGE)?, &mut out);
    }
    Ok(out)
}

/// The ports with a limit of addresses.
fn show_limits(_: &State, bridge: &Bridge, out: &mut String) {
    for port in bridge.secured_ports() {
        let (limit, action) = (port.limit.most, if port.limit.shuts { "shutdown" } else { "drop" });
        let _ = write!(
            out,
            "{}: addresses={}/{limit}, sticky={}, action={action}",
            port.port, port.stations, port.sticky
        );
        if let Some((vlan, mac)) = port.shut {
            let _ = write!(out, ", shut by {mac} in VLAN {}", vlan.get());
        }
        out.push('\n');
    }
}

/// The limits of storm control, with what they have passed and dropped.
fn show_storms(state: &State, bridge: &Bridge, out: &mut String) {
    for limit in bridge.storm_limits() {
        let unit = match limit.unit {
            MeterUnit::Pktps => "pps",
            MeterUnit::Kbps => "kbps",
        };
        let stats = state.dp().meter_stats(limit.meter).unwrap_or_default();
        let dropped = stats.bands.first().map_or(0, |band| band.packets);
        let _ = writeln!(
            out,
            "{}: {}, rate={} {unit}, passed={}, dropped={dropped}",
            limit.port,
            limit.storm.name(),
            limit.rate,
            stats.packets.saturating_sub(dropped)
        );
    }
}
