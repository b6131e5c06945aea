//! The status columns that the daemon writes back.
//!
//! Everything goes through a [`Report`], which writes only differences from the database, so an
//! idle switch writes nothing. After a change of the configuration everything goes into one
//! transaction with `cur_cfg`, because clients read `ofport` and `error` as soon as `cur_cfg`
//! changes.

use crate::bridges::{BridgeState, Bridges, InterfaceState};
use crate::commands;
use crate::controllers::Status;
use crate::desired::{self, Desired};
use crate::dummy_port;
use crate::mirrors::Problem;
use crate::protocols::Services;
use crate::protocols::aggregation::Aggregations;
use crate::protocols::bfd::rows as bfd;
use crate::protocols::trees::report::{PortReport, TreeReport};
use dp::{Datapath, PortCounters};
use netdev::{DeviceDrops, State};
use ovsdb::Uuid;
use ovsdb::idl::{Tables, Txn};
use ovsdb::rows::{self, ToDatum, bridge, controller, interface, mirror, open_vswitch, port};
use protocols::cfm;
use std::collections::BTreeMap;
use switch::{PortCounts, Switch};

/// A transaction with only those values that differ from the replica's.
pub(crate) struct Report<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) txn: Txn,
}

impl Report<'_> {
    fn put(&mut self, table: &str, uuid: Uuid, column: &str, value: impl ToDatum) {
        let Some(row) = self.tables.row(table, uuid) else {
            return;
        };
        let value = value.to_datum();
        if row.get(column).is_some_and(|current| *current != value) {
            self.txn.set(table, uuid, column, value);
        }
    }

    /// The root row's status columns.
    pub(crate) fn root(&mut self, root: &rows::OpenVSwitch, dummies: bool) {
        use open_vswitch::{TABLE, columns};
        let mut interface_types = vec![
            "afxdp",
            "afxdp-nonpmd",
            "internal",
            "null",
            "patch",
            "pcap",
            "system",
            "tap",
        ];
        interface_types.extend(tunnel::vport::Type::ALL.map(tunnel::vport::Type::name));
        let mut datapath_types = vec!["netdev", "system"];
        if dummies {
            interface_types.extend(["dummy", "dummy-internal", "dummy-pmd"]);
            datapath_types.push("dummy");
        }
        let owned = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<String>>();
        self.put(TABLE, root.uuid, columns::IFACE_TYPES, owned(interface_types));
        self.put(TABLE, root.uuid, columns::DATAPATH_TYPES, owned(datapath_types));
        self.put(
            TABLE,
            root.uuid,
            columns::OVS_VERSION,
            Some(telemetry::version::COMPATIBLE.to_owned()),
        );
        self.put(TABLE, root.uuid, columns::DPDK_INITIALIZED, false);
        self.put(TABLE, root.uuid, columns::DPDK_VERSION, Some("none".to_owned()));
        self.put(TABLE, root.uuid, columns::CUR_CFG, root.next_cfg);
    }

    /// The status columns of bridges and interfaces after a change of the configuration.
    pub(crate) fn configuration(&mut self, desired: &Desired, bridges: &Bridges) {
        use bridge::{TABLE, columns};
        for state in bridges.state().values() {
            let id = format!("{:016x}", state.datapath_id);
            self.put(TABLE, state.uuid, columns::DATAPATH_ID, Some(id));
            let version = "<built-in>".to_owned();
            self.put(TABLE, state.uuid, columns::DATAPATH_VERSION, version);
        }
        for (_, _, state) in bridges.interfaces() {
            self.interface_identity(state);
        }
        for uuid in &desired.connections.datapaths {
            use rows::datapath::{TABLE, columns};
            self.put(TABLE, *uuid, columns::CAPABILITIES, commands::capabilities());
        }
        for (uuid, _, reason) in &desired.refused {
            let status = BTreeMap::from([("error".to_owned(), reason.clone())]);
            self.put(TABLE, *uuid, columns::STATUS, status);
        }
    }

    /// What is wrong with bridges and ports, and what spanning trees and port security say of them.
    pub(crate) fn statuses(
        &mut self,
        desired: &Desired,
        bridges: &Bridges,
        mut trees: BTreeMap<String, TreeReport>,
        switch: &Switch,
    ) {
        use bridge::{TABLE, columns};
        for (name, wanted) in &desired.bridges {
            let Some(state) = bridges.state().get(name) else {
                continue;
            };
            let (tree, mut in_tree) = trees.remove(name).unwrap_or_default();
            let mut status = tree.status;
            if !wanted.unsupported.is_empty() {
                let list: Vec<&str> = wanted.unsupported.iter().map(String::as_str).collect();
                status.insert("unsupported".to_owned(), list.join(" "));
            }
            if !wanted.exports.problems.is_empty() {
                status.insert("error".to_owned(), wanted.exports.problems.join("; "));
            }
            self.put(TABLE, state.uuid, columns::STATUS, status);
            self.put(TABLE, state.uuid, columns::RSTP_STATUS, tree.rstp_status);
            let secured = switch.bridge(name);
            for (name, wanted) in &wanted.ports {
                let problems = problems(wanted, state);
                let mut report = in_tree.remove(name).unwrap_or_default();
                if let Some((vlan, mac)) = secured.and_then(|bridge| bridge.shut_by(name)) {
                    let station = format!("{mac} in VLAN {}", vlan.get());
                    report.status.insert("shut-by".to_owned(), station);
                }
                self.port(wanted.uuid, &problems, report);
            }
        }
    }

    fn port(&mut self, uuid: Uuid, problems: &[String], tree: PortReport) {
        use port::{TABLE, columns};
        let mut status = tree.status;
        if !problems.is_empty() {
            status.insert("error".to_owned(), problems.join("; "));
        }
        self.put(TABLE, uuid, columns::STATUS, status);
        self.put(TABLE, uuid, columns::STATISTICS, tree.statistics);
        self.put(TABLE, uuid, columns::RSTP_STATUS, tree.rstp_status);
        self.put(TABLE, uuid, columns::RSTP_STATISTICS, tree.rstp_statistics);
    }

    fn interface_identity(&mut self, state: &InterfaceState) {
        use interface::{TABLE, columns};
        let Some(uuid) = state.uuid else { return };
        let ofport = state.ofport.as_ref().map_or(-1, |n| i64::from(*n));
        self.put(TABLE, uuid, columns::OFPORT, Some(ofport));
        let error = match &state.ofport {
            Err(reason) => Some(reason.clone()),
            Ok(_) => {
                let notes = Some(state.notes.join(", ")).filter(|notes| !notes.is_empty());
                let notes = notes.map(|notes| format!("not supported yet: {notes}"));
                let all = state.qos.interface.iter().cloned().chain(notes);
                let all: Vec<String> = all.chain(state.underlay_error.clone()).collect();
                Some(all.join("; ")).filter(|all| !all.is_empty())
            }
        };
        self.put(TABLE, uuid, columns::ERROR, error);
    }

    /// The state of every interface's device: addresses, link, MTU.
    pub(crate) fn links(&mut self, bridges: &Bridges) {
        use interface::{TABLE, columns};
        for (_, _, interface) in bridges.interfaces() {
            let Some(uuid) = interface.uuid else { continue };
            let state = &interface.link;
            let patch = (interface.peer.is_some() || interface.tunnel.is_some()) && interface.ofport.is_ok();
            let (admin, link) = match state {
                Some(state) => (Some(up(state.admin_up)), Some(up(state.carrier))),
                None if patch => (Some(up(true)), Some(up(true))),
                None => (None, None),
            };
            self.put(TABLE, uuid, columns::ADMIN_STATE, admin);
            self.put(TABLE, uuid, columns::LINK_STATE, link);
            self.device(uuid, state.as_ref());
            self.put(TABLE, uuid, columns::STATUS, interface.details.clone());
        }
    }

    fn device(&mut self, uuid: Uuid, state: Option<&State>) {
        use interface::{TABLE, columns};
        let number = |value: Option<u64>| value.and_then(|n| i64::try_from(n).ok());
        self.put(TABLE, uuid, columns::MAC_IN_USE, state.map(|s| s.mac.to_string()));
        self.put(TABLE, uuid, columns::MTU, state.map(|s| i64::from(s.mtu)));
        self.put(TABLE, uuid, columns::IFINDEX, state.map(|s| i64::from(s.ifindex)));
        self.put(TABLE, uuid, columns::LINK_RESETS, number(state.map(|s| s.link_resets)));
        self.put(TABLE, uuid, columns::LINK_SPEED, number(state.and_then(|s| s.speed)));
        let duplex = state.and_then(|s| s.full_duplex);
        let duplex = duplex.map(|full| if full { "full" } else { "half" }.to_owned());
        self.put(TABLE, uuid, columns::DUPLEX, duplex);
    }

    /// The state of each controller.
    pub(crate) fn controllers(&mut self, statuses: Vec<(Uuid, Status)>) {
        use controller::{TABLE, columns};
        for (uuid, status) in statuses {
            self.put(TABLE, uuid, columns::IS_CONNECTED, status.is_connected);
            self.put(TABLE, uuid, columns::ROLE, status.role.map(str::to_owned));
            self.put(TABLE, uuid, columns::STATUS, status.status);
        }
    }

    /// What bonds and LACP say of ports and interfaces.
    pub(crate) fn aggregations(&mut self, desired: &Desired, aggregations: &Aggregations) {
        for (bridge, wanted) in &desired.bridges {
            for (name, wanted) in &wanted.ports {
                let report = aggregations.report(bridge, name);
                let active = report.as_ref().and_then(|report| report.active);
                let active = active.map(|mac| mac.to_string());
                self.put(port::TABLE, wanted.uuid, port::columns::BOND_ACTIVE_SLAVE, active);
                for (name, interface) in &wanted.interfaces {
                    let current = report.as_ref().and_then(|report| report.current.get(name).copied());
                    if let Some(uuid) = interface.uuid {
                        self.put(interface::TABLE, uuid, interface::columns::LACP_CURRENT, current);
                    }
                }
            }
        }
    }

    /// What BFD and CFM say of interfaces.
    pub(crate) fn liveness(&mut self, desired: &Desired, services: &Services) {
        use interface::{TABLE, columns};
        for (name, interface) in desired.interfaces() {
            let Some(uuid) = interface.uuid else { continue };
            let status = bfd::status(services.bfd.status(name));
            self.put(TABLE, uuid, columns::BFD_STATUS, status);
            self.cfm(uuid, services.cfm.status(name).as_ref());
        }
    }

    fn cfm(&mut self, uuid: Uuid, status: Option<&cfm::Status>) {
        use interface::{TABLE, columns};
        let names = status.map(|status| status.faults.names().map(str::to_owned).collect());
        let names: Vec<String> = names.unwrap_or_default();
        let remotes = status.map(|status| status.remotes.iter().map(|point| point.cast_signed()).collect());
        let remotes: Vec<i64> = remotes.unwrap_or_default();
        let flaps = status.map(|status| i64::try_from(status.flap_count).unwrap_or(i64::MAX));
        let health = status.and_then(|status| status.health).map(i64::from);
        let remote_up = status.and_then(|status| status.remote_up).map(up);
        let fault = status.map(|status| !status.faults.is_none());
        self.put(TABLE, uuid, columns::CFM_FAULT, fault);
        self.put(TABLE, uuid, columns::CFM_FAULT_STATUS, names);
        self.put(TABLE, uuid, columns::CFM_FLAP_COUNT, flaps);
        self.put(TABLE, uuid, columns::CFM_HEALTH, health);
        self.put(TABLE, uuid, columns::CFM_REMOTE_MPIDS, remotes);
        self.put(TABLE, uuid, columns::CFM_REMOTE_OPSTATE, remote_up);
    }

    /// The counters of every mirror.
    pub(crate) fn mirrors(&mut self, desired: &Desired, switch: &Switch) {
        use mirror::{TABLE, columns};
        for (name, wanted) in &desired.bridges {
            for row in &wanted.mirrors {
                let bridge = switch.bridge(name);
                let counts = bridge.and_then(|bridge| bridge.mirror_counts(row.uuid.as_u128()));
                let statistics = counts.map_or_else(BTreeMap::new, |counts| {
                    let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
                    BTreeMap::from([
                        ("tx_bytes".to_owned(), number(counts.bytes)),
                        ("tx_packets".to_owned(), number(counts.packets)),
                    ])
                });
                self.put(TABLE, row.uuid, columns::STATISTICS, statistics);
            }
        }
    }

    /// The counters of every interface.
    pub(crate) fn statistics(&mut self, bridges: &Bridges, datapath: &dyn Datapath, switch: &Switch) {
        use interface::{TABLE, columns};
        let counted = switch.port_counts();
        for (_, name, interface) in bridges.interfaces() {
            let Some(uuid) = interface.uuid else { continue };
            if interface.tunnel.is_some() || interface.peer.is_some() {
                // Tunnels share datapath ports, patches have none.
                let counts = counted.get(name).copied().unwrap_or_default();
                self.put(TABLE, uuid, columns::STATISTICS, of_port(counts));
                continue;
            }
            let counters = interface.port.and_then(|port| datapath.port_counters(port));
            let lost = interface.device.as_ref().map(|device| device.drops());
            let dummy = interface.device.as_ref().and_then(|device| device.as_dummy());
            let statistics = match counters {
                Some(counters) => match dummy {
                    Some(dummy) => of_dummy(counters, dummy.queues()),
                    None => statistics(counters, lost.unwrap_or_default()),
                },
                None => BTreeMap::new(),
            };
            self.put(TABLE, uuid, columns::STATISTICS, statistics);
        }
    }
}

