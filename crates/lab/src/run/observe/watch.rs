//! What a switch tells of its traffic, against what it has received: a mirror, sFlow, IPFIX,
//! NetFlow.
//!
//! The truth is what the switch has received, by the counters of its rules: what is lost before it
//! no mirror can show. Estimates are compared by UDP datagrams, because a host's TCP stack hands
//! its device segments of many packets, which switches count in different ways; a mirror is
//! compared by the bytes of all frames.

mod datagrams;

use super::{Observer, Seen};
use crate::bed::namespace;
use crate::controller::Measured;
use crate::run::stage::Table;
use crate::scenario::Watcher;
use crate::systems::Counted;
use anyhow::{Context, Result};
use datagrams::Tally;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The last datagrams of an exporter come within this time after its flows have ended.
const LAST: Duration = Duration::from_millis(1500);

/// What is observed, and the counters before.
pub(super) struct Watch {
    what: Watcher,
    one_in: u32,
    bridge: String,
    /// The host whose traffic is watched, and the one behind a mirror's output.
    host: String,
    to: String,
    /// Bytes that the second host had received, and the samples that the switch had dropped.
    before: (u64, Option<u64>),
    collector: Option<Collector>,
    after: Option<After>,
}

/// The counters after the traffic.
struct After {
    /// What the bridge has received from the first host.
    truth: Counted,
    /// Bytes that the second host has received since.
    copied: u64,
    /// Samples that the switch has dropped since, if it counts them.
    lost: Option<u64>,
}

/// A socket in the switch's namespace, and the thread that reads it.
struct Collector {
    address: SocketAddr,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<Tally>>,
}

/// What a cell asks for.
pub(super) struct Asked<'a> {
    pub(super) by: Watcher,
    pub(super) one_in: u32,
    pub(super) bridge: &'a str,
    pub(super) from: &'a str,
    pub(super) to: &'a str,
}

impl Watch {
    pub(super) fn begin(table: &mut Table, asked: &Asked<'_>) -> Result<Watch> {
        let collector = match asked.by {
            Watcher::None | Watcher::Mirror => None,
            Watcher::Sflow | Watcher::Ipfix | Watcher::Netflow => Some(Collector::start(table.ground.bed.namespace())?),
        };
        let address = collector.as_ref().map(|collector| collector.address);
        table
            .running
            .watch(asked.bridge, asked.by, asked.one_in, (asked.from, asked.to), address)?;
        table.running.count(asked.bridge, asked.from)?;
        Ok(Watch {
            what: asked.by,
            one_in: asked.one_in,
            bridge: asked.bridge.to_owned(),
            host: asked.from.to_owned(),
            to: asked.to.to_owned(),
            before: (received(table, asked.to)?, table.running.lost_samples()?),
            collector,
            after: None,
        })
    }
}

impl Observer for Watch {
    fn after(&mut self, table: &mut Table) -> Result<()> {
        // NetFlow tells of flows when they end, and rules count their packets then at the latest.
        table.running.end_flows()?;
        if self.collector.is_some() {
            std::thread::sleep(LAST);
        }
        let (received_before, lost_before) = self.before;
        let lost = table.running.lost_samples()?;
        self.after = Some(After {
            truth: table.running.counted(&self.bridge, &self.host)?,
            copied: received(table, &self.to)?.saturating_sub(received_before),
            lost: lost.map(|lost| lost.saturating_sub(lost_before.unwrap_or_default())),
        });
        let ends = (self.host.as_str(), self.to.as_str());
        table.running.watch(&self.bridge, Watcher::None, 1, ends, None)
    }

    fn end(mut self: Box<Self>, _: &Seen<'_>) -> Result<Measured> {
        let after = self.after.context("the traffic has not ended")?;
        let tally = match self.collector.take() {
            Some(collector) => collector.finish(),
            None => Tally::default(),
        };
        Ok(compared(self.what, self.one_in, &after, &tally))
    }
}

/// What was told against what the bridge received: metrics by their names.
fn compared(what: Watcher, one_in: u32, after: &After, tally: &Tally) -> Measured {
    let After { truth, copied, lost } = *after;
    let mut measured = Measured::default();
    let mut add = |name: &str, value: f64| measured.metrics.insert(name.to_owned(), value);
    let datagrams = truth.datagrams as f64;
    let error = (tally.packets as f64 / datagrams - 1.0).abs();
    match what {
        Watcher::None => {}
        Watcher::Mirror => {
            if truth.bytes > 0 {
                add("missed", 1.0 - copied as f64 / truth.bytes as f64);
            }
        }
        Watcher::Sflow | Watcher::Ipfix | Watcher::Netflow if truth.datagrams == 0 => {}
        Watcher::Sflow | Watcher::Ipfix => {
            let bound = bound(datagrams, one_in);
            add("error", error);
            add("bound", bound);
            // sFlow tells the collector; of IPFIX only the switch knows.
            let lost = match what {
                Watcher::Sflow => Some(tally.dropped),
                _ => lost,
            };
            if let Some(lost) = lost {
                add("lost", lost as f64);
            }
            match bound > 0.0 {
                true => add("of_bound", error / bound),
                false => {
                    let missing = truth.datagrams.saturating_sub(tally.packets);
                    let unaccounted = missing.saturating_sub(lost.unwrap_or_default());
                    let invented = tally.packets.saturating_sub(truth.datagrams);
                    add("unaccounted", (unaccounted + invented) as f64 / datagrams)
                }
            };
        }
        Watcher::Netflow => {
            add("error", error);
            if tally.packets > 0 {
                add("frame", tally.bytes as f64 / tally.packets as f64);
            }
        }
    }
    measured
}

