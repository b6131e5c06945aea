//! Drop counters from the daemons' output.

use crate::bed::Counters;
use crate::results::Loss;
use crate::systems::kernel_drops::loss;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;

/// A port as `dpctl/show -s` shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PortDrops {
    pub(crate) name: String,
    pub(crate) rx_dropped: u64,
    pub(crate) tx_dropped: u64,
    /// Packets lost in front of the port because its buffer was full.
    pub(crate) overruns: u64,
    /// By the name of the cause; oxvs only.
    pub(crate) causes: BTreeMap<String, u64>,
}

/// The cause of samples that there was no room for.
const SAMPLES: &str = "drop_sample_budget";

/// Samples that oxvs has dropped, by its ports.
pub(crate) fn lost_samples(ports: &[PortDrops]) -> u64 {
    ports.iter().filter_map(|port| port.causes.get(SAMPLES)).sum()
}

/// The ports of `dpctl/show -s`.
pub(crate) fn ports(text: &str) -> Vec<PortDrops> {
    let mut ports: Vec<PortDrops> = Vec::new();
    for line in text.lines() {
        if let Some((_, rest)) = line
            .trim_start()
            .strip_prefix("port ")
            .and_then(|line| line.split_once(": "))
        {
            let name = rest.split_whitespace().next().unwrap_or_default().to_owned();
            ports.push(PortDrops {
                name,
                ..PortDrops::default()
            });
            continue;
        }
        let Some(port) = ports.last_mut() else { continue };
        let line = line.trim_start();
        if line.starts_with("RX packets:") {
            port.rx_dropped = number(line, "dropped");
            port.overruns = number(line, "overruns");
        } else if line.starts_with("TX packets:") {
            port.tx_dropped = number(line, "dropped");
        } else if let Some(causes) = line.strip_prefix("dropped by cause: ") {
            let causes = causes.split_whitespace().filter_map(|word| word.split_once(':'));
            port.causes = causes
                .filter_map(|(cause, packets)| Some((cause.to_owned(), packets.parse().ok()?)))
                .collect();
        }
    }
    ports
}

/// Losses at a port of oxvs. The kernel also counts packets that the device refused, unless it was
/// full before; these are the cable's losses.
pub(crate) fn of_oxvs_port(port: &PortDrops, places: &BTreeMap<String, String>, kernel: Counters) -> Vec<Loss> {
    let mut losses = vec![loss("port", &port.name, places, port.overruns)];
    for (cause, packets) in &port.causes {
        let (cause, packets) = match cause.as_str() {
            "drop_policed" => ("policer", *packets),
            "drop_queue_full" | "drop_queue_delay" | "drop_queue_loss" | "drop_queue_removed" => ("queue", *packets),
            "drop_upcall_budget" | "drop_controller_budget" | "drop_protocol_budget" => ("upcall", *packets),
            "drop_device_full" => ("port", packets.saturating_sub(kernel.tx_dropped)),
            // No bridge forwards them: they are nobody's loss.
            "drop_reserved_multicast" => continue,
            // A copy for a collector; the packet went on.
            SAMPLES => continue,
            _ => ("port", *packets),
        };
        losses.push(loss(cause, &port.name, places, packets));
    }
    losses
}

/// Packets that were lost because nobody could be asked in time what to do with them: `lost` of
/// `dpctl/show`.
pub(crate) fn lost_upcalls(text: &str) -> u64 {
    let lines = text.lines().filter(|line| line.trim_start().starts_with("lookups:"));
    lines.map(|line| number(line, "lost")).sum()
}

/// Drops that `coverage/show` of Open vSwitch counts, without those of upcalls, which are lost
/// ones.
pub(crate) fn of_coverage(text: &str) -> u64 {
    let drops = text
        .lines()
        .filter(|line| line.starts_with("datapath_drop_") || line.starts_with("drop_action_"));
    let others = drops.filter(|line| {
        !line.starts_with("datapath_drop_upcall_error") && !line.starts_with("datapath_drop_lock_error")
    });
    let total = |line: &str| line.rsplit_once("total: ")?.1.trim().parse::<u64>().ok();
    others.filter_map(total).sum()
}

