//! Stage 5: what the switch is asked, and packets whose answer takes long.
//!
//! The switch makes a translation that takes longer than a fraction of a millisecond on a thread of
//! its own, so that the worker goes on with other packets. Meanwhile the packet waits here: apart
//! from the line of its queue, so that the queue's other new flows go on too. The worker asks again
//! every [`AGAIN`] until the answer is there.
//!
//! - A queue has [`ROOM`] packets here at most. It drops others: [`DropCause::UpcallBudget`].
//! - A packet waits behind earlier packets of its flow.
//! - The worker caches an answer as any other, or not at all where it may be out of date.
//! - `upcalls` counts a packet when its answer is there, `lost` one that is dropped before. No
//!   packet counts in both.

use super::upcall_queue::Held;
use super::{Pipeline, RxQueue};
use crate::stats::DropSink;
use dp::{Answer, Carried, DropCause, Translation, Upcall};
use flow::{Key, PortNo};
use std::collections::VecDeque;
use std::time::Duration;
use wire::Nanos;

/// How long packets of new flows wait before the switch's tables are asked for again, where
/// somebody had them.
const RETRY: Duration = Duration::from_millis(1);

/// Packets of a queue that wait for answers that take long.
const ROOM: usize = 64;

/// Recirculated packets of the control plane that wait.
const ROOM_OF_CONTROL: usize = 256;

/// Time until the worker asks again.
pub(crate) const AGAIN: Duration = Duration::from_micros(500);

/// What packets of a flow have in common.
type FlowHash = u32;

/// Packets whose answer takes long, in the order of arrival.
#[derive(Default)]
pub(super) struct Pending {
    held: VecDeque<(FlowHash, Held)>,
    /// Packets that [`Pipeline::retry_pending`] has taken out and not looked at yet.
    returning: usize,
    /// When they ask again.
    due: Nanos,
}

impl Pending {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len() + self.returning
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
    }
}

/// Packets of the control plane whose answer takes long, with the port that they came in on as it
/// says.
#[derive(Default)]
pub(super) struct ControlPending {
    held: VecDeque<(PortNo, Held)>,
    /// Packets that were taken out to ask again and have not asked yet.
    returning: usize,
    due: Nanos,
}

impl ControlPending {
    fn len(&self) -> usize {
        self.held.len() + self.returning
    }
}

/// Why there is no answer.
enum Unanswered {
    Later,
    Refused,
    /// The switch's tables cannot be had.
    Busy,
}

impl Pipeline {
    /// Lets a packet ask, and go its way or wait for the answer. It comes back where the switch's
    /// tables cannot be had now: a worker does not wait for whoever changes them.
    #[inline(always)]
    pub(super) fn ask_for(&mut self, held: Held, from: &mut RxQueue, now: Nanos) -> Option<Held> {
        if from.is_pending(&held.key) {
            self.hold_pending(held, from, now);
            return None;
        }
        match self.try_ask(held, from, now) {
            None => None,
            Some((busy, Unanswered::Busy)) => Some(busy),
            Some((held, Unanswered::Later)) => {
                self.hold_pending(held, from, now);
                None
            }
            Some((_, Unanswered::Refused)) => {
                self.refuse_new(from, 1);
                None
            }
        }
    }

    /// Lets a packet ask and go its way, or gives it back without an answer.
    #[inline(always)]
    fn try_ask(&mut self, held: Held, from: &mut RxQueue, now: Nanos) -> Option<(Held, Unanswered)> {
        if self.is_busy(now) {
            return Some((held, Unanswered::Busy));
        }
        let answer = self.slowpath.try_upcall(&held.upcall(), now);
        match self.note(&answer, &held, from.port, now) {
            Ok(translation) => {
                let (actions, drop) = (&translation.actions, translation.drop);
                let mut context = self.actor.for_rx_queue(from, now).at_depth(held.depth);
                context.run(actions, drop, held.frame);
                self.recirculate(Some(from), now);
                None
            }
            Err(why) => Some((held, why)),
        }
    }

