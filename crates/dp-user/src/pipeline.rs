//! A packet's way through a worker, stages in order.
//!
//! | | stage | where |
//! |---|---|---|
//! | 1 | receive a batch of up to 32 frames from one queue | [`Rx::recv`] |
//! | | where the port asks for it: let packets come at its speed, police them | `ingress` |
//! | 2 | extract each frame's key, as far as megaflows look at it | [`flow::KeySlot`] |
//! | 3 | ask the signature cache, compare with the megaflow it names | `signature`, `megaflow` |
//! | 4 | for the rest: ask the megaflows, subtable by subtable | `megaflow` |
//! | 5 | for the rest: ask the switch, cache its answer | [`Slowpath::try_upcall`], `ask` |
//! | | where a queue has asked enough in this turn: wait for the next | `upcall_queue` |
//! | 6 | run the actions | `actions` |
//! | 7 | collect what is sent by port | `egress` |
//! | 8 | send each port's frames at once | [`Tx::send`](netdev::Tx::send) |
//! | | where the port has a scheduler: queue them there, send what may leave | `scheduled` |
//!
//! Stage 2 is skipped where one megaflow covers everything that the port receives, and for a frame
//! whose headers repeat the frame before it. In stage 5, a packet whose translation takes long
//! waits apart from the others.
//!
//! Stages 2 to 4 run for the whole batch one after the other, so that the memory accesses of
//! different packets overlap. Where that found a megaflow for every packet, so do 6 and 7, and a
//! batch that goes to one port as it is moves there in one piece. Where a packet is an upcall, 5 to
//! 7 run packet by packet in the order of arrival, so that order within a flow is kept.
//!
//! A packet that its actions recirculate goes through 2 to 6 again on its own, before the next
//! packet of its batch.
//!
//! Invariants
//! - Nothing on the way of a packet that hits a cache takes a lock or allocates (buffers grow to
//!   the size of a batch once), but the lock of a port with a scheduler or a policer, which is that
//!   port's own.
//! - A megaflow is not used after a change that made it stale was published, as far as that was
//!   published before the batch began or by an upcall of this batch: `Pipeline::apply_changes` runs
//!   before each batch and after each upcall. An answer is cached before the changes since the
//!   *last look at the log* are applied, that is since before the upcall; so a change that races
//!   with the translation removes it.
//! - Every frame is sent, or counted under a [`DropCause`].

use crate::actions::{Actor, Recirculated, edit_all};
use crate::devices::DeviceFacts;
use crate::hash::KeyHasher;
use crate::megaflow::FlowTable;
use crate::meters::{MeterView, Meters};
use crate::signature::{NONE, SignatureCache};
use crate::stats::{DropSink, PortStats, WorkerStats};
use dp::{Action, CacheStats, Change, Changes, DropCause, Effect, PortCounters, Slowpath};
use flow::{Key, PortNo};
use netdev::{Frame, Netdev, Rx, Tx};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use wire::Nanos;

mod ask;
mod batch;
mod find;
mod held;
mod housekeeping;
mod offload;
mod rx_queue;
mod upcall_queue;

pub(crate) use ask::AGAIN;
pub(crate) use batch::Run;
pub(crate) use housekeeping::Push;
pub use rx_queue::{Budget, RxQueue};

pub use upcall_queue::OtherQueues;

use batch::{Batch, MALFORMED};
use upcall_queue::Held;

/// Frames in a batch.
pub const BATCH: usize = 32;

/// The caches and the ports of one worker. Public for benchmarks and tests; the datapath runs it in
/// its workers.
pub struct Pipeline {
    hasher: Arc<KeyHasher>,
    signatures: SignatureCache,
    /// No megaflow looked behind the Ethernet header when keys were last read.
    ethernet: bool,
    /// For so many more keys the megaflow is looked for by all of the key and by the Ethernet
    /// header.
    by_both: u32,
    flows: FlowTable,
    actor: Actor,
    slowpath: Arc<dyn Slowpath>,
    changes: Arc<Changes>,
    /// What of the log of changes has been applied.
    epoch: u64,
    stats: Arc<WorkerStats>,
    batch: Batch,
    changed: Vec<Change>,
    effects: Vec<Effect>,
    /// Number of receive queues with packets in this poll round.
    sharing: u32,
    /// What is known of those without packets of new flows that wait.
    others: OtherQueues,
    /// The switch's tables could not be had: packets of new flows wait until this time, and are
    /// asked for again.
    retry: Option<Nanos>,
    /// Packets of the control plane that wait for an answer.
    control_pending: ask::ControlPending,
}

