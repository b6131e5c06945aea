//! The kernel's drops in the namespace of a switch: in queues, policers, sockets, and routing.

use super::layout::Layout;
use crate::bed::{command::run_words, device_counters, namespace};
use crate::results::Loss;
use crate::traffic::stack::Stack;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// A loss, by the place that a device stands for, or the device.
pub(crate) fn loss(cause: &str, device: &str, places: &BTreeMap<String, String>, packets: u64) -> Loss {
    Loss {
        cause: cause.to_owned(),
        place: places.get(device).map_or(device, String::as_str).to_owned(),
        packets,
    }
}

/// Drops of queueing disciplines (`queue`) and policers (`policer`) at ports' devices and at those
/// of the switch itself, and drops of these devices and of routing (`port`).
pub(crate) fn of_devices(name: &str, layout: &Layout) -> Result<Vec<Loss>> {
    let places = layout.places();
    let text = run_words(&["tc", "-n", name, "-s", "-j", "qdisc", "show"])?;
    let queues = serde_json::from_str(&text).with_context(|| format!("tc -n {name} -s -j qdisc show"))?;
    let mut losses = of_queues(&queues, layout);
    if layout.routes() {
        let internal = layout.internal();
        let snmp = namespace::enter(name, || {
            let path = "/proc/thread-self/net/snmp";
            fs::read_to_string(path).context(path)
        })?;
        let devices = device_counters(name)?;
        for device in internal {
            let not_sent = devices.get(device).map_or(0, |device| device.tx_dropped);
            losses.push(loss("port", device, &places, not_sent));
        }
        losses.push(loss("port", "routing", &places, discards(&snmp)));
    }
    losses.extend(of_tunnels(name, layout)?);
    losses.retain(|loss| loss.packets > 0);
    Ok(losses)
}

/// The part of [`of_devices`] that is in `tc -s -j qdisc show`.
pub(crate) fn of_queues(queues: &Value, layout: &Layout) -> Vec<Loss> {
    let places = layout.places();
    let internal: Vec<&str> = layout.internal().collect();
    let mut losses = Vec::new();
    for (device, kind, drops) in drops_of(queues) {
        if !places.contains_key(&device) && !internal.contains(&device.as_str()) {
            continue;
        }
        match kind.as_str() {
            "ingress" => losses.push(loss("policer", &device, &places, drops)),
            // Packets that a switch takes from the device and drops for the host's stack.
            "clsact" => {}
            _ => losses.push(loss("queue", &device, &places, drops)),
        }
    }
    losses
}

/// Drops below tunnels (`port`): of the kernel's devices, and of the host's stack, such as in front
/// of full sockets.
fn of_tunnels(name: &str, layout: &Layout) -> Result<Vec<Loss>> {
    let mut tunnels = layout.tunnels().peekable();
    if tunnels.peek().is_none() {
        return Ok(Vec::new());
    }
    let places = layout.places();
    let stack = namespace::enter(name, Stack::here)?;
    let mut losses = vec![loss("port", "the host's stack", &places, stack.received + stack.sent)];
    let devices = device_counters(name)?;
    for (_, port, _) in tunnels {
        let counted = devices.get(&port.device).copied().unwrap_or_default();
        losses.push(loss(
            "port",
            &port.device,
            &places,
            counted.rx_dropped + counted.tx_dropped,
        ));
    }
    Ok(losses)
}

/// Packets that no longer fitted in front of a process's packet sockets, by device (`port`).
pub(crate) fn before_sockets(name: &str, pid: u32, layout: &Layout) -> Result<Vec<Loss>> {
    let text = run_words(&["ip", "netns", "exec", name, "ss", "-0", "-H", "-n", "-m", "-p"])?;
    let places = layout.places();
    let mut losses: Vec<Loss> = Vec::new();
    for (device, drops) in sockets(&text, pid).into_iter().filter(|(_, drops)| *drops > 0) {
        losses.push(loss("port", &device, &places, drops));
    }
    Ok(losses)
}

/// Device, kind and drops of every discipline in `tc -s -j qdisc show`.
fn drops_of(queues: &Value) -> Vec<(String, String, u64)> {
    let queues = queues.as_array().map(Vec::as_slice).unwrap_or_default();
    let read = |queue: &Value| {
        Some((
            queue["dev"].as_str()?.to_owned(),
            queue["kind"].as_str()?.to_owned(),
            queue["drops"].as_u64()?,
        ))
    };
    queues.iter().filter_map(read).collect()
}

/// Device and drops of every packet socket of a process in `ss -0 -m -p`: in `skmem:(…)`, `d`
/// counts packets that did not fit.
fn sockets(text: &str, pid: u32) -> Vec<(String, u64)> {
    let own = format!("pid={pid},");
    let read = |line: &str| {
        let device = line.split_whitespace().nth(3)?.rsplit_once(':')?.1.to_owned();
        let memory = line.split_once("skmem:(")?.1.split(')').next()?;
        let drops = memory
            .split(',')
            .find_map(|word| word.strip_prefix('d')?.parse().ok())?;
        Some((device, drops))
    };
    text.lines()
        .filter(|line| line.contains(&own))
        .filter_map(read)
        .collect()
}

/// Packets that were to be routed and were discarded, by `/proc/net/snmp`.
fn discards(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else {
        return 0;
    };
    let counts = names.split_whitespace().zip(numbers.split_whitespace());
    let wanted = counts.filter(|(name, _)| ["InDiscards", "OutDiscards", "OutNoRoutes"].contains(name));
    wanted.filter_map(|(_, number)| number.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_queues_are_read_by_device() {
        let text = r#"[{"kind":"htb","handle":"1:","dev":"s1-PC1","root":true,"options":{},"bytes":0,"packets":3,"drops":7},
                       {"kind":"ingress","handle":"ffff:","dev":"s1-PC1","parent":"ffff:fff1","options":{},"packets":0,"drops":2}]"#;
        let read = drops_of(&serde_json::from_str(text).unwrap());
        assert_eq!(read[0], ("s1-PC1".to_owned(), "htb".to_owned(), 7));
        assert_eq!(read[1].2, 2);
        assert!(drops_of(&Value::Null).is_empty());
    }

    #[test]
    fn drops_before_sockets_are_those_of_the_process() {
        let text = "\
p_raw 0      0                  *:p1               *     users:((\"ovs-vswitchd\",pid=12,fd=29)) skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d31)
p_raw 0      0                  *:p2               *     users:((\"other\",pid=123,fd=29)) skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d5)
p_raw 0      0                [0]:p2               *     users:((\"ovs-vswitchd\",pid=12,fd=23)) skmem:(r0,rb212992,t0,tb8388608,f0,w0,o0,bl0,d0) ";
        assert_eq!(sockets(text, 12), [("p1".to_owned(), 31), ("p2".to_owned(), 0)]);
    }

    #[test]
    fn what_was_not_routed_is_read() {
        assert_eq!(
            discards("Ip: Forwarding InDiscards OutDiscards\nIp: 1 7 8\nIcmp: InMsgs\nIcmp: 3\n"),
            15
        );
    }
}
