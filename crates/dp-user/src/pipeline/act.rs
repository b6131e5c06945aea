//! Stages 6 and 7: the actions of a batch's megaflows.

use super::Pipeline;
use crate::actions::{Actor, is_outer_segment, takes_apart};
use crate::batch::{Batch, MALFORMED, Run, bytes_of};
use crate::edit::{Before, Ending};
use crate::megaflow::Recirculation;
use crate::rx_queue::Source;
use crate::signature::NONE;
use crate::stats::DropSink;
use crate::upcall_queue::WaitingPacket;
use dp::{Action, DropCause};
use flow::{Key, PortNo};
use nanos::Nanos;
use netdev::Frame;

impl Pipeline {
    /// Stages 6 and 7 where all packets have one megaflow. Returns whether the batch is to be
    /// recirculated.
    #[inline]
    pub(super) fn act_alike(&mut self, number: u32, batch: &mut Batch, from: &mut Source, now: Nanos) -> bool {
        // The runs are those of an earlier batch.
        batch.forget_runs();
        let packets = batch.frames.len() as u64;
        self.stats.exact_hits.add(packets);
        let flow = self.flows.flow_mut(number);
        let to = flow.ending.port().filter(|_| flow.before != Before::Encapsulates);
        let Some(to) = to else {
            batch.run_of(number);
            return self.act(batch, 0, from, now);
        };
        flow.carried(packets, bytes_of(&batch.frames), now);
        let before = flow.before;
        if before != Before::Nothing
            && self
                .actor
                .prepare(before, flow.actions().0, &mut batch.frames, (from, 0, now))
        {
            batch.run_of(number);
            self.lose_emptied(batch, from);
            if batch.frames.is_empty() {
                return false;
            }
        }
        self.flows.traffic();
        self.queue_all(to, batch, from);
        false
    }

    /// Stage 7 for a batch that goes to one port as it is.
    #[inline]
    fn queue_all(&mut self, port: PortNo, batch: &mut Batch, from: &Source) {
        let drops = DropSink {
            worker: &self.stats,
            port: from.stats.as_deref(),
        };
        self.actor.egress.queue_all(port, &mut batch.frames, drops);
    }

    /// Stages 6 and 7 where every packet has a megaflow, and has recirculated `depth` times.
    /// Returns whether the batch is to be recirculated.
    #[inline(never)]
    pub(super) fn act(&mut self, batch: &mut Batch, depth: u32, from: &mut Source, now: Nanos) -> bool {
        let recirculation = self.flows.recirculation(batch.runs());
        let in_order = match recirculation {
            Recirculation::None => false,
            Recirculation::Some => true,
            Recirculation::All => self.flows.ends_tunnels() && batch.frames.iter().any(is_outer_segment),
        };
        if in_order {
            self.act_in_order(batch, depth, from, now);
            return false;
        }
        self.flows.traffic();
        let Some(first) = batch.runs().first() else {
            return false;
        };
        let ending = self.flows.flow_mut(first.flow).ending;
        let (mut one_ending, mut before) = (true, Before::Nothing);
        // Packets of one megaflow that follow each other are counted at once: a count that was just
        // written is slow to be read again.
        let (mut packets, mut bytes) = (0, 0);
        let mut runs = batch.runs().iter().peekable();
        while let Some(run) = runs.next() {
            packets += run.packets;
            bytes += run.bytes;
            if runs.peek().is_some_and(|next| next.flow == run.flow) {
                continue;
            }
            let flow = self.flows.flow_mut(run.flow);
            flow.carried(packets.into(), bytes.into(), now);
            one_ending &= flow.ending == ending;
            before = before.max(flow.before);
            (packets, bytes) = (0, 0);
        }
        if before >= Before::Encapsulates && self.takes_apart(batch) {
            self.act_one_by_one(batch, depth, from, now);
            return false;
        }
        if before != Before::Nothing && self.edit(batch, depth, from, now) {
            self.lose_emptied(batch, from);
            if batch.frames.is_empty() {
                return false;
            }
        }
        if recirculation == Recirculation::All {
            let id = one_ending.then(|| ending.recirculation()).flatten();
            return self.recirculate_all(batch, id, before, depth, from);
        }
        if let Some(to) = ending.port()
            && one_ending
        {
            if depth > 0 {
                self.actor.connections.reclaim(&mut batch.frames);
            }
            self.queue_all(to, batch, from);
            return false;
        }
        if let Ending::Bond(bond) = ending
            && one_ending
            && batch.has_keys
        {
            self.queue_by_bond(bond, batch, from);
            return false;
        }
        let mut context = self.actor.context(from, depth, now);
        // Backwards, because that is how a frame comes out of the vector in one piece: taken from a
        // `Drain` it is taken apart first.
        let has_keys = batch.has_keys;
        let (runs, frames) = batch.parts_mut();
        frames.reverse();
        for run in runs {
            for _ in 0..run.packets {
                let frame = frames.swap_remove(frames.len() - 1);
                let flow = self.flows.flow_mut(run.flow);
                match flow.ending {
                    Ending::Output(port) => context.queue(port, frame),
                    Ending::Bond(bond) if has_keys => context.queue_bond(bond, &run.key, frame),
                    // Its changes are made.
                    Ending::Bond(bond) => context.run(&[Action::OutputBond(bond)], None, frame),
                    // Actions lie apart from their megaflow: to look at them is another access to
                    // memory.
                    Ending::Recirculate(_) | Ending::RecirculateByHash | Ending::TunnelPop | Ending::Other => {
                        let (actions, drop) = flow.actions();
                        context.run(actions, drop, frame);
                    }
                }
            }
        }
        // A tunnel's answers to packets that are too big for it.
        self.recirculate(depth, from, now);
        false
    }

