//! Which packets' flows are offloaded, and what ends offloaded flows besides their megaflows.

use super::{Pipeline, take_in};
use crate::batch::BATCH;
use crate::batch::{Batch, MALFORMED};
use crate::dep_epochs::PortOffload;
use crate::device_facts::DeviceFacts;
use crate::megaflow::Candidate;
use crate::rx_queue::RxQueue;
use crate::signature::NONE;
use dp::offload::{OuterHeaders, PacketKind};
use flow::{Key, PortNo};
use nanos::Nanos;
use netdev::{Frame, Gso, State};
use std::sync::Arc;
use tunnel::format::Format;

/// Times that the queue is looked at until no packet of a flow has come meanwhile.
const ROUNDS: u32 = 4;

/// The last packet of a batch, before it goes its way.
pub(super) struct Last {
    kind: PacketKind,
    /// As long as this stands still, numbers of megaflows mean what they did.
    removals: u64,
    tunnel: Option<TunnelKeys>,
    /// Where packets are tracked, or distributed by a hash.
    key: Option<Key>,
}

/// The keys of a packet of a tunnel that ends here.
struct TunnelKeys {
    outer: Key,
    inner: Key,
    /// Of the megaflow that removes its outer headers.
    end: (PortNo, Format),
}

impl Pipeline {
    /// The last packet of a batch, where packets like it can be offloaded.
    #[cold]
    pub(super) fn candidate(&mut self, batch: &Batch, from: &RxQueue) -> Option<Last> {
        // Where the batch is full, others of its flow may wait behind it, and would be overtaken.
        if batch.frames.len() >= BATCH || from.has_ingress() || from.waits() || from.has_pending() {
            return None;
        }
        let (port, frame) = (from.offload_port.as_ref()?, batch.frames.last()?);
        let mut kind = port.kind(frame.data())?;
        let tunnel = match self.flows.ends_tunnels() {
            true => self.tunnel_keys(frame),
            false => None,
        };
        if let Some(keys) = &tunnel {
            let is_segment = frame.offload.gso != Gso::None;
            kind = port.kind_of_tunnel(frame.data(), keys.end.1, is_segment)?;
        }
        let key = match (self.flows.has_ways(), &tunnel) {
            (false, _) => None,
            (true, None) => flow::extract(frame.data(), &frame.meta),
            (true, Some(keys)) => Some(keys.inner),
        };
        Some(Last {
            kind,
            removals: self.flows.removals(),
            tunnel,
            key,
        })
    }

    /// The keys of a packet, where a megaflow removes its outer headers.
    fn tunnel_keys(&mut self, frame: &Frame) -> Option<TunnelKeys> {
        let outer = flow::extract(frame.data(), &frame.meta)?;
        let flow = self.flows.lookup(&outer)?;
        let end = self.flows.tunnel_end(flow)?;
        let inner = self.actor.tunnels.inner_key(frame, end.0, end.1)?;
        Some(TunnelKeys { outer, inner, end })
    }

    /// Offloads packets like the last of a batch that has gone its way. Returns how many more
    /// packets have gone their way meanwhile.
    #[cold]
    pub(super) fn offload(&mut self, last: &Last, batch: &mut Batch, from: &mut RxQueue, now: Nanos) -> usize {
        match self.put_in_force(last, batch, from, now) {
            Some(place) => self.settle(place, batch, from, now),
            None => 0,
        }
    }

    /// Lets an offloaded flow carry packets when all that came before it was in force have gone
    /// their way, and takes those first.
    fn settle(&mut self, place: u32, batch: &mut Batch, from: &mut RxQueue, now: Nanos) -> usize {
        let mut frames = 0;
        for _ in 0..ROUNDS {
            let Some(given) = self.flows.given(place) else {
                return frames;
            };
            // An error is for the next call.
            let _ = from.rx.recv(&mut batch.frames, BATCH);
            let came = batch.frames.len();
            frames += came;
            if came > 0 {
                if let Some(budgets) = &mut from.source.punts {
                    budgets.begin(true);
                }
                take_in(&mut batch.frames, from);
                self.forward(batch, from, now);
            }
            if from.waits() || from.has_pending() {
                return frames;
            }
            if came < BATCH && self.flows.settle(place, given) {
                return frames;
            }
        }
        self.flows.did_not_settle(place);
        frames
    }

