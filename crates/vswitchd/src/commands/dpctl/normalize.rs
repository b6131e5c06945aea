//! `dpctl/normalize-actions`: actions in a form in which test benches compare them. Actions are
//! grouped by the tags that the packet has when they run, and outputs in a row are sorted. Labels
//! are those of the flow.

use super::{Asked, fail, text};
use crate::commands::Answer;
use crate::state::State;
use dp::{Action, ActionList, parse_actions};
use flow::{Field, Key, PortNo, parse_odp};
use std::collections::BTreeMap;
use std::fmt::Write;
use wire::{EtherType, VlanTag};

/// The names of ports that the command line gives.
type Names<'a> = BTreeMap<&'a str, u32>;

pub(super) fn run(_: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    let [flow, list, names @ ..] = &asked.words[..] else {
        return Err("\"dpctl/normalize-actions\" command requires at least 2 arguments\n".to_owned());
    };
    let mut ports = Names::new();
    for name in names {
        let pair = name
            .split_once('=')
            .and_then(|(name, port)| Some((name, port.parse().ok()?)));
        let (name, port) = pair.ok_or_else(|| format!("ovs-vswitchd: {name}: expected NAME=NUMBER\n"))?;
        ports.insert(name, port);
    }
    let port_of = |name: &str| ports.get(name).copied().map(PortNo);
    let key = match parse_odp(flow, &port_of) {
        Ok((key, _)) if flow.contains('(') => key,
        _ => {
            let what = format!("odp_flow_key_from_string (syntax error at {flow})");
            return fail(&what, "Invalid argument");
        }
    };
    let mut out = format!("input flow: {}\n", numbered(flow, &ports));
    let Ok(actions) = parse_actions(&numbered(list, &ports)) else {
        return Err(out + &text("odp_actions_from_string", "Invalid argument"));
    };
    if asked.more {
        let _ = writeln!(out, "input actions: {}", ActionList::new(&actions, &Key::ZERO));
    }
    if !list.is_empty() {
        out += &groups(&key, &actions);
        out.push('\n');
    }
    Ok(out)
}

/// The text with the numbers of the ports that it names.
fn numbered(text: &str, ports: &Names<'_>) -> String {
    let is_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let mut out = String::new();
    for part in text.split_inclusive(|c| !is_name(c)) {
        let word = part.trim_end_matches(|c| !is_name(c));
        match ports.get(word) {
            Some(port) => _ = write!(out, "{port}{}", &part[word.len()..]),
            None => out += part,
        }
    }
    out
}

/// The actions for each set of tags that the packet has in turn.
fn groups(key: &Key, actions: &[Action]) -> String {
    let mut tags: Vec<VlanTag> = [key.tag(1), key.tag(0)].into_iter().flatten().collect();
    let mut groups: BTreeMap<Vec<(u16, u16)>, Vec<String>> = BTreeMap::new();
    let place = |tags: &[VlanTag]| tags.iter().rev().map(|tag| (tag.tci, tag.tpid)).collect::<Vec<_>>();
    let mut at = 0;
    while at < actions.len() {
        let end = at + 1 + actions[at].steps();
        match actions[at] {
            Action::PushVlan(tag) => tags.push(tag),
            Action::PopVlan => _ = tags.pop(),
            _ => {
                let group = groups.entry(place(&tags)).or_default();
                group.push(ActionList::new(&actions[at..end], &Key::ZERO).to_string());
            }
        }
        at = end;
    }
    if groups.is_empty() {
        groups.insert(place(&tags), vec!["drop".to_owned()]);
    }
    let mpls = labels(key);
    let mut out = String::new();
    for (tags, mut actions) in groups {
        sort_outputs(&mut actions);
        if tags.is_empty() {
            out += "no vlan: ";
        }
        for (tci, tpid) in tags {
            let tpid = if tpid == EtherType::VLAN.0 {
                String::new()
            } else {
                format!("tpid={tpid:#x},")
            };
            let _ = write!(out, "vlan({tpid}vid={},pcp={}): ", tci & 0xfff, tci >> 13);
        }
        let _ = write!(out, "{mpls}: {}", actions.join(","));
    }
    out
}

/// The outermost label of the packet.
fn labels(key: &Key) -> String {
    let kind = EtherType(key.get(Field::EthType) as u16);
    let lse = key.get(Field::MplsLse0) as u32;
    match kind {
        EtherType::MPLS | EtherType::MPLS_MULTICAST => {
            format!("mpls(label={},tc={},ttl={})", lse >> 12, lse >> 9 & 7, lse & 0xff)
        }
        _ => "no mpls".to_owned(),
    }
}

/// Sorts outputs that follow each other.
fn sort_outputs(actions: &mut [String]) {
    let port = |action: &String| action.parse::<u32>().ok();
    for run in actions.chunk_by_mut(|a, b| port(a).is_some() && port(b).is_some()) {
        run.sort_by_key(port);
    }
}
