//! The action `ct`: packets pass the connection tracker.

use super::Context;
use conntrack::fragment::Received;
use conntrack::{Before, Checksum, ConnectionId, Conntrack, Outcome, Packet, State, Tracker, Tuple};
use dp::{Action, DropCause, Track};
use flow::{Connection, OriginalTuple, PacketMeta};
use nanos::Nanos;
use netdev::{Csum, Frame, checksum};
use std::sync::Arc;
use std::time::Duration;
use wire::EtherType;
use wire::headers::behind_tags;

/// How long a pass over all connections is over before the next one begins.
const PAUSE: Duration = Duration::from_secs(1);
/// Entries of the table of connections that one step looks at.
const STEP: usize = 1024;
/// Datagrams that one step drops because they are not whole.
const EXPIRED: usize = 64;

/// A worker's connection tracking.
pub(crate) struct Connections {
    tracker: Tracker,
    /// When the next step of a pass over the connections is due.
    sweep: Nanos,
}

impl Connections {
    pub(super) fn new(shared: &Arc<Conntrack>) -> Connections {
        Connections {
            tracker: shared.tracker(),
            sweep: Nanos::ZERO,
        }
    }

    /// Removes connections and fragments whose time is over: a step of it. Returns when the next one
    /// is due, if there are any.
    pub(crate) fn sweep(&mut self, now: Nanos) -> Option<Nanos> {
        let shared = self.tracker.conntrack();
        if shared.is_empty() && shared.fragments().is_empty() {
            return None;
        }
        if now >= self.sweep {
            shared.fragments().expire(now, EXPIRED);
            let pause = match self.tracker.sweep(STEP, now).finished {
                true => PAUSE,
                false => Duration::from_millis(1),
            };
            self.sweep = now + pause;
        }
        Some(self.sweep)
    }

    /// Tracks a packet that is no fragment. Its metadata then has what the tracker says.
    #[inline]
    pub(crate) fn track(&mut self, track: &Track, frame: &mut Frame, now: Nanos) {
        let Some((start, v6)) = ip(frame.data()) else {
            return note(&mut frame.meta, track, &invalid(track));
        };
        let checksum = match frame.offload.csum {
            Csum::Unknown => Checksum::Verify,
            Csum::Valid => Checksum::Good,
            Csum::Partial { .. } => Checksum::Partial,
        };
        let (in_port, before) = (frame.meta.in_port.0, before(&frame.meta));
        let mut packet = Packet {
            data: &mut frame.data_mut()[start..],
            v6,
            checksum,
            in_port,
            before,
        };
        let outcome = self.tracker.track(&track.request, &mut packet, now);
        if checksum == Checksum::Verify && is_verified(&outcome) {
            frame.offload.csum = Csum::Valid;
        }
        note(&mut frame.meta, track, &outcome);
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
            note(&mut frame.meta, track, &invalid(track));
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
        let Some(fragments) = whole.split() else {
            return self.dropped(DropCause::Malformed);
        };
        for fragment in fragments {
            let mut own = Frame::from_slice(&[header, &fragment].concat());
            own.meta = frame.meta.clone();
            note(&mut own.meta, track, &outcome);
            self.steps(actions, own, limit);
        }
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
fn note(meta: &mut PacketMeta, track: &Track, outcome: &Outcome) {
    meta.extra_mut().connection = Some(Connection {
        state: outcome.state.bits(),
        zone: track.request.zone,
        mark: outcome.mark,
        label: outcome.label,
        original: outcome.original.map(|tuple| {
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
        }),
        id: outcome.connection.map_or(0, ConnectionId::to_bits),
    });
}
