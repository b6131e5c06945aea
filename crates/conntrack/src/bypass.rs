//! Connections with packets that an offload forwards without the tracker.
//!
//! A [`Bypass`] has a number for each such connection, and knows by it what has passed: counts, the
//! time of the last packet, and the numbers of TCP. [`Tracker::bypass`] opens a connection for it,
//! and its [`Bypassing`] closes it.
//!
//! Invariants
//! - The connection is established in both directions, and has no helper.
//! - Before a change or the end of the connection is acknowledged, the bypass is suspended: its
//!   mark or label, its state, a flush, its timeouts, the switch of sequence checks.
//! - Whoever reads the connection's numbers or its time of expiry first catches up with the bypass.
//!   So a packet that comes here meets the numbers of those that passed by, and only those decide.
//! - The bypass gets the numbers of packets that come here, so that it does not stay behind.
//! - Packets that passed by are counted in the connection when it is closed; until then whoever
//!   shows its counts adds them.

use crate::conntrack::Conntrack;
use crate::packet::Before;
use crate::state::State;
use crate::table::Id;
use crate::table::entry::{Entry, Kind};
use crate::tcp::{self, TcpState, WindowScale};
use crate::timeout::Timeout;
use crate::tracker::{ConnectionId, Request, Tracker, masked, original, translation, was_translated};
use crate::tuple::{TCP, Tuple, UDP};
use nanos::Nanos;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// In the stage word: packets may pass by the tracker.
pub(crate) const BYPASSED: u64 = 1 << 63;

/// Forwards packets of connections without the tracker. The numbers are its own.
pub trait Bypass: Send + Sync {
    /// What has passed of a connection.
    fn passed(&self, number: u32) -> Passed;

    /// Notes the numbers of both sides, as far as they are behind those that it knows.
    fn note(&self, number: u32, numbers: [Numbers; 2]);

    /// Gives the packets of a connection back to the tracker, at once.
    fn suspend(&self, number: u32);

    /// Takes the number back. No packet of the connection passes any more.
    fn free(&self, number: u32);

    /// Whether more than one user can open a connection for it.
    fn is_shared(&self) -> bool {
        true
    }
}

/// What has passed of a connection since it got its number. Directions and sides are in the order
/// original, reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Packets of each direction.
    pub packets: [u64; 2],
    /// Bytes of their IP packets.
    pub bytes: [u64; 2],
    /// When the last one passed.
    pub used: Nanos,
    /// Of TCP, what each side has done.
    pub numbers: [Numbers; 2],
}

/// Bounds for the packets of a side of TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The sequence number behind the last one that it sent.
    pub low: u32,
    /// The sequence number up to which its peer lets it send.
    pub high: u32,
    /// Its largest window, unscaled.
    pub window: u16,
}

impl Numbers {
    /// With the later ones of both.
    #[must_use]
    pub fn later(self, other: Numbers) -> Numbers {
        let later = |a: u32, b: u32| if tcp::before(a, b) { b } else { a };
        Numbers {
            low: later(self.low, other.low),
            high: later(self.high, other.high),
            window: self.window.max(other.window),
        }
    }
}

/// What the tracker would say of packets that an offload could forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    /// The connection.
    pub connection: ConnectionId,
    /// Whether they go in the reply direction.
    pub reply: bool,
    /// `ct_state`.
    pub state: State,
    /// `ct_mark`.
    pub mark: u32,
    /// `ct_label`.
    pub label: u128,
    /// What `ct_nw_src` and the like say.
    pub original: Tuple,
    /// The tuple that they get.
    pub to: Tuple,
    /// Of TCP, how the numbers of packets are checked.
    pub tcp: Option<Checks>,
}

/// How the numbers of TCP's packets are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Whether they decide; they are noted in any case.
    pub decide: bool,
    /// Shifts of the windows of the sender and the receiver.
    pub shifts: [u8; 2],
}

/// A connection that is open for a bypass, as long as this is there.
pub struct Bypassing {
    shared: Arc<Conntrack>,
    of: Arc<Bypassed>,
}

/// The connections that are open.
#[derive(Default)]
pub(crate) struct Bypasses {
    /// With the number of users. Locked behind a shard, and before [`Bypassed::known`].
    open: Mutex<HashMap<Id, (Arc<Bypassed>, u32)>>,
    count: AtomicUsize,
}

