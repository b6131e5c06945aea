//! Stage six of a packet's way: actions, run in order on one frame.
//!
//! Invariants
//! - A frame is copied only where something else is still to be done with it: the last output takes
//!   the frame itself.
//! - Nothing allocates but what asks for a packet as a wire would have it, of a frame that is a
//!   large segment: a controller, a cut packet, an MPLS label, under which no device could be told
//!   to cut it.

mod connections;
mod headers;
mod sample;
mod tunnels;
mod types;

use crate::bonds::{BondView, Bonds};
use crate::edit::{Before, edit, edit_each};
use crate::egress::Egress;
use crate::layers::Layers;
use crate::meters::{self, MeterView, Meters, Verdict};
use crate::rewrite::{self, set_field};
use crate::rx_queue::{PuntBudgets, Source};
use crate::sampler::Sampler;
use crate::stats::{DropSink, WorkerStats};
use connections::Connections;
pub(crate) use connections::original_tuple;
use conntrack::Conntrack;
use dp::{Action, DropCause, FlowHash, MAX_RECIRCULATIONS, Punt, PuntReason, SetField, Slowpath};
use flow::{Field, Key, PortNo, RecircId};
use nanos::Nanos;
use netdev::{Csum, Frame, Gso, Offload, checksum, gso};
use std::hash::{BuildHasher, RandomState};
use std::slice;
use std::sync::Arc;
use tunnels::{TunnelSecrets, Tunnels, is_too_big};
pub(crate) use tunnels::{is_outer_segment, takes_apart};
use wire::EtherType;
use wire::headers::behind_tags;

/// Length of an Ethernet header: no packet is cut shorter.
const ETHERNET: usize = 14;

/// What the actions of all workers of a datapath share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) bonds: Arc<Bonds>,
    pub(crate) conntrack: Arc<Conntrack>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) tunnels: TunnelSecrets,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            bonds: Arc::default(),
            conntrack: Conntrack::new(RandomState::new().hash_one(0)),
            meters: Arc::default(),
            tunnels: TunnelSecrets::default(),
        }
    }
}

/// What actions of one worker need.
pub(crate) struct Actor {
    pub(crate) egress: Egress,
    pub(crate) bonds: BondView,
    pub(crate) connections: Connections,
    meters: MeterView,
    sampler: Sampler,
    pub(crate) tunnels: Tunnels,
    slowpath: Arc<dyn Slowpath>,
    stats: Arc<WorkerStats>,
    /// Recirculated packets, in order: collected until the pipeline takes them.
    pub(crate) recirculated: Vec<Frame>,
}

/// The same, for packets of one origin.
pub(crate) struct Context<'a> {
    egress: &'a mut Egress,
    bonds: &'a mut BondView,
    connections: &'a mut Connections,
    meters: &'a mut MeterView,
    sampler: &'a mut Sampler,
    tunnels: &'a mut Tunnels,
    slowpath: &'a dyn Slowpath,
    /// Copies that may be punted to the control plane; `None` for any number, for packets that it
    /// sends itself.
    budgets: Option<&'a mut PuntBudgets>,
    drops: DropSink<'a>,
    recirculated: &'a mut Vec<Frame>,
    /// Number of recirculations of the packet.
    depth: u32,
    /// Whether the packet was given to somebody, or its drop counted.
    settled: bool,
    now: Nanos,
}

impl Actor {
    pub(crate) fn new(shared: Shared, slowpath: Arc<dyn Slowpath>, stats: Arc<WorkerStats>) -> Actor {
        Actor {
            egress: Egress::default(),
            bonds: BondView::new(shared.bonds),
            connections: Connections::new(&shared.conntrack),
            meters: MeterView::new(shared.meters),
            sampler: Sampler::new(),
            tunnels: Tunnels::new(shared.tunnels),
            slowpath,
            stats,
            recirculated: Vec::new(),
        }
    }

    /// For packets from a source that have recirculated `depth` times.
    #[inline]
    pub(crate) fn context<'a>(&'a mut self, from: &'a mut Source, depth: u32, now: Nanos) -> Context<'a> {
        Context {
            egress: &mut self.egress,
            bonds: &mut self.bonds,
            connections: &mut self.connections,
            meters: &mut self.meters,
            sampler: &mut self.sampler,
            tunnels: &mut self.tunnels,
            slowpath: &*self.slowpath,
            budgets: from.punts.as_mut(),
            drops: DropSink {
                worker: &self.stats,
                port: from.stats.as_deref(),
            },
            recirculated: &mut self.recirculated,
            depth,
            settled: false,
            now,
        }
    }

