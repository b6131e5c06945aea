//! The action `ct`: packets pass the connection tracker.

use super::Context;
use crate::batch::BATCH;
use crate::edit::edit_each;
use crate::megaflow::as_bypass;
use conntrack::fragment::Received;
use conntrack::{Before, Bypassing, Checksum, ConnectionId, Conntrack, Established, Outcome, Packet, Request};
use conntrack::{State, Tracker, Tuple};
use dp::offload::OffloadTable;
use dp::{Action, DropCause, Track};
use flow::{Connection, ExtraMeta, OriginalTuple, PacketMeta};
use nanos::Nanos;
use netdev::{Csum, Frame, checksum};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use wire::EtherType;
use wire::headers::behind_tags;

/// How long a step of a pass over all connections is over before the next one begins.
const STEP_PAUSE: Duration = Duration::from_millis(1);
/// Entries of the table of connections that one step looks at.
const STEP: usize = 1024;
/// Spare metadata of packets.
const SPARE: usize = 4 * BATCH;
/// Datagrams that one step drops because they are not whole.
const EXPIRED: usize = 64;

/// Metadata that packets have by their boxes, and give back with them.
pub(crate) type Spare = Vec<Box<ExtraMeta>>;

/// A worker's connection tracking.
pub(crate) struct Connections {
    tracker: Tracker,
    /// When the next step of a pass over the connections is due.
    sweep: Nanos,
    /// Metadata of packets that have left: a packet that is tracked needs some, and one that a
    /// tunnel has received.
    pub(crate) spare: Spare,
    /// What the tracker says of a batch.
    outcomes: Box<[Outcome; BATCH]>,
}

impl Connections {
    pub(super) fn new(shared: &Arc<Conntrack>) -> Connections {
        Connections {
            tracker: shared.tracker(),
            sweep: Nanos::ZERO,
            spare: Vec::with_capacity(SPARE),
            outcomes: Box::new([Outcome::default(); BATCH]),
        }
    }

    /// Removes connections and fragments whose time is over: a step of it. Returns when the next
    /// one is due, if there are any.
    pub(crate) fn sweep(&mut self, now: Nanos) -> Option<Nanos> {
        let shared = self.tracker.conntrack();
        if shared.is_empty() && shared.fragments().is_empty() {
            return None;
        }
        if now >= self.sweep {
            shared.fragments().expire(now, EXPIRED);
            let pause = match self.tracker.sweep(STEP, now).finished {
                true => self.tracker.conntrack().sweep_interval().max(STEP_PAUSE),
                false => STEP_PAUSE,
            };
            self.sweep = now + pause;
        }
        Some(self.sweep)
    }

    /// Runs changes and `ct` on packets of one megaflow, in place. A packet without room for
    /// another header is left without a byte; returns whether there is such a packet.
    #[inline(never)]
    pub(super) fn edit_and_track(&mut self, actions: &[Action], frames: &mut [Frame], now: Nanos) -> bool {
        let mut lost = false;
        let mut rest = actions;
        while !rest.is_empty() {
            let edits = rest
                .iter()
                .take_while(|action| !matches!(action, Action::Ct(_)))
                .count();
            let (edits, behind) = rest.split_at(edits);
            if !edits.is_empty() {
                lost |= edit_each(edits, frames);
            }
            rest = behind;
            if let [Action::Ct(track), behind @ ..] = rest {
                for some in frames.chunks_mut(BATCH) {
                    self.track(track, some, now);
                }
                rest = behind;
            }
        }
        lost
    }