    /// Whether there are packets that actions encapsulate and thereby take apart.
    #[inline(never)]
    fn takes_apart(&mut self, batch: &Batch) -> bool {
        let mut rest = &batch.frames[..];
        let mut groups = batch.runs().chunk_by(|run, next| run.flow == next.flow);
        groups.any(|runs| {
            let packets: u32 = runs.iter().map(|run| run.packets).sum();
            let (own, others) = rest.split_at(packets as usize);
            rest = others;
            let flow = self.flows.flow_mut(runs[0].flow);
            flow.before == Before::Encapsulates && takes_apart(flow.actions().0, own)
        })
    }

    /// Stages 6 and 7 where every packet has a megaflow that has counted it, packet by packet.
    #[cold]
    fn act_one_by_one(&mut self, batch: &mut Batch, depth: u32, from: &mut Source, now: Nanos) {
        let mut context = self.actor.context(from, depth, now);
        let (runs, frames) = batch.parts_mut();
        let mut frames = frames.drain(..);
        for run in runs {
            let (actions, drop) = self.flows.flow_mut(run.flow).actions();
            for frame in frames.by_ref().take(run.packets as usize) {
                context.run(actions, drop, frame);
            }
        }
        drop(frames);
        self.recirculate(depth, from, now);
    }

    /// Stage 7 for a batch that goes to the members of a bond as it is. Which member a packet has
    /// is nothing that a processor could predict: it only selects an address here, and no branch.
    fn queue_by_bond(&mut self, bond: u32, batch: &mut Batch, from: &Source) {
        let drops = DropSink {
            worker: &self.stats,
            port: from.stats.as_deref(),
        };
        let Actor { bonds, egress, .. } = &mut self.actor;
        let (runs, frames) = batch.parts_mut();
        let Some(members) = bonds.places(bond, egress) else {
            drops.count(DropCause::PortDown, frames.len() as u64);
            return frames.clear();
        };
        let mut lost = 0;
        // Backwards, as above.
        frames.reverse();
        // Those without packets were emptied by actions.
        for run in runs.iter().filter(|run| run.packets > 0) {
            let place = members.choose(&run.key, run.bytes.into());
            match egress.queue_at(place) {
                Some(queue) => {
                    for _ in 0..run.packets {
                        queue.push(frames.swap_remove(frames.len() - 1));
                    }
                }
                None => {
                    lost += u64::from(run.packets);
                    frames.truncate(frames.len() - run.packets as usize);
                }
            }
        }
        if lost > 0 {
            drops.count(DropCause::PortDown, lost);
        }
    }

    /// Does to packets what their megaflows say that is to be done where they are; returns whether
    /// one of them was left without a byte.
    fn edit(&mut self, batch: &mut Batch, depth: u32, from: &mut Source, now: Nanos) -> bool {
        let (runs, frames) = batch.parts_mut();
        let mut rest = &mut frames[..];
        let mut lost = false;
        for runs in runs.chunk_by(|run, next| run.flow == next.flow) {
            let packets: u32 = runs.iter().map(|run| run.packets).sum();
            let (own, others) = rest.split_at_mut(packets as usize);
            rest = others;
            let flow = self.flows.flow_mut(runs[0].flow);
            let before = flow.before;
            if before != Before::Nothing {
                lost |= self.actor.prepare(before, flow.actions().0, own, (from, depth, now));
            }
        }
        lost
    }

