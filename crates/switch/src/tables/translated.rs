//! The result of a translation.

use super::RuleRef;
use super::budget::RanOut;
use super::condition::each_action;
use super::export::Sampled;
use super::freeze::RecircContext;
use super::learn::Learned;
use crate::News;
use crate::export::FlowRecord;
use dp::Translation;
use flow::RecircId;
use openflow::model;
use smallvec::SmallVec;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// A rule of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BridgeRule {
    /// The bridge, by its number in the switch.
    pub bridge: u32,
    /// The rule.
    pub rule: RuleRef,
}

/// The content of a packet-in for controllers, besides the packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForController {
    /// The bridge, by its number in the switch.
    pub bridge: u32,
    /// To which controllers.
    pub controller: u16,
    /// Why, as OpenFlow 1.4 and later number it, [`ForController::TABLE_MISS`] or
    /// [`ForController::MISS`].
    pub reason: u8,
    /// The table of the rule; of a miss, the table that had none.
    pub table: u8,
    /// The cookie of the rule; `u64::MAX` of a controller's own packet, 0 of a miss.
    pub cookie: u64,
    /// Bytes that the action wants handed back.
    pub userdata: Vec<u8>,
    /// The meter to police with, if not the controllers' own.
    pub meter: Option<u32>,
    /// The metadata: the ingress port at least.
    pub metadata: model::Match,
    /// Most bytes that the action asks for. There are no buffers that could keep the rest, so
    /// controllers get packets whole (OpenFlow 1.3.5 §7.4.1), and this is only told.
    pub max_len: u16,
    /// Where the packet continues if the controller resumes it: a handle of
    /// [`Context::Recirculation`], for `Switch::resume`.
    pub continuation: Option<u32>,
}

impl ForController {
    /// The reason of a packet that a table-miss rule hands over: to controllers with OpenFlow 1.3
    /// and later that no rule was for it, to others an action.
    pub const TABLE_MISS: u8 = 6;
    /// The reason of a packet that a table has no rule for.
    pub const MISS: u8 = 7;
}

/// What a handle in the actions and effects of a translation stands for. The switch keeps it as
/// long as a megaflow with the handle is in use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// Where a packet continues that recirculates ([`dp::Action::Recirc`],
    /// [`dp::Action::RecircByHash`]), or that a controller resumes.
    Recirculation(Box<RecircContext>),
    /// A rule that a `learn` action adds.
    Learned(Box<Learned>),
    /// The content of a packet-in for controllers ([`dp::Action::Punt`]).
    Controller(Box<ForController>),
    /// What a sample is for ([`dp::Action::Punt`]).
    Sampled(Sampled),
    /// A rule whose timeouts `fin_timeout` shortens: its TCP connection ends with the packet.
    Closing {
        /// The rule.
        rule: BridgeRule,
        /// Its idle timeout from now on, in seconds, if that is less; 0 leaves it.
        idle: u16,
        /// Its hard timeout from now on, in seconds, if that is less; 0 leaves it.
        hard: u16,
    },
}

/// A flow that NetFlow is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFlowRecord {
    /// The bridge, by its number in the switch.
    pub bridge: u32,
    /// The number of the flow in [`Credited::Netflow`](super::Credited::Netflow).
    pub number: u64,
    /// The flow.
    pub record: FlowRecord,
}

/// A translation, and what belongs to it.
#[derive(Clone, Debug)]
pub struct Translated {
    /// The translation.
    pub translation: Translation,
    /// What [`Switch::accept`](crate::Switch::accept) would do with it.
    pub news: News,
    /// The rules that its packets are counted by.
    pub rules: SmallVec<[BridgeRule; 4]>,
    /// Messages for controllers, by the handle of [`dp::Action::Punt`]. The same content has the
    /// same handle; handle 0 means that no handle was free.
    pub controllers: Vec<(u32, ForController)>,
    /// The contexts by handle that [`Switch::accept`](crate::Switch::accept) notes before the
    /// translation is used.
    pub contexts: Vec<(u32, Arc<Context>)>,
    /// The flow that NetFlow is told of.
    pub flow: Option<NewFlowRecord>,
    /// The work spent, in units of the budget: at most 2^20 and the step that exceeded it.
    pub work: u32,
    /// The first limit that the packet reached, if any.
    pub ran_out: Option<RanOut>,
}

impl Context {
    /// A hash of the context; different contexts may have the same.
    fn hash(&self, seed: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (seed, self).hash(&mut hasher);
        hasher.finish()
    }

    /// Handles for a new context. Those of packets that continue and of packets for controllers are
    /// numbers from 1, because people see them and Open vSwitch counts so; others are hashes.
    pub(super) fn handles(&self, seed: u64, counted: &AtomicU32) -> impl Iterator<Item = u32> {
        const TRIES: u64 = 64;
        let hash = self.hash(seed);
        let next = || counted.fetch_add(1, Relaxed).wrapping_add(1) & RecircId::MAX_PLAIN;
        (0..TRIES).map(move |n| match self {
            Context::Recirculation(frozen) if frozen.carries_hash() => {
                RecircId::hashed(next().wrapping_sub(1) % RecircId::MAX_HASHED + 1).0
            }
            Context::Recirculation(_) | Context::Controller(_) => next(),
            Context::Learned(_) | Context::Closing { .. } | Context::Sampled(_) => flow::mix(hash, n) as u32,
        })
    }

    /// The bridge that the context belongs to, by its number in the switch.
    pub(super) fn bridge(&self) -> u32 {
        match self {
            Context::Recirculation(frozen) => frozen.bridge(),
            Context::Learned(learned) => learned.bridge,
            Context::Closing { rule, .. } => rule.bridge,
            Context::Controller(meaning) => meaning.bridge,
            Context::Sampled(sampled) => sampled.bridge,
        }
    }

    /// The memory that the context takes, about.
    pub(super) fn bytes(&self) -> usize {
        const OWN: usize = 512;
        OWN + match self {
            Context::Recirculation(frozen) => frozen.bytes(),
            Context::Learned(learned) => bytes_of(&learned.change.instructions.apply),
            Context::Closing { .. } | Context::Sampled(_) => 0,
            Context::Controller(meaning) => meaning.userdata.len() + 64 * meaning.metadata.entries().len(),
        }
    }

    /// Whether the effect adds or changes rules when the switch applies it.
    pub fn acts(&self) -> bool {
        matches!(self, Context::Learned(_) | Context::Closing { .. })
    }
}

/// The memory that actions take, about.
pub(super) fn bytes_of(list: &[model::Action]) -> usize {
    let mut bytes = 0;
    each_action(list, &mut |_| bytes += size_of::<model::Action>() + 16);
    bytes
}
