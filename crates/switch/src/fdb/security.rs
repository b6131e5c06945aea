//! Port security: how many stations a port may have, and stations that stay at their port.
//!
//! A sticky entry is a static entry that a packet has made. Its station may send from its own port
//! only.

use super::{Fdb, Station};
use crate::MacLimit;
use wire::{MacAddr, Vid};

impl Fdb {
    /// Sets the limit of a port.
    pub(crate) fn set_limit(&mut self, port: u32, limit: Option<MacLimit>) {
        match limit {
            Some(limit) => _ = self.limits.insert(port, limit),
            None => _ = self.limits.remove(&port),
        }
    }

    /// Whether a port has a limit or a station is sticky.
    pub(crate) fn has_security(&self) -> bool {
        !self.limits.is_empty() || !self.sticky.is_empty()
    }

    /// Whether a station may send from a port: it is known there, or the port has room for it, and
    /// it is not sticky at another port.
    pub(crate) fn admits(&self, vlan: Vid, mac: MacAddr, port: u32) -> bool {
        match self.lookup(vlan, mac) {
            Some((known, _)) if known == port => true,
            Some((_, true)) => !self.is_sticky(vlan, mac),
            _ => !self.is_full(port),
        }
    }

    fn is_full(&self, port: u32) -> bool {
        let full = |limit: &MacLimit| self.count(port, limit.most as usize) >= limit.most as usize;
        self.limits.get(&port).is_some_and(full)
    }

    /// The number of a port's stations; if it is higher than `most`, that or a higher number.
    pub(crate) fn count(&self, port: u32, most: usize) -> usize {
        let learned = self.ports.get(&port).map_or(0, |entries| entries.count as usize);
        learned + self.fixed_at(port).take(most).count()
    }

    /// The sticky stations of a port.
    pub(crate) fn sticky_at(&self, port: u32) -> impl Iterator<Item = Station> + '_ {
        self.fixed_at(port).filter(|(vlan, mac)| self.is_sticky(*vlan, *mac))
    }

    /// Whether a station is sticky.
    pub(crate) fn is_sticky(&self, vlan: Vid, mac: MacAddr) -> bool {
        self.sticky.contains(&(vlan, mac))
    }

    /// Makes a station that has no static entry sticky. Returns the station that was evicted.
    pub(crate) fn add_sticky(&mut self, vlan: Vid, mac: MacAddr, port: u32) -> Option<Station> {
        let evicted = self.add_static(vlan, mac, port);
        self.sticky.insert((vlan, mac));
        evicted
    }

    /// Removes a station that is sticky at a port; `false` if it is not.
    pub(crate) fn del_sticky(&mut self, vlan: Vid, mac: MacAddr, port: u32) -> bool {
        self.is_sticky(vlan, mac) && self.lookup(vlan, mac) == Some((port, true)) && self.remove(vlan, mac)
    }

    /// A station that was learned at a port becomes sticky if the port is.
    pub(super) fn stick(&mut self, vlan: Vid, mac: MacAddr, port: u32) {
        if self.limits.get(&port).is_some_and(|limit| limit.sticky) {
            self.add_sticky(vlan, mac, port);
        }
    }
}
