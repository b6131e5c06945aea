//! The queue of a port with a scheduler, between the workers and the device.
//!
//! A worker that has frames for the port enqueues them, dequeues those that may leave now, and
//! offers them to the device. Frames that the device has no room for stay at the head of the queue.
//! If frames stay, one of the workers has the *claim*: it comes back at the time that the scheduler
//! names, or when the device has room. While no frame waits and none has to, frames bypass the
//! queue: they are policed and counted.
//!
//! Invariants
//! - The lock is the port's alone, and its holder waits for nothing. One worker at a time sends,
//!   without the lock: others enqueue their frames meanwhile and leave, and the sender dequeues
//!   them before it leaves.
//! - While the queue is not empty there is a claim, and the worker of the claim knows its time: see
//!   [`Visit::wake`].
//! - Every frame that comes in is sent, or counted under a [`DropCause`].
//!
//! A port without a scheduler has such a queue for each worker, while its device has no room for
//! that worker's frames: the three bands of `pfifo_fast`, until they are empty again.

use crate::device_facts::DeviceFacts;
use crate::flow_look::FlowSecret;
use crate::queued::{Queued, cut, drop_cause};
use crate::stats::{DropSink, PortStats};
use dp::{DropCause, QosReport};
use nanos::Nanos;
use netdev::{Frame, Gso, Netdev, Tx, TxReport};
use parking_lot::Mutex;
use qos::{Cause, ConfigError, Discipline, FifoConfig, LeafConfig, PortConfig, Scheduler};
use send::{Device, send};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Delay of the claim's worker after which another worker takes over the claim.
const LATE: Duration = Duration::from_micros(200);

/// Frames of control protocols that wait for the device at most.
const AHEAD: usize = 64;

/// Packets of up to this many stay in the buffers that they came in; more would hold much more
/// memory than their bytes.
const LOOSE: u64 = 64;

/// See the module's page.
pub(crate) struct PortQueue {
    secret: FlowSecret,
    state: Mutex<State>,
}

struct State {
    scheduler: qos::Port<Queued>,
    device: Device,
    /// For the packets of a segment.
    scratch: Vec<Frame>,
    /// Time of the last visit: the next one is not earlier, even if its worker's clock is behind.
    latest: Nanos,
    claim: Option<(u32, Nanos)>,
    visitors: u32,
    /// The port has no scheduler, or not any more: the queue sends its frames, and then is not
    /// needed.
    released: bool,
    /// The queue of one worker, which lends its transmit handle.
    own: bool,
    /// Bytes that the device sends in a millisecond.
    device_rate: Option<u64>,
}

/// The worker that visits the queue.
pub(crate) struct Visitor<'a> {
    /// Of [`PortQueue::join`].
    pub(crate) number: u32,
    pub(crate) stats: &'a PortStats,
    pub(crate) drops: DropSink<'a>,
}

/// The result of a visit.
pub(crate) struct Visit {
    /// When the worker has to come back; `None` if it has no claim.
    pub(crate) wake: Option<Nanos>,
    /// The device has no room, and [`PortQueue::with_room`] gives the descriptor to wait for.
    pub(crate) watch: bool,
    /// There is no transmit handle, and it is time to ask for one: [`PortQueue::lend`].
    pub(crate) closed: bool,
    /// The port has no scheduler any more, and the queue is empty.
    pub(crate) over: bool,
}

impl PortQueue {
    /// For an open device. Queries its state and opens it for sending, both too slow for a worker.
    ///
    /// # Errors
    /// The discipline refuses its configuration.
    pub(crate) fn new(device: &dyn Netdev, config: &PortConfig) -> Result<PortQueue, ConfigError> {
        let queue = PortQueue::of_speed(DeviceFacts::of(device).speed, config)?;
        queue.lend(device.open_tx().ok());
        Ok(queue)
    }

    /// The same from the device's known properties, and without a transmit handle.
    fn of_speed(speed: Option<u64>, config: &PortConfig) -> Result<PortQueue, ConfigError> {
        Ok(PortQueue {
            secret: FlowSecret::default(),
            state: Mutex::new(State {
                scheduler: qos::Port::new(config)?,
                device: Device::new(),
                scratch: Vec::new(),
                latest: Nanos::ZERO,
                claim: None,
                visitors: 0,
                released: false,
                own: false,
                device_rate: speed.map(bytes_per_millisecond),
            }),
        })
    }