impl Pipeline {
    /// A pipeline without ports, with at most `flow_limit` megaflows, each of which goes when it
    /// has carried nothing for `idle`.
    pub fn new(flow_limit: usize, idle: Duration, slowpath: Arc<dyn Slowpath>, changes: Arc<Changes>) -> Pipeline {
        Pipeline::with_meters(flow_limit, idle, slowpath, changes, Arc::default())
    }

    pub(crate) fn with_meters(
        flow_limit: usize,
        idle: Duration,
        slowpath: Arc<dyn Slowpath>,
        changes: Arc<Changes>,
        meters: Arc<Meters>,
    ) -> Pipeline {
        let hasher = Arc::new(KeyHasher::new());
        let stats = Arc::<WorkerStats>::default();
        Pipeline {
            flows: FlowTable::new(hasher.clone(), flow_limit, idle),
            hasher,
            signatures: SignatureCache::new(),
            ethernet: true,
            by_both: 0,
            actor: Actor::new(MeterView::new(meters), slowpath.clone(), stats.clone()),
            slowpath,
            // There is nothing yet that could be stale.
            epoch: changes.epoch(),
            changes,
            stats,
            batch: Batch::default(),
            changed: Vec::new(),
            effects: Vec::new(),
            sharing: 1,
            others: OtherQueues::Ready,
            retry: None,
            control_pending: ask::ControlPending::default(),
        }
    }

    /// Makes a port available to send on.
    pub fn add_port(&mut self, port: PortNo, device: Arc<dyn Netdev>) {
        let (facts, tx) = (DeviceFacts::of(&*device), device.open_tx().ok());
        self.add_tx_port(port, device, facts, tx, Arc::default());
    }

    /// A receive queue of a port, for [`Pipeline::receive`].
    pub fn rx_queue(port: PortNo, rx: Box<dyn Rx>, budget: Budget) -> RxQueue {
        RxQueue::new(port, rx, Arc::default(), budget)
    }

    /// Takes one batch from a queue through all stages, as far as packets of new flows do not have
    /// to wait, and returns how many frames went their way, those among them that had waited.
    /// `contended` says that other ports wait; where none does, or all that do have packets that
    /// wait too, a queue whose packets wait receives no more; it does while the switch's tables
    /// cannot be had, for the sake of flows that are known.
    ///
    /// # Errors
    /// What the queue's device says; frames received before the error have gone their way.
    #[inline]
    pub fn receive(&mut self, from: &mut RxQueue, contended: bool, now: Nanos) -> io::Result<usize> {
        self.apply_changes();
        from.upcalls.begin(self.sharing, self.others);
        if from.has_pending() {
            self.retry_pending(from, now);
        }
        let waited = from.upcalls.len();
        if waited > 0 {
            self.go_on(from, now);
            if from.waits() && self.retry.is_none() && !(contended && self.others == OtherQueues::Ready) {
                return Ok(gone(waited, from));
            }
        }
        let mut batch = std::mem::take(&mut self.batch);
        let received = from.rx.recv(&mut batch.frames, BATCH);
        let frames = batch.frames.len();
        if frames > 0 {
            from.packet_ins.begin(contended);
            take_in(&mut batch.frames, from);
            if from.has_ingress() {
                self.pass_ingress(&mut batch.frames, from, now);
            }
            let candidate = from.entrance.is_some().then(|| self.candidate(&batch, from));
            self.forward(&mut batch, from, now);
            if let Some(Some(candidate)) = candidate {
                self.offer_shortcut(&candidate, &batch, from, now);
            }
        }
        self.batch = batch;
        from.upcalls.end();
        received.map(|_| gone(waited + frames, from))
    }

    /// Stages 2 to 8.
    #[inline]
    fn forward(&mut self, batch: &mut Batch, from: &mut RxQueue, now: Nanos) {
        if from.waits() || from.has_pending() {
            self.forward_behind(batch, from, now);
        } else if let Some(number) = self.of_all(batch, from.port) {
            self.act_alike(number, batch, from, now);
        } else {
            self.extract(batch);
            if self.find(batch) {
                self.act(batch, from, now);
            } else {
                self.act_in_order(batch, from, now);
            }
        }
        self.actor.flush(now);
    }

