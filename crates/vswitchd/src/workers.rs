//! The workers' configuration: cores, and the assignment of receive queues.
//!
//! The keys are those of Open vSwitch's poll-mode threads. Workers differ in two points: they sleep
//! when idle, and without `pmd-cpu-mask` none is bound to a core.

use crate::bridges::Bridges;
use crate::left_flows;
use crate::numa::Numa;
use dp::{Assign, AutoBalance, Datapath, QueueRules, SHORTEST_LATENCY_HOLD};
use ovsdb::rows;
use std::collections::BTreeMap;
use std::time::Duration;

/// The highest core that a mask may name.
const MOST_CORES: usize = 1024;

/// Maximum `worker-spin` in microseconds; with more a worker would never sleep.
const MOST_SPIN: u64 = 1_000_000;

/// Shortest `cpu-dma-latency-hold` but 0, in microseconds.
const LEAST_LATENCY_HOLD: u64 = SHORTEST_LATENCY_HOLD.as_micros() as u64;

/// Longest `cpu-dma-latency-hold`, in microseconds.
const MOST_LATENCY_HOLD: u64 = 60_000_000;

/// The configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// `pmd-cpu-mask`.
    cores: Option<Vec<usize>>,
    assign: Assign,
    /// Whether a worker with pinned queues serves others too.
    shared: bool,
    balance: Option<AutoBalance>,
    /// `pmd-rxq-affinity`, by interface.
    affinity: BTreeMap<String, BTreeMap<u32, usize>>,
    offload: bool,
    /// How long an orderly end leaves offloaded flows in force; zero for not at all.
    pub(crate) offload_hand_over: Duration,
    /// How long workers poll for more packets before they sleep; `None`: they decide.
    spin: Option<Duration>,
    /// `cpu-dma-latency-hold`; zero where processors may sleep.
    latency_hold: Duration,
    /// What is wrong with it.
    pub(crate) problems: Vec<String>,
    /// What a user should know of settings that are not wrong.
    pub(crate) notices: Vec<String>,
}

/// Reads the keys of the root row and of interfaces.
pub(crate) fn wanted<'a>(root: &rows::OpenVSwitch, interfaces: impl Iterator<Item = &'a rows::Interface>) -> Wanted {
    let config = &root.other_config;
    let mut wanted = Wanted::default();
    let mut problem = |key: &str, what: &str| {
        let value = config.get(key).map(String::as_str).unwrap_or_default();
        wanted.problems.push(format!("other_config:{key}={value} {what}"));
    };
    wanted.cores = config.get("pmd-cpu-mask").and_then(|mask| {
        let cores = cores(mask).filter(|cores| !cores.is_empty());
        if cores.is_none() {
            problem(
                "pmd-cpu-mask",
                "is not a mask of cores in hex digits; workers are where they are without it",
            );
        }
        cores
    });
    wanted.assign = match config.get("pmd-rxq-assign") {
        None => Assign::default(),
        Some(name) => Assign::named(name).unwrap_or_else(|| {
            problem(
                "pmd-rxq-assign",
                "is none of cycles, roundrobin and group; it is taken for cycles",
            );
            Assign::default()
        }),
    };
    wanted.shared = config.get("pmd-rxq-isolate").is_some_and(|isolate| isolate == "false");
    if wanted.shared && wanted.assign != Assign::Group {
        problem("pmd-rxq-isolate", "has an effect only with pmd-rxq-assign=group");
        wanted.shared = false;
    }
    let mut number = |key: &str, default: u64, most: u64| match config.get(key).map(|text| text.parse()) {
        None => default,
        Some(Ok(number)) if number <= most => number,
        Some(_) => {
            problem(
                key,
                &format!("is not a number from 0 to {most}; it is taken for {default}"),
            );
            default
        }
    };
    if config.contains_key("worker-spin") {
        wanted.spin = Some(Duration::from_micros(number("worker-spin", 0, MOST_SPIN)));
    }
    wanted.offload_hand_over = Duration::from_secs(number("offload-hand-over", 0, left_flows::LONGEST));
    if config.get("pmd-auto-lb").is_some_and(|auto| auto == "true") {
        let minutes = number("pmd-auto-lb-rebal-interval", 1, 20_000).max(1);
        wanted.balance = Some(AutoBalance {
            interval: Duration::from_secs(60 * minutes),
            load_percent: number("pmd-auto-lb-load-threshold", 95, 100),
            improvement_percent: number("pmd-auto-lb-improvement-threshold", 25, 100),
        });
    }
    wanted.latency_hold = match config.get("cpu-dma-latency-hold").map(|text| text.parse::<u64>()) {
        None | Some(Ok(0)) => Duration::ZERO,
        Some(Ok(micros)) if (LEAST_LATENCY_HOLD..=MOST_LATENCY_HOLD).contains(&micros) => Duration::from_micros(micros),
        Some(_) => {
            problem(
                "cpu-dma-latency-hold",
                &format!(
                    "is neither 0 nor a number of microseconds from {LEAST_LATENCY_HOLD} to {MOST_LATENCY_HOLD}; \
                     it is taken for 0"
                ),
            );
            Duration::ZERO
        }
    };
    if wanted.spin.is_some_and(|spin| !spin.is_zero()) && !config.contains_key("cpu-dma-latency-hold") {
        wanted.notices.push(
            "other_config:worker-spin does not keep processors awake; \
             other_config:cpu-dma-latency-hold does"
                .to_owned(),
        );
    }
    let was = config.get("worker-shortcuts");
    if was.is_some() {
        problem(
            "worker-shortcuts",
            match config.contains_key("kernel-offload") {
                true => "has no effect beside kernel-offload, which it is now called",
                false => "is now called kernel-offload, and works until it is removed",
            },
        );
    }
    wanted.offload = match config.get("kernel-offload").or(was).map(String::as_str) {
        None | Some("true") => true,
        Some("false") => false,
        Some("peer") => {
            problem("kernel-offload", "has no value peer any more; it is taken for true");
            true
        }
        Some(_) => {
            problem("kernel-offload", "is neither true nor false; it is taken for true");
            true
        }
    };
    for row in interfaces {
        if let Some(list) = row.other_config.get("pmd-rxq-affinity") {
            match affinity(list) {
                Some(affinity) => _ = wanted.affinity.insert(row.name.clone(), affinity),
                None => wanted.problems.push(format!(
                    "interface {}: other_config:pmd-rxq-affinity={list} is not a list of QUEUE:CORE",
                    row.name
                )),
            }
        }
    }
    wanted
}

