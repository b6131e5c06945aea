//! `ct_state`: what the tracker says about a packet.

use std::ops::{BitAnd, BitOr, BitOrAssign};

/// The bits of `ct_state` (`ovs-fields(7)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State(u32);

impl State {
    /// Not tracked.
    pub const NONE: State = State(0);
    /// The packet begins a connection, or belongs to one without a reply so far.
    pub const NEW: State = State(1);
    /// The packet belongs to a connection that has packets in both directions.
    pub const EST: State = State(1 << 1);
    /// The packet is an ICMP error about a connection, or belongs to a data connection that a
    /// control connection announced.
    pub const REL: State = State(1 << 2);
    /// The packet goes in the reply direction.
    pub const RPL: State = State(1 << 3);
    /// The packet belongs to no connection and cannot begin one.
    pub const INV: State = State(1 << 4);
    /// The packet passed the tracker.
    pub const TRK: State = State(1 << 5);
    /// The connection's source is translated.
    pub const SNAT: State = State(1 << 6);
    /// The connection's destination is translated.
    pub const DNAT: State = State(1 << 7);

    /// The value of the field `ct_state`.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The state with these bits of the field `ct_state`; higher bits are dropped.
    pub const fn from_bits(bits: u32) -> State {
        State(bits & 0xff)
    }

    /// Whether all of these bits are set.
    pub const fn has(self, bits: State) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// Whether one of these bits is set.
    pub const fn has_any(self, bits: State) -> bool {
        self.0 & bits.0 != 0
    }
}

impl BitOr for State {
    type Output = State;
    fn bitor(self, other: State) -> State {
        State(self.0 | other.0)
    }
}

impl BitAnd for State {
    type Output = State;
    fn bitand(self, other: State) -> State {
        State(self.0 & other.0)
    }
}

impl BitOrAssign for State {
    fn bitor_assign(&mut self, other: State) {
        self.0 |= other.0;
    }
}
