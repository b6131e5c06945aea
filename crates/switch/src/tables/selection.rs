//! How a select group chooses one of its buckets: `selection_method` in ovs-ofctl(8).
//!
//! A hash of the packet selects a *slot*, and each slot stands for a bucket. The number of slots is
//! a power of two; buckets get slots in proportion to their weights by the method of Webster and
//! Sainte-Laguë, as in Open vSwitch. When a bucket is not live, its slots go to the bucket of the
//! next slot that is. So a change of a bucket, or of its liveness, moves the slots of that bucket,
//! and the packets of other slots stay where they are.

use super::group::Group;
use dp::FlowHash;
use openflow::model::{Bucket, GroupType, Selection};

/// The fewest slots of a group with several buckets.
const LEAST: u64 = 16;

/// The most slots: as many values has the hash that a recirculation id carries.
const MOST: u64 = 256;

/// How a select group chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) method: Method,
    /// The place of the bucket of each slot: one slot if only one bucket can be chosen, none if
    /// none can, or if the weights differ by too much for [`MOST`] slots.
    slots: Box<[u16]>,
}

/// What the hash of a packet depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Addresses, protocol and ports.
    Flow(FlowHash),
    /// The fields that a controller has named.
    Fields(Selection),
}

impl Selector {
    /// The selector of a select group.
    pub(super) fn of(group: &Group) -> Option<Selector> {
        (group.kind == GroupType::Select).then(|| Selector {
            method: method(group.selection.as_ref()),
            slots: slots(&group.buckets),
        })
    }

    /// Whether packets with different hashes get different buckets.
    pub(super) fn distributes(&self) -> bool {
        self.slots.len() > 1
    }

    /// Number of slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The place of a slot's bucket.
    pub(super) fn bucket(&self, slot: usize) -> Option<usize> {
        self.slots.get(slot).map(|at| usize::from(*at))
    }
}

fn method(selection: Option<&Selection>) -> Method {
    const SYMMETRIC: u64 = 1;
    let Some(selection) = selection else {
        return Method::Flow(FlowHash::SymmetricL4 { basis: 0 });
    };
    let basis = selection.param as u32;
    match (selection.method.as_str(), selection.param >> 32) {
        ("hash", _) if !selection.fields.is_empty() => Method::Fields(selection.clone()),
        ("dp_hash", algorithm) if algorithm != SYMMETRIC => Method::Flow(FlowHash::L4 { basis }),
        _ => Method::Flow(FlowHash::SymmetricL4 { basis }),
    }
}

fn slots(buckets: &[Bucket]) -> Box<[u16]> {
    struct Seats {
        at: u16,
        weight: u64,
        /// The next divisor.
        divisor: u64,
    }
    let weighed = buckets.iter().zip(0..=u16::MAX).filter(|(bucket, _)| bucket.weight > 0);
    let mut all: Vec<Seats> = weighed
        .map(|(bucket, at)| Seats {
            at,
            weight: bucket.weight.into(),
            divisor: 1,
        })
        .collect();
    let least = all.iter().map(|one| one.weight).min().unwrap_or(1);
    let total: u64 = all.iter().map(|one| one.weight).sum();
    let number = match all.len() {
        0 | 1 => all.len() as u64,
        _ => total.div_ceil(least).next_power_of_two().max(LEAST),
    };
    if number > MOST {
        return Box::default();
    }
    let next = |_| {
        // Of equal ones the first.
        let highest =
            all.iter_mut().reduce(
                |best, one| match one.weight * best.divisor > best.weight * one.divisor {
                    true => one,
                    false => best,
                },
            )?;
        highest.divisor += 2;
        Some(highest.at)
    };
    (0..number).map_while(next).collect()
}

/// What of a group has changed for packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupChange {
    /// The group.
    pub(crate) group: u32,
    /// Whether packets must get another hash, one where they had none, or none where they had one.
    pub(crate) hash: bool,
    /// If they keep their hash: slots in which packets get another bucket. Each comes with the
    /// number of slots that the group had when it was selected, which may be long ago.
    pub(crate) slots: Vec<(u16, u8)>,
}