    /// The megaflow, if there is one, that covers all that comes in on a port, whatever is in it:
    /// then nobody needs to look into packets that have a key at all.
    #[inline]
    fn of_all(&self, batch: &Batch, port: PortNo) -> Option<u32> {
        let number = self.flows.of_all(port)?;
        let all = batch.frames.iter().all(|frame| flow::has_key(frame.data()));
        all.then_some(number)
    }

    /// Stages 6 and 7 where all packets have one megaflow.
    #[inline]
    fn act_alike(&mut self, number: u32, batch: &mut Batch, from: &mut RxQueue, now: Nanos) {
        let packets = batch.frames.len() as u64;
        self.stats.exact_hits.add(packets);
        let flow = self.flows.flow_mut(number);
        let Some(port) = flow.direct else {
            batch.run_of(number);
            return self.act(batch, from, now);
        };
        flow.carried(packets, bytes_of(&batch.frames), now);
        if flow.edits && edit_all(flow.actions().0, &mut batch.frames) {
            batch.run_of(number);
            self.lose_emptied(batch, from);
            if batch.frames.is_empty() {
                return;
            }
        }
        self.flows.traffic();
        self.queue_all(port, batch, from);
    }

    /// Stage 7 for a batch that goes to one port as it is.
    #[inline]
    fn queue_all(&mut self, port: PortNo, batch: &mut Batch, from: &RxQueue) {
        let drops = DropSink {
            worker: &self.stats,
            port: Some(&from.stats),
        };
        self.actor.egress.queue_all(port, &mut batch.frames, drops);
    }

    /// Sends a frame through actions, outside of any flow, as if it had come in on a port.
    pub(crate) fn execute(&mut self, in_port: PortNo, mut frame: Frame, actions: &[Action], now: Nanos) {
        frame.meta.in_port = in_port;
        self.actor.for_control(in_port, now).run(actions, None, frame);
        self.recirculate(None, now);
        self.actor.flush(now);
    }

    /// Stages 6 and 7 where nothing is to be asked.
    #[inline(never)]
    fn act(&mut self, batch: &mut Batch, from: &mut RxQueue, now: Nanos) {
        if self.flows.recirculates(batch.runs()) {
            return self.act_in_order(batch, from, now);
        }
        self.flows.traffic();
        let Some(first) = batch.runs().first() else { return };
        let way = self.flows.flow_mut(first.flow).direct;
        let (mut one_way, mut edits) = (true, false);
        // Packets of one megaflow that follow each other are counted at once: a count that was just
        // written is slow to be read again.
        let (mut packets, mut bytes) = (0, 0);
        let mut runs = batch.runs().iter().peekable();
        while let Some(run) = runs.next() {
            packets += run.packets;
            bytes += run.bytes;
            if runs.peek().is_some_and(|next| next.flow == run.flow) {
                continue;
            }
            let flow = self.flows.flow_mut(run.flow);
            flow.carried(packets.into(), bytes.into(), now);
            one_way &= flow.direct == way;
            edits |= flow.edits;
            (packets, bytes) = (0, 0);
        }
        if edits && self.edit(batch) {
            self.lose_emptied(batch, from);
            if batch.frames.is_empty() {
                return;
            }
        }
        if let Some(port) = way
            && one_way
        {
            return self.queue_all(port, batch, from);
        }
        let mut context = self.actor.for_rx_queue(from, now);
        // Backwards, because that is how a frame comes out of the vector in one piece: taken from a
        // `Drain` it is taken apart first.
        let (runs, frames) = batch.parts_mut();
        frames.reverse();
        for run in runs {
            for _ in 0..run.packets {
                let frame = frames.swap_remove(frames.len() - 1);
                let flow = self.flows.flow_mut(run.flow);
                match flow.direct {
                    Some(port) => context.queue(port, frame),
                    // Actions lie apart from their megaflow: to look at them is another access to
                    // memory.
                    None => {
                        let (actions, drop) = flow.actions();
                        context.run(actions, drop, frame);
                    }
                }
            }
        }
    }

    /// Does to packets what their megaflows say that is to be done where they are; returns whether
    /// one of them was left without a byte.
    fn edit(&mut self, batch: &mut Batch) -> bool {
        let (runs, frames) = batch.parts_mut();
        let mut rest = &mut frames[..];
        let mut lost = false;
        for run in runs {
            let (own, others) = rest.split_at_mut(run.packets as usize);
            rest = others;
            let flow = self.flows.flow_mut(run.flow);
            if flow.edits {
                lost |= edit_all(flow.actions().0, own);
            }
        }
        lost
    }

