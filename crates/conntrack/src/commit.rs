//! New connections: the limits, who goes when there is no room, and the insertion.

use crate::alg::Expected;
use crate::bypass::is_bypassed;
use crate::conntrack::Conntrack;
use crate::counters::{Ended, Refusal};
use crate::limits::Reached;
use crate::nat::{Candidates, Nat, Range};
use crate::state::State;
use crate::table::entry::{Birth, Entry, Kind};
use crate::table::{Found, Id, SHARDS};
use crate::timeout::Timeout;
use crate::tracker::Request;
use crate::tuple::Tuple;
use nanos::Nanos;
use std::sync::atomic::Ordering;

/// Attempts to find a place while other threads take those that become free.
const ATTEMPTS: usize = 8;

/// The first packet of a connection.
pub(crate) struct Commit {
    pub(crate) tuple: Tuple,
    pub(crate) hash: u64,
    pub(crate) sides: [u64; 2],
    pub(crate) stage: u64,
    pub(crate) timeout: Timeout,
    pub(crate) bytes: u64,
    pub(crate) in_port: u32,
    pub(crate) mark: u32,
    pub(crate) label: u128,
    /// The expectation that it fulfils.
    pub(crate) expected: Option<Expected>,
}

impl Conntrack {
    /// Makes a connection. If another thread has just made it, that one stays. Returns the tuple of
    /// its packets behind the translation too, and the bits of `ct_state`, if there is one. The
    /// caller is in a batch.
    pub(crate) fn commit(
        &self,
        request: &Request,
        commit: &Commit,
        now: Nanos,
    ) -> Result<(Id, Option<(Tuple, State)>), Refusal> {
        self.take_place(request.zone, commit)?;
        let made = self.insert(request, commit, now);
        match made {
            Ok((id, true)) => {
                if commit.expected.is_some() {
                    self.alg.fulfil(&commit.tuple, request.zone);
                }
                self.counters.created.fetch_add(1, Ordering::Relaxed);
                self.limits
                    .note_half_open(request.zone, commit.in_port, id, |id| self.is_half_open(id));
                Ok((id, self.translation(id)))
            }
            Ok((id, false)) => {
                self.limits.give(request.zone);
                Ok((id, self.translation(id)))
            }
            Err(refusal) => {
                self.limits.give(request.zone);
                Err(refusal)
            }
        }
    }

    /// The tuple of a connection's packets behind the translation, and the bits of `ct_state`.
    fn translation(&self, id: Id) -> Option<(Tuple, State)> {
        let entry = self
            .table
            .entry(id.index)
            .filter(|entry| entry.kind().is_translated())?;
        let to = self.table.tuples(entry).1.reverse();
        Some((to, crate::tracker::translation(entry.kind())))
    }

    /// Sets the mark and the label of a connection.
    #[cold]
    pub(crate) fn set_marks(&self, request: &Request, index: u32, entry: &Entry) {
        let life = entry.life();
        let (original, _) = self.table.tuples(entry);
        let hash = self.table.hash(&original, entry.kind().zone());
        let locked = self.table.lock_shard(self.table.shard(hash));
        if life & 1 == 0 || entry.life() != life {
            return;
        }
        let before = (entry.mark(), entry.label());
        if let Some((value, mask)) = request.mark {
            entry.set_mark(value, mask);
        }
        if let Some((value, mask)) = request.label {
            entry.set_label(value, mask);
        }
        let changed = before != (entry.mark(), entry.label());
        drop(locked);
        if changed && is_bypassed(entry) {
            self.table.bypasses.suspend(Id { index, life });
        }
    }

    /// Takes a place within the limits. At the total, a half-open connection makes room, in a zone
    /// at its limit only one of a port that has more of them.
    fn take_place(&self, zone: u16, commit: &Commit) -> Result<(), Refusal> {
        for _ in 0..ATTEMPTS {
            let refusal = match self.limits.take(zone) {
                Ok(()) => return Ok(()),
                Err(Reached::Total) => Refusal::Full,
                Err(Reached::Zone) => Refusal::ZoneFull,
            };
            let victim = match refusal {
                Refusal::ZoneFull => self.limits.evict(zone, commit.in_port, |id| self.is_half_open(id)),
                _ => self.half_open(self.table.shard(commit.hash)),
            };
            let Some(victim) = victim else {
                if refusal == Refusal::ZoneFull {
                    self.limits.refuse(zone);
                }
                return Err(refusal);
            };
            self.end(victim, Ended::Evicted);
        }
        Err(Refusal::Full)
    }

    /// A half-open connection of this shard, or of the next one that has any.
    fn half_open(&self, shard: usize) -> Option<Id> {
        (0..SHARDS).find_map(|n| {
            let mut inner = self.table.lock_shard((shard + n) % SHARDS);
            inner.half_open.pop(|id| self.is_half_open(id))
        })
    }

