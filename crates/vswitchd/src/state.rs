//! The daemon's state, shared by its loop and its control commands.

use crate::bridges::Bridges;
use crate::controllers::Controllers;
use crate::exports::Exports;
use crate::left_flows::{self, Inheritance};
use crate::numa::Numa;
use crate::openflow::OpenFlow;
use crate::options;
use crate::protocols::{Protocols, Running};
use crate::routes::Routes;
use crate::rows::Dummies;
use crate::slowpath::Shared;
use dp::{Datapath, Limits, PortNo};
use dp_user::{DpUser, Options};
use mgmt::stream::Tls;
use nanos::Nanos;
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tunnel::neighbour::Request;

/// The daemon's state. It lives on the control thread; only [`Shared`] and the datapath are seen by
/// workers.
pub(crate) struct State {
    pub(crate) shared: Arc<Shared>,
    pub(crate) datapath: Arc<DpUser>,
    pub(crate) bridges: RefCell<Bridges>,
    /// Which devices are dummies.
    pub(crate) dummies: Dummies,
    pub(crate) numa: Numa,
    pub(crate) openflow: OpenFlow,
    pub(crate) controllers: Controllers,
    pub(crate) exports: Exports,
    pub(crate) protocols: Running,
    /// The routes of the underlay.
    pub(crate) routes: RefCell<Routes>,
    /// When the daemon's loop checks the switch's tables next.
    armed: Cell<Option<Nanos>>,
    /// Megaflows and rules at the last [`State::reclaim`].
    held: Cell<(u64, u64)>,
    /// The limits of megaflows as configured.
    limits: Cell<Option<Limits>>,
    /// `revalidator/pause` is in force.
    ageing_paused: Cell<bool>,
    /// The average and the highest number of megaflows, as of the last look.
    flow_levels: Cell<(u64, u64)>,
    /// Shown in `upcall/show`; it changes nothing else.
    pub(crate) ufid: Cell<bool>,
    /// Whether an orderly end leaves the tracked connections to the next start.
    pub(crate) leaves_connections: Cell<bool>,
    /// The offloaded flows of the process before, while they are in force.
    pub(crate) inheritance: RefCell<Option<Inheritance>>,
    /// Notified when the loop must check earlier.
    pub(crate) rearm: Notify,
    /// Notified when a control command changed something that the loop must check.
    pub(crate) recheck: Notify,
    /// Notified when a control command ends the daemon.
    pub(crate) exit: Notify,
}

impl State {
    /// Starts the datapath.
    pub(crate) fn start(seed: u64, tls: Tls, options: &options::Options) -> io::Result<State> {
        let numa = options
            .dummy_numa
            .as_deref()
            .map_or_else(Numa::of_machine, Numa::invented);
        numa.log();
        let kernel_routes = options.system_routes && options.dummies != Dummies::Override;
        let shared = Shared::new(seed);
        shared.serve_long()?;
        let datapath = DpUser::new(Options::default(), shared.clone(), shared.changes.clone())?;
        let inheritance = left_flows::find();
        let flows = inheritance.as_ref().map(|left| left.flows.clone());
        datapath.offload_to(move || Ok(Arc::new(dp_ebpf::Ebpf::load(flows.clone())?)));
        let left = inheritance.as_ref().map(|left| left.connections.clone());
        let bridges = Bridges::new(shared.clone(), datapath.clone(), left, seed);
        let protocols = Protocols::start(shared.clone(), datapath.clone(), uuid::Uuid::new_v4().as_u128() as u64)?;
        Ok(State {
            shared,
            datapath,
            protocols,
            bridges: RefCell::new(bridges),
            dummies: options.dummies,
            numa,
            openflow: OpenFlow::default(),
            controllers: Controllers::new(tls),
            exports: Exports::default(),
            routes: RefCell::new(Routes::new(kernel_routes)),
            armed: Cell::new(None),
            held: Cell::new((0, 0)),
            limits: Cell::new(None),
            ageing_paused: Cell::new(false),
            flow_levels: Cell::new((0, 0)),
            ufid: Cell::new(true),
            leaves_connections: Cell::new(true),
            inheritance: RefCell::new(inheritance),
            rearm: Notify::new(),
            recheck: Notify::new(),
            exit: Notify::new(),
        })
    }

    /// The datapath.
    pub(crate) fn dp(&self) -> &dyn Datapath {
        &*self.datapath
    }

