//! A packet's way through the tables of bridges, to actions for all packets like it.
//!
//! The [`Pipeline`] holds the packet as tables see it now, the packet as the datapath has it at this point of its actions, and the bits that
//! any decision looked at. What an action asks for is written to the first; the second follows it when the packet is sent (`commit`).
//!
//! The limits are Open vSwitch's: 64 lookups deep, 4096 lookups; and one for the stack. A packet that needs more is dropped as a whole.

use super::{RuleRef, words};
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::{Egress, Ingress};
use crate::switch::Switch;
use crate::translate::Normal;
use dp::{Action, Dep, DropCause, Effect, Key, PortNo, Translation};
use flow::{Field, FlowState, MatchField, PORT_UNSET};
use openflow::model::{self, Instructions};
use smallvec::SmallVec;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Lookups within lookups of the same or an earlier table, and patch ports.
const MAX_DEPTH: u32 = 64;
/// Lookups in all.
const MAX_LOOKUPS: u32 = 4096;
/// Lookups and copies within each other, also of later tables, of which Open vSwitch allows as many as lookups: what the stack of a worker has room for.
pub(super) const MAX_NESTED: u32 = 320;

/// A rule of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BridgeRule {
    /// The bridge, by its number in the switch.
    pub bridge: u32,
    /// The rule.
    pub rule: RuleRef,
}

/// What controllers are told of a packet that an action hands to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForController {
    /// The bridge, by its number in the switch.
    pub bridge: u32,
    /// To which controllers.
    pub controller: u16,
    /// Why, as messages number it.
    pub reason: u8,
    /// The table of the rule.
    pub table: u8,
    /// The cookie of the rule.
    pub cookie: u64,
    /// Bytes that the action wants handed back.
    pub userdata: Vec<u8>,
    /// The metadata: the ingress port at least.
    pub metadata: model::Match,
}

/// A translation and what it used.
#[derive(Clone, Debug)]
pub struct Translated {
    /// The translation.
    pub translation: Translation,
    /// The rules that its packets are counted by.
    pub rules: SmallVec<[BridgeRule; 4]>,
    /// What the handles of [`Action::Controller`] mean. A handle is the same whenever the meaning is.
    pub controllers: Vec<(u32, ForController)>,
}

/// A translation in the making.
pub(crate) struct Pipeline<'a> {
    pub(super) switch: &'a Switch,
    /// The packet as it came.
    pub(super) original: &'a Key,
    /// The packet as tables see it.
    pub(super) state: FlowState,
    /// The packet as the datapath has it.
    pub(super) base: Key,
    /// Whether the tags are those that it came with.
    pub(super) own_tags: bool,
    pub(super) consulted: words::StateWords,
    pub(super) actions: Vec<Action>,
    pub(super) place: Place<'a>,
    /// What `push` put there: values and their widths.
    pub(super) stack: Vec<u128>,
    pub(super) exit: bool,
    pub(super) drop: Option<DropCause>,
    deps: SmallVec<[Dep; 4]>,
    effects: SmallVec<[Effect; 2]>,
    rules: SmallVec<[BridgeRule; 4]>,
    controllers: Vec<(u32, ForController)>,
    depth: u32,
    pub(super) nested: u32,
    lookups: u32,
    pub(super) failed: bool,
}

/// Where in the switch the packet is.
#[derive(Clone)]
pub(super) struct Place<'a> {
    pub(super) bridge: Option<&'a Bridge>,
    pub(super) table: u8,
    pub(super) cookie: u64,
    pub(super) action_set: Vec<model::Action>,
}

impl<'a> Pipeline<'a> {
    /// What becomes of a packet, and of all that are like it.
    pub(crate) fn translate(switch: &'a Switch, key: &'a Key) -> Translated {
        let in_port = key.in_port();
        let mut pipeline = Pipeline {
            switch,
            original: key,
            state: FlowState::ZERO,
            base: Key::ZERO,
            own_tags: true,
            consulted: [0; words::WORDS],
            actions: Vec::new(),
            place: Place {
                bridge: None,
                table: 0,
                cookie: 0,
                action_set: Vec::new(),
            },
            stack: Vec::new(),
            exit: false,
            drop: None,
            deps: SmallVec::new(),
            effects: SmallVec::new(),
            rules: SmallVec::new(),
            controllers: Vec::new(),
            depth: 0,
            nested: 0,
            lookups: 0,
            failed: false,
        };
        pipeline.base = pipeline.visible(key);
        pipeline.consult(Field::InPort, u128::MAX);
        pipeline.depend(Read::Attachment(in_port));
        if let Some(at) = switch.attachments.get(&in_port) {
            let key = pipeline.base;
            pipeline.enter(*at, key);
        }
        pipeline.finish()
    }