    /// Does to frames what actions with an [`Ending`](crate::edit::Ending) do before it. A packet
    /// without room for another header is left without a byte; returns whether there is such a
    /// packet.
    #[inline]
    pub(crate) fn prepare(
        &mut self,
        before: Before,
        actions: &[Action],
        frames: &mut [Frame],
        (from, depth, now): (&mut Source, u32, Nanos),
    ) -> bool {
        match (before, actions) {
            (Before::Changes, [edits @ .., _]) => edit_each(edits, frames),
            (Before::Encapsulates, [edits @ .., _]) => {
                let spare = &mut self.connections.spare;
                self.tunnels.edit_and_push(edits, frames, spare, now)
            }
            (Before::Tracks | Before::TracksOnly, [edits @ .., _]) => {
                self.connections.edit_and_track(edits, frames, now)
            }
            _ => self.context(from, depth, now).edit_and_sample(actions, frames),
        }
    }

    /// Sends what waits.
    #[inline]
    pub(crate) fn flush(&mut self, now: Nanos) {
        self.egress.flush(&self.stats, now);
    }
}

impl Context<'_> {
    /// Runs `actions` on a frame; outputs wait in the egress. `drop` says why, where the actions
    /// send it nowhere.
    #[inline]
    pub(crate) fn run(&mut self, actions: &[Action], drop: Option<DropCause>, frame: Frame) {
        // Most packets go to one port as they are.
        if let [Action::Output(port)] = actions {
            self.queue(*port, frame);
            return;
        }
        self.run_list(actions, drop, frame);
    }

    fn run_list(&mut self, actions: &[Action], drop: Option<DropCause>, frame: Frame) {
        self.settled = false;
        self.steps(actions, frame, None);
        if !self.settled {
            self.drops.count(drop.unwrap_or(DropCause::NoDestination), 1);
        }
    }

    /// Runs actions; `limit` is what an [`Action::Trunc`] before them left for the next output.
    fn steps(&mut self, actions: &[Action], mut frame: Frame, mut limit: Option<u32>) {
        let Some(last) = actions.iter().rposition(shows) else {
            return;
        };
        let mut layers = Layers::UNKNOWN;
        let mut at = 0;
        while at < last {
            let action = &actions[at];
            at += 1;
            let done = match action {
                Action::SetField(_)
                | Action::SetMpls { .. }
                | Action::SetQueue(_)
                | Action::PushVlan(_)
                | Action::PopVlan
                | Action::CtClear => edit(action, &mut frame, &mut layers),
                Action::Output(port) => {
                    let limit = limit.take();
                    self.output(*port, copy(&frame, limit), limit);
                    Ok(())
                }
                Action::OutputBond(bond) => {
                    let limit = limit.take();
                    if let Some(port) = self.member(*bond, &frame) {
                        self.output(port, copy(&frame, limit), limit);
                    }
                    Ok(())
                }
                Action::PushMpls { ethertype, lse } => {
                    if frame.offload.gso != Gso::None {
                        return self.segments(&actions[at - 1..], frame, limit);
                    }
                    headers::push_mpls(&mut frame, &mut layers, *ethertype, *lse).map(|()| types::follow(&mut frame))
                }
                Action::PopMpls { ethertype } => {
                    headers::pop_mpls(&mut frame, &mut layers, *ethertype).and_then(|()| types::uncover(&mut frame))
                }
                Action::CopyTtlOut => {
                    headers::copy_ttl_out(&mut frame, &mut layers);
                    Ok(())
                }
                Action::CopyTtlIn => {
                    headers::copy_ttl_in(&mut frame, &mut layers);
                    Ok(())
                }
                Action::Trunc(len) => {
                    limit = Some(*len);
                    Ok(())
                }
                Action::Punt {
                    reason,
                    handle,
                    max_len,
                } => {
                    self.punt((*reason, *handle), *max_len, &frame);
                    Ok(())
                }
                Action::Meter(id) => {
                    if !self.passes(*id, &mut frame, &mut layers) {
                        return;
                    }
                    Ok(())
                }
                Action::Clone(actions_of_copy) => {
                    let behind = at.saturating_add(*actions_of_copy as usize);
                    if behind > last {
                        // Nothing that shows follows: the copy may be the packet itself.
                        return self.steps(&actions[at..=last], frame, None);
                    }
                    self.steps(&actions[at..behind], frame.duplicate(), None);
                    at = behind;
                    Ok(())
                }
                Action::Sample { probability, steps } => {
                    let behind = at.saturating_add(*steps as usize);
                    self.sample(*probability, &actions[at..behind.min(actions.len())], &frame);
                    if behind > last {
                        return;
                    }
                    at = behind;
                    Ok(())
                }
                Action::IfLonger { len, then, otherwise } => {
                    let Some(longer) = is_longer(&frame, usize::from(*len)) else {
                        return self.segments(&actions[at - 1..], frame, limit);
                    };
                    let middle = at.saturating_add(*then as usize).min(actions.len());
                    let behind = middle.saturating_add(*otherwise as usize).min(actions.len());
                    let branch = if longer { at..middle } else { middle..behind };
                    if behind > last {
                        return self.steps(&actions[branch], frame, None);
                    }
                    self.steps(&actions[branch], frame.duplicate(), None);
                    at = behind;
                    Ok(())
                }
                Action::Recirc(id) => {
                    self.recirculate(*id, frame.duplicate());
                    Ok(())
                }
                Action::RecircByHash { id, hash } => {
                    self.recirculate(id_of(*id, hash, &frame).0, frame.duplicate());
                    Ok(())
                }
                Action::PushPbb { tci } => {
                    if frame.offload.gso != Gso::None {
                        return self.segments(&actions[at - 1..], frame, limit);
                    }
                    headers::push_pbb(&mut frame, &mut layers, *tci)
                }
                Action::PopPbb => headers::pop_pbb(&mut frame, &mut layers),
                Action::PushEth { .. }
                | Action::PopEth
                | Action::PushNsh(_)
                | Action::PopNsh
                | Action::AddMpls { .. } => {
                    if frame.offload.gso != Gso::None {
                        return self.segments(&actions[at - 1..], frame, limit);
                    }
                    types::change(action, &mut frame, &mut layers)
                }
                Action::TunnelPush(push) => {
                    if frame.offload.gso != Gso::None {
                        return self.segments(&actions[at - 1..], frame, limit);
                    }
                    layers.forget();
                    if let Some(limit) = limit.take() {
                        cut(&mut frame, limit as usize);
                    }
                    if is_too_big(&frame, push) {
                        return self.push_too_big(frame, push, &actions[at..]);
                    }
                    match self
                        .tunnels
                        .push(&mut frame, push, &mut self.connections.spare, self.now)
                    {
                        Ok(()) => Ok(()),
                        Err(cause) => return self.dropped(cause),
                    }
                }
                Action::TunnelPop { port, format } => {
                    self.pop_tunnel(frame.duplicate(), *port, *format);
                    Ok(())
                }
                Action::Ct(track) if track.fragments => {
                    return self.track_fragment(track, frame, &actions[at..], limit);
                }
                Action::Ct(track) => {
                    self.connections.track(track, slice::from_mut(&mut frame), self.now);
                    Ok(())
                }
            };
            if done.is_err() {
                // No room for another header. No real packet has that many.
                return self.dropped(DropCause::Malformed);
            }
        }
        match &actions[last] {
            Action::Output(port) => self.output(*port, frame, limit),
            Action::OutputBond(bond) => {
                if let Some(port) = self.member(*bond, &frame) {
                    self.output(port, frame, limit);
                }
            }
            Action::Punt {
                reason,
                handle,
                max_len,
            } => self.punt((*reason, *handle), *max_len, &frame),
            Action::Meter(id) => {
                self.passes(*id, &mut frame, &mut layers);
            }
            Action::Recirc(id) => self.recirculate(*id, frame),
            Action::RecircByHash { id, hash } => self.recirculate(id_of(*id, hash, &frame).0, frame),
            Action::TunnelPop { port, format } => self.pop_tunnel(frame, *port, *format),
            Action::Ct(track) if track.fragments => self.track_fragment(track, frame, &[], limit),
            Action::Ct(track) => self.connections.track(track, slice::from_mut(&mut frame), self.now),
            _ => {}
        }
    }

    /// Runs actions on each packet that a segment makes.
    #[cold]
    fn segments(&mut self, actions: &[Action], frame: Frame, limit: Option<u32>) {
        for segment in self.completed(frame) {
            self.steps(actions, segment, limit);
        }
    }

    /// The packets that a wire would have of a frame, on which nothing is pending. None, and that
    /// is counted, where its headers are not what they should be.
    fn completed(&mut self, frame: Frame) -> Vec<Frame> {
        gso::segment(frame).unwrap_or_else(|_| {
            self.dropped(DropCause::Malformed);
            Vec::new()
        })
    }

    /// The member of a bond that a packet leaves by, as it is now. Without one the drop is counted.
    fn member(&mut self, bond: u32, frame: &Frame) -> Option<PortNo> {
        let key = flow::extract(frame.data(), &frame.meta).unwrap_or(Key::ZERO);
        let member = self.bonds.member(bond, &key, frame.len());
        if member.is_none() {
            self.dropped(DropCause::PortDown);
        }
        member
    }

    /// Lets a frame wait in the egress of a bond's member, which the key of its packet selects.
    #[inline]
    pub(crate) fn queue_bond(&mut self, bond: u32, key: &Key, frame: Frame) {
        match self.bonds.member(bond, key, frame.len()) {
            Some(port) => self.queue(port, frame),
            None => self.dropped(DropCause::PortDown),
        }
    }

    #[inline]
    fn output(&mut self, port: PortNo, frame: Frame, limit: Option<u32>) {
        match limit {
            Some(limit) if frame.len() > limit as usize => self.output_cut(port, frame, limit as usize),
            _ => self.queue(port, frame),
        }
    }

    #[cold]
    fn output_cut(&mut self, port: PortNo, mut frame: Frame, limit: usize) {
        if frame.offload.gso == Gso::None {
            cut(&mut frame, limit);
            return self.queue(port, frame);
        }
        for mut segment in self.completed(frame) {
            cut(&mut segment, limit);
            self.queue(port, segment);
        }
    }

    /// Lets a frame wait in the egress of a port.
    #[inline]
    pub(crate) fn queue(&mut self, port: PortNo, frame: Frame) {
        self.settled = true;
        if self.egress.queue(port, frame).is_err() {
            self.drops.count(DropCause::PortDown, 1);
        }
    }

    #[cold]
    fn dropped(&mut self, cause: DropCause) {
        self.settled = true;
        self.drops.count(cause, 1);
    }

    /// Hands a copy to the control plane.
    #[cold]
    fn punt(&mut self, (reason, handle): (PuntReason, u32), max_len: u16, frame: &Frame) {
        let cause = match reason {
            PuntReason::Sample => DropCause::SampleBudget,
            PuntReason::Controller => DropCause::ControllerBudget,
            _ => DropCause::ProtocolBudget,
        };
        self.settled |= reason.delivers();
        // Whoever captures wants to see all, and counts what there is no room for.
        let mut budgets = self.budgets.as_deref_mut().filter(|_| reason != PuntReason::Capture);
        if budgets.as_mut().is_some_and(|budgets| budgets.of(reason).is_spent()) {
            return self.drops.count(cause, 1);
        }
        let completed;
        let packets = match frame.offload {
            Offload {
                gso: Gso::None,
                csum: Csum::Unknown | Csum::Valid,
                ..
            } => slice::from_ref(frame),
            _ => {
                completed = self.completed(frame.duplicate());
                &completed[..]
            }
        };
        // A packet of another type has none of the Ethernet header that its frame begins with.
        let hidden = if frame.meta.packet_type() == 0 { 0 } else { ETHERNET };
        for packet in packets {
            let data = packet.data().get(hidden..).unwrap_or_default();
            let wanted = data.len().min(usize::from(max_len));
            let punt = Punt {
                reason,
                handle,
                in_port: packet.meta.in_port,
                packet: &data[..wanted],
                total_len: data.len(),
                mark: frame.meta.mark,
                tunnel: frame.meta.tunnel(),
            };
            let mut budgets = self.budgets.as_deref_mut().filter(|_| reason != PuntReason::Capture);
            let may = budgets.as_mut().is_none_or(|budgets| budgets.of(reason).take());
            if (!may || !self.slowpath.punt(&punt, self.now)) && reason != PuntReason::Capture {
                self.drops.count(cause, 1);
            }
        }
    }

    /// Recirculates a frame after the current actions.
    fn recirculate(&mut self, id: u32, mut frame: Frame) {
        self.settled = true;
        if self.depth >= MAX_RECIRCULATIONS {
            return self.dropped(DropCause::Recirculation);
        }
        frame.meta.recirc_id = id;
        self.recirculated.push(frame);
    }

    /// Measures a packet, and does what the meter says; `false` where that is to drop it.
    fn passes(&mut self, id: u32, frame: &mut Frame, layers: &mut Layers) -> bool {
        match self.meters.measure(id, frame, self.now) {
            Verdict::Pass => {}
            Verdict::Drop(cause) => {
                self.dropped(cause);
                return false;
            }
            Verdict::Remark(levels) => {
                let tos = rewrite::tos(frame, layers).and_then(|tos| meters::remarked(tos, levels));
                if let Some(set) = tos.and_then(|tos| SetField::new(Field::IpTos, tos.into(), 0xfc)) {
                    set_field(frame, layers, &set);
                }
            }
        }
        true
    }
}

