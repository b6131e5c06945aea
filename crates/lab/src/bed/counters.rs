//! The kernel's counters of a testbed.

use super::cable::Cable;
use super::command::run_words;
use super::delay::Delay;
use super::host::Host;
use super::namespace::enter;
use super::plan::Plan;
use crate::results::Loss;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek};

/// Counts of a device, in packets and bytes as its namespace sees them: what a port receives (rx)
/// came from its cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes of them.
    pub rx_bytes: u64,
    /// Packets received and dropped by the kernel before anyone had them.
    pub rx_dropped: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes of them.
    pub tx_bytes: u64,
    /// Packets that were to be sent and were not.
    pub tx_dropped: u64,
}

/// Counters of all devices of a namespace.
pub(crate) fn devices(namespace: &str) -> Result<BTreeMap<String, Counters>> {
    DeviceCounters::of(namespace)?.counters()
}

/// Reads the counters of a namespace's devices often: its file stays open.
pub(crate) struct DeviceCounters(fs::File);

impl DeviceCounters {
    /// # Errors
    /// There is no such namespace.
    pub(crate) fn of(namespace: &str) -> Result<DeviceCounters> {
        enter(namespace, || {
            let path = "/proc/thread-self/net/dev";
            Ok(DeviceCounters(fs::File::open(path).context(path)?))
        })
    }

    /// The counters now.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn counters(&mut self) -> Result<BTreeMap<String, Counters>> {
        let mut text = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut text)?;
        Ok(text.lines().filter_map(device).collect())
    }
}

/// What arrives at a host, by the counters of a device.
pub(crate) struct HostRate {
    counters: DeviceCounters,
    device: String,
    /// It is the device at the other end.
    sent: bool,
}

impl HostRate {
    pub(super) fn new(namespace: &str, device: &str, sent: bool) -> Result<HostRate> {
        Ok(HostRate {
            counters: DeviceCounters::of(namespace)?,
            device: device.to_owned(),
            sent,
        })
    }

    /// Bytes of frames so far.
    ///
    /// # Errors
    /// The kernel's; the device is gone.
    pub(crate) fn bytes(&mut self) -> Result<u64> {
        let counters = self.counters.counters()?;
        let device = counters.get(&self.device).context("the device is gone")?;
        Ok(if self.sent { device.tx_bytes } else { device.rx_bytes })
    }
}

/// A line of `/proc/net/dev` (`proc_pid_net(5)`).
fn device(line: &str) -> Option<(String, Counters)> {
    let (name, numbers) = line.split_once(':')?;
    let numbers: Vec<u64> = numbers
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [
        rx_bytes,
        rx_packets,
        _,
        rx_dropped,
        _,
        _,
        _,
        _,
        tx_bytes,
        tx_packets,
        _,
        tx_dropped,
        ..,
    ] = numbers[..]
    else {
        return None;
    };
    let counters = Counters {
        rx_packets,
        rx_bytes,
        rx_dropped,
        tx_packets,
        tx_bytes,
        tx_dropped,
    };
    Some((name.trim().to_owned(), counters))
}

/// Losses of cables and hosts.
pub(crate) fn losses(plan: &Plan, delays: &[Delay]) -> Result<Vec<Loss>> {
    let mut losses = Vec::new();
    let mut counted: BTreeMap<&str, BTreeMap<String, Counters>> = BTreeMap::new();
    for name in plan.namespaces() {
        counted.insert(name, devices(name)?);
    }
    for cable in &plan.cables {
        let mut lost = cable_losses(cable, &counted)?;
        if let Some(delay) = delays.iter().find(|delay| delay.cable() == cable.name) {
            let [towards_b, towards_a] = delay.counts()?.dropped;
            *lost.entry(cable.direction(&cable.b.inner)).or_default() += towards_b;
            *lost.entry(cable.direction(&cable.a.inner)).or_default() += towards_a;
        }
        for (place, packets) in lost {
            losses.push(loss("cable", place, packets));
        }
    }
    for host in plan.hosts.values() {
        let stack = host.stack()?;
        losses.push(loss("sender", host.name.clone(), stack.sent));
        losses.push(loss("receiver", host.name.clone(), stack.received));
    }
    losses.retain(|loss| loss.packets > 0);
    Ok(losses)
}

