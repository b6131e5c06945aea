//! Stage six of a packet's way: actions, run in order on one frame.
//!
//! Invariants
//! - A frame is copied only where something else is still to be done with it: the last output takes the frame itself.
//! - Nothing allocates but what asks for a packet as a wire would have it, of a frame that is a large segment: a controller, a cut packet, an
//!   MPLS label, under which no device could be told to cut it.

use crate::egress::Egress;
use crate::layers::{Layers, Network};
use crate::meters::{self, MeterView, Verdict};
use crate::pipeline::{Budget, Inlet};
use crate::rewrite::{self, set_field};
use crate::stats::{DropSink, WorkerStats};
use dp::{Action, DropCause, PacketIn, SetField, Slowpath};
use flow::{Field, PortNo};
use netdev::{Csum, Frame, FrameError, Gso, Offload, checksum, gso};
use std::slice;
use std::sync::Arc;
use wire::Nanos;

/// Length of an Ethernet header: no packet is cut shorter.
const ETHERNET: usize = 14;

/// Length of an MPLS label stack entry.
const LSE: usize = 4;

/// What actions of one worker need.
pub(crate) struct Actor {
    pub(crate) egress: Egress,
    meters: MeterView,
    slowpath: Arc<dyn Slowpath>,
    stats: Arc<WorkerStats>,
}

/// The same, for packets of one origin.
pub(crate) struct Context<'a> {
    egress: &'a mut Egress,
    meters: &'a mut MeterView,
    slowpath: &'a dyn Slowpath,
    /// Copies that may go to controllers; any number where it is the control plane that sends.
    budget: Option<&'a mut Budget>,
    in_port: PortNo,
    drops: DropSink<'a>,
    now: Nanos,
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// All steps were run, and the last one gave it to somebody.
    Delivered,
    /// All steps were run.
    Done,
    /// It was dropped on the way, and that is counted.
    Dropped,
}

impl Actor {
    pub(crate) fn new(meters: MeterView, slowpath: Arc<dyn Slowpath>, stats: Arc<WorkerStats>) -> Actor {
        Actor {
            egress: Egress::default(),
            meters,
            slowpath,
            stats,
        }
    }

    /// For packets from a queue.
    #[inline]
    pub(crate) fn for_inlet<'a>(&'a mut self, from: &'a mut Inlet, now: Nanos) -> Context<'a> {
        Context {
            egress: &mut self.egress,
            meters: &mut self.meters,
            slowpath: &*self.slowpath,
            budget: Some(&mut from.packet_ins),
            in_port: from.port,
            drops: DropSink {
                worker: &self.stats,
                port: Some(&from.stats),
            },
            now,
        }
    }

    /// For packets of the control plane.
    pub(crate) fn for_control(&mut self, in_port: PortNo, now: Nanos) -> Context<'_> {
        Context {
            egress: &mut self.egress,
            meters: &mut self.meters,
            slowpath: &*self.slowpath,
            budget: None,
            in_port,
            drops: DropSink {
                worker: &self.stats,
                port: None,
            },
            now,
        }
    }

    /// Sends what waits.
    #[inline]
    pub(crate) fn flush(&mut self, now: Nanos) {
        self.egress.flush(&self.stats, now);
    }
}

