//! Connections that one process leaves and the next one takes over.
//!
//! A record is a sequence of 64-bit words, least byte first. What it says is checked as if a
//! stranger had written it.

use crate::bypass::{BYPASSED, is_bypassed};
use crate::connection::Cursor;
use crate::conntrack::Conntrack;
use crate::table::Id;
use crate::table::entry::{Birth, Entry, Kind};
use crate::tcp::ASSURED;
use crate::timeout::PolicyId;
use crate::tracker::{ConnectionId, Tracker};
use crate::tuple::Tuple;
use nanos::Nanos;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Entries of the table in one step of a walk.
const STEP: usize = 4096;

/// The longest timeout that a policy can have.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

/// What [`Tracker::take_over`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// Connections that go on.
    pub connections: usize,
    /// Records that were not legal, or had no room.
    pub refused: usize,
    /// Of those that go on, the ones that packets bypass, with the number of their bypass.
    pub bypassed: Vec<(ConnectionId, u32)>,
}

/// A connection to take over.
struct Record {
    birth: Birth,
    packets: [u64; 2],
    bytes: [u64; 2],
    /// The number of its bypass.
    bypass: Option<u32>,
}

impl Tracker {
    /// Gives the records of all connections to `write`, one after the other. Connections catch up
    /// with their bypasses before. `bypasses_stay`: they go on, and count on by themselves.
    ///
    /// # Errors
    /// That of `write`, which is not called again.
    pub fn hand_over<E>(
        &mut self,
        bypasses_stay: bool,
        now: Nanos,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let (mut number, mut at) = (0, Some(Cursor::default()));
        let mut failed = None;
        while let (Some(from), None) = (at, &failed) {
            at = self.walk(from, STEP, |shared, id, entry| {
                if failed.is_none() && !shared.table.has_expired(id.index, entry, now.0) {
                    let words = shared.record(id, entry, bypasses_stay, now);
                    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                    match write(&bytes) {
                        Ok(()) => number += 1,
                        Err(error) => failed = Some(error),
                    }
                }
            });
        }
        failed.map_or(Ok(number), Err)
    }

    /// Takes over the connections of these records, which were written so long ago. `policy` says
    /// which timeout policy a zone has. `bypasses_stay`: what packets bypassed connections by is
    /// still known; otherwise their numbers may be behind, and they are refused. What is behind a
    /// record that is cut off is left out.
    pub fn take_over(
        &mut self,
        mut records: &[u8],
        bypasses_stay: bool,
        ago: Duration,
        now: Nanos,
        policy: impl Fn(u16) -> PolicyId,
    ) -> TakenOver {
        let shared = self.shared.clone();
        let mut done = TakenOver::default();
        while let Some(record) = read(&mut records, ago, now, &policy) {
            self.pin.enter(&shared.table.epochs);
            let record = record.filter(|record| bypasses_stay || record.bypass.is_none());
            let bypass = record.as_ref().and_then(|record| record.bypass);
            match record.and_then(|record| shared.adopt(&record)) {
                Some(id) => {
                    done.connections += 1;
                    done.bypassed.extend(bypass.map(|number| (ConnectionId(id), number)));
                }
                None => done.refused += 1,
            }
            self.pin.leave();
        }
        done
    }
}

impl Conntrack {
    /// The words of a connection's record. The caller is in a batch.
    fn record(&self, id: Id, entry: &Entry, bypasses_stay: bool, now: Nanos) -> Vec<u64> {
        let passed = is_bypassed(entry).then(|| self.catch_up(id, entry)).flatten();
        let staying = passed.filter(|_| bypasses_stay).and_then(|_| self.bypass_number(id));
        let passed = passed.filter(|_| staying.is_none()).unwrap_or_default();
        let load = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        let (original, reply) = self.table.tuples(entry);
        let kind = entry.kind();
        let mut words = Vec::new();
        words.push(kind.lasting());
        put(&mut words, &original);
        put(&mut words, &reply);
        words.extend(entry.sides.each_ref().map(load));
        words.push(load(&entry.stage) & !BYPASSED);
        words.push(load(&entry.expires).saturating_sub(now.0));
        for n in 0..2 {
            words.push(load(&entry.packets[n]).wrapping_add(passed.packets[n]));
            words.push(load(&entry.bytes[n]).wrapping_add(passed.bytes[n]));
        }
        words.push(staying.map_or(0, |number| u64::from(number) + 1));
        words.push(u64::from(entry.mark()) << 32 | u64::from(entry.in_port()));
        let label = entry.label();
        words.extend([(label >> 64) as u64, label as u64]);
        if let Some(parent) = self.table.parent(entry) {
            put(&mut words, &parent);
        }
        words
    }

