//! A thread's handle on the connections: tracks packets, one by one or in batches.

use crate::alg::{Control, Helped, Helper};
use crate::bypass::is_bypassed;
use crate::commit::Commit;
use crate::conntrack::Conntrack;
use crate::counters::{Ended, Refusal};
use crate::nat::{self, Nat};
use crate::packet::{Before, Content, Invalid, Packet, Parsed, parse};
use crate::state::State;
use crate::table::entry::{Entry, Kind};
use crate::table::{Found, Id, Pin, Views};
use crate::tcp::Verdict;
use crate::timeout::{PolicyId, Timeout};
use crate::tuple::Tuple;
use crate::{datagram, sctp, tcp};
use nanos::Nanos;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Packets whose lookups are in flight together.
const BATCH: usize = 32;

/// What to do with packets: the arguments of the action `ct`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// The zone.
    pub zone: u16,
    /// Whether packets of new connections make one.
    pub commit: bool,
    /// Whether a connection ends whose reply direction the packet has, so that the packet begins a
    /// new one. Only with `commit`.
    pub force: bool,
    /// Value and mask for the connection's mark.
    pub mark: Option<(u32, u32)>,
    /// Value and mask for the connection's label.
    pub label: Option<(u128, u128)>,
    /// The timeout policy of new connections.
    pub policy: PolicyId,
    /// Address translation.
    pub nat: Option<Nat>,
    /// The helper that reads the packets of new connections.
    pub helper: Option<Helper>,
}

/// A connection, for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) Id);

impl ConnectionId {
    /// The id as a number; never 0.
    pub fn to_bits(self) -> u64 {
        (u64::from(self.0.life) << 32 | u64::from(self.0.index)) + 1
    }

    /// The id of this number; `None` of 0.
    pub fn from_bits(bits: u64) -> Option<ConnectionId> {
        let bits = bits.checked_sub(1)?;
        Some(ConnectionId(Id {
            index: bits as u32,
            life: (bits >> 32) as u32,
        }))
    }
}

/// What the tracker says about a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// `ct_state`.
    pub state: State,
    /// `ct_zone`.
    pub zone: u16,
    /// `ct_mark`.
    pub mark: u32,
    /// `ct_label`.
    pub label: u128,
    /// The connection's original tuple; of a data connection that of its control connection.
    pub original: Option<Tuple>,
    /// The connection.
    pub connection: Option<ConnectionId>,
    /// Whether addresses or ports in the packet changed.
    pub translated: bool,
    /// Whether another packet takes the place of this one: the next of [`Tracker::replaced`].
    pub replaced: bool,
    /// Why the packet belongs to no connection.
    pub invalid: Option<Invalid>,
    /// Why the connection was not committed. The packet is new; Open vSwitch's userspace datapath
    /// forwards it, and the kernel's drops it.
    pub refused: Option<Refusal>,
}

/// A thread's handle.
pub struct Tracker {
    pub(crate) shared: Arc<Conntrack>,
    pub(crate) views: Views,
    pub(crate) pin: Arc<Pin>,
    /// Its number among the handles.
    pub(crate) number: u32,
    /// The packets of a batch.
    batch: Box<[Read; BATCH]>,
    /// See [`Tracker::replaced`].
    replaced: RefCell<Vec<Vec<u8>>>,
}

/// How the packets of a batch are tracked.
struct How<'a> {
    request: &'a Request,
    now: Nanos,
    /// Nobody else counts packets.
    alone: bool,
    replaced: &'a RefCell<Vec<Vec<u8>>>,
}

/// A packet of a batch as it was read.
#[derive(Clone, Copy)]
struct Read {
    /// Blank where it failed.
    parsed: Parsed,
    failed: Option<Invalid>,
    /// The hash of its tuple.
    hash: u64,
}

impl Read {
    const BLANK: Read = Read {
        parsed: Parsed::BLANK,
        failed: None,
        hash: 0,
    };

    #[inline(always)]
    fn read(&mut self, shared: &Conntrack, zone: u16, packet: &Packet<'_>) {
        self.failed = parse(packet.data, packet.v6, packet.checksum, &mut self.parsed).err();
        self.hash = shared.table.hash(&self.parsed.tuple, zone);
    }
}

