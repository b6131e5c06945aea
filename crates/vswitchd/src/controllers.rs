//! Controllers: their settings (`config`), their connections (`link`), in-band control (`in_band`),
//! and standalone switching when none answers (`fail_open`).

mod addresses;
pub(crate) mod config;
mod fail_open;
mod in_band;
mod link;

use crate::bridges::Bridges;
use crate::desired::{Bridge, Desired};
use crate::state::State;
use fail_open::{Contact, TRIAL};
use in_band::InBand;
use link::Link;
use mgmt::stream::{Remote, Tls};
use nanos::Nanos;
use ofproto::{ConnId, Kind};
use openflow::model::{FlowCommand, FlowMod, Role};
use ovsdb::Uuid;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::rc::{Rc, Weak};
use std::time::Duration;
use switch::FailMode;
use switch::tables::HiddenRule;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::timeout;
use wire::MacAddr;

/// How often the next hops of in-band remotes are looked up.
const REFRESH: Duration = Duration::from_secs(10);

/// Timeout of a name lookup.
const LOOKUP: Duration = Duration::from_secs(2);

/// The controllers of all bridges.
#[derive(Default)]
pub(crate) struct Controllers {
    tls: Tls,
    bridges: RefCell<BTreeMap<String, Controlled>>,
    /// For each bridge, whether it has primary controllers.
    given: RefCell<BTreeMap<String, bool>>,
    /// Notified when a column of a controller's row must change.
    pub(crate) changed: Rc<Notify>,
}

/// A bridge's controllers, and the task that keeps its hidden rules.
struct Controlled {
    links: BTreeMap<Uuid, Link>,
    plan: Rc<RefCell<Plan>>,
    /// Notified when the task must check again.
    look: Rc<Notify>,
    watch: AbortHandle,
}

/// The part of the configuration that the task needs.
#[derive(Clone, Default, PartialEq, Eq)]
struct Plan {
    standalone: bool,
    /// The local port's address, where control is in-band.
    local: Option<MacAddr>,
    remotes: Vec<Remote>,
    queue: Option<u32>,
}

/// The state of a controller in its row.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) is_connected: bool,
    pub(crate) role: Option<&'static str>,
    pub(crate) status: BTreeMap<String, String>,
}

impl Controllers {
    pub(crate) fn new(tls: Tls) -> Controllers {
        Controllers {
            tls,
            ..Controllers::default()
        }
    }

    /// Opens and closes connections to match the configuration.
    pub(crate) fn follow(&self, state: &Rc<State>, desired: &Desired, there: &Bridges) {
        self.hand_over(state, desired);
        let mut all = self.bridges.borrow_mut();
        all.retain(|name, controlled| {
            let stays = desired
                .bridges
                .get(name)
                .is_some_and(|bridge| !bridge.controllers.is_empty());
            if !stays {
                controlled.watch.abort();
                give(state, name, Vec::new(), false);
            }
            stays
        });
        for (name, bridge) in desired
            .bridges
            .iter()
            .filter(|(_, bridge)| !bridge.controllers.is_empty())
        {
            let controlled = all
                .entry(name.clone())
                .or_insert_with(|| Controlled::start(state, name));
            controlled.follow(self, state, name, bridge);
            let plan = plan(name, bridge, desired, there);
            if *controlled.plan.borrow() != plan {
                *controlled.plan.borrow_mut() = plan;
            }
            controlled.look.notify_one();
        }
    }

    /// As in Open vSwitch, a bridge loses its rules when it gets its first controller or loses its
    /// last one. The change itself resets a bridge that becomes standalone.
    fn hand_over(&self, state: &State, desired: &Desired) {
        let now: BTreeMap<String, bool> = desired
            .bridges
            .iter()
            .map(|(name, bridge)| (name.clone(), bridge.is_controlled()))
            .collect();
        let before = self.given.replace(now.clone());
        for (name, given) in now {
            if before.get(&name).is_some_and(|before| *before != given) {
                let all = FlowMod {
                    command: FlowCommand::Delete,
                    ..FlowMod::default()
                };
                if desired.bridges[&name].fail_mode == FailMode::Secure {
                    state
                        .shared
                        .update(|switch, now| switch.flow_mod(&name, &all, now).unwrap_or_default());
                }
            }
        }
    }

    /// Whether a bridge has primary controllers, connected or not.
    pub(crate) fn are_given(&self, bridge: &str) -> bool {
        self.given.borrow().get(bridge).copied().unwrap_or_default()
    }

