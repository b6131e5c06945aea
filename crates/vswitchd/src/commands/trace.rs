//! `ofproto/trace` and `ofproto/trace-packet-out`.

use super::{Answer, from_hex};
use crate::state::State;
use dp::PortNo;
use flow::{Field, FlowState, Key, MatchField, TAG_PRESENT, extract, parse_odp};
use openflow::model::{Action, Port};
use openflow::text::{Names, parse_actions, parse_packet, parse_port};
use std::collections::BTreeMap;
use switch::Switch;
use switch::tables::{Patience, TunnelOptions};
use switch::trace::Request;
use wire::EtherType;

const USAGE: &str = "{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]";
const USAGE_OUT: &str = "[-consistent] {[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet] actions";

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("ofproto/trace", USAGE, 1, usize::MAX, |state, args| {
        trace(state, args, false)
    });
    add("ofproto/trace-packet-out", USAGE_OUT, 2, usize::MAX, |state, args| {
        trace(state, args, true)
    });
}

/// The names that the datapath answers to: bridges of all types share it.
const DATAPATHS: [&str; 3] = ["ovs-netdev", "ovs-system", "ovs-dummy"];

/// The packet to trace.
struct Wanted {
    bridge: String,
    state: FlowState,
    /// Whether the trace has a packet or generates one.
    effective: bool,
}

fn trace(state: &State, args: &[String], with_actions: bool) -> Answer {
    let mut rest = Vec::new();
    let (mut names, mut generate) = (None, false);
    for arg in args {
        match arg.as_str() {
            "--names" => names = Some(true),
            "--no-names" => names = Some(false),
            "-generate" | "--generate" => generate = true,
            "-consistent" | "--consistent" if with_actions => {}
            "--ct-next" => return Err("connections are not tracked".to_owned()),
            _ => rest.push(arg.as_str()),
        }
    }
    let actions = match with_actions {
        true => Some(rest.pop().ok_or("Too few arguments")?),
        false => None,
    };
    let mut known = names_of(state);
    let wanted = wanted(state, &rest, generate, &known.bridges)?;
    let actions = actions.map(|text| actions_of(text, known.bridges.get(&wanted.bridge)));
    let actions = actions.transpose()?;
    if names != Some(true) {
        known = Known::default();
    }
    let request = Request {
        bridge: &wanted.bridge,
        state: wanted.state,
        actions: actions.as_deref(),
        names: known.bridges,
        devices: known.devices,
        effective: wanted.effective,
    };
    let trace = |switch: &Switch, now, patience: Patience<'_>| switch.trace(&request, now, patience);
    let traced = match wanted.effective {
        true => state.shared.decide(trace),
        false => state.shared.look_patiently(trace),
    };
    let traced = traced.ok_or_else(|| format!("{}: unknown bridge", wanted.bridge))?;
    Ok(traced.text)
}

/// Parses the words other than options and actions.
fn wanted(state: &State, words: &[&str], generate: bool, names: &BTreeMap<String, Names>) -> Result<Wanted, String> {
    let switch = state.shared.switch.read();
    let is_datapath = |word: &str| DATAPATHS.contains(&word.split_once('@').unwrap_or(("", word)).1);
    let (place, flow, packet) = match *words {
        [flow] => (None, flow, None),
        [flow, packet] if flow.contains('(') => (None, flow, Some(packet)),
        [place, flow] => (Some(place), flow, None),
        [place, flow, packet] => (Some(place), flow, Some(packet)),
        _ => return Err("too many arguments".to_owned()),
    };
    if generate && packet.is_some() {
        return Err("Syntax error".to_owned());
    }
    let mut found = match place {
        Some(bridge) if !is_datapath(bridge) => {
            if switch.bridge(bridge).is_none() {
                return Err(format!("{bridge}: unknown bridge"));
            }
            let none = Names::default();
            let names = names.get(bridge).unwrap_or(&none);
            let options = switch.bridge(bridge).map(|bridge| bridge.tables().options());
            (bridge.to_owned(), openflow_flow(flow, names, options)?)
        }
        _ => datapath_flow(state, &switch, flow)?,
    };
    if let Some(packet) = packet {
        let bytes = from_hex(packet).map_err(|_| "Trailing garbage in packet data".to_owned())?;
        let port = found.1.key.in_port();
        let key = extract(&bytes, &port.into()).ok_or("Packet data too short for Ethernet")?;
        found.1 = FlowState::with_meta(key, *found.1.meta());
    }
    Ok(Wanted {
        bridge: found.0,
        state: found.1,
        effective: generate || packet.is_some(),
    })
}

