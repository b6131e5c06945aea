//! The tree of queues, from their key `parent`.

use super::KeyError;
use super::reader::Reader;
use crate::tree::MOST;
use std::collections::{BTreeMap, BTreeSet};

/// The classes of a port.
pub(super) struct Family {
    parents: BTreeMap<u32, u32>,
    /// Those with children.
    inner: BTreeSet<u32>,
}

impl Family {
    pub(super) fn read(rows: &mut BTreeMap<u32, Reader<'_>>) -> Result<Family, KeyError> {
        let mut parents = BTreeMap::new();
        for (number, row) in &mut *rows {
            if u64::from(*number) > MOST {
                return Err(KeyError {
                    row: super::Row::Qos,
                    key: "queues".to_owned(),
                    value: Some(number.to_string()),
                    rule: format!("not between 0 and {MOST}"),
                });
            }
            if let Some(parent) = row.number("parent", "a queue")? {
                parents.insert(*number, parent);
            }
        }
        let mut family = Family {
            parents: BTreeMap::new(),
            inner: BTreeSet::new(),
        };
        for (number, parent) in parents {
            let row = &rows[&number];
            // Queue 0 is there without a row.
            let known = |parent: &u32| *parent == 0 || rows.contains_key(parent);
            match u32::try_from(parent).ok().filter(known) {
                Some(0) => return Err(row.refuse("parent", "queue 0 is for what has no queue, so it can be no parent")),
                Some(parent) => {
                    family.parents.insert(number, parent);
                    family.inner.insert(parent);
                }
                None => return Err(row.refuse("parent", "there is no queue of this number")),
            }
        }
        match family.on_a_loop() {
            Some(number) => Err(rows[&number].refuse("parent", "the queue would be among its own ancestors")),
            None => Ok(family),
        }
    }

    pub(super) fn parent(&self, number: u32) -> Option<u32> {
        self.parents.get(&number).copied()
    }

    pub(super) fn is_inner(&self, number: u32) -> bool {
        self.inner.contains(&number)
    }

    /// Parents whose children's guaranteed rates together exceed their own, with the sum; `None` is
    /// the port.
    pub(super) fn overcommitted(&self, promised: &BTreeMap<u32, u64>, rate: u64) -> Vec<(Option<u32>, u64, u64)> {
        let mut sums: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        for (number, promise) in promised {
            let sum = sums.entry(self.parent(*number)).or_default();
            *sum = sum.saturating_add(*promise);
        }
        let has = |parent: &Option<u32>| match parent {
            Some(parent) => promised.get(parent).copied().unwrap_or(super::LEAST_RATE),
            None => rate,
        };
        let sums = sums.into_iter().map(|(parent, sum)| (parent, sum, has(&parent)));
        sums.filter(|(_, sum, has)| sum > has).collect()
    }

    /// A queue that comes back to itself going up.
    fn on_a_loop(&self) -> Option<u32> {
        let mut sound = BTreeSet::new();
        for start in self.parents.keys() {
            let (mut path, mut at) = (BTreeSet::new(), *start);
            while !sound.contains(&at) {
                if !path.insert(at) {
                    return Some(at);
                }
                match self.parents.get(&at) {
                    Some(parent) => at = *parent,
                    None => break,
                }
            }
            sound.extend(path);
        }
        None
    }
}

/// The warning for children whose guaranteed rates exceed their parent's.
pub(super) fn promises(parent: Option<u32>, sum: u64, has: u64) -> String {
    let place = match parent {
        Some(parent) => format!("queue {parent}: its children are"),
        None => "QoS: the queues are".to_owned(),
    };
    format!("{place} promised {sum} bit/s together, more than the {has} bit/s that there are")
}
