//! Stage 5: upcalls, and packets that wait for their translation (`upcall_queue`).
//!
//! - The worker caches an answer as any other, or not at all where it may be out of date.
//! - `upcalls` counts a packet when its answer is there, `lost` one that is dropped before. No
//!   packet counts in both.
//! - Packets of the control plane wait like those of a receive queue, in a queue of their own.

use super::Pipeline;
use crate::batch::BATCH;
use crate::rx_queue::{RxQueue, Source};
use crate::upcall_queue::{OtherQueues, WaitingPacket};
use dp::{Answer, Carried, DropCause, Translation};
use flow::{Key, PortNo};
use nanos::Nanos;
use std::time::Duration;

/// How long the worker makes no upcalls after it found that the control plane was changing the
/// switch's tables.
const RETRY: Duration = Duration::from_millis(1);

/// How often upcalls can be made.
pub(super) struct Upcalls {
    /// Number of receive queues with packets in this poll round.
    sharing: u32,
    /// What is known of those without a backlog.
    others: OtherQueues,
    /// The control plane was changing the switch's tables: the worker makes no upcalls until this
    /// time.
    retry: Option<Nanos>,
    /// Packets of the control plane; taken out while the worker handles them.
    control: Option<Box<Source>>,
}

impl Default for Upcalls {
    fn default() -> Upcalls {
        Upcalls {
            sharing: 1,
            others: OtherQueues::Ready,
            retry: None,
            control: Some(Box::new(Source::control())),
        }
    }
}

impl Upcalls {
    /// Begins a turn of a receive queue.
    #[inline]
    pub(super) fn begin(&self, from: &mut RxQueue) {
        from.source.upcalls.begin(self.sharing, self.others);
    }

    /// Whether a receive queue receives nothing in this turn: packets wait for their upcall, and
    /// the worker has nothing else to do than upcalls.
    pub(super) fn holds(&self, from: &RxQueue, contended: bool) -> bool {
        from.waits() && self.retry.is_none() && !(contended && self.others == OtherQueues::Ready)
    }
}

/// Why there is no answer.
enum Unanswered {
    Pending,
    Refused,
    /// The control plane is changing the switch's tables.
    Busy,
}

impl Pipeline {
    /// Number of receive queues with packets in this poll round: they share the translations of one
    /// round. Queues with waiting packets get fewer of them while others have none that wait.
    #[inline]
    pub fn share(&mut self, queues: usize, others: OtherQueues) {
        self.upcalls.sharing = queues as u32;
        self.upcalls.others = others;
    }

    /// When the next upcall may ask for the switch's tables; `None` if the last upcall got them.
    #[inline]
    pub(crate) fn retry(&self) -> Option<Nanos> {
        self.upcalls.retry
    }

    /// Makes the upcall of a packet without a megaflow, or lets it wait where its source has made
    /// enough of them or other packets of its flow wait.
    pub(super) fn upcall_or_wait(&mut self, mut packet: WaitingPacket, from: &mut Source, now: Nanos) {
        let queue = &mut from.upcalls;
        if queue.is_pending(&packet.key) && !queue.has_queued(&packet.key) {
            return self.hold_pending(packet, from, now);
        }
        if queue.len() == 0 && queue.take_turn() {
            match self.upcall(packet, from, now) {
                None => return,
                Some(busy) => packet = busy,
            }
        }
        if !from.upcalls.push(packet) {
            self.refuse_new(from, 1);
        }
    }

    /// Makes an upcall; the packet goes on, or waits for the answer. Gives it back where the
    /// control plane is changing the switch's tables: a worker does not wait for that.
    #[inline(always)]
    fn upcall(&mut self, packet: WaitingPacket, from: &mut Source, now: Nanos) -> Option<WaitingPacket> {
        if from.upcalls.is_pending(&packet.key) {
            self.hold_pending(packet, from, now);
            return None;
        }
        match self.try_upcall(packet, from, now) {
            None => {}
            Some((busy, Unanswered::Busy)) => return Some(busy),
            Some((packet, Unanswered::Pending)) => self.hold_pending(packet, from, now),
            Some((_, Unanswered::Refused)) => self.refuse_new(from, 1),
        }
        None
    }

