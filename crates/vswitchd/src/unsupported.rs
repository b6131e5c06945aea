//! Settings that this version does not support.
//!
//! Every documented setting without effect is reported: the switch names an unsupported column or
//! documented key of `other_config` in the row's own status (`Bridge.status:unsupported`,
//! `Port.status:error`, `Interface.error`) and in the log. Undocumented keys are the user's own and
//! are not mentioned.

use ovsdb::rows;
use std::collections::BTreeMap;

/// Unsupported settings of a controller's row: the host assigns the local port's addresses.
pub(crate) fn controller(row: &rows::Controller) -> Vec<String> {
    let mut found = Found::default();
    found.column("controller:local_ip", row.local_ip.is_some());
    found.column("controller:local_netmask", row.local_netmask.is_some());
    found.column("controller:local_gateway", row.local_gateway.is_some());
    found.list
}

/// Unsupported settings of a port's row.
pub(crate) fn port(row: &rows::Port) -> Vec<String> {
    let mut found = Found::default();
    found.column("mac", row.mac.is_some());
    found.list
}

/// Unsupported settings of an interface's row.
pub(crate) fn interface(row: &rows::Interface) -> Vec<String> {
    let mut found = Found::default();
    found.keys("other_config", &row.other_config, INTERFACE_KEYS);
    found.list
}

/// Unsupported settings of the root row.
pub(crate) fn open_vswitch(row: &rows::OpenVSwitch) -> Vec<String> {
    let mut found = Found::default();
    found.keys("other_config", &row.other_config, ROOT_KEYS);
    found.keys_unless("other_config", &row.other_config, "dpdk-init", &["false"]);
    found.keys_unless("other_config", &row.other_config, "hw-offload", &["false"]);
    // Segments always cross the switch whole; this cannot be disabled.
    found.keys_unless("other_config", &row.other_config, "userspace-tso-enable", &["true"]);
    found.list
}

#[derive(Default)]
struct Found {
    list: Vec<String>,
}

impl Found {
    fn column(&mut self, name: &str, asked: bool) {
        if asked {
            self.list.push(name.to_owned());
        }
    }

    fn keys(&mut self, column: &str, map: &BTreeMap<String, String>, known: &[&str]) {
        for key in map.keys().filter(|key| known.contains(&key.as_str())) {
            self.list.push(format!("{column}:{key}"));
        }
    }

    fn keys_unless(&mut self, column: &str, map: &BTreeMap<String, String>, key: &str, harmless: &[&str]) {
        if map.get(key).is_some_and(|value| !harmless.contains(&value.as_str())) {
            self.list.push(format!("{column}:{key}"));
        }
    }
}

/// Documented keys of `Interface.other_config` without an effect here.
const INTERFACE_KEYS: &[&str] = &["emc-enable", "tx-steering"];

/// Documented keys of `Open_vSwitch.other_config` without an effect here.
const ROOT_KEYS: &[&str] = &[
    "dpdk-alloc-mem",
    "dpdk-extra",
    "dpdk-hugepage-dir",
    "dpdk-lcore-mask",
    "dpdk-socket-limit",
    "dpdk-socket-mem",
    "emc-insert-inv-prob",
    "enable-statistics",
    "flow-restore-wait",
    "min-revalidate-pps",
    "n-handler-threads",
    "n-offload-threads",
    "n-revalidator-threads",
    "offload-rebalance",
    "per-port-memory",
    "pmd-maxsleep",
    "pmd-perf-metrics",
    "shared-mempool-config",
    "smc-enable",
    "tc-policy",
    "tx-flush-interval",
    "vhost-iommu-support",
    "vhost-postcopy-support",
    "vhost-sock-dir",
];
