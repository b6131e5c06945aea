//! Counters that a worker writes and anyone reads.
//!
//! Each counter has one writer, its worker, so that adding is a load and a store, never a locked
//! instruction; readers sum over workers. A reader may see one counter of a batch before another.

use dp::{CacheStats, DropCause, PortCounters};
use netdev::TxReport;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter with one writer.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters of one worker for one port.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct PortStats {
    pub(crate) rx_packets: Counter,
    pub(crate) rx_bytes: Counter,
    pub(crate) rx_dropped: Counter,
    pub(crate) rx_errors: Counter,
    pub(crate) tx_packets: Counter,
    pub(crate) tx_bytes: Counter,
    pub(crate) tx_dropped: Counter,
    pub(crate) tx_errors: Counter,
    drops: DropCounters,
}

impl PortStats {
    /// Adds these counters to a sum.
    pub(crate) fn add_to(&self, sum: &mut PortCounters) {
        sum.rx_packets += self.rx_packets.get();
        sum.rx_bytes += self.rx_bytes.get();
        sum.rx_dropped += self.rx_dropped.get();
        sum.rx_errors += self.rx_errors.get();
        sum.tx_packets += self.tx_packets.get();
        sum.tx_bytes += self.tx_bytes.get();
        sum.tx_dropped += self.tx_dropped.get();
        sum.tx_errors += self.tx_errors.get();
        for (sum, drops) in sum.drops.iter_mut().zip(&self.drops.0) {
            *sum += drops.get();
        }
    }

    /// Counts a device's report of sent frames.
    #[inline]
    pub(crate) fn count_sent(&self, report: &TxReport, drops: DropSink<'_>) {
        self.tx_packets.add(report.packets);
        self.tx_bytes.add(report.bytes);
        let dropped = report.dropped + report.too_big + report.down;
        if dropped + report.errors > 0 {
            self.tx_dropped.add(dropped);
            self.tx_errors.add(report.errors);
            drops.count(DropCause::DeviceFull, report.dropped);
            drops.count(DropCause::DeviceError, report.errors - report.refused);
            drops.count(DropCause::TooBig, report.too_big);
            drops.count(DropCause::PortDown, report.down);
            drops.count(DropCause::HostPolicy, report.refused);
        }
    }
}

/// Dropped packets by cause.
struct DropCounters([Counter; DropCause::ALL.len()]);

impl Default for DropCounters {
    fn default() -> DropCounters {
        DropCounters(std::array::from_fn(|_| Counter::default()))
    }
}

/// Drops that the control plane was the cause of, by its own threads.
pub(crate) struct ControlDrops([AtomicU64; DropCause::ALL.len()]);

impl Default for ControlDrops {
    fn default() -> ControlDrops {
        ControlDrops(std::array::from_fn(|_| AtomicU64::default()))
    }
}

impl ControlDrops {
    pub(crate) fn add(&self, cause: DropCause, packets: u64) {
        self.0[cause as usize].fetch_add(packets, Relaxed);
    }

    pub(crate) fn get(&self, cause: DropCause) -> u64 {
        self.0[cause as usize].load(Relaxed)
    }
}

/// Counters for a packet's drop: the worker's, and those of the ingress port or of the port that it
/// could not leave by.
#[derive(Clone, Copy)]
pub(crate) struct DropSink<'a> {
    pub(crate) worker: &'a WorkerStats,
    /// `None` for a packet of the control plane's.
    pub(crate) port: Option<&'a PortStats>,
}

impl DropSink<'_> {
    /// Counts packets dropped for a cause.
    #[inline]
    pub(crate) fn count(&self, cause: DropCause, packets: u64) {
        self.worker.drops.0[cause as usize].add(packets);
        if let Some(port) = self.port {
            port.drops.0[cause as usize].add(packets);
        }
    }
}

/// Counters of one worker's caches and drops.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct WorkerStats {
    pub(crate) flows: Counter,
    /// Most megaflows that it caches now, and the milliseconds that it last took to look at all.
    pub(crate) limit: Counter,
    pub(crate) pass: Counter,
    pub(crate) masks: Counter,
    pub(crate) exact_hits: Counter,
    pub(crate) megaflow_hits: Counter,
    pub(crate) upcalls: Counter,
    pub(crate) lost: Counter,
    /// Subtables searched for the keys that matched a megaflow.
    pub(crate) subtables: Counter,
    /// Packets that an action recirculated.
    pub(crate) recirculations: Counter,
    /// Packets that devices took, and in how many batches.
    pub(crate) tx_packets: Counter,
    pub(crate) tx_batches: Counter,
    /// Offloaded flows opened, resumed, refused and closed, in the order of [`OFFLOAD_EVENTS`].
    pub(crate) offloaded: [Counter; OFFLOAD_EVENTS.len()],
    drops: DropCounters,
}

/// The names of [`WorkerStats::offloaded`]: opened; resumed after a change; not opened,
/// because the port has its share and few are left; not opened, because none is left; closed to
/// leave some to other ports.
pub(crate) const OFFLOAD_EVENTS: [&str; 5] = [
    "offload_opened",
    "offload_resumed",
    "offload_over_share",
    "offload_pool_empty",
    "offload_gave_way",
];

impl WorkerStats {
    /// Counts a dropped packet.
    pub(crate) fn count_drop(&self, cause: DropCause) {
        self.drops.0[cause as usize].add(1);
    }

    /// Packets dropped for a cause.
    pub(crate) fn dropped(&self, cause: DropCause) -> u64 {
        self.drops.0[cause as usize].get()
    }

    /// Adds these counters to a sum.
    pub(crate) fn add_to(&self, sum: &mut CacheStats) {
        sum.flows += self.flows.get();
        sum.masks += self.masks.get();
        sum.exact_hits += self.exact_hits.get();
        sum.megaflow_hits += self.megaflow_hits.get();
        sum.upcalls += self.upcalls.get();
        sum.lost += self.lost.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_counter() {
        let (worker, port) = (WorkerStats::default(), PortStats::default());
        let sink = DropSink {
            worker: &worker,
            port: Some(&port),
        };
        for (n, cause) in DropCause::ALL.into_iter().enumerate() {
            sink.count(cause, n as u64 + 1);
        }
        let mut counters = PortCounters::default();
        port.add_to(&mut counters);
        for (n, cause) in DropCause::ALL.into_iter().enumerate() {
            assert_eq!(worker.dropped(cause), n as u64 + 1);
            assert_eq!(counters.drops[n], n as u64 + 1);
        }
    }
}