    /// The packet as far as its tags count: behind the last one that does, nothing is known but a type.
    fn visible(&mut self, key: &Key) -> Key {
        let mut seen = *key;
        if self.switch.vlan_limit < 2 {
            self.consult(Field::VlanTci1, flow::TAG_PRESENT.into());
            if let Some(inner) = key.tag(1) {
                self.consult(Field::VlanTpid1, u128::MAX);
                for field in Field::ALL.iter().filter(|field| field.info().word >= 4) {
                    seen.set(*field, 0);
                }
                seen.set_tag(1, None);
                seen.set(Field::EthType, inner.tpid.into());
            }
        }
        seen
    }

    /// The packet comes into a bridge. Its state is what it was when this returns.
    fn enter(&mut self, at: Ingress, key: Key) {
        let Some(bridge) = self.switch.bridges.get(&at.bridge) else {
            return;
        };
        self.depend(Read::Bridge(at.bridge));
        self.depend(Read::Port(at.bridge, at.port));
        let port = bridge
            .ports
            .get(&at.port)
            .and_then(|port| port.members.get(at.interface));
        let Some((number, _)) = port else { return };
        if self.depth > MAX_DEPTH {
            return self.fail();
        }
        self.depth += 1;
        let state = Box::new(std::mem::replace(&mut self.state, FlowState::new(key, *number)));
        let inside = Place {
            bridge: Some(bridge),
            table: 0,
            cookie: 0,
            action_set: Vec::new(),
        };
        let place = Box::new(std::mem::replace(&mut self.place, inside));
        let stack = std::mem::take(&mut self.stack);
        if !self.look_up(0, None) && !self.failed {
            self.dropped(DropCause::NoRule);
        }
        self.exit = false;
        self.run_action_set();
        self.exit = false;
        self.stack = stack;
        self.place = *place;
        self.state = *state;
        self.depth -= 1;
    }

    /// Does what the rule says that a table has for the packet, and those of the tables that it goes on with. Whether there was a rule.
    fn look_up(&mut self, table: u8, in_port: Option<u32>) -> bool {
        let (mut table, mut in_port) = (table, in_port);
        let mut found = false;
        loop {
            self.lookups += 1;
            if self.lookups > MAX_LOOKUPS {
                self.fail();
                return true;
            }
            let Some(instructions) = self.rule(table, in_port.take()) else {
                return found;
            };
            found = true;
            self.place.table = table;
            match self.run_rule(&instructions) {
                Some(next) if !self.exit && !self.failed => table = next,
                _ => return true,
            }
        }
    }

    /// A lookup by an action, after which the list goes on.
    pub(super) fn resubmit(&mut self, table: u8, in_port: Option<u32>) {
        let (here, cookie) = (self.place.table, self.place.cookie);
        let deeper = u32::from(table <= here);
        if self.depth + deeper > MAX_DEPTH || self.nested == MAX_NESTED {
            return self.fail();
        }
        self.depth += deeper;
        self.nested += 1;
        self.look_up(table, in_port);
        self.nested -= 1;
        self.depth -= deeper;
        (self.place.table, self.place.cookie) = (here, cookie);
    }

    /// The instructions of the rule that a table has for the packet.
    #[inline(never)]
    fn rule(&mut self, table: u8, in_port: Option<u32>) -> Option<Arc<Instructions>> {
        let bridge = self.place.bridge?;
        self.depend(Read::Table(bridge.id, table));
        let rules = &bridge.tables.table(table)?.rules;
        let key = match in_port {
            None => words::words_of(&self.state),
            Some(port) => {
                let mut state = self.state;
                state.set(MatchField::InPortOxm, port.into());
                words::words_of(&state)
            }
        };
        let found = rules.lookup(&key, &mut self.consulted)?;
        let rule = BridgeRule {
            bridge: bridge.id,
            rule: RuleRef { table, id: found.id },
        };
        self.rules.push(rule);
        self.place.cookie = found.rule.cookie;
        Some(found.rule.instructions.clone())
    }

