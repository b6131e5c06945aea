//! Repeats experiments until their verdicts are decided.
//!
//! After all repetitions the verdicts are looked at, and experiments whose findings are undecided
//! are repeated as often again. Who looks several times has several chances to err: the first look
//! has half of the level, the second a quarter, and so on (alpha spending; see
//! [`crate::findings`]). The run counts the looks.

use super::plan::Job;
use crate::findings::{Verdict, judge, published, tables};
use crate::results::{Results, Store};
use crate::scenario::Scenario;
use anyhow::Result;
use std::collections::BTreeSet;

/// With fewer repetitions nothing is known of their spread.
const LEAST: u32 = 3;
/// Nobody waits for more.
const MOST: u32 = 10_000;

/// Each repetition gets a testbed of its own. A run that is gone on with keeps its repetitions.
pub(super) fn begin(jobs: &mut [Job], store: &mut Store) -> Result<()> {
    store.change(|run| {
        for job in jobs {
            job.rebuilds = true;
            let Some(experiment) = run.scenarios.get_mut(&job.id) else {
                continue;
            };
            experiment.looks = experiment.looks.max(1);
            let doubled = 1u32.checked_shl(experiment.looks - 1).unwrap_or(MOST);
            job.repetitions = job.repetitions.max(LEAST).saturating_mul(doubled).min(MOST);
            experiment.samples = job.samples();
        }
    })
}

/// Doubles the repetitions of what is undecided; false if nothing is.
pub(super) fn repeat(jobs: &mut [Job], scenarios: &[Scenario], store: &mut Store) -> Result<bool> {
    let open = undecided(scenarios, &store.results())?;
    let mut repeated = false;
    store.change(|run| {
        for job in jobs
            .iter_mut()
            .filter(|job| open.contains(&job.id) && job.repetitions < MOST)
        {
            let Some(experiment) = run.scenarios.get_mut(&job.id) else {
                continue;
            };
            experiment.looks += 1;
            job.repetitions = job.repetitions.saturating_mul(2).min(MOST);
            experiment.samples = job.samples();
            repeated = true;
        }
    })?;
    Ok(repeated)
}

/// A finding's verdict on a switch's results.
struct Standing {
    finding: String,
    system: String,
    tables: BTreeSet<String>,
    verdict: Verdict,
    /// About how many repetitions would decide it; none if more do not help.
    needs: Option<u64>,
}

/// Of all findings that more repetitions of the measured cells can decide.
fn standings(scenarios: &[Scenario], results: &Results) -> Result<Vec<Standing>> {
    let findings = published()?;
    let systems: BTreeSet<&str> = results.samples.iter().map(|sample| sample.system.as_str()).collect();
    let mut all = Vec::new();
    for column in judge(&findings, scenarios, results, systems) {
        let judged = findings.finding.iter().zip(&column.judgements);
        for ((finding, judgement), _) in judged.zip(&column.can_be_decided).filter(|(_, can)| **can) {
            all.push(Standing {
                finding: finding.id.clone(),
                system: column.system.to_owned(),
                tables: finding.tables().map(str::to_owned).collect(),
                verdict: judgement.verdict,
                needs: judgement.evidence.iter().filter_map(|evidence| evidence.needs).max(),
            });
        }
    }
    Ok(all)
}

/// Experiments with results of findings that more repetitions can decide.
fn undecided(scenarios: &[Scenario], results: &Results) -> Result<BTreeSet<String>> {
    let all = standings(scenarios, results)?;
    let open = all
        .iter()
        .filter(|one| one.verdict == Verdict::Undecided && one.needs.is_some());
    let open: BTreeSet<&String> = open.flat_map(|one| &one.tables).collect();
    let feeds = |scenario: &&Scenario| tables(scenario).iter().any(|table| open.contains(table));
    Ok(scenarios
        .iter()
        .filter(feeds)
        .map(|scenario| scenario.id.clone())
        .collect())
}

