//! Stages seven and eight of a packet's way: frames wait at their port until the batch is done, then go out together.
//!
//! Every worker has its own way to send on every port, opened when it first sends there. Order within a port is the order of
//! [`Egress::queue`].

use crate::stats::{DropSink, PortStats, WorkerStats};
use dp::DropCause;
use flow::PortNo;
use hashbrown::HashMap;
use netdev::{Frame, Netdev, Tx};
use std::sync::Arc;
use std::time::Duration;
use wire::Nanos;

/// How long a worker waits before it tries again to open a device that it could not open for sending.
const REOPEN: Duration = Duration::from_secs(1);

/// A worker's side of all ports that it can send on.
#[derive(Default)]
pub(crate) struct Egress {
    ports: HashMap<PortNo, u32>,
    places: Vec<Option<Outlet>>,
    /// Places with frames waiting.
    waiting: Vec<u32>,
}

struct Outlet {
    device: Arc<dyn Netdev>,
    stats: Arc<PortStats>,
    tx: Option<Box<dyn Tx>>,
    reopen: Nanos,
    frames: Vec<Frame>,
}

impl Egress {
    /// Makes a port available.
    pub(crate) fn add(&mut self, port: PortNo, device: Arc<dyn Netdev>, stats: Arc<PortStats>) {
        let outlet = Some(Outlet {
            device,
            stats,
            tx: None,
            reopen: Nanos::ZERO,
            frames: Vec::new(),
        });
        let place = match self.places.iter().position(Option::is_none) {
            Some(place) => {
                self.places[place] = outlet;
                place
            }
            None => {
                self.places.push(outlet);
                self.places.len() - 1
            }
        };
        self.ports.insert(port, place as u32);
    }

    /// Lets go of a port's device. Must not be called while frames wait.
    pub(crate) fn remove(&mut self, port: PortNo) {
        if let Some(place) = self.ports.remove(&port) {
            self.places[place as usize] = None;
        }
    }

    /// Lets a frame wait for [`Egress::flush`]; gives it back where there is no such port.
    #[inline]
    pub(crate) fn queue(&mut self, port: PortNo, frame: Frame) -> Result<(), Frame> {
        let Some(&place) = self.ports.get(&port) else {
            return Err(frame);
        };
        let Some(outlet) = &mut self.places[place as usize] else {
            return Err(frame);
        };
        if outlet.frames.is_empty() {
            self.waiting.push(place);
        }
        outlet.frames.push(frame);
        Ok(())
    }

    /// Lets all `frames` wait for [`Egress::flush`]; drops them where there is no such port.
    #[inline]
    pub(crate) fn queue_all(&mut self, port: PortNo, frames: &mut Vec<Frame>, drops: DropSink<'_>) {
        let place = self.ports.get(&port).copied();
        let Some((place, outlet)) = place.and_then(|n| Some((n, self.places[n as usize].as_mut()?))) else {
            drops.count(DropCause::PortDown, frames.len() as u64);
            frames.clear();
            return;
        };
        if outlet.frames.is_empty() {
            self.waiting.push(place);
            // Both vectors have room for a batch and stay in use: nothing is moved, nothing allocated.
            std::mem::swap(&mut outlet.frames, frames);
        } else {
            outlet.frames.append(frames);
        }
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self, worker: &WorkerStats, now: Nanos) {
        while let Some(place) = self.waiting.pop() {
            if let Some(outlet) = &mut self.places[place as usize] {
                outlet.flush(worker, now);
            }
        }
    }
}

impl Outlet {
    fn flush(&mut self, worker: &WorkerStats, now: Nanos) {
        if self.tx.is_none() && self.reopen <= now {
            match self.device.open_tx() {
                Ok(tx) => self.tx = Some(tx),
                Err(_) => self.reopen = now + REOPEN,
            }
        }
        let drops = DropSink {
            worker,
            port: Some(&self.stats),
        };
        let Some(tx) = &mut self.tx else {
            let lost = self.frames.len() as u64;
            self.frames.clear();
            self.stats.tx_dropped.add(lost);
            drops.count(DropCause::PortDown, lost);
            return;
        };
        let report = tx.send(&mut self.frames);
        self.frames.clear();
        self.stats.tx_packets.add(report.packets);
        self.stats.tx_bytes.add(report.bytes);
        let dropped = report.dropped + report.too_big + report.down;
        if dropped + report.errors > 0 {
            self.stats.tx_dropped.add(dropped);
            self.stats.tx_errors.add(report.errors);
            drops.count(DropCause::DeviceFull, report.dropped);
            drops.count(DropCause::DeviceError, report.errors);
            drops.count(DropCause::TooBig, report.too_big);
            drops.count(DropCause::PortDown, report.down);
        }
    }
}
