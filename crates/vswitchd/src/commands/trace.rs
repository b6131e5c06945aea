//! `ofproto/trace` and `ofproto/trace-packet-out`.

use super::Answer;
use super::dummy::from_hex;
use crate::bridges::Bridges;
use crate::state::State;
use dp::PortNo;
use flow::{Field, FlowState, Home, Key, Mask, MatchField, RecircId, TAG_PRESENT, extract, parse_odp};
use openflow::Version;
use openflow::check::{self, Limits};
use openflow::model::{Action, Match, Port};
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

/// The options and other words of a command.
#[derive(Default)]
struct Words<'a> {
    rest: Vec<&'a str>,
    actions: Option<&'a str>,
    names: bool,
    generate: bool,
    consistent: bool,
    /// What the connection tracker is to say, pass by pass.
    ct_next: Vec<u32>,
}

/// The packet to trace.
struct Wanted {
    bridge: String,
    state: FlowState,
    /// Whether the trace has a packet or generates one.
    effective: bool,
}

fn trace(state: &State, args: &[String], with_actions: bool) -> Answer {
    let words = words_of(args, with_actions)?;
    let mut known = names_of(state);
    let wanted = wanted(state, &words, &known.bridges)?;
    let actions = match words.actions {
        Some(text) => {
            let list = actions_of(text, known.bridges.get(&wanted.bridge))?;
            check_actions(state, &wanted, &list, words.consistent)?;
            // As in Open vSwitch, a packet without actions takes its way through the tables.
            Some(list).filter(|list| !list.is_empty())
        }
        None => None,
    };
    if !words.names {
        known = Known::default();
    }
    let request = Request {
        bridge: &wanted.bridge,
        state: wanted.state,
        actions: actions.as_deref(),
        names: known.bridges,
        devices: known.devices,
        effective: wanted.effective,
        ct_next: &words.ct_next,
    };
    let trace = |switch: &Switch, now, patience: Patience<'_>| switch.trace(&request, now, patience);
    let traced = match wanted.effective {
        true => state.shared.decide(trace),
        false => state.shared.look_patiently(trace),
    };
    let traced = traced.ok_or_else(|| format!("{}: unknown bridge", wanted.bridge))?;
    Ok(traced.text)
}

/// Tells options from other words.
fn words_of(args: &[String], with_actions: bool) -> Result<Words<'_>, String> {
    let mut words = Words::default();
    let mut args = args.iter().map(String::as_str);
    if with_actions {
        words.actions = Some(args.next_back().ok_or("Too few arguments")?);
    }
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("Missing argument for option {arg}"));
        match arg {
            "--names" | "-names" => words.names = true,
            "--generate" | "-generate" => words.generate = true,
            "--consistent" | "-consistent" if with_actions => words.consistent = true,
            // A packet's payload has no influence on its way.
            "--l7" => drop(from_hex(value()?).map_err(|_| GARBAGE)?),
            "--l7-len" => {
                let text = value()?;
                let len = text.parse::<i64>().unwrap_or_default();
                if !(0..=MOST_PAYLOAD).contains(&len) {
                    return Err(format!("{text}: too much L7 data"));
                }
            }
            "--ct-next" => {
                let state = ct_state_of(value()?)?;
                words.ct_next.push(state);
            }
            _ if arg.starts_with('-') => return Err(format!("{arg}: unknown option")),
            _ => words.rest.push(arg),
        }
    }
    Ok(words)
}

const GARBAGE: &str = "Trailing garbage in packet data";
/// The most bytes of `--l7-len`.
const MOST_PAYLOAD: i64 = 64_000;

/// Reads the flags of a connection's state.
fn ct_state_of(text: &str) -> Result<u32, String> {
    let flags = flow::Connection::STATES;
    let given: Vec<&str> = text.split([',', ' ']).filter(|flag| !flag.is_empty()).collect();
    if let Some(unknown) = given.iter().find(|given| flags.iter().all(|(flag, _)| flag != *given)) {
        return Err(format!("{unknown}: unknown connection tracking state flag"));
    }
    let has = |flag: &str| given.contains(&flag);
    let set = flags.iter().filter(|(flag, _)| has(flag));
    let state = set.map(|(_, bit)| u32::from(*bit)).sum();
    let others = |kept: &[&str]| given.iter().any(|flag| !kept.contains(flag));
    let why = if !has("trk") && !given.is_empty() {
        r#"If "trk" is unset, no other flags are set"#
    } else if has("inv") && others(&["trk", "inv"]) {
        r#"when "inv" is set, only "trk" may also be set"#
    } else if has("new") && has("est") {
        r#""new" and "est" are mutually exclusive"#
    } else if has("new") && has("rpl") {
        r#""new" and "rpy" are mutually exclusive"#
    } else {
        return Ok(state);
    };
    let names = flow::Connection::names_of_state(state);
    Err(format!("{names}: invalid connection state: {why}"))
}