    /// A worker's own queue, for a port without a scheduler whose device has no room. `speed` is in
    /// bit/s, if it is known.
    ///
    /// # Errors
    /// None: the discipline exists.
    pub(crate) fn own(speed: Option<u64>) -> Result<PortQueue, ConfigError> {
        let bands = LeafConfig::PfifoFast(FifoConfig::default());
        let mut queue = PortQueue::of_speed(speed, &PortConfig::new(Discipline::Leaf(bands)))?;
        let state = queue.state.get_mut();
        (state.own, state.released) = (true, true);
        Ok(queue)
    }

    /// Sets the transmit handle, or takes it back.
    pub(crate) fn lend(&self, mut tx: Option<Box<dyn Tx>>) -> Option<Box<dyn Tx>> {
        let mut state = self.state.lock();
        if let Some(tx) = tx.as_mut().filter(|_| !state.own) {
            tx.limit(state.device.room.bytes());
        }
        std::mem::replace(&mut state.device.tx, tx)
    }

    /// Sets the speed of the device's link, in bit/s if it is known.
    pub(crate) fn set_speed(&self, speed: Option<u64>) {
        self.state.lock().device_rate = speed.map(bytes_per_millisecond);
    }

    /// Takes out all that is here, in an order that keeps each flow's.
    pub(crate) fn take_out(&self, frames: &mut Vec<Frame>) {
        let mut state = self.state.lock();
        frames.append(&mut state.device.ahead);
        frames.append(&mut state.device.held);
        state.scheduler.drain(&mut |queued| frames.push(queued.frame));
        state.claim = None;
    }

    /// Forgets who was to visit next: that one may have ended, and another comes.
    pub(crate) fn unclaim(&self) {
        self.state.lock().claim = None;
    }

    /// A number for a worker that is going to visit.
    pub(crate) fn join(&self) -> u32 {
        let mut state = self.state.lock();
        state.visitors += 1;
        state.visitors
    }

    /// Changes the configuration. Queued frames stay as far as there is room; the rest is reported
    /// as lost.
    ///
    /// # Errors
    /// The discipline refuses its configuration; nothing has changed then.
    pub(crate) fn reconfigure(
        &self,
        config: &PortConfig,
        now: Nanos,
        lost: &mut dyn FnMut(DropCause),
    ) -> Result<(), ConfigError> {
        let mut state = self.state.lock();
        let now = state.time(now);
        let done = state
            .scheduler
            .reconfigure(config, now, &mut |_, cause| lost(drop_cause(cause)));
        if done.is_ok() {
            state.released = false;
            // The next visitor checks which frames are due now.
            state.claim = None;
        }
        done
    }

    /// Lets all that is queued go as fast as the device takes it, and then end the visits.
    pub(crate) fn release(&self, now: Nanos) {
        if let Ok(limit) = FifoConfig::new(1_000_000) {
            let config = PortConfig::new(Discipline::Leaf(LeafConfig::Fifo(limit)));
            // Nothing is lost: no discipline holds more.
            let _ = self.reconfigure(&config, now, &mut |_| ());
        }
        self.state.lock().released = true;
    }

    /// Drops the queued frames, and returns their number.
    pub(crate) fn clear(&self) -> u64 {
        let mut state = self.state.lock();
        let mut lost = state.device.ahead.drain(..).count() as u64;
        lost += state.device.held.drain(..).count() as u64;
        state.scheduler.drain(&mut |_| lost += 1);
        state.claim = None;
        lost
    }

    /// The queues' counters.
    pub(crate) fn report(&self) -> QosReport {
        let state = self.state.lock();
        let mut report = QosReport {
            held_packets: state.device.held.len() as u64,
            held_bytes: state.device.held.iter().map(|frame| frame.len() as u64).sum(),
            ..QosReport::default()
        };
        state
            .scheduler
            .each_queue(&mut |number, stats| report.queues.push((number, stats.clone())));
        report
    }

    /// Puts a frame before all that is queued; the next visit sends it. If the device has taken
    /// none for long, the oldest of these frames is dropped.
    pub(crate) fn put_ahead(&self, frame: Frame, by: &Visitor<'_>) {
        let ahead = &mut self.state.lock().device.ahead;
        if ahead.len() == AHEAD {
            ahead.remove(0);
            by.stats.tx_dropped.add(1);
            by.drops.count(DropCause::DeviceFull, 1);
        }
        ahead.push(frame);
    }

    /// Puts frames in, and sends what may leave now.
    pub(crate) fn visit(&self, frames: &mut Vec<Frame>, by: &Visitor<'_>, now: Nanos) -> Visit {
        let mut state = self.state.lock();
        let now = state.time(now);
        let passed = state.pass(frames, by, now);
        for frame in frames.drain(..) {
            state.take_in(frame, &self.secret, by, now);
        }
        if state.device.sending {
            return state.leave_to_sender(by.number);
        }
        let watch = send(&mut state, by, now);
        if passed {
            // Frames that the device had no room for stay here longer.
            state.device.held.iter_mut().for_each(Frame::detach);
        }
        let now = state.time(Nanos(now.0));
        state.claim(by.number, watch, now)
    }