    /// Puts an offloaded flow in force for packets like the last of a batch. Returns its place.
    fn put_in_force(&mut self, last: &Last, batch: &Batch, from: &RxQueue, now: Nanos) -> Option<u32> {
        // An offloaded flow can be put in force only where all changes have been applied; in a
        // burst of them there may be new ones already.
        self.apply_changes();
        let (flow, outer) = match &last.tunnel {
            None => (self.first_flow(last, batch, from, now)?, None),
            Some(keys) => self.tunnel_flows(keys, from)?,
        };
        let packets = match &last.key {
            Some(key) if self.flows.begins_way(flow) => {
                // To follow them takes longer than the rest.
                if !self.flows.may_offload(&last.kind, now) {
                    return None;
                }
                let Some(packets) = self.follow(&last.kind, key, flow, now) else {
                    self.flows.forsake(&last.kind, now);
                    return None;
                };
                Some(packets)
            }
            _ => None,
        };
        let (end, key) = match &packets {
            Some(packets) => ((packets.flow, packets.done), packets.key),
            None => ((flow, 0), last.kind.flow_key()),
        };
        // A bond that changes from here on suspends the offloaded flows to its members, and those
        // that would be put in force by what is read now are not.
        let version = self.actor.bonds.version();
        let outputs = self.flows.outputs(end, &last.kind, &key, &mut self.actor.bonds);
        let direct = outputs.filter(|(outputs, _)| outputs.ports().all(|to| self.actor.egress.is_direct(to)));
        if direct.is_none() && packets.is_some() {
            self.flows.did_not_arrive(&last.kind, now);
        }
        let (outputs, loads) = direct?;
        let table = from.offload_port.as_ref()?.table();
        let way = match &packets {
            None => None,
            Some(packets) => match self.open_way(packets, table, now) {
                Some(way) => Some(Arc::new(way)),
                None => {
                    self.flows.forsake(&last.kind, now);
                    return None;
                }
            },
        };
        let push = match outputs.push() {
            None => None,
            Some(push) => Some(
                OuterHeaders::of(
                    push,
                    self.actor.tunnels.hash(match &way {
                        Some(way) => way.headers.after(),
                        None => last.kind.headers(),
                    }),
                )
                .ok()?,
            ),
        };
        let candidate = Candidate {
            kind: last.kind,
            from: from.port,
            flow: end.0,
            outer,
            way: way.clone(),
            push,
            outputs,
            loads,
        };
        let (changes, applied, bonds) = (&self.changes, self.epoch, &self.actor.bonds);
        let is_current = || {
            let same = changes.epoch() == applied && bonds.version() == version;
            same && way.as_ref().is_none_or(|way| way.is_current(table))
        };
        let place = self.flows.offload(&candidate, is_current, now);
        if place.is_none() && packets.is_some() {
            self.flows.did_not_arrive(&last.kind, now);
        }
        place
    }

    /// The megaflows of a tunnel's packet: that for what is inside, and that which removes the
    /// outer headers.
    fn tunnel_flows(&mut self, keys: &TunnelKeys, from: &RxQueue) -> Option<(u32, Option<u32>)> {
        if from.waits() || from.has_pending() {
            return None;
        }
        let outer = self.flows.lookup(&keys.outer)?;
        if self.flows.tunnel_end(outer) != Some(keys.end) {
            return None;
        }
        Some((self.flows.lookup(&keys.inner)?, Some(outer)))
    }

    /// The first megaflow of the last packet of a batch, which may have been recirculated since.
    fn first_flow(&mut self, last: &Last, batch: &Batch, from: &RxQueue, now: Nanos) -> Option<u32> {
        match &last.key {
            Some(_) if from.waits() || from.has_pending() => None,
            Some(key) => self.flows.lookup(key),
            None => self.flow_of(last, batch, from, now),
        }
    }

    /// The megaflow of the last packet of a batch.
    fn flow_of(&mut self, last: &Last, batch: &Batch, from: &RxQueue, now: Nanos) -> Option<u32> {
        // The packet may wait behind others of its flow, whether its megaflow is known or not.
        if from.waits() || from.has_pending() {
            return None;
        }
        if let Some(all) = self.flows.of_all(from.port) {
            return Some(all);
        }
        let run = batch.runs().last()?;
        match run.flow {
            MALFORMED => None,
            // It has made one. Where many do, others do not wait for this.
            NONE if !self.flows.has_time_to_offload(now) => None,
            NONE => self.flows.lookup(&run.key),
            flow if self.flows.removals() == last.removals => Some(flow),
            // Numbers may mean others.
            flow => self.flows.covers(flow, &run.key).then_some(flow),
        }
    }

    /// Lets offloaded flows lead from and to a port, where they can.
    pub(crate) fn add_offload_port(&mut self, port: PortNo, offload: Option<PortOffload>) {
        if let Some(offload) = offload {
            self.flows.add_offload_port(port, offload);
        }
    }

    /// Lets all packets that come in or go out by a port come here, at once.
    pub(crate) fn stop_offloaded(&mut self, port: PortNo) {
        self.flows.stop_offloaded_of(port);
    }

    /// Says whether flows are offloaded.
    pub(crate) fn set_offload(&mut self, enabled: bool) {
        self.flows.set_offload(enabled);
    }

    /// Suspends the offloaded flows from and to a port, whose device has this state now; `None`
    /// where it has gone. Sends at the speed of its link from now on, and drops what waits for a
    /// link that is down.
    pub(crate) fn link_changed(&mut self, port: PortNo, device: Option<State>) {
        let up = device.as_ref().is_some_and(|state| state.admin_up && state.carrier);
        self.actor.egress.set_link(port, up, &self.stats);
        if let Some(state) = &device {
            self.actor.egress.set_speed(port, DeviceFacts::speed_of(state));
        }
        self.flows.link_changed(port, device);
    }

    /// Packets that offloaded flows have carried, of whatever workers; `None` where this one has
    /// none open.
    pub(crate) fn carried_by_offload(&self) -> Option<u64> {
        self.flows.carried_by_offload()
    }

    /// Tells megaflows what some offloaded flows have carried for them, from a place on; returns
    /// the place to go on from.
    pub(crate) fn tell_carried(&mut self, first: u32) -> Option<u32> {
        self.flows.tell_carried(first)
    }
}