impl GroupChange {
    /// The difference between a group and what it becomes.
    pub(super) fn of(id: u32, old: Option<&Group>, new: Option<&Group>) -> GroupChange {
        let (old, new) = (Distribution::of(old), Distribution::of(new));
        let method = |group: &Option<Distribution<'_>>| group.as_ref().map(|group| group.selector.method.clone());
        let hash = method(&old) != method(&new);
        let mut slots = Vec::new();
        if let Some((old, new)) = old.zip(new).filter(|_| !hash) {
            let moved: Vec<u64> = (0..MOST)
                .filter(|hash| old.bucket(*hash) != new.bucket(*hash))
                .collect();
            let numbers =
                std::iter::successors(Some(LEAST), |number| Some(number * 2).filter(|number| *number <= MOST));
            for number in numbers.filter(|_| !moved.is_empty()) {
                let is_moved = |slot: &u64| moved.iter().any(|hash| hash % number == *slot);
                slots.extend((0..number).filter(is_moved).map(|slot| (number as u16, slot as u8)));
            }
        }
        GroupChange { group: id, hash, slots }
    }
}

/// A group that distributes packets.
struct Distribution<'a> {
    selector: &'a Selector,
    serials: &'a [u32],
}

impl Distribution<'_> {
    fn of(group: Option<&Group>) -> Option<Distribution<'_>> {
        let group = group?;
        let selector = group.selector.as_ref().filter(|selector| selector.distributes())?;
        Some(Distribution {
            selector,
            serials: &group.serials,
        })
    }

    /// The serial number of the bucket for a hash.
    fn bucket(&self, hash: u64) -> Option<u32> {
        let at = self.selector.bucket(hash as usize & (self.selector.len() - 1))?;
        self.serials.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::model::{ANY_GROUP, Port};

    fn buckets(weights: &[u16]) -> Vec<Bucket> {
        let bucket = |(id, weight): (u32, &u16)| Bucket {
            id,
            weight: *weight,
            watch_port: Port::ANY,
            watch_group: ANY_GROUP,
            actions: Vec::new(),
        };
        (0..).zip(weights).map(bucket).collect()
    }

    fn counts(weights: &[u16]) -> Vec<usize> {
        let slots = slots(&buckets(weights));
        (0..weights.len() as u16)
            .map(|at| slots.iter().filter(|slot| **slot == at).count())
            .collect()
    }

    #[test]
    fn buckets_have_as_many_slots_as_in_open_vswitch() {
        // As its log has them.
        for (weights, expected) in [
            (&[1, 1][..], &[8, 8][..]),
            (&[1, 2, 3], &[3, 5, 8]),
            (&[2, 4, 6], &[3, 5, 8]),
            (&[7, 5], &[9, 7]),
            (&[0, 1, 2], &[0, 5, 11]),
            (&[10, 8, 1], &[17, 13, 2]),
            (&[255, 1], &[255, 1]),
            (&[256, 1], &[0, 0]),
            (&[0, 0], &[0, 0]),
            (&[0, 9], &[0, 1]),
        ] {
            assert_eq!(counts(weights), expected, "{weights:?}");
        }
        assert_eq!(
            &slots(&buckets(&[1, 2, 3]))[..],
            [2, 1, 0, 2, 1, 2, 2, 1, 0, 2, 1, 2, 2, 1, 0, 2]
        );
    }

    #[test]
    fn methods_are_those_of_open_vswitch() {
        let of = |method: &str, param| {
            super::method(Some(&Selection {
                method: method.into(),
                param,
                fields: Vec::new(),
            }))
        };
        let symmetric = |basis| Method::Flow(FlowHash::SymmetricL4 { basis });
        let ordered = |basis| Method::Flow(FlowHash::L4 { basis });
        assert_eq!((super::method(None), of("", 0)), (symmetric(0), symmetric(0)));
        assert_eq!(
            (of("dp_hash", 7), of("dp_hash", 1 << 32 | 7)),
            (ordered(7), symmetric(7))
        );
        assert_eq!(of("dp_hash", 5 << 32 | 7), ordered(7));
        assert_eq!(of("hash", 7), symmetric(7));
    }
}