pub(crate) struct Bypassed {
    id: Id,
    shard: usize,
    kind: Kind,
    via: Arc<dyn Bypass>,
    number: u32,
    /// Nanoseconds from a packet to the end of the connection.
    timeout: AtomicU64,
    /// What has passed that the connection knows of; `None` when it is closed.
    known: Mutex<Option<Known>>,
}

/// What had passed when a connection last caught up with its bypass.
#[derive(Clone, Copy, Default)]
struct Known {
    used: Nanos,
    bytes: [u64; 2],
}

/// From so many bytes on, sequence numbers do not say which of two is the later one: with a window
/// of up to 1 GiB before and after, they may have moved by half of all numbers.
const FAR: u64 = 1 << 29;

impl Known {
    /// Whether so much of each direction has passed since that its numbers cannot be compared with
    /// those from then.
    fn is_far(&self, passed: &Passed) -> [bool; 2] {
        [0, 1].map(|n: usize| passed.bytes[n].wrapping_sub(self.bytes[n]) >= FAR)
    }
}

impl Bypassing {
    /// The bypass's number of the connection.
    pub fn number(&self) -> u32 {
        self.of.number
    }

    /// The connection.
    pub fn connection(&self) -> ConnectionId {
        ConnectionId(self.of.id)
    }
}

impl Drop for Bypassing {
    fn drop(&mut self) {
        self.shared.close(&self.of);
    }
}

impl Tracker {
    /// What it would say of packets with this tuple, if they were those of a connection that
    /// packets can bypass, and neither SYN nor FIN nor RST; `None` for others, and where a packet
    /// would change the connection.
    pub fn established(
        &mut self,
        request: &Request,
        tuple: &Tuple,
        before: Option<&Before>,
        now: Nanos,
    ) -> Option<Established> {
        if request.force || before.is_some_and(|before| was_translated(before, request.zone)) {
            return None;
        }
        let shared = self.shared.clone();
        self.pin.enter(&shared.table.epochs);
        let kind = Kind::new(tuple, request.zone, 0);
        let hash = shared.table.hash(tuple, request.zone);
        let found = shared.table.find(&mut self.views, hash, tuple, kind, now.0);
        let established = found.and_then(|found| {
            let entry = shared.table.entry(found.index)?;
            let id = Id {
                index: found.index,
                life: entry.life(),
            };
            shared.look(request, tuple, id, found.reply, entry)
        });
        self.pin.leave();
        established
    }

    /// Opens a connection for a bypass, `open` with a number of its own if none has opened it yet;
    /// `None` if packets cannot bypass it.
    pub fn bypass(
        &mut self,
        connection: ConnectionId,
        open: impl FnOnce() -> Option<(Arc<dyn Bypass>, u32)>,
    ) -> Option<Bypassing> {
        let shared = self.shared.clone();
        self.pin.enter(&shared.table.epochs);
        // Who counts alone is told that others may: packets that passed by are counted by this
        // thread when the connection is closed.
        shared.counts_alone(self.number, &self.pin);
        let of = shared.open(connection.0, open);
        self.pin.leave();
        Some(Bypassing { of: of?, shared })
    }
}

impl Conntrack {
    fn look(&self, request: &Request, tuple: &Tuple, id: Id, reply: bool, entry: &Entry) -> Option<Established> {
        let kind = entry.kind();
        let stage = entry.stage.load(Ordering::Acquire);
        if !can_bypass(kind, stage) {
            return None;
        }
        let (mark, label) = (entry.mark(), entry.label());
        let same_label = request.label.is_none_or(|(value, mask)| (label ^ value) & mask == 0);
        if masked(mark, request.mark) != mark || !same_label {
            return None;
        }
        let mut state = State::TRK | State::EST;
        if reply {
            state |= State::RPL;
        }
        if kind.has(Kind::RELATED) {
            state |= State::REL;
        }
        let mut to = *tuple;
        if kind.is_translated() && request.nat.is_some() {
            state |= translation(kind);
            let (original, answer) = self.table.tuples(entry);
            to = if reply { original.reverse() } else { answer.reverse() };
        }
        let shifts = |sides: [tcp::Side; 2]| {
            let [src, dst] = if reply { [1, 0] } else { [0, 1] }.map(|n: usize| sides[n].scale);
            match (src, dst) {
                (WindowScale::Shift(a), WindowScale::Shift(b)) => [a, b],
                (WindowScale::Unknown, WindowScale::Unknown) => [tcp::MAX_SHIFT; 2],
                _ => [0, 0],
            }
        };
        let tcp = (kind.protocol() == TCP).then(|| Checks {
            decide: self.checks_sequence(),
            shifts: shifts(tcp::Tcp::unpack([0; 2], stage).sides),
        });
        let established = Established {
            connection: ConnectionId(id),
            reply,
            state,
            mark,
            label,
            original: original(self, entry, kind),
            to,
            tcp,
        };
        // Otherwise the words may be those of another connection.
        (entry.life() == id.life).then_some(established)
    }