/// The number behind `name:` in a line.
fn number(line: &str, name: &str) -> u64 {
    let words = line.split_whitespace().filter_map(|word| word.split_once(':'));
    words
        .into_iter()
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

/// Why an interface is not in use that has neither a number nor an error.
pub(super) const NO_NUMBER: &str = "it has no port number";

/// The first interface that could not be set up, and why, of `list interface` with columns name,
/// error and ofport in JSON.
pub(crate) fn interface_error(text: &str) -> Result<Option<(String, String)>> {
    let table: Value = serde_json::from_str(text).with_context(|| format!("list interface: {text}"))?;
    let rows = table["data"].as_array().context("list interface: no rows")?;
    for row in rows {
        let name = row[0].as_str().unwrap_or_default().to_owned();
        if let Some(error) = row[1].as_str() {
            return Ok(Some((name, error.to_owned())));
        }
        if row[2].as_i64().is_none_or(|number| number < 0) {
            return Ok(Some((name, NO_NUMBER.to_owned())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOW: &str = "\
netdev@ovs-netdev:
  lookups: hit:3695 missed:14 lost:3
  flows: 11
  port 1: s1 (internal)
    RX packets:0 errors:0 dropped:0 overruns:0 frame:0
    TX packets:0 errors:0 dropped:23 aborted:0 carrier:0
    collisions:0
    RX bytes:0  TX bytes:0
    dropped by cause: drop_port_down:23
  port 2: s1-PC1
    RX packets:3477 errors:0 dropped:1649 overruns:7 frame:0
    TX packets:29 errors:0 dropped:5 aborted:0 carrier:0
    collisions:0
    RX bytes:5145542 (4.9 MiB)  TX bytes:2386 (2.3 KiB)
    dropped by cause: drop_policed:1642 drop_queue_full:3 drop_device_full:2 drop_reserved_multicast:9 drop_sample_budget:4
  dropped packets by cause:
    drop_port_down: 23
";

    #[test]
    fn a_port_of_oxvs_tells_what_it_lost_by_cause() {
        let ports = ports(SHOW);
        assert_eq!(ports.len(), 2);
        assert_eq!((ports[1].rx_dropped, ports[1].tx_dropped), (1649, 5));
        assert_eq!(lost_samples(&ports), 4);
        let places = BTreeMap::from([("s1-PC1".to_owned(), "s1:PC1".to_owned())]);
        let kernel = Counters {
            tx_dropped: 1,
            ..Counters::default()
        };
        let mut losses = of_oxvs_port(&ports[1], &places, kernel);
        losses.retain(|loss| loss.packets > 0);
        assert!(losses.iter().all(|loss| loss.place == "s1:PC1"));
        let told: Vec<(&str, u64)> = losses.iter().map(|loss| (loss.cause.as_str(), loss.packets)).collect();
        assert_eq!(told, [("port", 7), ("port", 1), ("policer", 1642), ("queue", 3)]);
    }

    #[test]
    fn what_open_vswitch_lost_is_read_from_its_counters() {
        assert_eq!(lost_upcalls(SHOW), 3);
        let coverage = "\
Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=83c56bd7:
datapath_drop_upcall_error   0.0/sec     0.000/sec        0.0000/sec   total: 4
datapath_drop_meter          0.0/sec     0.000/sec        0.0000/sec   total: 6
drop_action_of_pipeline      0.0/sec     0.000/sec        0.0000/sec   total: 9
mac_learning_learned         0.0/sec     0.000/sec        0.0000/sec   total: 2";
        assert_eq!(of_coverage(coverage), 15);
    }

    #[test]
    fn an_interface_with_an_error_is_found() {
        let bad = r#"{"data":[["s1",["set",[]],65534],["nope","could not open network device nope (No such device)",-1]],"headings":["name","error","ofport"]}"#;
        assert_eq!(
            interface_error(bad).unwrap().unwrap(),
            (
                "nope".to_owned(),
                "could not open network device nope (No such device)".to_owned()
            )
        );
        assert_eq!(
            interface_error(r#"{"data":[["s1",["set",[]],65534]],"headings":[]}"#).unwrap(),
            None
        );
        assert!(
            interface_error(r#"{"data":[["s1",["set",[]],["set",[]]]],"headings":[]}"#)
                .unwrap()
                .is_some()
        );
        assert!(interface_error("no").is_err());
    }
}
