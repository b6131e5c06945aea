//! Spanning trees in the status columns of bridges and ports.

use super::show::{rstp_id, rstp_port_id, rstp_role, rstp_state, stp_role, stp_state};
use super::{Machine, Trees};
use nanos::Nanos;
use protocols::stp::{Guard, Refused};
use std::collections::BTreeMap;

/// What the database shows of a bridge.
#[derive(Default)]
pub(crate) struct BridgeReport {
    /// For `Bridge.status`.
    pub(crate) status: BTreeMap<String, String>,
    /// `Bridge.rstp_status`.
    pub(crate) rstp_status: BTreeMap<String, String>,
}

/// What the database shows of a port.
#[derive(Default)]
pub(crate) struct PortReport {
    /// For `Port.status`.
    pub(crate) status: BTreeMap<String, String>,
    /// `Port.statistics`.
    pub(crate) statistics: BTreeMap<String, i64>,
    /// `Port.rstp_status`.
    pub(crate) rstp_status: BTreeMap<String, String>,
    /// `Port.rstp_statistics`.
    pub(crate) rstp_statistics: BTreeMap<String, i64>,
}

/// What the database shows of a bridge, and of its ports by their names.
pub(crate) type TreeReport = (BridgeReport, BTreeMap<String, PortReport>);

impl Trees {
    /// What the database shows of a bridge; nothing of one without a tree.
    pub(crate) fn report(&self, bridge: &str, now: Nanos) -> TreeReport {
        let Some(tree) = self.bridges.get(bridge) else {
            return Default::default();
        };
        let name = |number: u32| Some(tree.ports.get(&number)?.port.clone());
        match &tree.machine {
            Machine::Stp(stp) => {
                let ports = stp.ports(now);
                (
                    bridge_with_stp(&stp.status()),
                    ports
                        .filter_map(|(number, port)| Some((name(number)?, port_with_stp(&port))))
                        .collect(),
                )
            }
            Machine::Rstp(rstp) => {
                let ports = rstp.ports(now);
                (
                    bridge_with_rstp(&rstp.status()),
                    ports
                        .filter_map(|(number, port)| Some((name(number)?, port_with_rstp(&port))))
                        .collect(),
                )
            }
        }
    }
}

fn bridge_with_stp(status: &protocols::stp::Status) -> BridgeReport {
    let status = [
        ("stp_bridge_id", status.id.to_string()),
        ("stp_designated_root", status.root.to_string()),
        ("stp_root_path_cost", status.root_path_cost.to_string()),
    ];
    BridgeReport {
        status: map(status),
        ..BridgeReport::default()
    }
}

fn port_with_stp(port: &protocols::stp::PortStatus) -> PortReport {
    let status = [
        ("stp_port_id", port.id.0.to_string()),
        ("stp_role", stp_role(port.role).to_owned()),
        ("stp_sec_in_state", port.in_state.as_secs().to_string()),
        ("stp_state", stp_state(port.state).to_owned()),
    ];
    PortReport {
        status: with_guard(map(status), port.guard),
        statistics: counts("stp", [("tx_count", port.tx), ("rx_count", port.rx)], port.refused),
        ..PortReport::default()
    }
}

fn bridge_with_rstp(status: &protocols::rstp::Status) -> BridgeReport {
    let status = [
        ("rstp_bridge_id", rstp_id(status.id)),
        ("rstp_bridge_port_id", rstp_port_id(status.root_port_id)),
        ("rstp_designated_id", rstp_id(status.root.bridge)),
        ("rstp_designated_port_id", rstp_port_id(status.root.port)),
        ("rstp_root_id", rstp_id(status.root.root)),
        ("rstp_root_path_cost", status.root.cost.to_string()),
    ];
    BridgeReport {
        rstp_status: map(status),
        ..BridgeReport::default()
    }
}

fn port_with_rstp(port: &protocols::rstp::PortStatus) -> PortReport {
    let status = [
        ("rstp_designated_bridge_id", rstp_id(port.designated.bridge)),
        ("rstp_designated_path_cost", port.designated.cost.to_string()),
        ("rstp_designated_port_id", rstp_port_id(port.designated.port)),
        ("rstp_port_id", rstp_port_id(port.id)),
        ("rstp_port_role", rstp_role(port.role).to_owned()),
        ("rstp_port_state", rstp_state(port.state).to_owned()),
    ];
    let counted = [
        ("tx_count", port.tx),
        ("rx_count", port.rx),
        ("uptime", port.uptime.as_secs()),
    ];
    PortReport {
        rstp_status: with_guard(map(status), port.guard),
        rstp_statistics: counts("rstp", counted, port.refused),
        ..PortReport::default()
    }
}

fn map<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}

/// Adds a key of our own: the guard that acts on the port now.
fn with_guard(mut status: BTreeMap<String, String>, guard: Option<Guard>) -> BTreeMap<String, String> {
    let acting = guard.map(|guard| match guard {
        Guard::Bpdu => "bpdu-guard",
        Guard::Root => "root-guard",
        Guard::Claim => "allowed-roots",
    });
    status.extend(acting.map(|name| ("guard".to_owned(), name.to_owned())));
    status
}

/// The counters under Open vSwitch's names, and under names of our own those that are not 0.
fn counts<const N: usize>(prefix: &str, counted: [(&str, u64); N], refused: Refused) -> BTreeMap<String, i64> {
    let own = [
        ("rate_limited_count", refused.rate),
        ("filtered_count", refused.filter),
        ("guarded_count", refused.guard),
    ];
    let own = own.into_iter().filter(|(_, count)| *count > 0);
    let all = counted.into_iter().chain([("error_count", refused.errors)]).chain(own);
    all.map(|(name, count)| (format!("{prefix}_{name}"), i64::try_from(count).unwrap_or(i64::MAX)))
        .collect()
}
