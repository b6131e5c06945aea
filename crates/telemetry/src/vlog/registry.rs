//! The modules and their levels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::RwLock;

use super::sink::file_is_open;
use super::{Destination, Level};

/// Modules that are listed from the start; others are when they first log.
const LISTED: &[&str] = &[
    "bridge",
    "coverage",
    "daemon",
    "dpif",
    "fatal_signal",
    "jsonrpc",
    "mac_learning",
    "memory",
    "netdev",
    "ofproto",
    "ovsdb",
    "ovsdb_idl",
    "ovsdb_log",
    "ovsdb_server",
    "stream",
    "unixctl",
    "upcall",
    "util",
    "vlog",
    "vswitchd",
];

/// Names that scripts written for Open vSwitch set levels of: accepted, and listed from then on.
const ACCEPTED: &[&str] = &[
    "backtrace",
    "bfd",
    "bond",
    "bundle",
    "bundles",
    "cfm",
    "collectors",
    "command_line",
    "connmgr",
    "conntrack",
    "conntrack_tp",
    "ct_dpif",
    "daemon_unix",
    "db_ctl_base",
    "dns_resolve",
    "dpctl",
    "dpdk",
    "dpif_lookup_autovalidator",
    "dpif_lookup_generic",
    "dpif_mfex_extract_study",
    "dpif_netdev",
    "dpif_netdev_extract",
    "dpif_netdev_impl",
    "dpif_netdev_lookup",
    "dpif_netlink",
    "dpif_netlink_rtnl",
    "entropy",
    "fail_open",
    "flow",
    "hmap",
    "in_band",
    "ipf",
    "ipfix",
    "lacp",
    "learning_switch",
    "lldp",
    "lldpd",
    "lldpd_structs",
    "lockfile",
    "mcast_snooping",
    "meta_flow",
    "native_tnl",
    "netdev_afxdp",
    "netdev_dummy",
    "netdev_linux",
    "netdev_offload",
    "netdev_offload_tc",
    "netdev_vport",
    "netflow",
    "netlink",
    "netlink_conntrack",
    "netlink_notifier",
    "netlink_socket",
    "nx_match",
    "odp_execute",
    "odp_execute_impl",
    "odp_util",
    "ofctl",
    "ofp_actions",
    "ofp_bundle",
    "ofp_connection",
    "ofp_errors",
    "ofp_flow",
    "ofp_group",
    "ofp_match",
    "ofp_meter",
    "ofp_monitor",
    "ofp_msgs",
    "ofp_packet",
    "ofp_port",
    "ofp_protocol",
    "ofp_queue",
    "ofp_table",
    "ofp_util",
    "ofproto_dpif",
    "ofproto_dpif_mirror",
    "ofproto_dpif_monitor",
    "ofproto_dpif_rid",
    "ofproto_dpif_upcall",
    "ofproto_dpif_xlate",
    "ofproto_xlate_cache",
    "ovs_lldp",
    "ovs_numa",
    "ovs_rcu",
    "ovs_replay",
    "ovs_router",
    "ovs_thread",
    "ovsdb_client",
    "ovsdb_cs",
    "ovsdb_error",
    "ovsdb_file",
    "ovsdb_jsonrpc_server",
    "ovsdb_monitor",
    "ovsdb_tool",
    "ovsdb_util",
    "ox_stat",
    "pcap",
    "pinsched",
    "pmd_perf",
    "poll_loop",
    "process",
    "pvector",
    "rconn",
    "reconnect",
    "route_table",
    "rstp",
    "rstp_sm",
    "sflow",
    "sha1",
    "signals",
    "socket_util",
    "socket_util_unix",
    "stp",
    "stream_fd",
    "stream_replay",
    "stream_ssl",
    "stream_tcp",
    "stream_unix",
    "svec",
    "system_stats",
    "tc",
    "timeval",
    "tunnel",
    "userspace_tso",
    "uuid",
    "vconn",
    "vconn_stream",
    "vsctl",
    "xenserver",
];

/// One module.
#[derive(Debug)]
pub(super) struct Module {
    name: String,
    levels: [AtomicU8; 3],
    limited: AtomicBool,
}

impl Module {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn level(&self, destination: Destination) -> Level {
        Level::from_u8(self.levels[destination as usize].load(Ordering::Relaxed))
    }

    pub(super) fn set_level(&self, destination: Destination, level: Level) {
        self.levels[destination as usize].store(level as u8, Ordering::Relaxed);
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    pub(super) fn set_limited(&self, limited: bool) {
        self.limited.store(limited, Ordering::Relaxed);
    }

    /// Whether some destination takes messages of that level. The file counts when it is open.
    pub(super) fn admits_any(&self, level: Level) -> bool {
        let admits = |d| self.level(d) >= level;
        admits(Destination::Console) || admits(Destination::Syslog) || (file_is_open() && admits(Destination::File))
    }
}

/// All modules, and the levels that new ones begin with.
pub(super) struct Registry {
    modules: RwLock<BTreeMap<String, Arc<Module>>>,
    defaults: [AtomicU8; 3],
}

pub(super) static REGISTRY: Registry = Registry {
    modules: RwLock::new(BTreeMap::new()),
    defaults: [const { AtomicU8::new(Level::Info as u8) }; 3],
};

impl Registry {
    /// The module of that name, made if it is new.
    pub(super) fn module(&self, name: &str) -> Arc<Module> {
        if let Some(module) = self.modules.read().get(name) {
            return module.clone();
        }
        let mut modules = self.modules.write();
        let module = modules.entry(name.to_owned()).or_insert_with(|| {
            let levels = [0, 1, 2].map(|i| AtomicU8::new(self.defaults[i].load(Ordering::Relaxed)));
            Arc::new(Module {
                name: name.to_owned(),
                levels,
                limited: AtomicBool::new(true),
            })
        });
        module.clone()
    }

    /// The module that a user names, in any case; `None` if no program has one of that name.
    pub(super) fn find_to_set(&self, name: &str) -> Option<Arc<Module>> {
        let name = name.to_ascii_lowercase().replace('-', "_");
        let known = self.modules.read().contains_key(&name);
        (known || LISTED.contains(&name.as_str()) || ACCEPTED.contains(&name.as_str())).then(|| self.module(&name))
    }

    /// All modules, by name.
    pub(super) fn modules(&self) -> Vec<Arc<Module>> {
        LISTED.iter().for_each(|name| {
            self.module(name);
        });
        self.modules.read().values().cloned().collect()
    }

    /// Sets a level for all modules, those to come included.
    pub(super) fn set_all(&self, destination: Destination, level: Level) {
        self.defaults[destination as usize].store(level as u8, Ordering::Relaxed);
        self.modules()
            .iter()
            .for_each(|module| module.set_level(destination, level));
    }

    /// The most verbose level that any module has anywhere.
    pub(super) fn most_verbose(&self) -> Level {
        let modules = self.modules.read();
        let set = modules.values().flat_map(|m| Destination::ALL.map(|d| m.level(d)));
        let defaults = self.defaults.iter().map(|l| Level::from_u8(l.load(Ordering::Relaxed)));
        set.chain(defaults).max().unwrap_or(Level::Info)
    }
}

/// The module that a `tracing` target means: itself, or for the path of a Rust module, its crate.
pub(super) fn module_of(target: &str) -> &str {
    target.split_once("::").map_or(target, |(krate, _)| krate)
}