impl Wanted {
    /// Starts the configured workers, before ports are opened.
    pub(crate) fn start_workers(&mut self, datapath: &dyn Datapath, numa: &Numa) {
        datapath.set_offload(self.offload);
        let Some(workers) = datapath.workers() else { return };
        workers.set_spin(self.spin);
        if let Err(error) = workers.set_latency_hold(self.latency_hold) {
            self.problems.push(format!(
                "other_config:cpu-dma-latency-hold: the kernel does not keep processors awake ({error})"
            ));
        }
        if let Err(error) = workers.set_cores(numa.cores(self.cores.as_deref()).as_deref()) {
            self.problems
                .push(format!("other_config:pmd-cpu-mask: cannot start a worker ({error})"));
        }
    }

    /// Assigns receive queues to workers, once ports are open.
    pub(crate) fn place_queues(&mut self, datapath: &dyn Datapath, bridges: &Bridges, numa: &Numa) {
        let pinned = bridges.interfaces().filter_map(|(_, name, interface)| {
            let affinity = self.affinity.get(name)?;
            Some((interface.port?, affinity.clone()))
        });
        let rules = QueueRules {
            assign: self.assign,
            isolate: !self.shared,
            affinity: pinned.collect(),
            balance: self.balance,
            nodes: numa.nodes().clone(),
        };
        let workers = datapath.workers();
        self.problems
            .extend(workers.map_or(Vec::new(), |workers| workers.set_queue_rules(rules)));
        let refused = datapath.offload_error().filter(|_| self.offload);
        self.problems
            .extend(refused.map(|why| format!("flows are not offloaded to the kernel ({why})")));
    }
}

/// The cores of a mask in hex digits, lowest first.
fn cores(mask: &str) -> Option<Vec<usize>> {
    let digits = mask.trim();
    let digits = digits
        .strip_prefix("0x")
        .or(digits.strip_prefix("0X"))
        .unwrap_or(digits);
    if digits.is_empty() || digits.len() > MOST_CORES / 4 {
        return None;
    }
    let mut cores = Vec::new();
    for (place, digit) in digits.chars().rev().enumerate() {
        let digit = digit.to_digit(16)?;
        cores.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| 4 * place + bit));
    }
    Some(cores)
}