    /// Counts packets that actions have left without a byte, for want of room for another header:
    /// nobody's packet has so many.
    #[cold]
    fn lose_emptied(&self, batch: &mut Batch, from: &RxQueue) {
        let (runs, frames) = batch.parts_mut();
        let mut rest = &frames[..];
        for run in runs {
            let (own, others) = rest.split_at(run.packets as usize);
            rest = others;
            run.packets = own.iter().filter(|frame| !frame.is_empty()).count() as u32;
        }
        let packets = frames.len();
        frames.retain(|frame| !frame.is_empty());
        let lost = packets - frames.len();
        self.sink(from).count(DropCause::Malformed, lost as u64);
    }

    /// Stages 5 to 7, packet by packet.
    #[cold]
    fn act_in_order(&mut self, batch: &mut Batch, from: &mut RxQueue, now: Nanos) {
        self.flows.traffic();
        let removals = self.flows.removals();
        let (is_ethernet, asked_at) = (batch.is_ethernet, batch.asked_at);
        let (runs, frames) = batch.parts_mut();
        let mut frames = frames.drain(..);
        for Run { key, flow, packets, .. } in runs {
            for frame in frames.by_ref().take(*packets as usize) {
                if is_ethernet {
                    // Who asks, or may have to wait for others of its connection, is looked at
                    // whole.
                    key.read(frame.data(), &frame.meta, None);
                }
                let known = *flow < MALFORMED && removals == self.flows.removals();
                if known && !from.is_behind(key) {
                    self.run_flow(*flow, frame, 0, from, now);
                } else if *flow == MALFORMED {
                    self.refuse(from, DropCause::Malformed, 1);
                } else {
                    let since = if *flow == NONE { asked_at } else { 0 };
                    self.miss(key, since, frame, from, now);
                }
            }
        }
    }

    /// Stage 6 for a packet whose megaflow is known.
    fn run_flow(&mut self, number: u32, frame: Frame, depth: u32, from: &mut RxQueue, now: Nanos) {
        let flow = self.flows.flow_mut(number);
        flow.carried(1, frame.len() as u64, now);
        let (actions, drop) = flow.actions();
        self.actor
            .for_rx_queue(from, now)
            .at_depth(depth)
            .run(actions, drop, frame);
        self.recirculate(Some(from), now);
    }

    /// Recirculated packets: stages 2 to 6 for each, in order.
    #[inline]
    fn recirculate(&mut self, mut from: Option<&mut RxQueue>, now: Nanos) {
        while let Some(again) = self.actor.next_recirculated() {
            self.recirculate_one(again, from.as_deref_mut(), now);
        }
    }

    #[cold]
    fn recirculate_one(&mut self, again: Recirculated, from: Option<&mut RxQueue>, now: Nanos) {
        self.stats.recirculations.add(1);
        let Recirculated { frame, depth } = again;
        let Some(key) = flow::extract(frame.data(), &frame.meta) else {
            return self.lose(from, DropCause::Malformed);
        };
        let in_port = frame.meta.in_port;
        let recalled = self.recall(&key);
        let found = if recalled.is_some() {
            self.stats.exact_hits.add(1);
            recalled
        } else {
            let found = self.flows.lookup(&key);
            self.stats.megaflow_hits.add(found.is_some().into());
            if let Some(number) = found {
                self.remember(&key, number);
            }
            found
        };
        let asked_at = self.asked_at(found);
        let found = found.filter(|_| from.as_deref().is_none_or(|from| !from.is_behind(&key)));
        if let Some(number) = found {
            let flow = self.flows.flow_mut(number);
            flow.carried(1, frame.len() as u64, now);
            let (actions, drop) = flow.actions();
            self.actor
                .for_origin(from, in_port, now)
                .at_depth(depth)
                .run(actions, drop, frame);
            return;
        }
        if let Some(from) = from {
            let held = Held::new(frame, &key, depth, asked_at);
            return self.ask_or_wait(held, from, now);
        }
        self.ask_for_control(in_port, Held::new(frame, &key, depth, asked_at), now);
    }

    /// The megaflow generation to resume the search from. It is 0 after a lookup that found a
    /// megaflow: that may be gone by the time of the next lookup.
    fn asked_at(&self, found: Option<u32>) -> u64 {
        if found.is_some() { 0 } else { self.flows.made() }
    }

