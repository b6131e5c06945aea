//! The scenarios that are part of the program.

use super::{Scenario, ScenarioError};

macro_rules! files {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../../../../lab/scenarios/", $file)))),*]
    };
}

/// The files under `lab/scenarios`, in the order of the studies.
const FILES: &[(&str, &str)] = files!["s0-rtt-l3.toml", "s1-transfer.toml"];

/// All scenarios of the program.
///
/// # Errors
/// None, unless a file in the program is wrong.
pub fn built_in() -> Result<Vec<Scenario>, ScenarioError> {
    FILES.iter().map(|(file, text)| Scenario::parse(file, text)).collect()
}

/// Those of the scenarios that a word on the command line means: an id (`S0.rtt.l3`), or the beginning of ids up to a dot (`S0`, `S0.rtt`), in
/// upper or lower case.
pub fn find<'a>(scenarios: &'a [Scenario], word: &str) -> Vec<&'a Scenario> {
    let word = word.to_ascii_lowercase();
    let means = |scenario: &&Scenario| {
        let id = scenario.id.to_ascii_lowercase();
        id.strip_prefix(&word)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    scenarios.iter().filter(means).collect()
}
