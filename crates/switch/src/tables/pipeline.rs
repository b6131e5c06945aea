//! The translator: takes a packet through the bridges and returns the datapath actions for all
//! packets like it.
//!
//! [`Pipeline`] is its state: the packet as tables see it and as the datapath has it (`packet`),
//! and the bits that any decision has read. An action writes to the packet that tables see. The
//! datapath's packet follows when the packet is sent (`commit`). `normal` is the action NORMAL,
//! which bridges without rules run on what they receive. `limits` bounds the work.

use super::budget::{Budget, Patience, cost};
use super::control::Admission;
use super::export::Exported;
use super::freeze::{Freezing, RecircContext};
use super::learn::Overlay;
use super::liveness::Liveness;
use super::look_up::{Found, LookUp};
use super::packet::{Packet, Place};
use super::report::{Kind, Report};
use super::translated::{BridgeRule, Context, ForController, Translated};
use super::words;
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::Ingress;
use crate::switch::Switch;
use dp::{Action, Credit, Dep, DropCause, Effect, FlowHash, Key, Translation, Upcall};
use flow::{Field, FlowState, MatchField, RecircId};
use nanos::Nanos;
use openflow::model;
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;

/// A translation in progress.
pub(crate) struct Pipeline<'a> {
    pub(super) switch: &'a Switch,
    /// The key of the packet as the datapath received it.
    pub(super) original: &'a Key,
    /// The options of the tunnel that the packet came from.
    pub(super) tunnel_options: &'a [u8],
    /// The packet at this point.
    pub(super) packet: Packet<'a>,
    /// Whether a controller sent the packet.
    pub(super) packet_out: bool,
    /// Whether a controller sends the packet to the datapath, where it has no mark.
    unmarked: bool,
    /// Tables that were looked up for a packet with a tag beyond the VLAN limit: they do not see
    /// all that the datapath's key has.
    pub(super) uncounted: SmallVec<[Read; 4]>,
    pub(super) consulted: words::StateWords,
    pub(super) actions: Vec<Action>,
    pub(super) exit: bool,
    pub(super) freezing: Option<Freezing>,
    /// The hash that the packet's recirculation id carries.
    pub(super) hash: Option<FlowHash>,
    pub(super) drop: Option<DropCause>,
    pub(super) deps: SmallVec<[Dep; 4]>,
    pub(super) effects: SmallVec<[Effect; 2]>,
    pub(super) rules: SmallVec<[BridgeRule; 4]>,
    pub(super) credits: SmallVec<[Credit; 4]>,
    pub(super) controllers: Vec<(u32, ForController)>,
    pub(super) contexts: Vec<(u32, Arc<Context>)>,
    pub(super) overlays: Vec<Overlay>,
    pub(super) report: Option<Box<Report>>,
    pub(super) liveness: Liveness,
    pub(super) budget: Budget<'a>,
    pub(super) failed: bool,
    /// The mirrors of the bridge whose output has the packet.
    pub(super) mirrored: u32,
    pub(super) exported: Exported<'a>,
}

/// Where a translation starts, if not at the port of the key.
pub(crate) enum Start<'s> {
    /// In the first table of a bridge, with this metadata. The OpenFlow port need not exist.
    At(u32, FlowState),
    /// With these actions, in a bridge.
    Actions(u32, FlowState, &'s [model::Action]),
}

impl<'a> Pipeline<'a> {
    /// Translates a packet of the datapath.
    #[inline]
    pub(crate) fn translate(switch: &'a Switch, upcall: &Upcall<'a>, patience: Patience<'a>) -> Pipeline<'a> {
        let mut pipeline = Pipeline::new(switch, upcall.key, patience);
        pipeline.tunnel_options = upcall.tunnel_options;
        pipeline.run();
        pipeline
    }

    /// Translates a packet that a controller resumes, with the metadata that the controller sent.
    pub(crate) fn resume(
        switch: &'a Switch,
        state: &'a FlowState,
        (frozen, handle): (&RecircContext, u32),
        patience: Patience<'a>,
    ) -> Pipeline<'a> {
        let mut pipeline = Pipeline::new(switch, &state.key, patience);
        pipeline.unmarked = true;
        pipeline.packet.base.key = pipeline.visible(&state.key);
        pipeline.depend(Read::Context(handle));
        pipeline.thaw(&frozen.with_metadata(state));
        pipeline
    }

