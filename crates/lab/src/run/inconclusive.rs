//! Repeats the cells of two builds that tell too little.
//!
//! After all repetitions the builds are compared, and cells in which the second may be much worse
//! without being called worse are repeated as often again, three times at most. `run.json` has how
//! often, so that a resumed run finishes its repetitions.

use super::plan::Job;
use crate::compare::{Criterion, MOST_LOOKS, builds, compare, inconclusive};
use crate::results::Store;
use anyhow::Result;
use std::collections::BTreeSet;

/// Restores the repetitions that earlier invocations have planned.
pub(super) fn begin(jobs: &mut [Job], store: &mut Store) -> Result<()> {
    store.change(|run| {
        run.looks = run.looks.max(1);
        for job in jobs {
            if let Some(experiment) = run.scenarios.get_mut(&job.id) {
                job.repeated.clone_from(&experiment.repeated);
                experiment.samples = job.samples();
            }
        }
    })
}

/// Doubles the repetitions of the cells in which the second build may be `factor` times worse and
/// is not called worse; false if there is none, or that was done often enough.
pub(super) fn repeat(jobs: &mut [Job], factor: f64, threshold: f64, store: &mut Store) -> Result<bool> {
    if store.run().looks >= MOST_LOOKS {
        return Ok(false);
    }
    let (a, b) = builds(&store.results())?;
    let compared = compare(&[a], &b, Criterion::of(store.run(), threshold));
    let open: BTreeSet<_> = inconclusive(&compared, factor)
        .map(|one| (one.scenario.as_str(), &one.at))
        .collect();
    let mut repeats = false;
    for job in jobs.iter_mut() {
        for (number, cell) in job.cells.iter().enumerate() {
            if open.contains(&(job.id.as_str(), &cell.at)) {
                job.repeated
                    .insert(number, job.repetitions_of(number).saturating_mul(2));
                repeats = true;
            }
        }
    }
    if !repeats {
        return Ok(false);
    }
    store.change(|run| {
        run.looks += 1;
        for job in jobs {
            if let Some(experiment) = run.scenarios.get_mut(&job.id) {
                experiment.repeated.clone_from(&job.repeated);
                experiment.samples = job.samples();
            }
        }
    })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Experiment, Record, Run, Sample};
    use crate::scenario::{Profile, Scenario, built_in, find};

    /// Adds repetitions of both builds: of the first cell they are 1, 1.01, 1.02, and of all others
    /// 1, 10, 100, and again.
    fn add(store: &mut Store, scenario: &Scenario, repetitions: std::ops::Range<u32>) {
        for repetition in repetitions {
            for (number, cell) in scenario.cells(Profile::Quick).iter().enumerate() {
                let base: f64 = if number == 0 { 1.01 } else { 10.0 };
                for system in ["A", "B"] {
                    let value = base.powi((repetition % 3).cast_signed());
                    let metrics = scenario.metrics.iter().map(|metric| (metric.name.clone(), value));
                    let sample = Sample {
                        scenario: scenario.id.clone(),
                        system: system.to_owned(),
                        at: cell.at.clone(),
                        repetition,
                        testbed: repetition + 1,
                        metrics: metrics.collect(),
                        ..Sample::default()
                    };
                    store.append(Record::Sample(Box::new(sample))).unwrap();
                }
            }
        }
    }

    #[test]
    fn cells_that_tell_too_little_are_repeated_as_often_again() {
        let dir = tempfile::tempdir().unwrap();
        let scenario = find(&built_in().unwrap(), "S3.mode")[0].clone();
        let cells = scenario.cells(Profile::Quick).to_vec();
        let mut store = Store::open(dir.path(), Run::new(Profile::Quick, 1)).unwrap();
        let experiment = Experiment::new(&scenario.file, &scenario.source, 0);
        store.enter(&scenario.id, experiment).unwrap();
        for name in ["A", "B"] {
            store.enter_system(name, name).unwrap();
        }
        let job = Job {
            id: scenario.id.clone(),
            cells: cells.clone(),
            repetitions: 4,
            repeated: Default::default(),
            rebuilds: true,
            systems: Vec::new(),
        };
        let mut jobs = [job.clone()];
        begin(&mut jobs, &mut store).unwrap();
        add(&mut store, &scenario, 0..4);
        assert!(repeat(&mut jobs, 3.0, 0.0, &mut store).unwrap());
        let times = |job: &Job| Vec::from_iter((0..cells.len()).map(|cell| job.repetitions_of(cell)));
        let mut wanted = vec![8; cells.len()];
        wanted[0] = 4;
        assert_eq!(times(&jobs[0]), wanted);
        assert_eq!(store.run().looks, 2);
        // A resumed run finishes its repetitions.
        let mut again = [job];
        begin(&mut again, &mut store).unwrap();
        assert_eq!(times(&again[0]), wanted);
        assert_eq!(
            store.run().scenarios[&scenario.id].samples,
            u64::from(wanted.iter().sum::<u32>())
        );
        add(&mut store, &scenario, 4..8);
        assert!(repeat(&mut again, 3.0, 0.0, &mut store).unwrap());
        wanted[1..].fill(16);
        assert_eq!((times(&again[0]), store.run().looks), (wanted, 3));
        // So many exclude a factor of 100 000, but not of 3, for which there is one look more.
        add(&mut store, &scenario, 8..16);
        assert!(!repeat(&mut again, 1e5, 0.0, &mut store).unwrap());
        assert!(repeat(&mut again, 3.0, 0.0, &mut store).unwrap());
        assert!(!repeat(&mut again, 3.0, 0.0, &mut store).unwrap());
        assert_eq!(store.run().looks, MOST_LOOKS);
    }
}
