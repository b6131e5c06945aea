//! Sets of VLANs.

use std::fmt;
use wire::Vid;

const WORDS: usize = Vid::COUNT / 64;

/// A set of VLAN identifiers.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct VlanSet {
    /// One bit a VLAN; `None` is the empty set, so that equal sets are equal values.
    bits: Option<Box<[u64; WORDS]>>,
}

impl VlanSet {
    /// The empty set.
    pub const fn new() -> VlanSet {
        VlanSet { bits: None }
    }

    /// Adds a VLAN.
    pub fn insert(&mut self, vid: Vid) {
        let bits = self.bits.get_or_insert_with(|| Box::new([0; WORDS]));
        bits[usize::from(vid.get() / 64)] |= 1 << (vid.get() % 64);
    }

    /// Whether a VLAN is in the set.
    #[inline]
    pub fn contains(&self, vid: Vid) -> bool {
        self.bits
            .as_ref()
            .is_some_and(|bits| bits[usize::from(vid.get() / 64)] & 1 << (vid.get() % 64) != 0)
    }

    /// Whether there is no VLAN in the set.
    pub const fn is_empty(&self) -> bool {
        self.bits.is_none()
    }

    /// The VLANs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Vid> + '_ {
        (0..Vid::COUNT as u16)
            .map(Vid::from_tci)
            .filter(|vid| self.contains(*vid))
    }
}

impl FromIterator<Vid> for VlanSet {
    fn from_iter<I: IntoIterator<Item = Vid>>(vids: I) -> VlanSet {
        let mut set = VlanSet::new();
        for vid in vids {
            set.insert(vid);
        }
        set
    }
}

impl fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Vid::get)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_what_was_put_in() {
        let set: VlanSet = [0, 63, 64, 4095].map(Vid::from_tci).into_iter().collect();
        assert_eq!(set.iter().map(Vid::get).collect::<Vec<_>>(), [0, 63, 64, 4095]);
        assert!(!set.contains(Vid::from_tci(1)) && !set.is_empty());
        assert!(VlanSet::new().is_empty() && !VlanSet::new().contains(Vid::NONE));
    }
}
