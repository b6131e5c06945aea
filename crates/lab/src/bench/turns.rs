//! Rounds: each switch has a turn in each, and the machine is looked at before each turn.

use super::canary::Canary;
use super::report::{Figures, Measured, Others, Round, Turn};
use super::subject::{Kind, Subject};
use super::{Case, Options};
use crate::run::Stop;
use crate::stats::Series;
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a switch runs before its turn is measured: the other one has used caches and branch
/// predictors meanwhile.
const BEFORE: Duration = Duration::from_millis(200);

/// How long a turn is at most in which all connections are to be new.
const NEW: Duration = Duration::from_millis(150);

/// How far the canary may move, as a share.
const STEADY: f64 = 0.1;

/// Rounds that may be left out for each that counts.
const SPARE: usize = 2;

/// Measures subjects that are configured and paused.
pub(crate) fn measure(
    case: &Case,
    options: &Options,
    stop: &Stop,
    canary: &mut Canary,
    subjects: &mut [Subject],
    cpu: usize,
    configurations: &[String],
) -> Result<Measured> {
    let before: Vec<_> = subjects.iter().map(Subject::hits_paused).collect::<Result<_>>()?;
    let mut rounds: Vec<Round> = Vec::new();
    let mut steady = 0;
    while steady < options.rounds && rounds.len() < options.rounds * (1 + SPARE) {
        let mut turns = vec![Turn::default(); subjects.len()];
        let mut latency = Vec::new();
        // A B, then B A: a machine that gets slower is to each half the time.
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        if rounds.len() % 2 == 1 {
            order.reverse();
        }
        for number in order {
            if stop.is_requested() {
                bail!("stopped");
            }
            latency.push(canary.measure(cpu)?);
            let subject = &mut subjects[number];
            subject.resume();
            let measured = if case.rules.forgets() {
                subject
                    .forget()
                    .and_then(|()| subject.measure_new(options.turn.min(NEW)))
            } else {
                let kept = subject.keep_bond();
                std::thread::sleep(BEFORE);
                kept.and_then(|()| subject.measure(options.turn))
            };
            subject.pause();
            turns[number] = measured?;
        }
        latency.push(canary.measure(cpu)?);
        rounds.push(Round {
            turns,
            latency,
            counts: true,
        });
        steady = mark(&mut rounds);
    }
    let mut figures = BTreeMap::new();
    for (number, subject) in subjects.iter().enumerate() {
        let mut hits = subject.hits_paused()?;
        for (name, was) in &before[number] {
            hits.entry(name.clone())
                .and_modify(|now| *now = now.saturating_sub(*was));
        }
        hits.retain(|_, n| *n > 0);
        figures.insert(
            subject.name(case),
            Figures::new(&rounds, number, hits, &configurations[number], subject.configuration()),
        );
    }
    let place = |is: fn(&Subject, &Case) -> bool| subjects.iter().position(|subject| is(subject, case));
    let others = Others {
        peer: place(|subject, _| subject.kind == Kind::Dpdk),
        beside: place(|subject, case| subject.rules != case.rules),
    };
    Ok(Measured::new(*case, figures, rounds, others))
}

/// Marks the rounds whose canary has its usual value. Returns their number.
fn mark(rounds: &mut [Round]) -> usize {
    let usual = Series::new(rounds.iter().flat_map(|round| round.latency.iter().copied())).quantile(0.5);
    for round in rounds.iter_mut() {
        round.counts = round.latency.iter().all(|now| (now / usual - 1.0).abs() <= STEADY);
    }
    rounds.iter().filter(|round| round.counts).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_in_which_memory_was_slower_does_not_count() {
        let round = |latency: &[f64]| Round {
            turns: Vec::new(),
            latency: latency.to_vec(),
            counts: true,
        };
        let mut rounds = [
            round(&[100.0, 101.0, 99.0]),
            round(&[100.0, 120.0, 100.0]),
            round(&[97.0, 100.0, 105.0]),
        ];
        assert_eq!(mark(&mut rounds), 2);
        assert!(!rounds[1].counts && rounds[2].counts);
    }
}
