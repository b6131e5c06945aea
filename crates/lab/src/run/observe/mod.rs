//! Observations other than flows.
//!
//! [`work`] is the hosts' part: traffic and [`crate::traffic::observe`]. An [`Observer`] starts
//! before it and ends after it: `application`: real programs on hosts; `cut`: a cable;
//! `liveness`: what BFD and LACP say of links; `openflow`: requests to the switch during the
//! traffic, and rules before the run; `effect`: from a rule to its effect; `addresses`: the size
//! of a learning switch's table; `mininet`: Mininet's own tests; `watch`: what the switch tells
//! of its traffic; `usage`: its processor time and memory; `gaps`: delays of a
//! known flow while the switch is busy.

mod addresses;
mod application;
mod cut;
mod effect;
mod gaps;
mod liveness;
mod mininet;
mod openflow;
mod usage;
mod watch;

pub(crate) use openflow::{control, prepare};
pub(crate) use usage::{Used, usage};

use super::stage::Table;
use crate::controller::Measured;
use crate::scenario::{Observe, Setup};
use crate::traffic::capture::Captured;
use crate::traffic::observe::{Broadcasts, broadcast, check, idle, reachability, replay, witness, witnessed};
use crate::traffic::protocol::Outcome;
use crate::traffic::rfc2544::{Suite, rfc2544};
use crate::traffic::{self, Ends, Flow, Remote};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::time::Duration;

/// Work that is done while traffic flows, from the end of the warm-up on, for as long as is
/// measured or as it takes.
pub(crate) type Meanwhile = Box<dyn FnOnce() -> Result<Measured> + Send>;

/// Something that observes. Dropping it ends it.
pub(crate) trait Observer {
    /// Its work during the traffic, if any; called once.
    fn meanwhile(&mut self) -> Option<Meanwhile> {
        None
    }

    /// Called with the measured time so far.
    ///
    /// # Errors
    /// An action due then failed.
    fn at(&mut self, _measured_for: Duration) -> Result<()> {
        Ok(())
    }

    /// The run is given up; its work must end soon.
    fn stop(&mut self) {}

    /// Called after the traffic.
    ///
    /// # Errors
    /// The switch does not do what is asked.
    fn after(&mut self, _table: &mut Table) -> Result<()> {
        Ok(())
    }

    /// Ends and returns the observations.
    ///
    /// # Errors
    /// It could not observe.
    fn end(self: Box<Self>, seen: &Seen<'_>) -> Result<Measured>;
}

/// Further information at the end.
pub(crate) struct Seen<'a> {
    /// The cell's setup.
    pub(crate) setup: &'a Setup,
    /// Of the flows.
    pub(crate) metrics: &'a BTreeMap<String, f64>,
    /// The results of the traffic.
    pub(crate) brought: Measured,
}

/// Starts the observers of a cell, by name.
///
/// # Errors
/// An observation that is not possible here, and why.
pub(crate) fn begin(table: &mut Table, setup: &Setup) -> Result<Vec<(String, Box<dyn Observer>)>> {
    let mut observers: Vec<(String, Box<dyn Observer>)> = Vec::new();
    for observation in &setup.observed {
        let observer: Box<dyn Observer> = match &observation.what {
            // These are the hosts' work, or follow from it.
            Observe::Fairness { .. }
            | Observe::Reachability { .. }
            | Observe::Idle {}
            | Observe::Capture { .. }
            | Observe::Rfc2544 { .. }
            | Observe::Replay { .. }
            | Observe::Witness { .. }
            | Observe::Usage { .. }
            | Observe::Broadcast { .. } => {
                continue;
            }
            Observe::Cut {
                between: (a, b),
                which,
                by,
                after,
            } => Box::new(cut::Cut::begin(table, (a, b), *which, *by, *after * setup.seconds)?),
            Observe::Liveness { between: (a, b) } => Box::new(liveness::Liveness::begin(table, setup, (a, b))?),
            Observe::Application {
                application,
                from,
                to,
                connections,
                size,
                fresh,
            } => Box::new(application::Served::begin(
                table,
                setup,
                &application::Asked {
                    application: *application,
                    from,
                    to,
                    connections: *connections,
                    size: *size,
                    fresh: *fresh,
                },
            )?),
            Observe::Mininet { topology, rate } => Box::new(mininet::Mininet::begin(table, setup, topology, *rate)?),
            Observe::Watch {
                by,
                one_in,
                bridge,
                from,
                to,
            } => Box::new(watch::Watch::begin(
                table,
                &watch::Asked {
                    by: *by,
                    one_in: *one_in,
                    bridge,
                    from,
                    to,
                },
            )?),
            Observe::Gaps {
                during,
                number,
                priority,
            } => Box::new(gaps::Gaps::begin(
                table,
                setup,
                &gaps::Asked {
                    during: *during,
                    number: *number,
                    priority: *priority,
                },
            )?),
            Observe::Addresses { at_most } => Box::new(addresses::Addresses::begin(table, setup, *at_most)?),
            what => openflow::begin(table, setup, what)?,
        };
        observers.push((observation.name.clone(), observer));
    }
    Ok(observers)
}

