//! What comes of a translation.

use super::RuleRef;
use super::budget::RanOut;
use super::condition::each_action;
use super::freeze::Frozen;
use super::learn::Learned;
use crate::News;
use dp::Translation;
use openflow::model;
use smallvec::SmallVec;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

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
    /// What is to be done when the controller lets the packet go on: a handle of [`Memo::Frozen`],
    /// for `Switch::resume`.
    pub continuation: Option<u32>,
}

impl ForController {
    /// The reason of a packet that a table-miss rule hands over: to controllers with OpenFlow 1.3
    /// and later that no rule was for it, to others an action.
    pub const TABLE_MISS: u8 = 6;
    /// The reason of a packet that a table has no rule for.
    pub const MISS: u8 = 7;
}

/// Something that actions and effects of a translation speak of by a handle. The switch keeps it as
/// long as megaflows that do are used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Memo {
    /// Where a packet goes on when it comes again: what [`dp::Action::Recirc`] names, and
    /// continuations.
    Frozen(Box<Frozen>),
    /// A rule that packets make.
    Learned(Box<Learned>),
    /// What controllers are told of a packet: what [`dp::Action::Punt`] names.
    Controller(Box<ForController>),
    /// A rule whose TCP connection ends with the packet.
    Closing {
        /// The rule.
        rule: BridgeRule,
        /// Its idle timeout from now on, in seconds, if that is less; 0 leaves it.
        idle: u16,
        /// Its hard timeout from now on, in seconds, if that is less; 0 leaves it.
        hard: u16,
    },
}

/// A translation and what it used.
#[derive(Clone, Debug)]
pub struct Translated {
    /// The translation.
    pub translation: Translation,
    /// What [`Switch::accept`](crate::Switch::accept) would do with it.
    pub news: News,
    /// The rules that its packets are counted by.
    pub rules: SmallVec<[BridgeRule; 4]>,
    /// What the handles of [`dp::Action::Punt`] mean. A handle is the same whenever the
    /// meaning is; 0 means that there was no room for it.
    pub controllers: Vec<(u32, ForController)>,
    /// What the switch has to know of before the translation is used
    /// ([`Switch::accept`](crate::Switch::accept)), by handle.
    pub memos: Vec<(u32, Arc<Memo>)>,
    /// How much work it was, in units of the budget: at most 2^20, and the step that went beyond.
    pub work: u32,
    /// The first limit that the packet reached, if any.
    pub ran_out: Option<RanOut>,
}

impl Memo {
    /// A number that is the same whenever it is. Others may have it too.
    pub(super) fn hash(&self, seed: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (seed, self).hash(&mut hasher);
        hasher.finish()
    }

    /// The bridge that it is of, by its number in the switch.
    pub(super) fn bridge(&self) -> u32 {
        match self {
            Memo::Frozen(frozen) => frozen.bridge(),
            Memo::Learned(learned) => learned.bridge,
            Memo::Closing { rule, .. } => rule.bridge,
            Memo::Controller(meaning) => meaning.bridge,
        }
    }

    /// The memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        const OWN: usize = 512;
        OWN + match self {
            Memo::Frozen(frozen) => frozen.bytes(),
            Memo::Learned(learned) => bytes_of(&learned.change.instructions.apply),
            Memo::Closing { .. } => 0,
            Memo::Controller(meaning) => meaning.userdata.len() + 64 * meaning.metadata.entries().len(),
        }
    }

    /// Whether it makes or changes rules when its effect is applied.
    pub fn acts(&self) -> bool {
        matches!(self, Memo::Learned(_) | Memo::Closing { .. })
    }
}

/// The memory that actions take, about.
pub(super) fn bytes_of(list: &[model::Action]) -> usize {
    let mut bytes = 0;
    each_action(list, &mut |_| bytes += size_of::<model::Action>() + 16);
    bytes
}
