//! What neighbours say, as text for people: they may send any bytes.

use super::wire::{Capabilities, Id, Lldpdu, network_address};
use wire::MacAddr;

/// A text of a neighbour: control characters and bytes that are no UTF-8 become U+FFFD.
pub fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let harmless = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(harmless).collect()
}

/// Subtypes of identifiers (tables 8-2 and 8-3), from 1.
const CHASSIS: [&str; 7] = ["chassis", "alias", "port", "mac", "network", "ifname", "local"];
const PORT: [&str; 7] = ["alias", "port", "mac", "network", "ifname", "circuit", "local"];

impl Lldpdu {
    /// The kind and the value of the chassis identifier.
    pub fn chassis_text(&self) -> (&'static str, String) {
        text(&self.chassis, &CHASSIS, Id::CHASSIS_MAC, Id::CHASSIS_NETWORK)
    }

    /// The kind and the value of the port identifier.
    pub fn port_text(&self) -> (&'static str, String) {
        text(&self.port, &PORT, Id::PORT_MAC, Id::PORT_NETWORK)
    }
}

fn text(id: &Id, kinds: &[&'static str; 7], mac: u8, network: u8) -> (&'static str, String) {
    let kind = kinds.get(usize::from(id.kind()) - 1).copied().unwrap_or_default();
    let address = <[u8; 6]>::try_from(id.value()).ok().filter(|_| id.kind() == mac);
    let ip = network_address(id.value()).filter(|_| id.kind() == network);
    let value = match (address, ip) {
        (Some(address), _) => MacAddr(address).to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => readable(id.value()),
    };
    (kind, value)
}

impl Capabilities {
    /// The names of the bits of a word.
    pub fn names(word: u16) -> impl Iterator<Item = &'static str> {
        let set = move |(bit, _): &(usize, &&str)| word >> bit & 1 != 0;
        Capabilities::NAMES
            .iter()
            .enumerate()
            .filter(set)
            .map(|(_, name)| *name)
    }
}
