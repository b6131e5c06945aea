//! Which megaflows depend on what.

use dp::Dep;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// Entries checked for each removal. A round over a list takes half as many removals as it has
/// entries, so that no more than that are stale after it.
const LOOKS: usize = 2;

/// Megaflows by the dependencies of their translations.
///
/// A removed megaflow stays on the lists for a while, recognisable by its ticket: each removal
/// checks [`LOOKS`] entries of a list, round robin, and frees the stale ones. So a removal costs
/// the same however long the lists are.
#[derive(Default)]
pub(super) struct DepIndex {
    lists: HashMap<Dep, List>,
}

#[derive(Default)]
struct List {
    entries: SmallVec<[(u32, u32); 2]>,
    stale: usize,
    /// The entry that is checked next.
    next: usize,
}

impl DepIndex {
    /// Adds a megaflow.
    pub(super) fn insert(&mut self, deps: &[Dep], number: u32, ticket: u32) {
        for dep in deps {
            let list = self.lists.entry(*dep).or_default();
            list.entries.push((number, ticket));
        }
    }

    /// Number of megaflows that depend on `dep`.
    pub(super) fn live(&self, dep: Dep) -> usize {
        self.lists
            .get(&dep)
            .map_or(0, |list| list.entries.len().saturating_sub(list.stale))
    }

    /// Takes the list of `dep`: numbers and tickets, some perhaps stale.
    pub(super) fn take(&mut self, dep: Dep) -> SmallVec<[(u32, u32); 2]> {
        self.lists.remove(&dep).map(|list| list.entries).unwrap_or_default()
    }

    /// Notes that a megaflow with these dependencies is gone; `holds` returns whether the megaflow
    /// with a number and a ticket still exists.
    pub(super) fn removed(&mut self, deps: &[Dep], holds: impl Fn(u32, u32) -> bool) {
        for dep in deps {
            let Some(list) = self.lists.get_mut(dep) else {
                continue;
            };
            list.stale += 1;
            if list.stale == list.entries.len() {
                self.lists.remove(dep);
            } else {
                list.tidy(&holds);
            }
        }
    }
}

impl List {
    /// Frees stale ones of the next few entries.
    fn tidy(&mut self, holds: &impl Fn(u32, u32) -> bool) {
        for _ in 0..LOOKS {
            if self.next >= self.entries.len() {
                self.next = 0;
            }
            let Some((number, ticket)) = self.entries.get(self.next) else {
                return;
            };
            if holds(*number, *ticket) {
                self.next += 1;
            } else {
                self.entries.swap_remove(self.next);
                self.stale = self.stale.saturating_sub(1);
            }
        }
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use testkit::Rng;

    const DEP: Dep = Dep(7);

    #[test]
    fn no_removal_looks_at_more_than_a_few_of_the_others_and_about_half_are_stale_at_most() {
        type Choose = fn(&mut Rng, usize) -> usize;
        let orders: [Choose; 3] = [|_, _| 0, |_, left| left - 1, |rng, left| rng.below(left)];
        for (choose, replaced) in orders.into_iter().flat_map(|order| [(order, 0), (order, 30_000)]) {
            let (mut rng, mut deps) = (Rng::new(1), DepIndex::default());
            let mut order: Vec<u32> = (0..10_000).collect();
            let mut live: BTreeSet<u32> = order.iter().copied().collect();
            order.iter().for_each(|number| deps.insert(&[DEP], *number, *number));
            for n in 0..10_000 + replaced {
                let gone = order.remove(choose(&mut rng, order.len()));
                live.remove(&gone);
                let looks = Cell::new(0);
                deps.removed(&[DEP], |number, ticket| {
                    looks.set(looks.get() + 1);
                    assert_eq!(number, ticket);
                    live.contains(&number)
                });
                assert!(looks.get() <= 2);
                if n < replaced {
                    let new = 10_000 + n;
                    deps.insert(&[DEP], new, new);
                    live.insert(new);
                    order.push(new);
                }
                assert_eq!(deps.live(DEP), live.len());
                if n % 500 == 0 && !live.is_empty() {
                    let list = &deps.lists[&DEP];
                    assert!(list.stale <= 5_000 + live.len(), "{} of {}", list.stale, live.len());
                    let listed: BTreeSet<u32> = list.entries.iter().map(|(number, _)| *number).collect();
                    assert!(listed.is_superset(&live));
                }
            }
            assert!(deps.lists.is_empty());
        }
    }
}
