//! The daemon's loop: one thread that follows the database and the devices, and writes statuses
//! back.

use crate::bridges::Bridges;
use crate::connections;
use crate::desired::Desired;
use crate::keys::Keys;
use crate::left_flows;
use crate::own_changes::{OwnChange, OwnChanges};
use crate::rows::{self, Dummies, Tables};
use crate::state::State;
use crate::status::{Complaints, Report};
use crate::system_ids;
use anyhow::Context;
use dp::{Limits, WorkerControl};
use mgmt::idl::{ConnectionError, IdlConnection};
use netdev::{LinkEvent, LinkMonitor};
use ovsdb::idl::{Event, LockState, TxnStatus};
use ovsdb::rows::{OpenVSwitch, Ssl, TypedRow, all};
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use switch::Security;
use sys::watch::Watched;
use tokio::io::Interest;
use tokio::io::unix::AsyncFdReadyGuard;
use tokio::time::{Instant, sleep_until};

/// How often statistics are written unless `other_config:stats-update-interval` says more.
const STATS_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum interval between two ageing runs of the switch's tables: each collects all megaflows'
/// counters from the workers.
const AGEING_PAUSE: Duration = Duration::from_millis(100);

/// How long a start waits for bridge sockets that another process holds.
const LISTEN_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of database changes applied together.
const MOST_UNSEEN: u32 = 64;

/// Follows the database until it is stopped.
pub(crate) struct Daemon {
    state: Rc<State>,
    db: IdlConnection,
    links: LinkMonitor,
    /// Wakes the loop when the monitor has events.
    link_events: Watched,
    /// The same for the kernel's routes, if tunnels need them.
    route_events: Option<Watched>,
    ipsec_events: Option<Watched>,
    /// The directory of the database if this process owns it. Then the daemon also makes the root
    /// row of an empty database.
    home: Option<PathBuf>,
    /// The TLS keys, unless the embedded database manages them.
    keys: Option<Keys>,
    desired: Desired,
    /// Whether `desired` comes from the database.
    configured: bool,
    complaints: Complaints,
    /// Number of database changes not applied yet.
    unseen: u32,
    /// The transaction that identifies this system; `None` before it is submitted.
    identified: Option<u64>,
    /// The report in flight, and whether it reports a configuration.
    in_flight: Option<(u64, bool)>,
    owed: Owed,
    /// Changes of the configuration that the switch makes itself.
    own: OwnChanges,
    next_statistics: Instant,
    /// When the switch's tables last aged.
    ticked: Instant,
    contended: bool,
}

/// Waits until a socket is readable; for ever where there is none.
async fn readable(watched: Option<&Watched>) -> std::io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
    match watched {
        Some(watched) => watched.readable().await,
        None => std::future::pending().await,
    }
}

/// Watches a descriptor of the kernel's notifications, if there is one.
fn watched(what: &str, fd: Option<BorrowedFd<'_>>) -> Option<Watched> {
    let owned = fd?.try_clone_to_owned();
    let watched = owned.and_then(|fd| Watched::new(fd, Interest::READABLE));
    let complain = |error| tracing::warn!(target: "route_table", "cannot watch {what}: {error}");
    watched.map_err(complain).ok()
}

/// The pending reports.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    configuration: bool,
    links: bool,
    controllers: bool,
    protocols: bool,
    statistics: bool,
}

impl Daemon {
    pub(crate) fn new(
        state: Rc<State>,
        db: IdlConnection,
        home: Option<PathBuf>,
        keys: Option<Keys>,
    ) -> anyhow::Result<Daemon> {
        let links = LinkMonitor::open().context("opening a netlink socket")?;
        let link_events = Watched::new(links.fd().try_clone_to_owned()?, Interest::READABLE)?;
        Ok(Daemon {
            state,
            db,
            links,
            link_events,
            route_events: None,
            ipsec_events: None,
            home,
            keys,
            desired: Desired::default(),
            configured: false,
            complaints: Complaints::default(),
            unseen: 0,
            identified: None,
            in_flight: None,
            owed: Owed::default(),
            own: OwnChanges::default(),
            next_statistics: Instant::now() + STATS_INTERVAL,
            ticked: Instant::now(),
            contended: false,
        })
    }

