//! The switch's shared tables behind [`dp::Slowpath`], which workers call.

use crate::captures::Captures;
use crate::clock::Clock;
use crate::exports::samples::Samples;
use crate::packets::Packets;
use crate::path_mtus::PathMtus;
use crate::protocols::frames::Frames;
use crate::protocols::links::Links;
use crate::reports::Reports;
use crate::tunnels;
use dp::{
    Answer, Carried, Change, Changes, Credit, Effect, Mask, PortNo, Punt, PuntReason, Slowpath, Translation, Upcall,
};
use long::Long;
use nanos::Nanos;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use switch::{Ignored, Secured, Switch};
use tokio::sync::Notify;
use tunnel::neighbour::Request;

mod decide;
mod log;
mod long;
#[cfg(test)]
#[path = "../tests/reference/mod.rs"]
mod reference;
#[cfg(test)]
mod tests;

telemetry::counters! {
    /// Stations that would have moved to another port, which had spent its budget of moves.
    pub(crate) MOVES_IGNORED = "mac_learning_moves_ignored";
    /// New stations that were not learned, because their port had spent its budget.
    pub(crate) NEW_IGNORED = "mac_learning_new_ignored";
}

/// The longest time that a worker waits for the lock of the tables for one packet. A change of
/// rules holds it for less, and then hands it over to a waiting thread.
const PATIENCE: Duration = Duration::from_micros(100);

/// How long a thread waits for the lock of the tables.
#[derive(Debug, PartialEq, Eq)]
enum Wait<'a> {
    Always,
    /// No longer than this. Waiting subtracts from it.
    Within(&'a mut Duration),
}

/// Whether a change of the tables applies queued reports of workers first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    /// Reports are applied before the change.
    First,
    /// Reports stay queued: the order does not matter.
    Waits,
}

/// Takes a lock, at once or within the time left.
fn lock_within<T>(
    left: &mut Duration,
    at_once: impl FnOnce() -> Option<T>,
    within: impl FnOnce(Duration) -> Option<T>,
) -> Option<T> {
    if let Some(locked) = at_once() {
        return Some(locked);
    }
    if left.is_zero() {
        return None;
    }
    let begun = Instant::now();
    let locked = within(*left);
    *left = left.saturating_sub(begun.elapsed());
    locked
}

/// The switch's tables. Every worker reads them in parallel; the control plane and the effects of
/// packets write them.
pub(crate) struct Shared {
    pub(crate) switch: RwLock<Switch>,
    pub(crate) changes: Arc<Changes>,
    pub(crate) clock: Clock,
    /// Packets for controllers.
    pub(crate) packets: Packets,
    /// Frames of control protocols.
    pub(crate) frames: Frames,
    /// What control protocols say of interfaces.
    pub(crate) links: Mutex<Links>,
    /// Copies for people who watch ports.
    pub(crate) captures: Captures,
    /// Samples for exporters.
    pub(crate) samples: Samples,
    /// Notified when packets may have added or ended rules.
    pub(crate) tables_changed: Notify,
    /// Reports of workers that came while the tables were locked.
    reports: Reports,
    /// Translations that take longer than a worker may wait.
    long: Arc<Long>,
    /// Megaflows match all fields (`upcall/disable-megaflows`).
    exact: AtomicBool,
    /// Number of threads that wait to change the tables.
    writers: AtomicUsize,
    /// The type of each port's bridge, for the log.
    types: Mutex<BTreeMap<PortNo, String>>,
    /// Neighbours of tunnels that are to be asked for; the switch asks for each once a second at
    /// most.
    neighbours: Mutex<Vec<Request>>,
    neighbours_wanted: Notify,
    /// What is told of packets of tunnels that are too big.
    pub(crate) path_mtus: PathMtus,
    failed: Mutex<Vec<PortNo>>,
    failed_notify: Notify,
    /// What port security has done, for the daemon.
    secured: Mutex<Vec<Secured>>,
    pub(crate) secured_notify: Notify,
    /// Notified when a member of a bond has another link.
    pub(crate) carriers_notify: Notify,
}

