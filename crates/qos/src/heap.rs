//! An indexed heap of small numbers: changes of keys and removals take logarithmic time.

use crate::pool::NIL;

/// The member of the lowest key first; among equal keys any. Four children a node: half the depth,
/// and siblings share a cache line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap {
    nodes: Vec<(u64, u32)>,
    place: Vec<u32>,
}

impl Heap {
    /// For members 0 to `members` - 1.
    pub(crate) fn new(members: usize) -> Heap {
        Heap {
            nodes: Vec::with_capacity(members),
            place: vec![NIL; members],
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        self.nodes.first().copied()
    }

    #[inline]
    pub(crate) fn contains(&self, member: u32) -> bool {
        self.place[member as usize] != NIL
    }

    /// Adds a member or changes its key.
    #[inline]
    pub(crate) fn set(&mut self, member: u32, key: u64) {
        let at = self.place[member as usize];
        if at == NIL {
            self.nodes.push((key, member));
            self.up(self.nodes.len() - 1, (key, member));
        } else {
            let at = at as usize;
            let old = self.nodes[at].0;
            if key == old {
                return;
            }
            if key < old {
                self.up(at, (key, member));
            } else {
                self.down(at, (key, member));
            }
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, member: u32) {
        let at = std::mem::replace(&mut self.place[member as usize], NIL);
        if at == NIL {
            return;
        }
        let at = at as usize;
        if let Some(last) = self.nodes.pop()
            && at < self.nodes.len()
        {
            if last.0 < self.nodes[at].0 {
                self.up(at, last);
            } else {
                self.down(at, last);
            }
        }
    }

    #[inline]
    fn up(&mut self, mut at: usize, node: (u64, u32)) {
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.nodes[parent].0 <= node.0 {
                break;
            }
            self.put(at, self.nodes[parent]);
            at = parent;
        }
        self.put(at, node);
    }

    #[inline]
    fn down(&mut self, mut at: usize, node: (u64, u32)) {
        loop {
            let from = 4 * at + 1;
            let to = (from + 4).min(self.nodes.len());
            let Some(children) = self.nodes.get(from..to) else {
                break;
            };
            let Some((n, least)) = children.iter().enumerate().min_by_key(|(_, node)| node.0) else {
                break;
            };
            if node.0 <= least.0 {
                break;
            }
            let least = *least;
            self.put(at, least);
            at = from + n;
        }
        self.put(at, node);
    }

    #[inline]
    fn put(&mut self, at: usize, node: (u64, u32)) {
        self.nodes[at] = node;
        self.place[node.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_first_is_the_least_of_an_ordered_map(steps in prop::collection::vec((0..40u32, prop::option::of(0..30u64)), 1..400)) {
            let mut heap = Heap::new(40);
            let mut model = BTreeMap::new();
            for (member, key) in steps {
                match key {
                    Some(key) => {
                        heap.set(member, key);
                        model.insert(member, key);
                    }
                    None => {
                        heap.remove(member);
                        model.remove(&member);
                    }
                }
                let first = heap.first();
                prop_assert_eq!(first.map(|(key, _)| key), model.values().copied().min());
                prop_assert!(first.is_none_or(|(key, member)| model.get(&member) == Some(&key)));
                prop_assert_eq!(heap.contains(member), model.contains_key(&member));
            }
        }
    }
}