    /// Runs until a control command or an error ends it. Calls `ready` once the configuration is
    /// applied and all bridges' sockets listen. Fails if one of these sockets cannot listen within
    /// 10 s after the first configuration; sockets of later bridges are tried again.
    pub(crate) async fn run(mut self, ready: impl FnOnce()) -> anyhow::Result<()> {
        match netdev::remove_leftovers() {
            Ok(devices) if devices.is_empty() => {}
            Ok(devices) => tracing::info!(
                "{}: removed the filter of a process that was killed",
                devices.join(", ")
            ),
            Err(error) => tracing::warn!("cannot look for filters of processes that were killed: {error}"),
        }
        let mut ready = Some(ready);
        let mut listen_by = None;
        loop {
            self.report();
            if self.settled()
                && let Some(ready) = ready.take()
            {
                if !self.contended {
                    left_flows::configured(&self.state, &self.desired);
                }
                ready();
            }
            if self.configured && listen_by.is_none() {
                listen_by = Some(Instant::now() + LISTEN_PATIENCE);
            }
            let state = self.state.clone();
            let ageing = self.next_ageing();
            let retry = state.bridges.borrow().next_retry();
            tokio::select! {
                biased;
                () = state.exit.notified() => return Ok(()),
                event = self.db.event(), if self.unseen < MOST_UNSEEN => self.database_event(event)?,
                () = std::future::ready(()), if self.unseen > 0 => self.reconfigure(),
                ready = self.link_events.readable() => {
                    ready?.clear_ready();
                    let events = self.links.next();
                    self.links_changed(&events);
                }
                ready = readable(self.route_events.as_ref()) => {
                    ready?.clear_ready();
                    self.owed.configuration |= state.settle_underlay();
                }
                ready = readable(self.ipsec_events.as_ref()) => {
                    ready?.clear_ready();
                    let lost = state.bridges.borrow_mut().may_have_lost_ipsec();
                    self.owed.configuration |= lost && state.settle_underlay();
                }
                told = state.shared.path_mtus.take() => state.learn_path_mtus(&told),
                wanted = state.shared.wanted_neighbours() => state.ask_for_neighbours(&wanted),
                failed = state.shared.failed_ports() => {
                    state.forget_ports(&failed);
                    self.reconfigure();
                }
                () = sleep_until(retry.unwrap_or_else(std::time::Instant::now).into()), if retry.is_some() => {
                    let changed = state.bridges.borrow_mut().retry();
                    if changed {
                        self.reconfigure();
                    }
                }
                () = state.openflow.listening.notified() => {}
                () = sleep_until(listen_by.unwrap_or_else(Instant::now)),
                    if listen_by.is_some() && ready.is_some() && self.unbound().is_some() =>
                {
                    let (socket, error) = self.unbound().unwrap_or_default();
                    if !error.is_empty() {
                        anyhow::bail!("cannot listen at {socket}: {error}");
                    }
                    // Nobody has tried yet.
                    listen_by = Some(Instant::now() + Duration::from_millis(100));
                }
                () = state.shared.secured_notify.notified() => self.follow_security(),
                () = state.protocols.changed.notified() => {
                    self.owed.protocols = true;
                    state.openflow.links_changed(&state, &state.bridges.borrow());
                }
                () = state.controllers.changed.notified() => self.owed.controllers = true,
                () = async { tokio::select! {
                    () = state.recheck.notified() => {}
                    () = state.shared.carriers_notify.notified() => {}
                } } => {
                    state.bridges.borrow_mut().look_at_all();
                    self.reconfigure();
                }
                () = sleep_until(ageing) => {
                    state.tick();
                    self.ticked = Instant::now();
                }
                () = state.rearm.notified() => {}
                () = sleep_until(self.next_statistics) => {
                    self.owed.statistics = true;
                    state.bridges.borrow_mut().warn_of_contenders();
                    self.state.reclaim();
                    if self.state.dp().workers().is_some_and(WorkerControl::sample) {
                        tracing::info!(target: "dpif_netdev", "rebalanced receive queues by load");
                    }
                    self.next_statistics = Instant::now() + self.desired.stats_interval.unwrap_or(STATS_INTERVAL);
                }
            }
        }
    }

