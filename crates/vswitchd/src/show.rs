//! Output of `ovs-appctl` for bridges, datapath and caches, in Open vSwitch's formats.

use crate::bridges::{Bridges, InterfaceState};
use dp::{Datapath, FlowDump, PortCounters, PortNo};
use netdev::DeviceDrops;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The name of the one datapath.
pub(crate) fn datapath_name(datapath: &dyn Datapath) -> String {
    format!("{kind}@ovs-{kind}", kind = datapath.kind())
}

/// `dpif/show`: bridges with their ports and both numbers of each.
pub(crate) fn dpif_show(datapath: &dyn Datapath, bridges: &Bridges) -> String {
    let stats = datapath.cache_stats();
    let hits = stats.exact_hits + stats.megaflow_hits;
    let name = datapath_name(datapath);
    let mut out = format!("{name}: hit:{hits} missed:{}\n", stats.upcalls);
    for (bridge, state) in bridges.state() {
        let _ = writeln!(out, "  {bridge}:");
        for (name, interface) in &state.interfaces {
            let Ok(ofport) = interface.ofport else { continue };
            let _ = match (interface.port, &interface.peer) {
                (Some(port), _) => {
                    writeln!(out, "    {name} {ofport}/{}: ({})", port.0, interface.kind)
                }
                (None, Some(peer)) => {
                    writeln!(out, "    {name} {ofport}/none: (patch: peer={peer})")
                }
                (None, None) => Ok(()),
            };
        }
    }
    out
}

/// `dpctl/show [-s]`: ports of the datapath, with their counters on demand.
pub(crate) fn dpctl_show(datapath: &dyn Datapath, bridges: &Bridges, statistics: bool) -> String {
    let stats = datapath.cache_stats();
    let mut out = format!(
        "{}:\n  lookups: hit:{} missed:{} lost:{}\n  flows: {}\n",
        datapath_name(datapath),
        stats.exact_hits + stats.megaflow_hits,
        stats.upcalls,
        stats.lost,
        stats.flows,
    );
    for (port, (_, name, interface)) in by_port(bridges) {
        let kind = interface.kind;
        let config = interface.device.as_ref().map(|device| device.config());
        let config: Vec<String> = config
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let suffix = match (kind, &config[..]) {
            ("system", []) => String::new(),
            (_, []) => format!(" ({kind})"),
            _ => format!(" ({kind}: {})", config.join(", ")),
        };
        let _ = writeln!(out, "  port {}: {name}{suffix}", port.0);
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

/// Output options of `dpctl/dump-flows` and `dpif/dump-flows`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowFormat {
    /// `--names`: ports by name.
    pub(crate) names: bool,
    /// `-m`: also wildcarded fields, the worker, and the number of offloaded flows.
    pub(crate) more: bool,
}

/// Megaflows, one on each line; with `only`, those of that ingress port.
pub(crate) fn dump_flows(datapath: &dyn Datapath, bridges: &Bridges, only: Option<&str>, format: FlowFormat) -> String {
    let mut out = String::new();
    let ports = by_port(bridges);
    for flow in datapath.dump_flows() {
        let bridge = ports.get(&flow.key.in_port()).map(|(bridge, _, _)| *bridge);
        if only.is_none() || only == bridge {
            out.push_str(&flow_line(&flow, &ports, format));
        }
    }
    out
}

/// The bridge, the interface's name and its state behind each datapath port.
type Ports<'a> = BTreeMap<PortNo, (&'a str, &'a str, &'a InterfaceState)>;

fn by_port(bridges: &Bridges) -> Ports<'_> {
    bridges
        .interfaces()
        .filter_map(|found| Some((found.2.port?, found)))
        .collect()
}

fn flow_line(flow: &FlowDump, ports: &Ports<'_>, format: FlowFormat) -> String {
    let name_of = |port: PortNo| match ports.get(&port) {
        Some((_, name, _)) if format.names => (*name).to_owned(),
        _ => port.0.to_string(),
    };
    let port_name = |port: PortNo| format.names.then(|| name_of(port));
    let actions = match flow.drop {
        Some(cause) if flow.actions.is_empty() && format.more => format!("drop({})", cause.name()),
        _ if flow.actions.is_empty() => "drop".to_owned(),
        _ => dp::ActionList::new(&flow.actions, &flow.key)
            .with_names(&port_name)
            .to_string(),
    };
    let used = match flow.stats.idle {
        Some(idle) => format!("{:.3}s", idle.as_secs_f64()),
        None => "never".to_owned(),
    };
    let in_port = flow.key.in_port();
    let mut key = flow.key.display(&flow.mask).to_string();
    if format.names {
        let numbered = format!("in_port({})", in_port.0);
        key = key.replacen(&numbered, &format!("in_port({})", name_of(in_port)), 1);
    }
    let worker = if format.more {
        format!(", worker:{}", flow.worker)
    } else {
        String::new()
    };
    let offloaded = match flow.offloaded {
        offloaded if format.more && offloaded > 0 => format!(", offloaded:{offloaded}"),
        _ => String::new(),
    };
    format!(
        "{key}, packets:{}, bytes:{}, used:{used}{worker}{offloaded}, actions:{actions}\n",
        flow.stats.packets, flow.stats.bytes
    )
}

/// `upcall/show`: how full the caches are.
pub(crate) fn upcall_show(datapath: &dyn Datapath) -> String {
    let stats = datapath.cache_stats();
    format!(
        "{}:\n  flows         : (current {}) (limit {})\n  dump duration : {}ms\n  masks         : {}\n  \
         exact hits    : {}\n  megaflow hits : {}\n  upcalls       : {} (lost {})\n",
        datapath_name(datapath),
        stats.flows,
        datapath.flow_limit(),
        datapath.ageing_took().as_millis(),
        stats.masks,
        stats.exact_hits,
        stats.megaflow_hits,
        stats.upcalls,
        stats.lost,
    )
}