    fn open(&self, id: Id, open: impl FnOnce() -> Option<(Arc<dyn Bypass>, u32)>) -> Option<Arc<Bypassed>> {
        let entry = self.table.entry(id.index)?;
        let kind = entry.kind();
        let (original, _) = self.table.tuples(entry);
        let shard = self.table.shard(self.table.hash(&original, kind.zone()));
        let _locked = self.table.lock_shard(shard);
        if id.life & 1 == 0 || entry.life() != id.life || !can_bypass(kind, entry.stage.load(Ordering::Acquire)) {
            return None;
        }
        let mut all = self.table.bypasses.open.lock();
        if let Some((of, users)) = all.get_mut(&id) {
            if !of.via.is_shared() {
                return None;
            }
            *users += 1;
            return Some(of.clone());
        }
        let (via, number) = open()?;
        // Whoever changes the connection from here on suspends the bypass.
        entry.stage.fetch_or(BYPASSED, Ordering::AcqRel);
        let of = Arc::new(Bypassed {
            id,
            shard,
            kind,
            timeout: AtomicU64::new(self.timeout_of(kind)),
            known: Mutex::new(Some(Known::default())),
            via,
            number,
        });
        of.via.note(number, numbers(entry));
        all.insert(id, (of.clone(), 1));
        self.table.bypasses.count.store(all.len(), Ordering::Relaxed);
        Some(of)
    }

    fn close(&self, of: &Arc<Bypassed>) {
        let _locked = self.table.lock_shard(of.shard);
        let mut all = self.table.bypasses.open.lock();
        let Some((_, users)) = all.get_mut(&of.id) else { return };
        *users -= 1;
        if *users > 0 {
            return;
        }
        // Until it is done, who has a packet of the connection waits for the lock and does not take
        // the connection's own numbers for the last ones.
        if let Some(entry) = self.table.entry(of.id.index).filter(|entry| entry.life() == of.id.life)
            && let Some(passed) = of.catch_up(entry)
        {
            for n in 0..2 {
                entry.packets[n].fetch_add(passed.packets[n], Ordering::Relaxed);
                entry.bytes[n].fetch_add(passed.bytes[n], Ordering::Relaxed);
            }
            entry.stage.fetch_and(!BYPASSED, Ordering::AcqRel);
        }
        *of.known.lock() = None;
        of.via.free(of.number);
        all.remove(&of.id);
        self.table.bypasses.count.store(all.len(), Ordering::Relaxed);
    }

    /// The nanoseconds that a connection that packets bypass lasts after one.
    fn timeout_of(&self, kind: Kind) -> u64 {
        let timeout = match kind.protocol() {
            TCP => Timeout::TcpEstablished,
            _ => Timeout::UdpMultiple,
        };
        self.policies.deadline(kind.policy(), timeout, Nanos::ZERO)
    }

    /// Lets connections catch up with their bypasses, before timeouts change.
    pub(crate) fn catch_up_all(&self) {
        for of in self.table.bypasses.all() {
            let _locked = self.table.lock_shard(of.shard);
            let entry = self.table.entry(of.id.index);
            if let Some(entry) = entry.filter(|entry| entry.life() == of.id.life) {
                of.catch_up(entry);
            }
        }
    }

    /// Suspends all bypasses, after a change of a setting; timeouts are read again.
    pub(crate) fn suspend_all(&self) {
        for of in self.table.bypasses.all() {
            of.timeout.store(self.timeout_of(of.kind), Ordering::Relaxed);
            of.via.suspend(of.number);
        }
    }

