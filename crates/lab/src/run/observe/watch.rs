//! What a switch tells of its traffic, against what a host sends: a mirror, sFlow, IPFIX, NetFlow.
//!
//! The collector counts UDP only. A host's TCP stack hands its device segments of many packets, so
//! that its counters do not say how many packets the switch sees; for a mirror bytes are compared,
//! of all traffic.

mod datagrams;

use super::{Observer, Seen};
use crate::bed::namespace;
use crate::controller::Measured;
use crate::run::stage::Table;
use crate::scenario::Watcher;
use anyhow::{Context, Result};
use datagrams::Tally;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The last datagrams of an exporter come within this time after its flows have ended.
const LAST: Duration = Duration::from_millis(1500);

/// What is observed, and the sender's counters before.
pub(super) struct Watch {
    what: Watcher,
    bridge: String,
    /// The host whose traffic is watched, and the one behind a mirror's output.
    host: String,
    to: String,
    before: Sent,
    watched_before: u64,
    collector: Option<Collector>,
    /// Counters at the end.
    after: Option<(Sent, u64)>,
}

/// A host's counters.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// UDP datagrams.
    datagrams: u64,
    /// Bytes of all frames.
    bytes: u64,
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
        Ok(Watch {
            what: asked.by,
            bridge: asked.bridge.to_owned(),
            host: asked.from.to_owned(),
            to: asked.to.to_owned(),
            before: sent(table, asked.from)?,
            watched_before: received(table, asked.to)?,
            collector,
            after: None,
        })
    }
}

impl Observer for Watch {
    fn after(&mut self, table: &mut Table) -> Result<()> {
        self.after = Some((sent(table, &self.host)?, received(table, &self.to)?));
        if self.collector.is_some() {
            // NetFlow tells of flows when they end.
            table.running.end_flows()?;
            std::thread::sleep(LAST);
        }
        let ends = (self.host.as_str(), self.to.as_str());
        table.running.watch(&self.bridge, Watcher::None, 1, ends, None)
    }

    fn end(mut self: Box<Self>, _: &Seen<'_>) -> Result<Measured> {
        let mut measured = Measured::default();
        let (sent, received) = self.after.context("the traffic has not ended")?;
        let datagrams = sent.datagrams.saturating_sub(self.before.datagrams) as f64;
        let mut add = |name: &str, value: f64| measured.metrics.insert(name.to_owned(), value);
        let tally = match self.collector.take() {
            Some(collector) => collector.finish(),
            None => Tally::default(),
        };
        match self.what {
            Watcher::None => {}
            Watcher::Mirror => {
                let bytes = sent.bytes.saturating_sub(self.before.bytes) as f64;
                let copied = received.saturating_sub(self.watched_before) as f64;
                if bytes > 0.0 {
                    add("missed", (1.0 - copied / bytes).max(0.0));
                }
            }
            Watcher::Sflow | Watcher::Ipfix if datagrams > 0.0 => {
                add("error", (tally.packets as f64 / datagrams - 1.0).abs());
                // The relative error that 95 % of estimates stay within (sFlow version 5).
                add("bound", 1.96 / (tally.samples.max(1) as f64).sqrt());
                add("lost", tally.dropped as f64);
            }
            Watcher::Netflow if datagrams > 0.0 => {
                add("error", (tally.packets as f64 / datagrams - 1.0).abs());
                add("frame", tally.bytes as f64 / tally.packets.max(1) as f64);
            }
            Watcher::Sflow | Watcher::Ipfix | Watcher::Netflow => {}
        }
        Ok(measured)
    }
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

fn sent(table: &Table, host: &str) -> Result<Sent> {
    let (snmp, devices) = table.ground.bed.host(host)?.enter(|| {
        let read = |file: &str| std::fs::read_to_string(file).with_context(|| file.to_owned());
        Ok((read("/proc/thread-self/net/snmp")?, read("/proc/thread-self/net/dev")?))
    })?;
    Ok(Sent {
        datagrams: udp_sent(&snmp).context("the host's counters of UDP")?,
        bytes: column(&devices, 8).context("the host's counters of its device")?,
    })
}

fn received(table: &Table, host: &str) -> Result<u64> {
    let devices = table
        .ground
        .bed
        .host(host)?
        .enter(|| Ok(std::fs::read_to_string("/proc/thread-self/net/dev")?))?;
    column(&devices, 0).context("the host's counters of its device")
}

/// `OutDatagrams` of UDP.
fn udp_sent(snmp: &str) -> Option<u64> {
    let mut rows = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let at = rows
        .next()?
        .split_whitespace()
        .position(|name| name == "OutDatagrams")?;
    rows.next()?.split_whitespace().nth(at)?.parse().ok()
}

/// A counter of the host's device: received bytes are 0, sent bytes 8.
fn column(devices: &str, at: usize) -> Option<u64> {
    let prefix = format!("{}:", crate::bed::DEVICE);
    let row = devices
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(&prefix))?;
    row.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let snmp =
            "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts OutDatagrams\nUdp: 7 0 42\nUdpLite: X\nUdpLite: 0\n";
        assert_eq!(udp_sent(snmp), Some(42));
        let devices =
            "Inter-| Receive\n face |bytes\n  eth0: 100 1 0 0 0 0 0 0 2000 2 0 0 0 0 0 0\n    lo: 5 1 0 0 0 0 0 0 6";
        assert_eq!((column(devices, 0), column(devices, 8)), (Some(100), Some(2000)));
    }
}