/// What is wrong with a port's row, and with its queues on its interfaces.
fn problems(wanted: &desired::Port, state: &BridgeState) -> Vec<String> {
    let mut problems = wanted.problems.clone();
    for interface in wanted.interfaces.keys().filter_map(|name| state.interfaces.get(name)) {
        let new = interface
            .qos
            .port
            .iter()
            .filter(|problem| !wanted.problems.contains(problem));
        problems.extend(new.cloned());
    }
    problems.dedup();
    problems
}

fn up(up: bool) -> String {
    if up { "up" } else { "down" }.to_owned()
}

/// A port's counters under the names of `Interface.statistics`; with non-zero drops by cause beside
/// the sums.
pub(crate) fn statistics(c: PortCounters, lost: DeviceDrops) -> BTreeMap<String, i64> {
    let mut map = BTreeMap::new();
    let mut put = |name: &str, value: u64| {
        map.insert(name.to_owned(), i64::try_from(value).unwrap_or(i64::MAX));
    };
    put("rx_packets", c.rx_packets);
    put("rx_bytes", c.rx_bytes);
    put("rx_dropped", c.rx_dropped);
    put("rx_errors", c.rx_errors);
    put("tx_packets", c.tx_packets);
    put("tx_bytes", c.tx_bytes);
    put("tx_dropped", c.tx_dropped);
    put("tx_errors", c.tx_errors);
    put("collisions", 0);
    put("rx_crc_err", 0);
    put("rx_frame_err", 0);
    put("rx_over_err", lost.queue_full);
    put_drops(&c, put);
    map
}

