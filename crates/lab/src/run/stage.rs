//! Testbeds and systems of this machine, and a repetition on them.

use super::controls::{self, Controls};
use super::cpu::Usage;
use super::engine::{Measurement, Stage, Standing};
use super::ledger;
use super::observe;
use super::series::{Recorded, Recorder};
use super::settle::settled;
use super::stop::Stop;
use super::validity::{self, Clocks};
use crate::awake;
use crate::bed::{Bed, Fragments, Host, Side, Wire, command};
use crate::controller::{self, Learning};
use crate::results::{Acceleration, Loss};
use crate::scenario::{Observation, Observe, Profile, Setup};
use crate::systems::{Elsewhere, Running, System};
use crate::topology::{self, Link, Topology, ipsec};
use crate::traffic::{Ends, Measured};
use anyhow::{Context, Result, anyhow, bail};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// This machine. A testbed stays for the next system with the same hosts and cables.
pub(crate) struct Here {
    pub(crate) systems: Vec<Box<dyn System>>,
    /// The wire to the switches' machine; none: they are here.
    wire: Option<Wire>,
    ground: Option<Rc<Ground>>,
    controls: Rc<RefCell<Controls>>,
}

/// Hosts and cables, with agents. Agents go first.
pub(crate) struct Ground {
    cabling: Topology,
    pub(crate) ends: Ends,
    pub(crate) bed: Bed,
    acceleration: Acceleration,
    guest_speed: Option<f64>,
}

impl Here {
    pub(crate) fn new(systems: Vec<Box<dyn System>>, profile: Profile, wire: Option<Wire>) -> Here {
        Here {
            systems,
            wire,
            ground: None,
            controls: Rc::new(RefCell::new(Controls::new(profile))),
        }
    }

    fn ground(&mut self, topology: &Topology) -> Result<Rc<Ground>> {
        let cabling = topology.cabling();
        if let Some(ground) = self.ground.as_ref().filter(|ground| ground.cabling == cabling) {
            return Ok(ground.clone());
        }
        self.ground = None;
        let part = self.wire.as_ref().map(|wire| (Side::Hosts, wire));
        let bed = Bed::build_part(topology, part).context("the testbed")?;
        let ends = Ends::of(&bed, topology).context("the testbed's hosts")?;
        let (acceleration, guest_speed) = controls::acceleration(&bed, &ends).context("the testbed's guests")?;
        let ground = Rc::new(Ground {
            cabling,
            ends,
            bed,
            acceleration,
            guest_speed,
        });
        self.ground = Some(ground.clone());
        Ok(ground)
    }
}

impl Stage for Here {
    fn stand(&mut self, system: &str, setup: &Setup) -> Result<Box<dyn Standing>> {
        let ground = self.ground(&setup.topology)?;
        let system = self.systems.iter().find(|known| known.name() == system);
        let running = system
            .context("there is no such system")?
            .start(&setup.topology, &ground.bed)?;
        ground.forget_neighbours();
        if setup.topology.bridges.iter().any(|bridge| bridge.tree.is_some()) {
            ground.wait_for_trees(&setup.topology)?;
        }
        if setup.topology.has_tunnels() || setup.topology.is_cluster() {
            ground.wait_for_tunnels(setup)?;
        }
        let mut table = Table {
            controller: None,
            running,
            ground,
            controls: self.controls.clone(),
        };
        table.controller = observe::control(&mut table, setup)?;
        Ok(Box::new(table))
    }

    fn clear(&mut self) {
        self.ground = None;
    }
}

impl Ground {
    /// Addresses that hosts have learned may have been another system's.
    pub(crate) fn forget_neighbours(&self) {
        for host in self.bed.hosts() {
            // A guest forgets by itself; losses until then are in its warm-up.
            let _ = host.command(&["ip", "neigh", "flush", "all"]).output();
        }
    }

    /// Waits until the first host reaches all others, and for what trees change after that.
    fn wait_for_trees(&self, topology: &Topology) -> Result<()> {
        let end = Instant::now() + TREES;
        let mut hosts = self.bed.hosts();
        let Some(first) = hosts.next() else {
            return Ok(());
        };
        for host in topology.hosts.iter().filter(|host| host.name != first.name()) {
            reach(first, host, end).context("by the tree")?;
        }
        std::thread::sleep(CHANGES);
        Ok(())
    }

