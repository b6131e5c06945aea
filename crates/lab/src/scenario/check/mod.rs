//! The rules that a testbed and its traffic must keep, beside being well-formed.

mod testbed;
mod traffic;

use super::header::Header;
use super::node::{Fault, Node};
use super::read::{Values, used};
use super::setup::{Observe, Setup};
use super::{Figure, Pace, Scenario};
use crate::controller::MASKS;
use std::collections::BTreeSet;
use testbed::{addresses, cable, cluster, loops, names, plugs, stateful, tunnels};
use traffic::{flows, observations};

/// A cell's parts with their positions in the file, for errors.
pub(super) struct Filled {
    pub(super) host: Option<Node>,
    pub(super) bridge: Option<Node>,
    pub(super) link: Option<Node>,
    pub(super) background: Option<Node>,
    pub(super) measure: Option<Node>,
    pub(super) observe: Option<Node>,
    pub(super) openflow: Option<Node>,
}

struct Faults(Vec<Fault>);

impl Faults {
    fn say(&mut self, list: &Option<Node>, n: usize, path: &[&str], message: impl Into<String>) {
        let item = list.as_ref().and_then(Node::array).and_then(|items| items.get(n));
        let span = item.or(list.as_ref()).map_or(0..0, |node| node.place(path).clone());
        self.0.push(Fault::new(&span, message));
    }

    fn done(self) -> Result<(), Vec<Fault>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

/// The file's header.
pub(super) fn header(header: &Header, dimensions: &[Values], places: &Node) -> Result<(), Vec<Fault>> {
    let mut faults = Vec::new();
    let mut say = |path: &[&str], message: String| faults.push(Fault::new(places.place(path), message));
    let id = |text: &str| {
        !text.is_empty() && text.len() <= 40 && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    if !id(&header.id) {
        say(&["id"], "an id is 1 to 40 letters, digits, '.', '-' and '_'".to_owned());
    }
    if header.id != header.study && !header.id.starts_with(&format!("{}.", header.study)) {
        say(
            &["id"],
            format!("the id must begin with the study's: {}.NAME", header.study),
        );
    }
    for (name, pace) in [("quick", &header.quick), ("full", &header.full)] {
        let Pace {
            repetitions,
            seconds,
            warmup,
            ..
        } = pace;
        if !(1..=10_000).contains(repetitions) {
            say(&[name, "repetitions"], "repetitions are 1 to 10 000".to_owned());
        }
        if !(*seconds > 0.0 && *seconds <= 86_400.0) {
            say(
                &[name, "seconds"],
                "what is measured takes more than 0 and at most 86 400 seconds".to_owned(),
            );
        }
        if !(0.0..=3600.0).contains(warmup) {
            say(&[name, "warmup"], "a warm-up takes 0 to 3600 seconds".to_owned());
        }
    }
    let mut names = BTreeSet::new();
    for (n, metric) in header.metrics.iter().enumerate() {
        let n = n.to_string();
        if !names.insert(&metric.name) {
            say(
                &["metric", &n, "name"],
                format!("the metric '{}' stands twice", metric.name),
            );
        }
        if !metric.scale.is_finite() {
            say(&["metric", &n, "scale"], "a scale is a finite number".to_owned());
        }
    }
    for (n, figure) in header.figures.iter().enumerate() {
        let n = n.to_string();
        let (metrics, axes) = used(figure);
        for metric in metrics.into_iter().filter(|metric| !names.contains(metric)) {
            say(
                &["figure", &n],
                format!("a figure shows '{metric}', which is no [[metric]] of this file"),
            );
        }
        for axis in axes {
            if axis != "system" && dimensions.iter().all(|dimension| dimension.name != *axis) {
                say(&["figure", &n], format!("a figure uses '{axis}', which is not varied"));
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Checks that every shown metric exists in some cell.
pub(super) fn results(scenario: &Scenario, places: &Node) -> Vec<Fault> {
    let mut measured = BTreeSet::new();
    for cell in scenario.quick.1.iter().chain(&scenario.full.1) {
        measured.extend(cell.setup.measured.iter().map(|flow| flow.name.as_str()));
        measured.extend(cell.setup.observed.iter().map(|observed| observed.name.as_str()));
    }
    let mut faults = Vec::new();
    let mut check = |name: &str, path: &[&str]| {
        if !measured.contains(name.split('.').next().unwrap_or_default()) {
            let message = format!("'{name}': nothing that is measured has this name");
            faults.push(Fault::new(places.place(path), message));
        }
    };
    for (n, metric) in scenario.metrics.iter().enumerate() {
        check(&metric.name, &["metric", &n.to_string(), "name"]);
    }
    for (n, figure) in scenario.figures.iter().enumerate() {
        if let Figure::Cdf { of, .. } | Figure::Matrix { of } = figure {
            check(of, &["figure", &n.to_string(), "of"]);
        }
    }
    faults
}

/// A cell.
pub(super) fn setup(setup: &Setup, filled: &Filled) -> Result<(), Vec<Fault>> {
    let mut faults = Faults(Vec::new());
    names(&setup.topology, filled, &mut faults);
    let mininet = |what: &Observe| matches!(what, Observe::Mininet { .. });
    if setup.topology.hosts.is_empty() && !setup.observed.iter().any(|observation| mininet(&observation.what)) {
        faults.0.push(Fault::new(&(0..0), "there is no [[host]]"));
    }
    addresses(&setup.topology, filled, &mut faults);
    for (n, link) in setup.topology.links.iter().enumerate() {
        let mut say = |path: &[&str], message: String| faults.say(&filled.link, n, path, message);
        cable(&setup.topology, link, &mut say);
    }
    // The following checks need known ends.
    if faults.0.is_empty() {
        plugs(&setup.topology, filled, &mut faults);
        loops(&setup.topology, filled, &mut faults);
        tunnels(&setup.topology, filled, &mut faults);
        stateful(&setup.topology, filled, &mut faults);
        cluster(&setup.topology, filled, &mut faults);
        flows(setup, filled, &mut faults);
        observations(setup, filled, &mut faults);
    }
    if let (Some(openflow), Some(node)) = (&setup.openflow, &filled.openflow)
        && setup
            .topology
            .bridges
            .iter()
            .all(|bridge| bridge.name != openflow.bridge)
    {
        let message = format!("there is no bridge '{}'", openflow.bridge);
        faults.0.push(Fault::new(node.place(&["bridge"]), message));
    }
    if let (Some(openflow), Some(node)) = (&setup.openflow, &filled.openflow)
        && !(1..=MASKS).contains(&openflow.masks)
    {
        let message = format!("masks are 1 to {MASKS}, not {}", openflow.masks);
        faults.0.push(Fault::new(node.place(&["masks"]), message));
    }
    faults.done()
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 12 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}
