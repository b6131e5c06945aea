//! What OpenFlow tables look at: a packet's key, and metadata that is in no packet.
//!
//! A [`FlowState`] is what a rule is matched against and what actions change: the datapath's
//! [`Key`], and words of metadata: registers, the ingress port as OpenFlow numbers it, tunnel and
//! connection-tracking values. A [`FlowMaskState`] of the same shape says which of its bits count;
//! a [`StateMatch`] has both, and is a rule's condition.
//!
//! All values are read and written by [`MatchField`]; views (`xreg0`, `vlan_vid`) read the bits of
//! the fields that own them. Bits that belong to no field are zero, and a match's value is zero
//! where its mask is, so that words can be compared and hashed.

use crate::match_field::{Home, MatchField};
use crate::{Key, Mask};

/// Words of metadata.
pub const META_WORDS: usize = crate::options::FIRST + crate::OPTION_UNITS / 2;

/// A packet's key and metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowState {
    /// What is in the packet, and the datapath's own metadata.
    pub key: Key,
    meta: [u64; META_WORDS],
}

impl FlowState {
    /// All fields zero.
    pub const ZERO: FlowState = FlowState {
        key: Key::ZERO,
        meta: [0; META_WORDS],
    };

    /// A packet's state when it enters the first table: no action set output, an Ethernet packet.
    pub fn new(key: Key, in_port: u32) -> FlowState {
        let mut state = FlowState { key, ..FlowState::ZERO };
        state.set(MatchField::InPortOxm, in_port.into());
        state.set(MatchField::ActsetOutput, u128::from(PORT_UNSET));
        state
    }

    /// A packet with the metadata of a state.
    pub const fn with_meta(key: Key, meta: [u64; META_WORDS]) -> FlowState {
        FlowState { key, meta }
    }

    /// A field's value; 0 for `tun_metadata`, whose place only the map of options knows.
    #[inline]
    pub fn get(&self, field: MatchField) -> u128 {
        let info = field.info();
        let bits = match info.home {
            Home::Key { field, shift } => self.key.get(field) >> shift,
            Home::Meta { word, shift } => read(&self.meta, word, shift, info.valid),
            Home::Elsewhere => return 0,
        };
        if field == MatchField::InPort {
            return u128::from(port_to_of10(self.get(MatchField::InPortOxm) as u32));
        }
        bits & info.valid
    }

    /// Sets a field; bits that may not be one are ignored, and so are fields that no state has.
    #[inline]
    pub fn set(&mut self, field: MatchField, value: u128) {
        let info = field.info();
        let (field, value, valid) = match field {
            MatchField::InPort => {
                let port = port_from_of10(value as u16);
                (MatchField::InPortOxm, u128::from(port), u128::from(u32::MAX))
            }
            _ => (field, value & info.valid, info.valid),
        };
        match field.info().home {
            Home::Key { field, shift } => {
                let others = self.key.get(field) & !(valid << shift);
                self.key.set(field, others | value << shift);
            }
            Home::Meta { word, shift } => write(&mut self.meta, word, shift, valid, value),
            Home::Elsewhere => {}
        }
    }

    /// The words of metadata.
    pub const fn meta(&self) -> &[u64; META_WORDS] {
        &self.meta
    }

    /// The words of metadata, to be changed.
    pub const fn meta_mut(&mut self) -> &mut [u64; META_WORDS] {
        &mut self.meta
    }

    /// The state with all bits outside the mask zero.
    #[must_use]
    pub fn masked(&self, mask: &FlowMaskState) -> FlowState {
        let mut state = *self;
        state.key = self.key.masked(&mask.key);
        for (word, bits) in state.meta.iter_mut().zip(&mask.meta) {
            *word &= bits;
        }
        state
    }
}

impl Default for FlowState {
    fn default() -> FlowState {
        FlowState::ZERO
    }
}

/// Which bits of a state count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowMaskState {
    /// Bits of the key.
    pub key: Mask,
    meta: [u64; META_WORDS],
}

impl FlowMaskState {
    /// No bits.
    pub const EMPTY: FlowMaskState = FlowMaskState {
        key: Mask::EMPTY,
        meta: [0; META_WORDS],
    };

    /// The bits of a field that are in the mask; of `in_port`, all or none.
    #[inline]
    pub fn get(&self, field: MatchField) -> u128 {
        let info = field.info();
        match info.home {
            Home::Key { field, shift } => self.key.get(field) >> shift & info.valid,
            Home::Meta { word, shift } => read(&self.meta, word, shift, info.valid),
            Home::Elsewhere => 0,
        }
    }