/// Parses the words other than options and actions.
fn wanted(state: &State, words: &Words<'_>, names: &BTreeMap<String, Names>) -> Result<Wanted, String> {
    let switch = state.shared.switch.read();
    let bridges = state.bridges.borrow();
    let (mut rest, mut packet) = (words.rest.as_slice(), None);
    // A packet is the last of three words, or the second of two after a flow without a place.
    if let [first @ .., last] = rest
        && (first.len() == 2 || first.len() == 1 && from_hex(last).is_ok_and(|bytes| !bytes.is_empty()))
    {
        if words.generate {
            return Err("Syntax error".to_owned());
        }
        let bytes = from_hex(last).map_err(|_| GARBAGE)?;
        (rest, packet) = (first, Some(bytes));
    }
    let (place, flow) = match *rest {
        [flow] => (None, flow),
        [place, flow] => (Some(place), flow),
        _ => return Err("too many arguments".to_owned()),
    };
    let is_datapath = is_datapath(&bridges, place);
    let port_of = |name: &str| bridges.interface(name).filter(|_| is_datapath)?.port;
    let mut found = match (parse_odp(flow, &port_of), place) {
        (Ok(_), _) if !is_datapath => return Err("Cannot find the datapath".to_owned()),
        (Ok((key, mask)), _) => datapath_flow(&switch, key, &mask)?,
        (Err(error), None) => {
            let rest = flow.find(&error.part).map_or(flow, |at| &flow[at..]);
            return Err(format!("syntax error at {rest} (or the bridge name was omitted)"));
        }
        (Err(_), Some(bridge)) => {
            let options = switch.bridge(bridge).map(|bridge| bridge.tables().options());
            let options = options.ok_or_else(|| format!("{bridge}: unknown bridge"))?;
            let none = Names::default();
            let names = names.get(bridge).unwrap_or(&none);
            (bridge.to_owned(), openflow_flow(flow, names, options)?)
        }
    };
    if let Some(bytes) = &packet {
        let port = found.1.key.in_port();
        let key = extract(bytes, &port.into()).ok_or("Packet data too short for Ethernet")?;
        found.1 = FlowState::with_meta(key, *found.1.meta());
    }
    Ok(Wanted {
        bridge: found.0,
        state: found.1,
        effective: words.generate || packet.is_some(),
    })
}

/// Whether a word names the datapath of bridges of a type; no word does where all are of one type.
fn is_datapath(bridges: &Bridges, word: Option<&str>) -> bool {
    let mut types: Vec<&str> = bridges.state().values().map(|bridge| &*bridge.datapath_type).collect();
    types.sort_unstable();
    types.dedup();
    match word {
        None => types.len() == 1,
        Some(word) => types.contains(&word.strip_prefix("ovs-").unwrap_or(word)),
    }
}

/// A packet's fields in the syntax of `ovs-ofctl`; without `in_port` it has no ingress port.
fn openflow_flow(text: &str, names: &Names, options: &TunnelOptions) -> Result<FlowState, String> {
    let packet = parse_packet(text, names).map_err(|error| format!("Bad openflow flow syntax: {text}: {error}"))?;
    let mut state = FlowState::new(Key::ZERO, Port::ANY.0);
    for entry in packet.entries() {
        state.set(entry.field, entry.value);
    }
    options.give(&packet, &mut state);
    let (number, hash) = (state.get(MatchField::RecircId) as u32, state.get(MatchField::DpHash));
    if number != 0 && hash != 0 {
        let id = RecircId::hashed(number).with_hash(hash as u8);
        state.key.set(Field::RecircId, id.0.into());
    }
    if state.get(MatchField::VlanTci) & u128::from(TAG_PRESENT) != 0 {
        state.key.set(Field::VlanTpid0, EtherType::VLAN.0.into());
    }
    Ok(state)
}

/// A flow in the syntax of `ovs-dpctl`; its ingress port selects the bridge. Masks do not count.
fn datapath_flow(switch: &Switch, mut key: Key, mask: &Mask) -> Result<(String, FlowState), String> {
    let in_port = match mask.get(Field::InPort) {
        0 => PortNo(u32::MAX),
        _ => key.in_port(),
    };
    if mask.get(Field::EthType) == 0 {
        key.set(Field::EthType, NO_TYPE);
    }
    key.set(Field::InPort, in_port.0.into());
    let (bridge, number) = switch.attachment(&key)?;
    let id = key.get(Field::RecircId) as u32;
    if id != 0 && !switch.continues(id) {
        return Err(format!(
            "no recirculation data for recirc_id {:#x}",
            RecircId(id).number()
        ));
    }
    Ok((bridge.to_owned(), FlowState::new(key, number)))
}

/// The EtherType that OpenFlow 1.0 gives packets without one (IEEE 802.2).
const NO_TYPE: u128 = 0x05ff;

fn actions_of(text: &str, names: Option<&Names>) -> Result<Vec<Action>, String> {
    let none = Names::default();
    parse_actions(text, names.unwrap_or(&none)).map_err(|error| error.to_string())
}

/// Checks actions as in a packet-out: of OpenFlow 1.0, or of a later version if they must suit the
/// packet.
fn check_actions(state: &State, wanted: &Wanted, actions: &[Action], consistent: bool) -> Result<(), String> {
    let version = if consistent { Version::V13 } else { Version::V10 };
    let mut packet = Match::ANY;
    for field in MatchField::ALL.iter().filter(|field| field.info().canonical) {
        if field.info().home != Home::Elsewhere {
            packet.set(*field, wanted.state.get(*field), field.info().valid);
        }
    }
    let through_tables = |action: &&Action| !matches!(action, Action::Output { port: Port::TABLE, .. });
    let others: Vec<Action> = actions.iter().filter(through_tables).cloned().collect();
    let switch = state.shared.switch.read();
    let tables = switch
        .bridge(&wanted.bridge)
        .map(|bridge| bridge.tables().check_actions(&others));
    check::actions(version, &packet, actions, &Limits::default())
        .and(tables.unwrap_or(Ok(())))
        .map_err(|error| format!("Bad actions: {}", error.name()))
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