impl Shared {
    pub(crate) fn new(seed: u64) -> Arc<Shared> {
        Arc::new(Shared {
            switch: RwLock::new(Switch::new(seed)),
            changes: Arc::new(Changes::new()),
            clock: Clock::start(),
            packets: Packets::default(),
            frames: Frames::default(),
            links: Mutex::default(),
            captures: Captures::default(),
            samples: Samples::default(),
            tables_changed: Notify::new(),
            reports: Reports::default(),
            long: Arc::default(),
            exact: AtomicBool::new(false),
            writers: AtomicUsize::new(0),
            types: Mutex::default(),
            neighbours: Mutex::default(),
            neighbours_wanted: Notify::new(),
            path_mtus: PathMtus::default(),
            failed: Mutex::default(),
            failed_notify: Notify::new(),
            secured: Mutex::default(),
            secured_notify: Notify::new(),
            carriers_notify: Notify::new(),
        })
    }

    /// Lets later megaflows have wildcards, or not.
    pub(crate) fn set_megaflows(&self, enabled: bool) {
        self.exact.store(!enabled, Ordering::Relaxed);
    }

    fn as_wide_as_allowed(&self, mut translation: Translation) -> Translation {
        if self.exact.load(Ordering::Relaxed) {
            translation.mask = Mask::full();
        }
        translation
    }

    /// Sets the type of each port's bridge.
    pub(crate) fn set_types(&self, types: BTreeMap<PortNo, String>) {
        *self.types.lock() = types;
    }

    /// Logs an upcall and its answer. A packet that asks again is one upcall.
    #[cold]
    fn log(&self, upcall: &Upcall<'_>, answer: &Answer) {
        if !matches!(answer, Answer::Later | Answer::Busy) {
            let types = self.types.lock();
            let kind = types.get(&upcall.key.in_port()).map_or("netdev", String::as_str);
            log::miss(kind, upcall);
        }
        if let Answer::Cache(translation) = answer {
            log::added(upcall, translation);
        }
    }

    /// Runs `change` on the tables and publishes what it invalidates to the datapaths.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Switch, Nanos) -> Vec<Change>) {
        self.update_within(Wait::Always, Reported::First, change);
    }

    /// Locks the tables for reading.
    fn read_within(&self, left: &mut Duration) -> Option<RwLockReadGuard<'_, Switch>> {
        lock_within(left, || self.switch.try_read(), |left| self.switch.try_read_for(left))
    }

    /// As [`Shared::update`] if the tables can be locked in time; otherwise does nothing. Whether
    /// it ran `change`.
    fn update_within(
        &self,
        wait: Wait<'_>,
        reported: Reported,
        change: impl FnOnce(&mut Switch, Nanos) -> Vec<Change>,
    ) -> bool {
        let now = self.clock.now();
        self.writers.fetch_add(1, Ordering::Relaxed);
        let switch = match wait {
            Wait::Always => Some(self.switch.write()),
            Wait::Within(left) => lock_within(left, || self.switch.try_write(), |left| self.switch.try_write_for(left)),
        };
        self.writers.fetch_sub(1, Ordering::Relaxed);
        let Some(mut switch) = switch else { return false };
        if reported == Reported::First {
            self.changes.publish(&self.reports.apply(&mut switch, now));
        }
        self.update_locked(&mut switch, change, now);
        // A thread with many changes in a row would otherwise overtake every waiting worker.
        RwLockWriteGuard::unlock_fair(switch);
        true
    }

    /// As [`Shared::update`] if the tables are not locked; otherwise does nothing. Whether it ran
    /// `change`. Queued reports stay queued.
    fn try_update(&self, change: impl FnOnce(&mut Switch, Nanos) -> Vec<Change>) -> bool {
        let now = self.clock.now();
        let Some(mut switch) = self.switch.try_write() else {
            return false;
        };
        self.update_locked(&mut switch, change, now);
        true
    }

    /// The caller holds the lock: no thread may translate by the new tables before the changes are
    /// published.
    fn update_locked(&self, switch: &mut Switch, change: impl FnOnce(&mut Switch, Nanos) -> Vec<Change>, now: Nanos) {
        let before = tunnels::Counters::of(switch.tunnel_tables());
        self.changes.publish(&change(switch, now));
        let forgotten = switch.take_forgotten();
        self.packets.forget(&forgotten);
        self.samples.forget(&forgotten);
        count_ignored(switch.take_ignored());
        let secured = switch.take_secured();
        if !secured.is_empty() {
            self.secured.lock().extend(secured);
            self.secured_notify.notify_one();
        }
        before.count(switch.tunnel_tables());
        let requests = switch.take_neighbour_requests();
        if !requests.is_empty() {
            self.neighbours.lock().extend(requests);
            self.neighbours_wanted.notify_one();
        }
    }

    /// What port security has done since the last call.
    pub(crate) fn take_secured(&self) -> Vec<Secured> {
        std::mem::take(&mut *self.secured.lock())
    }

    /// Waits for neighbours of tunnels that are to be asked for, and takes them.
    pub(crate) async fn wanted_neighbours(&self) -> Vec<Request> {
        loop {
            let wanted = std::mem::take(&mut *self.neighbours.lock());
            if !wanted.is_empty() {
                return wanted;
            }
            self.neighbours_wanted.notified().await;
        }
    }

    /// Applies queued reports of workers.
    pub(crate) fn catch_up(&self) {
        while self.reports.any() {
            self.update(|_, _| Vec::new());
        }
    }

    /// Notifies controllers if effects may have added or ended rules.
    fn may_have_changed_tables(&self, effects: &[Effect]) {
        if effects.iter().any(|effect| matches!(effect, Effect::Context(_))) {
            self.tables_changed.notify_one();
        }
    }

    /// Waits for ports whose device failed, and takes them.
    pub(crate) async fn failed_ports(&self) -> Vec<PortNo> {
        loop {
            let failed = std::mem::take(&mut *self.failed.lock());
            if !failed.is_empty() {
                return failed;
            }
            self.failed_notify.notified().await;
        }
    }
}

