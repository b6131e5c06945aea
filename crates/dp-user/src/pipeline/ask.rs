//! Stage 5: what the switch is asked, and packets whose answer takes long.
//!
//! The switch makes a translation that takes longer than a fraction of a millisecond on a thread of its own, so that the worker goes on with
//! other packets. Meanwhile the packet waits here: apart from the line of its queue, so that the queue's other new flows go on too. The worker
//! asks again every [`AGAIN`] until the answer is there.
//!
//! - A queue has [`ROOM`] packets here at most; for others there is [`DropCause::UpcallBudget`].
//! - Order within a flow is kept: a packet of a flow of which others wait here waits behind them.
//! - What is answered is cached by the worker as any other answer, or not at all where it may be out of date.

use super::line::Held;
use super::{Inlet, Pipeline};
use crate::stats::DropSink;
use dp::{Answer, Carried, DropCause, Translation, Upcall};
use flow::{Key, PortNo};
use std::collections::VecDeque;
use std::time::Duration;
use wire::Nanos;

/// How long packets of new flows wait before the switch's tables are asked for again, where somebody had them.
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
pub(super) struct Away {
    held: VecDeque<(FlowHash, Held)>,
    /// When they ask again.
    due: Nanos,
}

impl Away {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
    }
}

/// Packets of the control plane whose answer takes long, with the port that they came in on as it says.
#[derive(Default)]
pub(super) struct ControlAway {
    held: VecDeque<(PortNo, Held)>,
    due: Nanos,
}

/// Why there is no answer.
enum Unanswered {
    Later,
    Refused,
    /// The switch's tables cannot be had.
    Busy,
}

impl Pipeline {
    /// Lets a packet ask, and go its way or wait for the answer. It comes back where the switch's tables cannot be had now: a worker does not
    /// wait for whoever changes them.
    #[inline(always)]
    pub(super) fn ask_for(&mut self, held: Held, from: &mut Inlet, now: Nanos) -> Option<Held> {
        if from.is_away(&held.key) {
            self.send_away(held, from, now);
            return None;
        }
        let busy = self.ask_again(held, from, now);
        self.stats.upcalls.add(busy.is_none().into());
        busy
    }

    #[inline(always)]
    fn ask_again(&mut self, held: Held, from: &mut Inlet, now: Nanos) -> Option<Held> {
        if self.is_busy(now) {
            return Some(held);
        }
        let answer = self.slowpath.try_upcall(&held.upcall(), now);
        match self.note(&answer, &held, from.port, now) {
            Ok(translation) => {
                let (actions, drop) = (&translation.actions, translation.drop);
                let mut context = self.actor.for_inlet(from, now).at_depth(held.depth);
                context.run(actions, drop, held.frame);
                self.recirculate(Some(from), now);
            }
            Err(Unanswered::Later) => self.send_away(held, from, now),
            Err(Unanswered::Refused) => self.refuse_new(from, 1),
            Err(Unanswered::Busy) => return Some(held),
        }
        None
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
    pub(super) fn send_away(&mut self, mut held: Held, from: &mut Inlet, now: Nanos) {
        if from.away.len() >= ROOM {
            return self.refuse_new(from, 1);
        }
        if from.away.is_empty() {
            from.away.due = now + AGAIN;
        }
        held.frame.compact();
        let hash = from.line.hash(&held.key);
        from.away.held.push_back((hash, held));
    }

    /// Lets go on those packets of a queue whose answers have come.
    #[cold]
    pub(crate) fn come_back(&mut self, from: &mut Inlet, now: Nanos) {
        if now < from.away.due {
            return;
        }
        self.apply_changes();
        from.away.due = now + AGAIN;
        let waiting = std::mem::take(&mut from.away.held);
        for (hash, held) in waiting {
            if from.is_away(&held.key) {
                from.away.held.push_back((hash, held));
            } else if let Some(number) = self.flows.lookup_newer(&held.key, held.asked_at) {
                self.run_held(number, held, from, now);
            } else if let Some(busy) = self.ask_again(held, from, now) {
                from.away.held.push_back((hash, busy));
            }
        }
        self.actor.flush(now);
    }

    /// Lets a packet of the control plane ask, and go its way or wait for the answer or for the switch's tables.
    pub(super) fn ask_for_control(&mut self, in_port: PortNo, held: Held, now: Nanos) {
        let answer = match self.is_busy(now) {
            true => Answer::Busy,
            false => self.slowpath.try_upcall(&held.upcall(), now),
        };
        match self.note(&answer, &held, in_port, now) {
            Ok(translation) => {
                self.stats.upcalls.add(1);
                let (actions, drop) = (&translation.actions, translation.drop);
                self.actor
                    .for_control(in_port, now)
                    .at_depth(held.depth)
                    .run(actions, drop, held.frame);
            }
            Err(Unanswered::Later | Unanswered::Busy) if self.control_away.held.len() < ROOM_OF_CONTROL => {
                self.control_away.due = now + AGAIN;
                self.control_away.held.push_back((in_port, held));
            }
            Err(_) => self.lose(None, DropCause::UpcallBudget),
        }
    }

    /// The same as [`Pipeline::come_back`] for packets of the control plane. Whether some still wait.
    #[inline]
    pub(crate) fn come_back_to_control(&mut self, now: Nanos) -> bool {
        !self.control_away.held.is_empty() && self.controls_come_back(now)
    }

    #[cold]
    fn controls_come_back(&mut self, now: Nanos) -> bool {
        if now >= self.control_away.due {
            for (in_port, held) in std::mem::take(&mut self.control_away.held) {
                self.ask_for_control(in_port, held, now);
                self.recirculate(None, now);
            }
            self.actor.flush(now);
        }
        !self.control_away.held.is_empty()
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
    pub(super) fn refuse_new(&self, from: &Inlet, packets: u64) {
        self.stats.lost.add(packets);
        self.refuse(from, DropCause::UpcallBudget, packets);
    }

    /// Counts a drop of a packet that began anew.
    pub(super) fn lose(&self, from: Option<&mut Inlet>, cause: DropCause) {
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

impl Inlet {
    /// Whether packets of its wait for answers that take long.
    #[inline]
    pub fn has_away(&self) -> bool {
        !self.away.is_empty()
    }

    /// Whether packets of the same flow wait for answers that take long.
    pub(super) fn is_away(&self, key: &Key) -> bool {
        if self.away.is_empty() {
            return false;
        }
        let hash = self.line.hash(key);
        self.away.held.iter().any(|(other, _)| *other == hash)
    }
}
