//! Stage 5: what the switch is asked, and packets whose answer takes long.
//!
//! The switch makes a translation that takes longer than a fraction of a millisecond on a thread of its own, so that the worker goes on with
//! other packets. Meanwhile the packet waits here: apart from the line of its queue, so that the queue's other new flows go on too. The worker
//! asks again every [`AGAIN`] until the answer is there.
//!
//! - A queue has [`ROOM`] packets here at most; for others there is [`DropCause::UpcallBudget`].
//! - Order within a flow is kept: a packet of a flow of which others wait here waits behind them.
//! - What is answered is cached by the worker as any other answer, or not at all where it may be out of date.
//!
//! While somebody changes the switch's tables there is no answer at all: the packet stays in its queue's line, and the worker asks
//! again after [`RETRY`].

use super::line::{FlowHasher, Held};
use super::{Inlet, Pipeline, RETRY};
use crate::stats::DropSink;
use dp::{Answer, Carried, DropCause, Translation, Upcall};
use flow::{Key, PortNo};
use netdev::Frame;
use std::collections::VecDeque;
use std::time::Duration;
use wire::Nanos;

/// Packets of a queue that wait for answers that take long.
const ROOM: usize = 64;

/// Packets of the control plane that wait for answers.
const CONTROL_ROOM: usize = 256;

/// Time until the worker asks again.
pub(crate) const AGAIN: Duration = Duration::from_micros(500);

/// Packets whose answer takes long, in the order of arrival.
pub(super) struct Away {
    held: VecDeque<Held>,
    hasher: Box<FlowHasher>,
    /// Of each of them, the hash of its flow.
    hashes: VecDeque<u32>,
    /// When they ask again.
    due: Nanos,
}

impl Away {
    pub(super) fn new() -> Away {
        Away {
            held: VecDeque::new(),
            hasher: Box::new(FlowHasher::new()),
            hashes: VecDeque::new(),
            due: Nanos::ZERO,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether packets of the same flow wait.
    pub(super) fn has(&self, key: &Key) -> bool {
        !self.held.is_empty() && self.hashes.contains(&self.hasher.hash(key))
    }

    fn push(&mut self, held: Held) {
        self.hashes.push_back(self.hasher.hash(&held.key));
        self.held.push_back(held);
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.hashes.clear();
    }
}

/// Packets of the control plane that wait for their answer, with the port that they came in on as it says.
#[derive(Default)]
pub(super) struct ControlAway {
    held: VecDeque<(PortNo, Held)>,
    due: Nanos,
}

/// What the switch said.
enum Told {
    Translation(Translation),
    Later,
    Refused,
    Busy,
}

impl Pipeline {
    /// Lets a packet ask, and go its way or wait for the answer. Returns it where the switch's tables cannot be had now.
    pub(super) fn ask_for(&mut self, held: Held, from: &mut Inlet, now: Nanos) -> Option<Held> {
        if from.away.has(&held.key) {
            self.send_away(held, from, now);
            return None;
        }
        match self.ask(&held.key, from.port, &held.frame, now) {
            Told::Translation(translation) => {
                let (actions, drop) = (&translation.actions, translation.drop);
                let mut context = self.actor.for_inlet(from, now).at_depth(held.depth);
                context.run(actions, drop, held.frame);
                self.recirculate(Some(from), now);
            }
            Told::Later => self.send_away(held, from, now),
            Told::Refused => self.refuse_new(from, 1),
            Told::Busy => return Some(held),
        }
        None
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
        from.away.push(held);
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
        from.away.hashes.clear();
        for held in waiting {
            if from.away.has(&held.key) {
                from.away.push(held);
            } else if let Some(number) = self.flows.lookup_newer(&held.key, held.asked_at) {
                self.run_held(number, held, from, now);
            } else if let Some(unanswered) = self.ask_for(held, from, now) {
                from.away.push(unanswered);
            }
        }
        self.actor.flush(now);
    }

    /// Lets a packet of the control plane ask, and go its way or wait for the answer.
    pub(super) fn ask_for_control(&mut self, in_port: PortNo, held: Held, now: Nanos) {
        match self.ask(&held.key, in_port, &held.frame, now) {
            Told::Translation(translation) => {
                let (actions, drop) = (&translation.actions, translation.drop);
                self.actor
                    .for_control(in_port, now)
                    .at_depth(held.depth)
                    .run(actions, drop, held.frame);
            }
            Told::Later | Told::Busy if self.control_away.held.len() < CONTROL_ROOM => {
                self.control_away.due = now + AGAIN;
                self.control_away.held.push_back((in_port, held));
            }
            Told::Later | Told::Busy | Told::Refused => self.lose(None, DropCause::UpcallBudget),
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

    /// Asks the switch, caches the answer.
    fn ask(&mut self, key: &Key, owner: PortNo, frame: &Frame, now: Nanos) -> Told {
        if self.retry.is_some_and(|at| now < at) {
            return Told::Busy;
        }
        self.retry = None;
        let upcall = Upcall {
            key,
            packet: frame.data(),
        };
        let translation = match self.slowpath.try_upcall(&upcall, now) {
            Answer::Cache(translation) => {
                let number = self.flows.insert(key, owner, &translation, frame.len() as u64, now);
                self.remember(key, number);
                translation
            }
            Answer::Once(translation) => {
                let carried = Carried {
                    packets: 1,
                    bytes: frame.len() as u64,
                    used: now,
                };
                let credits: Vec<_> = translation.credits.iter().map(|credit| (*credit, carried)).collect();
                self.slowpath.credit(&credits, now);
                translation
            }
            Answer::Later => return Told::Later,
            Answer::Refused => return Told::Refused,
            Answer::Busy => {
                self.retry = Some(now + RETRY);
                return Told::Busy;
            }
        };
        self.stats.upcalls.add(1);
        self.apply_changes();
        Told::Translation(translation)
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

impl Inlet {
    /// Whether packets of its wait for answers that take long.
    #[inline]
    pub fn has_away(&self) -> bool {
        !self.away.is_empty()
    }
}
