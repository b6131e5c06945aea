//! The `learn` action: rules made from packets.

use super::Subfield;

/// The template of a learned rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Learn {
    /// The new rule's idle timeout in seconds, 0 for none.
    pub idle_timeout: u16,
    /// The new rule's hard timeout in seconds, 0 for none.
    pub hard_timeout: u16,
    /// The new rule's priority.
    pub priority: u16,
    /// The new rule's cookie.
    pub cookie: u64,
    /// The new rule's table.
    pub table: u8,
    /// Its idle timeout after the end of a TCP connection, 0 for no change.
    pub fin_idle_timeout: u16,
    /// Its hard timeout after the end of a TCP connection, 0 for no change.
    pub fin_hard_timeout: u16,
    /// Whether its removal is notified.
    pub send_flow_rem: bool,
    /// Whether it is deleted with the rule that learned it.
    pub delete_learned: bool,
    /// The most rules with this cookie in the table, 0 for any number.
    pub limit: u32,
    /// The bit for whether the rule could be added.
    pub result: Option<Subfield>,
    /// Its conditions and actions.
    pub specs: Vec<LearnSpec>,
}

impl Default for Learn {
    fn default() -> Learn {
        Learn {
            idle_timeout: 0,
            hard_timeout: 0,
            priority: 0x8000,
            cookie: 0,
            table: 1,
            fin_idle_timeout: 0,
            fin_hard_timeout: 0,
            send_flow_rem: false,
            delete_learned: false,
            limit: 0,
            result: None,
            specs: Vec::new(),
        }
    }
}

/// One condition or action of a new rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LearnSpec {
    /// The value.
    pub src: LearnSrc,
    /// The use of the value; as many bits as the value.
    pub dst: LearnDst,
}

impl LearnSpec {
    /// How many bits the value has.
    pub fn n_bits(&self) -> u16 {
        match (&self.src, &self.dst) {
            (LearnSrc::Field(field), _) => field.n_bits(),
            (_, LearnDst::Match(field) | LearnDst::Load(field)) => field.n_bits(),
            (LearnSrc::Immediate { n_bits, .. }, LearnDst::Output) => *n_bits,
        }
    }
}

/// A value for a new rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LearnSrc {
    /// From the packet.
    Field(Subfield),
    /// A constant.
    Immediate {
        /// The value; no more bits than `n_bits`.
        value: u128,
        /// How many bits it has.
        n_bits: u16,
    },
}

/// The use of a value in a new rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LearnDst {
    /// Matched.
    Match(Subfield),
    /// Loaded into a field.
    Load(Subfield),
    /// The output port.
    Output,
}
