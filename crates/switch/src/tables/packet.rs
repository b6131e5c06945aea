//! The packet under translation, and copies of it.
//!
//! Clones, buckets, bridges behind patch ports and branches by length act on a copy. The translator
//! saves the whole [`Packet`] before such a part and restores it afterwards: everything that a part
//! must not change for later parts belongs in it.

use super::budget::cost;
use super::pipeline::Pipeline;
use super::translated::BridgeRule;
use crate::bridge::Bridge;
use dp::{Action as Step, MAX_METERS};
use flow::{FlowState, Key};
use openflow::model;
use smallvec::SmallVec;

/// The tags behind the second one, the outermost first.
pub(super) type Buried = SmallVec<[wire::VlanTag; 2]>;

/// A packet at one point of its translation: as tables see it, and as the datapath holds it.
#[derive(Clone)]
pub(super) struct Packet<'a> {
    /// The packet as tables see it.
    pub(super) state: FlowState,
    /// The tags behind the second one, the outermost first, as tables see the packet.
    pub(super) buried: Buried,
    /// Whether the tags are those that the packet was received with.
    pub(super) own_tags: bool,
    /// Whether the tunnel is the one that the packet came from.
    pub(super) own_tunnel: bool,
    /// Whether the connection tracker has said something of the packet, and tables see it.
    pub(super) tracked: bool,
    /// The packet under each header that this translation has pushed, the innermost first.
    pub(super) covered: Vec<Key>,
    /// Whether the datapath's packet has fields that the key does not show: a header was popped
    /// above fields that were not extracted, or only the datapath knows a time to live.
    pub(super) hidden: bool,
    /// Whether its type is, or may have been, another than Ethernet: its megaflow compares the
    /// type.
    pub(super) typed: bool,
    /// Whether tables see the packet as the datapath received it: in the first bridge, before any
    /// action that may change it.
    pub(super) untouched: bool,
    /// Whether the packet has just entered its bridge, whose mirrors have not seen it.
    pub(super) is_new: bool,
    /// Whether it is a mirror's copy.
    pub(super) is_mirrored: bool,
    /// The length that outputs cut the packet to.
    pub(super) limit: Option<u32>,
    /// Whether an action has chosen queue 0; without that, 0 means no queue.
    pub(super) default_queue: bool,
    /// The stack of `push` and `pop`.
    pub(super) stack: Vec<u128>,
    /// The bridge, table and rule that the packet is in.
    pub(super) place: Place<'a>,
    /// The packet as the datapath holds it.
    pub(super) base: Base,
    /// The index of the first datapath action that belongs to this copy alone.
    pub(super) own_steps: usize,
}

/// A packet as the datapath holds it at one point of its actions.
#[derive(Clone)]
pub(super) struct Base {
    /// Its fields.
    pub(super) key: Key,
    /// The tags behind the second one, the outermost first.
    pub(super) buried: Buried,
    /// The queue of outputs.
    pub(super) queue: u32,
}

/// The bridge, table and rule that the packet is in.
#[derive(Clone, Default)]
pub(super) struct Place<'a> {
    pub(super) bridge: Option<&'a Bridge>,
    pub(super) table: u8,
    pub(super) rule: Option<BridgeRule>,
    pub(super) cookie: u64,
    pub(super) action_set: Vec<model::Action>,
    /// The owner of the actions that are running.
    pub(super) of: Owner,
}

/// The owner of actions. Packet-in messages name it as their reason.
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
    /// An empty packet whose outputs go through this queue.
    #[inline]
    pub(super) fn new(queue: u32) -> Self {
        Packet {
            state: FlowState::ZERO,
            buried: Buried::new(),
            own_tags: true,
            own_tunnel: true,
            tracked: false,
            covered: Vec::new(),
            hidden: false,
            typed: false,
            untouched: false,
            is_new: false,
            is_mirrored: false,
            limit: None,
            default_queue: false,
            stack: Vec::new(),
            place: Place::default(),
            base: Base {
                key: Key::ZERO,
                buried: Buried::new(),
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

    /// Runs a part that sends the packet. Tables then see the packet as before; the datapath's
    /// packet stays as the part's actions left it.
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

    /// Starts a copy. Returns the original for [`Pipeline::end_copy`]; `None` where the budget does
    /// not allow a copy.
    pub(super) fn begin_copy(&mut self) -> Option<Box<Packet<'a>>> {
        if !self.spend(cost::COPY) || !self.spend_kept() {
            return None;
        }
        let saved = Box::new(self.packet.clone());
        self.packet.own_steps = self.actions.len();
        Some(saved)
    }

    /// Ends a copy and restores the original. The datapath runs the copy's actions on a clone if no
    /// later action could undo them; otherwise it continues with the packet that they left.
    pub(super) fn end_copy(&mut self, saved: Box<Packet<'a>>) {
        let copy = std::mem::replace(&mut self.packet, *saved);
        self.spend((self.actions.len() - copy.own_steps) / 32);
        if self.stays_apart(copy.own_steps) {
            self.clone_steps(copy.own_steps);
        } else {
            self.packet.base = copy.base;
        }
    }

    /// Whether the actions from `start` on change headers in a way that no later action can undo,
    /// or drop what exceeds a port's limit.
    fn stays_apart(&self, start: usize) -> bool {
        let mut at = start;
        while let Some(step) = self.actions.get(at) {
            // Actions within copies are cloned already.
            at += 1 + step.steps();
            let is_final = matches!(
                step,
                Step::PushMpls { .. }
                    | Step::PopMpls { .. }
                    | Step::PushPbb { .. }
                    | Step::PopPbb
                    | Step::PushEth { .. }
                    | Step::PopEth
                    | Step::PushNsh(_)
                    | Step::PopNsh
                    | Step::AddMpls { .. }
                    | Step::CopyTtlOut
                    | Step::CopyTtlIn
                    | Step::TunnelPush(_)
                    | Step::Ct(_)
                    | Step::CtClear
            ) || matches!(step, Step::Meter(number) if *number >= MAX_METERS);
            if is_final {
                return true;
            }
        }
        false
    }

    /// Puts the actions from `start` on into a clone.
    pub(super) fn clone_steps(&mut self, start: usize) {
        let mut own = self.actions.split_off(start);
        super::commit::trim(&mut own);
        if !own.is_empty() {
            self.actions.push(Step::Clone(own.len() as u32));
            self.actions.append(&mut own);
        }
    }
}
