//! What the other end of an interface's link has said.

use super::wire::{Id, Lldpdu};
use nanos::Nanos;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most neighbors of all interfaces.
pub const MOST: usize = 4096;
/// Most neighbors of one interface: one where the link has two ends, a few where a hub or a bridge
/// without LLDP is between them.
pub const MOST_OF_PORT: usize = 32;

/// A port of another system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// What it says.
    pub pdu: Lldpdu,
    /// When it was heard of first.
    pub since: Nanos,
    /// When it was heard last.
    pub heard: Nanos,
}

impl Neighbor {
    /// When it is forgotten if it says nothing more.
    pub fn expires(&self) -> Nanos {
        self.heard + Duration::from_secs(self.pdu.ttl.into())
    }
}

/// The neighbors of one interface, by chassis and port.
#[derive(Debug, Default)]
pub(super) struct Neighbors {
    list: BTreeMap<(Id, Id), Neighbor>,
    next_expiry: Option<Nanos>,
}

/// What a received LLDPDU has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// There is a neighbor more.
    New,
    /// A known neighbor has spoken.
    Known,
    /// A neighbor has taken its leave.
    Left,
    /// Nothing.
    Nothing,
    /// The interface has as many neighbors as it may have.
    Full,
}

impl Neighbors {
    pub(super) fn hear(&mut self, pdu: Lldpdu, now: Nanos) -> Heard {
        let key = (pdu.chassis.clone(), pdu.port.clone());
        let is_full = self.list.len() >= MOST_OF_PORT;
        let heard = match (self.list.get_mut(&key), pdu.ttl) {
            (None, 0) => return Heard::Nothing,
            (Some(_), 0) => {
                self.list.remove(&key);
                Heard::Left
            }
            (Some(known), _) => {
                (known.pdu, known.heard) = (pdu, now);
                Heard::Known
            }
            (None, _) if is_full => return Heard::Full,
            (None, _) => {
                let (since, heard) = (now, now);
                self.list.insert(key, Neighbor { pdu, since, heard });
                Heard::New
            }
        };
        self.settle();
        heard
    }

    /// Forgets those whose time is over. Returns their number.
    pub(super) fn expire(&mut self, now: Nanos) -> usize {
        if self.next_expiry.is_none_or(|due| due > now) {
            return 0;
        }
        let before = self.list.len();
        self.list.retain(|_, neighbor| neighbor.expires() > now);
        self.settle();
        before - self.list.len()
    }

    /// Forgets the one that has said nothing for the longest time.
    pub(super) fn evict(&mut self) {
        let oldest = self.list.iter().min_by_key(|(_, neighbor)| neighbor.heard);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.list.remove(&key);
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.next_expiry = self.list.values().map(Neighbor::expires).min();
    }

    pub(super) fn next_expiry(&self) -> Option<Nanos> {
        self.next_expiry
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Neighbor> {
        self.list.values()
    }
}