/// As [`statistics`], for a tunnel or a patch, which count packets and bytes only.
fn of_port(counts: PortCounts) -> BTreeMap<String, i64> {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let all = [
        ("rx_packets", counts.rx_packets),
        ("rx_bytes", counts.rx_bytes),
        ("tx_packets", counts.tx_packets),
        ("tx_bytes", counts.tx_bytes),
    ];
    all.into_iter()
        .map(|(name, value)| (name.to_owned(), number(value)))
        .collect()
}

/// As [`statistics`], for a dummy, which counts packets and bytes only.
fn of_dummy(c: PortCounters, queues: usize) -> BTreeMap<String, i64> {
    let mut map = BTreeMap::new();
    let mut put = |name: &str, value: u64| {
        map.insert(name.to_owned(), i64::try_from(value).unwrap_or(i64::MAX));
    };
    put("rx_packets", c.rx_packets);
    put("rx_bytes", c.rx_bytes);
    put("tx_packets", c.tx_packets);
    put("tx_bytes", c.tx_bytes);
    for (name, count) in dummy_port::counters(&c, queues) {
        put(&name, count);
    }
    put_drops(&c, put);
    map
}

/// The drops that a port has, by cause.
fn put_drops(c: &PortCounters, mut put: impl FnMut(&str, u64)) {
    for (cause, packets) in dp::DropCause::ALL.iter().zip(c.drops) {
        if packets > 0 {
            put(cause.name(), packets);
        }
    }
}

