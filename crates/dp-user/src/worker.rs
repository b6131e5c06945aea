//! The thread that moves packets: waits, serves one batch of each ready queue in turn, does a step
//! of housekeeping, waits again.
//!
//! Goal: fair between ports, idle when there is nothing to do.
//! - Each turn takes one batch of every ready queue, so a flood on one port costs the others one
//!   batch's time. A queue's upcalls in a turn are few; what has to wait for its next turn makes
//!   that come at once: `backlog`.
//! - It sleeps in epoll without a timeout while there are no megaflows; with them it wakes to age
//!   them, at most once a second.
//! - Queues that lie in memory are looked into again after packets came, until there are none: that
//!   is less than to ask epoll for them. Other queues wait for that no longer than [`LOOKS_FOR`]
//!   and a batch.
//! - While it spins, as a user can ask for, it looks into the queues themselves, and asks epoll
//!   only now and then: the round trip of a ping is shorter by a tenth than with epoll between.
//! - It wakes when packets that are held back are due, and looks for what little time is left:
//!   `pacing`.
//! - A queue whose device fails is not asked again at once: `failing`.

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

/// Number of the command queue's event among the poller's; others are places of queues.
const COMMANDS: u64 = u64::MAX;

/// Set in the number of an event of a device that has room again; the rest is the place of its
/// transmit port.
const TX_PORTS: u64 = 1 << 32;

/// Most queues that a spinning worker looks into by itself; with more of them epoll tells sooner
/// which have packets.
const LOOK_INTO: usize = 8;

/// Times that a worker looks into its queues before it asks epoll again, for commands, vanished
/// devices and the queues that it has not looked into, and the time after which it does however
/// often it has.
const LOOKS: u32 = 64;
const LOOKS_FOR: Duration = Duration::from_micros(100);
/// While some queues have packets, the others are asked every so many looks.
const LOOK_AT_IDLE: u32 = 8;

/// Batches, and time, for which the only queue that has packets is served before the worker looks
/// for others. The time is short beside what a packet takes to wake a worker; the batches are what
/// one round of small packets is worth.
const BATCHES: u32 = 8;
const SERVICE: Duration = Duration::from_micros(20);

/// How long commands are followed in a turn; the others are in the next ones.
const OBEY: Duration = Duration::from_micros(50);

/// See the module's page.
pub(crate) struct Worker {
    number: usize,
    pipeline: Pipeline,
    poller: Poller,
    commands: Arc<CommandQueue>,
    /// Where it asks about devices.
    devices: Devices,
    slowpath: Arc<dyn Slowpath>,
    queues: Vec<Option<Queue>>,
    dumps: Vec<dump::Dump>,
    /// Reports of statistics under way, and who waits for them.
    pushes: Vec<(Push, Sender<()>)>,
    spin: Arc<SpinTime>,
    latency_request: LatencyRequest,
    load: Arc<WorkerLoad>,
    /// Packets that this turn has received.
    packets: usize,
    /// When the last turn began.
    now: Nanos,
    /// When packets last came.
    active: Nanos,
    /// Times that it looked into its queues since it last asked epoll.
    looks: u32,
    /// When it asks epoll again at the latest.
    look_until: Nanos,
    /// Queues that had packets when it last looked.
    busy: usize,
    /// Some port has an ingress shaper or policer.
    shaped: bool,
    /// Packets of new flows wait at some queue.
    waiting: bool,
    /// Packets wait for answers that take long.
    pending: bool,
    /// For so long a queue's last packets count as those of one that will have more.
    lately: Duration,
    /// When housekeeping wants its next turn.
    housekeeping: Option<Nanos>,
    ready: Vec<u64>,
    /// Commands to follow, in order.
    taken: VecDeque<Command>,
}

/// How long workers look for packets before they sleep, and how long they hold the latency request
/// after the last offloaded packet, in nanoseconds. The control plane writes it; all workers read
/// it.
pub(crate) struct SpinTime {
    spin: AtomicU64,
    latency_hold: AtomicU64,
}

impl SpinTime {
    pub(crate) fn new(time: Duration) -> SpinTime {
        SpinTime {
            spin: AtomicU64::new(nanos(time)),
            latency_hold: AtomicU64::new(0),
        }
    }

    pub(crate) fn set(&self, time: Duration) {
        self.spin.store(nanos(time), Ordering::Relaxed);
    }