    /// Tracks packets that are no fragments, a batch at most. Their metadata then has what the
    /// tracker says.
    pub(super) fn track(&mut self, track: &Track, frames: &mut [Frame], now: Nanos) {
        let mut packets = SmallVec::<[Packet<'_>; BATCH]>::new();
        let mut others = 0u32;
        for (n, frame) in frames.iter_mut().enumerate() {
            match ip(frame.data()) {
                Some((start, v6)) => packets.push(Packet {
                    v6,
                    checksum: checksum_of(frame),
                    in_port: frame.meta.in_port.0,
                    before: before(&frame.meta),
                    data: &mut frame.data_mut()[start..],
                }),
                None => others |= 1 << n,
            }
        }
        self.tracker
            .track_batch(&track.request, &mut packets, now, &mut self.outcomes[..]);
        drop(packets);
        if !self.tracker.replaced().is_empty() {
            replace(frames, others, self.tracker.replaced(), &self.outcomes[..]);
        }
        let mut outcomes = self.outcomes.iter();
        for (n, frame) in frames.iter_mut().enumerate() {
            if others & 1 << n != 0 {
                note(frame, &mut self.spare, track, &invalid(track));
            } else if let Some(outcome) = outcomes.next() {
                if matches!(frame.offload.csum, Csum::Unknown) && is_verified(outcome) {
                    frame.offload.csum = Csum::Valid;
                }
                note(frame, &mut self.spare, track, outcome);
            }
        }
    }

    /// What the tracker says of packets with a tuple that an offload may forward.
    pub(crate) fn established(&mut self, request: &Request, tuple: &Tuple, now: Nanos) -> Option<Established> {
        self.tracker.established(request, tuple, None, now)
    }

    /// The same with the connection, which is open for the offload, and the value of its epoch: as
    /// long as that stays, the tracker says the same.
    pub(crate) fn bypass(
        &mut self,
        request: &Request,
        tuple: &Tuple,
        table: &Arc<OffloadTable>,
        now: Nanos,
    ) -> Option<(Established, Bypassing, u64)> {
        let tracker = &mut self.tracker;
        let connection = tracker.established(request, tuple, None, now)?.connection;
        let open = || Some((as_bypass(table), table.connection()?));
        let bypassing = tracker.bypass(connection, open)?;
        let epoch = table.connection_epoch(bypassing.number());
        // Once more: it may have changed before whoever changed it could know of the offload.
        let established = tracker.established(request, tuple, None, now)?;
        (established.connection == connection).then_some((established, bypassing, epoch))
    }

    /// Takes the metadata of connections and tunnels off packets that leave, for others.
    pub(crate) fn reclaim(&mut self, frames: &mut [Frame]) {
        for frame in frames {
            if let Some(extra) = frame.meta.take_extra() {
                keep(&mut self.spare, extra);
            }
        }
    }
}

impl Context<'_> {
    /// Holds a fragment until its datagram is whole, tracks that, and runs actions on its
    /// fragments, which have the sizes that they had.
    #[cold]
    pub(super) fn track_fragment(&mut self, track: &Track, mut frame: Frame, actions: &[Action], limit: Option<u32>) {
        if matches!(frame.offload.csum, Csum::Partial { .. }) && checksum::fill(&mut frame).is_err() {
            return self.dropped(DropCause::Malformed);
        }
        let shared = self.connections.tracker.conntrack().clone();
        let found = ip(frame.data()).filter(|(_, v6)| shared.fragments().is_enabled(*v6));
        let Some((start, v6)) = found else {
            // A fragment alone belongs to no connection.
            note(&mut frame, &mut self.connections.spare, track, &invalid(track));
            return self.steps(actions, frame, limit);
        };
        let (header, fragment) = frame.data().split_at(start);
        let (zone, in_port) = (track.request.zone, frame.meta.in_port.0);
        let mut whole = match shared.fragments().receive(fragment, v6, zone, in_port, self.now) {
            Received::Held => {
                self.settled = true;
                return;
            }
            Received::Dropped(_) => return self.dropped(DropCause::Fragment),
            Received::Whole(whole) => whole,
        };
        let mut packet = Packet {
            data: &mut whole.packet,
            v6,
            checksum: Checksum::Verify,
            in_port,
            before: before(&frame.meta),
        };
        let outcome = self.connections.tracker.track(&track.request, &mut packet, self.now);
        if outcome.replaced {
            // A control connection's short lines do not come in fragments; these would need other
            // sizes.
            return self.dropped(DropCause::Fragment);
        }
        let Some(fragments) = whole.split() else {
            return self.dropped(DropCause::Malformed);
        };
        for fragment in fragments {
            let mut own = Frame::from_slice(&[header, &fragment].concat());
            own.meta = frame.meta.clone();
            note(&mut own, &mut self.connections.spare, track, &outcome);
            self.steps(actions, own, limit);
        }
    }
}

