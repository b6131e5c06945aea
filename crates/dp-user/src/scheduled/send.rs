//! Sending from a port's queue: frames that were offered to the device, and what is known of its
//! room.

use super::room::Room;
use super::{State, Visitor};
use dp::DropCause;
use nanos::Nanos;
use netdev::{Frame, Tx, TxReport};
use parking_lot::MutexGuard;
use qos::Scheduler;
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

/// The device behind the queue. Dequeued frames are here until the device takes them.
pub(super) struct Device {
    /// `None` while the device is not open for sending.
    pub(super) tx: Option<Box<dyn Tx>>,
    /// Dequeued frames that the device has not taken.
    pub(super) held: Vec<Frame>,
    /// Frames of control protocols, to be offered before `held`.
    pub(super) ahead: Vec<Frame>,
    /// A worker is sending, and has `tx` and `held`.
    pub(super) sending: bool,
    /// There was no transmit handle, and it is time to ask for one.
    pub(super) closed: bool,
    /// When to ask for a transmit handle again.
    reopen: Nanos,
    /// The device has no room; time of the next retry.
    pub(super) full: Option<Nanos>,
    /// How often, and since when, the device has refused the first of `held` without a way to wait
    /// for it.
    refused: u32,
    refused_since: Nanos,
    /// Since when the device has taken nothing.
    stuck: Option<Nanos>,
    /// Bytes that may be under way in the device.
    pub(super) room: Room,
}

impl Device {
    /// A device that is not open yet.
    pub(super) fn new() -> Device {
        Device {
            tx: None,
            held: Vec::with_capacity(ROUND),
            ahead: Vec::new(),
            sending: false,
            closed: false,
            reopen: Nanos::ZERO,
            full: None,
            refused: 0,
            refused_since: Nanos::ZERO,
            stuck: None,
            room: Room::new(),
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
}

/// Sends what may leave. Returns whether the device has no room.
pub(super) fn send(state: &mut MutexGuard<'_, State>, by: &Visitor<'_>, now: qos::Nanos) -> bool {
    let clock = Nanos(now.0);
    if state.device.full.is_some_and(|until| clock < until) {
        return true;
    }
    if state.device.full.take().is_some() && state.device.tx.as_ref().and_then(|tx| tx.under_way()) == Some(0) {
        state.device.room.starved();
    }
    let mut rounds = VISIT / ROUND;
    loop {
        // Others may have come while this one sent.
        let now = state.time(clock);
        let clock = Nanos(now.0);
        let State { scheduler, device, .. } = &mut **state;
        if !device.ahead.is_empty() {
            device.held.splice(0..0, device.ahead.drain(..));
        }
        while device.held.len() < ROUND {
            let Some(packet) = scheduler.dequeue(now, &mut |_, cause| by.lost(cause)) else {
                break;
            };
            device.held.push(packet.frame);
        }
        if device.held.is_empty() || rounds == 0 {
            return false;
        }
        rounds -= 1;
        let Some(report) = offer(state) else {
            let lost = state.device.held.drain(..).count() as u64;
            by.stats.tx_dropped.add(lost);
            by.drops.count(DropCause::PortDown, lost);
            if state.device.reopen <= clock {
                (state.device.closed, state.device.reopen) = (true, clock + REOPEN);
            }
            continue;
        };
        by.sent(&report);
        let Device { tx, room, .. } = &mut state.device;
        let Some(tx) = tx else { continue };
        room.taken(report.bytes);
        let can_wait = tx.room().is_some();
        let rest = !state.device.held.is_empty();
        if report.packets > 0 || can_wait || !rest {
            state.device.refused = 0;
        }
        state.device.stuck = match state.device.stuck {
            _ if report.packets > 0 || !rest => None,
            since => since.or(Some(clock)),
        };
        if rest {
            state.device.fit(clock);
            if can_wait {
                // A device that has taken nothing for long does not keep its worker awake.
                let long = state.device.stuck.map_or(Duration::ZERO, |since| clock.since(since));
                state.device.full = Some(clock + long.clamp(ASK_ANYWAY, ASK_AT_LAST));
            } else if passes_over_the_first(state, by, clock) {
                continue;
            } else {
                state.device.full = Some(clock + ASK_AGAIN);
            }
            return true;
        }
    }
}

/// Offers the held frames to the device, without the lock. `None` if the device is not open.
fn offer(state: &mut MutexGuard<'_, State>) -> Option<TxReport> {
    let mut tx = state.device.tx.take()?;
    let mut held = std::mem::take(&mut state.device.held);
    state.device.sending = true;
    let report = MutexGuard::unlocked(state, || tx.offer(&mut held));
    state.device.sending = false;
    (state.device.tx, state.device.held) = (Some(tx), held);
    Some(report)
}

/// Whether the device refused the first frame itself, and did not lack room: then that frame is
/// lost.
fn passes_over_the_first(state: &mut MutexGuard<'_, State>, by: &Visitor<'_>, now: Nanos) -> bool {
    if state.device.refused == 0 {
        state.device.refused_since = now;
    }
    state.device.refused += 1;
    let mut lost = now.since(state.device.refused_since) > GIVE_UP;
    if lost && state.own {
        // The others would each wait as long.
        let mut all = state.device.held.drain(..).count() as u64;
        state.scheduler.drain(&mut |_| all += 1);
        by.stats.tx_dropped.add(all);
        by.drops.count(DropCause::DeviceFull, all);
        state.device.refused = 0;
        return true;
    }
    let first = state.device.held.remove(0);
    if !lost
        && state.device.refused.is_multiple_of(REFUSALS)
        && let Some(report) = offer(state)
    {
        by.sent(&report);
        lost = report.packets > 0;
    }
    if lost {
        by.stats.tx_dropped.add(1);
        by.drops.count(DropCause::DeviceFull, 1);
        state.device.refused = 0;
    } else {
        state.device.held.insert(0, first);
    }
    lost
}