    /// Whether it is too early to ask again for the switch's tables, which could not be had.
    fn is_busy(&self, now: Nanos) -> bool {
        self.retry.is_some_and(|at| now < at)
    }

    /// When packets that wait for the switch's tables are asked for again; `None` where none do.
    #[inline]
    pub(crate) fn retry(&self) -> Option<Nanos> {
        self.retry
    }

    /// Lets a packet wait for an answer that takes long.
    pub(super) fn hold_pending(&mut self, mut held: Held, from: &mut RxQueue, now: Nanos) {
        if from.pending.len() >= ROOM {
            return self.refuse_new(from, 1);
        }
        if from.pending.is_empty() {
            from.pending.due = now + AGAIN;
        }
        held.frame.compact();
        let hash = from.upcalls.hash(&held.key);
        from.pending.held.push_back((hash, held));
    }

    /// Lets go on those packets of a queue whose answers have come.
    #[cold]
    pub(crate) fn retry_pending(&mut self, from: &mut RxQueue, now: Nanos) {
        if now < from.pending.due {
            return;
        }
        self.apply_changes();
        from.pending.due = now + AGAIN;
        let waiting = std::mem::take(&mut from.pending.held);
        from.pending.returning = waiting.len();
        for (hash, held) in waiting {
            from.pending.returning -= 1;
            if from.is_pending(&held.key) {
                from.pending.held.push_back((hash, held));
            } else if let Some(number) = self.flows.lookup_newer(&held.key, held.asked_at) {
                self.run_held(number, held, from, now);
            } else {
                match self.try_ask(held, from, now) {
                    None => {}
                    // Its place is its own: packets that came later do not take it.
                    Some((held, Unanswered::Later | Unanswered::Busy)) => from.pending.held.push_back((hash, held)),
                    Some((_, Unanswered::Refused)) => self.refuse_new(from, 1),
                }
            }
        }
        self.actor.flush(now);
    }

    /// Lets a packet of the control plane ask, and go its way or wait for the answer or for the
    /// switch's tables.
    pub(super) fn ask_for_control(&mut self, in_port: PortNo, held: Held, now: Nanos) {
        match self.try_ask_for_control(in_port, held, now) {
            None => {}
            Some((held, Unanswered::Later | Unanswered::Busy)) if self.control_pending.len() < ROOM_OF_CONTROL => {
                if self.control_pending.len() == 0 {
                    self.control_pending.due = now + AGAIN;
                }
                self.control_pending.held.push_back((in_port, held));
            }
            Some(_) => self.refuse_control(1),
        }
    }

    fn try_ask_for_control(&mut self, in_port: PortNo, held: Held, now: Nanos) -> Option<(Held, Unanswered)> {
        let answer = match self.is_busy(now) {
            true => Answer::Busy,
            false => self.slowpath.try_upcall(&held.upcall(), now),
        };
        match self.note(&answer, &held, in_port, now) {
            Ok(translation) => {
                let (actions, drop) = (&translation.actions, translation.drop);
                self.actor
                    .for_control(in_port, now)
                    .at_depth(held.depth)
                    .run(actions, drop, held.frame);
                None
            }
            Err(why) => Some((held, why)),
        }
    }

    /// The same as [`Pipeline::retry_pending`] for packets of the control plane. Whether some still
    /// wait.
    #[inline]
    pub(crate) fn retry_control(&mut self, now: Nanos) -> bool {
        !self.control_pending.held.is_empty() && self.retry_control_pending(now)
    }

    #[cold]
    fn retry_control_pending(&mut self, now: Nanos) -> bool {
        if now >= self.control_pending.due {
            self.apply_changes();
            self.control_pending.due = now + AGAIN;
            let waiting = std::mem::take(&mut self.control_pending.held);
            self.control_pending.returning = waiting.len();
            for (in_port, held) in waiting {
                self.control_pending.returning -= 1;
                if let Some(number) = self.flows.lookup_newer(&held.key, held.asked_at) {
                    self.run_held_for_control(number, in_port, held, now);
                } else {
                    match self.try_ask_for_control(in_port, held, now) {
                        None => {}
                        Some((_, Unanswered::Refused)) => self.refuse_control(1),
                        Some((held, _)) => self.control_pending.held.push_back((in_port, held)),
                    }
                }
                self.recirculate(None, now);
            }
            self.actor.flush(now);
        }
        !self.control_pending.held.is_empty()
    }