    /// Waits until the flows' hosts reach each other: a switch asks for the hosts' outer addresses
    /// when it has a packet for them.
    fn wait_for_tunnels(&self, setup: &Setup) -> Result<()> {
        let end = Instant::now() + TUNNELS;
        for flow in setup.measured.iter().chain(&setup.background) {
            if let Some(to) = setup.topology.host(&flow.to) {
                reach(self.bed.host(&flow.from)?, to, end).context("through the tunnels")?;
            }
        }
        let encrypted = |host: &&topology::Host| host.tunnel.is_some_and(|tunnel| tunnel.ipsec);
        for host in setup.topology.hosts.iter().filter(encrypted) {
            let mut states = self.bed.host(&host.name)?.command(&["ip", "-s", "xfrm", "state"]);
            if !ipsec::carries_packets(&command::run(&mut states)?) {
                bail!("what passes the tunnel of {} is not encrypted", host.name);
            }
        }
        Ok(())
    }

    /// Ends all programs on the hosts.
    fn end_agents(&self) {
        for host in self.bed.hosts() {
            let pids = Command::new("ip").args(["netns", "pids", host.namespace()]).output();
            let pids = pids
                .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
                .unwrap_or_default();
            for pid in pids
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .filter_map(rustix::process::Pid::from_raw)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// Waits until a host reaches all addresses of another one.
fn reach(from: &Host, to: &topology::Host, end: Instant) -> Result<()> {
    for address in &to.addresses {
        let ip = address.ip.to_string();
        let ping = || from.command(&["ping", "-c1", "-W1", &ip]).output();
        while !ping().context("ping")?.status.success() {
            if Instant::now() > end {
                bail!("{} does not reach {}", from.name(), to.name);
            }
        }
    }
    Ok(())
}

/// A testbed with a system on it.
pub(crate) struct Table {
    /// The one that bridges ask.
    controller: Option<Learning>,
    pub(crate) running: Box<dyn Running>,
    pub(crate) ground: Rc<Ground>,
    controls: Rc<RefCell<Controls>>,
}

/// Counters at a moment.
struct Counted {
    usage: Usage,
    system: f64,
    /// Of the switch's machine, if it is another.
    elsewhere: Option<Elsewhere>,
    at: Instant,
}

/// Losses and fragments before the measurement.
type Before = (Vec<Loss>, BTreeMap<String, Fragments>);

/// By name.
type Observers = Vec<(String, Box<dyn observe::Observer>)>;

/// What came of traffic and observers.
struct Ran {
    traffic: Result<Measured>,
    /// Of each observer.
    brought: Vec<Result<controller::Measured>>,
    /// Counters at the start and the end of the measurement.
    from: Counted,
    to: Counted,
    recorded: Recorded,
}

/// How long spanning trees may take to open ports: a maximum age and two forward delays, of 20 and
/// 15 seconds, and reserve.
const TREES: Duration = Duration::from_secs(70);

/// How long they may change after that: two hello times.
const CHANGES: Duration = Duration::from_secs(2);

/// How long it may take until tunnels carry packets.
const TUNNELS: Duration = Duration::from_secs(10);

/// Between two looks at whether the system lives and anybody wants us to stop.
const LOOK: Duration = Duration::from_millis(50);

impl Standing for Table {
    fn configuration(&self) -> Vec<String> {
        self.running.configuration().to_vec()
    }

    fn measure(&mut self, setup: &Setup, stop: &Stop) -> Result<Measurement> {
        self.running.check()?;
        let _rest = (!setup.awake).then(awake::Rest::begin);
        observe::prepare(self, setup)?;
        let settled = settled(&self.ground.ends, setup)?;
        let setup = &*settled;
        let controls = self.controls.borrow_mut().of(setup).context("the controls")?;
        let before = self.ground.bed.fragments().context("the hosts' counters")?;
        let before = (self.losses()?, before);
        let started = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        let mut observers = observe::begin(self, setup)?;
        let clocks = Clocks::now();
        let ran = self.traffic(setup, stop, &mut observers)?;
        let mut measured = match ran.traffic {
            Ok(measured) => measured,
            Err(error) => {
                // A dead switch explains more than its hosts' errors.
                self.running.check()?;
                return Err(error);
            }
        };
        let delays = |link: &Link| link.delay > 0 || link.serial;
        let stamps = |observed: &Observation| matches!(observed.what, Observe::Gaps { .. });
        let uses_system = setup.topology.links.iter().any(delays) || setup.observed.iter().any(stamps);
        let clock_fault = Clocks::now().fault(clocks, uses_system);
        self.running.check()?;
        let mut measurement = Measurement {
            started: started + setup.warmup,
            ..Measurement::default()
        };
        measurement.count(&ran.from, &ran.to);
        measurement.cpu.insert("series".to_owned(), ran.recorded.cost);
        measurement.series = ran.recorded.series;
        observe::costs(
            setup,
            measurement.cpu.get("system").copied().unwrap_or(0.0),
            &mut measured.metrics,
        );
        let used = observe::Used::of(&measurement, self.running.memory());
        observe::usage(setup, used, &mut measured.metrics);
        for (_, observer) in &mut observers {
            observer.after(self)?;
        }
        for ((name, observer), brought) in observers.into_iter().zip(ran.brought) {
            let seen = observe::Seen {
                setup,
                metrics: &measured.metrics,
                brought: brought?,
            };
            let found = observer.end(&seen)?;
            measurement.validity.void.extend(found.void);
            let whole = |metric: String| format!("{name}.{metric}");
            measurement
                .metrics
                .extend(found.metrics.into_iter().map(|(metric, value)| (whole(metric), value)));
            measurement.distributions.extend(
                found
                    .distributions
                    .into_iter()
                    .map(|(metric, value)| (whole(metric), value)),
            );
        }
        measured.metrics.extend(setup.fairness(&measured.metrics));
        let (losses, remark) = self.ledger(&before, &measured, setup)?;
        let (acceleration, guest_speed) = (self.ground.acceleration, self.ground.guest_speed);
        measurement.validity.void.extend(clock_fault);
        measurement.validity.void.extend(measured.void);
        measurement
            .validity
            .void
            .extend(validity::speed(acceleration, guest_speed));
        measurement.validity.void.extend(validity::bottleneck(setup, &losses));
        measurement.validity.acceleration = Some(acceleration);
        measurement.validity.guest_speed = guest_speed;
        measurement.validity.controls = controls;
        measurement.remarks.extend(ledger::doubt(&losses));
        measurement.losses = losses;
        measurement.spent = self.ground.bed.holds_fragments()?;
        measurement.remarks.extend(remark);
        measurement.remarks.extend(measured.remarks);
        measurement.remarks.extend(self.running.remarks());
        measurement.metrics.extend(measured.metrics);
        measurement.distributions.extend(measured.distributions);
        Ok(measurement)
    }
}

impl Table {
    fn counted(&self) -> Counted {
        Counted {
            usage: Usage::now(),
            system: self.running.cpu(),
            elsewhere: self.running.elsewhere(),
            at: Instant::now(),
        }
    }

    /// Runs traffic and observers and checks the system meanwhile.
    fn traffic(&mut self, setup: &Setup, stop: &Stop, observers: &mut Observers) -> Result<Ran> {
        let ground = self.ground.clone();
        let ends = &ground.ends;
        let recorder = Recorder::new(&ground.bed, &*self.running, setup)?;
        let enough = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let work = scope.spawn(|| observe::work(ends, setup));
            let began = Instant::now();
            let warmup = if observe::is_special(setup) { 0.0 } else { setup.warmup };
            let warm = began + Duration::try_from_secs_f64(warmup).unwrap_or_default();
            let full = warm + Duration::try_from_secs_f64(setup.seconds).unwrap_or_default();
            let recording = scope.spawn(move || recorder.record(warm, enough));
            let recorded = || {
                enough.store(true, Ordering::Relaxed);
                recording.thread().unpark();
            };
            let meanwhile: Vec<_> = observers.iter_mut().map(|(_, observer)| observer.meanwhile()).collect();
            let meanwhile: Vec<_> = meanwhile
                .into_iter()
                .map(|task| {
                    let task = task?;
                    Some(scope.spawn(move || {
                        std::thread::sleep(warm.saturating_duration_since(Instant::now()));
                        task()
                    }))
                })
                .collect();
            // Without traffic, the observers measure for the whole time.
            let idle = setup.measured.is_empty() && setup.background.is_empty() && !observe::is_special(setup);
            let observes = meanwhile.iter().flatten().next().is_some();
            let (mut from, mut to, mut fault) = (None, None, None);
            loop {
                let now = Instant::now();
                let asked = meanwhile.iter().flatten().all(|task| task.is_finished());
                let alone = if observes { asked } else { now >= full };
                let over = work.is_finished() && (!idle || alone);
                if now >= warm || over {
                    from.get_or_insert_with(|| self.counted());
                }
                if (now >= full && !observe::takes_its_time(setup)) || over {
                    to.get_or_insert_with(|| self.counted());
                    recorded();
                }
                if from.is_some() {
                    let measured_for = now.saturating_duration_since(warm);
                    fault = observers
                        .iter_mut()
                        .find_map(|(_, observer)| observer.at(measured_for).err());
                }
                if over && asked {
                    break;
                }
                if stop.is_requested() {
                    fault = Some(anyhow!("interrupted"));
                }
                fault = fault.or_else(|| self.running.check().err());
                if fault.is_some() {
                    ground.end_agents();
                    observers.iter_mut().for_each(|(_, observer)| observer.stop());
                    break;
                }
                let next = [warm, full]
                    .into_iter()
                    .filter(|at| *at > now)
                    .min()
                    .map_or(LOOK, |at| at - now);
                std::thread::sleep(next.min(LOOK));
            }
            recorded();
            let Ok(measured) = work.join() else {
                bail!("the traffic's thread has panicked")
            };
            let brought = meanwhile.into_iter().map(|task| match task.map(|task| task.join()) {
                None => Ok(controller::Measured::default()),
                Some(Ok(brought)) => brought,
                Some(Err(_)) => Err(anyhow!("an observer's thread has panicked")),
            });
            let brought = brought.collect();
            let Ok(recorded) = recording.join() else {
                bail!("the thread that reads counters has panicked")
            };
            let now = || self.counted();
            Ok(Ran {
                traffic: fault.map_or(measured, Err),
                brought,
                from: from.unwrap_or_else(now),
                to: to.unwrap_or_else(now),
                recorded,
            })
        })
    }

    /// All that the system and the testbed have lost so far.
    fn losses(&self) -> Result<Vec<Loss>> {
        let mut losses = self.running.drops().context("the system's counters")?;
        losses.extend(self.ground.bed.losses().context("the testbed's counters")?);
        Ok(ledger::merge(losses))
    }

    fn ledger(&self, before: &Before, measured: &Measured, setup: &Setup) -> Result<(Vec<Loss>, Option<String>)> {
        let mut losses = ledger::since(self.losses()?, &before.0);
        ledger::arrived(&mut losses, &measured.sunk);
        let fragments = self.ground.bed.fragments().context("the hosts' counters")?;
        losses.extend(ledger::fragments(&fragments, &before.1, &measured.accounts, setup));
        Ok(ledger::close(
            ledger::merge(losses),
            ledger::missing(&measured.accounts),
            measured.retransmitted,
        ))
    }
}

impl Measurement {
    fn count(&mut self, from: &Counted, to: &Counted) {
        self.seconds = to.at.saturating_duration_since(from.at).as_secs_f64();
        let usage = to.usage.since(from.usage);
        let system = (to.system - from.system).max(0.0);
        // The system's processes descend from this one too, unless they are elsewhere.
        let here = if to.elsewhere.is_none() { system } else { 0.0 };
        let lab = (usage.own - here).max(0.0);
        self.cpu = BTreeMap::from(
            [("system", system), ("lab", lab), ("all", usage.all)].map(|(name, seconds)| (name.to_owned(), seconds)),
        );
        if self.seconds > 0.0 {
            self.load = (usage.all - here - lab - usage.packets).max(0.0) / self.seconds;
            let urgent = (self.load - usage.nice / self.seconds).max(0.0);
            let processors = std::thread::available_parallelism().map_or(1.0, |number| number.get() as f64);
            self.validity.void.extend(validity::load(processors, urgent));
        }
        if let (Some(from), Some(to)) = (from.elsewhere, to.elsewhere) {
            self.cpu.insert("remote".to_owned(), (to.all - from.all).max(0.0));
            let other = (to.other - from.other) - (to.nice - from.nice).max(0.0);
            let void = validity::load(to.processors as f64, other.max(0.0) / self.seconds.max(0.1));
            self.validity
                .void
                .extend(void.map(|why| format!("on the switch's machine, {why}")));
        }
    }
}
