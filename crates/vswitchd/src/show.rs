//! Output of `ovs-appctl` for bridges, datapath and caches, in Open vSwitch's formats.

use crate::bridges::{BridgeState, Bridges, InterfaceState};
use crate::ofport::LOCAL;
use crate::state::State;
use dp::{Datapath, FlowDump, FlowStats, PortCounters, PortNo};
use netdev::{DeviceDrops, DummyKind, Netdev};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The datapaths by name. As in Open vSwitch each type of bridges has one. They are views of the
/// one datapath: its counters are in each of them.
pub(crate) fn datapaths(bridges: &Bridges) -> BTreeSet<String> {
    let kinds = bridges.state().values().map(|bridge| &bridge.datapath_type);
    kinds.map(|kind| datapath_of(kind)).collect()
}

/// The datapath of a type of bridges.
pub(crate) fn datapath_of(kind: &str) -> String {
    format!("{kind}@ovs-{kind}")
}

/// Fails for a name that is no datapath's, with or without its type.
pub(crate) fn check_datapath(state: &State, name: Option<&String>) -> Result<(), String> {
    let datapaths = datapaths(&state.bridges.borrow());
    let is_one = |name: &String| {
        datapaths
            .iter()
            .any(|of| of == name || of.split('@').next_back() == Some(name))
    };
    match name {
        Some(name) if !is_one(name) => Err("please specify an existing datapath".to_owned()),
        _ => Ok(()),
    }
}

/// `dpif/show`: bridges with their ports and both numbers of each.
pub(crate) fn dpif_show(datapath: &dyn Datapath, bridges: &Bridges) -> String {
    let stats = datapath.cache_stats();
    let hits = stats.exact_hits + stats.megaflow_hits;
    let mut out = String::new();
    for name in datapaths(bridges) {
        let _ = writeln!(out, "{name}: hit:{hits} missed:{}", stats.upcalls);
        let its = bridges.state().iter();
        for (bridge, state) in its.filter(|(_, bridge)| datapath_of(&bridge.datapath_type) == name) {
            let _ = writeln!(out, "  {bridge}:");
            for (name, interface) in &state.interfaces {
                let Ok(ofport) = interface.ofport else { continue };
                let _ = match (interface.port, &interface.peer) {
                    (Some(port), _) => {
                        let kind = described(state, interface);
                        writeln!(out, "    {name} {ofport}/{}: ({kind})", port.0)
                    }
                    (None, Some(peer)) => {
                        writeln!(out, "    {name} {ofport}/none: (patch: peer={peer})")
                    }
                    (None, None) => Ok(()),
                };
            }
        }
    }
    out
}

/// An interface's type as its datapath names it: an internal port's depends on the datapath.
fn kind_of(bridge: &BridgeState, interface: &InterfaceState) -> &'static str {
    match (interface.kind, bridge.datapath_type.as_str()) {
        ("dummy-internal", _) => "dummy-internal",
        (kind, _) if kind != "internal" && interface.ofport != Ok(LOCAL) => kind,
        (_, "dummy") => "dummy-internal",
        (_, "netdev") => "tap",
        _ => "internal",
    }
}

/// The ports of a bridge for `dpif/show` in JSON.
pub(crate) fn bridge_json(bridge: &BridgeState) -> Value {
    let port = |(name, interface): (&String, &InterfaceState)| {
        let ofport = interface.ofport.as_ref().ok()?;
        let mut document = serde_json::json!({
            "ofport": ofport.to_string(),
            "port_no": interface.port.map_or("none".to_owned(), |port| port.0.to_string()),
            "type": kind_of(bridge, interface),
        });
        let config = match &interface.peer {
            Some(peer) => BTreeMap::from([("peer".to_owned(), peer.clone())]),
            None => config_of(interface),
        };
        if !config.is_empty() {
            document["config"] = serde_json::json!(config);
        }
        Some((name.clone(), document))
    };
    Value::Object(bridge.interfaces.iter().filter_map(port).collect())
}

/// Whether the main thread serves a device in Open vSwitch: a dummy that is no `dummy-pmd`.
pub(crate) fn is_main_threads(device: &dyn Netdev) -> bool {
    device
        .as_dummy()
        .is_some_and(|dummy| dummy.dummy_kind() != DummyKind::Pmd)
}

/// The options of a device or a tunnel.
fn config_of(interface: &InterfaceState) -> BTreeMap<String, String> {
    if let Some(tunnel) = &interface.tunnel {
        let options = tunnel.config.options().into_iter();
        return options.map(|(key, value)| (key.to_owned(), value)).collect();
    }
    let device = interface.device.as_ref();
    device.map(|device| device.config()).unwrap_or_default()
}

