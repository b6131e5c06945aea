//! `mdb/*`: the tables of multicast snooping.

use super::Answer;
use crate::state::State;
use std::fmt::Write;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("mdb/show", "bridge", 1, 1, show);
    add("mdb/flush", "[bridge]", 0, 1, flush);
    add("mdb/stats-show", "bridge", 1, 1, stats_show);
}

const NO_BRIDGE: &str = "no such bridge";
const DISABLED: &str = "multicast snooping is disabled";

fn has_bridge(state: &State, name: &str) -> Result<(), String> {
    let known = state.shared.switch.read().bridge(name).is_some();
    known.then_some(()).ok_or_else(|| NO_BRIDGE.to_owned())
}

fn show(state: &State, args: &[String]) -> Answer {
    has_bridge(state, &args[0])?;
    // What workers have handed over before is in the answer.
    state.protocols.step();
    let now = state.shared.clock.now();
    state.protocols.look(|services| {
        let bridge = services.snooping.get(&args[0]).ok_or(DISABLED)?;
        let mut out = String::from(" port  VLAN  GROUP                Age\n");
        for entry in bridge.machine.groups(now) {
            let (port, vlan) = (port_text(entry.port), entry.vlan.get());
            let (group, age) = (entry.group, entry.age.as_secs());
            let _ = writeln!(out, "{port:>5}  {vlan:>4}  {group}         {age:3}");
        }
        for entry in bridge.machine.routers(now) {
            let (port, vlan, age) = (port_text(entry.port), entry.vlan.get(), entry.age.as_secs());
            let _ = writeln!(out, "{port:>5}  {vlan:>4}  querier             {age:3}");
        }
        Ok(out)
    })
}

fn port_text(number: u32) -> String {
    match flow::port_to_of10(number) {
        crate::ofport::LOCAL => "LOCAL".to_owned(),
        number => number.to_string(),
    }
}

fn flush(state: &State, args: &[String]) -> Answer {
    if let Some(name) = args.first() {
        has_bridge(state, name)?;
    }
    let name = args.first().map(String::as_str);
    match state
        .protocols
        .command(|services, world| services.snooping.flush(name, world))
    {
        true => Ok("table successfully flushed".to_owned()),
        false => Err(DISABLED.to_owned()),
    }
}

/// A command of our own: what has come from each port.
fn stats_show(state: &State, args: &[String]) -> Answer {
    has_bridge(state, &args[0])?;
    state.protocols.step();
    state.protocols.look(|services| {
        let bridge = services.snooping.get(&args[0]).ok_or(DISABLED)?;
        let mut out = String::new();
        for (number, counters) in bridge.machine.counters() {
            let name = bridge.names.get(&number).map_or("", String::as_str);
            let _ = writeln!(
                out,
                "{name}: memberships={}, reports={}, queries={}, malformed={}, refused={}, evicted={}",
                counters.memberships,
                counters.reports,
                counters.queries,
                counters.malformed,
                counters.refused,
                counters.evicted
            );
        }
        Ok(out)
    })
}