    /// Adds some bits of a field. Of `in_port`, any bit adds all, since its values are no bits of
    /// the 32-bit port's.
    #[inline]
    pub fn add_bits(&mut self, field: MatchField, bits: u128) {
        let info = field.info();
        let bits = bits & info.valid;
        match info.home {
            Home::Key { field, shift } => self.key.add_bits(field, bits << shift),
            Home::Meta { word, shift } => {
                let (bits, valid) = match (field, bits) {
                    (MatchField::InPort, 0) => return,
                    (MatchField::InPort, _) => (u128::from(u32::MAX), u128::from(u32::MAX)),
                    _ => (bits, info.valid),
                };
                let now = read(&self.meta, word, shift, valid);
                write(&mut self.meta, word, shift, valid, now | bits);
            }
            Home::Elsewhere => {}
        }
    }

    /// Adds all bits of a field.
    pub fn add(&mut self, field: MatchField) {
        self.add_bits(field, field.info().valid);
    }

    /// Adds the bits of another mask.
    pub fn unite(&mut self, other: &FlowMaskState) {
        self.key = self.key.union(&other.key);
        for (word, bits) in self.meta.iter_mut().zip(&other.meta) {
            *word |= bits;
        }
    }

    /// Whether there are no bits.
    pub fn is_empty(&self) -> bool {
        self.key.is_empty() && self.meta.iter().all(|word| *word == 0)
    }

    /// The words of metadata.
    pub const fn meta(&self) -> &[u64; META_WORDS] {
        &self.meta
    }
}

impl Default for FlowMaskState {
    fn default() -> FlowMaskState {
        FlowMaskState::EMPTY
    }
}

/// A condition on a state. The value is zero where the mask is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StateMatch {
    value: FlowState,
    mask: FlowMaskState,
}

impl StateMatch {
    /// The condition that any state meets.
    pub const ANY: StateMatch = StateMatch {
        value: FlowState::ZERO,
        mask: FlowMaskState::EMPTY,
    };

    /// The values.
    pub const fn value(&self) -> &FlowState {
        &self.value
    }

    /// The bits that count.
    pub const fn mask(&self) -> &FlowMaskState {
        &self.mask
    }

    /// Adds a condition: the field's bits in `mask` equal those in `value`.
    pub fn require(&mut self, field: MatchField, value: u128, mask: u128) {
        self.mask.add_bits(field, mask);
        let kept = self.value.get(field) & !mask;
        if mask & field.info().valid != 0 {
            self.value.set(field, kept | value & mask);
        }
    }

    /// Whether a state meets the condition.
    #[inline]
    pub fn matches(&self, state: &FlowState) -> bool {
        self.mask.key.eq_key(&self.value.key, &state.key)
            && (0..META_WORDS).all(|n| (self.value.meta[n] ^ state.meta[n]) & self.mask.meta[n] == 0)
    }
}

/// The port that stands for an action set without output (OpenFlow 1.5 §7.2.1): `OFPP_UNSET`.
pub const PORT_UNSET: u32 = 0xffff_fff7;

/// The first reserved port's number in OpenFlow 1.0; those from here up are the highest 32-bit
/// numbers in later versions.
const OF10_RESERVED: u32 = 0xff00;

/// An OpenFlow 1.0 port's number in later versions.
pub const fn port_from_of10(port: u16) -> u32 {
    if port as u32 >= OF10_RESERVED {
        port as u32 | 0xffff_0000
    } else {
        port as u32
    }
}

/// A port's number in OpenFlow 1.0; `OFPP_NONE` (0xffff) for those it has no number for.
pub const fn port_to_of10(port: u32) -> u16 {
    if port < OF10_RESERVED || port >= 0xffff_ff00 {
        port as u16
    } else {
        0xffff
    }
}

#[inline(always)]
fn read(words: &[u64; META_WORDS], word: u8, shift: u8, valid: u128) -> u128 {
    let word = usize::from(word);
    if valid > u128::from(u64::MAX) {
        u128::from(words[word - 1]) << 64 | u128::from(words[word])
    } else {
        u128::from(words[word] >> shift) & valid
    }
}

#[inline(always)]
fn write(words: &mut [u64; META_WORDS], word: u8, shift: u8, valid: u128, value: u128) {
    let word = usize::from(word);
    if valid > u128::from(u64::MAX) {
        words[word - 1] = (value >> 64) as u64;
        words[word] = value as u64;
    } else {
        words[word] = words[word] & !((valid as u64) << shift) | (value as u64) << shift;
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