/// An interface's type with the options of its device.
fn described(bridge: &BridgeState, interface: &InterfaceState) -> String {
    let kind = kind_of(bridge, interface);
    let config = config_of(interface);
    let config = config.into_iter();
    let config: Vec<String> = config.map(|(key, value)| format!("{key}={value}")).collect();
    match &config[..] {
        [] => kind.to_owned(),
        _ => format!("{kind}: {}", config.join(", ")),
    }
}

/// Whether a bridge is of a datapath.
pub(crate) fn is_of(bridges: &Bridges, bridge: &str, datapath: &str) -> bool {
    let state = bridges.state().get(bridge);
    state.is_some_and(|bridge| datapath_of(&bridge.datapath_type) == datapath)
}

/// `dpctl/show [-s]`: ports of the datapath, with their counters on demand.
pub(crate) fn dpctl_show(state: &State, bridges: &Bridges, name: &str, statistics: bool) -> String {
    let datapath = state.dp();
    let stats = datapath.cache_stats();
    let mut out = format!(
        "{name}:\n  lookups: hit:{} missed:{} lost:{}\n  flows: {}\n",
        stats.exact_hits + stats.megaflow_hits,
        stats.upcalls,
        stats.lost,
        stats.flows,
    );
    let (kind, own) = name.split_once('@').unwrap_or_default();
    if state.dummies.is_dummy_datapath(kind) {
        // Test benches expect the datapath's own port, which carries nothing.
        let _ = writeln!(out, "  port 0: {own} (dummy-internal)");
        if statistics {
            out.push_str(&port_statistics(PortCounters::default(), DeviceDrops::default()));
        }
    }
    for (port, (bridge, interface_name, interface)) in by_port(bridges) {
        let Some(bridge) = bridges.state().get(bridge) else {
            continue;
        };
        if datapath_of(&bridge.datapath_type) != name {
            continue;
        }
        let suffix = match described(bridge, interface) {
            kind if kind == "system" => String::new(),
            kind => format!(" ({kind})"),
        };
        let _ = writeln!(out, "  port {}: {interface_name}{suffix}", port.0);
        if statistics {
            let lost = interface.device.as_ref().map(|device| device.drops());
            let counters = datapath.port_counters(port).unwrap_or_default();
            out.push_str(&port_statistics(counters, lost.unwrap_or_default()));
        }
    }
    if statistics {
        out.push_str("  dropped packets by cause:\n");
        for (cause, packets) in datapath.drops() {
            if packets > 0 {
                let _ = writeln!(out, "    {}: {packets}", cause.name());
            }
        }
    }
    out
}

fn port_statistics(c: PortCounters, lost: DeviceDrops) -> String {
    let mut out = format!(
        "    RX packets:{} errors:{} dropped:{} overruns:{} frame:0\n    \
         TX packets:{} errors:{} dropped:{} aborted:0 carrier:0\n    \
         collisions:0\n    RX bytes:{}{}  TX bytes:{}{}\n",
        c.rx_packets,
        c.rx_errors,
        c.rx_dropped,
        lost.queue_full,
        c.tx_packets,
        c.tx_errors,
        c.tx_dropped,
        c.rx_bytes,
        magnitude(c.rx_bytes),
        c.tx_bytes,
        magnitude(c.tx_bytes),
    );
    let causes = dp::DropCause::ALL
        .iter()
        .zip(c.drops)
        .filter(|(_, packets)| *packets > 0);
    let causes: Vec<String> = causes
        .map(|(cause, packets)| format!("{}:{packets}", cause.name()))
        .collect();
    if !causes.is_empty() {
        let _ = writeln!(out, "    dropped by cause: {}", causes.join(" "));
    }
    out
}

/// The suffix ` (1.5 MiB)` after a large number of bytes.
fn magnitude(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = None;
    for name in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = Some(name);
    }
    unit.map(|unit| format!(" ({value:.1} {unit})")).unwrap_or_default()
}

/// Output options of `dpif/dump-flows` and `dpctl/dump-flows`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowFormat {
    /// Ports by name.
    pub(crate) names: bool,
    /// `-m`: also the megaflow's number, wildcarded fields and what only oxvs knows.
    pub(crate) more: bool,
}