impl Context<'_> {
    /// Runs `actions` on a frame; outputs wait in the egress. `drop` says why, where the actions send it nowhere.
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
        let end = self.steps(actions, frame, None);
        if end != End::Done {
            return;
        }
        let delivers = |action: &Action| matches!(action, Action::Output(_) | Action::Controller { .. });
        if !actions.iter().any(delivers) {
            self.drops.count(drop.unwrap_or(DropCause::NoDestination), 1);
        }
    }

    /// Runs actions; `limit` is what an [`Action::Trunc`] before them left for the next output.
    fn steps(&mut self, actions: &[Action], mut frame: Frame, mut limit: Option<u32>) -> End {
        let shows =
            |action: &Action| matches!(action, Action::Output(_) | Action::Controller { .. } | Action::Meter(_));
        let Some(last) = actions.iter().rposition(shows) else {
            return End::Done;
        };
        let mut layers = Layers::UNKNOWN;
        let mut at = 0;
        while at < last {
            let action = &actions[at];
            at += 1;
            let done = match action {
                Action::SetField(set) => {
                    set_field(&mut frame, &mut layers, set);
                    Ok(())
                }
                Action::Output(port) => {
                    let limit = limit.take();
                    self.output(*port, copy(&frame, limit), limit);
                    Ok(())
                }
                Action::PushVlan(tag) => {
                    layers.forget();
                    frame.push_vlan(*tag)
                }
                Action::PopVlan => {
                    layers.forget();
                    frame.pop_vlan();
                    Ok(())
                }
                Action::PushMpls { ethertype, lse } => {
                    if frame.offload.gso != Gso::None {
                        return self.segments(&actions[at - 1..], frame, limit);
                    }
                    push_mpls(&mut frame, &mut layers, *ethertype, *lse)
                }
                Action::PopMpls { ethertype } => pop_mpls(&mut frame, &mut layers, *ethertype),
                Action::SetMpls { lse, mask } => {
                    rewrite::set_mpls(&mut frame, &mut layers, *lse, *mask);
                    Ok(())
                }
                Action::Trunc(len) => {
                    limit = Some(*len);
                    Ok(())
                }
                Action::Controller { handle, max_len } => {
                    self.packet_in(*handle, *max_len, &frame);
                    Ok(())
                }
                Action::Meter(id) => {
                    if self.measure(*id, &mut frame, &mut layers) == End::Dropped {
                        return End::Dropped;
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
            };
            if done.is_err() {
                // No room for another header: nobody's packet has so many.
                self.drops.count(DropCause::Malformed, 1);
                return End::Dropped;
            }
        }
        match &actions[last] {
            Action::Output(port) => self.output(*port, frame, limit),
            Action::Controller { handle, max_len } => self.packet_in(*handle, *max_len, &frame),
            Action::Meter(id) => return self.measure(*id, &mut frame, &mut layers),
            _ => return End::Done,
        }
        End::Delivered
    }

    /// Runs actions on each packet that a segment makes.
    #[cold]
    fn segments(&mut self, actions: &[Action], frame: Frame, limit: Option<u32>) -> End {
        let mut end = End::Dropped;
        for segment in self.completed(frame) {
            let of_segment = self.steps(actions, segment, limit);
            if of_segment != End::Dropped {
                end = of_segment;
            }
        }
        end
    }

    /// The packets that a wire would have of a frame, on which nothing is pending. None, and that is counted, where its headers are not what
    /// they should be.
    fn completed(&mut self, frame: Frame) -> Vec<Frame> {
        gso::segment(frame).unwrap_or_else(|_| {
            self.drops.count(DropCause::Malformed, 1);
            Vec::new()
        })
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
        let cut = |context: &mut Self, mut frame: Frame| {
            if frame.len() > limit.max(ETHERNET) {
                frame.truncate(limit.max(ETHERNET));
                frame.offload = Offload::default();
            }
            context.queue(port, frame);
        };
        if frame.offload.gso == Gso::None {
            // A checksum that lies outside of the packet is nothing that a cut packet needs.
            let _ = checksum::fill(&mut frame);
            cut(self, frame);
        } else {
            self.completed(frame).into_iter().for_each(|segment| cut(self, segment));
        }
    }

    #[inline]
    fn queue(&mut self, port: PortNo, frame: Frame) {
        if self.egress.queue(port, frame).is_err() {
            self.drops.count(DropCause::PortDown, 1);
        }
    }

    /// Hands a copy to the slowpath.
    #[cold]
    fn packet_in(&mut self, handle: u32, max_len: u16, frame: &Frame) {
        if self.budget.as_ref().is_some_and(|budget| budget.is_spent()) {
            self.drops.count(DropCause::ControllerBudget, 1);
            return;
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
        for packet in packets {
            let wanted = packet.len().min(usize::from(max_len));
            let packet_in = PacketIn {
                handle,
                in_port: self.in_port,
                packet: &packet.data()[..wanted],
                total_len: packet.len(),
            };
            let may = self.budget.as_mut().is_none_or(|budget| budget.take());
            if !may || !self.slowpath.packet_in(&packet_in, self.now) {
                self.drops.count(DropCause::ControllerBudget, 1);
            }
        }
    }

    /// Measures a packet, and does what the meter says.
    fn measure(&mut self, id: u32, frame: &mut Frame, layers: &mut Layers) -> End {
        match self.meters.measure(id, frame, self.now) {
            Verdict::Pass => {}
            Verdict::Drop => {
                self.drops.count(DropCause::Meter, 1);
                return End::Dropped;
            }
            Verdict::Remark(levels) => {
                let tos = rewrite::tos(frame, layers).and_then(|tos| meters::remarked(tos, levels));
                if let Some(set) = tos.and_then(|tos| SetField::new(Field::IpTos, tos.into(), 0xfc)) {
                    set_field(frame, layers, &set);
                }
            }
        }
        End::Done
    }
}

/// A copy for an output: no more of the packet than that is going to send.
#[inline]
fn copy(frame: &Frame, limit: Option<u32>) -> Frame {
    match (limit, frame.offload) {
        (Some(limit), offload) if offload.gso == Gso::None && !matches!(offload.csum, Csum::Partial { .. }) => {
            let len = (limit as usize).max(ETHERNET).min(frame.len());
            let mut copy = Frame::from_slice(&frame.data()[..len]);
            if len == frame.len() {
                copy.offload = offload;
            }
            copy
        }
        _ => frame.duplicate(),
    }
}

/// Puts a label stack entry in. What is pending is completed first: no device can be told to do it under a label.
fn push_mpls(frame: &mut Frame, layers: &mut Layers, ethertype: u16, lse: u32) -> Result<(), FrameError> {
    let start = match layers.locate(frame.data()) {
        Layers {
            network: Network::Short | Network::Untyped,
            ..
        } => return Ok(()),
        layers => layers.start,
    };
    checksum::fill(frame).map_err(|_| FrameError::ChecksumPending)?;
    frame.insert(start, LSE)?.copy_from_slice(&lse.to_be_bytes());
    set_ethertype(frame, start, ethertype);
    layers.forget();
    Ok(())
}

/// Takes a label stack entry out.
fn pop_mpls(frame: &mut Frame, layers: &mut Layers, ethertype: u16) -> Result<(), FrameError> {
    let &Layers { network, start, .. } = layers.locate(frame.data());
    if network == Network::Mpls {
        frame.remove(start, LSE)?;
        set_ethertype(frame, start, ethertype);
        layers.forget();
    }
    Ok(())
}

/// Sets the type of what begins at `start`.
fn set_ethertype(frame: &mut Frame, start: usize, ethertype: u16) {
    frame.data_mut()[start - 2..start].copy_from_slice(&ethertype.to_be_bytes());
}

#[cfg(test)]
mod tests;
