//! Everything the daemon holds: what its loop and its control commands work on.

use crate::bridges::Bridges;
use crate::controllers::Controllers;
use crate::openflow::OpenFlow;
use crate::slowpath::Shared;
use dp::{Datapath, PortNo};
use dp_user::DpUser;
use mgmt::stream::Tls;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use tokio::sync::Notify;

/// The daemon's state. It lives on the control thread; only [`Shared`] and the datapath are seen by workers.
pub(crate) struct State {
    pub(crate) shared: Arc<Shared>,
    pub(crate) datapath: Arc<DpUser>,
    pub(crate) bridges: RefCell<Bridges>,
    pub(crate) openflow: OpenFlow,
    pub(crate) controllers: Controllers,
    /// What the datapath does unless the configuration says otherwise.
    pub(crate) datapath_options: dp_user::Options,
    /// Rings when a control command changed something that the loop must look at.
    pub(crate) recheck: Notify,
    /// Rings when a control command wants the daemon to end.
    pub(crate) exit: Notify,
}

impl State {
    pub(crate) fn start(seed: u64, tls: Tls) -> io::Result<State> {
        let shared = Shared::new(seed);
        let options = dp_user::Options::default();
        let datapath = DpUser::new(options.clone(), shared.clone(), shared.changes.clone())?;
        let bridges = Bridges::new(shared.clone(), datapath.clone());
        Ok(State {
            shared,
            datapath,
            bridges: RefCell::new(bridges),
            openflow: OpenFlow::default(),
            controllers: Controllers::new(tls),
            datapath_options: options,
            recheck: Notify::new(),
            exit: Notify::new(),
        })
    }

    /// The datapath as its trait.
    pub(crate) fn dp(&self) -> &dyn Datapath {
        &*self.datapath
    }

    /// Does in the switch's tables what is due by time.
    pub(crate) fn tick(&self) {
        // What was carried until now keeps rules from ending.
        if self.shared.switch.read().next_event() <= Some(self.shared.clock.now()) {
            self.dp().push_stats();
        }
        self.shared.update(|switch, now| switch.tick(now));
        self.openflow.tables_changed(self);
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
