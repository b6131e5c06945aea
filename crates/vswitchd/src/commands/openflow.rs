//! `bridge/*`: rules and controllers of bridges.

use super::Answer;
use crate::state::State;
use nanos::Nanos;
use openflow::text::{self, Style};
use std::fmt::Write;
use switch::tables::{Condition, Cursor, Found};

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("bridge/dump-flows", "[--offload-stats] bridge", 1, 2, dump_flows);
    add("bridge/reconnect", "[bridge]", 0, 1, reconnect);
    add("tnl/ports/show", "-v", 0, 1, show_tunnel_ports);
    add("ofproto/list-tunnels", "", 0, 0, |state, _| {
        let lines = state.shared.switch.read().list_tunnels();
        Ok(lines.iter().map(|line| format!("{line}\n")).collect())
    });
}

/// The datapath ports of tunnels; with `-v` the packets that they receive.
fn show_tunnel_ports(state: &State, args: &[String]) -> Answer {
    let switch = state.shared.switch.read();
    let mut out = String::from("Listening ports:\n");
    if args.first().is_none_or(|arg| arg != "-v") {
        switch.tunnel_listeners().for_each(|own| _ = writeln!(out, "{own}"));
        return Ok(out);
    }
    for own in switch.tunnel_listeners() {
        for bridge in switch.underlay().bridges.values() {
            for address in &bridge.addresses {
                own.flows(bridge.mac, *address)
                    .for_each(|flow| _ = writeln!(out, "{flow}"));
            }
        }
    }
    Ok(out)
}

/// Rules printed under one lock of the switch.
const SLICE: usize = 512;

fn dump_flows(state: &State, args: &[String]) -> Answer {
    let (offloads, names): (Vec<_>, Vec<_>) = args.iter().partition(|arg| *arg == "--offload-stats");
    let name = *names.first().ok_or("Unknown bridge")?;
    state.collect_statistics();
    let now = state.shared.clock.now();
    let mut out = String::new();
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        let switch = state.shared.switch.read();
        let bridge = switch.bridge(name).ok_or("Unknown bridge")?;
        let show = |found: Found<'_>| line(&mut out, &found, !offloads.is_empty(), now);
        cursor = bridge.tables().page(None, &Condition::ANY, from, SLICE, show);
    }
    Ok(out)
}

fn line(out: &mut String, found: &Found<'_>, offloads: bool, now: Nanos) {
    const DEFAULT_PRIORITY: u16 = 0x8000;
    let rule = found.rule;
    if found.at.table != 0 {
        let _ = write!(out, "table_id={}, ", found.at.table);
    }
    let age = now.since(rule.created).as_secs();
    let _ = write!(
        out,
        "duration={age}s, n_packets={}, n_bytes={}, ",
        rule.packets, rule.bytes
    );
    if offloads {
        out.push_str("n_offload_packets=0, n_offload_bytes=0, ");
    }
    let style = Style::PLAIN;
    if found.priority != DEFAULT_PRIORITY {
        let _ = write!(out, "priority={},", found.priority);
    }
    let matching = text::matching(&found.matching(), style);
    if !matching.is_empty() {
        let _ = write!(out, "{matching},");
    }
    let _ = writeln!(out, "actions={}", text::instructions(&rule.instructions, style));
}

fn reconnect(state: &State, args: &[String]) -> Answer {
    match args.first() {
        Some(name) => {
            let agent = state.openflow.bridge(name).ok_or("Unknown bridge")?;
            agent.reconnect();
        }
        None => state.openflow.reconnect(),
    }
    Ok(String::new())
}
