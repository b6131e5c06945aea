//! A case to measure: rules, flows, packets, workers.

use crate::bench::rules::Rules;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How packets are spread over flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Every flow equally often, in a random order.
    Uniform,
    /// The k-th flow has 1/k of the packets of the first.
    Zipf,
}

/// How long packets are, in bytes from the Ethernet header on, without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Size {
    /// The shortest.
    #[value(name = "60")]
    #[serde(rename = "60")]
    B60,
    /// Middling.
    #[value(name = "512")]
    #[serde(rename = "512")]
    B512,
    /// The longest of the usual Ethernet.
    #[value(name = "1514")]
    #[serde(rename = "1514")]
    B1514,
    /// Seven of 60, four of 590, one of 1514, again and again.
    #[value(name = "imix")]
    #[serde(rename = "imix")]
    Imix,
}

impl Size {
    /// The length of a trace's n-th packet.
    pub(crate) fn of(self, n: usize) -> usize {
        const IMIX: [usize; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 60, 590];
        match self {
            Size::B60 => 60,
            Size::B512 => 512,
            Size::B1514 => 1514,
            Size::Imix => IMIX[n % IMIX.len()],
        }
    }
}

/// One thing to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The rule set.
    pub rules: Rules,
    /// Flows that the packets belong to.
    pub flows: usize,
    /// How packets are spread over them.
    pub distribution: Distribution,
    /// How long packets are.
    pub size: Size,
    /// Threads that move packets, each on a processor of its own.
    pub workers: usize,
}

impl Case {
    fn new(rules: Rules, flows: usize) -> Case {
        Case {
            rules,
            flows,
            distribution: Distribution::Uniform,
            size: Size::B60,
            workers: 1,
        }
    }

    /// Whether this number of flows is measured with these rules by default.
    pub(crate) fn is_usual(&self) -> bool {
        (self.rules.least_flows()..=self.rules.most_flows()).contains(&self.flows)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} flows {} {} B {} worker{}",
            self.rules,
            flows(self.flows),
            name(self.distribution),
            name(self.size),
            self.workers,
            if self.workers == 1 { "" } else { "s" }
        )
    }
}

/// `10 k`.
pub(crate) fn flows(n: usize) -> String {
    match n {
        _ if n >= 1_000_000 && n.is_multiple_of(1_000_000) => format!("{} M", n / 1_000_000),
        _ if n >= 1000 && n.is_multiple_of(1000) => format!("{} k", n / 1000),
        _ => n.to_string(),
    }
}

/// The name that the command line has for a value.
pub(crate) fn name(value: impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The default numbers of flows.
pub(crate) const FLOWS: [usize; 5] = [1, 1000, 10_000, 100_000, 1_000_000];

/// As many new connections as a turn can take.
pub(crate) const NEW_FLOWS: usize = 200_000;

/// A few minutes' worth.
pub(crate) fn quick() -> Vec<Case> {
    let mut cases = vec![Case::new(Rules::Io, 1), Case::new(Rules::Io, 1_000_000)];
    cases.extend(FLOWS.map(|flows| Case::new(Rules::Port, flows)));
    cases.extend([1, 10_000, 1_000_000].map(|flows| Case::new(Rules::Normal, flows)));
    cases.extend([1000, 100_000].map(|flows| Case::new(Rules::Acl, flows)));
    for rules in [Rules::Exact, Rules::Pipeline, Rules::Rewrite] {
        cases.push(Case::new(rules, 1000));
    }
    cases.push(Case::new(Rules::New, NEW_FLOWS));
    cases
}

/// Everything.
pub(crate) fn full() -> Vec<Case> {
    let mut cases = Vec::new();
    for rules in Rules::ALL {
        cases.extend(
            FLOWS
                .map(|flows| Case::new(rules, flows))
                .into_iter()
                .filter(|case| case.is_usual() && !rules.forgets()),
        );
    }
    cases.push(Case::new(Rules::New, NEW_FLOWS));
    let usual = [Rules::Port, Rules::Normal, Rules::Acl];
    for rules in usual {
        for flows in [10_000, 100_000, 1_000_000] {
            cases.push(Case {
                distribution: Distribution::Zipf,
                ..Case::new(rules, flows)
            });
        }
        for size in [Size::B512, Size::B1514, Size::Imix] {
            cases.push(Case {
                size,
                ..Case::new(rules, 1000)
            });
        }
        for flows in [1000, 100_000] {
            cases.push(Case {
                workers: 2,
                ..Case::new(rules, flows)
            });
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_told_in_words() {
        let case = Case {
            size: Size::Imix,
            workers: 2,
            ..Case::new(Rules::Normal, 1_000_000)
        };
        assert_eq!(case.to_string(), "normal 1 M flows uniform imix B 2 workers");
        assert_eq!(flows(1500), "1500");
    }

    #[test]
    fn no_case_is_measured_twice_and_every_rule_set_is_among_all() {
        for cases in [quick(), full()] {
            for (n, case) in cases.iter().enumerate() {
                assert!(!cases[..n].contains(case), "{case}");
            }
        }
        assert!(
            Rules::ALL
                .iter()
                .all(|rules| full().iter().any(|case| case.rules == *rules))
        );
    }
}