    fn run_held_for_control(&mut self, number: u32, in_port: PortNo, held: Held, now: Nanos) {
        self.stats.megaflow_hits.add(1);
        self.remember(&held.key, number);
        let flow = self.flows.flow_mut(number);
        flow.carried(1, held.frame.len() as u64, now);
        let (actions, drop) = flow.actions();
        self.actor
            .for_control(in_port, now)
            .at_depth(held.depth)
            .run(actions, drop, held.frame);
    }

    /// Drops the packets of the control plane that wait, of those ports that are given up.
    pub(super) fn give_up_control(&mut self, given_up: impl Fn(PortNo) -> bool) {
        let held = &mut self.control_pending.held;
        let before = held.len();
        held.retain(|(in_port, _)| !given_up(*in_port));
        let dropped = before - held.len();
        self.refuse_control(dropped as u64);
    }

    /// Counts packets of the control plane that get no answer.
    fn refuse_control(&self, packets: u64) {
        self.stats.lost.add(packets);
        let sink = DropSink {
            worker: &self.stats,
            port: None,
        };
        sink.count(DropCause::UpcallBudget, packets);
    }

    /// Caches an answer. The translation, by which the packet goes.
    #[inline(always)]
    fn note<'t>(
        &mut self,
        answer: &'t Answer,
        held: &Held,
        owner: PortNo,
        now: Nanos,
    ) -> Result<&'t Translation, Unanswered> {
        let bytes = held.frame.len() as u64;
        let retry = self.retry.take();
        let translation = match answer {
            Answer::Cache(translation) => {
                let number = self.flows.insert(&held.key, owner, translation, bytes, now);
                self.remember(&held.key, number);
                translation
            }
            Answer::Once(translation) => {
                self.credit_one(translation, bytes, now);
                translation
            }
            Answer::Later => return Err(Unanswered::Later),
            Answer::Refused => return Err(Unanswered::Refused),
            Answer::Busy => {
                self.retry = Some(retry.filter(|at| now < *at).unwrap_or(now + RETRY));
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

    /// Counts packets from a queue whose questions are too many.
    pub(super) fn refuse_new(&self, from: &RxQueue, packets: u64) {
        self.stats.lost.add(packets);
        self.refuse(from, DropCause::UpcallBudget, packets);
    }

    /// Counts a drop of a recirculated packet.
    pub(super) fn lose(&self, from: Option<&mut RxQueue>, cause: DropCause) {
        let sink = DropSink {
            worker: &self.stats,
            port: from.as_ref().map(|from| &*from.stats),
        };
        sink.count(cause, 1);
    }
}

impl Held {
    fn upcall(&self) -> Upcall<'_> {
        Upcall {
            key: &self.key,
            packet: self.frame.data(),
        }
    }
}

impl RxQueue {
    /// Whether packets of its wait for answers that take long.
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether packets of the same flow wait for answers that take long.
    pub(super) fn is_pending(&self, key: &Key) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let hash = self.upcalls.hash(key);
        self.pending.held.iter().any(|(other, _)| *other == hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;
    use dp::{Action, Changes, Slowpath};
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
        assert!(pipeline.retry_control(Nanos::ZERO + AGAIN));
        assert_eq!(device.take_sent().len(), 0);
        switch.late.store(false, Relaxed);
        assert!(!pipeline.retry_control(Nanos::ZERO + AGAIN * 2));
        assert_eq!(device.take_sent().len(), 5);
        let stats = pipeline.cache_stats();
        assert_eq!((stats.upcalls, stats.megaflow_hits, stats.lost), (1, 4, 0));
        assert_eq!(switch.answers.load(Relaxed), 1);
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
