//! Freezing: a translation is interrupted, and continues later from a recirculation context.
//!
//! A packet freezes in five cases: an action uncovers headers that the key does not show (behind a
//! label); a group selects a bucket by a hash, which the datapath computes; what follows depends on
//! the packet's length; a controller sees the packet first; a test bench asks for it
//! (`debug_recirc`). (The action `ct` freezes a copy, with nothing but its table
//! left to do.) The action lists that are running stop. What they have left
//! becomes [`Frame`]s, the innermost first. Freezing ends at a copy, a group's bucket or a bridge:
//! the actions behind these run at once.

use super::budget::{Limit, cost};
use super::look_up::LookUp;
use super::packet::Place;
use super::pipeline::Pipeline;
use super::report::{Kind, write_metadata};
use super::translated::{BridgeRule, Context, ForController, bytes_of};
use crate::dep::Read;
use crate::port::Ingress;
use dp::{Action, DropCause, FlowHash, PortNo, PuntReason};
use flow::{Field, FlowState, Key, META_WORDS, MatchField, RecircId};
use openflow::model::{self, Controller, Instructions, Subfield};
use std::collections::VecDeque;
use std::sync::Arc;

/// The rest of an action list, and of its rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    pub(super) table: u8,
    pub(super) cookie: u64,
    pub(super) rule: Option<BridgeRule>,
    pub(super) actions: Vec<model::Action>,
    /// The instructions that follow the actions.
    pub(super) then: Option<Arc<Instructions>>,
}

/// No table and cookie of a rule.
const NOT_NAMED: (u8, u64) = (u8::MAX, u64::MAX);

impl Frame {
    /// The first action that tells table and cookie to somebody, unless these were named last.
    fn names_at(&self, last: &mut Option<(u8, u64)>) -> Option<usize> {
        let own = Some((self.table, self.cookie));
        let at = self.actions.iter().position(tells_rule).filter(|_| *last != own)?;
        *last = own;
        Some(at)
    }

    /// In Open vSwitch an action.
    fn name(&self) -> String {
        format!("unroll_xlate(table={}, cookie={})", self.table, self.cookie)
    }

    /// What that action says. It has the bytes of the cookie in their order in the message.
    fn restored(&self) -> String {
        let cookie = match self.cookie {
            0 => String::from("0"),
            cookie => format!("{:#x}", cookie.swap_bytes()),
        };
        format!("restored state: table={}, cookie={cookie}", self.table)
    }
}

/// Whether an action depends on the table and cookie of its rule.
fn tells_rule(action: &model::Action) -> bool {
    use model::Action as A;
    match action {
        A::Output { .. } | A::OutputReg { .. } | A::OutputTrunc { .. } | A::Group(_) | A::Controller(_) => true,
        A::DecTtl(_) | A::DecMplsTtl => true,
        A::Resubmit { table, .. } => *table == 255,
        _ => false,
    }
}

/// Where a packet continues that recirculates, or that a controller resumes. The packet itself
/// brings its fields; the context has the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecircContext {
    bridge: u32,
    meta: [u64; META_WORDS],
    /// The tunnel that rules have chosen. The datapath's packet has the one that it came from.
    tunnel: Option<Box<Key>>,
    stack: Vec<u128>,
    limit: Option<u32>,
    default_queue: bool,
    action_set: Vec<model::Action>,
    frames: Vec<Frame>,
    /// The mirrors of the bridge whose output has the packet.
    mirrored: u32,
    /// Whether tables see what the connection tracker says of the packet.
    tracked: bool,
    /// Whether the packet's type is, or may have been, another than Ethernet.
    typed: bool,
    from: Origin,
    /// The port that the packet comes in on if it is an outer one, for samples.
    outer_port: Option<PortNo>,
    /// The hash that its recirculation id carries.
    hash: Option<FlowHash>,
}

/// Where a packet continues first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// With the frames.
    Frames,
    /// At this port of another bridge.
    Port(Ingress),
    /// In this table.
    Table(u8),
}

