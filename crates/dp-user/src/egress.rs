//! Stages seven and eight of the pipeline: frames wait at their port until the end of the batch,
//! then go out together.
//!
//! Every worker has its own transmit handle for every port. The control plane opens it, and retries
//! if that fails. Order within a port is the order of [`Egress::queue`]. A port with a scheduler
//! has a [`PortQueue`] instead, which all workers share. A port without one sends directly; only
//! while its device has no room for all frames of a worker, that worker has a queue of its own
//! before it.

use crate::poll::Poller;
use crate::scheduled::{PortQueue, Visit, Visitor};
use crate::stats::{DropSink, PortStats, WorkerStats};
use dp::{DropCause, PortCounters};
use flow::PortNo;
use hashbrown::HashMap;
use nanos::Nanos;
use netdev::{Frame, Netdev, Tx};
use std::sync::Arc;
use std::time::Duration;

/// Time between two requests to open a device for sending, after an attempt failed.
const REOPEN: Duration = Duration::from_secs(1);

/// The place of no port.
pub(crate) const NO_PLACE: u32 = u32::MAX;

/// A time that never comes.
const NEVER: Nanos = Nanos(u64::MAX);

/// A worker's side of all ports that it can send on.
pub(crate) struct Egress {
    ports: HashMap<PortNo, u32>,
    places: Vec<Option<TxPort>>,
    /// Advances when ports get other places.
    layout: u64,
    /// Places with frames waiting.
    waiting: Vec<u32>,
    /// Places with a scheduler.
    scheduled: Vec<u32>,
    /// Time of the next visit to one of them; may be too early, never too late.
    due: Nanos,
    /// Places whose device has no room.
    full: Vec<u32>,
    /// Places without a transmit handle.
    closed: Vec<u32>,
}

/// A worker's side of a port that it can send on.
pub(crate) struct TxPort {
    port: PortNo,
    /// The device's speed in bit/s, if it is known.
    speed: Option<u64>,
    device: Arc<dyn Netdev>,
    stats: Arc<PortStats>,
    tx: Option<Box<dyn Tx>>,
    reopen: Nanos,
    frames: Vec<Frame>,
    scheduled: Option<Scheduled>,
    /// Its link is down.
    down: bool,
    /// The queue of its own that it had when the device last had no room.
    spare: Option<Arc<PortQueue>>,
}

/// The worker's part in a port with a queue.
struct Scheduled {
    queue: Arc<PortQueue>,
    visitor: u32,
    wake: Option<Nanos>,
    /// The queue is this worker's alone, for as long as the device has no room.
    own: bool,
}

impl Default for Egress {
    fn default() -> Egress {
        Egress {
            ports: HashMap::new(),
            places: Vec::new(),
            layout: 0,
            waiting: Vec::new(),
            scheduled: Vec::new(),
            due: NEVER,
            full: Vec::new(),
            closed: Vec::new(),
        }
    }
}

impl Egress {
    /// Adds a port; `speed` is its device's in bit/s, if it is known.
    pub(crate) fn add(
        &mut self,
        port: PortNo,
        device: Arc<dyn Netdev>,
        speed: Option<u64>,
        tx: Option<Box<dyn Tx>>,
        stats: Arc<PortStats>,
    ) {
        let tx_port = Some(TxPort {
            port,
            speed,
            device,
            stats,
            tx,
            reopen: Nanos::ZERO,
            frames: Vec::new(),
            scheduled: None,
            down: false,
            spare: None,
        });
        let place = match self.places.iter().position(Option::is_none) {
            Some(place) => {
                self.places[place] = tx_port;
                place
            }
            None => {
                self.places.push(tx_port);
                self.places.len() - 1
            }
        };
        self.ports.insert(port, place as u32);
        self.layout += 1;
    }

    /// The transmit counters of a port.
    pub(crate) fn counters(&self, port: PortNo) -> Option<PortCounters> {
        let mut sum = PortCounters::default();
        self.tx_port(port)?.stats.add_to(&mut sum);
        Some(sum)
    }

    /// Gives up a port, and its device, for the caller to drop.
    pub(crate) fn remove(&mut self, port: PortNo, worker: &WorkerStats) -> Option<TxPort> {
        let place = self.ports.remove(&port)?;
        self.layout += 1;
        let tx_port = self.places[place as usize].take()?;
        self.scheduled.retain(|scheduled| *scheduled != place);
        let own = tx_port.scheduled.as_ref().filter(|queue| queue.own);
        let lost = tx_port.frames.len() as u64 + own.map_or(0, |own| own.queue.clear());
        DropSink { worker, port: None }.count(DropCause::QueueRemoved, lost);
        Some(tx_port)
    }

