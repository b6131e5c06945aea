//! What RSTP reads from BPDUs: their format is in [`crate::stp::wire`].

pub use crate::stp::wire::{Bpdu, BridgeId, GROUP, Message, PortId, RstFlags, Times, WireError, WireRole};

/// A priority vector (IEEE 802.1D-2004 §17.5); the lesser one is the better one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vector {
    /// The root.
    pub root: BridgeId,
    /// The distance to it.
    pub cost: u32,
    /// The bridge that tells of it.
    pub bridge: BridgeId,
    /// The port of that bridge.
    pub port: PortId,
}

impl Vector {
    /// The vector of a BPDU.
    pub(crate) fn of(message: &Message) -> Vector {
        Vector {
            root: message.root,
            cost: message.cost,
            bridge: message.bridge,
            port: message.port,
        }
    }

    /// Whether a message with this vector replaces what a port knows (§17.6): it is better, or it
    /// is from the same port of the same bridge.
    pub(crate) fn supersedes(&self, known: &Vector) -> bool {
        let number = |port: PortId| port.0 & 0xfff;
        let same = self.bridge.mac() == known.bridge.mac() && number(self.port) == number(known.port);
        self < known || same
    }
}