impl RecircContext {
    /// Whether the recirculation id carries a hash of the packet.
    pub(super) fn carries_hash(&self) -> bool {
        self.hash.is_some()
    }

    pub(super) fn bridge(&self) -> u32 {
        self.bridge
    }

    /// The memory that the context takes, about.
    pub(super) fn bytes(&self) -> usize {
        let frames = self.frames.iter();
        let frames: usize = frames.map(|frame| size_of::<Frame>() + bytes_of(&frame.actions)).sum();
        let tunnel = self.tunnel.as_ref().map_or(0, |_| size_of::<Key>());
        tunnel + size_of::<RecircContext>() + 16 * self.stack.len() + bytes_of(&self.action_set) + frames
    }

    /// The same context with the metadata that a controller sent back.
    pub(super) fn with_metadata(&self, state: &FlowState) -> RecircContext {
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
        RecircContext {
            meta: *meta.meta(),
            tunnel: Some(Box::new(tunnel_in(&state.key))),
            ..self.clone()
        }
    }
}

/// A key with the fields of a tunnel only.
fn tunnel_in(key: &Key) -> Key {
    let mut tunnel = Key::ZERO;
    tunnel.copy_tunnel(key);
    tunnel
}

/// A packet that is being frozen.
pub(super) struct Freezing {
    pub(super) why: Why,
    pub(super) frames: Vec<Frame>,
}

/// Why a packet freezes.
pub(super) enum Why {
    /// The datapath must extract its key again, or a test bench asks for it.
    Recirculate,
    /// A bit is to say whether the packet is longer than this.
    Length(u16, Subfield),
    /// A controller sees the packet first.
    Pause(Controller),
    /// A group selects a bucket by this hash of the packet.
    Hash(FlowHash),
}

