//! From a packet's key to the actions for all packets like it.
//!
//! One walk, stages in order: attachment, fail mode, ingress VLAN, reserved addresses, learning,
//! lookup or flood, egress VLAN, output. A patch port's output is the peer's attachment. Outputs
//! are collected with the tags that each needs, and turned into actions at the end, so that the
//! tags change as rarely as possible.

use crate::FailMode;
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::{Egress, Ingress, Port};
use crate::reserved::is_reserved;
use crate::switch::Switch;
use crate::tables::budget::{Budget, Stop, cost};
use crate::tables::{Credited, Patience, Pipeline, RuleRef, Translated};
use crate::tags::{Reader, Tags};
use dp::{Credit, Dep, DropCause, Effect, Key, PortNo, Translation};
use flow::Field;
use smallvec::SmallVec;
use wire::{MacAddr, Nanos, Vid};

impl Switch {
    /// What becomes of a packet, and of all that are like it. Changes nothing.
    /// [`Switch::translate_rules`] says more.
    pub fn translate(&self, key: &Key, _now: Nanos) -> Translation {
        self.translate_rules(key).translation
    }

    /// As [`Switch::translate`], with what was used, what controllers are to be told, and what
    /// [`Switch::accept`] needs.
    pub fn translate_rules(&self, key: &Key) -> Translated {
        match self.translate_within(key, Patience::Whole) {
            Some(translated) => translated,
            None => unreachable!("it is waited for until it is done"),
        }
    }

    /// As [`Switch::translate_rules`], by a caller with little patience: `None` where that is over
    /// before the translation is done. Who asks again with more gets the same as if they had not
    /// asked before.
    pub fn translate_within(&self, key: &Key, patience: Patience<'_>) -> Option<Translated> {
        if key.get(Field::RecircId) != 0 {
            return Pipeline::translate(self, key, patience);
        }
        let mut walk = Walk::new(self, key, patience);
        walk.in_port = PortNo(walk.reader.read(Field::InPort) as u32);
        // A packet that comes again is another matter.
        walk.reader.read(Field::RecircId);
        walk.depend(Read::Attachment(walk.in_port));
        if let Some(at) = self.attachments.get(&walk.in_port) {
            walk.enter(*at, Tags::default(), 0);
        }
        if walk.has_rules {
            return Pipeline::translate(self, key, patience);
        }
        walk.finish()
    }
}

/// A translation in the making.
pub(crate) struct Walk<'a> {
    switch: &'a Switch,
    reader: Reader<'a>,
    in_port: PortNo,
    deps: SmallVec<[Dep; 4]>,
    effects: SmallVec<[Effect; 2]>,
    credits: SmallVec<[Credit; 4]>,
    /// The different tags of outputs.
    states: SmallVec<[Tags; 4]>,
    /// Ports, each with the index of its state.
    outputs: SmallVec<[(usize, PortNo); 16]>,
    /// The first cause to drop a copy; counts where no other copy goes out.
    drop: Option<DropCause>,
    budget: Budget<'a>,
    /// A limit was reached: a loop, most likely. Neither a part of the copies nor what was learned
    /// from them is worth anything.
    is_over: bool,
    /// A bridge on the way has rules: the walk is for nothing, and the tables decide.
    has_rules: bool,
    /// Of a walk that stays in one bridge: where copies leave to other bridges.
    patched: Option<SmallVec<[(usize, Ingress); 2]>>,
    /// What was decided, for someone who watches.
    report: Option<Vec<String>>,
    /// Whether what is learned is told as such.
    effective: bool,
}

/// A copy that NORMAL sends: what is done to its tags first, and where it goes.
pub(crate) type NormalOutput = (SmallVec<[dp::Action; 4]>, Egress);

/// What NORMAL makes of a packet in one bridge.
pub(crate) struct Normal {
    pub(crate) mask: flow::Mask,
    pub(crate) deps: SmallVec<[Dep; 4]>,
    pub(crate) effects: SmallVec<[Effect; 2]>,
    pub(crate) outputs: Vec<NormalOutput>,
    pub(crate) drop: Option<DropCause>,
    /// What was decided, in Open vSwitch's words; empty if that is not wanted.
    pub(crate) report: Vec<String>,
    /// How much work it was.
    pub(crate) work: usize,
}