    /// Writes sticky addresses and shut ports to the database, and logs the latter.
    fn follow_security(&mut self) {
        for done in self.state.shared.take_secured() {
            let bridge = self.desired.bridges.get(&done.bridge);
            let Some(port) = bridge.and_then(|bridge| bridge.ports.get(&done.port)) else {
                continue;
            };
            let (bridge, name, mac, vlan) = (&done.bridge, &done.port, done.mac, done.vlan.get());
            let mut sticky = |add| {
                self.own.extend([OwnChange::Sticky {
                    port: port.uuid,
                    station: (done.vlan, done.mac),
                    add,
                }]);
            };
            match done.what {
                Security::Sticky => sticky(true),
                Security::Released => sticky(false),
                Security::Shut => {
                    tracing::warn!(target: "bridge", "bridge {bridge}: port {name} is shut: {mac} in VLAN {vlan} is one address too many");
                }
                Security::Opened => {
                    tracing::info!(target: "bridge", "bridge {bridge}: port {name} is open again");
                }
            }
            self.owed.protocols = true;
        }
    }

    /// Tells the switch the routes that tunnels take, now and when they change, and restores
    /// policies of IPsec that go.
    fn follow_routes(&mut self) {
        self.state.settle_underlay();
        if self.route_events.is_none() {
            self.route_events = watched("the kernel's routes", self.state.routes.borrow().events());
        }
        if self.ipsec_events.is_none() {
            self.ipsec_events = watched("policies of IPsec", self.state.bridges.borrow().ipsec_events());
        }
    }

    /// Whether the configuration is applied and reported and all sockets listen, or another daemon
    /// holds the lock.
    fn settled(&self) -> bool {
        let reported = self.in_flight.is_none() && !self.owed.configuration;
        let waits = || self.state.bridges.borrow().is_retrying_soon() || self.unbound().is_some();
        self.contended || (self.configured && reported && !waits())
    }

    /// A bridge socket that is not listening, and why; no reason before the first attempt.
    fn unbound(&self) -> Option<(String, String)> {
        self.state.openflow.unbound()
    }

    /// When the switch's tables age next. MAC addresses learned meanwhile are not due before the
    /// statistics timer; new rules notify `rearm`.
    fn next_ageing(&self) -> Instant {
        let clock = &self.state.shared.clock;
        let due = self.state.next_event();
        let wait = due.map(|due| Duration::from_nanos(due.0.saturating_sub(clock.now().0)));
        (Instant::now() + wait.unwrap_or(Duration::from_secs(3600))).max(self.ticked + AGEING_PAUSE)
    }

    /// Records a database change. Changes that are available at once are applied together.
    fn database_event(&mut self, event: Result<Event, ConnectionError>) -> anyhow::Result<()> {
        match event.context("the connection to the database failed")? {
            Event::Changed => self.unseen += 1,
            Event::Lock(_) => {
                self.lock_changed();
                self.unseen += 1;
            }
            Event::Committed(id, TxnStatus::TryAgain | TxnStatus::NotLocked) if self.identified == Some(id) => {
                self.identified = None;
                self.unseen += 1;
            }
            Event::Committed(id, status) => {
                if let Some((_, configuration)) = self.in_flight.take_if(|(ours, _)| *ours == id) {
                    self.reported(status, configuration);
                }
            }
            Event::Holder(_) | Event::Alive => {}
        }
        Ok(())
    }

    fn lock_changed(&mut self) {
        let contended = self.db.idl().lock_state() == LockState::Contended;
        if contended && !self.contended {
            tracing::error!(target: "bridge", "another ovs-vswitchd process is running, disabling this process (pid {}) until it goes away", std::process::id());
        }
        self.contended = contended;
    }

    fn reported(&mut self, status: TxnStatus, configuration: bool) {
        self.own.settle(&status);
        match status {
            TxnStatus::Error(error) => {
                tracing::error!(target: "bridge", "the database refused the switch's status: {error}");
            }
            // The next report is built from the fresh replica once the lock and the connection are
            // back.
            TxnStatus::TryAgain | TxnStatus::NotLocked => {
                self.owed.links = true;
                self.owed.controllers = true;
                self.owed.protocols = true;
                self.owed.configuration |= configuration;
            }
            TxnStatus::Incomplete | TxnStatus::Unchanged | TxnStatus::Success { .. } => {}
        }
    }