/// Megaflows of a bridge, one on each line, as `dpif/dump-flows` prints them.
pub(crate) fn dump_flows(state: &State, bridges: &Bridges, bridge: &str, format: FlowFormat) -> String {
    let ports = by_port(bridges);
    let flows = state.dp().dump_flows();
    let its = |flow: &&FlowDump| ports.get(&flow.key.in_port()).is_some_and(|(name, ..)| *name == bridge);
    let mut out = String::new();
    for flow in flows.iter().filter(its) {
        if format.more {
            let _ = write!(out, "ufid:{} ", dp::ufid(&flow.key, &flow.mask));
        }
        let _ = writeln!(
            out,
            "{}, actions:{}",
            key_and_use(flow, &ports, format),
            actions(state, flow, &ports, format)
        );
    }
    out
}

/// The bridge, the interface's name and its state behind each datapath port.
pub(crate) type Ports<'a> = BTreeMap<PortNo, (&'a str, &'a str, &'a InterfaceState)>;

pub(crate) fn by_port(bridges: &Bridges) -> Ports<'_> {
    bridges
        .interfaces()
        .filter_map(|found| Some((found.2.port?, found)))
        .collect()
}

/// A megaflow as `dpctl/dump-flows` and `dpctl/get-flow` print it.
pub(crate) fn dpctl_flow(state: &State, flow: &FlowDump, ports: &Ports<'_>, format: FlowFormat) -> String {
    let mut out = String::new();
    if format.more {
        let _ = write!(out, "ufid:{}, ", dp::ufid(&flow.key, &flow.mask));
    }
    out += &key_and_use(flow, ports, format);
    if format.more {
        if flow.offloaded > 0 {
            let _ = write!(out, ", offloaded:{}", flow.offloaded);
        }
        out += ", dp:ovs";
    }
    let _ = write!(out, ", actions:{}", actions(state, flow, ports, format));
    if format.more {
        // The number of words of the key that are compared.
        let _ = write!(
            out,
            ", dp-extra-info:miniflow_bits({},0)",
            flow.mask.used_words().count()
        );
    }
    out + "\n"
}

fn key_and_use(flow: &FlowDump, ports: &Ports<'_>, format: FlowFormat) -> String {
    let port_name = |port: PortNo| format.names.then(|| name_of(port, ports));
    let mut key = flow.key.display(&flow.mask).with_names(&port_name);
    if format.more {
        key = key.with_wildcards();
    }
    format!("{key}, {}", flow_use(flow))
}

/// A megaflow's counters.
pub(crate) fn flow_use(flow: &FlowDump) -> String {
    let FlowStats { packets, bytes, idle } = flow.stats;
    let used = match idle {
        Some(idle) => format!("{:.3}s", idle.as_secs_f64()),
        None => "never".to_owned(),
    };
    format!("packets:{packets}, bytes:{bytes}, used:{used}")
}

fn actions(state: &State, flow: &FlowDump, ports: &Ports<'_>, format: FlowFormat) -> String {
    let user_data = |handle: u32| state.shared.switch.read().user_data(handle);
    let port_name = |port: PortNo| format.names.then(|| name_of(port, ports));
    match (flow.actions.is_empty(), flow.drop) {
        (true, Some(cause)) if format.more => format!("drop({})", cause.name()),
        (true, _) => "drop".to_owned(),
        (false, _) => dp::ActionList::new(&flow.actions, &flow.key)
            .with_names(&port_name)
            .with_user_data(&user_data)
            .to_string(),
    }
}

fn name_of(port: PortNo, ports: &Ports<'_>) -> String {
    match ports.get(&port) {
        Some((_, name, _)) => (*name).to_owned(),
        None => port.0.to_string(),
    }
}

/// `upcall/show`: how full the caches are. The lines after the worker's are oxvs's own.
pub(crate) fn upcall_show(state: &State) -> String {
    let datapath = state.dp();
    let stats = datapath.cache_stats();
    let (average, most) = state.flow_levels(stats.flows);
    let show = |name| {
        format!(
            "{name}:\n  flows         : (current {flows}) (avg {average}) (max {most}) (limit {})\n  \
             dump duration : {}ms\n  ufid enabled : {}\n\n  0: (keys {flows})\n  \
             masks         : {}\n  exact hits    : {}\n  megaflow hits : {}\n  upcalls       : {} (lost {})\n",
            datapath.flow_limit(),
            datapath.ageing_took().as_millis(),
            state.ufid.get(),
            stats.masks,
            stats.exact_hits,
            stats.megaflow_hits,
            stats.upcalls,
            stats.lost,
            flows = stats.flows,
        )
    };
    datapaths(&state.bridges.borrow()).into_iter().map(show).collect()
}
