//! Instructions of rules.

use super::Action;

/// A rule's instructions, at most one of each kind. They run in the order of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instructions {
    /// Police by this meter first.
    pub meter: Option<u32>,
    /// Apply actions. OpenFlow 1.0 has these only.
    pub apply: Vec<Action>,
    /// Clear the action set.
    pub clear: bool,
    /// Write these actions to the action set.
    pub write: Vec<Action>,
    /// Bits of the metadata register: value and mask.
    pub metadata: Option<(u64, u64)>,
    /// The next table.
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

    /// An action or instruction that may not be used together with a conjunction; only notes may.
    pub(crate) fn beside_conjunction(&self) -> Option<&'static str> {
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

    /// Whether there are no instructions, so that packets are dropped.
    pub fn is_empty(&self) -> bool {
        *self == Instructions::default()
    }
}
