use super::*;
use crate::results::{Results, Run, load};
use crate::run::plan::Candidate;
use crate::scenario::{Cell, Profile};
use crate::topology::{Bridge, Control, Topology};
use anyhow::bail;
use std::cell::{Cell as Shared, RefCell};
use std::path::Path;
use std::rc::Rc;

/// Events in order.
type Events = Rc<RefCell<Vec<String>>>;

/// A machine on which a second passes when it is measured.
#[derive(Clone, Default)]
struct Imitation {
    clock: Rc<Shared<f64>>,
    events: Events,
    /// A system and a cell that kill each other.
    deadly: Option<(String, String)>,
    /// A system that cannot be set up.
    broken: Option<String>,
    /// A cell that leaves the testbed as it was not before.
    messy: Option<String>,
    /// A cell whose samples do not count.
    disturbed: Option<String>,
    /// Simulates ^C after this many samples.
    patience: Option<(Stop, usize)>,
}

struct Imitated {
    system: String,
    of: Imitation,
}

impl Stage for Imitation {
    fn stand(&mut self, system: &str, setup: &Setup) -> Result<Box<dyn Standing>> {
        self.clock.set(self.clock.get() + 1.0);
        if self.broken.as_deref() == Some(system) {
            bail!("{system} cannot be set up: no such device");
        }
        self.events
            .borrow_mut()
            .push(format!("{system} at {}", setup.topology.bridges[0].name));
        Ok(Box::new(Imitated {
            system: system.to_owned(),
            of: self.clone(),
        }))
    }

    fn clear(&mut self) {
        self.events.borrow_mut().push("cleared".to_owned());
    }
}

impl Standing for Imitated {
    fn configuration(&self) -> Vec<String> {
        vec![format!("set up {}", self.system)]
    }

    fn measure(&mut self, setup: &Setup, _stop: &Stop) -> Result<Measurement> {
        self.of.clock.set(self.of.clock.get() + setup.seconds);
        let bed = &setup.topology.bridges[0].name;
        let what = format!("{}/{}", self.system, setup.warmup);
        if let Some((system, cell)) = &self.of.deadly
            && (system, cell) == (&self.system, &setup.warmup.to_string())
        {
            bail!("{system} has ended (signal 11); it said last: assertion failed");
        }
        self.of.events.borrow_mut().push(format!("{what} at {bed}"));
        if let Some((stop, patience)) = &self.of.patience
            && self.of.events.borrow().iter().filter(|line| line.contains('/')).count() >= *patience
        {
            stop.ask();
        }
        Ok(Measurement {
            seconds: setup.seconds,
            validity: crate::results::Validity {
                void: Vec::from_iter(
                    (self.of.disturbed.as_ref() == Some(&setup.warmup.to_string()))
                        .then(|| "other work used 2.0 of 2 processors".to_owned()),
                ),
                ..Default::default()
            },
            spent: self.of.messy.as_ref() == Some(&setup.warmup.to_string()),
            ..Measurement::default()
        })
    }
}

fn cell(bed: &str, number: u32) -> Cell {
    let bridge = Bridge {
        name: bed.to_owned(),
        svis: Vec::new(),
        control: Control::Learning,
        tree: None,
        stateful: None,
        offload: true,
    };
    Cell {
        at: BTreeMap::from([("bed".to_owned(), bed.to_owned()), ("n".to_owned(), number.to_string())]),
        setup: Setup {
            topology: Topology {
                bridges: vec![bridge],
                ..Topology::default()
            },
            background: Vec::new(),
            measured: Vec::new(),
            observed: Vec::new(),
            systems: Vec::new(),
            openflow: None,
            seconds: 1.0,
            warmup: f64::from(number),
            awake: true,
        },
    }
}

/// Two testbeds of three cells each, on two systems.
fn job(id: &str, repetitions: u32) -> Job {
    let cells: Vec<Cell> = ["a", "b"].iter().flat_map(|bed| (0..3).map(|n| cell(bed, n))).collect();
    let all = || (0..cells.len()).collect();
    let systems = ["oxvs", "bridge"].map(|name| Candidate {
        name: name.to_owned(),
        cells: all(),
    });
    Job {
        id: id.to_owned(),
        repetitions,
        repeated: Default::default(),
        rebuilds: true,
        systems: systems.to_vec(),
        cells: cells.clone(),
    }
}

fn store(dir: &Path) -> Store {
    let experiment = |id: &str| (id.to_owned(), crate::results::Experiment::new("x.toml", id, 1));
    let run = Run {
        systems: ["oxvs", "bridge"].map(|name| (name.to_owned(), name.to_owned())).into(),
        scenarios: ["S0.x", "S0.y"].map(experiment).into(),
        ..Run::new(Profile::Quick, 7)
    };
    Store::open(dir, run).unwrap()
}

