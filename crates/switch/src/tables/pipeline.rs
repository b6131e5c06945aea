//! A packet's way through the tables of bridges, to actions for all packets like it.
//!
//! The [`Pipeline`] holds the packet as tables see it now, the packet as the datapath has it at this point of its actions, and the bits that
//! any decision looked at. What an action asks for is written to the first; the second follows it when the packet is sent (`commit`).
//! What it may need for that: `limits`.

use super::budget::{Budget, Patience, cost};
use super::freeze::{Freezing, Frozen};
use super::learn::Overlay;
use super::liveness::Liveness;
use super::report::{Kind, Report};
use super::translated::{BridgeRule, ForController, Memo, Translated};
use super::{Credited, RuleRef, words};
use crate::FragMode;
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::Ingress;
use crate::switch::Switch;
use dp::{Action, Credit, Dep, DropCause, Effect, Key, Translation};
use flow::{Field, FlowState, MatchField};
use openflow::model::{self, Instructions};
use smallvec::SmallVec;
use std::sync::Arc;

/// VLAN tags.
pub(super) type Tags = SmallVec<[wire::VlanTag; 2]>;

/// A translation in the making.
pub(crate) struct Pipeline<'a> {
    pub(super) switch: &'a Switch,
    /// The packet as it came.
    pub(super) original: &'a Key,
    /// The packet as tables see it.
    pub(super) state: FlowState,
    /// The packet as the datapath has it.
    pub(super) base: Key,
    /// The queue of outputs, as the datapath has it.
    pub(super) base_queue: u32,
    /// Where the steps begin that are of the copy alone that the packet is.
    pub(super) own_steps: usize,
    /// Whether an action has chosen queue 0, which otherwise means none.
    pub(super) default_queue: bool,
    /// Whether a controller sent the packet.
    pub(super) packet_out: bool,
    /// Whether the datapath gets the packet from a controller, and with it no mark.
    unmarked: bool,
    /// Whether tables see the packet as the datapath got it: in the bridge that it came in on, before any action that may change it.
    pub(super) untouched: bool,
    /// Tables that saw it so although it has a tag that does not count, and so is not quite what the datapath got.
    pub(super) uncounted: SmallVec<[Read; 4]>,
    /// Whether the tags are those that it came with.
    pub(super) own_tags: bool,
    /// Most bytes that are sent.
    pub(super) limit: Option<u32>,
    /// Whether a header is off behind which the packet is not known.
    pub(super) hidden: bool,
    /// The packet behind each header that was put on here, the innermost first.
    pub(super) covered: Vec<Key>,
    /// The tags behind the second one, the outermost first: as tables see the packet, and as the datapath has it.
    pub(super) buried: Tags,
    pub(super) base_buried: Tags,
    pub(super) consulted: words::StateWords,
    pub(super) actions: Vec<Action>,
    pub(super) place: Place<'a>,
    /// What `push` put there.
    pub(super) stack: Vec<u128>,
    pub(super) exit: bool,
    pub(super) freezing: Option<Freezing>,
    pub(super) drop: Option<DropCause>,
    pub(super) deps: SmallVec<[Dep; 4]>,
    pub(super) effects: SmallVec<[Effect; 2]>,
    pub(super) rules: SmallVec<[BridgeRule; 4]>,
    pub(super) credits: SmallVec<[Credit; 4]>,
    pub(super) controllers: Vec<(u32, ForController)>,
    pub(super) memos: Vec<(u32, Arc<Memo>)>,
    pub(super) overlays: Vec<Overlay>,
    pub(super) report: Option<Box<Report>>,
    pub(super) liveness: Liveness,
    pub(super) budget: Budget<'a>,
    pub(super) failed: bool,
}

/// Where in the switch the packet is.
#[derive(Clone, Default)]
pub(super) struct Place<'a> {
    pub(super) bridge: Option<&'a Bridge>,
    pub(super) table: u8,
    pub(super) rule: Option<BridgeRule>,
    pub(super) cookie: u64,
    pub(super) action_set: Vec<model::Action>,
    /// What the actions that are running belong to.
    pub(super) of: Owner,
}