    pub(crate) fn set_latency_hold(&self, time: Duration) {
        self.latency_hold.store(nanos(time), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(self.spin.load(Ordering::Relaxed))
    }

    fn latency_hold(&self) -> Duration {
        Duration::from_nanos(self.latency_hold.load(Ordering::Relaxed))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A receive queue as the worker sees it.
struct Queue {
    rx_queue: RxQueue,
    number: u32,
    load: Arc<QueueLoad>,
    device: Arc<dyn Netdev>,
    ifindex: u32,
    /// When it last brought packets, if ever.
    active: Option<Nanos>,
    /// Attempts in a row that brought no packet.
    fruitless: u32,
    parked: Option<Nanos>,
    /// It was asked whether the device has vanished.
    checked: bool,
    /// Brought no packet when it was last asked.
    idle: bool,
    /// Its device has vanished; nobody asks it again.
    gone: bool,
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
            commands,
            devices,
            slowpath,
            queues: Vec::new(),
            dumps: Vec::new(),
            pushes: Vec::new(),
            spin,
            latency_request: LatencyRequest::default(),
            load: Arc::default(),
            packets: 0,
            now: Nanos::ZERO,
            active: Nanos::ZERO,
            looks: 0,
            look_until: Nanos::ZERO,
            busy: 0,
            shaped: false,
            waiting: false,
            pending: false,
            lately: backlog::LATELY,
            housekeeping: None,
            ready: Vec::new(),
            taken: VecDeque::new(),
        })
    }

    /// How busy it is.
    pub(crate) fn load(&self) -> &Arc<WorkerLoad> {
        &self.load
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
        // However the thread ends, those who wait for it are told.
        let _closes = CloseOnDrop(self.commands.clone());
        while self.step() {}
    }

    /// One turn, or one look where it spins or need not ask the kernel; `false` when told to stop.
    fn step(&mut self) -> bool {
        if self.looks < LOOKS
            && self.now < self.look_until
            && self.queues.len() <= LOOK_INTO
            && !self.waiting
            && (self.spins() || self.goes_on())
        {
            self.look();
            return true;
        }
        self.looks = 0;
        self.turn(self.timeout())
    }

    /// Waits at most `timeout`, then does what there is to do; `false` when told to stop.
    fn turn(&mut self, timeout: Option<Duration>) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        let asleep = cycles::now();
        self.poller.wait(timeout, &mut ready);
        let awake = cycles::now();
        let mut began = asleep;
        if timeout != Some(Duration::ZERO) {
            self.load.slept(awake.wrapping_sub(asleep));
            began = awake;
        }
        let now = clock();
        self.now = now;
        self.look_until = now + LOOKS_FOR;
        self.packets = 0;
        let mut go_on = true;
        if let Some(at) = ready.iter().position(|number| *number == COMMANDS) {
            ready.swap_remove(at);
            // Packets among them are bounded: the next are taken when all of these are done.
            if self.taken.is_empty() {
                self.commands.take(&mut self.taken);
            }
        }
        if !self.taken.is_empty() {
            go_on = self.obey(now);
        }
        let mut others = OtherQueues::Ready;
        if self.waiting {
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
        if self.pending {
            self.retry_pending(now);
        }
        self.pace(now);
        while let Some((port, device)) = self.pipeline.take_closed() {
            self.devices.ask(Request {
                port,
                device,
                what: What::Open,
                to: self.commands.clone(),
            });
        }
        if !ready.is_empty() {
            self.active = now;
        }
        self.ready = ready;
        self.unpark(now);
        self.pipeline.apply_changes();
        self.dump(now);
        self.pushes.retain_mut(|(push, _)| self.pipeline.push_step(push, now));
        self.housekeeping = self.pipeline.housekeep(now);
        if let Some(rest) = self.pipeline.take_rest() {
            self.devices.drop(Box::new(rest));
        }
        let carried = || self.pipeline.carried_by_offload();
        self.latency_request.keep(now, self.spin.latency_hold(), carried);
        let end = cycles::now();
        self.load.turn(self.packets, end.wrapping_sub(awake));
        self.load.gap(end.wrapping_sub(began));
        go_on
    }

