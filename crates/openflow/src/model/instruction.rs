//! What a rule does with its packets.

use super::Action;

/// A rule's instructions, at most one of each kind. They are carried out in the order of the
/// members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instructions {
    /// Police by this meter first.
    pub meter: Option<u32>,
    /// Actions at once. OpenFlow 1.0 has these only.
    pub apply: Vec<Action>,
    /// Empty the action set.
    pub clear: bool,
    /// Actions for the action set.
    pub write: Vec<Action>,
    /// Bits of the metadata register: value and mask.
    pub metadata: Option<(u64, u64)>,
    /// The table to go on with.
    pub goto: Option<u8>,
}

impl Instructions {
    /// Instructions that are actions only.
    pub fn apply(actions: Vec<Action>) -> Instructions {
        Instructions {
            apply: actions,
            ..Instructions::default()
        }
    }

    /// A kind of action or instruction that stands beside a conjunction and may not: only notes
    /// may.
    pub fn beside_conjunction(&self) -> Option<&'static str> {
        let conjunction = |a: &Action| matches!(a, Action::Conjunction { .. });
        if !self.apply.iter().any(conjunction) {
            return None;
        }
        let other = self
            .apply
            .iter()
            .find(|a| !conjunction(a) && !matches!(a, Action::Note(_)));
        let instructions = [
            (self.meter.is_some(), "meter"),
            (self.clear, "clear_actions"),
            (!self.write.is_empty(), "write_actions"),
            (self.metadata.is_some(), "write_metadata"),
            (self.goto.is_some(), "goto_table"),
        ];
        let instruction = instructions.into_iter().find(|(given, _)| *given);
        other.map(Action::name).or(instruction.map(|(_, name)| name))
    }

    /// Whether packets are dropped for want of instructions.
    pub fn is_empty(&self) -> bool {
        *self == Instructions::default()
    }
}
