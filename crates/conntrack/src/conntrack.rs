//! The connections and their settings, shared by all workers.

use crate::alg::Alg;
use crate::counters::{Counters, Ended, Statistics};
use crate::fragment::Reassembly;
use crate::limits::{Limits, ZoneLimit};
use crate::random;
use crate::table::entry::Entry;
use crate::table::{Id, Pin, Table};
use crate::tcp;
use crate::timeout::{Policies, PolicyId, Timeout};
use crate::tracker::Tracker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How long a sweep over all connections is over before the next one begins, by default.
const SWEEP_INTERVAL_MS: u32 = 1000;

/// All connections of a datapath. Every thread that tracks packets or asks about connections has a
/// [`Tracker`]; settings may change at any time.
pub struct Conntrack {
    pub(crate) table: Table,
    pub(crate) limits: Limits,
    pub(crate) policies: Policies,
    pub(crate) counters: Counters,
    pub(crate) alg: Alg,
    fragments: Reassembly,
    check_sequence: AtomicBool,
    pickup: AtomicBool,
    /// Where the next sweep begins.
    pub(crate) sweep: AtomicU32,
    /// Milliseconds.
    sweep_interval: AtomicU32,
    /// Numbers for NAT's choices.
    random: AtomicU64,
    /// The number of the next handle.
    handles: AtomicU32,
    /// The number of the one handle that counts packets; [`NOBODY`] or [`SEVERAL`].
    counts: AtomicU32,
}

/// No handle has counted a packet.
const NOBODY: u32 = 0;
/// More than one has.
const SEVERAL: u32 = u32::MAX;

impl Conntrack {
    /// No connections yet. `seed` is secret: it decides the places of connections in the table.
    pub fn new(seed: u64) -> Arc<Conntrack> {
        Arc::new(Conntrack {
            table: Table::new(seed),
            limits: Limits::new(),
            policies: Policies::new(),
            counters: Counters::default(),
            alg: Alg::default(),
            fragments: Reassembly::default(),
            check_sequence: AtomicBool::new(true),
            pickup: AtomicBool::new(true),
            sweep: AtomicU32::new(0),
            sweep_interval: AtomicU32::new(SWEEP_INTERVAL_MS),
            random: AtomicU64::new(seed),
            handles: AtomicU32::new(1),
            counts: AtomicU32::new(NOBODY),
        })
    }

    /// The number of a new handle.
    pub(crate) fn number(&self) -> u32 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether no other handle counts packets until the caller's batch ends, so that it need not
    /// lock a count to add to it. The caller is in a batch that `pin` announces.
    #[inline]
    pub(crate) fn counts_alone(&self, number: u32, pin: &Pin) -> bool {
        match self.counts.load(Ordering::Relaxed) {
            counts if counts == number => true,
            SEVERAL => false,
            _ => self.share_counts(number, pin),
        }
    }

    #[cold]
    fn share_counts(&self, number: u32, pin: &Pin) -> bool {
        let order = Ordering::SeqCst;
        if self.counts.compare_exchange(NOBODY, number, order, order).is_ok() {
            return true;
        }
        pin.leave();
        self.counts.store(SEVERAL, Ordering::SeqCst);
        self.table.epochs.wait_for_batches();
        pin.enter(&self.table.epochs);
        false
    }

    /// A thread's handle.
    pub fn tracker(self: &Arc<Conntrack>) -> Tracker {
        Tracker::new(self.clone())
    }

    /// The fragments of packets that are to be tracked.
    pub fn fragments(&self) -> &Reassembly {
        &self.fragments
    }