impl Normal {
    /// Asks for a packet that came in at `at`, with what was learned from it on its way there.
    pub(crate) fn of(
        switch: &Switch,
        key: &Key,
        at: Ingress,
        effects: SmallVec<[Effect; 2]>,
        (watched, effective): (bool, bool),
    ) -> Option<Normal> {
        let bridge = switch.bridges.get(&at.bridge)?;
        let mut walk = Walk::new(switch, key, Patience::Whole);
        walk.effects = effects;
        walk.report = watched.then(Vec::new);
        walk.effective = effective;
        walk.patched = Some(SmallVec::new());
        walk.normal(bridge, at, Tags::default(), 0);
        let devices = walk
            .outputs
            .iter()
            .map(|(state, device)| (*state, Egress::Device(*device)));
        let patches = walk.patched.iter().flatten();
        let patches = patches.map(|(state, peer)| (*state, Egress::Patch(*peer)));
        let mut outputs: Vec<_> = devices.chain(patches).collect();
        outputs.sort_by_key(|(state, _)| (walk.states[*state].rank(), *state));
        let mut done = Vec::with_capacity(outputs.len());
        for (state, egress) in outputs {
            let mut actions = Vec::new();
            Tags::default().change_to(&walk.states[state], &mut walk.reader, &mut actions);
            done.push((actions.into(), egress));
        }
        Some(Normal {
            work: walk.budget.work() as usize,
            mask: *walk.reader.mask(),
            deps: walk.deps,
            effects: walk.effects,
            outputs: done,
            drop: walk.drop,
            report: walk.report.unwrap_or_default(),
        })
    }
}

