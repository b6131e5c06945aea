//! `oxvs lab list`.

use crate::bed;
use crate::run::span;
use crate::scenario::{Profile, Scenario, built_in, estimate};
use crate::systems;
use crate::topology::Topology;
use anyhow::Result;
use std::fmt::Write;

/// Systems of the quick profile.
const QUICK_SYSTEMS: usize = 2;

/// Prints experiments and switches.
pub(super) fn list() -> Result<()> {
    let scenarios = built_in()?;
    mgmt::out!("{}", experiments(&scenarios));
    let systems = systems::all();
    let width = systems.iter().map(|system| system.name().len()).max().unwrap_or(0);
    mgmt::outln!("\nSwitches:");
    for system in &systems {
        let missing = system.missing(&Topology::default());
        let reason = missing
            .map(|reason| format!("; not here: {reason}"))
            .unwrap_or_default();
        mgmt::outln!("  {:width$}  {}{reason}", system.name(), system.describe());
    }
    if let Some(reason) = bed::missing(&Topology::default()) {
        mgmt::outln!("\nNothing can be run as things are: {reason}");
    }
    Ok(())
}

fn experiments(scenarios: &[Scenario]) -> String {
    let width = scenarios.iter().map(|scenario| scenario.id.len()).max().unwrap_or(0);
    let mut out = String::from("Experiments, with samples of each switch (--quick, --full):\n");
    for scenario in scenarios {
        let samples = |profile| scenario.cells(profile).len() as u64 * u64::from(scenario.pace(profile).repetitions);
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "  {:width$}  {} ({}, {})",
            scenario.id,
            scenario.title,
            samples(Profile::Quick),
            samples(Profile::Full)
        );
    }
    let time = |profile, systems| span(estimate(scenarios, profile, systems).as_secs_f64());
    let _ = writeln!(
        out,
        "All of them take about {} with --quick, and {} for each switch with --full.",
        time(Profile::Quick, QUICK_SYSTEMS),
        time(Profile::Full, 1)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_listed_with_its_title_and_size() {
        let scenarios = built_in().unwrap();
        let text = experiments(&scenarios);
        for scenario in &scenarios {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(&scenario.id))
                .unwrap();
            assert!(line.contains(&scenario.title) && line.ends_with(')'), "{line}");
        }
        assert!(text.contains("with --quick, and "), "{text}");
    }
}
