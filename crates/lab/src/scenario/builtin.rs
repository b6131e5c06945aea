//! The scenarios that are part of the program.

use super::{Scenario, ScenarioError};

macro_rules! files {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../../../../lab/scenarios/", $file)))),*]
    };
}

/// The files under `lab/scenarios`, in the order of the studies.
const FILES: &[(&str, &str)] = files![
    "s0-rtt-l3.toml",
    "s0-rtt-stick.toml",
    "s0-tput-l3.toml",
    "s0-tput-stick.toml",
    "s0-fair-2.toml",
    "s0-fair-3.toml",
    "s0-bcast.toml",
    "s1-transfer.toml",
    "s1-jitter.toml",
    "s1-memory.toml",
    "s1-mininet.toml",
    "s1-idle.toml",
    "s1-check.toml",
    "s2-isolation.toml",
    "s2-stress.toml",
    "s3-match.toml",
    "s3-mode.toml",
    "s3-capacity.toml",
    "s3-many.toml",
    "s3-rewrite.toml",
    "s3-flowstats.toml",
    "s3-portstats.toml",
    "s3-rates.toml",
    "s3-supported.toml",
    "s3-effect.toml",
    "s4-schedulers.toml",
    "s5-loaded.toml",
    "s5-rrul.toml",
    "s5-applications.toml",
    "s5-rates.toml",
    "s5-scale.toml",
    "s5-newflows.toml",
    "s5-acl.toml",
    "s5-rfc2544.toml",
    "s5-rfc8239-burst.toml",
    "s5-rfc8239-blocking.toml",
    "s5-rfc8239-incast.toml",
    "s5-ipv6.toml",
    "s5-qos-bonding.toml",
    "s5-mixed.toml",
    "s5-tcp.toml",
    "s5-visibility.toml",
    "s5-failover.toml",
    "s5-ring.toml",
    "s5-liveness.toml",
    "s5-overlay.toml",
    "s5-stateful.toml",
    "s5-cluster.toml",
    "s5-containers.toml",
    "s5-veth.toml",
    "s5-gaps.toml",
];

/// All scenarios of the program.
///
/// # Errors
/// None, unless a file in the program is wrong.
pub fn built_in() -> Result<Vec<Scenario>, ScenarioError> {
    FILES.iter().map(|(file, text)| Scenario::parse(file, text)).collect()
}

/// Those of the scenarios that a word on the command line means: an id (`S0.rtt.l3`), or the
/// beginning of ids up to a dot (`S0`, `S0.rtt`), in upper or lower case.
pub fn find<'a>(scenarios: &'a [Scenario], word: &str) -> Vec<&'a Scenario> {
    let word = word.to_ascii_lowercase();
    let means = |scenario: &&Scenario| {
        let id = scenario.id.to_ascii_lowercase();
        id.strip_prefix(&word)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    scenarios.iter().filter(means).collect()
}
