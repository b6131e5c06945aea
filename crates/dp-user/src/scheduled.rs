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
use parking_lot::{Mutex, MutexGuard};
use qos::{Cause, ConfigError, Discipline, FifoConfig, LeafConfig, PortConfig, Scheduler};
use room::Room;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Frames that are offered to the device at once.
const ROUND: usize = 64;

/// Frames that one visit sends at most: other ports of the worker wait meanwhile.
const VISIT: usize = 256;

/// Time between two requests to open a device for sending, after an attempt failed.
const REOPEN: Duration = Duration::from_secs(1);

/// Retry interval for a device that had no room, and cannot signal when it has.
const ASK_AGAIN: Duration = Duration::from_micros(100);

/// The same for a device that can signal it, in case that it does not.
const ASK_ANYWAY: Duration = Duration::from_millis(5);

/// The longest retry interval, for a device that has taken nothing for so long.
const ASK_AT_LAST: Duration = Duration::from_secs(1);

/// Number of refusals of one frame after which the next is offered: a filter behind the device may
/// refuse this one for ever, with the error of a full queue.
const REFUSALS: u32 = 16;

/// How long a device may take nothing, without a way to wait for it, before the first frame is
/// dropped.
const GIVE_UP: Duration = Duration::from_millis(250);

/// Delay of the claim's worker after which another worker takes over the claim.
const LATE: Duration = Duration::from_micros(200);

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
    /// Given out by the scheduler and not taken by the device.
    held: Vec<Frame>,
    /// For the packets of a segment.
    scratch: Vec<Frame>,
    tx: Option<Box<dyn Tx>>,
    /// A worker is sending, and has `tx` and `held`.
    sending: bool,
    /// There was no transmit handle, and it is time to ask for one.
    closed: bool,
    reopen: Nanos,
    /// The device has no room; time of the next retry.
    full: Option<Nanos>,
    /// How often, and since when, the device has refused the first of `held` without a way to wait
    /// for it.
    refused: u32,
    refused_since: Nanos,
    /// Time of the last visit: the next one is not earlier, even if its worker's clock is behind.
    latest: Nanos,
    claim: Option<(u32, Nanos)>,
    visitors: u32,
    /// The port has no scheduler, or not any more: the queue sends its frames, and then is not
    /// needed.
    released: bool,
    /// The queue of one worker, which lends its transmit handle.
    own: bool,
    /// Since when the device has taken nothing.
    stuck: Option<Nanos>,
    /// Bytes that may be under way in the device.
    room: Room,
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
            secret: FlowSecret::new(),
            state: Mutex::new(State {
                scheduler: qos::Port::new(config)?,
                held: Vec::with_capacity(ROUND),
                scratch: Vec::new(),
                tx: None,
                sending: false,
                closed: false,
                reopen: Nanos::ZERO,
                full: None,
                refused: 0,
                refused_since: Nanos::ZERO,
                latest: Nanos::ZERO,
                claim: None,
                visitors: 0,
                released: false,
                own: false,
                stuck: None,
                room: Room::new(),
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
            tx.limit(state.room.bytes());
        }
        std::mem::replace(&mut state.tx, tx)
    }

    /// Sets the speed of the device's link, in bit/s if it is known.
    pub(crate) fn set_speed(&self, speed: Option<u64>) {
        self.state.lock().device_rate = speed.map(bytes_per_millisecond);
    }

    /// Takes out all that is here, in an order that keeps each flow's.
    pub(crate) fn take_out(&self, frames: &mut Vec<Frame>) {
        let mut state = self.state.lock();
        frames.append(&mut state.held);
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
        let mut lost = state.held.drain(..).count() as u64;
        state.scheduler.drain(&mut |_| lost += 1);
        state.claim = None;
        lost
    }

    /// The queues' counters.
    pub(crate) fn report(&self) -> QosReport {
        let state = self.state.lock();
        let mut report = QosReport {
            held_packets: state.held.len() as u64,
            held_bytes: state.held.iter().map(|frame| frame.len() as u64).sum(),
            ..QosReport::default()
        };
        state
            .scheduler
            .each_queue(&mut |number, stats| report.queues.push((number, stats.clone())));
        report
    }

    /// Puts frames in, and sends what may leave now.
    pub(crate) fn visit(&self, frames: &mut Vec<Frame>, by: &Visitor<'_>, now: Nanos) -> Visit {
        let mut state = self.state.lock();
        let now = state.time(now);
        let passed = state.pass(frames, by, now);
        for frame in frames.drain(..) {
            state.take_in(frame, &self.secret, by, now);
        }
        if state.sending {
            return state.leave_to_sender(by.number);
        }
        let watch = send(&mut state, by, now);
        if passed {
            // Frames that the device had no room for stay here longer.
            state.held.iter_mut().for_each(Frame::detach);
        }
        let now = state.time(Nanos(now.0));
        state.claim(by.number, watch, now)
    }

    /// The device has room again: sends what may leave now.
    pub(crate) fn resume(&self, by: &Visitor<'_>, now: Nanos) -> Visit {
        {
            let mut state = self.state.lock();
            state.full = state.full.map(|_| Nanos::ZERO);
        }
        self.visit(&mut Vec::new(), by, now)
    }

    /// Passes the descriptor that is writable when the device has room, if it has none now.
    pub(crate) fn with_room(&self, watch: impl FnOnce(BorrowedFd<'_>)) {
        let state = self.state.lock();
        if let (Some(_), Some(fd)) = (state.full, state.tx.as_ref().and_then(|tx| tx.room())) {
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
        if self.sending
            || !self.held.is_empty()
            || self.full.is_some()
            || !self.scheduler.is_open()
            || frames.iter().any(segment)
        {
            return false;
        }
        frames.retain(|frame| {
            let passes = self.scheduler.pass(frame.len() as u32, frame.meta.priority, now);
            passes.inspect_err(|cause| by.lost(*cause)).is_ok()
        });
        std::mem::swap(&mut self.held, frames);
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

    /// Limits the bytes under way in the device, which is full, to what it needs.
    fn fit(&mut self, now: Nanos) {
        // A device that does not report the bytes under way keeps its room.
        if let Some(tx) = &mut self.tx
            && tx.under_way().is_some()
            && self.room.full(now)
        {
            tx.limit(self.room.bytes());
        }
    }

    /// Which worker comes back, and when.
    fn claim(&mut self, me: u32, watch: bool, now: qos::Nanos) -> Visit {
        let clock = Nanos(now.0);
        let next = match self.full {
            Some(until) => Some(until),
            None if !self.held.is_empty() => Some(clock),
            None => self.scheduler.next_event(now).map(|next| Nanos(next.0)),
        };
        let mut visit = Visit {
            wake: None,
            watch: false,
            closed: std::mem::take(&mut self.closed),
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

/// Sends what may leave. Returns whether the device has no room.
fn send(state: &mut MutexGuard<'_, State>, by: &Visitor<'_>, now: qos::Nanos) -> bool {
    let clock = Nanos(now.0);
    if state.full.is_some_and(|until| clock < until) {
        return true;
    }
    if state.full.take().is_some() && state.tx.as_ref().and_then(|tx| tx.under_way()) == Some(0) {
        state.room.starved();
    }
    let mut rounds = VISIT / ROUND;
    loop {
        // Others may have come while this one sent.
        let now = state.time(clock);
        let clock = Nanos(now.0);
        let State { scheduler, held, .. } = &mut **state;
        while held.len() < ROUND {
            let Some(packet) = scheduler.dequeue(now, &mut |_, cause| by.lost(cause)) else {
                break;
            };
            held.push(packet.frame);
        }
        if held.is_empty() || rounds == 0 {
            return false;
        }
        rounds -= 1;
        let Some(report) = offer(state) else {
            let lost = state.held.drain(..).count() as u64;
            by.stats.tx_dropped.add(lost);
            by.drops.count(DropCause::PortDown, lost);
            if state.reopen <= clock {
                (state.closed, state.reopen) = (true, clock + REOPEN);
            }
            continue;
        };
        by.sent(&report);
        let State { tx, room, .. } = &mut **state;
        let Some(tx) = tx else { continue };
        room.taken(report.bytes);
        let can_wait = tx.room().is_some();
        let rest = !state.held.is_empty();
        if report.packets > 0 || can_wait || !rest {
            state.refused = 0;
        }
        state.stuck = match state.stuck {
            _ if report.packets > 0 || !rest => None,
            since => since.or(Some(clock)),
        };
        if rest {
            state.fit(clock);
            if can_wait {
                // A device that has taken nothing for long does not keep its worker awake.
                let long = state.stuck.map_or(Duration::ZERO, |since| clock.since(since));
                state.full = Some(clock + long.clamp(ASK_ANYWAY, ASK_AT_LAST));
            } else if passes_over_the_first(state, by, clock) {
                continue;
            } else {
                state.full = Some(clock + ASK_AGAIN);
            }
            return true;
        }
    }
}

/// Offers the held frames to the device, without the lock. `None` if the device is not open.
fn offer(state: &mut MutexGuard<'_, State>) -> Option<TxReport> {
    let mut tx = state.tx.take()?;
    let mut held = std::mem::take(&mut state.held);
    state.sending = true;
    let report = MutexGuard::unlocked(state, || tx.offer(&mut held));
    state.sending = false;
    (state.tx, state.held) = (Some(tx), held);
    Some(report)
}

/// Whether the device refused the first frame itself, and did not lack room: then that frame is
/// lost.
fn passes_over_the_first(state: &mut MutexGuard<'_, State>, by: &Visitor<'_>, now: Nanos) -> bool {
    if state.refused == 0 {
        state.refused_since = now;
    }
    state.refused += 1;
    let mut lost = now.since(state.refused_since) > GIVE_UP;
    if lost && state.own {
        // The others would each wait as long.
        let mut all = state.held.drain(..).count() as u64;
        state.scheduler.drain(&mut |_| all += 1);
        by.stats.tx_dropped.add(all);
        by.drops.count(DropCause::DeviceFull, all);
        state.refused = 0;
        return true;
    }
    let first = state.held.remove(0);
    if !lost
        && state.refused.is_multiple_of(REFUSALS)
        && let Some(report) = offer(state)
    {
        by.sent(&report);
        lost = report.packets > 0;
    }
    if lost {
        by.stats.tx_dropped.add(1);
        by.drops.count(DropCause::DeviceFull, 1);
        state.refused = 0;
    } else {
        state.held.insert(0, first);
    }
    lost
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
#[cfg(test)]
mod tests;