    /// A packet for which there was no megaflow when `since` had been made, or whose megaflow may
    /// have gone since.
    #[cold]
    fn miss(&mut self, key: &Key, since: u64, frame: Frame, from: &mut RxQueue, now: Nanos) {
        let found = self.flows.lookup_newer(key, since);
        let asked_at = self.asked_at(found);
        let Some(number) = found.filter(|_| !from.is_behind(key)) else {
            return self.ask_or_wait(Held::new(frame, key, 0, asked_at), from, now);
        };
        self.stats.megaflow_hits.add(1);
        self.remember(key, number);
        self.run_flow(number, frame, 0, from, now);
    }

    /// Counts packets from a queue that are not let in.
    fn refuse(&self, from: &RxQueue, cause: DropCause, packets: u64) {
        self.sink(from).count(cause, packets);
        from.stats.rx_dropped.add(packets);
    }

    /// Where drops of packets from a queue are counted.
    fn sink<'a>(&'a self, from: &'a RxQueue) -> DropSink<'a> {
        DropSink {
            worker: &self.stats,
            port: Some(&from.stats),
        }
    }

    /// Removes the megaflows that changes published since the last call made stale.
    #[inline]
    pub(crate) fn apply_changes(&mut self) {
        if self.changes.epoch() != self.epoch {
            self.read_changes();
        }
    }

    #[cold]
    fn read_changes(&mut self) {
        self.epoch = self.changes.since(self.epoch, &mut self.changed);
        self.flows.begin_changes();
        for change in &self.changed {
            self.flows.apply(change);
        }
        self.changed.clear();
    }

    pub(crate) fn add_tx_port(
        &mut self,
        port: PortNo,
        device: Arc<dyn Netdev>,
        facts: DeviceFacts,
        tx: Option<Box<dyn Tx>>,
        stats: Arc<PortStats>,
    ) {
        self.actor.egress.add(port, device, facts.speed, tx, stats);
    }

    /// A port that has no way to send, and is to be given one by [`Pipeline::opened`].
    #[inline]
    pub(crate) fn take_closed(&mut self) -> Option<(PortNo, Arc<dyn Netdev>)> {
        self.actor.egress.take_closed()
    }

    /// Gives a port a way to send; returns what is to be closed instead.
    pub(crate) fn opened(&mut self, port: PortNo, tx: Box<dyn Tx>) -> Option<Box<dyn Tx>> {
        self.actor.egress.opened(port, tx)
    }

    /// Lets go of a port and of the megaflows that its packets made. What waits for its device is
    /// lost, and counted. Returns what it had, for the caller to drop, which may take long.
    pub fn remove_port(&mut self, port: PortNo) -> impl Send + use<> {
        self.give_up_control(|in_port| in_port == port);
        let tx_port = self.actor.egress.remove(port, &self.stats);
        self.flows.remove_exit(port);
        self.flows.remove_owner(port);
        tx_port
    }

    pub(crate) fn flows(&self) -> &FlowTable {
        &self.flows
    }

    pub(crate) fn flush(&mut self) {
        self.flows.clear();
    }

    /// How well the caches work.
    pub fn cache_stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        self.stats.add_to(&mut stats);
        stats
    }

    /// What it has sent to a port, and lost there.
    pub fn port_counters(&self, port: PortNo) -> Option<PortCounters> {
        self.actor.egress.counters(port)
    }

    /// Packets dropped by cause.
    pub fn drops(&self) -> Vec<(DropCause, u64)> {
        let dropped = |cause| (cause, self.stats.dropped(cause));
        DropCause::ALL.into_iter().map(dropped).collect()
    }

    pub(crate) fn stats(&self) -> &Arc<WorkerStats> {
        &self.stats
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.give_up_control(|_| true);
    }
}

/// How many of so many packets do not wait; one at least, since each turn lets some begin that wait
/// again, behind what they had to ask first.
#[inline]
fn gone(packets: usize, from: &RxQueue) -> usize {
    packets.saturating_sub(from.upcalls.len()).max(packets.min(1))
}

/// Stage 1: notes on each packet where it comes from, and counts it.
#[inline]
fn take_in(frames: &mut [Frame], from: &RxQueue) {
    let mut bytes = 0;
    for frame in &mut *frames {
        frame.meta.in_port = from.port;
        bytes += frame.len() as u64;
    }
    from.stats.rx_packets.add(frames.len() as u64);
    from.stats.rx_bytes.add(bytes);
}

#[inline]
fn bytes_of(frames: &[Frame]) -> u64 {
    frames.iter().map(|frame| frame.len() as u64).sum()
}