impl Slowpath for Shared {
    fn upcall(&self, upcall: &Upcall<'_>, _now: Nanos) -> Translation {
        let translation = self.as_wide_as_allowed(self.translate(upcall));
        if log::is_on() {
            self.log(upcall, &Answer::Cache(translation.clone()));
        }
        translation
    }

    fn try_upcall(&self, upcall: &Upcall<'_>, _now: Nanos) -> Answer {
        let answer = match self.translate_soon(upcall) {
            Answer::Cache(translation) => Answer::Cache(self.as_wide_as_allowed(translation)),
            other => other,
        };
        if log::is_on() {
            self.log(upcall, &answer);
        }
        answer
    }

    fn refresh(&self, effects: &[Effect], _now: Nanos) {
        // Rules that packets add are added in the order of the packets.
        let comes_after = self.reports.any() && effects.iter().any(|effect| matches!(effect, Effect::Context(_)));
        if !comes_after && self.try_update(|switch, now| switch.apply(effects, now)) {
            self.may_have_changed_tables(effects);
        } else {
            self.reports.keep_effects(effects);
            self.tables_changed.notify_one();
        }
    }

    fn credit(&self, credits: &[(Credit, Carried)], now: Nanos) {
        // The datapath has a clock of its own: only the age of a packet is comparable.
        let here = self.clock.now();
        let on_this_clock = |(credit, carried): &(Credit, Carried)| {
            let ago = now.since(carried.used);
            let used = Nanos(here.0.saturating_sub(ago.as_nanos() as u64));
            (*credit, Carried { used, ..*carried })
        };
        let credits: Vec<_> = credits.iter().map(on_this_clock).collect();
        let apply = |switch: &mut Switch, _| {
            switch.credit_all(&credits);
            Vec::new()
        };
        if !self.try_update(apply) {
            self.reports.keep_credits(&credits);
        }
    }

    fn punt(&self, punt: &Punt<'_>, _now: Nanos) -> bool {
        match punt.reason {
            PuntReason::Controller => self.packets.push(punt),
            PuntReason::Sample => self.samples.push(punt),
            PuntReason::Capture => {
                self.captures.push(punt);
                true
            }
            PuntReason::PathMtu => self.path_mtus.push_frame(punt.packet),
            PuntReason::Lacp
            | PuntReason::Stp
            | PuntReason::Igmp
            | PuntReason::Bfd
            | PuntReason::Cfm
            | PuntReason::Lldp => self.frames.push(punt),
        }
    }

    fn port_failed(&self, port: PortNo) {
        self.failed.lock().push(port);
        self.failed_notify.notify_one();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.long.close();
    }
}

fn count_ignored(ignored: Ignored) {
    if ignored.moves > 0 {
        MOVES_IGNORED.add(ignored.moves);
    }
    if ignored.new > 0 {
        NEW_IGNORED.add(ignored.new);
    }
}