fn go(dir: &Path, jobs: &[Job], imitation: &Imitation, budget: Option<f64>) -> (Outcome, Results) {
    let mut stage = imitation.clone();
    let stop = imitation
        .patience
        .as_ref()
        .map(|(stop, _)| stop.clone())
        .unwrap_or_default();
    let outcome = Engine {
        jobs,
        store: &mut store(dir),
        stage: &mut stage,
        stop: &stop,
        budget,
        now: &|| imitation.clock.get(),
        progress: &mut Progress::none(),
    };
    let mut outcome = outcome;
    let outcome = outcome.run().unwrap();
    (outcome, load(dir).unwrap())
}

fn lines(imitation: &Imitation, of: char) -> Vec<String> {
    imitation
        .events
        .borrow()
        .iter()
        .filter(|line| line.contains(of))
        .cloned()
        .collect()
}

#[test]
fn void_samples_are_recorded_do_not_count_and_are_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    let imitation = Imitation {
        disturbed: Some("1".to_owned()),
        ..Imitation::default()
    };
    let (outcome, results) = go(dir.path(), &[job("S0.x", 2)], &imitation, None);
    assert!(outcome.void > 0, "{outcome:?}");
    assert_eq!(outcome.samples + outcome.void, outcome.wanted);
    assert_eq!(results.samples.len() as u64, outcome.samples);
    assert!(
        results
            .skipped
            .iter()
            .any(|skipped| skipped.reason.contains("is void: other work")),
        "{:?}",
        results.skipped
    );
    let (again, results) = go(dir.path(), &[job("S0.x", 2)], &Imitation::default(), None);
    assert_eq!((again.samples, again.void), (outcome.wanted, 0));
    assert_eq!(results.samples.len() as u64, outcome.wanted);
    assert!(results.skipped.is_empty(), "{:?}", results.skipped);
}

#[test]
fn every_cell_is_run_on_every_system_as_often_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let imitation = Imitation::default();
    let (outcome, results) = go(dir.path(), &[job("S0.x", 3), job("S0.y", 1)], &imitation, None);
    assert_eq!(
        outcome,
        Outcome {
            end: End::Complete,
            samples: 48,
            wanted: 48,
            failed: 0,
            void: 0
        }
    );
    let mut seen: Vec<_> = results
        .samples
        .iter()
        .map(|s| (&s.scenario, &s.system, &s.at, s.repetition))
        .collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 48);
    let (_, _, text) = results
        .configurations
        .iter()
        .find(|(id, system, _)| id == "S0.x" && system == "bridge")
        .unwrap();
    assert!(
        text.contains("# bed a\nset up bridge\n") && text.contains("# bed b\nset up bridge\n"),
        "{text}"
    );
}

#[test]
fn a_cell_can_be_repeated_more_often_than_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let job = Job {
        repeated: [(1, 4)].into(),
        ..job("S0.x", 2)
    };
    let (outcome, results) = go(dir.path(), std::slice::from_ref(&job), &Imitation::default(), None);
    assert_eq!((outcome.wanted, outcome.samples, job.samples()), (28, 28, 14));
    for (number, cell) in job.cells.iter().enumerate() {
        let of = |sample: &&Sample| sample.at == cell.at && sample.system == "oxvs";
        let repetitions: Vec<u32> = results
            .samples
            .iter()
            .filter(of)
            .map(|sample| sample.repetition)
            .collect();
        let wanted = if number == 1 { 4 } else { 2 };
        assert_eq!(repetitions, Vec::from_iter(0..wanted), "cell {number}");
    }
}

#[test]
fn cells_of_a_testbed_share_it_and_repetitions_of_systems_interleave() {
    let dir = tempfile::tempdir().unwrap();
    let imitation = Imitation::default();
    let (_, results) = go(dir.path(), &[job("S0.x", 4)], &imitation, None);
    let stood: Vec<String> = imitation
        .events
        .borrow()
        .iter()
        .filter(|line| !line.contains('/') && *line != "cleared")
        .cloned()
        .collect();
    assert_eq!(stood.len(), 4 * 4, "one for each system and testbed in each repetition");
    let repetitions: Vec<u32> = results.samples.iter().map(|sample| sample.repetition).collect();
    assert!(
        repetitions.is_sorted(),
        "a repetition ends on all systems before the next begins"
    );
    let testbeds: Vec<u32> = results.samples.iter().map(|sample| sample.testbed).collect();
    let expected: Vec<u32> = (1..=16).flat_map(|n| [n; 3]).collect();
    assert_eq!(testbeds, expected, "samples say which testbed they are of");
    let order = |repetition: usize| &stood[repetition * 4..][..4];
    assert!((1..4).any(|n| order(n) != order(0)), "by lot: {stood:?}");
    let beds = |line: &String| line.split(" at ").nth(1).unwrap_or_default().to_owned();
    for n in 0..4 {
        assert_eq!(
            order(n)
                .iter()
                .map(beds)
                .collect::<Vec<_>>()
                .windows(2)
                .filter(|pair| pair[0] != pair[1])
                .count(),
            1,
            "hosts and cables stay"
        );
    }
}