    /// Translates a packet-out.
    pub(crate) fn packet_out(
        switch: &'a Switch,
        state: &'a FlowState,
        (bridge, actions): (u32, &[model::Action]),
        patience: Patience<'a>,
    ) -> Pipeline<'a> {
        let mut pipeline = Pipeline::new(switch, &state.key, patience);
        (pipeline.packet_out, pipeline.unmarked) = (true, true);
        pipeline.run_from(&Start::Actions(bridge, *state, actions));
        pipeline
    }

    /// A packet of the switch itself, before anything is done with it.
    pub(super) fn packet_of(switch: &'a Switch, state: &'a FlowState, patience: Patience<'a>) -> Pipeline<'a> {
        let mut pipeline = Pipeline::new(switch, &state.key, patience);
        (pipeline.packet_out, pipeline.unmarked) = (true, true);
        pipeline.packet.base.key = pipeline.visible(&state.key);
        pipeline.begin(*state.meta());
        pipeline
    }

    /// Sets the packet that tables see, with metadata that the datapath need not have.
    pub(super) fn begin(&mut self, meta: [u64; flow::META_WORDS]) {
        self.packet.state = FlowState::with_meta(self.packet.base.key, meta);
        if self.unmarked {
            self.packet.base.key.set(Field::PktMark, 0);
        }
    }

    /// A translation that has not started.
    #[inline]
    pub(crate) fn new(switch: &'a Switch, key: &'a Key, patience: Patience<'a>) -> Pipeline<'a> {
        Pipeline {
            switch,
            original: key,
            tunnel_options: &[],
            packet: Packet::new(key.get(Field::SkbPriority) as u32),
            packet_out: false,
            unmarked: false,
            uncounted: SmallVec::new(),
            consulted: [0; words::WORDS],
            actions: Vec::new(),
            exit: false,
            freezing: None,
            hash: None,
            drop: None,
            deps: SmallVec::new(),
            effects: SmallVec::new(),
            rules: SmallVec::new(),
            credits: SmallVec::new(),
            controllers: Vec::new(),
            contexts: Vec::new(),
            overlays: Vec::new(),
            report: None,
            liveness: Liveness::default(),
            budget: Budget::new(patience),
            failed: false,
            mirrored: 0,
            exported: Exported::default(),
        }
    }

    /// Knows contexts that an earlier translation has proposed.
    pub(crate) fn know(&mut self, contexts: Vec<(u32, Arc<Context>)>) {
        self.contexts = contexts;
    }

    /// Translates from the port of the key, or from its recirculation context.
    pub(crate) fn run(&mut self) {
        let key = self.original;
        let handle = self.read_origin();
        if handle != 0 {
            if self.switch.tunnels.is_device(key.in_port()) {
                self.consult_tunnel();
            }
            self.packet.base.key = self.visible(key);
            return self.run_frozen(handle);
        }
        let in_port = key.in_port();
        self.depend(Read::Attachment(in_port));
        let at = match self.switch.attachments.get(&in_port) {
            Some(at) => Some(*at),
            None => self.received_by_tunnel(in_port),
        };
        let Some(at) = at else { return };
        let is_bare = self.comes_bare(at);
        match self.switch.bridges.get(&at.bridge) {
            Some(bridge) if !bridge.needs_tables() && !is_bare => self.receive(bridge, at, false),
            _ => {
                self.packet.base.key = self.visible(key);
                let as_held = self.packet.base.key;
                let key = if is_bare { self.bare(as_held) } else { as_held };
                self.enter(at, key);
            }
        }
    }

    /// Reads where the packet comes from. Returns the handle that it continues by, or 0.
    fn read_origin(&mut self) -> u32 {
        let id = RecircId(self.original.get(Field::RecircId) as u32);
        let unread = match id.carries_hash() {
            true => RecircId::HASH_BITS,
            false => 0,
        };
        self.consult(Field::InPort, u128::MAX);
        self.consult(Field::RecircId, !u128::from(unread));
        id.base().0
    }

    /// Translates from a recirculation context.
    pub(crate) fn run_frozen(&mut self, handle: u32) {
        self.depend(Read::Context(handle));
        let own = self.contexts.iter().find(|(known, _)| *known == handle);
        let known = self.switch.contexts.get(handle).or(own.map(|(_, context)| context));
        match known.cloned().as_deref() {
            Some(Context::Recirculation(frozen)) => self.thaw(frozen),
            _ => {
                let number = RecircId(handle).number();
                self.fatal(|_| format!("Recirculation context not found for ID {number:x}"));
                self.fail(DropCause::NoRule);
            }
        }
    }

    /// Translates from another start.
    pub(crate) fn run_from(&mut self, start: &Start<'_>) {
        let (bridge, state, actions) = match start {
            Start::At(bridge, state) => (*bridge, state, None),
            Start::Actions(bridge, state, actions) => (*bridge, state, Some(*actions)),
        };
        let key = self.original;
        self.packet.base.key = self.visible(key);
        self.begin(*state.meta());
        let handle = self.read_origin();
        let Some(bridge) = self.switch.bridges.get(&bridge) else {
            return;
        };
        self.depend(Read::Bridge(bridge.id));
        self.packet.place = Place {
            bridge: Some(bridge),
            cookie: u64::MAX,
            ..Place::default()
        };
        if self.switch.tunnels.is_device(key.in_port()) {
            self.consult_tunnel();
        }
        self.open(Kind::Bridge, |p| p.text_of_bridge(bridge));
        if handle == 0 {
            self.export_received();
        }
        match actions {
            Some(actions) => {
                self.run_actions_of_controller(bridge, actions);
                self.settle();
            }
            None if handle != 0 => self.run_frozen(handle),
            None => {
                let number = self.packet.state.get(MatchField::InPortOxm) as u32;
                match bridge.of_ports.get(&number).filter(|_| !bridge.needs_tables()) {
                    Some((port, interface)) => self.receive(
                        bridge,
                        Ingress {
                            bridge: bridge.id,
                            port: *port,
                            interface: *interface,
                        },
                        true,
                    ),
                    None => self.run_tables(bridge),
                }
            }
        }
        self.note_last();
        self.close(1);
    }

    /// Runs the actions of a packet-out. Its ingress port treats it as a received packet: control
    /// protocols take their frames, and a port that does not forward takes the actions back.
    fn run_actions_of_controller(&mut self, bridge: &Bridge, actions: &[model::Action]) {
        let in_port = self.packet.state.get(MatchField::InPortOxm) as u32;
        let admission = self.admit(bridge, in_port);
        if admission == Admission::Nothing || !self.mirror_received() {
            return;
        }
        let before = (self.actions.len(), self.controllers.len());
        self.run_rest(actions, None);
        if admission == Admission::Learn {
            self.take_back(before);
        }
    }

    /// Takes the packet through the tables of its bridge.
    fn run_tables(&mut self, bridge: &Bridge) {
        let in_port = self.packet.state.get(MatchField::InPortOxm) as u32;
        self.capture_received(bridge, in_port);
        if !self.receives(bridge, in_port) {
            return;
        }
        let admission = self.admit(bridge, in_port);
        if admission == Admission::Nothing {
            return self.show_unused_rule();
        }
        let before = (self.actions.len(), self.controllers.len());
        self.packet.is_new = true;
        self.look_up(0, LookUp::default(), true);
        if admission == Admission::Learn {
            return self.take_back(before);
        }
        let reopened = self.reopen();
        self.settle();
        self.close(reopened);
    }

    /// Reports the rule that a packet would meet which goes no further: Open vSwitch looks it up
    /// first. Neither the megaflow nor counters know of it.
    fn show_unused_rule(&mut self) {
        if self.report.is_none() {
            return;
        }
        let (consulted, place) = (self.consulted, self.packet.place.clone());
        let before = (self.deps.len(), self.rules.len(), self.credits.len());
        if !matches!(self.rule(0, LookUp::default()), Found::Nothing) {
            self.close(1);
        }
        (self.consulted, self.packet.place) = (consulted, place);
        self.deps.truncate(before.0);
        self.rules.truncate(before.1);
        self.credits.truncate(before.2);
    }

    /// The packet enters a bridge with rules. A packet from another bridge enters as a copy.
    pub(super) fn enter(&mut self, at: Ingress, key: Key) {
        self.enter_after(at, key, |_| {});
    }

    /// As [`Pipeline::enter`]; the copy is changed before.
    pub(super) fn enter_after(&mut self, at: Ingress, key: Key, change: impl FnOnce(&mut Self)) {
        let Some(bridge) = self.switch.bridges.get(&at.bridge) else {
            return;
        };
        self.depend(Read::Bridge(at.bridge));
        self.depend(Read::Port(at.bridge, at.port));
        let Some(number) = bridge.number_of(at) else { return };
        let within = self.packet.place.bridge.is_some();
        let saved = match within {
            true => match self.begin_copy() {
                None => return,
                saved => saved,
            },
            false if self.spend(cost::COPY) => None,
            false => return,
        };
        change(self);
        self.packet.untouched = !within && !super::types::is_bare(&key);
        self.packet.state = FlowState::new(key, number);
        if within {
            // As in Open vSwitch, a tunnel does not show behind a patch port.
            self.packet.state.key.copy_tunnel(&Key::ZERO);
            self.packet.own_tunnel = false;
            self.untrack();
        } else if !self.read_tunnel_options(bridge) {
            return;
        }
        self.packet.place = Place {
            bridge: Some(bridge),
            ..Place::default()
        };
        self.packet.stack.clear();
        let mirrored = std::mem::take(&mut self.mirrored);
        self.open(Kind::Bridge, |p| p.text_of_bridge(bridge));
        if !within {
            self.export_received();
        }
        let deeper = u32::from(within);
        if self.deeper(deeper) {
            self.run_tables(bridge);
            self.shallower(deeper);
        }
        self.close(1);
        self.mirrored = mirrored;
        if let Some(saved) = saved {
            self.end_copy(saved);
            self.forgive();
        }
    }

    /// Whether the translation continues.
    pub(super) fn is_running(&self) -> bool {
        !self.exit && !self.failed && self.freezing.is_none()
    }

    pub(super) fn consult(&mut self, field: Field, bits: u128) {
        words::consult(&mut self.consulted, field, bits);
    }

    /// The value of a field of the packet now; it is read, so it is in the mask.
    pub(super) fn read(&mut self, field: Field) -> u128 {
        self.consult(field, u128::MAX);
        self.packet.state.key.get(field)
    }

    pub(super) fn depend(&mut self, read: Read) {
        self.depend_on(read.dep(self.switch.seed));
    }

    pub(super) fn depend_on(&mut self, dep: Dep) {
        self.spend(self.deps.len() / 64);
        if !self.deps.contains(&dep) {
            self.deps.push(dep);
        }
    }

    pub(super) fn dropped(&mut self, cause: DropCause) {
        self.drop.get_or_insert(cause);
    }

    /// Gives up the whole translation: its packet is dropped for `cause`.
    pub(super) fn fail(&mut self, cause: DropCause) {
        self.failed = true;
        self.drop = Some(cause);
    }

    /// The result; `None` where the caller's patience was over before the end.
    #[inline]
    pub(crate) fn finish(mut self, now: Nanos) -> Option<Translated> {
        let flow = self.finish_export();
        if self.budget.is_unfinished() {
            return None;
        }
        if self.failed {
            // Sending a part of the copies would be wrong. Rules that the packet has learned stay,
            // as in Open vSwitch: their actions have run.
            self.actions.retain(super::capture::is_of_received);
            self.controllers.clear();
            self.forget_contexts();
        }
        super::commit::trim(&mut self.actions);
        super::commit::free_last_tunnel(&mut self.actions);
        let drop = !self.actions.iter().any(delivers);
        let cause = self.drop.unwrap_or(DropCause::NoDestination);
        if drop {
            self.explain_captures(cause);
        }
        let mask = self.mask();
        let mut news = self.switch.news(&self.effects, &self.contexts, now);
        news.changes |= flow.is_some_and(|flow| !self.switch.knows_flow(&flow));
        let translation = Translation {
            drop: drop.then_some(cause),
            actions: self.actions.into(),
            mask,
            deps: self.deps,
            effects: self.effects,
            credits: self.credits,
        };
        Some(Translated {
            translation,
            news,
            rules: self.rules,
            controllers: self.controllers,
            contexts: self.contexts,
            flow,
            work: self.budget.work(),
            ran_out: self.budget.ran_out(),
        })
    }

    /// Forgets the contexts that only actions and controllers need, with the effects and
    /// dependencies on them: nothing uses their handles, and another translation may have them. The
    /// context that the packet continues from stays a dependency.
    fn forget_contexts(&mut self) {
        let own = RecircId(self.original.get(Field::RecircId) as u32).base().0;
        let forgotten = self.contexts.extract_if(.., |(_, context)| !context.acts());
        let forgotten: HashSet<u32> = forgotten.map(|(handle, _)| handle).collect();
        self.effects
            .retain(|effect| !matches!(effect, Effect::Context(handle) if forgotten.contains(handle)));
        let unused = forgotten.into_iter().filter(|handle| *handle != own);
        let unused: HashSet<Dep> = unused
            .map(|handle| Read::Context(handle).dep(self.switch.seed))
            .collect();
        self.deps.retain(|dep| !unused.contains(dep));
    }
}

/// Whether an action gives the packet to somebody other than collectors.
pub(super) fn delivers(action: &Action) -> bool {
    match action {
        Action::Punt { reason, .. } => reason.delivers(),
        Action::Output(_) | Action::OutputBond(_) | Action::Meter(_) | Action::TunnelPop { .. } => true,
        Action::Recirc(_) | Action::RecircByHash { .. } => true,
        _ => false,
    }
}