    /// Inserts the connection; false if it is there already.
    fn insert(&self, request: &Request, commit: &Commit, now: Nanos) -> Result<(Id, bool), Refusal> {
        let plain = (commit.tuple.reverse(), Kind::default());
        if let (Some(expected), Some(_)) = (&commit.expected, &request.nat) {
            let (range, flags) = as_control(&commit.tuple, expected);
            return match range {
                None => self.insert_as(request, commit, plain, now)?.ok_or(Refusal::TupleTaken),
                Some((tuple, nat)) => self.insert_one_of(request, commit, (&tuple, &nat), flags, now),
            };
        }
        match &request.nat {
            None | Some(Nat::Existing) => self.insert_as(request, commit, plain, now)?.ok_or(Refusal::TupleTaken),
            Some(nat @ Nat::Source(_)) => self.insert_one_of(request, commit, (&commit.tuple, nat), Kind::SNAT, now),
            Some(nat @ Nat::Destination(_)) => {
                self.insert_one_of(request, commit, (&commit.tuple, nat), Kind::DNAT, now)
            }
        }
    }

    /// Inserts the connection with the first free tuple of a range.
    fn insert_one_of(
        &self,
        request: &Request,
        commit: &Commit,
        (tuple, nat): (&Tuple, &Nat),
        flags: Kind,
        now: Nanos,
    ) -> Result<(Id, bool), Refusal> {
        let candidates = Candidates::new(tuple, nat, commit.hash, self.random()).ok_or(Refusal::NatExhausted)?;
        for candidate in candidates {
            if let Some(made) = self.insert_as(request, commit, (candidate.reverse(), flags), now)? {
                return Ok(made);
            }
        }
        Err(Refusal::NatExhausted)
    }

    /// Inserts the connection with this reply tuple; `None` if that is another connection's, false
    /// if the connection is there already.
    fn insert_as(
        &self,
        request: &Request,
        commit: &Commit,
        (reply, flags): (Tuple, Kind),
        now: Nanos,
    ) -> Result<Option<(Id, bool)>, Refusal> {
        let kind = Kind::new(&commit.tuple, request.zone, request.policy.0).with_helper(request.helper);
        let kind = match commit.expected {
            None => kind.with(flags),
            Some(_) => kind.with(flags).with(Kind::RELATED),
        };
        let birth = Birth {
            kind,
            original: commit.tuple,
            reply,
            sides: commit.sides,
            stage: commit.stage,
            expires: self.policies.deadline(request.policy.0, commit.timeout, now),
            mark: commit.mark,
            label: commit.label,
            in_port: commit.in_port,
            parent: commit.expected.map(|expected| expected.parent),
        };
        let hashes = (commit.hash, self.table.hash(&reply, request.zone));
        for _ in 0..ATTEMPTS {
            let mut locked = self.table.lock(hashes.0, hashes.1);
            // Connections that have timed out are still in the table.
            let mut find = |hash, tuple| self.table.find_in(locked.get(hash), hash, tuple, kind, 0);
            let own = find(hashes.0, &birth.original);
            let Some(found) = own.or_else(|| find(hashes.1, &birth.reply)) else {
                let id = self
                    .table
                    .insert(&mut locked, hashes, &birth)
                    .ok_or(Refusal::NoMemory)?;
                let entry = self.table.entry(id.index).ok_or(Refusal::NoMemory)?;
                entry.packets[0].store(1, Ordering::Relaxed);
                entry.bytes[0].store(commit.bytes, Ordering::Relaxed);
                let inner = locked.get(hashes.0);
                inner.half_open.push(commit.in_port, id, |id| self.is_half_open(id));
                return Ok(Some((id, true)));
            };
            let entry = self.table.entry(found.index).ok_or(Refusal::NoMemory)?;
            let id = Id {
                index: found.index,
                life: entry.life(),
            };
            let expired = self.table.has_expired(found.index, entry, now.0);
            drop(locked);
            match (expired, own) {
                (true, _) => drop(self.end(id, Ended::Expired)),
                (false, Some(Found { reply: false, .. })) => return Ok(Some((id, false))),
                // The packet answers another connection: it cannot begin one.
                (false, Some(_)) => return Err(Refusal::TupleTaken),
                (false, None) => return Ok(None),
            }
        }
        Err(Refusal::TupleTaken)
    }
}

/// How a data connection is translated like its control connection: the tuple behind the
/// translation of the destination, and the range for the source. `None` if nothing changes.
fn as_control(tuple: &Tuple, expected: &Expected) -> (Option<(Tuple, Nat)>, Kind) {
    let source = if expected.src != tuple.src() {
        Kind::SNAT
    } else {
        Kind::default()
    };
    let changed = (expected.dst, expected.dst_port) != (tuple.dst(), tuple.dst_port());
    let destination = if changed { Kind::DNAT } else { Kind::default() };
    let flags = source.with(destination);
    if !flags.is_translated() {
        return (None, flags);
    }
    let nat = Nat::Source(Range {
        addresses: Some((expected.src, expected.src)),
        ..Range::default()
    });
    (
        tuple
            .with_dst(expected.dst, expected.dst_port)
            .map(|tuple| (tuple, nat)),
        flags,
    )
}