    fn links_changed(&mut self, events: &[LinkEvent]) {
        let mut reconfigure = false;
        {
            let mut bridges = self.state.bridges.borrow_mut();
            let names = events.iter().map(|event| event.name.as_str());
            let mut ours: BTreeSet<&str> = names.filter(|name| bridges.has_device(name).is_some()).collect();
            // The kernel may tell of one carrier at once, and of the next one that is lost with it
            // up to a second later: a bond must not move to such a member.
            if !ours.is_empty() {
                for member in self.desired.bonded() {
                    if !ours.contains(member) && bridges.look_at(member) {
                        ours.insert(member);
                        reconfigure = true;
                    }
                }
            }
            self.state.dp().links_changed(&ours);
            for event in events {
                let Some(open) = bridges.has_device(&event.name) else {
                    continue;
                };
                self.owed.links = true;
                if open && event.deleted {
                    tracing::info!(target: "netdev", "{}: the device is gone", event.name);
                    bridges.forget(&event.name);
                    reconfigure = true;
                } else if open {
                    if !event.owner.is_empty() {
                        bridges.warn_of_owner(&event.name, &event.owner);
                    }
                    reconfigure |= bridges.look_at(&event.name);
                } else {
                    reconfigure |= !event.deleted;
                }
            }
            self.state.openflow.links_changed(&self.state, &bridges);
        }
        if reconfigure {
            self.reconfigure();
        } else if self.state.bridges.borrow().has_tunnels() {
            // A carrier may have changed, or a device of the kernel released a port.
            self.owed.configuration |= self.state.settle_underlay();
        }
    }

    /// Makes everything as the database says, if this daemon is the one to do it.
    fn reconfigure(&mut self) {
        self.unseen = 0;
        if self.contended {
            let nothing = Desired::default();
            let mut bridges = self.state.bridges.borrow_mut();
            bridges.apply(&nothing);
            bridges.end_host_tunnels();
            self.state.openflow.follow(&self.state, &nothing, &bridges);
            self.state.controllers.follow(&self.state, &nothing, &bridges);
            self.state.protocols.follow(&nothing, &bridges);
            return;
        }
        if self.db.idl().lock_state() != LockState::Held || !self.db.idl().is_synced() {
            return;
        }
        match self.tables() {
            Ok(tables) if tables.root.is_none() && self.home.is_some() => self.insert_root(),
            Ok(tables) => {
                self.desired = rows::desired(&tables, self.state.dummies);
                if let Some(keys) = &self.keys {
                    keys.apply(tables.ssl.as_ref());
                }
                let mut bridges = self.state.bridges.borrow_mut();
                self.desired.workers.start_workers(self.state.dp(), &self.state.numa);
                let defaults = self.state.dp().default_limits();
                let idle = self.desired.max_idle.unwrap_or(defaults.idle);
                self.state.set_limits(Limits {
                    flows: self.desired.flow_limit.unwrap_or(defaults.flows),
                    idle,
                    period: self.desired.max_revalidator.unwrap_or(defaults.period).min(idle),
                });
                bridges.apply(&self.desired);
                if bridges.take_altered() && self.configured {
                    left_flows::end(&self.state, "the configuration has changed");
                }
                self.desired
                    .workers
                    .place_queues(self.state.dp(), &bridges, &self.state.numa);
                self.complaints.about(&self.desired, &bridges);
                drop(bridges);
                self.follow_routes();
                self.state.forget_dead_meters();
                let bridges = self.state.bridges.borrow();
                // Before OpenFlow, which reports the states of ports in spanning trees.
                self.state.protocols.follow(&self.desired, &bridges);
                self.state.openflow.follow(&self.state, &self.desired, &bridges);
                self.state.controllers.follow(&self.state, &self.desired, &bridges);
                self.state.exports.follow(&self.state, &self.desired, &bridges);
                self.owed.configuration = true;
                self.configured = true;
                drop(bridges);
                self.identify(tables.root.as_ref());
            }
            Err(error) => tracing::error!(target: "bridge", "cannot read the configuration: {error:#}"),
        }
    }

    fn tables(&self) -> anyhow::Result<Tables> {
        let replica = self.db.idl().tables();
        Ok(Tables {
            root: all::<OpenVSwitch>(replica)?.into_values().next(),
            bridges: all(replica)?,
            ports: all(replica)?,
            interfaces: all(replica)?,
            mirrors: all(replica)?,
            auto_attaches: all(replica)?,
            netflows: all(replica)?,
            sflows: all(replica)?,
            ipfixes: all(replica)?,
            sample_sets: all(replica)?,
            flow_tables: all(replica)?,
            ssl: all::<Ssl>(replica)?.into_values().next(),
            controllers: all(replica)?,
            managers: all(replica)?,
            qos: all(replica)?,
            queues: all(replica)?,
            datapaths: all(replica)?,
            ct_zones: all(replica)?,
            ct_timeout_policies: all(replica)?,
        })
    }

