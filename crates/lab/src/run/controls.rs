//! Controls: what the instruments of a cell find on a bare cable, without any switch.
//!
//! Each flow of a cell is measured alone, with the same options as in the cell, between two hosts
//! of the cell's kind: namespaces, containers of Podman, or guests with the same memory. An
//! instrument is measured once in a run, and again after a while, since the machine changes. The
//! quick profile has time for those of latencies only, whose floor is in each of their results, and
//! not for two more guests.

use crate::bed::Bed;
use crate::results::Acceleration;
use crate::scenario::{Profile, Setup};
use crate::topology::{Attachment, Topology};
use crate::traffic::protocol::{Outcome, Task};
use crate::traffic::{Ends, Flow, Test, run, speed};
use anyhow::{Context, Result, bail};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// How long a control is measured at most, in the quick profile and in the full one, in seconds.
const SECONDS: (f64, f64) = (0.15, 2.0);

/// The share of that before, as a warm-up.
const WARMUP: f64 = 0.2;

/// After how long a control is measured anew.
const OLD: Duration = Duration::from_secs(600);

/// How long a guest may take for its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The metrics that are kept.
const KEPT: &[&str] = &[
    "rtt",
    "one_way",
    "median",
    "p99",
    "p999",
    "jitter",
    "rate",
    "loss",
    "throughput",
    "total",
    "latency",
];

/// The hosts, the test, and whether idle processors are kept awake.
type Conditions = (Attachment, String, bool);

/// The controls of a run.
pub(crate) struct Controls {
    seconds: f64,
    full: bool,
    beds: HashMap<Attachment, Pair>,
    found: HashMap<Conditions, (Instant, BTreeMap<String, f64>)>,
}

/// Two hosts and a cable. Agents go first.
struct Pair {
    ends: Ends,
    _bed: Bed,
}

/// The names of the two hosts.
const ONE: &str = "one";
const OTHER: &str = "other";

impl Controls {
    pub(crate) fn new(profile: Profile) -> Controls {
        let (quick, full) = SECONDS;
        Controls {
            seconds: if profile == Profile::Full { full } else { quick },
            full: profile == Profile::Full,
            beds: HashMap::new(),
            found: HashMap::new(),
        }
    }

    /// Of the flows of a cell that are measured, by flow and metric.
    ///
    /// # Errors
    /// The two hosts cannot be made, or do not answer.
    pub(crate) fn of(&mut self, setup: &Setup) -> Result<BTreeMap<String, f64>> {
        let mut all = BTreeMap::new();
        for flow in &setup.measured {
            let wanted = |kind: &Attachment| self.full || !kind.is_guest() && flow.test.is_latency();
            let Some(kind) = kind(&setup.topology, flow).filter(wanted) else {
                continue;
            };
            for (metric, value) in self.instrument(kind, &flow.test, setup)? {
                all.insert(format!("{}.{metric}", flow.name), value);
            }
        }
        Ok(all)
    }

    fn instrument(&mut self, kind: Attachment, test: &Test, setup: &Setup) -> Result<BTreeMap<String, f64>> {
        let key = (kind, serde_json::to_string(test)?, setup.awake);
        if let Some((_, found)) = self.found.get(&key).filter(|(at, _)| at.elapsed() < OLD) {
            return Ok(found.clone());
        }
        let pair = match self.beds.entry(kind) {
            Entry::Occupied(pair) => pair.into_mut(),
            Entry::Vacant(place) => place.insert(Pair::build(kind)?),
        };
        let flow = Flow {
            name: "control".to_owned(),
            from: ONE.to_owned(),
            to: OTHER.to_owned(),
            test: test.clone(),
        };
        let seconds = setup.seconds.min(self.seconds);
        let measured = run(&pair.ends, &[], &[flow], seconds, seconds * WARMUP)?;
        let found: BTreeMap<String, f64> = KEPT
            .iter()
            .filter_map(|metric| {
                Some((
                    (*metric).to_owned(),
                    *measured.metrics.get(&format!("control.{metric}"))?,
                ))
            })
            .collect();
        self.found.insert(key, (Instant::now(), found.clone()));
        Ok(found)
    }
}

/// What the flow's two hosts are; none: they are not alike.
fn kind(topology: &Topology, flow: &Flow) -> Option<Attachment> {
    let attachment = |name: &str| topology.host(name).map(|host| host.attachment);
    let (from, to) = (attachment(&flow.from)?, attachment(&flow.to)?);
    (from == to).then_some(from)
}

impl Pair {
    fn build(kind: Attachment) -> Result<Pair> {
        let what = match kind {
            Attachment::Container => String::new(),
            Attachment::Podman => ", attachment = 'podman'".to_owned(),
            Attachment::Guest { memory } => format!(", attachment = {{ guest = {{ memory = {memory} }} }}"),
            Attachment::Libvirt { memory } => format!(", attachment = {{ libvirt = {{ memory = {memory} }} }}"),
        };
        let (one, other, rate) = if kind.is_guest() {
            // A cable between two guests is no veth pair; of this rate the shaper never holds a
            // frame.
            ("", "", ", rate = 100_000_000_000")
        } else {
            (", ip6 = 'fd00:9::1'", ", ip6 = 'fd00:9::2'", "")
        };
        let text = format!(
            "host = [{{ name = '{ONE}', address = [{{ ip = '10.9.0.1', prefix = 24{one} }}]{what} }},\n\
             {{ name = '{OTHER}', address = [{{ ip = '10.9.0.2', prefix = 24{other} }}]{what} }}]\n\
             link = [{{ a = {{ at = '{ONE}' }}, b = {{ at = '{OTHER}' }}{rate} }}]"
        );
        let topology: Topology = toml::from_str(&text).context("the testbed of controls")?;
        let bed = Bed::build(&topology).context("the testbed of controls")?;
        let ends = Ends::of(&bed, &topology)?;
        Ok(Pair { ends, _bed: bed })
    }
}

/// What the hosts of a testbed are, and the speed of the slowest guest as a share of this
/// machine's.
///
/// # Errors
/// A guest does not answer.
pub(crate) fn acceleration(bed: &Bed, ends: &Ends) -> Result<(Acceleration, Option<f64>)> {
    let mut found = (Acceleration::Namespaces, None);
    for host in bed.hosts() {
        let Some(of_guest) = host.acceleration() else { continue };
        let mut task = ends.agent(host.name())?.start(Task::Speed(speed::Speed {}))?;
        task.go()?;
        let Outcome::Speed(steps) = task.wait(PATIENCE)? else {
            bail!("{} answers something else", host.name())
        };
        let share = steps / speed::here();
        let slowest = found.1.map_or(share, |least: f64| least.min(share));
        found = (found.0.max(of_guest), Some(slowest));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_two_kinds_have_no_control() {
        let topology: Topology = toml::from_str(
            "host = [{ name = 'a', address = [] }, { name = 'b', address = [], attachment = { guest = { memory = 512 } } },\n\
             { name = 'c', address = [] }, { name = 'd', address = [], attachment = 'podman' }]",
        )
        .unwrap();
        let flow = |from: &str, to: &str| Flow {
            name: "f".to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            test: Test::NewFlows {
                rate: None,
                payload: 64,
            },
        };
        assert_eq!(kind(&topology, &flow("a", "c")), Some(Attachment::Container));
        assert_eq!(
            kind(&topology, &flow("b", "b")),
            Some(Attachment::Guest { memory: 512 })
        );
        assert_eq!(kind(&topology, &flow("a", "b")), None);
        assert_eq!(kind(&topology, &flow("a", "d")), None);
    }
}