    /// A port without a transmit handle, and its device.
    #[inline]
    pub(crate) fn take_closed(&mut self) -> Option<(PortNo, Arc<dyn Netdev>)> {
        while let Some(place) = self.closed.pop() {
            if let Some(Some(tx_port)) = self.places.get(place as usize) {
                return Some((tx_port.port, tx_port.device.clone()));
            }
        }
        None
    }

    /// Sets a port's transmit handle, which belongs to `device`. Returns the previous handle, or
    /// this one if the port does not exist or has another device.
    pub(crate) fn opened(&mut self, port: PortNo, device: &Arc<dyn Netdev>, tx: Box<dyn Tx>) -> Option<Box<dyn Tx>> {
        let place = self.ports.get(&port).copied();
        let Some(Some(tx_port)) = place.and_then(|place| self.places.get_mut(place as usize)) else {
            return Some(tx);
        };
        if !Arc::ptr_eq(&tx_port.device, device) {
            return Some(tx);
        }
        match &tx_port.scheduled {
            Some(scheduled) => scheduled.queue.lend(Some(tx)),
            None => tx_port.tx.replace(tx),
        }
    }

    /// Sets the speed of a port's link, in bit/s if it is known.
    pub(crate) fn set_speed(&mut self, port: PortNo, speed: Option<u64>) {
        let place = self.ports.get(&port).copied();
        let Some(Some(tx_port)) = place.and_then(|place| self.places.get_mut(place as usize)) else {
            return;
        };
        tx_port.speed = speed;
        let scheduled = tx_port.scheduled.as_ref().map(|scheduled| &scheduled.queue);
        for queue in scheduled.into_iter().chain(&tx_port.spare) {
            queue.set_speed(speed);
        }
    }

    /// Takes note of whether a port's link is up. What waits for a link that goes down is dropped,
    /// and so is what came while it was down: its flows go on elsewhere, and it would arrive behind
    /// what is younger.
    pub(crate) fn set_link(&mut self, port: PortNo, up: bool, worker: &WorkerStats) {
        let place = self.ports.get(&port).copied();
        let Some(Some(tx_port)) = place.and_then(|place| self.places.get_mut(place as usize)) else {
            return;
        };
        let was_down = std::mem::replace(&mut tx_port.down, !up);
        if was_down || !up {
            let lost = tx_port
                .scheduled
                .as_ref()
                .map_or(0, |scheduled| scheduled.queue.clear());
            let port = Some(&*tx_port.stats);
            DropSink { worker, port }.count(DropCause::PortDown, lost);
        }
    }

    /// The device of a port.
    pub(crate) fn device(&self, port: PortNo) -> Option<Arc<dyn Netdev>> {
        Some(self.tx_port(port)?.device.clone())
    }

    /// The queue of a port that has one for all workers.
    pub(crate) fn port_queue(&self, port: PortNo) -> Option<Arc<PortQueue>> {
        let scheduled = self.tx_port(port)?.scheduled.as_ref();
        Some(scheduled.filter(|scheduled| !scheduled.own)?.queue.clone())
    }

    /// Whether frames for a port go straight to its device.
    pub(crate) fn is_direct(&self, port: PortNo) -> bool {
        self.tx_port(port).is_some_and(|tx_port| tx_port.scheduled.is_none())
    }

    fn tx_port(&self, port: PortNo) -> Option<&TxPort> {
        self.places[*self.ports.get(&port)? as usize].as_ref()
    }

    /// Lets a port's frames go through a queue from now on, until that is over; visits it at once,
    /// since its configuration may be another.
    pub(crate) fn schedule(&mut self, port: PortNo, queue: Arc<PortQueue>, worker: &WorkerStats, now: Nanos) {
        let Some(&place) = self.ports.get(&port) else {
            return;
        };
        let Some(tx_port) = &mut self.places[place as usize] else {
            return;
        };
        if let Some(own) = tx_port.scheduled.take_if(|scheduled| scheduled.own) {
            // Frames queued here go first into the other queue, with this visit.
            own.queue.take_out(&mut tx_port.frames);
            tx_port.tx = own.queue.lend(None);
            self.scheduled.retain(|scheduled| *scheduled != place);
        }
        if tx_port.scheduled.is_none() {
            self.scheduled.push(place);
            tx_port.spare = None;
            tx_port.scheduled = Some(Scheduled {
                visitor: queue.join(),
                queue,
                wake: None,
                own: false,
            });
        }
        self.visit(place, false, worker, now);
    }

