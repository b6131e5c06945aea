//! Results of a run that never was.

use lab::calibration::Check;
use lab::results::{Distribution, Loss, Record, Results, Sample, Skipped};
use lab::scenario::{Cell, Figure, Profile, Scenario};
use lab::traffic::Test;
use std::collections::BTreeMap;
use std::path::Path;
use testkit::Rng;

/// Systems, and how they stand to the first.
const SYSTEMS: &[(&str, f64)] = &[("oxvs", 1.0), ("bridge", 0.7), ("ovs-userspace", 1.9)];
/// Most cells of a scenario: the quick ones where the full profile has more.
const CELLS: usize = 90;

/// Samples of every scenario.
pub(crate) fn run() -> Results {
    let scenarios = lab::scenario::built_in().unwrap();
    let mut samples = Vec::new();
    let mut configurations = Vec::new();
    let mut experiments = serde_json::Map::new();
    for scenario in &scenarios {
        let own = of_scenario(scenario);
        let experiment = serde_json::json!({
            "file": scenario.file, "text": scenario.source, "hash": "0", "samples": own.len() / SYSTEMS.len(),
        });
        experiments.insert(scenario.id.clone(), experiment);
        samples.extend(own);
        let text = "# all cells\novs-vsctl add-br SW\novs-vsctl add-port SW PC1 tag=10\n";
        configurations.push((scenario.id.clone(), "oxvs".to_owned(), text.to_owned()));
    }
    let run = serde_json::json!({
        "format": lab::results::FORMAT, "profile": "full", "seed": 1, "in_guest": false,
        "machine": {
            "kernel": "6.18.5 #1 SMP", "distribution": "Debian GNU/Linux 12 (bookworm), 12.9", "cpu": "Some processor at 2.0 GHz", "cores": 2,
            "memory": 25_000_000_000u64, "governor": null, "clock": "tsc", "virtualized": true, "load": 0.1, "offloads": {}
        },
        "systems": { "oxvs": "oxvs 0.1.0", "bridge": "the kernel's bridge, Linux 6.18.5", "ovs-userspace": "Open vSwitch 3.1.0, netdev datapath" },
        "scenarios": experiments,
        "invocations": [{ "began": 1_790_000_000.0, "seconds": 3000.0, "version": "0.1.0", "load": 0.1, "end": "complete" }],
    });
    let skipped = scenarios.iter().map(|scenario| Skipped {
        scenario: scenario.id.clone(),
        system: "ovs-kernel".into(),
        at: BTreeMap::new(),
        reason: "needs openvswitch.ko, which this kernel does not have".into(),
        failed: false,
    });
    Results {
        run: serde_json::from_value(run).unwrap(),
        samples,
        skipped: skipped.collect(),
        configurations,
    }
}

/// Checks of the instruments.
pub(crate) fn calibration() -> Vec<Check> {
    let check = |what: &str, unit: &str, known, measured, tolerance| Check {
        what: what.into(),
        unit: unit.into(),
        known,
        measured,
        tolerance,
    };
    vec![
        check("round trip within a host, median", "µs", None, 14.2, None),
        check("10 Mbit/s, payload 1472 B", "Mbit/s", Some(9.571), 9.568, Some(0.0957)),
        check("delay 500 µs each way", "µs", Some(1000.0), 1009.0, Some(5.0)),
    ]
}

/// As a run's directory.
pub(crate) fn write(results: &Results, dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let lines = results
        .samples
        .iter()
        .map(|sample| Record::Sample(Box::new(sample.clone())));
    let lines = lines.chain(results.skipped.iter().cloned().map(Record::Skipped));
    let text: String = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect();
    std::fs::write(dir.join("samples.jsonl"), text).unwrap();
    std::fs::write(dir.join("run.json"), serde_json::to_string(&results.run).unwrap()).unwrap();
    std::fs::write(
        dir.join("calibration.json"),
        serde_json::to_string(&calibration()).unwrap(),
    )
    .unwrap();
    for (scenario, system, text) in &results.configurations {
        let to = dir.join("configuration").join(scenario);
        std::fs::create_dir_all(&to).unwrap();
        std::fs::write(to.join(format!("{system}.txt")), text).unwrap();
    }
}

