//! A packet's way through a worker, stages in order.
//!
//! | | stage | where |
//! |---|---|---|
//! | 1 | receive a batch of up to 32 frames from one receive queue | [`Rx::recv`] |
//! | | where the host's stack receives packets of tunnels: take outer headers off | `tunnels` |
//! | | where the port has them: its ingress shaper and policer | `ingress` |
//! | 2 | extract each frame's key, as far as megaflows look at it | [`flow::KeySlot`], `find` |
//! | 3 | look in the signature cache, compare with the megaflow it names | `signature`, `find` |
//! | 4 | for the rest: look in the megaflows, subtable by subtable | `megaflow`, `find` |
//! | 5 | for the rest: make an upcall, cache its answer | [`Slowpath::try_upcall`], `upcalls` |
//! | | where a source has made enough upcalls in this turn: wait for the next | `upcall_queue` |
//! | 6 | run the actions | `act`, `edit`, `actions` |
//! | | where they recirculate packets: stages 2 to 7 for these | `recirculate` |
//! | 7 | collect the frames to send by transmit port | `egress` |
//! | 8 | send each port's frames at once | [`Tx::send`](netdev::Tx::send), `transmit` |
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

use crate::actions::{Actor, Shared};
use crate::batch::Batch;
use crate::command::FlowEdit;
use crate::device_facts::DeviceFacts;
use crate::hash::KeyHasher;
use crate::megaflow::FlowTable;
use crate::rx_queue::Source;
use crate::signature::SignatureCache;
use crate::stats::WorkerStats;
use dp::{BondTable, CacheStats, Change, Changes, DropCause, Effect, PortCounters, PutFlowError, Slowpath};
use flow::PortNo;
use nanos::Nanos;
use netdev::{Frame, Netdev, Rx};
use std::io;
use std::sync::Arc;
use std::time::Duration;

mod act;
mod find;
mod housekeeping;
mod ingress;
mod offload;
mod recirculate;
mod transmit;
mod tunnels;
mod upcalls;
mod way;

pub use crate::batch::BATCH;
pub use crate::rx_queue::{Budget, RxQueue};
pub use crate::upcall_queue::OtherQueues;
pub(crate) use housekeeping::Push;

use upcalls::Upcalls;

/// The caches and the ports of one worker. Public for benchmarks and tests; the datapath runs it in
/// its workers.
pub struct Pipeline {
    hasher: Arc<KeyHasher>,
    signatures: SignatureCache,
    flows: FlowTable,
    actor: Actor,
    slowpath: Arc<dyn Slowpath>,
    changes: Arc<Changes>,
    /// What of the log of changes has been applied.
    epoch: u64,
    stats: Arc<WorkerStats>,
    batch: Batch,
    /// For recirculated packets, one for each recirculation that is under way.
    spare_batches: Vec<Batch>,
    changed: Vec<Change>,
    effects: Vec<Effect>,
    upcalls: Upcalls,
}

impl Pipeline {
    /// A pipeline without ports, with at most `flow_limit` megaflows, each of which goes when it
    /// has carried nothing for `idle`.
    pub fn new(flow_limit: usize, idle: Duration, slowpath: Arc<dyn Slowpath>, changes: Arc<Changes>) -> Pipeline {
        Pipeline::with_shared(flow_limit, idle, slowpath, changes, Shared::default())
    }

    /// With what all workers share.
    pub(crate) fn with_shared(
        flow_limit: usize,
        idle: Duration,
        slowpath: Arc<dyn Slowpath>,
        changes: Arc<Changes>,
        shared: Shared,
    ) -> Pipeline {
        let hasher = Arc::new(KeyHasher::new());
        let stats = Arc::<WorkerStats>::default();
        Pipeline {
            flows: FlowTable::new(hasher.clone(), flow_limit, idle),
            hasher,
            signatures: SignatureCache::new(),
            actor: Actor::new(shared, slowpath.clone(), stats.clone()),
            slowpath,
            // There is nothing yet that could be stale.
            epoch: changes.epoch(),
            changes,
            stats,
            batch: Batch::default(),
            spare_batches: Vec::new(),
            changed: Vec::new(),
            effects: Vec::new(),
            upcalls: Upcalls::default(),
        }
    }

    /// Makes a port available to send on.
    pub fn add_port(&mut self, port: PortNo, device: Arc<dyn Netdev>) {
        let (facts, tx) = (DeviceFacts::of(&*device), device.open_tx().ok());
        self.add_tx_port(port, device, facts, tx, Arc::default());
    }