/// Which verdicts the results decide, and what the others lack, in words.
///
/// # Errors
/// None, unless a file in the program is wrong.
pub fn decisions(scenarios: &[Scenario], results: &Results) -> Result<String> {
    let (open, decided): (Vec<Standing>, Vec<Standing>) = standings(scenarios, results)?
        .into_iter()
        .partition(|one| one.verdict == Verdict::Undecided);
    if open.is_empty() && decided.is_empty() {
        return Ok("no finding can be decided by these cells alone; --full has all cells".to_owned());
    }
    let name = |one: &Standing| format!("{} on {}", one.finding, one.system);
    let lacks = |one: &Standing| match one.needs {
        Some(n) => format!("{} (about {n} repetitions would decide)", name(one)),
        None => name(one),
    };
    let list = |all: Vec<String>| {
        if all.is_empty() {
            "none".to_owned()
        } else {
            all.join(", ")
        }
    };
    Ok(format!(
        "decided: {}; undecided: {}",
        list(decided.iter().map(name).collect()),
        list(open.iter().map(lacks).collect())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Experiment, Record, Run, Sample};
    use crate::scenario::{Profile, built_in, find};

    /// A run of idle switches, one of which is not quiet.
    fn store(dir: &std::path::Path, scenario: &Scenario) -> Store {
        let mut store = Store::open(dir, Run::new(Profile::Full, 1)).unwrap();
        store
            .enter(&scenario.id, Experiment::new(&scenario.file, &scenario.source, 0))
            .unwrap();
        store
    }

    fn add(store: &mut Store, scenario: &Scenario, repetitions: std::ops::Range<u32>) {
        for repetition in repetitions {
            for cell in scenario.cells(Profile::Full) {
                store
                    .append(Record::Sample(Box::new(Sample {
                        scenario: scenario.id.clone(),
                        system: "oxvs".into(),
                        at: cell.at.clone(),
                        repetition,
                        testbed: repetition + 1,
                        seconds: 1.0,
                        metrics: [("idle.frames".to_owned(), 0.0)].into(),
                        ..Sample::default()
                    })))
                    .unwrap();
            }
        }
    }

    #[test]
    fn what_is_undecided_is_repeated_as_often_again_and_what_is_decided_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let known = built_in().unwrap();
        let scenario = find(&known, "S1.idle")[0].clone();
        let mut store = store(dir.path(), &scenario);
        let mut jobs = [Job {
            id: scenario.id.clone(),
            cells: scenario.cells(Profile::Full).to_vec(),
            repetitions: 2,
            repeated: Default::default(),
            rebuilds: false,
            systems: Vec::new(),
        }];
        begin(&mut jobs, &mut store).unwrap();
        assert!(jobs[0].rebuilds && jobs[0].repetitions == 3);
        // Nothing came three times: that may be luck.
        add(&mut store, &scenario, 0..3);
        let scenarios = [scenario.clone()];
        assert!(repeat(&mut jobs, &scenarios, &mut store).unwrap());
        assert_eq!((jobs[0].repetitions, store.run().scenarios[&scenario.id].looks), (6, 2));
        let said = decisions(&scenarios, &store.results()).unwrap();
        assert!(
            said.starts_with("decided: none; undecided: S1.12 on oxvs (about "),
            "{said}"
        );
        // A run that is gone on with knows how often it looked.
        let mut again = [Job {
            repetitions: 2,
            ..jobs[0].clone()
        }];
        begin(&mut again, &mut store).unwrap();
        assert_eq!(again[0].repetitions, 6);
        add(&mut store, &scenario, 3..24);
        assert!(!repeat(&mut jobs, &scenarios, &mut store).unwrap());
        let said = decisions(&scenarios, &store.results()).unwrap();
        assert_eq!(said, "decided: S1.12 on oxvs; undecided: none");
        assert_eq!(store.run().scenarios[&scenario.id].looks, 2);
    }
}