#[test]
fn an_interrupted_run_goes_on_where_it_ended_in_the_same_order() {
    let whole = tempfile::tempdir().unwrap();
    let (_, results) = go(whole.path(), &[job("S0.x", 2)], &Imitation::default(), None);
    let order = |results: &Results| {
        results
            .samples
            .iter()
            .map(|s| (s.system.clone(), s.at.clone(), s.repetition))
            .collect::<Vec<_>>()
    };
    let expected = order(&results);

    let dir = tempfile::tempdir().unwrap();
    let stop = Stop::default();
    let imitation = Imitation {
        patience: Some((stop, 5)),
        ..Imitation::default()
    };
    let (outcome, results) = go(dir.path(), &[job("S0.x", 2)], &imitation, None);
    assert_eq!(
        (outcome.end, outcome.samples, outcome.wanted),
        (End::Interrupted, 5, 24)
    );
    assert_eq!(order(&results), expected[..5]);
    let (outcome, results) = go(dir.path(), &[job("S0.x", 2)], &Imitation::default(), None);
    assert_eq!((outcome.end, outcome.samples), (End::Complete, 24));
    assert_eq!(order(&results), expected);
    let again = Imitation::default();
    go(dir.path(), &[job("S0.x", 2)], &again, None);
    assert!(again.events.borrow().is_empty(), "nothing is left to do");
}

#[test]
fn a_budget_ends_the_run_before_the_repetition_that_would_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let imitation = Imitation::default();
    let (outcome, results) = go(dir.path(), &[job("S0.x", 2)], &imitation, Some(20.0));
    assert_eq!(outcome.end, End::Budget);
    assert!(imitation.clock.get() <= 20.0, "{}", imitation.clock.get());
    assert!(outcome.samples > 3 && outcome.samples < 24, "{outcome:?}");
    assert_eq!(outcome.samples as usize, results.samples.len());
    let (outcome, _) = go(dir.path(), &[job("S0.x", 2)], &Imitation::default(), None);
    assert_eq!((outcome.end, outcome.samples), (End::Complete, 24));
}

#[test]
fn a_system_that_dies_is_recorded_with_its_last_words_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let imitation = Imitation {
        deadly: Some(("oxvs".to_owned(), "1".to_owned())),
        ..Imitation::default()
    };
    let (outcome, results) = go(dir.path(), &[job("S0.x", 5)], &imitation, None);
    assert_eq!(outcome.end, End::Complete);
    assert_eq!(
        outcome.samples,
        60 - 10,
        "all but one cell of each testbed on that system"
    );
    assert_eq!(
        outcome.failed, 4,
        "twice for each of the two cells, then they are left alone"
    );
    assert_eq!(results.skipped.len(), 2);
    assert!(results.skipped[0].reason.contains("it said last: assertion failed"));
    assert_eq!(results.skipped[0].at["n"], "1");
    assert_eq!(
        lines(&imitation, 'c').iter().filter(|line| *line == "cleared").count(),
        4 + 5,
        "the next testbed is a new one, and so is that of each repetition"
    );
}

#[test]
fn a_system_that_cannot_be_set_up_does_not_keep_the_other_from_running() {
    let dir = tempfile::tempdir().unwrap();
    let imitation = Imitation {
        broken: Some("bridge".to_owned()),
        ..Imitation::default()
    };
    let (outcome, results) = go(dir.path(), &[job("S0.x", 3)], &imitation, None);
    assert_eq!((outcome.end, outcome.samples), (End::Complete, 18));
    assert!(
        results
            .skipped
            .iter()
            .all(|skipped| skipped.reason.contains("no such device"))
    );
    assert_eq!(results.skipped.len(), 6);
}

#[test]
fn a_quick_look_stays_on_its_testbed_for_all_repetitions() {
    let dir = tempfile::tempdir().unwrap();
    let imitation = Imitation::default();
    let quick = Job {
        rebuilds: false,
        ..job("S0.x", 3)
    };
    let (outcome, results) = go(dir.path(), &[quick], &imitation, None);
    assert_eq!((outcome.end, outcome.samples), (End::Complete, 36));
    assert_eq!(
        imitation
            .events
            .borrow()
            .iter()
            .filter(|line| !line.contains('/'))
            .count(),
        4
    );
    let of_first: Vec<u32> = results.samples[..9].iter().map(|sample| sample.repetition).collect();
    assert_eq!(of_first, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn what_follows_a_cell_that_spoils_its_testbed_has_another() {
    let dir = tempfile::tempdir().unwrap();
    let imitation = Imitation {
        messy: Some("1".to_owned()),
        ..Imitation::default()
    };
    let (outcome, results) = go(dir.path(), &[job("S0.x", 1)], &imitation, None);
    assert_eq!((outcome.end, results.samples.len()), (End::Complete, 12));
    let events = imitation.events.borrow();
    for (line, next) in events.iter().zip(events.iter().skip(1)) {
        // A cell of the same testbed would follow at once.
        assert_eq!(line.contains("/1 at "), next == "cleared", "{line}, {next}");
        assert!(
            line != "cleared" || next.contains(" at ") && !next.contains('/'),
            "{next}"
        );
    }
}