    /// Makes an upcall; the packet goes on, or comes back without an answer.
    #[inline(always)]
    fn try_upcall(
        &mut self,
        packet: WaitingPacket,
        from: &mut Source,
        now: Nanos,
    ) -> Option<(WaitingPacket, Unanswered)> {
        if self.upcalls.retry.is_some_and(|at| now < at) {
            return Some((packet, Unanswered::Busy));
        }
        let answer = self.slowpath.try_upcall(&packet.upcall(), now);
        match self.note(&answer, &packet, now) {
            Ok(translation) => {
                let mut context = self.actor.context(from, packet.depth, now);
                context.run(&translation.actions, translation.drop, packet.frame);
                self.recirculate(packet.depth, from, now);
                None
            }
            Err(why) => Some((packet, why)),
        }
    }

    /// Caches an answer. The translation that the packet takes.
    #[inline(always)]
    fn note<'t>(
        &mut self,
        answer: &'t Answer,
        packet: &WaitingPacket,
        now: Nanos,
    ) -> Result<&'t Translation, Unanswered> {
        let bytes = packet.frame.len() as u64;
        let retry = self.upcalls.retry.take();
        let translation = match answer {
            Answer::Cache(translation) => {
                let owner = packet.key.in_port();
                let number = self.flows.insert(&packet.key, owner, translation, bytes, now);
                self.remember(&packet.key, number);
                translation
            }
            Answer::Once(translation) => {
                self.credit_one(translation, bytes, now);
                translation
            }
            Answer::Later => return Err(Unanswered::Pending),
            Answer::Refused => return Err(Unanswered::Refused),
            Answer::Busy => {
                self.upcalls.retry = Some(retry.filter(|at| now < *at).unwrap_or(now + RETRY));
                return Err(Unanswered::Busy);
            }
        };
        self.stats.upcalls.add(1);
        self.apply_changes();
        Ok(translation)
    }

    /// Counts a packet that no megaflow carries.
    #[cold]
    fn credit_one(&self, translation: &Translation, bytes: u64, now: Nanos) {
        let carried = Carried {
            packets: 1,
            bytes,
            used: now,
        };
        let credits: Vec<_> = translation.credits.iter().map(|credit| (*credit, carried)).collect();
        self.slowpath.credit(&credits, now);
    }

    /// Makes upcalls for queued packets, as many as their source has left in this turn.
    #[cold]
    pub(super) fn resume_queued(&mut self, from: &mut Source, now: Nanos) {
        self.flows.traffic();
        for _ in 0..BATCH {
            let Some(first) = from.upcalls.first_mut() else { break };
            let known = self.flows.lookup_newer(&first.key, first.searched);
            if known.is_none() {
                first.searched = self.flows.made();
            }
            if known.is_none() && !from.upcalls.take_turn() {
                break;
            }
            let Some((packet, hash)) = from.upcalls.pop() else {
                break;
            };
            match known {
                Some(number) => self.run_waiting(number, packet, from, now),
                None => {
                    if let Some(busy) = self.upcall(packet, from, now) {
                        from.upcalls.put_back(busy, hash);
                        break;
                    }
                }
            }
            self.resume_flow(hash, from, now);
        }
        self.actor.flush(now);
    }

    /// Lets the queued packets of a flow go on, now that the first of them has.
    fn resume_flow(&mut self, hash: u32, from: &mut Source, now: Nanos) {
        let mut at = 0;
        while let Some((place, next)) = from.upcalls.next_of(hash, at) {
            at = place;
            let Some(number) = self.flows.lookup_newer(&next.key, next.searched) else {
                break;
            };
            if let Some((packet, _)) = from.upcalls.remove(at) {
                self.run_waiting(number, packet, from, now);
            }
        }
    }

    /// Lets a waiting packet go on by a megaflow.
    fn run_waiting(&mut self, number: u32, packet: WaitingPacket, from: &mut Source, now: Nanos) {
        if from.upcalls.is_pending(&packet.key) {
            return self.hold_pending(packet, from, now);
        }
        self.stats.megaflow_hits.add(1);
        self.remember(&packet.key, number);
        self.run_flow(number, packet.frame, packet.depth, from, now);
        self.recirculate(packet.depth, from, now);
    }

    /// Lets a packet wait for its pending translation.
    fn hold_pending(&mut self, packet: WaitingPacket, from: &mut Source, now: Nanos) {
        if !from.upcalls.hold_pending(packet, now) {
            self.refuse_new(from, 1);
        }
    }

    /// Asks again for the pending translations of a receive queue's packets.
    #[cold]
    pub(crate) fn retry_pending(&mut self, from: &mut RxQueue, now: Nanos) {
        self.retry_pending_of(&mut from.source, now);
    }

    fn retry_pending_of(&mut self, from: &mut Source, now: Nanos) {
        let pending = from.upcalls.take_pending(now);
        if pending.is_empty() {
            return;
        }
        self.apply_changes();
        for (hash, packet) in pending {
            from.upcalls.look_at_taken();
            if from.upcalls.is_pending(&packet.key) {
                from.upcalls.still_pending(hash, packet);
            } else if let Some(number) = self.flows.lookup_newer(&packet.key, packet.searched) {
                self.run_waiting(number, packet, from, now);
            } else {
                match self.try_upcall(packet, from, now) {
                    None => {}
                    Some((packet, Unanswered::Pending | Unanswered::Busy)) => {
                        from.upcalls.still_pending(hash, packet);
                    }
                    Some((_, Unanswered::Refused)) => self.refuse_new(from, 1),
                }
            }
        }
        self.actor.flush(now);
    }

    /// Handles packets of the control plane.
    pub(super) fn with_control(&mut self, handle: impl FnOnce(&mut Pipeline, &mut Source)) {
        let Some(mut control) = self.upcalls.control.take() else {
            return;
        };
        control.upcalls.begin(1, OtherQueues::Silent);
        handle(self, &mut control);
        self.upcalls.control = Some(control);
    }

    /// Asks again for the translations of the control plane's packets. Whether some still wait.
    #[inline]
    pub(crate) fn resume_control(&mut self, now: Nanos) -> bool {
        let mut left = self.upcalls.control.as_deref().is_some_and(Source::has_waiting);
        if left {
            self.with_control(|pipeline, control| {
                pipeline.apply_changes();
                pipeline.retry_pending_of(control, now);
                pipeline.resume_queued(control, now);
                left = control.has_waiting();
            });
        }
        left
    }

    /// Drops a receive queue's waiting packets, and counts them.
    pub(crate) fn give_up(&mut self, from: &mut RxQueue) {
        let dropped = from.source.upcalls.drop_of(|_| true);
        self.refuse_new(&from.source, dropped);
    }

    /// Drops the control plane's waiting packets that came in on some ports, and counts them.
    pub(super) fn give_up_control(&mut self, given_up: impl Fn(PortNo) -> bool) {
        self.with_control(|pipeline, control| {
            let dropped = control.upcalls.drop_of(|key: &Key| given_up(key.in_port()));
            pipeline.refuse_new(control, dropped);
        });
    }

    /// Counts packets without a translation.
    fn refuse_new(&self, from: &Source, packets: u64) {
        self.stats.lost.add(packets);
        self.refuse(from, DropCause::UpcallBudget, packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upcall_queue::RETRY_PENDING;
    use dp::{Action, Changes, Slowpath, Upcall};
    use flow::{Field, Mask};
    use netdev::{Dummy, Frame};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

    /// Sends everything to port 9.
    #[derive(Default)]
    struct Switch {
        late: AtomicBool,
        answers: AtomicU64,
    }

    impl Slowpath for Switch {
        fn try_upcall(&self, upcall: &Upcall<'_>, now: Nanos) -> Answer {
            match self.late.load(Relaxed) {
                true => Answer::Later,
                false => Answer::Cache(self.upcall(upcall, now)),
            }
        }

        fn upcall(&self, _: &Upcall<'_>, _: Nanos) -> Translation {
            self.answers.fetch_add(1, Relaxed);
            Translation {
                actions: Arc::from([Action::Output(PortNo(9))]),
                mask: Mask::exact(Field::RecircId),
                deps: Default::default(),
                effects: Default::default(),
                credits: Default::default(),
                drop: None,
            }
        }

        fn refresh(&self, _: &[dp::Effect], _: Nanos) {}

        fn port_failed(&self, _: PortNo) {}
    }

    /// A pipeline at which packets of the control plane wait: three of port 1, two of port 2.
    fn waiting() -> (Arc<Switch>, Pipeline, Arc<Dummy>) {
        let (switch, changes) = (Arc::<Switch>::default(), Arc::new(Changes::new()));
        let mut pipeline = Pipeline::new(1000, Duration::from_secs(10), switch.clone(), changes);
        let device = Arc::new(Dummy::open("p9", &BTreeMap::new()).unwrap());
        pipeline.add_port(PortNo(9), device.clone());
        switch.late.store(true, Relaxed);
        for in_port in [1, 2, 1, 2, 1] {
            let frame = Frame::from_slice(&[0; 60]);
            pipeline.execute(PortNo(in_port), frame, &[Action::Recirc(1)], Nanos::ZERO);
        }
        (switch, pipeline, device)
    }

    #[test]
    fn packets_of_the_control_plane_that_wait_share_one_answer() {
        let (switch, mut pipeline, device) = waiting();
        assert!(pipeline.resume_control(Nanos::ZERO + RETRY_PENDING));
        assert_eq!(device.take_sent().len(), 0);
        switch.late.store(false, Relaxed);
        assert!(!pipeline.resume_control(Nanos::ZERO + RETRY_PENDING * 2));
        assert_eq!(device.take_sent().len(), 5);
        let stats = pipeline.cache_stats();
        assert_eq!((stats.upcalls, stats.megaflow_hits, stats.lost), (1, 4, 0));
        assert_eq!(switch.answers.load(Relaxed), 1);
    }

    #[test]
    fn packets_of_the_control_plane_keep_their_order_within_a_flow() {
        let (switch, mut pipeline, device) = waiting();
        switch.late.store(false, Relaxed);
        // Their translation would be there at once; others of their flow wait.
        for number in [6, 7] {
            let frame = Frame::from_slice(&[number; 60]);
            let mut in_flow = Frame::from_slice(&[0; 60]);
            in_flow.data_mut()[59] = number;
            pipeline.execute(PortNo(3), frame, &[Action::Recirc(1)], Nanos::ZERO);
            pipeline.execute(PortNo(2), in_flow, &[Action::Recirc(1)], Nanos::ZERO);
        }
        let ends = |device: &Dummy| device.take_sent().iter().map(|packet| packet[59]).collect::<Vec<_>>();
        assert_eq!(ends(&device), [6, 7], "another flow");
        assert!(!pipeline.resume_control(Nanos::ZERO + RETRY_PENDING));
        assert_eq!(ends(&device), [0, 0, 0, 0, 0, 6, 7]);
    }

    #[test]
    fn packets_of_the_control_plane_that_wait_are_dropped_and_counted_with_their_port_and_at_the_end() {
        let (_, mut pipeline, _) = waiting();
        let stats = pipeline.stats().clone();
        let counts = || (stats.lost.get(), stats.dropped(DropCause::UpcallBudget));
        pipeline.remove_port(PortNo(1));
        assert_eq!(counts(), (3, 3));
        drop(pipeline);
        assert_eq!(counts(), (5, 5));
    }
}
