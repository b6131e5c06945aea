//! Suspends offloaded flows when something changes that they depend on, and leaves all others in
//! force.
//!
//! Each [`Dep`] of a megaflow that has offloaded flows has an epoch. The publisher of a change
//! advances the epochs of what changed. Only then the change counts as published.
//!
//! A worker that opens or resumes an offloaded flow reads the epochs first. Then it checks that it
//! has applied every change in the log. The order matters: a change is in the log before its epoch
//! advances. So the worker has applied each change that the epochs it read include, and each later
//! change suspends the offloaded flow.

use dp::offload::{Epoch, OffloadPort, OffloadTable};
use dp::{Change, Dep};
use hashbrown::HashMap;
use netdev::State;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// Changes to look up during one lock of the table. A worker that finds the table locked does not
/// wait: it tries again later.
const AT_ONCE: usize = 32;

/// Initial capacity of the table. A rehash of a large table would delay the threads that publish
/// changes.
const ROOM: usize = 1 << 15;

/// See the module's page.
pub(crate) struct DepEpochs {
    table: Arc<OffloadTable>,
    watched: Mutex<Watched>,
}

type Watched = HashMap<Dep, Watch>;

struct Watch {
    epoch: Epoch,
    /// Megaflows, of all workers, whose offloaded flows depend on it.
    users: u32,
}

/// A port that offloaded flows can lead from and to.
#[derive(Clone)]
pub(crate) struct PortOffload {
    pub(crate) port: Arc<OffloadPort>,
    pub(crate) deps: Arc<DepEpochs>,
    /// The state of its device; `None` if that has gone.
    pub(crate) device: Option<State>,
}

impl DepEpochs {
    pub(crate) fn new(table: Arc<OffloadTable>) -> Arc<DepEpochs> {
        Arc::new(DepEpochs {
            table,
            watched: Mutex::new(HashMap::with_capacity(ROOM)),
        })
    }

    pub(crate) fn table(&self) -> &Arc<OffloadTable> {
        &self.table
    }

    /// Suspends the offloaded flows that depend on the changed tables.
    pub(crate) fn changed(&self, changes: &[Change]) {
        for changes in changes.chunks(AT_ONCE) {
            let watched = self.watched.lock();
            for change in changes {
                match change {
                    Change::All => self.table.suspend_all(),
                    Change::Dep(dep) | Change::Overlap(dep, _) => {
                        if let Some(watch) = watched.get(dep) {
                            watch.epoch.advance();
                        }
                    }
                }
            }
        }
    }

    /// Appends the numbers of the epochs of `deps`. The numbers stay valid until
    /// [`DepEpochs::unwatch`]. Returns `false`, and does nothing, if another thread has the table
    /// locked or no epoch is left.
    pub(crate) fn try_watch(&self, deps: &[Dep], numbers: &mut impl Extend<u32>) -> bool {
        let Some(mut watched) = self.watched.try_lock() else {
            return false;
        };
        for (n, dep) in deps.iter().enumerate() {
            let known = watched.get_mut(dep);
            if let Some(watch) = known {
                watch.users += 1;
                numbers.extend([watch.epoch.number()]);
            } else if let Some(epoch) = self.table.epoch() {
                numbers.extend([epoch.number()]);
                watched.insert(*dep, Watch { epoch, users: 1 });
            } else {
                forget(&mut watched, &deps[..n]);
                return false;
            }
        }
        true
    }

    /// Frees the epochs of those `deps` that no other group depends on. Returns `false`, and does
    /// nothing, if another thread has the table locked.
    pub(crate) fn try_unwatch(&self, deps: &[Dep]) -> bool {
        let watched = self.watched.try_lock();
        watched.map(|mut watched| forget(&mut watched, deps)).is_some()
    }

    /// As [`DepEpochs::try_unwatch`], but waits for the lock.
    pub(crate) fn unwatch(&self, deps: &[Dep]) {
        forget(&mut self.watched.lock(), deps);
    }

    /// Number of dependencies with an epoch.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.watched.lock().len()
    }
}

fn forget(watched: &mut MutexGuard<'_, Watched>, deps: &[Dep]) {
    for dep in deps {
        if let Some(watch) = watched.get_mut(dep) {
            watch.users -= 1;
            if watch.users == 0 {
                watched.remove(dep);
            }
        }
    }
}