/// Whether something may be seen of a packet after an action.
fn shows(action: &Action) -> bool {
    matches!(
        action,
        Action::Output(_)
            | Action::OutputBond(_)
            | Action::Punt { .. }
            | Action::Meter(_)
            | Action::Recirc(_)
            | Action::RecircByHash { .. }
            | Action::TunnelPop { .. }
            | Action::Ct(_)
    )
}

/// The number that a packet is recirculated with, as it is now.
pub(crate) fn id_of(id: RecircId, hash: &FlowHash, frame: &Frame) -> RecircId {
    // Without a key, a packet is dropped when it comes back.
    let key = flow::extract(frame.data(), &frame.meta);
    id.with_hash(key.map_or(0, |key| hash.short(&key)))
}

/// Where the network header begins: behind the Ethernet header and its tags.
fn ethernet_len(frame: &Frame) -> usize {
    behind_tags(frame.data(), usize::MAX).map_or(ETHERNET, |(_, start)| start)
}

/// Cuts a packet that no device is to segment.
fn cut(frame: &mut Frame, limit: usize) {
    let limit = limit.max(ETHERNET);
    // A checksum that lies outside of the packet is nothing that a cut packet needs.
    let _ = checksum::fill(frame);
    if frame.len() > limit {
        frame.truncate(limit);
        frame.offload = Offload::default();
    }
}