    /// Queues a frame for [`Egress::flush`]; gives it back if the port does not exist.
    #[inline]
    pub(crate) fn queue(&mut self, port: PortNo, frame: Frame) -> Result<(), Frame> {
        let Some(&place) = self.ports.get(&port) else {
            return Err(frame);
        };
        let Some(tx_port) = &mut self.places[place as usize] else {
            return Err(frame);
        };
        if tx_port.frames.is_empty() {
            self.waiting.push(place);
        }
        tx_port.frames.push(frame);
        Ok(())
    }

    /// Changes when ports get other places.
    pub(crate) fn layout(&self) -> u64 {
        self.layout
    }

    /// The place of a port, for [`Egress::queue_at`].
    pub(crate) fn place(&self, port: PortNo) -> Option<u32> {
        self.ports.get(&port).copied()
    }

    /// The queue of a place of this layout, for the caller to push frames that [`Egress::flush`]
    /// sends; `None` if there is no port.
    #[inline(always)]
    pub(crate) fn queue_at(&mut self, place: u32) -> Option<&mut Vec<Frame>> {
        let tx_port = self.places.get_mut(place as usize)?.as_mut()?;
        if tx_port.frames.is_empty() {
            self.waiting.push(place);
        }
        Some(&mut tx_port.frames)
    }

    /// Queues all `frames` for [`Egress::flush`]; drops them if the port does not exist.
    #[inline]
    pub(crate) fn queue_all(&mut self, port: PortNo, frames: &mut Vec<Frame>, drops: DropSink<'_>) {
        let place = self.ports.get(&port).copied();
        let Some((place, tx_port)) = place.and_then(|n| Some((n, self.places[n as usize].as_mut()?))) else {
            drops.count(DropCause::PortDown, frames.len() as u64);
            frames.clear();
            return;
        };
        if tx_port.frames.is_empty() {
            self.waiting.push(place);
            // Both vectors have room for a batch and stay in use: the swap moves no frame and
            // allocates nothing.
            std::mem::swap(&mut tx_port.frames, frames);
        } else {
            tx_port.frames.append(frames);
        }
    }

    /// Sends what waits, or hands it to the schedulers.
    pub(crate) fn flush(&mut self, worker: &WorkerStats, now: Nanos) {
        while let Some(place) = self.waiting.pop() {
            match &mut self.places[place as usize] {
                Some(tx_port) if tx_port.scheduled.is_none() => {
                    if !tx_port.flush(worker, now) {
                        self.closed.push(place);
                    }
                    let Some(tx_port) = &self.places[place as usize] else {
                        continue;
                    };
                    if !tx_port.frames.is_empty() {
                        self.overflow(place, worker, now);
                    }
                }
                Some(_) => self.visit(place, false, worker, now),
                None => {}
            }
        }
    }

    /// Sends a frame ahead of those that wait; drops it if the port does not exist.
    pub(crate) fn send_ahead(&mut self, port: PortNo, frame: Frame, worker: &WorkerStats, now: Nanos) {
        let place = self.ports.get(&port).copied();
        let Some((place, tx_port)) = place.and_then(|n| Some((n, self.places[n as usize].as_mut()?))) else {
            return DropSink { worker, port: None }.count(DropCause::PortDown, 1);
        };
        match &tx_port.scheduled {
            Some(scheduled) => {
                let visitor = Visitor {
                    number: scheduled.visitor,
                    stats: &tx_port.stats,
                    drops: DropSink {
                        worker,
                        port: Some(&tx_port.stats),
                    },
                };
                scheduled.queue.put_ahead(frame, &visitor);
                self.visit(place, false, worker, now);
            }
            None => {
                if tx_port.frames.is_empty() {
                    self.waiting.push(place);
                }
                tx_port.frames.insert(0, frame);
                self.flush(worker, now);
            }
        }
    }

    /// Lets the frames that a device had no room for wait until it has.
    #[cold]
    fn overflow(&mut self, place: u32, worker: &WorkerStats, now: Nanos) {
        if let Some(Some(tx_port)) = self.places.get_mut(place as usize)
            && tx_port.overflow(worker)
        {
            self.scheduled.push(place);
            self.visit(place, false, worker, now);
        }
    }