    /// Connections now.
    pub fn len(&self) -> usize {
        self.limits.count() as usize
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Connections at most.
    pub fn max(&self) -> u32 {
        self.limits.max.load(Ordering::Relaxed)
    }

    /// Sets the number of connections at most. Those beyond it stay until they end.
    pub fn set_max(&self, max: u32) {
        self.limits.max.store(max, Ordering::Relaxed);
    }

    /// Whether the numbers of TCP and the tags of SCTP decide about packets.
    pub fn checks_sequence(&self) -> bool {
        self.check_sequence.load(Ordering::Relaxed)
    }

    /// Turns the check of numbers on (the default) or off.
    pub fn set_check_sequence(&self, check: bool) {
        self.check_sequence.store(check, Ordering::Relaxed);
        self.suspend_all();
    }

    /// Whether a TCP or SCTP connection may begin with a packet from its middle.
    pub fn picks_up(&self) -> bool {
        self.pickup.load(Ordering::Relaxed)
    }

    /// Allows connections that begin in the middle (the default, as in Open vSwitch) or forbids
    /// them.
    pub fn set_pickup(&self, pickup: bool) {
        self.pickup.store(pickup, Ordering::Relaxed);
    }

    /// How long a sweep over all connections is over before the next one begins.
    pub fn sweep_interval(&self) -> Duration {
        Duration::from_millis(self.sweep_interval.load(Ordering::Relaxed).into())
    }

    /// Sets how long a sweep over all connections is over before the next one begins.
    pub fn set_sweep_interval(&self, ms: u32) {
        self.sweep_interval.store(ms, Ordering::Relaxed);
    }

    /// Makes or changes a timeout policy: seconds by state; states that are missing have the
    /// default. Connections of the policy have the new timeouts from their next packet on.
    pub fn set_policy(&self, id: PolicyId, timeouts: &[(Timeout, u32)]) {
        self.catch_up_all();
        self.policies.set(id, timeouts);
        self.suspend_all();
    }

    /// Removes a timeout policy; false if it does not exist. Its connections go on with the
    /// default.
    pub fn remove_policy(&self, id: PolicyId) -> bool {
        self.catch_up_all();
        let removed = self.policies.remove(id);
        self.suspend_all();
        removed
    }

    /// The seconds of a timeout policy; `None` if it does not exist.
    pub fn policy(&self, id: PolicyId) -> Option<Vec<(Timeout, u32)>> {
        self.policies.get(id)
    }

    /// The limit of zones that have none of their own; 0 is none.
    pub fn default_zone_limit(&self) -> u32 {
        self.limits.default()
    }

    /// Sets the limit of zones that have none of their own; 0 is none.
    pub fn set_default_zone_limit(&self, limit: u32) {
        self.limits.set_default(limit);
    }

    /// Sets a zone's limit (0 is none), or goes back to the default one.
    pub fn set_zone_limit(&self, zone: u16, limit: Option<u32>) {
        self.limits.set(zone, limit);
    }

    /// A zone's limit and use.
    pub fn zone_limit(&self, zone: u16) -> ZoneLimit {
        self.limits.zone(zone)
    }

    /// The zones with a limit of their own, in their order.
    pub fn zone_limits(&self) -> Vec<ZoneLimit> {
        self.limits.zones()
    }

    /// The zones with connections, and how many.
    pub fn zones(&self) -> Vec<(u16, u32)> {
        self.limits.used_zones()
    }

    /// Events so far.
    pub fn statistics(&self) -> Statistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            expectations_refused: load(&self.alg.refused),
            announcements_ignored: load(&self.alg.ignored),
            ..self.counters.read()
        }
    }

    /// Connections with packets that an offload forwards.
    pub fn bypassed(&self) -> usize {
        self.table.bypasses.len()
    }

    /// Connections that helpers expect.
    pub fn expected(&self) -> usize {
        self.alg.len()
    }

    /// Bytes that connections and their table occupy.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// The next random number.
    pub(crate) fn random(&self) -> u64 {
        random::next(&mut self.random.fetch_add(random::STEP, Ordering::Relaxed))
    }

    /// Ends a connection; false if it has ended already. The caller is in a batch.
    pub(crate) fn end(&self, id: Id, why: Ended) -> bool {
        let Some((kind, bypassed)) = self.table.remove(id) else {
            return false;
        };
        if bypassed {
            self.table.bypasses.suspend(id);
        }
        self.limits.give(kind.zone());
        if kind.helper().is_some() {
            self.alg.forget(id);
        }
        self.counters.ended(why);
        true
    }

    /// Whether a connection is still the one that was meant, and half-open.
    pub(crate) fn is_half_open(&self, id: Id) -> bool {
        let half_open = |entry: &Entry| entry.stage.load(Ordering::Relaxed) & tcp::ASSURED == 0;
        self.table
            .entry(id.index)
            .is_some_and(|entry| entry.life() == id.life && half_open(entry))
    }
}
