//! The queue of a port with a scheduler, between the workers and the device.
//!
//! A worker that has frames for the port puts them in, takes out what may leave now, and offers it
//! to the device. What the device has no room for stays at the head of the line. Where something
//! stays, one of the workers has it on its mind (the *claim*): it comes back when the scheduler
//! says, or when the device has room. While nothing waits and nothing has to, frames pass the queue
//! by: they are policed and counted.
//!
//! Invariants
//! - The lock is the port's alone, and nobody waits for anything while holding it. One worker at a
//!   time sends, without the lock: others put their frames in meanwhile and go, and that one takes
//!   them out before it goes.
//! - While the queue is not empty there is a claim, and the worker of the claim knows the time of
//!   it: see [`Visit::wake`].
//! - Every frame that comes in is sent, or counted under a [`DropCause`].
//!
//! A port without a scheduler has such a queue for each worker, its own, while its device has no
//! room for what that worker sends: the three bands of `pfifo_fast`, until they are empty again.

use crate::device_facts::DeviceFacts;
use crate::flow_look::FlowSecret;
use crate::queued::{Queued, cut, drop_cause};
use crate::stats::{DropSink, PortStats};
use dp::{DropCause, QosReport};
use netdev::{Frame, Gso, Netdev, Tx, TxReport};
use parking_lot::{Mutex, MutexGuard};
use qos::{Cause, ConfigError, Discipline, FifoConfig, LeafConfig, PortConfig, Scheduler};
use room::Room;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use wire::Nanos;

/// Frames that are offered to the device at once.
const ROUND: usize = 64;

/// Frames that one visit sends at most: other ports of the worker wait meanwhile.
const VISIT: usize = 256;

/// How long a worker waits before it asks again for a way to send, where a device could not be
/// opened for that.
const REOPEN: Duration = Duration::from_secs(1);

/// When to ask a device again that had no room, and cannot say when it has.
const ASK_AGAIN: Duration = Duration::from_micros(100);

/// The same for one that can, in case that it does not.
const ASK_ANYWAY: Duration = Duration::from_millis(5);

/// And the longest, for one that has taken nothing for so long.
const ASK_AT_LAST: Duration = Duration::from_secs(1);

/// After so many refusals of one frame the next is offered: a filter behind the device may refuse
/// this one for ever, and says so as a full queue does.
const REFUSALS: u32 = 16;

/// How long a device may take nothing at all, and not say that it could be waited for, before the
/// first frame in the line is given up.
const GIVE_UP: Duration = Duration::from_millis(250);

/// How late the worker of the claim may be before another takes it over.
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
    /// There was no way to send, and it is time to ask for one.
    closed: bool,
    reopen: Nanos,
    /// The device has no room, and is to be asked again at this time.
    full: Option<Nanos>,
    /// How often the device has refused the first of `held`, without saying that it could be waited
    /// for, and since when.
    refused: u32,
    refused_since: Nanos,
    /// The time of the last visit: that of the next is not before it, whatever the worker's clock
    /// said when its turn began.
    latest: Nanos,
    claim: Option<(u32, Nanos)>,
    visitors: u32,
    /// The port has no scheduler, or not any more: what is here is to be sent, and then the queue
    /// is not needed.
    released: bool,
    /// One worker's, which lends its way to send.
    own: bool,
    /// Since when the device has taken nothing.
    stuck: Option<Nanos>,
    /// Bytes that may be under way in the device.
    room: Room,
    /// Bytes that the device sends in a millisecond.
    device_rate: Option<u64>,
}

/// Who visits.
pub(crate) struct Visitor<'a> {
    /// Of [`PortQueue::join`].
    pub(crate) number: u32,
    pub(crate) stats: &'a PortStats,
    pub(crate) drops: DropSink<'a>,
}

/// What a visitor has to know.
pub(crate) struct Visit {
    /// When it is to come back; `None` where that is no business of its own.
    pub(crate) wake: Option<Nanos>,
    /// The device has no room, and [`PortQueue::with_room`] tells what to wait for.
    pub(crate) watch: bool,
    /// There is no way to send, and it is time to ask for one: [`PortQueue::lend`].
    pub(crate) closed: bool,
    /// The port has no scheduler any more, and nothing is left here.
    pub(crate) over: bool,
}

