//! A packet's way through the tables, interrupted: what is left to do, and how it goes on.
//!
//! A packet freezes where an action makes visible what its key does not show (behind a label),
//! where what follows depends on what no key says (its length), or where a controller shall see it
//! first. The lists of actions that it is in end there; what they have left is kept as [`Frame`]s,
//! the innermost first. How far that reaches are the parts behind which the packet is as it was
//! before: a copy, a group's bucket, a bridge. These go on at once.

use super::budget::{Limit, cost};
use super::packet::Place;
use super::pipeline::Pipeline;
use super::report::Kind;
use super::translated::{BridgeRule, ForController, Memo, bytes_of};
use crate::dep::Read;
use crate::port::Ingress;
use dp::{Action, DropCause, PuntReason};
use flow::{FlowState, Key, META_WORDS, MatchField};
use openflow::model::{self, Controller, Instructions, Subfield};
use std::sync::Arc;

/// What is left of a list of actions, and of the rule that it is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    pub(super) table: u8,
    pub(super) cookie: u64,
    pub(super) rule: Option<BridgeRule>,
    pub(super) actions: Vec<model::Action>,
    /// Behind the actions, what the instructions say but apply-actions.
    pub(super) then: Option<Arc<Instructions>>,
}

/// Where a packet goes on that was sent through the datapath again, or to a controller. Its fields
/// are the packet's own then; this has the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frozen {
    bridge: u32,
    meta: [u64; META_WORDS],
    stack: Vec<u128>,
    limit: Option<u32>,
    default_queue: bool,
    action_set: Vec<model::Action>,
    frames: Vec<Frame>,
    /// Where the packet comes into a bridge, if that is what is left.
    enters: Option<Ingress>,
}

impl Frozen {
    pub(super) fn bridge(&self) -> u32 {
        self.bridge
    }

    /// The memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let frames = self.frames.iter();
        let frames: usize = frames.map(|frame| size_of::<Frame>() + bytes_of(&frame.actions)).sum();
        size_of::<Frozen>() + 16 * self.stack.len() + bytes_of(&self.action_set) + frames
    }

    /// The same with the metadata that a controller gave it, who was told all that it had.
    pub(super) fn with_metadata(&self, state: &FlowState) -> Frozen {
        let mut meta = FlowState::with_meta(Key::ZERO, self.meta);
        for field in MatchField::ALL
            .iter()
            .filter(|field| model::Match::is_metadata(**field))
        {
            if *field != MatchField::ActsetOutput {
                meta.set(*field, state.get(*field));
            }
        }
        for (word, bits) in flow::option_bits() {
            let kept = meta.meta()[word] & !bits;
            meta.meta_mut()[word] = kept | state.meta()[word] & bits;
        }
        Frozen {
            meta: *meta.meta(),
            ..self.clone()
        }
    }
}

/// A packet that freezes.
pub(super) struct Freezing {
    pub(super) why: Why,
    pub(super) frames: Vec<Frame>,
}

/// Why a packet freezes.
pub(super) enum Why {
    /// Its key has to be read anew.
    Recirculate,
    /// It depends on whether it is longer than this, which a bit shall say.
    Length(u16, Subfield),
    /// A controller shall see it first.
    Pause(Controller),
}