    /// Adds, changes or removes a bond, for all workers that share it.
    pub fn set_bond(&self, id: u32, table: Option<BondTable>) {
        self.actor.bonds.set(id, table);
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
        self.upcalls.begin(from);
        if from.has_pending() {
            self.retry_pending(from, now);
        }
        let waited = from.source.upcalls.len();
        if waited > 0 {
            self.resume_queued(&mut from.source, now);
            if self.upcalls.holds(from, contended) {
                return Ok(gone(waited, from));
            }
        }
        let mut batch = std::mem::take(&mut self.batch);
        let received = from.rx.recv(&mut batch.frames, BATCH);
        let mut frames = batch.frames.len();
        if frames > 0 {
            if let Some(budgets) = &mut from.source.punts {
                budgets.begin(contended);
            }
            take_in(&mut batch.frames, from);
            if let Some(format) = from.tunnel
                && !self.end_tunnels(&mut batch.frames, from, format)
            {
                // All had wrong outer headers.
            } else if from.has_ingress() {
                self.pass_ingress(&mut batch, from, now);
            } else {
                let candidate = from.offload_port.is_some().then(|| self.candidate(&batch, from));
                self.forward(&mut batch, from, now);
                if let Some(Some(candidate)) = candidate {
                    frames += self.offload(&candidate, &mut batch, from, now);
                }
            }
        }
        self.batch = batch;
        from.source.upcalls.end();
        received.map(|_| gone(waited + frames, from))
    }

    /// Stages 2 to 8.
    #[inline]
    fn forward(&mut self, batch: &mut Batch, from: &mut RxQueue, now: Nanos) {
        // Packets of tunnels have metadata of their own.
        let received = from.tunnel.is_none().then_some(from.port);
        let (port, from) = (from.port, &mut from.source);
        batch.received = received;
        let again = if from.has_waiting() {
            self.forward_behind(batch, from, now);
            false
        } else if let Some(number) = self.of_all(batch, port) {
            self.act_alike(number, batch, from, now)
        } else {
            self.extract(batch);
            if self.find(batch) {
                self.act(batch, 0, from, now)
            } else {
                self.act_in_order(batch, 0, from, now);
                false
            }
        };
        if again {
            self.pass_again(batch, 1, from, now);
            // They are not what was received any more.
            batch.forget_runs();
        }
        self.actor.flush(now);
    }

    /// Stages 2 to 7 for a batch behind packets that wait.
    #[cold]
    fn forward_behind(&mut self, batch: &mut Batch, from: &mut Source, now: Nanos) {
        self.extract(batch);
        self.find(batch);
        self.act_in_order(batch, 0, from, now);
    }

    /// The megaflow, if there is one, that covers all that comes in on a port, whatever is in it:
    /// then nobody needs to look into packets that have a key at all.
    #[inline]
    fn of_all(&self, batch: &Batch, port: PortNo) -> Option<u32> {
        let number = self.flows.of_all(port)?;
        let all = batch
            .frames
            .iter()
            .all(|frame| frame.len() >= flow::KEYED_LEN || flow::has_key(frame.data()));
        all.then_some(number)
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
        self.flows.begin_changes(&mut self.changed);
        for change in &self.changed {
            self.flows.apply(change);
        }
        self.changed.clear();
    }

    /// Lets go of a port and of the megaflows that its packets made. What waits for its device is
    /// lost, and counted. Returns what it had, for the caller to drop, which may take long.
    pub fn remove_port(&mut self, port: PortNo) -> impl Send + use<> {
        self.give_up_control(|in_port| in_port == port);
        let tx_port = self.actor.egress.remove(port, &self.stats);
        self.flows.remove_offload_port(port);
        self.flows.remove_owner(port);
        tx_port
    }

    pub(crate) fn flows(&self) -> &FlowTable {
        &self.flows
    }

    /// What a flush of megaflows has left over, for another thread to free.
    #[inline]
    pub(crate) fn take_rest(&mut self) -> Option<impl Send + use<>> {
        self.flows.take_rest()
    }

    pub(crate) fn edit_flow(&mut self, edit: &FlowEdit, now: Nanos) -> Result<(), PutFlowError> {
        self.flows.edit(edit, now)
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
    packets.saturating_sub(from.source.upcalls.len()).max(packets.min(1))
}

/// Stage 1: notes on each packet where it comes from, and counts it.
#[inline]
fn take_in(frames: &mut [Frame], from: &RxQueue) {
    let mut bytes = 0;
    for frame in &mut *frames {
        frame.meta.in_port = from.port;
        bytes += frame.len() as u64;
    }
    if let Some(stats) = &from.source.stats {
        stats.rx_packets.add(frames.len() as u64);
        stats.rx_bytes.add(bytes);
    }
}