/// `QUEUE:CORE`, separated by commas.
fn affinity(list: &str) -> Option<BTreeMap<u32, usize>> {
    let pairs = list.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (queue, core) = pair.split_once(':')?;
            Some((queue.trim().parse().ok()?, core.trim().parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(config: &[(&str, &str)]) -> rows::OpenVSwitch {
        rows::OpenVSwitch {
            other_config: config
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..rows::OpenVSwitch::default()
        }
    }

    fn read(config: &[(&str, &str)]) -> Wanted {
        wanted(&root(config), std::iter::empty())
    }

    #[test]
    fn a_mask_names_cores_by_its_bits() {
        for (mask, expected) in [
            ("1", vec![0]),
            ("0x6", vec![1, 2]),
            ("F0", vec![4, 5, 6, 7]),
            ("100000000", vec![32]),
        ] {
            assert_eq!(read(&[("pmd-cpu-mask", mask)]).cores, Some(expected), "{mask}");
        }
        for mask in ["zz", "", "0", "0x"] {
            let wanted = read(&[("pmd-cpu-mask", mask)]);
            assert_eq!((wanted.cores, wanted.problems.len()), (None, 1), "{mask}");
        }
    }

    #[test]
    fn wrong_values_are_told_and_taken_for_the_default() {
        let wanted = read(&[
            ("pmd-rxq-assign", "best"),
            ("pmd-rxq-isolate", "false"),
            ("pmd-auto-lb", "true"),
            ("pmd-auto-lb-load-threshold", "101"),
        ]);
        assert_eq!((wanted.assign, wanted.shared), (Assign::Cycles, false));
        let balance = AutoBalance {
            interval: Duration::from_secs(60),
            load_percent: 95,
            improvement_percent: 25,
        };
        assert_eq!(wanted.balance, Some(balance));
        assert_eq!(wanted.problems.len(), 3, "{:?}", wanted.problems);
        assert!(wanted.problems[0].starts_with("other_config:pmd-rxq-assign=best is none of"));
    }

    #[test]
    fn every_key_is_read() {
        let wanted = read(&[
            ("pmd-rxq-assign", "group"),
            ("pmd-rxq-isolate", "false"),
            ("pmd-auto-lb", "true"),
            ("pmd-auto-lb-rebal-interval", "0"),
            ("pmd-auto-lb-improvement-threshold", "5"),
        ]);
        assert_eq!(
            (wanted.assign, wanted.shared, wanted.problems.len()),
            (Assign::Group, true, 0)
        );
        let balance = wanted.balance.unwrap();
        assert_eq!(
            (balance.interval, balance.improvement_percent),
            (Duration::from_secs(60), 5)
        );
    }

    #[test]
    fn flows_are_left_for_a_bounded_time() {
        let hand_over = |value| {
            let wanted = read(&[("offload-hand-over", value)]);
            (wanted.offload_hand_over.as_secs(), wanted.problems)
        };
        assert_eq!(hand_over("600"), (600, Vec::new()));
        let wrong = "other_config:offload-hand-over=601 is not a number from 0 to 600; it is taken for 0";
        assert_eq!(hand_over("601"), (0, vec![wrong.to_owned()]));
    }

    #[test]
    fn the_latency_request_has_a_key_of_its_own() {
        let spinning = read(&[("worker-spin", "20000")]);
        assert_eq!((spinning.latency_hold, spinning.problems.len()), (Duration::ZERO, 0));
        assert_eq!(spinning.notices.len(), 1, "the other key is named");
        for quiet in [
            &[("worker-spin", "20000"), ("cpu-dma-latency-hold", "0")][..],
            &[("worker-spin", "0")],
        ] {
            assert_eq!(read(quiet).notices, [""; 0], "{quiet:?}");
        }
        for (value, hold) in [("0", 0), ("1000", 1000), ("60000000", 60_000_000)] {
            let wanted = read(&[("cpu-dma-latency-hold", value)]);
            assert_eq!((wanted.latency_hold, wanted.spin), (Duration::from_micros(hold), None));
            assert_eq!(wanted.problems, [""; 0], "{value}");
        }
        for value in ["", "999", "-1", "20ms", "60000001"] {
            let wanted = read(&[("cpu-dma-latency-hold", value)]);
            assert_eq!(
                (wanted.latency_hold, wanted.problems.len()),
                (Duration::ZERO, 1),
                "{value}"
            );
        }
    }

    #[test]
    fn offload_is_read_under_its_former_name_too_and_that_is_reported() {
        for (value, offload) in [("true", true), ("false", false)] {
            let wanted = read(&[("kernel-offload", value)]);
            assert_eq!((wanted.offload, wanted.problems.len()), (offload, 0), "{value}");
            let formerly = read(&[("worker-shortcuts", value)]);
            assert_eq!((formerly.offload, formerly.problems.len()), (offload, 1), "{value}");
            let both = read(&[("worker-shortcuts", "false"), ("kernel-offload", value)]);
            assert_eq!(both.offload, offload, "{value}");
        }
        let removed = read(&[("kernel-offload", "peer")]);
        assert_eq!((removed.offload, removed.problems.len()), (true, 1));
    }

    #[test]
    fn queues_are_pinned_by_a_list_of_pairs() {
        assert_eq!(affinity("0:3, 1:7"), Some(BTreeMap::from([(0, 3), (1, 7)])));
        assert_eq!(affinity(""), Some(BTreeMap::new()));
        for list in ["0", "0:", "a:1", "0:1;2:3"] {
            assert_eq!(affinity(list), None, "{list}");
        }
    }
}