/// Keeps metadata for another packet.
#[inline]
pub(super) fn keep(spare: &mut Spare, extra: Box<ExtraMeta>) {
    if spare.len() < SPARE {
        spare.push(extra);
    }
}

/// Puts the tracker's packets in the places of those that they replace. `others` has a bit for each
/// frame that the tracker has not seen.
#[cold]
fn replace(frames: &mut [Frame], others: u32, replaced: &mut Vec<Vec<u8>>, outcomes: &[Outcome]) {
    let tracked = frames.iter_mut().enumerate().filter(|(n, _)| others & 1 << n == 0);
    let places = tracked.zip(outcomes).filter(|(_, outcome)| outcome.replaced);
    for (((_, frame), _), packet) in places.zip(replaced.drain(..)) {
        let header = ip(frame.data()).map_or(0, |(start, _)| start);
        let mut new = Frame::from_slice(&[&frame.data()[..header], &packet].concat());
        new.offload = frame.offload;
        std::mem::swap(&mut new.meta, &mut frame.meta);
        *frame = new;
    }
}

/// Where the IP header of a packet begins, and whether it is of IPv6.
fn ip(data: &[u8]) -> Option<(usize, bool)> {
    match behind_tags(data, usize::MAX)? {
        (EtherType::IPV4, start) => Some((start, false)),
        (EtherType::IPV6, start) => Some((start, true)),
        _ => None,
    }
}

/// What is known of a packet's checksum.
fn checksum_of(frame: &Frame) -> Checksum {
    match frame.offload.csum {
        Csum::Unknown => Checksum::Verify,
        Csum::Valid => Checksum::Good,
        Csum::Partial { .. } => Checksum::Partial,
    }
}

/// What the tracker says of packets that it cannot track.
fn invalid(track: &Track) -> Outcome {
    Outcome {
        state: State::INV | State::TRK,
        zone: track.request.zone,
        ..Outcome::default()
    }
}

/// Whether the tracker has looked at a checksum, and it was right.
fn is_verified(outcome: &Outcome) -> bool {
    let protocol = outcome.original.map(|tuple| tuple.protocol());
    matches!(protocol, Some(6 | 17)) && !outcome.state.has_any(State::INV | State::REL)
}

/// What an earlier pass has left in the metadata.
#[inline]
fn before(meta: &PacketMeta) -> Option<Before> {
    let connection = meta.connection()?;
    let original = connection.original?;
    let (src, dst) = (original.src, original.dst);
    Some(Before {
        state: State::from_bits(connection.state),
        zone: connection.zone,
        connection: ConnectionId::from_bits(connection.id),
        original: Tuple::new(src, dst, original.protocol, original.tp_src, original.tp_dst)?,
    })
}

/// Keeps what the tracker says in the metadata.
#[inline]
fn note(frame: &mut Frame, spare: &mut Spare, track: &Track, outcome: &Outcome) {
    let extra = frame.meta.extra_or(|| spare.pop().unwrap_or_default());
    extra.connection = Some(Connection {
        state: outcome.state.bits(),
        zone: track.request.zone,
        mark: outcome.mark,
        label: outcome.label,
        original: outcome.original.as_ref().map(original_tuple),
        id: outcome.connection.map_or(0, ConnectionId::to_bits),
    });
}

/// The original tuple of a connection in a packet's metadata.
#[inline]
pub(crate) fn original_tuple(tuple: &Tuple) -> OriginalTuple {
    let (tp_src, tp_dst) = match tuple.is_icmp() {
        true => {
            let (kind, code) = tuple.icmp_type_code();
            (kind.into(), code.into())
        }
        false => (tuple.src_port(), tuple.dst_port()),
    };
    OriginalTuple {
        src: tuple.src(),
        dst: tuple.dst(),
        protocol: tuple.protocol(),
        tp_src,
        tp_dst,
    }
}