/// The relative error that 95 % of estimates stay within. Samples of `packets` packets, each with
/// the probability 1 / `one_in`, have a binomial distribution; scaled up, their relative standard
/// deviation is √((`one_in` − 1) / `packets`). Where few packets are sampled that is the bound of
/// sFlow's authors, 1.96 / √samples.
fn bound(packets: f64, one_in: u32) -> f64 {
    1.96 * (f64::from(one_in - 1) / packets).sqrt()
}

impl Collector {
    fn start(namespace: &str) -> Result<Collector> {
        let socket = namespace::enter(namespace, || {
            let socket = UdpSocket::bind("127.0.0.1:0").context("a collector's socket")?;
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
            // Samples of each packet come in bursts.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 16 << 20);
            Ok(socket)
        })?;
        let address = socket.local_addr()?;
        let end = Arc::new(AtomicBool::new(false));
        let stop = end.clone();
        let thread = std::thread::spawn(move || {
            let mut tally = Tally::default();
            let mut buffer = vec![0; 65_536];
            while !stop.load(Ordering::Acquire) {
                if let Ok(len) = socket.recv(&mut buffer) {
                    tally.read(&buffer[..len]);
                }
            }
            tally
        });
        Ok(Collector {
            address,
            end,
            thread: Some(thread),
        })
    }

    fn finish(mut self) -> Tally {
        self.end.store(true, Ordering::Release);
        let thread = self.thread.take();
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Release);
    }
}

fn received(table: &Table, host: &str) -> Result<u64> {
    let devices = table
        .ground
        .bed
        .host(host)?
        .enter(|| Ok(std::fs::read_to_string("/proc/thread-self/net/dev")?))?;
    received_bytes(&devices).context("the host's counters of its device")
}

/// The received bytes of the host's device.
fn received_bytes(devices: &str) -> Option<u64> {
    let prefix = format!("{}:", crate::bed::DEVICE);
    let row = devices
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(&prefix))?;
    row.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_a_device_is_found_by_its_name() {
        let devices =
            "Inter-| Receive\n face |bytes\n  eth0: 100 1 0 0 0 0 0 0 2000 2 0 0 0 0 0 0\n    lo: 5 1 0 0 0 0 0 0 6";
        assert_eq!(received_bytes(devices), Some(100));
        assert_eq!(received_bytes("Inter-| Receive\n    lo: 5 1"), None);
    }

    #[test]
    fn what_a_switch_tells_is_compared_with_what_it_received() {
        let after = |datagrams| After {
            truth: Counted {
                datagrams,
                bytes: 1_000_000,
            },
            copied: 990_000,
            lost: Some(5),
        };
        let mut tally = Tally::default();
        (tally.packets, tally.bytes, tally.dropped) = (9_900, 9_900 * 542, 3);
        let metric = |what, one_in, name: &str| {
            let measured = compared(what, one_in, &after(10_000), &tally);
            measured.metrics.get(name).copied()
        };
        let near = |found: Option<f64>, value: f64| (found.unwrap() - value).abs() < 1e-9;
        assert!(near(metric(Watcher::Mirror, 1, "missed"), 0.01));
        assert!(near(metric(Watcher::Sflow, 101, "error"), 0.01));
        assert!(near(metric(Watcher::Sflow, 101, "bound"), 0.196));
        assert!(near(metric(Watcher::Ipfix, 101, "of_bound"), 0.01 / 0.196));
        assert!(near(metric(Watcher::Sflow, 101, "lost"), 3.0));
        assert!(near(metric(Watcher::Ipfix, 101, "lost"), 5.0));
        // Each packet is sampled: there is no chance in it.
        assert!(near(metric(Watcher::Ipfix, 1, "bound"), 0.0));
        assert_eq!(metric(Watcher::Ipfix, 1, "of_bound"), None);
        // Of 100 missing datagrams the switch has counted three, or five, as lost samples.
        assert!(near(metric(Watcher::Sflow, 1, "unaccounted"), 0.0097));
        assert!(near(metric(Watcher::Ipfix, 1, "unaccounted"), 0.0095));
        assert_eq!(metric(Watcher::Sflow, 10, "unaccounted"), None);
        assert!(near(metric(Watcher::Netflow, 1, "frame"), 542.0));
        let invented = compared(Watcher::Sflow, 1, &after(9_000), &tally);
        assert!(near(invented.metrics.get("unaccounted").copied(), 0.1));
        let nothing = compared(Watcher::Netflow, 1, &after(0), &tally);
        assert!(nothing.metrics.is_empty());
    }
}