    /// Counts packets that actions have emptied: they had no room for another header. No real
    /// packet has that many headers.
    #[cold]
    fn lose_emptied(&self, batch: &mut Batch, from: &Source) {
        let (runs, frames) = batch.parts_mut();
        let mut rest = &frames[..];
        for run in runs {
            let (own, others) = rest.split_at(run.packets as usize);
            rest = others;
            run.packets = own.iter().filter(|frame| !frame.is_empty()).count() as u32;
        }
        let packets = frames.len();
        frames.retain(|frame| !frame.is_empty());
        let lost = packets - frames.len();
        self.sink(from).count(DropCause::Malformed, lost as u64);
    }

    /// Stages 5 to 7, packet by packet. Packets in a row that are recirculated, and nothing else is
    /// done with them than to change them, are recirculated as a batch, before the packet that
    /// follows them: the order is that of one packet after the other.
    #[cold]
    pub(super) fn act_in_order(&mut self, batch: &mut Batch, depth: u32, from: &mut Source, now: Nanos) {
        self.flows.traffic();
        let removals = self.flows.removals();
        let searched = batch.searched;
        let (runs, frames) = batch.parts_mut();
        let mut frames = frames.drain(..);
        for Run { key, flow, packets, .. } in runs {
            for frame in frames.by_ref().take(*packets as usize) {
                let mut is_known = *flow < MALFORMED && removals == self.flows.removals();
                let collects = is_known && self.flows.flow_mut(*flow).ending.recirculates();
                if !collects {
                    self.recirculate(depth, from, now);
                    is_known &= removals == self.flows.removals();
                }
                if is_known && !from.upcalls.is_behind(key) {
                    self.run_flow(*flow, frame, depth, from, now);
                    if !collects {
                        self.recirculate(depth, from, now);
                    }
                } else if *flow == MALFORMED {
                    self.refuse_malformed(depth, from);
                } else {
                    self.recirculate(depth, from, now);
                    let since = if *flow == NONE { searched } else { 0 };
                    self.miss(key, since, frame, depth, from, now);
                }
            }
        }
        self.recirculate(depth, from, now);
    }

    /// Stage 6 for a packet whose megaflow is known; what it recirculates is collected.
    pub(super) fn run_flow(&mut self, number: u32, frame: Frame, depth: u32, from: &mut Source, now: Nanos) {
        let flow = self.flows.flow_mut(number);
        flow.carried(1, frame.len() as u64, now);
        let (actions, drop) = flow.actions();
        self.actor.context(from, depth, now).run(actions, drop, frame);
    }

    /// A packet for which there was no megaflow when `since` had been made, or whose megaflow may
    /// have gone since.
    #[cold]
    fn miss(&mut self, key: &Key, since: u64, frame: Frame, depth: u32, from: &mut Source, now: Nanos) {
        let found = self.flows.lookup_newer(key, since);
        // A megaflow that was found may be gone by the time of the next lookup.
        let searched = if found.is_some() { 0 } else { self.flows.made() };
        let Some(number) = found.filter(|_| !from.upcalls.is_behind(key)) else {
            return self.upcall_or_wait(WaitingPacket::new(frame, key, depth, searched), from, now);
        };
        self.stats.megaflow_hits.add(1);
        self.remember(key, number);
        self.run_flow(number, frame, depth, from, now);
        self.recirculate(depth, from, now);
    }

    /// Sends a frame through actions, outside of any flow, as if it had come in on a port.
    pub(crate) fn execute(&mut self, in_port: PortNo, mut frame: Frame, actions: &[Action], now: Nanos) {
        frame.meta.in_port = in_port;
        self.with_control(|pipeline, control| {
            pipeline.actor.context(control, 0, now).run(actions, None, frame);
            pipeline.recirculate(0, control, now);
            pipeline.actor.flush(now);
        });
    }

    /// Sends a frame of the control plane ahead of all that is queued at its port.
    pub(crate) fn send_ahead(&mut self, port: PortNo, frame: Frame, now: Nanos) {
        self.actor.egress.send_ahead(port, frame, &self.stats, now);
    }

    /// Counts a packet without a key, which was not received as such where it was recirculated.
    fn refuse_malformed(&self, depth: u32, from: &Source) {
        match depth {
            0 => self.refuse(from, DropCause::Malformed, 1),
            _ => self.sink(from).count(DropCause::Malformed, 1),
        }
    }

    /// Counts packets that go no further after they were received.
    pub(super) fn refuse(&self, from: &Source, cause: DropCause, packets: u64) {
        self.sink(from).count(cause, packets);
        if let Some(stats) = &from.stats {
            stats.rx_dropped.add(packets);
        }
    }

    /// Where drops of packets from a queue are counted.
    pub(super) fn sink<'a>(&'a self, from: &'a Source) -> DropSink<'a> {
        DropSink {
            worker: &self.stats,
            port: from.stats.as_deref(),
        }
    }
}