impl PortQueue {
    /// Of a device that is open. Asks for its state, and opens it for sending: not for a worker to
    /// call.
    ///
    /// # Errors
    /// What the discipline refuses.
    pub(crate) fn new(device: &dyn Netdev, config: &PortConfig) -> Result<PortQueue, ConfigError> {
        let queue = PortQueue::of_speed(DeviceFacts::of(device).speed, config)?;
        queue.lend(device.open_tx().ok());
        Ok(queue)
    }

    /// The same with what is known of the device, and without a way to send.
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

    /// A worker's own, for a port without a scheduler whose device has no room, and a speed in
    /// bit/s where that is known.
    ///
    /// # Errors
    /// None: the discipline is one that there is.
    pub(crate) fn own(speed: Option<u64>) -> Result<PortQueue, ConfigError> {
        let bands = LeafConfig::PfifoFast(FifoConfig::default());
        let mut queue = PortQueue::of_speed(speed, &PortConfig::new(Discipline::Leaf(bands)))?;
        let state = queue.state.get_mut();
        (state.own, state.released) = (true, true);
        Ok(queue)
    }

    /// Gives it a way to send, or takes back the one that it has.
    pub(crate) fn lend(&self, mut tx: Option<Box<dyn Tx>>) -> Option<Box<dyn Tx>> {
        let mut state = self.state.lock();
        if let Some(tx) = tx.as_mut().filter(|_| !state.own) {
            tx.limit(state.room.bytes());
        }
        std::mem::replace(&mut state.tx, tx)
    }

    /// Takes note of the speed of the device's link, in bit/s where it is known.
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

    /// Changes the configuration. What is queued stays as far as there is room; what is lost is
    /// told.
    ///
    /// # Errors
    /// What the discipline refuses; then nothing has changed.
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
            // Whoever comes next looks what is due now.
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

    /// Drops what is queued, and says how many frames that were.
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
            // What the device had no room for stays after all.
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

    /// Shows what is writable when the device has room, if it has none now.
    pub(crate) fn with_room(&self, watch: impl FnOnce(BorrowedFd<'_>)) {
        let state = self.state.lock();
        if let (Some(_), Some(fd)) = (state.full, state.tx.as_ref().and_then(|tx| tx.room())) {
            watch(fd);
        }
    }
}

/// What a speed in bit/s is in bytes per millisecond.
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
            // What is dropped is handed over.
            let _ = scheduler.enqueue(queued, now, &mut |_, cause| by.lost(cause));
        });
        if !good {
            by.stats.tx_dropped.add(1);
            by.drops.count(DropCause::Malformed, 1);
        }
    }

    /// Whoever sends now goes on with what is here, and claims what stays.
    fn leave_to_sender(&mut self, me: u32) -> Visit {
        self.claim.take_if(|(who, _)| *who == me);
        Visit {
            wake: None,
            watch: false,
            closed: false,
            over: false,
        }
    }

    /// Lets no more be under way in the device, which is full, than it needs.
    fn fit(&mut self, now: Nanos) {
        // A device that does not say what is under way keeps the room that it had.
        if let Some(tx) = &mut self.tx
            && tx.under_way().is_some()
            && self.room.full(now)
        {
            tx.limit(self.room.bytes());
        }
    }

    /// Who comes back, and when.
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
                // One that has taken nothing for long does not keep its worker awake.
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

/// Offers what is held to the device, without the lock. `None` where the device is not open.
fn offer(state: &mut MutexGuard<'_, State>) -> Option<TxReport> {
    let mut tx = state.tx.take()?;
    let mut held = std::mem::take(&mut state.held);
    state.sending = true;
    let report = MutexGuard::unlocked(state, || tx.offer(&mut held));
    state.sending = false;
    (state.tx, state.held) = (Some(tx), held);
    Some(report)
}

/// Whether it was the first frame that the device did not want, not the device that had no room:
/// then that frame is lost.
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