    /// Adds a connection of a process before; `None` if it has no room here, or its tuples are
    /// taken. The caller is in a batch.
    fn adopt(&self, record: &Record) -> Option<Id> {
        let birth = &record.birth;
        let (zone, in_port) = (birth.kind.zone(), birth.in_port);
        self.limits.take(zone).ok()?;
        let hashes = (
            self.table.hash(&birth.original, zone),
            self.table.hash(&birth.reply, zone),
        );
        let mut locked = self.table.lock(hashes.0, hashes.1);
        let mut is_free = |hash, tuple| {
            self.table
                .find_in(locked.get(hash), hash, tuple, birth.kind, 0)
                .is_none()
        };
        let made = match is_free(hashes.0, &birth.original) && is_free(hashes.1, &birth.reply) {
            true => self.table.insert(&mut locked, hashes, birth),
            false => None,
        };
        let Some((id, entry)) = made.and_then(|id| Some((id, self.table.entry(id.index)?))) else {
            drop(locked);
            self.limits.give(zone);
            return None;
        };
        for n in 0..2 {
            entry.packets[n].store(record.packets[n], Ordering::Relaxed);
            entry.bytes[n].store(record.bytes[n], Ordering::Relaxed);
        }
        let waits = birth.stage & ASSURED == 0;
        if waits {
            let inner = locked.get(hashes.0);
            inner.half_open.push(in_port, id, |id| self.is_half_open(id));
        }
        drop(locked);
        if waits {
            self.limits
                .note_half_open(zone, in_port, id, |id| self.is_half_open(id));
        }
        Some(id)
    }
}

/// Takes a record off; the inner `None` if it says what cannot be, or of a connection that has
/// ended. The outer one at the end.
fn read(bytes: &mut &[u8], ago: Duration, now: Nanos, policy: impl Fn(u16) -> PolicyId) -> Option<Option<Record>> {
    let kind = Kind::of_lasting(word(bytes)?);
    let (original, reply) = (get(bytes, kind.is_v6())?, get(bytes, kind.is_v6())?);
    let sides = [word(bytes)?, word(bytes)?];
    let stage = word(bytes)? & !BYPASSED;
    let left = word(bytes)?;
    let [first, second] = [[word(bytes)?, word(bytes)?], [word(bytes)?, word(bytes)?]];
    let bypass = word(bytes)?.checked_sub(1);
    let mark_and_port = word(bytes)?;
    let label = u128::from(word(bytes)?) << 64 | u128::from(word(bytes)?);
    let parent = match kind.has(Kind::RELATED) {
        true => Some(get(bytes, kind.is_v6())?),
        false => None,
    };
    // Its packets were forwarded meanwhile, so it was not idle.
    let ago = if bypass.is_some() { Duration::ZERO } else { ago };
    let left = Duration::from_nanos(left).saturating_sub(ago).min(LONGEST);
    let is_one = [original, reply]
        .iter()
        .all(|tuple| tuple.protocol() == kind.protocol());
    let is_legal = is_one && kind.is_legal() && (kind.is_translated() || reply == original.reverse());
    if !is_legal || left.is_zero() {
        return Some(None);
    }
    Some(Some(Record {
        birth: Birth {
            kind: kind.with_policy(policy(kind.zone()).0),
            original,
            reply,
            sides,
            stage,
            expires: (now + left).0,
            mark: (mark_and_port >> 32) as u32,
            label,
            in_port: mark_and_port as u32,
            parent,
        },
        packets: [first[0], second[0]],
        bytes: [first[1], second[1]],
        bypass: bypass.and_then(|number| u32::try_from(number).ok()),
    }))
}

fn word(bytes: &mut &[u8]) -> Option<u64> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*word))
}

/// Adds a tuple: its protocol and ports, and one or four words of addresses.
fn put(words: &mut Vec<u64>, tuple: &Tuple) {
    let (addresses, ports) = tuple.words();
    words.push(u64::from(tuple.protocol()) << 32 | u64::from(ports));
    words.extend(&addresses[..if tuple.is_ipv6() { 4 } else { 1 }]);
}

fn get(bytes: &mut &[u8], v6: bool) -> Option<Tuple> {
    let first = word(bytes)?;
    let mut addresses = [0; 4];
    for address in &mut addresses[..if v6 { 4 } else { 1 }] {
        *address = word(bytes)?;
    }
    Some(Tuple::from_words(addresses, first as u32, (first >> 32) as u8, v6))
}