    /// How long there is nothing to do unless something becomes ready.
    fn timeout(&self) -> Option<Duration> {
        let more = !self.dumps.is_empty() || !self.pushes.is_empty() || !self.taken.is_empty();
        if more {
            return Some(Duration::ZERO);
        }
        let retry = self.pipeline.retry();
        if self.waiting && retry.is_none() {
            return Some(Duration::ZERO);
        }
        let retry = retry.filter(|_| self.waiting);
        let parked = self.queues.iter().flatten().filter_map(|q| q.parked);
        let again = self.pending.then(|| self.now + RETRY_PENDING);
        let next = parked
            .chain(self.housekeeping)
            .chain(self.latency_request.next())
            .chain(retry)
            .chain(again)
            .min();
        if self.spins() {
            return Some(Duration::ZERO);
        }
        let next = next.map(|next| next.since(self.now));
        match (next, self.until_due()) {
            (Some(next), Some(due)) => Some(next.min(due)),
            (next, due) => next.or(due),
        }
    }

    /// Whether packets came so lately that it stays awake for more.
    fn spins(&self) -> bool {
        let spin = self.spin.get();
        !spin.is_zero() && self.now.since(self.active) < spin
    }

    /// One batch of each queue that has packets, or, where the worker does not spin, of each that
    /// is looked into without a system call. While some have, the others are asked less often.
    fn look(&mut self) {
        self.looks += 1;
        self.now = clock();
        let began = cycles::now();
        self.packets = 0;
        let (contended, spins) = (self.busy > 1, self.spins());
        self.pipeline.share(self.busy, OtherQueues::Ready);
        let rest = self.busy > 0 && !self.looks.is_multiple_of(LOOK_AT_IDLE);
        self.busy = 0;
        for place in 0..self.queues.len() {
            let Some(queue) = self.queues[place]
                .as_mut()
                .filter(|queue| queue.parked.is_none() && !queue.gone && !(rest && queue.idle))
                .filter(|queue| spins || queue.rx_queue.rx.is_free_to_ask())
            else {
                continue;
            };
            let before = cycles::now();
            match self.pipeline.receive(&mut queue.rx_queue, contended, self.now) {
                Ok(0) => queue.idle = !queue.rx_queue.rx.is_free_to_ask(),
                Ok(packets) => {
                    queue.brought_packets(before, self.now);
                    self.packets += packets;
                    self.waiting |= queue.rx_queue.waits();
                    self.pending |= queue.rx_queue.has_pending();
                    self.busy += 1;
                    self.active = self.now;
                }
                Err(error) => self.receive_failed(place, &error, self.now),
            }
        }
        self.pace(self.now);
        let took = cycles::now().wrapping_sub(began);
        self.load.turn(self.packets, took);
        self.load.gap(took);
    }