    /// The state of each controller, by row.
    pub(crate) fn statuses(&self, now: Nanos) -> Vec<(Uuid, Status)> {
        let all = self.bridges.borrow();
        let links = all.values().flat_map(|controlled| &controlled.links);
        links.map(|(uuid, link)| (*uuid, status(link, now))).collect()
    }
}

impl Controlled {
    fn start(state: &Rc<State>, name: &str) -> Controlled {
        let (plan, look) = (Rc::new(RefCell::new(Plan::default())), Rc::new(Notify::new()));
        let watch = spawn_local(watch(Rc::downgrade(state), name.to_owned(), plan.clone(), look.clone()));
        Controlled {
            links: BTreeMap::new(),
            plan,
            look,
            watch: watch.abort_handle(),
        }
    }

    fn follow(&mut self, controllers: &Controllers, state: &Rc<State>, name: &str, bridge: &Bridge) {
        let Some(agent) = state.openflow.bridge(name) else {
            return;
        };
        self.links.retain(|uuid, link| {
            let wanted = bridge.controllers.iter().find(|wanted| wanted.uuid == *uuid);
            wanted == Some(&link.controller) && link.agent.upgrade().is_some_and(|there| Rc::ptr_eq(&there, &agent))
        });
        for wanted in &bridge.controllers {
            self.links.entry(wanted.uuid).or_insert_with(|| {
                let (look, changed) = (self.look.clone(), controllers.changed.clone());
                let ring = move || {
                    look.notify_one();
                    changed.notify_one();
                };
                Link::start(state, &agent, &controllers.tls, name, wanted.clone(), ring)
            });
        }
    }
}