/// Why a cell's observation is not possible on this machine; none if it is.
pub(crate) fn missing(setup: &Setup) -> Option<String> {
    let mut observations = setup.observed.iter();
    observations.find_map(|observation| match &observation.what {
        Observe::Mininet { .. } => mininet::missing(),
        Observe::Application { application, .. } => application::missing(*application),
        _ => None,
    })
}

/// Whether the measurement's duration is not the configured one.
pub(crate) fn takes_its_time(setup: &Setup) -> bool {
    let takes = |what: &Observe| {
        matches!(
            what,
            Observe::Mininet { .. } | Observe::Rfc2544 { .. } | Observe::Gaps { .. }
        )
    };
    setup.observed.iter().any(|observation| takes(&observation.what))
}

/// Whether hosts do something other than flows, without a warm-up.
pub(crate) fn is_special(setup: &Setup) -> bool {
    let special = |what: &Observe| {
        matches!(
            what,
            Observe::Reachability { .. }
                | Observe::Idle {}
                | Observe::Capture { .. }
                | Observe::Rfc2544 { .. }
                | Observe::Replay { .. }
                | Observe::Broadcast { .. }
        )
    };
    setup.observed.iter().any(|observation| special(&observation.what))
}

/// The work of a cell's hosts.
///
/// # Errors
/// Those of the parts: a host that has gone, a test that cannot be made.
pub(crate) fn work(ends: &Ends, setup: &Setup) -> Result<traffic::Measured> {
    let mut all = traffic::Measured::default();
    let mut sent: Vec<&str> = Vec::new();
    for observation in &setup.observed {
        let name = observation.name.as_str();
        let measured = match &observation.what {
            Observe::Reachability { groups } => reachability(ends, name, groups)?,
            Observe::Idle {} => idle(ends, name, setup.seconds)?,
            Observe::Broadcast { from, rate, payload } => {
                let broadcasts = Broadcasts {
                    from,
                    rate: *rate,
                    payload: *payload,
                };
                // Its cost follows from the switch's processor time, which this thread does not
                // know.
                broadcast(ends, &setup.topology, name, broadcasts, setup.seconds, &|| 0.0)?
            }
            Observe::Replay { from, to, file, speed } => replay(ends, name, (from, to), (file, *speed), setup.seconds)?,
            Observe::Rfc2544 {
                from,
                beside,
                to,
                payload,
                imix,
                most,
                resolution,
                whole,
            } => {
                let suite = Suite {
                    from,
                    beside,
                    to,
                    payload: *payload,
                    imix: *imix,
                    most: *most,
                    resolution: *resolution,
                    whole: *whole,
                    seconds: setup.seconds,
                };
                rfc2544(ends, name, suite)?
            }
            Observe::Capture { flow } => {
                let known = setup.measured.iter().find(|known| known.name == *flow);
                let known = known.with_context(|| format!("there is no flow '{flow}' to capture"))?;
                sent.push(flow);
                check(ends, name, known, setup.seconds)?
            }
            _ => continue,
        };
        all.add(measured);
    }
    let rest: Vec<Flow> = setup
        .measured
        .iter()
        .filter(|flow| !sent.contains(&flow.name.as_str()))
        .cloned()
        .collect();
    match (rest.as_slice(), setup.background.as_slice()) {
        ([], []) => {}
        // Without measured flows, the background lasts as long as the observation.
        ([], background) => {
            let measured = traffic::run(ends, &[], background, setup.seconds, setup.warmup)?;
            all.add_accounts(measured);
        }
        (rest, background) => all.add(traffic::run(ends, background, rest, setup.seconds, setup.warmup)?),
    }
    for observation in &setup.observed {
        let Observe::Witness { flow } = &observation.what else {
            continue;
        };
        let known = setup.measured.iter().find(|known| known.name == *flow);
        let known = known.with_context(|| format!("there is no flow '{flow}' to witness"))?;
        let metric = witnessed(&known.test).unwrap_or_default();
        let Some(tool) = all.metrics.get(&format!("{flow}.{metric}")).copied() else {
            continue;
        };
        let witnessed = witness(ends, &observation.name, known, setup.whole_seconds(), tool)?;
        all.add(witnessed);
    }
    Ok(all)
}

/// The processor cost of broadcasts in µs, for each and for each copy. Unknown for a system in the
/// kernel.
pub(crate) fn costs(setup: &Setup, used: f64, metrics: &mut BTreeMap<String, f64>) {
    for observation in setup
        .observed
        .iter()
        .filter(|one| matches!(one.what, Observe::Broadcast { .. }))
    {
        for (cost, per) in [("cost", "sent"), ("copy", "copies")] {
            let number = metrics
                .get(&format!("{}.{per}", observation.name))
                .copied()
                .unwrap_or(0.0);
            let name = format!("{}.{cost}", observation.name);
            if number > 0.0 && used > 0.0 {
                metrics.insert(name, used * 1e6 / number);
            } else {
                metrics.remove(&name);
            }
        }
    }
}

/// Ends a capture, and takes what it heard.
fn captured(capture: Remote) -> Result<Captured> {
    match capture.stop()? {
        Outcome::Captured(captured) => Ok(captured),
        _ => bail!("a capture answers something else"),
    }
}

/// As `ip` writes it.
fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