    /// Sets the limits of megaflows.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.limits.set(Some(limits));
        self.apply_limits();
    }

    /// Sets how many megaflows there may be, until the configuration changes.
    pub(crate) fn set_flow_limit(&self, flows: usize) {
        let limits = self.limits.get().unwrap_or_else(|| self.dp().default_limits());
        self.set_limits(Limits { flows, ..limits });
    }

    /// Stops the ageing of megaflows, or lets it go on.
    pub(crate) fn pause_ageing(&self, paused: bool) {
        self.ageing_paused.set(paused);
        self.apply_limits();
    }

    fn apply_limits(&self) {
        /// Longer than any pause.
        const NEVER: Duration = Duration::from_secs(1_000_000_000);
        let mut limits = self.limits.get().unwrap_or_else(|| self.dp().default_limits());
        if self.ageing_paused.get() {
            (limits.idle, limits.period) = (NEVER, NEVER);
        }
        self.dp().set_limits(limits);
    }

    /// The average number of megaflows, which follows it, and the highest so far. Every run of
    /// [`State::reclaim`] takes note of the number.
    pub(crate) fn flow_levels(&self, flows: u64) -> (u64, u64) {
        let (average, most) = self.flow_levels.get();
        (average, most.max(flows))
    }

    /// The next timer of the switch's tables. The caller sleeps until then or until
    /// [`State::rearm`] is notified.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        let due = self.shared.switch.read().next_event();
        self.armed.set(due);
        due
    }

    /// Notifies `rearm` if a change of the tables made the next timer earlier.
    pub(crate) fn tables_touched(&self) {
        let due = self.shared.switch.read().next_event();
        if due.is_some_and(|due| self.armed.get().is_none_or(|armed| due < armed)) {
            self.armed.set(due);
            self.rearm.notify_one();
        }
    }

    /// Updates the tables' counters from the workers.
    pub(crate) fn collect_statistics(&self) {
        self.dp().push_stats();
        self.shared.catch_up();
    }

    /// Runs the due timers of the switch's tables.
    pub(crate) fn tick(&self) {
        // Traffic counted up to now keeps rules from expiring.
        if self.shared.switch.read().next_event() <= Some(self.shared.clock.now()) {
            self.collect_statistics();
        }
        self.shared.update(|switch, now| switch.tick(now));
        self.openflow.tables_changed(self);
    }

    /// Returns memory to the system if many megaflows or rules were removed since the last call.
    pub(crate) fn reclaim(&self) {
        /// Approximate memory of a megaflow or a rule with everything that belongs to it, in bytes.
        const EACH: u64 = 1024;
        let megaflows = self.dp().cache_stats().flows;
        let (average, most) = self.flow_levels.get();
        self.flow_levels.set(((average + megaflows) / 2, most.max(megaflows)));
        let rules = {
            let switch = self.shared.switch.read();
            let bridges = switch.bridge_names().filter_map(|name| switch.bridge(name));
            bridges.map(|bridge| bridge.tables().len() as u64).sum()
        };
        let before = self.held.replace((megaflows, rules));
        let gone = before.0.saturating_sub(megaflows) + before.1.saturating_sub(rules);
        mgmt::reclaim::freed(usize::try_from(gone * EACH).unwrap_or(usize::MAX));
    }

    /// Tells the switch the networks that lead to tunnels' other ends. Returns whether rows have to
    /// say something else of tunnels.
    pub(crate) fn settle_underlay(&self) -> bool {
        let (mut bridges, mut routes) = (self.bridges.borrow_mut(), self.routes.borrow_mut());
        bridges.settle_underlay(&mut routes)
    }

    /// Asks for neighbours of tunnels, each from the local port of its bridge.
    pub(crate) fn ask_for_neighbours(&self, wanted: &[Request]) {
        for request in wanted {
            let asked = {
                let switch = self.shared.switch.read();
                let underlay = switch.underlay();
                let bridge = underlay.bridges.get(request.bridge.as_str());
                bridge.and_then(|bridge| {
                    let source = underlay.source_for(bridge, request.address)?;
                    Some((bridge.local, request.frame(bridge.mac, source)?))
                })
            };
            let Some((local, frame)) = asked else { continue };
            let Some(key) = flow::extract(&frame, &local.into()) else {
                continue;
            };
            let upcall = dp::Upcall::new(&key, &frame);
            self.shared.send(self.dp(), local, &frame, |switch, now, patience| {
                Some(switch.translate(&upcall, now, patience))
            });
        }
    }

    /// Releases the devices of failed datapath ports.
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