fn loss(cause: &str, place: String, packets: u64) -> Loss {
    Loss {
        cause: cause.to_owned(),
        place,
        packets,
    }
}

/// By direction. A veth device counts a packet as dropped when it sends it and the other side's
/// backlog is full; the other side's own count of the same packet is left alone.
fn cable_losses(cable: &Cable, counted: &BTreeMap<&str, BTreeMap<String, Counters>>) -> Result<BTreeMap<String, u64>> {
    let mut losses = BTreeMap::new();
    let tx_dropped = |namespace: &str, device: &str| {
        let device = counted.get(namespace).and_then(|devices| devices.get(device));
        device.map_or(0, |device| device.tx_dropped)
    };
    for (from, to) in [(&cable.a, &cable.b), (&cable.b, &cable.a)] {
        let own = cable.namespace.as_deref().map_or(0, |own| tx_dropped(own, &to.inner));
        losses.insert(
            cable.direction(&to.inner),
            tx_dropped(&from.namespace, &from.device) + own,
        );
    }
    if let (Some(own), Some(_)) = (&cable.namespace, cable.rate) {
        for (device, drops) in queue_drops(own)? {
            *losses.entry(cable.direction(&device)).or_default() += drops;
        }
    }
    Ok(losses)
}

/// Drops of a namespace's transmit queues, by device.
fn queue_drops(namespace: &str) -> Result<Vec<(String, u64)>> {
    let text = run_words(&["tc", "-n", namespace, "-s", "-j", "qdisc", "show"])?;
    let queues: Value = serde_json::from_str(&text).with_context(|| format!("tc -n {namespace} -s -j qdisc show"))?;
    let queues = queues.as_array().map(Vec::as_slice).unwrap_or_default();
    let limited = queues.iter().filter(|queue| queue["kind"] == "tbf");
    Ok(limited
        .filter_map(|queue| Some((queue["dev"].as_str()?.to_owned(), queue["drops"].as_u64()?)))
        .collect())
}

/// A host's counters of fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragments {
    /// Received fragments kept for reassembly.
    pub received: u64,
    /// Reassembled datagrams.
    pub whole: u64,
}

impl Fragments {
    /// Since an earlier moment.
    pub fn since(self, before: Fragments) -> Fragments {
        Fragments {
            received: self.received.saturating_sub(before.received),
            whole: self.whole.saturating_sub(before.whole),
        }
    }
}

/// By host.
pub(crate) fn fragments(plan: &Plan) -> Result<BTreeMap<String, Fragments>> {
    let of = |host: &Host| {
        let stack = host.stack()?;
        let fragments = Fragments {
            received: stack.fragments,
            whole: stack.whole,
        };
        Ok((host.name.clone(), fragments))
    };
    plan.hosts.values().map(of).collect()
}

/// Ticks a second in `/proc` (`USER_HZ`): 100 on all architectures but Alpha and Itanium.
const USER_HZ: f64 = 100.0;

/// Seconds of CPU that a process has used; none if it has ended.
pub(crate) fn cpu(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name in parentheses: the state, and as fields 14 and 15 of all the time in user and
    // in system mode (proc_pid_stat(5)).
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / USER_HZ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_devices_counters_are_read_from_its_line() {
        let (name, counters) = device("  eth0: 100 2 0 3 0 0 0 0 400 5 0 6 0 0 0 0").unwrap();
        assert_eq!(name, "eth0");
        let expected = Counters {
            rx_packets: 2,
            rx_bytes: 100,
            rx_dropped: 3,
            tx_packets: 5,
            tx_bytes: 400,
            tx_dropped: 6,
        };
        assert_eq!(counters, expected);
        assert!(device(" face |bytes    packets errs").is_none());
    }
}
