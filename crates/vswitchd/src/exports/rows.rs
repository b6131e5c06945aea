//! The rows of exporters (tables "NetFlow", "sFlow", "IPFIX" and "Flow_Sample_Collector_Set" in
//! ovs-vswitchd.conf.db(5)).

use super::targets::{source_to, target};
use crate::rows::Tables;
use export::sflow::MOST_HEADER;
use ovsdb::rows;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// What the rows of a bridge want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) netflow: Option<Netflow>,
    pub(crate) sflow: Option<Sflow>,
    pub(crate) ipfix: Option<Ipfix>,
    /// Sets of collectors for the action `sample`, by their ids.
    pub(crate) sets: BTreeMap<u32, Ipfix>,
    /// Targets that cannot be read.
    pub(crate) problems: Vec<String>,
}

/// A row of the table `NetFlow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Netflow {
    pub(crate) targets: Vec<SocketAddr>,
    /// The settings, but for the idle timeout.
    pub(crate) settings: export::netflow::Settings,
}

/// A row of the table `sFlow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sflow {
    pub(crate) targets: Vec<SocketAddr>,
    /// One packet in so many.
    pub(crate) sampling: u32,
    pub(crate) polling: Option<Duration>,
    pub(crate) header: u16,
    /// The agent's address; without one there is no sFlow.
    pub(crate) agent: Option<IpAddr>,
}

/// A row of the table `IPFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ipfix {
    pub(crate) targets: Vec<SocketAddr>,
    /// One packet in so many.
    pub(crate) sampling: u32,
    pub(crate) domain: u32,
    pub(crate) point: u32,
    pub(crate) active_timeout: Duration,
    pub(crate) max_flows: u32,
    pub(crate) input: bool,
    pub(crate) output: bool,
    pub(crate) tunnels: bool,
    pub(crate) virtual_obs_id: Option<String>,
    pub(crate) template_interval: Duration,
    pub(crate) stats_interval: Duration,
}

/// Reads the rows of a bridge.
pub(crate) fn wanted(row: &rows::Bridge, tables: &Tables) -> Wanted {
    let mut wanted = Wanted::default();
    let controllers = &row.controller;
    if let Some(row) = row.netflow.and_then(|uuid| tables.netflows.get(&uuid)) {
        wanted.netflow = Some(netflow(row, &mut wanted.problems));
    }
    // Without samples Open vSwitch has no counters of sFlow either.
    let sflow_row = row.sflow.and_then(|uuid| tables.sflows.get(&uuid));
    if let Some(row) = sflow_row.filter(|row| row.sampling.is_none_or(|rate| rate > 0)) {
        let first = controllers.iter().find_map(|uuid| tables.controllers.get(uuid));
        let local = first.and_then(|controller| controller.local_ip.as_deref());
        wanted.sflow = Some(sflow(row, local, &mut wanted.problems));
    }
    if let Some(row) = row.ipfix.and_then(|uuid| tables.ipfixes.get(&uuid)) {
        wanted.ipfix = Some(ipfix(row, &mut wanted.problems));
    }
    let sets = tables.sample_sets.values().filter(|set| set.bridge == row.uuid);
    for set in sets {
        let ipfix_row = set.ipfix.and_then(|uuid| tables.ipfixes.get(&uuid));
        if let (Some(ipfix_row), Ok(id)) = (ipfix_row, u32::try_from(set.id)) {
            wanted.sets.insert(id, ipfix(ipfix_row, &mut wanted.problems));
        }
        if let Some(group) = set.local_group_id {
            wanted.problems.push(format!(
                "Flow_Sample_Collector_Set {}: local_group_id={group} is not supported: only the kernel \
                 sends to psample groups, and workers take the samples, for IPFIX collectors",
                set.id
            ));
        }
    }
    wanted
}