impl<'a> Walk<'a> {
    fn new(switch: &'a Switch, key: &'a Key, patience: Patience<'a>) -> Walk<'a> {
        Walk {
            switch,
            reader: Reader::new(key, switch.vlan_limit),
            in_port: PortNo::default(),
            deps: SmallVec::new(),
            effects: SmallVec::new(),
            credits: SmallVec::new(),
            states: SmallVec::new(),
            outputs: SmallVec::new(),
            drop: None,
            budget: Budget::new(patience),
            is_over: false,
            has_rules: false,
            patched: None,
            report: None,
            effective: false,
        }
    }

    /// A copy of the packet comes in.
    fn enter(&mut self, at: Ingress, tags: Tags, depth: u32) {
        let visited = self.budget.visit(depth).and_then(|()| self.budget.spend(cost::COPY));
        if !self.may(visited, at.bridge) {
            return;
        }
        let Some(bridge) = self.switch.bridges.get(&at.bridge) else {
            return;
        };
        if bridge.needs_tables() {
            self.has_rules = true;
            self.is_over = true;
            return;
        }
        self.depend(Read::Bridge(at.bridge));
        self.count(at.bridge, bridge.tables.builtin_rule());
        if bridge.settings.fail_mode == FailMode::Secure {
            return self.dropped(DropCause::NoRule);
        }
        self.normal(bridge, at, tags, depth);
    }

    /// Whether the walk goes on after a step.
    fn may(&mut self, step: Result<(), Stop>, bridge: u32) -> bool {
        if let Err(stop) = step
            && !self.is_over
        {
            self.is_over = true;
            self.drop = Some(DropCause::TranslationLimit);
            if let Stop::Limit(limit) = stop {
                self.budget.note(bridge, limit);
            }
        }
        !self.is_over
    }

    /// Notes what counts a packet as a look into the first table does, of which one rule is all
    /// there may be.
    fn count(&mut self, bridge: u32, rule: Option<RuleRef>) {
        let lookup = Credited::Lookup {
            bridge,
            table: 0,
            matched: rule.is_some(),
        };
        self.credits.push(lookup.credit());
        let rule = rule.map(|rule| Credited::Rule { bridge, rule });
        self.credits.extend(rule.map(Credited::credit));
    }

    /// What a bridge does without rules, and by the action of that name.
    fn normal(&mut self, bridge: &'a Bridge, at: Ingress, mut tags: Tags, depth: u32) {
        let Some(port) = bridge.ports.get(&at.port) else { return };
        self.depend(Read::Port(at.bridge, at.port));
        let Some(vlan) = port.vlans.ingress(&mut tags, &mut self.reader) else {
            self.tell(|walk| walk.refusal(port));
            return self.dropped(DropCause::VlanFiltered);
        };
        let dst = MacAddr::from_u64(self.reader.read(Field::EthDst) as u64);
        if !bridge.settings.forward_bpdu && is_reserved(dst) {
            self.tell(|_| String::from("packet has reserved destination MAC, dropping"));
            return self.dropped(DropCause::ReservedMulticast);
        }
        // Of several interfaces one carries the traffic: what comes in on another is a copy, or our
        // own packet coming back.
        if port.interfaces > 1 && port.active != at.interface {
            return self.dropped(DropCause::Loop);
        }
        let visit = Visit {
            bridge,
            at,
            port,
            vlan,
            tags,
            depth,
        };
        if !bridge.settings.flood_vlans.contains(vlan) {
            self.learn(at, vlan);
            if !dst.is_multicast()
                && let Some(learned) = self.station(bridge, vlan, dst)
            {
                return self.forward(&visit, learned);
            }
        }
        self.tell(|_| String::from("no learned MAC for destination, flooding"));
        self.flood(&visit);
    }

    fn learn(&mut self, at: Ingress, vlan: Vid) {
        let mac = MacAddr::from_u64(self.reader.read(Field::EthSrc) as u64);
        if mac.is_multicast() {
            return;
        }
        self.depend(Read::Source(at.bridge, vlan, mac));
        if self.effective && self.is_news(at, vlan, mac) {
            self.tell(|walk| {
                let port = walk
                    .switch
                    .bridges
                    .get(&at.bridge)
                    .and_then(|bridge| bridge.ports.get(&at.port));
                let name = port.map_or("", |port| &port.name);
                format!("learned that {mac} is on port {name} in VLAN {}", vlan.get())
            });
        }
        // A copy that comes by again moves the station; what counts is where it was seen last.
        self.effects.retain(|effect| match *effect {
            Effect::Learn {
                bridge,
                vlan: seen,
                mac: station,
                ..
            } => (bridge, seen, station) != (at.bridge, vlan, mac),
            Effect::Memo(_) => true,
        });
        self.effects.push(Effect::Learn {
            bridge: at.bridge,
            vlan,
            mac,
            port: at.port,
            gratuitous_arp: false,
        });
    }

    /// Whether a station is not known where it was seen.
    fn is_news(&self, at: Ingress, vlan: Vid, mac: MacAddr) -> bool {
        let learned = self.effects.iter().find_map(|effect| match effect {
            Effect::Learn {
                bridge,
                vlan: seen,
                mac: station,
                port,
                ..
            } => ((*bridge, *seen, *station) == (at.bridge, vlan, mac)).then_some(*port),
            Effect::Memo(_) => None,
        });
        let known = || {
            let bridge = self.switch.bridges.get(&at.bridge)?;
            bridge.fdb.lookup(vlan, mac).map(|(port, _)| port)
        };
        learned.or_else(known) != Some(at.port)
    }

    /// The port of a station, as it is once this packet's effects are applied.
    fn station(&mut self, bridge: &Bridge, vlan: Vid, mac: MacAddr) -> Option<u32> {
        self.depend(Read::Station(bridge.id, vlan, mac));
        let known = bridge.fdb.lookup(vlan, mac);
        if let Some((port, true)) = known {
            return Some(port);
        }
        let about_to_learn = self.effects.iter().find_map(|effect| match effect {
            Effect::Learn {
                bridge: at,
                vlan: seen,
                mac: station,
                port,
                ..
            } => (*at == bridge.id && *seen == vlan && *station == mac).then_some(*port),
            Effect::Memo(_) => None,
        });
        about_to_learn.or(known.map(|(port, _)| port))
    }

    fn forward(&mut self, visit: &Visit<'_>, to: u32) {
        if to == visit.at.port {
            self.tell(|_| String::from("learned port is input port, dropping"));
            return self.dropped(DropCause::Loop);
        }
        self.tell(|_| String::from("forwarding to learned port"));
        self.depend(Read::Port(visit.bridge.id, to));
        if let Some(port) = visit.bridge.ports.get(&to) {
            self.output(visit, port);
        }
    }

    fn flood(&mut self, visit: &Visit<'_>) {
        self.depend(Read::Flood(visit.bridge.id));
        for (id, port) in &visit.bridge.ports {
            let looked = self.budget.spend(cost::PORT);
            if !self.may(looked, visit.bridge.id) {
                return;
            }
            if *id != visit.at.port && !port.no_flood && !visit.bridge.is_flagged(port, |flags| flags.no_flood) {
                self.output(visit, port);
            }
        }
    }

    fn output(&mut self, visit: &Visit<'_>, port: &Port) {
        let silenced = visit.bridge.is_flagged(port, |flags| flags.no_fwd);
        if port.protected && visit.port.protected || port.egress == Egress::None || silenced {
            return;
        }
        let Some(tags) = port.vlans.egress(visit.vlan, &visit.tags, &mut self.reader) else {
            return;
        };
        match port.egress {
            Egress::None => {}
            Egress::Patch(peer) if self.patched.is_some() => {
                let state = self.state(tags);
                self.patched.get_or_insert_default().push((state, peer));
            }
            Egress::Patch(peer) => self.enter(peer, tags, visit.depth + 1),
            Egress::Device(device) if device == self.in_port && self.patched.is_none() => self.dropped(DropCause::Loop),
            Egress::Device(device) => {
                let state = self.state(tags);
                self.outputs.push((state, device));
            }
        }
    }

    /// Writes down what was decided, if someone wants to know.
    fn tell(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.report.is_some() {
            let text = text(self);
            self.report.get_or_insert_default().push(text);
        }
    }

    /// Why a port does not take the packet.
    fn refusal(&self, port: &Port) -> String {
        let vid = self.reader.peek_vid();
        match port.vlans.access() {
            Some(own) => format!(
                "dropping VLAN {vid} tagged packet received on port {} configured as VLAN {own} access port",
                port.name
            ),
            None => format!(
                "dropping VLAN {vid} packet received on port {} not configured for trunking VLAN {vid}",
                port.name
            ),
        }
    }

    fn state(&mut self, tags: Tags) -> usize {
        self.states.iter().position(|state| *state == tags).unwrap_or_else(|| {
            self.states.push(tags);
            self.states.len() - 1
        })
    }

    fn depend(&mut self, read: Read) {
        let dep = read.dep(self.switch.seed);
        if !self.deps.contains(&dep) {
            self.deps.push(dep);
        }
    }

    fn dropped(&mut self, cause: DropCause) {
        self.drop.get_or_insert(cause);
    }

    fn finish(mut self) -> Option<Translated> {
        if self.budget.is_unfinished() {
            return None;
        }
        if self.is_over {
            self.outputs.clear();
            self.effects.clear();
        }
        let states = &self.states;
        self.outputs.sort_by_key(|(state, _)| (states[*state].rank(), *state));
        let mut actions = Vec::with_capacity(self.outputs.len());
        let mut now = &Tags::default();
        for (state, port) in &self.outputs {
            now.change_to(&states[*state], &mut self.reader, &mut actions);
            now = &states[*state];
            actions.push(dp::Action::Output(*port));
        }
        let drop = actions
            .is_empty()
            .then(|| self.drop.unwrap_or(DropCause::NoDestination));
        let translation = Translation {
            actions: actions.into(),
            mask: *self.reader.mask(),
            deps: self.deps,
            effects: self.effects,
            credits: self.credits,
            drop,
        };
        Some(Translated {
            work: self.budget.work(),
            ran_out: self.budget.ran_out(),
            ..Translated::from(translation)
        })
    }
}

/// A copy of the packet inside a bridge.
struct Visit<'a> {
    bridge: &'a Bridge,
    at: Ingress,
    port: &'a Port,
    vlan: Vid,
    tags: Tags,
    depth: u32,
}