impl Pipeline<'_> {
    /// Interrupts the packet's way behind the action that is running.
    pub(super) fn freeze(&mut self, why: Why) {
        self.freezing = Some(Freezing {
            why,
            frames: Vec::new(),
        });
    }

    /// Keeps what a list and its rule have left.
    pub(super) fn leave(&mut self, actions: &[model::Action], then: Option<&Arc<Instructions>>) {
        if actions.is_empty() && then.is_none() || !self.spend(cost::KEEP + 8 * actions.len()) {
            return;
        }
        let frame = Frame {
            table: self.packet.place.table,
            cookie: self.packet.place.cookie,
            rule: self.packet.place.rule,
            actions: actions.to_vec(),
            then: then.cloned(),
        };
        if let Some(freezing) = &mut self.freezing {
            freezing.frames.push(frame);
        }
    }

    /// Ends a part of the way: the action set is run if the part has one, and what froze goes on.
    pub(super) fn settle(&mut self) {
        self.settle_of(true);
    }

    /// As [`Pipeline::settle`]; the packet itself, not a copy, is what in-band control looks at.
    pub(super) fn settle_of(&mut self, itself: bool) {
        if self.freezing.is_none() {
            self.exit = false;
            self.run_action_set();
            if itself {
                self.output_in_band();
            }
        }
        self.settle_frozen();
    }

    /// What froze goes on: by the datapath, by a controller, or in both directions at once.
    pub(super) fn settle_frozen(&mut self) {
        self.exit = false;
        let Some(Freezing { why, frames }) = self.freezing.take() else {
            return;
        };
        if self.failed {
            return;
        }
        match why {
            Why::Recirculate => {
                self.commit();
                if let Some(handle) = self.keep_frozen(frames, None) {
                    self.actions.push(Action::Recirc(handle));
                }
            }
            Why::Pause(to) => {
                if let Some(handle) = self.keep_frozen(frames, None) {
                    self.hand_over(&to, Some(handle));
                }
            }
            Why::Length(len, bit) => self.both_lengths(len, &bit, &frames),
        }
    }

    /// Sends the packet through the datapath again, after which it comes into a bridge.
    pub(super) fn enter_again(&mut self, at: Ingress) {
        self.commit();
        if let Some(handle) = self.keep_frozen(Vec::new(), Some(at)) {
            self.actions.push(Action::Recirc(handle));
        }
    }

    fn keep_frozen(&mut self, frames: Vec<Frame>, enters: Option<Ingress>) -> Option<u32> {
        self.spend(4 * self.packet.place.action_set.len() + self.packet.stack.len());
        let frozen = Frozen {
            bridge: self.packet.place.bridge.map_or(0, |bridge| bridge.id),
            meta: *self.packet.state.meta(),
            stack: self.packet.stack.clone(),
            limit: self.packet.limit,
            default_queue: self.packet.default_queue,
            action_set: self.packet.place.action_set.clone(),
            frames,
            enters,
        };
        let handle = self.remember(Memo::Frozen(Box::new(frozen)));
        if handle.is_none() {
            self.dropped(DropCause::HandleLimit);
        }
        handle
    }

    /// Notes something to be kept, and returns its handle; none where there is no room for it.
    pub(super) fn remember(&mut self, memo: Memo) -> Option<u32> {
        self.spend(cost::KEEP + self.memos.len() / 8);
        let Ok(handle) = self.switch.memos.handle_of(&memo, self.switch.seed, &self.memos) else {
            let bridge = memo.bridge();
            self.budget.note(bridge, Limit::Handles);
            self.warning(|_| Limit::Handles.to_string());
            self.depend(Read::Handles(bridge));
            return None;
        };
        if !self.memos.iter().any(|(known, _)| *known == handle) {
            let memo = self.switch.memos.get(handle).cloned().unwrap_or_else(|| Arc::new(memo));
            self.memos.push((handle, memo));
            self.effects.push(dp::Effect::Memo(handle));
        }
        self.depend(Read::Memo(handle));
        Some(handle)
    }

    /// Does what is left for longer packets, then for others.
    fn both_lengths(&mut self, len: u16, bit: &Subfield, frames: &[Frame]) {
        let kept: usize = frames.iter().map(|frame| frame.actions.len()).sum();
        if !self.fork() || !self.spend(2 * (cost::KEEP * frames.len() + 4 * kept)) {
            return;
        }
        let at = self.actions.len();
        self.actions.push(Action::IfLonger {
            len,
            then: 0,
            otherwise: 0,
        });
        let mut steps = [0; 2];
        for (value, steps) in [1, 0].into_iter().zip(&mut steps) {
            let Some(saved) = self.begin_copy() else { break };
            self.write_bits(bit, value);
            self.go_on(frames.to_vec());
            self.settle();
            *steps = (self.actions.len() - self.packet.own_steps) as u32;
            // A branch is a copy for the datapath too.
            self.packet = *saved;
        }
        let [then, otherwise] = steps;
        if let Some(action) = self.actions.get_mut(at) {
            *action = Action::IfLonger { len, then, otherwise };
        }
        self.budget.join();
    }

    /// Does what frames have left.
    fn go_on(&mut self, frames: Vec<Frame>) {
        let mut frames = frames.into_iter();
        while let Some(frame) = frames.next() {
            (
                self.packet.place.table,
                self.packet.place.cookie,
                self.packet.place.rule,
            ) = (frame.table, frame.cookie, frame.rule);
            let through = self.run_rest(&frame.actions, frame.then.as_ref());
            if let Some(next) = through {
                self.look_up(next, None, true);
            }
            if let Some(freezing) = &mut self.freezing {
                freezing.frames.extend(frames);
                return;
            }
            if self.exit || self.failed {
                return;
            }
        }
    }

    /// A packet goes on that was frozen, as it is now.
    pub(super) fn thaw(&mut self, frozen: &Frozen) {
        let Some(bridge) = self.switch.bridges.get(&frozen.bridge) else {
            return self.dropped(DropCause::NoRule);
        };
        self.depend(Read::Bridge(bridge.id));
        self.begin(frozen.meta);
        self.packet.place = Place {
            bridge: Some(bridge),
            action_set: frozen.action_set.clone(),
            ..Place::default()
        };
        self.packet.stack = frozen.stack.clone();
        self.packet.limit = frozen.limit;
        self.packet.default_queue = frozen.default_queue;
        if let Some(at) = frozen.enters {
            let key = self.packet.state.key;
            return self.enter(at, key);
        }
        let table = frozen.frames.first().map_or(0, |frame| frame.table);
        self.open(Kind::Action, |_| String::from("thaw"));
        self.line(Kind::Action, |_| format!("Resuming from table {table}"));
        self.close(1);
        self.go_on(frozen.frames.clone());
        self.settle();
    }

    /// Hands the packet as it is now to a controller.
    pub(super) fn hand_over(&mut self, to: &Controller, continuation: Option<u32>) {
        let Some(bridge) = self.packet.place.bridge else { return };
        if !self.another_output() || !self.spend(cost::KEEP + to.userdata.len() / 16 + self.controllers.len() / 16) {
            return;
        }
        self.commit();
        let limit = self.packet.limit.map_or(u16::MAX, |limit| limit.min(0xffff) as u16);
        let mut metadata = model::Match::metadata_of(&self.packet.state);
        bridge.tables.options().tell(&self.packet.state, &mut metadata);
        let meaning = ForController {
            bridge: bridge.id,
            controller: to.id,
            reason: continuation.map_or_else(|| self.told_reason(to.reason), |_| to.reason),
            table: self.packet.place.table,
            cookie: self.packet.place.cookie,
            userdata: to.userdata.clone(),
            meter: to.meter,
            metadata,
            max_len: to.max_len.min(limit),
            continuation,
        };
        // Nobody knows handle 0: the datapath counts the copy as lost.
        let handle = self.remember(Memo::Controller(Box::new(meaning.clone()))).unwrap_or(0);
        if handle != 0 && !self.controllers.iter().any(|(known, _)| *known == handle) {
            self.controllers.push((handle, meaning));
        }
        let meter = match to.meter {
            Some(id) => bridge.tables.meter(id),
            None => bridge.tables.meters().controller(),
        };
        if let Some(meter) = meter {
            // What the meter drops is the copy for the controller.
            self.actions.push(Action::Clone(2));
            self.actions.push(Action::Meter(meter.number));
        }
        self.actions.push(Action::Punt {
            reason: PuntReason::Controller,
            handle,
            max_len: limit,
        });
    }
}