fn of_scenario(scenario: &Scenario) -> Vec<Sample> {
    let profile = if scenario.cells(Profile::Full).len() > CELLS {
        Profile::Quick
    } else {
        Profile::Full
    };
    let mut random = Rng::new(scenario.id.bytes().map(u64::from).sum());
    let mut samples = Vec::new();
    for cell in scenario.cells(profile) {
        for (system, factor) in SYSTEMS {
            for repetition in 0..4 {
                samples.push(sample(scenario, cell, system, *factor, repetition, &mut random));
            }
        }
    }
    samples
}

fn sample(scenario: &Scenario, cell: &Cell, system: &str, factor: f64, repetition: u32, random: &mut Rng) -> Sample {
    // Every dimension has its own influence, by the place of the value in it.
    let influence = scenario.varied.iter().enumerate().map(|(n, dimension)| {
        let value = cell.at.get(&dimension.name);
        let place = dimension
            .values(Profile::Full)
            .iter()
            .position(|known| Some(known) == value)
            .unwrap_or(0);
        1.0 + place as f64 * [0.35, 0.08, 0.2, 0.5][n % 4]
    });
    let level = factor * influence.product::<f64>();
    let mut noise = |spread: f64| 1.0 + spread * (random.below(2001) as f64 / 1000.0 - 1.0);
    let wild = if repetition == 3 && cell.at.len() % 2 == 1 {
        1.3
    } else {
        1.0
    };
    let mut metrics = BTreeMap::new();
    for metric in &scenario.metrics {
        // About 40 in the unit it is shown in.
        metrics.insert(metric.name.clone(), 40.0 / metric.scale * level * noise(0.05) * wild);
    }
    for flow in &cell.setup.measured {
        if let Test::Cbr { rate, .. } = flow.test {
            let got = (0.98 / (0.6 + 0.3 * factor)).min(1.0);
            metrics.insert(format!("{}.rate", flow.name), rate as f64 * got * noise(0.03));
        }
    }
    let mut distributions = BTreeMap::from([(
        String::from("made.up"),
        Distribution {
            count: 2,
            quantiles: vec![(0.0, 1.0), (1.0, 2.0)],
        },
    )]);
    for figure in &scenario.figures {
        match figure {
            Figure::Cdf { of, .. } => {
                let scale = scenario.metric(of).map_or(1.0, |metric| metric.scale);
                let value = |n: i32| {
                    (
                        f64::from(n) / 40.0,
                        30.0 / scale * level * (1.0 + (f64::from(n) / 16.0).exp() / 8.0),
                    )
                };
                let quantiles = (0..=40).map(value).collect();
                distributions.insert(
                    of.clone(),
                    Distribution {
                        count: 10_000,
                        quantiles,
                    },
                );
            }
            Figure::Matrix { of } => {
                for (a, b) in [
                    ("VM1", "VM2"),
                    ("VM2", "VM1"),
                    ("VM1", "VM3"),
                    ("VM3", "VM1"),
                    ("VM2", "VM3"),
                    ("VM3", "VM2"),
                ] {
                    let same = a != "VM3" && b != "VM3";
                    metrics.insert(format!("{of}.{a}-{b}"), f64::from(u8::from(same)));
                }
            }
            _ => {}
        }
    }
    let loss = |cause: &str, place: &str, packets: u64| Loss {
        cause: cause.into(),
        place: place.into(),
        packets,
    };
    Sample {
        scenario: scenario.id.clone(),
        system: system.into(),
        at: cell.at.clone(),
        repetition,
        testbed: repetition + 1,
        started: 1_790_000_000.0 + f64::from(repetition),
        seconds: 1.0,
        metrics,
        distributions,
        series: BTreeMap::from([(
            String::from("rate.PC4"),
            (1..=20)
                .map(|n| (f64::from(n) / 20.0, 9e6 * factor * (1.0 - (-f64::from(n)).exp())))
                .collect(),
        )]),
        losses: vec![
            loss("policer", "PC1", 120),
            loss("queue", "PC4", u64::from(repetition)),
            loss("receiver", "PC4", 0),
        ],
        cpu: BTreeMap::from([
            ("system".into(), 0.3 * factor),
            ("lab".into(), 0.4),
            ("all".into(), 0.9),
        ]),
        load: 0.05,
        remarks: if repetition == 0 {
            vec!["the sender was late by up to 0.3 ms".into()]
        } else {
            Vec::new()
        },
        validity: lab::results::Validity::default(),
    }
}