    /// The device has room again: sends what may leave now.
    pub(crate) fn resume(&self, by: &Visitor<'_>, now: Nanos) -> Visit {
        {
            let mut state = self.state.lock();
            state.device.full = state.device.full.map(|_| Nanos::ZERO);
        }
        self.visit(&mut Vec::new(), by, now)
    }

    /// Passes the descriptor that is writable when the device has room, if it has none now.
    pub(crate) fn with_room(&self, watch: impl FnOnce(BorrowedFd<'_>)) {
        let state = self.state.lock();
        if let (Some(_), Some(fd)) = (state.device.full, state.device.tx.as_ref().and_then(|tx| tx.room())) {
            watch(fd);
        }
    }
}

/// Converts bit/s to bytes per millisecond.
fn bytes_per_millisecond(speed: u64) -> u64 {
    speed / 8_000
}

impl State {
    /// The time, which goes on from visit to visit whichever worker's it is.
    fn time(&mut self, now: Nanos) -> qos::Nanos {
        self.latest = self.latest.max(now);
        qos::Nanos(self.latest.0)
    }

    /// Lets frames that need not wait go to the device as they came, without a place in the queue
    /// for each; `false` where some may have to.
    fn pass(&mut self, frames: &mut Vec<Frame>, by: &Visitor<'_>, now: qos::Nanos) -> bool {
        let segment = |frame: &Frame| frame.offload.gso != Gso::None;
        if self.device.sending
            || !self.device.held.is_empty()
            || !self.device.ahead.is_empty()
            || self.device.full.is_some()
            || !self.scheduler.is_open()
            || frames.iter().any(segment)
        {
            return false;
        }
        frames.retain(|frame| {
            let passes = self.scheduler.pass(frame.len() as u32, frame.meta.priority, now);
            passes.inspect_err(|cause| by.lost(*cause)).is_ok()
        });
        std::mem::swap(&mut self.device.held, frames);
        true
    }

    #[inline]
    fn take_in(&mut self, frame: Frame, secret: &FlowSecret, by: &Visitor<'_>, now: qos::Nanos) {
        let above = self.scheduler.segment_above(frame.meta.priority);
        let above = [above, self.device_rate].into_iter().flatten().min();
        let scheduler = &mut self.scheduler;
        let good = cut(frame, above, &mut self.scratch, |mut frame| {
            if scheduler.packets() >= LOOSE {
                frame.compact();
            } else {
                frame.detach();
            }
            let queued = Queued::new(frame, secret);
            // Dropped frames are passed to the closure.
            let _ = scheduler.enqueue(queued, now, &mut |_, cause| by.lost(cause));
        });
        if !good {
            by.stats.tx_dropped.add(1);
            by.drops.count(DropCause::Malformed, 1);
        }
    }

    /// The current sender goes on with the queued frames, and claims the rest.
    fn leave_to_sender(&mut self, me: u32) -> Visit {
        self.claim.take_if(|(who, _)| *who == me);
        Visit {
            wake: None,
            watch: false,
            closed: false,
            over: false,
        }
    }

    /// Which worker comes back, and when.
    fn claim(&mut self, me: u32, watch: bool, now: qos::Nanos) -> Visit {
        let clock = Nanos(now.0);
        let next = match self.device.full {
            Some(until) => Some(until),
            None if !self.device.held.is_empty() || !self.device.ahead.is_empty() => Some(clock),
            None => self.scheduler.next_event(now).map(|next| Nanos(next.0)),
        };
        let mut visit = Visit {
            wake: None,
            watch: false,
            closed: std::mem::take(&mut self.device.closed),
            over: false,
        };
        let Some(next) = next else {
            self.claim = None;
            if self.released {
                visit.over = true;
            }
            return visit;
        };
        let another = self
            .claim
            .is_some_and(|(who, at)| who != me && at <= next && clock < at + LATE);
        if !another {
            self.claim = Some((me, next));
            visit.wake = Some(next);
            visit.watch = watch;
        }
        visit
    }
}

impl Visitor<'_> {
    fn lost(&self, cause: Cause) {
        self.stats.tx_dropped.add(1);
        self.drops.count(drop_cause(cause), 1);
    }

    fn sent(&self, report: &TxReport) {
        self.stats.count_sent(report, self.drops);
    }
}

mod room;
mod send;
#[cfg(test)]
mod tests;