impl Pipeline<'_> {
    /// Interrupts the translation behind the action that is running.
    pub(super) fn freeze(&mut self, why: Why) {
        self.freezing = Some(Freezing {
            why,
            frames: Vec::new(),
        });
    }

    /// Keeps the rest of an action list and its rule.
    pub(super) fn leave(&mut self, actions: &[model::Action], then: Option<&Arc<Instructions>>) {
        if actions.is_empty() && then.is_none() || !self.spend(cost::KEEP + 8 * actions.len()) {
            return;
        }
        let frame = Frame {
            table: self.packet.place.table,
            cookie: self.packet.place.cookie,
            rule: self.packet.place.rule,
            actions: actions
                .iter()
                .filter(|one| !matches!(one, model::Action::Note(_)))
                .cloned()
                .collect(),
            then: then.cloned(),
        };
        if let Some(freezing) = &mut self.freezing {
            freezing.frames.push(frame);
        }
    }

    /// Ends a part of the translation: runs its action set and continues what froze.
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

    /// Continues what froze: by recirculation, by a controller, or for both lengths at once.
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
                if let Some(handle) = self.keep_frozen(frames, Origin::Frames) {
                    self.actions.push(Action::Recirc(handle));
                }
            }
            Why::Hash(hash) => {
                self.commit();
                if let Some(handle) = self.keep_for_hash(frames, Origin::Frames, Some(hash.clone())) {
                    let id = RecircId(handle);
                    self.actions.push(Action::RecircByHash { id, hash });
                }
            }
            // As in Open vSwitch, a trace without a packet has none to pause.
            Why::Pause(_) if self.suppressed() => {}
            Why::Pause(to) => {
                if let Some(handle) = self.keep_frozen(frames, Origin::Frames) {
                    self.hand_over(&to, Some(handle));
                }
            }
            Why::Length(len, bit) => self.both_lengths(len, &bit, &frames),
        }
    }

    /// Recirculates the packet, which then enters a bridge.
    pub(super) fn enter_again(&mut self, at: Ingress) {
        self.commit();
        if let Some(handle) = self.keep_frozen(Vec::new(), Origin::Port(at)) {
            self.actions.push(Action::Recirc(handle));
        }
    }

    /// Keeps what is left to do with the packet. Returns the handle that it continues by.
    pub(super) fn keep_frozen(&mut self, frames: Vec<Frame>, from: Origin) -> Option<u32> {
        self.keep_for_hash(frames, from, None)
    }

    fn keep_for_hash(&mut self, frames: Vec<Frame>, from: Origin, hash: Option<FlowHash>) -> Option<u32> {
        self.spend(4 * self.packet.place.action_set.len() + self.packet.stack.len());
        let tunnel = self.chosen_tunnel().map(Box::new);
        let frozen = RecircContext {
            tunnel,
            bridge: self.packet.place.bridge.map_or(0, |bridge| bridge.id),
            meta: *self.packet.state.meta(),
            stack: self.packet.stack.clone(),
            limit: self.packet.limit,
            default_queue: self.packet.default_queue,
            action_set: self.packet.place.action_set.clone(),
            frames,
            mirrored: self.mirrored,
            typed: self.packet.typed || self.is_bare(),
            tracked: self.packet.tracked || matches!(from, Origin::Table(_)),
            from,
            outer_port: self.exported.outer_port,
            hash,
        };
        let handle = self.remember(Context::Recirculation(Box::new(frozen)));
        if handle.is_none() {
            self.dropped(DropCause::HandleLimit);
        }
        handle
    }

    /// The fields of the tunnel that the packet is to leave by, if rules have changed any.
    fn chosen_tunnel(&mut self) -> Option<Key> {
        if self.packet.own_tunnel {
            return None;
        }
        Field::of_tunnels().for_each(|field| self.consult(field, u128::MAX));
        Some(tunnel_in(&self.packet.state.key))
    }

    /// The handle of a context; `None` where no handle is free.
    pub(super) fn remember(&mut self, context: Context) -> Option<u32> {
        self.spend(cost::KEEP + self.contexts.len() / 8);
        let Ok(handle) = self
            .switch
            .contexts
            .handle_of(&context, self.switch.seed, &self.contexts)
        else {
            let bridge = context.bridge();
            self.budget.note(bridge, Limit::Handles);
            self.warning(|_| Limit::Handles.to_string());
            self.depend(Read::Handles(bridge));
            return None;
        };
        if !self.contexts.iter().any(|(known, _)| *known == handle) {
            let context = self
                .switch
                .contexts
                .get(handle)
                .cloned()
                .unwrap_or_else(|| Arc::new(context));
            self.contexts.push((handle, context));
            self.effects.push(dp::Effect::Context(handle));
        }
        self.depend(Read::Context(handle));
        Some(handle)
    }

    /// Runs the rest for longer packets, then for the others.
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
            self.go_on(frames.to_vec(), None);
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

    /// Runs what frames have left. A report names the rules that they belong to, if `from` says
    /// which one was named last.
    fn go_on(&mut self, frames: Vec<Frame>, mut from: Option<(u8, u64)>) {
        let mut frames: VecDeque<Frame> = frames.into();
        while let Some(mut frame) = frames.pop_front() {
            if self.report.is_some() && from.is_some() {
                match frame.names_at(&mut from) {
                    Some(0) => {
                        self.line(Kind::Action, |_| frame.name());
                        self.line(Kind::Action, |_| frame.restored());
                    }
                    Some(at) => {
                        from = Some(NOT_NAMED);
                        let rest = frame.actions.split_off(at);
                        let then = frame.then.take();
                        frames.push_front(Frame {
                            actions: rest,
                            then,
                            ..frame.clone()
                        });
                    }
                    None => {}
                }
            }
            self.go_to((frame.table, frame.cookie, frame.rule));
            let through = self.run_rest(&frame.actions, frame.then.as_ref());
            if let Some(next) = through {
                self.look_up(next, LookUp::default(), true);
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

    /// The actions that frames have left, as Open vSwitch lists them.
    fn text_of_frames(&self, frames: &[Frame]) -> String {
        let mut parts = Vec::new();
        let mut last = Some(NOT_NAMED);
        for frame in frames {
            let named = frame.names_at(&mut last);
            for (at, action) in frame.actions.iter().enumerate() {
                parts.extend((named == Some(at)).then(|| frame.name()));
                parts.push(self.text_of_action(action));
            }
            if let Some(then) = &frame.then {
                parts.extend(then.clear.then(|| String::from("clear_actions")));
                let write =
                    (!then.write.is_empty()).then(|| format!("write_actions({})", self.text_of_actions(&then.write)));
                parts.extend(write);
                parts.extend(then.metadata.map(|(value, mask)| write_metadata(value, mask)));
                parts.extend(then.goto.map(|table| format!("resubmit(,{table})")));
            }
        }
        parts.join(",")
    }

    /// Continues a frozen packet, as it is now.
    pub(super) fn thaw(&mut self, frozen: &RecircContext) {
        let Some(bridge) = self.switch.bridges.get(&frozen.bridge) else {
            return self.dropped(DropCause::NoRule);
        };
        self.depend(Read::Bridge(bridge.id));
        self.begin(frozen.meta);
        if let Some(tunnel) = &frozen.tunnel {
            self.packet.state.key.copy_tunnel(tunnel);
            self.packet.own_tunnel = false;
        }
        self.packet.place = Place {
            bridge: Some(bridge),
            action_set: frozen.action_set.clone(),
            ..Place::default()
        };
        self.packet.stack = frozen.stack.clone();
        self.packet.limit = frozen.limit;
        self.packet.default_queue = frozen.default_queue;
        self.mirrored = frozen.mirrored;
        self.exported.outer_port = frozen.outer_port;
        self.hash.clone_from(&frozen.hash);
        self.packet.tracked = frozen.tracked;
        self.packet.typed = frozen.typed;
        if frozen.typed {
            self.consult(Field::PacketType, u128::MAX);
        }
        if !frozen.tracked {
            self.untrack();
        }
        if let Origin::Port(at) = frozen.from {
            let key = self.packet.state.key;
            return self.enter(at, key);
        }
        let from = match frozen.from {
            Origin::Table(table) => Some(table),
            _ => None,
        };
        let table = from.unwrap_or_default();
        self.open(Kind::Thaw, |_| String::from("thaw"));
        self.line(Kind::Thaw, |_| format!("Resuming from table {table}"));
        if self.report.is_some() {
            let list = self.text_of_frames(&frozen.frames);
            if !list.is_empty() {
                self.line(Kind::Thaw, |_| format!("Restoring actions: {list}"));
            }
        }
        self.close(1);
        if let Some(table) = from {
            self.look_up(table, LookUp::default(), true);
        } else {
            self.restoring(true);
            self.go_on(frozen.frames.clone(), Some(NOT_NAMED));
            self.restoring(false);
        }
        self.settle();
    }

    /// Punts a copy of the packet, as it is now, to a controller.
    pub(super) fn hand_over(&mut self, to: &Controller, continuation: Option<u32>) {
        let Some(bridge) = self.packet.place.bridge else { return };
        if !self.another_output() || !self.spend(cost::KEEP + to.userdata.len() / 16 + self.controllers.len() / 16) {
            return;
        }
        self.commit_all();
        let limit = self.packet.limit.map_or(u16::MAX, |limit| limit.min(0xffff) as u16);
        // The controller is told of the tunnel.
        Field::of_tunnels().for_each(|field| self.consult(field, u128::MAX));
        let mut metadata = model::Match::metadata_of(&self.packet.state);
        bridge.tables.options().tell(&self.packet.state, &mut metadata);
        let meaning = ForController {
            bridge: bridge.id,
            controller: to.id,
            reason: continuation.map_or_else(|| self.packet_in_reason(to.reason), |_| to.reason),
            table: self.packet.place.table,
            cookie: self.packet.place.cookie,
            userdata: to.userdata.clone(),
            meter: to.meter,
            metadata,
            max_len: to.max_len.min(limit),
            continuation,
        };
        // Handle 0 stands for nothing: the datapath counts the copy as dropped.
        let handle = self
            .remember(Context::Controller(Box::new(meaning.clone())))
            .unwrap_or(0);
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