    /// One batch of one queue, or some where nobody else waits.
    #[inline]
    fn serve(&mut self, place: usize, contended: bool, now: Nanos) {
        // A command of this turn may have removed it.
        let Some(queue) = self.queues.get_mut(place).and_then(Option::as_mut) else {
            return;
        };
        let mut batches = if contended { 1 } else { BATCHES };
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
        self.waiting |= queue.rx_queue.waits();
        self.pending |= queue.rx_queue.has_pending();
        if packets > 0 {
            queue.brought_packets(before, now);
            self.packets += packets;
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

    /// Does what the control plane said, as far as it comes in [`OBEY`]; `false` when told to stop.
    fn obey(&mut self, now: Nanos) -> bool {
        let mut go_on = true;
        while let Some(command) = self.taken.pop_front() {
            // Who asked may not wait for the answer any more; that is no error.
            match command {
                Command::AddPort {
                    port,
                    device,
                    facts,
                    tx,
                    stats,
                    offload,
                    assigned_queues,
                    done,
                } => {
                    self.pipeline.add_tx_port(port, device.clone(), facts, tx, stats);
                    self.pipeline.add_offload_port(port, offload);
                    let added = assigned_queues
                        .into_iter()
                        .try_for_each(|assigned| self.add_queue(assigned, &device));
                    let _ = done.send(added);
                }
                Command::TakeQueue { port, queue, done } => {
                    if let Some(assigned) = self.take_queue(port, queue) {
                        let _ = done.send(assigned);
                    }
                }
                Command::AddQueue { assigned, device, done } => {
                    let _ = done.send(self.add_queue(assigned, &device));
                }
                Command::Checked { port, queue, vanished } => self.checked(port, queue, vanished),
                Command::Opened { port, device, tx } => {
                    let unused = self.pipeline.opened(port, &device, tx);
                    self.devices.drop(Box::new((device, unused)));
                }
                Command::DelPort { port, done } => {
                    let _ = done.send(self.del_port(port));
                }
                Command::Schedule { port, queue, done } => {
                    self.pipeline.schedule(port, queue, now);
                    let _ = done.send(());
                }
                Command::Ingress { port, ingress, done } => {
                    self.ingress(port, &ingress);
                    let _ = done.send(());
                }
                Command::Offload { usage, done } => {
                    self.pipeline.set_offload(usage);
                    let _ = done.send(());
                }
                Command::Link { port, device } => self.pipeline.link_changed(port, device),
                Command::Limit(limits) => self.pipeline.set_limits(limits),
                Command::EditFlow { edit, done } => _ = done.send(self.pipeline.edit_flow(&edit, now)),
                Command::Flush { done } => {
                    self.pipeline.flush();
                    let _ = done.send(());
                }
                Command::Push { done } => self.pushes.push((Push::default(), done)),
                Command::Dump { flows } => self.dumps.push(dump::Dump::new(flows)),
                Command::Execute {
                    in_port,
                    frame,
                    actions,
                } => {
                    self.pipeline.execute(in_port, frame, &actions, now);
                    self.pending = true;
                }
                Command::Stop => go_on = false,
            }
            if clock().since(now) >= OBEY {
                break;
            }
        }
        go_on
    }

    /// Lets go of a queue of a port that stays.
    fn take_queue(&mut self, port: PortNo, number: u32) -> Option<AssignedQueue> {
        let is_it = |queue: &Queue| queue.rx_queue.port == port && queue.number == number;
        let place = self.queues.iter_mut().find(|place| place.as_ref().is_some_and(is_it))?;
        let Queue {
            rx_queue,
            number,
            ifindex,
            load,
            ..
        } = place.take()?;
        self.poller.remove(rx_queue.rx.fd());
        self.pipeline.stop_offloaded(port);
        Some(AssignedQueue {
            rx_queue,
            number,
            ifindex,
            load,
        })
    }

    fn add_queue(&mut self, assigned: AssignedQueue, device: &Arc<dyn Netdev>) -> io::Result<()> {
        let AssignedQueue {
            rx_queue,
            number,
            ifindex,
            load,
        } = assigned;
        // Packets that its ingress shaper holds are this worker's to let go.
        self.shaped |= rx_queue.has_ingress();
        self.waiting |= rx_queue.waits();
        self.pending |= rx_queue.has_pending();
        let place = match self.queues.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.queues.push(None);
                self.queues.len() - 1
            }
        };
        self.poller.add(rx_queue.rx.fd(), place as u64)?;
        self.queues[place] = Some(Queue {
            rx_queue,
            number,
            load,
            device: device.clone(),
            ifindex,
            active: None,
            fruitless: 0,
            parked: None,
            checked: false,
            idle: false,
            gone: false,
        });
        Ok(())
    }

    fn ingress(&mut self, port: PortNo, ingress: &Arc<Mutex<Ingress>>) {
        for queue in self.queues.iter_mut().flatten() {
            if queue.rx_queue.port == port {
                queue.rx_queue.set_ingress(ingress.clone());
                self.pipeline.stop_offloaded(port);
                self.shaped = true;
            }
        }
    }

    /// Gives up a port; returns what it had, for others to close.
    fn del_port(&mut self, port: PortNo) -> Released {
        let mut queues = Vec::new();
        for place in &mut self.queues {
            if let Some(mut queue) = place.take_if(|queue| queue.rx_queue.port == port) {
                self.poller.remove(queue.rx_queue.rx.fd());
                self.pipeline.give_up(&mut queue.rx_queue);
                queues.push(queue);
            }
        }
        Box::new((queues, self.pipeline.remove_port(port)))
    }
}

impl Queue {
    /// Notes that it was asked from that cycle on until now, and had packets.
    #[inline]
    fn brought_packets(&mut self, since: u64, now: Nanos) {
        self.active = Some(now);
        self.fruitless = 0;
        self.idle = false;
        self.load.cycles.add(cycles::now().wrapping_sub(since));
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
mod dump;
mod failing;
mod pacing;
#[cfg(test)]
mod tests;