fn targets(kind: &str, texts: &[String], default: Option<u16>, problems: &mut Vec<String>) -> Vec<SocketAddr> {
    let read = texts.iter().filter_map(|text| match target(text, default) {
        Ok(target) => Some(target),
        Err(problem) => {
            problems.push(format!("{kind} target {problem}"));
            None
        }
    });
    read.collect()
}

fn netflow(row: &rows::NetFlow, problems: &mut Vec<String>) -> Netflow {
    let byte = |value: Option<i64>| value.and_then(|value| u8::try_from(value).ok());
    let defaults = export::netflow::Settings::default();
    Netflow {
        targets: targets("NetFlow", &row.targets, None, problems),
        settings: export::netflow::Settings {
            engine_type: byte(row.engine_type).unwrap_or_default(),
            engine_id: byte(row.engine_id).unwrap_or_default(),
            add_id_to_interface: row.add_id_to_interface,
            active_timeout: match row.active_timeout {
                0 => defaults.active_timeout,
                timeout => u64::try_from(timeout).ok().map(Duration::from_secs),
            },
            ..defaults
        },
    }
}

/// `local` is the own address in the row of the bridge's first controller.
fn sflow(row: &rows::SFlow, local: Option<&str>, problems: &mut Vec<String>) -> Sflow {
    const PORT: u16 = 6343;
    const SAMPLING: u32 = 400;
    const POLLING: u64 = 30;
    const HEADER: u16 = 128;
    let polling = row.polling.map_or(POLLING, |secs| u64::try_from(secs).unwrap_or(0));
    let header = row
        .header
        .map_or(HEADER, |len| len.clamp(0, i64::from(MOST_HEADER)) as u16);
    let targets = targets("sFlow", &row.targets, Some(PORT), problems);
    let agent = agent_address(row.agent.as_deref(), &targets).or_else(|| local?.parse().ok());
    if agent.is_none() {
        problems.push("could not determine IP address for sFlow agent".to_owned());
    }
    Sflow {
        targets,
        sampling: row
            .sampling
            .map_or(SAMPLING, |rate| rate.clamp(1, u32::MAX.into()) as u32),
        polling: (polling > 0).then(|| Duration::from_secs(polling.min(u32::MAX.into()))),
        header,
        agent,
    }
}

fn ipfix(row: &rows::Ipfix, problems: &mut Vec<String>) -> Ipfix {
    const SAMPLING: u32 = 400;
    const INTERVAL: u64 = 600;
    let whole = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    let config = &row.other_config;
    let is_not = |key: &str, value: &str| config.get(key).is_none_or(|set| set != value);
    let interval = |secs: Option<i64>| {
        let secs = secs.and_then(|secs| u64::try_from(secs).ok());
        Duration::from_secs(secs.unwrap_or(INTERVAL).clamp(1, 3600))
    };
    Ipfix {
        targets: targets("IPFIX", &row.targets, None, problems),
        sampling: whole(row.sampling).unwrap_or(SAMPLING),
        domain: whole(row.obs_domain_id).unwrap_or_default(),
        point: whole(row.obs_point_id).unwrap_or_default(),
        active_timeout: Duration::from_secs(whole(row.cache_active_timeout).unwrap_or_default().into()),
        max_flows: whole(row.cache_max_flows).unwrap_or_default(),
        input: is_not("enable-input-sampling", "false"),
        output: is_not("enable-output-sampling", "false"),
        tunnels: is_not("enable-tunnel-sampling", "false"),
        virtual_obs_id: config.get("virtual_obs_id").cloned(),
        template_interval: interval(row.template_interval),
        stats_interval: interval(row.stats_interval),
    }
}

/// The address of the interface of that name, or which the name is, or else the address from which
/// datagrams to a collector leave.
fn agent_address(agent: Option<&str>, targets: &[SocketAddr]) -> Option<IpAddr> {
    let named = agent.and_then(|agent| netdev::address_of(agent).or_else(|| agent.parse().ok()));
    named.or_else(|| targets.iter().copied().find_map(source_to))
}
