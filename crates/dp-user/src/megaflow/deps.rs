//! Which megaflows depend on what.

use super::storage::Storage;
use dp::Dep;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// Megaflows by what their translation depended on.
///
/// A removed megaflow stays on the lists, recognisable by its ticket, until a list is half stale: removal then costs the same however long
/// the lists are.
#[derive(Default)]
pub(super) struct DepIndex {
    lists: HashMap<Dep, List>,
}

#[derive(Default)]
struct List {
    entries: SmallVec<[(u32, u32); 2]>,
    stale: usize,
}

impl DepIndex {
    /// Adds a megaflow.
    pub(super) fn insert(&mut self, deps: &[Dep], number: u32, ticket: u32) {
        for dep in deps {
            let list = self.lists.entry(*dep).or_default();
            list.entries.push((number, ticket));
        }
    }

    /// How many megaflows depend on `dep`.
    pub(super) fn live(&self, dep: Dep) -> usize {
        self.lists
            .get(&dep)
            .map_or(0, |list| list.entries.len().saturating_sub(list.stale))
    }

    /// Takes the list of `dep`: numbers and tickets, some perhaps stale.
    pub(super) fn take(&mut self, dep: Dep) -> SmallVec<[(u32, u32); 2]> {
        self.lists.remove(&dep).map(|list| list.entries).unwrap_or_default()
    }

    /// Notes that a megaflow with these dependencies, no longer in `storage`, is gone.
    pub(super) fn removed(&mut self, deps: &[Dep], storage: &Storage) {
        for dep in deps {
            let Some(list) = self.lists.get_mut(dep) else {
                continue;
            };
            list.stale += 1;
            if list.stale == list.entries.len() {
                self.lists.remove(dep);
            } else if list.stale * 2 > list.entries.len() {
                list.entries.retain(|(number, ticket)| storage.holds(*number, *ticket));
                list.entries.shrink_to_fit();
                list.stale = 0;
            }
        }
    }
}