/// Warns of unsupported or invalid settings, once for each until it is removed from the
/// configuration.
#[derive(Default)]
pub(crate) struct Complaints {
    said: std::collections::BTreeSet<String>,
    /// The notices of the last call.
    noticed: Vec<String>,
    /// The errors of the last call.
    errors: Vec<Problem>,
}

impl Complaints {
    pub(crate) fn about(&mut self, desired: &Desired, bridges: &Bridges) {
        let mut now = std::collections::BTreeSet::new();
        for what in &desired.unsupported {
            now.insert(format!("Open_vSwitch: {what} is not supported yet and has no effect"));
        }
        for what in &desired.connections.problems {
            now.insert(format!("Open_vSwitch: {what}"));
        }
        for what in &desired.workers.problems {
            now.insert(format!("Open_vSwitch: {what}"));
        }
        for (_, name, reason) in &desired.refused {
            now.insert(format!("ignoring bridge with invalid name \"{name}\": {reason}"));
        }
        for (name, bridge) in &desired.bridges {
            for what in &bridge.unsupported {
                now.insert(format!("bridge {name}: {what} is not supported yet and has no effect"));
            }
            if matches!(bridge.datapath_type.as_str(), "" | "system") {
                now.insert(format!(
                    "bridge {name}: this build has no kernel datapath; using the userspace datapath"
                ));
            }
            let notice = bridge.tree.as_ref().and_then(|tree| tree.notice);
            now.extend(notice.map(|notice| format!("{name}: {notice}")));
            for (port, wanted) in &bridge.ports {
                for problem in &wanted.problems {
                    now.insert(format!("bridge {name}: port {port}: {problem}"));
                }
            }
        }
        for (name, bridge) in &desired.bridges {
            let problems = bridge.exports.problems.iter();
            now.extend(problems.map(|problem| format!("bridge {name}: {problem}")));
        }
        for (bridge, name, state) in bridges.interfaces() {
            match &state.ofport {
                Err(reason) => _ = now.insert(format!("bridge {bridge}: interface {name}: {reason}")),
                Ok(_) => {
                    for what in state.qos.all() {
                        now.insert(format!("bridge {bridge}: interface {name}: {what}"));
                    }
                    for what in &state.notes {
                        now.insert(format!(
                            "bridge {bridge}: interface {name}: {what} is not supported yet and has no effect"
                        ));
                    }
                }
            }
        }
        for new in now.difference(&self.said) {
            tracing::warn!(target: "bridge", "{new}");
        }
        self.said = now;
        let errors = bridges.mirror_problems();
        for new in errors.iter().filter(|error| !self.errors.contains(error)) {
            match new {
                Problem::Warning(text) => tracing::warn!(target: "bridge", "{text}"),
                Problem::Limit(text) => tracing::warn!(target: "ofproto_dpif_mirror", "{text}"),
                Problem::Error(text) => tracing::error!(target: "bridge", "{text}"),
            }
        }
        self.errors = errors.to_vec();
        let notices = &desired.workers.notices;
        for new in notices.iter().filter(|notice| !self.noticed.contains(notice)) {
            tracing::info!(target: "bridge", "Open_vSwitch: {new}");
        }
        self.noticed.clone_from(notices);
    }
}