/// What actions belong to, as controllers are told when they get a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Owner {
    /// A rule.
    #[default]
    Rule,
    /// An action set.
    Set,
    /// A group.
    Group,
}

/// Where a packet begins its way, if that is not the port of its key.
pub(crate) enum Start<'s> {
    /// In the first table of a bridge, with metadata; the OpenFlow port is that of the metadata, whether there is one or not.
    At(u32, FlowState),
    /// With actions, in a bridge.
    Actions(u32, FlowState, &'s [model::Action]),
}

/// How a list of actions ended.
pub(super) enum Ran {
    /// Behind the last one, or at an end of everything.
    Through,
    /// Before it, and with it the rule.
    Stopped,
    /// The packet froze at an action; the list goes on with the one of this number.
    Frozen(usize),
}

/// What a table has for a packet.
enum Found {
    Rule(Arc<Instructions>),
    Nothing,
    /// It does not look at fragments, which are dropped.
    Fragment,
}

impl<'a> Pipeline<'a> {
    /// What becomes of a packet, and of all that are like it.
    pub(crate) fn translate(switch: &'a Switch, key: &'a Key, patience: Patience<'a>) -> Option<Translated> {
        let mut pipeline = Pipeline::new(switch, key, patience);
        pipeline.run();
        pipeline.finish()
    }

    /// What becomes of a packet that a controller lets go on, with what the controller says of its metadata.
    pub(crate) fn resume(
        switch: &'a Switch,
        state: &'a FlowState,
        (frozen, handle): (&Frozen, u32),
        patience: Patience<'a>,
    ) -> Option<Translated> {
        let mut pipeline = Pipeline::new(switch, &state.key, patience);
        pipeline.unmarked = true;
        pipeline.base = pipeline.visible(&state.key);
        pipeline.depend(Read::Memo(handle));
        pipeline.thaw(&frozen.with_metadata(state));
        pipeline.finish()
    }

    /// What actions make of a packet.
    pub(crate) fn packet_out(
        switch: &'a Switch,
        state: &'a FlowState,
        (bridge, actions): (u32, &[model::Action]),
        patience: Patience<'a>,
    ) -> Option<Translated> {
        let mut pipeline = Pipeline::new(switch, &state.key, patience);
        (pipeline.packet_out, pipeline.unmarked) = (true, true);
        pipeline.run_from(&Start::Actions(bridge, *state, actions));
        pipeline.finish()
    }

    /// The packet as tables see it, with metadata, of which the datapath may have less.
    pub(super) fn begin(&mut self, meta: [u64; flow::META_WORDS]) {
        self.state = FlowState::with_meta(self.base, meta);
        if self.unmarked {
            self.base.set(Field::PktMark, 0);
        }
    }

