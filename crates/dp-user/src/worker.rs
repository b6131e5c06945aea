//! The thread that moves packets: waits, serves one batch of each ready queue in turn, does a step
//! of housekeeping, waits again.
//!
//! Goal: fair between ports, idle when there is nothing to do.
//! - Each turn takes one batch of every ready queue, so a flood on one port costs the others one
//!   batch's time. A queue makes few upcalls in a turn. If packets wait for upcalls, the next turn
//!   begins at once: `backlog`.
//! - It sleeps in epoll without a timeout while there are no megaflows; with them it wakes to age
//!   them, at most once a second.
//! - After packets came, the worker polls queues in shared memory directly until they are empty,
//!   which costs less than epoll. Other queues wait at most [`LOOKS_FOR`] and a batch for that.
//! - Where packets come one soon after the other, it busy-polls for a short time before it sleeps:
//!   a stream of TCP stops at each gap for as long as it takes to wake a worker. `worker-spin` sets
//!   another time, or none.
//! - While it busy-polls, it looks into the queues directly and calls epoll rarely: the round trip
//!   of a ping is a tenth shorter than with epoll each time.
//! - It wakes shortly before delayed packets are due and polls for the rest of the time: `pacing`.
//! - It does not read a queue whose device fails again at once: `failing`.

use crate::command::{AssignedQueue, Command, CommandQueue, Released};
use crate::devices::{Devices, Request, What};
use crate::ingress::Ingress;
use crate::latency_request::LatencyRequest;
use crate::load::{QueueLoad, WorkerLoad};
use crate::pipeline::{BATCH, OtherQueues, Pipeline, Push, RxQueue};
use crate::poll::Poller;
use crate::upcall_queue::RETRY_PENDING;
use dp::Slowpath;
use flow::PortNo;
use nanos::Nanos;
use netdev::Netdev;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;
use sys::cycles;

use backlog::Backlog;
use control::Control;
use queues::Queue;
pub(crate) use spin::SpinTime;
use spin::{LOOK_INTO, LOOKS, LOOKS_FOR, Looks};

/// Number of the command queue's event among the poller's; others are places of queues.
const COMMANDS: u64 = u64::MAX;

/// Set in the number of an event of a device that has room again; the rest is the place of its
/// transmit port.
const TX_PORTS: u64 = 1 << 32;

/// Batches, and time, for which the worker serves the only queue that has packets before it looks
/// for others. The time is short beside the time that it takes to wake a worker.
const BATCHES: u32 = 8;
const SERVICE: Duration = Duration::from_micros(20);

/// See the module's page.
pub(crate) struct Worker {
    number: usize,
    pipeline: Pipeline,
    poller: Poller,
    /// Where it asks about devices.
    devices: Devices,
    slowpath: Arc<dyn Slowpath>,
    queues: Vec<Option<Queue>>,
    control: Control,
    backlog: Backlog,
    looks: Looks,
    turn: Turn,
    latency_request: LatencyRequest,
    load: Arc<WorkerLoad>,
}

/// What a worker knows of its present turn.
struct Turn {
    /// Packets that it has received.
    packets: usize,
    /// Some came by a queue where none waited already.
    arrived: bool,
    /// When it began.
    now: Nanos,
    /// When housekeeping wants its next turn.
    housekeeping: Option<Nanos>,
    /// Events of the poller; empty between turns, kept for its memory.
    ready: Vec<u64>,
}

impl Worker {
    pub(crate) fn new(
        number: usize,
        pipeline: Pipeline,
        commands: Arc<CommandQueue>,
        slowpath: Arc<dyn Slowpath>,
        spin: Arc<SpinTime>,
        devices: Devices,
    ) -> io::Result<Worker> {
        let poller = Poller::new()?;
        poller.add(commands.event(), COMMANDS)?;
        Ok(Worker {
            number,
            pipeline,
            poller,
            devices,
            slowpath,
            queues: Vec::new(),
            control: Control::new(commands),
            backlog: Backlog::default(),
            looks: Looks::new(spin),
            turn: Turn {
                packets: 0,
                arrived: false,
                now: Nanos::ZERO,
                housekeeping: None,
                ready: Vec::new(),
            },
            latency_request: LatencyRequest::default(),
            load: Arc::default(),
        })
    }

    /// How busy it is.
    pub(crate) fn load(&self) -> &Arc<WorkerLoad> {
        &self.load
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
        // Callers that wait for the thread learn of its end, also if it panics.
        let _closes = CloseOnDrop(self.control.commands.clone());
        while self.step() {}
    }

    /// One turn, or one look where it spins or need not ask the kernel; `false` when told to stop.
    fn step(&mut self) -> bool {
        if self.looks.count < LOOKS
            && self.turn.now < self.looks.until
            && self.queues.len() <= LOOK_INTO
            && !self.backlog.waiting
            && (self.spins() || self.goes_on())
        {
            self.look();
            return true;
        }
        self.looks.count = 0;
        self.turn(self.timeout())
    }