impl Drop for Controlled {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

fn plan(name: &str, bridge: &Bridge, desired: &Desired, there: &Bridges) -> Plan {
    let local = || {
        there
            .state()
            .get(name)?
            .interfaces
            .get(name)?
            .link
            .as_ref()
            .map(|link| link.mac)
    };
    let controllers = bridge.controllers.iter().filter(|controller| controller.in_band);
    let in_band = !bridge.disable_in_band;
    let remotes: Vec<Remote> = controllers
        .filter_map(|controller| controller.remote.clone().ok())
        .chain(desired.managers.iter().cloned())
        .filter(|remote| !remote.is_passive() && !remote.is_local())
        .collect();
    Plan {
        standalone: bridge.fail_mode == FailMode::Standalone,
        local: local().filter(|_| in_band && !remotes.is_empty()),
        remotes,
        queue: bridge.in_band_queue,
    }
}

/// Sets a bridge's hidden rules and whether its control is in-band.
fn give(state: &State, name: &str, rules: Vec<HiddenRule>, in_band: bool) {
    state.shared.update(|switch, now| {
        let mut changes = switch.set_hidden_rules(name, rules, now);
        changes.extend(switch.set_in_band(name, in_band));
        changes
    });
}

/// Keeps a bridge's hidden rules up to date.
async fn watch(state: Weak<State>, name: String, plan: Rc<RefCell<Plan>>, look: Rc<Notify>) {
    let mut alone = false;
    loop {
        let now_plan = plan.borrow().clone();
        let in_band = match now_plan.local {
            Some(local) => Some(in_band(&name, local, &now_plan).await),
            None => None,
        };
        let Some(strong) = state.upgrade() else { return };
        let now = strong.shared.clock.now();
        let (contacts, trial) = contacts(&strong, &name, now);
        let due = fail_open::due(&contacts).filter(|_| now_plan.standalone);
        let trial = trial.filter(|_| now_plan.standalone);
        let is_due = due.is_some_and(|due| due <= now);
        if is_due != alone {
            alone = is_due;
            match alone {
                true => {
                    tracing::warn!(target: "fail_open", "{name}: could not connect to a controller, failing open")
                }
                false => tracing::info!(target: "fail_open", "{name}: no longer in fail-open mode"),
            }
        }
        let mut rules = in_band.as_ref().map(InBand::rules).unwrap_or_default();
        rules.extend(alone.then(in_band::fail_open));
        give(&strong, &name, rules, in_band.is_some());
        drop(strong);
        let times = [due.filter(|_| !alone), trial];
        let until = times.into_iter().flatten().min();
        let until_due = until.map(|until| Duration::from_nanos(until.0.saturating_sub(now.0)));
        let refresh = in_band.map(|_| REFRESH);
        match until_due.into_iter().chain(refresh).min() {
            // A timer may fire a little early; a millisecond more keeps it from firing twice.
            Some(wait) => drop(timeout(wait + Duration::from_millis(1), look.notified()).await),
            None => look.notified().await,
        }
    }
}

async fn in_band(name: &str, local: MacAddr, plan: &Plan) -> InBand {
    let mut in_band = InBand {
        local,
        queue: plan.queue,
        ..InBand::default()
    };
    for remote in &plan.remotes {
        let (Remote::Tcp { host, port } | Remote::Ssl { host, port }) = remote else {
            continue;
        };
        if let Some(address) = resolve(host, *port).await {
            in_band.remotes.insert((address, *port));
        }
    }
    let addresses: BTreeSet<Ipv4Addr> = in_band.remotes.iter().map(|(address, _)| *address).collect();
    in_band.next_hops = addresses
        .into_iter()
        .filter_map(|to| addresses::next_hop(to, name))
        .collect();
    in_band
}

async fn resolve(host: &str, port: u16) -> Option<Ipv4Addr> {
    if let Ok(address) = host.parse() {
        return Some(address);
    }
    let found = timeout(LOOKUP, tokio::net::lookup_host((host, port)))
        .await
        .ok()?
        .ok()?;
    found.into_iter().find_map(|address| match address.ip() {
        std::net::IpAddr::V4(address) => Some(address),
        std::net::IpAddr::V6(_) => None,
    })
}

/// The states of a bridge's primary controllers, and when the next trial ends.
fn contacts(state: &State, name: &str, now: Nanos) -> (Vec<Contact>, Option<Nanos>) {
    let mut trials = None;
    let all = state.controllers.bridges.borrow();
    let links = all
        .get(name)
        .into_iter()
        .flat_map(|controlled| controlled.links.values());
    let primary = links.filter(|link| link.controller.settings.kind == Kind::Primary);
    let contact = |link: &Link| {
        let mut shown = link.shown.borrow_mut();
        let agent = link.agent.upgrade();
        let is_admitted = |id: &ConnId| agent.as_ref().is_some_and(|agent| agent.is_admitted(*id));
        let mut connected = false;
        for (id, began) in &shown.up {
            let stays = is_admitted(id) || now >= *began + TRIAL;
            connected |= stays;
            if !stays {
                trials = trials.into_iter().chain([*began + TRIAL]).min();
            }
        }
        if connected {
            shown.last = now;
            shown.was_there = true;
        } else if std::mem::take(&mut shown.was_there) {
            shown.last = now;
        }
        Contact {
            connected,
            since: shown.last,
            probe: link.controller.settings.probe,
        }
    };
    let contacts = primary.map(contact).collect();
    (contacts, trials)
}

fn status(link: &Link, now: Nanos) -> Status {
    let shown = link.shown.borrow();
    let role = |id: &ConnId| {
        Some(match link.agent.upgrade()?.role(*id)? {
            Role::Master => "master",
            Role::Slave => "slave",
            _ => "other",
        })
    };
    let mut limits = BTreeMap::new();
    let mut pairs: Vec<(&str, String)> = match &shown.machine {
        Some(machine) => machine.status(now),
        None => {
            let since = shown
                .up
                .values()
                .max()
                .map(|since| now.since(*since).as_secs().to_string());
            let state = since.as_ref().map(|_| ("state", "ACTIVE".to_owned()));
            let since = since.map(|since| ("sec_since_connect", since));
            state.into_iter().chain(since).collect()
        }
    };
    let limited = shown
        .up
        .keys()
        .next_back()
        .and_then(|id| link.agent.upgrade()?.limited(*id));
    for (kind, stats) in limited
        .into_iter()
        .flat_map(|stats| ["miss", "action"].into_iter().zip(stats))
    {
        let counts = [
            ("bypassed", stats.bypassed),
            ("queued", stats.queued),
            ("dropped", stats.dropped),
            ("backlog", stats.backlog as u64),
        ];
        let named = counts.map(|(name, count)| (format!("packet-in-{kind}-{name}"), count.to_string()));
        limits.extend(named);
    }
    if shown.up.len() > 1 {
        pairs.push(("n_connections", shown.up.len().to_string()));
    }
    pairs.extend(shown.fault.as_ref().map(|fault| ("last_error", fault.clone())));
    let owned = |(key, value): (&str, String)| (key.to_owned(), value);
    Status {
        is_connected: !shown.up.is_empty(),
        role: shown.up.keys().next_back().and_then(role),
        status: pairs.into_iter().map(owned).chain(limits).collect(),
    }
}
