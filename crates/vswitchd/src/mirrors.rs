//! Rows of the table `Mirror` as the switch's mirrors, with Open vSwitch's words for those that it
//! ignores.

use crate::bridges::BridgeState;
use crate::desired::Bridge;
use crate::rows::{vid, vlans};
use flow::Home;
use openflow::model::Match;
use openflow::text::{Names, parse_match};
use ovsdb::{Uuid, rows};
use std::collections::{BTreeMap, BTreeSet};
use switch::{MAX_MIRRORS, MirrorConfig, MirrorOutput, VlanSet};
use wire::Vid;

/// What is ignored of a mirror, in Open vSwitch's words and with its level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The rest of the mirror is in force.
    Warning(String),
    /// The bridge has as many mirrors as it may have. Open vSwitch does not name the bridge.
    Limit(String),
    /// Something of its output is wrong.
    Error(String),
}

impl Problem {
    fn of(self, bridge: &str, mirror: &str) -> Problem {
        let named = |text: String| format!("bridge {bridge}: mirror {mirror} {text}");
        match self {
            Problem::Warning(text) => Problem::Warning(named(text)),
            Problem::Limit(text) => Problem::Limit(text),
            Problem::Error(text) => Problem::Error(named(text)),
        }
    }
}

/// A row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirror {
    pub(crate) uuid: Uuid,
    name: String,
    select_all: bool,
    select_src: BTreeSet<String>,
    select_dst: BTreeSet<String>,
    vlans: VlanSet,
    filter: Option<String>,
    output_port: Option<String>,
    output_vlan: Option<Vid>,
    snaplen: Option<u32>,
}

impl Mirror {
    /// Reads a row; `ports` has the database's ports.
    pub(crate) fn new(row: &rows::Mirror, ports: &BTreeMap<Uuid, rows::Port>) -> Mirror {
        let name_of = |uuid: &Uuid| ports.get(uuid).map(|port| port.name.clone());
        Mirror {
            uuid: row.uuid,
            name: row.name.clone(),
            select_all: row.select_all,
            select_src: row.select_src_port.iter().filter_map(name_of).collect(),
            select_dst: row.select_dst_port.iter().filter_map(name_of).collect(),
            vlans: vlans(&row.select_vlan),
            filter: row.filter.clone(),
            output_port: row.output_port.as_ref().and_then(name_of),
            output_vlan: row.output_vlan.and_then(vid),
            snaplen: row.snaplen.and_then(|len| u32::try_from(len).ok()),
        }
    }

    /// The port that its copies go to, as the row says.
    pub(crate) fn output_port(&self) -> Option<&str> {
        self.output_port.as_deref()
    }

    fn config(&self, bridge: &Bridge, names: &Names, problems: &mut Vec<Problem>) -> Result<MirrorConfig, String> {
        let output = match (&self.output_port, self.output_vlan) {
            (Some(port), vlan) => {
                if !bridge.ports.contains_key(port) {
                    return Err("outputs to port not on bridge".to_owned());
                }
                if vlan.is_some() {
                    let text = "specifies both output port and output vlan; ignoring output vlan";
                    problems.push(Problem::Error(text.to_owned()));
                }
                MirrorOutput::Port(port.clone())
            }
            (None, Some(vlan)) => MirrorOutput::Vlan(vlan),
            (None, None) => return Err("does not specify output; ignoring".to_owned()),
        };
        let filter = self.filter.as_deref().filter(|text| !text.is_empty());
        let filter = filter.map(|text| filter_of(text, names)).transpose();
        let mut selected = |names: &BTreeSet<String>| -> BTreeSet<String> {
            let is_here = |name: &&String| bridge.ports.contains_key(*name);
            let others = names.iter().filter(|name| !is_here(name));
            let texts = others.map(|name| format!("cannot match on nonexistent port {name}"));
            problems.extend(texts.map(Problem::Warning));
            names.iter().filter(is_here).cloned().collect()
        };
        let (select_src, select_dst) = (selected(&self.select_src), selected(&self.select_dst));
        Ok(MirrorConfig {
            id: self.uuid.as_u128(),
            select_all: self.select_all,
            select_src,
            select_dst,
            vlans: self.vlans.clone(),
            filter: filter.map_err(|error| format!("filter is invalid: {error}; ignoring"))?,
            output,
            snaplen: self.snaplen,
        })
    }
}

/// A bridge's mirrors, by their rows' UUIDs. Adds what is ignored of them to `problems`. Where
/// there are too many, those `in_force` stay, and others follow in the order of their UUIDs.
pub(crate) fn configs(
    name: &str,
    bridge: &Bridge,
    state: &BridgeState,
    in_force: &BTreeSet<u128>,
    problems: &mut Vec<Problem>,
) -> Vec<MirrorConfig> {
    let names = names_of(state);
    let mut configs = Vec::new();
    let mut mirrors: Vec<&Mirror> = bridge.mirrors.iter().collect();
    mirrors.sort_by_key(|mirror| (!in_force.contains(&mirror.uuid.as_u128()), mirror.uuid));
    for mirror in mirrors {
        let mut of_mirror = Vec::new();
        let config = mirror.config(bridge, &names, &mut of_mirror);
        problems.extend(of_mirror.into_iter().map(|problem| problem.of(name, &mirror.name)));
        match config {
            Ok(_) if configs.len() == MAX_MIRRORS => problems.push(Problem::Limit(format!(
                "maximum of {MAX_MIRRORS} port mirrors reached, cannot create {}",
                mirror.name
            ))),
            Ok(config) => configs.push(config),
            Err(text) => problems.push(Problem::Error(text).of(name, &mirror.name)),
        }
    }
    configs.sort_by_key(|config| config.id);
    configs
}

/// The names that a bridge's filters may use.
pub(crate) fn names_of(state: &BridgeState) -> Names {
    let mut names = Names::default();
    for (name, interface) in &state.interfaces {
        if let Ok(ofport) = interface.ofport {
            names.ports.insert(flow::port_from_of10(ofport), name.clone());
        }
    }
    names
}

/// Reads a filter.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn filter_of(text: &str, names: &Names) -> Result<Match, String> {
    let filter = parse_match(text, names).map_err(|error| error.to_string())?;
    let elsewhere = |home: Home| matches!(home, Home::Elsewhere);
    match filter.entries().iter().find(|entry| elsewhere(entry.field.info().home)) {
        Some(entry) => Err(format!("{} cannot be matched here", entry.field.info().names[0])),
        None => Ok(filter),
    }
}