/// A packet's fields in the syntax of `ovs-ofctl`; without `in_port` it has no ingress port.
fn openflow_flow(text: &str, names: &Names, options: Option<&TunnelOptions>) -> Result<FlowState, String> {
    let packet = parse_packet(text, names).map_err(|error| format!("Bad openflow flow syntax: {text}: {error}"))?;
    let mut state = FlowState::new(Key::ZERO, Port::ANY.0);
    for entry in packet.entries() {
        state.set(entry.field, entry.value);
    }
    if let Some(options) = options {
        options.give(&packet, &mut state);
    }
    if state.get(MatchField::VlanTci) & u128::from(TAG_PRESENT) != 0 {
        state.key.set(Field::VlanTpid0, EtherType::VLAN.0.into());
    }
    Ok(state)
}

/// A flow in the syntax of `ovs-dpctl`; its ingress port selects the bridge.
fn datapath_flow(state: &State, switch: &Switch, text: &str) -> Result<(String, FlowState), String> {
    let bridges = state.bridges.borrow();
    let port_of = |name: &str| bridges.interface(name).and_then(|interface| interface.port);
    let (key, mask) = parse_odp(text, &port_of).map_err(|error| format!("{error} (or the bridge name was omitted)"))?;
    // Parts of tags and labels that are not given are zero.
    let in_parts = |field: &&Field| {
        matches!(field, Field::VlanTci0 | Field::VlanTci1) || field.info().ovs_name.starts_with("mpls_lse")
    };
    let partial = |field: &&Field| !matches!(mask.get(**field), 0) && mask.get(**field) != field.max_value();
    if let Some(field) = Field::ALL.iter().filter(|field| !in_parts(field)).find(partial) {
        return Err(format!(
            "bad value for {} (wildcards not allowed here)",
            field.info().ovs_name
        ));
    }
    let PortNo(port) = key.in_port();
    let at = switch.attachment(key.in_port());
    let (bridge, number) = at.ok_or_else(|| format!("no OpenFlow port for datapath port {port}"))?;
    Ok((bridge.to_owned(), FlowState::new(key, number)))
}

fn actions_of(text: &str, names: Option<&Names>) -> Result<Vec<Action>, String> {
    let none = Names::default();
    parse_actions(text, names.unwrap_or(&none)).map_err(|error| format!("Bad openflow actions: {error}"))
}

/// The names of all ports.
#[derive(Default)]
struct Known {
    bridges: BTreeMap<String, Names>,
    devices: BTreeMap<u32, String>,
}

fn names_of(state: &State) -> Known {
    let mut known = Known::default();
    for (bridge, name, interface) in state.bridges.borrow().interfaces() {
        if let Ok(number) = interface.ofport {
            // A reserved OpenFlow port keeps its name.
            let number = flow::port_from_of10(number);
            if Port(number) != Port::LOCAL && parse_port(name, &Names::default()).is_none() {
                let names = known.bridges.entry(bridge.to_owned()).or_default();
                names.ports.insert(number, name.to_owned());
            }
        }
        if let Some(PortNo(device)) = interface.port {
            known.devices.insert(device, name.to_owned());
        }
    }
    known
}