    /// Does what a rule says. The table to go on with.
    fn run_rule(&mut self, instructions: &Instructions) -> Option<u8> {
        if !self.run_list(&instructions.apply) || self.exit || self.failed {
            return None;
        }
        if instructions.clear {
            self.place.action_set.clear();
            self.state.set(MatchField::ActsetOutput, PORT_UNSET.into());
        }
        self.write_actions(&instructions.write);
        if let Some((value, mask)) = instructions.metadata {
            let kept = self.state.get(MatchField::Metadata) & !u128::from(mask);
            self.state.set(MatchField::Metadata, kept | u128::from(value & mask));
        }
        instructions.goto
    }

    /// Does what the bridge would do without rules.
    pub(super) fn normal(&mut self) {
        let Some(bridge) = self.place.bridge else { return };
        let in_port = self.state.get(MatchField::InPortOxm) as u32;
        let Some((port, interface)) = bridge.of_ports.get(&in_port).copied() else {
            self.depend(Read::Flood(bridge.id));
            return self.dropped(DropCause::NoDestination);
        };
        let at = Ingress {
            bridge: bridge.id,
            port,
            interface,
        };
        let mut key = self.state.key;
        if self.own_tags && self.switch.vlan_limit < 2 {
            key.set_tag(1, self.original.tag(1));
        }
        let effects = std::mem::take(&mut self.effects);
        let Some(normal) = Normal::of(self.switch, &key, at, effects) else {
            return;
        };
        self.effects = normal.effects;
        for field in Field::ALL {
            self.consult(*field, normal.mask.get(*field));
        }
        normal.deps.into_iter().for_each(|dep| self.depend_on(dep));
        if let Some(cause) = normal.drop {
            self.dropped(cause);
        }
        for (tags, egress) in normal.outputs {
            let state = Box::new(self.state);
            let own_tags = self.own_tags;
            for change in &tags {
                match change {
                    Action::PushVlan(tag) => self.push_tag(*tag),
                    _ => self.pop_tag(),
                }
            }
            self.send(egress);
            self.state = *state;
            self.own_tags = own_tags;
        }
    }

    /// Sends the packet as it is now.
    pub(super) fn send(&mut self, egress: Egress) {
        match egress {
            Egress::None => self.dropped(DropCause::PortDown),
            Egress::Device(device) => self.send_to(device),
            Egress::Patch(peer) => {
                let key = self.state.key;
                self.enter(peer, key);
            }
        }
    }

    fn send_to(&mut self, device: PortNo) {
        self.commit();
        self.actions.push(Action::Output(device));
    }

    /// Hands the packet as it is now to controllers.
    pub(super) fn send_to_controllers(&mut self, controller: u16, reason: u8, max_len: u16, userdata: &[u8]) {
        let Some(bridge) = self.place.bridge else { return };
        self.commit();
        let meaning = ForController {
            bridge: bridge.id,
            controller,
            reason,
            table: self.place.table,
            cookie: self.place.cookie,
            userdata: userdata.to_vec(),
            metadata: model::Match::metadata_of(&self.state),
        };
        let mut hasher = DefaultHasher::new();
        meaning.hash(&mut hasher);
        let handle = flow::mix(self.switch.seed, hasher.finish()) as u32;
        if !self.controllers.iter().any(|(known, _)| *known == handle) {
            self.controllers.push((handle, meaning));
        }
        self.actions.push(Action::Controller { handle, max_len });
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

    fn depend_on(&mut self, dep: Dep) {
        if !self.deps.contains(&dep) {
            self.deps.push(dep);
        }
    }

    pub(super) fn dropped(&mut self, cause: DropCause) {
        self.drop.get_or_insert(cause);
    }

    pub(super) fn fail(&mut self) {
        self.failed = true;
    }

    fn finish(mut self) -> Translated {
        if self.failed {
            // A loop: neither a part of the copies nor what was learned from them is worth anything.
            self.actions.clear();
            self.effects.clear();
            self.controllers.clear();
            self.drop = Some(DropCause::Loop);
        }
        let shows = |action: &Action| matches!(action, Action::Output(_) | Action::Controller { .. });
        let end = self.actions.iter().rposition(shows).map_or(0, |last| last + 1);
        self.actions.truncate(end);
        let drop = self.actions.is_empty();
        let translation = Translation {
            drop: drop.then(|| self.drop.unwrap_or(DropCause::NoDestination)),
            actions: self.actions.into(),
            mask: words::mask_of(&self.consulted),
            deps: self.deps,
            effects: self.effects,
            credits: Default::default(),
        };
        Translated {
            translation,
            rules: self.rules,
            controllers: self.controllers,
        }
    }
}