    /// The time of the next visit that a scheduler needs; may be too early, never too late.
    #[inline]
    pub(crate) fn due(&self) -> Option<Nanos> {
        (self.due != NEVER).then_some(self.due)
    }

    /// Visits the schedulers whose time has come.
    pub(crate) fn pace(&mut self, worker: &WorkerStats, now: Nanos) {
        if now < self.due {
            return;
        }
        for at in (0..self.scheduled.len()).rev() {
            let place = self.scheduled[at];
            if self.wake(place).is_some_and(|wake| wake <= now) {
                self.visit(place, false, worker, now);
            }
        }
        let wakes = self.scheduled.iter().filter_map(|place| self.wake(*place));
        self.due = wakes.min().unwrap_or(NEVER);
    }

    /// A device that had no room has some: the number is one of [`Egress::watch`].
    #[cold]
    pub(crate) fn resume(&mut self, place: u32, worker: &WorkerStats, now: Nanos) {
        self.visit(place, true, worker, now);
    }

    /// Lets devices that have no room wake this worker when they do, with the number of their place
    /// and `flag`.
    #[inline]
    pub(crate) fn watch(&mut self, poller: &Poller, flag: u64) {
        while let Some(place) = self.full.pop() {
            if let Some(Some(TxPort {
                scheduled: Some(scheduled),
                ..
            })) = self.places.get(place as usize)
            {
                // A device that cannot be watched is asked again after a while.
                scheduled
                    .queue
                    .with_room(|fd| drop(poller.once_writable(fd, flag | u64::from(place))));
            }
        }
    }

    fn wake(&self, place: u32) -> Option<Nanos> {
        self.places[place as usize].as_ref()?.scheduled.as_ref()?.wake
    }

    fn visit(&mut self, place: u32, has_room: bool, worker: &WorkerStats, now: Nanos) {
        let Some(Some(tx_port)) = self.places.get_mut(place as usize) else {
            return;
        };
        let Some(scheduled) = &mut tx_port.scheduled else {
            return;
        };
        let visitor = Visitor {
            number: scheduled.visitor,
            stats: &tx_port.stats,
            drops: DropSink {
                worker,
                port: Some(&tx_port.stats),
            },
        };
        let Visit {
            wake,
            watch,
            closed,
            over,
        } = if has_room {
            scheduled.queue.resume(&visitor, now)
        } else {
            scheduled.queue.visit(&mut tx_port.frames, &visitor, now)
        };
        scheduled.wake = wake;
        if let Some(wake) = wake {
            self.due = self.due.min(wake);
        }
        if watch {
            self.full.push(place);
        }
        if closed {
            self.closed.push(place);
        }
        if over {
            if let Some(Scheduled { queue, own: true, .. }) = tx_port.scheduled.take() {
                tx_port.tx = queue.lend(None);
                tx_port.spare = Some(queue);
            }
            self.scheduled.retain(|scheduled| *scheduled != place);
        }
    }
}

impl TxPort {
    /// Sends directly. Frames that the device has no room for stay. Returns `false` if there is no
    /// transmit handle, and it is time to ask for one.
    fn flush(&mut self, worker: &WorkerStats, now: Nanos) -> bool {
        let drops = DropSink {
            worker,
            port: Some(&self.stats),
        };
        let Some(tx) = &mut self.tx else {
            let lost = self.frames.len() as u64;
            self.frames.clear();
            self.stats.tx_dropped.add(lost);
            drops.count(DropCause::PortDown, lost);
            let ask = self.reopen <= now;
            if ask {
                self.reopen = now + REOPEN;
            }
            return !ask;
        };
        let report = tx.offer(&mut self.frames);
        worker.tx_packets.add(report.packets);
        worker.tx_batches.add(1);
        self.stats.count_sent(&report, drops);
        true
    }

    /// Puts a queue of the worker's own before the device; without one, which cannot be, the frames
    /// are lost.
    fn overflow(&mut self, worker: &WorkerStats) -> bool {
        let queue = match self.spare.take() {
            Some(queue) => Ok(queue),
            None => PortQueue::own(self.speed).map(Arc::new),
        };
        let Ok(queue) = queue else {
            let port = Some(&*self.stats);
            DropSink { worker, port }.count(DropCause::DeviceFull, self.frames.len() as u64);
            self.frames.clear();
            return false;
        };
        queue.lend(self.tx.take());
        self.scheduled = Some(Scheduled {
            visitor: queue.join(),
            queue,
            wake: None,
            own: true,
        });
        true
    }
}