    /// A translation that has not begun.
    pub(crate) fn new(switch: &'a Switch, key: &'a Key, patience: Patience<'a>) -> Pipeline<'a> {
        Pipeline {
            switch,
            original: key,
            state: FlowState::ZERO,
            base: Key::ZERO,
            base_queue: key.get(Field::SkbPriority) as u32,
            own_steps: 0,
            default_queue: false,
            packet_out: false,
            unmarked: false,
            untouched: false,
            uncounted: SmallVec::new(),
            own_tags: true,
            limit: None,
            hidden: false,
            covered: Vec::new(),
            buried: Tags::new(),
            base_buried: Tags::new(),
            consulted: [0; words::WORDS],
            actions: Vec::new(),
            place: Place::default(),
            stack: Vec::new(),
            exit: false,
            freezing: None,
            drop: None,
            deps: SmallVec::new(),
            effects: SmallVec::new(),
            rules: SmallVec::new(),
            credits: SmallVec::new(),
            controllers: Vec::new(),
            memos: Vec::new(),
            overlays: Vec::new(),
            report: None,
            liveness: Liveness::default(),
            budget: Budget::new(patience),
            failed: false,
        }
    }

    /// The packet's way from where it came in, or from where it was frozen.
    pub(crate) fn run(&mut self) {
        let key = self.original;
        self.base = self.visible(key);
        self.consult(Field::InPort, u128::MAX);
        self.consult(Field::RecircId, u128::MAX);
        match key.get(Field::RecircId) as u32 {
            0 => {
                let in_port = key.in_port();
                self.depend(Read::Attachment(in_port));
                if let Some(at) = self.switch.attachments.get(&in_port) {
                    let key = self.base;
                    self.enter(*at, key);
                }
            }
            handle => self.run_frozen(handle),
        }
    }

    /// The way of a packet from where something froze it.
    pub(crate) fn run_frozen(&mut self, handle: u32) {
        self.depend(Read::Memo(handle));
        let memos = &self.switch.memos;
        match memos.get(handle).map(|memo| &**memo) {
            Some(Memo::Frozen(frozen)) => self.thaw(frozen),
            _ => self.dropped(DropCause::NoRule),
        }
    }

    /// The packet's way from somewhere else.
    pub(crate) fn run_from(&mut self, start: &Start<'_>) {
        let (bridge, state, actions) = match start {
            Start::At(bridge, state) => (*bridge, state, None),
            Start::Actions(bridge, state, actions) => (*bridge, state, Some(*actions)),
        };
        let key = self.original;
        self.base = self.visible(key);
        self.begin(*state.meta());
        self.consult(Field::InPort, u128::MAX);
        self.consult(Field::RecircId, u128::MAX);
        let Some(bridge) = self.switch.bridges.get(&bridge) else {
            return;
        };
        self.depend(Read::Bridge(bridge.id));
        self.place = Place {
            bridge: Some(bridge),
            cookie: u64::MAX,
            ..Place::default()
        };
        self.open(Kind::Bridge, |p| p.text_of_bridge(bridge));
        match actions {
            Some(actions) => {
                self.run_rest(actions, None);
                self.settle();
            }
            None => self.run_tables(bridge),
        }
        self.note_last();
        self.close(1);
    }

    /// The packet's way through the tables of the bridge that it is in.
    fn run_tables(&mut self, bridge: &Bridge) {
        let in_port = self.state.get(MatchField::InPortOxm) as u32;
        if self.receives(bridge, in_port) {
            self.look_up(0, None, true);
            let reopened = self.reopen();
            self.settle();
            self.close(reopened);
        }
    }

    /// The packet comes into a bridge. Its state is what it was when this returns.
    pub(super) fn enter(&mut self, at: Ingress, key: Key) {
        let Some(bridge) = self.switch.bridges.get(&at.bridge) else {
            return;
        };
        self.depend(Read::Bridge(at.bridge));
        self.depend(Read::Port(at.bridge, at.port));
        let port = bridge
            .ports
            .get(&at.port)
            .and_then(|port| port.members.get(at.interface));
        let Some(member) = port else { return };
        let inside = FlowState::new(key, member.number);
        let from_outside = self.place.bridge.is_none();
        let untouched = std::mem::replace(&mut self.untouched, from_outside);
        let state = Box::new(std::mem::replace(&mut self.state, inside));
        let within = Place {
            bridge: Some(bridge),
            ..Place::default()
        };
        let place = Box::new(std::mem::replace(&mut self.place, within));
        let stack = std::mem::take(&mut self.stack);
        let (hidden, own_tags, default_queue) = (self.hidden, self.own_tags, self.default_queue);
        let (covered, buried) = (self.covered.clone(), self.buried.clone());
        let before = (self.actions.len(), self.base, self.base_queue);
        let own_steps = std::mem::replace(&mut self.own_steps, self.actions.len());
        self.open(Kind::Bridge, |p| p.text_of_bridge(bridge));
        let deeper = u32::from(place.bridge.is_some());
        if self.deeper(deeper) {
            if self.spend(cost::COPY) {
                self.run_tables(bridge);
            }
            self.shallower(deeper);
        }
        self.close(1);
        if place.bridge.is_some() {
            self.contain(before);
            self.forgive();
        }
        self.own_steps = own_steps;
        (self.hidden, self.own_tags, self.default_queue) = (hidden, own_tags, default_queue);
        (self.covered, self.buried) = (covered, buried);
        self.stack = stack;
        self.place = *place;
        self.state = *state;
        self.untouched = untouched;
    }

    /// Does what the rule says that a table has for the packet, and those of the tables that it goes on with. `misses` says whether what the
    /// table is told to do with packets that it has no rule for is done.
    pub(super) fn look_up(&mut self, table: u8, in_port: Option<u32>, misses: bool) {
        let (mut table, mut in_port, mut misses) = (table, in_port, misses);
        let mut opened = 0;
        loop {
            if !self.another_lookup(table) {
                break;
            }
            let found = self.rule(table, in_port.take());
            opened += 1;
            let instructions = match found {
                Found::Rule(instructions) => instructions,
                Found::Nothing if misses => {
                    if !self.miss(table) {
                        break;
                    }
                    table += 1;
                    continue;
                }
                Found::Nothing | Found::Fragment => {
                    self.line(Kind::Action, |_| String::from("drop"));
                    break;
                }
            };
            misses = true;
            self.place.table = table;
            match self.run_rule(&instructions) {
                Some(next) if self.is_running() && self.has_room() => table = next,
                _ => break,
            }
        }
        self.close(opened);
    }

    /// A lookup by an action, after which the list goes on.
    pub(super) fn resubmit(&mut self, table: u8, in_port: Option<u32>) {
        let here = (self.place.table, self.place.cookie, self.place.rule);
        if !self.has_room() {
            return;
        }
        let deeper = u32::from(table <= here.0);
        self.budget.sink(deeper);
        if self.nest() {
            self.look_up(table, in_port, false);
            self.budget.unnest();
        }
        self.shallower(deeper);
        (self.place.table, self.place.cookie, self.place.rule) = here;
    }

    /// The instructions of the rule that a table has for the packet. Opens a part of the report.
    #[inline(never)]
    fn rule(&mut self, table: u8, in_port: Option<u32>) -> Found {
        let Some(bridge) = self.place.bridge else {
            return Found::Nothing;
        };
        let untouched = in_port.is_none() && self.untouched;
        let whole = Read::Table(bridge.id, table);
        self.depend(if untouched {
            Read::UntouchedIn(bridge.id, table)
        } else {
            whole
        });
        if untouched && self.has_uncounted_tag() {
            self.uncounted.push(whole);
        }
        let key = match in_port {
            None => words::words_of(&self.state),
            Some(port) => {
                let mut state = self.state;
                state.set(MatchField::InPortOxm, port.into());
                words::words_of(&state)
            }
        };
        if table == 0
            && let Some(rules) = bridge.hidden.rules()
            && let Some(found) = self.find(rules, &key)
        {
            self.place.cookie = 0;
            self.place.rule = None;
            self.open(Kind::Table, |_| format!("{table:2}. priority {}", found.priority));
            return Found::Rule(found.rule.instructions.clone());
        }
        let mut key = key;
        let fragment = self.state.key.get(Field::IpFrag) != 0;
        if bridge.frags == FragMode::Drop {
            self.consult(Field::IpFrag, u128::MAX);
            if fragment {
                self.open(Kind::Table, |_| {
                    format!(r#"{table:2}. Packets are IP fragments and the fragment handling mode is "drop"."#)
                });
                return Found::Fragment;
            }
        }
        if fragment && bridge.frags == FragMode::Normal {
            words::clear_ports(&mut key);
        }
        let rules = bridge.tables.table(table).map(|table| &table.rules);
        let found = rules.and_then(|rules| self.find(rules, &key));
        if words::has_ports(&self.consulted) {
            // Whether it is a fragment says whether these ports count.
            self.consult(Field::IpFrag, u128::MAX);
        }
        let matched = found.is_some();
        let lookup = Credited::Lookup {
            bridge: bridge.id,
            table,
            matched,
        };
        self.credits.push(lookup.credit());
        let Some(found) = found else {
            self.open(Kind::Table, |_| format!("{table:2}. No match."));
            return Found::Nothing;
        };
        let rule = BridgeRule {
            bridge: bridge.id,
            rule: RuleRef { table, id: found.id },
        };
        self.rules.push(rule);
        let credited = Credited::Rule {
            bridge: rule.bridge,
            rule: rule.rule,
        };
        self.credits.push(credited.credit());
        self.place.cookie = found.rule.cookie;
        self.place.rule = Some(rule);
        self.open(Kind::Table, |p| p.text_of_table(bridge, rule.rule, found.rule.cookie));
        Found::Rule(found.rule.instructions.clone())
    }

    /// Does what a rule says. The table to go on with.
    fn run_rule(&mut self, instructions: &Arc<Instructions>) -> Option<u8> {
        if instructions.is_empty() {
            self.line(Kind::Action, |_| String::from("drop"));
        }
        if let Some(meter) = instructions.meter {
            self.line(Kind::Action, |_| format!("meter:{meter}"));
            self.meter(meter);
        }
        self.run_rest(&instructions.apply, Some(instructions))
    }

    /// Runs actions, and what a rule says behind them. The table to go on with.
    pub(super) fn run_rest(&mut self, actions: &[model::Action], then: Option<&Arc<Instructions>>) -> Option<u8> {
        match self.run_list(actions) {
            Ran::Through if self.exit || self.failed => None,
            Ran::Through => then.and_then(|then| self.run_instructions(then)),
            Ran::Stopped => None,
            Ran::Frozen(next) => {
                self.leave(&actions[next..], then);
                None
            }
        }
    }

    /// The instructions behind apply-actions. The table to go on with.
    fn run_instructions(&mut self, instructions: &Instructions) -> Option<u8> {
        if instructions.clear {
            self.clear_actions();
        }
        if !instructions.write.is_empty() {
            self.write_actions(&instructions.write);
        }
        if let Some((value, mask)) = instructions.metadata {
            self.line(Kind::Action, |_| super::report::write_metadata(value, mask));
            self.untouched = false;
            let kept = self.state.get(MatchField::Metadata) & !u128::from(mask);
            self.state.set(MatchField::Metadata, kept | u128::from(value & mask));
        }
        if let Some(table) = instructions.goto {
            self.line(Kind::Action, |p| p.text_of_goto(table));
        }
        instructions.goto
    }

    /// Whether the packet is still on its way.
    pub(super) fn is_running(&self) -> bool {
        !self.exit && !self.failed && self.freezing.is_none()
    }

    pub(super) fn consult(&mut self, field: Field, bits: u128) {
        words::consult(&mut self.consulted, field, bits);
    }

    /// What a field of the packet is now.
    pub(super) fn read(&mut self, field: Field) -> u128 {
        self.consult(field, u128::MAX);
        self.state.key.get(field)
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

    /// What has come of it; nothing where the caller did not wait until its end.
    pub(crate) fn finish(mut self) -> Option<Translated> {
        if self.budget.is_unfinished() {
            return None;
        }
        if self.failed {
            // A part of the copies is worth nothing. What was learned before stays learned, as in Open vSwitch: its action was carried out.
            self.actions.clear();
            self.controllers.clear();
            self.memos.retain(|(_, memo)| !matches!(**memo, Memo::Frozen(_)));
        }
        super::commit::trim(&mut self.actions);
        let drop = self.actions.is_empty();
        let mask = self.mask();
        let translation = Translation {
            drop: drop.then(|| self.drop.unwrap_or(DropCause::NoDestination)),
            actions: self.actions.into(),
            mask,
            deps: self.deps,
            effects: self.effects,
            credits: self.credits,
        };
        Some(Translated {
            translation,
            rules: self.rules,
            controllers: self.controllers,
            memos: self.memos,
            work: self.budget.work(),
            ran_out: self.budget.ran_out(),
        })
    }
}