/// A copy for an output: no more of the packet than that is going to send.
#[inline]
fn copy(frame: &Frame, limit: Option<u32>) -> Frame {
    match (limit, frame.offload) {
        (Some(limit), offload) if offload.gso == Gso::None && !matches!(offload.csum, Csum::Partial { .. }) => {
            let len = (limit as usize).max(ETHERNET).min(frame.len());
            let mut copy = Frame::from_slice(&frame.data()[..len]);
            copy.meta = frame.meta.clone();
            if len == frame.len() {
                copy.offload = offload;
            }
            copy
        }
        _ => frame.duplicate(),
    }
}

/// Whether a packet, without what it is filled up with behind its data, is longer than `len` bytes
/// on the wire; `None` where some of those that a segment makes are and some are not.
fn is_longer(frame: &Frame, len: usize) -> Option<bool> {
    if frame.len() <= len {
        return Some(false);
    }
    if frame.offload.gso == Gso::None {
        return Some(frame.len() - padding(frame.data()) > len);
    }
    let (longest, last) = gso::wire_lengths(frame);
    ((longest > len) == (last > len)).then_some(longest > len)
}

/// How many bytes stand behind the end of an IP packet: what a frame is filled up with to be long
/// enough, which is none of its data. More than a frame can have of that are not.
fn padding(frame: &[u8]) -> usize {
    let at = |at: usize| Some(usize::from(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?])));
    let end = || {
        let (kind, start) = behind_tags(frame, usize::MAX)?;
        match kind {
            EtherType::IPV4 => Some(start + at(start + 2)?),
            EtherType::IPV6 => Some(start + 40 + at(start + 4)?),
            _ => None,
        }
    };
    let rest = end().and_then(|end| frame.len().checked_sub(end));
    rest.filter(|rest| *rest <= 255).unwrap_or(0)
}

#[cfg(test)]
mod tests;
