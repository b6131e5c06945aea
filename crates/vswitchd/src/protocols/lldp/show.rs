//! The texts of `autoattach/*`, as Open vSwitch prints them, and of `lldp/show`.

use super::Interfaces;
use nanos::Nanos;
use protocols::lldp::wire::Capabilities;
use protocols::lldp::{Neighbor, readable};
use serde_json::{Value, json};
use std::fmt::Write;

impl Interfaces {
    /// The interfaces that speak LLDP, of one bridge or of all.
    fn of<'a>(&'a self, bridge: Option<&'a str>) -> impl Iterator<Item = &'a str> {
        let names = self.machine.ports();
        names.filter(move |name| bridge.is_none_or(|bridge| self.bridges.get(*name).is_some_and(|b| b == bridge)))
    }

    /// `autoattach/status`: the servers that each interface has found.
    pub(crate) fn auto_attach_status(&self, bridge: Option<&str>) -> String {
        let mut out = String::new();
        for name in self.of(bridge) {
            let _ = writeln!(out, "LLDP: {name}");
            for pdu in self.machine.neighbors(name).map(|neighbor| &neighbor.pdu) {
                let Some(element) = pdu.element.filter(|element| element.is_named()) else {
                    continue;
                };
                let id: Vec<String> = pdu.chassis.value().iter().map(|byte| format!("{byte:02x}")).collect();
                let description = match &pdu.system_description[..] {
                    [] => "<None>".to_owned(),
                    text => readable(text),
                };
                let _ = write!(
                    out,
                    "  Auto Attach Primary Server Id: {}\n  Auto Attach Primary Server Descr: {description}\n  \
                     Auto Attach Primary Server System Id: {}\n",
                    id.join(":"),
                    element.system_id()
                );
            }
        }
        out
    }

    /// `autoattach/show-isid`: the mappings of each interface.
    pub(crate) fn auto_attach_isids(&self, bridge: Option<&str>) -> String {
        let mut out = String::new();
        for name in self.of(bridge) {
            let _ = write!(
                out,
                "LLDP: {name}\nI-SID    VLAN Source      Status  \n-------- ---- ----------- --------\n"
            );
            for mapping in self.machine.assignments(name) {
                let (isid, vlan, status) = (mapping.isid.get(), mapping.vlan.get(), mapping.status);
                let _ = writeln!(out, "{isid:<8} {vlan:<4} {:<11} {status:<11}", "Switch");
            }
        }
        out
    }

    /// `autoattach/statistics`.
    pub(crate) fn auto_attach_statistics(&self, bridge: Option<&str>) -> String {
        let mut out = String::new();
        for name in self.of(bridge) {
            let _ = writeln!(out, "Statistics: {name}");
            for (what, count) in self.counters(name) {
                let _ = writeln!(out, "  {what} cnt: {count}");
            }
        }
        out
    }

    fn counters(&self, name: &str) -> [(&'static str, u64); 8] {
        let counters = self.machine.counters(name).unwrap_or_default();
        [
            ("tx", counters.tx),
            ("rx", counters.rx),
            ("rx discarded", counters.discarded),
            ("rx unrecognized", counters.unrecognized),
            ("ageout", counters.ageouts),
            ("insert", counters.inserts),
            ("delete", counters.deletes),
            ("drop", counters.drops),
        ]
    }

    /// `lldp/show`: the neighbors of one interface or of all, as text and as JSON.
    pub(crate) fn show(&self, interface: Option<&str>, now: Nanos) -> Result<(String, Value), String> {
        if let Some(name) = interface
            && !self.bridges.contains_key(name)
        {
            return Err(format!("interface {name} does not speak LLDP"));
        }
        let mut out = String::new();
        let mut interfaces = Vec::new();
        for (name, bridge) in &self.bridges {
            if interface.is_some_and(|wanted| wanted != name) {
                continue;
            }
            let neighbors: Vec<Value> = self
                .machine
                .neighbors(name)
                .map(|neighbor| document(neighbor, now))
                .collect();
            let _ = writeln!(out, "{name} (bridge {bridge}): {} neighbors", neighbors.len());
            for neighbor in &neighbors {
                write_neighbor(&mut out, neighbor);
            }
            let counters = self.counters(name).into_iter();
            let counters: serde_json::Map<String, Value> = counters
                .map(|(what, count)| (what.replace(' ', "_"), count.into()))
                .collect();
            interfaces.push(json!({
                "interface": name, "bridge": bridge, "neighbors": neighbors, "statistics": counters,
            }));
        }
        Ok((out, json!({"interfaces": interfaces})))
    }
}

/// What a neighbor says. Texts that it does not send are absent.
fn document(neighbor: &Neighbor, now: Nanos) -> Value {
    let pdu = &neighbor.pdu;
    let ((chassis_type, chassis), (port_type, port)) = (pdu.chassis_text(), pdu.port_text());
    let mut document = json!({
        "chassis": {"type": chassis_type, "id": chassis},
        "port": {"type": port_type, "id": port},
        "ttl": pdu.ttl,
        "age": now.since(neighbor.since).as_secs(),
        "expires": neighbor.expires().since(now).as_secs(),
    });
    for (key, text) in [
        ("port_description", &pdu.port_description),
        ("system_name", &pdu.system_name),
        ("system_description", &pdu.system_description),
    ] {
        if !text.is_empty() {
            document[key] = readable(text).into();
        }
    }
    if let Some(capabilities) = pdu.capabilities {
        let names = |word| Capabilities::names(word).collect::<Vec<_>>();
        document["capabilities"] = json!({
            "available": names(capabilities.available), "enabled": names(capabilities.enabled),
        });
    }
    if !pdu.management.is_empty() {
        document["management"] = pdu.management.iter().map(ToString::to_string).collect();
    }
    document
}

/// The same for people.
fn write_neighbor(out: &mut String, neighbor: &Value) {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let id = |end: &str| format!("{} {}", text(&neighbor[end]["type"]), text(&neighbor[end]["id"]));
    let list = |value: &Value| {
        let words: Vec<String> = value.as_array().into_iter().flatten().map(text).collect();
        words.join(" ")
    };
    let _ = writeln!(out, "  chassis {}, port {}", id("chassis"), id("port"));
    for (key, label) in [
        ("system_name", "system name"),
        ("system_description", "system description"),
        ("port_description", "port description"),
    ] {
        if let Some(value) = neighbor.get(key) {
            let _ = writeln!(out, "    {label}: {}", text(value));
        }
    }
    if let Some(capabilities) = neighbor.get("capabilities") {
        let _ = writeln!(
            out,
            "    capabilities: {}; enabled: {}",
            list(&capabilities["available"]),
            list(&capabilities["enabled"])
        );
    }
    if let Some(management) = neighbor.get("management") {
        let _ = writeln!(out, "    management addresses: {}", list(management));
    }
    let _ = writeln!(
        out,
        "    known for {} s, forgotten in {} s",
        neighbor["age"], neighbor["expires"]
    );
}