    /// Waits at most `timeout`, then does what there is to do; `false` when told to stop.
    fn turn(&mut self, timeout: Option<Duration>) -> bool {
        let mut ready = std::mem::take(&mut self.turn.ready);
        if timeout != Some(Duration::ZERO) && self.looks.idle_since.is_none() {
            self.looks.note_nothing(clock());
        }
        let asleep = cycles::now();
        self.poller.wait(timeout, &mut ready);
        let awake = cycles::now();
        let mut began = asleep;
        if timeout != Some(Duration::ZERO) {
            self.load.slept(awake.wrapping_sub(asleep));
            began = awake;
        }
        let now = clock();
        self.turn.now = now;
        self.looks.until = now + LOOKS_FOR;
        self.turn.packets = 0;
        self.turn.arrived = false;
        let mut go_on = true;
        if let Some(at) = ready.iter().position(|number| *number == COMMANDS) {
            ready.swap_remove(at);
            // Packets among them are bounded: the next are taken when all of these are done.
            if self.control.taken.is_empty() {
                self.control.commands.take(&mut self.control.taken);
            }
        }
        if !self.control.taken.is_empty() {
            go_on = self.obey(now);
        }
        let mut others = OtherQueues::Ready;
        if self.backlog.waiting {
            others = self.join_waiting(&mut ready, now);
        }
        let contended = ready.len() > 1;
        self.pipeline.share(ready.len(), others);
        for place in &ready {
            if *place & TX_PORTS == 0 {
                self.serve(*place as usize, contended, now);
            } else {
                self.pipeline.resume(*place as u32, now);
            }
        }
        if self.backlog.pending {
            self.retry_pending(now);
        }
        self.pace(now);
        while let Some((port, device)) = self.pipeline.take_closed() {
            self.devices.ask(Request {
                port,
                device,
                what: What::Open,
                to: self.control.commands.clone(),
            });
        }
        match self.turn.arrived {
            true => self.looks.note_arrival(now),
            false => self.looks.note_nothing(now),
        }
        self.turn.ready = ready;
        self.unpark(now);
        self.pipeline.apply_changes();
        self.dump(now);
        self.control
            .pushes
            .retain_mut(|(push, _)| self.pipeline.push_step(push, now));
        self.turn.housekeeping = self.pipeline.housekeep(now);
        if let Some(rest) = self.pipeline.take_rest() {
            self.devices.drop(Box::new(rest));
        }
        let carried = || self.pipeline.carried_by_offload();
        self.latency_request.keep(now, self.looks.spin.latency_hold(), carried);
        let end = cycles::now();
        self.load.turn(self.turn.packets, end.wrapping_sub(awake));
        self.load.gap(end.wrapping_sub(began));
        go_on
    }

    /// How long there is nothing to do unless something becomes ready.
    fn timeout(&self) -> Option<Duration> {
        if self.control.goes_on() {
            return Some(Duration::ZERO);
        }
        let retry = self.pipeline.retry();
        if self.backlog.waiting && retry.is_none() {
            return Some(Duration::ZERO);
        }
        let retry = retry.filter(|_| self.backlog.waiting);
        let parked = self.queues.iter().flatten().filter_map(|q| q.parked);
        let again = self.backlog.pending.then(|| self.turn.now + RETRY_PENDING);
        let next = parked
            .chain(self.turn.housekeeping)
            .chain(self.latency_request.next())
            .chain(retry)
            .chain(again)
            .min();
        if self.spins() {
            return Some(Duration::ZERO);
        }
        let next = next.map(|next| next.since(self.turn.now));
        match (next, self.until_due()) {
            (Some(next), Some(due)) => Some(next.min(due)),
            (next, due) => next.or(due),
        }
    }

    /// One batch of one queue, or some where nobody else waits.
    #[inline]
    fn serve(&mut self, place: usize, contended: bool, now: Nanos) {
        // A command of this turn may have removed it.
        let Some(queue) = self.queues.get_mut(place).and_then(Option::as_mut) else {
            return;
        };
        let mut batches = if contended { 1 } else { BATCHES };
        let waited = queue.rx_queue.waits();
        let (before, mut time) = (cycles::now(), now);
        let mut packets = 0;
        let end = loop {
            match self.pipeline.receive(&mut queue.rx_queue, contended, time) {
                Ok(received) if received >= BATCH && batches > 1 && !queue.rx_queue.waits() => packets += received,
                Ok(received) => {
                    packets += received;
                    break Ok(());
                }
                Err(error) => break Err(error),
            }
            batches -= 1;
            time = clock();
            if time.since(now) >= SERVICE {
                break Ok(());
            }
        };
        self.backlog.waiting |= queue.rx_queue.waits();
        self.backlog.pending |= queue.rx_queue.has_pending();
        if packets > 0 {
            queue.brought_packets(before, now);
            self.turn.packets += packets;
            self.turn.arrived |= !waited;
        }
        match end {
            Err(error) => self.receive_failed(place, &error, now),
            Ok(()) if packets == 0 => match queue.rx_queue.rx.woken_in_vain() {
                Ok(()) => self.received_nothing(place, now),
                Err(error) => self.receive_failed(place, &error, now),
            },
            Ok(()) => {}
        }
    }
}

struct CloseOnDrop(Arc<CommandQueue>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Monotonic time.
pub(crate) fn clock() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

mod backlog;
mod control;
mod dump;
mod failing;
mod pacing;
mod queues;
mod spin;
#[cfg(test)]
mod tests;