    fn insert_root(&mut self) {
        let mut txn = self.db.idl_mut().txn();
        txn.insert(OpenVSwitch::TABLE);
        txn.comment("oxvs: initializing the database");
        self.db.submit(txn);
    }

    /// Writes the system's identity once, if this process owns the database. For a separate
    /// database process, `ovs-ctl start` does that.
    fn identify(&mut self, root: Option<&OpenVSwitch>) {
        let (Some(root), Some(home), None) = (root, &self.home, self.identified) else {
            return;
        };
        let mut txn = self.db.idl_mut().txn();
        system_ids::complete(root, home, &mut txn);
        self.identified = Some(self.db.submit(txn));
    }

    /// Writes pending reports to the database, one transaction at a time.
    fn report(&mut self) {
        let owed = self.owed;
        let due = owed.configuration || owed.links || owed.controllers || owed.protocols || owed.statistics;
        if !due || self.in_flight.is_some() || !self.db.is_connected() || self.db.idl().lock_state() != LockState::Held
        {
            return;
        }
        self.owed = Owed::default();
        let txn = self.db.idl_mut().txn();
        let bridges: &Bridges = &self.state.bridges.borrow();
        let tables = self.db.idl().tables();
        let mut report = Report { tables, txn };
        if owed.configuration {
            let root = all::<OpenVSwitch>(tables)
                .ok()
                .and_then(|rows| rows.into_values().next());
            if let Some(root) = root {
                report.configuration(&self.desired, bridges);
                report.root(&root, self.state.dummies != Dummies::Off);
            }
        }
        report.links(bridges);
        if owed.configuration || owed.controllers || owed.statistics {
            report.controllers(self.state.controllers.statuses(self.state.shared.clock.now()));
        }
        if owed.configuration || owed.protocols {
            self.state.protocols.look(|services| {
                report.aggregations(&self.desired, &services.aggregations);
                report.liveness(&self.desired, services);
            });
            self.own.extend(self.state.protocols.take_own_changes());
            self.own.write(report.tables, &mut report.txn);
        }
        if owed.configuration || owed.protocols || owed.statistics {
            let now = self.state.shared.clock.now();
            // Reading the tables may wait: not while holding the services, which hellos need.
            let trees = self.state.protocols.look(|services| {
                let names = self.desired.bridges.keys();
                names
                    .map(|name| (name.clone(), services.trees.report(name, now)))
                    .collect()
            });
            report.statuses(&self.desired, bridges, trees, &self.state.shared.switch.read());
        }
        if owed.configuration || owed.statistics {
            let switch = self.state.shared.switch.read();
            report.statistics(bridges, self.state.dp(), &switch);
            report.mirrors(&self.desired, &switch);
        }
        let txn = report.txn;
        if !txn.is_empty() {
            self.in_flight = Some((self.db.submit(txn), owed.configuration));
        }
    }
}

impl Drop for Daemon {
    /// Releases all devices before the process removes its pidfile.
    fn drop(&mut self) {
        // After a panic they may still be borrowed; then the kernel releases the devices.
        let state = &self.state;
        let leaves = self.configured && !self.contended && state.leaves_connections.get() && !std::thread::panicking();
        // Flows of the process before are not left a second time. A process that has forwarded
        // nothing yet does not end them, so that the next one can.
        let inherits = state.inheritance.borrow().is_some();
        if self.configured
            && let Some(tidying) = left_flows::end(state, "the switch ends")
        {
            let _ = tidying.join();
        }
        let time = self.desired.workers.offload_hand_over;
        let hand_over = |stays| connections::hand_over(state.dp().conntrack(), stays, state.dp().now());
        let left =
            leaves && !inherits && !time.is_zero() && left_flows::leave(&state.datapath, time, || hand_over(true));
        if let Ok(mut bridges) = self.state.bridges.try_borrow_mut() {
            bridges.apply(&Desired::default());
            bridges.end_host_tunnels();
            drop(bridges);
            // Nobody forwards packets any more. With this the lock of the database goes, and
            // another process may go on.
            if leaves && !left {
                hand_over(false);
            }
        }
    }
}
