//! Everything the daemon holds: what its loop and its control commands work on.

use crate::bridges::Bridges;
use crate::controllers::Controllers;
use crate::openflow::OpenFlow;
use crate::slowpath::Shared;
use dp::{Datapath, PortNo};
use dp_user::DpUser;
use mgmt::stream::Tls;
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use tokio::sync::Notify;
use wire::Nanos;

/// The daemon's state. It lives on the control thread; only [`Shared`] and the datapath are seen by
/// workers.
pub(crate) struct State {
    pub(crate) shared: Arc<Shared>,
    pub(crate) datapath: Arc<DpUser>,
    pub(crate) bridges: RefCell<Bridges>,
    pub(crate) openflow: OpenFlow,
    pub(crate) controllers: Controllers,
    /// What the datapath does unless the configuration says otherwise.
    pub(crate) datapath_options: dp_user::Options,
    /// When the daemon's loop looks at the switch's tables next.
    armed: Cell<Option<Nanos>>,
    /// Megaflows and rules at the last [`State::reclaim`].
    held: Cell<(u64, u64)>,
    /// Rings when it has to look earlier.
    pub(crate) rearm: Notify,
    /// Rings when a control command changed something that the loop must look at.
    pub(crate) recheck: Notify,
    /// Rings when a control command wants the daemon to end.
    pub(crate) exit: Notify,
}

impl State {
    pub(crate) fn start(seed: u64, tls: Tls) -> io::Result<State> {
        let shared = Shared::new(seed);
        shared.serve_long()?;
        let options = dp_user::Options::default();
        let datapath = DpUser::new(options.clone(), shared.clone(), shared.changes.clone())?;
        let bridges = Bridges::new(shared.clone(), datapath.clone(), seed);
        Ok(State {
            shared,
            datapath,
            bridges: RefCell::new(bridges),
            openflow: OpenFlow::default(),
            controllers: Controllers::new(tls),
            datapath_options: options,
            armed: Cell::new(None),
            held: Cell::new((0, 0)),
            rearm: Notify::new(),
            recheck: Notify::new(),
            exit: Notify::new(),
        })
    }

    /// The datapath as its trait.
    pub(crate) fn dp(&self) -> &dyn Datapath {
        &*self.datapath
    }

    /// When the switch's tables have something to do by time. Who asks sleeps no longer than that,
    /// or until [`State::rearm`] rings.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        let due = self.shared.switch.read().next_event();
        self.armed.set(due);
        due
    }

    /// Wakes who waits for the tables if what was done to them is due earlier.
    pub(crate) fn tables_touched(&self) {
        let due = self.shared.switch.read().next_event();
        if due.is_some_and(|due| self.armed.get().is_none_or(|armed| due < armed)) {
            self.armed.set(due);
            self.rearm.notify_one();
        }
    }

    /// Makes the tables' counters what they are now.
    pub(crate) fn collect_statistics(&self) {
        self.dp().push_stats();
        self.shared.catch_up();
    }

    /// Does in the switch's tables what is due by time.
    pub(crate) fn tick(&self) {
        // What was carried until now keeps rules from ending.
        if self.shared.switch.read().next_event() <= Some(self.shared.clock.now()) {
            self.collect_statistics();
        }
        self.shared.update(|switch, now| switch.tick(now));
        self.openflow.tables_changed(self);
    }

    /// Has memory given back to the system when many megaflows or rules have gone since the last
    /// call.
    pub(crate) fn reclaim(&self) {
        /// Roughly what a megaflow or a rule takes with all that belongs to it, in bytes.
        const EACH: u64 = 1024;
        let megaflows = self.dp().cache_stats().flows;
        let rules = {
            let switch = self.shared.switch.read();
            let bridges = switch.bridge_names().filter_map(|name| switch.bridge(name));
            bridges.map(|bridge| bridge.tables().len() as u64).sum()
        };
        let before = self.held.replace((megaflows, rules));
        let gone = before.0.saturating_sub(megaflows) + before.1.saturating_sub(rules);
        mgmt::reclaim::freed(usize::try_from(gone * EACH).unwrap_or(usize::MAX));
    }

    /// Gives up the devices behind datapath ports that failed.
    pub(crate) fn forget_ports(&self, failed: &[PortNo]) {
        let mut bridges = self.bridges.borrow_mut();
        for port in failed {
            if let Some(name) = bridges.device_of(*port).map(str::to_owned) {
                tracing::info!(target: "netdev", "{name}: the device is gone");
                bridges.forget(&name);
            }
        }
    }
}
