//! A connection as commands see it, and walks over all connections in bounded steps.

use crate::alg::Helper;
use crate::bypass::is_bypassed;
use crate::conntrack::Conntrack;
use crate::counters::Ended;
use crate::sctp::SctpState;
use crate::table::Id;
use crate::table::arena::SEGMENT;
use crate::table::entry::{Entry, Kind};
use crate::tcp::{Tcp, TcpState, WindowScale};
use crate::timeout::PolicyId;
use crate::tracker::{ConnectionId, Tracker};
use crate::tuple::{SCTP, TCP, Tuple};
use nanos::Nanos;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A connection at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Which one it is.
    pub id: ConnectionId,
    /// The tuple of its first packet, before NAT.
    pub original: Tuple,
    /// The tuple of packets that answer, before NAT is undone.
    pub reply: Tuple,
    /// The zone.
    pub zone: u16,
    /// The mark.
    pub mark: u32,
    /// The label.
    pub label: u128,
    /// The state of its protocol.
    pub protocol: Protocol,
    /// How long it lasts without another packet.
    pub expires_in: Duration,
    /// Packets in the original and in the reply direction.
    pub packets: [u64; 2],
    /// Bytes of their IP packets.
    pub bytes: [u64; 2],
    /// The port of the switch that its first packet came in on.
    pub in_port: u32,
    /// Its timeout policy.
    pub policy: PolicyId,
    /// Whether it was established once; otherwise it is half-open.
    pub assured: bool,
    /// The helper that reads its packets.
    pub helper: Option<Helper>,
    /// The original tuple of the control connection that announced it.
    pub parent: Option<Tuple>,
}

/// The state of a connection's protocol. Sides are in the order original, reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp {
        /// State of each side.
        states: [TcpState; 2],
        /// Window scale of each side.
        scales: [WindowScale; 2],
    },
    /// SCTP.
    Sctp {
        /// State of the association.
        state: SctpState,
        /// Verification tags of the packets of each direction; 0 where not known.
        tags: [u32; 2],
    },
    /// All others.
    Other,
}

/// A place in a walk over all connections; it begins with the default value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(u32);

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Connections that it removed.
    pub expired: usize,
    /// Whether it came to the end of the table; the next sweep begins at the front.
    pub finished: bool,
}

impl Tracker {
    /// The next connections from a place on, at most `budget` entries of the table; the place for
    /// the next call, or `None` at the end.
    ///
    /// A connection that lives during the whole walk is in it once. Others may be missing.
    pub fn connections(
        &mut self,
        from: Cursor,
        budget: usize,
        now: Nanos,
        found: &mut Vec<Connection>,
    ) -> Option<Cursor> {
        self.walk(from, budget, |shared, id, entry| {
            if !shared.table.has_expired(id.index, entry, now.0) {
                found.push(shared.describe(id, entry, now));
            }
        })
    }

    /// A connection; `None` if it has ended.
    pub fn connection(&mut self, id: ConnectionId, now: Nanos) -> Option<Connection> {
        let shared = self.shared.clone();
        self.pin.enter(&shared.table.epochs);
        let entry = shared.table.entry(id.0.index).filter(|entry| entry.life() == id.0.life);
        let found = entry.map(|entry| shared.describe(id.0, entry, now));
        self.pin.leave();
        found
    }

    /// Removes connections that have timed out, among the next `budget` entries of the table.
    /// Several threads may sweep at the same time.
    pub fn sweep(&mut self, budget: usize, now: Nanos) -> Swept {
        let shared = self.shared.clone();
        let from = shared.sweep.fetch_add(budget as u32, Ordering::Relaxed);
        let mut expired = 0;
        let end = self.walk(Cursor(from), budget, |shared, id, entry| {
            if shared.table.has_expired(id.index, entry, now.0) && shared.end(id, Ended::Expired) {
                expired += 1;
            }
        });
        if end.is_none() {
            shared.sweep.store(0, Ordering::Relaxed);
        }
        Swept {
            expired,
            finished: end.is_none(),
        }
    }

    /// Visits the live connections among the next `budget` entries.
    pub(crate) fn walk(
        &mut self,
        from: Cursor,
        budget: usize,
        mut visit: impl FnMut(&Conntrack, Id, &Entry),
    ) -> Option<Cursor> {
        let shared = self.shared.clone();
        let first = from.0.max(SEGMENT as u32);
        let last = first.saturating_add(budget as u32).min(shared.table.end());
        self.pin.enter(&shared.table.epochs);
        for index in first..last {
            // An entry that is in use now keeps its words until this batch ends.
            if let Some(entry) = shared.table.entry(index) {
                let life = entry.life();
                if life & 1 == 1 {
                    visit(&shared, Id { index, life }, entry);
                }
            }
        }
        self.pin.leave();
        (last < shared.table.end()).then_some(Cursor(last))
    }
}

impl Conntrack {
    /// The caller is in a batch.
    pub(crate) fn describe(&self, id: Id, entry: &Entry, now: Nanos) -> Connection {
        let passed = is_bypassed(entry).then(|| self.catch_up(id, entry)).flatten();
        let passed = passed.unwrap_or_default();
        let kind = entry.kind();
        let (original, reply) = self.table.tuples(entry);
        let load = |words: &[std::sync::atomic::AtomicU64; 2]| [0, 1].map(|n: usize| words[n].load(Ordering::Relaxed));
        let sum = |own: [u64; 2], more: [u64; 2]| [0, 1].map(|n: usize| own[n].wrapping_add(more[n]));
        let stage = entry.stage.load(Ordering::Relaxed);
        let sides = load(&entry.sides);
        Connection {
            id: ConnectionId(id),
            original,
            reply,
            zone: kind.zone(),
            mark: entry.mark(),
            label: entry.label(),
            protocol: protocol(kind, sides, stage),
            expires_in: Nanos(entry.expires.load(Ordering::Relaxed)) - now,
            packets: sum(load(&entry.packets), passed.packets),
            bytes: sum(load(&entry.bytes), passed.bytes),
            in_port: entry.in_port(),
            policy: PolicyId(kind.policy()),
            assured: stage & crate::tcp::ASSURED != 0,
            helper: kind.helper(),
            parent: self.table.parent(entry),
        }
    }
}

fn protocol(kind: Kind, sides: [u64; 2], stage: u64) -> Protocol {
    match kind.protocol() {
        TCP => {
            let tcp = Tcp::unpack(sides, stage);
            Protocol::Tcp {
                states: tcp.sides.map(|side| side.state),
                scales: tcp.sides.map(|side| side.scale),
            }
        }
        SCTP => Protocol::Sctp {
            state: SctpState::of(stage),
            tags: sides.map(|tag| tag as u32),
        },
        _ => Protocol::Other,
    }
}