    /// Lets a connection catch up with its bypass before a packet of it is looked at here. The
    /// caller is in a batch.
    #[cold]
    pub(crate) fn catch_up(&self, id: Id, entry: &Entry) -> Option<Passed> {
        self.table.bypasses.get(id)?.catch_up(entry)
    }

    /// The number that a connection's bypass has for it.
    pub(crate) fn bypass_number(&self, id: Id) -> Option<u32> {
        Some(self.table.bypasses.get(id)?.number)
    }

    /// Says to the bypass of a connection that a packet of it was looked at here: suspends it if
    /// the connection is not established any more. Whoever catches up from then on does not let
    /// that last longer; the caller sets its time of expiry again, in case that someone just did.
    #[cold]
    pub(crate) fn came_here(&self, id: Id, entry: &Entry) {
        let Some(of) = self.table.bypasses.get(id) else { return };
        let known = of.known.lock();
        let Some(known) = &*known else { return };
        if !can_bypass(of.kind, entry.stage.load(Ordering::Acquire)) {
            of.via.suspend(of.number);
        } else if of.kind.protocol() == TCP && known.is_far(&of.via.passed(of.number)) == [false; 2] {
            // Otherwise it has left behind the numbers that it would get.
            of.via.note(of.number, numbers(entry));
        }
    }
}

impl Bypasses {
    fn get(&self, id: Id) -> Option<Arc<Bypassed>> {
        self.open.lock().get(&id).map(|(of, _)| of.clone())
    }

    fn all(&self) -> Vec<Arc<Bypassed>> {
        self.open.lock().values().map(|(of, _)| of.clone()).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Suspends the bypass of a connection that has ended or changed.
    #[cold]
    pub(crate) fn suspend(&self, id: Id) {
        if let Some(of) = self.get(id) {
            of.via.suspend(of.number);
        }
    }

    /// Whether a connection whose time seems to be over lasts, by packets that passed by. The
    /// caller is in a batch, or has its shard locked.
    #[cold]
    pub(crate) fn keeps(&self, index: u32, entry: &Entry, now: u64) -> bool {
        if !is_bypassed(entry) {
            return false;
        }
        let life = entry.life();
        if let Some(of) = self.get(Id { index, life }) {
            of.catch_up(entry);
        }
        entry.expires.load(Ordering::Relaxed) > now
    }
}

impl Bypassed {
    /// Lets the connection last as if what has passed had passed here, and gives it the numbers of
    /// that. `None` if it is closed.
    fn catch_up(&self, entry: &Entry) -> Option<Passed> {
        let mut known = self.known.lock();
        let known = known.as_mut()?;
        let passed = self.via.passed(self.number);
        // A packet that passed by just before the end of the connection does not keep it.
        if passed.used > known.used && can_bypass(self.kind, entry.stage.load(Ordering::Acquire)) {
            let deadline = passed.used.0 + self.timeout.load(Ordering::Relaxed);
            // A worker may have seen a later packet.
            entry.expires.fetch_max(deadline, Ordering::Relaxed);
        }
        known.used = known.used.max(passed.used);
        let far = known.is_far(&passed);
        if self.kind.protocol() != TCP || tcp::catch_up(&entry.sides, &entry.stage, passed.numbers, far) {
            known.bytes = passed.bytes;
        }
        Some(passed)
    }
}

/// Whether packets of a connection may pass by the tracker now.
#[inline]
pub(crate) fn is_bypassed(entry: &Entry) -> bool {
    entry.stage.load(Ordering::Relaxed) & BYPASSED != 0
}

/// Whether packets of a connection in this state change nothing but counts, times and numbers.
fn can_bypass(kind: Kind, stage: u64) -> bool {
    kind.helper().is_none()
        && match kind.protocol() {
            TCP => {
                let sides = tcp::Tcp::unpack([0; 2], stage).sides;
                sides.iter().all(|side| side.state == TcpState::Established)
            }
            UDP => stage & tcp::ASSURED != 0,
            _ => false,
        }
}

fn numbers(entry: &Entry) -> [Numbers; 2] {
    let sides = [0, 1].map(|n: usize| entry.sides[n].load(Ordering::Acquire));
    let tcp = tcp::Tcp::unpack(sides, entry.stage.load(Ordering::Acquire));
    tcp.sides.map(|side| Numbers {
        low: side.low,
        high: side.high,
        window: side.window,
    })
}
