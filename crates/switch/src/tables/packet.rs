//! The packet on its way through the tables, and copies of it.
//!
//! Clones, buckets, bridges behind patch ports and branches by length act on a copy. A [`Packet`]
//! is saved whole before such a part and restored whole behind it: whatever a part must not change
//! for those behind it, belongs there.

use super::budget::cost;
use super::pipeline::Pipeline;
use super::translated::BridgeRule;
use crate::bridge::Bridge;
use dp::Action as Step;
use flow::{FlowState, Key};
use openflow::model;
use smallvec::SmallVec;

/// VLAN tags.
pub(super) type Tags = SmallVec<[wire::VlanTag; 2]>;

/// A packet, as tables and as the datapath have it at one point of its way.
#[derive(Clone)]
pub(super) struct Packet<'a> {
    /// The packet as tables see it.
    pub(super) state: FlowState,
    /// The tags behind the second one, the outermost first, as tables see the packet.
    pub(super) buried: Tags,
    /// Whether the tags are those that it came with.
    pub(super) own_tags: bool,
    /// The packet behind each header that was put on here, the innermost first.
    pub(super) covered: Vec<Key>,
    /// Whether the datapath's packet has fields that the key does not show: a header is off behind
    /// which the packet is not known, or has a time to live that only the datapath knows.
    pub(super) hidden: bool,
    /// Whether tables see the packet as the datapath got it: in the bridge that it came in on,
    /// before any action that may change it.
    pub(super) untouched: bool,
    /// Most bytes that are sent.
    pub(super) limit: Option<u32>,
    /// Whether an action has chosen queue 0, which otherwise means none.
    pub(super) default_queue: bool,
    /// What `push` put there.
    pub(super) stack: Vec<u128>,
    /// Where in the switch it is.
    pub(super) place: Place<'a>,
    /// The packet as the datapath has it.
    pub(super) base: Base,
    /// Where the steps begin that are of this copy alone.
    pub(super) own_steps: usize,
}

/// A packet as the datapath has it at one point of its steps.
#[derive(Clone)]
pub(super) struct Base {
    /// Its fields.
    pub(super) key: Key,
    /// The tags behind the second one, the outermost first.
    pub(super) buried: Tags,
    /// The queue of outputs.
    pub(super) queue: u32,
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

impl Packet<'_> {
    /// A packet that has not begun its way, whose outputs go through this queue.
    pub(super) fn new(queue: u32) -> Self {
        Packet {
            state: FlowState::ZERO,
            buried: Tags::new(),
            own_tags: true,
            covered: Vec::new(),
            hidden: false,
            untouched: false,
            limit: None,
            default_queue: false,
            stack: Vec::new(),
            place: Place::default(),
            base: Base {
                key: Key::ZERO,
                buried: Tags::new(),
                queue,
            },
            own_steps: 0,
        }
    }
}

impl<'a> Pipeline<'a> {
    /// Runs actions on a copy of the packet.
    pub(super) fn on_copy(&mut self, run: impl FnOnce(&mut Self)) {
        if !self.has_room_for_actions() || !self.nest() {
            return;
        }
        if let Some(saved) = self.begin_copy() {
            run(self);
            self.end_copy(saved);
        }
        self.budget.unnest();
    }

    /// Runs a part that sends the packet, behind which tables see it as before. The datapath's
    /// packet stays what the part's steps made of it.
    pub(super) fn aside(&mut self, run: impl FnOnce(&mut Self)) {
        // What has a fixed size is in the price of the output.
        if !self.spend_kept() {
            return;
        }
        let saved = Box::new(self.packet.clone());
        run(self);
        let part = std::mem::replace(&mut self.packet, *saved);
        self.packet.base = part.base;
    }

    /// Begins a copy. Returns the packet as it is, for [`Pipeline::end_copy`]; `None` where the
    /// copy would be too much work.
    pub(super) fn begin_copy(&mut self) -> Option<Box<Packet<'a>>> {
        if !self.spend(cost::COPY) || !self.spend_kept() {
            return None;
        }
        let saved = Box::new(self.packet.clone());
        self.packet.own_steps = self.actions.len();
        Some(saved)
    }

    /// Ends a copy: the packet is what it was. Where the copy's steps change what no later step
    /// could change back, the datapath does them on a copy too; otherwise it goes on with what they
    /// left.
    pub(super) fn end_copy(&mut self, saved: Box<Packet<'a>>) {
        let copy = std::mem::replace(&mut self.packet, *saved);
        self.spend((self.actions.len() - copy.own_steps) / 32);
        if self.changes_headers(copy.own_steps) {
            self.clone_steps(copy.own_steps);
        } else {
            self.packet.base = copy.base;
        }
    }

    /// Whether steps from `start` on change headers such that no later step could change them back.
    fn changes_headers(&self, start: usize) -> bool {
        let mut at = start;
        while let Some(step) = self.actions.get(at) {
            at += 1 + match step {
                // Those within copies have been seen to.
                Step::Clone(steps) => *steps as usize,
                Step::IfLonger { then, otherwise, .. } => (*then + *otherwise) as usize,
                Step::PushMpls { .. } | Step::PopMpls { .. } | Step::PushPbb { .. } | Step::PopPbb => return true,
                Step::CopyTtlOut | Step::CopyTtlIn => return true,
                _ => 0,
            };
        }
        false
    }

    /// Makes the steps from `start` on those of a copy.
    pub(super) fn clone_steps(&mut self, start: usize) {
        let mut own = self.actions.split_off(start);
        super::commit::trim(&mut own);
        if !own.is_empty() {
            self.actions.push(Step::Clone(own.len() as u32));
            self.actions.append(&mut own);
        }
    }
}