impl Tracker {
    pub(crate) fn new(shared: Arc<Conntrack>) -> Tracker {
        Tracker {
            views: shared.table.views(),
            pin: shared.table.epochs.register(),
            number: shared.number(),
            shared,
            batch: Box::new([Read::BLANK; BATCH]),
            replaced: RefCell::default(),
        }
    }

    /// What all handles share.
    pub fn conntrack(&self) -> &Arc<Conntrack> {
        &self.shared
    }

    /// Tracks a packet.
    pub fn track(&mut self, request: &Request, packet: &mut Packet<'_>, now: Nanos) -> Outcome {
        let mut outcome = [Outcome::default()];
        self.track_batch(request, std::slice::from_mut(packet), now, &mut outcome);
        outcome[0]
    }

    /// What takes the place of packets of the last batch, from the IP header on, in their order:
    /// lines of FTP behind NAT may have another length.
    #[inline]
    pub fn replaced(&mut self) -> &mut Vec<Vec<u8>> {
        self.replaced.get_mut()
    }

    /// Tracks packets in their order. The lookups of up to 32 packets wait for memory together.
    ///
    /// # Panics
    /// If there are fewer outcomes than packets.
    pub fn track_batch(&mut self, request: &Request, packets: &mut [Packet<'_>], now: Nanos, outcomes: &mut [Outcome]) {
        assert!(outcomes.len() >= packets.len(), "an outcome for each packet");
        let Tracker {
            shared,
            views,
            pin,
            number,
            batch,
            replaced,
        } = self;
        replaced.get_mut().clear();
        pin.enter(&shared.table.epochs);
        let how = How {
            request,
            now,
            alone: shared.counts_alone(*number, pin),
            replaced,
        };
        for (packets, outcomes) in packets.chunks_mut(BATCH).zip(outcomes.chunks_mut(BATCH)) {
            chunk(shared, views, batch, &how, packets, outcomes);
        }
        pin.leave();
    }
}

fn chunk(
    shared: &Conntrack,
    views: &mut Views,
    batch: &mut [Read; BATCH],
    how: &How<'_>,
    packets: &mut [Packet<'_>],
    outcomes: &mut [Outcome],
) {
    let batch = &mut batch[..packets.len()];
    for (packet, read) in packets.iter().zip(&mut *batch) {
        read.read(shared, how.request.zone, packet);
    }
    // Index 0 is that of no connection.
    let mut candidates = [0; BATCH];
    if batch.len() > 1 {
        // All loads before the first use: the misses of the batch are in flight together.
        for (read, candidate) in batch.iter().zip(&mut candidates) {
            *candidate = shared.table.touch_slots(views, read.hash).unwrap_or(0);
        }
        for candidate in &candidates[..batch.len()] {
            shared.table.touch_entry(*candidate);
        }
    }
    let reads = batch.iter().zip(candidates);
    for ((packet, read), outcome) in packets.iter_mut().zip(reads).zip(outcomes) {
        decide(shared, views, how, packet, read, outcome);
    }
}

#[inline]
fn decide(
    shared: &Conntrack,
    views: &mut Views,
    how: &How<'_>,
    packet: &mut Packet<'_>,
    (read, candidate): (&Read, u32),
    outcome: &mut Outcome,
) {
    let How { request, now, .. } = *how;
    if let Some(why) = read.failed {
        *outcome = invalid(shared, request.zone, why);
        return;
    }
    let (parsed, hash) = (&read.parsed, read.hash);
    let kind = Kind::new(&parsed.tuple, request.zone, request.policy.0);
    let candidate = match candidate {
        0 => None,
        index => shared.table.try_index(index, &parsed.tuple, kind, now.0),
    };
    let found = candidate
        .or_else(|| shared.table.find(views, hash, &parsed.tuple, kind, now.0))
        .or_else(|| translated_before(shared, views, request.zone, packet, kind, now));
    if let Some(found) = found
        && let Some(entry) = shared.table.entry(found.index)
    {
        match request.commit && request.force && found.reply {
            false => {
                if known(shared, how, packet, parsed, found, entry, outcome) {
                    return;
                }
            }
            true => replace(shared, found.index, entry),
        }
    }
    *outcome = unknown(shared, request, packet, parsed, hash, now);
}

/// The connection of a packet that was translated in this zone before.
#[inline]
fn translated_before(
    shared: &Conntrack,
    views: &mut Views,
    zone: u16,
    packet: &Packet<'_>,
    kind: Kind,
    now: Nanos,
) -> Option<Found> {
    let before = packet.before.as_ref().filter(|before| was_translated(before, zone))?;
    let reply = before.state.has(State::RPL);
    if let Some(ConnectionId(id)) = before.connection
        && let Some(entry) = shared.table.entry(id.index)
        && entry.life() == id.life
        && entry.kind().zone() == zone
    {
        let index = id.index;
        return Some(Found { index, reply });
    }
    // Of a related packet the tuple is that of another connection.
    if before.state.has(State::REL) {
        return None;
    }
    let hash = shared.table.hash(&before.original, zone);
    let found = shared.table.find(views, hash, &before.original, kind, now.0)?;
    Some(Found { reply, ..found })
}

/// A packet of no connection.
#[cold]
fn unknown(
    shared: &Conntrack,
    request: &Request,
    packet: &mut Packet<'_>,
    parsed: &Parsed,
    hash: u64,
    now: Nanos,
) -> Outcome {
    let pickup = shared.picks_up();
    let begun = match &parsed.content {
        Content::Error(_) => return invalid(shared, request.zone, Invalid::Unrelated),
        Content::Tcp(segment) => tcp::begin(segment, pickup).map(|(tcp, timeout)| {
            let (sides, stage) = tcp.pack();
            (sides, stage, timeout)
        }),
        Content::Sctp(chunk) => sctp::begin(chunk, pickup),
        Content::Echo { request: false } => None,
        Content::Echo { request: true } | Content::Datagram => {
            let (stage, timeout) = datagram::begin(parsed.tuple.is_icmp());
            Some(([0; 2], stage, timeout))
        }
    };
    let Some((sides, stage, timeout)) = begun else {
        return invalid(shared, request.zone, Invalid::Beginning);
    };
    let expected = shared.alg.find(&parsed.tuple, request.zone, now);
    let related = if expected.is_some() { State::REL } else { State::NONE };
    let new = Outcome {
        state: State::NEW | State::TRK | related,
        zone: request.zone,
        mark: expected.map_or(0, |expected| expected.mark),
        label: expected.map_or(0, |expected| expected.label),
        original: Some(expected.map_or(parsed.tuple, |expected| expected.parent)),
        ..Outcome::default()
    };
    if !request.commit {
        return new;
    }
    let commit = Commit {
        tuple: parsed.tuple,
        hash,
        sides,
        stage,
        timeout,
        bytes: parsed.end as u64,
        in_port: packet.in_port,
        mark: masked(new.mark, request.mark),
        label: request
            .label
            .map_or(new.label, |(value, mask)| new.label & !mask | value & mask),
        expected,
    };
    match shared.commit(request, &commit, now) {
        Ok((id, translated)) => {
            if let Some((to, _)) = &translated {
                nat::translate(packet.data, parsed, to, packet.checksum);
            }
            if let Some(entry) = shared.table.entry(id.index) {
                // The first packet has no line before the answer of the other side.
                help(shared, packet, parsed, id, entry, false, now);
            }
            Outcome {
                state: new.state | translated.map_or(State::NONE, |(_, state)| state),
                translated: translated.is_some_and(|(to, _)| to != parsed.tuple),
                mark: commit.mark,
                label: commit.label,
                connection: Some(ConnectionId(id)),
                ..new
            }
        }
        Err(refusal) => {
            shared.counters.refused(refusal);
            Outcome {
                refused: Some(refusal),
                ..new
            }
        }
    }
}

/// A packet of a connection; false if the connection is over and the packet begins another one.
#[inline]
fn known(
    shared: &Conntrack,
    how: &How<'_>,
    packet: &mut Packet<'_>,
    parsed: &Parsed,
    found: Found,
    entry: &Entry,
    outcome: &mut Outcome,
) -> bool {
    let kind = entry.kind();
    match kind.helper() {
        None => pass(shared, how, packet, parsed, found, (entry, kind), outcome),
        Some(helper) => helped(shared, how, packet, parsed, found, (entry, helper), outcome),
    }
}

/// The same of a control connection.
#[cold]
#[inline(never)]
fn helped(
    shared: &Conntrack,
    how: &How<'_>,
    packet: &mut Packet<'_>,
    parsed: &Parsed,
    found: Found,
    (entry, helper): (&Entry, Helper),
    outcome: &mut Outcome,
) -> bool {
    let kind = entry.kind();
    let id = Id {
        index: found.index,
        life: entry.life(),
    };
    let again = packet
        .before
        .as_ref()
        .is_some_and(|before| was_translated(before, how.request.zone));
    let mut own = *parsed;
    if let (Helper::Ftp, Content::Tcp(segment)) = (helper, &mut own.content) {
        shared.alg.own_numbers(id, found.reply, again, segment);
    }
    if !pass(shared, how, packet, &own, found, (entry, kind), outcome) {
        return false;
    }
    // A packet is read, and its lines are changed, where it is translated.
    let here = !kind.is_translated() || how.request.nat.is_some() && !again;
    if outcome.invalid.is_none() && here {
        match help(shared, packet, parsed, id, entry, found.reply, how.now) {
            Helped::Unchanged => {}
            Helped::Replaced(new) => {
                how.replaced.borrow_mut().push(new);
                outcome.replaced = true;
            }
            Helped::Cut => {
                shared.counters.invalid(Invalid::OutOfState);
                outcome.state = State::TRK | State::INV;
                outcome.invalid = Some(Invalid::OutOfState);
            }
        }
    }
    true
}

#[inline]
fn pass(
    shared: &Conntrack,
    how: &How<'_>,
    packet: &mut Packet<'_>,
    parsed: &Parsed,
    found: Found,
    (entry, kind): (&Entry, Kind),
    outcome: &mut Outcome,
) -> bool {
    let How {
        request, now, alone, ..
    } = *how;
    let reply = if found.reply { State::RPL } else { State::NONE };
    let check = shared.checks_sequence();
    let life = entry.life();
    let id = Id {
        index: found.index,
        life,
    };
    if is_bypassed(entry) {
        shared.catch_up(id, entry);
    }
    let verdict = match &parsed.content {
        Content::Tcp(segment) => tcp::update(&entry.sides, &entry.stage, segment, found.reply, check),
        Content::Sctp(chunk) => sctp::update(&entry.sides, &entry.stage, chunk, found.reply, check),
        Content::Datagram => datagram::update(&entry.stage, false, found.reply),
        Content::Echo { .. } => datagram::update(&entry.stage, true, found.reply),
        Content::Error(_) => Verdict::Tolerated,
    };
    let mut state = State::TRK;
    match verdict {
        Verdict::Valid(timeout) => {
            state |= State::EST | reply;
            stay(shared, entry, kind, timeout, now);
        }
        Verdict::New(timeout) => {
            state |= State::NEW;
            stay(shared, entry, kind, timeout, now);
        }
        Verdict::Tolerated if matches!(parsed.content, Content::Error(_)) => state |= State::REL | reply,
        Verdict::Tolerated => state |= State::EST | reply,
        Verdict::Reborn => {
            replace(shared, found.index, entry);
            return false;
        }
        Verdict::Invalid => {
            state |= State::INV;
            shared.counters.invalid(Invalid::OutOfState);
        }
    }
    let valid = verdict != Verdict::Invalid;
    if valid {
        if kind.has(Kind::RELATED) {
            state |= State::REL;
        }
        let side = usize::from(found.reply);
        add(&entry.packets[side], 1, alone);
        add(&entry.bytes[side], parsed.end as u64, alone);
        if request.mark.is_some() || request.label.is_some() {
            shared.set_marks(request, found.index, entry);
        }
    }
    if is_bypassed(entry) {
        shared.came_here(id, entry);
        if let Verdict::Valid(timeout) = verdict {
            stay(shared, entry, kind, timeout, now);
        }
    }
    let mut translated = false;
    if valid && kind.is_translated() {
        if let Some(before) = packet
            .before
            .as_ref()
            .filter(|before| was_translated(before, request.zone))
        {
            state |= before.state & (State::SNAT | State::DNAT);
        } else if request.nat.is_some() {
            state |= translation(kind);
            let (original, answer) = shared.table.tuples(entry);
            let to = if found.reply {
                original.reverse()
            } else {
                answer.reverse()
            };
            nat::translate(packet.data, parsed, &to, packet.checksum);
            translated = true;
        }
    }
    outcome.state = state;
    outcome.zone = request.zone;
    outcome.mark = entry.mark();
    outcome.label = entry.label();
    outcome.original = Some(original(shared, entry, kind));
    outcome.connection = Some(ConnectionId(id));
    outcome.translated = translated;
    outcome.replaced = false;
    outcome.invalid = (!valid).then_some(Invalid::OutOfState);
    outcome.refused = None;
    true
}

/// Hands a packet of a control connection to its helper, which gets its numbers as its sender has
/// them.
#[cold]
fn help(
    shared: &Conntrack,
    packet: &Packet<'_>,
    parsed: &Parsed,
    id: Id,
    entry: &Entry,
    reply: bool,
    now: Nanos,
) -> Helped {
    let Some(helper) = entry.kind().helper() else {
        return Helped::Unchanged;
    };
    let (original, answer) = shared.table.tuples(entry);
    let control = Control {
        id,
        entry,
        zone: entry.kind().zone(),
        original,
        reply: answer,
        mark: entry.mark(),
        label: entry.label(),
        from_server: reply,
    };
    let data = &*packet.data;
    match (helper, &parsed.content) {
        (Helper::Ftp, Content::Tcp(segment)) => {
            return shared
                .alg
                .read_ftp(&control, (data, packet.checksum), parsed, segment, now);
        }
        (Helper::Tftp, Content::Datagram) => shared.alg.read_tftp(&control, &data[parsed.l4 + 8..parsed.end], now),
        _ => {}
    }
    Helped::Unchanged
}

pub(crate) fn masked(old: u32, change: Option<(u32, u32)>) -> u32 {
    change.map_or(old, |(value, mask)| old & !mask | value & mask)
}

/// The bits of `ct_state` of a translated connection.
pub(crate) fn translation(kind: Kind) -> State {
    let source = if kind.has(Kind::SNAT) { State::SNAT } else { State::NONE };
    let destination = if kind.has(Kind::DNAT) { State::DNAT } else { State::NONE };
    source | destination
}

/// Whether an earlier pass translated the packet in this zone.
pub(crate) fn was_translated(before: &Before, zone: u16) -> bool {
    before.zone == zone && before.state.has_any(State::SNAT | State::DNAT)
}

/// The tuple that stands in the packet's metadata.
#[inline]
pub(crate) fn original(shared: &Conntrack, entry: &Entry, kind: Kind) -> Tuple {
    if kind.has(Kind::RELATED)
        && let Some(parent) = shared.table.parent(entry)
    {
        return parent;
    }
    shared.table.tuples(entry).0
}

/// Adds to a count.
#[inline]
fn add(count: &AtomicU64, more: u64, alone: bool) {
    match alone {
        true => count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed),
        false => _ = count.fetch_add(more, Ordering::Relaxed),
    }
}

#[inline]
fn stay(shared: &Conntrack, entry: &Entry, kind: Kind, timeout: Timeout, now: Nanos) {
    let deadline = shared.policies.deadline(kind.policy(), timeout, now);
    entry.expires.store(deadline, Ordering::Relaxed);
}

/// Ends the connection that a packet begins anew.
#[cold]
fn replace(shared: &Conntrack, index: u32, entry: &Entry) {
    let life = entry.life();
    shared.end(Id { index, life }, Ended::Replaced);
}

fn invalid(shared: &Conntrack, zone: u16, why: Invalid) -> Outcome {
    shared.counters.invalid(why);
    Outcome {
        state: State::INV | State::TRK,
        zone,
        invalid: Some(why),
        ..Outcome::default()
    }
}
