//! What shortcuts depend on, for those who publish changes: a change suspends the shortcuts that depend on what changed, and no others.
//!
//! Each [`Dep`] that some megaflow with shortcuts depends on has an epoch of its own. Who publishes a change advances the epochs of what changed
//! before the change counts as published. A worker that opens or renews a shortcut reads the epochs first, and makes sure afterwards that it has
//! applied all changes: an epoch advances after its change is in the log, so the worker has applied each change that is in what it read, and each
//! later one suspends the shortcut.

use dp::{Change, Dep};
use hashbrown::HashMap;
use netdev::State;
use netdev::shortcut::{Epoch, ShortcutPort, Shortcuts};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// Changes that are looked up while the table is locked once: a worker that wants it meanwhile does not wait, but tries again later.
const AT_ONCE: usize = 32;

/// Dependencies for which there is room at first: it takes long to make more, and those who publish wait meanwhile.
const ROOM: usize = 1 << 15;

/// See the module's page.
pub(crate) struct DepEpochs {
    shortcuts: Arc<Shortcuts>,
    watched: Mutex<Watched>,
}

type Watched = HashMap<Dep, Watch>;

struct Watch {
    epoch: Epoch,
    /// Megaflows, of all workers, whose shortcuts depend on it.
    users: u32,
}

/// A port that shortcuts can lead from and to.
#[derive(Clone)]
pub(crate) struct OffloadPort {
    pub(crate) port: Arc<ShortcutPort>,
    pub(crate) deps: Arc<DepEpochs>,
    /// The state of its device; `None` where that has gone.
    pub(crate) device: Option<State>,
}

impl DepEpochs {
    pub(crate) fn new(shortcuts: Arc<Shortcuts>) -> Arc<DepEpochs> {
        Arc::new(DepEpochs {
            shortcuts,
            watched: Mutex::new(HashMap::with_capacity(ROOM)),
        })
    }

    pub(crate) fn shortcuts(&self) -> &Arc<Shortcuts> {
        &self.shortcuts
    }

    /// Suspends the shortcuts that depend on what has changed.
    pub(crate) fn changed(&self, changes: &[Change]) {
        for changes in changes.chunks(AT_ONCE) {
            let watched = self.watched.lock();
            for change in changes {
                match change {
                    Change::All => self.shortcuts.suspend_all(),
                    Change::Dep(dep) | Change::Overlap(dep, _) => {
                        if let Some(watch) = watched.get(dep) {
                            watch.epoch.advance();
                        }
                    }
                }
            }
        }
    }

    /// Adds the numbers of the epochs of `deps`, which stand for them until [`DepEpochs::unwatch`]. `false`, and without effect, where somebody else
    /// has the table, or there are no more epochs.
    pub(crate) fn try_watch(&self, deps: &[Dep], numbers: &mut impl Extend<u32>) -> bool {
        let Some(mut watched) = self.watched.try_lock() else {
            return false;
        };
        for (n, dep) in deps.iter().enumerate() {
            let known = watched.get_mut(dep);
            if let Some(watch) = known {
                watch.users += 1;
                numbers.extend([watch.epoch.number()]);
            } else if let Some(epoch) = self.shortcuts.epoch() {
                numbers.extend([epoch.number()]);
                watched.insert(*dep, Watch { epoch, users: 1 });
            } else {
                forget(&mut watched, &deps[..n]);
                return false;
            }
        }
        true
    }

    /// Forgets the epochs of `deps` where nobody else depends on them; `false`, and without effect, where somebody else has the table.
    pub(crate) fn try_unwatch(&self, deps: &[Dep]) -> bool {
        let watched = self.watched.try_lock();
        watched.map(|mut watched| forget(&mut watched, deps)).is_some()
    }

    /// As [`DepEpochs::try_unwatch`], but waits.
    pub(crate) fn unwatch(&self, deps: &[Dep]) {
        forget(&mut self.watched.lock(), deps);
    }

    /// How many have an epoch.
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
